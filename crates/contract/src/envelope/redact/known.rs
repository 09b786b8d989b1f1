//! Values that a host knows as secrets, found in every usual spelling of them.
//!
//! A value is found as it is, percent-encoded, with the escapes of a JSON string, and in Base64, also as a part
//! of a longer encoded text. It may have several lines; each line is found for itself, and a long one in pieces, so
//! that a text that was cut in the middle of a value loses what is there of it ([`TAIL`]).

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use memchr::memmem;

/// Shortest value that is known as a secret: a shorter one would hide ordinary words.
pub const SHORTEST: usize = 8;
/// Longest part of a value that is looked for as one.
const PIECE: usize = 256;
/// Most parts of values; further ones are not known.
const PIECES: usize = 4096;
/// Bytes at the end of a text that may be the beginning of a value: a piece in its longest spelling.
pub const TAIL: usize = PIECE * "\\u0000".len();
/// Begins a sequence for the terminal.
const ESCAPE: u8 = 0x1b;
/// The digits of Base64, and those that differ in its form for URLs.
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The values. Clones know what any of them learns.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    patterns: Arc<RwLock<Arc<[Pattern]>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pattern {
    text: String,
    /// It is the encoded form of a value: the digits around it belong to the same text.
    is_base64: bool,
}

impl Known {
    /// Adds values.
    pub(super) fn add(&self, values: impl IntoIterator<Item = String>) {
        let values: Vec<String> = values.into_iter().collect();
        let pieces = values.iter().flat_map(|value| pieces(value));
        let fresh: Vec<Pattern> = pieces.flat_map(patterns).collect();
        if fresh.is_empty() {
            return;
        }
        let mut patterns = self
            .patterns
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut all = patterns.to_vec();
        all.extend(fresh);
        all.sort();
        all.dedup();
        all.truncate(PIECES);
        *patterns = all.into();
    }

    pub(super) fn len(&self) -> usize {
        self.patterns().len()
    }

    fn patterns(&self) -> Arc<[Pattern]> {
        let patterns = self.patterns.read();
        Arc::clone(&patterns.unwrap_or_else(PoisonError::into_inner))
    }

    /// The places of values in a text, in order and apart from each other. A value with the colours of a terminal in it is
    /// found, too.
    pub(super) fn places(&self, text: &str) -> Vec<Range<usize>> {
        let mut places = self.places_in(text);
        if memchr::memchr(ESCAPE, text.as_bytes()).is_some() {
            let (plain, origins) = without_sequences(text);
            let origin = |place: Range<usize>| {
                let start = *origins.get(place.start)?;
                let last = *origins.get(place.end.checked_sub(1)?)?;
                Some(start..last + 1)
            };
            places.extend(self.places_in(&plain).into_iter().filter_map(origin));
            places = apart(places);
        }
        places
    }

    fn places_in(&self, text: &str) -> Vec<Range<usize>> {
        let patterns = self.patterns();
        let bytes = text.as_bytes();
        let is_escaped = memchr::memchr2(b'%', b'\\', bytes).is_some();
        let mut places = Vec::new();
        for pattern in patterns.iter() {
            let mut from = 0;
            while let Some(place) = pattern.find(bytes, from, is_escaped) {
                from = place.end;
                places.push(place);
            }
        }
        apart(places)
    }
}

/// The places in order; those that touch become one.
fn apart(mut places: Vec<Range<usize>>) -> Vec<Range<usize>> {
    places.sort_unstable_by_key(|place| (place.start, place.end));
    let mut apart: Vec<Range<usize>> = Vec::with_capacity(places.len());
    for place in places {
        match apart.last_mut() {
            Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
            _ => apart.push(place),
        }
    }
    apart
}

/// A text without the sequences that colour it in a terminal, and the origin of each of its bytes.
fn without_sequences(text: &str) -> (String, Vec<usize>) {
    let (mut plain, mut origins) = (String::with_capacity(text.len()), Vec::new());
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        if char != char::from(ESCAPE) {
            plain.push(char);
            origins.extend(at..at + char.len_utf8());
            continue;
        }
        match chars.next() {
            // Parameters, then a letter.
            Some((_, '[')) => {
                while chars
                    .next_if(|(_, char)| (' '..='?').contains(char))
                    .is_some()
                {}
                chars.next_if(|(_, char)| ('@'..='~').contains(char));
            }
            // A text for the terminal itself, up to a bell or another escape.
            Some((_, ']')) => {
                let goes_on =
                    |(_, found): &(usize, char)| !['\u{7}', char::from(ESCAPE)].contains(found);
                while chars.next_if(goes_on).is_some() {}
                if chars.next_if(|(_, char)| *char == '\u{7}').is_none() {
                    chars.next();
                    chars.next_if(|(_, char)| *char == '\\');
                }
            }
            _ => {}
        }
    }
    (plain, origins)
}

impl Pattern {
    fn find(&self, text: &[u8], from: usize, is_escaped: bool) -> Option<Range<usize>> {
        let plain = memmem::find(text.get(from..)?, self.text.as_bytes())
            .map(|at| from + at..from + at + self.text.len());
        let place = match is_escaped || self.text.contains(' ') {
            // A value may look like an encoded one itself.
            true => match (plain, self.find_spelled(text, from)) {
                (Some(plain), Some(spelled)) if spelled.start < plain.start => spelled,
                (plain, spelled) => plain.or(spelled)?,
            },
            false => plain?,
        };
        if !self.is_base64 {
            return Some(place);
        }
        let is_digit = |byte: &u8| STANDARD.contains(byte) || b"-_=".contains(byte);
        let before = text.get(..place.start)?.iter().rev();
        let behind = text.get(place.end..)?.iter();
        let start = place.start - before.take_while(|byte| is_digit(byte)).count();
        Some(start..place.end + behind.take_while(|byte| is_digit(byte)).count())
    }

