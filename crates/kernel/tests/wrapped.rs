//! Stories of wrapped servers: their state is worth more than our order.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod desk;

use mainstay_contract::dialect::CancelKind::Silent;
use mainstay_contract::dialect::Dialect::Legacy;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{Generation, SessionId};
use mainstay_contract::limits::Limits;
use mainstay_contract::replay::Replay::{Convergent, NeverReplay};
use mainstay_kernel::action::Sight;
use mainstay_kernel::call::{Late, SlotId, Work};
use mainstay_kernel::session::Pace;
use mainstay_kernel::{Conduct, Kernel};

use self::desk::{Desk, TIMEOUT_MS, tool, tool_answer};

fn lenient(limits: Limits) -> Desk {
    let mut desk = Desk::with_pings(limits.clone());
    desk.kernel = Kernel::seeded(limits, 0);
    desk.kernel
        .add_slot("a", Conduct::Lenient, Some(SessionId::new(1)));
    desk.kernel.warm(desk.now, SlotId(0));
    desk.ready(1);
    assert_eq!(desk.did(), ["spawn 1"]);
    desk
}

/// A server that several sessions share.
fn shared(limits: Limits) -> Desk {
    let mut desk = Desk::with_pings(limits.clone());
    desk.kernel = Kernel::seeded(limits, 0);
    let slot = desk.kernel.add_slot("a", Conduct::Lenient, None);
    desk.kernel.share_slot(slot);
    desk.kernel.warm(desk.now, slot);
    desk.ready(1);
    desk.did();
    desk
}

fn without_pings() -> Limits {
    Limits {
        ping_interval_ms: 0,
        ..Limits::default()
    }
}

/// A call that may run again and has a minute.
fn ask_patiently(desk: &mut Desk, client: SessionId, id: &str) {
    let mut work = tool(Convergent);
    if let Work::Worker(task) = &mut work {
        task.timeout_ms = 60_000;
    }
    desk.request(client, Legacy, id, work);
}

#[test]
fn a_server_that_answers_a_ping_keeps_its_state_after_a_timeout() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.did();
    desk.wait(TIMEOUT_MS);
    assert_eq!(desk.did(), ["cancel 1 at 1", "end 1 Timeout after 1000 ms"]);
    desk.wait(2000);
    assert_eq!(desk.did(), ["ping 1"], "asked, not ended");
    desk.kernel.handle_pong(desk.now, Generation::new(1));
    desk.wait(600_000);
    assert_eq!(desk.did(), [""; 0]);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), [""; 0], "a late answer is dropped");
    desk.ask(client, Legacy, "2", NeverReplay);
    assert_eq!(desk.did(), ["send 2 to 1"]);
}

#[test]
fn a_server_that_does_not_even_answer_a_ping_is_replaced() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.wait(TIMEOUT_MS);
    desk.wait(2000);
    desk.did();
    desk.wait(4500);
    desk.ask(client, Legacy, "2", Convergent);
    assert_eq!(desk.did(), ["send 2 to 1"], "nobody knows yet");
    desk.wait(500);
    assert_eq!(desk.did(), ["look 1"], "it may be busy with the other call");
    desk.wait(500);
    assert_eq!(
        desk.did(),
        ["cancel 2 at 1", "end 2 Timeout after 1000 ms"],
        "which has a deadline, too"
    );
    desk.wait(5000);
    let did = desk.did();
    assert!(did.contains(&"abandon 1".to_owned()), "{did:?}");
}

#[test]
fn a_silent_server_is_replaced_however_often_it_is_called() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    let mut did = Vec::new();
    for id in 1..=20 {
        desk.ask(client, Legacy, &id.to_string(), NeverReplay);
        desk.wait(TIMEOUT_MS);
        did.extend(desk.did());
    }
    let spawned = did.iter().position(|did| did == "spawn 2");
    let spawned = spawned.unwrap_or_else(|| panic!("never replaced: {did:#?}"));
    // It keeps what it was given until that ends, and gets nothing more.
    let sent = |did: &&String| did.starts_with("send") && did.ends_with("to 1");
    assert_eq!(did[spawned..].iter().filter(sent).count(), 0, "{did:#?}");
    assert!(did.contains(&"abandon 1".to_owned()), "{did:#?}");
    // So there is none in its hands when it is ended, handed over or not, about which to guess.
    let guessed = did.iter().any(|did| did.contains("OutcomeUnknown"));
    assert!(!guessed, "{did:#?}");
}

