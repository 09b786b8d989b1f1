//! A simulated driver for the kernel: virtual time, sessions, and workers that misbehave.
//!
//! A [`Script`] is plain data that proptest makes and shrinks. [`run`] plays it against a
//! [`Kernel`], brings everything to its end, and gives the [`Trace`]: one [`Step`] for every
//! event, with the actions that followed. The properties are statements about traces. [`Mirror`]
//! is a second, simpler opinion about who is in flight, whose turn it is and when time is up.

#![allow(
    dead_code,
    reason = "shared by several test binaries; none uses all of it"
)]

mod crew;
mod finale;
pub mod life;
pub mod mirror;
mod router;
pub mod script;
mod wire;
mod world;

use mainstay_contract::dialect::{CancelKind, Order};
use mainstay_contract::id::{CallId, Generation, RequestId, SessionId};
use mainstay_contract::limits::Limits;
use mainstay_contract::replay::Replay;
use mainstay_contract::rpc::Answer;
use mainstay_kernel::action::{Action, End};
use mainstay_kernel::time::Time;

pub use self::script::{Finale, Script};
pub use self::world::World;

/// Slots with which every simulated kernel begins.
pub const SLOTS: [&str; 2] = ["a", "b"];

/// Everything that happened in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub limits: Limits,
    pub steps: Vec<Step>,
}

/// One event and what the kernel made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub at: Time,
    pub input: Input,
    pub actions: Vec<Action>,
    /// How full everything is afterwards.
    pub gauges: Gauges,
}

/// An event, resolved to what it was about.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    Opened(SessionId),
    Asked(Asked),
    Cancel {
        session: SessionId,
        target: RequestId,
        kind: CancelKind,
    },
    DoneAsking(SessionId),
    Gone(SessionId),
    Routed {
        call: CallId,
        /// The kernel did not ask, or no longer waits.
        stale: bool,
    },
    Served(CallId),
    Ready(Generation),
    Unfit(Generation),
    Lost {
        generation: Generation,
        unsent: Vec<CallId>,
        unready: bool,
    },
    Reaped(Generation),
    Answered {
        generation: Generation,
        call: CallId,
        answer: Answer,
        fenced: bool,
    },
    /// A worker answered, and the driver checks the answer.
    Held {
        generation: Generation,
        call: CallId,
        fenced: bool,
    },
    Checked {
        call: CallId,
        answer: Answer,
    },
    /// A request that is being routed got a deadline.
    Clocked {
        call: CallId,
        timeout_ms: u64,
    },
    Progressed {
        generation: Generation,
        call: CallId,
        fenced: bool,
    },
    /// The clock moved, but the kernel was not told.
    Drifted,
    Ticked,
    Warmed(usize),
    Reopened(usize),
    Added(usize),
    Closed(usize),
    Stopped,
}

/// A request that a session sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub call: CallId,
    pub session: SessionId,
    pub id: RequestId,
    pub order: Order,
    pub bytes: usize,
    /// It was handed in before anybody knew who answers it.
    pub unrouted: bool,
    pub work: Wanted,
}

/// Who is to answer it, as is known or will turn out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Refusal,
    Host,
    Worker {
        slot: usize,
        replay: Replay,
        timeout_ms: u64,
    },
}

/// The kernel's own view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    pub calls: usize,
    pub sessions: usize,
    /// The sessions that are read from.
    pub reading: Vec<SessionId>,
    /// Per slot that was ever added: calls in its queue, and whether it is closed or its restart
    /// budget is spent.
    pub slots: Vec<(usize, bool)>,
}

impl Trace {
    /// Plays `script` to its end.
    pub fn of(script: &Script) -> Self {
        World::play(script, None)
    }

    /// Every action with the number of its step and its time.
    pub fn actions(&self) -> impl Iterator<Item = (usize, Time, &Action)> {
        self.steps
            .iter()
            .enumerate()
            .flat_map(|(at, step)| step.actions.iter().map(move |action| (at, step.at, action)))
    }
}

impl Step {
    /// The ends of this step, in order.
    pub fn ends(&self) -> impl Iterator<Item = &End> {
        self.actions.iter().filter_map(|action| match action {
            Action::End(end) => Some(&**end),
            _ => None,
        })
    }
}
