//! Server-sent events, as they come in pieces of any size.
//!
//! The parser keeps at most one event, whose data is bounded; of a longer event only the beginning is kept.

use mainstay_contract::frame::HEAD;

/// Longest id of an event.
const ID_BYTES: usize = 1024;
/// Longest name of a field.
const FIELD_BYTES: usize = 64;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// Its type; empty for a message.
    pub(super) kind: String,
    pub(super) data: Vec<u8>,
    /// Its data was longer than the limit; `data` is the beginning.
    pub(super) oversize: bool,
}

/// The parser of one stream.
#[derive(Debug)]
pub(super) struct SseParser {
    limit: usize,
    line: Vec<u8>,
    /// The present line has more bytes than can count.
    cut: bool,
    after_return: bool,
    /// The stream has begun: a byte order mark is skipped only before.
    begun: bool,
    event: SseEvent,
    has_data: bool,
    /// The id of the last event that was complete.
    pub(super) last_id: Option<String>,
    pending_id: Option<String>,
    /// Milliseconds after which the server wants a client to come back.
    pub(super) retry_ms: Option<u64>,
}

impl SseParser {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            cut: false,
            after_return: false,
            begun: false,
            event: SseEvent::default(),
            has_data: false,
            last_id: None,
            pending_id: None,
            retry_ms: None,
        }
    }

    /// Reads a piece and gives the events that it completes. Advances `bytes` past what was read.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<SseEvent> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if std::mem::take(&mut self.after_return) && byte == b'\n' {
                *bytes = rest;
                continue;
            }
            if byte == b'\n' || byte == b'\r' {
                *bytes = rest;
                self.after_return = byte == b'\r';
                if let Some(event) = self.end_line() {
                    return Some(event);
                }
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            *bytes = rest;
            let room = (self.limit + FIELD_BYTES).saturating_sub(self.line.len());
            self.cut |= piece.len() > room;
            self.line.extend(piece.iter().take(room));
        }
        None
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        let cut = std::mem::take(&mut self.cut);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || std::str::from_utf8(value).unwrap_or_default();
        match field {
            b"data" => self.add_data(value, cut),
            b"event" => self.event.kind = text().to_owned(),
            b"id" if value.len() <= ID_BYTES && !value.contains(&0) => {
                self.pending_id = Some(text().to_owned());
            }
            b"retry" => self.retry_ms = text().parse().ok().or(self.retry_ms),
            // A comment, or a field of another revision.
            _ => {}
        }
        None
    }

    fn add_data(&mut self, value: &[u8], cut: bool) {
        if std::mem::replace(&mut self.has_data, true) && !self.event.oversize {
            // A line end in a JSON text is white space; a message is one line.
            self.event.data.push(b' ');
        }
        if cut || self.event.data.len() + value.len() > self.limit {
            let room = HEAD.saturating_sub(self.event.data.len());
            self.event.data.extend(value.iter().take(room));
            self.event.data.truncate(HEAD);
            self.event.oversize = true;
        } else if !self.event.oversize {
            self.event.data.extend(value);
        }
    }

    fn end_event(&mut self) -> Option<SseEvent> {
        if let Some(id) = self.pending_id.take() {
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parser: &mut SseParser, pieces: &[&[u8]]) -> Vec<SseEvent> {
        let mut events = Vec::new();
        for piece in pieces {
            let mut piece = *piece;
            while let Some(event) = parser.next(&mut piece) {
                events.push(event);
            }
        }
        events
    }

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        let stream = "\u{feff}: hello\r\nid: 1\r\nevent: message\r\ndata: {\"a\":\r\ndata:1}\r\n\r\n\
                      retry: 250\ndata: {}\rid: 2\r\rid: 3\n\ndata: unfinished";
        let bytes = stream.as_bytes();
        for size in 1..bytes.len() {
            let mut parser = SseParser::new(1000);
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            let events = read(&mut parser, &pieces);
            let data: Vec<_> = events.iter().map(|event| event.data.as_slice()).collect();
            assert_eq!(data, [b"{\"a\": 1}".as_slice(), b"{}"], "{size}");
            assert_eq!(events[0].kind, "message");
            assert_eq!(parser.last_id.as_deref(), Some("3"));
            assert_eq!(parser.retry_ms, Some(250));
        }
    }

    #[test]
    fn an_event_at_the_limit_passes_and_a_longer_one_is_cut() {
        let read_one = |length: usize| {
            let mut parser = SseParser::new(100);
            let stream = format!("data: {}\n\n", "x".repeat(length));
            read(&mut parser, &[stream.as_bytes()]).remove(0)
        };
        let (fits, over) = (read_one(100), read_one(101));
        assert!(!fits.oversize && fits.data.len() == 100);
        assert!(over.oversize && over.data.len() <= HEAD);
        let mut parser = SseParser::new(100);
        let endless = vec![b'x'; 10_000];
        assert!(read(&mut parser, &[b"data: ", &endless, &endless]).is_empty());
        assert!(parser.line.len() <= 200, "memory is bounded");
    }
}
