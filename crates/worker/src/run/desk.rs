//! Which calls run, which wait, and what becomes of the next one.
//!
//! Short and long calls have a lane each, with as many places. Invariant: a call waits only while its
//! lane is full. [`Desk::admit`] and [`Desk::answered`] keep it under one lock, so a call that waits is
//! always taken by a thread that is done with one of the same lane.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::CallId;
use mainstay_contract::rpc::Call;
use mainstay_contract::tool::Pace;

use crate::cancel::CancelToken;
use crate::sync::lock;

/// A call that was accepted.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) call: Call,
    pub(super) pace: Pace,
    pub(super) cancel: CancelToken,
    pub(super) received: Instant,
}

/// The fate of a call.
#[derive(Debug)]
pub(super) enum Admission {
    /// The thread that read it runs it, or starts another for a long one.
    Run(Job),
    Waits,
    Refused(CallId, ErrorKind),
}

/// The calls of a worker.
#[derive(Debug)]
pub(super) struct Desk {
    /// Calls of each lane that may run at once, and as many that may wait.
    pool: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    short: Lane,
    long: Lane,
    /// Answers on their way out.
    unwritten: usize,
    draining: bool,
}

#[derive(Debug, Default)]
struct Lane {
    running: Vec<(CallId, CancelToken)>,
    waiting: VecDeque<Job>,
}

impl Desk {
    pub(super) fn new(pool: usize) -> Self {
        Self {
            pool,
            state: Mutex::default(),
        }
    }

    pub(super) fn admit(&self, call: Call, pace: Pace, received: Instant) -> Admission {
        let mut state = lock(&self.state);
        if state.draining {
            return Admission::Refused(call.call, ErrorKind::ShuttingDown);
        }
        let lane = state.lane(pace);
        let full = lane.running.len() >= self.pool;
        if full && lane.waiting.len() >= self.pool {
            return Admission::Refused(call.call, ErrorKind::Overloaded);
        }
        let job = Job {
            call,
            pace,
            cancel: CancelToken::new(),
            received,
        };
        if full {
            lane.waiting.push_back(job);
            return Admission::Waits;
        }
        lane.start(&job);
        Admission::Run(job)
    }

    /// A call has its answer, which is about to be written. Its place is free from here on, so
    /// that the host may fill it as soon as it has read the answer; a call that waits takes it.
    pub(super) fn answered(&self, call: CallId, pace: Pace) -> Option<Job> {
        let mut state = lock(&self.state);
        state.unwritten += 1;
        let lane = state.lane(pace);
        lane.running.retain(|(running, _)| *running != call);
        let job = lane.waiting.pop_front()?;
        lane.start(&job);
        Some(job)
    }

    /// An answer was written; says whether it was the last one of a drain.
    pub(super) fn written(&self) -> bool {
        let mut state = lock(&self.state);
        state.unwritten = state.unwritten.saturating_sub(1);
        state.draining && state.is_idle()
    }

    /// Cancels a call. A running one is told; one that waits never starts and is returned, to be
    /// answered. One that has been answered already belongs to none.
    pub(super) fn cancel(&self, call: CallId) -> Option<CallId> {
        let mut state = lock(&self.state);
        state.lanes().into_iter().find_map(|lane| lane.cancel(call))
    }

    /// Refuses new calls from now on; says whether there is nothing to finish.
    pub(super) fn drain(&self) -> bool {
        let mut state = lock(&self.state);
        state.draining = true;
        state.is_idle()
    }

    /// The host has gone: answers have no reader.
    pub(super) fn abandon(&self) {
        let mut state = lock(&self.state);
        state.draining = true;
        for lane in state.lanes() {
            lane.waiting.clear();
            lane.running.iter().for_each(|(_, cancel)| cancel.cancel());
        }
    }
}

impl State {
    const fn lane(&mut self, pace: Pace) -> &mut Lane {
        match pace {
            Pace::Short => &mut self.short,
            Pace::Long => &mut self.long,
        }
    }

    const fn lanes(&mut self) -> [&mut Lane; 2] {
        [&mut self.short, &mut self.long]
    }

    fn is_idle(&mut self) -> bool {
        let unwritten = self.unwritten;
        let mut lanes = self.lanes().into_iter();
        unwritten == 0 && lanes.all(|lane| lane.running.is_empty() && lane.waiting.is_empty())
    }
}

impl Lane {
    fn start(&mut self, job: &Job) {
        self.running.push((job.call.call, job.cancel.clone()));
    }

    /// Cancels a running call, or takes out one that waits.
    fn cancel(&mut self, call: CallId) -> Option<CallId> {
        if let Some((_, cancel)) = self.running.iter().find(|(running, _)| *running == call) {
            cancel.cancel();
            return None;
        }
        let at = self.waiting.iter().position(|job| job.call.call == call)?;
        self.waiting.remove(at).map(|job| job.call.call)
    }
}

#[cfg(test)]
mod tests {
    use mainstay_contract::rpc::Op;

    use super::*;

    fn admit(desk: &Desk, number: u64) -> Admission {
        admit_as(desk, number, Pace::Short)
    }

    fn admit_as(desk: &Desk, number: u64, pace: Pace) -> Admission {
        let call = Call {
            call: CallId::new(number),
            attempt: 1,
            timeout_ms: 1000,
            trace: None,
            op: Op::ListResources {},
        };
        desk.admit(call, pace, Instant::now())
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
        let job = desk.answered(CallId::new(1), Pace::Short).unwrap();
        assert_eq!(job.call.call, CallId::new(3));
        // One place in the queue is free again as soon as the first answer is under way.
        assert!(matches!(admit(&desk, 6), Admission::Waits));
        let job = desk.answered(CallId::new(2), Pace::Short).unwrap();
        assert_eq!(job.call.call, CallId::new(4));
        assert!(!desk.written());
    }

    #[test]
    fn long_calls_take_no_place_of_short_ones() {
        let desk = Desk::new(1);
        assert!(matches!(admit_as(&desk, 1, Pace::Long), Admission::Run(_)));
        assert!(matches!(admit_as(&desk, 2, Pace::Long), Admission::Waits));
        assert!(matches!(admit(&desk, 3), Admission::Run(_)));
        assert!(desk.answered(CallId::new(3), Pace::Short).is_none());
        let next = desk.answered(CallId::new(1), Pace::Long).unwrap();
        assert_eq!(next.call.call, CallId::new(2));
        assert!(!desk.drain());
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
        assert!(desk.answered(CallId::new(1), Pace::Short).is_none());
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
        assert!(desk.answered(CallId::new(1), Pace::Short).is_some());
        assert!(!desk.written());
        assert!(desk.answered(CallId::new(2), Pace::Short).is_none());
        assert!(desk.written());
    }

    #[test]
    fn a_drain_waits_for_answers_that_are_being_written() {
        let desk = Desk::new(2);
        admit(&desk, 1);
        admit(&desk, 2);
        desk.answered(CallId::new(1), Pace::Short);
        desk.answered(CallId::new(2), Pace::Short);
        assert!(!desk.drain());
        assert!(!desk.written());
        assert!(desk.written());
    }

    #[test]
    fn an_idle_worker_drains_at_once() {
        assert!(Desk::new(1).drain());
    }
}
