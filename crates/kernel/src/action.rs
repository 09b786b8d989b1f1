//! Actions: the orders of the kernel to its driver.

use mainstay_contract::dialect::{EchoId, Form};
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation, RequestId, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Forwarded, Outcome, Success};
use mainstay_contract::rpc;
use mainstay_contract::trace::Span;
use serde::{Deserialize, Serialize};

use crate::call::SlotId;
use crate::progress::Step;

/// One thing for the driver to do, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Check this request and find out who answers it, then call `handle_routed`.
    Route { call: CallId },
    /// Answer this request from the host's own knowledge, then call `handle_served`.
    Serve { call: CallId },
    /// The one terminal outcome of a request.
    End(Box<End>),
    /// The deadline of a call has passed that may run on: call `detach` or `abort_overdue`.
    Overdue { call: CallId },
    /// Tell the client about progress.
    Progress(Box<Notice>),
    /// Start a worker.
    Spawn {
        slot: SlotId,
        generation: Generation,
    },
    /// Hand a call to a worker.
    Send {
        generation: Generation,
        call: Box<rpc::Call>,
    },
    /// Ask a worker to stop working on a call.
    Cancel {
        generation: Generation,
        call: CallId,
    },
    /// Ask a worker for a sign of life.
    Ping { generation: Generation },
    /// Look whether a worker that is silent runs at all; if [`Kernel::is_hopeless`] finds that it
    /// does not, end it and say that it is lost.
    ///
    /// [`Kernel::is_hopeless`]: crate::Kernel::is_hopeless
    Look { generation: Generation },
    /// A rollout ended: a fresh generation serves, or the fault that kept it from it.
    RolloutOver {
        slot: SlotId,
        result: Result<Generation, Fault>,
    },
    /// End a worker.
    Stop { generation: Generation, how: Manner },
    /// A worker is of no use: send it nothing more, end it, and say that it is lost with this fault and
    /// with the calls that were not sent.
    Abandon {
        generation: Generation,
        fault: Fault,
    },
    /// Everything that this client asked has been answered, and it will ask no more.
    SessionOver { session: SessionId },
    /// The last worker of a closed slot was reaped, and the slot is removed.
    SlotOver { slot: SlotId },
}

/// Result of a look at a worker's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sight {
    /// They run, or their state is unknown.
    Runs,
    /// None has used the processor since the worker was pinged.
    Still,
    /// One was stopped at two looks in a row, and none has used the processor in between.
    Stopped,
}

/// How a worker is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Manner {
    /// It has nothing to do: let it leave by itself, then TERM, grace, KILL.
    Dismiss,
    /// It must not go on: TERM, grace, KILL.
    Terminate,
}

/// The terminal outcome of a request and the facts for its telemetry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    pub session: SessionId,
    pub call: CallId,
    pub id: EchoId,
    pub form: Form,
    pub outcome: Outcome,
    pub delivery: Delivery,
    pub method: String,
    pub tool: Option<String>,
    pub generation: Option<Generation>,
    pub attempt: u32,
    pub latency_us: u64,
    pub input_bytes: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Span>,
}

impl End {
    /// True if a wrapped server's own answer is an error.
    pub const fn said_no(&self) -> bool {
        matches!(
            &self.outcome,
            Ok(Success::Forwarded(Forwarded { is_error: true, .. }))
        )
    }
}

/// True if an outcome reaches the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    Send,
    /// MCP forbids an answer after its cancel, and a client that has gone cannot get one.
    Withhold,
}

/// Progress of one call, for its client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    pub session: SessionId,
    pub call: CallId,
    pub id: RequestId,
    pub form: Form,
    pub token: Option<Json>,
    pub tool: String,
    pub step: Step,
}
