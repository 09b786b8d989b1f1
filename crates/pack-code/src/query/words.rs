//! The words of a query as terms with weights.

use crate::query::weights;
use crate::text::words::{identifiers, parts_of, terms};

/// Terms of one query; a mask has a bit for each.
const MOST: usize = 48;

/// Words that say nothing about what is looked for.
const EMPTY: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "been", "by", "can", "do", "does", "for", "from",
    "get", "how", "i", "if", "in", "into", "is", "it", "its", "of", "on", "or", "should", "so",
    "that", "the", "their", "them", "then", "there", "these", "they", "this", "to", "was", "we",
    "were", "what", "when", "where", "which", "while", "who", "why", "will", "with", "you", "your",
    "via", "vs",
];

/// Words that questions have more often than the code they ask about.
const WEAK: &[&str] = &[
    "implementation",
    "implement",
    "implements",
    "implemented",
    "logic",
    "code",
    "function",
    "method",
    "class",
    "module",
    "work",
    "works",
    "working",
    "using",
    "use",
    "used",
    "uses",
    "handle",
    "handles",
    "handling",
    "support",
    "different",
    "between",
    "based",
    "across",
    "multiple",
    "internal",
    "internals",
    "mechanism",
    "system",
    "way",
    "about",
    "define",
    "defined",
    "defines",
    "definition",
    "file",
    "main",
];

/// One term.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) bytes: Vec<u8>,
    pub(crate) weight: f64,
    /// How rare it is; filled in by the search.
    pub(crate) idf: f64,
    pub(crate) found: bool,
    /// The whole of an identifier with several parts.
    pub(crate) whole: bool,
}

/// All terms of a query.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryTerms {
    pub(crate) terms: Vec<Term>,
    /// Identifiers that can only be names: with capitals inside, an underscore, or alone.
    pub(crate) names: Vec<String>,
    /// The words that count, each with its weight.
    pub(crate) words: Vec<(String, f64)>,
}

impl QueryTerms {
    pub(crate) fn of(text: &str) -> Self {
        let words: Vec<&str> = identifiers(text.as_bytes())
            .filter_map(|(start, end)| text.get(start..end))
            .collect();
        let meaningful = |word: &&&str| !EMPTY.contains(&word.to_lowercase().as_str());
        let mut kept: Vec<&str> = words.iter().filter(meaningful).copied().collect();
        if kept.is_empty() {
            kept = words;
        }
        let mut found = Self::default();
        let mut scratch = Vec::new();
        let alone = kept.len() == 1;
        for word in &kept {
            let mut parts = 0;
            parts_of(word.as_bytes(), |_| parts += 1);
            let is_name =
                alone || parts > 1 && !word.chars().all(|c| c.is_uppercase() || c.is_ascii_digit());
            if is_name && !found.names.iter().any(|known| known == word) {
                found.names.push((*word).to_owned());
            }
            let weak = WEAK.contains(&word.to_lowercase().as_str());
            let weight = if weak { weights::WEAK } else { 1.0 };
            found.words.push(((*word).to_owned(), weight));
            let mut made = Vec::new();
            terms(word.as_bytes(), &mut scratch, |term| {
                made.push(term.to_vec());
            });
            let several = made.len() > 1;
            let last = made.len().saturating_sub(1);
            for (at, bytes) in made.into_iter().enumerate() {
                let whole = several && at == last;
                let weight = match (weak, whole, several) {
                    (true, _, _) => weights::WEAK,
                    (_, true, _) => weights::WHOLE,
                    (_, _, true) => weights::PART,
                    _ => 1.0,
                };
                found.add(bytes, weight, whole);
            }
        }
        // Neighbours may be one identifier in the code: `join set` is `JoinSet`.
        for pair in kept.windows(2) {
            if let [a, b] = pair {
                let joined = format!("{}{}", a.to_lowercase(), b.to_lowercase());
                if joined.len() <= 40 {
                    found.add(joined.into_bytes(), weights::JOINED, true);
                }
            }
        }
        found
    }

    fn add(&mut self, bytes: Vec<u8>, weight: f64, whole: bool) {
        if let Some(known) = self.terms.iter_mut().find(|term| term.bytes == bytes) {
            known.weight = known.weight.max(weight);
            known.whole |= whole;
        } else if self.terms.len() < MOST {
            self.terms.push(Term {
                bytes,
                weight,
                idf: 0.0,
                found: false,
                whole,
            });
        }
    }

    /// Names that may occur nowhere as they are written: those of which the index does not have the
    /// term, and those of several parts, whose term is the same in all conventions.
    pub(crate) fn doubtful_names(&self) -> Vec<&str> {
        let is_known = |name: &str| {
            let mut parts = Vec::new();
            terms(name.as_bytes(), &mut Vec::new(), |part| {
                parts.push(part.to_vec());
            });
            // A term that is shorter than its word is a stem.
            let [term] = parts.as_slice() else {
                return false;
            };
            let same = self.terms.iter().find(|known| known.bytes == *term);
            term.len() == name.len() && same.is_some_and(|known| known.found)
        };
        let names = self.names.iter().map(String::as_str);
        names.filter(|name| !is_known(name)).collect()
    }

    /// What all terms that exist are worth together.
    pub(crate) fn total_weight(&self) -> f64 {
        self.terms
            .iter()
            .filter(|term| term.found && !term.whole)
            .map(|term| term.weight * term.idf)
            .sum()
    }

    /// What the terms of a mask are worth together.
    pub(crate) fn weight_of(&self, mask: u64) -> f64 {
        let terms = self.terms.iter().enumerate();
        terms
            .filter(|(bit, term)| mask >> bit & 1 == 1 && !term.whole)
            .map(|(_, term)| term.weight * term.idf)
            .sum()
    }

    /// The same with the wholes of identifiers, for which their parts do not stand.
    pub(crate) fn whole_weight_of(&self, mask: u64) -> f64 {
        let terms = self.terms.iter().enumerate();
        terms
            .filter(|(bit, _)| mask >> bit & 1 == 1)
            .map(|(_, term)| term.weight * term.idf)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_lose_their_empty_words_and_names_stay() {
        let terms = QueryTerms::of("how does the JoinSet spawn tasks");
        let words: Vec<String> = terms
            .terms
            .iter()
            .map(|term| String::from_utf8(term.bytes.clone()).unwrap())
            .collect();
        assert_eq!(
            words,
            [
                "join",
                "set",
                "joinset",
                "spawn",
                "task",
                "joinsetspawn",
                "spawntasks"
            ]
        );
        assert_eq!(terms.names, ["JoinSet"]);
        assert_eq!(QueryTerms::of("Router").names, ["Router"]);
        assert_eq!(QueryTerms::of("how to").terms.len(), 3);
    }
}
