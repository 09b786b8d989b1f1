//! The pack driver: private RPC over the pipes of a worker of ours.

use std::io;
use std::os::fd::OwnedFd;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::frame::Frame;
use mainstay_contract::id::CallId;
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::outcome::Problem;
use mainstay_contract::rpc::{self, Answer, FromWorker, ToWorker};
use mainstay_kernel::action::Manner;

use super::What;
use super::task::{
    self, Broken, Grip, Heard, Listener, SavedWorker, Speech, StderrForm, Surroundings,
};
use crate::config::{Command, Shim};
use crate::outbox::Outbox;
use crate::upgrade::Incoming;

/// The engine's grip on a worker.
#[derive(Debug)]
pub(crate) struct WorkerHandle(pub(crate) Grip);

impl WorkerHandle {
    /// Hands over a call.
    pub(crate) fn send(&self, call: rpc::Call) {
        let id = call.call;
        let line = line(&ToWorker::Call(call));
        self.0.outbox.push_call(&line, id);
    }

    /// Asks for a call to stop.
    pub(crate) fn cancel(&self, call: CallId) {
        self.0.outbox.push(&line(&ToWorker::Cancel { call }));
    }

    /// Asks for a sign of life.
    pub(crate) fn ping(&self) {
        self.0.outbox.push(&line(&ToWorker::Ping { nonce: 0 }));
    }

    /// Ends the worker.
    pub(crate) fn stop(&self, how: Manner) {
        if how == Manner::Dismiss {
            self.0.outbox.push(&line(&ToWorker::Drain {}));
        }
        self.0.outbox.close();
        // A full queue means that it was told already.
        let _ = self.0.orders.try_send(how);
    }

    /// A worker that another process saved. [`Self::run`] continues it.
    pub(crate) fn restore(
        saved: SavedWorker,
        descriptors: &mut Incoming,
        limits: &Limits,
    ) -> io::Result<Self> {
        Grip::restore(saved, descriptors, 0, limits).map(Self)
    }

    /// Continues after a pause.
    pub(crate) fn run<E: Listener>(&mut self, around: Surroundings<'_, E>) {
        self.0.run(Rpc, around);
    }

    /// It is lost: nothing more is handed over. Gives the calls of which not one byte was.
    pub(crate) fn seal(&self) -> Vec<CallId> {
        self.0.outbox.seal()
    }
}

fn line(message: &ToWorker) -> String {
    // Our own types always serialise.
    serde_json::to_string(message).unwrap_or_default()
}

/// A pack's worker, as it is started.
#[derive(Debug)]
pub(crate) struct PackStart<'a> {
    pub(crate) name: &'a str,
    pub(crate) command: &'a Command,
    /// Its executable, if that is held open and runs instead of its path.
    pub(crate) program: Option<&'a OwnedFd>,
    /// Handed to the worker as it starts.
    pub(crate) settings: Json,
}

/// Starts a worker.
pub(crate) fn start<E: Listener>(
    shim: &Shim,
    pack: PackStart<'_>,
    around: Surroundings<'_, E>,
) -> io::Result<WorkerHandle> {
    let (generation, limits) = (around.generation, around.limits);
    let outbox = Outbox::default();
    let start = rpc::Start {
        protocol: rpc::PROTOCOL,
        generation,
        pool: limits.pool,
        frame_bytes: limits.worker_frame_bytes,
        grace_ms: limits.grace_ms,
        text: limits.text(),
        violations: limits.violations,
        settings: pack.settings,
    };
    outbox.push(&line(&ToWorker::Start(start)));
    let prefix = format!("worker pack={} generation={generation}", pack.name);
    let form = StderrForm::Prefixed(prefix);
    task::start(shim, pack.command, pack.program, Rpc, form, outbox, around).map(WorkerHandle)
}

/// The private protocol.
struct Rpc;

impl Speech for Rpc {
    const SUBJECT: &str = "the worker";

    fn hear(&mut self, frame: Frame<'_>) -> Heard {
        match frame {
            Frame::Line(line) => match serde_json::from_slice::<FromWorker>(line) {
                Ok(FromWorker::Unable { detail }) => Heard::Unable(detail),
                Ok(message) => translate(message),
                Err(error) => {
                    let broken = Broken::new("sent a frame that is none of ours");
                    Heard::Broken(broken.saying(error.to_string()))
                }
            },
            Frame::Oversize(oversize) => match call_of(&oversize.head) {
                Some(call) => Heard::Tell(What::Answer {
                    call,
                    answer: Box::new(Answer::Failed(Problem::of(ErrorKind::AnswerTooLarge))),
                }),
                None => Heard::Broken(Broken::new("sent a frame over the limit")),
            },
        }
    }
}

fn translate(message: FromWorker) -> Heard {
    Heard::Tell(match message {
        FromWorker::Ready(ready) => What::Ready(Box::new(ready)),
        FromWorker::Progress { call, progress } => What::Progress { call, progress },
        FromWorker::Answer { call, answer } => What::Answer {
            call,
            answer: Box::new(answer),
        },
        FromWorker::Pong { .. } => What::Pong,
        FromWorker::Unable { .. } | FromWorker::Drained {} => return Heard::Nothing,
    })
}

/// The call whose answer was too long to be read, if its beginning says so.
fn call_of(head: &[u8]) -> Option<CallId> {
    let digits = head.strip_prefix(br#"{"answer":{"call":"#)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    let number = std::str::from_utf8(digits.get(..end)?).ok()?;
    number.parse().ok().map(CallId::new)
}
