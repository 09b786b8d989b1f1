//! The output of the demonstration: chapters with one line per event, coloured on a terminal.

use std::io::IsTerminal as _;

use mainstay_contract::render::visible;

use crate::environment::is_set;
use crate::exit::{Failure, print};

/// Width of the column with the actors.
const ACTORS: usize = 8;
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// Who acts in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Actor {
    Client,
    Server,
    Host,
    /// A command of a person at a shell.
    Shell,
}

impl Actor {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Host => "host",
            Self::Shell => "shell",
        }
    }

    const fn colour(self) -> &'static str {
        match self {
            Self::Client => "\x1b[36m",
            Self::Server => "\x1b[32m",
            Self::Host => "\x1b[33m",
            Self::Shell => "\x1b[35m",
        }
    }
}

/// The story so far.
#[derive(Debug)]
pub(super) struct Story {
    coloured: bool,
    chapters: u32,
}

impl Story {
    /// A story on standard output.
    pub(super) fn begin() -> Self {
        Self {
            coloured: std::io::stdout().is_terminal() && !is_set("NO_COLOR"),
            chapters: 0,
        }
    }

    pub(super) fn text(&self, text: &str) -> Result<(), Failure> {
        print(&format!("{text}\n"))
    }

    pub(super) fn chapter(&mut self, title: &str) -> Result<(), Failure> {
        self.chapters += 1;
        let title = format!("{}. {title}", self.chapters);
        match self.coloured {
            true => print(&format!("\n{BOLD}{title}{PLAIN}\n")),
            false => print(&format!("\n{title}\n")),
        }
    }

    pub(super) fn line(&self, actor: Actor, text: &str) -> Result<(), Failure> {
        let name = actor.name();
        let text = visible(text);
        match self.coloured {
            true => print(&format!(
                "  {}{name:<ACTORS$}{PLAIN} {text}\n",
                actor.colour()
            )),
            false => print(&format!("  {name:<ACTORS$} {text}\n")),
        }
    }
}
