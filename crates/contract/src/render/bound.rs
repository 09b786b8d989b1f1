//! Cutting a text to a number of lines and bytes.

use memchr::memchr_iter;
use serde::{Deserialize, Serialize};

use super::{ELLIPSIS, bytes, count, note};

/// The size a text may have, notes included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bounds {
    /// Lines, a last one without line break included.
    pub lines: usize,
    /// Bytes of UTF-8.
    pub bytes: usize,
}

impl Bounds {
    /// Default size of porcelain.
    pub const PORCELAIN: Self = Self {
        lines: 200,
        bytes: 24_000,
    };

    /// True if a text is within them.
    pub fn hold(self, text: &str) -> bool {
        text.len() <= self.bytes && line_count(text) <= self.lines
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self::PORCELAIN
    }
}

/// A text within its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// The text, with the note about the cut as its last line.
    pub text: String,
    /// The omission, if there is one.
    pub truncated: Option<Truncation>,
}

/// The part that a cut left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Truncation {
    /// Lines of which nothing is shown.
    pub lines_left: usize,
    /// Bytes not shown, line breaks included.
    pub bytes_left: usize,
}

impl Truncation {
    fn note(self, rest: &str) -> String {
        let size = bytes(self.bytes_left as u64);
        let left = match self.lines_left {
            0 => format!("{size} more not shown"),
            n => format!("{} ({size}) not shown", count(n, "more line", "more lines")),
        };
        note(&with_rest(left, rest))
    }
}

/// The omitted part, and where to read it.
fn with_rest(left: String, rest: &str) -> String {
    if rest.is_empty() {
        left
    } else {
        format!("{left}; {rest}")
    }
}

/// Cuts `text` to `bounds`, at the end of a line where a whole line fits and otherwise inside the
/// first line, marked with an ellipsis. The last line says what is missing.
///
/// A text within its bounds is returned as it is, so bounding twice changes nothing. Bounds too
/// small for some text and the note get the beginning of the text with an ellipsis, or nothing.
#[must_use]
pub fn bound(text: &str, bounds: Bounds) -> Bounded {
    bound_with(text, bounds, "")
}

/// As [`bound`]; the note also says where the rest is, in the words of `rest`.
#[must_use]
pub fn bound_with(text: &str, bounds: Bounds, rest: &str) -> Bounded {
    if bounds.hold(text) {
        return Bounded {
            text: text.to_owned(),
            truncated: None,
        };
    }
    let lines = line_count(text);
    // Text, a line break, the note.
    let room = bounds.bytes.checked_sub(longest_note(lines, rest) + 1);
    let shown = match room {
        Some(room) if bounds.lines >= 2 && room >= ELLIPSIS.len_utf8() => Shown::with_note(
            text,
            Bounds {
                lines: bounds.lines - 1,
                bytes: room,
            },
        ),
        _ => Shown::alone(text, bounds),
    };
    let truncation = Truncation {
        lines_left: lines.saturating_sub(shown.lines),
        bytes_left: text.len() - shown.head.len(),
    };
    let mut out = shown.head.to_owned();
    if shown.ellipsis {
        out.push(ELLIPSIS);
    }
    if shown.note {
        out.push('\n');
        out.push_str(&truncation.note(rest));
    }
    Bounded {
        text: out,
        truncated: Some(truncation),
    }
}

/// The part of a text that stays, and what follows it.
struct Shown<'a> {
    head: &'a str,
    lines: usize,
    ellipsis: bool,
    note: bool,
}

impl<'a> Shown<'a> {
    fn with_note(text: &'a str, room: Bounds) -> Self {
        let last_end = memchr_iter(b'\n', text.as_bytes())
            .take(room.lines)
            .take_while(|&end| end <= room.bytes)
            .zip(1..)
            .last();
        match last_end.and_then(|(end, lines)| Some((text.get(..end)?, lines))) {
            Some((head, lines)) => Self {
                head,
                lines,
                ellipsis: false,
                note: true,
            },
            None => {
                let head = prefix(text, room.bytes.saturating_sub(ELLIPSIS.len_utf8()));
                Self {
                    head,
                    lines: 1,
                    ellipsis: true,
                    note: true,
                }
            }
        }
    }

    fn alone(text: &'a str, bounds: Bounds) -> Self {
        let room = bounds.bytes.checked_sub(ELLIPSIS.len_utf8());
        let (Some(room), Some(last)) = (room, bounds.lines.checked_sub(1)) else {
            return Self {
                head: "",
                lines: 0,
                ellipsis: false,
                note: false,
            };
        };
        let end = memchr_iter(b'\n', text.as_bytes())
            .nth(last)
            .unwrap_or(text.len());
        let head = prefix(text, end.min(room));
        // After a line break the ellipsis stands on a line of its own, of which nothing is shown.
        let lines = line_count(head);
        Self {
            head,
            lines,
            ellipsis: true,
            note: false,
        }
    }
}

