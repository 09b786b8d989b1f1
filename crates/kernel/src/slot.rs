//! A worker slot: its queue, its supervisor, and every worker incarnation that is not dead yet.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::id::{CallId, Generation, SessionId};
use mainstay_contract::limits::Limits;
use mainstay_contract::tool::Pace;
use serde::{Deserialize, Serialize};

use crate::Conduct;
use crate::action::Manner;
use crate::call::Late;
use crate::queue::{Full, Queue};
use crate::supervisor::{Policy, Supervisor};
use crate::time::Time;

/// The state of one slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    pub name: String,
    pub conduct: Conduct,
    /// The only session that uses it; all do if `None`.
    pub client: Option<SessionId>,
    /// It is removed when its last worker is reaped.
    pub closing: bool,
    /// Since when its client is asked something; meanwhile the deadlines of its calls are paused.
    pub asking: Option<Time>,
    pub supervisor: Supervisor,
    /// Calls that one worker runs at the same time.
    pub pool: usize,
    /// Spare workers that it keeps ready, where it has a limit of its own.
    #[serde(default)]
    pub standby: Option<u32>,
    pub queue: Queue,
    pub workers: BTreeMap<Generation, Worker>,
    /// The supervisor's entry among the timers.
    pub timer: Option<Time>,
    /// A worker beside the one that serves.
    pub spare: Spare,
    /// Spares in a row that did not become ready.
    pub spare_failures: u32,
    /// True if a rollout awaits its end.
    pub rollout: Rollout,
    /// Workers that were lost before any of this slot ever answered.
    pub in_vain: u32,
    /// True if one ever answered anything.
    pub proven: bool,
    /// Its server runs on another machine.
    pub is_remote: bool,
    /// Several sessions use it, and none may keep the others from it.
    #[serde(default)]
    pub is_shared: bool,
}

/// A worker beside the one that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spare {
    None,
    /// The last one failed; the next is started then.
    Waiting {
        until: Time,
    },
    Starting {
        generation: Generation,
        purpose: Purpose,
        until: Time,
    },
    /// Takes over at once when the one that serves is lost.
    Ready {
        generation: Generation,
    },
}

/// The purpose of a spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    Standby,
    /// It takes over as soon as it is ready.
    Rollout,
}

/// True if a rollout is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rollout {
    Stable,
    Pending,
}

impl Spare {
    /// The spare's generation, if there is one.
    pub const fn generation(self) -> Option<Generation> {
        match self {
            Self::Starting { generation, .. } | Self::Ready { generation } => Some(generation),
            Self::None | Self::Waiting { .. } => None,
        }
    }

    /// When something must be done about it.
    pub const fn until(self) -> Option<Time> {
        match self {
            Self::Starting { until, .. } | Self::Waiting { until } => Some(until),
            Self::None | Self::Ready { .. } => None,
        }
    }
}

/// One incarnation, from its spawn to its reaping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    pub phase: Phase,
    /// Calls handed to it that it has not answered.
    pub running: BTreeMap<CallId, Run>,
    /// Those that take no place in its pool; may name calls that it does not run any more.
    pub long: BTreeSet<CallId>,
    /// A call that ended workers before: no other short call is sent until then.
    pub alone: Option<(CallId, Time)>,
    /// How it is ended once it has nothing left to do.
    pub leave: Manner,
    /// When it first answered a request with a result: until then a server has shown nothing.
    pub answered: Option<Time>,
    /// When it was last heard of.
    pub heard: Time,
    /// When it was pinged, if it has not been heard of since.
    pub pinged: Option<Time>,
    /// True if it ever answered a ping.
    pub answers_pings: bool,
    /// True if that ping was sent because it kept a call too long.
    pub questioned: bool,
    /// Its entry among the timers.
    pub watch: Option<Time>,
}

