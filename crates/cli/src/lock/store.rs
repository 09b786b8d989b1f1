//! The file of a lock.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, anyhow};
use mainstay_host::files;
use mainstay_schema::lock::{Lock, LockError};

use crate::exit::Failure;
use crate::start;

/// Largest file that is read.
const LARGEST: u64 = 64 * 1024 * 1024;
/// Permissions of the file: a lock is checked in and read by everybody.
const MODE: u32 = 0o666;

/// Reads a lock that must be there.
pub(crate) fn read(path: &Path) -> Result<Lock, Failure> {
    read_if_there(path)?.ok_or_else(|| {
        Failure::input(anyhow!("there is no lock {}", path.display()))
            .hint("write it with mainstay lock write, or name another one")
    })
}

/// Reads a lock, if there is one.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<Lock>, Failure> {
    let Some(text) = text_of(path)? else {
        return Ok(None);
    };
    let hint = |error: &LockError| match error {
        LockError::NotJson(_) | LockError::NotALock => {
            "name another file with --file; this one is left as it is"
        }
        LockError::Version(_) => "read it with the version of mainstay that wrote it",
        _ => "restore it from version control, or remove it and run mainstay lock write",
    };
    match Lock::parse(&text) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) => {
            let hint = hint(&error);
            let error = anyhow::Error::new(error).context(path.display().to_string());
            Err(Failure::input(error).hint(hint))
        }
    }
}

/// Writes a lock, whole or not at all. Says whether anything changed.
pub(crate) fn write(path: &Path, lock: &Lock) -> Result<bool, Failure> {
    replace(path, &lock.to_text())
}

/// The text of a file, if there is one.
pub(crate) fn text_of(path: &Path) -> Result<Option<String>, Failure> {
    let cannot = || format!("cannot read {}", path.display());
    let read = match start::read(path, LARGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(cannot).map_err(Failure::input)?.bytes,
    };
    let text = String::from_utf8(read).with_context(cannot);
    text.map(Some).map_err(Failure::input)
}

/// Replaces the content of a file at one stroke, unless it is the same already.
pub(crate) fn replace(path: &Path, text: &str) -> Result<bool, Failure> {
    if text_of(path)?.as_deref() == Some(text) {
        return Ok(false);
    }
    // The file that a link leads to is replaced, not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    files::replace_durably(path, text.as_bytes(), MODE)
        .with_context(|| format!("cannot write {}", path.display()))
        .map_err(Failure::input)?;
    Ok(true)
}
