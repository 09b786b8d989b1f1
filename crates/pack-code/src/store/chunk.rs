//! One pass over the text of a chunk of files: trigrams and terms together, as two sorted runs.
//!
//! A run is a sequence of entries `key, count, last number, list`, keys ascending. The list of a
//! trigram is numbers of parts as deltas; the list of a term has a byte of [`Fields`] after each.
//! Runs of consecutive chunks are joined without decoding more than the first number of each list.
//!
//! Trigrams are of bytes with ASCII letters in lower case, and never reach over the end of a line,
//! because no query does. One that has letters of both cases is there as it is written, too: such
//! trigrams are few, and say much about names like `maxItems`.

use crate::store::codec::put;
use crate::store::docs::PART_BYTES;
use crate::text::defs::definition;
use crate::text::hash::{FingerprintMap, fingerprint};
use crate::text::words::{identifiers, is_irregular, terms, unstemmed};
use crate::tree::lang::Lang;

/// Where and how often a term stands in a document, in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// Occurrences in the text, rounded.
    pub(crate) count: u8,
    /// Definitions whose name has it, up to three.
    pub(crate) defs: u8,
    /// It stands in the file's name.
    pub(crate) name: bool,
    /// It stands in the names of the folders.
    pub(crate) folder: bool,
}

const COUNTS: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 64, 128];

impl Fields {
    pub(crate) fn pack(self) -> u8 {
        let code = COUNTS
            .iter()
            .rposition(|count| *count <= self.count)
            .unwrap_or(0) as u8;
        code | self.defs.min(3) << 4 | u8::from(self.name) << 6 | u8::from(self.folder) << 7
    }

    pub(crate) fn unpack(byte: u8) -> Self {
        Self {
            count: COUNTS.get(usize::from(byte & 0xf)).copied().unwrap_or(0),
            defs: byte >> 4 & 3,
            name: byte >> 6 & 1 == 1,
            folder: byte >> 7 == 1,
        }
    }
}

/// What indexing a text says about it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) tokens: u32,
    pub(crate) lines: u32,
}

/// A document to be indexed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    pub(crate) doc: u32,
    /// The numbers of its parts.
    pub(crate) first_part: u32,
    pub(crate) parts: u32,
    pub(crate) path: &'a str,
    pub(crate) lang: Lang,
    pub(crate) text: &'a [u8],
}

/// The runs of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    pub(crate) trigrams: Vec<u8>,
    pub(crate) terms: Vec<u8>,
}

/// Collects the documents of one chunk. Used again for the next one, so that its large tables are
/// made once per thread.
#[derive(Debug)]
pub(crate) struct ChunkIndexer {
    /// Trigrams of the present part, one bit each.
    seen: Vec<u64>,
    seen_list: Vec<u32>,
    /// Trigram and part.
    pairs: Vec<u64>,
    scratch: Vec<u64>,
    /// The identifiers that were met last, by a part of their fingerprint, with their number and
    /// one: most words of a text repeat soon, and this fits a core's own memory.
    recent: Vec<(u64, u32)>,
    /// Identifiers of this chunk as they are written.
    known: FingerprintMap<u32>,
    /// For each of them, its terms in `term_ids`.
    spans: Vec<(u32, u32)>,
    /// For each of them, the number of a key that ranked search does not know, and one.
    extras: Vec<u32>,
    term_ids: Vec<u32>,
    dictionary: FingerprintMap<u32>,
    names: Vec<Box<[u8]>>,
    counts: Vec<u32>,
    touched: Vec<u32>,
    /// Per term of the present document.
    fields: Vec<TermState>,
    touched_terms: Vec<u32>,
    /// Term, document and packed fields.
    postings: Vec<u64>,
    word: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
struct TermState {
    count: u32,
    defs: u8,
    name: bool,
    folder: bool,
    touched: bool,
}

/// The key of every document that has a word whose letters the terms do not tell: one that is too
/// long to give any, or has a letter outside ASCII that is `k` or `s` in other cases.
pub(crate) const IRREGULAR: &[u8] = b"\0";
/// What the keys of words begin with whose terms are stems. Ranked search does not know them: they
/// are there so that every word of a text is in the table with all its letters.
pub(crate) const UNSTEMMED: u8 = 1;

const TRIGRAMS: usize = 1 << 24;
/// Identifiers that are found without the large map; a power of two.
const RECENT: usize = 1 << 12;

/// ASCII letters in lower case, everything else as it is.
#[expect(
    clippy::indexing_slicing,
    reason = "there is a place for every byte, and this runs when the crate is compiled"
)]
pub(crate) const FOLD: [u8; 256] = {
    let mut fold = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        fold[byte] = (byte as u8).to_ascii_lowercase();
        byte += 1;
    }
    fold
};

