//! Dialects: how clients speak, as pure codecs between bytes and types.
//!
//! [`decode()`] turns one line into an [`Inbound`]; [`encode`] turns an outcome into one line. Each
//! message decides its own dialect, so one connection may mix them. A codec keeps no state: the
//! session machine knows only a dialect's properties (its [`Order`], and the [`Form`] in which a
//! request wants its answer).
//!
//! Deliberately absent: which tools exist, and what a request does.

mod decode;
pub mod encode;
mod envelope;
mod handshake;
mod params;
mod relay;

use serde::{Deserialize, Serialize};

pub use self::decode::{
    declares_forms, decode, decode_oversize, modern_version, task_op, task_wish,
};
pub use self::envelope::run_of;
pub use self::handshake::{
    LEGACY_VERSIONS, MODERN_VERSION, ServerFacts, TASKS_VERSION, TaskFacts, WrappedFacts,
    negotiate_legacy,
};
pub use self::params::unsupported_version;
pub use self::relay::{Relayed, RelayedRequest, relay};
use crate::envelope::Asked;
use crate::id::RequestId;
use crate::json::Json;
use crate::method::{self, ListKind, Method};
use crate::outcome::Problem;
use crate::rpc::Completion;
use crate::trace::TraceContext;

/// The language of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// MCP 2024-11-05 to 2025-11-25.
    Legacy,
    /// MCP 2026-07-28.
    Modern,
    /// The method is a tool's name, the result is the tool's own JSON.
    Direct,
    /// `mcp.discover` and `mcp.tool.invoke`: the result is a result envelope.
    Envelope,
    /// One request over HTTP. Its caller receives the outcome and encodes it.
    Rest,
}

/// True if requests of a session wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Calls complete in any order.
    Free,
    /// Requests run one after another and are answered in request order.
    InTurn,
}

impl Dialect {
    /// True if requests of this dialect wait for each other.
    pub const fn order(self) -> Order {
        match self {
            Self::Legacy | Self::Modern | Self::Rest => Order::Free,
            Self::Direct | Self::Envelope => Order::InTurn,
        }
    }

    /// The form of an answer without any result of its own, such as an error.
    pub const fn plain(self) -> Form {
        Form {
            dialect: self,
            shape: Shape::Plain,
        }
    }

    /// True if it is one of MCP's eras.
    pub const fn is_mcp(self) -> bool {
        matches!(self, Self::Legacy | Self::Modern)
    }
}

/// The form that a request's answer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    pub dialect: Dialect,
    pub shape: Shape,
}

/// The kind of result that a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// A tool's result: failures are results too.
    Tool,
    /// A listing, a resource or a discovery: modern clients may cache it.
    Cacheable,
    /// Any other result.
    Plain,
}

/// One line from a client, understood.
#[derive(Clone, Debug, PartialEq)]
pub enum Inbound {
    Request(Request),
    /// A control message: read at once, never queued.
    Cancel(Cancel),
    /// News of a client, which nothing is answered to.
    Notice(Notice),
    /// An answer. The caller knows if there was a question.
    Answer(Answer),
    /// A notification that asks for nothing.
    Ignored,
    /// A message that gets an error and nothing else.
    Refused(Refused),
}

/// A notification that a part of the host may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The handshake is over.
    Initialized,
    /// The client's roots are others now.
    RootsChanged,
}

/// A client's answer to a question of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub id: RequestId,
    /// The result or the error, byte for byte.
    pub result: Result<Json, Json>,
}

/// A request that is well-formed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: RequestId,
    pub dialect: Dialect,
    pub op: Op,
    /// MCP's `progressToken`, byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_token: Option<Json>,
    /// The span of the client that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// The client takes a task for an answer, or wants the call recorded under a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskWish>,
}

/// The wish of a client that its tool call runs as a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskWish {
    /// The answer that it takes.
    pub answer: TaskAnswer,
    /// It asks for a task and for nothing else.
    #[serde(default)]
    pub required: bool,
    /// The idempotency key of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The error of a wish that cannot be read, where the session has tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<Problem>,
}

/// The answer to a call that is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskAnswer {
    /// The task, at once, if the tool may run as one.
    #[default]
    Task,
    /// The outcome, once it is known.
    Outcome,
}

/// A request about a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOp {
    Get {
        id: String,
    },
    /// The outcome, once it is known.
    Result {
        id: String,
    },
    List {
        cursor: Option<String>,
    },
    Cancel {
        id: String,
    },
    /// Answers to questions of a task, which tasks of ours never ask.
    Update {
        id: String,
    },
}

