//! Process trees: starting them, killing them, and knowing which ones live.
//!
//! On Unix a tree is a process group led by the child. Another platform would put its own
//! [`kill_tree`] here (`taskkill /T`, job objects).

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::sync::lock;
use crate::warning::warn;

/// How strongly a tree is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strength {
    Terminate,
    Kill,
}

/// Signals the whole tree of `pid`. A tree that has already gone is not a failure.
pub(super) fn kill_tree(pid: Pid, strength: Strength) {
    let signal = match strength {
        Strength::Terminate => Signal::TERM,
        Strength::Kill => Signal::KILL,
    };
    match kill_process_group(pid, signal) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => warn(
            "kill_failed",
            &format!("pid={} {error}", pid.as_raw_nonzero()),
        ),
    }
}

/// Every tree that lives.
///
/// A tree is entered before anybody can want it dead, since starting it happens under the lock,
/// and removed before its leader is reaped: until then the number cannot belong to another
/// process, so no signal ever hits a stranger.
#[derive(Debug, Default)]
pub(crate) struct Trees(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    closed: bool,
    living: Vec<Pid>,
}

impl Trees {
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut state = lock(&self.0);
        if state.closed {
            return Err(io::Error::other("the worker is ending"));
        }
        let child = command.spawn()?;
        state.living.push(Pid::from_child(&child));
        Ok(child)
    }

    /// Kills what is left of a tree whose leader has ended, and reaps the leader.
    pub(super) fn reap(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let pid = Pid::from_child(child);
        let mut state = lock(&self.0);
        state.living.retain(|living| *living != pid);
        kill_tree(pid, Strength::Kill);
        child.wait()
    }

    /// Kills every tree and starts no more: the host has gone.
    pub(crate) fn kill_all(&self) {
        let mut state = lock(&self.0);
        state.closed = true;
        state
            .living
            .iter()
            .for_each(|pid| kill_tree(*pid, Strength::Kill));
    }
}
