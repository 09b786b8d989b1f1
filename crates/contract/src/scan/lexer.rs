//! A strict cursor over JSON text (RFC 8259), without recursion and without values.
//!
//! [`Lexer`] moves over tokens, whole values, the members of objects and the items of arrays. Every
//! reader of JSON text in the workspace that needs places, exact numbers or comments is built on
//! it. Where it refuses, its position is the place of the mistake. Escapes of unpaired surrogates
//! are refused, as they stand for no text; numbers are checked as grammar only, whatever their size.

use std::borrow::Cow;

use super::nesting::{Container, Nesting};

/// The text is not JSON; the lexer's position says where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// A cursor over JSON text.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    text: &'a str,
    position: usize,
    nesting: Nesting,
    max_depth: usize,
    too_deep: Option<usize>,
    lone_surrogates: bool,
}

/// A member's key as it is written.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    text: &'a str,
    offset: usize,
    end: usize,
    escaped: bool,
}

impl<'a> Key<'a> {
    /// The key itself, whatever its spelling.
    pub fn name(self) -> Result<Cow<'a, str>, Malformed> {
        content(
            self.text.get(self.offset..self.end).ok_or(Malformed)?,
            self.escaped,
        )
    }

    /// Where its opening quote is.
    pub fn offset(self) -> usize {
        self.offset
    }
}

/// The content of a string that [`Lexer::string`] has passed.
fn content(raw: &str, escaped: bool) -> Result<Cow<'_, str>, Malformed> {
    if escaped {
        return serde_json::from_str(raw)
            .map(Cow::Owned)
            .map_err(|_| Malformed);
    }
    let end = raw.len().saturating_sub(1);
    raw.get(1..end).map(Cow::Borrowed).ok_or(Malformed)
}

impl<'a> Lexer<'a> {
    /// A strict lexer at the beginning of `text`, which reports more than `max_depth` containers
    /// within each other as too deep.
    pub fn new(text: &'a str, max_depth: usize) -> Self {
        Self {
            text,
            position: 0,
            nesting: Nesting::default(),
            max_depth,
            too_deep: None,
            lone_surrogates: false,
        }
    }

    /// One that also takes escapes of unpaired surrogates.
    pub fn lenient(text: &'a str, max_depth: usize) -> Self {
        Self {
            lone_surrogates: true,
            ..Self::new(text, max_depth)
        }
    }

    /// The byte that comes next.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Where the depth first went past its limit.
    pub fn too_deep(&self) -> Option<usize> {
        self.too_deep
    }

    /// All of the text is passed.
    pub fn at_end(&self) -> bool {
        self.position >= self.text.len()
    }

