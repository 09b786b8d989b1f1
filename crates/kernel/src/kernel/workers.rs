//! From the spawn of a worker to its reaping.

use std::collections::BTreeMap;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation, SessionId};
use mainstay_contract::outcome::{Problem, Success};
use mainstay_contract::rpc::{self, Answer, Probed, Progress};
use mainstay_contract::tool::Pace;

use super::losses::Charge;
use super::timers::Timer;
use super::{Conduct, Kernel, Mode};
use crate::action::{Action, Delivery, Manner, Notice};
use crate::call::{Call, Dispatch, SlotId, Stage, Work};
use crate::defect::{Defect, is_planted};
use crate::session::Session;
use crate::slot::{Phase, Purpose, Rollout, Run, Worker};
use crate::supervisor::Directive;
use crate::time::Time;

/// Time for which a call that ended workers runs alone before others are sent beside it.
const ALONE_MS: u64 = 1_000;

impl Kernel {
    /// Starts a slot's worker before a call needs it.
    pub fn warm(&mut self, now: Time, slot: SlotId) {
        self.demand(now, slot);
    }

    /// A worker announced that it is ready, and its build and catalog are as they must be.
    pub fn handle_ready(&mut self, now: Time, generation: Generation) {
        let Some(slot) = self.slot_of(generation) else {
            return;
        };
        if self.spare_ready(now, slot, generation) {
            return;
        }
        let owner = self.slots.get_mut(&slot);
        if owner.is_some_and(|owner| owner.supervisor.ready(now, generation)) {
            if let Some(worker) = self.worker_mut(generation) {
                worker.phase = Phase::Serving;
            }
            self.watch(now, generation);
            self.rearm(slot);
            if self.spare_purpose(slot) != Some(Purpose::Rollout) {
                self.rollout_over(slot, Ok(generation));
            }
            self.dispatch(now, slot);
            self.keep_spare(now, slot);
        }
    }

    /// A worker reported progress of a call.
    pub fn handle_progress(&mut self, now: Time, from: Generation, id: CallId, progress: Progress) {
        if self.sent(from, id).is_none() {
            return;
        }
        if !self.extend(now, id) {
            return;
        }
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let held = call.throttle.poll_timeout();
        let step = call.throttle.handle(now, progress);
        if let Some(at) = held {
            self.timers.remove(&(at, Timer::Progress(id)));
        }
        if let Some(at) = call.throttle.poll_timeout() {
            self.timers.insert((at, Timer::Progress(id)));
        }
        if let Some(step) = step {
            self.notify(id, step);
        }
    }

    /// A wrapped server reported progress of a call in its own words, which are passed on as they
    /// are. Whether the call still counts.
    pub fn handle_own_progress(&mut self, now: Time, from: Generation, id: CallId) -> bool {
        self.sent(from, id).is_some() && self.extend(now, id)
    }

    /// Moves a call's deadline, because there is progress. A call whose time is up is not given
    /// more, even if its timer has not fired yet.
    fn extend(&mut self, now: Time, id: CallId) -> bool {
        let slot = self.calls.get(&id).and_then(|call| call.slot());
        let paused = self.paused(slot);
        let call = self.calls.get_mut(&id);
        let Some(call) = call.filter(|call| !call.is_late(paused.unwrap_or(now))) else {
            return false;
        };
        if let (Some(old), Some(last), Some(task), None) =
            (call.deadline, call.last_deadline, call.task(), paused)
        {
            let moved = now.plus_ms(task.timeout_ms).min(last).max(old);
            call.deadline = Some(moved);
            self.timers.remove(&(old, Timer::Deadline(id)));
            if !is_planted(Defect::DeadlineLost) {
                self.timers.insert((moved, Timer::Deadline(id)));
            }
        }
        true
    }

