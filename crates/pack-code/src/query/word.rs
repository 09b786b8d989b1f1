//! The word that every match of a pattern lies in or has: its letters, and where it begins and ends.
//!
//! The index has all words of a text as a whole, in lower case and without underscores. Of
//! `IRQ_H\w*2\b` it is known that a word has `irqh` inside and, behind that, ends in `2`, which few
//! words do; the trigrams of the pattern are in many files.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

use crate::query::plan::{DEPTH, Letters, of_class};
use crate::text::words::is_word;

/// Letters in a row that a word must have to be looked for among the words of the index.
const PIECE_BYTES: usize = 3;

/// Letters that a word must have to be looked for if nothing else is known of it: of fewer the
/// trigrams of the files say as much, and too many words have them.
const ALONE_BYTES: usize = 7;

/// What is known of a word, in lower case and without underscores.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Word {
    /// Letters in a row, each behind the ones before.
    pub(crate) pieces: Vec<Vec<u8>>,
    /// The word begins with the first piece.
    pub(crate) begins: bool,
    /// The word ends with the last piece.
    pub(crate) ends: bool,
}

impl Word {
    /// The word of a pattern that says most, if there is one.
    pub(crate) fn of(hir: &Hir) -> Option<Self> {
        let mut words = Words::default();
        words.read(hir, 0);
        words.end(Edge::Open);
        words.best
    }

    /// The pieces that have trigrams.
    pub(crate) fn long_pieces(&self) -> impl Iterator<Item = &[u8]> {
        let pieces = self.pieces.iter().map(Vec::as_slice);
        pieces.filter(|piece| piece.len() >= PIECE_BYTES)
    }

    /// How far a word is told from others by this: the trigrams that it is known to have.
    fn weight(&self) -> usize {
        let trigrams = self
            .long_pieces()
            .map(|piece| piece.len() + 1 - PIECE_BYTES);
        2 * trigrams.sum::<usize>() + usize::from(self.begins) + usize::from(self.ends)
    }

    /// Whether a word of the index may be the one. The index takes bytes outside ASCII for letters
    /// and a pattern may not, so that an edge may be next to one of these. The mark of words that
    /// are not stemmed is none of their letters.
    pub(crate) fn admits(&self, word: &[u8]) -> bool {
        let is_edge = |byte: Option<&u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric());
        let Some((first, others)) = self.pieces.split_first() else {
            return true;
        };
        let fits = |at: usize, piece: &[u8], last: bool| {
            let end = at + piece.len();
            !(last && self.ends) || is_edge(word.get(end))
        };
        let mut from = 0;
        while let Some(at) = find(word, first, from) {
            let begins = !self.begins || is_edge(at.checked_sub(1).and_then(|at| word.get(at)));
            if begins && fits(at, first, others.is_empty()) {
                let mut end = at + first.len();
                let follow = others.iter().enumerate().all(|(number, piece)| {
                    let last = number + 1 == others.len();
                    while let Some(at) = find(word, piece, end) {
                        if fits(at, piece, last) {
                            end = at + piece.len();
                            return true;
                        }
                        end = at + 1;
                    }
                    false
                });
                if follow {
                    return true;
                }
            }
            from = at + 1;
        }
        false
    }
}

impl Word {
    /// Looks at words one after the other, as a sorted list has them.
    pub(crate) fn finder(&self) -> WordFinder<'_> {
        let longest = self.long_pieces().max_by_key(|piece| piece.len());
        WordFinder {
            word: self,
            piece: longest.unwrap_or_default(),
            found: None,
        }
    }
}

/// Looks for a word in a sorted list: what two neighbours have in common is looked at once.
#[derive(Debug)]
pub(crate) struct WordFinder<'a> {
    word: &'a Word,
    piece: &'a [u8],
    /// Where the piece ends in the last word.
    found: Option<usize>,
}

impl WordFinder<'_> {
    /// Whether a word may be the one; `shared` are the bytes that it has in common with the one
    /// before.
    pub(crate) fn admits(&mut self, word: &[u8], shared: usize) -> bool {
        let length = self.piece.len();
        if self.found.is_none_or(|end| end > shared) {
            let from = (shared + 1).saturating_sub(length);
            let rest = word.get(from..).unwrap_or_default();
            let at = rest.windows(length).position(|found| found == self.piece);
            self.found = at.map(|at| from + at + length);
        }
        self.found.is_some() && self.word.admits(word)
    }
}

/// Where a piece is at or behind a place. Words are short: a search with tables costs more than it
/// spares.
fn find(word: &[u8], piece: &[u8], from: usize) -> Option<usize> {
    let (first, rest) = piece.split_first()?;
    let mut at = from;
    loop {
        at += memchr::memchr(*first, word.get(at..)?)?;
        if word.get(at + 1..)?.starts_with(rest) {
            return Some(at);
        }
        at += 1;
    }
}

