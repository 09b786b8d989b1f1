//! The queue of checks: bounded, in order within a session, round-robin among sessions.
//!
//! A session may run one check less than there are checkers, so that its expensive checks never keep
//! another session waiting for its first one.

use std::collections::{BTreeMap, VecDeque};
use tokio::time::Instant;

/// A check that waits.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) ticket: u64,
    /// The session that pays for it.
    pub(super) fair: u64,
    pub(super) deadline: Instant,
    /// Bytes of its value.
    pub(super) bytes: usize,
    pub(super) work: T,
}

#[derive(Debug)]
pub(super) struct Queue<T> {
    checks: usize,
    most_checks: usize,
    bytes: usize,
    most_bytes: usize,
    /// Checks of one session that may run at the same time.
    share: usize,
    sessions: BTreeMap<u64, VecDeque<Waiting<T>>>,
    /// The sessions that wait; the first one is next.
    turns: VecDeque<u64>,
    running: BTreeMap<u64, usize>,
}

impl<T> Queue<T> {
    pub(super) fn new(most_checks: usize, most_bytes: usize, checkers: usize) -> Self {
        Self {
            checks: 0,
            most_checks,
            bytes: 0,
            most_bytes,
            share: checkers.saturating_sub(1).max(1),
            sessions: BTreeMap::new(),
            turns: VecDeque::new(),
            running: BTreeMap::new(),
        }
    }

    /// Adds a check, or gives it back if the queue is full.
    pub(super) fn push(&mut self, waiting: Waiting<T>) -> Result<(), Waiting<T>> {
        let bytes = self.bytes.saturating_add(waiting.bytes);
        // A single large value may wait alone.
        let is_full =
            self.checks >= self.most_checks || (bytes > self.most_bytes && self.checks > 0);
        if is_full {
            return Err(waiting);
        }
        self.checks += 1;
        self.bytes = bytes;
        let session = self.sessions.entry(waiting.fair).or_default();
        if session.is_empty() {
            self.turns.push_back(waiting.fair);
        }
        session.push_back(waiting);
        Ok(())
    }

    /// Takes the next check to run. [`Queue::finish`] must follow.
    pub(super) fn pop(&mut self) -> Option<Waiting<T>> {
        let at = self
            .turns
            .iter()
            .position(|fair| self.running.get(fair).copied().unwrap_or_default() < self.share)?;
        let fair = self.turns.remove(at)?;
        let waiting = self.sessions.get_mut(&fair)?.pop_front()?;
        self.left(&waiting);
        if self.sessions.contains_key(&fair) {
            self.turns.push_back(fair);
        }
        *self.running.entry(fair).or_default() += 1;
        Some(waiting)
    }

    /// A check of this session has ended.
    pub(super) fn finish(&mut self, fair: u64) {
        if let Some(count) = self.running.get_mut(&fair) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.running.remove(&fair);
            }
        }
    }

    /// Removes a check that waits.
    pub(super) fn remove(&mut self, ticket: u64) -> Option<Waiting<T>> {
        self.take_first(|waiting| waiting.ticket == ticket)
    }

    /// Removes a check whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Waiting<T>> {
        self.take_first(|waiting| waiting.deadline <= now)
    }

    /// The earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let all = self.sessions.values().flatten();
        all.map(|waiting| waiting.deadline).min()
    }

    /// Drops every check that waits.
    pub(super) fn clear(&mut self) {
        self.sessions.clear();
        self.turns.clear();
        self.checks = 0;
        self.bytes = 0;
    }

    fn take_first(&mut self, is_wanted: impl Fn(&Waiting<T>) -> bool) -> Option<Waiting<T>> {
        let waiting = self.sessions.values_mut().find_map(|session| {
            let at = session.iter().position(&is_wanted)?;
            session.remove(at)
        })?;
        self.left(&waiting);
        let fair = waiting.fair;
        if !self.sessions.contains_key(&fair) {
            self.turns.retain(|turn| *turn != fair);
        }
        Some(waiting)
    }

    /// Accounts for a check that was taken out.
    fn left(&mut self, waiting: &Waiting<T>) {
        self.checks = self.checks.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(waiting.bytes);
        let session = self.sessions.get(&waiting.fair);
        if session.is_some_and(VecDeque::is_empty) {
            self.sessions.remove(&waiting.fair);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn waiting(ticket: u64, fair: u64, bytes: usize) -> Waiting<()> {
        Waiting {
            ticket,
            fair,
            deadline: Instant::now() + Duration::from_secs(ticket),
            bytes,
            work: (),
        }
    }

    fn queue(all: &[(u64, u64)], checkers: usize) -> Queue<()> {
        let mut queue = Queue::new(100, 1_000, checkers);
        for (ticket, fair) in all {
            queue.push(waiting(*ticket, *fair, 1)).unwrap();
        }
        queue
    }

    fn order(queue: &mut Queue<()>) -> Vec<u64> {
        let next = || {
            let next = queue.pop()?;
            queue.finish(next.fair);
            Some(next.ticket)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn sessions_take_turns_and_keep_their_order() {
        let mut queue = queue(&[(1, 7), (2, 7), (3, 7), (4, 8), (5, 9), (6, 8)], 2);
        assert_eq!(order(&mut queue), [1, 4, 5, 2, 6, 3]);
    }

    #[test]
    fn a_session_leaves_one_checker_to_the_others() {
        let mut queue = queue(&[(1, 7), (2, 7), (3, 7)], 2);
        assert_eq!(queue.pop().unwrap().ticket, 1);
        assert!(queue.pop().is_none(), "its share is used up");
        queue.push(waiting(4, 8, 1)).unwrap();
        assert_eq!(queue.pop().unwrap().ticket, 4);
        assert!(queue.pop().is_none());
        queue.finish(7);
        assert_eq!(queue.pop().unwrap().ticket, 2);
        let mut alone = self::queue(&[(1, 7), (2, 7)], 1);
        assert_eq!(order(&mut alone), [1, 2], "a single checker serves all");
    }

    #[test]
    fn a_full_queue_gives_checks_back() {
        let mut queue = Queue::new(2, 100, 2);
        queue.push(waiting(1, 1, 200)).unwrap();
        assert_eq!(queue.push(waiting(2, 1, 1)).unwrap_err().ticket, 2);
        assert_eq!(queue.remove(1).unwrap().ticket, 1);
        queue.push(waiting(3, 1, 1)).unwrap();
        queue.push(waiting(4, 2, 99)).unwrap();
        assert_eq!(queue.push(waiting(5, 3, 0)).unwrap_err().ticket, 5);
    }

    #[test]
    fn checks_are_removed_by_ticket_and_by_deadline() {
        let mut queue = queue(&[(1, 7), (2, 7), (3, 8)], 3);
        let soon = queue.next_deadline().unwrap();
        assert_eq!(queue.expire(soon).unwrap().ticket, 1);
        assert!(queue.expire(soon).is_none());
        assert_eq!(queue.remove(3).unwrap().ticket, 3);
        assert!(queue.remove(3).is_none());
        assert_eq!(order(&mut queue), [2]);
        assert!(queue.next_deadline().is_none());
    }
}
