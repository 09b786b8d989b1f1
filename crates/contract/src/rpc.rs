//! The private protocol between the host and a pack worker: NDJSON over two pipes.
//!
//! The host speaks first with [`ToWorker::Start`]; the worker loads, then announces
//! [`FromWorker::Ready`] with its build and catalog. From then on the host sends calls, cancels,
//! pings and finally a drain; the worker answers each call exactly once. Messages are tagged by
//! their only key, which keeps raw JSON inside them raw.
//!
//! Deliberately absent: anything about clients. A worker knows calls, never sessions.

use crate::trace::TraceContext;
use serde::{Deserialize, Serialize};

use crate::id::{CallId, Generation};
use crate::json::Json;
use crate::limits::Limits;
use crate::outcome::{Forwarded, Problem, ToolReply};
use crate::render::{Bounds, RenderMode};
use crate::tool::{Catalog, ResourceSpec};

/// Version of this protocol; a worker with another one is refused.
pub const PROTOCOL: u32 = 1;

/// Host to worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToWorker {
    Start(Start),
    Call(Call),
    Cancel {
        call: CallId,
    },
    Ping {
        nonce: u64,
    },
    /// Finish what runs, then exit.
    Drain {},
}

/// The first message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    pub protocol: u32,
    pub generation: Generation,
    /// Calls that may run at the same time.
    pub pool: usize,
    /// Longest line the host accepts.
    pub frame_bytes: usize,
    /// Time between TERM and KILL for the worker's own subprocesses.
    pub grace_ms: u64,
    /// Size of an answer's text. A page of a listing holds what fits in it.
    #[serde(default)]
    pub text: Bounds,
    /// Violations that a verdict lists.
    #[serde(default = "usual_violations")]
    pub violations: usize,
    /// The pack's own configuration: an object.
    pub settings: Json,
}

fn usual_violations() -> usize {
    Limits::default().violations
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub call: CallId,
    /// 1 for the first time the call is sent.
    pub attempt: u32,
    /// Time left until the deadline, for the tool's information; the host enforces it.
    pub timeout_ms: u64,
    /// The span that the work belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    pub op: Op,
}

/// The requests to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Tool {
        name: String,
        arguments: Json,
        render: RenderMode,
    },
    /// Did an earlier attempt of this call take effect? Answered with [`Answer::Probed`].
    Probe {
        name: String,
        arguments: Json,
    },
    ListResources {},
    ReadResource {
        uri: String,
    },
    Prompt {
        name: String,
        arguments: Json,
    },
    Complete(Completion),
    /// A client's request for a wrapped server, as it came. No pack is ever sent this.
    Forward(Forward),
}

/// One line for a wrapped server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    pub line: Json,
    /// The line that asks whether an earlier attempt took effect, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Json>,
}

/// A request to complete an argument of a prompt or of a resource template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    pub of: CompletionTarget,
    pub argument: String,
    pub value: String,
    /// Arguments already given: an object of strings.
    pub context: Json,
}

/// The prompt or resource whose argument is completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompletionTarget {
    Prompt(String),
    Resource(String),
}

/// Worker to host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromWorker {
    Ready(Ready),
    /// The pack cannot start; the worker exits after this.
    Unable {
        detail: String,
    },
    Progress {
        call: CallId,
        progress: Progress,
    },
    Answer {
        call: CallId,
        answer: Answer,
    },
    Pong {
        nonce: u64,
    },
    Drained {},
}

/// The announcement that a worker is ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    pub protocol: u32,
    pub build: String,
    pub catalog: Catalog,
    /// Facts that the pack reports in health, such as the fingerprint of its roots.
    pub facts: Json,
}

/// One step of progress (`tool-stability.md` §9).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    pub stream: Stream,
    pub phase: String,
}

/// Where a line of progress came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    #[default]
    Info,
    Stderr,
    Stdout,
    Debug,
}

/// The one answer of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Tool(ToolReply),
    Probed(Probed),
    Resources(Vec<ResourceSpec>),
    /// Members of the protocol result: `contents`, `messages` or `completion`.
    Members(Json),
    Forwarded(Forwarded),
    Failed(Problem),
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probed {
    /// The effect did not take place: running the call is safe.
    NotApplied {},
    /// It did; this is the answer the lost attempt would have given.
    Applied(ToolReply),
    /// It cannot be said.
    Unknown {},
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_cross_the_pipe_byte_for_byte() {
        let arguments =
            Json::parse(r#"{"n":1.00,"n2":123456789012345678901,"s":"\u00e9"}"#).unwrap();
        let message = ToWorker::Call(Call {
            call: CallId::new(7),
            attempt: 1,
            timeout_ms: 5,
            trace: None,
            op: Op::Tool {
                name: "t".into(),
                arguments,
                render: RenderMode::Json,
            },
        });
        let line = serde_json::to_string(&message).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<ToWorker>(&line).unwrap(), message);
        assert!(line.contains(r#"{"n":1.00,"n2":123456789012345678901,"s":"\u00e9"}"#));
    }

    #[test]
    fn every_message_is_tagged_by_its_only_key() {
        let line = serde_json::to_string(&ToWorker::Drain {}).unwrap();
        assert_eq!(line, r#"{"drain":{}}"#);
        let line = serde_json::to_string(&FromWorker::Pong { nonce: 3 }).unwrap();
        assert_eq!(line, r#"{"pong":{"nonce":3}}"#);
    }
}