#[test]
fn calls_that_never_end_do_not_use_up_the_places() {
    let limits = Limits {
        pool: 2,
        ..without_pings()
    };
    let mut desk = lenient(limits);
    let client = desk.open();
    for round in 0..5 {
        for id in [round * 2 + 1, round * 2 + 2] {
            desk.ask(client, Legacy, &id.to_string(), NeverReplay);
        }
        let did = desk.did();
        assert_eq!(
            did.iter().filter(|did| did.starts_with("send")).count(),
            2,
            "{did:?}"
        );
        desk.wait(TIMEOUT_MS);
        desk.wait(2000);
        desk.kernel.handle_pong(desk.now, Generation::new(1));
        desk.did();
    }
}

#[test]
fn no_session_keeps_the_others_from_a_server_that_they_share() {
    let limits = Limits {
        pool: 4,
        queue: 2,
        ..without_pings()
    };
    let mut desk = shared(limits);
    let (first, second, third) = (desk.open(), desk.open(), desk.open());
    for id in ["1", "2", "3", "4", "5"] {
        ask_patiently(&mut desk, first, id);
    }
    // It has two places and two in the queue.
    assert_eq!(
        desk.did(),
        ["send 1 to 1", "send 2 to 1", "end 5 Overloaded"]
    );
    ask_patiently(&mut desk, second, "6");
    ask_patiently(&mut desk, second, "7");
    assert_eq!(desk.did(), ["send 6 to 1"]);
    ask_patiently(&mut desk, third, "8");
    assert_eq!(
        desk.did(),
        ["send 8 to 1"],
        "each new session finds a place"
    );
    desk.answer(1, 6, tool_answer());
    assert_eq!(desk.did(), ["end 6 ok", "send 7 to 1"]);
    desk.answer(1, 1, tool_answer());
    desk.answer(1, 8, tool_answer());
    assert_eq!(desk.did(), ["end 1 ok", "end 8 ok", "send 3 to 1"]);
}

#[test]
fn cancelled_calls_of_a_session_do_not_keep_the_others_from_a_server() {
    let limits = Limits {
        pool: 4,
        ..without_pings()
    };
    let mut desk = shared(limits);
    let (first, second) = (desk.open(), desk.open());
    // The server answers no cancelled call, as MCP asks of it.
    for id in ["1", "2", "3", "4"] {
        ask_patiently(&mut desk, first, id);
        desk.cancel(first, id, Silent);
    }
    let did = desk.did();
    let sent = did.iter().filter(|did| did.starts_with("send"));
    assert_eq!(sent.count(), 2, "{did:?}");
    ask_patiently(&mut desk, first, "5");
    assert_eq!(desk.did(), [""; 0]);
    ask_patiently(&mut desk, second, "6");
    assert_eq!(desk.did(), ["send 6 to 1"]);
    // After the grace its places are free again.
    desk.wait(2000);
    assert!(desk.did().contains(&"send 5 to 1".to_owned()));
}

#[test]
fn a_server_that_works_is_not_pinged_and_one_that_knows_no_ping_is_left_alone() {
    let mut desk = lenient(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    desk.did();
    for _ in 0..9 {
        desk.wait(100);
    }
    assert_eq!(desk.did(), [""; 0], "at work");
    desk.answer(1, 1, tool_answer());
    desk.did();
    desk.wait(6000);
    desk.wait(6000);
    let did = desk.did();
    assert_eq!(
        did.iter().filter(|did| *did == "ping 1").count(),
        1,
        "{did:?}"
    );
    for _ in 0..20 {
        desk.wait(30_000);
    }
    let did = desk.did();
    assert!(
        did.iter().all(|did| did == "ping 1"),
        "it may not know what a ping is: {did:?}"
    );
    assert!(did.len() < 12, "and is rarely asked: {did:?}");
}

#[test]
fn an_idle_server_that_used_to_answer_pings_and_does_not_any_more_is_replaced() {
    let mut desk = lenient(Limits::default());
    desk.wait(5000);
    assert_eq!(desk.did(), ["ping 1"]);
    desk.kernel.handle_pong(desk.now, Generation::new(1));
    desk.wait(5000);
    assert_eq!(desk.did(), ["ping 1"]);
    desk.wait(5000);
    assert!(desk.did().contains(&"abandon 1".to_owned()));
}

#[test]
fn deadlines_stand_still_while_the_client_is_asked() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.wait(400);
    desk.did();
    desk.kernel.handle_asking(desk.now, SlotId(0), true);
    desk.wait(60_000);
    desk.ask(client, Legacy, "2", NeverReplay);
    desk.wait(60_000);
    assert_eq!(desk.did(), ["send 2 to 1"]);
    desk.kernel.handle_asking(desk.now, SlotId(0), false);
    desk.wait(599);
    assert_eq!(desk.did(), [""; 0]);
    desk.wait(1);
    assert_eq!(desk.did(), ["cancel 1 at 1", "end 1 Timeout after 1000 ms"]);
    desk.wait(400);
    assert_eq!(
        desk.did(),
        ["cancel 2 at 1", "end 2 Timeout after 1000 ms"],
        "it had all of its time left"
    );
}

