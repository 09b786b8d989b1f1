//! Workers beside the one that serves: the warm standby, and the successor of a rollout.
//!
//! A spare is started like any worker, but the supervisor does not know it until it takes over. A
//! standby takes over when the one that serves is lost; the successor of a rollout as soon as it
//! is ready, and the incumbent then finishes what it runs. A spare that fails never harms the
//! incumbent.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::{Fault, FaultClass};
use mainstay_contract::id::Generation;

use super::timers::Timer;
use super::{Conduct, Kernel, Mode};
use crate::action::{Action, Manner};
use crate::call::{Call, Dispatch, SlotId, Stage, UNTIMED_MS};
use crate::slot::{Phase, Purpose, Rollout, Spare};
use crate::supervisor::State;
use crate::time::Time;

impl Kernel {
    /// An operator wants a fresh generation, also out of exhaustion. Ends with one
    /// [`Action::RolloutOver`].
    pub fn handle_rollout(&mut self, now: Time, slot: SlotId) {
        let serving = self.mode == Mode::Serving;
        let owner = self.slots.get_mut(&slot);
        let Some(owner) = owner.filter(|owner| serving && !owner.closing) else {
            let fault = if serving {
                Fault::new(ErrorKind::WorkerUnavailable, "the slot is closed")
            } else {
                Fault::new(ErrorKind::ShuttingDown, "the host is stopping")
            };
            let result = Err(fault.with_class(FaultClass::Rollout));
            return self.act(Action::RolloutOver { slot, result });
        };
        if std::mem::replace(&mut owner.rollout, Rollout::Pending) == Rollout::Pending {
            return;
        }
        match owner.supervisor.state() {
            State::Ready { .. } => {
                self.drop_spare(slot);
                self.start_spare(now, slot, Purpose::Rollout);
            }
            // The one that starts may have the executable and the files of its predecessor.
            State::Starting { .. } if owner.conduct == Conduct::Strict => {
                self.drop_spare(slot);
                self.start_spare(now, slot, Purpose::Rollout);
            }
            State::Starting { .. } => {}
            State::Cold | State::Waiting { .. } | State::Exhausted { .. } | State::Stopped => {
                owner.supervisor.open(now);
                self.demand(now, slot);
            }
        }
    }

    /// Keeps a standby where one is wanted.
    pub(super) fn keep_spare(&mut self, now: Time, slot: SlotId) {
        let own = self.slots.get(&slot).and_then(|slot| slot.standby);
        let standby = own.unwrap_or(self.limits.standby);
        let wanted = standby > 0 && self.mode == Mode::Serving;
        if wanted && self.serving(slot).is_some() && self.spare(slot) == Spare::None {
            self.start_spare(now, slot, Purpose::Standby);
        }
    }

    fn start_spare(&mut self, now: Time, slot: SlotId, purpose: Purpose) {
        let until = now.plus_ms(self.limits.start_timeout_ms);
        if let Some(generation) = self.spawn(slot) {
            let spare = Spare::Starting {
                generation,
                purpose,
                until,
            };
            self.set_spare(slot, spare);
        }
    }

    /// The worker beside the one that serves a slot.
    pub(super) fn spare(&self, slot: SlotId) -> Spare {
        self.slots.get(&slot).map_or(Spare::None, |slot| slot.spare)
    }

    /// The purpose of the worker beside the one that serves.
    pub(super) fn spare_purpose(&self, slot: SlotId) -> Option<Purpose> {
        match self.spare(slot) {
            Spare::Starting { purpose, .. } => Some(purpose),
            Spare::None | Spare::Waiting { .. } | Spare::Ready { .. } => None,
        }
    }

    /// The purpose of a worker that starts beside one that serves; `None` if no other one serves.
    pub fn purpose(&self, slot: SlotId, generation: Generation) -> Option<Purpose> {
        let beside = self.is_spare(slot, generation) && self.serving(slot).is_some();
        self.spare_purpose(slot).filter(|_| beside)
    }

    /// True if a rollout is under way.
    pub fn is_rolling_out(&self, slot: SlotId) -> bool {
        let owner = self.slots.get(&slot);
        owner.is_some_and(|owner| owner.rollout == Rollout::Pending)
    }

    /// True if a worker is the successor of a rollout.
    pub fn is_rollout(&self, slot: SlotId, generation: Generation) -> bool {
        // Without a spare the rollout began with no worker.
        let is_meant = match self.spare_purpose(slot) {
            Some(Purpose::Rollout) => self.is_spare(slot, generation),
            Some(Purpose::Standby) | None => true,
        };
        self.is_rolling_out(slot) && is_meant
    }

    pub(super) fn set_spare(&mut self, slot: SlotId, spare: Spare) {
        let Some(owner) = self.slots.get_mut(&slot) else {
            return;
        };
        let old = std::mem::replace(&mut owner.spare, spare);
        if let Some(until) = old.until() {
            self.timers.remove(&(until, Timer::Spare(slot)));
        }
        if let Some(until) = spare.until() {
            self.timers.insert((until, Timer::Spare(slot)));
        }
    }

    /// Ends a spare that is not wanted any more.
    pub(super) fn drop_spare(&mut self, slot: SlotId) {
        let generation = self.spare(slot).generation();
        self.set_spare(slot, Spare::None);
        if let Some(generation) = generation {
            self.end_worker(generation, Manner::Dismiss);
        }
    }

