//! Behaviour worth reading: one story per test, at times that are written down.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod desk;

use mainstay_contract::dialect::CancelKind::{Answered, Silent};
use mainstay_contract::dialect::Dialect::{Direct, Legacy};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::limits::Limits;
use mainstay_contract::replay::Replay::{Convergent, NeverReplay, ProbeRequired};
use mainstay_contract::rpc::{Answer, Probed};
use mainstay_contract::tool::Pace;
use mainstay_kernel::call::{SlotId, Work};

use self::desk::{Desk, TIMEOUT_MS, tool, tool_answer};

#[test]
fn a_call_is_sent_once_its_worker_is_ready_and_answered_once() {
    let mut desk = Desk::new(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    assert_eq!(desk.did(), ["spawn 1"]);
    desk.ready(1);
    assert_eq!(desk.did(), ["send 1 to 1"]);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), ["end 1 ok"]);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), [""; 0], "an answer counts once");
}

#[test]
fn calls_of_a_worker_that_is_set_up_wrongly_are_told_so_at_once() {
    let mut desk = Desk::new(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    desk.did();
    desk.lose_as(1, ErrorKind::WorkerSetup, &[]);
    assert_eq!(desk.did(), ["end 1 WorkerSetup"]);
    desk.ask(client, Legacy, "2", Convergent);
    assert_eq!(desk.did(), ["end 2 WorkerSetup"]);
}

#[test]
fn a_queued_call_that_is_cancelled_never_starts() {
    let mut desk = Desk::new(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.did();
    desk.cancel(client, "1", Answered);
    assert_eq!(desk.did(), ["end 1 Cancelled"]);
    desk.ready(1);
    assert_eq!(desk.did(), [""; 0]);
}

#[test]
fn a_cancel_in_flight_is_answered_at_once_and_the_worker_is_told() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.did();
    desk.cancel(client, "\"1\"", Answered);
    assert_eq!(desk.did(), ["cancel 1 at 1", "end 1 Cancelled"]);
    desk.answer(1, 1, tool_answer());
    assert_eq!(
        desk.did(),
        [""; 0],
        "what finishes after its cancel is still cancelled"
    );
}

#[test]
fn a_silent_cancel_withholds_the_answer() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.did();
    desk.cancel(client, "1", Silent);
    assert_eq!(desk.did(), ["cancel 1 at 1", "end 1 Cancelled withheld"]);
}

#[test]
fn a_timeout_beats_a_cancel_that_comes_when_time_is_up() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.did();
    // The clock has passed the deadline; the driver has not said so yet.
    desk.now = desk.now.plus_ms(TIMEOUT_MS);
    desk.cancel(client, "1", Answered);
    assert_eq!(desk.did(), ["cancel 1 at 1", "end 1 Timeout after 1000 ms"]);
}

#[test]
fn a_cancelled_direct_request_is_answered_in_its_place() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    for id in ["1", "2", "3"] {
        desk.ask(client, Direct, id, Convergent);
    }
    assert_eq!(desk.did(), ["send 1 to 1"]);
    desk.cancel(client, "2", Answered);
    // Only the first of two cancels counts.
    desk.cancel(client, "2", Silent);
    assert_eq!(desk.did(), [""; 0]);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), ["end 1 ok", "end 2 Cancelled", "send 3 to 1"]);
}

#[test]
fn a_direct_request_that_leaves_the_line_does_not_hold_up_the_others() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    for id in ["1", "2", "3"] {
        desk.ask(client, Direct, id, Convergent);
    }
    desk.did();
    desk.cancel(client, "2", Silent);
    assert_eq!(desk.did(), ["end 2 Cancelled withheld"]);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), ["end 1 ok", "send 3 to 1"]);
}

#[test]
fn a_line_of_refusals_as_long_as_the_backlog_ends_in_order() {
    let mut desk = Desk::with_worker(Limits {
        ordered_backlog: 65_536,
        ..Limits::default()
    });
    let client = desk.open();
    desk.ask(client, Direct, "1", Convergent);
    for _ in 1..65_536 {
        desk.ask_in_vain(client, Direct, "7");
    }
    assert!(!desk.kernel.wants_input(client), "reading pauses");
    desk.did();
    desk.answer(1, 1, tool_answer());
    let did = desk.did();
    assert_eq!(did.len(), 65_536);
    assert_eq!(did[65_535], "end 65536 InvalidParams");
}