    /// Dismisses a slot's worker that is idle, also one that is starting; the next call starts another. False if it is
    /// not idle.
    pub fn rest(&mut self, slot: SlotId) -> bool {
        let Some(owner) = self.slots.get_mut(&slot) else {
            return false;
        };
        let Some(generation) = owner.supervisor.generation() else {
            return false;
        };
        let needed = !owner.queue.is_empty() || owner.running() > 0;
        if needed || self.mode != Mode::Serving || owner.rollout == Rollout::Pending {
            return false;
        }
        owner.supervisor.rest();
        self.drop_spare(slot);
        self.rearm(slot);
        self.end_worker(generation, Manner::Dismiss);
        true
    }

    pub(super) fn notify(&mut self, id: CallId, step: crate::progress::Step) {
        let Some(call) = self.calls.get(&id) else {
            return;
        };
        let mainstay_contract::dialect::EchoId::Known(request_id) = &call.request.id else {
            return;
        };
        let notice = Notice {
            session: call.session,
            call: id,
            id: request_id.clone(),
            form: call.request.form,
            token: call.request.progress_token.clone(),
            tool: call.request.tool.clone().unwrap_or_default(),
            step,
        };
        self.act(Action::Progress(Box::new(notice)));
    }

    /// A worker answered something: its slot is not one that never worked.
    pub fn handle_proof(&mut self, from: Generation) {
        let slot = self.slot_of(from);
        if let Some(slot) = slot.and_then(|slot| self.slots.get_mut(&slot)) {
            slot.proven = true;
            slot.in_vain = 0;
        }
    }

    /// A wrapped server answered a request with a result. True the first time: its handshake is over.
    pub fn handle_result(&mut self, now: Time, from: Generation) -> bool {
        let worker = self.worker_mut(from);
        let Some(worker) = worker.filter(|worker| worker.answered.is_none()) else {
            return false;
        };
        worker.answered = Some(now);
        true
    }

    /// True if a wrapped server has answered a request with a result.
    pub fn has_answered(&self, generation: Generation) -> bool {
        let worker = self.worker(generation);
        worker.is_some_and(|worker| worker.answered.is_some())
    }

    /// A worker answered a call. The kernel drops an answer of a worker that is being ended, and one
    /// to a call that has ended.
    pub fn handle_answer(&mut self, now: Time, from: Generation, id: CallId, answer: Answer) {
        if let Some(run) = self.release(from, id) {
            if run == Run::Live {
                self.conclude(now, id, answer);
            }
            self.released(now, from);
        }
    }

    /// A worker answered a call, and the driver checks the answer before it reports it with
    /// [`Kernel::handle_checked`]. Until then only a deadline, a cancel or the end of a drain ends
    /// the call. False if the kernel drops the answer.
    pub fn hold_answer(&mut self, now: Time, from: Generation, id: CallId) -> bool {
        let Some(run) = self.release(from, id) else {
            return false;
        };
        if let (Run::Live, Some(call)) = (run, self.calls.get_mut(&id))
            && let Stage::Running { generation, send } = call.stage
        {
            call.stage = Stage::Checking { generation, send };
        }
        self.released(now, from);
        run == Run::Live
    }

    /// The driver has checked the answer to a call. `answer` is what the call ends with.
    pub fn handle_checked(&mut self, now: Time, id: CallId, answer: Answer) {
        let call = self.calls.get(&id);
        let Some(call) = call.filter(|call| matches!(call.stage, Stage::Checking { .. })) else {
            return;
        };
        let slot = call.slot();
        self.conclude(now, id, answer);
        if let Some(slot) = slot {
            self.fail_queue_if_closed(now, slot);
            self.dispatch(now, slot);
        }
    }

    /// Takes a call out of the hands of a worker that answered it, if its answers still count.
    pub(super) fn release(&mut self, from: Generation, id: CallId) -> Option<Run> {
        let worker = self.worker_mut(from).filter(|worker| worker.is_heard())?;
        let run = worker.running.remove(&id)?;
        if let Run::Abandoned { until, .. } = run {
            self.timers.remove(&(until, Timer::Grace(from, id)));
        }
        Some(run)
    }

    /// A worker answered a call and has room for another.
    fn released(&mut self, now: Time, from: Generation) {
        self.handle_pong(now, from);
        self.handle_proof(from);
        self.end_if_idle(from);
        if let Some(slot) = self.slot_of(from) {
            // A probe of a retiring worker may have put its call back into the queue of a slot that
            // is exhausted by now.
            self.fail_queue_if_closed(now, slot);
            self.dispatch(now, slot);
        }
    }

