//! Ranking of tools by a query: BM25 over the words of name, title, description and argument names.
//!
//! Pure and deterministic: equal scores keep the order of the list. Words are split at case changes, so that
//! `createPullRequest` and `create_pull_request` have the same words, and lose their common endings.

use serde_json::Value;

use super::ToolItem;

/// Words of a query that count.
const TERMS: usize = 16;
/// Bytes of one definition that are read; a longer one is ranked by its name alone.
const DEFINITION_BYTES: usize = 64 * 1024;
/// Bytes of all definitions that are read in one search.
const TOTAL_BYTES: usize = 4 * 1024 * 1024;
/// Words of one description that count.
const DESCRIPTION_WORDS: usize = 200;
/// Argument names that count.
const ARGUMENTS: usize = 50;
/// Shortest word that matches as the beginning of a longer one.
const PREFIX_CHARS: usize = 4;
/// Weight of such a match.
const PREFIX_WEIGHT: f64 = 0.5;
/// Common beginning of two words that are forms of one, the most letters after it, and the weight of such a match.
const ROOT_CHARS: usize = 5;
const ENDING_CHARS: usize = 5;
const ROOT_WEIGHT: f64 = 0.4;
/// Weight of a word with the same meaning.
const SYNONYM_WEIGHT: f64 = 0.6;
/// Weights of the places of a word.
const NAME: f64 = 4.0;
const TITLE: f64 = 2.0;
const DESCRIPTION: f64 = 1.0;
const ARGUMENT: f64 = 0.5;
/// The parameters of BM25.
const K1: f64 = 1.2;
const B: f64 = 0.6;

/// Words without meaning for a search.
const STOP: [&str; 40] = [
    "a", "all", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "for", "from",
    "have", "how", "i", "in", "into", "is", "it", "its", "me", "my", "of", "on", "or", "our",
    "that", "the", "their", "there", "this", "to", "us", "we", "what", "which", "with", "you",
];

/// Words that tools and people use for the same thing.
const SYNONYMS: [&[&str]; 22] = [
    &["create", "add", "new", "make", "insert", "open"],
    &["delete", "remove", "drop", "erase", "clear"],
    &["update", "edit", "modify", "change", "set", "rename"],
    &[
        "get", "read", "show", "fetch", "view", "retrieve", "display", "see", "look",
    ],
    &["list", "enumerate", "show"],
    &["search", "find", "query", "look", "locate"],
    &["send", "post", "publish", "write", "reply"],
    &["run", "execute", "start", "launch", "trigger", "invoke"],
    &["deactivate", "disable", "off", "stop", "cancel", "suspend"],
    &["activate", "enable", "resume"],
    &["explain", "describe", "show"],
    &[
        "user",
        "account",
        "member",
        "person",
        "people",
        "collaborator",
        "employee",
    ],
    &["access", "permission", "role", "right"],
    &["secret", "credential", "password", "token"],
    &["mail", "email", "message"],
    &["error", "failure", "exception", "fault"],
    &["log", "audit"],
    &["usage", "metric", "statistic", "stats", "measure"],
    &["task", "todo"],
    &["bill", "invoice"],
    &["folder", "directory"],
    &["picture", "image", "photo", "screenshot"],
];

/// The best matches, best first. A tool without a match is left out.
pub(super) fn rank(query: &str, tools: &[ToolItem], limit: usize) -> Vec<usize> {
    let mut terms: Vec<Term> = Vec::new();
    for word in words(query) {
        let is_known = terms.iter().any(|term| term.word == word);
        if !is_known && terms.len() < TERMS && !STOP.contains(&word.as_str()) {
            terms.push(Term::of(word));
        }
    }
    let mut budget = TOTAL_BYTES;
    let documents: Vec<Document> = tools
        .iter()
        .map(|tool| Document::of(tool, &terms, &mut budget))
        .collect();
    let count = documents.len().max(1) as f64;
    let mean = documents
        .iter()
        .map(|document| document.length)
        .sum::<f64>()
        / count;
    let weights: Vec<f64> = (0..terms.len())
        .map(|term| {
            let having = documents
                .iter()
                .filter(|document| document.has(term))
                .count() as f64;
            (1.0 + (count - having + 0.5) / (having + 0.5)).ln()
        })
        .collect();
    let mut scored: Vec<(f64, usize)> = documents
        .iter()
        .enumerate()
        .map(|(index, document)| (document.score(&weights, mean), index))
        .filter(|(score, _)| *score > 0.0)
        .collect();
    scored.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    scored.truncate(limit);
    scored.into_iter().map(|(_, index)| index).collect()
}

