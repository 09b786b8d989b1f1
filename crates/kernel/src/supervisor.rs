//! Supervision of one worker slot, after OTP and s6.
//!
//! Theory of operation. A slot has at most one worker that is starting or ready; older ones may
//! still be draining, but they are not supervised here. Ready is announced, never guessed. A
//! worker that is lost is followed by a successor after a pause that doubles, with jitter, from
//! `backoff_min_ms` to `backoff_max_ms`; a worker that stayed ready for a whole period resets the
//! pause. More than `restarts` losses within `restart_period_ms` exhaust the budget: the slot
//! rests, its calls fail at once, and the first demand after the rest, or an operator, opens it
//! again. A worker that says itself that it cannot start as it is set up exhausts it at once.
//!
//! ```text
//! Cold --demand--> Starting --ready--> Ready
//!   ^                 |lost/late         |lost
//!   |                 v                  v
//!   |              Waiting <-------------+--(budget spent)--> Exhausted --rest, demand--> Starting
//!   '------------- (stop) ------------------> Stopped
//! ```
//!
//! Jitter comes from a small generator in the state, so the same events give the same pauses.

use std::collections::VecDeque;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::health::Lifecycle;
use mainstay_contract::id::Generation;
use mainstay_contract::limits::Limits;
use serde::{Deserialize, Serialize};

use crate::time::Time;

/// The policy, out of the limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    restarts: u32,
    period_ms: u64,
    backoff_min_ms: u64,
    backoff_max_ms: u64,
    rest_ms: u64,
    start_timeout_ms: u64,
}

impl From<&Limits> for Policy {
    fn from(limits: &Limits) -> Self {
        Self {
            restarts: limits.restarts,
            period_ms: limits.restart_period_ms,
            backoff_min_ms: limits.backoff_min_ms,
            backoff_max_ms: limits.backoff_max_ms.max(limits.backoff_min_ms),
            rest_ms: limits.rest_ms,
            start_timeout_ms: limits.start_timeout_ms,
        }
    }
}

/// Where the slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Cold,
    Starting { generation: Generation, until: Time },
    Ready { generation: Generation, since: Time },
    Waiting { until: Time },
    Exhausted { until: Time },
    Stopped,
}

/// The next step for the owner of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directive {
    /// Nothing.
    Rest,
    /// Start a worker of a new generation, then say [`Supervisor::started`].
    Start,
    /// This generation did not become ready in time: kill it and report it lost.
    TooLate(Generation),
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supervisor {
    policy: Policy,
    state: State,
    /// Times of the losses within the period; at most `restarts + 1`.
    losses: VecDeque<Time>,
    consecutive_failures: u32,
    restart_count: u64,
    /// A fault ended the last worker, and no other has replaced it yet.
    faulted: bool,
    last_fault: Option<Fault>,
    jitter: u64,
}

