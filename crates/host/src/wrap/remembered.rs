//! The server's answer to `server/discover` in an earlier run.
//!
//! Automatic clients ask `server/discover` before anything else, and some wait for long, or start the same
//! command twice to ask. A server that takes seconds to start, or that belongs to the older era and chokes on
//! the request, would make them wait. So its answer is stored in a small file, by command, and the next
//! run answers from it at once. The core gives only answers to store that every client may get; each has the
//! time at which it expires. A file that cannot be read or written never keeps the host from serving.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_contract::json::Json;
use mainstay_contract::scan;
use mainstay_kernel::server::Discovered;
use mainstay_schema::Fingerprint;
use serde_json::json;

use crate::clock::wall_ms;
use crate::config::Command;
use crate::files::{self, Links};

/// Largest file that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// After so long a server is asked anew: it may have learned something.
const MAX_AGE: Duration = Duration::from_secs(7 * 86_400);

/// The file of one command.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    path: PathBuf,
}

impl Remembered {
    /// Reads the stored answer of a command.
    pub(crate) fn load(folder: &Path, command: &Command) -> (Self, Option<Discovered>) {
        // The same words mean another server in another directory.
        let here = std::env::current_dir().unwrap_or_default();
        let cwd = command
            .cwd
            .as_ref()
            .map_or(here.clone(), |cwd| here.join(cwd));
        let env = command.env.iter().flat_map(|(key, value)| [key, value]);
        let words = [command.program.as_os_str(), cwd.as_os_str()]
            .into_iter()
            .chain(command.arguments.iter().map(AsRef::as_ref))
            .chain(env.map(AsRef::as_ref));
        let text = |word: &OsStr| word.as_bytes().to_vec();
        let name = Fingerprint::of(&json!(words.map(text).collect::<Vec<_>>()));
        let path = folder.join("wrapped").join(format!("{name}.json"));
        let answer = read(&path);
        (Self { path }, answer)
    }

    /// Stores an answer for the next run, or forgets the one that is stored.
    pub(crate) fn store(&self, answer: Option<&Discovered>) {
        // Without the file the next run asks again.
        let _ = match answer {
            Some(answer) => write(&self.path, answer),
            None => fs::remove_file(&self.path),
        };
    }
}

fn read(path: &Path) -> Option<Discovered> {
    files::verify_private(path.parent()?).ok()?;
    let (text, facts) = files::read(path, MAX_BYTES, Links::Reject).ok()?;
    if facts.modified().ok()?.elapsed().unwrap_or_default() > MAX_AGE {
        return None;
    }
    let text = String::from_utf8(text).ok()?;
    let json = Json::parse(&text).ok()?;
    match scan::member(json.as_str(), "era")? {
        "\"legacy\"" => Some(Discovered::Legacy),
        "\"modern\"" => {
            let result = scan::member(json.as_str(), "result")?;
            let expires_ms = scan::member(json.as_str(), "expiresMs")?.parse().ok()?;
            let answer = Discovered::Modern {
                result: Json::from_scanned(result),
                expires_ms,
            };
            (expires_ms > wall_ms()).then_some(answer)
        }
        _ => None,
    }
}

fn write(path: &Path, answer: &Discovered) -> std::io::Result<()> {
    let text = match answer {
        Discovered::Legacy => "{\"era\":\"legacy\"}\n".to_owned(),
        Discovered::Modern { result, expires_ms } => {
            format!("{{\"era\":\"modern\",\"expiresMs\":{expires_ms},\"result\":{result}}}\n")
        }
    };
    files::create_own(path.parent().unwrap_or(Path::new(".")))?;
    files::replace(path, text.as_bytes(), files::PRIVATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(program: &str) -> Command {
        Command {
            program: program.into(),
            called: None,
            arguments: vec!["--x".into()],
            without_env: Vec::new(),
            env: Vec::new(),
            cwd: None,
            sandbox: None,
        }
    }

    #[test]
    fn a_command_is_remembered_and_no_other() {
        let folder =
            std::env::temp_dir().join(format!("mainstay-remembered-{}", std::process::id()));
        let load = |program| Remembered::load(&folder, &command(program));
        assert_eq!(load("a").1, None);
        let result = Json::parse(r#"{"supportedVersions": ["2026-07-28"],"n":1.00}"#).unwrap();
        let answer = |expires_ms| Discovered::Modern {
            result: result.clone(),
            expires_ms,
        };
        let later = wall_ms() + 3_600_000;
        load("a").0.store(Some(&answer(later)));
        load("b").0.store(Some(&Discovered::Legacy));
        assert_eq!(load("a").1, Some(answer(later)));
        assert_eq!(load("b").1, Some(Discovered::Legacy));
        assert_eq!(load("c").1, None);
        load("b").0.store(None);
        assert_eq!(load("b").1, None);
        load("a").0.store(Some(&answer(wall_ms())));
        assert_eq!(load("a").1, None, "it has expired");
        fs::remove_dir_all(&folder).unwrap();
    }
}