/// The longest prefix of whole characters within `max_bytes`.
fn prefix(text: &str, max_bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(max_bytes))
        .unwrap_or("")
}

fn line_count(text: &str) -> usize {
    let open_end = !text.is_empty() && !text.ends_with('\n');
    memchr_iter(b'\n', text.as_bytes()).count() + usize::from(open_end)
}

/// The length no note about a text of `lines` lines exceeds: a size has at most 8 characters.
fn longest_note(lines: usize, rest: &str) -> usize {
    let left = format!("{lines} more lines (999.9 kB) not shown");
    note(&with_rest(left, rest)).len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::render::tests::TEXT;

    fn numbered(n: usize) -> String {
        (1..=n).map(|i| format!("line {i}\n")).collect()
    }

    #[test]
    fn text_within_bounds_is_unchanged() {
        let text = numbered(200);
        let bounded = bound(&text, Bounds::default());
        assert_eq!(
            bounded,
            Bounded {
                text,
                truncated: None
            }
        );
    }

    #[test]
    fn too_many_lines_end_in_a_note_that_counts_the_rest() {
        let bounded = bound(
            &numbered(10),
            Bounds {
                lines: 4,
                bytes: 1000,
            },
        );
        assert_eq!(
            bounded.text,
            "line 1\nline 2\nline 3\nnote: 7 more lines (51 B) not shown"
        );
        assert_eq!(
            bounded.truncated,
            Some(Truncation {
                lines_left: 7,
                bytes_left: 51
            })
        );
    }

    #[test]
    fn a_note_says_where_the_rest_is() {
        let bounds = Bounds {
            lines: 4,
            bytes: 1000,
        };
        assert_eq!(
            bound_with(&numbered(10), bounds, "page 2 has it").text,
            "line 1\nline 2\nline 3\nnote: 7 more lines (51 B) not shown; page 2 has it"
        );
    }

    #[test]
    fn too_many_bytes_are_cut_at_a_line_end() {
        let text = format!("summary\n{}", "x".repeat(30_000));
        let bounded = bound(&text, Bounds::default());
        assert_eq!(
            bounded.text,
            "summary\nnote: 1 more line (30.0 kB) not shown"
        );
    }

    #[test]
    fn a_first_line_that_is_too_long_is_cut_at_a_character() {
        let bounded = bound(
            &"é".repeat(100),
            Bounds {
                lines: 5,
                bytes: 60,
            },
        );
        let (head, last) = bounded.text.split_once('\n').unwrap();
        assert!(head.ends_with("é…"));
        assert!(last.ends_with("B more not shown"), "{last}");
        assert_eq!(bounded.truncated.unwrap().lines_left, 0);
    }

    #[test]
    fn bounds_without_room_for_a_note_still_hold() {
        let text = numbered(10);
        assert_eq!(
            bound(
                &text,
                Bounds {
                    lines: 1,
                    bytes: 1000
                }
            )
            .text,
            "line 1…"
        );
        assert_eq!(bound(&text, Bounds { lines: 5, bytes: 6 }).text, "lin…");
        assert_eq!(
            bound(
                &text,
                Bounds {
                    lines: 0,
                    bytes: 1000
                }
            )
            .text,
            ""
        );
        assert_eq!(bound(&text, Bounds { lines: 9, bytes: 2 }).text, "");
    }

    proptest! {
        #[test]
        fn bounds_always_hold_and_bounding_twice_changes_nothing(
            text in "(.{0,30}\n|\n|é){0,40}",
            lines in 0usize..20,
            bytes in 0usize..400,
        ) {
            let bounds = Bounds { lines, bytes };
            let once = bound(&text, bounds);
            prop_assert!(bounds.hold(&once.text));
            let twice = bound(&once.text, bounds);
            prop_assert_eq!((&twice.text, twice.truncated), (&once.text, None));
            if let Some(truncation) = once.truncated {
                prop_assert!(truncation.bytes_left <= text.len());
                prop_assert!(once.text.starts_with(&text[..text.len() - truncation.bytes_left]));
            } else {
                prop_assert_eq!(once.text, text);
            }
        }

        #[test]
        fn arbitrary_text_never_breaks_the_bounds(
            text in TEXT,
            lines in 0usize..5,
            bytes in 0usize..99,
        ) {
            let bounds = Bounds { lines, bytes };
            prop_assert!(bounds.hold(&bound(&text, bounds).text));
        }
    }
}
