//! Stories of slots that are added and closed, of answers that are checked, and of clocks.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod desk;

use mainstay_contract::dialect::CancelKind::Answered;
use mainstay_contract::dialect::Dialect::Legacy;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation, SessionId};
use mainstay_contract::limits::Limits;
use mainstay_contract::replay::Replay::{Convergent, NeverReplay, ProbeRequired};
use mainstay_contract::rpc::{Answer, Probed, Progress};
use mainstay_kernel::Conduct;
use mainstay_kernel::action::Sight;
use mainstay_kernel::call::{SlotId, Work};

use self::desk::{Desk, TIMEOUT_MS, tool_answer, tool_of};

const FIRST: SlotId = SlotId(0);

/// A desk with a second slot for one client, whose worker, generation 2, is ready.
fn with_server() -> (Desk, SessionId, SlotId) {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    let slot = desk.kernel.add_slot("b", Conduct::Lenient, Some(client));
    desk.kernel.warm(desk.now, slot);
    desk.ready(2);
    assert_eq!(desk.did(), ["spawn 2"]);
    (desk, client, slot)
}

fn close(desk: &mut Desk, slot: SlotId) {
    desk.kernel.close_slot(desk.now, slot);
}

#[test]
fn a_closed_slot_ends_its_calls_and_is_removed_when_its_worker_is_reaped() {
    let (mut desk, client, slot) = with_server();
    desk.request(client, Legacy, "1", tool_of(slot, NeverReplay));
    desk.request(client, Legacy, "2", tool_of(slot, Convergent));
    desk.ask(client, Legacy, "3", Convergent);
    desk.did();
    assert_eq!(desk.kernel.slot_in_flight(slot), 2);
    close(&mut desk, slot);
    let ends = ["end 1 OutcomeUnknown", "end 2 WorkerUnavailable"];
    assert_eq!(desk.did(), ["stop 2 Terminate", ends[0], ends[1]]);
    assert_eq!(desk.kernel.slot_in_flight(slot), 0);
    desk.request(client, Legacy, "4", tool_of(slot, Convergent));
    assert_eq!(desk.did(), ["end 4 WorkerUnavailable"]);
    close(&mut desk, slot);
    desk.answer(2, 1, tool_answer());
    assert_eq!(desk.did(), [""; 0], "closing it again changes nothing");
    assert_eq!(desk.kernel.running_workers(), 2);
    desk.reap(2);
    assert_eq!(desk.did(), ["slot 1 over"]);
    assert_eq!(desk.kernel.slot_ids().collect::<Vec<_>>(), [FIRST]);
    assert_eq!(desk.kernel.slot_name(slot), None);
    assert_eq!(desk.kernel.running_workers(), 1);
    desk.answer(1, 3, tool_answer());
    assert_eq!(desk.did(), ["end 3 ok"], "the other slot serves on");
    let next = desk.kernel.add_slot("c", Conduct::Strict, None);
    assert_eq!(next, SlotId(2), "numbers are not used again");
}

#[test]
fn a_slot_without_workers_is_removed_at_once_and_an_idle_worker_is_dismissed() {
    let mut desk = Desk::new(Limits::default());
    close(&mut desk, FIRST);
    assert_eq!(desk.did(), ["slot 0 over"]);
    let (mut desk, _, slot) = with_server();
    close(&mut desk, slot);
    assert_eq!(desk.did(), ["stop 2 Dismiss"]);
    desk.lose(2, &[]);
    desk.reap(2);
    assert_eq!(desk.did(), ["slot 1 over"]);
    assert_eq!(desk.kernel.health(desk.now).last_fault, None);
}

#[test]
fn a_closed_slot_drops_its_spare_its_rollout_and_its_timers() {
    let mut desk = Desk::new(Limits {
        standby: 1,
        ..Limits::default()
    });
    desk.kernel.warm(desk.now, FIRST);
    desk.ready(1);
    desk.ready(2);
    desk.kernel.handle_rollout(desk.now, FIRST);
    desk.did();
    close(&mut desk, FIRST);
    let expected = [
        "rollout failed: the slot is closed",
        "stop 1 Dismiss",
        "stop 3 Dismiss",
    ];
    assert_eq!(desk.did(), expected);
    assert_eq!(desk.kernel.poll_timeout(), None);
    desk.ready(3);
    desk.kernel.handle_rollout(desk.now, FIRST);
    assert_eq!(desk.did(), ["rollout failed: the slot is closed"]);
    for generation in 1..=3 {
        desk.reap(generation);
    }
    assert_eq!(desk.did(), ["slot 0 over"]);
}

