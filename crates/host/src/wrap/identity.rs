//! The identity of a wrapped server in the ledger of tasks: a host resumes the tasks of a lost one only if both wrap
//! the same command, with the same arguments, in the same directory, with the same environment.
//!
//! Arguments and environments may hold secrets, so only a keyed digest of all of it is stored. The key is a file in
//! the state directory.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use mainstay_contract::trace::Hex;
use sha2::{Digest, Sha256};

use crate::config::ServerLaunch;
use crate::entropy;
use crate::files::{self, Links};
use crate::remote::{Remote, TokenSource};

/// The file with the key.
const KEY_FILE: &str = "key";
const KEY_BYTES: usize = 32;
/// Longest file with a credential.
const CREDENTIAL_BYTES: u64 = 64 * 1024;

/// Variables that differ from terminal to terminal and from start to start, so they do not count. A name that ends with
/// `*` stands for all that begin so.
pub(super) const IGNORED: [&str; 38] = [
    "_",
    "COLORTERM",
    "COLUMNS",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "GPG_AGENT_INFO",
    "GPG_TTY",
    "INVOCATION_ID",
    "ITERM_*",
    "JOURNAL_STREAM",
    "KITTY_*",
    "KONSOLE_*",
    "LC_TERMINAL*",
    "LINES",
    "LISTEN_*",
    "MAINPID",
    "MAINSTAY_*",
    "MANAGERPID",
    "NOTIFY_SOCKET",
    "OLDPWD",
    "PWD",
    "SHLVL",
    "SSH_*",
    "STY",
    "SYSTEMD_EXEC_PID",
    "TERM",
    "TERMINAL_EMULATOR",
    "TERM_*",
    "TMUX*",
    "VSCODE_*",
    "VTE_VERSION",
    "WAYLAND_DISPLAY",
    "WEZTERM_*",
    "WINDOW",
    "WINDOWID",
    "XAUTHORITY",
    "XDG_SESSION_*",
    "XDG_VTNR",
];

/// The identity of a server that inherits this environment. The key is made if it is missing.
pub(crate) fn identity(
    directory: &Path,
    launch: &ServerLaunch,
    inherited: &[(OsString, OsString)],
) -> io::Result<String> {
    let key = key(directory)?;
    let command = match launch {
        ServerLaunch::Process { command, .. } => command,
        ServerLaunch::Remote(remote) => {
            let words = remote.words();
            let words = words.iter().map(OsStr::new).collect();
            return Ok(digest(key, [words, Vec::new()]));
        }
    };
    let here = std::env::current_dir()?;
    let cwd = command
        .cwd
        .as_ref()
        .map_or(here.clone(), |cwd| here.join(cwd));
    let mut words: Vec<&OsStr> = vec![command.program.as_os_str(), cwd.as_os_str()];
    words.extend(command.arguments.iter().map(OsString::as_os_str));
    let mut environment: Vec<(&OsStr, &OsStr)> = inherited
        .iter()
        .filter(|(name, _)| {
            let is_withheld = command.without_env.iter().any(|other| *name == **other);
            let is_set = command.env.iter().any(|(set, _)| set == name);
            !is_withheld && !is_set && counts(name)
        })
        .chain(&command.env)
        .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
        .collect();
    environment.sort_unstable();
    let environment = environment
        .into_iter()
        .flat_map(|(name, value)| [name, value])
        .collect();
    Ok(digest(key, [words, environment]))
}

/// A keyed digest of the credentials for a remote server, as they are now. `None` if only a command has them.
pub(super) fn credentials(directory: &Path, remote: &Remote) -> io::Result<Option<String>> {
    let mut files = vec![remote.header_file.as_ref()];
    match &remote.token {
        Some(TokenSource::Command(_)) => return Ok(None),
        Some(TokenSource::File(path)) => files.push(Some(path)),
        // Its value is part of the identity.
        Some(TokenSource::Variable { .. }) | None => {}
    }
    let mut words = Vec::new();
    for path in files.into_iter().flatten() {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let (text, _) = files::read(path, CREDENTIAL_BYTES, Links::Follow).map_err(named)?;
        words.push(OsString::from_vec(text));
    }
    let words = words.iter().map(OsString::as_os_str).collect();
    Ok(Some(digest(key(directory)?, [words, Vec::new()])))
}