/// A word of a query.
struct Term {
    word: String,
    synonyms: Vec<String>,
}

impl Term {
    fn of(word: String) -> Self {
        let groups = SYNONYMS
            .iter()
            .map(|group| group.iter().map(|other| stem(other)));
        let groups = groups.map(Iterator::collect::<Vec<String>>);
        Self {
            synonyms: groups
                .filter(|group| group.contains(&word))
                .flatten()
                .collect(),
            word,
        }
    }

    /// How much a word of a tool means this one: 1 if they are equal, 0 if they differ.
    fn likeness(&self, word: &str) -> f64 {
        let term = self.word.as_str();
        if term == word {
            return 1.0;
        }
        let short = term.len().min(word.len());
        if short >= PREFIX_CHARS && (term.starts_with(word) || word.starts_with(term)) {
            return PREFIX_WEIGHT;
        }
        if self.synonyms.iter().any(|other| other == word) {
            return SYNONYM_WEIGHT;
        }
        let root = term.bytes().zip(word.bytes());
        let root = root.take_while(|(one, other)| one == other).count();
        let ending = term.len().max(word.len()) - root;
        match root >= ROOT_CHARS && ending <= ENDING_CHARS {
            true => ROOT_WEIGHT,
            false => 0.0,
        }
    }
}

/// The words of one tool, as far as a query needs them.
struct Document {
    /// Weighted number of matches, by term.
    matches: Vec<f64>,
    /// Weighted number of words.
    length: f64,
}

impl Document {
    fn of(tool: &ToolItem, terms: &[Term], budget: &mut usize) -> Self {
        let mut document = Self {
            matches: vec![0.0; terms.len()],
            length: 0.0,
        };
        document.count(&words(&tool.name), NAME, terms);
        let bytes = tool.definition.len();
        if bytes > DEFINITION_BYTES || bytes > *budget {
            return document;
        }
        *budget -= bytes;
        let definition: Value = serde_json::from_str(&tool.definition).unwrap_or_default();
        let text = |place: &str| definition.pointer(place).and_then(Value::as_str);
        let title = text("/title").or_else(|| text("/annotations/title"));
        document.count(&words(title.unwrap_or_default()), TITLE, terms);
        let mut description = words(text("/description").unwrap_or_default());
        description.truncate(DESCRIPTION_WORDS);
        document.count(&description, DESCRIPTION, terms);
        let arguments = definition.pointer("/inputSchema/properties");
        let arguments = arguments.and_then(Value::as_object).into_iter().flatten();
        for (name, _) in arguments.take(ARGUMENTS) {
            document.count(&words(name), ARGUMENT, terms);
        }
        document
    }

    fn count(&mut self, words: &[String], weight: f64, terms: &[Term]) {
        self.length += weight * words.len() as f64;
        for word in words {
            for (term, found) in terms.iter().zip(&mut self.matches) {
                *found += weight * term.likeness(word);
            }
        }
    }

    fn has(&self, term: usize) -> bool {
        self.matches.get(term).is_some_and(|found| *found > 0.0)
    }

    fn score(&self, weights: &[f64], mean: f64) -> f64 {
        let norm = K1 * (1.0 - B + B * self.length / mean.max(1.0));
        let parts = self.matches.iter().zip(weights);
        parts
            .map(|(found, weight)| weight * found * (K1 + 1.0) / (found + norm))
            .sum()
    }
}

/// The words of a text, in lower case and without common endings.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before_is_lower = false;
    for letter in text.chars() {
        let breaks = !letter.is_alphanumeric() || before_is_lower && letter.is_uppercase();
        if breaks && !word.is_empty() {
            words.push(stem(&std::mem::take(&mut word)));
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
        before_is_lower = letter.is_lowercase() || letter.is_numeric();
    }
    if !word.is_empty() {
        words.push(stem(&word));
    }
    words
}

