//! Deadlines are paused while the client of a slot is asked something.
//!
//! A tool that asks its user may wait for as long as the user thinks; that time is not the tool's.
//! Between two calls of [`Kernel::handle_asking`] the clock of the slot's calls shows the time of the
//! first ([`Kernel::paused`]), and their deadlines are not among the timers; afterwards each deadline
//! is as far away as it was. After `progress_timeout_ms` the deadlines resume without an answer.

use super::Kernel;
use super::timers::Timer;
use crate::call::SlotId;
use crate::time::Time;

impl Kernel {
    /// The client of a slot is asked something, or has answered everything that it was asked.
    pub fn handle_asking(&mut self, now: Time, slot: SlotId, asking: bool) {
        let Some(owner) = self.slots.get_mut(&slot) else {
            return;
        };
        if asking == owner.asking.is_some() || asking && owner.closing {
            return;
        }
        if !asking {
            return self.resume_deadlines(now, slot);
        }
        owner.asking = Some(now);
        let until = now.plus_ms(self.limits.progress_timeout_ms);
        self.timers.insert((until, Timer::Asking(slot)));
        let calls = self.calls.iter();
        for (id, call) in calls.filter(|(_, call)| call.slot() == Some(slot)) {
            if let Some(deadline) = call.deadline.filter(|deadline| *deadline > now) {
                self.timers.remove(&(deadline, Timer::Deadline(*id)));
            }
        }
    }

    /// When the clock of a slot's calls stopped, if it is stopped.
    pub(super) fn paused(&self, slot: Option<SlotId>) -> Option<Time> {
        self.slots.get(&slot?)?.asking
    }

    pub(super) fn resume_deadlines(&mut self, now: Time, slot: SlotId) {
        let owner = self.slots.get_mut(&slot);
        let Some(since) = owner.and_then(|owner| owner.asking.take()) else {
            return;
        };
        let until = since.plus_ms(self.limits.progress_timeout_ms);
        self.timers.remove(&(until, Timer::Asking(slot)));
        let paused = now.micros_since(since);
        for (id, call) in &mut self.calls {
            let deadline = call.deadline.filter(|deadline| *deadline > since);
            if let Some(deadline) = deadline.filter(|_| call.slot() == Some(slot)) {
                let moved = deadline.plus_micros(paused);
                call.deadline = Some(moved);
                call.last_deadline = call.last_deadline.map(|last| last.plus_micros(paused));
                self.timers.insert((moved, Timer::Deadline(*id)));
            }
        }
    }
}
