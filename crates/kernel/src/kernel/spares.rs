//! Workers beside the one that serves: the warm standby, and the successor of a rollout.
//!
//! A spare is started like any worker, but the supervisor does not know it until it takes over. A
//! standby takes over when the one that serves is lost; the successor of a rollout as soon as it
//! is ready, and the incumbent then finishes what it runs. A spare that fails never harms the
//! incumbent.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::Generation;

use super::timers::Timer;
use super::{Kernel, Mode};
use crate::action::{Action, Manner};
use crate::call::{Call, Send, SlotId, Stage, UNTIMED_MS};
use crate::slot::{Phase, Purpose, Rollout, Spare, Worker};
use crate::supervisor::State;
use crate::time::Time;

impl Kernel {
    /// An operator wants a fresh generation, also out of exhaustion. Ends with one
    /// [`Action::RolloutOver`].
    pub fn handle_rollout(&mut self, now: Time, slot: SlotId) {
        if self.mode != Mode::Serving {
            let fault = Fault::new(ErrorKind::ShuttingDown, "the host is stopping");
            return self.act(Action::RolloutOver {
                slot,
                result: Err(fault),
            });
        }
        if self.slot(slot).rollout == Rollout::Pending {
            return;
        }
        self.slot_mut(slot).rollout = Rollout::Pending;
        match self.slot(slot).supervisor.state() {
            State::Ready { .. } => {
                self.drop_spare(slot);
                self.start_spare(now, slot, Purpose::Rollout);
            }
            // A fresh generation is on its way already.
            State::Starting { .. } => {}
            State::Cold | State::Waiting { .. } | State::Exhausted { .. } | State::Stopped => {
                self.slot_mut(slot).supervisor.open(now);
                self.demand(now, slot);
            }
        }
    }

    /// Keeps a standby where one is wanted.
    pub(super) fn keep_spare(&mut self, now: Time, slot: SlotId) {
        let wanted = self.limits.standby > 0 && self.mode == Mode::Serving;
        let owner = self.slot(slot);
        let serves = owner.supervisor.ready_generation().is_some();
        if wanted && serves && owner.spare == Spare::None {
            self.start_spare(now, slot, Purpose::Standby);
        }
    }

    fn start_spare(&mut self, now: Time, slot: SlotId, purpose: Purpose) {
        self.last_generation = self.last_generation.next();
        let generation = self.last_generation;
        let until = now.plus_ms(self.limits.start_timeout_ms);
        self.slot_mut(slot)
            .workers
            .insert(generation, Worker::new());
        let spare = Spare::Starting {
            generation,
            purpose,
            until,
        };
        self.set_spare(slot, spare);
        self.act(Action::Spawn { slot, generation });
    }

    fn set_spare(&mut self, slot: SlotId, spare: Spare) {
        let old = std::mem::replace(&mut self.slot_mut(slot).spare, spare);
        if let Some(until) = old.until() {
            self.timers.remove(&(until, Timer::Spare(slot)));
        }
        if let Some(until) = spare.until() {
            self.timers.insert((until, Timer::Spare(slot)));
        }
    }

    /// Ends a spare that is not wanted any more.
    pub(super) fn drop_spare(&mut self, slot: SlotId) {
        let generation = self.slot(slot).spare.generation();
        self.set_spare(slot, Spare::None);
        if let Some(generation) = generation {
            self.dismiss(generation);
        }
    }

    pub(super) fn dismiss(&mut self, generation: Generation) {
        self.unwatch(generation);
        if let Some(worker) = self.worker_mut(generation) {
            worker.phase = Phase::Ending;
            self.act(Action::Stop {
                generation,
                how: Manner::Dismiss,
            });
        }
    }

