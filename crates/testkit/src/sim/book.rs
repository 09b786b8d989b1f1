//! What happened in a run, as the peers saw it; [`super::check`] judges it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_contract::error::ErrorKind;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::plan::Tool;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule: the same defect breaks the same rule in a shrunken scenario.
    pub rule: &'static str,
    pub detail: String,
}

/// The notes of one run, shared by its peers.
#[derive(Clone, Debug, Default)]
pub struct Book {
    pages: Arc<Mutex<Pages>>,
    /// Woken by every answer.
    pub answered: Arc<Notify>,
}

/// The notes.
#[derive(Debug, Default)]
pub struct Pages {
    pub clients: Vec<ClientPage>,
    /// When each effect was made, by key.
    pub effects: BTreeMap<String, Vec<Instant>>,
    /// Keys of calls of which a worker's pipe took at least one byte.
    pub handed_over: BTreeMap<String, u32>,
    /// A worker's pipe broke inside a line, whose key is therefore unknown.
    pub torn: bool,
    /// Keys whose whole answer was in the host's reach.
    pub answered: BTreeMap<String, u32>,
    /// Worker processes that ended, and when.
    pub deaths: Vec<Instant>,
    /// Processes that run.
    pub alive: usize,
    /// A process that did nothing wrong was ended although nobody asked for that.
    pub ended_innocent: bool,
    pub stopped: Option<Instant>,
    pub violations: Vec<Violation>,
}

/// One client's side.
#[derive(Debug, Default)]
pub struct ClientPage {
    pub requests: Vec<Asked>,
    /// Lines that get an answer without an id, and such answers.
    pub junk: usize,
    pub junk_answers: usize,
    /// The log level that the client has set.
    pub level: String,
    /// The client disconnected.
    pub left: bool,
    /// It will send nothing more.
    pub input_closed: bool,
    /// The host closed its side.
    pub ended: bool,
    /// Requests in the order of their answers.
    pub order: Vec<usize>,
}

/// One request of a client.
#[derive(Clone, Debug)]
pub struct Asked {
    pub id: String,
    pub tool: Option<Tool>,
    pub key: String,
    pub token: bool,
    /// It must be refused.
    pub refused: Option<ErrorKind>,
    pub at: Instant,
    /// The whole line is in the host's reach.
    pub whole: bool,
    /// It was cancelled; whether a cancel of this form is answered.
    pub cancelled: Option<bool>,
    /// The log level of its session when it was sent.
    pub level: String,
    /// Requests with the same id that were sent while it was open.
    pub extra: usize,
    pub answers: Vec<Answered>,
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Answered {
    pub at: Instant,
    pub what: Outcome,
}

/// What an answer says: a request that is not a tool call is `Done` with nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A result with the key that it is about.
    Done(Option<String>),
    /// The same, of a session with another log level than it should have.
    WrongLevel(String),
    /// The tool itself said no.
    Refused,
    Failed(ErrorKind),
    /// Not a form that the host has.
    Odd(String),
}

impl Asked {
    /// Whether the client still waits for an answer.
    pub fn is_open(&self) -> bool {
        self.whole && self.answers.is_empty() && self.cancelled != Some(false)
    }
}

impl Book {
    /// Opens it.
    pub fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A rule was broken.
    pub fn violation(&self, rule: &'static str, detail: impl Into<String>) {
        let detail = detail.into();
        self.lock().violations.push(Violation { rule, detail });
    }
}

impl Pages {
    /// Requests that wait for an answer.
    pub fn open(&self) -> usize {
        let staying = self.clients.iter().filter(|page| !page.left && !page.ended);
        staying
            .map(|page| page.requests.iter().filter(|asked| asked.is_open()).count())
            .sum()
    }

    /// Whether a call took effect.
    pub fn is_applied(&self, key: &str) -> bool {
        self.effects.contains_key(key)
    }
}
