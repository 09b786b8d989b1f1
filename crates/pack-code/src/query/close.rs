//! A closer look at one file: where the words of the query stand together, and what is defined.

use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use serde_json::json;

use crate::limits;
use crate::query::round_score;
use crate::query::similar::{WINDOW_HEAD, WINDOW_LINES, WINDOW_NAME, WINDOW_STEP, Window};
use crate::query::snippet::Lines;
use crate::query::weights;
use crate::query::words::QueryTerms;
use crate::text::defs::{Kind, definition};
use crate::text::hash::{FingerprintMap, fingerprint};
use crate::text::words::{identifiers, terms};
use crate::tree::lang::Lang;

/// Lines of a file with something of the query after which there have to be so many lines for each
/// of them, or all are looked at.
const FINDER_TRIES: usize = 64;
const FINDER_LINES: usize = 3;
/// Letters of a term below which lines are not searched for it.
const FINDER_BYTES: usize = 3;
/// What each line of a window counts that has something of the query.
const DENSITY: f64 = 0.002;

/// What a look found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// Share of the query that stands in one window, 0 to 1.
    passage: f64,
    /// How well the name of a definition says what the query says, 0 to 1.
    defines: f64,
    /// A name of the query is defined here, 0 to 1.
    named: f64,
    /// How well the file's name says what the query says, 0 to 1.
    file_name: f64,
    /// Share of the query in the names of all definitions.
    def_cover: f64,
    /// Share of the query in the first lines.
    head: f64,
    /// Share of the query in the names of the folders.
    folder: f64,
    /// The line of the definition that has a name of the query.
    line: Option<u64>,
    /// Lines that have something of the query, counted from 1, each with the mask of its terms.
    matches: Vec<(u64, u64)>,
}

impl Look {
    /// The score of the second step, from that of the first between 0 and 1.
    pub(crate) fn score(&self, first: f64) -> f64 {
        weights::FIRST * first
            + weights::PASSAGE * self.passage
            + weights::DEFINES * self.defines
            + weights::NAMED * self.named
            + weights::CALLED * self.file_name
            + weights::DEFINES_ALL * self.def_cover
            + weights::HEAD * self.head
            + weights::FOLDERS * self.folder
    }

    /// The line of a definition whose name the query has.
    pub(crate) fn named_line(&self) -> Option<u64> {
        self.line.filter(|_| self.named > 0.0)
    }

    /// Lines that have something of the query.
    pub(crate) fn match_lines(&self) -> impl Iterator<Item = u64> + '_ {
        self.matches.iter().map(|(line, _)| *line)
    }

    pub(crate) fn boosts(&self) -> serde_json::Value {
        json!({
            "passage": round_score(weights::PASSAGE * self.passage),
            "definition": round_score(weights::DEFINES * self.defines),
            "named": round_score(weights::NAMED * self.named),
            "file_name": round_score(weights::CALLED * self.file_name),
            "definitions": round_score(weights::DEFINES_ALL * self.def_cover),
            "head": round_score(weights::HEAD * self.head),
            "folders": round_score(weights::FOLDERS * self.folder),
        })
    }
}

/// Looks at files for one query.
pub(crate) struct Closer<'a> {
    query: &'a QueryTerms,
    total: f64,
    /// Terms of the query that an identifier has, as a mask.
    known: FingerprintMap<u64>,
    /// Finds what every line has that has something of the query.
    finder: Option<RegexMatcher>,
    scratch: Vec<u8>,
}

/// A definition that has something of the query.
struct Candidate {
    line: u64,
    worth: f64,
    named: f64,
}

impl<'a> Closer<'a> {
    pub(crate) fn new(query: &'a QueryTerms) -> Self {
        Self {
            query,
            total: query.total_weight().max(f64::MIN_POSITIVE),
            known: FingerprintMap::default(),
            finder: finder(query),
            scratch: Vec::new(),
        }
    }

