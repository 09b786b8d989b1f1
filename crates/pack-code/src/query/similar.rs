//! How alike a query and the parts of a file are: passages, the path, the file's name and the names
//! of its definitions.
//!
//! Files are cut into sub-tokens. Where there is a table of vectors ([`vectors`]) a text is the sum
//! of those of its tokens. Otherwise it is a bag of stemmed words, and a word that many passages of
//! the candidates have weighs little. Either way two texts are as alike as the cosine between them.

use crate::limits;
use crate::query::vectors::{DIMENSIONS, Token, Vector, add, dot, normalise, vectors};
use crate::query::words::QueryTerms;
use crate::text::defs::definition;
use crate::text::hash::{FingerprintMap, fingerprint};
use crate::text::stem::stem;
use crate::text::words::{identifiers, subtokens};
use crate::tree::lang::Lang;

/// Lines of a passage that is compared, and between the beginnings of two.
pub(crate) const CHUNK_LINES: usize = 24;
const CHUNK_STEP: usize = 12;
/// Lines of a window that is shown, and between the beginnings of two.
pub(crate) const WINDOW_LINES: usize = 12;
pub(crate) const WINDOW_STEP: usize = 4;
/// How much the name of a definition counts that begins a window.
pub(crate) const WINDOW_NAME: f64 = 0.3;
/// Lines at the beginning of a window where a definition begins it.
pub(crate) const WINDOW_HEAD: usize = 4;
/// Best passages whose mean says how much of a file is about the query.
const SPREAD: usize = 5;
/// Longest sub-token; the training leaves out longer ones, too.
const TOKEN_BYTES: usize = 24;
/// How much the words themselves count in a window, beside the vectors.
const WINDOW_WORDS: f64 = 0.5;
/// What a token weighs that occurs so often, 1 + log2(n) / 2; further occurrences add nothing.
const TIMES: [f64; 5] = [0.0, 1.0, 1.5, 1.792_481_250_360_578, 2.0];

fn times(count: u32) -> f64 {
    TIMES.get(count.min(4) as usize).copied().unwrap_or(0.0)
}

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
    /// Where the best passages begin, counted from 0.
    pub(crate) chunks: [usize; SPREAD],
}

/// A place in a file that answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Window {
    /// Counted from 0.
    pub(crate) first: usize,
    pub(crate) score: f64,
    /// The line of the definition that begins it.
    pub(crate) definition: Option<usize>,
}

/// Compares files with one query.
pub(crate) struct Similar {
    /// Numbers of tokens, and of their stems.
    ids: FingerprintMap<u32>,
    stem_ids: FingerprintMap<u32>,
    /// By the number of a token: its stem, and its vector.
    stems: Vec<u32>,
    vectors: Vec<Option<Token>>,
    uses_vectors: bool,
    /// The tokens of an identifier that was met before.
    known: FingerprintMap<Vec<u32>>,
    /// The stems of the query with their weights, and the query as a vector.
    query: Vec<(u32, f64)>,
    asked: Option<Box<Vector>>,
    /// How many passages have each stem, and of how many.
    having: Vec<u32>,
    passages: u32,
    /// The weight of each stem, and the query's as a vector of length 1.
    weights: Vec<f64>,
    vector: Vec<f64>,
    counts: Vec<u32>,
}

impl Similar {
    /// `text` is the query; without `uses_vectors` only words are compared.
    pub(crate) fn new(text: &str, terms: &QueryTerms, uses_vectors: bool) -> Self {
        let mut similar = Self {
            ids: FingerprintMap::default(),
            stem_ids: FingerprintMap::default(),
            stems: Vec::new(),
            vectors: Vec::new(),
            uses_vectors,
            known: FingerprintMap::default(),
            query: Vec::new(),
            asked: None,
            having: Vec::new(),
            passages: 0,
            weights: Vec::new(),
            vector: Vec::new(),
            counts: Vec::new(),
        };
        for (word, weight) in &terms.words {
            for token in similar.tokens_of(word.as_bytes()) {
                let stem = similar.stem_of(token);
                match similar.query.iter_mut().find(|(known, _)| *known == stem) {
                    Some((_, known)) => *known = known.max(*weight),
                    None => similar.query.push((stem, *weight)),
                }
            }
        }
        let mut tokens = Vec::new();
        similar.add_tokens(text.as_bytes(), &mut tokens);
        tokens.sort_unstable();
        tokens.dedup();
        let mut sum = Box::new([0.0; DIMENSIONS]);
        for token in tokens {
            if let Some(Some(known)) = similar.vectors.get(token as usize) {
                add(&mut sum, &known.direction, known.asked);
            }
        }
        normalise(&mut sum);
        similar.asked = (dot(&sum, &sum) > 0.0).then_some(sum);
        similar.weigh();
        similar
    }

