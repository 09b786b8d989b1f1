//! Warnings of a worker: one line on standard error each.

use std::io::Write as _;

use mainstay_contract::render::shorten;

/// Longest detail of a warning, in characters.
const MAX_DETAIL_CHARS: usize = 400;

/// Writes `mcp:warning reason=REASON DETAIL` to standard error, as one line in one write.
///
/// The time is added by the host, which passes a worker's lines on.
pub fn warn(reason: &str, detail: &str) {
    let line = format!(
        "mcp:warning reason={reason} {}\n",
        shorten(detail, MAX_DETAIL_CHARS)
    );
    // Nothing can report that standard error is closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
