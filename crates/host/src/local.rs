//! Typed requests of the process that runs the host: the command line with a host of its own.
//!
//! [`Local::open`] returns a handle and the transport of a host. [`Local::ask`] sends one request to that
//! host and blocks until its typed end, so no answer of a wrapped server can pass for an error of the host.
//! Dropping the handle stops the host in order.

use mainstay_contract::dialect::{Op, Request};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::RequestId;
use mainstay_contract::json::Json;
use mainstay_contract::method::ListKind;
use mainstay_contract::outcome::{Outcome, Problem, Success};
use mainstay_contract::rpc::Progress;
use tokio::sync::{mpsc, oneshot};

use crate::config::Transport;
use crate::engine::{Event, Single};
use crate::forwarded::{self, Reader};

/// Requests that may wait for the host.
const REQUESTS: usize = 16;
/// Steps of progress that may wait for the caller.
const STEPS: usize = 16;
/// Names the session of a wrapped server, and the requests in telemetry.
const CALLER: &str = "command line";

/// Gets the number of each step of progress, and the step.
pub type OnProgress<'a> = &'a mut dyn FnMut(u64, &Progress);

/// A handle to a host in this process.
#[derive(Debug)]
pub struct Local(mpsc::Sender<Box<Single>>);

/// The host's end of a [`Local`].
#[derive(Debug)]
pub struct LocalRequests(mpsc::Receiver<Box<Single>>);

/// Why a request failed.
#[derive(Debug)]
pub enum AskError {
    /// The host's own error.
    Host(Box<Problem>),
    /// The wrapped server answered with an error.
    Server(Box<Problem>),
}

impl From<Problem> for AskError {
    fn from(problem: Problem) -> Self {
        Self::Host(Box::new(problem))
    }
}

impl Local {
    /// A handle, and the transport of the host that it will ask.
    pub fn open() -> (Self, Transport) {
        let (requests, incoming) = mpsc::channel(REQUESTS);
        (Self(requests), Transport::Local(LocalRequests(incoming)))
    }

    /// Asks the host, and blocks until the end of the request.
    pub fn ask(&self, op: Op, progress: Option<OnProgress<'_>>) -> Result<Success, AskError> {
        let outcome = self.outcome(op, progress)?;
        let of_server = matches!(outcome, Ok(Success::Forwarded(_)));
        forwarded::outcome_of(outcome, Reader::Person).map_err(|problem| match of_server {
            true => AskError::Server(Box::new(problem)),
            false => problem.into(),
        })
    }

    /// Asks a wrapped server for a page of one of its lists. Returns the result as the server wrote it.
    pub fn list(&self, kind: ListKind, cursor: Option<String>) -> Result<Json, AskError> {
        match self.outcome(Op::List { kind, cursor }, None)?? {
            Success::Forwarded(response) => {
                forwarded::result(&response).map_err(|problem| AskError::Server(Box::new(problem)))
            }
            Success::Members(members) => Ok(members),
            Success::Tool(_) => Err(Problem::of(ErrorKind::Internal).into()),
        }
    }

    fn outcome(&self, op: Op, progress: Option<OnProgress<'_>>) -> Result<Outcome, Problem> {
        let bytes = match &op {
            Op::CallTool { arguments, .. } => arguments.len(),
            _ => 0,
        };
        let id = RequestId::from_text(CALLER);
        let (reply, end) = oneshot::channel();
        let (_wanting, wanted) = oneshot::channel();
        let (steps, mut taken) = mpsc::channel(STEPS);
        let token = progress.as_ref().map(|_| Json::from_scanned(id.as_raw()));
        let single = Single {
            request: Request {
                id,
                dialect: Reader::Person.dialect(),
                op,
                progress_token: token,
                trace: None,
                task: None,
            },
            bytes,
            caller: CALLER.to_owned(),
            reply,
            steps: progress.as_ref().map(|_| steps),
            wanted,
        };
        let gone = || Problem::of(ErrorKind::ShuttingDown);
        self.0.blocking_send(Box::new(single)).map_err(|_| gone())?;
        if let Some(progress) = progress {
            // Ends with the request.
            while let Some(step) = taken.blocking_recv() {
                progress(step.step, &step.progress);
            }
        }
        let end = end.blocking_recv().map_err(|_| gone())??;
        Ok(end.outcome)
    }
}

impl LocalRequests {
    /// Delivers requests until the handle is dropped; then the host stops.
    pub(crate) async fn deliver(mut self, events: mpsc::Sender<Event>) {
        while let Some(single) = self.0.recv().await {
            if events.send(single.into()).await.is_err() {
                return;
            }
        }
        let _ = events.send(Event::Stop).await;
    }
}