    /// Whether vectors are compared.
    pub(crate) const fn has_vectors(&self) -> bool {
        self.asked.is_some()
    }

    fn stem_of(&self, token: u32) -> u32 {
        self.stems.get(token as usize).copied().unwrap_or(0)
    }

    fn tokens_of(&mut self, identifier: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        subtokens(identifier, |part| {
            if !(2..=TOKEN_BYTES).contains(&part.len()) {
                return;
            }
            let mut token = part.to_ascii_lowercase();
            let next = self.ids.len() as u32;
            let id = *self.ids.entry(fingerprint(&token)).or_insert(next);
            if id == next {
                let table = vectors().filter(|_| self.uses_vectors);
                self.vectors.push(table.and_then(|table| table.get(&token)));
                stem(&mut token);
                let next = self.stem_ids.len() as u32;
                self.stems
                    .push(*self.stem_ids.entry(fingerprint(&token)).or_insert(next));
            }
            found.push(id);
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
            self.add_line(&mut file, lang, number, line);
        }
        self.end(&mut file, path);
        file
    }

    fn add_line(&mut self, file: &mut FileTokens, lang: Lang, number: usize, line: &[u8]) {
        file.lines.push(file.tokens.len() as u32);
        self.add_tokens(line, &mut file.tokens);
        if lang.is_code()
            && let Some(name) = definition(line, lang).and_then(|def| line.get(def.name))
        {
            let mut tokens = Vec::new();
            self.add_tokens(name, &mut tokens);
            file.definitions.push((number, tokens));
        }
    }

    /// Adds what the path says, after the last line.
    fn end(&mut self, file: &mut FileTokens, path: &str) {
        file.lines.push(file.tokens.len() as u32);
        let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
        let stem = name.split('.').next().unwrap_or(name);
        self.add_tokens(stem.as_bytes(), &mut file.stem);
        self.add_tokens(folders.as_bytes(), &mut file.path);
        file.path.extend_from_slice(&file.stem);
    }

    /// Counts the tokens of the passages of all candidates, so that they can be weighed.
    pub(crate) fn learn(&mut self, files: &[&FileTokens]) {
        if self.has_vectors() {
            return;
        }
        self.having = vec![0; self.stem_ids.len()];
        let mut last = vec![u32::MAX; self.stem_ids.len()];
        for file in files {
            for first in chunk_starts(file.line_count()) {
                let chunk = self.passages;
                self.passages += 1;
                for token in file.between(first, first + CHUNK_LINES) {
                    let at = self.stem_of(*token) as usize;
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
        let count = self.stem_ids.len();
        self.having.resize(count, 0);
        let having = self.having.iter();
        self.weights = having
            .map(|having| weight_of(self.passages, *having))
            .collect();
        self.vector = vec![0.0; count];
        for (stem, weight) in &self.query {
            let at = *stem as usize;
            if let (Some(place), Some(own)) = (self.vector.get_mut(at), self.weights.get(at)) {
                *place = weight * own;
            }
        }
        let length = self.vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        if length > 0.0 {
            self.vector.iter_mut().for_each(|x| *x /= length);
        }
        self.counts = vec![0; self.ids.len().max(count)];
    }

    /// Makes room for the tokens of files that were read after the others were weighed.
    fn grow(&mut self) {
        let count = self.stem_ids.len();
        if self.weights.len() < count {
            self.weights.resize(count, weight_of(self.passages, 0));
            self.vector.resize(count, 0.0);
        }
        let count = count.max(self.ids.len());
        if self.counts.len() < count {
            self.counts.resize(count, 0);
        }
    }

    /// The cosine between the query and a text, by vectors where there are some.
    fn cosine(&mut self, tokens: &[u32]) -> f64 {
        match self.asked.take() {
            Some(asked) => {
                let cosine = self.vector_cosine(&asked, tokens);
                self.asked = Some(asked);
                cosine
            }
            None => self.word_cosine(tokens),
        }
    }

    /// Counts numbers; gives those that were met.
    fn tally(&mut self, numbers: impl Iterator<Item = u32>) -> Vec<u32> {
        self.grow();
        let mut met = Vec::new();
        for number in numbers {
            if let Some(count) = self.counts.get_mut(number as usize) {
                if *count == 0 {
                    met.push(number);
                }
                *count += 1;
            }
        }
        met
    }

    fn vector_cosine(&mut self, asked: &Vector, tokens: &[u32]) -> f64 {
        let met = self.tally(tokens.iter().copied());
        let mut sum = [0.0; DIMENSIONS];
        for token in met {
            let at = token as usize;
            let Some(count) = self.counts.get_mut(at) else {
                continue;
            };
            let times = times(std::mem::take(count));
            if let Some(Some(known)) = self.vectors.get(at) {
                add(&mut sum, &known.direction, known.code * times as f32);
            }
        }
        let length = dot(&sum, &sum).sqrt();
        match length > 0.0 {
            true => f64::from(dot(asked, &sum) / length),
            false => 0.0,
        }
    }

    fn word_cosine(&mut self, tokens: &[u32]) -> f64 {
        let stems: Vec<u32> = tokens.iter().map(|token| self.stem_of(*token)).collect();
        let met = self.tally(stems.into_iter());
        let (mut dot, mut length) = (0.0, 0.0);
        for stem in met {
            let at = stem as usize;
            let (Some(count), Some(weight), Some(wanted)) = (
                self.counts.get_mut(at),
                self.weights.get(at),
                self.vector.get(at),
            ) else {
                continue;
            };
            let value = weight * times(std::mem::take(count));
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
        let mut passages: Vec<(f64, usize)> = chunk_starts(file.line_count())
            .map(|first| {
                let cosine = self.cosine(file.between(first, first + CHUNK_LINES));
                (cosine, first)
            })
            .collect();
        passages.sort_by(|a, b| b.0.total_cmp(&a.0));
        let best: f64 = passages.iter().take(SPREAD).map(|passage| passage.0).sum();
        let mut chunks = [0; SPREAD];
        for (chunk, (_, first)) in chunks.iter_mut().zip(&passages) {
            *chunk = *first;
        }
        let mut all = Vec::new();
        let mut definition: f64 = 0.0;
        for (_, name) in &file.definitions {
            definition = definition.max(self.cosine(name));
            all.extend_from_slice(name);
        }
        Alike {
            passage: passages.first().map_or(0.0, |passage| passage.0),
            spread: best / SPREAD as f64,
            path: self.cosine(&file.path),
            stem: self.cosine(&file.stem),
            definition,
            definitions: self.cosine(&all),
            chunks,
        }
    }

    /// The places of a file that answer best, best first; no two of them overlap. Only windows that
    /// begin at one of these lines are compared; the lines ascend.
    pub(crate) fn windows(
        &mut self,
        file: &FileTokens,
        starts: &[usize],
        most: usize,
    ) -> Vec<Window> {
        let mut windows: Vec<Window> = Vec::new();
        let mut names = file.definitions.iter().peekable();
        for first in starts.iter().copied() {
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
            let inside = file.between(first, first + WINDOW_LINES);
            let mut text = self.cosine(inside);
            if self.has_vectors() {
                text += WINDOW_WORDS * self.word_cosine(inside);
            }
            windows.push(Window {
                first,
                score: text + WINDOW_NAME * named.0,
                definition: named.1,
            });
        }
        windows.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.first.cmp(&b.first)));
        apart(windows, most)
    }
}

/// The first windows that do not overlap.
pub(crate) fn apart(windows: Vec<Window>, most: usize) -> Vec<Window> {
    let mut kept: Vec<Window> = Vec::new();
    for window in windows {
        let apart = |other: &Window| other.first.abs_diff(window.first) >= WINDOW_LINES;
        if kept.len() < most && kept.iter().all(apart) {
            kept.push(window);
        }
    }
    kept
}

/// The weight of a stem that so many of the passages have.
fn weight_of(passages: u32, having: u32) -> f64 {
    (1.0 + (f64::from(passages) + 1.0) / (f64::from(having) + 1.0)).ln()
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
        for uses_vectors in [false, true] {
            compare(uses_vectors);
        }
    }

    fn compare(uses_vectors: bool) {
        let query = "how are pools closed";
        let mut similar = Similar::new(query, &QueryTerms::of(query), uses_vectors);
        assert_eq!(similar.has_vectors(), uses_vectors);
        let file = similar.read("src/pool.rs", FILE.as_bytes());
        similar.learn(&[&file]);
        let best = similar.windows(&file, &[0, 4, 8, 12, 16, 20], 3);
        assert_eq!(best.first().unwrap().definition, Some(21));
        let alike = similar.compare(&file);
        assert!(alike.stem > 0.5 && alike.definition > 0.6, "{alike:?}");
        let other = similar.read("src/other.rs", b"fn other() {}\n");
        assert!(similar.compare(&other).passage < alike.passage);
    }
}
