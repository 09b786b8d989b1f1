//! Progress of a call on its way to the host: at most one message per window, the latest wins.
//!
//! A [`Reporter`] belongs to one call. A message outside the window is sent by the tool's own
//! thread; one inside it is kept, replacing the one kept before, and sent by the [`Clock`] when
//! the window ends, so that a tool that reports and then works silently is still seen. Closing a
//! reporter happens before the answer is written and under the same lock as every send, so no
//! progress ever follows an answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use mainstay_contract::id::CallId;
use mainstay_contract::render::shorten;
use mainstay_contract::rpc::{FromWorker, Progress};

use crate::cancel::CancelToken;
use crate::run::{Ended, Outlet};
use crate::sync::lock;

/// At most one message of a call in this time.
const WINDOW: Duration = Duration::from_millis(50);

/// Longest message and phase of progress, in characters.
const MAX_CHARS: usize = 1000;

/// The way out for the progress of one call.
#[derive(Debug)]
pub(crate) struct Reporter {
    call: CallId,
    cancel: CancelToken,
    /// Absent in tests of single tools, which have no listener.
    way: Option<Way>,
    state: Mutex<State>,
}

/// Where progress goes.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) clock: Arc<Clock>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    last: Option<Instant>,
    kept: Option<Progress>,
}

impl State {
    /// When the current window ends.
    fn due(&self) -> Option<Instant> {
        self.last.map(|last| last + WINDOW)
    }
}

impl Reporter {
    pub(crate) fn new(call: CallId, cancel: CancelToken, way: Option<Way>) -> Arc<Self> {
        Arc::new(Self {
            call,
            cancel,
            way,
            state: Mutex::default(),
        })
    }

    pub(crate) fn report(self: &Arc<Self>, progress: Progress) {
        let Some(way) = &self.way else { return };
        let mut state = lock(&self.state);
        if state.closed || self.cancel.is_cancelled() {
            return;
        }
        let now = Instant::now();
        match state.due() {
            Some(due) if now < due => {
                if state.kept.replace(progress).is_none() {
                    way.clock.wake_at(due, Arc::downgrade(self));
                }
            }
            _ => self.send(way, &mut state, now, progress),
        }
    }

    /// Sends what was kept, if its window has ended. If the tool's own thread has sent something
    /// since the clock was set, what is kept now belongs to a new window, with an alarm of its own.
    fn flush(&self) {
        let Some(way) = &self.way else { return };
        let mut state = lock(&self.state);
        let now = Instant::now();
        if state.closed || self.cancel.is_cancelled() || state.due().is_some_and(|due| now < due) {
            return;
        }
        if let Some(progress) = state.kept.take() {
            self.send(way, &mut state, now, progress);
        }
    }

    /// Nothing is sent after this.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
    }

    fn send(&self, way: &Way, state: &mut State, now: Instant, mut progress: Progress) {
        state.last = Some(now);
        state.kept = None;
        progress.message = shorten(&progress.message, MAX_CHARS);
        progress.phase = shorten(&progress.phase, MAX_CHARS);
        // A host that is gone is noticed where answers are written and where input is read.
        let _ = way.outlet.send(&FromWorker::Progress {
            call: self.call,
            progress,
        });
    }
}

/// Waits for the end of the worker and meanwhile sends progress that is due.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// A copy of the value in the state, readable without the lock.
    ended: AtomicBool,
    state: Mutex<ClockState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ClockState {
    ended: Option<Ended>,
    /// Few: a reporter asks once per window.
    due: Vec<(Instant, Weak<Reporter>)>,
}

impl Clock {
    fn wake_at(&self, due: Instant, reporter: Weak<Reporter>) {
        lock(&self.state).due.push((due, reporter));
        self.changed.notify_one();
    }

    /// Says that the worker has ended; the first reason counts.
    pub(crate) fn end(&self, ended: Ended) {
        lock(&self.state).ended.get_or_insert(ended);
        self.ended.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Serves until the end.
    pub(crate) fn run(&self) -> Ended {
        let mut state = lock(&self.state);
        loop {
            if let Some(ended) = state.ended {
                return ended;
            }
            let now = Instant::now();
            let (ready, later): (Vec<_>, Vec<_>) =
                state.due.drain(..).partition(|(due, _)| *due <= now);
            state.due = later;
            if !ready.is_empty() {
                // A reporter's lock is taken before the clock's, never after it.
                drop(state);
                ready
                    .iter()
                    .filter_map(|(_, reporter)| reporter.upgrade())
                    .for_each(|r| r.flush());
                state = lock(&self.state);
                continue;
            }
            state = match state.due.iter().map(|(due, _)| *due).min() {
                Some(next) => {
                    let wait = next.saturating_duration_since(now);
                    self.changed
                        .wait_timeout(state, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
