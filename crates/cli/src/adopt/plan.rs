//! What is to be done to a file, decided without touching it.

use super::at_url;
use super::edits::{self, Edit};
use super::memory::{Memory, numbered};
use super::rewrite;
use super::servers::{self, SHARE, Server, Standing, WRAP};
use super::settings;
use super::tree::{Document, Node, Syntax};

/// Why a server stays wrapped.
const BY_HAND: &str = "it was wrapped before it was adopted; --only takes it, too";
/// Why a server with a whole command line as its program is not wrapped.
const ONE_TEXT: &str = "its command holds arguments; put them into args";

/// Which servers are meant.
#[derive(Clone, Debug, Default)]
pub(super) struct Chosen {
    pub(super) only: Vec<String>,
    pub(super) except: Vec<String>,
    /// Lead the servers to the share host; those of these names may be shared.
    pub(super) share: Option<Vec<String>>,
}

/// A file before and after, and what that means for each server.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) text: String,
    pub(super) fates: Vec<Fate>,
}

/// What becomes of one server.
#[derive(Debug)]
pub(super) struct Fate {
    pub(super) label: String,
    pub(super) what: What,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    /// We now start it.
    Wrapped {
        program: String,
        /// Where it is started, and whether its search path is set for it.
        cwd: Option<String>,
        own_path: bool,
    },
    /// The client starts it again. Options that somebody gave us go.
    Unwrapped {
        program: String,
        dropped: Vec<String>,
        /// Whether something goes that adopting it again would not bring back.
        loses: bool,
    },
    AlreadyWrapped {
        by: String,
    },
    NotWrapped,
    NotChosen,
    LeftAlone(&'static str),
}

/// Why there is no plan.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoPlan {
    /// The document has no place for servers that we know.
    UnknownForm,
    /// A name that was given is no server's; these are.
    UnknownName { name: String, known: Vec<String> },
    /// What was planned did not stand its own check.
    Broken(&'static str),
}

impl Plan {
    /// Puts `binary` before every chosen server that is not wrapped yet.
    pub(super) fn adopt(
        document: &Document,
        binary: &str,
        chosen: &Chosen,
        is_missing: impl Fn(&str) -> bool,
    ) -> Result<Self, NoPlan> {
        let plan = Self::make(document, chosen, |server, _| match server.standing() {
            Standing::Plain(_) | Standing::Remote(_) if settings::lost(server.entry).is_some() => {
                let reason = settings::lost(server.entry).unwrap_or_default();
                (What::LeftAlone(reason), Vec::new())
            }
            Standing::Foreign(reason) => (What::LeftAlone(reason), Vec::new()),
            Standing::Wrapped(wrapped) => {
                let by = wrapped.outer.program.to_owned();
                (What::AlreadyWrapped { by }, Vec::new())
            }
            Standing::Remote(reached) => match at_url::wrap(document, server, &reached, binary) {
                Err(reason) => (What::LeftAlone(reason), Vec::new()),
                Ok(edits) => {
                    let url = reached.url.value.as_text().unwrap_or_default();
                    (wrapped(server, shown(url)), edits)
                }
            },
            Standing::Plain(started)
                if started.program.contains(char::is_whitespace) && is_missing(started.program) =>
            {
                (What::LeftAlone(ONE_TEXT), Vec::new())
            }
            Standing::Plain(started) => {
                let words = chosen.words(document, server);
                match rewrite::wrap(document, server, &started, binary, &words) {
                    Err(reason) => (What::LeftAlone(reason), Vec::new()),
                    Ok(edits) => (wrapped(server, started.program), edits),
                }
            }
        })?;
        // Nothing is written that could not be taken back to the byte.
        let Ok(adopted) = Document::parse(&plan.text, document.syntax) else {
            return Err(NoPlan::Broken("what was written cannot be read again"));
        };
        let undone = Self::undo_what_was_done(&adopted, &Memory::of(&[document]), &plan)?;
        if undone != document.text {
            return Err(NoPlan::Broken("what was written could not be taken back"));
        }
        Ok(plan)
    }