#[test]
fn a_direct_client_may_send_more_than_the_limit_in_flight() {
    let mut desk = Desk::with_worker(Limits {
        in_flight: 2,
        ..Limits::default()
    });
    let client = desk.open();
    for id in ["1", "2", "3", "4"] {
        desk.ask(client, Direct, id, Convergent);
    }
    assert_eq!(desk.did(), ["send 1 to 1"]);
    for id in ["5", "6", "7"] {
        desk.ask(client, Legacy, id, Convergent);
    }
    assert_eq!(
        desk.did(),
        ["send 5 to 1", "send 6 to 1", "end 7 Overloaded"]
    );
}

#[test]
fn a_full_queue_refuses_and_leaves_the_others_alone() {
    let mut desk = Desk::new(Limits {
        queue: 1,
        pool: 1,
        ..Limits::default()
    });
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    desk.ask(client, Legacy, "2", Convergent);
    assert_eq!(desk.did(), ["spawn 1", "end 2 Overloaded"]);
    desk.ready(1);
    desk.ask(client, Legacy, "3", Convergent);
    assert_eq!(desk.did(), ["send 1 to 1"]);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), ["end 1 ok", "send 3 to 1"]);
}

#[test]
fn after_a_loss_each_class_gets_its_own_verdict() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    desk.ask(client, Legacy, "2", ProbeRequired);
    desk.ask(client, Legacy, "3", NeverReplay);
    desk.ask(client, Legacy, "4", NeverReplay);
    desk.did();
    // The fault of a NeverReplay call does not wait for the reap; 4 never left the host.
    desk.lose(1, &[4]);
    assert_eq!(desk.did(), ["end 3 OutcomeUnknown"]);
    desk.wait(50);
    desk.ready(2);
    assert_eq!(desk.did(), ["spawn 2", "send 4 to 2"]);
    desk.reap(1);
    assert_eq!(desk.did(), ["send 1 to 2, attempt 2", "probe 2 at 2"]);
    desk.answer(2, 2, Answer::Probed(Probed::NotApplied {}));
    assert_eq!(desk.did(), ["send 2 to 2, attempt 2"]);
}

#[test]
fn a_call_that_a_lost_host_may_have_sent_follows_its_class() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.unsettled = true;
    desk.ask(client, Legacy, "1", Convergent);
    desk.ask(client, Legacy, "2", ProbeRequired);
    desk.ask(client, Legacy, "3", NeverReplay);
    let sent = "send 1 to 1, attempt 2";
    assert_eq!(desk.did(), [sent, "probe 2 at 1", "end 3 OutcomeUnknown"]);
    desk.answer(1, 2, Answer::Probed(Probed::NotApplied {}));
    assert_eq!(desk.did(), ["send 2 to 1, attempt 2"]);
    // A refusal now says nothing about what happened then.
    desk.ask_in_vain(client, Legacy, "4");
    desk.ask_unrouted(client, Legacy, "5");
    desk.route_in_vain(5);
    assert_eq!(
        desk.did(),
        ["end 4 OutcomeUnknown", "route 5", "end 5 OutcomeUnknown"]
    );
    // Neither does a probe that does not answer.
    desk.ask(client, Legacy, "6", ProbeRequired);
    assert_eq!(desk.did(), ["probe 6 at 1"]);
    desk.wait(TIMEOUT_MS);
    let did = desk.did();
    assert!(did.contains(&"end 6 OutcomeUnknown".to_owned()), "{did:?}");
}

#[test]
fn a_spent_budget_fails_calls_at_once_until_the_slot_has_rested() {
    let mut desk = Desk::with_worker(Limits {
        restarts: 1,
        ..Limits::default()
    });
    let client = desk.open();
    desk.lose(1, &[]);
    desk.reap(1);
    desk.wait(5000);
    assert_eq!(desk.did(), ["spawn 2"]);
    desk.ask(client, Legacy, "1", Convergent);
    desk.lose(2, &[]);
    assert_eq!(desk.did(), ["end 1 WorkerUnavailable"]);
    desk.ask(client, Legacy, "2", Convergent);
    assert_eq!(desk.did(), ["end 2 WorkerUnavailable"]);
    desk.wait(30_000);
    assert_eq!(desk.did(), [""; 0], "nobody asks, so nothing starts");
    desk.ask(client, Legacy, "3", Convergent);
    assert_eq!(desk.did(), ["spawn 3"]);
}

/// Loses a worker, and makes its successor ready.
fn replace(desk: &mut Desk, generation: u64) {
    desk.lose(generation, &[]);
    desk.reap(generation);
    desk.wait(50);
    desk.ready(generation + 1);
}

