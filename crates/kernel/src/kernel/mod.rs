//! The machines together: sessions, calls, slots and timers in one deterministic whole.
//!
//! Theory of operation. A request becomes a [`Call`] and stays in the table until its one
//! terminal outcome, which leaves as [`Action::End`]; [`Kernel::leave`] is the only place that
//! removes a call. A call for a worker waits in its slot's queue, is sent when the slot's worker
//! is ready and has room, and from its first send counts as possibly executed. When a worker is
//! lost, [`replay::verdict`] decides about each call it had; what is sent again waits until the
//! lost worker is reaped. A call whose client was answered early (deadline, cancel) stays in its
//! worker's hands as abandoned until the worker lets go of it or is replaced.
//!
//! The files: `requests` (from a request to its end), `workers` (spawn to end), `losses`
//! (verdicts and reaping), `spares` (standby and rollout), `watch` (pings), `asking` (deadlines that
//! stand still), `timers`, `report` (health), `state` (save and restore).
//!
//! [`replay::verdict`]: mainstay_contract::replay::verdict

mod asking;
mod losses;
mod report;
mod requests;
mod spares;
mod state;
mod timers;
mod watch;
mod workers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mainstay_contract::dialect::EchoId;
use mainstay_contract::id::{CallId, Generation, RequestId, SessionId};
use mainstay_contract::limits::Limits;
use mainstay_contract::metrics::HostMetrics;
use mainstay_contract::rpc;
use mainstay_contract::telemetry::{SchemaMismatch, Telemetry};
use serde::{Deserialize, Serialize};

pub use self::state::{STATE_VERSION, StateError};
use self::timers::Timer;
use crate::action::Action;
use crate::call::{Call, Send, SlotId, Stage};
use crate::session::Session;
use crate::slot::{Phase, Run, Slot};
use crate::stats::{Loss, Stats};
use crate::time::Time;

/// The whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    limits: Limits,
    sessions: BTreeMap<SessionId, Session>,
    calls: BTreeMap<CallId, Call>,
    slots: Vec<Slot>,
    timers: BTreeSet<(Time, Timer)>,
    actions: VecDeque<Action>,
    stats: Stats,
    next_session: u64,
    next_call: u64,
    last_generation: Generation,
    mode: Mode,
    conduct: Conduct,
    /// Since when the client itself is asked something; meanwhile no deadline comes nearer.
    asking: Option<Time>,
}

/// How workers are dealt with that do not let go of a call, or are silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conduct {
    /// Our own packs: they heed a cancel and always answer a ping.
    #[default]
    Strict,
    /// Somebody else's server, whose state its users need: one that answers a ping may go on,
    /// also with a call that is past its time, and one that works is not pinged.
    Lenient,
}

/// Whether requests are still taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Serving,
    /// Calls in flight may finish until then.
    Draining {
        until: Time,
    },
    /// Only workers are left to end.
    Stopping,
}

impl Kernel {
    /// A kernel with one cold slot per name.
    pub fn new(limits: Limits, slots: &[&str]) -> Self {
        Self::seeded(limits, slots, 0)
    }

    /// The same, with a seed of the driver's: hosts that lose their workers together then do not
    /// start them together.
    pub fn seeded(limits: Limits, slots: &[&str], seed: u64) -> Self {
        let slots = slots
            .iter()
            .zip(seed..)
            .map(|(name, seed)| Slot::new((*name).to_owned(), &limits, seed))
            .collect();
        Self {
            limits,
            sessions: BTreeMap::new(),
            calls: BTreeMap::new(),
            slots,
            timers: BTreeSet::new(),
            actions: VecDeque::new(),
            stats: Stats::default(),
            next_session: 1,
            next_call: 1,
            last_generation: Generation::new(0),
            mode: Mode::Serving,
            conduct: Conduct::Strict,
            asking: None,
        }
    }

    /// The same kernel, with another conduct towards its workers.
    #[must_use]
    pub fn with_conduct(mut self, conduct: Conduct) -> Self {
        self.conduct = conduct;
        self
    }

    /// A client connected.
    pub fn open_session(&mut self) -> SessionId {
        let id = SessionId::new(self.next_session);
        self.next_session += 1;
        let session = Session::new(&self.limits);
        self.sessions.insert(id, session);
        id
    }

