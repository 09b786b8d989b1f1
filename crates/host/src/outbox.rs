//! Bytes on their way out: what has been said but not yet written.
//!
//! The engine pushes whole lines and never waits; a writer task takes what is there and writes
//! it. For a worker the box also remembers where each call begins, so that after a loss it can be
//! said of which calls not one byte was handed over.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_contract::id::CallId;
use mainstay_kernel::defect::{Defect, is_planted};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::upgrade::blob;

/// A buffer larger than this is given back once it is written.
const KEEP: usize = 64 * 1024;

/// Shared between the engine and one writer task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// More unwritten bytes than this, and the reader of the other side is behind.
    mark: u64,
    waiting: Vec<u8>,
    /// Bytes ever pushed and ever written.
    pushed: u64,
    written: u64,
    /// Where each call's line begins, oldest first.
    calls: VecDeque<(u64, CallId)>,
    closed: bool,
    /// Nothing more may be written, not even what was taken already.
    sealed: bool,
    /// The engine saw that the peer is behind and waits for the report that it caught up.
    report_owed: bool,
}

/// An [`Outbox`], as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedOutbox {
    #[serde(with = "blob")]
    waiting: Vec<u8>,
    /// Where the line of each call begins in `waiting`.
    calls: Vec<(u64, CallId)>,
    closed: bool,
    sealed: bool,
}

impl Inner {
    const fn is_behind(&self) -> bool {
        !self.sealed && self.pushed - self.written > self.mark
    }
}

impl Outbox {
    /// A box whose other side is behind when more than `mark` bytes wait for it.
    pub(crate) fn with_mark(mark: usize) -> Self {
        let outbox = Self::default();
        outbox.lock().mark = mark as u64;
        outbox
    }

    /// Everything that is not written, for a process that continues in this one's place.
    pub(crate) fn save(&self) -> SavedOutbox {
        let inner = self.lock();
        let calls = inner.calls.iter();
        SavedOutbox {
            waiting: match is_planted(Defect::UnwrittenLost) {
                true => Vec::new(),
                false => inner.waiting.clone(),
            },
            calls: calls
                .map(|(at, call)| (at - inner.written, *call))
                .collect(),
            closed: inner.closed,
            sealed: inner.sealed,
        }
    }

    pub(crate) fn restore(mark: usize, saved: SavedOutbox) -> Self {
        let outbox = Self::with_mark(mark);
        {
            let mut inner = outbox.lock();
            inner.pushed = saved.waiting.len() as u64;
            inner.waiting = saved.waiting;
            inner.calls = saved.calls.into();
            inner.closed = saved.closed;
            inner.sealed = saved.sealed;
        }
        outbox
    }

    /// The writer stops in the middle of what it took: the rest waits again, before everything else.
    pub(crate) fn put_back(&self, rest: &[u8]) {
        let mut inner = self.lock();
        if !inner.sealed && !is_planted(Defect::RestLost) {
            inner.waiting.splice(..0, rest.iter().copied());
        }
    }

    /// Adds a line.
    pub(crate) fn push(&self, line: &str) {
        self.add(line, None);
    }

    /// Adds a line that hands over a call.
    pub(crate) fn push_call(&self, line: &str, call: CallId) {
        self.add(line, Some(call));
    }

    fn add(&self, line: &str, call: Option<CallId>) {
        {
            let mut inner = self.lock();
            if inner.closed {
                return;
            }
            if let Some(call) = call {
                let at = inner.pushed;
                inner.calls.push_back((at, call));
            }
            let before = inner.waiting.len();
            mainstay_contract::frame::encode(&mut inner.waiting, line);
            inner.pushed += (inner.waiting.len() - before) as u64;
            #[cfg(feature = "simulation")]
            crate::sim::note_backlog(inner.mark, inner.pushed - inner.written);
        }
        self.shared.changed.notify_one();
    }

