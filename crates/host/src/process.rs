//! The one place where the host spawns, signals and reaps processes.
//!
//! A worker leads a process group of its own. It is ended by TERM, a grace, KILL, always to the
//! whole group, and is reaped by its own descriptor: no host-wide wait, no signal handler.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::config::Command;
use crate::io::watch;

/// How often a process that cannot be killed is reported.
const STUCK: Duration = Duration::from_secs(5);

/// A running worker process.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    exit: AsyncFd<OwnedFd>,
}

/// Our ends of a new process's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Process {
    /// Starts a process that leads its own group.
    pub(crate) fn spawn(command: &Command) -> io::Result<(Self, Pipes)> {
        let mut builder = std::process::Command::new(&command.program);
        if let Some(called) = &command.called {
            builder.arg0(called);
        }
        for name in &command.without_env {
            builder.env_remove(name);
        }
        let mut child = builder
            .args(&command.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let pipes = child
            .stdin
            .take()
            .zip(child.stdout.take())
            .zip(child.stderr.take());
        let Some(((stdin, stdout), stderr)) = pipes else {
            return Err(io::Error::other("a pipe of the new process is missing"));
        };
        let pid = Pid::from_child(&child);
        let watched = || -> io::Result<AsyncFd<OwnedFd>> {
            let fd = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)?;
            watch(fd, Interest::READABLE)
        };
        let exit = match watched() {
            Ok(exit) => exit,
            Err(error) => {
                // It cannot be watched, so it must not be left.
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
                let _ = child.wait();
                return Err(error);
            }
        };
        let pipes = Pipes {
            stdin: stdin.into(),
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        Ok((Self { child, pid, exit }, pipes))
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process has ended; it is not reaped by this.
    pub(crate) async fn ended(&self) {
        loop {
            match self.exit.readable().await {
                Ok(_) => return,
                // The descriptor cannot fail while we hold it; do not spin if it does.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Kills what is left of the group and takes the exit status.
    pub(crate) fn reap(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.child.wait()
    }

    /// Signals the whole group. A group that is gone is what we want.
    pub(crate) fn signal(&self, signal: Signal) {
        if rustix::process::kill_process_group(self.pid, signal).is_err() {
            // The leader may not have made its group yet: reach it alone.
            let _ = rustix::process::pidfd_send_signal(self.exit.get_ref().as_fd(), signal);
        }
    }
}

/// An exit status in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The way down: what is sent to a process that must end, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ladder {
    grace: Duration,
    rung: Rung,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rung {
    Leave,
    Terminate,
    Kill,
}

/// What to do when a rung's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Climb {
    Signal(Signal),
    /// It was killed and is still there.
    Stuck,
}

impl Ladder {
    /// First let the process leave by itself.
    pub(crate) fn dismiss(now: Instant, grace: Duration) -> Self {
        Self {
            grace,
            rung: Rung::Leave,
            until: now + grace,
        }
    }

    /// First send TERM, at once.
    pub(crate) fn terminate(now: Instant, grace: Duration) -> Self {
        Self {
            grace,
            rung: Rung::Leave,
            until: now,
        }
    }

    /// When to call [`Ladder::climb`].
    pub(crate) const fn until(&self) -> Instant {
        self.until
    }

    /// The time of this rung is over.
    pub(crate) fn climb(&mut self, now: Instant) -> Climb {
        let (rung, wait, climb) = match self.rung {
            Rung::Leave => (Rung::Terminate, self.grace, Climb::Signal(Signal::TERM)),
            Rung::Terminate => (Rung::Kill, STUCK, Climb::Signal(Signal::KILL)),
            Rung::Kill => (Rung::Kill, STUCK, Climb::Stuck),
        };
        self.rung = rung;
        self.until = now + wait;
        climb
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_asked_before_it_is_killed() {
        let now = Instant::now();
        let grace = Duration::from_millis(20);
        let mut ladder = Ladder::terminate(now, grace);
        assert_eq!(ladder.until(), now);
        assert_eq!(ladder.climb(now), Climb::Signal(Signal::TERM));
        assert_eq!(ladder.until(), now + grace);
        assert_eq!(ladder.climb(now + grace), Climb::Signal(Signal::KILL));
        assert_eq!(ladder.climb(now + grace + STUCK), Climb::Stuck);
    }

    #[test]
    fn a_dismissed_process_has_a_grace_to_leave() {
        let now = Instant::now();
        let grace = Duration::from_millis(20);
        let mut ladder = Ladder::dismiss(now, grace);
        assert_eq!(ladder.until(), now + grace);
        assert_eq!(ladder.climb(now + grace), Climb::Signal(Signal::TERM));
    }
}
