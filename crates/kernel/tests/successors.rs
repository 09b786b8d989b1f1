//! Stories of workers beside the one that serves, and of the watchdog.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod desk;

use mainstay_contract::dialect::Dialect::Legacy;
use mainstay_contract::health::{Lifecycle, Rollout};
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::limits::Limits;
use mainstay_contract::replay::Replay::{Convergent, NeverReplay};
use mainstay_kernel::call::SlotId;

use self::desk::{Desk, tool_answer};

const SLOT: SlotId = SlotId(0);

fn standby() -> Limits {
    Limits {
        standby: 1,
        ..Limits::default()
    }
}

/// A desk whose worker serves and whose standby is ready.
fn with_standby() -> Desk {
    let mut desk = Desk::new(standby());
    desk.kernel.warm(desk.now, SLOT);
    desk.ready(1);
    assert_eq!(desk.did(), ["spawn 1", "spawn 2"]);
    desk.ready(2);
    assert_eq!(desk.did(), [""; 0], "it stands by");
    desk
}

#[test]
fn a_standby_takes_over_at_once_and_is_itself_replaced() {
    let mut desk = with_standby();
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    desk.ask(client, Legacy, "2", NeverReplay);
    assert_eq!(desk.did(), ["send 1 to 1", "send 2 to 1"]);
    desk.lose(1, &[]);
    assert_eq!(desk.did(), ["end 2 OutcomeUnknown", "spawn 3"]);
    desk.ask(client, Legacy, "3", Convergent);
    assert_eq!(desk.did(), ["send 3 to 2"], "no pause");
    desk.reap(1);
    assert_eq!(
        desk.did(),
        ["send 1 to 2, attempt 2"],
        "what is sent again waits for the reap"
    );
}

#[test]
fn a_standby_that_is_lost_harms_nobody_and_is_replaced_after_a_pause() {
    let mut desk = with_standby();
    desk.lose(2, &[]);
    desk.reap(2);
    assert_eq!(desk.did(), [""; 0]);
    assert_eq!(desk.kernel.health(desk.now).state, Lifecycle::Ready);
    desk.wait(100);
    assert_eq!(desk.did(), ["spawn 3"]);
}

#[test]
fn a_standby_that_is_still_starting_takes_over_when_it_is_ready() {
    let mut desk = Desk::new(standby());
    desk.kernel.warm(desk.now, SLOT);
    desk.ready(1);
    desk.lose(1, &[]);
    desk.reap(1);
    assert_eq!(desk.did(), ["spawn 1", "spawn 2"]);
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    desk.ready(2);
    assert_eq!(desk.did(), ["send 1 to 2", "spawn 3"]);
}

#[test]
fn with_the_budget_goes_the_standby() {
    let mut desk = Desk::new(Limits {
        restarts: 0,
        ..standby()
    });
    desk.kernel.warm(desk.now, SLOT);
    desk.ready(1);
    desk.ready(2);
    desk.did();
    desk.lose(1, &[]);
    assert_eq!(desk.did(), ["stop 2 Dismiss"]);
    assert_eq!(desk.kernel.health(desk.now).state, Lifecycle::Failed);
}

#[test]
fn a_rollout_lets_the_incumbent_finish_and_nobody_notices() {
    let mut desk = Desk::with_worker(Limits::default());
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.did();
    desk.kernel.handle_rollout(desk.now, SLOT);
    assert_eq!(desk.did(), ["spawn 2"]);
    assert_eq!(desk.kernel.health(desk.now).rollout, Rollout::Pending);
    desk.ask(client, Legacy, "2", Convergent);
    assert_eq!(desk.did(), ["send 2 to 1"], "the incumbent serves on");
    desk.ready(2);
    assert_eq!(desk.did(), ["rolled out 2"]);
    assert_eq!(desk.kernel.health(desk.now).rollout, Rollout::Draining);
    desk.ask(client, Legacy, "3", Convergent);
    assert_eq!(desk.did(), ["send 3 to 2"]);
    desk.answer(1, 1, tool_answer());
    assert_eq!(desk.did(), ["end 1 ok"]);
    desk.answer(1, 2, tool_answer());
    assert_eq!(desk.did(), ["end 2 ok", "stop 1 Dismiss"]);
    desk.reap(1);
    assert_eq!(desk.kernel.health(desk.now).rollout, Rollout::Stable);
    assert_eq!(
        desk.kernel.health(desk.now).last_fault,
        None,
        "no fault in a rollout"
    );
}

