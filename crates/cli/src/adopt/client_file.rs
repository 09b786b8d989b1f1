//! A client's file, for commands that look at the files of all clients.

use std::path::{Path, PathBuf};

use super::binary;
use super::edits;
use super::file::ClientFile;
use super::plan::{Chosen, NoPlan, Plan, What};
use super::servers::{self, Server, Standing, Started};
use super::tree::{Document, Node};
use super::{explain, parse};
use crate::exit::Failure;

/// One server of a client's file.
#[derive(Debug)]
pub(crate) struct ClientServer {
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) start: Start,
}

/// How a client gets a server.
#[derive(Debug)]
pub(crate) enum Start {
    Command(Launch),
    /// It reaches it at a URL, has it switched off, or writes it in a form that is not known: for this reason.
    Other(&'static str),
}

/// The command line of a server.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: Option<PathBuf>,
    /// The program is mainstay, and starts the server.
    pub(crate) is_wrapped: bool,
}

impl Launch {
    /// True if a word holds a reference that only the client replaces.
    pub(crate) fn has_reference(&self) -> bool {
        let env = self.env.iter().map(|(_, value)| value);
        let mut words = self.arguments.iter().chain([&self.program]).chain(env);
        words.any(|word| word.contains("${") || word.contains("{env:") || word.starts_with('$'))
    }
}

/// The servers of a client's file; none if it has no place for any.
pub(crate) fn servers_of(path: &Path) -> Result<Vec<ClientServer>, Failure> {
    let file = ClientFile::open(path)?;
    let document = parse(&file)?;
    Ok(read(&document))
}

fn read(document: &Document) -> Vec<ClientServer> {
    let servers = servers::find(document).unwrap_or_default();
    let read = servers.iter().map(|server| ClientServer {
        name: server.name.to_owned(),
        label: server.label(),
        start: start_of(document, server),
    });
    read.collect()
}

fn start_of(document: &Document, server: &Server<'_>) -> Start {
    let is = |name: &str, word: &str| {
        let member = server.entry.get(name);
        member.is_some_and(|member| document.slice(member.value.span.clone()).trim() == word)
    };
    if is("disabled", "true") || is("enabled", "false") {
        return Start::Other("its client has it switched off");
    }
    match server.standing() {
        Standing::Plain(started) => Start::Command(launch(server, &started, false)),
        Standing::Wrapped(wrapped) => Start::Command(launch(server, &wrapped.outer, true)),
        Standing::Remote(_) => Start::Other("its client reaches it at a URL"),
        Standing::Foreign(reason) => Start::Other(reason),
    }
}

fn launch(server: &Server<'_>, started: &Started<'_>, is_wrapped: bool) -> Launch {
    let text = |node: &Node| node.as_text().unwrap_or_default().to_owned();
    let env = server.env().map(|env| env.value.members());
    let env = env.unwrap_or_default().iter();
    let cwd = server.entry.get("cwd");
    Launch {
        program: started.program.to_owned(),
        arguments: started.items.iter().map(text).collect(),
        env: env
            .filter_map(|member| Some((member.name.clone(), member.value.as_text()?.to_owned())))
            .collect(),
        cwd: cwd.and_then(|cwd| cwd.value.as_text()).map(PathBuf::from),
        is_wrapped,
    }
}

/// A file, and what adopting it would change.
#[derive(Debug)]
pub(crate) struct Prepared {
    file: ClientFile,
    plan: Plan,
    /// The lines that change.
    pub(crate) difference: String,
}

/// One line about a server: what adopting does with it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) label: String,
    /// True if it is wrapped, or would be.
    pub(crate) is_changed: bool,
    pub(crate) text: String,
}

impl Prepared {
    /// Plans to wrap the servers of a file, with `only` and `except` as far as it has servers of these names. `None` if it
    /// has none of `only`, or no place for servers.
    pub(crate) fn new(
        path: &Path,
        binary: &str,
        only: &[String],
        except: &[String],
    ) -> Result<Option<Self>, Failure> {
        let file = ClientFile::open(path)?;
        let document = parse(&file)?;
        let found = servers::find(&document).unwrap_or_default();
        let known = |name: &&String| found.iter().any(|server| server.name == **name);
        let chosen = Chosen {
            only: only.iter().filter(known).cloned().collect(),
            except: except.iter().filter(known).cloned().collect(),
            share: None,
        };
        if chosen.only.is_empty() && !only.is_empty() {
            return Ok(None);
        }
        let is_missing = |program: &str| binary::missing(program, None, false).is_some();
        match Plan::adopt(&document, binary, &chosen, is_missing) {
            Err(NoPlan::UnknownForm) => Ok(None),
            Err(why) => Err(explain(why, &file.path)),
            Ok(plan) => Ok(Some(Self {
                difference: edits::difference(&document.text, &plan.text),
                file,
                plan,
            })),
        }
    }

    pub(crate) fn changed(&self) -> usize {
        self.plan.changed()
    }

    /// A line for each server.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let fates = self.plan.fates.iter();
        let lines = fates.map(|fate| Line {
            label: fate.label.clone(),
            is_changed: matches!(fate.what, What::Wrapped { .. }),
            text: match &fate.what {
                What::Wrapped { program, .. } => format!("wrap {program}"),
                What::AlreadyWrapped { .. } => "is wrapped already".to_owned(),
                What::NotChosen => "left alone: it was not chosen".to_owned(),
                What::LeftAlone(reason) => format!("left alone: {reason}"),
                What::Unwrapped { .. } | What::NotWrapped => "left alone".to_owned(),
            },
        });
        lines.collect()
    }

    /// Writes the backup and the file, and returns the path of the backup.
    pub(crate) fn apply(&self) -> Result<PathBuf, Failure> {
        self.file.check_writable(self.plan.text.len())?;
        let backup = self.file.back_up()?;
        self.file.replace(self.plan.text.as_bytes())?;
        Ok(backup)
    }
}
