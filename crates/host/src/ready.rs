//! The ready file: `<pid> <time>`, there while the host is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use crate::clock::iso_now;

/// A ready file that is ours; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct ReadyFile {
    path: PathBuf,
}

/// What became of the ready file.
#[derive(Debug)]
pub(crate) enum Written {
    Ours(ReadyFile),
    /// Another host that is alive owns it.
    LeftAlone {
        owner: i32,
    },
}

impl ReadyFile {
    /// Writes the file, unless another living host owns it.
    pub(crate) fn write(path: &Path) -> io::Result<Written> {
        if let Some(owner) = owner(path)
            && owner != Pid::as_raw(Some(rustix::process::getpid()))
            && is_alive(owner)
        {
            return Ok(Written::LeftAlone { owner });
        }
        let pid = std::process::id();
        // Renamed into place, so that nobody reads half of it.
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{pid}.tmp"));
        let temporary = path.with_file_name(name);
        let line = format!("{pid} {}\n", iso_now());
        fs::write(&temporary, line)?;
        if let Err(error) = fs::rename(&temporary, path) {
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
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

fn owner(path: &Path) -> Option<i32> {
    let is_file = fs::symlink_metadata(path).is_ok_and(|facts| facts.is_file());
    let text = if is_file {
        fs::read_to_string(path).ok()?
    } else {
        return None;
    };
    text.split_whitespace().next()?.parse().ok()
}

fn is_alive(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else {
        return false;
    };
    match rustix::process::test_kill_process(pid) {
        Ok(()) => true,
        Err(error) => error == rustix::io::Errno::PERM,
    }
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
        fs::write(&path, "1 2020-01-01T00:00:00Z\n").unwrap();
        assert!(matches!(
            ReadyFile::write(&path).unwrap(),
            Written::LeftAlone { owner: 1 }
        ));
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
