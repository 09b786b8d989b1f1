//! Deadlines stand still while the client itself is asked something.
//!
//! A tool that asks its user may wait for as long as the user thinks; that is not the tool's time.
//! While [`Kernel::handle_asking`] says so, no deadline is among the timers; afterwards each is as
//! far away as it was. A question that is never answered cannot hold them for ever: after
//! `progress_timeout_ms` they go on.

use super::Kernel;
use super::timers::Timer;
use crate::time::Time;

impl Kernel {
    /// The client is asked something, or has answered all it was asked.
    pub fn handle_asking(&mut self, now: Time, asking: bool) {
        match (asking, self.asking) {
            (true, None) => {
                self.asking = Some(now);
                let until = self.asked_until(now);
                self.timers.insert((until, Timer::Asking));
                let due = self.calls.iter();
                for (id, call) in due.filter(|(_, call)| !call.is_late(now)) {
                    if let Some(deadline) = call.deadline {
                        self.timers.remove(&(deadline, Timer::Deadline(*id)));
                    }
                }
            }
            (false, Some(since)) => self.go_on(now, since),
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Whether no deadline comes nearer.
    pub(super) const fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// The question was not answered for too long.
    pub(super) fn asked_too_long(&mut self, now: Time) {
        if let Some(since) = self.asking {
            self.go_on(now, since);
        }
    }

    fn asked_until(&self, since: Time) -> Time {
        since.plus_ms(self.limits.progress_timeout_ms)
    }

    fn go_on(&mut self, now: Time, since: Time) {
        self.asking = None;
        self.timers
            .remove(&(self.asked_until(since), Timer::Asking));
        for (id, call) in &mut self.calls {
            let Some(deadline) = call.deadline.filter(|deadline| *deadline > since) else {
                continue;
            };
            // What came while the client was asked has lost less.
            let stood = now.micros_since(since.max(call.accepted));
            let moved = deadline.plus_micros(stood);
            call.deadline = Some(moved);
            call.last_deadline = call.last_deadline.map(|last| last.plus_micros(stood));
            self.timers.insert((moved, Timer::Deadline(*id)));
        }
    }
}
