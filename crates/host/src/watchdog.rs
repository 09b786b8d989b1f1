//! Reports a loop that does not turn.
//!
//! A loop calls [`Watchdog::enter`] before it handles an event and [`Watchdog::leave`] after it. A
//! thread of its own looks at both: an event that takes longer than the limit is logged once
//! while it lasts, and once more with its duration when it ends. All loops of a host run on one
//! thread, so they share one watchdog.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use mainstay_contract::id::SessionId;

use crate::log::Log;

/// How often the thread looks within one limit, so that a report is late by a fraction of it.
const LOOKS: u32 = 4;

/// The loop's side. Clones belong to the same loop.
#[derive(Clone, Debug)]
pub(crate) struct Watchdog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Counts both ends of every event: odd while one is being handled.
    turns: AtomicU64,
    current: Mutex<Activity>,
    log: Log,
}

/// The event that is being handled, or was last.
#[derive(Debug)]
struct Activity {
    label: &'static str,
    session: Option<SessionId>,
    since: Instant,
    reported: bool,
}

impl Watchdog {
    /// Starts the thread, which ends with the last clone.
    pub(crate) fn start(limit_ms: u64, log: &Log) -> Self {
        let shared = Shared::new(log);
        let watched = Arc::downgrade(&shared);
        // Without the thread nothing is reported; the host works all the same.
        let _ = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || watch(&watched, Duration::from_millis(limit_ms)));
        Self(shared)
    }

    /// A watchdog without a thread.
    #[cfg(feature = "simulation")]
    pub(crate) fn off(log: &Log) -> Self {
        Self(Shared::new(log))
    }

    /// The loop begins to handle an event.
    pub(crate) fn enter(&self, label: &'static str, session: Option<SessionId>) {
        *self.0.lock() = Activity {
            label,
            session,
            since: Instant::now(),
            reported: false,
        };
        self.0.turns.fetch_add(1, Ordering::Release);
    }

    /// The loop has handled it.
    pub(crate) fn leave(&self) {
        self.0.turns.fetch_add(1, Ordering::Release);
        let current = self.0.lock();
        if current.reported {
            let said = current.describe();
            drop(current);
            self.0.log.line(&format!("mcp:unstuck {said}"));
        }
    }
}

impl Shared {
    fn new(log: &Log) -> Arc<Self> {
        Arc::new(Self {
            turns: AtomicU64::new(0),
            current: Mutex::new(Activity {
                label: "",
                session: None,
                since: Instant::now(),
                reported: false,
            }),
            log: log.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Activity> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the event if it has lasted for the limit and was not reported yet.
    fn look(&self, limit: Duration) {
        if self.turns.load(Ordering::Acquire).is_multiple_of(2) {
            return;
        }
        let mut current = self.lock();
        // `leave` counts before it locks: an event that has ended by now reports itself no more.
        let is_over = self.turns.load(Ordering::Acquire).is_multiple_of(2);
        if is_over || current.reported || current.since.elapsed() < limit {
            return;
        }
        current.reported = true;
        let said = current.describe();
        self.log.line(&format!("mcp:warning reason=stuck {said}"));
    }
}

impl Activity {
    fn describe(&self) -> String {
        let ms = self.since.elapsed().as_millis();
        match self.session {
            Some(session) => format!("doing={} session={session} for_ms={ms}", self.label),
            None => format!("doing={} for_ms={ms}", self.label),
        }
    }
}

fn watch(watched: &Weak<Shared>, limit: Duration) {
    loop {
        std::thread::sleep(limit / LOOKS);
        let Some(shared) = watched.upgrade() else {
            return;
        };
        shared.look(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Level;

    const LIMIT: Duration = Duration::from_millis(10);

    fn wait_until(what: &str, done: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(120);
        while !done() {
            assert!(Instant::now() < until, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_blocked_loop_is_reported_once_and_again_when_it_goes_on() {
        let (log, lines) = Log::recorded(Level::Info);
        let watchdog = Watchdog::start(10, &log);
        watchdog.enter("request", Some(SessionId::new(7)));
        wait_until("no report", || watchdog.0.lock().reported);
        std::thread::sleep(LIMIT * 3);
        watchdog.leave();
        drop((watchdog, log));
        let lines: Vec<String> = lines.iter().collect();
        let [stuck, unstuck] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        assert!(
            stuck.contains("mcp:warning reason=stuck doing=request session=7 for_ms="),
            "{stuck}"
        );
        assert!(unstuck.contains("mcp:unstuck doing=request session=7 for_ms="));
    }

    #[test]
    fn only_an_event_that_lasts_for_the_limit_is_reported() {
        let (log, lines) = Log::recorded(Level::Info);
        // Its thread never looks.
        let watchdog = Watchdog::start(1_000_000, &log);
        let shared = &watchdog.0;
        shared.look(Duration::ZERO);
        watchdog.enter("request", None);
        shared.look(Duration::from_secs(1_000));
        watchdog.leave();
        shared.look(Duration::ZERO);
        watchdog.enter("timer", None);
        shared.look(Duration::ZERO);
        shared.look(Duration::ZERO);
        drop((watchdog, log));
        let lines: Vec<String> = lines.iter().collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("reason=stuck doing=timer for_ms="));
    }
}
