//! The rung of PID namespaces.
//!
//! The first stage leaves its own namespaces for its children, starts the second stage and waits for
//! it. The second stage is the first process of the new PID namespace and keeps the tree. The
//! kernel does the rest: when the second stage ends, everything in the namespace is killed, and only
//! when that is done does the wait of the first stage return.
//!
//! A worker in a namespace must not misbehave for it:
//!
//! * `/proc` is mounted afresh, in a mount namespace that only receives from outside, so that
//!   numbers in `/proc` are those that the worker can use;
//! * without more, every worker would be process 2, and two workers that name a file by their
//!   number would share it. So the namespace counts on from the number that its first process has
//!   outside, which no other process of the machine has.
//!
//! Where any of this fails (it needs the rights of an administrator, which containers often lack),
//! the first stage goes back to where it was, and the next rung is taken.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Pid, PidfdFlags, WaitOptions};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::{INIT, NAME, WORD, Worker, keeper};
use crate::process::{Report, Rung};

/// The second stage's exit code when it cannot make itself at home; nothing was started then.
const UNFIT: u8 = 77;

/// Runs the second stage to its end. An error means that nothing was started and that the caller
/// may go on in its own namespace.
pub(super) fn first_stage(worker: &Worker) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let home = rustix::fs::open("/proc/self/ns/pid", flags, Mode::empty())?;
    // Who has left and finds no place has nowhere to go: in a container without the rights over
    // its own namespace there is no way back, which shows by going where we are.
    go_to(&home)?;
    leave(UnshareFlags::NEWPID | UnshareFlags::NEWNS)?;
    let ended = run_second_stage(worker);
    if ended.is_err() {
        go_to(&home)?;
    }
    ended
}

/// Runs the second stage in the namespaces that this process has made for its children.
pub(super) fn run_second_stage(worker: &Worker) -> io::Result<()> {
    // What we mount must not be seen outside; what is mounted outside shall be seen here.
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", propagation)?;
    let code = match mainstay_sandbox::fork(|| second_stage(worker)) {
        Ok(child) => wait_for(child)?,
        // The relay of a sandbox has a thread here.
        Err(_) => {
            let program = Command::new("/proc/self/exe")
                .arg0(NAME)
                .args([WORD, INIT])
                .args(worker.words())
                .spawn();
            program.and_then(|mut child| child.wait())?.code()
        }
    };
    if code == Some(i32::from(UNFIT)) {
        return Err(io::Error::other("/proc cannot be mounted"));
    }
    if code != Some(0) {
        // It was killed before it could report that everything is gone.
        Report::Gone.send(io::stdin().as_fd());
    }
    Ok(())
}

fn go_to(namespace: &OwnedFd) -> io::Result<()> {
    let kind = LinkNameSpaceType::ProcessID;
    Ok(rustix::thread::move_into_link_name_space(
        namespace.as_fd(),
        Some(kind),
    )?)
}

/// The exit code of a child, once it has ended; none if it was killed.
fn wait_for(child: i32) -> io::Result<Option<i32>> {
    let child = Pid::from_raw(child);
    loop {
        match rustix::process::waitpid(child, WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(status.exit_status()),
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Leaves namespaces.
#[expect(
    deprecated,
    reason = "the replacement is unsafe, because a thread may leave the table of descriptors that \
              others hold on to; these flags do not touch it, and there is no other thread"
)]
fn leave(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

/// The first process of the namespace. Returns its exit code.
pub(super) fn second_stage(worker: &Worker) -> u8 {
    match settle().and_then(|outside| super::sandbox::limit(worker).map(|()| outside)) {
        Ok(outside) => keeper::keep(Rung::Namespace, worker, |pid| {
            number_outside(&outside, pid).unwrap_or_else(|_| keeper::number_of(pid))
        }),
        Err(_) => UNFIT,
    }
}

/// Mounts `/proc`, and gives the one from outside.
fn settle() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let outside = rustix::fs::openat(CWD, "/proc", flags, Mode::empty())?;
    let own = rustix::fs::readlinkat(&outside, "self", Vec::new())?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", flags, None)?;
    if let Some(own) = own.to_str().ok().and_then(|own| own.parse::<u32>().ok()) {
        // A kernel without this gives small numbers, with which most programs work as well.
        let last = own.saturating_sub(1).to_string();
        let _ = fs::write("/proc/sys/kernel/ns_last_pid", last);
    }
    Ok(outside)
}

/// The number that a process of ours has outside: a descriptor of it, looked at from there.
fn number_outside(outside: &OwnedFd, pid: Pid) -> io::Result<u32> {
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let path = format!("self/fdinfo/{}", process.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(outside, path, flags, Mode::empty())?;
    let about = io::read_to_string(fs::File::from(file))?;
    about
        .lines()
        .find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
        .ok_or_else(|| io::Error::other("the number is not told"))
}