#[test]
fn what_the_kernel_does_not_know_changes_nothing() {
    let mut desk = Desk::new(Limits::default());
    let client = desk.open();
    let (slot, generation, now) = (SlotId(7), Generation::new(7), desk.now);
    let before = desk.kernel.clone();
    desk.kernel.warm(now, slot);
    desk.kernel.close_slot(now, slot);
    desk.kernel.handle_asking(now, slot, true);
    desk.kernel.handle_pong(now, generation);
    desk.kernel.handle_proof(generation);
    desk.kernel.handle_words(generation, "words");
    desk.kernel.start_clock(now, CallId::new(7), 1);
    desk.kernel
        .handle_progress(now, generation, CallId::new(7), Progress::default());
    assert!(!desk.kernel.rest(slot));
    assert!(!desk.kernel.is_spare(slot, generation));
    assert!(!desk.kernel.is_hopeless(generation, Sight::Stopped));
    assert!(!desk.hold(7, 7));
    desk.checked(7, tool_answer());
    desk.ready(7);
    desk.unfit(7);
    desk.lose(7, &[]);
    desk.reap(7);
    assert_eq!(desk.kernel, before);
    assert!(desk.kernel.is_closed(now, slot));
    assert_eq!(desk.kernel.serving(slot), None);
    assert_eq!(desk.kernel.workers_of(slot).count(), 0);
    let fault = Fault::new(ErrorKind::WorkerUnavailable, "still there");
    desk.kernel.handle_kill_failed(generation, fault);
    desk.kernel.handle_rollout(now, slot);
    desk.request(client, Legacy, "1", tool_of(slot, Convergent));
    let expected = [
        "rollout failed: the slot is closed",
        "end 1 WorkerUnavailable",
    ];
    assert_eq!(desk.did(), expected);
}

#[test]
fn restarts_of_removed_slots_stay_counted_and_rollouts_are_no_restarts() {
    let (mut desk, _, slot) = with_server();
    desk.kernel.handle_rollout(desk.now, FIRST);
    desk.ready(3);
    desk.reap(1);
    assert_eq!(desk.kernel.health(desk.now).restart_count, 0);
    desk.lose(2, &[]);
    desk.reap(2);
    desk.wait(100);
    desk.did();
    let health = desk.kernel.health(desk.now);
    assert_eq!((health.restart_count, health.consecutive_failures), (1, 1));
    close(&mut desk, slot);
    desk.reap(4);
    assert!(desk.did().contains(&"slot 1 over".to_owned()));
    let health = desk.kernel.health(desk.now);
    assert_eq!((health.restart_count, health.consecutive_failures), (1, 1));
    assert_eq!(desk.kernel.metrics(desk.now).restart_count, 1);
    assert_eq!(health.last_fault.unwrap().detail, "killed");
    assert_eq!(health.workers.len(), 1);
    // Like the failures of a slot whose worker stays ready, those of a removed one are forgotten.
    let settled = desk.now.plus_ms(Limits::default().restart_period_ms);
    let health = desk.kernel.health(settled);
    assert_eq!((health.restart_count, health.consecutive_failures), (1, 0));
}

#[test]
fn only_the_slot_of_the_client_that_is_asked_pauses() {
    let (mut desk, client, slot) = with_server();
    desk.request(client, Legacy, "1", tool_of(slot, NeverReplay));
    desk.ask(client, Legacy, "2", NeverReplay);
    desk.did();
    desk.kernel.handle_asking(desk.now, slot, true);
    desk.request(client, Legacy, "3", tool_of(slot, NeverReplay));
    assert_eq!(desk.did(), ["send 3 to 2"], "at the time of the question");
    desk.wait(TIMEOUT_MS);
    assert_eq!(desk.did(), ["cancel 2 at 1", "end 2 Timeout after 1000 ms"]);
    desk.kernel.handle_asking(desk.now, slot, false);
    desk.wait(TIMEOUT_MS - 1);
    assert_eq!(desk.did(), [""; 0]);
    desk.wait(1);
    let did = desk.did();
    assert!(did.contains(&"end 1 Timeout after 1000 ms".to_owned()));
    assert!(did.contains(&"end 3 Timeout after 1000 ms".to_owned()));
}

