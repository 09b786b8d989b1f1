//! The catalogs of servers in earlier runs, in files.
//!
//! A server that takes long to start would make its clients wait for the handshake. So the core keeps the server's
//! catalog, and this file stores it for the next run. The name of a file is a keyed digest of the server's command, its
//! arguments, its directory, its environment and the build of the host ([`identity`](super::identity)): another
//! environment is another server. For a server at a URL the content of the files with its credentials counts, too;
//! where a command has them, nothing is kept. Files are private to the user; the host ignores one that is
//! damaged, too large, too old or belongs to another user. A file that cannot be read or written never keeps the host
//! from serving.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mainstay_contract::json::Json;
use mainstay_kernel::server::{Discovered, ServerMemory};
use mainstay_schema::Fingerprint;
use serde_json::json;

use super::identity::{credentials, identity};
use crate::clock::wall_ms;
use crate::config::ServerLaunch;
use crate::files::{self, Links};
use crate::log::{Level, Log};
use crate::remote::Remote;

/// The folder below the cache directory.
const FOLDER: &str = "wrapped";
/// Largest file that is read or written.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
/// Files that are kept; the oldest ones are removed.
const MAX_FILES: usize = 256;
/// An older file is ignored: the server may have changed in every way.
const MAX_AGE: Duration = Duration::from_secs(30 * 86_400);

/// The files of the servers of a host, by the keys of the servers.
#[derive(Debug)]
pub(crate) struct MemoryFiles {
    folder: Option<PathBuf>,
    environment: Vec<(OsString, OsString)>,
    build: String,
    files: BTreeMap<String, MemoryFile>,
}

/// The file of one server.
#[derive(Clone, Debug)]
pub(crate) struct MemoryFile {
    path: PathBuf,
    /// The server, if its credentials may change while the host runs, and their digest in the beginning.
    remote: Option<(Arc<Remote>, String)>,
}

impl MemoryFiles {
    /// Without a cache directory nothing is kept.
    pub(crate) fn new(
        cache_dir: Option<&Path>,
        environment: Vec<(OsString, OsString)>,
        build: &str,
    ) -> Self {
        Self {
            folder: cache_dir.map(|cache_dir| cache_dir.join(FOLDER)),
            environment,
            build: build.to_owned(),
            files: BTreeMap::new(),
        }
    }

    /// Finds the file of a server, and reads it.
    pub(crate) fn open(&mut self, key: &str, launch: &ServerLaunch, log: &Log) -> ServerMemory {
        self.files.remove(key);
        let Some(folder) = &self.folder else {
            return ServerMemory::default();
        };
        let file = match self.file(folder, launch) {
            Ok(Some(file)) => file,
            Ok(None) => return ServerMemory::default(),
            Err(error) => {
                warn(log, folder, &error);
                return ServerMemory::default();
            }
        };
        let memory = file.read().unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                warn(log, &file.path, &error);
            }
            ServerMemory::default()
        });
        self.files.insert(key.to_owned(), file);
        memory
    }

    /// The file for a server with its present credentials. `None` if nothing may be kept.
    fn file(&self, folder: &Path, launch: &ServerLaunch) -> io::Result<Option<MemoryFile>> {
        files::create_own(folder)?;
        let identity = identity(folder, launch, &self.environment)?;
        let remote = match launch {
            ServerLaunch::Process { .. } => None,
            ServerLaunch::Remote(remote) => match credentials(folder, remote)? {
                Some(credentials) => Some((Arc::clone(remote), credentials)),
                None => return Ok(None),
            },
        };
        let credentials = remote.as_ref().map(|(_, credentials)| credentials);
        let name = Fingerprint::of(&json!([identity, credentials, self.build]));
        let path = folder.join(format!("{name}.json"));
        Ok(Some(MemoryFile { path, remote }))
    }

    /// The file of a server.
    pub(crate) fn get(&self, key: &str) -> Option<&MemoryFile> {
        self.files.get(key)
    }
}