/// A word without a common ending of English.
fn stem(word: &str) -> String {
    let endings = [
        ("ies", "y"),
        ("sses", "ss"),
        ("ing", ""),
        ("ed", ""),
        ("es", ""),
        ("s", ""),
        ("e", ""),
    ];
    for (ending, instead) in endings {
        if let Some(rest) = word.strip_suffix(ending)
            && rest.len() >= 3
            && !(ending == "s" && rest.ends_with('s'))
        {
            return format!("{rest}{instead}");
        }
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 459 definitions of 17 public servers (`tests/data/README.md`), and queries with the tools that answer them.
    const TOOLS: &str = include_str!("../../tests/data/tools.jsonl");
    const QUERIES: &str = include_str!("../../tests/data/queries.tsv");
    const HELD_OUT: &str = include_str!("../../tests/data/queries-held-out.tsv");

    fn tools() -> Vec<ToolItem> {
        let item = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap();
            ToolItem {
                name: value["name"].as_str().unwrap().to_owned(),
                definition: line.to_owned(),
            }
        };
        TOOLS.lines().map(item).collect()
    }

    /// Queries that have their tool among the first five, and first of all.
    fn recall(queries: &str) -> (usize, usize, usize) {
        let tools = tools();
        assert!(tools.len() > 400);
        let (mut found, mut first, mut all) = (0, 0, 0);
        for line in queries.lines() {
            let (query, wanted) = line.split_once('\t').unwrap();
            let best: Vec<&str> = rank(query, &tools, 5)
                .into_iter()
                .map(|index| tools[index].name.as_str())
                .collect();
            let place = best
                .iter()
                .position(|name| wanted.split(' ').any(|one| one == *name));
            all += 1;
            found += usize::from(place.is_some());
            first += usize::from(place == Some(0));
            if place.is_none() {
                println!("{query}: {best:?} instead of {wanted}");
            }
        }
        println!("recall at 5: {found} of {all}, at 1: {first}");
        (found, first, all)
    }

    #[test]
    fn most_queries_find_their_tool_among_the_first_five() {
        let (found, first, all) = recall(HELD_OUT);
        assert!(found * 100 >= all * 95, "{found} of {all}");
        assert!(first * 100 >= all * 75, "{first} of {all}");
        // Many of these have other words than the tool.
        let (found, _, all) = recall(QUERIES);
        assert!(found * 100 >= all * 88, "{found} of {all}");
    }

    #[test]
    fn names_are_found_in_any_spelling() {
        let best = |query: &str| {
            let tools = tools();
            let index = rank(query, &tools, 1)[0];
            tools[index].name.clone()
        };
        for query in [
            "create_pull_request",
            "createPullRequest",
            "Creating pull requests",
        ] {
            let name = best(query);
            assert!(name.starts_with("github__create_pull_request"), "{name}");
        }
        assert_eq!(best("gmail sendMessage"), "gmail__sendMessage");
    }

    #[test]
    fn a_query_without_a_word_of_any_tool_finds_none_and_order_breaks_ties() {
        let tools = tools();
        assert!(rank("qqqq zzzz", &tools, 5).is_empty());
        assert!(rank("the of a", &tools, 5).is_empty());
        let twin = ToolItem {
            name: "twin".to_owned(),
            definition: "{}".to_owned(),
        };
        assert_eq!(rank("twin", &[twin.clone(), twin], 5), [0, 1]);
    }

    #[test]
    fn hostile_definitions_and_queries_are_bounded() {
        let long = ToolItem {
            name: "long".to_owned(),
            definition: format!(
                r#"{{"description":"{}"}}"#,
                "word ".repeat(DEFINITION_BYTES)
            ),
        };
        let broken = ToolItem {
            name: "broken".to_owned(),
            definition: "[".repeat(1000),
        };
        let tools = [long, broken];
        assert!(rank("word", &tools, 5).is_empty(), "too long to be read");
        assert_eq!(rank("broken", &tools, 5), [1]);
        let query = (0..10_000)
            .map(|number| format!("w{number} "))
            .collect::<String>();
        assert!(rank(&query, &tools, 5).is_empty());
    }
}
