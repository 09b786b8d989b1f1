//! The watchdog: a worker that is silent for long is pinged, and one that does not answer is lost.
//!
//! Whatever a worker says is a sign of life, so under load no ping is ever sent. A wrapped
//! server may be too busy to answer one, and is not pinged while it works; the driver looks instead
//! whether it runs at all.

use mainstay_contract::fault::Fault;
use mainstay_contract::id::Generation;

use super::losses::Charge;
use super::timers::Timer;
use super::{Conduct, Kernel};
use crate::action::{Action, Sight};
use crate::defect::{Defect, is_planted};
use crate::slot::{Phase, Worker};
use crate::time::Time;

/// How many times rarer a worker is pinged that never answered.
const RARELY: u64 = 12;
/// How many times longer than an idle one a busy worker may owe an answer.
const BUSY: u64 = 2;

impl Kernel {
    /// A worker answered a ping, or gave any other sign of life.
    pub fn handle_pong(&mut self, now: Time, generation: Generation) {
        if is_planted(Defect::PongIgnored) {
            return;
        }
        if let Some(worker) = self.worker_mut(generation) {
            worker.heard = now;
            worker.answers_pings |= worker.pinged.take().is_some();
            worker.questioned = false;
        }
    }

    /// A worker became ready: from now on it is watched.
    pub(super) fn watch(&mut self, now: Time, generation: Generation) {
        if let Some(worker) = self.worker_mut(generation) {
            worker.heard = now;
        }
        let interval = self.limits.ping_interval_ms;
        if interval > 0 {
            self.watch_at(generation, Some(now.plus_ms(interval)));
        }
    }

    pub(super) fn unwatch(&mut self, generation: Generation) {
        self.watch_at(generation, None);
    }

    fn watch_at(&mut self, generation: Generation, at: Option<Time>) {
        let Some(worker) = self.worker_mut(generation) else {
            return;
        };
        let old = std::mem::replace(&mut worker.watch, at);
        if let Some(old) = old {
            self.timers.remove(&(old, Timer::Watch(generation)));
        }
        if let Some(at) = at {
            self.timers.insert((at, Timer::Watch(generation)));
        }
    }

    pub(super) fn watch_due(&mut self, now: Time, generation: Generation) {
        let (interval, patience) = (self.limits.ping_interval_ms, self.limits.ping_timeout_ms);
        let slot = self.slot_of(generation);
        let Some(owner) = slot.and_then(|slot| self.slots.get(&slot)) else {
            return;
        };
        let conduct = owner.conduct;
        let behind = slot.is_some_and(|slot| self.is_client_behind(slot));
        let Some(worker) = self.worker_mut(generation) else {
            return;
        };
        worker.watch = None;
        if !matches!(
            worker.phase,
            Phase::Serving | Phase::Standby | Phase::Retiring
        ) {
            return;
        }
        if interval == 0 && worker.pinged.is_none() {
            return;
        }
        let lenient = conduct == Conduct::Lenient;
        let busy = worker.has_live_calls();
        match worker.pinged {
            // It kept a call past its grace, had time enough for whatever else it may be busy with,
            // and is as silent as before: further calls must not keep it in its place.
            // What it was given may still end by itself.
            Some(since)
                if lenient && !behind && busy && worker.is_doubted(now, since, patience) =>
            {
                let fault = silent(generation);
                self.retire(now, generation, &fault, Charge::Slot);
            }
            // Its messages are not read while its client takes nothing; and one that works for
            // a caller may be too busy to answer. Its calls have deadlines.
            Some(_) if lenient && (behind || busy) => {
                self.watch_at(generation, Some(now.plus_ms(patience)));
                if !behind {
                    self.act(Action::Look { generation });
                }
            }
            // One that never answered a ping may not know what that is.
            Some(_) if lenient && !worker.answers_pings && !worker.questioned => {
                worker.pinged = None;
                let later = interval.saturating_mul(RARELY);
                self.watch_at(generation, Some(now.plus_ms(later)));
            }
            None if lenient && behind => {
                self.watch_at(generation, Some(now.plus_ms(interval.max(1))));
            }
            Some(_) => {
                // It gets no more calls until the driver says what was not sent.
                if worker.phase == Phase::Serving {
                    worker.phase = Phase::Retiring;
                }
                let fault = silent(generation);
                self.act(Action::Abandon { generation, fault });
            }
            // One that works may be too busy to answer; its calls have deadlines.
            None if lenient && !worker.running.is_empty() => {
                let is_silent = now.ms_since(worker.heard) >= interval;
                self.watch_at(generation, Some(now.plus_ms(interval.max(1))));
                if is_silent {
                    self.act(Action::Look { generation });
                }
            }
            None if now.ms_since(worker.heard) >= interval => {
                worker.pinged = Some(now);
                self.watch_at(generation, Some(now.plus_ms(patience)));
                self.act(Action::Ping { generation });
            }
            None => {
                let next = worker.heard.plus_ms(interval);
                self.watch_at(generation, Some(next));
            }
        }
    }

    /// True if what is seen of a worker means that nothing can come from it any more: it is stopped,
    /// or it owes an answer to a ping and stands still. One that works, though silently, is not.
    pub fn is_hopeless(&self, generation: Generation, sight: Sight) -> bool {
        let worker = self.worker(generation);
        let Some(worker) = worker.filter(|worker| worker.is_heard()) else {
            return false;
        };
        let slot = self.slot_of(generation);
        let behind = slot.is_some_and(|slot| self.is_client_behind(slot));
        let owes = worker.pinged.is_some() && (worker.answers_pings || worker.questioned);
        match sight {
            Sight::Runs => false,
            Sight::Still => owes && !behind,
            Sight::Stopped => !behind,
        }
    }

    /// A worker kept a call past its grace: whether it lives is asked now, and an answer is owed.
    pub(super) fn question(&mut self, now: Time, generation: Generation) {
        let patience = self.limits.ping_timeout_ms;
        let Some(worker) = self.worker_mut(generation) else {
            return;
        };
        if !worker.is_heard() {
            return;
        }
        worker.questioned = true;
        if worker.pinged.is_none() {
            worker.pinged = Some(now);
            self.watch_at(generation, Some(now.plus_ms(patience)));
            self.act(Action::Ping { generation });
        }
    }
}

impl Worker {
    /// True if it serves, kept a call past its grace and, asked since then, says nothing.
    fn is_doubted(&self, now: Time, since: Time, patience: u64) -> bool {
        self.phase == Phase::Serving
            && self.questioned
            && now.ms_since(since) >= patience.saturating_mul(BUSY)
    }
}

fn silent(generation: Generation) -> Fault {
    Fault::unresponsive("the worker does not answer pings").of(generation)
}