    fn conclude(&mut self, now: Time, id: CallId, answer: Answer) {
        let probing = self.is_probing(id);
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let slot = call.slot().and_then(|slot| self.slots.get(&slot));
        let is_remote = slot.is_some_and(|slot| slot.is_remote);
        let outcome = match (probing, answer) {
            (false, Answer::Tool(reply)) => Ok(Success::Tool(reply)),
            (false, Answer::Members(members)) => Ok(Success::Members(members)),
            (false, Answer::Forwarded(response)) => Ok(Success::Forwarded(response)),
            (false, Answer::Resources(resources)) => {
                let listing = serde_json::json!({ "resources": resources });
                Ok(Success::Members(listing.into()))
            }
            (false, Answer::Failed(problem)) => {
                let mut problem = problem.bounded();
                problem.generation = call.generation;
                // A tool may notice first that its time is up; its client gets the same answer.
                if problem.kind == ErrorKind::Timeout {
                    problem.timeout_ms = call.timeout_ms;
                }
                Err(problem)
            }
            (true, Answer::Probed(Probed::NotApplied {}))
                if call.resumed_until.is_some_and(|until| until <= now) =>
            {
                Err(Problem::of(ErrorKind::Timeout))
            }
            // An earlier attempt may still run on another machine, where the host cannot end it.
            (true, Answer::Probed(Probed::NotApplied {})) if is_remote => {
                Err(Problem::of(ErrorKind::OutcomeUnknown))
            }
            (true, Answer::Probed(Probed::NotApplied {})) => {
                let until = call.resumed_until.take();
                call.stage = Stage::Queued {
                    send: Dispatch::Call,
                    held: None,
                };
                if let Some(slot) = call.slot() {
                    self.put_back(now, slot, id);
                }
                if let Some(until) = until {
                    self.set_deadline(now, id, until.ms_since(now));
                }
                return;
            }
            (true, Answer::Probed(Probed::Applied(reply))) => Ok(Success::Tool(reply)),
            (true, Answer::Probed(Probed::Unknown {}) | Answer::Failed(_)) => {
                Err(Problem::of(ErrorKind::OutcomeUnknown))
            }
            (false, Answer::Probed(_))
            | (
                true,
                Answer::Tool(_) | Answer::Members(_) | Answer::Resources(_) | Answer::Forwarded(_),
            ) => Err(Problem::of(ErrorKind::WorkerProtocol)),
        };
        self.end(now, id, outcome, Delivery::Send);
    }

    /// Sends what can be sent.
    pub(super) fn dispatch(&mut self, now: Time, slot: SlotId) {
        loop {
            let Self {
                slots,
                calls,
                sessions,
                timers,
                ..
            } = self;
            let owner = slots.get_mut(&slot);
            let Some(owner) = owner.filter(|owner| !owner.queue.is_empty()) else {
                return;
            };
            let Some(generation) = owner.supervisor.ready_generation() else {
                return self.demand(now, slot);
            };
            let worker = owner.workers.get_mut(&generation);
            let Some(worker) = worker.filter(|worker| worker.phase == Phase::Serving) else {
                return;
            };
            if !worker.long.is_empty() {
                let Worker { running, long, .. } = &mut *worker;
                long.retain(|call| running.contains_key(call));
            }
            let pool = owner.pool;
            if let Some((call, until)) = worker.alone {
                if now < until && worker.running.contains_key(&call) {
                    return;
                }
                worker.alone = None;
            }
            let has_room = |pace: Pace| worker.has_room(pace, pool);
            let room = (has_room(Pace::Short), has_room(Pace::Long));
            if room == (false, false) {
                return;
            }
            let idle = worker.running.len() == worker.long.len();
            let isolates = owner.conduct == Conduct::Strict;
            let is_behind =
                |call: &Call| sessions.get(&call.session).is_some_and(Session::is_behind);
            let fits = |pace: Pace| match pace {
                Pace::Short => room.0,
                Pace::Long => room.1,
            };
            let shares = Shares::of(owner.is_shared, worker, pool, calls);
            // A suspect runs alone, and those behind it wait for their turn.
            let suspect = |call: &Call| isolates && call.is_suspect();
            let mut blocked = false;
            let free = |id: CallId, pace: Pace| {
                let call = fits(pace).then(|| calls.get(&id)).flatten();
                call.is_some_and(|call| {
                    let ready = matches!(call.stage, Stage::Queued { held: None, .. })
                        && !is_behind(call)
                        && (pace == Pace::Long || shares.admit(call.session));
                    blocked |= ready && suspect(call) && !idle;
                    ready && !blocked
                })
            };
            let Some(id) = owner.queue.take_first(free) else {
                return;
            };
            let taken = calls.get(&id).map(AsRef::as_ref);
            worker.run(id, taken.map(Call::pace).unwrap_or_default());
            if taken.is_some_and(suspect) {
                let until = now.plus_ms(ALONE_MS);
                worker.alone = Some((id, until));
                timers.insert((until, Timer::Alone(slot)));
            }
            self.send(now, generation, id);
        }
    }