#[test]
fn only_a_slots_own_client_excuses_its_silence() {
    let (mut desk, client, slot) = with_server();
    let other = desk.open();
    for (session, id, slot) in [(client, "1", slot), (other, "1", FIRST)] {
        desk.request(session, Legacy, id, tool_of(slot, NeverReplay));
    }
    let pace = mainstay_kernel::session::Pace::Behind;
    desk.kernel.handle_pace(desk.now, other, pace);
    assert!(desk.kernel.is_hopeless(Generation::new(2), Sight::Stopped));
    assert!(desk.kernel.is_hopeless(Generation::new(1), Sight::Stopped));
    desk.kernel.handle_pace(desk.now, client, pace);
    assert!(!desk.kernel.is_hopeless(Generation::new(2), Sight::Stopped));
    assert!(desk.kernel.is_hopeless(Generation::new(1), Sight::Stopped));
}

#[test]
fn a_call_whose_answer_is_checked_has_left_its_worker() {
    let mut desk = Desk::with_worker(Limits {
        pool: 1,
        ..Limits::default()
    });
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    desk.ask(client, Legacy, "2", Convergent);
    assert_eq!(desk.did(), ["send 1 to 1"]);
    assert!(desk.hold(1, 1));
    assert_eq!(desk.did(), ["send 2 to 1"], "its place is free");
    assert!(!desk.hold(1, 1), "an answer counts once");
    desk.answer(1, 1, tool_answer());
    desk.lose(1, &[]);
    desk.reap(1);
    desk.wait(50);
    desk.ready(2);
    let expected = ["spawn 2", "send 2 to 2, attempt 2"];
    assert_eq!(desk.did(), expected, "only the other is sent again");
    desk.checked(1, tool_answer());
    desk.checked(1, tool_answer());
    assert_eq!(desk.did(), ["end 1 ok"]);
}

#[test]
fn a_deadline_and_a_cancel_end_a_call_whose_answer_is_checked() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.ask(client, Legacy, "2", NeverReplay);
    desk.did();
    assert!(desk.hold(1, 1) && desk.hold(1, 2));
    desk.cancel(client, "1", Answered);
    assert_eq!(
        desk.did(),
        ["end 1 Cancelled"],
        "the worker is not bothered"
    );
    desk.wait(TIMEOUT_MS);
    assert_eq!(desk.did(), ["end 2 Timeout after 1000 ms"]);
    desk.checked(1, tool_answer());
    desk.checked(2, tool_answer());
    assert_eq!(desk.did(), [""; 0]);
}

#[test]
fn the_end_of_a_drain_ends_a_call_whose_answer_is_checked() {
    let mut desk = Desk::with_worker(Limits {
        drain_ms: 100,
        ..Limits::default()
    });
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.ask(client, Legacy, "2", Convergent);
    assert!(desk.hold(1, 1) && desk.hold(1, 2));
    desk.did();
    desk.stop();
    desk.wait(100);
    let ends = ["end 1 OutcomeUnknown", "end 2 ShuttingDown"];
    assert_eq!(desk.did(), [ends[0], ends[1], "stop 1 Dismiss"]);
}

#[test]
fn a_probe_that_is_checked_is_still_a_probe() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", ProbeRequired);
    desk.lose(1, &[]);
    desk.reap(1);
    desk.wait(50);
    desk.ready(2);
    assert!(desk.hold(2, 1));
    assert!(desk.kernel.is_probing(CallId::new(1)));
    desk.did();
    desk.checked(1, Answer::Probed(Probed::NotApplied {}));
    assert_eq!(desk.did(), ["send 1 to 2, attempt 2"]);
}

