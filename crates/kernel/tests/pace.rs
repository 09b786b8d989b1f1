//! Stories of clients that take their answers, and of clients that do not.

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
use mainstay_contract::limits::Limits;
use mainstay_contract::replay::Replay::Convergent;
use mainstay_kernel::session::Pace;

use self::desk::{Desk, tool_answer};

#[test]
fn a_client_that_is_behind_gets_no_call_started_and_holds_up_nobody() {
    let mut desk = Desk::with_worker(Limits::default());
    let (slow, other) = (desk.open(), desk.open());
    desk.kernel.handle_pace(desk.now, slow, Pace::Behind);
    desk.ask(slow, Legacy, "1", Convergent);
    desk.ask(other, Legacy, "1", Convergent);
    assert_eq!(desk.did(), ["send 2 to 1"], "the other client is served");
    desk.answer(1, 2, tool_answer());
    assert_eq!(desk.did(), ["end 2 ok"]);
    desk.kernel.handle_pace(desk.now, slow, Pace::Even);
    assert_eq!(desk.did(), ["send 1 to 1"], "it has caught up");
}

#[test]
fn a_call_that_waits_for_its_slow_client_keeps_its_deadline() {
    let mut desk = Desk::with_worker(Limits::default());
    let slow = desk.open();
    desk.kernel.handle_pace(desk.now, slow, Pace::Behind);
    desk.ask(slow, Legacy, "1", Convergent);
    desk.wait(1000);
    assert_eq!(desk.did(), ["end 1 Timeout after 1000 ms"]);
}