#[test]
fn a_question_that_is_never_answered_does_not_hold_deadlines_for_ever() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.kernel.handle_asking(desk.now, SlotId(0), true);
    desk.did();
    let limit = Limits::default().progress_timeout_ms;
    desk.wait(limit);
    desk.wait(TIMEOUT_MS);
    assert_eq!(desk.did(), ["cancel 1 at 1", "end 1 Timeout after 1000 ms"]);
}

#[test]
fn a_cancel_while_the_client_is_asked_is_a_cancel() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.kernel.handle_asking(desk.now, SlotId(0), true);
    desk.wait(TIMEOUT_MS + 1);
    desk.did();
    desk.cancel(client, "1", Silent);
    assert_eq!(desk.did(), ["cancel 1 at 1", "end 1 Cancelled withheld"]);
}

#[test]
fn an_idle_worker_may_rest_and_the_next_call_starts_another() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    desk.did();
    assert!(!desk.kernel.rest(SlotId(0)), "it is at work");
    desk.answer(1, 1, tool_answer());
    desk.did();
    assert!(desk.kernel.rest(SlotId(0)));
    assert_eq!(desk.did(), ["stop 1 Dismiss"]);
    desk.lose(1, &[]);
    desk.reap(1);
    assert_eq!(desk.did(), [""; 0], "its end is no fault");
    desk.ask(client, Legacy, "2", Convergent);
    assert_eq!(desk.did(), ["spawn 2"]);
}

#[test]
fn a_server_that_only_dies_is_not_waited_for_but_started_again() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    ask_patiently(&mut desk, client, "1");
    desk.did();
    for generation in 1..=3 {
        desk.lose(generation, &[1]);
        desk.reap(generation);
        desk.wait(400);
        desk.ready(generation + 1);
        let next = generation + 1;
        let expected = [format!("spawn {next}"), format!("send 1 to {next}")];
        assert_eq!(desk.did(), expected);
    }
    desk.lose(4, &[1]);
    desk.reap(4);
    assert_eq!(desk.did(), ["end 1 WorkerSetup"]);
    desk.wait(800);
    assert_eq!(desk.did(), ["spawn 5"], "its budget is not spent");
}

#[test]
fn a_request_that_no_server_survives_is_not_to_blame_before_the_first_answer() {
    let mut desk = lenient(Limits {
        replays: 1,
        ..without_pings()
    });
    let client = desk.open();
    ask_patiently(&mut desk, client, "1");
    desk.lose(1, &[]);
    desk.reap(1);
    desk.wait(400);
    desk.ready(2);
    desk.did();
    desk.lose(2, &[]);
    assert_eq!(desk.did(), ["end 1 WorkerSetup"]);
}

#[test]
fn a_call_that_ends_every_server_pays_for_them_itself() {
    let mut desk = lenient(Limits {
        restarts: 0,
        replays: 1,
        ..without_pings()
    });
    let client = desk.open();
    ask_patiently(&mut desk, client, "1");
    desk.answer(1, 1, tool_answer());
    desk.did();
    let mut generation = 1;
    for call in 2..=4 {
        ask_patiently(&mut desk, client, &call.to_string());
        for _ in 0..2 {
            desk.lose(generation, &[]);
            desk.reap(generation);
            desk.wait(2_000);
            generation += 1;
            desk.ready(generation);
        }
        let did = desk.did();
        let end = format!("end {call} CallKillsWorker");
        assert!(did.contains(&end), "{did:?}");
    }
    ask_patiently(&mut desk, client, "5");
    desk.answer(generation, 5, tool_answer());
    let did = desk.did();
    assert!(
        did.iter()
            .any(|what| what.starts_with("end 5") && !what.contains("Worker")),
        "{did:?}"
    );
}

#[test]
fn a_slow_start_that_fails_twice_is_enough() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    ask_patiently(&mut desk, client, "1");
    desk.wait(2500);
    desk.lose(1, &[1]);
    desk.reap(1);
    desk.wait(100);
    desk.ready(2);
    desk.did();
    desk.wait(2500);
    desk.lose(2, &[1]);
    assert_eq!(desk.did(), ["end 1 WorkerSetup"]);
}

#[test]
fn a_start_that_fails_after_a_long_time_is_not_repeated_for_its_request() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    ask_patiently(&mut desk, client, "1");
    desk.did();
    desk.wait(40_000);
    desk.lose(1, &[1]);
    assert_eq!(desk.did(), ["end 1 WorkerSetup"]);
    desk.reap(1);
    desk.wait(800);
    assert_eq!(desk.did(), ["spawn 2"], "the next request finds a server");
}

