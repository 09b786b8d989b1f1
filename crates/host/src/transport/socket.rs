//! The Unix socket: private from its birth, never stolen from a living host, replaced when stale.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;
use tokio::net::UnixListener;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Why a socket cannot be had.
#[derive(Debug, Error)]
pub enum BindError {
    #[error("another host listens on {}", .0.display())]
    InUse(PathBuf),
    #[error("{} is not a socket; it was left as it is", .0.display())]
    NotASocket(PathBuf),
    #[error("the path {} is too long for a socket", .0.display())]
    TooLong(PathBuf),
    #[error("cannot listen on {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// A bound socket; its file goes with it.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file that we made.
    identity: (u64, u64),
}

impl Bound {
    /// Binds `path` with exactly the permissions of `mode`.
    pub(crate) fn bind(path: &Path, mode: u32) -> Result<Self, BindError> {
        let failed = |source: io::Error| BindError::Io {
            path: path.to_owned(),
            source,
        };
        let address = SocketAddrUnix::new(path).map_err(|_| BindError::TooLong(path.to_owned()))?;
        // Two hosts that find the same stale socket must not remove each other's new one. The
        // lock on the folder leaves no file behind.
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let lock = rustix::fs::open(folder, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| failed(error.into()))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| failed(error.into()))?;
        remove_stale(path)?;
        let bound = || -> io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // Before the bind, so that there is no moment at a wider mode.
            rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
            rustix::net::bind(&socket, &address)?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        let socket = bound().map_err(failed)?;
        // The umask may have narrowed what was asked for.
        rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(|error| failed(error.into()))?;
        let facts = rustix::fs::lstat(path).map_err(|error| failed(error.into()))?;
        let listener = UnixListener::from_std(StdListener::from(socket)).map_err(failed)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            identity: (facts.st_dev, facts.st_ino),
        })
    }

    /// Waits for a client.
    pub(crate) async fn accept(&self) -> io::Result<OwnedFd> {
        let (stream, _) = self.listener.accept().await?;
        Ok(stream.into_std()?.into())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let is_ours = rustix::fs::lstat(&self.path)
            .is_ok_and(|facts| (facts.st_dev, facts.st_ino) == self.identity);
        if is_ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn remove_stale(path: &Path) -> Result<(), BindError> {
    let failed = |source: io::Error| BindError::Io {
        path: path.to_owned(),
        source,
    };
    let facts = match rustix::fs::lstat(path) {
        Ok(facts) => facts,
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed(error.into())),
    };
    if FileType::from_raw_mode(facts.st_mode) != FileType::Socket {
        return Err(BindError::NotASocket(path.to_owned()));
    }
    match StdStream::connect(path) {
        Ok(_) => Err(BindError::InUse(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)
        }
        // A full backlog or a lack of permission: somebody is there.
        Err(_) => Err(BindError::InUse(path.to_owned())),
    }
}
