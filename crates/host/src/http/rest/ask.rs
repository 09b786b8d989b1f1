//! One typed request, and its typed end.

use std::time::Instant;

use mainstay_contract::dialect::{Op, Request, TaskWish};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::RequestId;
use mainstay_contract::outcome::{Outcome, Problem};
use mainstay_contract::telemetry::millis;
use mainstay_contract::trace::TraceContext;
use tokio::sync::oneshot;

use super::super::access::Credential;
use super::super::{Front, listen};
use crate::engine::Single;
use crate::forwarded::{self, Reader};

/// How a request ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// The tool that was found.
    pub(super) tool: Option<String>,
    /// How often it was sent again.
    pub(super) repeated: u64,
    pub(super) duration_ms: f64,
}

impl Ended {
    /// It ended before anybody was asked.
    pub(super) fn refused(problem: Problem) -> Self {
        Self::after(Instant::now(), Err(problem))
    }

    /// It ended now.
    pub(super) fn after(started: Instant, outcome: Outcome) -> Self {
        Self {
            outcome,
            tool: None,
            repeated: 0,
            duration_ms: millis_since(started),
        }
    }
}

/// Milliseconds since then, as exact as microseconds.
pub(super) fn millis_since(started: Instant) -> f64 {
    (started.elapsed().as_secs_f64() * 1e6).round() / 1e3
}

/// Facts about a request beside its operation.
#[derive(Clone, Debug)]
pub(super) struct Order<'a> {
    pub(super) bytes: usize,
    /// Under which it is known in telemetry.
    pub(super) id: &'a str,
    pub(super) reader: Reader,
    /// The span of the client that asks.
    pub(super) trace: Option<TraceContext>,
    /// The caller takes a task for an answer, or names a key.
    pub(super) task: Option<TaskWish>,
}

impl Order<'static> {
    /// A request of the front itself.
    pub(super) const fn own(id: &'static str) -> Self {
        Self {
            bytes: 0,
            id,
            reader: Reader::Program,
            trace: None,
            task: None,
        }
    }
}

/// Runs a request of a caller. A caller that stops waiting cancels its request.
pub(super) async fn run(front: &Front, who: &Credential, op: Op, order: Order<'_>) -> Ended {
    let started = Instant::now();
    let (reply, answer) = oneshot::channel();
    let (_wanting, wanted) = oneshot::channel();
    let request = Request {
        id: RequestId::from_text(order.id),
        dialect: order.reader.dialect(),
        op,
        progress_token: None,
        trace: order.trace,
        task: order.task,
    };
    if let Op::CallTool { name, .. } = &request.op {
        listen::name_request(format!("tool {name:.64}"));
    }
    let single = Single {
        request,
        bytes: order.bytes,
        caller: who.caller(),
        reply,
        steps: None,
        wanted,
    };
    front.back.single(Box::new(single)).await;
    match answer.await {
        Ok(Ok(end)) => Ended {
            outcome: forwarded::outcome_of(end.outcome, order.reader),
            tool: end.tool,
            repeated: u64::from(end.attempt.saturating_sub(1)),
            duration_ms: millis(end.latency_us),
        },
        Ok(Err(problem)) => Ended::after(started, Err(problem)),
        Err(_) => Ended::after(started, Err(Problem::of(ErrorKind::ShuttingDown))),
    }
}
