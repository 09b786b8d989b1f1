//! The files of a host's settings: its configuration, token, keys and lock.
//!
//! An upgrade in place does not change the settings, whatever became of the files since. So a host keeps what it read
//! at its start, and the program that continues it reads that instead. Later reads, at SIGHUP, are those of the
//! files as they are then.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use mainstay_host::files::{self, Links};
use mainstay_host::{SettingsFile, Start};

use crate::program;

/// The kernel's note behind the path of an executable that was replaced.
const DELETED: &str = " (deleted)";

/// Begins the path under which a secret is kept beside the files: no path of a file begins so.
const SECRET: &str = "\0secret:";

/// The start of a host that is under way.
static STARTING: Mutex<Option<Starting>> = Mutex::new(None);

#[derive(Debug, Default)]
struct Starting {
    files: Vec<SettingsFile>,
    /// The executable of the host that this program continues.
    continues: Option<OsString>,
}

fn starting<T>(change: impl FnOnce(&mut Option<Starting>) -> T) -> T {
    change(&mut STARTING.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A host starts: the files that it reads from now on are kept.
pub(crate) fn begin() {
    starting(|starting| {
        starting.get_or_insert_default();
    });
}

/// This program continues a host that read `files`.
pub(crate) fn resume(files: Vec<SettingsFile>, program: OsString) {
    let continues = Some(program);
    starting(|starting| *starting = Some(Starting { files, continues }));
}

/// The settings were read: their files, and the path of this executable.
pub(crate) fn finish(secrets: Vec<(OsString, OsString)>) -> Start {
    let Starting { files, continues } = starting(Option::take).unwrap_or_default();
    Start {
        secrets,
        files,
        program: continues.unwrap_or_else(|| executable().into_os_string()),
    }
}

/// True while a program starts that continues a host. Its settings were checked when the host was started, and a
/// directory that is missing since must not end it.
pub(crate) fn is_continuing() -> bool {
    starting(|starting| {
        let starting = starting.as_ref();
        starting.is_some_and(|starting| starting.continues.is_some())
    })
}

/// Reads a file of the settings of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<SettingsFile> {
    starting(|starting| {
        let kept = starting.as_ref().map(|starting| starting.files.iter());
        if let Some(file) = kept.and_then(|mut files| files.find(|file| file.path == path)) {
            return Ok(file.clone());
        }
        let (bytes, facts) = files::read(path, limit, Links::Follow)?;
        let file = SettingsFile {
            path: path.as_os_str().to_owned(),
            bytes,
            uid: facts.uid(),
            mode: facts.mode(),
        };
        if let Some(starting) = starting {
            starting.files.push(file.clone());
        }
        Ok(file)
    })
}

/// The value of a secret: the one that was read at the start, while a host starts.
pub(crate) fn secret(
    name: &str,
    read: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let path = OsString::from(format!("{SECRET}{name}"));
    let kept = starting(|starting| {
        let files = starting.as_ref().map(|starting| starting.files.iter());
        let file = files.and_then(|mut files| files.find(|file| file.path == path));
        file.and_then(|file| String::from_utf8(file.bytes.clone()).ok())
    });
    if let Some(value) = kept {
        return Ok(value);
    }
    let value = read()?;
    starting(|starting| {
        if let Some(starting) = starting {
            starting.files.push(SettingsFile {
                path,
                bytes: value.clone().into_bytes(),
                uid: 0,
                mode: 0,
            });
        }
    });
    Ok(value)
}

/// The path of the running executable as it was called, with the links in it; its own path if it was called by another
/// name.
pub(crate) fn executable() -> PathBuf {
    let id =
        |path: &Path| Some(std::fs::metadata(path).ok()?).map(|facts| (facts.dev(), facts.ino()));
    let own = id(Path::new("/proc/self/exe"));
    let is_own = |path: &PathBuf| own.is_some() && id(path) == own;
    let called = std::env::args_os().next().unwrap_or_default();
    let called = program::find(&called).ok();
    let called = called.and_then(|path| std::path::absolute(path).ok());
    if let Some(called) = called.filter(is_own) {
        return called;
    }
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let replaced = path.to_str().and_then(|text| text.strip_suffix(DELETED));
    match replaced {
        Some(replaced) if !is_own(&path) => replaced.into(),
        _ => path,
    }
}