/// A request of a person who may approve calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOp {
    List {},
    Answer { id: String, grant: bool },
}

/// The requests of clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Open a legacy session with the version that the client offers.
    Initialize {
        version: String,
        /// True if the client can be asked for its roots.
        #[serde(default)]
        roots: bool,
        /// True if the client can ask its user with a form.
        #[serde(default)]
        elicits: bool,
    },
    Discover {},
    /// Everything on offer, as envelopes describe it.
    Catalog {},
    Ping {},
    ListTools {
        /// Every tool with its whole contract, whatever the host lists otherwise.
        #[serde(default)]
        full: bool,
    },
    CallTool {
        name: String,
        arguments: Json,
    },
    ListResources {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
    },
    ListResourceTemplates {},
    ReadResource {
        uri: String,
    },
    ListPrompts {},
    GetPrompt {
        name: String,
        arguments: Json,
    },
    Complete(Completion),
    /// News of a resource, until the client unsubscribes. The URI is empty if the request has none.
    Subscribe {
        uri: String,
    },
    Unsubscribe {
        uri: String,
    },
    /// The lowest severity of log messages that the client wants; empty if the request has none.
    SetLogLevel {
        level: String,
    },
    Task(TaskOp),
    /// The calls that wait for an approval, or an answer to one of them.
    Approvals(ApprovalOp),
    /// Notifications about these lists until the client wants no more.
    Listen {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lists: Vec<ListKind>,
    },
    /// A page of a wrapped server's own list, for the host itself.
    List {
        kind: ListKind,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
    },
}

impl Op {
    /// The method of MCP; `None` for operations that only envelopes and REST have.
    pub const fn mcp_method(&self) -> Option<Method> {
        Some(match self {
            Self::Catalog {} | Self::Approvals(_) => return None,
            Self::Initialize { .. } => Method::Initialize,
            Self::Discover {} => Method::Discover,
            Self::Ping {} => Method::Ping,
            Self::ListTools { .. } => Method::ListTools,
            Self::CallTool { .. } => Method::CallTool,
            Self::ListResources { .. } => Method::ListResources,
            Self::ListResourceTemplates {} => Method::ListResourceTemplates,
            Self::ReadResource { .. } => Method::ReadResource,
            Self::ListPrompts {} => Method::ListPrompts,
            Self::GetPrompt { .. } => Method::GetPrompt,
            Self::Complete(_) => Method::Complete,
            Self::Subscribe { .. } => Method::SubscribeResource,
            Self::Unsubscribe { .. } => Method::UnsubscribeResource,
            Self::SetLogLevel { .. } => Method::SetLogLevel,
            Self::Task(TaskOp::Get { .. }) => Method::GetTask,
            Self::Task(TaskOp::Result { .. }) => Method::GetTaskResult,
            Self::Task(TaskOp::List { .. }) => Method::ListTasks,
            Self::Task(TaskOp::Cancel { .. }) => Method::CancelTask,
            Self::Task(TaskOp::Update { .. }) => Method::UpdateTask,
            Self::Listen { .. } => Method::Listen,
            Self::List { kind, .. } => kind.method(),
        })
    }

    /// The method in telemetry.
    pub const fn method(&self) -> &'static str {
        match self.mcp_method() {
            Some(method) => method.telemetry_name(),
            None if matches!(self, Self::Approvals(_)) => method::OTHER,
            None => Asked::DISCOVER,
        }
    }

    /// The kind of result it has.
    pub const fn shape(&self) -> Shape {
        match self.mcp_method() {
            Some(method) => method.shape(),
            None => Shape::Cacheable,
        }
    }
}

/// A client's wish to stop a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    pub target: RequestId,
    pub kind: CancelKind,
}

/// True if a cancelled request still gets an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CancelKind {
    /// `$/cancelRequest`: exactly one answer, `CANCELLED`.
    Answered,
    /// `notifications/cancelled`: MCP forbids an answer.
    Silent,
}

/// The id under which something is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EchoId {
    Known(RequestId),
    /// `"id": null`: JSON-RPC's form when there is none.
    Null,
    /// No `id` member: MCP's form when an oversize message's id could not be read.
    Absent,
}

/// A message that is answered without being run.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    pub id: EchoId,
    pub form: Form,
    pub problem: Problem,
    /// In the envelope dialect: the params, where they could be read.
    pub payload: Option<Json>,
}