#[test]
fn a_checked_answer_counts_after_its_slot_was_removed() {
    let (mut desk, client, slot) = with_server();
    desk.request(client, Legacy, "1", tool_of(slot, NeverReplay));
    desk.kernel.handle_asking(desk.now, slot, true);
    desk.request(client, Legacy, "2", tool_of(slot, NeverReplay));
    desk.did();
    assert!(desk.hold(2, 1) && desk.hold(2, 2));
    close(&mut desk, slot);
    desk.reap(2);
    assert_eq!(desk.did(), ["stop 2 Dismiss", "slot 1 over"]);
    assert_eq!(desk.kernel.slot_in_flight(slot), 2);
    desk.checked(1, tool_answer());
    assert_eq!(desk.did(), ["end 1 ok"]);
    desk.wait(TIMEOUT_MS);
    assert_eq!(desk.did(), ["end 2 Timeout after 1000 ms"]);
}

#[test]
fn a_request_may_have_a_deadline_before_it_is_routed() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    for id in ["1", "2", "3"] {
        desk.ask_unrouted(client, Legacy, id);
    }
    for (call, ms) in [(1, 300), (2, 600), (3, 5000)] {
        desk.kernel.start_clock(desk.now, CallId::new(call), ms);
    }
    desk.did();
    desk.wait(300);
    assert_eq!(desk.did(), ["end 1 Timeout after 300 ms"]);
    desk.route(2, NeverReplay);
    desk.route(3, NeverReplay);
    desk.did();
    desk.wait(300);
    let expected = ["cancel 2 at 1", "end 2 Timeout after 600 ms"];
    assert_eq!(desk.did(), expected, "the earlier deadline counts");
    desk.wait(700);
    assert_eq!(desk.did(), ["cancel 3 at 1", "end 3 Timeout after 1000 ms"]);
    desk.kernel.start_clock(desk.now, CallId::new(3), 1);
    assert_eq!(desk.did(), [""; 0]);
}

#[test]
fn a_request_that_is_routed_too_late_is_not_sent() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask_unrouted(client, Legacy, "1");
    desk.kernel.start_clock(desk.now, CallId::new(1), 300);
    // The clock has passed the deadline; the driver has not said so yet.
    desk.now = desk.now.plus_ms(300);
    desk.route(1, NeverReplay);
    assert_eq!(desk.did(), ["route 1", "end 1 Timeout after 300 ms"]);
}

#[test]
fn progress_moves_the_deadline_no_further_than_the_first_clock_allows() {
    let mut desk = Desk::with_worker(Limits {
        progress_timeout_ms: 1500,
        ..Limits::default()
    });
    let client = desk.open();
    desk.ask_unrouted(client, Legacy, "1");
    desk.kernel
        .start_clock(desk.now, CallId::new(1), TIMEOUT_MS);
    desk.wait(900);
    desk.route(1, NeverReplay);
    desk.progress(1, 1);
    desk.wait(599);
    assert_eq!(desk.did(), ["route 1", "send 1 to 1"]);
    desk.progress(1, 1);
    desk.wait(1);
    assert_eq!(desk.did(), ["cancel 1 at 1", "end 1 Timeout after 1000 ms"]);
}

#[test]
fn a_clock_that_ran_before_a_pause_goes_on_after_it() {
    let (mut desk, client, slot) = with_server();
    desk.request(client, Legacy, "1", Work::Unrouted);
    desk.kernel
        .start_clock(desk.now, CallId::new(1), TIMEOUT_MS);
    desk.kernel.handle_asking(desk.now, slot, true);
    desk.wait(400);
    let tool = Some("t".to_owned());
    let work = tool_of(slot, NeverReplay);
    desk.kernel
        .handle_routed(desk.now, CallId::new(1), tool, work);
    desk.did();
    desk.wait(5000);
    desk.kernel.handle_asking(desk.now, slot, false);
    desk.wait(599);
    assert_eq!(desk.did(), [""; 0]);
    desk.wait(1);
    assert_eq!(desk.did(), ["cancel 1 at 2", "end 1 Timeout after 1000 ms"]);
}
