//! The call that a tool runs: its facts, cancellation, progress and subprocesses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_contract::id::CallId;
use mainstay_contract::outcome::Problem;
use mainstay_contract::render::Bounds;
use mainstay_contract::rpc::Progress;
use mainstay_contract::trace::TraceContext;

use crate::cancel::CancelToken;
use crate::progress::Reporter;
#[cfg(unix)]
use crate::subprocess::Trees;

/// One call, seen from inside.
#[derive(Debug)]
pub struct Context {
    pub(crate) call: CallId,
    pub(crate) attempt: u32,
    pub(crate) timeout: Duration,
    pub(crate) deadline: Instant,
    pub(crate) cancel: CancelToken,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) surroundings: Surroundings,
}

/// State that all calls of a worker share.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// Time between TERM and KILL for subprocesses.
    pub(crate) grace: Duration,
    /// Size of an answer's text.
    pub(crate) text: Bounds,
    #[cfg(unix)]
    pub(crate) trees: Arc<Trees>,
}

impl Surroundings {
    pub(crate) fn new(grace: Duration, text: Bounds) -> Self {
        Self {
            grace,
            text,
            #[cfg(unix)]
            trees: Arc::default(),
        }
    }
}

impl Context {
    /// The host's number of this call.
    pub const fn call(&self) -> CallId {
        self.call
    }

    /// 1 for the first time the call is sent, more when it is repeated after a loss.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The span that this work belongs to, for what the tool asks of others: `to_string` gives the
    /// header `traceparent`.
    pub const fn trace(&self) -> Option<TraceContext> {
        self.trace
    }

    /// The time the call was given in all.
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// When the host stops waiting. The host enforces it; a tool may use it to plan.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Time left until the deadline.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    pub const fn cancel(&self) -> &CancelToken {
        &self.cancel
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Ends a cancelled call: `context.check()?` between two pieces of work.
    pub fn check(&self) -> Result<(), Problem> {
        self.cancel.check()
    }

    /// Sleeps, unless the call is cancelled first.
    pub fn sleep(&self, time: Duration) -> Result<(), Problem> {
        self.cancel.wait_timeout(time);
        self.cancel.check()
    }

    /// Reports progress. Cheap enough for every turn of a loop: at most 20 per second are sent,
    /// the latest wins, and none after a cancel.
    pub fn progress(&self, progress: Progress) {
        self.reporter.report(progress);
    }

    /// Reports progress as a count.
    pub fn step(&self, done: u64, total: u64, message: impl Into<String>) {
        self.progress(Progress {
            message: message.into(),
            done: Some(done),
            total: Some(total),
            phase: "progress".to_owned(),
            ..Progress::default()
        });
    }
}
