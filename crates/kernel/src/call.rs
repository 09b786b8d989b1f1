//! One request in flight: who asked, what for, and how far it got.

use mainstay_contract::dialect::{EchoId, Form, Order, Refused};
use mainstay_contract::id::{Generation, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::method::Method;
use mainstay_contract::outcome::Problem;
use mainstay_contract::replay::{Attempts, Replay};
use mainstay_contract::rpc;
use mainstay_contract::tool::Pace;
use mainstay_contract::trace::Span;
use serde::{Deserialize, Serialize};

use crate::progress::Throttle;
use crate::quotas::Charge;
use crate::time::Time;

/// Number of a worker slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SlotId(pub usize);

/// A request as the driver hands it in: decoded, not necessarily routed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewRequest {
    pub id: EchoId,
    pub form: Form,
    /// The method in telemetry; a closed set, so that its aggregates are bounded.
    pub method: String,
    pub tool: Option<String>,
    pub progress_token: Option<Json>,
    pub input_bytes: usize,
    /// Its span, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Span>,
    /// A lost host may have sent it to its worker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_run: bool,
    pub work: Work,
}

impl NewRequest {
    /// A message that gets an error and nothing else.
    pub fn rejected(refused: Refused, input_bytes: usize) -> Self {
        Self {
            id: refused.id,
            form: refused.form,
            method: "invalid".to_owned(),
            tool: None,
            progress_token: None,
            input_bytes,
            trace: None,
            may_have_run: false,
            work: Work::Refused(refused.problem),
        }
    }

    /// True if it waits for others of its session.
    pub const fn order(&self) -> Order {
        self.form.dialect.order()
    }
}

/// Who answers a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// It is refused; the refusal still waits for its turn.
    Refused(Problem),
    /// Not known yet: the driver routes it when the kernel asks.
    Unrouted,
    /// The host itself.
    Host,
    /// A worker.
    Worker(Task),
}

/// Lost workers after which a call that they ran runs alone.
const LOSSES_TOGETHER: u32 = 2;

/// The timeout of a call that may take as long as it likes: ten years.
pub const UNTIMED_MS: u64 = 10 * 365 * 86_400_000;

/// Work for a worker, with the contract under which it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub slot: SlotId,
    pub op: rpc::Op,
    pub replay: Replay,
    pub timeout_ms: u64,
    #[serde(default)]
    pub late: Late,
    /// Long calls take no place in a worker's pool.
    #[serde(default)]
    pub pace: Pace,
}

/// The fate of a lenient slot's worker that does not end a call in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Late {
    /// It is asked whether it lives.
    #[default]
    Ask,
    /// It must go.
    End,
    /// It must go, and was never ready: the call opens a session.
    Open,
    /// Nothing: the call says nothing about it.
    Leave,
}

/// A request in the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub session: SessionId,
    pub request: NewRequest,
    pub accepted: Time,
    pub stage: Stage,
    /// Times that it was sent to a worker.
    pub attempt: u32,
    /// Times that a probe for it was sent.
    pub probes: u32,
    /// Workers that were lost while they ran it or a probe for it.
    pub losses: u32,
    /// The worker that last had it.
    pub generation: Option<Generation>,
    pub deadline: Option<Time>,
    /// The timeout behind the deadline.
    pub timeout_ms: Option<u64>,
    /// How far progress can move the deadline.
    pub last_deadline: Option<Time>,
    /// It may run on after its deadline.
    #[serde(default)]
    pub detaches: bool,
    /// A lost host may have sent it, and no probe has answered; then it may be sent until this time.
    #[serde(default)]
    pub resumed_until: Option<Time>,
    /// The quota that its caller pays for it, from its start on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<Box<Charge>>,
    pub throttle: Throttle,
}

/// How far a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// In line behind others of its session.
    Waiting,
    /// The host is routing or answering it.
    Serving,
    /// In the queue of a slot.
    Queued {
        send: Dispatch,
        held: Option<Generation>,
    },
    /// Handed to a worker.
    Running {
        generation: Generation,
        send: Dispatch,
    },
    /// Its worker has answered; the driver checks the answer.
    Checking {
        generation: Generation,
        send: Dispatch,
    },
}

/// The message to a worker for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dispatch {
    Call,
    Probe,
}

impl Call {
    /// True for a call of a tool, known or not.
    pub fn is_tool_call(&self) -> bool {
        self.request.tool.is_some() || self.request.method == Method::CallTool.name()
    }

    /// The task, if a worker answers this request.
    pub const fn task(&self) -> Option<&Task> {
        match &self.request.work {
            Work::Worker(task) => Some(task),
            Work::Refused(_) | Work::Unrouted | Work::Host => None,
        }
    }

    /// Where it waits for a worker.
    pub fn pace(&self) -> Pace {
        self.task().map(|task| task.pace).unwrap_or_default()
    }

    /// The slot whose workers answer this request, if one does.
    pub fn slot(&self) -> Option<SlotId> {
        self.task().map(|task| task.slot)
    }

    /// True if several workers were lost while they ran it: it may be to blame.
    pub const fn is_suspect(&self) -> bool {
        self.losses >= LOSSES_TOGETHER
    }

    /// True until a worker answers a probe for it.
    pub const fn awaits_probe(&self) -> bool {
        matches!(
            self.stage,
            Stage::Queued {
                send: Dispatch::Probe,
                ..
            } | Stage::Running {
                send: Dispatch::Probe,
                ..
            } | Stage::Checking {
                send: Dispatch::Probe,
                ..
            }
        )
    }

    /// True if its deadline has passed.
    pub fn is_late(&self, now: Time) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// True if it may have had an effect that a second run would repeat.
    pub fn may_have_run(&self) -> bool {
        self.attempt > 0
            && self
                .task()
                .is_some_and(|task| task.replay != Replay::Convergent)
    }

    /// True for a call of a tool that a lost host may have sent, and that may not run twice.
    pub fn is_unsettled(&self) -> bool {
        let is_convergent = |task: &Task| task.replay == Replay::Convergent;
        self.request.may_have_run && self.is_tool_call() && !self.task().is_some_and(is_convergent)
    }

    /// True if it may be sent, or probed for, once more.
    pub const fn attempts(&self, replays: u32) -> Attempts {
        // What never ends by itself outlives any number of workers.
        let endless = matches!(self.task(), Some(task) if task.timeout_ms >= UNTIMED_MS);
        if endless || self.attempt <= replays && self.probes <= replays {
            Attempts::Left
        } else {
            Attempts::Spent
        }
    }
}
