//! Cleanup of a tree whose shim was killed.
//!
//! The host is a subreaper itself. A process that loses its shim becomes the host's child, however
//! often it has forked and whatever session it leads; and a child of the host that is neither a shim
//! nor a piped child can be nothing else. So the host can find, kill and reap such orphans without knowing more about
//! them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};
use tokio::time::Instant;

use super::LOOK;
use super::descendants::{below, is_below, strangers};

/// Time for orphans to end after they were killed.
const PATIENCE: Duration = Duration::from_secs(3);

/// The shims and piped children that have not been reaped. Children belong to a process, not to a host in it, so
/// there is one set per process. A host that continues another one in place adds the shims of that one: a
/// shim that is not in it would be taken for an orphan.
static SHIMS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// From now on orphans of our shims become our children.
pub(crate) fn adopt() {
    // Every Linux since 3.4 can; without it an orphan would go to the init process.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// A shim or piped child was started.
pub(super) fn know(shim: Pid) {
    shims(|set| {
        set.insert(shim.as_raw_nonzero().get());
    });
}

/// A shim or piped child was reaped.
pub(super) fn forget(shim: Pid) {
    shims(|set| {
        set.remove(&shim.as_raw_nonzero().get());
    });
}

/// True if a process descends from this host, or from a shim of another one.
pub(crate) fn is_below_a_host(pid: Pid) -> bool {
    let own = rustix::process::getpid();
    let known = children();
    is_below(pid, |parent| {
        parent == own || known.contains(&parent.as_raw_nonzero().get())
    })
}

/// The shims and piped children that have not been reaped.
pub(crate) fn children() -> BTreeSet<i32> {
    shims(|set| set.clone())
}

/// Kills and reaps those of `children` that this program does not know: the program before started them.
pub(crate) fn end_others(children: &BTreeSet<i32>) {
    let known = self::children();
    for other in children.difference(&known).copied() {
        if let Some(other) = Pid::from_raw(other) {
            // A child that is not reaped keeps its number, and one that was killed ends within milliseconds.
            let _ = rustix::process::kill_process(other, Signal::KILL);
            let _ = rustix::process::waitpid(Some(other), WaitOptions::empty());
        }
    }
}

/// Kills and reaps the orphans there are, within some seconds.
pub(crate) async fn end_orphans() {
    let (mut pause, longest) = LOOK;
    let until = Instant::now() + PATIENCE;
    while sweep() > 0 && Instant::now() < until {
        tokio::time::sleep(pause).await;
        pause = longest.min(pause * 2);
    }
}

/// Kills and reaps the orphans there are; says how many are still there afterwards.
pub(super) fn sweep() -> usize {
    let known = children();
    let mut left = 0;
    for orphan in strangers(rustix::process::getpid(), &known) {
        // Processes that cannot be killed stay in the count, and the caller that waits for them reports them.
        let tree = below(orphan.pid);
        for process in tree.iter().chain([&orphan]).filter(|seen| !seen.zombie) {
            let _ = process.signal(Signal::KILL);
        }
        // Its children come to us when it goes, and are counted at the next look.
        left += tree.len();
        match rustix::process::waitpid(Some(orphan.pid), WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(_) => {}
            Ok(None) => left += 1,
        }
    }
    left
}

fn shims<T>(change: impl FnOnce(&mut BTreeSet<i32>) -> T) -> T {
    change(&mut SHIMS.lock().unwrap_or_else(PoisonError::into_inner))
}
