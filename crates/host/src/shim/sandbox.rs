//! Starts a worker inside its sandbox.
//!
//! The first stage enters the namespaces of the policy; the second stage keeps the tree there, as on the rung of PID
//! namespaces. In place of the worker it starts this executable once more, which restricts itself and then executes the
//! worker: the restrictions need no rights, and hold for everything that the worker starts.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread::{self, JoinHandle};

use mainstay_sandbox::{Lack, Learner, Policy, Surroundings, confine, watch_this_process};
use rustix::io::FdFlags;
use rustix::process::Pid;

use super::{CONFINE, NAME, WORD, Worker, keep_as_subreaper, namespace, refuse};
use crate::config::Sandbox;
use crate::process::Rung;

/// The exit code of a stage that could not restrict itself; the worker has not run.
pub(crate) const UNCONFINED: u8 = 78;

/// In place of a rung: the worker is watched, through the socket whose number follows.
const LEARN: &str = "learn:";

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
pub(super) fn first_stage(worker: &Worker) -> ExitCode {
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
            let ended = namespace::run_second_stage(worker);
            ended.unwrap_or_else(|error| refuse(&format!("the sandbox cannot be set up: {error}")))
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
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
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

/// The command that the keeper starts for a sandboxed worker. `program` is the executable of the worker, if that is held
/// open.
pub(super) fn command(
    worker: &Worker,
    rung: Rung,
    program: Option<&OwnedFd>,
) -> io::Result<(Command, Option<Learning>)> {
    let mut command = Command::new("/proc/self/exe");
    let policy = policy(&worker.sandbox)?;
    let learning = policy.learn.is_some().then(|| Learning::new(policy));
    let learning = learning.transpose()?;
    let stage = match &learning {
        Some(learning) => format!("{LEARN}{}", learning.theirs.as_raw_fd()),
        None => rung.as_str().to_owned(),
    };
    command
        .arg0(NAME)
        .args([WORD, CONFINE, &stage])
        .arg(&worker.sandbox);
    match program {
        Some(held) => {
            // The last stage executes it by its number, so it is inherited.
            rustix::io::fcntl_setfd(held, FdFlags::empty())?;
            let called = if worker.called.is_empty() {
                &worker.program
            } else {
                &worker.called
            };
            command
                .arg(called)
                .arg(format!("/proc/self/fd/{}", held.as_raw_fd()));
        }
        None => {
            command.arg(&worker.called).arg(&worker.program);
        }
    }
    command.args(&worker.arguments);
    Ok((command, learning))
}

/// The word after the stage.
enum Stage {
    /// Restrict the worker; true where it has namespaces of its own.
    Restrict(bool),
    /// Watch it, through the socket of this number.
    Learn(String),
}

/// Restricts this process and executes the worker.
pub(super) fn become_worker(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let stage = words.next().unwrap_or_default();
    let stage = match stage.to_str().and_then(|word| word.strip_prefix(LEARN)) {
        Some(number) => Stage::Learn(number.to_owned()),
        None => Stage::Restrict(stage == Rung::Namespace.as_str()),
    };
    let Some(worker) = Worker::parse(words) else {
        return ExitCode::from(2);
    };
    let error = match restrict(&worker, stage) {
        Ok((temporary, program)) => {
            let mut command = Command::new(program);
            if !worker.called.is_empty() {
                command.arg0(&worker.called);
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
        Err(error) => error,
    };
    let _ = writeln!(io::stderr(), "mainstay: error: {error}");
    ExitCode::from(UNCONFINED)
}

/// Applies the policy to this process. Gives its temporary directory and the file to execute.
fn restrict(worker: &Worker, stage: Stage) -> Result<(PathBuf, PathBuf), String> {
    let policy = policy(&worker.sandbox).map_err(|error| error.to_string())?;
    let temporary = if let Stage::Restrict(true) = stage {
        PathBuf::from(Surroundings::TEMPORARY)
    } else {
        let own = own_temporary(rustix::process::getpid());
        let made = DirBuilder::new().mode(0o700).create(&own);
        made.map_err(|error| format!("the sandbox cannot make a temporary directory: {error}"))?;
        own
    };
    let keeper = match &stage {
        Stage::Learn(number) => Some(
            mainstay_sandbox::inherited_socket(number)
                .map_err(|error| format!("the sandbox cannot learn: {error}"))?,
        ),
        Stage::Restrict(_) => None,
    };
    let program = close_the_rest(worker)
        .map_err(|error| format!("the sandbox cannot close its descriptors: {error}"))?;
    match (stage, keeper) {
        (Stage::Restrict(private), _) => {
            let lacks = confine(&policy, &temporary, private).map_err(|error| error.to_string())?;
            report(&lacks);
        }
        (Stage::Learn(_), Some(keeper)) => {
            watch_this_process(&policy, &keeper).map_err(|error| error.to_string())?;
        }
        (Stage::Learn(_), None) => {}
    }
    Ok((temporary, program))
}

/// Leaves the worker its three pipes: nothing else stays open when it is executed. Gives the file to execute.
fn close_the_rest(worker: &Worker) -> io::Result<PathBuf> {
    mainstay_sandbox::close_others_on_exec()?;
    let program = PathBuf::from(&worker.program);
    if !program.starts_with("/proc/self/fd") {
        return Ok(program);
    }
    let mut head = [0; 2];
    let held = fs::File::open(&program)?;
    if held.read_at(&mut head, 0)? < 2 || head != *b"#!" {
        return Ok(program);
    }
    // The interpreter opens the script once more. The one that is held belongs to the mounts outside, which are not
    // read-only; by its path it belongs to those of the sandbox.
    let own = fs::File::open(&worker.called).ok().filter(|own| {
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