/// The rights of an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Spawned, not ready.
    Starting,
    /// Ready, beside the one that serves.
    Standby,
    /// Gets calls.
    Serving,
    /// Gets no new calls; what it runs may finish.
    Retiring,
    /// Told to end; whatever it says is fenced off.
    Ending,
    /// Its end was noticed; it is not reaped.
    Lost,
}

/// A call in a worker's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Run {
    /// Its answer is awaited.
    Live,
    /// Its client was answered already; the worker was told to stop it by then.
    Abandoned {
        until: Time,
        /// If that is not heeded.
        late: Late,
        /// The session that asked for it.
        #[serde(default)]
        session: Option<SessionId>,
    },
}

impl Slot {
    /// Applies other limits. Calls that are queued stay.
    pub fn set_limits(&mut self, limits: &Limits) {
        self.supervisor.set_policy(Policy::from(limits));
        self.queue.set_limit(limits.queue);
        self.pool = limits.pool;
        self.standby = Some(limits.standby);
    }

    /// A cold slot.
    pub fn new(
        name: String,
        conduct: Conduct,
        client: Option<SessionId>,
        limits: &Limits,
        seed: u64,
    ) -> Self {
        Self {
            name,
            conduct,
            client,
            closing: false,
            asking: None,
            supervisor: Supervisor::new(Policy::from(limits), seed),
            queue: Queue::new(limits.queue),
            pool: limits.pool,
            standby: None,
            workers: BTreeMap::new(),
            timer: None,
            spare: Spare::None,
            spare_failures: 0,
            rollout: Rollout::Stable,
            in_vain: 0,
            proven: false,
            is_remote: false,
            is_shared: false,
        }
    }

    /// Adds a call to the queue. `is_own` is true for calls of the same session: each session that shares the slot has
    /// the queue's limit for itself.
    pub fn queue_call(
        &mut self,
        call: CallId,
        pace: Pace,
        is_own: impl Fn(CallId) -> bool,
    ) -> Result<(), Full> {
        match self.is_shared {
            true => self.queue.push_shared(call, pace, is_own),
            false => self.queue.push(call, pace),
        }
    }

    /// Calls in the hands of workers, abandoned ones included.
    pub fn running(&self) -> usize {
        self.workers
            .values()
            .map(|worker| worker.running.len())
            .sum()
    }
}

impl Worker {
    /// A worker that was just spawned.
    pub const fn new() -> Self {
        Self {
            phase: Phase::Starting,
            running: BTreeMap::new(),
            long: BTreeSet::new(),
            alone: None,
            leave: Manner::Terminate,
            answered: None,
            heard: Time::from_micros(0),
            pinged: None,
            answers_pings: false,
            questioned: false,
            watch: None,
        }
    }

    /// The call that is to blame if it ends now: the one that runs alone.
    pub fn suspect(&self, unsent: &[CallId]) -> Option<CallId> {
        let alone = self.alone.map(|(call, _)| call);
        if let Some(call) = alone.filter(|call| self.running.contains_key(call)) {
            return Some(call);
        }
        let mut sent = self.running.keys().filter(|call| !unsent.contains(call));
        sent.next().copied().filter(|_| sent.next().is_none())
    }

    /// True if it has room for a call: each pace has a pool of its own.
    pub fn has_room(&self, pace: Pace, pool: usize) -> bool {
        let long = self.long.len();
        let taken = match pace {
            Pace::Short => self.running.len().saturating_sub(long),
            Pace::Long => long,
        };
        taken < pool
    }

    /// Hands it a call.
    pub fn run(&mut self, call: CallId, pace: Pace) {
        self.running.insert(call, Run::Live);
        if pace == Pace::Long {
            self.long.insert(call);
        }
    }

    /// True if it runs a call that a request still waits for.
    pub fn has_live_calls(&self) -> bool {
        self.running.values().any(|run| *run == Run::Live)
    }

    /// True if what it says about calls still counts.
    pub const fn is_heard(&self) -> bool {
        matches!(self.phase, Phase::Serving | Phase::Retiring)
    }
}

impl Default for Worker {
    fn default() -> Self {
        Self::new()
    }
}