    /// The first place where the text says the same, in any spelling.
    fn find_spelled(&self, text: &[u8], from: usize) -> Option<Range<usize>> {
        let first = *self.text.as_bytes().first()?;
        let mut at = from;
        loop {
            let start = at + memchr::memchr3(first, b'%', b'\\', text.get(at..)?)?;
            if let Some(end) = self.spelled_from(text, start) {
                return Some(start..end);
            }
            at = start + 1;
        }
    }

    /// Where the pattern ends, in any spelling, if it begins here.
    fn spelled_from(&self, text: &[u8], start: usize) -> Option<usize> {
        let (mut at, mut before) = (start, None);
        for wanted in self.text.chars() {
            let is_behind_slash = before == Some('\\');
            let spelled = spelled(text, at, wanted);
            at = match (spelled, is_behind_slash) {
                (Some(end), _) => end,
                // All backslashes of the text were read as the first of the value.
                (None, true) if wanted == '\\' => at,
                // The last of them may belong to the escape of this character.
                (None, true) => escaped(text, at.checked_sub(1)?, wanted)?,
                (None, false) => return None,
            };
            before = Some(wanted);
        }
        Some(at)
    }
}

/// Where a character ends that stands for `wanted`.
fn spelled(text: &[u8], at: usize, wanted: char) -> Option<usize> {
    let mut buffer = [0; 4];
    let plain = wanted.encode_utf8(&mut buffer).as_bytes();
    let rest = text.get(at..)?;
    match rest.first()? {
        b'\\' => escaped(text, at, wanted),
        b'%' => {
            let decoded = plain
                .iter()
                .try_fold(at, |at, byte| percent(text, at, *byte));
            decoded.or_else(|| rest.starts_with(plain).then_some(at + plain.len()))
        }
        // As forms encode it.
        b'+' if wanted == ' ' => Some(at + 1),
        _ => rest.starts_with(plain).then_some(at + plain.len()),
    }
}

/// Where the percent-encoded form of a byte ends.
fn percent(text: &[u8], at: usize, wanted: u8) -> Option<usize> {
    let digits = text.get(at..at + 3)?.strip_prefix(b"%")?;
    let digits = std::str::from_utf8(digits).ok()?;
    (u8::from_str_radix(digits, 16).ok()? == wanted).then_some(at + 3)
}

/// Matches a character behind backslashes. Their number does not count: a JSON text in a JSON text has more.
fn escaped(text: &[u8], at: usize, wanted: char) -> Option<usize> {
    let rest = text.get(at..)?;
    let slashes = rest.iter().take_while(|byte| **byte == b'\\').count();
    if wanted == '\\' {
        return Some(at + slashes);
    }
    let end = at + slashes;
    let behind = *text.get(end)?;
    if behind != b'u' {
        let means = match behind {
            b't' => '\t',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            plain => char::from(plain),
        };
        return (means == wanted).then_some(end + 1);
    }
    let unit = |at: usize| {
        let digits = std::str::from_utf8(text.get(at + 1..at + 5)?).ok()?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(end)?;
    let mut units = vec![first];
    let mut end = end + 5;
    if (0xD800..0xDC00).contains(&first) {
        let slashes = text.get(end..)?.iter();
        let low = end + slashes.take_while(|byte| **byte == b'\\').count();
        units.push(unit(low)?);
        end = low + 5;
    }
    let mut means = char::decode_utf16(units);
    (means.next()?.ok()? == wanted).then_some(end)
}

/// The parts of a value that are looked for.
fn pieces(value: &str) -> impl Iterator<Item = &str> {
    let lines = value.lines().map(str::trim);
    lines
        .filter(|line| line.len() >= SHORTEST)
        .flat_map(|line| {
            let mut rest = line;
            std::iter::from_fn(move || {
                // No piece is too short to be looked for.
                let end = match rest.len() {
                    0 => return None,
                    length if length < PIECE + SHORTEST => length,
                    _ => rest.floor_char_boundary(PIECE),
                };
                let (piece, behind) = rest.split_at_checked(end)?;
                rest = behind;
                Some(piece)
            })
        })
}

/// The forms of a part.
fn patterns(piece: &str) -> Vec<Pattern> {
    let mut patterns = vec![Pattern {
        text: piece.to_owned(),
        is_base64: false,
    }];
    for before in 0..3 {
        let text = base64(piece.as_bytes(), before);
        let for_urls = text.replace('+', "-").replace('/', "_");
        for text in [text, for_urls] {
            patterns.push(Pattern {
                text,
                is_base64: true,
            });
        }
    }
    patterns
}

/// The digits of Base64 that depend on these bytes alone, with so many bytes before them.
fn base64(bytes: &[u8], before: usize) -> String {
    let bits = std::iter::repeat_n(0, before).chain(bytes.iter().copied());
    let bits = bits.flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let bits: Vec<u8> = bits.collect();
    let digits = bits.chunks_exact(6);
    let digits = digits.map(|digit| digit.iter().fold(0, |sum, bit| sum << 1 | bit));
    let digits = digits.skip((before * 8).div_ceil(6));
    let digit = |digit: u8| STANDARD.get(usize::from(digit)).copied();
    digits.filter_map(digit).map(char::from).collect()
}
