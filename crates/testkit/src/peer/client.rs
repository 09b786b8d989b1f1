//! A client of NDJSON over any pair of streams.
//!
//! One thread reads, one writes, so that neither a silent nor a deaf peer can hold a test for
//! ever. What arrives is kept in order until it is asked for.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use serde_json::{Value, json};

use super::{Message, PATIENCE};
use crate::mailbox::{Mailbox, Missed};

/// Messages that arrived and were not asked for; past that the reader pauses.
const INBOX: usize = 65_536;
/// Pieces of output waiting to be written.
const OUTBOX: usize = 64;

/// The test's end of a connection.
pub struct Client {
    inbox: Arc<Mailbox<anyhow::Result<Message>>>,
    outbox: Arc<Mailbox<Vec<u8>>>,
    patience: Duration,
}

impl Client {
    /// A client that reads from `input` and writes to `output`.
    pub fn new(input: impl Read + Send + 'static, output: impl Write + Send + 'static) -> Self {
        let inbox = Arc::new(Mailbox::new(INBOX));
        let outbox = Arc::new(Mailbox::new(OUTBOX));
        let (to, from) = (Arc::clone(&inbox), Arc::clone(&outbox));
        thread::spawn(move || read_all(input, &to));
        thread::spawn(move || write_all(output, &from));
        Self {
            inbox,
            outbox,
            patience: PATIENCE,
        }
    }

    /// Waits at most this long for anything.
    #[must_use]
    pub const fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends one line; the newline is added.
    pub fn send(&self, line: &str) -> anyhow::Result<()> {
        let mut bytes = Vec::with_capacity(line.len() + 1);
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        self.send_raw(bytes)
    }

    /// Sends bytes as they are.
    pub fn send_raw(&self, bytes: impl Into<Vec<u8>>) -> anyhow::Result<()> {
        let until = self.deadline();
        self.outbox
            .push(bytes.into(), until)
            .map_err(|missed| match missed {
                Missed::Late => anyhow!("the peer has not read for {:?}", self.patience),
                Missed::Closed => anyhow!("the connection is closed for writing"),
            })
    }

    /// Sends a request and waits for its answer. The id is JSON text.
    pub fn request(&self, id: &str, method: &str, params: &Value) -> anyhow::Result<Message> {
        self.send(&request_line(id, method, params))?;
        self.answer(id)
    }

    /// Calls a tool in the legacy dialect and waits for its answer.
    pub fn call(&self, id: &str, tool: &str, arguments: &Value) -> anyhow::Result<Message> {
        let params = json!({ "name": tool, "arguments": arguments });
        self.request(id, "tools/call", &params)
    }

