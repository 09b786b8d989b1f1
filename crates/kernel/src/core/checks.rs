//! Checks under way: which request waits for which verdict.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::outcome::Problem;
use mainstay_contract::rpc::Answer;
use mainstay_schema::check::GaveUp;
use serde::{Deserialize, Serialize};

use super::action::{CheckRequest, CoreAction};
use super::mismatches::Culprit;
use crate::call::SlotId;

/// The checks whose verdicts are awaited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Checks {
    open: BTreeMap<u64, Check>,
    next: u64,
}

/// One check, complete, so that a restored core can ask for it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Check {
    purpose: Purpose,
    request: Arc<CheckRequest>,
}

/// The request that a verdict decides about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Purpose {
    /// Arguments of a pack's tool, or of one of the host's own.
    PackArguments { call: CallId, tool: String },
    /// A reply of a pack's tool, which is held until then.
    PackReply {
        call: CallId,
        tool: String,
        answer: Box<Answer>,
    },
    /// Arguments of a wrapped server's tool.
    ServerArguments { slot: SlotId, call: CallId },
    /// Checks the arguments again, for a server with another definition of the tool.
    ServerRecheck {
        slot: SlotId,
        generation: Generation,
        call: CallId,
    },
    /// A result of a wrapped server's tool: a difference is only reported.
    ServerReply {
        slot: SlotId,
        tool: String,
        culprit: Culprit,
    },
}

impl Purpose {
    /// The request that waits for the verdict, if one does.
    const fn call(&self) -> Option<CallId> {
        match self {
            Self::PackArguments { call, .. }
            | Self::PackReply { call, .. }
            | Self::ServerArguments { call, .. }
            | Self::ServerRecheck { call, .. } => Some(*call),
            Self::ServerReply { .. } => None,
        }
    }
}

impl Checks {
    /// Begins a check. Returns the action that asks for it.
    pub(crate) fn begin(&mut self, purpose: Purpose, request: CheckRequest) -> CoreAction {
        self.next += 1;
        let request = Arc::new(request);
        let check = Check { purpose, request };
        let action = check.action(self.next);
        self.open.insert(self.next, check);
        action
    }

    /// Ends a check that has its verdict. Returns the request that it decides about.
    pub(crate) fn end(&mut self, ticket: u64) -> Option<Purpose> {
        self.open.remove(&ticket).map(|check| check.purpose)
    }

    /// Gives up the checks of a request that has ended.
    pub(crate) fn forget(&mut self, call: CallId) -> Vec<CoreAction> {
        let of_call = |check: &Check| check.purpose.call() == Some(call);
        let open = self.open.iter();
        let tickets: Vec<u64> = open
            .filter(|(_, check)| of_call(check))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in &tickets {
            self.open.remove(ticket);
        }
        let forget = |ticket| CoreAction::ForgetCheck { ticket };
        tickets.into_iter().map(forget).collect()
    }

    /// The actions that ask again for every verdict, for a shell that does not know of them.
    pub(crate) fn again(&self) -> impl Iterator<Item = CoreAction> {
        let open = self.open.iter();
        open.map(|(ticket, check)| check.action(*ticket))
    }

    /// True if no verdict is awaited.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Check {
    fn action(&self, ticket: u64) -> CoreAction {
        let request = Arc::clone(&self.request);
        CoreAction::Check { ticket, request }
    }
}

/// The error of a request whose check was given up.
pub(crate) fn gave_up(reason: GaveUp) -> Problem {
    match reason {
        GaveUp::Deadline => Problem::new(
            ErrorKind::Timeout,
            "the value could not be checked against its schema in time",
        )
        .with_hint("send less in one call, or simplify the tool's schema"),
        GaveUp::Memory => Problem::new(
            ErrorKind::InvalidArguments,
            "checking the value against its schema needs too much memory",
        )
        .with_hint("send less in one call"),
        GaveUp::Budget => Problem::of(ErrorKind::Overloaded),
        GaveUp::Crashed => Problem::new(
            ErrorKind::Internal,
            "the process that checks values against schemas ended",
        ),
    }
}
