//! Starts a worker inside its sandbox.
//!
//! The first stage enters the namespaces of the policy; the second stage keeps the tree there, as on the rung of PID
//! namespaces. In place of the worker it starts a copy of itself, which restricts itself and then executes the
//! worker: the restrictions need no rights, and hold for everything that the worker starts.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};

use mainstay_sandbox::{Lack, Learner, Policy, Surroundings, confine, watch_this_process};
use rustix::io::FdFlags;
use rustix::process::{DumpableBehavior, Pid};

use super::{Worker, keep_as_subreaper, namespace, refuse};
use crate::config::Sandbox;
use crate::process::Rung;
use crate::process::lifeline::WorkerFds;

/// The exit code of a stage that could not restrict itself; the worker has not run.
pub(crate) const UNCONFINED: u8 = 78;

/// The policy of a sandbox, as a shim reads it.
pub(super) fn written(sandbox: &Sandbox) -> OsString {
    // Paths that are not Unicode are rejected where a policy is read.
    serde_json::to_string(&sandbox.policy)
        .unwrap_or_else(|_| "{}".to_owned())
        .into()
}

fn policy(text: &OsStr) -> io::Result<Policy> {
    let text = text.to_str().unwrap_or_default();
    serde_json::from_str(text).map_err(io::Error::other)
}

/// Enters the namespaces and keeps the worker there.
pub(super) fn first_stage(worker: &Worker) -> u8 {
    let policy = match policy(&worker.sandbox) {
        Ok(policy) => policy,
        Err(error) => return refuse(&format!("the sandbox cannot be read: {error}")),
    };
    if policy.learn.is_some() {
        return keep_as_subreaper(worker);
    }
    match Surroundings::enter(&policy) {
        Err(error) => refuse(&error.to_string()),
        Ok(surroundings) => {
            report(&surroundings.lacks);
            if !surroundings.own_processes {
                return keep_as_subreaper(worker);
            }
            match namespace::run_second_stage(worker) {
                Ok(()) => 0,
                Err(error) => refuse(&format!("the sandbox cannot be set up: {error}")),
            }
        }
    }
}

/// A worker whose profile is being learned, before it runs.
pub(super) struct Learning {
    policy: Policy,
    ours: UnixStream,
    /// The worker's end, until the worker has it.
    theirs: UnixStream,
}

impl Learning {
    fn new(policy: Policy) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok(Self {
            policy,
            ours,
            theirs,
        })
    }

    /// Starts the thread that watches the worker's tree to its end.
    pub(super) fn start(self, worker: Pid) -> io::Result<JoinHandle<()>> {
        let Self {
            policy,
            ours,
            theirs,
        } = self;
        // If the worker ends early, the other end must see that.
        drop(theirs);
        let learn = move || {
            let learner = Learner::new(policy, own_temporary(worker));
            let learned = learner.map_or(Ok(()), |learner| learner.start(ours, worker));
            if let Err(error) = learned {
                let _ = writeln!(
                    io::stderr(),
                    "mainstay: error: the sandbox cannot learn: {error}"
                );
            }
        };
        thread::Builder::new().name("learn".to_owned()).spawn(learn)
    }
}

/// Limits the processes of a sandboxed worker, in its PID namespace.
pub(super) fn limit(worker: &Worker) -> io::Result<()> {
    if worker.sandbox.is_empty() {
        return Ok(());
    }
    mainstay_sandbox::limit_processes(&policy(&worker.sandbox)?)
}

/// Starts a sandboxed worker: a copy of this process restricts itself and executes it.
pub(super) fn start(
    worker: &Worker,
    rung: Rung,
    pipes: WorkerFds,
) -> io::Result<(Pid, Option<Learning>)> {
    let policy = policy(&worker.sandbox)?;
    let learning = policy.learn.is_some().then(|| Learning::new(policy));
    let learning = learning.transpose()?;
    let stage = match &learning {
        Some(learning) => Stage::Learn(&learning.theirs),
        None => Stage::Restrict(rung == Rung::Namespace),
    };
    let child = mainstay_sandbox::fork(|| {
        let error = become_worker(worker, &stage, &pipes);
        let _ = writeln!(io::stderr(), "mainstay: error: {error}");
        UNCONFINED
    })?;
    let child = Pid::from_raw(child).ok_or_else(|| io::Error::other("a child has no number"))?;
    // Our copies of the pipes end here: the host must see when the worker closes its own.
    drop(pipes);
    Ok((child, learning))
}

/// The restrictions of a worker.
enum Stage<'a> {
    /// Restrict it; true where it has namespaces of its own.
    Restrict(bool),
    /// Watch it, through this socket.
    Learn(&'a UnixStream),
}

