//! How alike a query and the parts of a file are: cosines between bags of words.
//!
//! Files are cut into sub-tokens (identifiers split by case and underscore, stemmed). A word that
//! many passages of the candidates have tells little apart, so words weigh by how few of these
//! passages have them. Compared are the passages, the path, the file's name and the names of its
//! definitions.

use crate::limits;
use crate::query::words::QueryTerms;
use crate::text::defs::definition;
use crate::text::hash::{FingerprintMap, fingerprint};
use crate::text::stem::stem;
use crate::text::words::{identifiers, parts_of};
use crate::tree::lang::Lang;

/// Lines of a passage that is compared, and between the beginnings of two.
pub(crate) const CHUNK_LINES: usize = 24;
const CHUNK_STEP: usize = 12;
/// Lines of a window that is shown, and between the beginnings of two.
pub(crate) const WINDOW_LINES: usize = 12;
const WINDOW_STEP: usize = 4;
/// How much the name of a definition counts that begins a window.
const WINDOW_NAME: f64 = 0.3;
/// Lines at the beginning of a window where a definition begins it.
const WINDOW_HEAD: usize = 4;
/// Best passages whose mean says how much of a file is about the query.
const SPREAD: usize = 5;
/// Longest sub-token.
const TOKEN_BYTES: usize = 40;

/// A file as sub-tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileTokens {
    tokens: Vec<u32>,
    /// Where the tokens of each line begin, and their end.
    lines: Vec<u32>,
    path: Vec<u32>,
    stem: Vec<u32>,
    /// Definitions: the line, counted from 0, and the tokens of the name.
    definitions: Vec<(usize, Vec<u32>)>,
}

impl FileTokens {
    fn line_count(&self) -> usize {
        self.lines.len().saturating_sub(1)
    }

    fn between(&self, first: usize, end: usize) -> &[u32] {
        let at = |line: usize| {
            let line = line.min(self.line_count());
            self.lines.get(line).copied().unwrap_or(0) as usize
        };
        self.tokens.get(at(first)..at(end)).unwrap_or_default()
    }
}

/// How alike a file and the query are, each from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alike {
    pub(crate) passage: f64,
    pub(crate) spread: f64,
    pub(crate) path: f64,
    pub(crate) stem: f64,
    pub(crate) definition: f64,
    pub(crate) definitions: f64,
}

/// A place in a file that answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    /// Counted from 0.
    pub(crate) first: usize,
    pub(crate) score: f64,
    /// The line of the definition that begins it.
    pub(crate) definition: Option<usize>,
}

/// Compares files with one query.
pub(crate) struct Similar {
    ids: FingerprintMap<u32>,
    /// The tokens of an identifier that was met before.
    known: FingerprintMap<Vec<u32>>,
    query: Vec<(u32, f64)>,
    /// How many passages have each token, and of how many.
    having: Vec<u32>,
    passages: u32,
    /// The weight of each token, and the query's as a vector of length 1.
    weights: Vec<f64>,
    vector: Vec<f64>,
    counts: Vec<u32>,
}

impl Similar {
    pub(crate) fn new(terms: &QueryTerms) -> Self {
        let mut similar = Self {
            ids: FingerprintMap::default(),
            known: FingerprintMap::default(),
            query: Vec::new(),
            having: Vec::new(),
            passages: 0,
            weights: Vec::new(),
            vector: Vec::new(),
            counts: Vec::new(),
        };
        for (word, weight) in &terms.words {
            for token in similar.tokens_of(word.as_bytes()) {
                match similar.query.iter_mut().find(|(known, _)| *known == token) {
                    Some((_, known)) => *known = known.max(*weight),
                    None => similar.query.push((token, *weight)),
                }
            }
        }
        similar.weigh();
        similar
    }

