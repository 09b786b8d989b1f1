//! One incarnation of a wrapped server: what it must still be sent before it serves, and whose answers
//! it owes.

use std::collections::VecDeque;

use mainstay_contract::id::{CallId, RequestId};
use mainstay_contract::json::Json;
use mainstay_contract::method::ListKind;
use mainstay_contract::request_table::RequestTable;
use serde::{Deserialize, Serialize};

use super::activity::Looks;
use super::handover::Catalog;
use super::lists::Seen;
use super::memory::Step;
use crate::time::Time;

/// Abandoned calls whose late answers are still recognised.
const ABANDONED: usize = 1024;

/// One process of the server, from its spawn to its reaping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Incarnation {
    /// Lines that it must get before it gets requests.
    pub(super) script: VecDeque<Step>,
    /// Requests that it has not answered, by the id that was sent.
    pub(super) awaited: RequestTable<Awaited>,
    /// Ids of abandoned calls, oldest first; their answers may never come.
    abandoned: VecDeque<RequestId>,
    /// Calls whose arguments are checked again before they are sent to it.
    pub(super) rechecking: Vec<CallId>,
    /// It took too much memory and is being replaced.
    pub(super) outgrown: bool,
    pub(super) start: Start,
    pub(super) looks: Looks,
    /// Its tools, read ahead; taken once it serves, dropped when they change.
    pub(super) catalog: Option<Catalog>,
}

/// How far a server is from its first answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Start {
    /// It got no request yet.
    #[default]
    Unasked,
    /// It got its first request then. Once it must open a session only an answer counts, before
    /// that any line.
    Asked { since: Time, opening: bool },
    Over,
}

impl Start {
    /// A request is sent.
    pub(super) fn asked(self, now: Time, method: &str) -> Self {
        let opening = method == "initialize";
        match self {
            // A server that is still starting, or does not know the method, may never answer it.
            Self::Unasked if method == "server/discover" => self,
            Self::Unasked => Self::Asked {
                since: now,
                opening,
            },
            Self::Asked {
                since,
                opening: was,
            } => Self::Asked {
                since,
                opening: was || opening,
            },
            Self::Over => Self::Over,
        }
    }

    /// A line arrived that is not an answer.
    pub(super) const fn heard(self) -> Self {
        match self {
            Self::Asked { opening: true, .. } => self,
            Self::Asked { .. } | Self::Over => Self::Over,
            Self::Unasked => Self::Unasked,
        }
    }

    fn until(self, patience_ms: u64) -> Option<Time> {
        match self {
            Self::Asked { since, .. } => Some(since.plus_ms(patience_ms)),
            Self::Unasked | Self::Over => None,
        }
    }
}

/// The meaning of an answer that the server owes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Awaited {
    Call(CallId),
    /// The next step of the script may follow.
    Script {
        purpose: Purpose,
        until: Time,
    },
    Ping,
    /// A page of its tools, before it is ready.
    Catalog {
        cursor: Option<String>,
        catalog: Catalog,
        until: Time,
    },
    List {
        /// The epoch of the tool knowledge in which the list was begun.
        epoch: u64,
        kind: ListKind,
        cursor: Option<String>,
        seen: Seen,
        until: Time,
    },
}

/// The purpose of a scripted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Purpose {
    /// Opens the session: without a result the server is of no use.
    Open,
    /// Finds out whether the server speaks the modern era.
    Discover,
    /// Restores a detail of the session; a refusal is tolerated.
    Restore,
}

impl Incarnation {
    /// When the first of the host's own requests is late.
    pub(super) fn own_deadline(&self, start_ms: u64) -> Option<Time> {
        let until = |awaited: &Awaited| match awaited {
            Awaited::Script { until, .. }
            | Awaited::Catalog { until, .. }
            | Awaited::List { until, .. } => Some(*until),
            Awaited::Call(_) | Awaited::Ping => None,
        };
        let awaited = self.awaited.values().filter_map(until);
        awaited.chain(self.start.until(start_ms)).min()
    }

    /// True if it has answered nothing for as long as it may take to start.
    pub(super) fn is_never_ready(&self, now: Time, start_ms: u64) -> bool {
        self.start.until(start_ms).is_some_and(|until| until <= now)
    }

    /// Records that the host no longer waits for a call's answer.
    pub(super) fn abandon(&mut self, call: CallId) {
        if let Some(id) = self.wire_id(call).cloned() {
            self.abandoned.push_back(id);
        }
        if self.abandoned.len() > ABANDONED
            && let Some(oldest) = self.abandoned.pop_front()
        {
            self.awaited.close(&oldest);
        }
    }

    /// The id under which a call was sent.
    pub(super) fn wire_id(&self, call: CallId) -> Option<&RequestId> {
        let is_it = |awaited: &Awaited| matches!(awaited, Awaited::Call(sent) if *sent == call);
        let mut found = self.awaited.iter().filter(|(_, awaited)| is_it(awaited));
        found.next().map(|(id, _)| id)
    }

    /// Removes the request that an answer belongs to. Some servers turn a number into a string or back.
    pub(super) fn answered(&mut self, id: &RequestId) -> Option<Awaited> {
        let may_be = |known: &RequestId| !self.abandoned.contains(known);
        let known = self.awaited.meant(id, may_be)?;
        self.awaited.close(&known)
    }

    /// True while it owes the answer to a call.
    pub(super) fn has_calls(&self) -> bool {
        self.calls().next().is_some()
    }

    /// The only call that it works on.
    pub(super) fn only_call(&self) -> Option<CallId> {
        let mut calls = self.calls();
        calls.next().filter(|_| calls.next().is_none())
    }

    fn calls(&self) -> impl Iterator<Item = CallId> {
        self.awaited.values().filter_map(|awaited| match awaited {
            Awaited::Call(call) => Some(*call),
            _ => None,
        })
    }

    /// True while the host reads this list of it.
    pub(super) fn lists(&self, wanted: ListKind) -> bool {
        self.awaited
            .values()
            .any(|awaited| matches!(awaited, Awaited::List { kind, .. } if *kind == wanted))
    }

    /// Forgets everything that a lost server owes. Returns the calls that were never sent to it.
    pub(super) fn lose(&mut self) -> Vec<CallId> {
        self.awaited.clear();
        self.script.clear();
        self.start = Start::Over;
        std::mem::take(&mut self.rechecking)
    }

    /// Queues a line behind the script. Returns it if the script is over and it may be sent now.
    pub(super) fn after_script(&mut self, line: Json) -> Option<Json> {
        if self.script.is_empty() {
            return Some(line);
        }
        self.script.push_back(Step::Say(line));
        None
    }
}
