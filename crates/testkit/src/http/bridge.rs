//! A conversation in lines, carried over HTTP.
//!
//! Each line becomes a `POST /mcp` on a connection of its own, and every message that comes back,
//! as JSON or as an event, becomes a line. Legacy lines share one session, which is opened
//! silently when the conversation does not open it itself; modern lines get the headers that
//! their bodies ask for. What HTTP adds is judged here: an answer with the wrong status becomes a
//! line that is no message, so the conversation fails where it stands.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::value::RawValue;

use super::{Connection, Events, Framing, Head, Request, Session};
use crate::peer::{Client, PipeWriter, pipe};

/// Between two requests: long enough for the host to have read the first.
const PAUSE: Duration = Duration::from_millis(15);
/// An answer may take as long as a call does.
const PATIENCE: Duration = Duration::from_secs(120);

/// How the lines are to be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// In one session.
    Legacy,
    /// Each for itself.
    Modern,
}

/// A client whose lines go to this address.
pub fn bridge(address: SocketAddr, era: Era) -> Client {
    let (reader, writer) = pipe();
    let bridge = Bridge {
        address,
        era,
        session: None,
        sessions: Vec::new(),
        out: Arc::new(Mutex::new(writer)),
        line: Vec::new(),
        reading: Vec::new(),
    };
    Client::new(reader, bridge)
}

struct Bridge {
    address: SocketAddr,
    era: Era,
    session: Option<String>,
    /// All that were opened, to be deleted at the end.
    sessions: Vec<String>,
    out: Arc<Mutex<PipeWriter>>,
    /// Begun and not ended yet.
    line: Vec<u8>,
    reading: Vec<JoinHandle<()>>,
}

/// What a line asks of HTTP.
struct Line {
    method: Option<String>,
    has_id: bool,
    name: Option<String>,
    version: Option<String>,
}

impl Line {
    fn read(line: &[u8]) -> Self {
        // Numbers such as 1e400 are no values of the library's; only the members below matter.
        let message = members(line);
        let params = message
            .get("params")
            .map(|raw| members(raw.get().as_bytes()));
        let params = params.unwrap_or_default();
        let meta = params.get("_meta").map(|raw| members(raw.get().as_bytes()));
        let meta = meta.unwrap_or_default();
        let method = text(&message, "method");
        let name = match method.as_deref() {
            Some("tools/call" | "prompts/get") => text(&params, "name"),
            Some("resources/read") => text(&params, "uri"),
            _ => None,
        };
        Self {
            name,
            version: text(&meta, "io.modelcontextprotocol/protocolVersion"),
            has_id: message.contains_key("id"),
            method,
        }
    }
}

fn members(json: &[u8]) -> BTreeMap<String, &RawValue> {
    serde_json::from_slice(json).unwrap_or_default()
}

fn text(members: &BTreeMap<String, &RawValue>, key: &str) -> Option<String> {
    serde_json::from_str(members.get(key)?.get()).ok()
}

impl Bridge {
    fn carry(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let read = Line::read(line);
        let mut request = Request::message(self.address, "").body(line);
        match self.era {
            Era::Legacy if read.method.as_deref() == Some("initialize") => {
                return self.initialize(&request);
            }
            Era::Legacy => {
                request = request
                    .header("Mcp-Session-Id", &self.session()?)
                    .header("MCP-Protocol-Version", "2025-11-25");
            }
            Era::Modern => {
                let version = read.version.as_deref().unwrap_or("2026-07-28");
                request = request.header("MCP-Protocol-Version", version);
                if let Some(method) = &read.method {
                    request = request.header("Mcp-Method", method);
                }
                if let Some(name) = &read.name {
                    request = request.header("Mcp-Name", name);
                }
            }
        }
        let mut connection = Connection::open(self.address)?.with_patience(PATIENCE);
        connection.send(&request.bytes())?;
        if read.has_id {
            let (out, era) = (Arc::clone(&self.out), self.era);
            self.reading.push(thread::spawn(move || {
                if let Err(error) = answer(&mut connection, era, &out) {
                    say(&out, format!("no answer: {error:#}").as_bytes());
                }
            }));
            thread::sleep(PAUSE);
            return Ok(());
        }
        let answer = connection.response()?;
        ensure!(
            answer.status() == 202 && answer.body.is_empty(),
            "a notification was answered with {} {}",
            answer.status(),
            answer.text()
        );
        Ok(())
    }

