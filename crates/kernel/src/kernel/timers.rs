//! Timers: deadlines, back-off, pings and graces that end.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation};
use serde::{Deserialize, Serialize};

use super::losses::Charge;
use super::{Conduct, Kernel, Mode};
use crate::action::{Action, Delivery};
use crate::call::{Late, SlotId};
use crate::slot::Run;
use crate::time::Time;

/// The purpose of a timer. Of timers that are due together, a deadline comes first: a timeout beats
/// a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Timer {
    Deadline(CallId),
    Progress(CallId),
    /// An abandoned call is still in its worker's hands.
    Grace(Generation, CallId),
    Slot(SlotId),
    Spare(SlotId),
    /// A worker has been silent for long, or owes an answer to a ping.
    Watch(Generation),
    /// The client of a slot owes an answer.
    Asking(SlotId),
    /// A call has run alone for long enough.
    Alone(SlotId),
    Drain,
}

impl Kernel {
    /// When to call [`Kernel::handle_timeout`] at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Time passed: does everything that is due.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((at, timer)) = self.timers.first().copied() {
            if at > now {
                return;
            }
            self.timers.remove(&(at, timer));
            self.fire(now, timer);
        }
    }

    fn fire(&mut self, now: Time, timer: Timer) {
        match timer {
            Timer::Deadline(call) if self.is_overdue(call) => self.act(Action::Overdue { call }),
            Timer::Deadline(call) => {
                self.give_up(now, call, ErrorKind::Timeout, Delivery::Send);
            }
            Timer::Progress(id) => {
                let step = self
                    .calls
                    .get_mut(&id)
                    .and_then(|call| call.throttle.handle_timeout(now));
                if let Some(step) = step {
                    self.notify(id, step);
                }
            }
            Timer::Grace(generation, call) => self.grace_over(now, generation, call),
            Timer::Slot(slot) => {
                if let Some(owner) = self.slots.get_mut(&slot) {
                    owner.timer = None;
                    let directive = owner.supervisor.handle_timeout(now);
                    self.follow(now, slot, directive);
                }
            }
            Timer::Spare(slot) => self.spare_due(now, slot),
            Timer::Watch(generation) => self.watch_due(now, generation),
            Timer::Asking(slot) => self.resume_deadlines(now, slot),
            Timer::Alone(slot) => self.dispatch(now, slot),
            Timer::Drain => {
                if matches!(self.mode, Mode::Draining { .. }) {
                    self.end_drain(now);
                }
            }
        }
    }

    /// The worker did not let go of a call in time: it is replaced, or, where that would cost its
    /// users their state, asked whether it still lives.
    fn grace_over(&mut self, now: Time, generation: Generation, call: CallId) {
        let Some(slot) = self.slot_of(generation) else {
            return;
        };
        let Some(owner) = self.slots.get_mut(&slot) else {
            return;
        };
        let conduct = owner.conduct;
        let Some(worker) = owner.workers.get_mut(&generation) else {
            return;
        };
        let Some(Run::Abandoned { late, .. }) = worker.running.get(&call).copied() else {
            return;
        };
        let must_go = matches!(late, Late::End | Late::Open);
        if conduct == Conduct::Lenient && !must_go && worker.is_heard() {
            // Its place is free again; a late answer is dropped.
            worker.running.remove(&call);
            self.end_if_idle(generation);
            if late == Late::Ask {
                self.question(now, generation);
            }
            self.dispatch(now, slot);
        } else {
            let (kind, detail) = match late {
                Late::Open => (ErrorKind::WorkerNotReady, "it did not open the session"),
                Late::Ask | Late::End | Late::Leave => {
                    (ErrorKind::Timeout, "a call did not stop within its grace")
                }
            };
            let fault = Fault::new(kind, detail).of(generation);
            self.retire(now, generation, &fault, Charge::Call);
        }
    }

    /// Puts the supervisor's wish among the timers.
    pub(super) fn rearm(&mut self, slot: SlotId) {
        let Some(owner) = self.slots.get_mut(&slot) else {
            return;
        };
        let wanted = owner.supervisor.poll_timeout();
        let old = std::mem::replace(&mut owner.timer, wanted);
        if old == wanted {
            return;
        }
        if let Some(old) = old {
            self.timers.remove(&(old, Timer::Slot(slot)));
        }
        if let Some(wanted) = wanted {
            self.timers.insert((wanted, Timer::Slot(slot)));
        }
    }
}
