//! Testing a pack: single calls in process, and the real loop over real pipes.
//!
//! [`run_tool`] and its siblings call a pack the way a worker does, panic barrier included, on
//! the test's own thread. [`Peer`] stands in for the host: it starts the worker loop on two pipes
//! and speaks the protocol with it. [`TempDir`] is a directory that goes with its test.

#[cfg(unix)]
mod peer;
mod temp;

use std::time::{Duration, Instant};

use mainstay_contract::id::CallId;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Problem, ToolReply};
use mainstay_contract::render::{Bounds, RenderMode};
use mainstay_contract::rpc::{Answer, Op, Probed};
use serde_json::Value;

use crate::cancel::CancelToken;
use crate::context::{Context, Surroundings};
use crate::dispatch::dispatch;
use crate::pack::Pack;
use crate::progress::Reporter;

#[cfg(unix)]
pub use self::peer::{Peer, PeerError};
pub use self::temp::TempDir;
pub use mainstay_contract::rpc;

/// Time that a call in a test may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A context outside any worker. Its progress goes nowhere.
pub fn context(cancel: CancelToken) -> Context {
    context_with_grace(cancel, Duration::from_secs(2))
}

/// As [`context`], with another time between TERM and KILL.
pub fn context_with_grace(cancel: CancelToken, grace: Duration) -> Context {
    let call = CallId::new(1);
    let surroundings = Surroundings::new(grace, Bounds::PORCELAIN);
    Context {
        call,
        attempt: 1,
        timeout: TIMEOUT,
        deadline: Instant::now() + TIMEOUT,
        reporter: Reporter::new(call, cancel.clone(), None),
        cancel,
        trace: None,
        surroundings,
    }
}

/// Performs any operation of a pack.
pub fn perform(pack: &Pack, op: &Op) -> Answer {
    perform_in(pack, op, &context(CancelToken::new()))
}

/// Calls a tool in a context of the test's own, so that the test can cancel it.
pub fn perform_in(pack: &Pack, op: &Op, context: &Context) -> Answer {
    dispatch(pack, op, context)
}

/// Calls a tool and gives its JSON and its porcelain.
pub fn run_tool(pack: &Pack, name: &str, arguments: &Value) -> Result<ToolReply, Problem> {
    run_tool_within(pack, name, arguments, Bounds::PORCELAIN)
}

/// As [`run_tool`], with another size of the text.
pub fn run_tool_within(
    pack: &Pack,
    name: &str,
    arguments: &Value,
    text: Bounds,
) -> Result<ToolReply, Problem> {
    run(pack, name, arguments, RenderMode::Porcelain, text)
}

/// As [`run_tool`], for a caller that wants JSON: no text is written.
pub fn run_tool_as_json(pack: &Pack, name: &str, arguments: &Value) -> Result<ToolReply, Problem> {
    run(pack, name, arguments, RenderMode::Json, Bounds::PORCELAIN)
}

fn run(
    pack: &Pack,
    name: &str,
    arguments: &Value,
    render: RenderMode,
    text: Bounds,
) -> Result<ToolReply, Problem> {
    let op = Op::Tool {
        name: name.to_owned(),
        arguments: Json::from_serialize(arguments),
        render,
    };
    let mut context = context(CancelToken::new());
    context.surroundings.text = text;
    match perform_in(pack, &op, &context) {
        Answer::Tool(reply) => Ok(reply),
        Answer::Failed(problem) => Err(problem),
        other => Err(unexpected(&other)),
    }
}

/// Asks a tool whether an attempt took effect.
pub fn probe_tool(pack: &Pack, name: &str, arguments: &Value) -> Result<Probed, Problem> {
    let op = Op::Probe {
        name: name.to_owned(),
        arguments: Json::from_serialize(arguments),
    };
    match perform(pack, &op) {
        Answer::Probed(probed) => Ok(probed),
        Answer::Failed(problem) => Err(problem),
        other => Err(unexpected(&other)),
    }
}

/// Performs an operation whose answer is the members of a protocol result: reading a resource,
/// writing a prompt, completing an argument.
pub fn members(pack: &Pack, op: &Op) -> Result<Value, Problem> {
    match perform(pack, op) {
        Answer::Members(members) => Ok(members.to_value().unwrap_or_default()),
        Answer::Failed(problem) => Err(problem),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(answer: &Answer) -> Problem {
    use mainstay_contract::error::ErrorKind;
    Problem::new(
        ErrorKind::Internal,
        format!("an answer of the wrong kind: {answer:?}"),
    )
}
