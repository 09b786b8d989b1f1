//! Scripts: random events as plain data.

use mainstay_contract::dialect::CancelKind;
use mainstay_contract::limits::Limits;
use mainstay_contract::replay::Replay;
use mainstay_kernel::Conduct;
use mainstay_kernel::action::Sight;
use proptest::prelude::*;

/// A run: the limits in force, what happens, and how it ends.
#[derive(Clone, Debug)]
pub struct Script {
    pub limits: Limits,
    pub conduct: Conduct,
    pub events: Vec<Event>,
    pub finale: Finale,
}

/// How a run is brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finale {
    /// Workers answer everything; then the host stops.
    Answers,
    /// Workers say nothing any more; then the host stops.
    Silence,
    /// The host stops at once, workers say nothing, and nothing more is routed.
    Stop,
}

/// One event. A `pick` chooses among what is there when the event is played.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Open(Speaks),
    Ask {
        session: u8,
        id: u8,
        direct: bool,
        ask: Ask,
        routing: Routing,
    },
    Cancel {
        session: u8,
        id: u8,
        kind: CancelKind,
    },
    EndInput(u8),
    Leave(u8),
    /// The driver says who answers a request: one that the kernel asked about, or one that it did
    /// not if `stale`.
    Route {
        pick: u16,
        stale: bool,
    },
    /// A request that is being routed gets a deadline.
    Clock {
        pick: u16,
        timeout_ms: u64,
    },
    Serve(u8),
    Ready(u8),
    Answer {
        pick: u16,
        reply: Reply,
        /// Not only what is awaited, but anything that any worker was ever sent.
        anything: bool,
        /// The driver checks the answer before it reports it.
        held: bool,
    },
    /// The driver has checked an answer.
    Check(u8),
    Progress {
        pick: u16,
        done: Option<u64>,
        anything: bool,
    },
    /// A worker dies; of what it was sent last, so many calls never left.
    Die {
        pick: u8,
        unsent: u8,
        /// It is given up because it was never ready.
        unready: bool,
    },
    /// A worker is reaped: a dead or dismissed one, or any if `sudden`.
    Reap {
        pick: u8,
        sudden: bool,
    },
    Unfit(u8),
    /// From now on this is what workers look like.
    Looks(Sight),
    /// Time passes without a word to the kernel.
    Drift(u64),
    /// Time passes and the kernel is told.
    Wait(u64),
    /// Time passes until just when the kernel wants to be told.
    WaitForTimer,
    Warm(u8),
    Reopen(u8),
    AddSlot,
    CloseSlot(u8),
    Stop,
}

/// Which dialects a session uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    Mcp,
    Direct,
    Both,
}

/// The kind of request.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    Refused,
    Host,
    Tool {
        slot: u8,
        replay: Replay,
        timeout_ms: u64,
    },
}

/// When it is known who answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// From the start.
    Known,
    /// As soon as the kernel asks.
    AtOnce,
    /// When an event says so, if that is in time.
    Later,
}

/// A worker's answer.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    /// The kind of request; for a probe, the number chooses its result.
    Fitting(u8),
    Failed,
    /// An answer to another question.
    Wrong,
}

/// Small limits, so that runs reach them.
pub fn small_limits() -> Limits {
    Limits {
        queue: 3,
        in_flight: 5,
        ordered_backlog: 6,
        backlog_bytes: 400,
        pool: 2,
        replays: 2,
        progress_timeout_ms: 2500,
        start_timeout_ms: 400,
        drain_ms: 900,
        grace_ms: 150,
        progress_per_second: 4,
        restarts: 3,
        restart_period_ms: 2000,
        backoff_min_ms: 10,
        backoff_max_ms: 80,
        rest_ms: 500,
        // The model's workers say nothing by themselves; pings have stories of their own.
        ping_interval_ms: 0,
        ..Limits::default()
    }
}

fn limits() -> impl Strategy<Value = Limits> {
    let small = small_limits();
    let roomy = Limits {
        queue: 8,
        in_flight: 12,
        backlog_bytes: 100_000,
        pool: 4,
        replays: 3,
        restarts: 50,
        ..small_limits()
    };
    let strict = Limits {
        queue: 1,
        pool: 1,
        replays: 0,
        restarts: 1,
        grace_ms: 0,
        drain_ms: 0,
        backoff_min_ms: 0,
        ..small_limits()
    };
    let spared = Limits {
        standby: 1,
        ..small_limits()
    };
    prop_oneof![3 => Just(small), 2 => Just(roomy), 2 => Just(spared), 1 => Just(strict)]
}

/// Any script.
pub fn scripts() -> impl Strategy<Value = Script> {
    let finale = prop_oneof![
        Just(Finale::Answers),
        Just(Finale::Silence),
        Just(Finale::Stop)
    ];
    let events = proptest::collection::vec(event(), 0..400);
    // One script in four is stopped on its way.
    let stop = prop_oneof![3 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)];
    (limits(), events, finale, stop).prop_map(|(limits, mut events, finale, stop)| {
        if let Some(stop) = stop {
            events.insert(stop.index(events.len() + 1), Event::Stop);
        }
        Script {
            limits,
            conduct: Conduct::Strict,
            events,
            finale,
        }
    })
}

/// Scripts about wrapped servers, which are pinged, and looked at while they work.
pub fn lenient_scripts() -> impl Strategy<Value = Script> {
    scripts().prop_map(|mut script| {
        script.conduct = Conduct::Lenient;
        script.limits.ping_interval_ms = 100;
        script.limits.ping_timeout_ms = 60;
        script
    })
}

