//! A file of lines to which several processes append. The process that finds it full rotates it.
//!
//! Theory of operation. A process that appends or rotates holds an exclusive lock (`flock`) on the file
//! that the path names; having got it, it checks that the path still names that file, since it
//! may have been rotated while the lock was awaited, and else opens the new one and begins again.
//! So at any time one process at most appends to the current file or moves files about, the
//! older ones are never written again, and no line is lost, doubled or torn. A write that is cut
//! short by a full disk is taken back under the same lock. Only a process that is killed in the
//! middle of a write leaves half a line; the next one ends it with a line break.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Times that a rotated file is opened anew before a write is given up: each time means that
/// others filled a whole file in between.
const REOPENINGS: usize = 100;

/// Time for other hosts to finish a write, and pause between two attempts.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// The file, opened.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    /// `None` until the first line is written, in a host that continues another program.
    file: Option<File>,
    /// Size past which it is rotated.
    max_bytes: u64,
    /// Files that are kept, this one included.
    files: usize,
}

impl EventFile {
    /// Opens the file, which is made if it is not there.
    pub(super) fn open(path: &Path, max_bytes: u64, files: usize) -> io::Result<Self> {
        let file = open(path)?;
        // Another process may hold it now; but where there are no locks, say so at the start.
        match file.try_lock() {
            Ok(()) => file.unlock()?,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(Self {
            file: Some(file),
            ..Self::later(path, max_bytes, files)
        })
    }

    /// As [`Self::open`], but the file is opened when the first line is written.
    pub(super) fn later(path: &Path, max_bytes: u64, files: usize) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            max_bytes,
            files,
        }
    }

    /// Appends whole lines: all of them, or none and an error.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        for _ in 0..REOPENINGS {
            let file = match self.file.take() {
                Some(file) => file,
                None => open(&self.path)?,
            };
            let appended = Self::lock(&file).and_then(|()| {
                let appended = self.append_locked(&file, lines);
                let _ = file.unlock();
                appended
            });
            // Another file has its path now.
            if matches!(appended, Ok(false)) {
                continue;
            }
            self.file = Some(file);
            return appended.map(drop);
        }
        let said = "it is rotated faster than it can be opened";
        Err(io::Error::new(io::ErrorKind::ResourceBusy, said))
    }

    /// Takes the lock, which another process may hold for as long as it likes: not for long.
    fn lock(file: &File) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                    let said = "another process holds its lock";
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, said));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Appends if the locked file is the current one and has room; else it is no longer current.
    fn append_locked(&self, mut file: &File, lines: &[u8]) -> io::Result<bool> {
        let facts = file.metadata()?;
        if !self.is_current(&facts)? {
            return Ok(false);
        }
        let size = facts.len();
        if size > 0 && size.saturating_add(lines.len() as u64) > self.max_bytes {
            self.rotate()?;
            return Ok(false);
        }
        let written = if ends_in_half_a_line(file, size) {
            let ended = [b"\n", lines].concat();
            file.write_all(&ended)
        } else {
            file.write_all(lines)
        };
        if let Err(error) = written {
            // Other processes append only after we have unlocked it: no line of theirs is cut.
            let _ = file.set_len(size);
            return Err(error);
        }
        Ok(true)
    }

    fn is_current(&self, facts: &fs::Metadata) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (facts.dev(), facts.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Moves the current file out of the way, as its last step: until then no other process rotates.
    fn rotate(&self) -> io::Result<()> {
        for age in (1..self.files).rev() {
            let from = self.aged(age - 1);
            match fs::rename(&from, self.aged(age)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved?,
            }
        }
        Ok(())
    }

    /// The path of an older file; age 0 is the current one.
    fn aged(&self, age: usize) -> PathBuf {
        if age == 0 {
            return self.path.clone();
        }
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{age}"));
        name.into()
    }
}

fn ends_in_half_a_line(file: &File, size: u64) -> bool {
    let mut last = [0];
    size > 0 && file.read_exact_at(&mut last, size - 1).is_ok() && last != *b"\n"
}

fn open(path: &Path) -> io::Result<File> {
    // Another user may have planted a link to a file of ours.
    let planted = |facts: &fs::Metadata| {
        let ours = [rustix::process::geteuid().as_raw(), 0];
        facts.is_symlink() && !ours.contains(&facts.uid())
    };
    if fs::symlink_metadata(path).is_ok_and(|facts| planted(&facts)) {
        let said = "it is a link of another user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, said));
    }
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