    /// Whether this worker is a spare. If so, and it is ready, it stands by or takes over.
    pub(super) fn spare_ready(&mut self, now: Time, slot: SlotId, ready: Generation) -> bool {
        match self.slot(slot).spare {
            Spare::Starting {
                generation,
                purpose,
                ..
            } if generation == ready => {
                self.slot_mut(slot).spare_failures = 0;
                if let Some(worker) = self.worker_mut(ready) {
                    worker.phase = Phase::Standby;
                }
                self.watch(now, ready);
                self.set_spare(slot, Spare::Ready { generation });
                let alone = self.slot(slot).supervisor.ready_generation().is_none();
                if purpose == Purpose::Rollout || alone {
                    self.take_over(now, slot);
                }
                true
            }
            _ => false,
        }
    }

    /// A ready spare becomes the one that serves; the one before finishes what it runs.
    pub(super) fn take_over(&mut self, now: Time, slot: SlotId) {
        let Spare::Ready { generation } = self.slot(slot).spare else {
            return;
        };
        if self.mode == Mode::Stopping {
            return;
        }
        let before = self.slot(slot).supervisor.generation();
        self.set_spare(slot, Spare::None);
        self.slot_mut(slot).supervisor.promote(now, generation);
        self.rearm(slot);
        if let Some(worker) = self.worker_mut(generation) {
            worker.phase = Phase::Serving;
        }
        match before.and_then(|before| Some((before, self.worker_mut(before)?))) {
            Some((before, worker)) if worker.phase == Phase::Serving => {
                worker.phase = Phase::Retiring;
                worker.leave = Manner::Dismiss;
                self.move_endless(slot, before);
                self.end_if_idle(before);
            }
            Some((before, worker)) if worker.phase == Phase::Starting => self.dismiss(before),
            _ => {}
        }
        self.rollout_over(slot, Ok(generation));
        self.dispatch(now, slot);
        self.keep_spare(now, slot);
    }

    /// What never ends by itself goes to the successor: nobody could wait for it.
    fn move_endless(&mut self, slot: SlotId, from: Generation) {
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
                    send: Send::Call,
                    held: None,
                };
                self.slot_mut(slot).queue.put_back(id);
            }
        }
    }

    /// Whether a worker stands beside the one that serves.
    pub fn is_spare(&self, slot: SlotId, generation: Generation) -> bool {
        self.slot(slot).spare.generation() == Some(generation)
    }

    /// Whether this worker was a spare. If so, it is replaced later, and the incumbent goes on.
    pub(super) fn spare_lost(
        &mut self,
        now: Time,
        slot: SlotId,
        lost: Generation,
        fault: &Fault,
    ) -> bool {
        let spare = self.slot(slot).spare;
        if spare.generation() != Some(lost) {
            return false;
        }
        let failures = self.slot(slot).spare_failures.saturating_add(1);
        self.slot_mut(slot).spare_failures = failures;
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
        if was_rollout {
            self.rollout_over(slot, Err(fault.clone()));
        }
        true
    }

    /// Tells whoever waits for a rollout how it ended.
    pub(super) fn rollout_over(&mut self, slot: SlotId, result: Result<Generation, Fault>) {
        if std::mem::replace(&mut self.slot_mut(slot).rollout, Rollout::Stable) == Rollout::Pending
        {
            self.act(Action::RolloutOver { slot, result });
        }
    }

    pub(super) fn spare_due(&mut self, now: Time, slot: SlotId) {
        match self.slot(slot).spare {
            Spare::Waiting { until } if now >= until => {
                self.set_spare(slot, Spare::None);
                self.keep_spare(now, slot);
            }
            Spare::Starting {
                generation, until, ..
            } if now >= until => {
                let detail = "the successor was not ready in time; the incumbent goes on";
                let fault = Fault::new(ErrorKind::WorkerUnavailable, detail).of(generation);
                self.stats.fault(&fault);
                self.spare_lost(now, slot, generation, &fault);
                if let Some(worker) = self.worker_mut(generation) {
                    worker.phase = Phase::Ending;
                    self.act(Action::Stop {
                        generation,
                        how: Manner::Terminate,
                    });
                }
            }
            Spare::None | Spare::Waiting { .. } | Spare::Starting { .. } | Spare::Ready { .. } => {}
        }
    }
}
