//! The few settings of a process that `std` and `rustix` do not offer.
//!
//! This is the only crate with unsafe code: a few calls of libc. Everything else in the workspace forbids it.

mod notify;

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd as _, OwnedFd};

pub use self::notify::{Notification, Notifications};

/// From this size on a buffer gets pages of its own, which go back to the system when it is freed.
#[cfg(target_env = "gnu")]
const OWN_PAGES: libc::c_int = 256 * 1024;
/// The free memory at the top of the heap that is kept for the next buffers.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 1024 * 1024;

/// Returns the memory of large buffers to the system as soon as they are freed.
///
/// By default glibc raises both limits with the largest buffer that was freed: after one message of 15 MiB a
/// host would keep up to 60 MiB for ever. Other C libraries have no such rule.
pub fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the standard library has no mallopt")]
    // SAFETY: `mallopt` takes two integers and is called before there are other threads.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
    }
}

/// Returns all memory that is free to the system: that of a start which is over.
pub fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the standard library has no malloc_trim")]
    // SAFETY: `malloc_trim` takes an integer, and allocators of other threads may run beside it.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The signals that an operator sends to a host.
const OPERATOR: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGUSR2];

/// Blocks SIGHUP, SIGINT, SIGTERM and SIGUSR2, to be called before there are other threads. They wait until
/// [`operator_signals`] reads them, also while the process executes another program.
pub fn block_operator_signals() {
    set_mask(libc::SIG_BLOCK);
}

/// Reverts [`block_operator_signals`], also in a child: the mask is inherited.
pub fn unblock_operator_signals() {
    set_mask(libc::SIG_UNBLOCK);
}

/// A descriptor from which the blocked signals are read.
pub fn operator_signals() -> io::Result<OwnedFd> {
    let (set, flags) = (operator_set(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
    #[expect(unsafe_code, reason = "the standard library has no signalfd")]
    // SAFETY: the set is initialized, and a descriptor that was just opened has no other owner.
    unsafe {
        match libc::signalfd(-1, &raw const set, flags) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

fn operator_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    #[expect(unsafe_code, reason = "the standard library has no signals")]
    // SAFETY: `sigemptyset` initializes the set; the numbers are those of signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in OPERATOR {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn set_mask(how: libc::c_int) {
    let set = operator_set();
    #[expect(unsafe_code, reason = "the standard library has no signals")]
    // SAFETY: the set is initialized, and the old mask is not asked for.
    unsafe {
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

/// Turns a write beyond the file size limit (`ulimit -f`) into an error. By default a signal ends the process.
pub fn survive_file_size_limit() {
    set_action(libc::SIGXFSZ, libc::SIG_IGN);
}

/// The limit that a wrapped server expects: the default.
pub fn restore_file_size_limit() {
    set_action(libc::SIGXFSZ, libc::SIG_DFL);
}

fn set_action(signal: libc::c_int, action: libc::sighandler_t) {
    #[expect(unsafe_code, reason = "the standard library has no signals")]
    // SAFETY: no handler is installed, so no code runs in a signal's context.
    unsafe {
        libc::signal(signal, action);
    }
}

/// Installs a filter of system calls for this thread and every program that it executes. The process must have given up
/// new privileges.
pub fn filter_system_calls(program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut(),
    };
    #[expect(unsafe_code, reason = "the standard library has no prctl")]
    // SAFETY: the pointer and the length describe a slice that outlives the call; the kernel copies and checks it.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The size of `struct mount_attr` in its first version, which has four numbers.
const MOUNT_ATTRIBUTES: usize = 32;
const READ_ONLY: u64 = 1;

/// Makes all mounts at and below a directory read-only, in the mount namespace of this process.
pub fn make_mounts_read_only(directory: &CStr) -> io::Result<()> {
    // What to set, what to clear, propagation, and the namespace of owners.
    let attributes = [READ_ONLY, 0, 0, 0];
    #[expect(unsafe_code, reason = "neither std nor rustix has mount_setattr")]
    // SAFETY: the path ends with a null byte, and the structure has the size that is named.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            directory.as_ptr(),
            libc::AT_RECURSIVE,
            attributes.as_ptr(),
            MOUNT_ATTRIBUTES,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs `stage` in a child: a copy of this process, which ends with the exit code that `stage` returns. It costs a
/// fraction of executing a program, whose libraries are loaded anew. Returns the child's number.
///
/// Fails in a process with several threads. The copy would have only this one of them, and the locks that others hold
/// would stay locked in it.
pub fn fork(stage: impl FnOnce() -> u8) -> io::Result<i32> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the process has several threads"));
    }
    #[expect(unsafe_code, reason = "the standard library has no fork")]
    // SAFETY: there is one thread, so the copy is in a state in which any code may run.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let stage = std::panic::AssertUnwindSafe(stage);
            let code = std::panic::catch_unwind(stage).unwrap_or(PANICKED);
            #[expect(unsafe_code, reason = "what runs at an exit belongs to the parent")]
            // SAFETY: the call only ends the process.
            unsafe {
                libc::_exit(code.into())
            }
        }
        child => Ok(child),
    }
}

/// The exit code of a stage that panicked.
const PANICKED: u8 = 101;

/// Closes all descriptors but the three standard ones when this process executes another program.
pub fn close_others_on_exec() -> io::Result<()> {
    #[expect(unsafe_code, reason = "neither std nor rustix has close_range")]
    // SAFETY: with this flag nothing is closed now, so no owner loses a descriptor.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3 as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
