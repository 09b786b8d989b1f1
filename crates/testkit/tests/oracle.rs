//! The oracle is itself tested: histories in which one thing went wrong, and the breach that each
//! must give. An oracle that finds nothing here would find nothing in a storm.

use mainstay_contract::replay::Replay;
use mainstay_testkit::oracle::{
    Answer, Asked, Attempts, Breach, CancelKind, Effect, Event, Failure, History, Ledger, check,
    verify,
};

/// A history of one client, written step by step; time passes with each.
#[derive(Default)]
struct Story {
    history: History,
    effects: Vec<Effect>,
    now: u64,
}

impl Story {
    fn note(mut self, id: &str, event: Event) -> Self {
        self.now += 1;
        self.history.note(self.now, 0, id, event);
        self
    }

    fn asks(self, id: &str, call: Ledger) -> Self {
        self.note(id, Event::Asked(call.asked))
    }

    fn hears(self, id: &str, failure: Failure) -> Self {
        self.note(id, Event::Answered(Answer::Failed(failure)))
    }

    fn succeeds(self, id: &str) -> Self {
        self.note(id, Event::Answered(Answer::Success(None)))
    }

    fn happens(mut self, call: &Ledger) -> Self {
        self.effects.extend(call.asked.effect.clone());
        self
    }

    fn breaches(&self) -> Vec<Breach> {
        check(&self.history, &self.effects, Attempts::Last).1
    }

    fn only_breach(&self) -> Breach {
        let mut breaches = self.breaches();
        assert_eq!(breaches.len(), 1, "{breaches:?}");
        breaches.remove(0)
    }
}

fn append() -> Ledger {
    Ledger::append("a")
}

fn transfer() -> Ledger {
    Ledger::transfer("t", "x", "y")
}

fn put(value: &str) -> Ledger {
    Ledger::put("k", value)
}

#[test]
fn a_history_that_keeps_every_promise_has_no_breach() {
    let story = Story::default()
        // Lost after its effect, and lost before it.
        .asks("1", append())
        .happens(&append())
        .hears("1", Failure::OutcomeUnknown)
        .asks("2", Ledger::append("b"))
        .hears("2", Failure::OutcomeUnknown)
        // Probed.
        .asks("3", transfer())
        .happens(&transfer())
        .succeeds("3")
        // Repeated; both write, and the later call comes last.
        .asks("4", put("1"))
        .happens(&put("1"))
        .happens(&put("1"))
        .succeeds("4")
        .asks("5", put("2"))
        .happens(&put("2"))
        .succeeds("5")
        // Cancelled both ways, one answer on its way already.
        .asks("6", Ledger::wait(9, 1))
        .note("6", Event::Progress)
        .note("6", Event::Cancelled(CancelKind::Answered))
        .hears("6", Failure::Cancelled)
        .asks("7", Ledger::wait(9, 1))
        .note("7", Event::Cancelled(CancelKind::Silent))
        .asks("8", Ledger::get())
        .note("8", Event::Cancelled(CancelKind::Silent))
        .succeeds("8")
        .asks("9", Ledger::append("c"))
        .hears("9", Failure::Refused("overload".to_owned()))
        // Repeated until there was no worker left to repeat it.
        .asks("10", Ledger::put("other", "3"))
        .happens(&Ledger::put("other", "3"))
        .hears("10", Failure::Unavailable("no worker".to_owned()));
    let summary = verify(&story.history, &story.effects, Attempts::Last).unwrap();
    assert_eq!((summary.calls, summary.silent, summary.refused), (10, 1, 1));
    assert_eq!((summary.successes, summary.unknown), (4, 2));
}

#[test]
fn a_flipped_contract_is_found() {
    // What is right for a convergent call is wrong for one that must not be repeated, and the
    // other way round.
    let repeated = |replay| {
        let mut call = put("1");
        call.asked.replay = replay;
        let effects = put("1");
        Story::default()
            .asks("1", call)
            .happens(&effects)
            .happens(&effects)
            .succeeds("1")
    };
    assert_eq!(repeated(Replay::Convergent).breaches(), []);
    for replay in [Replay::NeverReplay, Replay::ProbeRequired] {
        let breach = repeated(replay).only_breach();
        assert!(
            matches!(breach, Breach::Repeated { effects: 2, .. }),
            "{breach}"
        );
    }
    let given_up = |replay| {
        let mut call = append();
        call.asked.replay = replay;
        Story::default()
            .asks("1", call)
            .hears("1", Failure::OutcomeUnknown)
    };
    assert_eq!(given_up(Replay::NeverReplay).breaches(), []);
    for replay in [Replay::Convergent, Replay::ProbeRequired] {
        let breach = given_up(replay).only_breach();
        assert!(matches!(breach, Breach::Lost { .. }), "{breach}");
    }
}