impl Supervisor {
    /// A cold slot. `seed` spreads the jitter of several slots.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            state: State::Cold,
            losses: VecDeque::new(),
            consecutive_failures: 0,
            restart_count: 0,
            faulted: false,
            last_fault: None,
            jitter: seed,
        }
    }

    /// Applies another policy from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// A call needs a worker.
    pub fn demand(&mut self, now: Time) -> Directive {
        match self.state {
            State::Cold => Directive::Start,
            State::Exhausted { until } if now >= until => {
                self.losses.clear();
                Directive::Start
            }
            State::Waiting { until } if now >= until => Directive::Start,
            State::Waiting { .. }
            | State::Exhausted { .. }
            | State::Starting { .. }
            | State::Ready { .. }
            | State::Stopped => Directive::Rest,
        }
    }

    /// The owner started a worker, as directed.
    pub fn started(&mut self, now: Time, generation: Generation) {
        self.count_restart();
        let until = now.plus_ms(self.policy.start_timeout_ms);
        self.state = State::Starting { generation, until };
    }

    /// A worker announced that it is ready. False if it is not the one that was awaited.
    pub fn ready(&mut self, now: Time, generation: Generation) -> bool {
        match self.state {
            State::Starting {
                generation: awaited,
                ..
            } if awaited == generation => {
                self.state = State::Ready {
                    generation,
                    since: now,
                };
                true
            }
            _ => false,
        }
    }

    /// A worker was lost or must be replaced. Losses of generations that are no longer
    /// supervised change nothing.
    pub fn lost(&mut self, now: Time, generation: Generation, fault: &Fault) {
        if self.generation() != Some(generation) {
            return;
        }
        self.consecutive_failures = self.consecutive_failures(now).saturating_add(1);
        self.faulted = true;
        self.last_fault = Some(fault.clone());
        let period = self.policy.period_ms;
        self.losses.retain(|loss| now.ms_since(*loss) < period);
        self.losses.push_back(now);
        // One that says itself that it cannot start will say so again.
        let hopeless = fault.kind == ErrorKind::WorkerSetup;
        self.state = if hopeless || self.losses.len() > self.policy.restarts as usize {
            self.losses.clear();
            State::Exhausted {
                until: now.plus_ms(self.policy.rest_ms),
            }
        } else {
            State::Waiting {
                until: now.plus_ms(self.backoff_ms()),
            }
        };
    }

    /// A worker was lost to a call that ends each worker that runs it. The budget and the growing
    /// pause are for losses of the worker's own, so this one costs neither.
    pub fn lost_to_call(&mut self, now: Time, generation: Generation, fault: &Fault) {
        if self.generation() != Some(generation) {
            return;
        }
        self.faulted = true;
        self.last_fault = Some(fault.clone());
        // Some time passes, so that such a call meets its deadline whatever is configured.
        self.state = State::Waiting {
            until: now.plus_ms(self.policy.backoff_min_ms.max(1)),
        };
    }

    /// How long the slot rests before it may start a worker again.
    pub fn rest_left_ms(&self, now: Time) -> Option<u64> {
        match self.state {
            State::Exhausted { until } => Some(until.ms_since(now)),
            _ => None,
        }
    }

    /// Something about a worker went wrong that does not change where the slot stands.
    pub fn note(&mut self, fault: Fault) {
        self.last_fault = Some(fault);
    }

    /// The last words of a lost worker, if its fault does not have them.
    pub fn said(&mut self, generation: Generation, words: &str) {
        if let Some(fault) = self.last_fault.take() {
            let lacks = fault.generation == Some(generation) && fault.stderr.is_none();
            self.last_fault = Some(if lacks {
                fault.with_stderr(words)
            } else {
                fault
            });
        }
    }

    /// A worker that was started beside the supervised one takes its place, ready.
    pub fn promote(&mut self, now: Time, generation: Generation) {
        if self.state != State::Stopped {
            self.count_restart();
            self.state = State::Ready {
                generation,
                since: now,
            };
        }
    }

    /// The generation that is supervised.
    pub const fn generation(&self) -> Option<Generation> {
        match self.state {
            State::Starting { generation, .. } | State::Ready { generation, .. } => {
                Some(generation)
            }
            State::Cold | State::Waiting { .. } | State::Exhausted { .. } | State::Stopped => None,
        }
    }

    /// An operator wants a worker now: no pause, no rest, a whole budget.
    pub fn open(&mut self, now: Time) {
        if matches!(self.state, State::Exhausted { .. } | State::Waiting { .. }) {
            self.losses.clear();
            self.consecutive_failures = 0;
            self.state = State::Waiting { until: now };
        }
    }

    /// No call needs a worker: the one that is ready or starting may go.
    pub fn rest(&mut self) {
        if self.generation().is_some() {
            self.state = State::Cold;
        }
    }

    /// The host stops: no worker will be started any more.
    pub fn stop(&mut self) {
        self.state = State::Stopped;
    }

    /// When to call [`Supervisor::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.state {
            State::Starting { until, .. } | State::Waiting { until } => Some(until),
            State::Cold | State::Ready { .. } | State::Exhausted { .. } | State::Stopped => None,
        }
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Time) -> Directive {
        match self.state {
            State::Waiting { until } if now >= until => Directive::Start,
            State::Starting { generation, until } if now >= until => Directive::TooLate(generation),
            State::Cold
            | State::Starting { .. }
            | State::Ready { .. }
            | State::Waiting { .. }
            | State::Exhausted { .. }
            | State::Stopped => Directive::Rest,
        }
    }

    /// Where the slot stands.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The worker to which calls may be sent.
    pub const fn ready_generation(&self) -> Option<Generation> {
        match self.state {
            State::Ready { generation, .. } => Some(generation),
            _ => None,
        }
    }

    /// True if a call that arrives now would fail at once.
    pub fn is_closed(&self, now: Time) -> bool {
        match self.state {
            State::Exhausted { until } => now < until,
            State::Stopped => true,
            State::Cold | State::Starting { .. } | State::Ready { .. } | State::Waiting { .. } => {
                false
            }
        }
    }

    /// The state in the words of the health payload.
    pub const fn lifecycle(&self) -> Lifecycle {
        match (self.state, self.consecutive_failures) {
            (State::Cold | State::Stopped, _) => Lifecycle::Cold,
            (State::Starting { .. }, 0) => Lifecycle::Starting,
            (State::Starting { .. } | State::Waiting { .. }, _) => Lifecycle::Recovering,
            (State::Ready { .. }, _) => Lifecycle::Ready,
            (State::Exhausted { .. }, _) => Lifecycle::Failed,
        }
    }

    /// Losses since a worker last stayed ready for a whole period; none if the present one has.
    pub fn consecutive_failures(&self, now: Time) -> u32 {
        match self.state {
            State::Ready { since, .. } if now.ms_since(since) >= self.policy.period_ms => 0,
            _ => self.consecutive_failures,
        }
    }

    /// Workers that replaced one after a fault. Planned replacements are not counted.
    pub const fn restart_count(&self) -> u64 {
        self.restart_count
    }

    /// Why the last worker was lost.
    pub const fn last_fault(&self) -> Option<&Fault> {
        self.last_fault.as_ref()
    }

    fn count_restart(&mut self) {
        self.restart_count += u64::from(std::mem::take(&mut self.faulted));
    }

    /// Doubles with each consecutive failure; between half of it and all of it is waited.
    fn backoff_ms(&mut self) -> u64 {
        let doublings = self.consecutive_failures.saturating_sub(1).min(32);
        let full = self
            .policy
            .backoff_min_ms
            .saturating_mul(1 << doublings)
            .min(self.policy.backoff_max_ms);
        let half = full / 2;
        half + splitmix(&mut self.jitter) % (full - half + 1)
    }
}

