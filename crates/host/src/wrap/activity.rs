//! Whether a server's processes run at all.
//!
//! A server that is stopped, or waits for something that does not come, does not even wake up to
//! read a ping; one that is busy uses the processor.

use mainstay_kernel::action::Sight;
use rustix::process::Pid;

use crate::process::descendants;

/// A look at a server and everything it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Activity {
    /// Nanoseconds for which any thread has run.
    ran: u64,
    /// Whether a signal has stopped one of them.
    stopped: bool,
}

/// The looks that are remembered of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    at_ping: Option<Activity>,
    last: Option<Activity>,
}

impl Looks {
    /// It is pinged, and looked at where that could matter.
    pub(super) fn pinged(&mut self, seen: Option<Activity>) {
        self.at_ping = seen;
        self.last = seen;
    }

    /// It is looked at again.
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

/// Looks at a server's tree, found below its shim. Nothing where that cannot be told.
pub(super) fn of_tree(server: u32) -> Option<Activity> {
    let server = i32::try_from(server).ok().and_then(Pid::from_raw)?;
    let shim = descendants::parent(server)?;
    let mut seen = Activity {
        ran: 0,
        stopped: false,
    };
    let tree = descendants::below(shim);
    for process in tree.iter().filter(|process| !process.zombie) {
        seen.stopped |= process.stopped;
        seen.ran = seen.ran.checked_add(ran(process.pid)?)?;
    }
    (!tree.is_empty()).then_some(seen)
}

/// Nanoseconds for which the threads of a process have run.
fn ran(pid: Pid) -> Option<u64> {
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let mut ran = None;
    for task in std::fs::read_dir(tasks).ok()?.flatten() {
        // A thread that has just gone has run meanwhile.
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let first: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
        ran = Some(ran.unwrap_or(0) + first);
    }
    ran
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
        assert_eq!(looks.look(seen(6, false)), Sight::Runs, "nobody knows");
        assert_eq!(looks.look(None), Sight::Runs);
    }

    #[test]
    fn a_busy_process_is_seen_to_run() {
        let own = Pid::from_raw(i32::try_from(std::process::id()).unwrap()).unwrap();
        let before = ran(own).unwrap();
        let mut spin: u64 = 1;
        while ran(own).unwrap() == before {
            spin = std::hint::black_box(spin.wrapping_mul(3));
        }
    }
}