/// The messages and ends so far.
fn sent_and_ended(desk: &mut Desk) -> Vec<String> {
    let mut did = desk.did();
    did.retain(|what| what.starts_with("send") || what.starts_with("end"));
    did
}

#[test]
fn a_call_that_ends_every_worker_pays_for_them_itself() {
    let mut desk = Desk::with_worker(Limits {
        restarts: 0,
        ..Limits::default()
    });
    let client = desk.open();
    let mut generation = 1;
    for number in 1..=5 {
        desk.ask(client, Legacy, &number.to_string(), Convergent);
        for _ in 0..4 {
            replace(&mut desk, generation);
            generation += 1;
        }
        let did = sent_and_ended(&mut desk);
        assert_eq!(did.len(), 5, "four attempts, one end: {did:?}");
        assert_eq!(did[4], format!("end {number} CallKillsWorker"));
        assert!(!ErrorKind::CallKillsWorker.row().retryable);
    }
    desk.ask(client, Legacy, "6", Convergent);
    desk.answer(generation, 6, tool_answer());
    let innocent = [format!("send 6 to {generation}"), "end 6 ok".to_owned()];
    assert_eq!(sent_and_ended(&mut desk), innocent);
    // A worker that is lost while it is idle costs the budget, which is none.
    desk.lose(generation, &[]);
    desk.ask(client, Legacy, "7", Convergent);
    assert_eq!(sent_and_ended(&mut desk), ["end 7 WorkerUnavailable"]);
    let problem = desk.kernel.unavailable(desk.now, SlotId(0));
    assert_eq!(problem.retry_after_ms, Some(30_000));
}

#[test]
fn a_call_that_was_lost_together_with_another_is_tried_alone_and_succeeds() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    desk.ask(client, Legacy, "2", Convergent);
    replace(&mut desk, 1);
    desk.did();
    replace(&mut desk, 2);
    assert_eq!(sent_and_ended(&mut desk), ["send 1 to 3, attempt 3"]);
    desk.ask(client, Legacy, "3", Convergent);
    replace(&mut desk, 3);
    assert_eq!(sent_and_ended(&mut desk), ["send 1 to 4, attempt 4"]);
    replace(&mut desk, 4);
    assert_eq!(
        sent_and_ended(&mut desk),
        ["end 1 CallKillsWorker", "send 2 to 5, attempt 3"]
    );
    desk.answer(5, 2, tool_answer());
    assert_eq!(sent_and_ended(&mut desk), ["end 2 ok", "send 3 to 5"]);
}

#[test]
fn a_suspect_that_runs_on_is_joined_by_others() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    replace(&mut desk, 1);
    replace(&mut desk, 2);
    desk.did();
    desk.wait(500);
    desk.progress(3, 1);
    desk.ask(client, Legacy, "2", Convergent);
    assert_eq!(sent_and_ended(&mut desk), [""; 0]);
    desk.wait(500);
    assert_eq!(sent_and_ended(&mut desk), ["send 2 to 3"]);
}

#[test]
fn long_calls_leave_the_pool_to_short_ones() {
    let mut desk = Desk::with_worker(Limits {
        pool: 1,
        ..Limits::default()
    });
    let client = desk.open();
    for id in ["1", "2"] {
        let Work::Worker(mut task) = tool(Convergent) else {
            panic!("it is a worker's");
        };
        task.pace = Pace::Long;
        desk.request(client, Legacy, id, Work::Worker(task));
    }
    desk.ask(client, Legacy, "3", Convergent);
    desk.ask(client, Legacy, "4", Convergent);
    assert_eq!(desk.did(), ["send 1 to 1", "send 3 to 1"]);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), ["end 1 ok", "send 2 to 1"]);
    desk.answer(1, 3, tool_answer());
    assert_eq!(desk.did(), ["end 3 ok", "send 4 to 1"]);
}

#[test]
fn a_worker_that_does_not_let_go_is_replaced_but_may_finish_its_other_calls() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    desk.wait(500);
    desk.ask(client, Legacy, "2", NeverReplay);
    desk.did();
    desk.wait(500);
    assert_eq!(desk.did(), ["cancel 1 at 1", "end 1 Timeout after 1000 ms"]);
    desk.progress(1, 2);
    desk.wait(900);
    desk.progress(1, 2);
    desk.wait(900);
    desk.progress(1, 2);
    desk.did();
    // Two seconds of grace have passed: a successor starts beside the old worker.
    desk.wait(200);
    desk.wait(50);
    assert_eq!(desk.did(), ["spawn 2"]);
    desk.ready(2);
    desk.ask(client, Legacy, "3", Convergent);
    assert_eq!(desk.did(), ["send 3 to 2"]);
    desk.answer(1, 2, tool_answer());
    assert_eq!(desk.did(), ["end 2 ok", "stop 1 Terminate"]);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), [""; 0], "the old worker is fenced off");
}

