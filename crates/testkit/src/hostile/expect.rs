//! The answer that a hostile frame deserves.

use anyhow::ensure;
use serde_json::Value;

use crate::peer::Message;

/// What must come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Nothing.
    Silence,
    /// A JSON-RPC error with this code.
    Error { code: i64, id: Id, lane: Lane },
    /// A result of the direct dialect that says no, for this reason.
    DirectFailure { id: String, reason: &'static str },
    /// An MCP tool result with `isError`, whose payload has this code.
    ToolError { id: String, code: &'static str },
}

/// The id of an answer, as JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Id {
    Known(String),
    Null,
    /// No member `id` at all.
    Absent,
}

/// Whether an answer has its place in the order of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Direct requests, and what could not be decided: answered in request order.
    Ordered,
    /// MCP: in any order, found by id.
    Free,
}

impl Expectation {
    /// Bytes that are no JSON.
    pub(super) const fn parse_error() -> Self {
        Self::Error {
            code: -32700,
            id: Id::Null,
            lane: Lane::Ordered,
        }
    }

    /// JSON that is no message, without an id to answer to.
    pub(super) const fn nobodys_fault() -> Self {
        Self::Error {
            code: -32600,
            id: Id::Null,
            lane: Lane::Ordered,
        }
    }

    /// JSON that is no message, from somebody.
    pub(super) fn wrong(id: u64) -> Self {
        Self::Error {
            code: -32600,
            id: Id::Known(id.to_string()),
            lane: Lane::Ordered,
        }
    }

    /// A protocol error in MCP.
    pub(super) fn mcp(code: i64, id: u64) -> Self {
        Self::Error {
            code,
            id: Id::Known(id.to_string()),
            lane: Lane::Free,
        }
    }

    /// A tool that does not exist, in the direct dialect.
    pub(super) fn unknown_tool(id: u64) -> Self {
        Self::DirectFailure {
            id: id.to_string(),
            reason: "unsupported",
        }
    }

    /// Where the answer stands among the others; nothing for silence.
    pub const fn lane(&self) -> Option<Lane> {
        match self {
            Self::Silence => None,
            Self::Error { lane, .. } => Some(*lane),
            Self::DirectFailure { .. } => Some(Lane::Ordered),
            Self::ToolError { .. } => Some(Lane::Free),
        }
    }

    /// The id that the answer must have; nothing where it has none or there is no answer.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Silence | Self::Error { id: Id::Absent, .. } => None,
            Self::Error { id: Id::Null, .. } => Some("null"),
            Self::Error {
                id: Id::Known(id), ..
            }
            | Self::DirectFailure { id, .. }
            | Self::ToolError { id, .. } => Some(id),
        }
    }

    /// Judges an answer.
    pub fn check(&self, answer: &Message) -> anyhow::Result<()> {
        let version = answer.at("/jsonrpc");
        ensure!(version == "2.0", "jsonrpc is {version}");
        ensure!(answer.id() == self.id(), "the id is {:?}", answer.id());
        match self {
            Self::Silence => anyhow::bail!("there must be no answer"),
            Self::Error { code, .. } => {
                ensure!(answer.at("/error/code") == *code, "the code is not {code}");
                ensure!(
                    answer.at("/error/message").is_string(),
                    "there is no message"
                );
                ensure!(answer.member("result").is_none(), "there is a result too");
            }
            Self::DirectFailure { reason, .. } => {
                let (ok, why) = (answer.at("/result/ok"), answer.at("/result/reason"));
                ensure!(ok == false, "ok is {ok}");
                ensure!(why == *reason, "the reason is {why}");
            }
            Self::ToolError { code, .. } => {
                ensure!(answer.at("/result/isError") == true, "isError is not true");
                let text = answer.at("/result/content/0/text");
                let payload: Value = serde_json::from_str(text.as_str().unwrap_or_default())?;
                ensure!(
                    payload.get("code").is_some_and(|found| found == *code),
                    "the code is not {code}"
                );
            }
        }
        Ok(())
    }
}
