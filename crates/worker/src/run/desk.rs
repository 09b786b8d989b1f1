//! Which calls run, which wait, and what becomes of the next one.
//!
//! Invariant: a call waits only while the pool is full. [`Desk::admit`] and [`Desk::answered`]
//! keep it under one lock, so a call that waits is always taken by a thread that is done with one.

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
    /// Answers on their way out.
    unwritten: usize,
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

    /// A call has its answer, which is about to be written. Its place is free from here on, so
    /// that the host may fill it as soon as it has read the answer; a call that waits takes it.
    pub(super) fn answered(&self, call: CallId) -> Option<Job> {
        let mut state = lock(&self.state);
        state.running.retain(|(running, _)| *running != call);
        state.unwritten += 1;
        let job = state.waiting.pop_front()?;
        state.start(&job);
        Some(job)
    }

    /// An answer was written; says whether it was the last one of a drain.
    pub(super) fn written(&self) -> bool {
        let mut state = lock(&self.state);
        state.unwritten = state.unwritten.saturating_sub(1);
        state.draining && state.is_idle()
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
        state.is_idle()
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
    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && self.unwritten == 0
    }

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
            trace: None,
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
        let job = desk.answered(CallId::new(1)).unwrap();
        assert_eq!(job.call.call, CallId::new(3));
        // One place in the queue is free again as soon as the first answer is under way.
        assert!(matches!(admit(&desk, 6), Admission::Waits));
        let job = desk.answered(CallId::new(2)).unwrap();
        assert_eq!(job.call.call, CallId::new(4));
        assert!(!desk.written());
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
        assert!(desk.answered(CallId::new(1)).is_none());
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
        assert!(desk.answered(CallId::new(1)).is_some());
        assert!(!desk.written());
        assert!(desk.answered(CallId::new(2)).is_none());
        assert!(desk.written());
    }

    #[test]
    fn a_drain_waits_for_answers_that_are_being_written() {
        let desk = Desk::new(2);
        admit(&desk, 1);
        admit(&desk, 2);
        desk.answered(CallId::new(1));
        desk.answered(CallId::new(2));
        assert!(!desk.drain());
        assert!(!desk.written());
        assert!(desk.written());
    }

    #[test]
    fn an_idle_worker_drains_at_once() {
        assert!(Desk::new(1).drain());
    }
}
