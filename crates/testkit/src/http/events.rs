//! Server-sent events, read piece by piece.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub name: Option<String>,
    pub retry: Option<u64>,
    pub data: String,
}

/// Puts pieces of a stream together to events. Comments are dropped.
#[derive(Debug, Default)]
pub struct Events {
    rest: Vec<u8>,
    event: Event,
    has_data: bool,
    is_begun: bool,
}

impl Events {
    /// Adds a piece; gives the events that it completes.
    pub fn push(&mut self, piece: &[u8]) -> Vec<Event> {
        self.rest.extend_from_slice(piece);
        let mut events = Vec::new();
        while let Some(end) = memchr::memchr(b'\n', &self.rest) {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                if self.is_begun {
                    events.push(std::mem::take(&mut self.event));
                }
                (self.has_data, self.is_begun) = (false, false);
            } else {
                self.field(line);
            }
        }
        events
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            "id" => self.event.id = Some(value.to_owned()),
            "event" => self.event.name = Some(value.to_owned()),
            "retry" => self.event.retry = value.parse().ok(),
            // A comment, or nothing that we know.
            _ => return,
        }
        self.is_begun = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_however_they_are_cut() {
        let text = ": hello\n\nid: 1\nretry: 5\ndata:\n\nevent: message\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\ndata: x";
        for size in 1..text.len() {
            let mut events = Events::default();
            let mut seen = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                seen.extend(events.push(piece));
            }
            assert_eq!(seen.len(), 2);
            let first = seen.first().unwrap();
            assert_eq!((first.id.as_deref(), first.retry), (Some("1"), Some(5)));
            assert_eq!(first.data, "");
            assert_eq!(seen.last().unwrap().data, "{\"a\":\n1}");
        }
    }
}
