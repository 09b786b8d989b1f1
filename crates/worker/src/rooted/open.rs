//! Opening beneath a directory.
//!
//! Linux does it in one system call. Where that is missing, [`open_stepwise`] opens one component
//! after the other and follows no link at all: stricter, and still without a gap.

use std::borrow::Cow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::RootedError;

/// Times that the kernel may find the tree changing under its resolution.
#[cfg(target_os = "linux")]
const RETRIES: usize = 16;

/// An error that does not know its path yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenError {
    Escapes,
    Os(Errno),
}

impl OpenError {
    pub(super) fn at(self, path: PathBuf) -> RootedError {
        match self {
            // The kernel says XDEV for a way out and LOOP for too many links.
            Self::Escapes | Self::Os(Errno::XDEV | Errno::LOOP) => RootedError::Escapes,
            Self::Os(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => RootedError::NotFound,
            // Sockets and devices without a driver.
            Self::Os(Errno::NXIO | Errno::NODEV) => RootedError::NotAFile,
            Self::Os(errno) => RootedError::Io {
                path,
                source: errno.into(),
            },
        }
    }
}

/// Opens `relative` without leaving `root`.
pub(super) fn open_beneath(
    root: &OwnedFd,
    relative: &Path,
    flags: OFlags,
) -> Result<OwnedFd, OpenError> {
    let relative = plain(relative)?;
    let flags = flags | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    match open_at_once(root, &relative, flags) {
        // Old kernels do not have the call; old sandboxes forbid what they do not know.
        Err(OpenError::Os(Errno::NOSYS | Errno::PERM)) => {}
        opened => return opened,
    }
    open_stepwise(root, &relative, flags)
}

/// The path without `.`, if it is one that stays inside as far as its text goes.
fn plain(relative: &Path) -> Result<Cow<'_, Path>, OpenError> {
    let bytes = relative.as_os_str().as_encoded_bytes();
    if bytes.contains(&0) {
        return Err(OpenError::Escapes);
    }
    let mut names = bytes.split(|byte| *byte == b'/');
    if names.all(|name| !matches!(name, b"" | b"." | b"..")) {
        return Ok(Cow::Borrowed(relative));
    }
    let mut plain = PathBuf::new();
    for component in relative.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(OpenError::Escapes);
            }
        }
    }
    if plain.as_os_str().is_empty() {
        plain.push(".");
    }
    Ok(Cow::Owned(plain))
}

#[cfg(target_os = "linux")]
fn open_at_once(root: &OwnedFd, relative: &Path, flags: OFlags) -> Result<OwnedFd, OpenError> {
    use rustix::fs::{ResolveFlags, openat2};

    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut last = Errno::AGAIN;
    for _ in 0..RETRIES {
        match openat2(root, relative, flags, Mode::empty(), resolve) {
            Err(errno @ (Errno::AGAIN | Errno::INTR)) => last = errno,
            opened => return opened.map_err(OpenError::Os),
        }
    }
    Err(OpenError::Os(last))
}

/// Opens component by component, following no link.
pub(super) fn open_stepwise(
    root: &OwnedFd,
    relative: &Path,
    flags: OFlags,
) -> Result<OwnedFd, OpenError> {
    let step = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let mut at: Option<OwnedFd> = None;
    let mut components = relative.components().peekable();
    while let Some(component) = components.next() {
        let flags = if components.peek().is_some() {
            step
        } else {
            flags | OFlags::NOFOLLOW
        };
        let dir = at.as_ref().map_or(root.as_fd(), AsFd::as_fd);
        let opened = openat(dir, component.as_os_str(), flags, Mode::empty());
        at = Some(opened.map_err(OpenError::Os)?);
    }
    at.ok_or(OpenError::Os(Errno::NOENT))
}