    fn send(&mut self, now: Time, generation: Generation, id: CallId) {
        let clock = self.paused(self.slot_of(generation)).unwrap_or(now);
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let (Stage::Queued { send, .. }, Some(task)) = (call.stage, call.task()) else {
            return;
        };
        let op = match (send, &task.op) {
            (
                Dispatch::Probe,
                rpc::Op::Tool {
                    name, arguments, ..
                },
            ) => rpc::Op::Probe {
                name: name.clone(),
                arguments: arguments.clone(),
            },
            (
                Dispatch::Probe,
                rpc::Op::Forward(rpc::Forward {
                    probe: Some(line), ..
                }),
            ) => rpc::Op::Forward(rpc::Forward {
                line: line.clone(),
                probe: None,
            }),
            (_, op) => op.clone(),
        };
        match send {
            Dispatch::Call => {
                call.attempt += 1;
                if let Some(charge) = &mut call.charge {
                    charge.sent.get_or_insert(now);
                }
            }
            Dispatch::Probe => call.probes += 1,
        }
        call.stage = Stage::Running { generation, send };
        call.generation = Some(generation);
        let timeout_ms = call.deadline.map_or(0, |deadline| deadline.ms_since(clock));
        let call = Box::new(rpc::Call {
            call: id,
            attempt: call.attempt.max(1),
            timeout_ms,
            trace: call.request.trace.map(|span| span.context),
            op,
        });
        self.act(Action::Send { generation, call });
    }

    /// Takes a call back from a worker that got not one byte of it. The call is routed again, and keeps
    /// its deadline.
    pub fn recall(&mut self, now: Time, from: Generation, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let running = Stage::Running {
            generation: from,
            send: Dispatch::Call,
        };
        if call.stage != running {
            return;
        }
        call.stage = Stage::Serving;
        call.attempt = call.attempt.saturating_sub(1);
        call.request.work = Work::Unrouted;
        if let Some(worker) = self.worker_mut(from) {
            worker.running.remove(&id);
        }
        self.act(Action::Route { call: id });
        self.end_if_idle(from);
        if let Some(slot) = self.slot_of(from) {
            self.dispatch(now, slot);
        }
    }

    pub(super) fn demand(&mut self, now: Time, slot: SlotId) {
        if self.mode == Mode::Stopping {
            return;
        }
        if let Some(owner) = self.slots.get_mut(&slot) {
            let directive = owner.supervisor.demand(now);
            self.follow(now, slot, directive);
        }
    }