/// What is known about the place between two parts of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    /// A word cannot go on here.
    Closed,
    Open,
}

/// Collects the words of a pattern.
#[derive(Default)]
struct Words {
    word: Word,
    piece: Vec<u8>,
    /// The place before what is read next is an edge of words.
    at_edge: bool,
    /// Letters that are not known are between the piece and what is before it.
    gap: bool,
    best: Option<Word>,
}

impl Words {
    fn read(&mut self, hir: &Hir, depth: usize) {
        if depth > DEPTH {
            return self.end(Edge::Open);
        }
        match hir.kind() {
            HirKind::Empty => {}
            HirKind::Look(look) => match look {
                Look::WordUnicode | Look::WordAscii if self.is_inside() => self.end(Edge::Closed),
                Look::WordUnicode | Look::WordAscii => self.at_edge = true,
                Look::StartLF | Look::EndLF | Look::Start | Look::End => self.end(Edge::Closed),
                _ => {}
            },
            HirKind::Literal(literal) => {
                for byte in &literal.0 {
                    match is_word(*byte) {
                        true => self.letter(byte.to_ascii_lowercase()),
                        false => self.end(Edge::Closed),
                    }
                }
            }
            HirKind::Class(class) => match (one_letter(class), Inside::of(class)) {
                (Some(letter), _) => self.letter(letter),
                (None, Inside::Word) => self.skip(),
                (None, Inside::Outside) => self.end(Edge::Closed),
                (None, Inside::Either) => self.end(Edge::Open),
            },
            HirKind::Capture(capture) => self.read(&capture.sub, depth + 1),
            HirKind::Concat(parts) => parts.iter().for_each(|part| self.read(part, depth + 1)),
            HirKind::Repetition(repetition) => match repetition.sub.kind() {
                HirKind::Class(class) if Inside::of(class) == Inside::Word => self.skip(),
                HirKind::Class(class)
                    if Inside::of(class) == Inside::Outside && repetition.min > 0 =>
                {
                    self.end(Edge::Closed);
                }
                _ => self.end(Edge::Open),
            },
            HirKind::Alternation(_) => self.end(Edge::Open),
        }
    }

    /// Whether what was read last is a letter, so that a boundary here ends its word.
    fn is_inside(&self) -> bool {
        !self.piece.is_empty() && !self.gap
    }

    fn letter(&mut self, letter: u8) {
        // The index leaves underscores out.
        if letter == b'_' {
            return;
        }
        if self.gap {
            self.end_piece();
        }
        if self.word.pieces.is_empty() && self.piece.is_empty() {
            self.word.begins = self.at_edge;
        }
        self.at_edge = false;
        self.piece.push(letter);
    }

    /// Letters of the same word that are not known.
    fn skip(&mut self) {
        if self.word.pieces.is_empty() && self.piece.is_empty() {
            self.word.begins = false;
        }
        self.at_edge = false;
        self.gap = true;
    }

    fn end_piece(&mut self) {
        self.gap = false;
        let piece = std::mem::take(&mut self.piece);
        if !piece.is_empty() {
            self.word.pieces.push(piece);
        }
    }

    fn end(&mut self, edge: Edge) {
        let ends = edge == Edge::Closed && !self.gap;
        self.end_piece();
        self.at_edge = edge == Edge::Closed;
        let mut word = std::mem::take(&mut self.word);
        word.ends = ends;
        let weight = word.weight();
        // Numbers are not in the index as a whole.
        let has_letter = |piece: &[u8]| piece.iter().any(u8::is_ascii_alphabetic);
        let known = self.best.as_ref().map_or(0, Word::weight);
        let alone = word.pieces.iter().map(Vec::len).sum::<usize>() < ALONE_BYTES
            && word.pieces.len() == 1
            && !word.begins
            && !word.ends;
        if word.long_pieces().any(has_letter) && weight > known && !alone {
            self.best = Some(word);
        }
    }
}

/// Which characters a class has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    /// Only those that the index takes for letters of a word.
    Word,
    /// Only others.
    Outside,
    Either,
}

impl Inside {
    fn of(class: &Class) -> Self {
        let mut found: Option<Self> = None;
        let mut see = |low: u32, high: u32| {
            // What is not ASCII is a letter to the index.
            for code in (low..=high.min(0x7f)).chain((high > 0x7f).then_some(0x80)) {
                let this = match is_word(code as u8) {
                    true => Self::Word,
                    false => Self::Outside,
                };
                found = match found {
                    None => Some(this),
                    Some(known) if known == this => Some(known),
                    Some(_) => Some(Self::Either),
                };
            }
        };
        match class {
            Class::Unicode(class) => {
                let ranges = class.ranges().iter();
                ranges.for_each(|range| see(u32::from(range.start()), u32::from(range.end())));
            }
            Class::Bytes(class) => {
                let ranges = class.ranges().iter();
                ranges.for_each(|range| see(u32::from(range.start()), u32::from(range.end())));
            }
        }
        found.unwrap_or(Self::Either)
    }
}

