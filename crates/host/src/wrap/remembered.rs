//! What a server said about itself the last time it ran.
//!
//! Automatic clients ask `server/discover` before anything else, and some wait for long, or start
//! the same command twice to ask. A server that takes seconds to start, or that is of the older era
//! and chokes on the question, would make them wait. So its answer is kept in a small file, by
//! command; the next run answers from it at once. A file that cannot be read or written is no
//! reason not to serve.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_contract::json::Json;
use mainstay_contract::scan;
use mainstay_schema::Fingerprint;
use serde_json::json;

use crate::config::Command;

/// Largest file that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// After so long a server is asked anew: it may have learned something.
const MAX_AGE: Duration = Duration::from_secs(7 * 86_400);

/// The memory of one command.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    path: PathBuf,
    answer: Option<Discovered>,
}

/// How `server/discover` was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Discovered {
    /// A result, as JSON text.
    Modern(Json),
    /// The server does not know the question.
    Legacy,
}

impl Remembered {
    /// Reads what is known about a command.
    pub(super) fn load(folder: &Path, command: &Command) -> Self {
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
        Self { path, answer }
    }

    pub(super) const fn answer(&self) -> Option<&Discovered> {
        self.answer.as_ref()
    }

    /// The server has answered now.
    pub(super) fn learn(&mut self, answer: Discovered) {
        if self.answer.as_ref() != Some(&answer) {
            // Without it the next run asks again.
            let _ = write(&self.path, &answer);
            self.answer = Some(answer);
        }
    }

    /// What was remembered is not true any more.
    pub(super) fn forget(&mut self) {
        if self.answer.take().is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn read(path: &Path) -> Option<Discovered> {
    let about = fs::metadata(path).ok()?;
    let age = about.modified().ok()?.elapsed().unwrap_or_default();
    if about.len() > MAX_BYTES || age > MAX_AGE {
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    let json = Json::parse(&text).ok()?;
    match scan::member(json.as_str(), "era")? {
        "\"legacy\"" => Some(Discovered::Legacy),
        "\"modern\"" => {
            let result = scan::member(json.as_str(), "result")?;
            Some(Discovered::Modern(Json::from_scanned(result)))
        }
        _ => None,
    }
}

fn write(path: &Path, answer: &Discovered) -> std::io::Result<()> {
    let text = match answer {
        Discovered::Legacy => "{\"era\":\"legacy\"}\n".to_owned(),
        Discovered::Modern(result) => format!("{{\"era\":\"modern\",\"result\":{result}}}\n"),
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // Several hosts may wrap the same command: each writes a file of its own and moves it there.
    let own = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = fs::File::create(&own)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&own, path)
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
        }
    }

    #[test]
    fn a_command_is_remembered_and_no_other() {
        let folder =
            std::env::temp_dir().join(format!("mainstay-remembered-{}", std::process::id()));
        let load = |program| Remembered::load(&folder, &command(program));
        assert_eq!(load("a").answer(), None);
        let result = Json::parse(r#"{"supportedVersions": ["2026-07-28"],"n":1.00}"#).unwrap();
        load("a").learn(Discovered::Modern(result.clone()));
        load("b").learn(Discovered::Legacy);
        assert_eq!(load("a").answer(), Some(&Discovered::Modern(result)));
        assert_eq!(load("b").answer(), Some(&Discovered::Legacy));
        assert_eq!(load("c").answer(), None);
        load("b").forget();
        assert_eq!(load("b").answer(), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