    /// True if this worker is a spare. If so, and it is ready, it stands by or takes over.
    pub(super) fn spare_ready(&mut self, now: Time, slot: SlotId, ready: Generation) -> bool {
        match self.spare(slot) {
            Spare::Starting {
                generation,
                purpose,
                ..
            } if generation == ready => {
                if let Some(owner) = self.slots.get_mut(&slot) {
                    owner.spare_failures = 0;
                }
                if let Some(worker) = self.worker_mut(ready) {
                    worker.phase = Phase::Standby;
                }
                self.watch(now, ready);
                self.set_spare(slot, Spare::Ready { generation });
                if purpose == Purpose::Rollout || self.serving(slot).is_none() {
                    self.take_over(now, slot);
                }
                true
            }
            _ => false,
        }
    }

    /// A worker was lost: a ready spare takes over, unless another worker serves. The end of a worker
    /// that a rollout retired must not make the standby replace its successor.
    pub(super) fn replace_lost(&mut self, now: Time, slot: SlotId) {
        if self.serving(slot).is_none() {
            self.take_over(now, slot);
        }
    }

    /// A ready spare becomes the one that serves; the one before finishes what it runs.
    pub(super) fn take_over(&mut self, now: Time, slot: SlotId) {
        let Some(owner) = self.slots.get_mut(&slot) else {
            return;
        };
        let Spare::Ready { generation } = owner.spare else {
            return;
        };
        if self.mode == Mode::Stopping {
            return;
        }
        let before = owner.supervisor.generation();
        owner.supervisor.promote(now, generation);
        self.set_spare(slot, Spare::None);
        self.rearm(slot);
        if let Some(worker) = self.worker_mut(generation) {
            worker.phase = Phase::Serving;
        }
        match before.and_then(|before| Some((before, self.worker_mut(before)?))) {
            Some((before, worker)) if worker.phase == Phase::Serving => {
                worker.phase = Phase::Retiring;
                worker.leave = Manner::Dismiss;
                self.move_endless(now, slot, before);
                self.end_if_idle(before);
            }
            Some((before, worker)) if worker.phase == Phase::Starting => {
                self.end_worker(before, Manner::Dismiss);
            }
            _ => {}
        }
        self.rollout_over(slot, Ok(generation));
        self.dispatch(now, slot);
        self.keep_spare(now, slot);
    }

    /// Calls that never end by themselves go to the successor: waiting for them has no end.
    fn move_endless(&mut self, now: Time, slot: SlotId, from: Generation) {
        let endless = |call: &Call| {
            call.task()
                .is_some_and(|task| task.timeout_ms >= UNTIMED_MS)
        };
        let moved: Vec<_> = self
            .calls
            .iter()
            .filter(|(_, call)| {
                matches!(call.stage, Stage::Running { generation, .. } if generation == from)
                    && endless(call)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in moved.into_iter().rev() {
            if let Some(worker) = self.worker_mut(from) {
                worker.running.remove(&id);
            }
            if let Some(call) = self.calls.get_mut(&id) {
                call.stage = Stage::Queued {
                    send: Dispatch::Call,
                    held: None,
                };
                self.put_back(now, slot, id);
            }
        }
    }

    /// True if a worker stands beside the one that serves.
    pub fn is_spare(&self, slot: SlotId, generation: Generation) -> bool {
        self.spare(slot).generation() == Some(generation)
    }

    /// True if this worker was a spare. If so, it is replaced later, and the incumbent goes on.
    pub(super) fn spare_lost(
        &mut self,
        now: Time,
        slot: SlotId,
        lost: Generation,
        fault: &Fault,
    ) -> bool {
        let owner = self.slots.get_mut(&slot);
        let Some(owner) = owner.filter(|owner| owner.spare.generation() == Some(lost)) else {
            return false;
        };
        let spare = owner.spare;
        let failures = owner.spare_failures.saturating_add(1);
        owner.spare_failures = failures;
        let pause = self
            .limits
            .backoff_min_ms
            .max(1)
            .saturating_mul(1 << failures.min(32))
            .min(self.limits.backoff_max_ms.max(1));
        self.set_spare(
            slot,
            Spare::Waiting {
                until: now.plus_ms(pause),
            },
        );
        let was_rollout = matches!(
            spare,
            Spare::Starting {
                purpose: Purpose::Rollout,
                ..
            }
        );
        let mut fault = fault.clone();
        if was_rollout {
            fault = fault.with_class(FaultClass::Rollout);
            self.rollout_over(slot, Err(fault.clone()));
        }
        self.stats.lost(slot, lost, false, &fault);
        true
    }

    /// Reports how a rollout ended, if one is pending.
    pub(super) fn rollout_over(&mut self, slot: SlotId, result: Result<Generation, Fault>) {
        let Some(owner) = self.slots.get_mut(&slot) else {
            return;
        };
        if std::mem::replace(&mut owner.rollout, Rollout::Stable) == Rollout::Pending {
            let result = result.map_err(|fault| fault.with_class(FaultClass::Rollout));
            self.act(Action::RolloutOver { slot, result });
        }
    }

    pub(super) fn spare_due(&mut self, now: Time, slot: SlotId) {
        match self.spare(slot) {
            Spare::Waiting { until } if now >= until => {
                self.set_spare(slot, Spare::None);
                self.keep_spare(now, slot);
            }
            Spare::Starting {
                generation, until, ..
            } if now >= until => {
                let detail = "the successor was not ready in time; the incumbent goes on";
                let fault = Fault::new(ErrorKind::WorkerUnavailable, detail).of(generation);
                self.spare_lost(now, slot, generation, &fault);
                self.end_worker(generation, Manner::Terminate);
            }
            Spare::None | Spare::Waiting { .. } | Spare::Starting { .. } | Spare::Ready { .. } => {}
        }
    }
}
