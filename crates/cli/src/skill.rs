//! `mainstay skill`: the skill `mcp-bootstrap` for coding agents, which this executable carries.
//!
//! Its source is `skills/mcp-bootstrap` of the repository. An installation records the fingerprints of its files, so that
//! a later version replaces them, and never files that a person has edited.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use mainstay_host::files;
use mainstay_schema::Fingerprint;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::{SkillCommand, SkillInstall};
use crate::environment::variable;
use crate::exit::{Failure, print};

const NAME: &str = "mcp-bootstrap";
/// The path of the skill in a checkout.
const SOURCE: &str = "skills/mcp-bootstrap";
/// Names the files of an installation with their fingerprints.
const RECORD: &str = ".mainstay.json";
const MODE: u32 = 0o644;

const FILES: [(&str, &str); 4] = [
    (
        "SKILL.md",
        include_str!("../../../skills/mcp-bootstrap/SKILL.md"),
    ),
    (
        "references/fresh-server.md",
        include_str!("../../../skills/mcp-bootstrap/references/fresh-server.md"),
    ),
    (
        "references/retrofit.md",
        include_str!("../../../skills/mcp-bootstrap/references/retrofit.md"),
    ),
    (
        "references/checklist.md",
        include_str!("../../../skills/mcp-bootstrap/references/checklist.md"),
    ),
];

/// The folder of a client in the home directory, and the folder from which it reads skills.
const CLIENTS: [(&str, &str); 3] = [
    (".claude", ".claude/skills"),
    (".codex", ".agents/skills"),
    (".agents", ".agents/skills"),
];

/// The record of an installation.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: String,
    files: BTreeMap<String, Fingerprint>,
}

/// The state of a folder before an installation.
enum Found {
    Nothing,
    /// These very files.
    Current,
    /// Files of another version, unchanged since: their names.
    Earlier(Vec<String>),
    /// A link to another folder.
    Link(PathBuf),
    /// Files that `mainstay` did not write, or that were edited.
    Foreign(String),
}

