//! What happened on the clients' side of the host, in order of time.

use mainstay_contract::replay::Replay;

use super::Answer;

/// What a call does to the world. Two calls must never describe the same effect, or nobody can say
/// whose it was: put a unique word into the subject or the value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Effect {
    pub tool: String,
    /// What is changed: a key, an account, an id.
    pub subject: String,
    /// What it becomes.
    pub value: String,
}

/// A call, as its client sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub tool: String,
    /// What the tool declares about running twice.
    pub replay: Replay,
    /// `None` for a tool that only reads.
    pub effect: Option<Effect>,
}

/// How a call was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelKind {
    /// `$/cancelRequest`: exactly one answer.
    Answered,
    /// `notifications/cancelled`: no answer, unless it was on its way already.
    Silent,
}

/// What a client did or heard about one of its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Asked(Asked),
    Cancelled(CancelKind),
    Progress,
    Answered(Answer),
}

/// An event, with the client, the id of the call and the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Ticks of one clock for all clients. A question is noted before it is sent, an answer after
    /// it was read, so that `answered < asked` means what it says.
    pub at: u64,
    pub client: usize,
    pub id: String,
    pub event: Event,
}

/// The whole, of all clients.
#[derive(Clone, Debug, Default)]
pub struct History {
    entries: Vec<Entry>,
}

impl History {
    /// Adds an event. Those of one client must come in their order.
    pub fn note(&mut self, at: u64, client: usize, id: &str, event: Event) {
        self.entries.push(Entry {
            at,
            client,
            id: id.to_owned(),
            event,
        });
    }

    /// Adds what another client noted.
    pub fn merge(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }

    /// Every event; those of one client in their order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}