/// The one ASCII letter that a class has, in either case. Letters outside ASCII that are the same
/// in another case may be among them.
pub(crate) fn one_letter(class: &Class) -> Option<u8> {
    let strings = of_class(class, Letters::Lower)?;
    let mut letters = strings.iter().filter(|string| string.is_ascii());
    let (letter, more) = (letters.next()?, letters.next());
    let same = |string: &Vec<u8>| {
        string.is_ascii()
            || matches!(
                (letter.as_slice(), std::str::from_utf8(string)),
                (b"s", Ok("\u{17f}")) | (b"k", Ok("\u{212a}"))
            )
    };
    match (letter.as_slice(), more) {
        ([letter], None) if is_word(*letter) && strings.iter().all(same) => Some(*letter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::pattern::{Case, Pattern};
    use crate::store::chunk::UNSTEMMED;

    /// A word as text: `^` where it begins and `$` where it ends, `*` between its pieces.
    fn shown(text: &str, case: Case) -> Option<String> {
        let word = Word::of(&Pattern::regex(text, case).unwrap().hir)?;
        let pieces: Vec<String> = word
            .pieces
            .iter()
            .map(|piece| String::from_utf8(piece.clone()).unwrap())
            .collect();
        let edge = |is: bool, sign: &'static str| if is { sign } else { "" };
        let (begins, ends) = (edge(word.begins, "^"), edge(word.ends, "$"));
        Some(format!("{begins}{}{ends}", pieces.join("*")))
    }

    #[test]
    fn a_pattern_says_which_letters_a_word_has_and_where_it_ends() {
        for (pattern, found) in [
            ("start_server", Some("startserver")),
            (r"\bstart_server\b\(", Some("^startserver$")),
            (r"start_server\(", Some("startserver$")),
            ("^start_server$", Some("^startserver$")),
            (r"sched_pro\w*k\b", Some("schedpro*k$")),
            (r"\bsched\w+pro[a-z0-9]*\b", Some("^sched*pro")),
            (r"\b\w*scheduler", Some("scheduler")),
            (r"sched\w*\b", None),
            ("startServer", Some("startserver")),
            ("a_b x start_server y_z", Some("^startserver$")),
            ("(?:start)_(server)", Some("startserver")),
            ("start|_server", None),
            ("start_(server)?", None),
            ("starting_(one|two)more", Some("starting")),
            ("start.servers", Some("servers")),
            (r"start\s+servers", Some("servers")),
            (r"start[ \t]+servers", Some("^servers")),
            (r"\b_start", Some("^start")),
            (r"starting\w*_\b-x", Some("starting")),
            (r"start\w*_a\b-x", Some("start*a$")),
            ("123_456789", None),
            ("a_b", None),
            (r"a_bc\b", Some("abc$")),
        ] {
            for case in [Case::Sensitive, Case::Insensitive] {
                assert_eq!(shown(pattern, case).as_deref(), found, "{pattern}");
            }
        }
    }

    #[test]
    fn no_word_that_matches_is_left_out() {
        let unstemmed = [&[UNSTEMMED][..], b"abc"].concat();
        let unstemmed = std::str::from_utf8(&unstemmed).unwrap();
        let word = |text: &str| Word::of(&Pattern::regex(text, Case::Smart).unwrap().hir).unwrap();
        for (pattern, admitted, others) in [
            (
                r"irq_h\w*2\b",
                &["irqh2", "myirqhigh2", "irqh1irqh2", "irqh2→x"][..],
                &["irqh", "irqh2x", "irq2"][..],
            ),
            (r"\babc\b", &["abc", "→abc→", unstemmed], &["abcd", "xabc"]),
            (r"abc\w*bcd\w*d\b", &["abcbcdd", "abcxbcdbcdd"], &["abcbcd"]),
            (r"abc\w*cd\b", &["abccdxcd"], &["abcd", "abcdcde"]),
        ] {
            let word = word(pattern);
            for text in admitted {
                assert!(word.admits(text.as_bytes()), "{pattern} {text}");
            }
            for text in others {
                assert!(!word.admits(text.as_bytes()), "{pattern} {text}");
            }
            // As neighbours of a sorted list they are told apart, too.
            let mut all: Vec<&str> = admitted.iter().chain(others).copied().collect();
            all.sort_unstable();
            let (mut finder, mut last) = (word.finder(), "");
            for text in all {
                let shared = last.bytes().zip(text.bytes()).take_while(|(a, b)| a == b);
                let found = finder.admits(text.as_bytes(), shared.count());
                assert_eq!(found, admitted.contains(&text), "{pattern} {text}");
                last = text;
            }
        }
    }
}
