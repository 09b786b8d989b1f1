//! The one place where the host spawns, kills and reaps processes.
//!
//! Theory of operation. The host never starts a worker itself: it starts a shim (`crate::shim`),
//! which starts the worker, holds its tree together and reaps it. The host holds the other end of
//! the shim's [`lifeline`]. A [`Process`] is the shim, the worker and whatever the worker started:
//!
//! ```text
//! spawn --Up--> running --Ended--> the worker ended, the rest is being killed --Gone--> dead
//!   |                |
//!   |                '--the shim was killed--> Orphaned: we kill and reap the tree --Gone--> dead
//!   '--NotStarted--> nothing runs --Gone--> dead
//! ```
//!
//! What is guaranteed, on Linux. [`Happened::Gone`] is told only when nothing of the tree is left:
//! the shim says so after its last child was reaped, or, if the shim itself was killed, the host
//! found no orphan any more. When the host is killed, the shim kills the tree. Only host *and* shim
//! killed at the same instant leave something, and only on the rung `subreaper`.
//!
//! * [`ladder`]: TERM, grace, KILL, report;
//! * [`lifeline`]: what host and shim say to each other;
//! * [`descendants`]: looking through `/proc`;
//! * [`orphans`]: what a killed shim leaves;
//! * [`piped_child`]: children of the host without a shim;
//! * [`programs`]: executables that are held open;
//! * [`secret_command`]: commands that print a secret;
//! * `taskkill`: the semantics of Windows.
//!
//! There is no host-wide wait, no signal handler and no parent-death signal: that one is bound to a
//! thread, and would fire across an upgrade in place.

pub(crate) mod descendants;
mod ladder;
pub(crate) mod lifeline;
mod orphans;
mod piped_child;
pub(crate) mod programs;
mod secret_command;
#[cfg(any(windows, test))]
mod taskkill;
pub(crate) mod usage;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) use self::ladder::{Climb, Ladder, SavedLadder};
pub(crate) use self::lifeline::{End, Order, Report, Rung};
pub(crate) use self::orphans::{adopt, children, end_orphans, end_others, is_below_a_host};
pub(crate) use self::piped_child::{ChildPipes, PipedChild};
pub use self::secret_command::read_secret_command;
use crate::config::{Command, Shim};
use crate::io::{Sink, Source, watch};
use crate::shim;
use crate::upgrade::{Incoming, Outgoing, Place};

/// Bytes of a shim's reports that may wait to be read; each is one short line.
const REPORTS: usize = 4096;
/// Bytes that are read at a time.
const LINE: usize = 512;
/// Between two looks for orphans: first, and at most.
const LOOK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// Pause before an exit is watched again, if the system refused to.
const WATCH_AGAIN: Duration = Duration::from_millis(50);

/// A worker with its tree.
#[derive(Debug)]
pub(crate) enum Process {
    Kept(Box<Kept>),
    #[cfg(feature = "simulation")]
    Simulated(crate::sim::Process),
}

/// A worker with its shim and its tree.
#[derive(Debug)]
pub(crate) struct Kept {
    /// A child of this process until it is reaped.
    shim: Pid,
    exit: AsyncFd<OwnedFd>,
    /// Our end, for orders; reports are read from a duplicate of it.
    lifeline: OwnedFd,
    reader: Source,
    said: Vec<u8>,
    reports: VecDeque<Report>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The shim lives.
    Watched {
        hears: bool,
        clean: bool,
    },
    /// The shim was killed; we look for what it kept.
    Orphaned {
        pause: Duration,
    },
    Gone,
}

/// A [`Process`] whose shim lives, as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedProcess {
    shim: i32,
    lifeline: Place,
    said: Vec<u8>,
    reports: Vec<String>,
    hears: bool,
    clean: bool,
    #[cfg(feature = "simulation")]
    #[serde(default)]
    simulated: Option<u64>,
}

#[cfg(feature = "simulation")]
impl SavedProcess {
    fn simulated(process: &crate::sim::Process) -> Self {
        Self {
            shim: 0,
            lifeline: Place::nowhere(),
            said: Vec::new(),
            reports: Vec::new(),
            hears: true,
            clean: false,
            simulated: Some(crate::sim::carry(process.duplicate())),
        }
    }
}

/// Events of a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Up {
        rung: Rung,
        pid: u32,
    },
    NotStarted(String),
    Ended(End),
    /// The shim was killed; what it kept is being killed by us.
    Orphaned,
    Gone,
}

/// Our ends of a new process's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: Sink,
    pub(crate) stdout: Source,
    pub(crate) stderr: Source,
}

