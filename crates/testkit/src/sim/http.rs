//! A simulated HTTP client: it carries the lines of a [`Client`](super::client::Client) over requests and
//! streams. Connections break on the way and are resumed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_host::sim::{HttpDoor, HttpSession, HttpStream, Over, PipeReader, PipeWriter};
use serde_json::Value;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;

use super::book::Book;
use super::plan::Speech;
use crate::hostile::Rng;

/// Longest line that is carried.
const LINE: usize = 1 << 20;

/// One HTTP client.
#[derive(Debug)]
pub(super) struct Bridge {
    pub(super) number: usize,
    pub(super) speech: Speech,
    /// Connections break.
    pub(super) breaks: bool,
    pub(super) seed: u64,
    pub(super) door: Arc<HttpDoor>,
    pub(super) book: Book,
    pub(super) over: Over,
}

/// One connection.
struct Connection {
    session: Option<HttpSession>,
    stream: HttpStream,
    id: Value,
    rng: Option<Rng>,
    output: Arc<Mutex<PipeWriter>>,
    book: Book,
    leave: Arc<Notify>,
}

impl Bridge {
    /// Carries lines until the client sends no more and everything is answered, or the host ends.
    pub(super) async fn carry(self, mut input: PipeReader, output: PipeWriter) {
        let output = Arc::new(Mutex::new(output));
        let mut session = None;
        let mut connections = JoinSet::new();
        let mut open = BTreeMap::new();
        let mut frames = FrameReader::new(LINE);
        loop {
            let count = tokio::select! {
                biased;
                () = self.over.wait() => break,
                count = input.read(frames.spare()) => count,
            };
            if count == 0 {
                break;
            }
            frames.filled(count);
            let mut lines = Vec::new();
            while let Some(frame) = frames.next_frame() {
                if let Frame::Line(line) = frame {
                    lines.push(String::from_utf8_lossy(line).into_owned());
                }
            }
            for line in lines {
                let message: Value = serde_json::from_str(&line).unwrap_or_default();
                let id = message["id"].clone();
                if id.is_null() {
                    self.notify(&message, &line, session.as_ref(), &open).await;
                    continue;
                }
                let Some(stream) = self.ask(&line, &mut session).await else {
                    continue;
                };
                let leave = Arc::new(Notify::new());
                open.insert(id.to_string(), Arc::clone(&leave));
                let seed = self.seed ^ id.as_u64().unwrap_or_default() << 8;
                let connection = Connection {
                    session: session.clone(),
                    stream,
                    id,
                    rng: self.breaks.then(|| Rng::new(seed)),
                    output: Arc::clone(&output),
                    book: self.book.clone(),
                    leave,
                };
                connections.spawn(connection.read());
            }
        }
        tokio::select! {
            biased;
            () = self.over.wait() => {}
            () = async { while connections.join_next().await.is_some() {} } => {}
        }
        // What the host said before its end is still delivered.
        while connections.join_next().await.is_some() {}
        if let Some(session) = session {
            self.door.close(&session).await;
        }
    }

    async fn ask(&self, line: &str, session: &mut Option<HttpSession>) -> Option<HttpStream> {
        if self.speech == Speech::Modern {
            let caller = u8::try_from(self.number).unwrap_or_default();
            return self.door.ask(caller, line).await;
        }
        if let Some(session) = session {
            return session.ask(line).await;
        }
        let (opened, stream) = self.door.open(line).await?;
        *session = Some(opened);
        Some(stream)
    }

    async fn notify(
        &self,
        message: &Value,
        line: &str,
        session: Option<&HttpSession>,
        open: &BTreeMap<String, Arc<Notify>>,
    ) {
        match session {
            Some(session) => {
                session.notify(line).await;
            }
            // A modern client cancels by closing the connection.
            None => {
                let target = message["params"]["requestId"].to_string();
                if let Some(leave) = open.get(&target) {
                    leave.notify_one();
                }
            }
        }
    }
}

impl Connection {
    async fn read(mut self) {
        let mut at = self.stream.beginning();
        loop {
            if self.is_broken() {
                let Some(stream) = self.resume(&at).await else {
                    return;
                };
                self.stream = stream;
            }
            let event = tokio::select! {
                biased;
                () = self.leave.notified() => return,
                event = self.stream.next() => event,
            };
            let Some(event) = event else {
                // Its client resumes it, as it resumes a stream whose connection broke.
                if !self.stream.was_released() {
                    return;
                }
                let Some(stream) = self.resume(&at).await else {
                    return;
                };
                self.stream = stream;
                continue;
            };
            at = event.id;
            self.judge(&event.line);
            if !self.deliver(event.line).await {
                return;
            }
            if event.is_last {
                if let Some(session) = &self.session {
                    session.forget(&self.stream).await;
                }
                return;
            }
        }
    }

    fn is_broken(&mut self) -> bool {
        let rng = self.rng.as_mut().filter(|_| self.session.is_some());
        rng.is_some_and(|rng| rng.next().is_multiple_of(3))
    }

    /// Breaks the connection and resumes it.
    async fn resume(&mut self, at: &str) -> Option<HttpStream> {
        let session = self.session.clone()?;
        let ms = self.rng.as_mut().map_or(0, |rng| rng.between(0, 300));
        // A second reader takes a stream over; the first one reads its end then.
        if ms.is_multiple_of(2) {
            tokio::time::sleep(Duration::from_millis(ms as u64)).await;
        }
        let resumed = session.resume(at).await;
        if resumed.is_none() && !session.is_over().await {
            let detail = format!("{} behind {at}", self.id);
            self.book.violation("a stream cannot be resumed", detail);
        }
        resumed
    }

    /// The only answer on a stream is that of its request.
    fn judge(&self, line: &[u8]) {
        let message: Value = serde_json::from_slice(line).unwrap_or_default();
        if message.get("method").is_none() && message["id"] != self.id {
            let text: String = message.to_string().chars().take(200).collect();
            self.book.violation("an answer on another stream", text);
        }
    }

    async fn deliver(&mut self, mut line: Vec<u8>) -> bool {
        line.push(b'\n');
        // Held for the whole line: connections share one pipe here.
        let mut output = self.output.lock().await;
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            match output.write(rest).await {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(_) => return false,
            }
        }
        true
    }
}
