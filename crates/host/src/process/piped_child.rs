//! A child of the host without a shim: a copy of the host's own executable that starts no process.
//!
//! It gets two pipes and an empty environment. It must exit when its standard input ends, which is
//! how it notices that the host was killed.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal};
use tokio::io::unix::AsyncFd;

use super::{ended, orphans, watch_exit};

/// The child. Dropping it kills and reaps it.
#[derive(Debug)]
pub(crate) struct PipedChild {
    child: Child,
    exit: AsyncFd<OwnedFd>,
    reaped: bool,
}

/// Our ends of its pipes.
#[derive(Debug)]
pub(crate) struct ChildPipes {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
}

impl PipedChild {
    /// Starts `program`, listed under `name`.
    pub(crate) fn spawn(
        program: &Path,
        name: &str,
        arguments: &[String],
    ) -> io::Result<(Self, ChildPipes)> {
        let mut child = Command::new(program)
            .arg0(name)
            .args(arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let piped = Self::watch(child)?;
        let missing = || io::Error::other("a pipe of the new process is missing");
        let (stdin, stdout) = pipes.ok_or_else(missing)?;
        let pipes = ChildPipes {
            stdin: stdin.into(),
            stdout: stdout.into(),
        };
        Ok((piped, pipes))
    }

    /// Watches a child that was just started.
    pub(crate) fn watch(mut child: Child) -> io::Result<Self> {
        let pid = Pid::from_child(&child);
        // Without this, a sweep for orphans would kill it.
        orphans::know(pid);
        match watch_exit(pid) {
            Ok(exit) => Ok(Self {
                child,
                exit,
                reaped: false,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                orphans::forget(pid);
                Err(error)
            }
        }
    }

    /// True while the child runs. A child that has ended is reaped.
    pub(crate) fn is_alive(&mut self) -> bool {
        match self.child.try_wait() {
            Ok(None) => true,
            Ok(Some(_)) | Err(_) => {
                self.note_reaped();
                false
            }
        }
    }

    /// Kills it; [`PipedChild::wait`] reaps it.
    pub(crate) fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(self.exit.get_ref(), Signal::KILL);
    }

    /// Waits for its end and reaps it.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        ended(&self.exit).await;
        let status = self.child.wait();
        self.note_reaped();
        status
    }

    fn note_reaped(&mut self) {
        self.reaped = true;
        orphans::forget(Pid::from_child(&self.child));
    }
}

impl Drop for PipedChild {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            // A killed process ends within milliseconds.
            let _ = self.child.wait();
            self.note_reaped();
        }
    }
}