    /// The next byte, without passing it.
    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    /// The text that is not passed yet.
    pub fn remaining(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    /// Passes `bytes` bytes unseen: a comment, or a mark that the caller has peeked at.
    pub fn skip(&mut self, bytes: usize) {
        self.position += bytes;
    }

    /// The bytes passed over since `start`.
    pub fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.position).unwrap_or_default()
    }

    /// Passes white space.
    pub fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.position += 1;
        }
    }

    /// Enters an object and passes its first key, colon and space; `None` if it has no members.
    pub fn first_key(&mut self) -> Result<Option<Key<'a>>, Malformed> {
        if self.peek() != Some(b'{') {
            return Err(Malformed);
        }
        self.open(Container::Object);
        self.space();
        if self.peek() == Some(b'}') {
            self.close();
            return Ok(None);
        }
        self.key().map(Some)
    }

    /// After a member's value: passes the next key, or leaves the object.
    pub fn next_key(&mut self) -> Result<Option<Key<'a>>, Malformed> {
        self.space();
        match self.peek() {
            Some(b',') => {
                self.position += 1;
                self.space();
                self.key().map(Some)
            }
            Some(b'}') => {
                self.close();
                Ok(None)
            }
            _ => Err(Malformed),
        }
    }

    /// Enters an array and stops before its first item; `false` if it has none.
    pub fn first_item(&mut self) -> Result<bool, Malformed> {
        if self.peek() != Some(b'[') {
            return Err(Malformed);
        }
        self.open(Container::Array);
        self.space();
        if self.peek() == Some(b']') {
            self.close();
            return Ok(false);
        }
        Ok(true)
    }

    /// After an item: stops before the next one, or leaves the array.
    pub fn next_item(&mut self) -> Result<bool, Malformed> {
        self.space();
        match self.peek() {
            Some(b',') => {
                self.position += 1;
                self.space();
                Ok(true)
            }
            Some(b']') => {
                self.close();
                Ok(false)
            }
            _ => Err(Malformed),
        }
    }

    /// Passes one value. The loop stands in for recursion: what is open is in `nesting`.
    pub fn value(&mut self) -> Result<(), Malformed> {
        let outside = self.nesting.depth();
        loop {
            self.space();
            match self.peek() {
                Some(b'{') => {
                    if self.first_key()?.is_some() {
                        continue;
                    }
                }
                Some(b'[') => {
                    if self.first_item()? {
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            if !self.another(outside)? {
                return Ok(());
            }
        }
    }

    /// After a value: closes what ends here, and stops before the next value, if there is one
    /// within the containers opened since `outside`.
    fn another(&mut self, outside: usize) -> Result<bool, Malformed> {
        while self.nesting.depth() > outside {
            match self.nesting.innermost() {
                Container::Object => {
                    if self.next_key()?.is_some() {
                        return Ok(true);
                    }
                }
                Container::Array => {
                    if self.next_item()? {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    fn open(&mut self, container: Container) {
        self.nesting.open(container);
        if self.nesting.depth() > self.max_depth && self.too_deep.is_none() {
            self.too_deep = Some(self.position);
        }
        self.position += 1;
    }

    fn close(&mut self) {
        self.nesting.close();
        self.position += 1;
    }

    fn key(&mut self) -> Result<Key<'a>, Malformed> {
        let offset = self.position;
        let escaped = self.string()?;
        let end = self.position;
        self.space();
        if self.peek() != Some(b':') {
            return Err(Malformed);
        }
        self.position += 1;
        self.space();
        Ok(Key {
            text: self.text,
            offset,
            end,
            escaped,
        })
    }

    /// Passes a string, a number, `true`, `false` or `null`.
    pub fn scalar(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(Malformed),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), Malformed> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(Malformed);
        }
        self.position += word.len();
        Ok(())
    }

    /// Passes a number.
    pub fn number(&mut self) -> Result<(), Malformed> {
        if self.peek() == Some(b'-') {
            self.position += 1;
        }
        if self.peek() == Some(b'0') {
            self.position += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.position += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.position += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.position += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.position;
        while let Some(b'0'..=b'9') = self.peek() {
            self.position += 1;
        }
        if self.position > start {
            Ok(())
        } else {
            Err(Malformed)
        }
    }

    /// Passes a string and gives its content.
    pub fn text(&mut self) -> Result<Cow<'a, str>, Malformed> {
        let start = self.position;
        let escaped = self.string()?;
        content(self.since(start), escaped)
    }

    /// Passes a string and says whether it has escapes.
    pub fn string(&mut self) -> Result<bool, Malformed> {
        if self.peek() != Some(b'"') {
            return Err(Malformed);
        }
        self.position += 1;
        let mut escaped = false;
        loop {
            self.position += plain_prefix(self.rest());
            match self.peek() {
                Some(b'"') => {
                    self.position += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(Malformed),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Malformed> {
        match self.rest() {
            [
                _,
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't',
                ..,
            ] => {
                self.position += 2;
                Ok(())
            }
            [_, b'u', ..] => match self.unicode_escape()? {
                // Half of a pair is grammar, and no text: only what is passed on as it is may have it.
                _ if self.lone_surrogates => Ok(()),
                0xd800..=0xdbff => match self.unicode_escape()? {
                    0xdc00..=0xdfff => Ok(()),
                    _ => Err(Malformed),
                },
                0xdc00..=0xdfff => Err(Malformed),
                _ => Ok(()),
            },
            _ => Err(Malformed),
        }
    }

    fn unicode_escape(&mut self) -> Result<u32, Malformed> {
        let [b'\\', b'u', digits @ ..] = self.rest() else {
            return Err(Malformed);
        };
        let digits = digits.first_chunk::<4>().ok_or(Malformed)?;
        let mut unit = 0;
        for digit in digits {
            unit = unit * 16 + char::from(*digit).to_digit(16).ok_or(Malformed)?;
        }
        self.position += 6;
        Ok(unit)
    }

    fn rest(&self) -> &'a [u8] {
        self.text
            .as_bytes()
            .get(self.position..)
            .unwrap_or_default()
    }
}

/// How many bytes stand before the first quote, backslash or control character.
///
/// Eight bytes at a time find the place in short strings; from there on, blocks that the compiler
/// turns into vector instructions pass over long ones.
fn plain_prefix(bytes: &[u8]) -> usize {
    const SHORT: usize = 4;
    let mut rest = bytes;
    let mut words = 0;
    while let Some((word, tail)) = rest.split_first_chunk::<8>() {
        let hits = special_in(u64::from_le_bytes(*word));
        if hits != 0 {
            return bytes.len() - rest.len() + (hits.trailing_zeros() / 8) as usize;
        }
        rest = tail;
        words += 1;
        if words == SHORT {
            while let Some((block, tail)) = rest.split_first_chunk::<32>()
                && !block
                    .iter()
                    .fold(false, |found, byte| found | is_special(*byte))
            {
                rest = tail;
            }
        }
    }
    let tail = rest.iter().take_while(|byte| !is_special(**byte)).count();
    bytes.len() - rest.len() + tail
}

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Sets the high bit of each special byte. Borrows can set it in bytes above a true hit, never
/// below the first one, so the lowest is exact.
fn special_in(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let zero_byte = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = zero_byte(word ^ (ONES * u64::from(b'"')));
    let backslash = zero_byte(word ^ (ONES * u64::from(b'\\')));
    (control | quote | backslash) & HIGH
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_prefix_ends_at_every_special_byte_in_every_place() {
        for special in (0..0x20).chain(*b"\"\\") {
            for place in 0..150 {
                let mut bytes = vec![b'x'; 160];
                bytes[place] = special;
                assert_eq!(plain_prefix(&bytes), place);
            }
        }
        assert_eq!(plain_prefix(&[0xff; 77]), 77);
    }

    proptest! {
        #[test]
        fn plain_prefix_agrees_with_a_byte_by_byte_search(
            bytes in prop::collection::vec(
                prop_oneof![20 => any::<u8>().prop_filter("plain", |byte| !is_special(*byte)), 1 => any::<u8>()],
                0..200,
            ),
        ) {
            let expected = bytes.iter().position(|byte| is_special(*byte)).unwrap_or(bytes.len());
            prop_assert_eq!(plain_prefix(&bytes), expected);
        }
    }
}