/// Scripts in which only the workers are to blame: convergent calls only, no cancel, no client
/// leaves or stops, no slot is closed, and attempts, time and the restart budget never run out.
pub fn patient_scripts() -> impl Strategy<Value = Script> {
    let patient = Limits {
        queue: 4096,
        in_flight: 4096,
        ordered_backlog: 4096,
        backlog_bytes: 100_000,
        replays: 100_000,
        restarts: 100_000,
        ..small_limits()
    };
    scripts().prop_map(move |mut script| {
        script.limits = patient.clone();
        script.finale = Finale::Answers;
        script.events.retain_mut(be_patient);
        script
    })
}

fn be_patient(event: &mut Event) -> bool {
    match event {
        Event::Ask {
            ask: Ask::Tool {
                replay, timeout_ms, ..
            },
            ..
        } => {
            *replay = Replay::Convergent;
            *timeout_ms = 100_000_000;
            true
        }
        Event::Answer { reply, .. } => {
            *reply = Reply::Fitting(0);
            true
        }
        // No call waits for the successor of one that was never ready.
        Event::Die { unready, .. } => {
            *unready = false;
            true
        }
        // The next timer may be a deadline.
        Event::WaitForTimer => {
            *event = Event::Wait(50);
            true
        }
        Event::Clock { timeout_ms, .. } => {
            *timeout_ms = 100_000_000;
            true
        }
        Event::Cancel { .. } | Event::Leave(_) | Event::CloseSlot(_) | Event::Stop => false,
        _ => true,
    }
}

fn event() -> impl Strategy<Value = Event> {
    let ms = prop_oneof![
        4 => 0..30_u64,
        4 => 30..400_u64,
        1 => 400..4000_u64,
    ];
    let answer = (
        any::<u16>(),
        reply(),
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.3),
    )
        .prop_map(|(pick, reply, anything, held)| Event::Answer {
            pick,
            reply,
            anything,
            held,
        });
    let done = prop_oneof![
        3 => Just(None),
        6 => (0..50_u64).prop_map(Some),
        1 => Just(Some(u64::MAX)),
    ];
    let progress =
        (any::<u16>(), done, prop::bool::weighted(0.15)).prop_map(|(pick, done, anything)| {
            Event::Progress {
                pick,
                done,
                anything,
            }
        });
    prop_oneof![
        30 => ask(),
        6 => (any::<u8>(), 0..8_u8, kind())
            .prop_map(|(session, id, kind)| Event::Cancel { session, id, kind }),
        6 => speaks().prop_map(Event::Open),
        1 => any::<u8>().prop_map(Event::EndInput),
        1 => any::<u8>().prop_map(Event::Leave),
        14 => (any::<u16>(), prop::bool::weighted(0.15))
            .prop_map(|(pick, stale)| Event::Route { pick, stale }),
        6 => any::<u8>().prop_map(Event::Serve),
        14 => any::<u8>().prop_map(Event::Ready),
        24 => answer,
        6 => any::<u8>().prop_map(Event::Check),
        4 => (any::<u16>(), 1..2000_u64)
            .prop_map(|(pick, timeout_ms)| Event::Clock { pick, timeout_ms }),
        8 => progress,
        6 => (any::<u8>(), 0..3_u8, prop::bool::weighted(0.2))
            .prop_map(|(pick, unsent, unready)| Event::Die { pick, unsent, unready }),
        8 => (any::<u8>(), prop::bool::weighted(0.1))
            .prop_map(|(pick, sudden)| Event::Reap { pick, sudden }),
        1 => any::<u8>().prop_map(Event::Unfit),
        1 => prop_oneof![Just(Sight::Runs), Just(Sight::Still), Just(Sight::Stopped)]
            .prop_map(Event::Looks),
        4 => ms.clone().prop_map(Event::Drift),
        8 => ms.prop_map(Event::Wait),
        10 => Just(Event::WaitForTimer),
        1 => any::<u8>().prop_map(Event::Warm),
        1 => any::<u8>().prop_map(Event::Reopen),
        2 => Just(Event::AddSlot),
        1 => any::<u8>().prop_map(Event::CloseSlot),
    ]
}

fn ask() -> impl Strategy<Value = Event> {
    let replay = prop_oneof![
        Just(Replay::Convergent),
        Just(Replay::ProbeRequired),
        Just(Replay::NeverReplay)
    ];
    let timeout_ms = prop_oneof![1 => 1..60_u64, 3 => 60..2000_u64];
    let tool = (any::<u8>(), replay, timeout_ms).prop_map(|(slot, replay, timeout_ms)| Ask::Tool {
        slot,
        replay,
        timeout_ms,
    });
    let ask = prop_oneof![1 => Just(Ask::Refused), 2 => Just(Ask::Host), 12 => tool];
    let routing = prop_oneof![
        4 => Just(Routing::Known),
        2 => Just(Routing::AtOnce),
        4 => Just(Routing::Later),
    ];
    (any::<u8>(), 0..8_u8, any::<bool>(), ask, routing).prop_map(
        |(session, id, direct, ask, routing)| Event::Ask {
            session,
            id,
            direct,
            ask,
            routing,
        },
    )
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        12 => any::<u8>().prop_map(Reply::Fitting),
        2 => Just(Reply::Failed),
        1 => Just(Reply::Wrong),
    ]
}

fn kind() -> impl Strategy<Value = CancelKind> {
    prop_oneof![Just(CancelKind::Answered), Just(CancelKind::Silent)]
}

fn speaks() -> impl Strategy<Value = Speaks> {
    prop_oneof![
        2 => Just(Speaks::Mcp),
        2 => Just(Speaks::Direct),
        1 => Just(Speaks::Both)
    ]
}
