//! Refused access: every one is counted by its reason and logged, a bounded number of times and without the
//! secret that was shown.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;

use mainstay_contract::audit::{AuditEvent, AuditRecord};
use mainstay_contract::outcome::Problem;
use mainstay_kernel::log_limit::{LogLimit, suppressed};

use super::body::lock;
use crate::audit::AuditLog;
use crate::clock::Clock;
use crate::log::{Level, Log};

/// A request that may not be served: the reason for the operator, and the error for the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Denied {
    pub(super) why: &'static str,
    pub(super) problem: Problem,
}

impl Denied {
    pub(super) const fn new(why: &'static str, problem: Problem) -> Self {
        Self { why, problem }
    }
}

/// All refusals of a front.
#[derive(Debug)]
pub(super) struct Refusals {
    log: Log,
    audit: AuditLog,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    limit: LogLimit,
    counts: BTreeMap<&'static str, u64>,
}

impl Refusals {
    pub(super) fn new(log: Log, audit: AuditLog) -> Self {
        Self {
            log,
            audit,
            clock: Clock::start(),
            state: Mutex::default(),
        }
    }

    /// Counts and logs a refusal.
    pub(super) fn record(&self, why: &'static str, route: &str, peer: IpAddr) {
        let mut state = lock(&self.state);
        *state.counts.entry(why).or_default() += 1;
        let Some(more) = state.limit.admit(self.clock.read()) else {
            return;
        };
        drop(state);
        let what = format!("why={why} route={route} peer={peer}{}", suppressed(more));
        let line = format!("mcp:warning reason=access_refused {what}");
        self.audit.record(AuditRecord {
            detail: Some(what),
            ..AuditRecord::new(AuditEvent::AccessRefused)
        });
        self.log.say(Level::Warn, line);
    }

    /// Each reason and its count, sorted.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.state).counts.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_refusal_is_counted_and_few_are_logged() {
        let (log, lines) = Log::recorded(Level::Warn);
        let refusals = Refusals::new(log, AuditLog::off());
        let peer = IpAddr::from([127, 0, 0, 1]);
        for _ in 0..75 {
            refusals.record("wrong_token", "/mcp", peer);
        }
        refusals.record("no_token", "/v1/tools", peer);
        let counts = refusals.counts();
        assert_eq!((counts["wrong_token"], counts["no_token"]), (75, 1));
        let first = lines.recv_timeout(Duration::from_secs(60)).unwrap();
        let said = "reason=access_refused why=wrong_token route=/mcp peer=127.0.0.1";
        assert!(first.trim_end().ends_with(said), "{first}");
        drop(refusals);
        assert!(lines.iter().count() < 20);
    }
}
