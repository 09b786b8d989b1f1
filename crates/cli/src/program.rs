//! Finding a server's program, as `execvp` does after a change to its folder: what cannot be
//! started is said now, not at every restart.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use rustix::fs::{Access, AtFlags, CWD};

use crate::environment::variable;
use crate::exit::Failure;

/// The search path where none is set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Where a program is looked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place<'a> {
    /// The folder in which it will run, if that is not ours.
    pub(crate) cwd: Option<&'a Path>,
    /// Its own search path, if it has one.
    pub(crate) path: Option<&'a OsStr>,
}

/// What is in the way of running a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    Absent,
    NoFile,
    NotExecutable,
}

/// The program as it will be started, along our own search path.
pub(crate) fn find(program: &OsStr) -> Result<PathBuf, Failure> {
    find_at(program, Place::default())
}

/// The program as it will be started in its place.
pub(crate) fn find_at(program: &OsStr, place: Place<'_>) -> Result<PathBuf, Failure> {
    if let Some(cwd) = place.cwd.filter(|cwd| !cwd.is_dir()) {
        let said = anyhow!("cwd is {}, and that is no folder", cwd.display());
        return Err(Failure::input(said).hint("set cwd to a folder that is there, or leave it out"));
    }
    let path = Path::new(program);
    if has_slash(program) {
        return match obstacle(path, place) {
            None => Ok(path.to_owned()),
            Some(obstacle) => Err(refused(path, place, obstacle)),
        };
    }
    let ours = variable("PATH").map(OsString::from);
    let folders = place.path.map(OsStr::to_owned).or(ours);
    let folders = folders.unwrap_or_else(|| DEFAULT_PATH.into());
    let mut near = None;
    for folder in std::env::split_paths(&folders).filter(|_| !program.is_empty()) {
        // A name without a slash would be looked for again.
        let here = Path::new(".");
        let folder = if folder.as_os_str().is_empty() {
            here
        } else {
            &folder
        };
        let candidate = folder.join(path);
        match obstacle(&candidate, place) {
            None => return Ok(candidate),
            Some(Obstacle::Absent) => {}
            Some(obstacle) => near = near.or(Some((candidate, obstacle))),
        }
    }
    match near {
        Some((candidate, obstacle)) => Err(refused(&candidate, place, obstacle)),
        None => Err(refused(path, place, Obstacle::Absent)),
    }
}

fn has_slash(program: &OsStr) -> bool {
    program.as_encoded_bytes().contains(&b'/')
}

fn obstacle(path: &Path, place: Place<'_>) -> Option<Obstacle> {
    let path = match place.cwd {
        Some(cwd) => cwd.join(path),
        None => path.to_owned(),
    };
    let Ok(facts) = std::fs::metadata(&path) else {
        return Some(Obstacle::Absent);
    };
    if !facts.is_file() {
        return Some(Obstacle::NoFile);
    }
    let may_run = rustix::fs::accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS);
    may_run.is_err().then_some(Obstacle::NotExecutable)
}

fn refused(path: &Path, place: Place<'_>, obstacle: Obstacle) -> Failure {
    let shown = path.display();
    let within = match place.cwd.filter(|_| path.is_relative()) {
        Some(cwd) if has_slash(path.as_os_str()) => format!(" in {}", cwd.display()),
        _ => String::new(),
    };
    let (said, hint) = match obstacle {
        Obstacle::Absent => (
            format!("there is no program {shown}{within}"),
            "give its whole path, or install it; the command is not read by a shell",
        ),
        Obstacle::NoFile => (
            format!("{shown}{within} is no program: it is no file"),
            "name the program itself",
        ),
        Obstacle::NotExecutable => (
            format!("{shown}{within} is no program: it may not be executed"),
            "make it executable with chmod +x, or name what runs it, as in python3 server.py",
        ),
    };
    Failure::input(anyhow!(said)).hint(hint)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use mainstay_testkit::process::TempDir;

    use super::*;

    fn file(path: &Path, mode: u32) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn said(result: Result<PathBuf, Failure>) -> String {
        let failure = result.unwrap_err();
        assert_eq!(failure.code, crate::exit::INPUT);
        format!("{:#} {}", failure.error, failure.hint.unwrap_or_default())
    }

    #[test]
    fn only_what_may_be_executed_counts_along_the_search_path() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        file(&at("p1/tool"), 0o644);
        std::fs::create_dir_all(at("p2/tool")).unwrap();
        file(&at("p3/tool"), 0o755);
        let path = std::env::join_paths([at("p1"), at("p2"), at("p3")]).unwrap();
        let place = Place {
            cwd: None,
            path: Some(&path),
        };
        assert_eq!(find_at("tool".as_ref(), place).unwrap(), at("p3/tool"));
        let path = std::env::join_paths([at("p1"), at("p2")]).unwrap();
        let place = Place {
            cwd: None,
            path: Some(&path),
        };
        assert!(said(find_at("tool".as_ref(), place)).contains("chmod +x"));
        assert!(said(find_at("".as_ref(), place)).contains("there is no program"));
    }

    #[test]
    fn relative_paths_begin_where_the_program_will_run() {
        let folder = TempDir::new().unwrap();
        file(&folder.path().join("bin/tool"), 0o755);
        let place = Place {
            cwd: Some(folder.path()),
            path: Some(OsStr::new("bin:")),
        };
        let found = |program: &str| find_at(program.as_ref(), place).unwrap();
        assert_eq!(found("./bin/tool"), Path::new("./bin/tool"));
        assert_eq!(found("tool"), Path::new("bin/tool"));
        let bin = folder.path().join("bin");
        let inside = Place {
            cwd: Some(&bin),
            path: Some(OsStr::new("")),
        };
        let found = find_at("tool".as_ref(), inside).unwrap();
        assert_eq!(found, Path::new("./tool"), "an empty part is the folder");
        assert!(find("./bin/tool".as_ref()).is_err(), "not in ours");
    }

    #[test]
    fn what_cannot_be_started_is_said_with_what_to_do() {
        assert!(said(find("/etc/passwd".as_ref())).contains("may not be executed"));
        assert!(said(find("/etc".as_ref())).contains("it is no file"));
        assert!(said(find("/nowhere/x".as_ref())).contains("there is no program /nowhere/x"));
        let place = Place {
            cwd: Some(Path::new("/nowhere")),
            path: None,
        };
        let said = said(find_at("sh".as_ref(), place));
        assert!(said.contains("cwd is /nowhere") && said.contains("set cwd"));
    }
}