#[test]
fn a_stop_lets_calls_finish_and_then_dismisses_the_workers() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.did();
    desk.stop();
    desk.ask(client, Legacy, "2", Convergent);
    assert_eq!(desk.did(), ["end 2 ShuttingDown"]);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), ["end 1 ok", "stop 1 Dismiss"]);
    assert!(!desk.kernel.is_stopped(), "the worker is not reaped");
    desk.reap(1);
    assert!(desk.kernel.is_stopped());
    assert_eq!(desk.kernel.poll_timeout(), None);
}

#[test]
fn at_the_end_of_a_drain_everybody_is_answered_in_order() {
    let mut desk = Desk::with_worker(Limits {
        drain_ms: 100,
        ..Limits::default()
    });
    let client = desk.open();
    desk.ask(client, Direct, "1", NeverReplay);
    desk.ask(client, Direct, "2", NeverReplay);
    desk.ask(client, Direct, "3", NeverReplay);
    desk.did();
    desk.stop();
    desk.wait(100);
    assert_eq!(
        desk.did(),
        [
            "cancel 1 at 1",
            "end 1 OutcomeUnknown",
            "end 2 ShuttingDown",
            "end 3 ShuttingDown",
            "stop 1 Terminate",
        ]
    );
}

#[test]
fn a_session_is_over_when_its_last_request_is_answered() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Direct, "1", Convergent);
    desk.ask(client, Direct, "2", Convergent);
    desk.did();
    desk.end_input(client);
    assert_eq!(desk.did(), [""; 0]);
    desk.answer(1, 1, tool_answer());
    desk.answer(1, 2, tool_answer());
    assert_eq!(
        desk.did(),
        ["end 1 ok", "send 2 to 1", "end 2 ok", "session 1 over"]
    );
}

#[test]
fn when_a_client_has_gone_its_calls_are_cancelled_and_nobody_is_answered() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Direct, "1", NeverReplay);
    desk.ask(client, Direct, "2", NeverReplay);
    desk.ask(client, Legacy, "3", NeverReplay);
    desk.did();
    desk.gone(client);
    assert_eq!(
        desk.did(),
        [
            "cancel 3 at 1",
            "end 3 ClientGone withheld",
            "end 2 ClientGone withheld",
            "cancel 1 at 1",
            "end 1 ClientGone withheld",
            "session 1 over",
        ]
    );
    desk.ask(client, Legacy, "4", NeverReplay);
    assert_eq!(desk.did(), [""; 0], "a session that is over takes nothing");
}

#[test]
fn what_waits_for_a_probe_when_the_drain_ends_is_not_told_to_retry() {
    let mut desk = Desk::with_worker(Limits {
        drain_ms: 100,
        ..Limits::default()
    });
    let client = desk.open();
    desk.ask(client, Legacy, "1", ProbeRequired);
    desk.did();
    desk.lose(1, &[]);
    desk.stop();
    desk.wait(100);
    let did = desk.did();
    assert!(did.contains(&"end 1 OutcomeUnknown".to_owned()), "{did:?}");
    assert!(!ErrorKind::OutcomeUnknown.row().retryable);
}

#[test]
fn a_lost_op_that_has_no_probe_is_not_sent_again() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask_resource(client, "1", ProbeRequired);
    assert_eq!(desk.did(), ["send 1 to 1"]);
    desk.lose(1, &[]);
    assert_eq!(desk.did(), ["end 1 OutcomeUnknown"]);
}

#[test]
fn a_probed_call_does_not_wait_for_an_exhausted_slot() {
    let mut desk = Desk::with_worker(Limits {
        restarts: 0,
        ..Limits::default()
    });
    let client = desk.open();
    desk.ask(client, Legacy, "1", ProbeRequired);
    desk.lose(1, &[]);
    desk.reap(1);
    desk.wait(50);
    desk.ready(2);
    assert_eq!(desk.did(), ["send 1 to 1", "spawn 2", "probe 1 at 2"]);
    // The prober itself is to be replaced, and the budget is spent.
    desk.unfit(2);
    desk.answer(2, 1, Answer::Probed(Probed::NotApplied {}));
    assert_eq!(desk.did(), ["stop 2 Terminate", "end 1 OutcomeUnknown"]);
}

