//! Drivers: how a worker is reached. The engine and the kernel know only this interface, and
//! nothing above a driver may assume a child process.

mod pack;
mod remote;
mod task;
mod wrapped;

use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::rpc::{Answer, Progress, Ready};

pub(crate) use self::pack::{PackStart, WorkerHandle, start};
pub(crate) use self::remote::start as start_remote;
pub(crate) use self::task::{SavedWorker, Surroundings};
pub(crate) use self::wrapped::{SavedServer, ServerHandle, ServerStderr, start as start_server};

/// An event of a worker, as its driver reports it.
#[derive(Debug)]
pub(crate) struct WorkerEvent {
    pub(crate) generation: Generation,
    pub(crate) what: What,
}

/// The kinds of events.
#[derive(Debug)]
pub(crate) enum What {
    /// Its process runs; how its tree is killed.
    Up {
        pid: u32,
        tree_kill: &'static str,
    },
    /// A remote server is used; its URL, without credentials.
    Connected {
        url: String,
    },
    /// The answer to one call will not come; the server goes on. It rejected the call if `sent` is false.
    CallLost {
        call: CallId,
        sent: bool,
        fault: Fault,
    },
    /// It ended the session; calls under way may still be answered.
    Unfit(Fault),
    /// It says that it is ready.
    Ready(Box<Ready>),
    Progress {
        call: CallId,
        progress: Progress,
    },
    Answer {
        call: CallId,
        answer: Box<Answer>,
    },
    /// A wrapped server said a line.
    Line(Vec<u8>),
    /// A wrapped server said a line that is too long; its beginning.
    Oversize(Vec<u8>),
    /// It answered a ping.
    Pong,
    /// It was behind with reading what it is sent, and caught up.
    CaughtUp,
    /// It can do no more: it ended, closed its pipe or broke the protocol.
    Lost(Fault),
    /// It and its tree are gone.
    Reaped,
    /// It was killed and is still there.
    Stuck(Fault),
    /// It cannot be killed at all; a host that stops need not wait for it.
    Unkillable,
}
