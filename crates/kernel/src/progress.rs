//! Progress of one call: at most so many notifications a second, the latest wins, and the
//! number that MCP wants to see increases with every one.

use std::collections::VecDeque;

use mainstay_contract::rpc::Progress;
use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Passes on at most so many items in any window of time. An item that waits is replaced by a later one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace<T> {
    items: usize,
    window_ms: u64,
    /// When the last items were passed on, oldest first; at most `items`.
    passed: VecDeque<Time>,
    pending: Option<T>,
}

impl<T> Pace<T> {
    /// At most `items` in any `window_ms`.
    pub fn new(items: usize, window_ms: u64) -> Self {
        Self {
            items: items.max(1),
            window_ms,
            passed: VecDeque::new(),
            pending: None,
        }
    }

    /// Takes an item. Returns it if it may be passed on now.
    pub fn handle(&mut self, now: Time, item: T) -> Option<T> {
        self.pending = Some(item);
        self.handle_timeout(now)
    }

    /// When to call [`Pace::handle_timeout`], if an item waits.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.pending.as_ref().map(|_| self.next())
    }

    /// Returns the item that waits, once there is room for it.
    pub fn handle_timeout(&mut self, now: Time) -> Option<T> {
        if now < self.next() {
            return None;
        }
        let item = self.pending.take()?;
        if self.passed.len() >= self.items {
            self.passed.pop_front();
        }
        self.passed.push_back(now);
        Some(item)
    }

    /// Returns the item that waits: nothing follows it.
    pub fn finish(self) -> Option<T> {
        self.pending
    }

    /// When the next item may be passed on.
    fn next(&self) -> Time {
        let oldest = self
            .passed
            .front()
            .filter(|_| self.passed.len() >= self.items);
        oldest.map_or_else(Time::default, |oldest| oldest.plus_ms(self.window_ms))
    }
}

/// Throttle of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throttle {
    pace: Pace<Progress>,
    step: u64,
}

/// One notification that may be sent now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Greater than in every earlier notification of the call.
    pub step: u64,
    pub progress: Progress,
}

impl Throttle {
    /// At most `per_second` notifications a second.
    pub fn new(per_second: u32) -> Self {
        Self {
            pace: Pace::new(1, 1000_u64.div_ceil(u64::from(per_second.max(1)))),
            step: 0,
        }
    }

    /// The tool reported progress.
    pub fn handle(&mut self, now: Time, progress: Progress) -> Option<Step> {
        let progress = self.pace.handle(now, progress)?;
        self.emit(progress)
    }

    /// When to call [`Throttle::handle_timeout`], if something is held back.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.pace.poll_timeout()
    }

    /// The window may have passed.
    pub fn handle_timeout(&mut self, now: Time) -> Option<Step> {
        let progress = self.pace.handle_timeout(now)?;
        self.emit(progress)
    }

    fn emit(&mut self, progress: Progress) -> Option<Step> {
        // Where the tool counts, its count is shown; a count that does not grow still moves on.
        // After the greatest number there is none to show.
        self.step = progress.done.unwrap_or(0).max(self.step.checked_add(1)?);
        Some(Step {
            step: self.step,
            progress,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(done: u64) -> Progress {
        Progress {
            done: Some(done),
            ..Progress::default()
        }
    }

    #[test]
    fn four_a_second_and_the_latest_wins() {
        let mut throttle = Throttle::new(4);
        assert!(throttle.handle(Time::from_ms(0), at(1)).is_some());
        assert!(throttle.handle(Time::from_ms(10), at(2)).is_none());
        assert!(throttle.handle(Time::from_ms(20), at(3)).is_none());
        assert_eq!(throttle.poll_timeout(), Some(Time::from_ms(250)));
        let step = throttle.handle_timeout(Time::from_ms(250)).unwrap();
        assert_eq!(step.progress, at(3));
        assert_eq!(throttle.poll_timeout(), None);
    }

    #[test]
    fn the_number_increases_even_when_the_tool_does_not() {
        let mut throttle = Throttle::new(4);
        let mut last = 0;
        for (second, done) in [(1, 5), (2, 5), (3, 2), (4, 90)] {
            let step = throttle
                .handle(Time::from_ms(second * 1000), at(done))
                .unwrap()
                .step;
            assert!(step > last);
            last = step;
        }
        assert_eq!(last, 90);
    }

    #[test]
    fn after_the_greatest_number_nothing_is_shown() {
        let mut throttle = Throttle::new(4);
        assert!(throttle.handle(Time::from_ms(0), at(u64::MAX)).is_some());
        assert_eq!(throttle.handle(Time::from_ms(1000), at(3)), None);
        assert_eq!(throttle.poll_timeout(), None);
    }
}