impl MemoryFile {
    fn read(&self) -> io::Result<ServerMemory> {
        let (text, facts) = files::read(&self.path, MAX_BYTES, Links::Reject)?;
        let is_ours = facts.uid() == rustix::process::geteuid().as_raw();
        if !is_ours || facts.mode() & 0o077 != 0 {
            let said = "it is not a private file of this user";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, said));
        }
        if facts.modified()?.elapsed().unwrap_or_default() > MAX_AGE {
            return Err(io::ErrorKind::NotFound.into());
        }
        let damaged = |error: &dyn std::fmt::Display| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it is damaged: {error}"),
            )
        };
        let text = String::from_utf8(text).map_err(|error| damaged(&error))?;
        // The strict scan first: the core takes every text in it as it is.
        let json = Json::parse(&text).map_err(|error| damaged(&error))?;
        let mut memory: ServerMemory =
            serde_json::from_str(json.as_str()).map_err(|error| damaged(&error))?;
        if let Some(Discovered::Modern { expires_ms, .. }) = &memory.discovered
            && *expires_ms <= wall_ms()
        {
            memory.discovered = None;
        }
        Ok(memory)
    }

    /// Stores the memory of a server for the next run.
    pub(crate) fn store(&self, memory: &ServerMemory, log: &Log) {
        if let Err(error) = self.write(memory) {
            warn(log, &self.path, &error);
        }
    }

    fn write(&self, memory: &ServerMemory) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        files::create_own(folder)?;
        // With other credentials the server may have answered something else.
        if let Some((remote, before)) = &self.remote
            && credentials(folder, remote)?.as_ref() != Some(before)
        {
            return Ok(());
        }
        let text = serde_json::to_vec(memory)?;
        if text.len() as u64 > MAX_BYTES {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let is_new = fs::symlink_metadata(&self.path).is_err();
        files::replace(&self.path, &text, files::PRIVATE)?;
        if is_new {
            prune(folder)?;
        }
        Ok(())
    }
}

/// Removes the oldest files of a folder with too many.
fn prune(folder: &Path) -> io::Result<()> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            found.push((fs::symlink_metadata(&path)?.modified()?, path));
        }
    }
    found.sort();
    let excess = found.len().saturating_sub(MAX_FILES);
    for (_, path) in found.into_iter().take(excess) {
        fs::remove_file(path)?;
    }
    Ok(())
}

