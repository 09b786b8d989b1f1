//! The index on disk: immutable tables and segments, and the manifest that names the current ones.
//!
//! One folder per repository holds `manifest` (swapped by rename), `lock` (held by the one
//! writer), `job` (what the writer does) and the files of the segments. A reader opens the manifest
//! and the files it names and keeps them open, so what a writer removes later does not matter to
//! it. Nothing is synced to the disk: a process that is killed loses nothing, and after a power cut
//! the checksums tell.

pub(crate) mod chunk;
pub(crate) mod codec;
pub(crate) mod docs;
pub(crate) mod job;
pub(crate) mod lock;
pub(crate) mod manifest;
pub(crate) mod merge;
pub(crate) mod segment;
pub(crate) mod side;
pub(crate) mod table;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Version of everything in the folder. Another version is built anew, never read.
pub(crate) const FORMAT: u32 = 7;

/// Creates a file of an index. One that is there is replaced and never written to: other indexes
/// may have it by a link.
pub(crate) fn create(path: &Path) -> Result<File, StoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(StoreError::io(path, error));
        }
        _ => {}
    }
    File::create_new(path).map_err(|error| StoreError::io(path, error))
}

/// Why an index cannot be read or written.
#[derive(Debug, Error)]
pub(crate) enum StoreError {
    #[error("cannot access {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is damaged: {what}", path.display())]
    Corrupt { path: PathBuf, what: &'static str },
    /// The work was stopped on request.
    #[error("stopped")]
    Stopped,
}

impl StoreError {
    pub(crate) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io {
            path: path.into(),
            source,
        }
    }

    /// The same about a file that the manifest names: one that is missing is damage like any other.
    pub(crate) fn of_named_file(self) -> Self {
        match self {
            Self::Io { path, source } if source.kind() == io::ErrorKind::NotFound => {
                Self::corrupt(path, "the file is missing")
            }
            other => other,
        }
    }

    pub(crate) fn corrupt(path: impl Into<PathBuf>, what: &'static str) -> Self {
        Self::Corrupt {
            path: path.into(),
            what,
        }
    }
}