#[test]
fn the_end_of_a_worker_that_was_told_to_end_is_no_fault() {
    let mut desk = Desk::with_worker(Limits::default());
    desk.unfit(1);
    assert_eq!(desk.did(), ["stop 1 Terminate"]);
    desk.lose(1, &[]);
    desk.reap(1);
    let fault = desk.kernel.health(desk.now).last_fault.unwrap();
    assert_eq!(
        fault.detail, "unfit",
        "the reason it was ended stays in sight"
    );
    let mut calm = Desk::with_worker(Limits::default());
    calm.stop();
    calm.reap(1);
    assert_eq!(calm.kernel.health(calm.now).last_fault, None);
}

#[test]
fn a_request_is_routed_before_a_worker_gets_it() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask_unrouted(client, Legacy, "1");
    assert_eq!(desk.did(), ["route 1"]);
    desk.route(1, Convergent);
    assert_eq!(desk.did(), ["send 1 to 1"]);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), ["end 1 ok"]);
}

#[test]
fn a_request_that_is_cancelled_before_it_is_routed_never_starts() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask_unrouted(client, Legacy, "1");
    desk.ask_unrouted(client, Legacy, "2");
    assert_eq!(desk.did(), ["route 1", "route 2"]);
    desk.cancel(client, "1", Answered);
    desk.cancel(client, "2", Silent);
    assert_eq!(desk.did(), ["end 1 Cancelled", "end 2 Cancelled withheld"]);
    let before = desk.kernel.clone();
    for call in [1, 2] {
        desk.cancel(client, &call.to_string(), Answered);
        desk.route(call, Convergent);
        desk.route_in_vain(call);
    }
    assert_eq!(desk.kernel, before, "who answers it no longer matters");
}

#[test]
fn only_the_first_word_on_who_answers_a_request_counts() {
    let mut desk = Desk::new(Limits::default());
    let client = desk.open();
    desk.ask_unrouted(client, Legacy, "1");
    desk.route(1, NeverReplay);
    assert_eq!(desk.did(), ["route 1", "spawn 1"]);
    let queued = desk.kernel.clone();
    desk.route(1, NeverReplay);
    desk.route_in_vain(1);
    assert_eq!(desk.kernel, queued);
    desk.ready(1);
    assert_eq!(desk.did(), ["send 1 to 1"]);
    let running = desk.kernel.clone();
    desk.route(1, NeverReplay);
    desk.route_in_vain(1);
    assert_eq!(desk.kernel, running);
    desk.answer(1, 1, tool_answer());
    desk.ask_unrouted(client, Legacy, "2");
    desk.route_to_host(2);
    assert_eq!(desk.did(), ["end 1 ok", "route 2", "serve 2"]);
    let serving = desk.kernel.clone();
    desk.route_to_host(2);
    desk.route_in_vain(2);
    assert_eq!(desk.kernel, serving);
}

#[test]
fn a_line_is_routed_in_turn_and_a_refusal_keeps_its_place() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    for id in ["1", "2", "3"] {
        desk.ask_unrouted(client, Direct, id);
    }
    desk.ask(client, Direct, "4", Convergent);
    assert_eq!(desk.did(), ["route 1"]);
    let before = desk.kernel.clone();
    desk.route_in_vain(2);
    assert_eq!(desk.kernel, before, "nobody asked yet who answers it");
    desk.route(1, Convergent);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), ["send 1 to 1", "end 1 ok", "route 2"]);
    desk.route_in_vain(2);
    assert_eq!(desk.did(), ["end 2 InvalidParams", "route 3"]);
    desk.route_in_vain(3);
    assert_eq!(desk.did(), ["end 3 InvalidParams", "send 4 to 1"]);
}

#[test]
fn a_cancel_of_the_unrouted_first_in_line_lets_the_next_begin() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    for id in ["1", "2", "3"] {
        desk.ask_unrouted(client, Direct, id);
    }
    desk.cancel(client, "2", Answered);
    assert_eq!(desk.did(), ["route 1"], "the second keeps its place");
    desk.cancel(client, "1", Silent);
    assert_eq!(
        desk.did(),
        ["end 1 Cancelled withheld", "end 2 Cancelled", "route 3"]
    );
}