#[test]
fn a_dropped_fence_is_found_in_its_late_effect() {
    // The replaced worker still writes when its call has been answered by the successor.
    let breach = Story::default()
        .asks("1", put("1"))
        .happens(&put("1"))
        .succeeds("1")
        .asks("2", put("2"))
        .happens(&put("2"))
        .succeeds("2")
        .happens(&put("1"))
        .only_breach();
    assert!(
        matches!(&breach, Breach::Stale { call, after }
        if call.contains("call 1") && after.contains("call 2")),
        "{breach}"
    );
}

#[test]
fn a_dropped_fence_is_found_in_its_second_answer() {
    let breach = Story::default()
        .asks("1", put("1"))
        .happens(&put("1"))
        .succeeds("1")
        .succeeds("1")
        .only_breach();
    assert!(
        matches!(breach, Breach::AnsweredTwice { answers: 2, .. }),
        "{breach}"
    );
}

#[test]
fn a_dropped_fence_is_found_under_a_probed_call() {
    // The probe found nothing, because the replaced worker wrote only after it.
    let breach = Story::default()
        .asks("1", transfer())
        .happens(&transfer())
        .happens(&transfer())
        .succeeds("1")
        .only_breach();
    assert!(
        matches!(breach, Breach::Repeated { effects: 2, .. }),
        "{breach}"
    );
}

#[test]
fn a_retry_after_a_partial_write_is_found() {
    // The call was cut on its way, taken for unsent and sent again, though its worker had read
    // enough to run it.
    for answer in [
        Answer::Success(None),
        Answer::Failed(Failure::OutcomeUnknown),
    ] {
        let breach = Story::default()
            .asks("1", append())
            .happens(&append())
            .happens(&append())
            .note("1", Event::Answered(answer))
            .only_breach();
        assert!(
            matches!(breach, Breach::Repeated { effects: 2, .. }),
            "{breach}"
        );
    }
}

#[test]
fn overlapping_calls_on_one_subject_may_end_in_any_order() {
    let story = Story::default()
        .asks("1", put("1"))
        .asks("2", put("2"))
        .happens(&put("2"))
        .happens(&put("1"))
        .happens(&put("2"))
        .succeeds("1")
        .succeeds("2");
    assert_eq!(story.breaches(), []);
}

#[test]
fn every_other_broken_promise_has_its_breach() {
    let asked = || Story::default().asks("1", append());
    let refused = Failure::Refused("overload".to_owned());
    let unavailable = Failure::Unavailable("no worker".to_owned());
    let other = Ledger::append("b").asked.effect;
    for (story, expected) in [
        (asked(), "no answer"),
        (asked().succeeds("1"), "no effect"),
        (asked().happens(&append()).hears("1", refused), "refused"),
        (
            asked().happens(&append()).hears("1", unavailable),
            "refused",
        ),
        (
            asked().hears("1", Failure::Cancelled),
            "cancelled by nobody",
        ),
        (asked().hears("1", Failure::Exhausted), "given up"),
        (
            asked()
                .happens(&append())
                .succeeds("1")
                .note("1", Event::Progress),
            "progress after",
        ),
        (
            asked()
                .happens(&append())
                .note("1", Event::Answered(Answer::Success(other))),
            "another effect",
        ),
        (Story::default().succeeds("9"), "no such call"),
        (Story::default().happens(&append()), "effect of no call"),
        (
            Story::default()
                .asks("1", put("1"))
                .hears("1", Failure::Exhausted),
            "given up",
        ),
        (
            asked()
                .hears("1", Failure::OutcomeUnknown)
                .asks("1", Ledger::get())
                .succeeds("1"),
            "asked twice",
        ),
    ] {
        let breaches = story.breaches();
        assert!(
            breaches
                .iter()
                .any(|breach| breach.to_string().contains(expected)),
            "{expected}: {breaches:?}"
        );
        assert!(
            verify(&story.history, &story.effects, Attempts::Last).is_err(),
            "{expected}"
        );
    }
}

#[test]
fn a_call_may_use_up_its_attempts_only_where_the_test_says_so() {
    let convergent = Story::default()
        .asks("1", put("1"))
        .hears("1", Failure::Exhausted);
    let probed = Story::default()
        .asks("1", transfer())
        .hears("1", Failure::OutcomeUnknown);
    for story in [convergent, probed] {
        assert!(matches!(story.only_breach(), Breach::Lost { .. }));
        assert_eq!(
            check(&story.history, &story.effects, Attempts::MayEnd).1,
            []
        );
    }
}

#[test]
fn effects_of_tools_that_the_oracle_does_not_know_are_judged_alike() {
    let effect = Effect {
        tool: "mail".to_owned(),
        subject: "to:x".to_owned(),
        value: "m1".to_owned(),
    };
    let asked = Asked {
        tool: "mail".to_owned(),
        replay: Replay::NeverReplay,
        effect: Some(effect.clone()),
    };
    let mut story = Story::default()
        .note("1", Event::Asked(asked))
        .succeeds("1");
    story.effects = vec![effect.clone(), effect];
    assert!(matches!(
        story.only_breach(),
        Breach::Repeated { effects: 2, .. }
    ));
}
