//! Lines of 64 MiB, in pieces.

use super::{Expectation, Id, Lane};

/// Bytes of a long line, without its newline.
pub const LONG_LINE: usize = 64 << 20;

/// How many there are.
pub const LONG_LINES: usize = 20;

/// A line to be streamed: its beginning, then filler up to [`LONG_LINE`] bytes.
#[derive(Clone, Debug)]
pub struct LongLine {
    pub head: String,
    pub expectation: Expectation,
}

impl LongLine {
    /// The whole line with its newline, in pieces of at most `size` bytes.
    pub fn pieces(&self, size: usize) -> impl Iterator<Item = Vec<u8>> {
        let filler = LONG_LINE - self.head.len();
        let pieces = (0..filler.div_ceil(size))
            .map(move |index| vec![b'x'; size.min(filler - index * size)]);
        std::iter::once(self.head.clone().into_bytes())
            .chain(pieces)
            .chain(std::iter::once(b"\n".to_vec()))
    }
}

/// The long lines: every dialect, with and without an id in the first 4 KiB.
pub fn long_lines() -> impl Iterator<Item = LongLine> {
    (0..LONG_LINES).map(|number| {
        let id = format!("\"long-{number}\"");
        let padding = " ".repeat(5_000);
        let meta = r#""params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        match number % 5 {
            0 => LongLine {
                head: format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"a":""#),
                expectation: too_large_direct(&id),
            },
            1 => LongLine {
                head: format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"a":""#
                ),
                expectation: too_large(Id::Known(id)),
            },
            2 => LongLine {
                head: format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call",{meta},"a":""#),
                expectation: too_large(Id::Known(id)),
            },
            // The id stands behind the first 4 KiB, which is as if it were not there.
            3 => LongLine {
                head: format!(r#"{{"method":"tools/call",{padding}"id":{id},"a":""#),
                expectation: too_large(Id::Absent),
            },
            _ => LongLine {
                head: format!(r#"{{"method":"m",{padding}"id":{id},"a":""#),
                expectation: too_large_direct("null"),
            },
        }
    })
}

fn too_large(id: Id) -> Expectation {
    Expectation::Error {
        code: -31413,
        id,
        lane: Lane::Free,
    }
}

fn too_large_direct(id: &str) -> Expectation {
    Expectation::DirectFailure {
        id: id.to_owned(),
        reason: "validation_failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_add_up_to_one_line_of_the_promised_length() {
        for line in long_lines() {
            let mut total = 0;
            let mut last = 0;
            for piece in line.pieces(1 << 16) {
                assert!(piece.len() <= (1 << 16));
                total += piece.len();
                last = piece.last().copied().unwrap_or_default();
            }
            assert_eq!((total, last), (LONG_LINE + 1, b'\n'));
        }
    }
}