#[test]
fn a_bad_successor_never_displaces_a_good_incumbent() {
    let mut desk = Desk::with_worker(Limits::default());
    desk.kernel.handle_rollout(desk.now, SLOT);
    assert_eq!(desk.did(), ["spawn 2"]);
    desk.unfit(2);
    let did = desk.did();
    assert!(
        did.iter().any(|done| done.starts_with("rollout failed")),
        "{did:?}"
    );
    assert!(did.iter().any(|done| done.starts_with("stop 2")), "{did:?}");
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    assert_eq!(desk.did(), ["send 1 to 1"]);
}

#[test]
fn a_successor_that_is_never_ready_ends_the_rollout_in_time() {
    let mut desk = Desk::with_worker(Limits {
        start_timeout_ms: 300,
        ..Limits::default()
    });
    desk.kernel.handle_rollout(desk.now, SLOT);
    desk.did();
    desk.wait(300);
    let did = desk.did();
    assert!(
        did.iter().any(|done| done.starts_with("rollout failed")),
        "{did:?}"
    );
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    assert_eq!(desk.did(), ["send 1 to 1"]);
}

#[test]
fn a_rollout_leads_out_of_exhaustion() {
    let mut desk = Desk::with_worker(Limits {
        restarts: 0,
        ..Limits::default()
    });
    desk.lose(1, &[]);
    desk.reap(1);
    desk.did();
    let client = desk.open();
    desk.ask(client, Legacy, "1", Convergent);
    assert_eq!(desk.did(), ["end 1 WorkerUnavailable"]);
    desk.kernel.handle_rollout(desk.now, SLOT);
    assert_eq!(desk.did(), ["spawn 2"]);
    desk.ready(2);
    assert_eq!(desk.did(), ["rolled out 2"]);
    desk.ask(client, Legacy, "2", Convergent);
    assert_eq!(desk.did(), ["send 2 to 2"]);
}

#[test]
fn a_silent_worker_is_pinged_and_a_frozen_one_is_lost() {
    let mut desk = Desk::with_pings(Limits {
        ping_interval_ms: 100,
        ping_timeout_ms: 50,
        ..Limits::default()
    });
    desk.kernel.warm(desk.now, SLOT);
    desk.ready(1);
    desk.did();
    desk.wait(100);
    assert_eq!(desk.did(), ["ping 1"]);
    desk.kernel.handle_pong(desk.now, Generation::new(1));
    desk.wait(50);
    assert_eq!(desk.did(), [""; 0], "it lives");
    let client = desk.open();
    desk.ask(client, Legacy, "1", NeverReplay);
    desk.ask(client, Legacy, "2", NeverReplay);
    desk.did();
    desk.wait(60);
    assert_eq!(desk.did(), ["ping 1"]);
    // The second call still waits for room in the worker's pipe.
    desk.waiting = vec![CallId::new(2)];
    desk.wait(50);
    assert_eq!(desk.did(), ["abandon 1", "end 1 OutcomeUnknown"]);
    desk.reap(1);
    desk.wait(100);
    assert_eq!(desk.did(), ["spawn 2"]);
    desk.ready(2);
    assert_eq!(desk.did(), ["send 2 to 2"]);
}

#[test]
fn a_worker_that_answers_calls_needs_no_ping() {
    let mut desk = Desk::with_pings(Limits {
        ping_interval_ms: 1000,
        ..Limits::default()
    });
    desk.kernel.warm(desk.now, SLOT);
    desk.ready(1);
    desk.did();
    let client = desk.open();
    for call in 1..20 {
        desk.ask(client, Legacy, &call.to_string(), Convergent);
        desk.wait(400);
        desk.answer(1, call, tool_answer());
        let did = desk.did();
        assert!(!did.iter().any(|done| done.starts_with("ping")), "{did:?}");
    }
}
