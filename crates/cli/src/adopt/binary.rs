//! Which mainstay a client is to start, and whether a server's own program can be found.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use super::servers::is_mainstay;
use crate::environment::variable;
use crate::exit::Failure;
use crate::program;

/// What is written as the command: the named program, else this one.
pub(crate) fn choose(named: Option<&Path>) -> Result<String, Failure> {
    let path = match named {
        Some(named) => check_named(named)?,
        None => own()?,
    };
    let Some(text) = path.to_str() else {
        let shown = path.display();
        return Err(Failure::input(anyhow!("the path {shown} is not text"))
            .hint("a configuration file cannot hold it; install mainstay elsewhere"));
    };
    Ok(text.to_owned())
}

fn check_named(named: &Path) -> Result<PathBuf, Failure> {
    let shown = named.display();
    if !named.to_str().is_some_and(is_mainstay) {
        return Err(Failure::input(anyhow!("{shown} is not called mainstay"))
            .hint("its name must begin with mainstay, or --undo could not tell whose work it is"));
    }
    // A bare name is for a file that people share: each client finds it on its own search path.
    if named.components().count() == 1 && named.parent() == Some(Path::new("")) {
        program::find(named.as_os_str())?;
        return Ok(named.to_owned());
    }
    let runs = std::fs::metadata(named)
        .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0);
    if !runs {
        return Err(Failure::input(anyhow!("{shown} is not a program"))
            .hint("give the path of an installed mainstay"));
    }
    std::path::absolute(named)
        .with_context(|| format!("cannot find {shown}"))
        .map_err(Failure::input)
}

/// This program, by the name under which the search path has it: a package manager replaces what
/// is behind that name, and keeps the name.
fn own() -> Result<PathBuf, Failure> {
    let running = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .context("cannot find the running program")
        .map_err(|error| Failure::input(error).hint("name it with --binary"))?;
    let folders = variable("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&folders)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("mainstay"))
        .find(|path| path.canonicalize().is_ok_and(|path| path == running));
    let path = installed.unwrap_or(running);
    if is_build_output(&path) {
        let shown = path.display();
        return Err(Failure::input(anyhow!(
            "{shown} is in a build folder, which may go at any time"
        ))
        .hint(
            "install it with cargo install --path crates/cli and use that one, or name one \
                 with --binary",
        ));
    }
    Ok(path)
}

/// Whether a path lies where cargo builds.
fn is_build_output(path: &Path) -> bool {
    let beside = path.parent().is_some_and(|folder| {
        folder.join(".fingerprint").is_dir() || folder.join(".cargo-lock").exists()
    });
    beside
        || path
            .ancestors()
            .any(|folder| folder.join("CACHEDIR.TAG").is_file())
}

/// What to tell about a server's program that cannot be found now. What only the client can fill
/// in, and places that only it knows, are not looked at.
pub(super) fn missing(program: &str, cwd: Option<&str>, own_path: bool) -> Option<String> {
    if program.contains("${") || program.starts_with('~') {
        return None;
    }
    let path = Path::new(program);
    let found = if path.is_absolute() {
        path.is_file()
    } else if path.components().count() > 1 {
        let cwd = Path::new(cwd?);
        !cwd.is_absolute() || cwd.join(path).is_file()
    } else {
        own_path || program::find(path.as_os_str()).is_ok()
    };
    if found {
        return None;
    }
    Some(format!(
        "there is no program {program:?} here now; its client must find it as before"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_that_could_be_found_are_missed() {
        assert_eq!(missing("${HOME}/server", None, false), None);
        assert_eq!(missing("~/server", None, false), None);
        assert_eq!(missing("./server", None, false), None, "from where?");
        assert_eq!(missing("sh", None, false), None);
        assert_eq!(missing("no-such-server", None, true), None, "its own PATH");
        assert!(missing("no-such-server", None, false).is_some());
        assert!(missing("/nowhere/server", None, true).is_some());
        assert!(missing("bin/server", Some("/nowhere"), false).is_some());
        assert!(missing("npx -y server", None, false).is_some());
    }
}
