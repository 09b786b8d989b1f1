//! Making hidden characters visible.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use super::hidden::{HiddenAt, is_hidden_at};

/// Replaces characters that would break a line, move the cursor, reorder or hide text by escapes:
/// `\n`, `\r`, `\t`, `\xNN` for other ASCII controls, `\u{NN}` for the rest.
///
/// A backslash stays as it is, so the result is for reading, not for decoding.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.char_indices().any(|(at, c)| is_hidden_at(text, at, c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for (at, c) in text.char_indices() {
        push_visible(&mut out, text, at, c);
    }
    Cow::Owned(out)
}

/// JSON text with the hidden characters of its strings as JSON escapes: the same value, for readers.
#[must_use]
pub fn visible_json(json: &str) -> Cow<'_, str> {
    let is_shown = |at: usize, c: char| c.is_ascii() || !is_hidden_at(json, at, c);
    if json.char_indices().all(|(at, c)| is_shown(at, c)) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 64);
    for (at, c) in json.char_indices() {
        if is_shown(at, c) {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(out)
}

/// Appends `c`, which stands at `at` of `text`, escaped where it is hidden.
pub(super) fn push_visible(out: &mut String, text: &str, at: usize, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if !is_hidden_at(text, at, c) => out.push(c),
        c if c.is_ascii() => push_byte(out, u32::from(c)),
        c => out.extend(c.escape_unicode()),
    }
}

/// Appends `\xNN`.
pub(super) fn push_byte(out: &mut String, byte: u32) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\x{byte:02x}");
}

/// Where, and which: `/description U+200B U+202E`.
impl fmt::Display for HiddenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Characters that are named.
        const MOST: usize = 6;
        f.write_str(&visible(&self.pointer))?;
        for c in self.characters.iter().take(MOST) {
            write!(f, " U+{:04X}", u32::from(*c))?;
        }
        match self.characters.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_borrowed() {
        assert!(matches!(visible("naïve \\n ✓ path/a b"), Cow::Borrowed(_)));
        assert!(matches!(
            visible_json("{\n  \"a\": \"b\"\n}"),
            Cow::Borrowed(_)
        ));
    }

    #[test]
    fn hidden_characters_become_escapes() {
        assert_eq!(visible("a\nb\tc\x1b[0m"), "a\\nb\\tc\\x1b[0m");
        assert_eq!(
            visible("a\u{202e}b\u{85}\u{2028}"),
            "a\\u{202e}b\\u{85}\\u{2028}"
        );
        assert_eq!(
            visible("x\u{e0041}\u{200b}\u{61c}"),
            "x\\u{e0041}\\u{200b}\\u{61c}"
        );
        assert_eq!(visible("\u{2764}\u{fe0f}"), "\u{2764}\u{fe0f}", "an emoji");
    }

    #[test]
    fn json_keeps_its_value_and_shows_all_of_it() {
        let value = serde_json::json!({"a": "x\u{200b}\u{e0041}\n\u{1b}é"});
        let text = format!("{value:#}");
        let shown = visible_json(&text);
        assert!(
            shown.contains("x\\u200b\\udb40\\udc41\\n\\u001bé"),
            "{shown}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
            value
        );
    }

    #[test]
    fn a_place_is_named_without_showing_what_is_hidden() {
        let at = HiddenAt {
            pointer: "/c\u{202e}".to_owned(),
            characters: vec!['\u{202e}', '\u{1b}'],
        };
        assert_eq!(at.to_string(), "/c\\u{202e} U+202E U+001B");
    }
}