    fn tokens_of(&mut self, identifier: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        let ids = &mut self.ids;
        parts_of(identifier, |part| {
            if (2..=TOKEN_BYTES).contains(&part.len()) {
                let mut token = part.to_ascii_lowercase();
                stem(&mut token);
                let next = ids.len() as u32;
                found.push(*ids.entry(fingerprint(&token)).or_insert(next));
            }
        });
        found
    }

    fn add_tokens(&mut self, text: &[u8], tokens: &mut Vec<u32>) {
        for (from, to) in identifiers(text) {
            let identifier = text.get(from..to).unwrap_or_default();
            let print = fingerprint(identifier);
            if let Some(known) = self.known.get(&print) {
                tokens.extend_from_slice(known);
                continue;
            }
            let made = self.tokens_of(identifier);
            tokens.extend_from_slice(&made);
            self.known.insert(print, made);
        }
    }

    /// Cuts a file into tokens.
    pub(crate) fn read(&mut self, path: &str, text: &[u8]) -> FileTokens {
        let text = text.get(..limits::RERANK_FILE_BYTES).unwrap_or(text);
        let lang = Lang::of_path(path);
        let mut file = FileTokens::default();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            file.lines.push(file.tokens.len() as u32);
            let mut tokens = std::mem::take(&mut file.tokens);
            self.add_tokens(line, &mut tokens);
            file.tokens = tokens;
            if lang.is_code()
                && let Some(name) = definition(line, lang).and_then(|def| line.get(def.name))
            {
                let mut tokens = Vec::new();
                self.add_tokens(name, &mut tokens);
                file.definitions.push((number, tokens));
            }
        }
        file.lines.push(file.tokens.len() as u32);
        let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
        let stem = name.split('.').next().unwrap_or(name);
        let (mut path, mut stem_tokens) = (Vec::new(), Vec::new());
        self.add_tokens(stem.as_bytes(), &mut stem_tokens);
        self.add_tokens(folders.as_bytes(), &mut path);
        path.extend_from_slice(&stem_tokens);
        file.path = path;
        file.stem = stem_tokens;
        file
    }

    /// Counts the tokens of the passages of all candidates, so that they can be weighed.
    pub(crate) fn learn(&mut self, files: &[&FileTokens]) {
        self.having = vec![0; self.ids.len()];
        let mut last = vec![u32::MAX; self.ids.len()];
        for file in files {
            for first in chunk_starts(file.line_count()) {
                let chunk = self.passages;
                self.passages += 1;
                for token in file.between(first, first + CHUNK_LINES) {
                    let at = *token as usize;
                    if let (Some(seen), Some(having)) = (last.get_mut(at), self.having.get_mut(at))
                        && *seen != chunk
                    {
                        *seen = chunk;
                        *having += 1;
                    }
                }
            }
        }
        self.weigh();
    }

    /// Weighs tokens and the query by what was learned.
    fn weigh(&mut self) {
        let all = f64::from(self.passages);
        let count = self.ids.len();
        self.having.resize(count, 0);
        let weight = |having: &u32| (1.0 + (all + 1.0) / (f64::from(*having) + 1.0)).ln();
        self.weights = self.having.iter().map(weight).collect();
        self.vector = vec![0.0; count];
        for (token, weight) in &self.query {
            let at = *token as usize;
            if let (Some(place), Some(own)) = (self.vector.get_mut(at), self.weights.get(at)) {
                *place = weight * own;
            }
        }
        let length = self.vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        if length > 0.0 {
            self.vector.iter_mut().for_each(|x| *x /= length);
        }
        self.counts = vec![0; count];
    }

    /// The cosine between the query and a bag of tokens.
    fn cosine(&mut self, tokens: &[u32]) -> f64 {
        if self.counts.len() < self.ids.len() {
            // Tokens of a file that was read after the others were weighed.
            self.weigh();
        }
        let mut met = Vec::new();
        for token in tokens {
            if let Some(count) = self.counts.get_mut(*token as usize) {
                if *count == 0 {
                    met.push(*token);
                }
                *count += 1;
            }
        }
        let (mut dot, mut length) = (0.0, 0.0);
        for token in met {
            let at = token as usize;
            let (Some(count), Some(weight), Some(wanted)) = (
                self.counts.get_mut(at),
                self.weights.get(at),
                self.vector.get(at),
            ) else {
                continue;
            };
            let times = 1.0 + 0.5 * f64::from(std::mem::take(count).min(4)).log2();
            let value = weight * times;
            dot += value * wanted;
            length += value * value;
        }
        if length > 0.0 {
            dot / length.sqrt()
        } else {
            0.0
        }
    }

    /// Compares a file with the query.
    pub(crate) fn compare(&mut self, file: &FileTokens) -> Alike {
        let mut passages: Vec<f64> = chunk_starts(file.line_count())
            .map(|first| self.cosine(file.between(first, first + CHUNK_LINES)))
            .collect();
        passages.sort_by(|a, b| b.total_cmp(a));
        let best: f64 = passages.iter().take(SPREAD).sum();
        let mut all = Vec::new();
        let mut definition: f64 = 0.0;
        for (_, name) in &file.definitions {
            definition = definition.max(self.cosine(name));
            all.extend_from_slice(name);
        }
        Alike {
            passage: passages.first().copied().unwrap_or(0.0),
            spread: best / SPREAD as f64,
            path: self.cosine(&file.path),
            stem: self.cosine(&file.stem),
            definition,
            definitions: self.cosine(&all),
        }
    }

    /// The places of a file that answer best, best first; no two of them overlap.
    pub(crate) fn windows(&mut self, file: &FileTokens, most: usize) -> Vec<Window> {
        let mut windows: Vec<Window> = Vec::new();
        let mut names = file.definitions.iter().peekable();
        for first in (0..file.line_count().max(1)).step_by(WINDOW_STEP) {
            while names.next_if(|(line, _)| *line < first).is_some() {}
            let heads: Vec<&(usize, Vec<u32>)> = names
                .clone()
                .take_while(|(line, _)| *line < first + WINDOW_HEAD)
                .collect();
            let mut named = (0.0, heads.first().map(|(line, _)| *line));
            for (line, tokens) in heads {
                let alike = self.cosine(tokens);
                if alike > named.0 {
                    named = (alike, Some(*line));
                }
            }
            let text = self.cosine(file.between(first, first + WINDOW_LINES));
            windows.push(Window {
                first,
                score: text + WINDOW_NAME * named.0,
                definition: named.1,
            });
        }
        windows.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.first.cmp(&b.first)));
        let mut kept: Vec<Window> = Vec::new();
        for window in windows {
            let apart = |other: &Window| other.first.abs_diff(window.first) >= WINDOW_LINES;
            if kept.len() < most && kept.iter().all(apart) {
                kept.push(window);
            }
        }
        kept
    }
}

fn chunk_starts(lines: usize) -> impl Iterator<Item = usize> {
    let last = lines.saturating_sub(CHUNK_LINES / 2).max(1);
    (0..last).step_by(CHUNK_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "fn open() {\n    one();\n}\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n/// Closes the pool.\nfn close_pool(pool: Pool) {\n    pool.drain();\n}\n";

    #[test]
    fn the_window_that_answers_begins_with_its_definition() {
        let mut similar = Similar::new(&QueryTerms::of("how are pools closed"));
        let file = similar.read("src/pool.rs", FILE.as_bytes());
        similar.learn(&[&file]);
        let best = similar.windows(&file, 3);
        assert_eq!(best.first().unwrap().definition, Some(21));
        let alike = similar.compare(&file);
        assert!(alike.stem > 0.5 && alike.definition > 0.9, "{alike:?}");
        let other = similar.read("src/other.rs", b"fn other() {}\n");
        assert!(similar.compare(&other).passage < alike.passage);
    }
}