impl Process {
    /// Starts a worker. `program` is its executable, if that is held open and runs instead of its path.
    pub(crate) fn spawn(
        shim: &Shim,
        command: &Command,
        program: Option<&OwnedFd>,
    ) -> io::Result<(Self, Pipes)> {
        #[cfg(feature = "simulation")]
        if let Some(spawned) = crate::sim::spawn(command) {
            return spawned.map(|(process, pipes)| (Self::Simulated(process), pipes));
        }
        let (kept, pipes) = Kept::spawn(shim, command, program)?;
        Ok((Self::Kept(Box::new(kept)), pipes))
    }

    /// True while another process could continue to watch it.
    pub(crate) fn can_move(&self) -> bool {
        match self {
            Self::Kept(kept) => matches!(kept.phase, Phase::Watched { .. }),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => true,
        }
    }

    /// The shim and its lifeline, for a process that continues in this one's place.
    pub(crate) fn save<'a>(&'a self, descriptors: &mut Outgoing<'a>) -> Option<SavedProcess> {
        match self {
            Self::Kept(kept) => kept.save(descriptors),
            #[cfg(feature = "simulation")]
            Self::Simulated(simulated) => Some(SavedProcess::simulated(simulated)),
        }
    }

    pub(crate) fn restore(saved: SavedProcess, descriptors: &mut Incoming) -> io::Result<Self> {
        #[cfg(feature = "simulation")]
        if let Some(place) = saved.simulated {
            return crate::sim::arrived(place).map(Self::Simulated);
        }
        Ok(Self::Kept(Box::new(Kept::restore(saved, descriptors)?)))
    }

    /// Waits for what happens next. Nothing is lost when the wait is given up; after
    /// [`Happened::Gone`] nothing more happens.
    pub(crate) async fn next(&mut self) -> Happened {
        match self {
            Self::Kept(kept) => kept.next().await,
            #[cfg(feature = "simulation")]
            Self::Simulated(simulated) => simulated.next().await,
        }
    }

    /// Gives an order about the whole tree.
    pub(crate) fn order(&self, order: Order) {
        match self {
            Self::Kept(kept) => kept.order(order),
            #[cfg(feature = "simulation")]
            Self::Simulated(simulated) => simulated.order(order),
        }
    }

    /// The shim did not do what it was told: kill it, and its tree comes to us as orphans.
    pub(crate) fn take_over(&self) {
        match self {
            Self::Kept(kept) => kept.take_over(),
            #[cfg(feature = "simulation")]
            Self::Simulated(simulated) => simulated.take_over(),
        }
    }
}

