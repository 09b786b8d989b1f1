//! The calls that are lost with a worker, and their fate.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::outcome::Problem;
use mainstay_contract::replay::{Knowledge, Verdict, verdict};
use mainstay_contract::rpc;

use super::timers::Timer;
use super::{Conduct, Kernel};
use crate::action::Delivery;
use crate::call::{Dispatch, SlotId, Stage};
use crate::defect::{Defect, is_planted};
use crate::slot::{Phase, Run};
use crate::time::Time;

/// Starts in vain after which a request for the first answer fails.
const STARTS: u32 = 4;
/// Milliseconds after which such a request fails with the next exit: a server that took long to fail
/// takes as long to fail again.
const STARTS_MS: u64 = 4000;

/// The budget that pays for the loss of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charge {
    /// The restart budget of its slot.
    Slot,
    /// The call that ended it.
    Call,
}

/// A call of a lost worker.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// At least one byte of it was handed over.
    was_sent: bool,
    /// The worker ran no other.
    is_to_blame: bool,
}

impl Kernel {
    /// A worker's end was noticed, or it must be ended because it broke its protocol. `unsent`
    /// are the calls of which not one byte was handed over.
    pub fn handle_lost(
        &mut self,
        now: Time,
        generation: Generation,
        fault: &Fault,
        unsent: &[CallId],
    ) {
        let Some(slot) = self.slot_of(generation) else {
            return;
        };
        let Some(worker) = self.worker_mut(generation) else {
            return;
        };
        if worker.phase == Phase::Lost {
            return;
        }
        // The end of a worker that was ordered to end is not a fault.
        let dismissed = worker.phase == Phase::Ending;
        worker.phase = Phase::Lost;
        let suspect = worker.suspect(unsent);
        let answered = worker.answered.is_some();
        let running = std::mem::take(&mut worker.running);
        self.unwatch(generation);
        if self.spare_lost(now, slot, generation, fault) {
            return;
        }
        if !dismissed {
            self.stats.restart(slot, generation, answered, fault);
            if let Some(owner) = self.slots.get_mut(&slot) {
                owner.in_vain = owner.in_vain.saturating_add(u32::from(!owner.proven));
            }
        }
        let charge = self.charge(slot, suspect, running.keys());
        self.supervised_lost(now, slot, generation, fault, charge);
        // Last first: what is put back goes to the front, and the oldest must be first there.
        for (call, run) in running.into_iter().rev() {
            match run {
                Run::Abandoned { until, .. } => {
                    self.timers.remove(&(until, Timer::Grace(generation, call)));
                }
                Run::Live => {
                    let sent = Sent {
                        was_sent: !unsent.contains(&call),
                        is_to_blame: suspect == Some(call),
                    };
                    self.judge(now, slot, Some(generation), call, sent, fault);
                }
            }
        }
        self.fail_queue_if_closed(now, slot);
        self.fail_queue_in_vain(now, slot);
        self.replace_lost(now, slot);
        self.dispatch(now, slot);
    }

