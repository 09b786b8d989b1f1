//! The Unix socket: private from its birth, never stolen from a living host, replaced when stale.
//!
//! Theory of operation. A host binds and listens under a random name, then links the socket to its path, which
//! fails if the path exists. So a path always names a socket that its host listens on, and a refused connection
//! means that the host is gone. A stale socket is renamed before it is removed: of two hosts that find the
//! same one only one gets it. There is no lock that another process could hold.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::net::UnixListener;

use crate::entropy;
use crate::upgrade::{Incoming, Outgoing, Place};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Stale sockets that are removed from one path; each further one comes from a host that died meanwhile.
const STALE: usize = 8;

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

/// A [`Bound`], as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedBound {
    listener: Place,
    path: PathBuf,
    identity: (u64, u64),
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
        let too_long = |_| BindError::TooLong(path.to_owned());
        SocketAddrUnix::new(path).map_err(too_long)?;
        let draft = beside(path);
        let address = SocketAddrUnix::new(&draft).map_err(too_long)?;
        let bound = listen(&address, &draft, mode).and_then(|socket| {
            let facts = rustix::fs::lstat(&draft)?;
            Ok((StdListener::from(socket), (facts.st_dev, facts.st_ino)))
        });
        let placed = bound.map_err(failed).and_then(|(listener, identity)| {
            place(&draft, path)?;
            Ok(Self {
                listener: UnixListener::from_std(listener).map_err(failed)?,
                path: path.to_owned(),
                identity,
            })
        });
        let _ = std::fs::remove_file(&draft);
        placed
    }

    /// The listener, for a process that continues in this one's place.
    pub(crate) fn save<'a>(&'a self, descriptors: &mut Outgoing<'a>) -> SavedBound {
        SavedBound {
            listener: descriptors.add(self.listener.as_fd()),
            path: self.path.clone(),
            identity: self.identity,
        }
    }

    pub(crate) fn restore(saved: SavedBound, descriptors: &mut Incoming) -> io::Result<Self> {
        let listener = StdListener::from(descriptors.take(saved.listener)?);
        Ok(Self {
            listener: UnixListener::from_std(listener)?,
            path: saved.path,
            identity: saved.identity,
        })
    }

    /// Waits for a client and says which user it is.
    pub(crate) async fn accept(&self) -> io::Result<(OwnedFd, u32)> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred()?.uid();
        Ok((stream.into_std()?.into(), uid))
    }

    /// Waits for a client and says which process of which user it is; the process is `None` if it is not visible
    /// here.
    pub(crate) async fn accept_from(&self) -> io::Result<(OwnedFd, u32, Option<Pid>)> {
        let (stream, _) = self.listener.accept().await?;
        let peer = stream.peer_cred()?;
        let pid = peer.pid().and_then(Pid::from_raw);
        Ok((stream.into_std()?.into(), peer.uid(), pid))
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

/// A socket that listens at `address`, which is the path `draft`.
fn listen(address: &SocketAddrUnix, draft: &Path, mode: u32) -> io::Result<OwnedFd> {
    let socket = open()?;
    // Before the bind, so that there is no moment at a wider mode.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    rustix::net::bind(&socket, address)?;
    // The umask may have narrowed what was asked for.
    rustix::fs::chmod(draft, Mode::from_raw_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(socket)
}

/// Gives a socket its path.
fn place(draft: &Path, path: &Path) -> Result<(), BindError> {
    for _ in 0..STALE {
        match std::fs::hard_link(draft, path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => remove_stale(path)?,
            // A file system without links; here two hosts could still take the path from each other.
            Err(_) if path.symlink_metadata().is_err() && std::fs::rename(draft, path).is_ok() => {
                return Ok(());
            }
            Err(source) => {
                let path = path.to_owned();
                return Err(BindError::Io { path, source });
            }
        }
    }
    Err(BindError::InUse(path.to_owned()))
}

fn remove_stale(path: &Path) -> Result<(), BindError> {
    let failed = |source: io::Error| BindError::Io {
        path: path.to_owned(),
        source,
    };
    let in_use = || BindError::InUse(path.to_owned());
    let facts = match rustix::fs::lstat(path) {
        Ok(facts) => facts,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed(error.into())),
    };
    if FileType::from_raw_mode(facts.st_mode) != FileType::Socket {
        return Err(BindError::NotASocket(path.to_owned()));
    }
    let address = SocketAddrUnix::new(path).map_err(|error| failed(error.into()))?;
    // Any other answer, such as a full backlog or a lack of permission, comes from a living host.
    if rustix::net::connect(open().map_err(failed)?, &address) != Err(Errno::CONNREFUSED) {
        return Err(in_use());
    }
    let stale = beside(path);
    match std::fs::rename(path, &stale) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        moved => moved.map_err(failed)?,
    }
    let is_stale = rustix::fs::lstat(&stale)
        .is_ok_and(|now| (now.st_dev, now.st_ino) == (facts.st_dev, facts.st_ino));
    // Another host was faster, and this is its socket.
    let restored = is_stale || std::fs::hard_link(&stale, path).is_ok();
    let _ = std::fs::remove_file(&stale);
    if is_stale || !restored {
        Ok(())
    } else {
        Err(in_use())
    }
}

/// A short random name in the same directory.
fn beside(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{:08x}", entropy::random() >> 32))
}