    /// Nothing more will be pushed; the writer ends when everything is written.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.shared.changed.notify_one();
    }

    /// True if more waits to be written than the mark allows.
    pub(crate) fn is_behind(&self) -> bool {
        self.lock().is_behind()
    }

    /// As [`Self::is_behind`]. If the peer is behind, the writer owes one report that it caught
    /// up. Both are decided under one lock, so that the peer cannot catch up unnoticed in between.
    pub(crate) fn watch_behind(&self) -> bool {
        let mut inner = self.lock();
        let is_behind = inner.is_behind();
        let is_writing = inner.pushed - inner.written > inner.waiting.len() as u64;
        inner.report_owed = is_behind && !(is_writing && is_planted(Defect::LostWakeUp));
        is_behind
    }

    /// True once for each [`Self::watch_behind`] that found the peer behind, as soon as it no
    /// longer is. The writer asks after every write.
    pub(crate) fn take_caught_up(&self) -> bool {
        let mut inner = self.lock();
        let caught_up = inner.report_owed && !inner.is_behind();
        inner.report_owed &= !caught_up;
        caught_up
    }

    /// The other side is lost: nothing more is written, and the calls of which not one byte was
    /// are given. What is sent again elsewhere can then not reach it as well.
    pub(crate) fn seal(&self) -> Vec<CallId> {
        let unsent = {
            let mut inner = self.lock();
            inner.closed = true;
            inner.sealed = true;
            inner.waiting = Vec::new();
            let written = inner.written;
            let calls = std::mem::take(&mut inner.calls);
            let unsent = calls.into_iter().filter(|(at, _)| {
                (*at >= written || is_planted(Defect::SentAsUnsent))
                    && !is_planted(Defect::UnsentAsSent)
            });
            unsent.map(|(_, call)| call).collect()
        };
        self.shared.changed.notify_one();
        unsent
    }

    /// True if nothing more may be written.
    pub(crate) fn is_sealed(&self) -> bool {
        self.lock().sealed
    }

    /// Takes what waits, or `None` when the box is closed and empty.
    pub(crate) async fn take(&self, reuse: Vec<u8>) -> Option<Vec<u8>> {
        let mut reuse = reuse;
        reuse.clear();
        if reuse.capacity() > KEEP {
            reuse = Vec::new();
        }
        loop {
            {
                let mut inner = self.lock();
                if !inner.waiting.is_empty() {
                    return Some(std::mem::replace(&mut inner.waiting, reuse));
                }
                if inner.closed {
                    return None;
                }
            }
            self.shared.changed.notified().await;
        }
    }

    /// The writer wrote so many of the bytes it took.
    pub(crate) fn wrote(&self, count: usize) {
        let mut inner = self.lock();
        inner.written += count as u64;
        let written = inner.written;
        while inner.calls.front().is_some_and(|(at, _)| *at < written)
            && !is_planted(Defect::SentAsUnsent)
        {
            inner.calls.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The lock is never held across a panic that matters: the data is plain bytes.
        self.shared
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_is_behind_until_it_has_taken_enough() {
        let outbox = Outbox::with_mark(10);
        outbox.push("123456789");
        assert!(!outbox.is_behind(), "exactly the mark, with the line end");
        outbox.push("x");
        assert!(outbox.is_behind());
        let _ = outbox.take(Vec::new()).await;
        outbox.wrote(2);
        assert!(!outbox.is_behind());
    }

    #[tokio::test]
    async fn a_peer_that_falls_behind_during_a_write_is_reported_when_it_catches_up() {
        let outbox = Outbox::with_mark(10);
        outbox.push("1234");
        let first = outbox.take(Vec::new()).await.unwrap();
        // The writer is in the middle of its write.
        outbox.push("123456789");
        assert!(outbox.watch_behind());
        assert!(!outbox.take_caught_up(), "it still is");
        outbox.wrote(first.len());
        assert!(outbox.take_caught_up());
        assert!(!outbox.take_caught_up(), "only once");
    }

    #[tokio::test]
    async fn no_order_of_watching_and_writing_loses_a_report() {
        let lines = ["12345678"; 3];
        // The engine looks after any subset of the steps of the writer, one byte each.
        for looks in 0_u32..1 << 10 {
            let outbox = Outbox::with_mark(20);
            lines.iter().for_each(|line| outbox.push(line));
            let _ = outbox.take(Vec::new()).await;
            let mut is_paused = false;
            for step in 0..10 {
                if looks >> step & 1 == 1 {
                    is_paused = outbox.watch_behind();
                }
                outbox.wrote(1);
                is_paused &= !outbox.take_caught_up();
            }
            assert!(!outbox.is_behind());
            assert!(!is_paused, "{looks:010b}");
        }
    }

    #[tokio::test]
    async fn a_sealed_box_holds_no_reader_back() {
        let outbox = Outbox::with_mark(1);
        outbox.push("123");
        assert!(outbox.watch_behind());
        let _ = outbox.seal();
        assert!(outbox.take_caught_up());
        assert!(!outbox.watch_behind());
    }

    #[tokio::test]
    async fn a_call_is_unsent_until_its_first_byte_is_written() {
        let unsent = |written: &'static [usize]| async move {
            let outbox = Outbox::default();
            outbox.push_call("{\"a\":1}", CallId::new(1));
            outbox.push_call("{\"b\":2}", CallId::new(2));
            let bytes = outbox.take(Vec::new()).await.unwrap();
            assert_eq!(bytes, b"{\"a\":1}\n{\"b\":2}\n");
            for count in written {
                outbox.wrote(*count);
            }
            outbox.seal()
        };
        assert_eq!(unsent(&[]).await, [CallId::new(1), CallId::new(2)]);
        assert_eq!(unsent(&[1]).await, [CallId::new(2)]);
        assert_eq!(
            unsent(&[1, 7]).await,
            [CallId::new(2)],
            "exactly up to its beginning"
        );
        assert_eq!(unsent(&[1, 7, 1]).await, []);
    }

    #[tokio::test]
    async fn a_box_that_moves_in_the_middle_of_a_write_loses_and_repeats_nothing() {
        for written in 0..=16 {
            let outbox = Outbox::with_mark(3);
            outbox.push_call("{\"a\":1}", CallId::new(1));
            outbox.push_call("{\"b\":2}", CallId::new(2));
            let taken = outbox.take(Vec::new()).await.unwrap();
            outbox.wrote(written);
            outbox.put_back(&taken[written..]);
            outbox.push("{}");
            let saved = serde_json::to_string(&outbox.save()).unwrap();
            let moved = Outbox::restore(3, serde_json::from_str(&saved).unwrap());
            assert_eq!(moved.is_behind(), outbox.is_behind());
            let rest = moved.take(Vec::new()).await.unwrap();
            assert_eq!(
                [&taken[..written], &*rest].concat(),
                b"{\"a\":1}\n{\"b\":2}\n{}\n"
            );
            assert_eq!(moved.seal(), outbox.seal(), "{written}");
        }
    }

    #[tokio::test]
    async fn nothing_leaves_a_sealed_box() {
        let outbox = Outbox::default();
        outbox.push_call("{\"a\":1}", CallId::new(1));
        assert_eq!(outbox.seal(), [CallId::new(1)]);
        outbox.push("{\"b\":2}");
        assert!(outbox.is_sealed());
        assert_eq!(outbox.take(Vec::new()).await, None);
        assert_eq!(outbox.seal(), [], "each call is given once");
    }
}
