//! A child from its start to its reaping.
//!
//! # Theory of operation
//!
//! One loop on the call's own thread: wait a tick for the pipes, move bytes, look whether the
//! child has ended. [`Stage`] says how far stopping it has come:
//!
//! * `Running` until a cancel or the timeout, which send TERM to the group;
//! * `Terminating` until the grace is over, which sends KILL to the group;
//! * `Killing` until the child has ended. Should even that take too long (a process stuck in the
//!   kernel), a thread is left behind to reap it, and a warning says so.
//!
//! The child's end is seen without reaping it, so its number stays taken while the rest of its
//! group is killed. A group that is being terminated keeps its grace after the leader's end for
//! as long as a process holds the output pipes.

use std::process::Child;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::Problem;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::command::Output;
use super::pipes::ChildPipes;
use super::tree::{Strength, kill_tree};
use crate::context::Context;
use crate::warning::warn;

/// How often a cancel and an end without output are looked for.
const TICK: Duration = Duration::from_millis(10);

/// The same, once the output has ended and the child is about to.
const SHORT_TICK: Duration = Duration::from_millis(1);

/// How long a killed child may take to end.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// Bytes of each stream in the problem of a stopped child.
const TAIL_BYTES: usize = 4096;

#[derive(Clone, Copy, Debug)]
enum Stage {
    Running,
    Terminating { why: ErrorKind, until: Instant },
    Killing { why: ErrorKind, until: Instant },
}

/// A child that is being looked after.
#[derive(Debug)]
pub(super) struct Supervised<'a> {
    child: Child,
    pid: Pid,
    to_write: Vec<u8>,
    capture_bytes: usize,
    timeout: Duration,
    deadline: Instant,
    context: &'a Context,
}

impl<'a> Supervised<'a> {
    pub(super) fn new(
        child: Child,
        to_write: Vec<u8>,
        capture_bytes: usize,
        timeout: Duration,
        context: &'a Context,
    ) -> Self {
        let pid = Pid::from_child(&child);
        let deadline = Instant::now() + timeout;
        Self {
            child,
            pid,
            to_write,
            capture_bytes,
            timeout,
            deadline,
            context,
        }
    }

    pub(super) fn run(mut self) -> Result<Output, Problem> {
        let to_write = std::mem::take(&mut self.to_write);
        let mut pipes = match ChildPipes::new(&mut self.child, to_write, self.capture_bytes) {
            Ok(pipes) => pipes,
            Err(error) => {
                kill_tree(self.pid, Strength::Kill);
                self.reap_later();
                let message = format!("cannot serve the pipes of a subprocess: {error}");
                return Err(Problem::new(ErrorKind::Internal, message));
            }
        };
        let mut stage = Stage::Running;
        loop {
            stage = self.advance(stage, &mut pipes);
            pipes.wait(if pipes.ended() { SHORT_TICK } else { TICK });
            pipes.transfer();
            if let Stage::Killing { why, until } = stage
                && Instant::now() >= until
            {
                warn(
                    "kill_failed",
                    &format!("pid={} has not ended", self.pid.as_raw_nonzero()),
                );
                let problem = self.stopped(why, pipes);
                self.reap_later();
                return Err(problem);
            }
            let lingers = matches!(stage, Stage::Terminating { .. }) && !pipes.ended();
            if self.has_ended() && !lingers {
                // What was written before the end may still be in the pipes.
                pipes.transfer();
                return self.finish(stage, pipes);
            }
        }
    }

    fn advance(&self, stage: Stage, pipes: &mut ChildPipes) -> Stage {
        let now = Instant::now();
        match stage {
            Stage::Running => {
                let why = if self.context.is_cancelled() {
                    ErrorKind::Cancelled
                } else if now >= self.deadline {
                    ErrorKind::Timeout
                } else {
                    return stage;
                };
                // What was written before this moment counts, nothing after it.
                pipes.transfer();
                pipes.stop_capturing();
                kill_tree(self.pid, Strength::Terminate);
                Stage::Terminating {
                    why,
                    until: now + self.context.surroundings.grace,
                }
            }
            Stage::Terminating { why, until } if now >= until => {
                kill_tree(self.pid, Strength::Kill);
                Stage::Killing {
                    why,
                    until: now + KILL_WAIT,
                }
            }
            Stage::Terminating { .. } | Stage::Killing { .. } => stage,
        }
    }

    /// True if the child has ended; it is not reaped by this.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // A failure means that such a child does not exist; reaping will find out as well.
        !matches!(waitid(WaitId::Pid(self.pid), options), Ok(None))
    }

    fn finish(mut self, stage: Stage, pipes: ChildPipes) -> Result<Output, Problem> {
        let status = self.context.surroundings.trees.reap(&mut self.child);
        match (stage, status) {
            (Stage::Terminating { why, .. } | Stage::Killing { why, .. }, _) => {
                Err(self.stopped(why, pipes))
            }
            (Stage::Running, Ok(status)) => {
                let (stdout, stderr) = pipes.into_captured();
                Ok(Output {
                    status,
                    stdout,
                    stderr,
                })
            }
            (Stage::Running, Err(error)) => Err(Problem::new(
                ErrorKind::Internal,
                format!("cannot learn how a subprocess ended: {error}"),
            )),
        }
    }

    /// Leaves a child that was killed and does not end to a thread of its own.
    fn reap_later(self) {
        let Self {
            mut child,
            pid,
            context,
            ..
        } = self;
        let trees = Arc::clone(&context.surroundings.trees);
        let wait = move || {
            let _ = waitid(
                WaitId::Pid(pid),
                WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
            );
            let _ = trees.reap(&mut child);
        };
        if let Err(error) = thread::Builder::new().name("reaper".into()).spawn(wait) {
            warn("reap_failed", &format!("cannot start a thread: {error}"));
        }
    }

    fn stopped(&self, why: ErrorKind, pipes: ChildPipes) -> Problem {
        let (stdout, stderr) = pipes.into_captured();
        let mut problem = Problem::of(why);
        if why == ErrorKind::Timeout {
            let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
            problem = problem.with_timeout(timeout_ms);
        }
        problem.stdout = Some(stdout.tail(TAIL_BYTES)).filter(|text| !text.is_empty());
        problem.stderr = Some(stderr.tail(TAIL_BYTES)).filter(|text| !text.is_empty());
        problem
    }
}
