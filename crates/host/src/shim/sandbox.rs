//! Starts a worker inside its sandbox.
//!
//! The first stage enters the namespaces of the policy; the second stage keeps the tree there, as on the rung of PID
//! namespaces. In place of the worker it starts this executable once more, which restricts itself and then executes the
//! worker: the restrictions need no rights, and hold for everything that the worker starts.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use mainstay_sandbox::{Lack, Policy, Surroundings, confine};
use rustix::io::FdFlags;
use rustix::process::Pid;

use super::{CONFINE, NAME, WORD, Worker, keep_as_subreaper, namespace, refuse};
use crate::config::Sandbox;
use crate::process::Rung;

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
pub(super) fn first_stage(worker: &Worker) -> ExitCode {
    let policy = match policy(&worker.sandbox) {
        Ok(policy) => policy,
        Err(error) => return refuse(&format!("the sandbox cannot be read: {error}")),
    };
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

/// The command that the keeper starts for a sandboxed worker. `program` is the executable of the worker, if that is held
/// open.
pub(super) fn command(
    worker: &Worker,
    rung: Rung,
    program: Option<&OwnedFd>,
) -> io::Result<Command> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(NAME)
        .args([WORD, CONFINE, rung.as_str()])
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
    Ok(command)
}

/// Restricts this process and executes the worker. The word after the stage is the rung.
pub(super) fn become_worker(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let private = words
        .next()
        .is_some_and(|rung| rung == Rung::Namespace.as_str());
    let Some(worker) = Worker::parse(words) else {
        return ExitCode::from(2);
    };
    let error = match restrict(&worker, private) {
        Ok(temporary) => {
            let mut command = Command::new(&worker.program);
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

/// Applies the policy to this process, and gives its temporary directory.
fn restrict(worker: &Worker, private: bool) -> Result<PathBuf, String> {
    let policy = policy(&worker.sandbox).map_err(|error| error.to_string())?;
    let temporary = if private {
        PathBuf::from(Surroundings::TEMPORARY)
    } else {
        let own = own_temporary(rustix::process::getpid());
        let made = DirBuilder::new().mode(0o700).create(&own);
        made.map_err(|error| format!("the sandbox cannot make a temporary directory: {error}"))?;
        own
    };
    let lacks = confine(&policy, &temporary, private).map_err(|error| error.to_string())?;
    report(&lacks);
    Ok(temporary)
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