impl Kept {
    fn save<'a>(&'a self, descriptors: &mut Outgoing<'a>) -> Option<SavedProcess> {
        let Phase::Watched { hears, clean } = self.phase else {
            return None;
        };
        Some(SavedProcess {
            shim: self.shim.as_raw_nonzero().get(),
            lifeline: descriptors.add(self.lifeline.as_fd()),
            said: self.said.clone(),
            reports: self.reports.iter().map(Report::to_string).collect(),
            hears,
            clean,
            #[cfg(feature = "simulation")]
            simulated: None,
        })
    }

    fn restore(saved: SavedProcess, descriptors: &mut Incoming) -> io::Result<Self> {
        let missing = || io::Error::other("a saved process has no number");
        let shim = Pid::from_raw(saved.shim).ok_or_else(missing)?;
        orphans::know(shim);
        let lifeline = descriptors.take(saved.lifeline)?;
        let reports = saved.reports.iter();
        Ok(Self {
            shim,
            // It is a child of this process and not reaped, so the number is still its own.
            exit: watch_exit(shim)?,
            reader: Source::socket(lifeline.try_clone()?)?,
            lifeline,
            said: saved.said,
            reports: reports.filter_map(|line| Report::parse(line)).collect(),
            phase: Phase::Watched {
                hears: saved.hears,
                clean: saved.clean,
            },
        })
    }

    /// Starts a shim that starts a worker.
    fn spawn(
        shim: &Shim,
        command: &Command,
        program: Option<&OwnedFd>,
    ) -> io::Result<(Self, Pipes)> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let (worker_stdin, stdin) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, worker_stdout) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        lifeline::send_pipes(&ours, &worker_stdin, &worker_stdout, program)?;
        let reader = Source::socket(ours.try_clone()?)?;
        let mut builder = std::process::Command::new(&shim.program);
        if let Some(sandbox) = &command.sandbox {
            builder.env_clear();
            builder.envs(std::env::vars_os().filter(|(name, _)| sandbox.passes(name)));
            builder.envs(sandbox.variables.iter().map(|(name, value)| (name, value)));
        }
        for name in &command.without_env {
            builder.env_remove(name);
        }
        builder.envs(command.env.iter().map(|(key, value)| (key, value)));
        if let Some(folder) = &command.cwd {
            builder.current_dir(folder);
        }
        let mut child = builder
            .arg0(shim::NAME)
            .args(shim::arguments(shim.tree_kill, command))
            .stdin(theirs)
            // Shims write nothing there, and do not pass it on: the lease ends with the last of them.
            .stdout(match &shim.lease {
                Some(lease) => Stdio::from(lease.try_clone()?),
                None => Stdio::null(),
            })
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let pid = Pid::from_child(&child);
        orphans::know(pid);
        let (exit, stderr) = match (watch_exit(pid), child.stderr.take()) {
            (Ok(exit), Some(stderr)) => (exit, stderr),
            (watched, _) => {
                // It cannot be watched, so it must not be left: without its lifeline it goes.
                drop((ours, reader));
                let _ = child.wait();
                orphans::forget(pid);
                let missing = || io::Error::other("a pipe of the new process is missing");
                return Err(watched.err().unwrap_or_else(missing));
            }
        };
        let process = Self {
            shim: pid,
            exit,
            lifeline: ours,
            reader,
            said: Vec::new(),
            reports: VecDeque::new(),
            phase: Phase::Watched {
                hears: true,
                clean: false,
            },
        };
        let pipes = Pipes {
            stdin: Sink::pipe(stdin)?,
            stdout: Source::pipe(stdout)?,
            stderr: Source::pipe(stderr.into())?,
        };
        Ok((process, pipes))
    }

    async fn next(&mut self) -> Happened {
        loop {
            match self.reports.pop_front() {
                Some(Report::Up { rung, pid }) => return Happened::Up { rung, pid },
                Some(Report::NotStarted(why)) => return Happened::NotStarted(why),
                Some(Report::Ended(end)) => return Happened::Ended(end),
                Some(Report::Gone) => {
                    if let Phase::Watched { clean, .. } = &mut self.phase {
                        *clean = true;
                    }
                    continue;
                }
                None => {}
            }
            match self.phase {
                Phase::Watched { hears: true, clean } => {
                    let mut buffer = [0; LINE];
                    let heard = tokio::select! {
                        biased;
                        heard = self.reader.read(&mut buffer) => heard.unwrap_or_default(),
                        () = ended(&self.exit) => {
                            self.listen_to_the_end();
                            0
                        }
                    };
                    self.take(buffer.iter().take(heard));
                    // No shim of ours says so much.
                    let hears = heard > 0 && self.said.len() <= REPORTS;
                    self.phase = Phase::Watched { hears, clean };
                }
                Phase::Watched { clean, .. } => {
                    ended(&self.exit).await;
                    // It has ended, so this does not wait.
                    let _ = rustix::process::waitpid(Some(self.shim), WaitOptions::empty());
                    orphans::forget(self.shim);
                    if clean {
                        self.phase = Phase::Gone;
                    } else {
                        // A second stage that lives goes by itself when we hang up.
                        let _ = rustix::net::shutdown(&self.lifeline, Shutdown::Both);
                        self.phase = Phase::Orphaned { pause: LOOK.0 };
                        return Happened::Orphaned;
                    }
                }
                Phase::Orphaned { pause } => {
                    if orphans::sweep() == 0 {
                        self.phase = Phase::Gone;
                    } else {
                        tokio::time::sleep(pause).await;
                        let pause = LOOK.1.min(pause * 2);
                        self.phase = Phase::Orphaned { pause };
                    }
                }
                Phase::Gone => return Happened::Gone,
            }
        }
    }

    /// Gives the shim an order about the whole tree.
    fn order(&self, order: Order) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // A shim that does not listen any more is noticed by its end, or as stuck.
        let _ = rustix::net::send(&self.lifeline, &[order.byte()], flags);
    }

    fn take_over(&self) {
        let _ = rustix::process::pidfd_send_signal(self.exit.get_ref(), Signal::KILL);
    }

    /// Takes what the shim had still to say.
    fn listen_to_the_end(&mut self) {
        let mut buffer = [0; LINE];
        while let Some(Ok(count)) = self.reader.read_now(&mut buffer) {
            if count == 0 || self.said.len() > REPORTS {
                return;
            }
            self.take(buffer.iter().take(count));
        }
    }

    fn take<'a>(&mut self, bytes: impl Iterator<Item = &'a u8>) {
        self.said.extend(bytes);
        while let Some(end) = self.said.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.said.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            self.reports.extend(Report::parse(line.trim_end()));
        }
    }
}

/// Watches for the end of a child.
fn watch_exit(child: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    let fd = rustix::process::pidfd_open(child, PidfdFlags::NONBLOCK)?;
    watch(fd, Interest::READABLE)
}

/// Waits until a watched process has ended; it is not reaped by this.
async fn ended(exit: &AsyncFd<OwnedFd>) {
    loop {
        match exit.readable().await {
            Ok(_) => return,
            // The descriptor cannot fail while we hold it; do not spin if it does.
            Err(_) => tokio::time::sleep(WATCH_AGAIN).await,
        }
    }
}