#[test]
fn the_time_of_a_call_begins_when_it_is_routed() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask_unrouted(client, Legacy, "1");
    desk.wait(10 * TIMEOUT_MS);
    assert_eq!(desk.did(), ["route 1"]);
    desk.route(1, NeverReplay);
    desk.wait(TIMEOUT_MS - 1);
    assert_eq!(desk.did(), ["send 1 to 1"]);
    desk.wait(1);
    assert_eq!(desk.did(), ["cancel 1 at 1", "end 1 Timeout after 1000 ms"]);
}

#[test]
fn an_unrouted_request_counts_as_in_flight() {
    let mut desk = Desk::with_worker(Limits {
        in_flight: 1,
        ..Limits::default()
    });
    let client = desk.open();
    desk.ask_unrouted(client, Legacy, "1");
    desk.ask_unrouted(client, Legacy, "1");
    desk.ask_unrouted(client, Legacy, "2");
    assert_eq!(
        desk.did(),
        ["route 1", "end 2 DuplicateId", "end 3 Overloaded"]
    );
    desk.route_in_vain(1);
    desk.ask_unrouted(client, Legacy, "1");
    assert_eq!(desk.did(), ["end 1 InvalidParams", "route 4"]);
}

#[test]
fn reading_pauses_while_too_many_bytes_are_unanswered() {
    let mut desk = Desk::with_worker(Limits {
        backlog_bytes: 1000,
        ..Limits::default()
    });
    let (client, other) = (desk.open(), desk.open());
    desk.bytes = 400;
    desk.ask_unrouted(client, Legacy, "1");
    desk.ask(client, Direct, "2", Convergent);
    assert!(desk.kernel.wants_input(client));
    desk.ask_unrouted(client, Direct, "3");
    assert!(!desk.kernel.wants_input(client), "1200 bytes");
    assert!(desk.kernel.wants_input(other), "others are not held up");
    desk.route(1, Convergent);
    assert!(!desk.kernel.wants_input(client), "routed is not answered");
    desk.answer(1, 2, tool_answer());
    assert!(desk.kernel.wants_input(client), "800 bytes");
    desk.bytes = 200;
    desk.ask_in_vain(client, Direct, "4");
    assert!(!desk.kernel.wants_input(client), "a refusal in line counts");
    desk.cancel(client, "3", Silent);
    assert!(desk.kernel.wants_input(client), "a cancelled one does not");
}

#[test]
fn at_the_end_of_a_drain_what_is_not_routed_is_answered_in_order() {
    let mut desk = Desk::with_worker(Limits {
        drain_ms: 100,
        ..Limits::default()
    });
    let client = desk.open();
    desk.ask_unrouted(client, Direct, "1");
    desk.ask_unrouted(client, Direct, "2");
    desk.ask_unrouted(client, Legacy, "3");
    desk.did();
    desk.stop();
    assert_eq!(desk.did(), [""; 0], "they may still be routed");
    desk.wait(100);
    assert_eq!(
        desk.did(),
        [
            "end 1 ShuttingDown",
            "end 2 ShuttingDown",
            "end 3 ShuttingDown",
            "stop 1 Dismiss",
        ]
    );
    for call in 1..=3 {
        desk.route(call, Convergent);
    }
    assert_eq!(desk.did(), [""; 0]);
}

#[test]
fn what_is_routed_while_the_host_drains_may_still_finish() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask_unrouted(client, Legacy, "1");
    desk.ask_unrouted(client, Legacy, "2");
    desk.did();
    desk.stop();
    desk.route(1, NeverReplay);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), ["send 1 to 1", "end 1 ok"]);
    desk.route_in_vain(2);
    assert_eq!(desk.did(), ["end 2 InvalidParams", "stop 1 Dismiss"]);
}

#[test]
fn a_session_is_not_over_before_its_last_request_is_routed() {
    let mut desk = Desk::with_worker(Limits::default());
    let (patient, hasty) = (desk.open(), desk.open());
    desk.ask_unrouted(patient, Legacy, "1");
    desk.ask_unrouted(hasty, Legacy, "1");
    desk.end_input(patient);
    assert_eq!(desk.did(), ["route 1", "route 2"]);
    desk.gone(hasty);
    assert_eq!(desk.did(), ["end 2 ClientGone withheld", "session 2 over"]);
    desk.route_in_vain(2);
    desk.route_in_vain(1);
    assert_eq!(desk.did(), ["end 1 InvalidParams", "session 1 over"]);
}
