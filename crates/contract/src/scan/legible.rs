//! The id of a line that is not a message.

use super::{DEFAULT_MAX_DEPTH, scan};
use crate::id::RequestId;

/// The byte order mark, which some runtimes write before their first line.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// The top-level `id` of a line that [`scan`] rejects, if it can be relied on: the line is JSON
/// but for a leading byte order mark, trailing NULs and bytes in its strings that are not UTF-8, the id
/// itself is intact, and there are not two different ones.
///
/// A server's unreadable answer still ends the call that it belongs to. A line that breaks off does not:
/// it may be a shortened copy in a server's own log, and the answer itself may follow.
pub fn legible_id(line: &[u8]) -> Option<RequestId> {
    let line = line.strip_prefix(BOM).unwrap_or(line);
    let end = line.iter().rposition(|byte| *byte != 0);
    let line = line.get(..=end?).unwrap_or_default();
    let repaired = String::from_utf8_lossy(line);
    let raw = match scan(repaired.as_bytes(), DEFAULT_MAX_DEPTH) {
        Ok(envelope) => envelope.id,
        Err(error) => error.id,
    }?;
    // Bytes that were replaced may have told two ids apart.
    if raw.contains(char::REPLACEMENT_CHARACTER) {
        return None;
    }
    RequestId::parse(raw).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(line: &[u8]) -> Option<String> {
        legible_id(line).map(|id| id.as_raw().to_owned())
    }

    #[test]
    fn the_id_beside_bytes_that_are_not_utf8_is_legible() {
        let before = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"\xff\xfe\"}}";
        let after = b"{\"result\":{\"text\":\"\xc3\"},\"id\":\"a-7\",\"jsonrpc\":\"2.0\"}";
        assert_eq!(id(before).as_deref(), Some("7"));
        assert_eq!(id(after).as_deref(), Some("\"a-7\""));
    }

    #[test]
    fn a_byte_order_mark_hides_no_id() {
        let line = b"\xEF\xBB\xBF{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}";
        assert_eq!(id(line).as_deref(), Some("1"));
    }

    #[test]
    fn trailing_nuls_hide_no_id() {
        let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\0\0";
        assert_eq!(id(line).as_deref(), Some("1"));
        assert_eq!(id(b"\0\0"), None);
    }

    #[test]
    fn an_id_further_in_is_not_the_id_of_the_line() {
        assert_eq!(id(b"{\"result\":{\"id\":3,\"text\":\"\xff\"}}"), None);
        assert_eq!(id(b"[{\"id\":3,\"text\":\"\xff\"}]"), None);
    }

    #[test]
    fn an_id_that_cannot_be_relied_on_is_none() {
        for line in [
            b"{\"id\":\"a\xff\",\"result\":{}}".as_slice(),
            b"{\"id\":1,\"id\":2,\"result\":\"\xff\"}",
            b"{\"id\":null,\"result\":\"\xff\"}",
            b"{\"id\":1,\"result\":\xff}",
            b"{\"id\":1,\"result\":",
            b"\xEF\xBB\xBF",
            b"\xff\xfe{\x00",
            b"listening on port 1",
        ] {
            assert_eq!(id(line), None, "{:?}", String::from_utf8_lossy(line));
        }
    }
}
