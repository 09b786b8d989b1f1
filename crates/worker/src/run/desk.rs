//! Which calls run, which wait, and what becomes of the next one.
//!
//! Invariant: a call waits only while the pool is full. [`Desk::admit`] and [`Desk::finished`]
//! keep it under one lock, so a call that waits is always taken by a thread that finishes.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::CallId;
use mainstay_contract::rpc::Call;

use crate::cancel::CancelToken;
use crate::sync::lock;

/// A call that was accepted.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) call: Call,
    pub(super) cancel: CancelToken,
    pub(super) received: Instant,
}

/// What becomes of a call.
#[derive(Debug)]
pub(super) enum Admission {
    /// The thread that read it runs it.
    Run(Job),
    Waits,
    Refused(CallId, ErrorKind),
}

/// What a thread does after a call.
#[derive(Debug)]
pub(super) enum Next {
    Run(Job),
    /// Get in line for the input.
    Lead,
    /// That was the last call before the drain is complete.
    Drained,
}

/// The calls of a worker.
#[derive(Debug)]
pub(super) struct Desk {
    /// Calls that may run at once, and as many that may wait.
    pool: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: Vec<(CallId, CancelToken)>,
    waiting: VecDeque<Job>,
    draining: bool,
}

impl Desk {
    pub(super) fn new(pool: usize) -> Self {
        Self {
            pool,
            state: Mutex::default(),
        }
    }

    pub(super) fn admit(&self, call: Call, received: Instant) -> Admission {
        let mut state = lock(&self.state);
        if state.draining {
            return Admission::Refused(call.call, ErrorKind::ShuttingDown);
        }
        if state.running.len() >= self.pool && state.waiting.len() >= self.pool {
            return Admission::Refused(call.call, ErrorKind::Overloaded);
        }
        let job = Job {
            call,
            cancel: CancelToken::new(),
            received,
        };
        if state.running.len() >= self.pool {
            state.waiting.push_back(job);
            return Admission::Waits;
        }
        state.start(&job);
        Admission::Run(job)
    }

    pub(super) fn finished(&self, call: CallId) -> Next {
        let mut state = lock(&self.state);
        state.running.retain(|(running, _)| *running != call);
        match state.waiting.pop_front() {
            Some(job) => {
                state.start(&job);
                Next::Run(job)
            }
            None if state.draining && state.running.is_empty() => Next::Drained,
            None => Next::Lead,
        }
    }

    /// Cancels a call. A running one is told; one that waits never starts and is returned, to be
    /// answered. One that has been answered already is nobody's.
    pub(super) fn cancel(&self, call: CallId) -> Option<CallId> {
        let mut state = lock(&self.state);
        if let Some((_, cancel)) = state.running.iter().find(|(running, _)| *running == call) {
            cancel.cancel();
            return None;
        }
        let at = state.waiting.iter().position(|job| job.call.call == call)?;
        state.waiting.remove(at).map(|job| job.call.call)
    }

    /// Refuses new calls from now on; says whether there is nothing to finish.
    pub(super) fn drain(&self) -> bool {
        let mut state = lock(&self.state);
        state.draining = true;
        state.running.is_empty() && state.waiting.is_empty()
    }

    /// The host has gone: nobody waits for anything.
    pub(super) fn abandon(&self) {
        let mut state = lock(&self.state);
        state.draining = true;
        state.waiting.clear();
        state.running.iter().for_each(|(_, cancel)| cancel.cancel());
    }
}

impl State {
    fn start(&mut self, job: &Job) {
        self.running.push((job.call.call, job.cancel.clone()));
    }
}

#[cfg(test)]
mod tests {
    use mainstay_contract::rpc::Op;

    use super::*;

    fn admit(desk: &Desk, number: u64) -> Admission {
        let call = Call {
            call: CallId::new(number),
            attempt: 1,
            timeout_ms: 1000,
            op: Op::ListResources {},
        };
        desk.admit(call, Instant::now())
    }

    #[test]
    fn calls_run_then_wait_then_are_refused() {
        let desk = Desk::new(2);
        assert!(matches!(admit(&desk, 1), Admission::Run(_)));
        assert!(matches!(admit(&desk, 2), Admission::Run(_)));
        assert!(matches!(admit(&desk, 3), Admission::Waits));
        assert!(matches!(admit(&desk, 4), Admission::Waits));
        assert!(matches!(
            admit(&desk, 5),
            Admission::Refused(_, ErrorKind::Overloaded)
        ));
        let Next::Run(job) = desk.finished(CallId::new(1)) else {
            panic!("3 waits")
        };
        assert_eq!(job.call.call, CallId::new(3));
        let Next::Run(job) = desk.finished(CallId::new(2)) else {
            panic!("4 waits")
        };
        assert_eq!(job.call.call, CallId::new(4));
        assert!(matches!(desk.finished(CallId::new(3)), Next::Lead));
    }

    #[test]
    fn a_cancel_tells_a_running_call_and_removes_a_waiting_one() {
        let desk = Desk::new(1);
        let Admission::Run(job) = admit(&desk, 1) else {
            panic!("the pool is free")
        };
        admit(&desk, 2);
        assert_eq!(desk.cancel(CallId::new(1)), None);
        assert!(job.cancel.is_cancelled());
        assert_eq!(desk.cancel(CallId::new(2)), Some(CallId::new(2)));
        assert_eq!(desk.cancel(CallId::new(3)), None);
        assert!(matches!(desk.finished(CallId::new(1)), Next::Lead));
    }

    #[test]
    fn a_drain_is_complete_after_the_last_call_and_refuses_new_ones() {
        let desk = Desk::new(1);
        admit(&desk, 1);
        admit(&desk, 2);
        assert!(!desk.drain());
        assert!(matches!(
            admit(&desk, 3),
            Admission::Refused(_, ErrorKind::ShuttingDown)
        ));
        assert!(matches!(desk.finished(CallId::new(1)), Next::Run(_)));
        assert!(matches!(desk.finished(CallId::new(2)), Next::Drained));
    }

    #[test]
    fn an_idle_worker_drains_at_once() {
        assert!(Desk::new(1).drain());
    }
}