/// A step of the splitmix64 generator: deterministic, and good enough to spread restarts.
pub(crate) fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault() -> Fault {
        Fault::new(ErrorKind::WorkerUnavailable, "gone")
    }

    #[test]
    fn a_noted_fault_is_seen_and_changes_nothing_else() {
        let mut supervisor = Supervisor::new(Policy::from(&Limits::default()), 1);
        supervisor.started(Time::default(), Generation::new(1));
        let before = supervisor.clone();
        supervisor.note(fault());
        assert_eq!(supervisor.last_fault(), Some(&fault()));
        supervisor.last_fault = None;
        assert_eq!(supervisor, before);
    }

    fn supervisor(restarts: u32) -> Supervisor {
        let limits = Limits {
            restarts,
            ..Limits::default()
        };
        Supervisor::new(Policy::from(&limits), 1)
    }

    fn run_once(supervisor: &mut Supervisor, now: Time, generation: u64) {
        let generation = Generation::new(generation);
        supervisor.started(now, generation);
        assert!(supervisor.ready(now, generation));
        supervisor.lost(now, generation, &fault());
    }

    #[test]
    fn a_cold_slot_starts_on_demand_and_only_once() {
        let mut supervisor = supervisor(3);
        assert_eq!(supervisor.demand(Time::default()), Directive::Start);
        supervisor.started(Time::default(), Generation::new(1));
        assert_eq!(supervisor.demand(Time::default()), Directive::Rest);
        assert_eq!(supervisor.ready_generation(), None);
        assert!(supervisor.ready(Time::from_ms(3), Generation::new(1)));
        assert_eq!(supervisor.ready_generation(), Some(Generation::new(1)));
    }

    #[test]
    fn the_pause_doubles_within_its_bounds_and_jitters_by_half() {
        let mut supervisor = supervisor(1000);
        let mut now = Time::default();
        for round in 0..12_u32 {
            run_once(&mut supervisor, now, u64::from(round) + 1);
            let until = supervisor.poll_timeout().unwrap();
            let full = (50_u64 << round).min(5000);
            let waited = until.ms_since(now);
            assert!(
                (full / 2..=full).contains(&waited),
                "round {round}: {waited}"
            );
            now = until;
            assert_eq!(supervisor.handle_timeout(now), Directive::Start);
        }
    }

    #[test]
    fn a_spent_budget_closes_the_slot_until_it_has_rested() {
        let mut supervisor = supervisor(2);
        let now = Time::from_ms(5);
        for generation in 1..=3 {
            assert!(!supervisor.is_closed(now));
            run_once(&mut supervisor, now, generation);
        }
        assert!(supervisor.is_closed(now));
        assert_eq!(supervisor.lifecycle(), Lifecycle::Failed);
        assert_eq!(supervisor.demand(now), Directive::Rest);
        let rested = now.plus_ms(30_000);
        assert!(!supervisor.is_closed(rested));
        assert_eq!(supervisor.demand(rested), Directive::Start);
    }

    #[test]
    fn a_worker_that_is_set_up_wrongly_is_not_tried_again_before_a_rest() {
        let mut supervisor = supervisor(10);
        let now = Time::from_ms(5);
        supervisor.started(now, Generation::new(1));
        let fault = Fault::new(ErrorKind::WorkerSetup, "no such directory");
        supervisor.lost(now, Generation::new(1), &fault);
        assert!(supervisor.is_closed(now));
        assert_eq!(supervisor.poll_timeout(), None);
        assert_eq!(supervisor.demand(now.plus_ms(30_000)), Directive::Start);
    }

    #[test]
    fn an_operator_opens_an_exhausted_slot() {
        let mut supervisor = supervisor(0);
        run_once(&mut supervisor, Time::default(), 1);
        assert!(supervisor.is_closed(Time::default()));
        supervisor.open(Time::default());
        assert_eq!(supervisor.handle_timeout(Time::default()), Directive::Start);
    }

    #[test]
    fn only_replacements_after_a_fault_count_as_restarts() {
        let mut supervisor = supervisor(3);
        let now = Time::default();
        supervisor.started(now, Generation::new(1));
        supervisor.ready(now, Generation::new(1));
        supervisor.promote(now, Generation::new(2));
        supervisor.rest();
        supervisor.started(now, Generation::new(3));
        assert_eq!(supervisor.restart_count(), 0, "a rollout and a rest");
        supervisor.lost(now, Generation::new(3), &fault());
        assert_eq!(supervisor.restart_count(), 0, "not replaced yet");
        supervisor.started(now, Generation::new(4));
        supervisor.ready(now, Generation::new(4));
        supervisor.lost(now, Generation::new(4), &fault());
        supervisor.promote(now, Generation::new(5));
        assert_eq!(supervisor.restart_count(), 2);
    }

    #[test]
    fn a_worker_that_is_not_ready_in_time_is_too_late() {
        let mut supervisor = supervisor(2);
        supervisor.started(Time::default(), Generation::new(1));
        let late = Time::from_ms(30_000);
        assert_eq!(supervisor.poll_timeout(), Some(late));
        assert_eq!(
            supervisor.handle_timeout(late),
            Directive::TooLate(Generation::new(1))
        );
    }

    #[test]
    fn a_loss_of_an_old_generation_changes_nothing() {
        let mut supervisor = supervisor(2);
        supervisor.started(Time::default(), Generation::new(2));
        let before = supervisor.clone();
        supervisor.lost(Time::from_ms(1), Generation::new(1), &fault());
        assert_eq!(supervisor, before);
    }

    #[test]
    fn staying_ready_for_a_period_forgives() {
        let mut supervisor = supervisor(10);
        run_once(&mut supervisor, Time::default(), 1);
        run_once(&mut supervisor, Time::from_ms(100), 2);
        supervisor.started(Time::from_ms(200), Generation::new(3));
        supervisor.ready(Time::from_ms(200), Generation::new(3));
        assert_eq!(supervisor.consecutive_failures(Time::from_ms(60_199)), 2);
        let settled = Time::from_ms(60_200);
        assert_eq!(
            supervisor.consecutive_failures(settled),
            0,
            "no loss is needed"
        );
        supervisor.lost(settled, Generation::new(3), &fault());
        assert_eq!(supervisor.consecutive_failures(settled), 1);
    }
}
