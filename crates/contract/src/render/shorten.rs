//! Values on one line, cut with an ellipsis.

use super::escape::push_visible;

/// The mark of a cut inside a line.
pub const ELLIPSIS: char = '…';

/// Puts `text` on one line of at most `max_chars` characters, cutting the end.
///
/// Hidden characters are escaped first, and an escape is never cut in half.
#[must_use]
pub fn shorten(text: &str, max_chars: usize) -> String {
    cut(text, max_chars, |keep| {
        let (mut out, _) = head(text, keep);
        out.push(ELLIPSIS);
        out
    })
}

/// Puts `text` on one line of at most `max_chars` characters, cutting the middle.
///
/// For values whose end tells as much as their beginning, such as names with a suffix.
#[must_use]
pub fn shorten_middle(text: &str, max_chars: usize) -> String {
    cut(text, max_chars, |keep| {
        let (mut out, _) = head(text, keep.div_ceil(2));
        out.push(ELLIPSIS);
        out.extend(tail(text, keep / 2).into_iter().rev());
        out
    })
}

/// The whole line if it fits; otherwise what `cut` makes of the room beside the ellipsis.
fn cut(text: &str, max_chars: usize, cut: impl FnOnce(usize) -> String) -> String {
    let (line, whole) = head(text, max_chars);
    match max_chars.checked_sub(1) {
        Some(keep) if !whole => cut(keep),
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

/// The last units of `text`, last first.
fn tail(text: &str, max_chars: usize) -> Vec<String> {
    let mut units = Vec::new();
    let mut used = 0;
    for (at, c) in text.char_indices().rev() {
        let mut unit = String::new();
        push_visible(&mut unit, text, at, c);
        used += unit.chars().count();
        if used > max_chars {
            break;
        }
        units.push(unit);
    }
    units
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, proptest};

    use super::*;
    use crate::render::tests::TEXT;

    #[test]
    fn text_that_fits_is_unchanged() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten_middle("abc", 3), "abc");
        assert_eq!(shorten("", 0), "");
    }

    #[test]
    fn long_text_ends_or_bends_in_an_ellipsis() {
        assert_eq!(shorten("abcdefgh", 5), "abcd…");
        assert_eq!(shorten_middle("abcdefgh", 5), "ab…gh");
        assert_eq!(shorten_middle("abcdefgh", 4), "ab…h");
        assert_eq!(shorten("abc", 1), "…");
        assert_eq!(shorten("abc", 0), "");
    }

    #[test]
    fn escapes_are_never_cut_in_half() {
        assert_eq!(shorten("ab\ncd", 4), "ab…");
        assert_eq!(shorten_middle("ab\n\ncd", 5), "ab…cd");
        assert_eq!(shorten_middle("a\nb\ncd", 4), "a…d");
    }

    proptest! {
        #[test]
        fn shortened_text_is_one_line_within_its_limit(text in TEXT, max in 0usize..40) {
            for line in [shorten(&text, max), shorten_middle(&text, max)] {
                prop_assert!(line.chars().count() <= max);
                prop_assert!(!line.chars().any(char::is_control));
            }
        }
    }
}
