//! Directories that a pack may read, and nothing beside them.
//!
//! [`RootedDir`] opens files by paths relative to a root that it holds open. No path leads out: an
//! absolute path, `..`, or a symbolic link that leaves the root is [`RootedError::Escapes`], and
//! the kernel resolves every path beneath the root in one step (`openat2`), without a moment
//! between a check and a use. Only regular files are read, and up to a bound.
//!
//! Deliberately absent: writing.

mod dir;
mod list;
mod open;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

pub use self::dir::RootedDir;
pub use self::list::{Entry, Survey};

/// Why something under a root cannot be read.
#[derive(Debug, Error)]
pub enum RootedError {
    /// The path is absolute, has `..`, is not a path at all, or leads out by a link.
    #[error("the path leaves its root")]
    Escapes,
    #[error("the file does not exist")]
    NotFound,
    /// A directory, a pipe, a socket or a device.
    #[error("it is not a regular file")]
    NotAFile,
    /// Larger, or with more entries, than the limit.
    #[error("it is over the limit of {limit}")]
    TooLarge { limit: u64 },
    #[error("cannot read {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}
