//! The lines of a remote server that are not answered for: waiting, or with an exchange under way.
//!
//! The engine pushes lines and never waits; the driver takes them one by one. An exchange marks its line as
//! sent before the first byte of it leaves, under the lock of [`LineQueue::seal`]: so after a loss each call is
//! either unsent, and then never leaves, or it was sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mainstay_contract::id::CallId;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// Names one line under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Ticket(u64);

/// A line, and the call that it hands over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QueuedLine {
    pub(super) text: String,
    pub(super) call: Option<CallId>,
    /// Arguments that the request repeats as headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) headers: Vec<(String, String)>,
}

/// A line whose exchange was under way when the host paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Interrupted {
    pub(super) line: QueuedLine,
    /// The last event of its stream, where the server numbers them.
    pub(super) last_event: Option<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LineQueue {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// More waiting bytes than this, and the server is behind.
    mark: usize,
    waiting: VecDeque<QueuedLine>,
    bytes: usize,
    active: BTreeMap<Ticket, Active>,
    next: u64,
    closed: bool,
    sealed: bool,
    /// The engine saw that the server is behind and waits for the report that it caught up.
    report_owed: bool,
}

#[derive(Debug)]
struct Active {
    line: QueuedLine,
    sent: bool,
    last_event: Option<String>,
}

impl Inner {
    const fn is_behind(&self) -> bool {
        !self.sealed && self.bytes > self.mark
    }
}

impl LineQueue {
    pub(super) fn with_mark(mark: usize) -> Self {
        let queue = Self::default();
        queue.lock().mark = mark;
        queue
    }

    pub(super) fn push(&self, text: &str, call: Option<CallId>, headers: Vec<(String, String)>) {
        {
            let mut inner = self.lock();
            if inner.closed {
                return;
            }
            inner.bytes += text.len();
            let text = text.to_owned();
            inner.waiting.push_back(QueuedLine {
                text,
                call,
                headers,
            });
        }
        self.changed.notify_one();
    }

