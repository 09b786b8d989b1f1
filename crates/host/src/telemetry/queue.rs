//! State that the engine and the writing thread share.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mainstay_contract::telemetry::Event;

/// Events that may wait for a slow disk.
const QUEUE: usize = 8192;
/// How long the writer lets events gather.
const GATHER: Duration = Duration::from_millis(20);

/// Events on their way to the file.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// For the writer: something is there, or it is time to end.
    filled: Condvar,
    /// For the end and for a flush: the writer has written everything, or ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    dropped: u64,
    closing: bool,
    ended: bool,
    /// The writer has a batch that may not be written yet.
    writing: bool,
}

/// One batch of the writer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Batch {
    pub(super) events: Vec<Event>,
    /// Events that did not fit into the queue since the last batch.
    pub(super) dropped: u64,
}

impl Queue {
    /// Adds an event, or counts it where there is no room.
    pub(super) fn push(&self, event: Event) {
        let mut state = self.lock();
        if state.events.len() >= QUEUE {
            state.dropped += 1;
            return;
        }
        state.events.push(event);
        // The first one starts the pause in which others gather; half a queue ends it.
        let wakes = state.events.len() == 1 || state.events.len() == QUEUE / 2;
        drop(state);
        if wakes {
            self.filled.notify_one();
        }
    }

    /// Waits for the next batch; none when everything was taken and nothing will come.
    pub(super) fn take(&self) -> Option<Batch> {
        let mut state = self.lock();
        if std::mem::take(&mut state.writing) {
            self.ended.notify_all();
        }
        while state.events.is_empty() {
            if state.closing {
                return (state.dropped > 0).then(|| Batch {
                    events: Vec::new(),
                    dropped: std::mem::take(&mut state.dropped),
                });
            }
            let woken = self.filled.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        let until = Instant::now() + GATHER;
        while !state.closing && state.events.len() < QUEUE / 2 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.filled.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.writing = true;
        Some(Batch {
            events: std::mem::take(&mut state.events),
            dropped: std::mem::take(&mut state.dropped),
        })
    }

    /// The writer has ended.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.ended.notify_all();
    }

    /// Waits until everything that was pushed is written, not for long.
    pub(super) fn flush(&self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        while state.writing || !state.events.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.ended.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets the writer end, and waits for it. Whether it did in time.
    pub(super) fn close(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        state.closing = true;
        self.filled.notify_one();
        let until = Instant::now() + patience;
        while !state.ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.ended.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_contract::telemetry::Dropped;

    fn event(count: u64) -> Event {
        Event::Dropped(Dropped {
            ts: String::new(),
            host: String::new(),
            count,
        })
    }

    #[test]
    fn what_does_not_fit_is_counted_and_nobody_waits() {
        let queue = Queue::default();
        for count in 0..QUEUE as u64 + 7 {
            queue.push(event(count));
        }
        let batch = queue.take().unwrap();
        assert_eq!((batch.events.len(), batch.dropped), (QUEUE, 7));
        queue.push(event(1));
        assert!(!queue.close(Duration::ZERO));
        assert_eq!(queue.take().unwrap().events, [event(1)]);
        assert_eq!(queue.take(), None);
        queue.end();
        assert!(queue.close(Duration::ZERO));
    }
}
