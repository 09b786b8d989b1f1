//! The ready file: `<pid> <time>`, there while the host is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use crate::clock::iso_now;
use crate::files::{self, Links};

/// Permissions of the file: every user may wait for it.
const MODE: u32 = 0o644;
/// Longest file that is read.
const MAX_BYTES: u64 = 256;

/// A ready file that is ours; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct ReadyFile {
    path: PathBuf,
}

/// Result of writing the ready file.
#[derive(Debug)]
pub(crate) enum Written {
    Ours(ReadyFile),
    /// Another living host of this user owns it.
    LeftAlone {
        owner: i32,
    },
}

impl ReadyFile {
    /// The file that this process wrote before it executed this program.
    pub(crate) const fn written(path: PathBuf) -> Self {
        Self { path }
    }

    /// Writes the file, unless another living host of this user owns it.
    pub(crate) fn write(path: &Path) -> io::Result<Written> {
        let own = Pid::as_raw(Some(rustix::process::getpid()));
        if let Some(owner) = owner(path)
            && owner != own
            && is_host(owner)
        {
            return Ok(Written::LeftAlone { owner });
        }
        let line = format!("{own} {}\n", iso_now());
        files::replace(path, line.as_bytes(), MODE)?;
        Ok(Written::Ours(Self {
            path: path.to_owned(),
        }))
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        if owner(&self.path) == Some(Pid::as_raw(Some(rustix::process::getpid()))) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The process that the file names. Another user's file names none: it could name any process.
fn owner(path: &Path) -> Option<i32> {
    let (text, facts) = files::read(path, MAX_BYTES, Links::Reject).ok()?;
    if facts.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let text = std::str::from_utf8(&text).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// True for a living process with the name of this one. The number of a host that was killed may belong to any
/// other process by now.
fn is_host(pid: i32) -> bool {
    let name = |pid: i32| fs::read(format!("/proc/{pid}/comm")).ok();
    let own = Pid::as_raw(Some(rustix::process::getpid()));
    name(pid).is_some_and(|other| Some(other) == name(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary() -> PathBuf {
        let name = format!(
            "mainstay-ready-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        std::env::temp_dir().join(name)
    }

    #[test]
    fn it_names_the_process_and_goes_with_it() {
        let path = temporary();
        let Written::Ours(file) = ReadyFile::write(&path).unwrap() else {
            panic!("not ours")
        };
        let text = fs::read_to_string(&path).unwrap();
        let (pid, time) = text.trim_end().split_once(' ').unwrap();
        assert_eq!(pid, std::process::id().to_string());
        assert!(time.ends_with('Z') && text.ends_with('\n'));
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_living_owner_keeps_it_and_a_dead_one_does_not() {
        let path = temporary().with_extension("owned");
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        let folder = path.with_extension("host");
        fs::create_dir(&folder).unwrap();
        let program = folder.join(own.trim_end());
        fs::copy("/bin/sleep", &program).unwrap();
        let mut host = std::process::Command::new(&program)
            .arg("600")
            .spawn()
            .unwrap();
        fs::write(&path, format!("{} 2020-01-01T00:00:00Z\n", host.id())).unwrap();
        let written = ReadyFile::write(&path).unwrap();
        host.kill().unwrap();
        host.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(written, Written::LeftAlone { .. }));
        // The number of a dead host may belong to another program.
        fs::write(&path, "1 2020-01-01T00:00:00Z\n").unwrap();
        assert!(matches!(ReadyFile::write(&path).unwrap(), Written::Ours(_)));
        fs::write(&path, "2147483000 2020-01-01T00:00:00Z\n").unwrap();
        let Written::Ours(file) = ReadyFile::write(&path).unwrap() else {
            panic!("not ours")
        };
        fs::write(&path, "1 2020-01-01T00:00:00Z\n").unwrap();
        drop(file);
        assert!(path.exists(), "it is somebody else's by now");
        fs::remove_file(&path).unwrap();
    }
}
