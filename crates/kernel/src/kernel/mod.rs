//! The machines together: sessions, calls, slots and timers in one deterministic whole.
//!
//! Theory of operation. A request becomes a [`Call`] and stays in the table until its one
//! terminal outcome, which leaves as [`Action::End`]; [`Kernel::leave`] is the only place that
//! removes a call. A call for a worker waits in its slot's queue, is sent when the slot's worker
//! is ready and has room, and from its first send counts as possibly executed. When a worker is
//! lost, [`replay::verdict`] decides about each call it had; what is sent again waits until the
//! lost worker is reaped. A call whose client was answered early (deadline, cancel) stays in its
//! worker's hands as abandoned until the worker lets go of it or is replaced. A call whose answer
//! is being checked has left its worker: the loss of that worker does not concern it.
//!
//! A slot is added and closed while the host runs: a pack's slot serves all sessions, a wrapped
//! server's slot one of them. A closed slot is removed when its last worker is reaped.
//!
//! The files: `requests` (from a request to its end), `workers` (spawn to end), `losses`
//! (verdicts and reaping), `slots` (added, closed, removed), `spares` (standby and rollout), `watch`
//! (pings), `asking` (paused deadlines), `timers`, `report` (health).
//!
//! [`replay::verdict`]: mainstay_contract::replay::verdict

mod asking;
mod in_flight;
mod losses;
mod report;
mod requests;
mod slots;
mod spares;
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
use mainstay_contract::trace::TraceContext;
use serde::{Deserialize, Serialize};

use self::timers::Timer;
use crate::action::Action;
use crate::call::{Call, Dispatch, SlotId, Stage};
use crate::quotas::{Quotas, ToolQuotas};
use crate::session::Session;
use crate::slot::{Phase, Run, Slot, Worker};
use crate::stats::{Loss, Stats};
use crate::supervisor::State;
use crate::time::Time;

/// Sessions, calls, slots and timers of one host.
///
/// Four method families. `handle_*` (with `open_session`, `add_slot`, `close_slot`, `warm`, `rest`,
/// `start_clock`, `hold_answer`) report an event. [`Kernel::poll_action`] gives what the caller must do
/// next: after each event, poll until it gives `None` and carry out the actions in that order.
/// [`Kernel::poll_timeout`] says when to call [`Kernel::handle_timeout`] at the latest; calling it
/// earlier does no harm. Everything else (`health`, `metrics`, `is_*`, `slot_*`) only reads.
///
/// The caller promises that `now` never decreases, also across [`Kernel::save`] and
/// [`Kernel::restore`], that it reports every worker it spawned as reaped in the end, and that it routes,
/// serves and checks each call for which it was asked to, unless the call ended meanwhile.
///
/// The kernel gives each accepted request exactly one [`Action::End`], each session one
/// [`Action::SessionOver`] and each closed slot one [`Action::SlotOver`]. The same events at the same
/// times give the same actions. Events about calls, workers, slots and sessions that it does not know
/// (any more) change nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    limits: Limits,
    sessions: BTreeMap<SessionId, Session>,
    /// Boxed: a table of small entries is cheaper to change.
    calls: BTreeMap<CallId, Box<Call>>,
    slots: BTreeMap<SlotId, Slot>,
    /// The slot of each worker that is not reaped.
    homes: BTreeMap<Generation, SlotId>,
    timers: BTreeSet<(Time, Timer)>,
    actions: VecDeque<Action>,
    stats: Stats,
    #[serde(default)]
    quotas: Quotas,
    /// The callers of sessions that have one.
    #[serde(default)]
    callers: BTreeMap<SessionId, String>,
    /// Restarts and failures of slots that were removed.
    past_restarts: u64,
    past_failures: u32,
    /// When the last slot with failures was removed.
    last_failing: Time,
    seed: u64,
    next_slot: usize,
    next_session: u64,
    next_call: u64,
    last_generation: Generation,
    mode: Mode,
}

/// How a slot treats workers that keep a call too long, or are silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conduct {
    /// Packs: they obey a cancel and always answer a ping. One that does not is replaced.
    #[default]
    Strict,
    /// Wrapped servers, whose state their users need: one that answers a ping is kept, even with a
    /// call that is past its deadline, and one that runs a call is not pinged.
    Lenient,
}

