//! The bounded queue of calls that wait for one worker.

use std::collections::VecDeque;

use mainstay_contract::id::CallId;
use serde::{Deserialize, Serialize};

use crate::defect::{Defect, is_planted};

/// Calls in the order in which they will be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    limit: usize,
    calls: VecDeque<CallId>,
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

    /// A new call, last in line.
    pub fn push(&mut self, call: CallId) -> Result<(), Full> {
        if self.calls.len() >= self.limit && !is_planted(Defect::QueueUnbounded) {
            return Err(Full);
        }
        self.calls.push_back(call);
        Ok(())
    }

    /// A call that was admitted before and comes back, first in line. It cannot be refused; the
    /// excess over the limit is at most what workers ran at once.
    pub fn put_back(&mut self, call: CallId) {
        self.calls.push_front(call);
    }

    /// Takes the first call for which `may_go` holds.
    pub fn take_first(&mut self, mut may_go: impl FnMut(CallId) -> bool) -> Option<CallId> {
        let at = self.calls.iter().position(|call| may_go(*call))?;
        self.calls.remove(at)
    }

    /// Removes a call that will not be sent.
    pub fn remove(&mut self, call: CallId) {
        self.calls.retain(|waiting| *waiting != call);
    }

    /// Empties the queue.
    pub fn take_all(&mut self) -> Vec<CallId> {
        self.calls.drain(..).collect()
    }

    /// Calls waiting.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether none waits.
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
        assert_eq!(queue.push(CallId::new(1)), Ok(()));
        assert_eq!(queue.push(CallId::new(2)), Ok(()));
        assert_eq!(queue.push(CallId::new(3)), Err(Full));
        queue.put_back(CallId::new(0));
        assert_eq!(queue.take_first(|_| true), Some(CallId::new(0)));
        assert_eq!(
            queue.take_first(|call| call.get() != 1),
            Some(CallId::new(2))
        );
        assert_eq!(queue.len(), 1);
    }
}