pub(crate) fn run(command: &SkillCommand) -> Result<ExitCode, Failure> {
    let SkillCommand::Install(install) = command;
    let folders = match &install.dir {
        Some(dir) => vec![dir.clone()],
        None => folders_of_clients()?,
    };
    let mut text = String::new();
    for folder in folders {
        let skill = folder.join(NAME);
        let done = if install.link {
            link(&skill, &checkout()?)?
        } else {
            copy(&skill, install)?
        };
        text.push_str(&done);
        text.push('\n');
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The skill folders of the clients that this user has.
fn folders_of_clients() -> Result<Vec<PathBuf>, Failure> {
    let home = variable("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute());
    let mut folders = Vec::new();
    for (client, folder) in home.iter().flat_map(|_| CLIENTS) {
        let home = home.as_deref().unwrap_or(Path::new("/"));
        let folder = home.join(folder);
        if home.join(client).is_dir() && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    if folders.is_empty() {
        let said = anyhow!("there is no client here that is known to read skills");
        let hint = "name the folder: mainstay skill install DIR, for example ~/.agents/skills";
        return Err(Failure::input(said).hint(hint));
    }
    Ok(folders)
}

/// Writes the files of the skill, unless they are there.
fn copy(skill: &Path, install: &SkillInstall) -> Result<String, Failure> {
    let shown = skill.display();
    match inspect(skill).map_err(|error| cannot("read", skill, error))? {
        Found::Current => return Ok(format!("{shown} is up to date")),
        Found::Nothing => {}
        Found::Earlier(names) => remove(skill, &names)?,
        Found::Link(target) => {
            let said = anyhow!("{shown} is a link to {}", target.display());
            return Err(Failure::input(said).hint("remove the link first"));
        }
        Found::Foreign(_) if install.force => {}
        Found::Foreign(what) => {
            let said = anyhow!("{shown} has {what}");
            let hint = "keep a copy of what you changed there, then repeat this with --force";
            return Err(Failure::input(said).hint(hint));
        }
    }
    let mut record = Record {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        files: BTreeMap::new(),
    };
    for (name, text) in FILES {
        write(&skill.join(name), text.as_bytes())?;
        record.files.insert(name.to_owned(), fingerprint(text));
    }
    let record = serde_json::to_vec(&record).map_err(Failure::fault)?;
    write(&skill.join(RECORD), &record)?;
    Ok(format!("installed {shown}"))
}

fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| cannot("create", folder, error))?;
    files::replace(path, content, MODE).map_err(|error| cannot("write", path, error))
}

/// Removes the files of an earlier version. Another version may have other names.
fn remove(skill: &Path, names: &[String]) -> Result<(), Failure> {
    for name in names {
        let path = skill.join(name);
        fs::remove_file(&path).map_err(|error| cannot("remove", &path, error))?;
    }
    Ok(())
}

/// Links to the skill of a checkout, so that it is never older than the code.
fn link(skill: &Path, source: &Path) -> Result<String, Failure> {
    let (shown, wanted) = (skill.display(), source.display());
    match inspect(skill).map_err(|error| cannot("read", skill, error))? {
        Found::Link(target) if target == source => Ok(format!("{shown} is up to date")),
        Found::Nothing => {
            let folder = skill.parent().unwrap_or(skill);
            fs::create_dir_all(folder).map_err(|error| cannot("create", folder, error))?;
            symlink(source, skill).map_err(|error| cannot("create", skill, error))?;
            Ok(format!("linked {shown} to {wanted}"))
        }
        _ => {
            let said = anyhow!("{shown} exists and is not a link to {wanted}");
            Err(Failure::input(said).hint("remove it first"))
        }
    }
}

/// The skill of the checkout around the current directory.
fn checkout() -> Result<PathBuf, Failure> {
    let here = std::env::current_dir().map_err(Failure::input)?;
    let found = here
        .ancestors()
        .map(|folder| folder.join(SOURCE))
        .find(|skill| skill.join("SKILL.md").is_file());
    found.ok_or_else(|| {
        let said = anyhow!("{} is not in a checkout with {SOURCE}", here.display());
        Failure::input(said).hint("go to a checkout of Mainstay, or leave --link out")
    })
}

fn inspect(skill: &Path) -> io::Result<Found> {
    match fs::symlink_metadata(skill) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
        Ok(facts) if facts.is_symlink() => return Ok(Found::Link(fs::read_link(skill)?)),
        Ok(facts) if !facts.is_dir() => {
            return Ok(Found::Foreign("a file in its place".to_owned()));
        }
        Ok(_) => {}
    }
    let Some(record) = read_record(skill) else {
        return Ok(Found::Foreign(
            "files that mainstay did not write".to_owned(),
        ));
    };
    for (name, written) in &record.files {
        let is_inside = !name.starts_with('/') && !name.split('/').any(|part| part == "..");
        let text = is_inside.then(|| fs::read_to_string(skill.join(name)));
        if !text.is_some_and(|text| text.is_ok_and(|text| fingerprint(&text) == *written)) {
            return Ok(Found::Foreign(format!("an edited {name}")));
        }
    }
    let own: BTreeMap<String, Fingerprint> = FILES
        .iter()
        .map(|(name, text)| ((*name).to_owned(), fingerprint(text)))
        .collect();
    Ok(if record.files == own {
        Found::Current
    } else {
        Found::Earlier(record.files.into_keys().collect())
    })
}

fn read_record(skill: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(skill.join(RECORD)).ok()?).ok()
}

fn fingerprint(text: &str) -> Fingerprint {
    Fingerprint::of(&Value::String(text.to_owned()))
}

fn cannot(verb: &str, path: &Path, error: io::Error) -> Failure {
    Failure::input(anyhow!(error).context(format!("cannot {verb} {}", path.display())))
}
