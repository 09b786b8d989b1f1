//! Values on one line, cut with an ellipsis.

use super::escape::push_visible;

/// The mark of a cut inside a line.
pub const ELLIPSIS: char = '…';

/// Puts `text` on one line of at most `max_chars` characters, cutting the end.
///
/// Hidden characters are escaped first, and an escape is never cut in half.
#[must_use]
pub fn shorten(text: &str, max_chars: usize) -> String {
    let (line, whole) = head(text, max_chars);
    match max_chars.checked_sub(1) {
        Some(keep) if !whole => {
            let (mut out, _) = head(text, keep);
            out.push(ELLIPSIS);
            out
        }
        _ => line,
    }
}

/// The first units of `text`, and whether they are all. Looks no further than it must.
fn head(text: &str, max_chars: usize) -> (String, bool) {
    let mut out = String::with_capacity(text.len().min(max_chars));
    let mut used = 0;
    for (at, c) in text.char_indices() {
        let start = out.len();
        push_visible(&mut out, text, at, c);
        used += out.get(start..).map_or(0, |unit| unit.chars().count());
        if used > max_chars {
            out.truncate(start);
            return (out, false);
        }
    }
    (out, true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, proptest};

    use super::*;
    use crate::render::tests::TEXT;

    #[test]
    fn text_that_fits_is_unchanged() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("", 0), "");
    }

    #[test]
    fn long_text_ends_in_an_ellipsis() {
        assert_eq!(shorten("abcdefgh", 5), "abcd…");
        assert_eq!(shorten("abc", 1), "…");
        assert_eq!(shorten("abc", 0), "");
    }

    #[test]
    fn escapes_are_never_cut_in_half() {
        assert_eq!(shorten("ab\ncd", 4), "ab…");
    }

    proptest! {
        #[test]
        fn shortened_text_is_one_line_within_its_limit(text in TEXT, max in 0usize..40) {
            let line = shorten(&text, max);
            prop_assert!(line.chars().count() <= max);
            prop_assert!(!line.chars().any(char::is_control));
        }
    }
}
