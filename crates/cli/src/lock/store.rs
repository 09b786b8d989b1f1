//! The file of a lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use mainstay_schema::lock::{Lock, LockError};

use crate::exit::Failure;

/// Largest file that is read.
const LARGEST: u64 = 64 * 1024 * 1024;

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
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::input(anyhow::Error::new(error).context(cannot())));
        }
    };
    let mut text = String::new();
    let read = file.take(LARGEST + 1).read_to_string(&mut text);
    let count = read.with_context(cannot).map_err(Failure::input)?;
    if u64::try_from(count).is_ok_and(|count| count > LARGEST) {
        let said = anyhow!("{} is larger than {LARGEST} bytes", path.display());
        return Err(Failure::input(said));
    }
    Ok(Some(text))
}

/// Replaces the content of a file at one stroke, unless it is the same already.
pub(crate) fn replace(path: &Path, text: &str) -> Result<bool, Failure> {
    if text_of(path)?.as_deref() == Some(text) {
        return Ok(false);
    }
    // The file that a link leads to is replaced, not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let draft = draft_of(path);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    if let Err(error) = write() {
        let _ = fs::remove_file(&draft);
        let said = format!("cannot write {}", path.display());
        return Err(Failure::input(anyhow::Error::new(error).context(said)));
    }
    Ok(true)
}

/// A name beside the file that nobody else uses.
fn draft_of(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.draft", std::process::id()));
    path.with_file_name(name)
}