    /// Takes us away from every chosen server. `before` are older states of the file, newest first.
    pub(super) fn undo(
        document: &Document,
        before: &[&Document],
        chosen: &Chosen,
    ) -> Result<Self, NoPlan> {
        let memory = Memory::of(before);
        let plan = Self::make(document, chosen, |server, nth| {
            // Somebody's own wrapping is taken away only if it is meant by name.
            if memory.is_by_hand(server, nth) && !chosen.only.iter().any(|n| n == server.name) {
                return (What::LeftAlone(BY_HAND), Vec::new());
            }
            unwrapped(document, server, nth, &memory)
        })?;
        match Document::parse(&plan.text, document.syntax) {
            Ok(_) => Ok(plan),
            Err(_) => Err(NoPlan::Broken("what was written cannot be read again")),
        }
    }

    /// The text of an adopted document with exactly that undone which `plan` did.
    fn undo_what_was_done(
        adopted: &Document,
        memory: &Memory<'_>,
        plan: &Self,
    ) -> Result<String, NoPlan> {
        let servers = servers::find(adopted).unwrap_or_default();
        let mut edits = Vec::new();
        for ((server, nth), fate) in numbered(&servers).zip(&plan.fates) {
            if matches!(fate.what, What::Wrapped { .. }) {
                edits.extend(unwrapped(adopted, server, nth, memory).1);
            }
        }
        edits::apply(&adopted.text, &edits).ok_or(NoPlan::Broken("two edits overlap"))
    }