/// True if the host accepts requests.
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
    /// A kernel without slots, whose restart jitter comes from `seed`. Hosts with different seeds
    /// that lose their workers together do not restart them together.
    pub fn seeded(limits: Limits, seed: u64) -> Self {
        Self {
            limits,
            sessions: BTreeMap::new(),
            calls: BTreeMap::new(),
            slots: BTreeMap::new(),
            homes: BTreeMap::new(),
            timers: BTreeSet::new(),
            actions: VecDeque::new(),
            stats: Stats::default(),
            quotas: Quotas::default(),
            callers: BTreeMap::new(),
            past_restarts: 0,
            past_failures: 0,
            last_failing: Time::default(),
            seed,
            next_slot: 0,
            next_session: 1,
            next_call: 1,
            last_generation: Generation::new(0),
            mode: Mode::Serving,
        }
    }

    /// Limits what callers may use of tools.
    pub fn set_quotas(&mut self, tools: ToolQuotas) {
        self.quotas = Quotas::new(tools);
    }

    /// Sessions of one caller share its quotas.
    pub fn set_caller(&mut self, session: SessionId, caller: &str) {
        self.callers.insert(session, caller.to_owned());
    }

    /// A client connected.
    pub fn open_session(&mut self) -> SessionId {
        let id = SessionId::new(self.next_session);
        self.next_session += 1;
        let session = Session::new(&self.limits);
        self.sessions.insert(id, session);
        id
    }

    /// The next action for the driver.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next worker that was lost or is to be replaced, for the driver to report.
    pub fn poll_loss(&mut self) -> Option<Loss> {
        self.stats.poll_loss()
    }

    /// True until the host must stop.
    pub fn is_serving(&self) -> bool {
        self.mode == Mode::Serving
    }

    /// True until a client will ask no more and everything that it asked is answered.
    pub fn has_session(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// True if no request of a client is in flight.
    pub fn is_idle_session(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_none_or(Session::is_idle)
    }

    /// True while a client lets its answers pile up.
    pub fn is_behind(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(Session::is_behind)
    }

    /// True if the driver should go on reading from this client.
    pub fn wants_input(&self, session: SessionId) -> bool {
        self.sessions
            .get(&session)
            .is_some_and(Session::wants_input)
    }

    /// True if every request has its answer after [`Kernel::handle_stop`], and only workers are
    /// left to end.
    pub fn is_stopping(&self) -> bool {
        self.mode == Mode::Stopping
    }

    /// True if everything has ended after [`Kernel::handle_stop`].
    pub fn is_stopped(&self) -> bool {
        self.mode == Mode::Stopping && self.homes.is_empty()
    }

    /// The message that a worker got for a call whose answer still counts. The driver checks an answer
    /// against the tool's output schema before it hands it in.
    pub fn sent(&self, generation: Generation, call: CallId) -> Option<&rpc::Op> {
        let worker = self.worker(generation).filter(|worker| worker.is_heard())?;
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
        self.slots.get(&slot)?.supervisor.ready_generation()
    }

    /// True if a worker of the slot is ready or starting.
    pub fn has_worker(&self, slot: SlotId) -> bool {
        let slot = self.slots.get(&slot);
        slot.is_some_and(|slot| slot.supervisor.generation().is_some())
    }

    /// True if whatever this worker says does not count any more.
    pub fn is_fenced(&self, generation: Generation) -> bool {
        self.worker(generation)
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

    /// The session of a request in flight.
    pub fn session_of(&self, call: CallId) -> Option<SessionId> {
        self.calls.get(&call).map(|call| call.session)
    }

    /// True if what a worker was sent for a call only asks about it.
    pub fn is_probing(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|call| {
            matches!(
                call.stage,
                Stage::Running {
                    send: Dispatch::Probe,
                    ..
                } | Stage::Checking {
                    send: Dispatch::Probe,
                    ..
                }
            )
        })
    }

    /// True if calls for this slot fail at once.
    pub fn is_closed(&self, now: Time, slot: SlotId) -> bool {
        let slot = self.slots.get(&slot);
        slot.is_none_or(|slot| slot.supervisor.is_closed(now))
    }

    /// True if the end of this worker is what was asked for.
    pub fn is_ending(&self, generation: Generation) -> bool {
        self.worker(generation)
            .is_none_or(|worker| worker.phase == Phase::Ending)
    }

    /// A tool's input or output did not fit its schema. `Some` if that should be logged, with the number
    /// of those that were not.
    pub fn note_mismatch(&mut self, now: Time, mismatch: SchemaMismatch) -> Option<u64> {
        self.stats.mismatch(now, mismatch, self.limits.diagnostics)
    }

    /// The span of a request in flight.
    pub fn trace_of(&self, call: CallId) -> Option<TraceContext> {
        let span = self.calls.get(&call)?.request.trace?;
        Some(span.context)
    }

    /// True if a slot has no worker until one is needed.
    pub fn is_cold(&self, slot: SlotId) -> bool {
        let slot = self.slots.get(&slot);
        slot.is_some_and(|slot| slot.supervisor.state() == State::Cold)
    }

    /// The telemetry payload.
    pub fn telemetry(&self) -> Telemetry {
        self.stats.telemetry()
    }

    /// The numbers for metrics.
    pub fn metrics(&self, now: Time) -> HostMetrics {
        let mut metrics = self.stats.metrics(self.health(now).restart_count);
        metrics.refused = *self.quotas.refused();
        metrics
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

    fn slot_of(&self, generation: Generation) -> Option<SlotId> {
        self.homes.get(&generation).copied()
    }

    fn worker(&self, generation: Generation) -> Option<&Worker> {
        let slot = self.slots.get(self.homes.get(&generation)?)?;
        slot.workers.get(&generation)
    }

    fn worker_mut(&mut self, generation: Generation) -> Option<&mut Worker> {
        let slot = self.slots.get_mut(self.homes.get(&generation)?)?;
        slot.workers.get_mut(&generation)
    }
}
