//! Changes of a text at places of it; everything else keeps its bytes.

use std::fmt::Write as _;

use mainstay_contract::render;

use super::tree::Span;

/// Longest line of a difference that is shown.
const SHOWN_CHARS: usize = 500;

/// One place and what is to stand there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) span: Span,
    pub(super) text: String,
}

impl Edit {
    pub(super) fn replace(span: Span, text: impl Into<String>) -> Self {
        Self {
            span,
            text: text.into(),
        }
    }

    pub(super) fn insert(at: usize, text: impl Into<String>) -> Self {
        Self::replace(at..at, text)
    }

    pub(super) fn remove(span: Span) -> Self {
        Self::replace(span, "")
    }
}

/// The text with all edits made. They may come in any order but not overlap; one that does not fit
/// is an error of ours, and then there is no text.
pub(super) fn apply(text: &str, edits: &[Edit]) -> Option<String> {
    let mut sorted: Vec<&Edit> = edits.iter().collect();
    sorted.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let mut changed = String::with_capacity(text.len() + 64 * edits.len());
    let mut at = 0;
    for edit in sorted {
        changed.push_str(text.get(at..edit.span.start)?);
        changed.push_str(&edit.text);
        at = edit.span.end;
    }
    changed.push_str(text.get(at..)?);
    Some(changed)
}

/// The lines that differ, as a difference is usually shown. Long lines are cut: they are for people.
pub(super) fn difference(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) =
        (before.split('\n').collect(), after.split('\n').collect());
    let mut shown = String::new();
    let (mut from, mut to) = (0, 0);
    while from < old.len() || to < new.len() {
        if old.get(from) == new.get(to) {
            (from, to) = (from + 1, to + 1);
            continue;
        }
        let (old_end, new_end) = meet(&old, &new, from, to);
        let _ = writeln!(shown, "@@ line {}", from + 1);
        for (mark, lines) in [('-', old.get(from..old_end)), ('+', new.get(to..new_end))] {
            for line in lines.unwrap_or_default() {
                let line = line
                    .strip_suffix('\r')
                    .unwrap_or(line)
                    .replace('\t', "    ");
                let _ = writeln!(shown, "{mark}{}", render::shorten(&line, SHOWN_CHARS));
            }
        }
        (from, to) = (old_end, new_end);
    }
    shown
}

/// The next lines that both texts have again. The search is short: an edit is a few lines.
fn meet(old: &[&str], new: &[&str], from: usize, to: usize) -> (usize, usize) {
    // Lines that are looked ahead, in both texts.
    const FAR: usize = 64;
    for sum in 1..=2 * FAR {
        for ahead in 0..=sum.min(FAR) {
            let (a, b) = (from + ahead, to + (sum - ahead));
            let both = old.get(a).zip(new.get(b));
            if both.is_some_and(|(a, b)| a == b) {
                return (a, b);
            }
        }
    }
    (old.len(), new.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_change_their_places_and_nothing_else() {
        let edits = [
            Edit::insert(5, "!"),
            Edit::replace(0..1, "H"),
            Edit::remove(2..4),
        ];
        assert_eq!(apply("hello", &edits).unwrap(), "Heo!");
        assert_eq!(apply("hello", &[]).unwrap(), "hello");
        let overlap = [Edit::remove(0..3), Edit::remove(2..4)];
        assert_eq!(apply("hello", &overlap), None);
        assert_eq!(apply("é", &[Edit::remove(1..2)]), None, "half a character");
    }

    #[test]
    fn a_difference_shows_the_lines_that_changed() {
        let before = "a\nb\r\nc\nd\n";
        assert_eq!(difference(before, before), "");
        assert_eq!(
            difference(before, "a\nB\r\nB2\nc\nD\n"),
            "@@ line 2\n-b\n+B\n+B2\n@@ line 4\n-d\n+D\n"
        );
    }
}
