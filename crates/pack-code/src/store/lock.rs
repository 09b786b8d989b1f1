//! The lock of the one writer. The kernel lets go of it when its process ends, however that was.

use std::fs::{File, OpenOptions};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::store::StoreError;

const FILE: &str = "lock";

/// Held while writing.
#[derive(Debug)]
pub(crate) struct WriterLock(
    #[expect(dead_code, reason = "it is the lock as long as it is open")] File,
);

impl WriterLock {
    /// Takes the lock, or says `None` when another writer has it.
    pub(crate) fn take(folder: &Path) -> Result<Option<Self>, StoreError> {
        let path = folder.join(FILE);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|error| StoreError::io(&path, error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(StoreError::io(path, errno.into())),
        }
    }
}
