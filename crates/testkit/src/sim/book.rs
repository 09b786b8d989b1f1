//! What happened in a run, as the peers saw it; [`super::check`] judges it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_contract::error::ErrorKind;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::plan::Tool;
use super::tasks::TaskPage;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule: the same defect breaks the same rule in a shrunken scenario.
    pub rule: &'static str,
    pub detail: String,
}

/// The notes of one run, shared by its peers.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    pages: Arc<Mutex<Pages>>,
    /// Woken by every answer.
    pub(super) answered: Arc<Notify>,
}

/// The notes.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) clients: Vec<ClientPage>,
    /// When each effect was made, by key.
    pub(super) effects: BTreeMap<String, Vec<Instant>>,
    /// Keys of calls of which a worker's pipe took at least one byte.
    pub(super) handed_over: BTreeMap<String, u32>,
    /// A worker's pipe broke inside a line, whose key is therefore unknown.
    pub(super) torn: bool,
    /// Keys whose whole answer was in the host's reach.
    pub(super) answered: BTreeMap<String, u32>,
    /// Worker processes that ended, and when.
    pub(super) deaths: Vec<Instant>,
    /// Processes that run.
    pub(super) alive: usize,
    /// A process that did nothing wrong was ended although nobody asked for that.
    pub(super) ended_innocent: bool,
    pub(super) stopped: Option<Instant>,
    /// Answers over HTTP that did not end in time for an upgrade were ended with an error.
    pub(super) ended_by_upgrade: bool,
    /// The callers that want tasks.
    pub(super) tasks: Vec<TaskPage>,
    pub(super) violations: Vec<Violation>,
}

/// One client's side.
#[derive(Debug, Default)]
pub(super) struct ClientPage {
    pub(super) requests: Vec<Asked>,
    /// Lines that get an answer without an id, and such answers.
    pub(super) junk: usize,
    pub(super) junk_answers: usize,
    /// The log level that the client has set.
    pub(super) level: String,
    /// The client disconnected.
    pub(super) left: bool,
    /// It will send nothing more.
    pub(super) input_closed: bool,
    /// The host closed its side.
    pub(super) ended: bool,
    /// Requests in the order of their answers.
    pub(super) order: Vec<usize>,
}

/// One request of a client.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) id: String,
    pub(super) tool: Option<Tool>,
    pub(super) key: String,
    pub(super) token: bool,
    /// It must be refused.
    pub(super) refused: Option<ErrorKind>,
    pub(super) at: Instant,
    /// The whole line is in the host's reach.
    pub(super) whole: bool,
    /// It was cancelled; whether a cancel of this form is answered.
    pub(super) cancelled: Option<bool>,
    /// The log level of its session when it was sent.
    pub(super) level: String,
    /// Requests with the same id that were sent while it was open.
    pub(super) extra: usize,
    pub(super) answers: Vec<Outcome>,
}

/// What an answer says: a request that is not a tool call is `Done` with nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
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
    pub(super) fn is_open(&self) -> bool {
        self.whole && self.answers.is_empty() && self.cancelled != Some(false)
    }
}

impl Book {
    /// Opens it.
    pub(super) fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A rule was broken.
    pub(super) fn violation(&self, rule: &'static str, detail: impl Into<String>) {
        let detail = detail.into();
        self.lock().violations.push(Violation { rule, detail });
    }
}

impl Pages {
    /// Requests that wait for an answer.
    pub(super) fn open(&self) -> usize {
        let staying = self.clients.iter().filter(|page| !page.left && !page.ended);
        staying
            .map(|page| page.requests.iter().filter(|asked| asked.is_open()).count())
            .sum()
    }

    /// Whether a call took effect.
    pub(super) fn is_applied(&self, key: &str) -> bool {
        self.effects.contains_key(key)
    }
}
