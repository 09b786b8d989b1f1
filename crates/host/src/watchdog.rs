//! Reports a loop that does not turn.
//!
//! A loop calls [`Watchdog::enter`] before it handles an event and [`Watchdog::leave`] after it. Both only
//! store numbers, because every event pays for them. A thread of its own compares the numbers with those of its
//! last look: an event that takes longer than the limit is logged once while it lasts, and once more
//! when it has ended. Times are those of looks, so they are short by a fraction of the limit at most.
//! All loops of a host run on one thread, so they share one watchdog.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use mainstay_contract::id::SessionId;
use mainstay_contract::words;

use crate::log::Log;

/// Looks of the thread within one limit.
const LOOKS: u32 = 4;

words! {
    /// The kind of event that a loop handles.
    #[repr(u8)]
    pub(crate) enum Doing {
        Connect = "connect",
        Request = "request",
        Client = "client",
        SingleRequest = "single_request",
        Worker = "worker",
        Verdict = "verdict",
        ClientRoots = "client_roots",
        Ledger = "ledger",
        Audit = "audit",
        Control = "control",
        Reread = "reread",
        Upgrade = "upgrade",
        Stop = "stop",
        Timer = "timer",
    }
}

/// The loop's side. Clones belong to the same loop.
#[derive(Clone, Debug)]
pub(crate) struct Watchdog(Arc<Turns>);

/// Written by the loop alone.
#[derive(Debug, Default)]
struct Turns {
    /// Counts both ends of every event: odd while one is being handled.
    count: AtomicU64,
    doing: AtomicU8,
    /// The session of the event; zero for none.
    session: AtomicU64,
}

impl Watchdog {
    /// Starts the thread, which ends with the last clone.
    pub(crate) fn start(limit_ms: u64, log: &Log) -> Self {
        let turns = Arc::<Turns>::default();
        let (watched, log) = (Arc::downgrade(&turns), log.clone());
        // Without the thread nothing is reported; the host works all the same.
        let _ = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || watch(&watched, Duration::from_millis(limit_ms), &log));
        Self(turns)
    }

    /// A watchdog without a thread.
    #[cfg(feature = "simulation")]
    pub(crate) fn off() -> Self {
        Self(Arc::default())
    }

    /// The loop begins to handle an event.
    pub(crate) fn enter(&self, doing: Doing, session: Option<SessionId>) {
        let session = session.map_or(0, SessionId::get);
        self.0.doing.store(doing as u8, Ordering::Relaxed);
        self.0.session.store(session, Ordering::Relaxed);
        self.0.advance();
    }

    /// The loop has handled it.
    pub(crate) fn leave(&self) {
        self.0.advance();
    }
}

impl Turns {
    fn advance(&self) {
        let next = self.count.load(Ordering::Relaxed).wrapping_add(1);
        self.count.store(next, Ordering::Release);
    }

    fn describe(&self) -> String {
        let doing = usize::from(self.doing.load(Ordering::Relaxed));
        let doing = Doing::ALL.get(doing).map_or("?", |doing| doing.as_str());
        match self.session.load(Ordering::Relaxed) {
            0 => format!("doing={doing}"),
            session => format!("doing={doing} session={session}"),
        }
    }
}

/// The thread's side.
#[derive(Debug)]
struct Looks {
    /// The count at the last look, and the first look that saw it.
    count: u64,
    since: Instant,
    /// The event that was reported and may last.
    reported: Option<String>,
}

impl Looks {
    const fn new(now: Instant) -> Self {
        Self {
            count: 0,
            since: now,
            reported: None,
        }
    }

    /// Compares with the last look. Gives the line to log.
    fn look(&mut self, turns: &Turns, now: Instant, limit: Duration) -> Option<String> {
        let count = turns.count.load(Ordering::Acquire);
        let lasted = now.duration_since(self.since);
        let for_ms = lasted.as_millis();
        if count != self.count {
            self.count = count;
            self.since = now;
            let over = self.reported.take()?;
            return Some(format!("mcp:unstuck {over} for_ms={for_ms}"));
        }
        if count.is_multiple_of(2) || lasted < limit || self.reported.is_some() {
            return None;
        }
        let event = turns.describe();
        let line = format!("mcp:warning reason=stuck {event} for_ms={for_ms}");
        self.reported = Some(event);
        Some(line)
    }
}

fn watch(watched: &Weak<Turns>, limit: Duration, log: &Log) {
    let mut looks = Looks::new(Instant::now());
    loop {
        std::thread::sleep(limit / LOOKS);
        let Some(turns) = watched.upgrade() else {
            return;
        };
        if let Some(line) = looks.look(&turns, Instant::now(), limit) {
            log.line(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Level;

    #[test]
    fn a_blocked_loop_is_reported_once_and_again_when_it_continues() {
        let (log, lines) = Log::recorded(Level::Info);
        let watchdog = Watchdog::start(10, &log);
        watchdog.enter(Doing::Request, Some(SessionId::new(7)));
        let stuck = lines.recv_timeout(Duration::from_secs(120)).unwrap();
        let expected = "mcp:warning reason=stuck doing=request session=7 for_ms=";
        assert!(stuck.contains(expected), "{stuck}");
        watchdog.leave();
        let unstuck = lines.recv_timeout(Duration::from_secs(120)).unwrap();
        let expected = "mcp:unstuck doing=request session=7 for_ms=";
        assert!(unstuck.contains(expected), "{unstuck}");
    }

    #[test]
    fn only_an_event_that_lasts_for_the_limit_is_reported() {
        let limit = Duration::from_secs(4);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (watchdog, mut looks) = (Watchdog(Arc::default()), Looks::new(start));
        let turns = &watchdog.0;
        assert_eq!(looks.look(turns, at(100), limit), None, "idle");
        watchdog.enter(Doing::Request, None);
        assert_eq!(looks.look(turns, at(101), limit), None);
        assert_eq!(looks.look(turns, at(104), limit), None);
        watchdog.leave();
        watchdog.enter(Doing::Timer, None);
        assert_eq!(looks.look(turns, at(105), limit), None, "another event");
        let stuck = "mcp:warning reason=stuck doing=timer for_ms=4000";
        assert_eq!(looks.look(turns, at(109), limit).as_deref(), Some(stuck));
        assert_eq!(looks.look(turns, at(110), limit), None, "reported");
        watchdog.leave();
        watchdog.enter(Doing::Request, None);
        let unstuck = "mcp:unstuck doing=timer for_ms=6000";
        assert_eq!(looks.look(turns, at(111), limit).as_deref(), Some(unstuck));
        assert_eq!(looks.look(turns, at(112), limit), None);
    }

    #[test]
    fn every_kind_of_event_has_its_name() {
        for (number, doing) in Doing::ALL.iter().copied().enumerate() {
            assert_eq!(doing as usize, number);
        }
    }
}
