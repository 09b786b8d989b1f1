//! A root, and reading a file under it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};

use super::RootedError;
use super::open::open_beneath;

/// Bytes of one file unless told otherwise.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// A directory that may be read, held open.
#[derive(Debug)]
pub struct RootedDir {
    pub(super) fd: OwnedFd,
    path: PathBuf,
    max_file_bytes: u64,
}

impl RootedDir {
    /// Opens a root. Its own path may be anything, links included.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(&path, flags, Mode::empty())?;
        Ok(Self {
            fd,
            path,
            max_file_bytes: MAX_FILE_BYTES,
        })
    }

    /// Refuses files over `bytes`.
    #[must_use]
    pub const fn with_max_file_bytes(mut self, bytes: u64) -> Self {
        self.max_file_bytes = bytes;
        self
    }

    /// The root's own path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens one regular file for reading.
    pub fn open_file(&self, relative: impl AsRef<Path>) -> Result<File, RootedError> {
        let relative = relative.as_ref();
        // Without blocking, or opening a pipe would wait for its writer.
        let fd = open_beneath(&self.fd, relative, OFlags::RDONLY | OFlags::NONBLOCK)
            .map_err(|error| error.at(self.path.join(relative)))?;
        let stat = fstat(&fd).map_err(|error| self.failed(relative, error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(RootedError::NotAFile);
        }
        Ok(File::from(fd))
    }

    /// The bytes of one regular file.
    pub fn read(&self, relative: impl AsRef<Path>) -> Result<Vec<u8>, RootedError> {
        let relative = relative.as_ref();
        let file = self.open_file(relative)?;
        let failed = |source: io::Error| self.failed(relative, source);
        let too_large = RootedError::TooLarge {
            limit: self.max_file_bytes,
        };
        let size = file.metadata().map_err(failed)?.len();
        if size > self.max_file_bytes {
            return Err(too_large);
        }
        // It may grow while it is read; the bound holds all the same.
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        let mut bounded = file.take(self.max_file_bytes.saturating_add(1));
        let read = bounded.read_to_end(&mut bytes).map_err(failed)?;
        if read as u64 > self.max_file_bytes {
            Err(too_large)
        } else {
            Ok(bytes)
        }
    }

    fn failed(&self, relative: &Path, source: io::Error) -> RootedError {
        RootedError::Io {
            path: self.path.join(relative),
            source,
        }
    }
}
