//! Snippets: whole lines of a file, bounded, made of valid text.

use std::fmt::Write as _;

use crate::limits;

/// The lines of a text, found once.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    text: &'a [u8],
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        let mut starts = vec![0];
        starts.extend(memchr::memchr_iter(b'\n', text).map(|at| at + 1));
        if starts.last() == Some(&text.len()) {
            starts.pop();
        }
        Self { text, starts }
    }

    pub(crate) const fn text(&self) -> &'a [u8] {
        self.text
    }

    pub(crate) fn count(&self) -> u64 {
        self.starts.len() as u64
    }

    /// A line by its number, the first being 1, without its end.
    pub(crate) fn line(&self, number: u64) -> &'a [u8] {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(start) = at.checked_sub(1).and_then(|at| self.starts.get(at)) else {
            return &[];
        };
        let end = self.starts.get(at).map_or(self.text.len(), |next| next - 1);
        let line = self.text.get(*start..end).unwrap_or_default();
        line.strip_suffix(b"\n").unwrap_or(line)
    }

    /// Where a line begins, in bytes; the end of the text for a line behind it.
    pub(crate) fn start(&self, number: u64) -> usize {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let start = at.checked_sub(1).and_then(|at| self.starts.get(at));
        start.copied().unwrap_or(self.text.len())
    }

    /// The number of the line that has a byte.
    pub(crate) fn number_at(&self, at: usize) -> u64 {
        self.starts.partition_point(|start| *start <= at) as u64
    }

    /// Lines as text, long ones cut, at most `max_bytes` in all.
    pub(crate) fn snippet(&self, first: u64, last: u64, max_bytes: usize) -> String {
        let mut out = String::new();
        for number in first..=last.min(self.count()) {
            let line = shown(self.line(number));
            if number > first {
                if out.len() + 1 >= max_bytes {
                    break;
                }
                out.push('\n');
            }
            let room = max_bytes.saturating_sub(out.len());
            if line.len() > room {
                let cut = line.floor_char_boundary(room);
                out.push_str(line.get(..cut).unwrap_or_default());
                break;
            }
            out.push_str(&line);
        }
        out
    }
}

/// One line for a reader: valid text, without a carriage return at its end, cut where it is long.
fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = String::from_utf8_lossy(line);
    if text.len() <= limits::LINE_BYTES {
        return text.into_owned();
    }
    let cut = text.floor_char_boundary(limits::LINE_BYTES);
    let mut out = text.get(..cut).unwrap_or_default().to_owned();
    let _ = write!(out, "… ({} bytes)", line.len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_from_one_and_keep_nothing_of_their_ends() {
        let lines = Lines::new(b"a\r\nb\n\nd");
        assert_eq!(lines.count(), 4);
        assert_eq!(
            (lines.line(1), lines.line(3), lines.line(4)),
            (&b"a\r"[..], &b""[..], &b"d"[..])
        );
        assert_eq!(lines.line(9), b"");
        assert_eq!(lines.snippet(1, 4, 100), "a\nb\n\nd");
        assert_eq!(lines.snippet(1, 4, 2), "a");
        assert_eq!(lines.snippet(1, 4, 3), "a\nb");
        assert_eq!(Lines::new(b"").count(), 0);
        assert_eq!(Lines::new(b"x\n").count(), 1);
    }
}