#[test]
fn whoever_waits_for_a_server_that_once_worked_waits_for_its_budget() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    desk.kernel.handle_proof(Generation::new(1));
    ask_patiently(&mut desk, client, "1");
    for generation in 1..=6 {
        desk.lose(generation, &[1]);
        desk.reap(generation);
        desk.wait(5000);
        desk.ready(generation + 1);
        let did = desk.did();
        assert!(did.iter().all(|did| !did.starts_with("end")), "{did:?}");
    }
}

#[test]
fn nobody_waits_for_the_next_of_a_server_that_was_never_ready() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    desk.ask(client, Legacy, "2", NeverReplay);
    desk.ask(client, Legacy, "3", NeverReplay);
    desk.did();
    desk.lose_as(1, ErrorKind::WorkerNotReady, &[3]);
    let did = desk.did();
    assert_eq!(
        did,
        [
            "end 3 WorkerNotReady",
            "end 2 OutcomeUnknown",
            "end 1 WorkerNotReady"
        ],
        "what was handed over may have run"
    );
    desk.kernel
        .handle_words(Generation::new(1), "please log in");
    let fault = desk.kernel.health(desk.now).workers[0].last_fault.clone();
    assert_eq!(fault.unwrap().stderr.as_deref(), Some("please log in"));
}

#[test]
fn a_session_that_is_not_opened_in_time_was_never_ready() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    let mut opening = tool(Convergent);
    if let Work::Worker(task) = &mut opening {
        task.late = Late::Open;
    }
    desk.request(client, Legacy, "1", opening);
    desk.did();
    desk.wait(TIMEOUT_MS);
    let expected = ["cancel 1 at 1", "end 1 WorkerNotReady after 1000 ms"];
    assert_eq!(desk.did(), expected);
    desk.wait(2000);
    assert_eq!(desk.did(), ["stop 1 Terminate"], "it is of no use");
}

/// The driver's look at a worker's processes.
fn look(desk: &mut Desk, sight: Sight) -> bool {
    let generation = Generation::new(1);
    let hopeless = desk.kernel.is_hopeless(generation, sight);
    if hopeless {
        desk.lose(1, &[]);
    }
    hopeless
}

#[test]
fn a_server_that_is_stopped_loses_its_calls_long_before_their_deadlines() {
    let mut desk = lenient(Limits::default());
    let client = desk.open();
    desk.kernel.handle_proof(Generation::new(1));
    ask_patiently(&mut desk, client, "1");
    desk.did();
    desk.wait(900);
    assert_eq!(desk.did(), [""; 0], "it is not silent for long");
    desk.wait(4100);
    let did = desk.did();
    assert!(did.contains(&"look 1".to_owned()), "{did:?}");
    assert!(!look(&mut desk, Sight::Runs), "it works");
    desk.wait(5000);
    assert_eq!(desk.did(), ["look 1"]);
    assert!(!look(&mut desk, Sight::Still), "nothing was asked of it");
    desk.ask(client, Legacy, "2", NeverReplay);
    desk.did();
    assert!(look(&mut desk, Sight::Stopped));
    assert_eq!(desk.did(), ["end 2 OutcomeUnknown"]);
    desk.wait(100);
    desk.ready(2);
    desk.reap(1);
    let expected = ["spawn 2", "send 1 to 2, attempt 2"];
    assert_eq!(desk.did(), expected, "what may run again does");
}

#[test]
fn a_server_that_owes_an_answer_and_stands_still_is_lost_and_one_that_runs_is_not() {
    let mut desk = lenient(without_pings());
    let client = desk.open();
    desk.kernel.handle_proof(Generation::new(1));
    desk.ask(client, Legacy, "1", NeverReplay);
    ask_patiently(&mut desk, client, "2");
    desk.wait(TIMEOUT_MS);
    assert!(!look(&mut desk, Sight::Still), "nobody has pinged it");
    desk.wait(2000);
    desk.did();
    desk.wait(5000);
    assert_eq!(desk.did(), ["look 1"]);
    assert!(!look(&mut desk, Sight::Runs));
    assert!(look(&mut desk, Sight::Still));
    desk.reap(1);
    desk.wait(100);
    desk.ready(2);
    assert_eq!(desk.did(), ["spawn 2", "send 2 to 2, attempt 2"]);
}

#[test]
fn a_server_whose_client_takes_nothing_is_not_to_blame_for_its_silence() {
    let mut desk = lenient(Limits::default());
    let client = desk.open();
    ask_patiently(&mut desk, client, "1");
    desk.kernel.handle_pace(desk.now, client, Pace::Behind);
    desk.wait(5000);
    assert!(!desk.did().contains(&"look 1".to_owned()));
    assert!(!look(&mut desk, Sight::Stopped));
}
