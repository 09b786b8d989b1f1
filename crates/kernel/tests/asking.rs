//! Pauses of deadlines, against a count of milliseconds: each slot has its own clock, and a request
//! that is not routed yet has the host's.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod desk;

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::dialect::Dialect::Legacy;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, SessionId};
use mainstay_contract::limits::Limits;
use mainstay_contract::replay::Replay::NeverReplay;
use mainstay_kernel::Conduct;
use mainstay_kernel::action::Action;
use mainstay_kernel::call::{SlotId, Work};
use proptest::prelude::*;

use self::desk::{Desk, tool_of};

const SLOTS: usize = 2;
/// The longest pause.
const PAUSE_MS: u64 = 120;

#[derive(Clone, Copy, Debug)]
enum Event {
    Call { slot: usize, timeout_ms: u64 },
    Unrouted { timeout_ms: u64 },
    Route { slot: usize, timeout_ms: u64 },
    Asking { slot: usize, asking: bool },
    SaveAndRestore,
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let call = || (0..SLOTS, 1..150_u64);
    prop_oneof![
        3 => call().prop_map(|(slot, timeout_ms)| Event::Call { slot, timeout_ms }),
        2 => (1..150_u64).prop_map(|timeout_ms| Event::Unrouted { timeout_ms }),
        2 => call().prop_map(|(slot, timeout_ms)| Event::Route { slot, timeout_ms }),
        4 => (0..SLOTS, any::<bool>()).prop_map(|(slot, asking)| Event::Asking { slot, asking }),
        1 => Just(Event::SaveAndRestore),
        4 => (0..60_u64).prop_map(Event::Wait),
    ]
}

/// The count.
#[derive(Debug, Default)]
struct Count {
    /// Milliseconds that each call has left, and its slot.
    left: BTreeMap<CallId, (u64, Option<usize>)>,
    /// Milliseconds for which each slot has been paused.
    paused: [Option<u64>; SLOTS],
}

impl Count {
    /// A millisecond passes. Gives the calls whose time is up.
    fn pass(&mut self) -> BTreeSet<CallId> {
        for (ms, slot) in self.left.values_mut() {
            *ms -= u64::from(slot.is_none_or(|slot| self.paused[slot].is_none()));
        }
        for paused in &mut self.paused {
            *paused = paused.map(|ms| ms + 1).filter(|ms| *ms < PAUSE_MS);
        }
        let up = self.left.iter().filter(|(_, (ms, _))| *ms == 0);
        let up: BTreeSet<_> = up.map(|(call, _)| *call).collect();
        self.left.retain(|call, _| !up.contains(call));
        up
    }
}

struct Run {
    desk: Desk,
    client: SessionId,
    count: Count,
    calls: u64,
}

impl Run {
    fn new() -> Self {
        let mut desk = Desk::new(Limits {
            progress_timeout_ms: PAUSE_MS,
            // Workers keep what they were sent.
            grace_ms: 1_000_000_000,
            pool: 10_000,
            in_flight: 10_000,
            ..Limits::default()
        });
        desk.kernel.add_slot("b", Conduct::Lenient, None);
        for slot in 0..SLOTS {
            desk.kernel.warm(desk.now, SlotId(slot));
            desk.ready(slot as u64 + 1);
        }
        let client = desk.open();
        desk.did();
        Self {
            desk,
            client,
            count: Count::default(),
            calls: 0,
        }
    }

    fn ask(&mut self, work: Work) -> CallId {
        self.calls += 1;
        let id = self.calls.to_string();
        self.desk.request(self.client, Legacy, &id, work);
        CallId::new(self.calls)
    }

    fn play(&mut self, event: Event) {
        let now = self.desk.now;
        match event {
            Event::Call { slot, timeout_ms } => {
                let call = self.ask(work(slot, timeout_ms));
                self.count.left.insert(call, (timeout_ms, Some(slot)));
            }
            Event::Unrouted { timeout_ms } => {
                let call = self.ask(Work::Unrouted);
                self.desk.kernel.start_clock(now, call, timeout_ms);
                self.count.left.insert(call, (timeout_ms, None));
            }
            Event::Route { slot, timeout_ms } => {
                let mut unrouted = self.count.left.iter_mut();
                if let Some((call, left)) = unrouted.find(|(_, (_, slot))| slot.is_none()) {
                    *left = (left.0.min(timeout_ms), Some(slot));
                    let work = work(slot, timeout_ms);
                    self.desk.kernel.handle_routed(now, *call, None, work);
                }
            }
            Event::Asking { slot, asking } => {
                self.desk.kernel.handle_asking(now, SlotId(slot), asking);
                let paused = self.count.paused[slot].unwrap_or(0);
                self.count.paused[slot] = asking.then_some(paused);
            }
            Event::SaveAndRestore => {
                let state = serde_json::to_string(&self.desk.kernel).unwrap();
                self.desk.kernel = serde_json::from_str(&state).unwrap();
            }
            Event::Wait(ms) => (0..ms).for_each(|_| self.pass()),
        }
    }

    fn pass(&mut self) {
        let expected = self.count.pass();
        self.desk.wait(1);
        let mut ended = BTreeSet::new();
        while let Some(action) = self.desk.kernel.poll_action() {
            if let Action::End(end) = action {
                let kind = end.outcome.unwrap_err().kind;
                assert_eq!(kind, ErrorKind::Timeout);
                ended.insert(end.call);
            }
        }
        assert_eq!(ended, expected);
    }
}

fn work(slot: usize, timeout_ms: u64) -> Work {
    let mut work = tool_of(SlotId(slot), NeverReplay);
    if let Work::Worker(task) = &mut work {
        task.timeout_ms = timeout_ms;
    }
    work
}

proptest! {
    #[test]
    fn every_call_ends_when_the_clock_of_its_slot_says_so(
        events in proptest::collection::vec(event(), 0..120)
    ) {
        let mut run = Run::new();
        for event in events {
            run.play(event);
        }
        (0..PAUSE_MS + 150).for_each(|_| run.pass());
        prop_assert_eq!(run.desk.kernel.in_flight(), 0);
    }
}
