//! The system calls that a learning run watches, and the meaning of their arguments.

use libc::{c_long, sock_filter};

use crate::filter;

/// The place of a path among the arguments: a descriptor of the directory that it is relative to, if the call has one, and
/// the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) folder: Option<usize>,
    pub(super) path: usize,
}

/// The meaning of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Opens a file; the flags are the argument of this number.
    Open(Name, usize),
    /// As [`Meaning::Open`], with the flags in memory.
    OpenHow(Name),
    /// Makes and opens a file.
    Create(Name),
    Execute(Name),
    /// Adds a name to a directory.
    Make(Name),
    /// Removes a name from a directory.
    Remove(Name),
    /// Removes the first name and adds the second, or links the second to the file of the first.
    Move(Name, Name),
    /// Changes the content, mode, owner, times or attributes of a file.
    Change(Name),
    /// Changes a file that is open.
    ChangeOpened,
    Connect,
    Bind,
    Listen,
    Send,
    SendMessage,
    SendMessages,
}

const fn at(folder: usize) -> Name {
    Name {
        folder: Some(folder),
        path: folder + 1,
    }
}

#[cfg(target_arch = "x86_64")]
const fn plain(path: usize) -> Name {
    Name { folder: None, path }
}

const CALLS: &[(c_long, Meaning)] = &[
    (libc::SYS_openat, Meaning::Open(at(0), 2)),
    (libc::SYS_openat2, Meaning::OpenHow(at(0))),
    (
        libc::SYS_execve,
        Meaning::Execute(Name {
            folder: None,
            path: 0,
        }),
    ),
    (libc::SYS_execveat, Meaning::Execute(at(0))),
    (libc::SYS_mkdirat, Meaning::Make(at(0))),
    (libc::SYS_mknodat, Meaning::Make(at(0))),
    (libc::SYS_symlinkat, Meaning::Make(at(1))),
    (libc::SYS_unlinkat, Meaning::Remove(at(0))),
    (libc::SYS_renameat, Meaning::Move(at(0), at(2))),
    (libc::SYS_renameat2, Meaning::Move(at(0), at(2))),
    (libc::SYS_linkat, Meaning::Move(at(0), at(2))),
    (
        libc::SYS_truncate,
        Meaning::Change(Name {
            folder: None,
            path: 0,
        }),
    ),
    (libc::SYS_fchmodat, Meaning::Change(at(0))),
    (libc::SYS_fchmodat2, Meaning::Change(at(0))),
    (libc::SYS_fchownat, Meaning::Change(at(0))),
    (libc::SYS_utimensat, Meaning::Change(at(0))),
    (
        libc::SYS_setxattr,
        Meaning::Change(Name {
            folder: None,
            path: 0,
        }),
    ),
    (
        libc::SYS_lsetxattr,
        Meaning::Change(Name {
            folder: None,
            path: 0,
        }),
    ),
    (libc::SYS_fchmod, Meaning::ChangeOpened),
    (libc::SYS_fchown, Meaning::ChangeOpened),
    (libc::SYS_fsetxattr, Meaning::ChangeOpened),
    (libc::SYS_connect, Meaning::Connect),
    (libc::SYS_bind, Meaning::Bind),
    (libc::SYS_listen, Meaning::Listen),
    (libc::SYS_sendto, Meaning::Send),
    (libc::SYS_sendmsg, Meaning::SendMessage),
    (libc::SYS_sendmmsg, Meaning::SendMessages),
];

/// Calls of older programs.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[(c_long, Meaning)] = &[
    (libc::SYS_open, Meaning::Open(plain(0), 1)),
    (libc::SYS_creat, Meaning::Create(plain(0))),
    (libc::SYS_mkdir, Meaning::Make(plain(0))),
    (libc::SYS_mknod, Meaning::Make(plain(0))),
    (libc::SYS_symlink, Meaning::Make(plain(1))),
    (libc::SYS_unlink, Meaning::Remove(plain(0))),
    (libc::SYS_rmdir, Meaning::Remove(plain(0))),
    (libc::SYS_rename, Meaning::Move(plain(0), plain(1))),
    (libc::SYS_link, Meaning::Move(plain(0), plain(1))),
    (libc::SYS_chmod, Meaning::Change(plain(0))),
    (libc::SYS_chown, Meaning::Change(plain(0))),
    (libc::SYS_lchown, Meaning::Change(plain(0))),
    (libc::SYS_utime, Meaning::Change(plain(0))),
    (libc::SYS_utimes, Meaning::Change(plain(0))),
    (libc::SYS_futimesat, Meaning::Change(at(0))),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[(c_long, Meaning)] = &[];

pub(super) fn meaning(call: c_long) -> Option<Meaning> {
    let mut calls = CALLS.iter().chain(OLD_CALLS);
    calls.find_map(|(number, meaning)| (*number == call).then_some(*meaning))
}

/// The filter that reports these calls.
pub(super) fn program() -> Vec<sock_filter> {
    filter::reporting(CALLS.iter().chain(OLD_CALLS).map(|(number, _)| *number))
}
