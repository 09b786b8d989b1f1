//! The bounded queue of calls that wait for one worker.

use std::collections::VecDeque;

use mainstay_contract::id::CallId;
use mainstay_contract::tool::Pace;
use serde::{Deserialize, Serialize};

use crate::defect::{Defect, is_planted};

/// How many times its limit a queue takes of all sessions together.
const SHARES: usize = 16;

/// Calls in the order in which they will be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    limit: usize,
    /// Each with its pace, so that a search for a short or a long one looks at nothing else.
    calls: VecDeque<(CallId, Pace)>,
}

/// The queue is full; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Queue {
    /// A queue that takes `limit` new calls.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            calls: VecDeque::new(),
        }
    }

    /// Takes another number of new calls from now on.
    pub const fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// A new call, last in line.
    pub fn push(&mut self, call: CallId, pace: Pace) -> Result<(), Full> {
        if self.calls.len() >= self.limit && !is_planted(Defect::QueueUnbounded) {
            return Err(Full);
        }
        self.calls.push_back((call, pace));
        Ok(())
    }

    /// A new call of one of several sessions, each of which has the limit for itself. `is_own` is true for calls of the
    /// same session.
    pub fn push_shared(
        &mut self,
        call: CallId,
        pace: Pace,
        is_own: impl Fn(CallId) -> bool,
    ) -> Result<(), Full> {
        let own = || self.calls.iter().filter(|(call, _)| is_own(*call)).count();
        let is_full = self.calls.len() >= self.limit.saturating_mul(SHARES)
            || self.calls.len() >= self.limit && own() >= self.limit;
        if is_full && !is_planted(Defect::QueueUnbounded) {
            return Err(Full);
        }
        self.calls.push_back((call, pace));
        Ok(())
    }

    /// A call that was admitted before and comes back, first in line. It cannot be refused; the
    /// excess over the limit is at most what workers ran at once.
    pub fn put_back(&mut self, call: CallId, pace: Pace) {
        self.calls.push_front((call, pace));
    }

    /// Takes the first call for which `may_go` holds.
    pub fn take_first(&mut self, mut may_go: impl FnMut(CallId, Pace) -> bool) -> Option<CallId> {
        let mut calls = self.calls.iter();
        let at = calls.position(|(call, pace)| may_go(*call, *pace))?;
        self.calls.remove(at).map(|(call, _)| call)
    }

    /// Removes a call that will not be sent.
    pub fn remove(&mut self, call: CallId) {
        self.calls.retain(|(waiting, _)| *waiting != call);
    }

    /// Empties the queue.
    pub fn take_all(&mut self) -> Vec<CallId> {
        self.calls.drain(..).map(|(call, _)| call).collect()
    }

    /// Calls waiting.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_new_calls_but_takes_back_old_ones() {
        let mut queue = Queue::new(2);
        assert_eq!(queue.push(CallId::new(1), Pace::Short), Ok(()));
        assert_eq!(queue.push(CallId::new(2), Pace::Long), Ok(()));
        assert_eq!(queue.push(CallId::new(3), Pace::Short), Err(Full));
        queue.put_back(CallId::new(0), Pace::Short);
        assert_eq!(queue.take_first(|_, _| true), Some(CallId::new(0)));
        assert_eq!(
            queue.take_first(|_, pace| pace == Pace::Long),
            Some(CallId::new(2))
        );
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn sessions_that_share_a_queue_each_have_its_limit() {
        let mut queue = Queue::new(2);
        let session = |call: CallId| call.get() / 100;
        let mut push = |call: u64| {
            let call = CallId::new(call);
            queue.push_shared(call, Pace::Short, |other| session(other) == session(call))
        };
        assert_eq!([push(1), push(2), push(3)], [Ok(()), Ok(()), Err(Full)]);
        assert_eq!(
            [push(101), push(102), push(103)],
            [Ok(()), Ok(()), Err(Full)]
        );
        let taken = (2..100).filter(|session| push(session * 100).is_ok());
        assert_eq!(
            taken.count() + 4,
            2 * SHARES,
            "all of them together are bounded"
        );
    }
}
