//! Starts a worker, reaps its tree to the last process, and does what the host orders.
//!
//! Two threads. One waits for children: it reaps everything that ends, at once, and ends the shim
//! when there is none left. The other listens to the lifeline and kills. They share nothing: that
//! killing has succeeded shows in the wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, WaitOptions};

use super::sandbox::{self, Learning};
use super::{FAILED, Worker, refuse};
use crate::process::descendants::below;
use crate::process::lifeline::{WorkerFds, receive_pipes};
use crate::process::{End, Order, Report, Rung};

/// Between two blows at a tree that does not go: first, and at most.
const BLOW: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(250));
/// When the host has gone, how long a tree that cannot be killed is struck at.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps a worker to the end of its tree. `number` tells its number as the host sees it. Returns the exit code of the shim.
pub(super) fn keep(rung: Rung, worker: &Worker, number: impl FnOnce(Pid) -> u32) -> u8 {
    let stdin = io::stdin();
    let lifeline = stdin.as_fd();
    let (pid, learning) = match start(lifeline, worker, rung) {
        Ok(started) => started,
        Err(error) => return refuse(&error.to_string()),
    };
    let pid_seen = number(pid);
    Report::Up {
        rung,
        pid: pid_seen,
    }
    .send(lifeline);
    let listener = lifeline.try_clone_to_owned().and_then(|lifeline| {
        std::thread::Builder::new()
            .name("lifeline".to_owned())
            .stack_size(64 * 1024)
            .spawn(move || obey(rung, &lifeline))
    });
    if listener.is_err() {
        // The host could not order its end. Without its shim the host kills the tree itself.
        return FAILED;
    }
    let learner = learning.map(|learning| learning.start(pid));
    reap_all(pid, lifeline);
    if let Some(Ok(learner)) = learner {
        // It has written its profile by then.
        let _ = learner.join();
    }
    sandbox::clean_up(worker, rung, pid);
    Report::Gone.send(lifeline);
    0
}

/// A process has the same number here and for the host.
pub(super) fn number_of(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

fn start(
    lifeline: BorrowedFd<'_>,
    worker: &Worker,
    rung: Rung,
) -> io::Result<(Pid, Option<Learning>)> {
    let pipes = receive_pipes(lifeline)?;
    if !worker.sandbox.is_empty() {
        return sandbox::start(worker, rung, pipes);
    }
    let WorkerFds {
        stdin,
        stdout,
        program,
    } = pipes;
    // The command, and with it our copies of the pipes, ends here: the host must see when the
    // worker closes its own.
    plain_command(worker, program.as_ref())
        .stdin(stdin)
        .stdout(stdout)
        .process_group(0)
        .spawn()
        .map(|child| (Pid::from_child(&child), None))
}

fn plain_command(worker: &Worker, program: Option<&OwnedFd>) -> Command {
    let mut command = match program {
        Some(held) => Command::new(format!("/proc/self/fd/{}", held.as_raw_fd())),
        None => Command::new(&worker.program),
    };
    if !worker.called.is_empty() {
        command.arg0(&worker.called);
    } else if program.is_some() {
        command.arg0(&worker.program);
    }
    command.args(&worker.arguments);
    command
}

/// Reaps whatever ends until there is nothing left.
fn reap_all(worker: Pid, lifeline: BorrowedFd<'_>) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == worker => {
                if let Some(end) = End::of(status) {
                    Report::Ended(end).send(lifeline);
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            // ECHILD: what lost its parent would have become our child.
            Err(_) => return,
        }
    }
}

/// Does what the host says, until it says kill or goes.
fn obey(rung: Rung, lifeline: &OwnedFd) {
    loop {
        let mut byte = [0];
        match rustix::net::recv(lifeline, &mut byte, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Ok((1, _)) if Order::of(byte[0]) == Order::Terminate => {
                strike(rung, Order::Terminate.signal());
            }
            _ => break,
        }
    }
    let mut pause = BLOW.0;
    let mut alone_since = None;
    // Ends with the process, when the other thread has reaped everything.
    loop {
        strike(rung, Order::Kill.signal());
        std::thread::sleep(pause);
        pause = BLOW.1.min(pause * 2);
        if has_gone(lifeline) && alone_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            std::process::exit(1);
        }
    }
}

/// True if the host is gone; does not wait for it.
fn has_gone(lifeline: &OwnedFd) -> bool {
    let mut bytes = [0; 16];
    matches!(
        rustix::net::recv(lifeline, &mut bytes, RecvFlags::DONTWAIT),
        Ok((0, _))
    )
}

/// Signals the whole tree, as it is now.
fn strike(rung: Rung, signal: Signal) {
    match rung {
        // For the first process of a namespace "the group of process 1", which is the number -1,
        // is every process in it but itself, and no process escapes by forking.
        Rung::Namespace => {
            let _ = rustix::process::kill_process_group(Pid::INIT, signal);
        }
        Rung::Subreaper => {
            for process in below(rustix::process::getpid()) {
                // One that may not be killed stays; the host reports that the tree does not go.
                if !process.zombie {
                    let _ = process.signal(signal);
                }
            }
        }
    }
}
