//! Making invisible characters visible.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Replaces characters that would break a line, move the cursor, reorder or hide text by escapes:
/// `\n`, `\r`, `\t`, `\xNN` for other ASCII controls, `\u{NN}` for the rest.
///
/// A backslash stays as it is, so the result is for reading, not for decoding.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        push_visible(&mut out, c);
    }
    Cow::Owned(out)
}

/// Whether a text has characters that nobody sees, or that change the direction of others, beside
/// line breaks and tabs.
#[must_use]
pub fn has_hidden(text: &str) -> bool {
    let is_space = |c| matches!(c, '\n' | '\r' | '\t');
    let is_blank = |c| matches!(c, '\u{200B}' | '\u{2060}'..='\u{2064}' | '\u{00AD}');
    text.chars()
        .any(|c| (is_hidden(c) && !is_space(c)) || is_blank(c))
}

/// Appends `c`, escaped where it is hidden.
pub(super) fn push_visible(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if !is_hidden(c) => out.push(c),
        c if c.is_ascii() => push_byte(out, u32::from(c)),
        c => out.extend(c.escape_unicode()),
    }
}

/// Appends `\xNN`.
pub(super) fn push_byte(out: &mut String, byte: u32) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\x{byte:02x}");
}

/// Controls, line separators, and the format characters used to disguise text: bidirectional
/// overrides and isolates, the byte order mark, and the tag block (invisible ASCII).
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
            | '\u{FEFF}' | '\u{E0000}'..='\u{E007F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_borrowed() {
        assert!(matches!(visible("naïve \\n ✓ path/a b"), Cow::Borrowed(_)));
    }

    #[test]
    fn what_nobody_sees_is_found() {
        for text in [
            "a\u{200B}b",
            "a\u{202E}b",
            "a\u{E0041}b",
            "a\u{2060}b",
            "\u{1b}[0m",
        ] {
            assert!(has_hidden(text), "{text:?}");
        }
        for text in ["plain\n\ttext", "naïve \u{1F468}\u{200D}\u{1F469}", "עברית"] {
            assert!(!has_hidden(text), "{text:?}");
        }
    }

    #[test]
    fn hidden_characters_become_escapes() {
        assert_eq!(visible("a\nb\tc\x1b[0m"), "a\\nb\\tc\\x1b[0m");
        assert_eq!(
            visible("a\u{202e}b\u{85}\u{2028}"),
            "a\\u{202e}b\\u{85}\\u{2028}"
        );
        assert_eq!(visible("x\u{e0041}"), "x\\u{e0041}");
    }
}
