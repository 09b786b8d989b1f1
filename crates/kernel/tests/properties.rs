//! Properties of every request in every sequence of events: one end, for a reason, in its turn.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod model;

use std::collections::BTreeSet;

use mainstay_contract::dialect::{CancelKind, Order};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::CallId;
use mainstay_contract::replay::Replay;
use mainstay_contract::rpc::{Answer, Probed};
use mainstay_kernel::action::{Action, Delivery, End};
use proptest::prelude::*;

use self::model::life::Life;
use self::model::mirror::Mirror;
use self::model::script::{patient_scripts, scripts};
use self::model::{Input, Step, Trace, Wanted};

proptest! {
    #[test]
    fn every_accepted_request_ends_exactly_once(script in scripts()) {
        for life in Life::all(&Trace::of(&script)).values() {
            prop_assert_eq!(life.ends.len(), 1, "{:?}", life);
            let (_, _, end) = &life.ends[0];
            prop_assert_eq!(end.session, life.asked.session);
            prop_assert_eq!(end.input_bytes, life.asked.bytes, "the right request");
        }
    }

    #[test]
    fn an_unrouted_request_is_routed_at_most_once_and_does_nothing_before(script in scripts()) {
        for life in Life::all(&Trace::of(&script)).values() {
            prop_assert!(life.routes.len() <= usize::from(life.asked.unrouted), "{:?}", life);
            let known = match life.routed {
                Some(routed) => {
                    prop_assert!(life.routes[0] < routed && routed <= life.ends[0].0, "{:?}", life);
                    routed
                }
                None if life.asked.unrouted => usize::MAX,
                None => 0,
            };
            let sends = life.sends.iter().map(|sending| sending.step);
            prop_assert!(sends.chain(life.serves.clone()).all(|at| at >= known), "{:?}", life);
            let (_, _, end) = &life.ends[0];
            prop_assert_eq!(end.tool.is_some(), known != usize::MAX, "{:?}", life);
            prop_assert!(end.outcome.is_err() || known != usize::MAX, "{:?}", life);
        }
    }

    /// The check itself is in [`model::World`]: it compares the whole kernel before and after.
    #[test]
    fn to_route_what_was_not_asked_about_changes_nothing(script in scripts()) {
        for step in Trace::of(&script).steps {
            if let Input::Routed { stale: true, .. } = step.input {
                prop_assert_eq!(step.actions, []);
            }
        }
    }

    #[test]
    fn a_cancel_ends_the_one_request_it_means_and_nothing_else(script in scripts()) {
        let trace = Trace::of(&script);
        let mut mirror = Mirror::new(&trace.limits);
        let mut promised = BTreeSet::new();
        for step in &trace.steps {
            check_cancel(&mirror, step, &mut promised);
            mirror.follow(step);
        }
    }

    #[test]
    fn a_cancelled_request_in_line_keeps_its_place_and_its_outcome(script in scripts()) {
        let trace = Trace::of(&script);
        let mut mirror = Mirror::new(&trace.limits);
        let mut promised = BTreeSet::new();
        for step in &trace.steps {
            check_cancel(&mirror, step, &mut promised);
            for end in step.ends().filter(|end| promised.contains(&end.call)) {
                match problem(end) {
                    Some(ErrorKind::Cancelled) => prop_assert_eq!(end.delivery, Delivery::Send),
                    Some(ErrorKind::ClientGone) => prop_assert_eq!(end.delivery, Delivery::Withhold),
                    _ => prop_assert!(false, "{:?}", end),
                }
            }
            mirror.follow(step);
        }
    }

    #[test]
    fn every_outcome_has_its_cause(script in scripts()) {
        let trace = Trace::of(&script);
        let lives = Life::all(&trace);
        let mut mirror = Mirror::new(&trace.limits);
        let mut promised = BTreeSet::new();
        let mut before: Option<&Step> = None;
        for (at, step) in trace.steps.iter().enumerate() {
            check_cancel(&mirror, step, &mut promised);
            let cancelled = match &step.input {
                Input::Cancel { session, target, .. } => mirror.target(*session, target),
                _ => None,
            }.map(|live| live.asked.call);
            let expected = match &step.input {
                Input::Asked(asked) => mirror.refusal(asked),
                _ => None,
            };
            // Ends of this step are judged against the world just before each of them.
            mirror.follow(&Step { actions: Vec::new(), ..step.clone() });
            for end in step.ends() {
                let case = Case {
                    trace: &trace, at, step, before, end, life: &lives[&end.call], mirror: &mirror,
                    cancelled: cancelled == Some(end.call) || promised.contains(&end.call),
                    expected,
                };
                prop_assert!(case.is_explained(), "{:?} {:?}", step.input, end);
                mirror.follow(&Step {
                    input: Input::Drifted,
                    actions: vec![Action::End(Box::new(end.clone()))],
                    ..step.clone()
                });
            }
            before = Some(step);
        }
    }

    #[test]
    fn a_convergent_call_is_never_lost_while_attempts_time_and_restarts_last(
        script in patient_scripts()
    ) {
        for life in Life::all(&Trace::of(&script)).values() {
            let (_, _, end) = &life.ends[0];
            let refused = life.asked.work == Wanted::Refusal
                || problem(end) == Some(ErrorKind::DuplicateId);
            prop_assert!(end.outcome.is_ok() || refused, "{:?}", life);
        }
    }

    #[test]
    fn requests_in_turn_run_one_at_a_time_and_end_in_request_order(script in scripts()) {
        let trace = Trace::of(&script);
        let lives = Life::all(&trace);
        let in_turn = |call: &CallId| lives[call].asked.order == Order::InTurn;
        let mut mirror = Mirror::new(&trace.limits);
        for step in &trace.steps {
            mirror.follow(&Step { actions: Vec::new(), ..step.clone() });
            for action in &step.actions {
                let (call, delivered) = match action {
                    Action::Route { call } | Action::Serve { call } => (*call, true),
                    Action::Send { call, .. } => (call.call, true),
                    Action::End(end) => (end.call, end.delivery == Delivery::Send),
                    _ => continue,
                };
                if in_turn(&call) && delivered {
                    let session = lives[&call].asked.session;
                    let first = mirror.of(session).find(|live| live.asked.order == Order::InTurn);
                    prop_assert_eq!(first.map(|live| live.asked.call), Some(call));
                }
                if let Action::End(_) = action {
                    mirror.follow(&Step {
                        input: Input::Drifted,
                        actions: vec![action.clone()],
                        ..step.clone()
                    });
                }
            }
        }
    }

    #[test]
    fn a_call_that_is_late_has_ended_once_the_kernel_knows_the_time(script in scripts()) {
        let trace = Trace::of(&script);
        let mut mirror = Mirror::new(&trace.limits);
        for step in &trace.steps {
            mirror.follow(step);
            for end in step.ends() {
                if problem(end) == Some(ErrorKind::Timeout) {
                    let told = end.outcome.as_ref().unwrap_err().timeout_ms;
                    prop_assert!(told.is_some(), "TOOL_TIMEOUT names the timeout");
                }
            }
            if step.input == Input::Ticked {
                prop_assert!(mirror.live.values().all(|live| !live.is_late(step.at)));
            }
        }
    }

    #[test]
    fn progress_is_throttled_grows_and_stops_at_the_end(script in scripts()) {
        let trace = Trace::of(&script);
        let window_ms = 1000_u64.div_ceil(u64::from(trace.limits.progress_per_second));
        for life in Life::all(&trace).values() {
            for pair in life.progress.windows(2) {
                let ((_, earlier, low), (_, later, high)) = (pair[0], pair[1]);
                prop_assert!(later >= earlier.plus_ms(window_ms), "{:?}", life);
                prop_assert!(high > low, "{:?}", life);
            }
            if let Some((step, _, _)) = life.progress.last() {
                prop_assert!(*step <= life.ends[0].0, "{:?}", life);
            }
        }
        // Within one step, too: after an end comes nothing more about that call.
        for step in &trace.steps {
            let mut ended = BTreeSet::new();
            for action in &step.actions {
                match action {
                    Action::End(end) => { ended.insert(end.call); }
                    Action::Progress(notice) => prop_assert!(!ended.contains(&notice.call)),
                    Action::Route { call } | Action::Serve { call } => {
                        prop_assert!(!ended.contains(call));
                    }
                    Action::Send { call, .. } => prop_assert!(!ended.contains(&call.call)),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn a_session_is_over_exactly_when_all_is_answered_and_no_more_can_come(script in scripts()) {
        let trace = Trace::of(&script);
        let mut mirror = Mirror::new(&trace.limits);
        let (mut open, mut ended) = (BTreeSet::new(), BTreeSet::new());
        for step in &trace.steps {
            mirror.follow(step);
            match step.input {
                Input::Opened(session) => { open.insert(session); }
                Input::DoneAsking(session) | Input::Gone(session) => { ended.insert(session); }
                _ => {}
            }
            for action in &step.actions {
                if let Action::SessionOver { session } = action {
                    prop_assert!(open.remove(session));
                }
            }
            for session in &open {
                let answered = mirror.of(*session).next().is_none();
                prop_assert!(!(answered && ended.contains(session)), "{session} should be over");
            }
            prop_assert_eq!(step.gauges.sessions, open.len());
            prop_assert_eq!(step.gauges.calls, mirror.live.len());
        }
        prop_assert!(open.is_empty());
    }

    #[test]
    fn a_session_is_read_from_exactly_while_not_too_much_is_unanswered(script in scripts()) {
        let trace = Trace::of(&script);
        let mut mirror = Mirror::new(&trace.limits);
        let mut opened = BTreeSet::new();
        for step in &trace.steps {
            mirror.follow(step);
            if let Input::Opened(session) = step.input {
                opened.insert(session);
            }
            let wanted = opened.iter().filter(|session| mirror.wants_input(**session));
            prop_assert_eq!(&step.gauges.reading, &wanted.copied().collect::<Vec<_>>());
        }
    }
}

fn problem(end: &End) -> Option<ErrorKind> {
    end.outcome.as_ref().err().map(|problem| problem.kind)
}

/// A cancel ends its request at once, unless the request stands in line: then it keeps its place
/// (`promised`) if it is to be answered, and leaves it silently if not. The first cancel counts.
fn check_cancel(mirror: &Mirror, step: &Step, promised: &mut BTreeSet<CallId>) {
    let Input::Cancel {
        session,
        target,
        kind,
    } = &step.input
    else {
        return;
    };
    let Some(live) = mirror.target(*session, target) else {
        assert_eq!(step.actions, [], "a cancel of nothing does nothing");
        return;
    };
    let call = live.asked.call;
    if promised.contains(&call) || (live.began.is_none() && *kind == CancelKind::Answered) {
        promised.insert(call);
        assert_eq!(step.actions, [], "it keeps its place");
        return;
    }
    let end = step.ends().next().expect("a cancel ends its request");
    assert_eq!(end.call, call);
    let (kind, delivery) = match (live.is_late(step.at), kind) {
        (true, CancelKind::Answered) => (ErrorKind::Timeout, Delivery::Send),
        (true, CancelKind::Silent) => (ErrorKind::Timeout, Delivery::Withhold),
        (false, CancelKind::Answered) => (ErrorKind::Cancelled, Delivery::Send),
        (false, CancelKind::Silent) => (ErrorKind::Cancelled, Delivery::Withhold),
    };
    assert_eq!((problem(end), end.delivery), (Some(kind), delivery));
}

/// One end with everything that can have caused it.
struct Case<'a> {
    trace: &'a Trace,
    at: usize,
    step: &'a Step,
    before: Option<&'a Step>,
    end: &'a End,
    life: &'a Life,
    mirror: &'a Mirror,
    cancelled: bool,
    /// The mirror's expectation for the newest request.
    expected: Option<ErrorKind>,
}

impl Case<'_> {
    fn is_explained(&self) -> bool {
        let Some(kind) = problem(self.end) else {
            return self.is_answered(|answer| {
                matches!(answer, Answer::Tool(_) | Answer::Probed(Probed::Applied(_)))
            }) || self.step.input == Input::Served(self.end.call);
        };
        let replay = self.life.replay();
        match kind {
            ErrorKind::Cancelled => self.cancelled,
            ErrorKind::ClientGone => self.step.input == Input::Gone(self.end.session),
            ErrorKind::Timeout => self.is_late(),
            ErrorKind::ShuttingDown => self.mirror.stopping && self.may_be_repeated(),
            ErrorKind::InvalidParams => self.is_to_be_refused(),
            ErrorKind::DuplicateId => self.is_refused_as(kind) || self.waited(),
            ErrorKind::Overloaded => self.is_refused_as(kind) || self.queue_was_full(),
            ErrorKind::NotFound => self.is_answered(|answer| matches!(answer, Answer::Failed(_))),
            ErrorKind::WorkerProtocol => {
                self.is_answered(|answer| matches!(answer, Answer::Tool(_) | Answer::Probed(_)))
            }
            ErrorKind::WorkerUnavailable => self.slot_was_closed() && self.may_be_repeated(),
            ErrorKind::WorkerNotReady => {
                (self.was_given_up() || self.slot_was_closed()) && self.may_be_repeated()
            }
            ErrorKind::ReplayExhausted | ErrorKind::CallKillsWorker => {
                replay == Some(Replay::Convergent)
                    && self.life.real_sends() == 1 + self.trace.limits.replays as usize
            }
            ErrorKind::OutcomeUnknown => {
                replay != Some(Replay::Convergent) && !self.life.sends.is_empty()
            }
            _ => false,
        }
    }

    fn is_answered(&self, fits: impl Fn(&Answer) -> bool) -> bool {
        let last = self.life.sends.last().and_then(|sent| sent.answer.as_ref());
        last.is_some_and(|(at, answer)| *at == self.at && fits(answer))
    }

    fn is_late(&self) -> bool {
        let told = self.end.outcome.as_ref().err().and_then(|p| p.timeout_ms);
        let live = &self.mirror.live[&self.end.call];
        told == Some(live.timeout_ms) && live.is_late(self.step.at)
    }

    fn is_refused_as(&self, kind: ErrorKind) -> bool {
        self.expected == Some(kind)
            && matches!(&self.step.input, Input::Asked(asked) if asked.call == self.end.call)
    }

    /// It was known or has just turned out that it has no backend.
    fn is_to_be_refused(&self) -> bool {
        let told = Input::Routed {
            call: self.end.call,
            stale: false,
        };
        self.life.asked.work == Wanted::Refusal
            && (!self.life.asked.unrouted || self.step.input == told)
    }

    /// It stood in line with its refusal.
    fn waited(&self) -> bool {
        self.life.asked.order == Order::InTurn && !self.mirror.live[&self.end.call].admitted
    }

    fn slot_gauge(&self, of: impl Fn(usize, bool) -> bool) -> bool {
        let Wanted::Worker { slot, .. } = self.life.asked.work else {
            return false;
        };
        [self.before, Some(self.step)]
            .into_iter()
            .flatten()
            .any(|step| {
                let (depth, closed) = step.gauges.slots[slot];
                of(depth, closed)
            })
    }

    fn queue_was_full(&self) -> bool {
        // What a lost worker ran is put back within the step, before or after the refusal.
        let limits = &self.trace.limits;
        let back = match self.step.input {
            Input::Asked(_) | Input::Routed { .. } => 0,
            _ => limits.pool,
        };
        self.slot_gauge(|depth, _| depth + back >= limits.queue)
    }

    fn slot_was_closed(&self) -> bool {
        // When the last call of a stopping host ends, its slots are no longer failed but stopped.
        let stopped = self.mirror.stopping && self.step.gauges.calls == 0;
        stopped || self.slot_gauge(|_, closed| closed)
    }

    /// The worker that had it was never ready.
    fn was_given_up(&self) -> bool {
        let last = self.life.sends.last().map(|sent| sent.generation);
        matches!(&self.step.input, Input::Lost { generation, unready: true, .. }
            if Some(*generation) == last)
    }

    /// A client that is told to try again must not do harm by it.
    fn may_be_repeated(&self) -> bool {
        self.life
            .replay()
            .is_none_or(|replay| replay == Replay::Convergent)
            || self.life.real_sends() == 0
    }
}