fn digest(key: [u8; KEY_BYTES], parts: [Vec<&OsStr>; 2]) -> String {
    let mut inner = Sha256::new_with_prefix(key);
    for part in parts {
        // Lengths keep the words apart.
        inner.update((part.len() as u64).to_be_bytes());
        for word in part {
            inner.update((word.len() as u64).to_be_bytes());
            inner.update(word.as_bytes());
        }
    }
    // The key on both sides: no digest can be extended.
    let outer = Sha256::new_with_prefix(key).chain_update(inner.finalize());
    let digest: [u8; 32] = outer.finalize().into();
    format!("server:{}", Hex(&digest))
}

/// True if a variable is part of the identity.
fn counts(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    !IGNORED
        .iter()
        .any(|ignored| match ignored.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == *ignored,
        })
}

fn key(directory: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let path = directory.join(KEY_FILE);
    if !path.exists() {
        make_key(directory, &path)?;
    }
    let mut key = [0; KEY_BYTES];
    fs::File::open(&path)
        .and_then(|mut file| file.read_exact(&mut key))
        .map_err(|error| files::named(&path, &error))?;
    Ok(key)
}

/// Makes the key, whole and once: of several hosts that start together one wins, and all read its key.
fn make_key(directory: &Path, path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| files::named(directory, &error))?;
    let halves = [entropy::random_id(), entropy::random_id()];
    let fresh = directory.join(format!("{KEY_FILE}.{}", Hex(&entropy::random_id())));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    let made = file
        .write_all(halves.as_flattened())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&fresh, path));
    fs::remove_file(&fresh)?;
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Command, Remote, TreeKill};

    fn command(arguments: &[&str], env: &[(&str, &str)]) -> Command {
        Command {
            program: "server".into(),
            called: None,
            arguments: arguments.iter().map(Into::into).collect(),
            without_env: vec!["MAINSTAY_TOKEN".to_owned()],
            env: env
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            secrets: Vec::new(),
            cwd: None,
            sandbox: None,
        }
    }

    fn environment(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    #[test]
    fn a_server_is_the_same_in_every_terminal_and_another_with_other_words() {
        let folder = std::env::temp_dir().join(format!("mainstay-identity-{}", std::process::id()));
        let of = |command: &Command, inherited: &[(&str, &str)]| {
            let launch = ServerLaunch::Process {
                command: command.clone(),
                tree_kill: TreeKill::Auto,
            };
            identity(&folder, &launch, &environment(inherited)).unwrap()
        };
        let plain = command(&["a"], &[]);
        let first = of(
            &plain,
            &[("HOME", "/h"), ("TERM", "xterm"), ("API_KEY", "s3cret")],
        );
        let elsewhere = of(
            &plain,
            &[
                ("API_KEY", "s3cret"),
                ("SSH_TTY", "/dev/pts/3"),
                ("MAINSTAY_LOG", "debug"),
                ("HOME", "/h"),
            ],
        );
        assert_eq!(first, elsewhere);
        let base = [("HOME", "/h"), ("API_KEY", "s3cret")];
        assert_eq!(first, of(&plain, &base));
        assert_ne!(first, of(&command(&["b"], &[]), &base), "other arguments");
        assert_ne!(first, of(&plain, &[("HOME", "/h"), ("API_KEY", "other")]));
        let set = command(&["a"], &[("API_KEY", "s3cret")]);
        assert_eq!(
            first,
            of(&set, &[("HOME", "/h"), ("API_KEY", "old")]),
            "as set"
        );
        let moved = Command {
            cwd: Some("/".into()),
            ..command(&["a"], &[])
        };
        assert_ne!(first, of(&moved, &base), "another directory");
        assert!(!first.contains("s3cret"));
        let at = |url: &str| {
            let remote = Remote::new(url).unwrap();
            identity(&folder, &ServerLaunch::Remote(remote.into()), &[]).unwrap()
        };
        assert_eq!(at("https://h/mcp"), at("https://h/mcp"));
        assert_ne!(at("https://h/mcp"), at("https://h/other"));
        fs::remove_file(folder.join(KEY_FILE)).unwrap();
        assert_ne!(first, of(&plain, &base), "another key");
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "nothing but the key"
        );
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_list_of_ignored_variables_is_the_documented_one() {
        let page = include_str!("../../../../docs/tasks.md");
        let (_, list) = page.split_once("do not count:").unwrap();
        let (list, _) = list.split_once('.').unwrap();
        let documented: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        assert_eq!(documented, IGNORED);
    }
}
