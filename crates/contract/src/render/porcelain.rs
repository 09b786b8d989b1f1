//! A whole answer as lines.
//!
//! The first line is always the summary. Fields are `key: value`, items `- text`, a section is a
//! title with everything after it indented. Notices stand at the end, whenever they were added,
//! and a cut takes lines from the body before it takes a notice.

use std::fmt::Display;

use super::{Bounds, Notice, WHOLE_AS_JSON, bound_with, shorten, table};

/// How long a line may be before it is cut; a longer one would push the others out.
pub const LINE_MAX_CHARS: usize = 1000;

/// Text in place of an empty summary.
const NO_SUMMARY: &str = "(no summary)";
const INDENT: &str = "  ";

/// Builds porcelain text, line by line.
#[derive(Clone, Debug)]
#[must_use]
pub struct Porcelain {
    lines: Vec<String>,
    notices: Vec<String>,
    indent: &'static str,
}

impl Porcelain {
    /// Begins with the line that says the most.
    pub fn summary(text: impl AsRef<str>) -> Self {
        let line = one_line("", text.as_ref().trim());
        let line = if line.is_empty() {
            NO_SUMMARY.to_owned()
        } else {
            line
        };
        Self {
            lines: vec![line],
            notices: Vec::new(),
            indent: "",
        }
    }

    /// Adds `key: value`.
    pub fn field(self, key: &str, value: impl Display) -> Self {
        self.line(&format!("{key}: {value}"))
    }

    /// Adds `- text`.
    pub fn item(self, text: impl AsRef<str>) -> Self {
        self.line(&format!("- {}", text.as_ref()))
    }

    /// Adds one `- text` per element, in the order of the iterator.
    pub fn items<I>(self, texts: I) -> Self
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        texts.into_iter().fold(self, Self::item)
    }

    /// Adds aligned columns; nothing without rows.
    pub fn table<R, C>(self, headers: &[&str], rows: R) -> Self
    where
        R: IntoIterator<Item = C>,
        C: IntoIterator<Item: AsRef<str>>,
    {
        table::lines(headers, rows)
            .iter()
            .fold(self, |porcelain, line| porcelain.line(line))
    }

    /// Adds `title:` and indents what follows, up to the next section.
    pub fn section(mut self, title: &str) -> Self {
        self.indent = "";
        self = self.line(&format!("{}:", title.trim()));
        self.indent = INDENT;
        self
    }

    /// Adds a note at the end.
    pub fn note(self, text: impl AsRef<str>) -> Self {
        self.notice(Notice::Note, text)
    }

    /// Adds a hint at the end.
    pub fn hint(self, text: impl AsRef<str>) -> Self {
        self.notice(Notice::Hint, text)
    }

    /// Adds a warning at the end.
    pub fn warning(self, text: impl AsRef<str>) -> Self {
        self.notice(Notice::Warning, text)
    }

    /// Adds a notice at the end, in the order of the calls.
    pub fn notice(mut self, kind: Notice, text: impl AsRef<str>) -> Self {
        self.notices.push(kind.line(text.as_ref()));
        self
    }

    /// True if nothing has to be cut for `bounds`.
    #[must_use]
    pub fn fits(&self, bounds: Bounds) -> bool {
        let lines = || self.lines.iter().chain(&self.notices);
        let bytes: usize = lines().map(|line| line.len() + 1).sum();
        lines().count() <= bounds.lines && bytes <= bounds.bytes + 1
    }

    /// The text within `bounds`, without a line break at its end.
    #[must_use]
    pub fn finish(self, bounds: Bounds) -> String {
        self.finish_with(bounds, "")
    }

    /// The text of a tool's answer within `bounds`: a cut names the form that has all of it.
    #[must_use]
    pub fn finish_answer(self, bounds: Bounds) -> String {
        self.finish_with(bounds, WHOLE_AS_JSON)
    }

    fn finish_with(self, bounds: Bounds, rest_is: &str) -> String {
        let body = self.lines.join("\n");
        if self.notices.is_empty() {
            return bound_with(&body, bounds, rest_is).text;
        }
        let notices = self.notices.join("\n");
        let rest = Bounds {
            lines: bounds.lines.saturating_sub(self.notices.len()),
            bytes: bounds.bytes.saturating_sub(notices.len() + 1),
        };
        // Notices that would take most of the room are cut like everything else.
        if rest.lines < bounds.lines / 2 || rest.lines == 0 || rest.bytes < bounds.bytes / 2 {
            return bound_with(&format!("{body}\n{notices}"), bounds, rest_is).text;
        }
        match bound_with(&body, rest, rest_is).text {
            // No room even for the first characters of the summary.
            body if body.is_empty() => bound_with(&notices, bounds, rest_is).text,
            body => format!("{body}\n{notices}"),
        }
    }

    fn line(mut self, text: &str) -> Self {
        self.lines.push(one_line(self.indent, text));
        self
    }
}

fn one_line(indent: &str, text: &str) -> String {
    let line = shorten(text.trim_end(), LINE_MAX_CHARS);
    format!("{indent}{line}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::render::count;
    use crate::render::tests::TEXT;

    fn sample() -> Porcelain {
        Porcelain::summary(count(2, "schema", "schemas"))
            .warning("one is deprecated")
            .field("root", "schemas/")
            .section("found")
            .items(["asset", "envelope\nv2"])
            .table(&["name", "size"], [["asset", "18.2 kB"], ["env", ""]])
            .note("sizes are\napproximate")
    }

    #[test]
    fn porcelain_reads_summary_first_and_notices_last() {
        let expected = "\
2 schemas
root: schemas/
found:
  - asset
  - envelope\\nv2
  name   size
  asset  18.2 kB
  env    -
warning: one is deprecated
note: sizes are approximate";
        assert_eq!(sample().finish(Bounds::default()), expected);
    }

    #[test]
    fn a_cut_spares_the_notices() {
        let expected = "\
2 schemas
root: schemas/
note: 6 more lines (76 B) not shown
warning: one is deprecated
note: sizes are approximate";
        assert_eq!(
            sample().finish(Bounds {
                lines: 5,
                bytes: 1000
            }),
            expected
        );
    }

    #[test]
    fn an_empty_summary_is_still_a_first_line() {
        let text = Porcelain::summary(" ")
            .field("k", "")
            .item("")
            .finish(Bounds::default());
        assert_eq!(text, "(no summary)\nk:\n-");
    }

    #[test]
    fn one_long_value_does_not_push_the_others_out() {
        let text = Porcelain::summary("s")
            .item("x".repeat(99_999))
            .item("y")
            .finish(Bounds::default());
        assert!(text.ends_with("…\n- y"));
    }

    proptest! {
        #[test]
        fn finished_text_keeps_its_promises(
            summary in TEXT,
            texts in proptest::collection::vec(TEXT, 0..12),
            notes in proptest::collection::vec(TEXT, 0..4),
            lines in 0usize..24,
            bytes in 0usize..600,
        ) {
            let build = || notes.iter().fold(
                Porcelain::summary(&summary)
                    .items(&texts)
                    .section("more")
                    .table(&["a", "b"], texts.chunks(2))
                    .field("k", texts.concat()),
                |porcelain, note| porcelain.note(note),
            );
            let text = build().finish(Bounds { lines, bytes });
            prop_assert_eq!(&text, &build().finish(Bounds { lines, bytes }));
            prop_assert!(text.len() <= bytes && text.lines().count() <= lines);
            prop_assert!(!text.ends_with('\n'));
            prop_assert!(text.lines().all(|line| line.trim_end() == line), "{:?}", text);
        }
    }
}