    fn initialize(&mut self, request: &Request) -> anyhow::Result<()> {
        let mut connection = Connection::open(self.address)?.with_patience(PATIENCE);
        let answer = connection.ask(request)?;
        if let Some(id) = answer.head.header("mcp-session-id") {
            self.session = Some(id.to_owned());
            self.sessions.push(id.to_owned());
        }
        for message in answer.messages()? {
            say(&self.out, message.to_string().as_bytes());
        }
        Ok(())
    }

    fn session(&mut self) -> anyhow::Result<String> {
        if let Some(id) = &self.session {
            return Ok(id.clone());
        }
        let opened = Session::open(self.address)?.id().to_owned();
        self.sessions.push(opened.clone());
        Ok(self.session.insert(opened).clone())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        for reading in self.reading.drain(..) {
            reading.join().ok().context("a reader panicked")?;
        }
        for id in self.sessions.drain(..) {
            let request = Request::to(self.address, "DELETE", "/mcp").header("Mcp-Session-Id", &id);
            let answer = Connection::open(self.address)?.ask(&request)?;
            ensure!(
                (200..300).contains(&answer.status()),
                "DELETE: {}",
                answer.status()
            );
        }
        Ok(())
    }
}

/// Reads one answer to its end, and hands on each message as it comes.
fn answer(connection: &mut Connection, era: Era, out: &Mutex<PipeWriter>) -> anyhow::Result<()> {
    let (head, mut framing) = connection.head()?;
    if head.is_stream() {
        ensure!(head.status == 200, "a stream with status {}", head.status);
        return stream(connection, &mut framing, out);
    }
    let mut body = Vec::new();
    while let Some(piece) = connection.piece(&mut framing)? {
        body.extend_from_slice(&piece);
    }
    judge(&head, &body, era)?;
    say(out, &body);
    Ok(())
}

fn stream(
    connection: &mut Connection,
    framing: &mut Framing,
    out: &Mutex<PipeWriter>,
) -> anyhow::Result<()> {
    let mut events = Events::default();
    while let Some(piece) = connection.piece(framing)? {
        for event in events.push(&piece) {
            if !event.data.is_empty() {
                say(out, event.data.as_bytes());
            }
        }
    }
    Ok(())
}

/// The status that belongs to a message.
fn judge(head: &Head, body: &[u8], era: Era) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(body);
    ensure!(
        head.media_type() == "application/json",
        "{} with {:?}: {text}",
        head.status,
        head.media_type()
    );
    let code = memchr::memmem::find(body, b"\"error\":").and_then(|at| {
        let error: &str = text.get(at..)?;
        let digits = error.split("\"code\":").nth(1)?.trim_start();
        let end = digits.find(|c: char| c != '-' && !c.is_ascii_digit())?;
        digits.get(..end)?.parse::<i64>().ok()
    });
    let is_answer_with_error =
        code.is_some() && memchr::memmem::find(body, b"\"result\":").is_none();
    let wanted = match (era, code.filter(|_| is_answer_with_error)) {
        (Era::Modern, Some(-32601)) => 404,
        (Era::Modern, Some(-32022..=-32020)) => 400,
        // Whether 200 or 4xx fits other errors better is the host's to say.
        (_, Some(_)) => return Ok(()),
        (_, None) => 200,
    };
    ensure!(
        head.status == wanted,
        "status {} instead of {wanted} for {text}",
        head.status
    );
    Ok(())
}

/// One line for the client; a client that is gone hears nothing.
fn say(out: &Mutex<PipeWriter>, line: &[u8]) {
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = out.write_all(line).and_then(|()| out.write_all(b"\n"));
}

impl Write for Bridge {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            match part.strip_suffix(b"\n") {
                None => self.line.extend_from_slice(part),
                Some(end) => {
                    self.line.extend_from_slice(end);
                    let line = std::mem::take(&mut self.line);
                    if let Err(error) = self.carry(&line) {
                        say(&self.out, format!("not carried: {error:#}").as_bytes());
                    }
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            say(&self.out, format!("at the end: {error:#}").as_bytes());
        }
    }
}
