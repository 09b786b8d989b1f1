//! What older states of a file know about its servers, when one is to be as it was.

use std::collections::BTreeMap;

use super::servers::{self, Server, Standing};
use super::tree::Document;

/// The servers, each with how many of its name and project stand before it.
pub(super) fn numbered<'s, 'd>(
    servers: &'s [Server<'d>],
) -> impl Iterator<Item = (&'s Server<'d>, usize)> {
    let mut counts: BTreeMap<(Option<&str>, &str), usize> = BTreeMap::new();
    servers.iter().map(move |server| {
        let count = counts.entry((server.project, server.name)).or_default();
        let nth = *count;
        *count += 1;
        (server, nth)
    })
}

/// What older states of a file know about its servers.
#[derive(Debug)]
pub(super) struct Memory<'d> {
    /// By project, name, and how many of the same stand before.
    known: BTreeMap<(Option<String>, String, usize), Vec<Fact<'d>>>,
}

/// How one server once stood.
#[derive(Debug)]
enum Fact<'d> {
    /// As this program, with or without a list of arguments.
    Plain {
        program: &'d str,
        had_args: bool,
    },
    Wrapped,
}

impl<'d> Memory<'d> {
    pub(super) fn of(before: &[&'d Document]) -> Self {
        let mut known: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for document in before {
            let servers = servers::find(document).unwrap_or_default();
            for (server, nth) in numbered(&servers) {
                let fact = match server.standing() {
                    Standing::Plain(started) => Fact::Plain {
                        program: started.program,
                        had_args: started.args.is_some(),
                    },
                    Standing::Remote(reached) => Fact::Plain {
                        program: reached.url.value.as_text().unwrap_or_default(),
                        had_args: false,
                    },
                    Standing::Wrapped(_) => Fact::Wrapped,
                    Standing::Foreign(_) => continue,
                };
                known.entry(key(server, nth)).or_default().push(fact);
            }
        }
        Self { known }
    }

    fn facts(&self, server: &Server<'_>, nth: usize) -> &[Fact<'d>] {
        self.known.get(&key(server, nth)).map_or(&[], Vec::as_slice)
    }

    /// Whether a server had a list of arguments when it was this program, if anybody knows.
    pub(super) fn had_args(&self, server: &Server<'_>, nth: usize, wanted: &str) -> Option<bool> {
        self.facts(server, nth).iter().find_map(|fact| match fact {
            Fact::Plain { program, had_args } if *program == wanted => Some(*had_args),
            _ => None,
        })
    }

    /// Whether a server was never seen but wrapped: then it was not adopted. Where nobody has seen
    /// it, options tell: adopting writes only its own.
    pub(super) fn is_by_hand(&self, server: &Server<'_>, nth: usize) -> bool {
        match (self.facts(server, nth), server.standing()) {
            ([], Standing::Wrapped(wrapped)) => {
                !server.options_by_hand(wrapped.options()).is_empty()
            }
            ([], _) => false,
            (facts, _) => facts.iter().all(|fact| matches!(fact, Fact::Wrapped)),
        }
    }
}

fn key(server: &Server<'_>, nth: usize) -> (Option<String>, String, usize) {
    let project = server.project.map(str::to_owned);
    (project, server.name.to_owned(), nth)
}