    pub(crate) const fn query(&self) -> &'a QueryTerms {
        self.query
    }

    /// The next place in a text where a line may have something of the query; its end if there is
    /// none.
    fn next_place(&self, text: &[u8], from: usize) -> usize {
        let Some(finder) = &self.finder else {
            return from;
        };
        match text.get(from..).map(|rest| finder.find(rest)) {
            Some(Ok(found)) => found.map_or(text.len(), |found| from + found.start()),
            _ => from,
        }
    }

    fn mask_of(&mut self, identifier: &[u8]) -> u64 {
        let print = fingerprint(identifier);
        if let Some(mask) = self.known.get(&print) {
            return *mask;
        }
        let mut mask = 0;
        let query = self.query;
        terms(identifier, &mut self.scratch, |term| {
            if let Some(bit) = query.terms.iter().position(|known| known.bytes == term) {
                mask |= 1 << bit;
            }
        });
        self.known.insert(print, mask);
        mask
    }

    /// Looks at a file.
    pub(crate) fn look(&mut self, path: &str, text: &[u8]) -> Look {
        let text = text.get(..limits::RERANK_FILE_BYTES).unwrap_or(text);
        let lang = Lang::of_path(path);
        let mut masks: Vec<u64> = Vec::new();
        let mut best: Option<Candidate> = None;
        let mut def_mask = 0;
        let mut start = 0;
        let mut place = self.next_place(text, 0);
        let mut tried = 0;
        for end in memchr::memchr_iter(b'\n', text).chain(std::iter::once(text.len())) {
            if end < place {
                // The line has nothing of the query.
                masks.push(0);
                start = end + 1;
                continue;
            }
            let line = text.get(start..end).unwrap_or_default();
            start = end + 1;
            tried += 1;
            // Where most lines have what is searched for, the search is given up.
            place = match tried < FINDER_TRIES || masks.len() > FINDER_LINES * tried {
                true => self.next_place(text, start),
                false => start,
            };
            let mut mask = 0;
            for (from, to) in identifiers(line) {
                if to - from > 1 {
                    mask |= self.mask_of(line.get(from..to).unwrap_or_default());
                }
            }
            masks.push(mask);
            if mask != 0
                && lang.is_code()
                && let Some(def) = definition(line, lang)
                && let Some(name) = line.get(def.name)
            {
                def_mask |= self.mask_of(name);
                let candidate = self.candidate(masks.len() as u64, name, def.kind);
                let worth = |known: &Candidate| known.worth + 2.0 * known.named;
                if candidate.worth > 0.0
                    && best
                        .as_ref()
                        .is_none_or(|known| worth(&candidate) > worth(known))
                {
                    best = Some(candidate);
                }
            }
        }
        let mut look = Look {
            passage: self.passage(&masks),
            file_name: self.file_name(path),
            def_cover: (self.query.weight_of(def_mask) / self.total).min(1.0),
            head: (self.query.weight_of(
                masks
                    .iter()
                    .take(weights::HEAD_LINES)
                    .fold(0, |all, mask| all | mask),
            ) / self.total)
                .min(1.0),
            folder: self.folder(path),
            ..Look::default()
        };
        if let Some(found) = best {
            look.defines = found.worth;
            look.named = found.named;
            look.line = Some(found.line);
        }
        look.matches = (1..).zip(masks).filter(|(_, mask)| *mask != 0).collect();
        look
    }

    /// The windows that have most of the query, best first: for each wanted passage a few, so that
    /// of a long file not all has to be compared.
    pub(crate) fn likely_windows(
        &mut self,
        look: &Look,
        lines: &Lines<'_>,
        lang: Lang,
        passages: usize,
    ) -> Vec<Window> {
        let found: Vec<(usize, u64)> = look
            .matches
            .iter()
            .map(|(line, mask)| (usize::try_from(*line).unwrap_or(usize::MAX) - 1, *mask))
            .collect();
        // Windows are shown from their first line with something of the query.
        let mut scored: Vec<(f64, usize)> = Vec::new();
        let (mut next, mut low) = (0, 0);
        for (line, _) in &found {
            let first = line
                .saturating_sub(WINDOW_LINES - 1)
                .next_multiple_of(WINDOW_STEP);
            for start in (first.max(next)..=*line).step_by(WINDOW_STEP) {
                while found.get(low).is_some_and(|(line, _)| *line < start) {
                    low += 1;
                }
                let inside = found.iter().skip(low);
                let inside = inside.take_while(|(line, _)| *line < start + WINDOW_LINES);
                let (union, density) = inside.fold((0, 0_u32), |(union, density), (_, mask)| {
                    (union | mask, density + 1)
                });
                let score = self.query.whole_weight_of(union) / self.total;
                let shown = found.get(low).map_or(start, |(line, _)| *line);
                scored.push((score + DENSITY * f64::from(density), shown));
                next = start + WINDOW_STEP;
            }
        }
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        scored.dedup_by_key(|(_, shown)| *shown);
        scored.truncate(limits::LIKELY_WINDOWS * passages);
        let mut windows: Vec<Window> = scored
            .into_iter()
            .map(|(score, first)| self.with_definition(score, first, lines, lang))
            .collect();
        windows.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.first.cmp(&b.first)));
        windows
    }

    /// A window with the definition that begins it, whose name counts, too.
    fn with_definition(
        &mut self,
        score: f64,
        first: usize,
        lines: &Lines<'_>,
        lang: Lang,
    ) -> Window {
        let mut window = Window {
            first,
            score,
            definition: None,
        };
        let mut best = 0.0;
        for number in first..first + WINDOW_HEAD {
            let line = lines.line(number as u64 + 1);
            let def = lang.is_code().then(|| definition(line, lang)).flatten();
            if let Some(name) = def.and_then(|def| line.get(def.name)) {
                let share = self.query.whole_weight_of(self.mask_of(name)) / self.total;
                if share > best {
                    (best, window.definition) = (share, Some(number));
                }
            }
        }
        window.score += WINDOW_NAME * best;
        window
    }

    /// How much of the query the name of a definition has, and how much of the name is the query.
    fn candidate(&mut self, line: u64, name: &[u8], kind: Kind) -> Candidate {
        let mask = self.mask_of(name);
        let share = self.query.weight_of(mask) / self.total;
        let (mut parts, mut hits) = (0.0_f64, 0.0_f64);
        let query = self.query;
        terms(name, &mut self.scratch, |term| {
            parts += 1.0;
            hits += f64::from(u8::from(
                query.terms.iter().any(|known| known.bytes == term),
            ));
        });
        let precision = if parts > 0.0 { hits / parts } else { 0.0 };
        let name = String::from_utf8_lossy(name).into_owned();
        let named = query
            .names
            .iter()
            .map(|wanted| named_by(&name, wanted, kind))
            .fold(0.0, f64::max);
        Candidate {
            line,
            worth: share.min(1.0)
                * (weights::PRECISION_FLOOR + (1.0 - weights::PRECISION_FLOOR) * precision)
                * if kind.is_type() { 1.0 } else { 0.8 },
            named,
        }
    }

    /// How much of the query the window with the most of it has.
    fn passage(&self, masks: &[u64]) -> f64 {
        let lines: Vec<(usize, u64)> = masks
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, mask)| *mask != 0)
            .collect();
        let mut best: f64 = 0.0;
        for (number, (line, _)) in lines.iter().enumerate() {
            let mut union = 0;
            let mut density = 0_u32;
            for (other, mask) in lines.iter().skip(number) {
                if other - line > weights::WINDOW {
                    break;
                }
                union |= mask;
                density += 1;
            }
            let share = self.query.weight_of(union) / self.total + DENSITY * f64::from(density);
            best = best.max(share);
        }
        best.min(1.0)
    }

    fn file_name(&mut self, path: &str) -> f64 {
        let name = path.rsplit('/').next().unwrap_or(path);
        let stem = name.split('.').next().unwrap_or(name);
        let mut mask = 0;
        let (mut parts, mut hits) = (0.0_f64, 0.0_f64);
        for (from, to) in identifiers(stem.as_bytes()) {
            let word = stem.as_bytes().get(from..to).unwrap_or_default();
            mask |= self.mask_of(word);
            let query = self.query;
            terms(word, &mut self.scratch, |term| {
                parts += 1.0;
                hits += f64::from(u8::from(
                    query.terms.iter().any(|known| known.bytes == term),
                ));
            });
        }
        let precision = if parts > 0.0 { hits / parts } else { 0.0 };
        let share = (self.query.weight_of(mask) / self.total).min(1.0);
        if share > 0.0 {
            (weights::CALLED_FLOOR + (1.0 - weights::CALLED_FLOOR) * share) * precision
        } else {
            0.0
        }
    }

    fn folder(&mut self, path: &str) -> f64 {
        let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
        let mut mask = 0;
        for (from, to) in identifiers(folders.as_bytes()) {
            mask |= self.mask_of(folders.as_bytes().get(from..to).unwrap_or_default());
        }
        (self.query.weight_of(mask) / self.total).min(1.0)
    }
}