impl Default for ChunkIndexer {
    fn default() -> Self {
        Self {
            seen: vec![0; TRIGRAMS / 64],
            seen_list: Vec::new(),
            pairs: Vec::new(),
            scratch: Vec::new(),
            recent: vec![(0, 0); RECENT],
            known: FingerprintMap::default(),
            spans: Vec::new(),
            extras: Vec::new(),
            term_ids: Vec::new(),
            dictionary: FingerprintMap::default(),
            names: Vec::new(),
            counts: Vec::new(),
            touched: Vec::new(),
            fields: Vec::new(),
            touched_terms: Vec::new(),
            postings: Vec::new(),
            word: Vec::new(),
        }
    }
}

impl ChunkIndexer {
    /// Adds a document; numbers must ascend.
    /// Where its parts begin goes to `starts`.
    pub(crate) fn add(&mut self, input: &Input<'_>, starts: &mut Vec<u32>) -> Facts {
        let Input {
            doc,
            path,
            lang,
            text,
            ..
        } = *input;
        starts.clear();
        let mut start = 0;
        for part in 0..input.parts {
            starts.push(start as u32);
            let end = match part + 1 < input.parts {
                true => part_end(text, start, part),
                false => text.len(),
            };
            let lines = text.get(start..end).unwrap_or_default();
            self.add_trigrams(input.first_part + part, lines);
            start = end;
        }
        let lines = memchr::memchr_iter(b'\n', text).count() as u32
            + u32::from(!text.is_empty() && text.last() != Some(&b'\n'));
        let tokens = self.add_terms(doc, path, lang, text);
        Facts { tokens, lines }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a trigram has 24 bits and there is a bit for each"
    )]
    fn add_trigrams(&mut self, part: u32, text: &[u8]) {
        let (mut trigram, mut written) = (0_u32, 0_u32);
        // A bit for each of the last bytes that is a lower-case letter.
        let mut lower = 0_u8;
        let mut length = 0_u32;
        let (seen, list) = (&mut self.seen, &mut self.seen_list);
        let mut add = |trigram: u32| {
            let word = &mut seen[(trigram >> 6) as usize];
            let bit = 1 << (trigram & 63);
            if *word & bit == 0 {
                *word |= bit;
                list.push(trigram);
            }
        };
        for byte in text {
            if *byte == b'\n' {
                length = 0;
                continue;
            }
            trigram = (trigram << 8 | u32::from(FOLD[usize::from(*byte)])) & 0xff_ffff;
            written = (written << 8 | u32::from(*byte)) & 0xff_ffff;
            lower = (lower << 1 | u8::from(byte.is_ascii_lowercase())) & 0b111;
            length += 1;
            if length >= 3 {
                add(trigram);
                if written != trigram && lower != 0 {
                    add(written);
                }
            }
        }
        self.pairs.reserve(self.seen_list.len());
        for trigram in self.seen_list.drain(..) {
            self.seen[(trigram >> 6) as usize] = 0;
            self.pairs.push(u64::from(trigram) << 32 | u64::from(part));
        }
    }

    fn add_terms(&mut self, doc: u32, path: &str, lang: Lang, text: &[u8]) -> u32 {
        let mut tokens = 0_u32;
        for (start, end) in identifiers(text) {
            if end - start < 2 {
                continue;
            }
            let Some(word) = text.get(start..end) else {
                continue;
            };
            let id = self.intern(word);
            if let Some(count) = self.counts.get_mut(id as usize) {
                if *count == 0 {
                    self.touched.push(id);
                }
                *count += 1;
            }
        }
        for at in 0..self.touched.len() {
            let Some(id) = self.touched.get(at).copied() else {
                break;
            };
            let count = self.counts.get_mut(id as usize).map_or(0, std::mem::take);
            let (from, to) = self.spans.get(id as usize).copied().unwrap_or_default();
            tokens = tokens.saturating_add(count.saturating_mul(to - from));
            self.each_term(from, to, |state| {
                state.count = state.count.saturating_add(count);
            });
            let extra = self
                .extras
                .get(id as usize)
                .and_then(|extra| extra.checked_sub(1));
            if let Some(extra) = extra
                && let Some(state) = self.fields.get_mut(extra as usize)
                && !state.touched
            {
                state.touched = true;
                self.touched_terms.push(extra);
            }
        }
        self.touched.clear();
        if lang.is_code() {
            self.add_definitions(lang, text);
        }
        self.add_path(path);
        for at in 0..self.touched_terms.len() {
            let Some(term) = self.touched_terms.get(at).copied() else {
                break;
            };
            let state = self
                .fields
                .get_mut(term as usize)
                .map(std::mem::take)
                .unwrap_or_default();
            let fields = Fields {
                count: state.count.min(255) as u8,
                defs: state.defs,
                name: state.name,
                folder: state.folder,
            };
            // The document in the middle: sorting by the whole number gives the order of a run.
            self.postings
                .push(u64::from(term) << 40 | u64::from(doc) << 8 | u64::from(fields.pack()));
        }
        self.touched_terms.clear();
        tokens
    }

    fn add_definitions(&mut self, lang: Lang, text: &[u8]) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', text).chain(std::iter::once(text.len())) {
            let line = text.get(start..end).unwrap_or_default();
            start = end + 1;
            if let Some(def) = definition(line, lang)
                && let Some(name) = line.get(def.name)
            {
                let id = self.intern(name);
                let (from, to) = self.spans.get(id as usize).copied().unwrap_or_default();
                self.each_term(from, to, |state| state.defs = state.defs.saturating_add(1));
            }
        }
    }

    fn add_path(&mut self, path: &str) {
        let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        for (text, is_name) in [(folders, false), (stem, true)] {
            for (start, end) in identifiers(text.as_bytes()) {
                let Some(word) = text.as_bytes().get(start..end) else {
                    continue;
                };
                let id = self.intern(word);
                let (from, to) = self.spans.get(id as usize).copied().unwrap_or_default();
                self.each_term(from, to, |state| match is_name {
                    true => state.name = true,
                    false => state.folder = true,
                });
            }
        }
    }

    /// The number of an identifier; its terms are made the first time it is met.
    fn intern(&mut self, word: &[u8]) -> u32 {
        let print = fingerprint(word);
        let place = print as usize % RECENT;
        if let Some((known, number)) = self.recent.get(place)
            && *known == print
            && let Some(id) = number.checked_sub(1)
        {
            return id;
        }
        let id = match self.known.get(&print) {
            Some(id) => *id,
            None => self.meet(word, print),
        };
        if let Some(recent) = self.recent.get_mut(place) {
            *recent = (print, id + 1);
        }
        id
    }

    /// Gives an identifier its number and makes its terms.
    fn meet(&mut self, word: &[u8], print: u64) -> u32 {
        let id = self.spans.len() as u32;
        let from = self.term_ids.len() as u32;
        let (dictionary, names, term_ids, fields) = (
            &mut self.dictionary,
            &mut self.names,
            &mut self.term_ids,
            &mut self.fields,
        );
        let mut number_of = |term: &[u8]| {
            let print = fingerprint(term);
            match dictionary.get(&print) {
                Some(number) => *number,
                None => {
                    let number = names.len() as u32;
                    names.push(term.into());
                    fields.push(TermState::default());
                    dictionary.insert(print, number);
                    number
                }
            }
        };
        terms(word, &mut self.word, |term| term_ids.push(number_of(term)));
        let extra = match unstemmed(word, &mut self.word) {
            Some(_) => {
                self.word.insert(0, UNSTEMMED);
                Some(number_of(&self.word))
            }
            None => is_irregular(word).then(|| number_of(IRREGULAR)),
        };
        self.extras.push(extra.map_or(0, |number| number + 1));
        self.spans.push((from, self.term_ids.len() as u32));
        self.counts.push(0);
        self.known.insert(print, id);
        id
    }

    fn each_term(&mut self, from: u32, to: u32, change: impl Fn(&mut TermState)) {
        for term in self
            .term_ids
            .get(from as usize..to as usize)
            .unwrap_or_default()
        {
            if let Some(state) = self.fields.get_mut(*term as usize) {
                if !state.touched {
                    state.touched = true;
                    self.touched_terms.push(*term);
                }
                change(state);
            }
        }
    }

    /// The runs of the chunk; the indexer is empty afterwards.
    pub(crate) fn finish(&mut self) -> Runs {
        let runs = Runs {
            trigrams: self.trigram_run(),
            terms: self.term_run(),
        };
        self.pairs.clear();
        self.recent.fill((0, 0));
        self.known.clear();
        self.spans.clear();
        self.extras.clear();
        self.term_ids.clear();
        self.dictionary.clear();
        self.names.clear();
        self.counts.clear();
        self.fields.clear();
        self.postings.clear();
        runs
    }

    fn trigram_run(&mut self) -> Vec<u8> {
        // Parts ascend already, so a stable sort by trigram is enough.
        radix_pass(&mut self.pairs, &mut self.scratch, 32);
        radix_pass(&mut self.pairs, &mut self.scratch, 44);
        let mut run = Vec::with_capacity(self.pairs.len() * 3 / 2);
        let mut list = Vec::new();
        for group in self.pairs.chunk_by(|a, b| a >> 32 == b >> 32) {
            let Some(first) = group.first() else { continue };
            list.clear();
            let mut last = 0;
            for pair in group {
                let doc = *pair as u32;
                put(&mut list, u64::from(doc.wrapping_sub(last)));
                last = doc;
            }
            let [_, a, b, c] = ((first >> 32) as u32).to_be_bytes();
            entry(&mut run, &[a, b, c], group.len(), last, &list);
        }
        run
    }

    fn term_run(&mut self) -> Vec<u8> {
        let mut order: Vec<u32> = (0..self.names.len() as u32).collect();
        let name = |id: &u32| {
            self.names
                .get(*id as usize)
                .map(AsRef::as_ref)
                .unwrap_or(&[][..])
        };
        order.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        self.postings.sort_unstable();
        let mut starts = vec![0_u32; self.names.len() + 1];
        for posting in &self.postings {
            if let Some(start) = starts.get_mut((posting >> 40) as usize + 1) {
                *start += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut run = Vec::with_capacity(self.postings.len() * 3);
        let mut list = Vec::new();
        for id in &order {
            let from = starts.get(*id as usize).copied().unwrap_or(0) as usize;
            let to = starts.get(*id as usize + 1).copied().unwrap_or(0) as usize;
            let group = self.postings.get(from..to).unwrap_or_default();
            if group.is_empty() {
                continue;
            }
            list.clear();
            let mut last = 0;
            for posting in group {
                let doc = (posting >> 8) as u32;
                put(&mut list, u64::from(doc.wrapping_sub(last)));
                list.push(*posting as u8);
                last = doc;
            }
            entry(&mut run, name(id), group.len(), last, &list);
        }
        run
    }
}

/// Where a part that begins at `start` ends: after a line.
fn part_end(text: &[u8], start: usize, part: u32) -> usize {
    let least = (part as usize + 1) * PART_BYTES as usize;
    let from = least.max(start);
    let rest = text.get(from..).unwrap_or_default();
    memchr::memchr(b'\n', rest).map_or(text.len(), |at| from + at + 1)
}

/// One entry of a run.
fn entry(run: &mut Vec<u8>, key: &[u8], count: usize, last: u32, list: &[u8]) {
    run.push(key.len() as u8);
    run.extend_from_slice(key);
    put(run, count as u64);
    put(run, u64::from(last));
    put(run, list.len() as u64);
    run.extend_from_slice(list);
}

/// A stable pass over 12 bits of the numbers.
#[expect(
    clippy::indexing_slicing,
    reason = "a digit has 12 bits and there is a place for each"
)]
fn radix_pass(numbers: &mut Vec<u64>, scratch: &mut Vec<u64>, shift: u32) {
    let digit = |number: u64| (number >> shift & 0xfff) as usize;
    let mut places = vec![0_usize; 4096];
    for number in numbers.iter() {
        places[digit(*number)] += 1;
    }
    let mut sum = 0;
    for place in &mut places {
        (*place, sum) = (sum, sum + *place);
    }
    scratch.clear();
    scratch.resize(numbers.len(), 0);
    for number in numbers.iter() {
        let place = &mut places[digit(*number)];
        scratch[*place] = *number;
        *place += 1;
    }
    std::mem::swap(numbers, scratch);
}

