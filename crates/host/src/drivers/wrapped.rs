//! The driver of a wrapped server: lines of somebody else's over the pipes of a process.
//!
//! It knows nothing of what the lines mean; the core does (`mainstay_kernel::server`).

use std::io;

use mainstay_contract::fault::Fault;
use mainstay_contract::frame::{Frame, HEAD};
use mainstay_contract::id::CallId;
use mainstay_contract::limits::Limits;
use mainstay_kernel::action::Manner;

use super::What;
use super::task::{self, Grip, Heard, Listener, SavedWorker, Speech, StderrForm, Surroundings};
use crate::config::{Command, Shim};
use crate::outbox::Outbox;
use crate::upgrade::Incoming;

/// The engine's grip on a server.
#[derive(Debug)]
pub(crate) struct ServerHandle(pub(crate) Grip);

impl ServerHandle {
    /// Hands over a line.
    pub(crate) fn say(&self, line: &str) {
        self.0.outbox.push(line);
    }

    /// Hands over the line of a call.
    pub(crate) fn send(&self, line: &str, call: CallId) {
        self.0.outbox.push_call(line, call);
    }

    /// Ends the server: as MCP has it, its input is closed first.
    pub(crate) fn stop(&self, how: Manner) {
        self.0.outbox.close();
        // A full queue means that it was told already.
        let _ = self.0.orders.try_send(how);
    }

    /// A server that another process saved. [`Self::run`] continues it.
    pub(crate) fn restore(
        saved: SavedWorker,
        descriptors: &mut Incoming,
        limits: &Limits,
    ) -> io::Result<Self> {
        Grip::restore(saved, descriptors, limits.backlog_bytes, limits).map(Self)
    }

    /// Continues after a pause.
    pub(crate) fn run<E: Listener>(&mut self, around: Surroundings<'_, E>) {
        self.0.run(Lines, around);
    }

    /// Whether the server may be read.
    pub(crate) fn set_readable(&self, readable: bool) {
        if self.0.gate.is_closed() == readable {
            self.0.gate.set_open(readable);
        }
    }

    /// It is lost: nothing more is handed over. Gives the calls of which not one byte was.
    pub(crate) fn seal(&self) -> Vec<CallId> {
        self.0.outbox.seal()
    }

    /// The last lines that it wrote to its standard error.
    pub(crate) fn last_words(&self) -> String {
        self.0.last_words.all()
    }

    /// A fault with the last lines of its standard error.
    pub(crate) fn with_last_words(&self, fault: Fault) -> Fault {
        let words = &self.0.last_words;
        fault.saying(words.last()).with_stderr(&words.all())
    }

    /// Whether it does not take what it is sent.
    pub(crate) fn is_behind(&self) -> bool {
        self.0.outbox.is_behind()
    }

    /// As [`Self::is_behind`]; `What::CaughtUp` follows once it no longer is.
    pub(crate) fn watch_behind(&self) -> bool {
        self.0.outbox.watch_behind()
    }
}

/// Where the standard error of a server goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServerStderr<'a> {
    /// To the server's only client, whose pipe the host's standard error is.
    Client,
    /// To the host's own standard error.
    Host,
    /// To the log, with the name of the server: other servers write there, too.
    Log(&'a str),
}

/// Starts a server.
pub(crate) fn start<E: Listener>(
    shim: &Shim,
    command: &Command,
    stderr: ServerStderr<'_>,
    around: Surroundings<'_, E>,
) -> io::Result<ServerHandle> {
    let outbox = Outbox::with_mark(around.limits.backlog_bytes);
    let form = match stderr {
        ServerStderr::Client => StderrForm::Unchanged,
        ServerStderr::Host => StderrForm::Redacted,
        ServerStderr::Log(name) => {
            let generation = around.generation;
            StderrForm::Prefixed(format!("server pack={name} generation={generation}"))
        }
    };
    task::start(shim, command, None, Lines, form, outbox, around).map(ServerHandle)
}

/// A copy of a line, if there is memory for it.
fn copied(line: &[u8]) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(line.len()).ok()?;
    copy.extend_from_slice(line);
    Some(copy)
}

struct Lines;

impl Speech for Lines {
    const SUBJECT: &str = "the server";

    fn hear(&mut self, frame: Frame<'_>) -> Heard {
        Heard::Tell(match frame {
            Frame::Line(line) => match copied(line) {
                Some(line) => What::Line(line),
                None => What::Oversize(line.iter().take(HEAD).copied().collect()),
            },
            Frame::Oversize(oversize) => What::Oversize(oversize.head),
        })
    }
}