    /// Decides what pays for the loss of a worker. A call that was the only one to run, or that had ended a worker
    /// before, pays with its own attempts; not for a server that has never answered.
    fn charge<'a>(
        &self,
        slot: SlotId,
        suspect: Option<CallId>,
        mut running: impl Iterator<Item = &'a CallId>,
    ) -> Charge {
        let has_ended_some = |id: &CallId| self.calls.get(id).is_some_and(|call| call.losses > 0);
        let slot = self.slots.get(&slot);
        let works = slot.is_some_and(|slot| slot.conduct == Conduct::Strict || slot.proven);
        match works && (suspect.is_some() || running.any(has_ended_some)) {
            true => Charge::Call,
            false => Charge::Slot,
        }
    }

    /// The supervisor hears of a loss; with its budget go the spare and the hope of a rollout.
    pub(super) fn supervised_lost(
        &mut self,
        now: Time,
        slot: SlotId,
        lost: Generation,
        fault: &Fault,
        charge: Charge,
    ) {
        let Some(owner) = self.slots.get_mut(&slot) else {
            return;
        };
        let was_supervised = owner.supervisor.generation() == Some(lost);
        match charge {
            Charge::Slot => owner.supervisor.lost(now, lost, fault),
            Charge::Call => owner.supervisor.lost_to_call(now, lost, fault),
        }
        self.rearm(slot);
        if self.is_closed(now, slot) {
            self.drop_spare(slot);
        }
        if was_supervised && self.spare(slot).generation().is_none() {
            self.rollout_over(slot, Err(fault.clone()));
        }
    }

    /// One call of a worker that goes on was lost: its answer will not come. `was_sent` is false if the
    /// worker rejected the call before it ran.
    pub fn handle_call_lost(
        &mut self,
        now: Time,
        from: Generation,
        id: CallId,
        was_sent: bool,
        fault: &Fault,
    ) {
        let (Some(slot), Some(run)) = (self.slot_of(from), self.release(from, id)) else {
            return;
        };
        if run == Run::Live {
            let sent = Sent {
                was_sent,
                is_to_blame: false,
            };
            self.judge(now, slot, None, id, sent, fault);
        }
        self.end_if_idle(from);
        self.fail_queue_if_closed(now, slot);
        self.dispatch(now, slot);
    }

    /// Decides about a lost call. If it is sent again, it waits until the generation `lost` is reaped.
    fn judge(
        &mut self,
        now: Time,
        slot: SlotId,
        lost: Option<Generation>,
        id: CallId,
        sent: Sent,
        fault: &Fault,
    ) {
        let was_sent = sent.was_sent;
        let replays = self.limits.replays;
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let (Stage::Running { send, .. }, Some(task)) = (call.stage, call.task()) else {
            return;
        };
        let replay = task.replay;
        let has_probe = match &task.op {
            rpc::Op::Tool { .. } => true,
            rpc::Op::Forward(forward) => forward.probe.is_some(),
            _ => false,
        };
        call.losses += u32::from(was_sent);
        // Only a call that was really sent is charged for it.
        let known = match (send, was_sent) {
            (Dispatch::Call, true) => Knowledge::InFlight,
            (Dispatch::Call, false) if call.attempt <= 1 => {
                call.attempt = 0;
                Knowledge::NotDispatched
            }
            // An earlier attempt was sent; only this one was not.
            (Dispatch::Call, false) => {
                call.attempt -= 1;
                Knowledge::InFlight
            }
            (Dispatch::Probe, sent) => {
                call.probes -= u32::from(!sent);
                Knowledge::Unknown
            }
        };
        let attempts = call.attempts(replays);
        // The server never became ready: fail now instead of waiting for its successor.
        if fault.kind == ErrorKind::WorkerNotReady && !call.may_have_run() {
            let problem = Problem::from_fault(fault.kind, fault);
            return self.end(now, id, Err(problem), Delivery::Send);
        }
        let (next, held) = match verdict(known, replay, attempts) {
            Verdict::RefuseUnknown if is_planted(Defect::NeverReplayReplayed) => {
                (Dispatch::Call, lost)
            }
            Verdict::Probe if is_planted(Defect::ProbeSkipped) => (Dispatch::Call, lost),
            Verdict::Replay if is_planted(Defect::HoldIgnored) => (Dispatch::Call, None),
            Verdict::Probe if is_planted(Defect::HoldIgnored) => (Dispatch::Probe, None),
            Verdict::Replay if is_planted(Defect::ReplayRefused) => {
                let problem = Problem::from_fault(ErrorKind::ReplayExhausted, fault);
                return self.end(now, id, Err(problem), Delivery::Send);
            }
            Verdict::Send => (Dispatch::Call, None),
            Verdict::Replay => (Dispatch::Call, lost),
            Verdict::Probe if has_probe => (Dispatch::Probe, lost),
            // A server that ends before it answers anything: the call is not to blame.
            Verdict::RefuseExhausted if self.has_never_answered(slot) => {
                let problem = self.unavailable(now, slot);
                return self.end(now, id, Err(problem), Delivery::Send);
            }
            Verdict::RefuseExhausted => {
                let kind = match sent.is_to_blame {
                    true => ErrorKind::CallKillsWorker,
                    false => ErrorKind::ReplayExhausted,
                };
                let problem = Problem::from_fault(kind, fault);
                return self.end(now, id, Err(problem), Delivery::Send);
            }
            Verdict::Deliver | Verdict::RefuseUnknown | Verdict::Probe => {
                let problem = Problem::from_fault(ErrorKind::OutcomeUnknown, fault);
                return self.end(now, id, Err(problem), Delivery::Send);
            }
        };
        call.stage = Stage::Queued { send: next, held };
        self.put_back(now, slot, id);
    }

    /// A call is sent again, before the others of its slot.
    pub(super) fn put_back(&mut self, now: Time, slot: SlotId, id: CallId) {
        match self.slots.get_mut(&slot) {
            Some(owner) => {
                let pace = self.calls.get(&id).map(|call| call.pace());
                owner.queue.put_back(id, pace.unwrap_or_default());
            }
            None => self.fail_call(now, slot, id),
        }
    }

    /// A worker was reaped with its whole tree: its generation is dead.
    pub fn handle_reaped(&mut self, now: Time, generation: Generation) {
        let Some(slot) = self.slot_of(generation) else {
            return;
        };
        let fault = Fault::new(ErrorKind::WorkerUnavailable, "the worker ended").of(generation);
        self.handle_lost(now, generation, &fault, &[]);
        if let Some(owner) = self.slots.get_mut(&slot) {
            owner.workers.remove(&generation);
        }
        self.homes.remove(&generation);
        for call in self.calls.values_mut() {
            if let Stage::Queued { held, .. } = &mut call.stage
                && *held == Some(generation)
                && !is_planted(Defect::HoldNeverReleased)
            {
                *held = None;
            }
        }
        self.dispatch(now, slot);
        self.remove_if_over(now, slot);
    }

    /// The last words of a worker that was given up without them.
    pub fn handle_words(&mut self, generation: Generation, words: &str) {
        let slot = self.slot_of(generation);
        if let Some(owner) = slot.and_then(|slot| self.slots.get_mut(&slot)) {
            owner.supervisor.said(generation, words);
        }
    }

    /// A worker's tree was killed and is still there. Its generation is not dead, so nothing else
    /// changes; but readers of the slot's health shall see it.
    pub fn handle_kill_failed(&mut self, generation: Generation, fault: Fault) {
        self.stats.fault(&fault);
        let slot = self.slot_of(generation);
        if let Some(owner) = slot.and_then(|slot| self.slots.get_mut(&slot)) {
            owner.supervisor.note(fault);
        }
    }

    /// Fails everything that waits for a slot that is closed or whose restart budget is spent.
    pub(super) fn fail_queue_if_closed(&mut self, now: Time, slot: SlotId) {
        let owner = self.slots.get_mut(&slot);
        let Some(owner) = owner.filter(|owner| owner.supervisor.is_closed(now)) else {
            return;
        };
        for id in owner.queue.take_all() {
            self.fail_call(now, slot, id);
        }
    }

    /// Fails what waits for a wrapped server that has never answered anything and only dies:
    /// clients do not wait for long until a session is open. The kernel restarts it all the same.
    fn fail_queue_in_vain(&mut self, now: Time, slot: SlotId) {
        let Self { slots, calls, .. } = self;
        let Some(owner) = slots.get_mut(&slot) else {
            return;
        };
        let starts = owner.in_vain;
        if owner.conduct != Conduct::Lenient || starts == 0 {
            return;
        }
        let waited_enough = |id: CallId, _| {
            let waited = calls.get(&id).map(|call| now.ms_since(call.accepted));
            starts >= STARTS || waited.is_some_and(|waited| waited >= STARTS_MS)
        };
        let mut failed = Vec::new();
        while let Some(id) = owner.queue.take_first(waited_enough) {
            failed.push(id);
        }
        for id in failed {
            self.fail_call(now, slot, id);
        }
    }

    pub(super) fn fail_call(&mut self, now: Time, slot: SlotId, id: CallId) {
        let problem = if self.calls.get(&id).is_some_and(|call| call.may_have_run()) {
            Problem::of(ErrorKind::OutcomeUnknown)
        } else {
            self.unavailable(now, slot)
        };
        self.end(now, id, Err(problem), Delivery::Send);
    }

    /// True for a wrapped server that was started at least once and has answered nothing.
    fn has_never_answered(&self, slot: SlotId) -> bool {
        let slot = self.slots.get(&slot);
        slot.is_some_and(|slot| {
            slot.conduct == Conduct::Lenient && !slot.proven && slot.in_vain > 0
        })
    }

    /// The last fault of a slot's workers.
    pub fn last_fault(&self, slot: SlotId) -> Option<&Fault> {
        self.slots.get(&slot)?.supervisor.last_fault()
    }

    /// The error of a call for a slot that has no worker.
    pub fn unavailable(&self, now: Time, slot: SlotId) -> Problem {
        // A server that ends before it answers anything lacks something that a retry does not bring.
        let kind = match self.has_never_answered(slot) {
            true => ErrorKind::WorkerSetup,
            false => ErrorKind::WorkerUnavailable,
        };
        let slot = self.slots.get(&slot);
        let mut problem = match slot.and_then(|slot| slot.supervisor.last_fault()) {
            Some(fault)
                if matches!(
                    fault.kind,
                    ErrorKind::WorkerSetup | ErrorKind::WorkerNotReady
                ) =>
            {
                Problem::from_fault(fault.kind, fault)
            }
            Some(fault) => Problem::from_fault(kind, fault),
            None => Problem::of(kind),
        };
        problem.retry_after_ms = slot.and_then(|slot| slot.supervisor.rest_left_ms(now));
        problem
    }
}