/// Finds what the lines with a term have: the term itself, or all of it but a `y` that stands for
/// another ending.
fn finder(query: &QueryTerms) -> Option<RegexMatcher> {
    let literals: Vec<&str> = query
        .terms
        .iter()
        .filter_map(|term| {
            let text = std::str::from_utf8(&term.bytes).ok()?;
            Some(match text.strip_suffix('y') {
                Some(short) if short.len() > 1 => short,
                _ => text,
            })
        })
        .collect();
    // A term that is not text would not be looked for, and one of two letters is everywhere.
    let short = literals.iter().any(|text| text.len() < FINDER_BYTES);
    if literals.len() < query.terms.len() || literals.is_empty() || short {
        return None;
    }
    RegexMatcherBuilder::new()
        .case_insensitive(true)
        .build_literals(&literals)
        .ok()
}

/// How far a definition is the one that is asked for by name.
fn named_by(name: &str, wanted: &str, kind: Kind) -> f64 {
    let kind = match kind {
        Kind::Class | Kind::Struct | Kind::Enum | Kind::Trait | Kind::Interface | Kind::Type => 1.0,
        Kind::Function | Kind::Macro | Kind::Module => 0.9,
        Kind::Method => 0.7,
        Kind::Constant | Kind::Variable | Kind::Field => 0.6,
    };
    if name == wanted {
        kind
    } else if name.eq_ignore_ascii_case(wanted) {
        0.6 * kind
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_with_something_of_the_query_is_passed_over() {
        let words = [
            "entries",
            "entry",
            "Locking",
            "locked",
            "mapping",
            "mapper",
            "movement",
            "moves",
            "initialization",
            "action",
            "actor",
            "flies",
            "mutex_lock",
            "MutexLock",
            "größe_1",
            "copies",
            "copyright",
            "_copy_",
            "x",
            "u32",
            "sessions",
            "boxes",
            "sizing",
        ];
        let filler = "nothing to see\n".repeat(300);
        let text: String = words
            .iter()
            .map(|word| format!("{filler}let a = {word}(b);\n"))
            .collect();
        for query in words
            .into_iter()
            .chain(["how are entries moved", "copy and map"])
        {
            let mut terms = QueryTerms::of(query);
            for term in &mut terms.terms {
                (term.idf, term.found) = (1.0, true);
            }
            let mut closer = Closer::new(&terms);
            let found = closer.look("a.rs", text.as_bytes());
            closer.finder = None;
            let all = closer.look("a.rs", text.as_bytes());
            assert_eq!(found.matches, all.matches, "{query}");
        }
    }
}
