//! What is lost with a worker, and what becomes of it.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::outcome::Problem;
use mainstay_contract::replay::{Knowledge, Replay, Verdict, verdict};
use mainstay_contract::rpc;

use super::timers::Timer;
use super::{Conduct, Kernel};
use crate::action::Delivery;
use crate::call::{Call, Send, SlotId, Stage};
use crate::defect::{Defect, is_planted};
use crate::slot::{Phase, Run};
use crate::time::Time;

/// Starts in vain after which nobody waits for a first answer any longer.
const STARTS: u32 = 4;
/// The same for whoever has waited for so many milliseconds already.
const FEW_STARTS: u32 = 2;
const STARTS_MS: u64 = 4000;

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
        let Some(worker) = self.slot_mut(slot).workers.get_mut(&generation) else {
            return;
        };
        if worker.phase == Phase::Lost {
            return;
        }
        // The end of a worker that was told to end is no fault.
        let dismissed = worker.phase == Phase::Ending;
        worker.phase = Phase::Lost;
        let running = std::mem::take(&mut worker.running);
        self.unwatch(generation);
        if self.spare_lost(now, slot, generation, fault) {
            return self.stats.fault(fault);
        }
        if !dismissed {
            self.stats.restart(slot, generation, fault);
            let owner = self.slot_mut(slot);
            owner.in_vain = owner.in_vain.saturating_add(u32::from(!owner.proven));
        }
        self.supervised_lost(now, slot, generation, fault);
        // Last first: what is put back goes to the front, and the oldest must be first there.
        for (call, run) in running.into_iter().rev() {
            match run {
                Run::Abandoned { until, .. } => {
                    self.timers.remove(&(until, Timer::Grace(generation, call)));
                }
                Run::Live => {
                    let was_sent = !unsent.contains(&call);
                    self.judge(now, slot, generation, call, was_sent, fault);
                }
            }
        }
        self.fail_queue_if_closed(now, slot);
        self.fail_queue_in_vain(now, slot);
        self.take_over(now, slot);
        self.dispatch(now, slot);
    }

    /// The supervisor hears of a loss; with its budget go the spare and the hope of a rollout.
    pub(super) fn supervised_lost(
        &mut self,
        now: Time,
        slot: SlotId,
        lost: Generation,
        fault: &Fault,
    ) {
        let was_supervised = self.slot(slot).supervisor.generation() == Some(lost);
        self.slot_mut(slot).supervisor.lost(now, lost, fault);
        self.rearm(slot);
        if self.slot(slot).supervisor.is_closed(now) {
            self.drop_spare(slot);
        }
        let successor = self.slot(slot).spare.generation().is_some();
        if was_supervised && !successor {
            self.rollout_over(slot, Err(fault.clone()));
        }
    }

    /// Decides about a call whose worker was lost.
    fn judge(
        &mut self,
        now: Time,
        slot: SlotId,
        lost: Generation,
        id: CallId,
        was_sent: bool,
        fault: &Fault,
    ) {
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
        // Only a call that was really sent is charged for it.
        let known = match (send, was_sent) {
            (Send::Call, true) => Knowledge::InFlight,
            (Send::Call, false) if call.attempt <= 1 => {
                call.attempt = 0;
                Knowledge::NotDispatched
            }
            // An earlier attempt was sent; only this one was not.
            (Send::Call, false) => {
                call.attempt -= 1;
                Knowledge::InFlight
            }
            (Send::Probe, sent) => {
                call.probes -= u32::from(!sent);
                Knowledge::Unknown
            }
        };
        let attempts = call.attempts(replays);
        // Whoever asks one that was never ready does not wait for another to be none.
        if fault.kind == ErrorKind::WorkerNotReady && !call.may_have_run() {
            let problem = Problem::from_fault(fault.kind, fault);
            return self.end(now, id, Err(problem), Delivery::Send);
        }
        let (next, held) = match verdict(known, replay, attempts) {
            Verdict::RefuseUnknown if is_planted(Defect::NeverReplayReplayed) => {
                (Send::Call, Some(lost))
            }
            Verdict::Probe if is_planted(Defect::ProbeSkipped) => (Send::Call, Some(lost)),
            Verdict::Replay | Verdict::Probe if is_planted(Defect::HoldIgnored) => {
                let next = match replay {
                    Replay::ProbeRequired => Send::Probe,
                    _ => Send::Call,
                };
                (next, None)
            }
            Verdict::Replay if is_planted(Defect::ReplayRefused) => {
                let problem = Problem::from_fault(ErrorKind::ReplayExhausted, fault);
                return self.end(now, id, Err(problem), Delivery::Send);
            }
            Verdict::Send => (Send::Call, None),
            Verdict::Replay => (Send::Call, Some(lost)),
            Verdict::Probe if has_probe => (Send::Probe, Some(lost)),
            Verdict::RefuseExhausted => {
                let problem = Problem::from_fault(ErrorKind::ReplayExhausted, fault);
                return self.end(now, id, Err(problem), Delivery::Send);
            }
            Verdict::Deliver | Verdict::RefuseUnknown | Verdict::Probe => {
                let problem = Problem::from_fault(ErrorKind::OutcomeUnknown, fault);
                return self.end(now, id, Err(problem), Delivery::Send);
            }
        };
        call.stage = Stage::Queued { send: next, held };
        self.slot_mut(slot).queue.put_back(id);
    }

    /// A worker was reaped with its whole tree: its generation is dead.
    pub fn handle_reaped(&mut self, now: Time, generation: Generation) {
        let Some(slot) = self.slot_of(generation) else {
            return;
        };
        let fault = Fault::new(ErrorKind::WorkerUnavailable, "the worker ended").of(generation);
        self.handle_lost(now, generation, &fault, &[]);
        self.slot_mut(slot).workers.remove(&generation);
        for call in self.calls.values_mut() {
            if let Stage::Queued { held, .. } = &mut call.stage
                && *held == Some(generation)
                && !is_planted(Defect::HoldNeverReleased)
            {
                *held = None;
            }
        }
        self.dispatch(now, slot);
    }

    /// The last words of a worker that was given up without them.
    pub fn handle_words(&mut self, generation: Generation, words: &str) {
        if let Some(slot) = self.slot_of(generation) {
            self.slot_mut(slot).supervisor.said(generation, words);
        }
    }

    /// A worker's tree was killed and is still there. Its generation is not dead, so nothing else
    /// changes; but whoever looks at the health of its slot shall see it.
    pub fn handle_kill_failed(&mut self, generation: Generation, fault: Fault) {
        self.stats.fault(&fault);
        if let Some(slot) = self.slot_of(generation) {
            self.slot_mut(slot).supervisor.note(fault);
        }
    }

    /// Fails everything that waits for a slot whose restart budget is spent.
    pub(super) fn fail_queue_if_closed(&mut self, now: Time, slot: SlotId) {
        if !self.slot(slot).supervisor.is_closed(now) {
            return;
        }
        for id in self.slot_mut(slot).queue.take_all() {
            self.fail_queued(now, slot, id);
        }
    }

    /// Fails what waits for somebody else's server that has never answered anything and only dies:
    /// clients do not wait for long until a session is open. It is started again all the same.
    fn fail_queue_in_vain(&mut self, now: Time, slot: SlotId) {
        let Self {
            slots,
            calls,
            conduct,
            ..
        } = self;
        let Some(owner) = slots.get_mut(slot.0) else {
            return;
        };
        let starts = owner.in_vain;
        if *conduct != Conduct::Lenient || starts < FEW_STARTS {
            return;
        }
        let waited_enough = |id: CallId| {
            let waited = calls.get(&id).map(|call| now.ms_since(call.accepted));
            starts >= STARTS || waited.is_some_and(|waited| waited >= STARTS_MS)
        };
        let mut failed = Vec::new();
        while let Some(id) = owner.queue.take_first(waited_enough) {
            failed.push(id);
        }
        for id in failed {
            self.fail_queued(now, slot, id);
        }
    }

    fn fail_queued(&mut self, now: Time, slot: SlotId, id: CallId) {
        let problem = if self.calls.get(&id).is_some_and(Call::may_have_run) {
            Problem::of(ErrorKind::OutcomeUnknown)
        } else {
            self.unavailable(slot)
        };
        self.end(now, id, Err(problem), Delivery::Send);
    }

    pub(super) fn unavailable(&self, slot: SlotId) -> Problem {
        let kind = ErrorKind::WorkerUnavailable;
        match self.slot(slot).supervisor.last_fault() {
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
        }
    }
}
