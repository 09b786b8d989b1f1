//! A bounded queue between two threads on which every wait has a deadline.
//!
//! The standard channels cannot wait for room with a deadline, nor take an item from the middle.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Items in order, at most `limit` of them.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    limit: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// Why a wait ended without what was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// The deadline passed.
    Late,
    /// Nothing more will come or be taken.
    Closed,
}

impl<T> Mailbox<T> {
    pub(crate) const fn new(limit: usize) -> Self {
        Self {
            limit,
            state: Mutex::new(State {
                items: VecDeque::new(),
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Adds an item when there is room. Without a deadline it waits until there is, or until the
    /// box is closed.
    pub(crate) fn push(&self, item: T, until: Option<Instant>) -> Result<(), Missed> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return Err(Missed::Closed);
            }
            if state.items.len() < self.limit {
                state.items.push_back(item);
                drop(state);
                self.changed.notify_all();
                return Ok(());
            }
            state = self.wait(state, until)?;
        }
    }

    /// Takes the first item that `wanted` accepts; the others stay in their order.
    pub(crate) fn take(
        &self,
        mut wanted: impl FnMut(&T) -> bool,
        until: Option<Instant>,
    ) -> Result<T, Missed> {
        let mut state = self.lock();
        // Items that were refused once are not offered again.
        let mut seen = 0;
        loop {
            while let Some(item) = state.items.get(seen) {
                if wanted(item) {
                    let item = state.items.remove(seen).ok_or(Missed::Closed)?;
                    drop(state);
                    self.changed.notify_all();
                    return Ok(item);
                }
                seen += 1;
            }
            if state.closed {
                return Err(Missed::Closed);
            }
            state = self.wait(state, until)?;
        }
    }

    /// Says that nothing more comes; what is inside can still be taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// What is inside, from the first on.
    pub(crate) fn peek_all<R>(&self, look: impl FnMut(&T) -> R) -> Vec<R> {
        self.lock().items.iter().map(look).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The state is whole between any two statements above, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State<T>>,
        until: Option<Instant>,
    ) -> Result<MutexGuard<'a, State<T>>, Missed> {
        let Some(until) = until else {
            let woken = self.changed.wait(state);
            return Ok(woken.unwrap_or_else(PoisonError::into_inner));
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Missed::Late);
        }
        let woken = self.changed.wait_timeout(state, left);
        Ok(woken.unwrap_or_else(PoisonError::into_inner).0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(5))
    }

    #[test]
    fn items_are_taken_out_of_turn_and_the_rest_keeps_its_order() {
        let mailbox = Mailbox::new(8);
        for item in [1, 2, 3] {
            mailbox.push(item, None).unwrap();
        }
        assert_eq!(mailbox.take(|item| *item == 2, soon()), Ok(2));
        assert_eq!(mailbox.take(|_| true, soon()), Ok(1));
        assert_eq!(mailbox.take(|_| true, soon()), Ok(3));
        assert_eq!(mailbox.take(|_| true, soon()), Err(Missed::Late));
    }

    #[test]
    fn full_box_makes_the_writer_wait_and_a_closed_one_refuses() {
        let mailbox = Mailbox::new(1);
        mailbox.push(1, soon()).unwrap();
        assert_eq!(mailbox.push(2, soon()), Err(Missed::Late));
        mailbox.close();
        assert_eq!(mailbox.push(2, None), Err(Missed::Closed));
        assert_eq!(mailbox.take(|_| true, None), Ok(1));
        assert_eq!(mailbox.take(|_| true, None), Err(Missed::Closed));
    }
}
