//! Slots that are added and closed while the host runs.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation, SessionId};
use mainstay_contract::limits::Limits;

use super::timers::Timer;
use super::{Conduct, Kernel};
use crate::action::{Action, Manner};
use crate::call::SlotId;
use crate::session::Session;
use crate::slot::{Phase, Run, Slot, Spare, Worker};
use crate::time::Time;

impl Kernel {
    /// Adds a cold slot. `client` is the only session that uses it, or `None` if all sessions do.
    pub fn add_slot(&mut self, name: &str, conduct: Conduct, client: Option<SessionId>) -> SlotId {
        let id = SlotId(self.next_slot);
        self.next_slot += 1;
        let seed = self.seed.wrapping_add(id.0 as u64);
        let slot = Slot::new(name.to_owned(), conduct, client, &self.limits, seed);
        self.slots.insert(id, slot);
        id
    }

    /// Gives a slot limits of its own for restarts, its queue, its pool and its standby.
    pub fn limit_slot(&mut self, slot: SlotId, limits: &Limits) {
        if let Some(slot) = self.slots.get_mut(&slot) {
            slot.set_limits(limits);
        }
    }

    /// Records that the server of a slot runs on another machine, where the host ends no process.
    pub fn mark_remote(&mut self, slot: SlotId) {
        if let Some(slot) = self.slots.get_mut(&slot) {
            slot.is_remote = true;
        }
    }

    /// Lets several sessions use a slot, each of them fairly.
    pub fn share_slot(&mut self, slot: SlotId) {
        if let Some(slot) = self.slots.get_mut(&slot) {
            slot.is_shared = true;
        }
    }

    /// Closes a slot: ends its workers and every call that waits for one of them. A call whose
    /// answer is being checked goes on. Ends with one [`Action::SlotOver`].
    pub fn close_slot(&mut self, now: Time, slot: SlotId) {
        let Some(owner) = self.slots.get_mut(&slot).filter(|owner| !owner.closing) else {
            return;
        };
        owner.closing = true;
        self.handle_asking(now, slot, false);
        let fault = Fault::new(ErrorKind::WorkerUnavailable, "the slot is closed");
        let lost = self.shut(slot, fault);
        self.fail_queue_if_closed(now, slot);
        for call in lost {
            self.fail_call(now, slot, call);
        }
        self.remove_if_over(now, slot);
    }

    /// Starts no further worker in a slot and ends all that it has. Gives the calls that they ran.
    pub(super) fn shut(&mut self, slot: SlotId, fault: Fault) -> Vec<CallId> {
        let Some(owner) = self.slots.get_mut(&slot) else {
            return Vec::new();
        };
        owner.supervisor.stop();
        let workers = owner.workers.iter();
        let ending: Vec<_> = workers
            .filter(|(_, worker)| !matches!(worker.phase, Phase::Ending | Phase::Lost))
            .map(|(generation, _)| *generation)
            .collect();
        self.rearm(slot);
        self.set_spare(slot, Spare::None);
        self.rollout_over(slot, Err(fault));
        let ended = ending.into_iter();
        ended
            .flat_map(|generation| self.end_worker(generation, Manner::Dismiss))
            .collect()
    }

    /// Ends a worker; one that still runs something is terminated. Gives the live calls among that.
    pub(super) fn end_worker(&mut self, generation: Generation, idle: Manner) -> Vec<CallId> {
        let Some(worker) = self.worker_mut(generation) else {
            return Vec::new();
        };
        worker.phase = Phase::Ending;
        let running = std::mem::take(&mut worker.running);
        let how = if running.is_empty() {
            idle
        } else {
            Manner::Terminate
        };
        let mut live = Vec::new();
        for (call, run) in running {
            match run {
                Run::Live => live.push(call),
                Run::Abandoned { until, .. } => {
                    self.timers.remove(&(until, Timer::Grace(generation, call)));
                }
            }
        }
        self.unwatch(generation);
        self.act(Action::Stop { generation, how });
        live
    }

    /// Spawns a worker of the next generation in a slot.
    pub(super) fn spawn(&mut self, slot: SlotId) -> Option<Generation> {
        let owner = self.slots.get_mut(&slot)?;
        let generation = self.last_generation.next();
        self.last_generation = generation;
        owner.workers.insert(generation, Worker::new());
        self.homes.insert(generation, slot);
        self.act(Action::Spawn { slot, generation });
        Some(generation)
    }

    /// Removes a closed slot whose workers are all reaped.
    pub(super) fn remove_if_over(&mut self, now: Time, slot: SlotId) {
        let owner = self.slots.get(&slot);
        let Some(owner) = owner.filter(|owner| owner.closing && owner.workers.is_empty()) else {
            return;
        };
        self.past_restarts += owner.supervisor.restart_count();
        let failures = owner.supervisor.consecutive_failures(now);
        if failures > 0 {
            self.past_failures = self.past_failures(now).saturating_add(failures);
            self.last_failing = now;
        }
        self.slots.remove(&slot);
        self.act(Action::SlotOver { slot });
    }

    /// Failures of removed slots. Like those of a slot they are forgotten after a whole period.
    pub(super) fn past_failures(&self, now: Time) -> u32 {
        match now.ms_since(self.last_failing) >= self.limits.restart_period_ms {
            true => 0,
            false => self.past_failures,
        }
    }

    /// True if the one client of this slot does not take its answers.
    pub(super) fn is_client_behind(&self, slot: SlotId) -> bool {
        let client = self.slots.get(&slot).and_then(|slot| slot.client);
        client
            .and_then(|client| self.sessions.get(&client))
            .is_some_and(Session::is_behind)
    }

    /// The slots, oldest first.
    pub fn slot_ids(&self) -> impl Iterator<Item = SlotId> {
        self.slots.keys().copied()
    }

    /// The name under which a slot was added.
    pub fn slot_name(&self, slot: SlotId) -> Option<&str> {
        self.slots.get(&slot).map(|slot| slot.name.as_str())
    }

    /// Calls of a slot that have not ended, in any stage.
    pub fn slot_in_flight(&self, slot: SlotId) -> usize {
        let calls = self.calls.values();
        calls.filter(|call| call.slot() == Some(slot)).count()
    }

    /// Workers of a slot that are not reaped, oldest first.
    pub fn workers_of(&self, slot: SlotId) -> impl Iterator<Item = Generation> {
        let slot = self.slots.get(&slot).into_iter();
        slot.flat_map(|slot| slot.workers.keys().copied())
    }

    /// Workers of all slots that are not reaped.
    pub fn running_workers(&self) -> usize {
        self.homes.len()
    }
}