/// Restricts this process and executes the worker. Returns the reason why it could not.
fn become_worker(worker: &Worker, stage: &Stage<'_>, pipes: &WorkerFds) -> String {
    let taken = take_pipes(pipes, stage);
    let prepared = taken
        .map_err(|error| format!("the sandbox cannot take the pipes of its server: {error}"))
        .and_then(|()| restrict(worker, stage, pipes.program.as_ref()));
    let (temporary, program) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return error,
    };
    let mut command = Command::new(program);
    if !worker.called.is_empty() {
        command.arg0(&worker.called);
    } else if pipes.program.is_some() {
        command.arg0(&worker.program);
    }
    let failed = command
        .args(&worker.arguments)
        .env("TMPDIR", temporary)
        .exec();
    format!(
        "cannot execute {} inside the sandbox: {failed}",
        Path::new(&worker.program).display()
    )
}

/// Makes the worker's pipes its standard input and output, in a process group of its own.
fn take_pipes(pipes: &WorkerFds, stage: &Stage<'_>) -> io::Result<()> {
    rustix::process::setpgid(None, None)?;
    if matches!(stage, Stage::Learn(_)) {
        // The keeper takes a descriptor of this process.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    }
    rustix::stdio::dup2_stdin(&pipes.stdin)?;
    rustix::stdio::dup2_stdout(&pipes.stdout)?;
    Ok(())
}

/// Applies the policy to this process. Gives its temporary directory and the file to execute.
fn restrict(
    worker: &Worker,
    stage: &Stage<'_>,
    held: Option<&OwnedFd>,
) -> Result<(PathBuf, PathBuf), String> {
    let policy = policy(&worker.sandbox).map_err(|error| error.to_string())?;
    let temporary = if let Stage::Restrict(true) = *stage {
        PathBuf::from(Surroundings::TEMPORARY)
    } else {
        let own = own_temporary(rustix::process::getpid());
        let made = DirBuilder::new().mode(0o700).create(&own);
        made.map_err(|error| format!("the sandbox cannot make a temporary directory: {error}"))?;
        own
    };
    let program = close_the_rest(worker, held)
        .map_err(|error| format!("the sandbox cannot close its descriptors: {error}"))?;
    match *stage {
        Stage::Restrict(private) => {
            let lacks = confine(&policy, &temporary, private).map_err(|error| error.to_string())?;
            report(&lacks);
        }
        Stage::Learn(keeper) => {
            watch_this_process(&policy, keeper).map_err(|error| error.to_string())?;
        }
    }
    Ok((temporary, program))
}

/// Leaves the worker its three pipes: nothing else stays open when it is executed. Gives the file to execute; `held` is
/// the program, if the host holds it open.
fn close_the_rest(worker: &Worker, held: Option<&OwnedFd>) -> io::Result<PathBuf> {
    mainstay_sandbox::close_others_on_exec()?;
    let Some(held) = held else {
        return Ok(PathBuf::from(&worker.program));
    };
    let program = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let path = match worker.called.is_empty() {
        true => &worker.program,
        false => &worker.called,
    };
    let mut head = [0; 2];
    let held = fs::File::open(&program)?;
    if held.read_at(&mut head, 0)? < 2 || head != *b"#!" {
        return Ok(program);
    }
    // The interpreter opens the script once more. The one that is held belongs to the mounts outside, which are not
    // read-only; by its path it belongs to those of the sandbox.
    let own = fs::File::open(path).ok().filter(|own| {
        let same = |one: &fs::File| one.metadata().map(|about| (about.dev(), about.ino())).ok();
        same(own) == same(&held)
    });
    let script = OwnedFd::from(own.unwrap_or(held));
    rustix::io::fcntl_setfd(&script, FdFlags::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", script.as_raw_fd()));
    // It is closed with the process.
    std::mem::forget(script);
    Ok(path)
}

/// The temporary directory of a worker without namespaces.
fn own_temporary(worker: Pid) -> PathBuf {
    std::env::temp_dir().join(format!("mainstay-sandbox-{}", worker.as_raw_nonzero()))
}

/// Removes the temporary directory of a worker without namespaces.
pub(super) fn clean_up(worker: &Worker, rung: Rung, pid: Pid) {
    if rung == Rung::Subreaper && !worker.sandbox.is_empty() {
        let _ = fs::remove_dir_all(own_temporary(pid));
    }
}

/// Writes a line per missing restriction to the worker's standard error, which the host logs.
fn report(lacks: &[Lack]) {
    for lack in lacks {
        let _ = writeln!(
            io::stderr(),
            "mainstay: warning: the sandbox is incomplete: {lack}"
        );
    }
}
