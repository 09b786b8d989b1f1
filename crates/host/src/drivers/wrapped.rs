//! The driver of a wrapped server: its lines over the pipes of a process.
//!
//! It knows nothing of what the lines mean; the core does (`mainstay_kernel::server`).

use std::io;

use mainstay_contract::fault::Fault;
use mainstay_contract::frame::{Frame, HEAD};
use mainstay_contract::id::CallId;
use mainstay_contract::limits::Limits;
use mainstay_kernel::action::Manner;
use serde::{Deserialize, Serialize};

use super::What;
use super::remote::{RemoteHandle, SavedRemote};
use super::task::{
    self, Grip, Heard, LastWords, Listener, SavedWorker, Speech, StderrForm, Surroundings,
};
use crate::config::{Command, Shim};
use crate::outbox::Outbox;
use crate::upgrade::{Incoming, Outgoing};

/// The engine's grip on a server.
#[derive(Debug)]
pub(crate) enum ServerHandle {
    Process(Grip),
    Remote(RemoteHandle),
}

/// A server, as it is saved.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SavedServer {
    Process(Box<SavedWorker>),
    Remote(Box<SavedRemote>),
}

impl ServerHandle {
    /// Hands over a line.
    pub(crate) fn say(&self, line: &str) {
        match self {
            Self::Process(grip) => grip.outbox.push(line),
            Self::Remote(remote) => remote.push(line, None, Vec::new()),
        }
    }

    /// Hands over the line of a call. `headers` are arguments that an HTTP request repeats.
    pub(crate) fn send(&self, line: &str, call: CallId, headers: Vec<(String, String)>) {
        match self {
            Self::Process(grip) => grip.outbox.push_call(line, call),
            Self::Remote(remote) => remote.push(line, Some(call), headers),
        }
    }

    /// Ends the server: as MCP has it, the input of a process is closed first.
    pub(crate) fn stop(&self, how: Manner) {
        match self {
            Self::Process(grip) => {
                grip.outbox.close();
                // A full queue means that it was told already.
                let _ = grip.orders.try_send(how);
            }
            Self::Remote(remote) => remote.stop(how),
        }
    }

    /// True if every task has ended.
    pub(crate) fn is_paused(&self) -> bool {
        match self {
            Self::Process(grip) => grip.is_paused(),
            Self::Remote(remote) => remote.is_paused(),
        }
    }

    /// Takes the parts of the tasks that have ended.
    pub(crate) async fn collect(&mut self) {
        match self {
            Self::Process(grip) => grip.collect().await,
            Self::Remote(remote) => remote.collect().await,
        }
    }

    /// The state of a paused server; `None` if it cannot move.
    pub(crate) fn save<'a>(&'a self, descriptors: &mut Outgoing<'a>) -> Option<SavedServer> {
        Some(match self {
            Self::Process(grip) => SavedServer::Process(Box::new(grip.save(descriptors)?)),
            Self::Remote(remote) => SavedServer::Remote(Box::new(remote.save()?)),
        })
    }

    /// A server that another process saved. [`Self::run`] continues it.
    pub(crate) fn restore(
        saved: SavedServer,
        descriptors: &mut Incoming,
        limits: &Limits,
    ) -> io::Result<Self> {
        match saved {
            SavedServer::Process(saved) => {
                Grip::restore(*saved, descriptors, limits.backlog_bytes, limits).map(Self::Process)
            }
            SavedServer::Remote(saved) => RemoteHandle::restore(*saved, limits).map(Self::Remote),
        }
    }

    /// Continues after a pause.
    pub(crate) fn run<E: Listener>(&mut self, around: Surroundings<'_, E>) {
        match self {
            Self::Process(grip) => grip.run(Lines, around),
            Self::Remote(remote) => remote.run(around),
        }
    }

    /// Opens or closes the gate of the server's output.
    pub(crate) fn set_readable(&self, readable: bool) {
        match self {
            Self::Process(grip) if grip.gate.is_closed() == readable => {
                grip.gate.set_open(readable);
            }
            Self::Process(_) => {}
            Self::Remote(remote) => remote.set_readable(readable),
        }
    }

    /// It is lost: nothing more is handed over. Gives the calls of which not one byte was.
    pub(crate) fn seal(&self) -> Vec<CallId> {
        match self {
            Self::Process(grip) => grip.outbox.seal(),
            Self::Remote(remote) => remote.seal(),
        }
    }

    fn words(&self) -> &LastWords {
        match self {
            Self::Process(grip) => &grip.last_words,
            Self::Remote(remote) => remote.words(),
        }
    }

    /// The last lines that it wrote to its standard error, or that are known about it.
    pub(crate) fn last_words(&self) -> String {
        self.words().all()
    }

    /// A fault with those lines.
    pub(crate) fn with_last_words(&self, fault: Fault) -> Fault {
        let words = self.words();
        fault.saying(words.last()).with_stderr(&words.all())
    }

    /// True if the server does not read its input.
    pub(crate) fn is_behind(&self) -> bool {
        match self {
            Self::Process(grip) => grip.outbox.is_behind(),
            Self::Remote(remote) => remote.is_behind(),
        }
    }

    /// As [`Self::is_behind`]; `What::CaughtUp` follows once it no longer is.
    pub(crate) fn watch_behind(&self) -> bool {
        match self {
            Self::Process(grip) => grip.outbox.watch_behind(),
            Self::Remote(remote) => remote.watch_behind(),
        }
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
        ServerStderr::Client => StderrForm::Known,
        ServerStderr::Host => StderrForm::Redacted,
        ServerStderr::Log(name) => {
            let generation = around.generation;
            StderrForm::Prefixed(format!("server pack={name} generation={generation}"))
        }
    };
    task::start(shim, command, None, Lines, form, outbox, around).map(ServerHandle::Process)
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
