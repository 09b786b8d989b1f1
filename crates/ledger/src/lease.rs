//! The lease of a host: a locked file that is free again once the host and all its workers are gone.
//!
//! The lock belongs to the open file, not to a process. The host gives a duplicate of its descriptor to the
//! shim of every worker, so a host that was killed is called dead only when the trees of its workers are dead,
//! too. No heartbeat is written, and no clock decides.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// The name of a host in the ledger: random, so that no two hosts share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder(String);

impl LeaseHolder {
    pub fn from_random(bits: [u8; 16]) -> Self {
        Self(format!("{:032x}", u128::from_be_bytes(bits)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A host's own lease. Dropping it frees the lock once no worker has a duplicate; the next host removes the file.
#[derive(Debug)]
pub struct Lease {
    holder: LeaseHolder,
    file: File,
}

impl Lease {
    /// Takes a new lease in this directory, which is made if it is missing.
    pub fn take(directory: &Path, holder: LeaseHolder) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory)?;
        let path = path_of(directory, holder.as_str());
        remove_free(directory);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        // Another host may have taken the file for one that was left behind before it was locked.
        if file.metadata()?.nlink() == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(Self { holder, file })
    }

    pub const fn holder(&self) -> &LeaseHolder {
        &self.holder
    }

    /// The lease behind a descriptor that was handed over by another program of the same host.
    pub fn restore(holder: String, lease: OwnedFd) -> Self {
        Self {
            holder: LeaseHolder(holder),
            file: lease.into(),
        }
    }

    /// A descriptor that holds the lease, too.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }
}

impl AsFd for Lease {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A place for a lease that the host cannot take before it starts workers. A process with a descriptor of the slot
/// holds the lease from the moment in which it is put there: a descriptor that was sent to a socket and not received
/// stays open until the socket is closed.
#[derive(Debug)]
pub struct LeaseSlot {
    sender: OwnedFd,
    receiver: OwnedFd,
}

impl LeaseSlot {
    pub fn new() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let (sender, receiver) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok(Self { sender, receiver })
    }

    /// The slot behind descriptors that were handed over by another program of the same host.
    pub const fn restore(sender: OwnedFd, receiver: OwnedFd) -> Self {
        Self { sender, receiver }
    }

    /// Both ends, for a program that continues this host.
    pub fn ends(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.sender.as_fd(), self.receiver.as_fd())
    }

    /// A descriptor that holds the lease once it is in the slot.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.receiver.try_clone()
    }

    /// Puts the lease into the slot.
    pub fn put(&self, lease: &Lease) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [lease.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::other("the descriptor does not fit"));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.sender, &[IoSlice::new(b"L")], &mut control, flags)?;
        Ok(())
    }
}

/// True if no process holds the lease of this host. Its file is removed then.
pub(crate) fn is_dead(directory: &Path, holder: &str) -> bool {
    let path = path_of(directory, holder);
    let is_dead = is_free(&path);
    if is_dead {
        let _ = std::fs::remove_file(&path);
    }
    is_dead
}

/// True if a process holds the lease of this host.
pub fn is_held(directory: &Path, holder: &str) -> bool {
    !is_free(&path_of(directory, holder))
}

/// Removes the leases that killed hosts have left.
fn remove_free(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_lease = path
            .extension()
            .is_some_and(|extension| extension == "lease");
        if is_lease && let Ok(file) = File::open(&path) {
            // Removed under the lock, so that its host, if it is just starting, notices.
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}

fn is_free(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn path_of(directory: &Path, holder: &str) -> PathBuf {
    directory.join(format!("{holder}.lease"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("lease-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn a_lease_ends_with_the_last_descriptor_that_holds_it() {
        let directory = scratch("last");
        let lease = Lease::take(&directory, LeaseHolder::from_random([7; 16])).unwrap();
        let holder = lease.holder().as_str().to_owned();
        assert!(!is_dead(&directory, &holder));
        let of_a_worker = lease.share().unwrap();
        drop(lease);
        assert!(!is_dead(&directory, &holder), "a worker of it lives");
        drop(of_a_worker);
        assert!(is_dead(&directory, &holder));
        assert!(is_dead(&directory, &holder), "it has no file any more");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_slot_holds_the_lease_that_is_put_there_later() {
        let directory = scratch("slot");
        let slot = LeaseSlot::new().unwrap();
        let of_a_worker = slot.share().unwrap();
        let lease = Lease::take(&directory, LeaseHolder::from_random([7; 16])).unwrap();
        slot.put(&lease).unwrap();
        let holder = lease.holder().as_str().to_owned();
        drop((lease, slot));
        assert!(!is_dead(&directory, &holder), "a worker of it lives");
        drop(of_a_worker);
        assert!(is_dead(&directory, &holder));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn no_two_hosts_take_one_lease() {
        let directory = scratch("twice");
        let _first = Lease::take(&directory, LeaseHolder::from_random([1; 16])).unwrap();
        Lease::take(&directory, LeaseHolder::from_random([1; 16])).unwrap_err();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
