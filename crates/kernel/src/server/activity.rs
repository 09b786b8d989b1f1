//! Does a silent server run at all?
//!
//! A server that is stopped, or waits for an event that never comes, does not wake up to read a ping; a
//! busy one uses the processor. The shell reads the processor time of the server's tree;
//! [`Looks`] compares what it saw.

use serde::{Deserialize, Serialize};

use crate::action::Sight;

/// The processor use of a server and everything it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Nanoseconds for which any thread has run.
    pub ran: u64,
    /// A signal has stopped one of the processes.
    pub stopped: bool,
}

/// The observations of one server that are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Looks {
    at_ping: Option<Activity>,
    last: Option<Activity>,
}

impl Looks {
    /// Records an observation made when the server was pinged.
    pub(super) fn pinged(&mut self, seen: Option<Activity>) {
        self.at_ping = seen;
        self.last = seen;
    }

    /// Records another observation and judges it.
    pub(super) fn look(&mut self, seen: Option<Activity>) -> Sight {
        let before = std::mem::replace(&mut self.last, seen);
        let ran_since = |before: Option<Activity>| {
            let both = before.zip(seen);
            both.is_none_or(|(before, seen)| before.ran != seen.ran)
        };
        let is_stopped = |look: Option<Activity>| look.is_some_and(|look| look.stopped);
        if is_stopped(before) && is_stopped(seen) && !ran_since(before) {
            Sight::Stopped
        } else if !ran_since(self.at_ping) {
            Sight::Still
        } else {
            Sight::Runs
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ran: u64, stopped: bool) -> Option<Activity> {
        Some(Activity { ran, stopped })
    }

    #[test]
    fn a_server_is_stopped_only_if_it_was_at_two_looks_and_did_not_run_in_between() {
        let mut looks = Looks::default();
        assert_eq!(looks.look(seen(5, true)), Sight::Runs, "the first look");
        assert_eq!(looks.look(seen(5, true)), Sight::Stopped);
        assert_eq!(looks.look(seen(6, true)), Sight::Runs);
        assert_eq!(looks.look(seen(6, false)), Sight::Runs);
    }

    #[test]
    fn a_server_stands_still_only_if_it_did_not_run_since_it_was_pinged() {
        let mut looks = Looks::default();
        looks.look(seen(5, false));
        assert_eq!(looks.look(seen(5, false)), Sight::Runs, "not pinged");
        looks.pinged(seen(5, false));
        assert_eq!(looks.look(seen(5, false)), Sight::Still);
        assert_eq!(looks.look(seen(6, false)), Sight::Runs);
        assert_eq!(looks.look(seen(6, false)), Sight::Runs, "it read the ping");
        looks.pinged(None);
        assert_eq!(looks.look(seen(6, false)), Sight::Runs, "not observed");
        assert_eq!(looks.look(None), Sight::Runs);
    }
}