    /// Opens a legacy session with these capabilities; gives the answer to `initialize`.
    pub fn open(&self, capabilities: &Value) -> anyhow::Result<Message> {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "testkit", "version": "1.0.0"},
        });
        let answer = self.request("\"open\"", "initialize", &params)?;
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        Ok(answer)
    }

    /// The next message, whatever it is.
    pub fn next(&self) -> anyhow::Result<Message> {
        self.take("a message", |_| true)
    }

    /// The next message, whatever it is; `None` when none came until then.
    pub fn next_until(&self, until: Instant) -> anyhow::Result<Option<Message>> {
        match self.inbox.take(|_| true, Some(until)) {
            Ok(item) => item.map(Some),
            Err(Missed::Late) => Ok(None),
            Err(Missed::Closed) => bail!("the peer closed its output"),
        }
    }

    /// The next message with this id, which is compared as text.
    pub fn answer(&self, id: &str) -> anyhow::Result<Message> {
        self.take(&format!("the answer to {id}"), |message| {
            message.id() == Some(id)
        })
    }

    /// The next notification of this method.
    pub fn notification(&self, method: &str) -> anyhow::Result<Message> {
        self.take(&format!("a notification {method}"), |message| {
            message.id().is_none() && message.method().as_deref() == Some(method)
        })
    }

    /// The first message that `wanted` accepts; the others stay. A line that is no message is an
    /// error wherever it stands.
    pub fn take(
        &self,
        what: &str,
        mut wanted: impl FnMut(&Message) -> bool,
    ) -> anyhow::Result<Message> {
        let wanted = |item: &anyhow::Result<Message>| item.as_ref().map_or(true, &mut wanted);
        match self.inbox.take(wanted, self.deadline()) {
            Ok(item) => item,
            Err(missed) => {
                let there = self.inbox.peek_all(|item| format!("{item:?}"));
                let why = match missed {
                    Missed::Late => format!("did not come within {:?}", self.patience),
                    Missed::Closed => "will not come: the peer closed its output".to_owned(),
                };
                bail!("{what} {why}; waiting to be read: {there:#?}")
            }
        }
    }

    /// Says that nothing arrives for so long, and nothing is waiting to be read.
    pub fn silence(&self, time: Duration) -> anyhow::Result<()> {
        match self.inbox.take(|_| true, Some(Instant::now() + time)) {
            Ok(item) => bail!("expected silence, got {item:?}"),
            Err(Missed::Late | Missed::Closed) => Ok(()),
        }
    }

    /// Closes the way to the peer: it reads end of input after what was sent.
    pub fn close(&self) {
        self.outbox.close();
    }

    /// Closes and collects everything until the peer's end of output.
    pub fn finish(&self) -> anyhow::Result<Vec<Message>> {
        self.close();
        let until = self.deadline();
        let mut rest = Vec::new();
        loop {
            match self.inbox.take(|_| true, until) {
                Ok(item) => rest.push(item?),
                Err(Missed::Closed) => return Ok(rest),
                Err(Missed::Late) => {
                    bail!("the peer did not end its output within {:?}", self.patience)
                }
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        Some(Instant::now() + self.patience)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Both threads end with their streams; nobody waits for them.
        self.outbox.close();
        self.inbox.close();
    }
}

/// A request as one line.
pub fn request_line(id: &str, method: &str, params: &Value) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":{},"params":{params}}}"#,
        json!(method)
    )
}

fn read_all(input: impl Read, inbox: &Mailbox<anyhow::Result<Message>>) {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let mut line = Vec::new();
    loop {
        line.clear();
        let item = match input.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => match line.strip_suffix(b"\n") {
                Some(line) => Message::parse(line),
                None => Err(anyhow!(
                    "the output ends in the middle of a line: {}",
                    String::from_utf8_lossy(&line)
                )),
            },
            // A socket that the peer closed with unread bytes in it; the end, for a reader.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => Err(anyhow!("reading failed: {error}")),
        };
        let is_over = item.is_err();
        if inbox.push(item, None).is_err() || is_over {
            break;
        }
    }
    inbox.close();
}

fn write_all(mut output: impl Write, outbox: &Mailbox<Vec<u8>>) {
    while let Ok(bytes) = outbox.take(|_| true, None) {
        if output
            .write_all(&bytes)
            .and_then(|()| output.flush())
            .is_err()
        {
            // The peer is gone; whoever waits for its answers will hear so.
            outbox.close();
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::pipe;

    fn client_of(peer_says: &str) -> Client {
        let (reader, mut writer) = pipe();
        writer.write_all(peer_says.as_bytes()).unwrap();
        Client::new(reader, std::io::sink()).with_patience(Duration::from_secs(5))
    }

    #[test]
    fn answers_are_found_by_their_exact_id_and_the_rest_stays_in_order() {
        let client = client_of("{\"id\":1}\n{\"id\":\"1\"}\n{\"id\":1.0}\n{\"method\":\"m\"}\n");
        assert_eq!(client.answer("1.0").unwrap().text(), "{\"id\":1.0}");
        assert_eq!(client.notification("m").unwrap().id(), None);
        assert_eq!(client.next().unwrap().id(), Some("1"));
        assert_eq!(client.finish().unwrap().len(), 1);
    }

    #[test]
    fn missing_answer_is_an_error_that_shows_what_came_instead() {
        let client = client_of("{\"id\":7}\n");
        let error = client.answer("8").unwrap_err().to_string();
        assert!(error.contains("the answer to 8"), "{error}");
        assert!(error.contains("closed its output"), "{error}");
        assert!(error.contains("7"), "{error}");
    }

    #[test]
    fn line_that_is_no_message_is_an_error_for_every_wait() {
        let client = client_of("hello\n{\"id\":1}\n");
        assert!(client.answer("1").is_err());
        let client = client_of("{\"id\":1}");
        assert!(
            client
                .next()
                .unwrap_err()
                .to_string()
                .contains("middle of a line")
        );
    }
}