fn warn(log: &Log, path: &Path, error: &io::Error) {
    let (path, mut said) = (path.display().to_string(), error.to_string());
    if !said.starts_with(&path) {
        said = format!("{path}: {said}");
    }
    let line = format!("mcp:warning reason=catalog_not_remembered {said}");
    log.say(Level::Warn, line);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use mainstay_contract::envelope::redact::Redactor;

    use super::*;
    use crate::config::Command;
    use crate::remote::TokenSource;

    fn command(argument: &str) -> ServerLaunch {
        let command = Command {
            program: "server".into(),
            called: None,
            arguments: vec![argument.into()],
            without_env: Vec::new(),
            env: Vec::new(),
            secrets: Vec::new(),
            cwd: None,
            sandbox: None,
        };
        let tree_kill = crate::config::TreeKill::Auto;
        ServerLaunch::Process { command, tree_kill }
    }

    fn log() -> Log {
        Log::start(Level::Error, Redactor::new([]))
    }

    fn folder(name: &str) -> PathBuf {
        let name = format!("mainstay-remembered-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    fn legacy() -> ServerMemory {
        serde_json::from_str(r#"{"discovered":"legacy"}"#).unwrap()
    }

    #[test]
    fn a_server_is_remembered_and_no_other() {
        let (folder, log) = (folder("other"), log());
        let files = |secret: &str, build: &str| {
            let environment = vec![("API_KEY".into(), secret.into())];
            MemoryFiles::new(Some(&folder), environment, build)
        };
        let mut first = files("s3cret", "1");
        assert_eq!(
            first.open("a", &command("x"), &log),
            ServerMemory::default()
        );
        first.get("a").unwrap().store(&legacy(), &log);
        let read = |mut files: MemoryFiles, argument| files.open("b", &command(argument), &log);
        assert_eq!(read(files("s3cret", "1"), "x"), legacy());
        let others = [
            (files("other", "1"), "x", "another environment"),
            (files("s3cret", "2"), "x", "another build"),
            (files("s3cret", "1"), "y", "other arguments"),
            (MemoryFiles::new(None, Vec::new(), "1"), "x", "no cache"),
        ];
        for (files, argument, what) in others {
            assert_eq!(read(files, argument), ServerMemory::default(), "{what}");
        }
        for entry in fs::read_dir(folder.join(FOLDER)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read(&path).unwrap();
            assert!(!text.windows(6).any(|part| part == b"s3cret"), "{path:?}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_remote_server_is_remembered_for_the_same_credentials_only() {
        let (folder, log) = (folder("credentials"), log());
        fs::create_dir_all(&folder).unwrap();
        let token = folder.join("token");
        let with = |source: TokenSource| {
            let mut remote = Remote::new("https://tools.example.com/mcp").unwrap();
            remote.token = Some(source);
            ServerLaunch::Remote(Arc::new(remote))
        };
        let of_file = with(TokenSource::File(token.clone()));
        let mut files = MemoryFiles::new(Some(&folder), Vec::new(), "1");
        fs::write(&token, "ada's").unwrap();
        files.open("a", &of_file, &log);
        let file = files.get("a").unwrap().clone();
        file.store(&legacy(), &log);
        assert_eq!(files.open("a", &of_file, &log), legacy());
        fs::write(&token, "bob's").unwrap();
        assert_eq!(files.open("a", &of_file, &log), ServerMemory::default());
        // The first host learns something with the new token.
        let learned: ServerMemory = serde_json::from_str("{}").unwrap();
        file.store(&learned, &log);
        fs::write(&token, "ada's").unwrap();
        assert_eq!(files.open("a", &of_file, &log), legacy(), "not Bob's");
        let of_command = with(TokenSource::Command(vec!["print-token".to_owned()]));
        files.open("b", &of_command, &log);
        assert!(files.get("b").is_none(), "nobody knows whose it is");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_is_damaged_or_not_private_is_ignored() {
        let (folder, log) = (folder("damaged"), log());
        let open = || {
            let mut files = MemoryFiles::new(Some(&folder), Vec::new(), "1");
            let memory = files.open("a", &command("x"), &log);
            (files.get("a").unwrap().clone(), memory)
        };
        let (file, _) = open();
        let stored = || file.store(&legacy(), &log);
        stored();
        assert_eq!(open().1, legacy());
        let torn = fs::read(&file.path).unwrap();
        let torn = torn.get(..torn.len() / 2).unwrap();
        for damaged in [torn, b"", b"{\"catalogs\":7}", b"{} {}", b"\xff"] {
            fs::write(&file.path, damaged).unwrap();
            assert_eq!(open().1, ServerMemory::default(), "{damaged:?}");
        }
        stored();
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(open().1, ServerMemory::default(), "others may read it");
        stored();
        let elsewhere = folder.join("elsewhere");
        fs::rename(&file.path, &elsewhere).unwrap();
        symlink(&elsewhere, &file.path).unwrap();
        assert_eq!(open().1, ServerMemory::default(), "a link");
        stored();
        assert_eq!(open().1, legacy(), "the next run stores it again");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_oldest_files_are_removed() {
        let (folder, log) = (folder("many"), log());
        for number in 0..=MAX_FILES {
            let mut files = MemoryFiles::new(Some(&folder), Vec::new(), "1");
            files.open("a", &command(&number.to_string()), &log);
            files.get("a").unwrap().store(&legacy(), &log);
        }
        let files = fs::read_dir(folder.join(FOLDER)).unwrap();
        assert_eq!(files.count(), MAX_FILES + 1, "and the key");
        fs::remove_dir_all(&folder).unwrap();
    }
}