    fn make(
        document: &Document,
        chosen: &Chosen,
        mut decide: impl FnMut(&Server<'_>, usize) -> (What, Vec<Edit>),
    ) -> Result<Self, NoPlan> {
        let servers = servers::find(document).ok_or(NoPlan::UnknownForm)?;
        chosen.check(&servers)?;
        let mut edits = Vec::new();
        let mut fates = Vec::new();
        for (server, nth) in numbered(&servers) {
            let (what, more) = if chosen.has(server.name) {
                decide(server, nth)
            } else {
                (What::NotChosen, Vec::new())
            };
            edits.extend(more);
            fates.push(Fate {
                label: server.label(),
                what,
            });
        }
        let text =
            edits::apply(&document.text, &edits).ok_or(NoPlan::Broken("two edits overlap"))?;
        Ok(Self { text, fates })
    }

    /// Servers with which something is done.
    pub(super) fn changed(&self) -> usize {
        let changes =
            |fate: &&Fate| matches!(fate.what, What::Wrapped { .. } | What::Unwrapped { .. });
        self.fates.iter().filter(changes).count()
    }
}

impl Chosen {
    /// The words between our own program and the server's command.
    fn words(&self, document: &Document, server: &Server<'_>) -> Vec<String> {
        match &self.share {
            None => [vec![WRAP.to_owned()], server.options(document)].concat(),
            Some(declared) => {
                let is_declared = declared.iter().any(|name| name == server.name);
                [vec![SHARE.to_owned()], server.share_options(is_declared)].concat()
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        let listed = |names: &[String]| names.iter().any(|listed| listed == name);
        (self.only.is_empty() || listed(&self.only)) && !listed(&self.except)
    }

    fn check(&self, servers: &[Server<'_>]) -> Result<(), NoPlan> {
        let is_known = |name: &&String| servers.iter().any(|server| server.name == **name);
        match self
            .only
            .iter()
            .chain(&self.except)
            .chain(self.share.iter().flatten())
            .find(|name| !is_known(name))
        {
            None => Ok(()),
            Some(name) => {
                let mut known: Vec<String> = servers
                    .iter()
                    .map(|server| server.name.to_owned())
                    .collect();
                known.sort();
                known.dedup();
                Err(NoPlan::UnknownName {
                    name: name.clone(),
                    known,
                })
            }
        }
    }
}

fn wrapped(server: &Server<'_>, program: &str) -> What {
    let text = |name: &str| server.entry.get(name).and_then(|m| m.value.as_text());
    let env = server.env();
    What::Wrapped {
        program: program.to_owned(),
        cwd: text("cwd").map(str::to_owned),
        own_path: env.is_some_and(|env| env.value.get("PATH").is_some())
            || server.entry.get("envFile").is_some(),
    }
}

fn unwrapped(
    document: &Document,
    server: &Server<'_>,
    nth: usize,
    memory: &Memory<'_>,
) -> (What, Vec<Edit>) {
    let wrapped = match server.standing() {
        Standing::Wrapped(wrapped) => wrapped,
        Standing::Plain(_) | Standing::Remote(_) => return (What::NotWrapped, Vec::new()),
        Standing::Foreign(reason) => return (What::LeftAlone(reason), Vec::new()),
    };
    if let Some(url) = wrapped.url {
        return unwrapped_url(document, server, &wrapped, url);
    }
    let Some(inner) = wrapped.inner else {
        let reason = "its command is not among the arguments of mainstay";
        return (What::LeftAlone(reason), Vec::new());
    };
    let text = |item: &Node| item.as_text().unwrap_or_default().to_owned();
    let items = wrapped.outer.items;
    let dropped = server.options_by_hand(wrapped.options());
    let program = items.get(inner).map(text).unwrap_or_default();
    let had_args = memory.had_args(server, nth, &program);
    let edits = rewrite::unwrap(document, &wrapped, inner, had_args);
    // In a list of program and arguments nothing behind the program goes.
    let last = match wrapped.outer.in_list {
        Some(_) => inner,
        None => inner + 1,
    };
    let removed = items.get(..=last).unwrap_or(items);
    let what = What::Unwrapped {
        program,
        loses: !dropped.is_empty() || has_comments(document, removed),
        dropped,
    };
    (what, edits)
}

/// The client reaches a server at its URL again.
fn unwrapped_url(
    document: &Document,
    server: &Server<'_>,
    wrapped: &servers::Wrapped<'_>,
    url: usize,
) -> (What, Vec<Edit>) {
    let items = wrapped.outer.items;
    let text = |item: &Node| item.as_text().unwrap_or_default().to_owned();
    let edits = match at_url::unwrap(document, server, wrapped, url) {
        Ok(edits) => edits,
        Err(reason) => return (What::LeftAlone(reason), Vec::new()),
    };
    let mut dropped = server.options_by_hand(wrapped.options());
    let signs_in = !at_url::kept_lines(document, server).is_empty();
    let is_ours = |option: &Node| match option.as_text() {
        Some(servers::URL_TYPE) => true,
        Some(servers::TOKEN_ENV | servers::HEADER_ENV) => signs_in,
        _ => false,
    };
    let mut behind = items.get(url + 1..).unwrap_or_default();
    while let [option, _, rest @ ..] = behind
        && is_ours(option)
    {
        behind = rest;
    }
    dropped.extend(behind.iter().map(text));
    let program = items.get(url).map(text).unwrap_or_default();
    let what = What::Unwrapped {
        program: shown(&program).to_owned(),
        loses: !dropped.is_empty() || has_comments(document, items),
        dropped,
    };
    (what, edits)
}

/// A URL without its query, which may hold a credential.
fn shown(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// Whether anything but commas and white space stands between items.
fn has_comments(document: &Document, items: &[Node]) -> bool {
    items.windows(2).any(|pair| match pair {
        [one, next] => {
            let between = document.slice(one.span.end..next.span.start);
            let is_dash = |c| c == '-' && document.syntax == Syntax::Yaml;
            !between
                .chars()
                .all(|c| c == ',' || is_dash(c) || c.is_whitespace())
        }
        _ => false,
    })
}