    /// The next line, or `None` when the queue is closed and empty.
    pub(super) async fn next(&self) -> Option<(Ticket, QueuedLine)> {
        loop {
            {
                let mut inner = self.lock();
                if let Some(line) = inner.waiting.pop_front() {
                    inner.bytes -= line.text.len();
                    let ticket = Ticket(inner.next);
                    inner.next += 1;
                    let active = Active {
                        line: line.clone(),
                        sent: false,
                        last_event: None,
                    };
                    inner.active.insert(ticket, active);
                    return Some((ticket, line));
                }
                if inner.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Bytes of the line leave from now on. False if they must not.
    pub(super) fn mark_sent(&self, ticket: Ticket) -> bool {
        let mut inner = self.lock();
        let may_send = !inner.sealed;
        if let Some(active) = inner.active.get_mut(&ticket) {
            active.sent = may_send;
        }
        may_send
    }

    /// The server did not run the line: no byte left, or the server rejected it.
    pub(super) fn mark_unsent(&self, ticket: Ticket) {
        if let Some(active) = self.lock().active.get_mut(&ticket) {
            active.sent = false;
        }
    }

    /// The stream of a line has come so far.
    pub(super) fn reached(&self, ticket: Ticket, last_event: Option<&String>) {
        if let Some(active) = self.lock().active.get_mut(&ticket) {
            active.last_event = last_event.cloned();
        }
    }

    /// The exchange of a line is over.
    pub(super) fn finish(&self, ticket: Ticket) {
        self.lock().active.remove(&ticket);
    }

    /// Nothing more will be pushed.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// Nothing more may be sent. Returns the calls that were not.
    pub(super) fn seal(&self) -> Vec<CallId> {
        let unsent = {
            let mut inner = self.lock();
            inner.closed = true;
            inner.sealed = true;
            inner.bytes = 0;
            let active = std::mem::take(&mut inner.active);
            let waiting = std::mem::take(&mut inner.waiting);
            let active = active.into_values().filter(|active| !active.sent);
            let active = active.map(|active| active.line);
            active.chain(waiting).filter_map(|line| line.call).collect()
        };
        self.changed.notify_one();
        unsent
    }

    pub(super) fn is_behind(&self) -> bool {
        self.lock().is_behind()
    }

    /// As [`Self::is_behind`]; if it is, one [`Self::take_caught_up`] is true once it no longer is.
    pub(super) fn watch_behind(&self) -> bool {
        let mut inner = self.lock();
        inner.report_owed = inner.is_behind();
        inner.report_owed
    }

    pub(super) fn take_caught_up(&self) -> bool {
        let mut inner = self.lock();
        let caught_up = inner.report_owed && !inner.is_behind();
        inner.report_owed &= !caught_up;
        caught_up
    }

    /// After every exchange was stopped: lines that were not sent wait again, in their order. Returns the others.
    pub(super) fn interrupt(&self) -> Vec<Interrupted> {
        let mut inner = self.lock();
        let mut interrupted = Vec::new();
        let active = std::mem::take(&mut inner.active);
        for active in active.into_values().rev() {
            if active.sent {
                interrupted.push(Interrupted {
                    line: active.line,
                    last_event: active.last_event,
                });
            } else {
                inner.bytes += active.line.text.len();
                inner.waiting.push_front(active.line);
            }
        }
        interrupted.reverse();
        interrupted
    }

    /// A line whose exchange goes on after a pause.
    pub(super) fn resume(&self, interrupted: &Interrupted) -> Ticket {
        let mut inner = self.lock();
        let ticket = Ticket(inner.next);
        inner.next += 1;
        let active = Active {
            line: interrupted.line.clone(),
            sent: true,
            last_event: interrupted.last_event.clone(),
        };
        inner.active.insert(ticket, active);
        ticket
    }

    /// The lines that wait, and whether more may come.
    pub(super) fn save(&self) -> (Vec<QueuedLine>, bool) {
        let inner = self.lock();
        (inner.waiting.iter().cloned().collect(), inner.closed)
    }

    pub(super) fn restore(mark: usize, waiting: Vec<QueuedLine>, closed: bool) -> Self {
        let queue = Self::with_mark(mark);
        {
            let mut inner = queue.lock();
            inner.bytes = waiting.iter().map(|line| line.text.len()).sum();
            inner.waiting = waiting.into();
            inner.closed = closed;
        }
        queue
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Plain data: a panic elsewhere leaves it whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_is_unsent_until_its_first_byte_may_leave() {
        let queue = LineQueue::default();
        for call in 1..=4 {
            queue.push("{}", Some(CallId::new(call)), Vec::new());
        }
        let (first, _) = queue.next().await.unwrap();
        let (second, _) = queue.next().await.unwrap();
        let (third, _) = queue.next().await.unwrap();
        assert!(queue.mark_sent(first) && queue.mark_sent(second));
        queue.mark_unsent(second);
        let unsent = [CallId::new(2), CallId::new(3), CallId::new(4)];
        assert_eq!(queue.seal(), unsent, "rejected, taken, waiting");
        assert!(!queue.mark_sent(third), "nothing leaves a sealed queue");
        assert_eq!(queue.next().await, None);
    }

    #[tokio::test]
    async fn a_pause_keeps_every_line_once() {
        let queue = LineQueue::with_mark(1);
        for call in 1..=3 {
            queue.push(&format!("{call}"), Some(CallId::new(call)), Vec::new());
        }
        assert!(queue.watch_behind());
        let (first, _) = queue.next().await.unwrap();
        let (_second, _) = queue.next().await.unwrap();
        assert!(queue.take_caught_up());
        assert!(queue.mark_sent(first));
        queue.reached(first, Some(&"7".to_owned()));
        let interrupted = queue.interrupt();
        assert_eq!(interrupted.len(), 1);
        assert_eq!(interrupted[0].last_event.as_deref(), Some("7"));
        let (waiting, closed) = queue.save();
        let texts: Vec<_> = waiting.iter().map(|line| line.text.as_str()).collect();
        assert_eq!((texts, closed), (vec!["2", "3"], false));
        let moved = LineQueue::restore(1, waiting, closed);
        assert!(moved.is_behind());
        moved.resume(&interrupted[0]);
        assert_eq!(moved.seal(), [CallId::new(2), CallId::new(3)]);
    }
}
