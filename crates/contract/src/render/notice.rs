//! Notes, hints and warnings: one line each, with a stable prefix.

use super::shorten;

/// How long the text of a notice may be.
pub const NOTICE_MAX_CHARS: usize = 400;

/// The kinds of notice. This is the only place that spells their prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// Something about the answer itself.
    Note,
    /// The next step.
    Hint,
    /// Something that may be wrong.
    Warning,
}

impl Notice {
    /// The word before the colon.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Hint => "hint",
            Self::Warning => "warning",
        }
    }

    /// The notice as one line; several lines of `text` are folded into one.
    #[must_use]
    pub fn line(self, text: &str) -> String {
        let folded = fold(text);
        let text = shorten(&folded, NOTICE_MAX_CHARS);
        format!("{}: {text}", self.prefix()).trim_end().to_owned()
    }
}

/// `note: ...`
#[must_use]
pub fn note(text: &str) -> String {
    Notice::Note.line(text)
}

/// `warning: ...`
#[must_use]
pub fn warning(text: &str) -> String {
    Notice::Warning.line(text)
}

/// Joins the lines of `text` with single spaces.
///
/// Stops once there is more than any notice shows, so that a huge text costs nothing.
fn fold(text: &str) -> String {
    let mut out = String::new();
    for line in text
        .split(is_break)
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        if out.len() > NOTICE_MAX_CHARS * 4 {
            break;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        let line = line
            .get(..line.floor_char_boundary(NOTICE_MAX_CHARS * 5))
            .unwrap_or(line);
        out.push_str(line);
    }
    out
}

fn is_break(c: char) -> bool {
    matches!(
        c,
        '\n' | '\r' | '\t' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, proptest};

    use super::*;
    use crate::render::tests::TEXT;

    #[test]
    fn each_kind_has_its_prefix() {
        assert_eq!(note("a"), "note: a");
        assert_eq!(Notice::Hint.line("b"), "hint: b");
        assert_eq!(warning("c"), "warning: c");
        assert_eq!(note(" \n"), "note:");
    }

    #[test]
    fn several_lines_fold_into_one() {
        assert_eq!(
            note("first\r\n\n   second\tthird\n"),
            "note: first second third"
        );
        assert_eq!(warning("a\x1b[1mb"), "warning: a\\x1b[1mb");
    }

    #[test]
    fn long_text_is_cut_visibly() {
        let line = note(&"word ".repeat(10_000));
        assert_eq!(line.chars().count(), "note: ".len() + NOTICE_MAX_CHARS);
        assert!(line.ends_with('…'));
    }

    proptest! {
        #[test]
        fn a_notice_is_always_one_bounded_line(text in TEXT) {
            let line = warning(&text);
            prop_assert!(!line.chars().any(char::is_control));
            prop_assert!(line.chars().count() <= "warning: ".len() + NOTICE_MAX_CHARS);
            prop_assert!(line.trim_end() == line);
        }
    }
}
