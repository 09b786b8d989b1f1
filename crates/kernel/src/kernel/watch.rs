//! The watchdog: a worker that is silent for long is pinged, and one that does not answer is lost.
//!
//! Whatever a worker says is a sign of life, so under load no ping is ever sent.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::Generation;

use super::Kernel;
use super::timers::Timer;
use crate::action::{Action, Manner};
use crate::slot::{Phase, Worker};
use crate::time::Time;

impl Kernel {
    /// A worker answered a ping, or gave any other sign of life.
    pub fn handle_pong(&mut self, now: Time, generation: Generation) {
        if let Some(worker) = self.worker_mut(generation) {
            worker.heard = now;
            worker.pinged = None;
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
        match worker.pinged {
            Some(_) => self.unresponsive(now, generation),
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

    /// It is there but does not react: it is ended, and its calls are judged like those of a
    /// worker that died. What is sent again waits until it is really gone.
    fn unresponsive(&mut self, now: Time, generation: Generation) {
        let detail = "the worker does not answer pings";
        let fault = Fault::new(ErrorKind::Timeout, detail).of(generation);
        self.act(Action::Stop {
            generation,
            how: Manner::Terminate,
        });
        self.handle_lost(now, generation, &fault, &[]);
    }

    pub(super) fn worker_mut(&mut self, generation: Generation) -> Option<&mut Worker> {
        self.slots
            .iter_mut()
            .find_map(|slot| slot.workers.get_mut(&generation))
    }
}