/// Terms with their fields.
pub(crate) type TermFields = std::collections::BTreeMap<Box<[u8]>, Fields>;

/// The terms that one text has, for files that are not in a segment.
pub(crate) fn terms_of(path: &str, lang: Lang, text: &[u8]) -> (TermFields, u32) {
    let mut indexer = ChunkIndexer {
        seen: Vec::new(),
        ..ChunkIndexer::default()
    };
    let tokens = indexer.add_terms(0, path, lang, text);
    let found = indexer.postings.iter().filter_map(|posting| {
        let name = indexer.names.get((posting >> 40) as usize)?;
        Some((name.clone(), Fields::unpack(*posting as u8)))
    });
    (found.collect(), tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::codec::{take, take_array, take_bytes};

    fn read(run: &[u8]) -> Vec<(Vec<u8>, u64, u64, Vec<u8>)> {
        let mut rest = run;
        let mut entries = Vec::new();
        while let Some([length]) = take_array::<1>(&mut rest) {
            let key = take_bytes(&mut rest, usize::from(length)).unwrap().to_vec();
            let (count, last) = (take(&mut rest).unwrap(), take(&mut rest).unwrap());
            let bytes = take(&mut rest).unwrap() as usize;
            entries.push((
                key,
                count,
                last,
                take_bytes(&mut rest, bytes).unwrap().to_vec(),
            ));
        }
        entries
    }

    #[test]
    fn a_run_has_each_trigram_once_in_order_and_none_over_a_line_end() {
        let mut indexer = ChunkIndexer::default();
        let mut starts = Vec::new();
        for (part, text) in [(3, &b"ABC\ndabc"[..]), (7, b"aBC")] {
            let input = Input {
                doc: part,
                first_part: part,
                parts: 1,
                path: "a.txt",
                lang: Lang::TEXT,
                text,
            };
            indexer.add(&input, &mut starts);
            assert_eq!(starts, [0]);
        }
        let entries = read(&indexer.finish().trigrams);
        let keys: Vec<&[u8]> = entries.iter().map(|entry| entry.0.as_slice()).collect();
        assert_eq!(keys, [b"aBC", b"abc", b"dab"], "both cases as written");
        assert_eq!(
            (entries[1].1, entries[1].2, entries[1].3.as_slice()),
            (2, 7, &[3, 4][..])
        );
    }

    #[test]
    fn parts_are_of_whole_lines_and_the_last_takes_the_rest() {
        let line = vec![b'x'; PART_BYTES as usize - 1];
        let text = [&line[..], b"\nabcdef\n", &line, b"\nabc"].concat();
        let mut starts = Vec::new();
        for (parts, expected) in [
            (1, &[0][..]),
            (2, &[0, 8_199]),
            (3, &[0, 8_199, 16_391]),
            (4, &[0, 8_199, 16_391, 16_394]),
        ] {
            let input = Input {
                doc: 0,
                first_part: 10,
                parts,
                path: "a.txt",
                lang: Lang::TEXT,
                text: &text,
            };
            let mut indexer = ChunkIndexer::default();
            indexer.add(&input, &mut starts);
            assert_eq!(starts, expected);
            let entries = read(&indexer.finish().trigrams);
            let abc = entries.iter().find(|entry| entry.0 == b"abc").unwrap();
            assert_eq!(abc.1, if parts < 2 { 1 } else { 2 }, "{parts}");
        }
    }

    #[test]
    fn terms_carry_their_fields() {
        let (terms, tokens) = terms_of(
            "src/router.rs",
            Lang::RUST,
            b"fn spawn_task() { spawn(x) }\n",
        );
        let of = |name: &str| terms.get(name.as_bytes()).copied();
        let spawn = of("spawn").unwrap();
        assert_eq!((spawn.count, spawn.defs, spawn.name), (2, 1, false));
        assert_eq!(of("spawntask").unwrap().defs, 1);
        let rout = of("rout").unwrap();
        assert_eq!((rout.count, rout.name, rout.folder), (0, true, false));
        assert!(of("src").unwrap().folder);
        assert_eq!(tokens, 5);
        assert_eq!(Fields::unpack(spawn.pack()), spawn);
        let (terms, tokens) = terms_of("a.rs", Lang::RUST, b"Routes routes map\n");
        let keys: Vec<&[u8]> = terms.keys().map(AsRef::as_ref).collect();
        assert_eq!(keys, [&b"\x01routes"[..], b"map", b"rout"]);
        assert_eq!(tokens, 3, "what is kept for its letters does not count");
    }
}
