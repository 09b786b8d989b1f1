//! HTTP below hyper: where simulated clients enter (`docs/simulation.md`).
//!
//! A [`HttpDoor`] has the sessions, links and streams of a real front. Requests, headers and credentials are
//! missing: hyper's part has tests of its own.

use std::sync::Arc;

use mainstay_contract::dialect::{Relayed, relay};
use mainstay_contract::limits::Limits;
use tokio::sync::mpsc;

use super::access::Credential;
use super::body::Reading;
use super::link::Back;
use super::session::Session;
use super::table::Table;
use crate::engine::Event;

/// The HTTP front of a simulated host.
#[derive(Debug)]
pub struct HttpDoor {
    back: Back,
    table: Table,
    limits: Limits,
}

/// A legacy session.
#[derive(Clone, Debug)]
pub struct HttpSession {
    session: Arc<Session>,
    depth: usize,
}

/// A connection that reads one stream. Dropping it breaks the connection.
#[derive(Debug)]
pub struct HttpStream(Reading);

/// One message of a stream.
#[derive(Clone, Debug)]
pub struct HttpEvent {
    /// Where a broken stream is resumed.
    pub id: String,
    pub line: Vec<u8>,
    pub is_last: bool,
}

impl HttpDoor {
    pub(crate) fn new(events: mpsc::Sender<Event>, limits: &Limits) -> Self {
        Self {
            back: Back::new(events),
            table: Table::default(),
            limits: limits.clone(),
        }
    }

    /// Opens a session with its first request. `None` if the host has ended or has no room.
    pub async fn open(&self, line: &str) -> Option<(HttpSession, HttpStream)> {
        let who = Credential::Anonymous;
        let opened = self.table.open(&self.back, &self.limits, who, None).await;
        let session = HttpSession {
            session: opened.ok()?,
            depth: self.limits.json_depth,
        };
        self.table.add(&session.session);
        let stream = session.ask(line).await?;
        Some((session, stream))
    }

    /// Sends a modern request of a caller. `None` if the host has ended or has no room.
    pub async fn ask(&self, caller: u8, line: &str) -> Option<HttpStream> {
        let Ok(Relayed::Request(request)) = relay(line.as_bytes(), self.limits.json_depth) else {
            return None;
        };
        let who = Credential::Token([caller; 32]);
        let shared = self.table.shared(&self.back, &self.limits, &who).await;
        Some(HttpStream(shared.ok()?.ask(line, &request).await))
    }

    /// Deletes a session.
    pub fn close(&self, session: &HttpSession) {
        self.table.remove(&session.session);
    }

    /// Links to the host that are open.
    pub fn links(&self) -> usize {
        self.table.links()
    }
}

impl HttpSession {
    /// Sends a request. `None` if its id is in flight or the session is over.
    pub async fn ask(&self, line: &str) -> Option<HttpStream> {
        let Ok(Relayed::Request(request)) = relay(line.as_bytes(), self.depth) else {
            return None;
        };
        let reading = self.session.open(&request)?;
        let is_open = self.session.input.say(line.as_bytes()).await;
        is_open.then_some(HttpStream(reading))
    }

    /// Sends a notification. False if the session is over.
    pub async fn notify(&self, line: &str) -> bool {
        match relay(line.as_bytes(), self.depth) {
            Ok(said) => self.session.pass(line.as_bytes(), &said).await,
            Err(_) => false,
        }
    }

    /// Resumes a stream behind an event.
    pub fn resume(&self, event: &str) -> Option<HttpStream> {
        self.session.resume(event).map(HttpStream)
    }

    /// Forgets a stream whose answer was given in one piece.
    pub fn forget(&self, stream: &HttpStream) {
        self.session.close(&stream.0);
    }

    /// True once the host has closed it.
    pub fn is_over(&self) -> bool {
        self.session.ending.is_over()
    }
}

impl HttpStream {
    /// The next message; `None` at the end.
    pub async fn next(&mut self) -> Option<HttpEvent> {
        let event = std::future::poll_fn(|context| self.0.poll_next(context)).await?;
        Some(HttpEvent {
            id: format!("{}-{}", self.0.stream.0, event.number),
            line: event.line.to_vec(),
            is_last: event.is_last,
        })
    }

    /// Where it is resumed before its first message.
    pub fn beginning(&self) -> String {
        format!("{}-0", self.0.stream.0)
    }
}
