//! Finding the descendants of a process in `/proc`, and signalling them without ever hitting a
//! stranger.
//!
//! A look at `/proc` is not atomic: processes come and go meanwhile. A caller that wants a tree gone
//! looks again until there is none. A process is signalled through a descriptor that is opened
//! first and checked afterwards: a number that has passed to another process in between has another
//! time of birth.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::shim;

/// Generations of ancestors that are looked at.
const ANCESTORS: usize = 256;

/// A process, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) pid: Pid,
    pub(crate) parent: i32,
    /// It has ended and waits for its parent to take notice.
    pub(crate) zombie: bool,
    /// A signal has stopped it.
    pub(crate) stopped: bool,
    /// Its name is that of a shim.
    shim: bool,
    /// Clock ticks from boot to its birth.
    born: u64,
}

impl Seen {
    /// Sends a signal, unless the number belongs to another process by now. A process that has
    /// gone is what we want.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let Ok(process) = rustix::process::pidfd_open(self.pid, PidfdFlags::empty()) else {
            return Ok(());
        };
        if look(self.pid.as_raw_nonzero().get()).is_none_or(|now| now.born != self.born) {
            return Ok(());
        }
        match rustix::process::pidfd_send_signal(process, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Everything that is alive below `root`, which is not part of it, parents first.
pub(crate) fn below(root: Pid) -> Vec<Seen> {
    let mut children: BTreeMap<i32, Vec<Seen>> = BTreeMap::new();
    for seen in all() {
        children.entry(seen.parent).or_default().push(seen);
    }
    let mut found: Vec<Seen> = Vec::new();
    let mut next = root.as_raw_nonzero().get();
    let mut at = 0;
    // Each number is taken out of the map, so this ends even if reuse of numbers made a circle.
    loop {
        found.append(&mut children.remove(&next).unwrap_or_default());
        match found.get(at) {
            Some(seen) => next = seen.pid.as_raw_nonzero().get(),
            None => return found,
        }
        at += 1;
    }
}

/// The parent of a process.
pub(crate) fn parent(pid: Pid) -> Option<Pid> {
    look(pid.as_raw_nonzero().get()).and_then(|seen| Pid::from_raw(seen.parent))
}

/// True if one of the ancestors of a process is `sought` or a shim of any host. True, too, for a process that
/// has ended: nothing is known about it.
pub(crate) fn is_below(pid: Pid, sought: impl Fn(Pid) -> bool) -> bool {
    let Some(mut at) = look(pid.as_raw_nonzero().get()) else {
        return true;
    };
    for _ in 0..ANCESTORS {
        let parent = match Pid::from_raw(at.parent) {
            _ if at.shim => return true,
            None => return false,
            Some(parent) if sought(parent) => return true,
            Some(parent) => look(parent.as_raw_nonzero().get()),
        };
        match parent {
            // Of another user, on a machine that hides those.
            None => return false,
            Some(parent) => at = parent,
        }
    }
    true
}

/// The direct children of `parent` that are not among `known`.
pub(crate) fn strangers(parent: Pid, known: &BTreeSet<i32>) -> Vec<Seen> {
    let parent = parent.as_raw_nonzero().get();
    let is_strange =
        |seen: &Seen| seen.parent == parent && !known.contains(&seen.pid.as_raw_nonzero().get());
    all().filter(is_strange).collect()
}

fn all() -> impl Iterator<Item = Seen> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(look)
}

fn look(pid: i32) -> Option<Seen> {
    parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads a line of `/proc/PID/stat`. The name in it may hold anything, brackets and spaces too:
/// fields are counted from its last bracket on.
fn parse(pid: i32, stat: &[u8]) -> Option<Seen> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let name_start = stat.iter().position(|byte| *byte == b'(')?;
    let name = stat.get(name_start + 1..name_end)?;
    let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // Fields 5 to 21 lie between the parent and the birth.
    let born = fields.nth(17)?.parse().ok()?;
    Some(Seen {
        pid: Pid::from_raw(pid)?,
        parent,
        zombie: matches!(state, "Z" | "X"),
        stopped: state == "T",
        shim: name == shim::NAME.as_bytes(),
        born,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat =
            b"7 (a) R 1 (b) S 42 7 7 0 -1 4194304 9 0 0 0 1 2 0 0 20 0 1 0 123456 99 1 18446";
        let seen = parse(7, stat).unwrap();
        assert_eq!((seen.parent, seen.zombie, seen.born), (42, false, 123_456));
        assert!(!seen.shim);
        let shim = b"7 (mainstay-shim) S 42 7 7 0 -1 4194304 9 0 0 0 1 2 0 0 20 0 1 0 123456 99";
        assert!(parse(7, shim).unwrap().shim);
        assert_eq!(parse(7, b"7 (cut) Z 1"), None);
        assert_eq!(parse(7, b""), None);
    }

    #[test]
    fn a_grandchild_is_found_and_one_with_another_birth_is_left_alone() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 1000 & wait"])
            .spawn()
            .unwrap();
        let root = rustix::process::getpid();
        let pid = Pid::from_child(&child);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(120);
        let tree = loop {
            let tree = below(pid);
            if tree.len() == 1 {
                break tree;
            }
            assert!(std::time::Instant::now() < until);
            std::thread::yield_now();
        };
        assert!(is_below(tree[0].pid, |parent| parent == root));
        assert!(is_below(tree[0].pid, |parent| parent == pid));
        assert!(!is_below(root, |parent| parent == root));
        assert!(below(root).iter().any(|seen| seen.pid == tree[0].pid));
        let mut stranger = tree[0];
        stranger.born += 1;
        stranger.signal(Signal::KILL).unwrap();
        assert_eq!(below(pid).len(), 1);
        tree[0].signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(below(pid).is_empty());
        tree[0].signal(Signal::KILL).unwrap();
    }
}
