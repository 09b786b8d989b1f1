//! Messages of a server that pass on: known values are taken out of their strings, and every other byte stays.

use std::borrow::Cow;
use std::ops::Range;

use super::{MARK, Redactor};

impl Redactor {
    /// A line of JSON without the values that the host knows, in texts, names and numbers.
    pub fn json_line<'a>(&self, line: &'a str) -> Cow<'a, str> {
        let places = self.known.places(line);
        if places.is_empty() {
            return Cow::Borrowed(line);
        }
        let mut clean = String::with_capacity(line.len());
        let mut copied = 0;
        for token in tokens(line) {
            let is_hit = |place: &Range<usize>| place.start < token.end && token.start < place.end;
            if !places.iter().any(is_hit) {
                continue;
            }
            let Some(text) = line.get(token.clone()) else {
                continue;
            };
            clean.push_str(line.get(copied..token.start).unwrap_or_default());
            clean.push_str(&self.token(text));
            copied = token.end;
        }
        clean.push_str(line.get(copied..).unwrap_or_default());
        Cow::Owned(clean)
    }

    /// A string or a number without known values.
    fn token(&self, text: &str) -> String {
        let mark = || format!("\"{MARK}\"");
        if !text.starts_with('"') {
            return match self.known(text) {
                Cow::Borrowed(text) => text.to_owned(),
                Cow::Owned(_) => mark(),
            };
        }
        let Ok(plain) = serde_json::from_str::<String>(text) else {
            return mark();
        };
        match self.known(&plain) {
            Cow::Borrowed(_) => text.to_owned(),
            Cow::Owned(clean) => serde_json::to_string(&clean).unwrap_or_else(|_| mark()),
        }
    }
}

/// The strings, with their quotes, and the numbers of a JSON text.
fn tokens(line: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = line.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let is_start = |byte: &u8| *byte == b'"' || byte.is_ascii_digit();
        let start = at + bytes.get(at..)?.iter().position(is_start)?;
        let end = match bytes.get(start)? {
            b'"' => end_of_string(bytes, start + 1),
            _ => {
                let more = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                start + bytes.get(start..)?.iter().take_while(more).count()
            }
        };
        at = end;
        Some(start..end)
    })
}

/// Behind the closing quote of a string, or the end of the text.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(offset) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        at += offset;
        if bytes.get(at) == Some(&b'"') {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}
