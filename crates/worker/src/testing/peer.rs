//! The host's end of the pipes, for tests of the real loop.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::json::Json;
use mainstay_contract::render::Bounds;
use mainstay_contract::rpc::{
    Answer, Call, FromWorker, Op, PROTOCOL, Progress, Ready, Start, ToWorker,
};
use thiserror::Error;

use crate::pack::Pack;
use crate::run::{Ended, Pipes, serve};
use crate::settings::{Settings, Unable};

/// Every wait of a peer ends after this time.
const DEADLINE: Duration = Duration::from_secs(120);

/// Messages kept for a test that does not read.
const BACKLOG: usize = 4096;

/// Errors of a test.
#[derive(Debug, Error)]
pub enum PeerError {
    #[error("nothing came within {DEADLINE:?}")]
    Silence,
    #[error("the worker closed its output")]
    Closed,
    #[error("unexpected: {0}")]
    Unexpected(String),
    #[error("cannot write to the worker")]
    Write(#[from] io::Error),
}

/// A host in miniature.
#[derive(Debug)]
pub struct Peer {
    to_worker: Option<File>,
    from_worker: Receiver<FromWorker>,
    worker: JoinHandle<Ended>,
    next_call: u64,
    progress: Vec<(CallId, Progress)>,
}

impl Peer {
    /// The start message of [`Self::start`]: a pool of 2, 1 MiB frames, a grace of 200 ms, no settings.
    pub fn usual_start() -> Start {
        Start {
            protocol: PROTOCOL,
            generation: Generation::new(1),
            pool: 2,
            frame_bytes: 1024 * 1024,
            grace_ms: 200,
            text: Bounds::PORCELAIN,
            violations: 100,
            settings: Json::empty_object(),
        }
    }

    /// Starts a worker loop and sends it `start`. The first message is left to be received.
    pub fn start(
        start: Start,
        pack: impl FnOnce(&Settings) -> Result<Pack, Unable> + Send + 'static,
    ) -> Result<Self, PeerError> {
        let (worker_input, to_worker) = io::pipe()?;
        let (from_worker, worker_output) = io::pipe()?;
        let pipes = Pipes {
            input: File::from(std::os::fd::OwnedFd::from(worker_input)),
            output: File::from(std::os::fd::OwnedFd::from(worker_output)),
        };
        let worker = thread::spawn(move || serve("0.0.0", pipes, pack));
        let (sender, receiver) = sync_channel(BACKLOG);
        thread::spawn(move || {
            for line in BufReader::new(from_worker).lines().map_while(Result::ok) {
                let Ok(message) = serde_json::from_str(&line) else {
                    return;
                };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let to_worker = Some(File::from(std::os::fd::OwnedFd::from(to_worker)));
        let mut peer = Self {
            to_worker,
            from_worker: receiver,
            worker,
            next_call: 1,
            progress: Vec::new(),
        };
        peer.send(&ToWorker::Start(start))?;
        Ok(peer)
    }

    /// Starts a pack as usual and waits until it is ready.
    pub fn ready(pack: Pack) -> Result<(Self, Ready), PeerError>
    where
        Pack: Send,
    {
        let mut peer = Self::start(Self::usual_start(), move |_| Ok(pack))?;
        match peer.receive()? {
            FromWorker::Ready(ready) => Ok((peer, ready)),
            other => Err(PeerError::Unexpected(format!("{other:?}"))),
        }
    }

    pub fn send(&mut self, message: &ToWorker) -> Result<(), PeerError> {
        let mut line = serde_json::to_vec(message).map_err(io::Error::from)?;
        line.push(b'\n');
        self.to_worker
            .as_mut()
            .ok_or(PeerError::Closed)?
            .write_all(&line)?;
        Ok(())
    }

    /// Sends a call and gives its number.
    pub fn call(&mut self, op: Op) -> Result<CallId, PeerError> {
        let call = CallId::new(self.next_call);
        self.next_call += 1;
        self.send(&ToWorker::Call(Call {
            call,
            attempt: 1,
            timeout_ms: 60_000,
            trace: None,
            op,
        }))?;
        Ok(call)
    }

    /// The next message, whatever it is.
    pub fn receive(&mut self) -> Result<FromWorker, PeerError> {
        self.receive_within(DEADLINE)
    }

    pub fn receive_within(&mut self, time: Duration) -> Result<FromWorker, PeerError> {
        self.from_worker
            .recv_timeout(time)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => PeerError::Silence,
                RecvTimeoutError::Disconnected => PeerError::Closed,
            })
    }

    /// The next answer; progress that comes before it is kept in [`Self::progress`].
    pub fn answer(&mut self) -> Result<(CallId, Answer), PeerError> {
        loop {
            match self.receive()? {
                FromWorker::Answer { call, answer } => return Ok((call, answer)),
                FromWorker::Progress { call, progress } => self.progress.push((call, progress)),
                other => return Err(PeerError::Unexpected(format!("{other:?}"))),
            }
        }
    }

    /// Progress received so far.
    pub fn progress(&self) -> &[(CallId, Progress)] {
        &self.progress
    }

    /// Closes the worker's input, as a host that dies does.
    pub fn hang_up(&mut self) {
        self.to_worker = None;
    }

    /// Waits for the worker's end, without hanging up.
    pub fn end(self) -> Result<Ended, PeerError> {
        let deadline = Instant::now() + DEADLINE;
        while !self.worker.is_finished() {
            if Instant::now() >= deadline {
                return Err(PeerError::Silence);
            }
            thread::sleep(Duration::from_millis(2));
        }
        self.worker
            .join()
            .map_err(|_| PeerError::Unexpected("the worker panicked".into()))
    }
}