    pub(super) fn follow(&mut self, now: Time, slot: SlotId, directive: Directive) {
        match directive {
            Directive::Rest => {}
            Directive::Start => {
                if let Some(generation) = self.spawn(slot)
                    && let Some(owner) = self.slots.get_mut(&slot)
                {
                    owner.supervisor.started(now, generation);
                }
            }
            Directive::TooLate(generation) => {
                let conduct = self.slots.get(&slot).map(|slot| slot.conduct);
                let kind = match conduct.unwrap_or_default() {
                    Conduct::Strict => ErrorKind::WorkerUnavailable,
                    Conduct::Lenient => ErrorKind::WorkerNotReady,
                };
                let fault = Fault::new(kind, "not ready in time").of(generation);
                self.retire(now, generation, &fault, Charge::Slot);
            }
        }
        self.rearm(slot);
    }

    /// A worker gets no more calls; when no request waits for its calls, it is ended.
    pub(super) fn retire(
        &mut self,
        now: Time,
        generation: Generation,
        fault: &Fault,
        charge: Charge,
    ) {
        let Some(slot) = self.slot_of(generation) else {
            return;
        };
        let Some(worker) = self.worker_mut(generation) else {
            return;
        };
        let answered = worker.answered.is_some();
        match worker.phase {
            Phase::Starting | Phase::Standby => {
                self.end_worker(generation, Manner::Terminate);
            }
            Phase::Serving => worker.phase = Phase::Retiring,
            // It was to be let go after a rollout; now it must go.
            Phase::Retiring => {
                worker.leave = Manner::Terminate;
                return;
            }
            Phase::Ending | Phase::Lost => return,
        }
        if !self.spare_lost(now, slot, generation, fault) {
            self.stats.restart(slot, generation, answered, fault);
            self.supervised_lost(now, slot, generation, fault, charge);
        }
        self.end_if_idle(generation);
        self.fail_queue_if_closed(now, slot);
        self.replace_lost(now, slot);
        self.dispatch(now, slot);
    }

    /// The driver found that a worker must not be used: wrong build, wrong catalog, bad frames.
    pub fn handle_unfit(&mut self, now: Time, generation: Generation, fault: &Fault) {
        self.retire(now, generation, fault, Charge::Slot);
    }

    /// Ends a retiring worker that runs no live call.
    pub(super) fn end_if_idle(&mut self, generation: Generation) {
        let worker = self.worker(generation);
        let retiring = worker.filter(|worker| worker.phase == Phase::Retiring);
        if let Some(worker) = retiring.filter(|worker| !worker.has_live_calls()) {
            self.end_worker(generation, worker.leave);
        }
    }

    pub(super) fn stop_if_drained(&mut self) {
        let draining = matches!(self.mode, Mode::Draining { .. });
        if !draining || !self.calls.is_empty() {
            return;
        }
        self.mode = Mode::Stopping;
        for slot in self.slot_ids().collect::<Vec<_>>().into_iter().rev() {
            let fault = Fault::new(ErrorKind::ShuttingDown, "the host is stopping");
            self.shut(slot, fault);
        }
        self.timers.clear();
    }
}

/// The places of a shared server's pool, so that no session keeps the others from it. A session may take a place while
/// it has fewer than are free: one alone takes half of them, and the next one always finds a place.
struct Shares {
    /// Calls of each session that the server has, cancelled ones included; empty while no session can have too many.
    taken: BTreeMap<SessionId, usize>,
    free: usize,
}

impl Shares {
    fn of(
        is_shared: bool,
        worker: &Worker,
        pool: usize,
        calls: &BTreeMap<CallId, Box<Call>>,
    ) -> Self {
        let running = worker.running.len().saturating_sub(worker.long.len());
        let free = pool.saturating_sub(running);
        let mut taken = BTreeMap::new();
        if is_shared && running >= free {
            for (call, run) in &worker.running {
                let session = match run {
                    Run::Live => calls.get(call).map(|call| call.session),
                    // MCP asks servers not to answer cancelled calls, so these stay for a while.
                    Run::Abandoned { session, .. } => *session,
                };
                if let Some(session) = session.filter(|_| !worker.long.contains(call)) {
                    *taken.entry(session).or_default() += 1;
                }
            }
        }
        Self { taken, free }
    }

    fn admit(&self, session: SessionId) -> bool {
        let taken = self.taken.get(&session);
        taken.is_none_or(|taken| *taken < self.free)
    }
}