    /// What the driver must do next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next worker that was lost or is to be replaced, for the driver to report.
    pub fn poll_loss(&mut self) -> Option<Loss> {
        self.stats.poll_loss()
    }

    /// Whether the driver should go on reading from this client.
    pub fn wants_input(&self, session: SessionId) -> bool {
        self.sessions
            .get(&session)
            .is_some_and(Session::wants_input)
    }

    /// Whether every request has its answer after [`Kernel::handle_stop`], and only workers are
    /// left to end.
    pub fn is_stopping(&self) -> bool {
        self.mode == Mode::Stopping
    }

    /// Whether everything has ended after [`Kernel::handle_stop`].
    pub fn is_stopped(&self) -> bool {
        self.mode == Mode::Stopping && self.slots.iter().all(|slot| slot.workers.is_empty())
    }

    /// What a worker was sent for a call whose answer still counts. The driver checks an answer
    /// against the tool's output schema before it hands it in.
    pub fn sent(&self, generation: Generation, call: CallId) -> Option<&rpc::Op> {
        let slot = self.slot_of(generation)?;
        let worker = self
            .slot(slot)
            .workers
            .get(&generation)
            .filter(|worker| worker.is_heard())?;
        match (worker.running.get(&call), self.calls.get(&call)) {
            (Some(Run::Live), Some(call)) => match call.stage {
                Stage::Running { generation: at, .. } if at == generation => {
                    call.task().map(|task| &task.op)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The worker of a slot to which calls are sent.
    pub fn serving(&self, slot: SlotId) -> Option<Generation> {
        self.slot(slot).supervisor.ready_generation()
    }

    /// Whether whatever this worker says does not count any more.
    pub fn is_fenced(&self, generation: Generation) -> bool {
        let slot = self.slot_of(generation);
        slot.and_then(|slot| self.slot(slot).workers.get(&generation))
            .is_none_or(|worker| matches!(worker.phase, Phase::Ending | Phase::Lost))
    }

    /// The call that a client means by this id.
    pub fn find(&self, session: SessionId, id: &RequestId) -> Option<CallId> {
        self.sessions.get(&session)?.find(id)
    }

    /// The session and the id of a request in flight.
    pub fn request_of(&self, call: CallId) -> Option<(SessionId, &RequestId)> {
        let call = self.calls.get(&call)?;
        match &call.request.id {
            EchoId::Known(id) => Some((call.session, id)),
            EchoId::Null | EchoId::Absent => None,
        }
    }

    /// Whether what a worker was sent for a call only asks about it.
    pub fn is_probing(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|call| {
            matches!(
                call.stage,
                Stage::Running {
                    send: Send::Probe,
                    ..
                }
            )
        })
    }

    /// Whether calls for this slot fail at once.
    pub fn is_closed(&self, now: Time, slot: SlotId) -> bool {
        self.slot(slot).supervisor.is_closed(now)
    }

    /// Whether the end of this worker is what was asked for.
    pub fn is_ending(&self, generation: Generation) -> bool {
        let slot = self.slot_of(generation);
        slot.and_then(|slot| self.slot(slot).workers.get(&generation))
            .is_none_or(|worker| worker.phase == Phase::Ending)
    }

    /// A tool's input or output did not fit its schema.
    pub fn note_mismatch(&mut self, mismatch: SchemaMismatch) {
        self.stats.mismatch(mismatch, self.limits.diagnostics);
    }

    /// The telemetry payload.
    pub fn telemetry(&self) -> Telemetry {
        self.stats.telemetry()
    }

    /// What metrics show.
    pub fn metrics(&self, now: Time) -> HostMetrics {
        self.stats.metrics(self.health(now).restart_count)
    }

    /// The limits in force.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Requests in flight, in all sessions.
    pub fn in_flight(&self) -> usize {
        self.calls.len()
    }

    fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "slots are fixed at the start; ids come from them"
    )]
    fn slot(&self, slot: SlotId) -> &Slot {
        &self.slots[slot.0]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "slots are fixed at the start; ids come from them"
    )]
    fn slot_mut(&mut self, slot: SlotId) -> &mut Slot {
        &mut self.slots[slot.0]
    }

    fn slot_of(&self, generation: Generation) -> Option<SlotId> {
        self.slots
            .iter()
            .position(|slot| slot.workers.contains_key(&generation))
            .map(SlotId)
    }
}
