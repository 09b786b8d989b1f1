//! The pack driver: a process behind a shim of ours, private RPC over its pipes.
//!
//! One task per worker owns the process: it reads frames, watches the tree, and climbs the
//! ladder when told to end it, or when the worker ended and left something behind. A second task
//! writes, a third reads the worker's stderr.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::limits::Limits;
use mainstay_contract::outcome::Problem;
use mainstay_contract::rpc::{self, Answer, FromWorker, ToWorker};
use mainstay_kernel::action::Manner;
use tokio::sync::mpsc;

use super::{What, WorkerEvent};
use crate::config::{Pack, Shim};
use crate::engine::Event;
use crate::io::{Sink, Source};
use crate::log::{Level, Log};
use crate::outbox::Outbox;
use crate::process::{Climb, Happened, Ladder, Pipes, Process};
use crate::transport::write_out;

/// Longest line of a worker's stderr; the rest of it is cut.
const STDERR_LINE: usize = 4096;
/// After a worker closed its output, the time for its exit to be told: it says more.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// The engine's grip on a worker.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    outbox: Outbox,
    orders: mpsc::Sender<Manner>,
}

impl WorkerHandle {
    /// Hands over a call.
    pub(crate) fn send(&self, call: rpc::Call) {
        let id = call.call;
        let line = line(&ToWorker::Call(call));
        self.outbox.push_call(&line, id);
    }

    /// Asks for a call to stop.
    pub(crate) fn cancel(&self, call: CallId) {
        self.outbox.push(&line(&ToWorker::Cancel { call }));
    }

    /// Asks for a sign of life.
    pub(crate) fn ping(&self) {
        self.outbox.push(&line(&ToWorker::Ping { nonce: 0 }));
    }

    /// Ends the worker.
    pub(crate) fn stop(&self, how: Manner) {
        if how == Manner::Dismiss {
            self.outbox.push(&line(&ToWorker::Drain {}));
        }
        self.outbox.close();
        // A full queue means that it was told already.
        let _ = self.orders.try_send(how);
    }

    /// Calls of which not one byte was handed over.
    pub(crate) fn unsent_calls(&self) -> Vec<CallId> {
        self.outbox.unsent_calls()
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        // The task that writes waits for more, and keeps the worker's pipe open, until it is told
        // that there will be no more.
        self.outbox.close();
    }
}

fn line(message: &ToWorker) -> String {
    // Our own types always serialise.
    serde_json::to_string(message).unwrap_or_default()
}

/// Starts a worker.
pub(crate) fn start(
    shim: &Shim,
    pack: &Pack,
    generation: Generation,
    limits: &Limits,
    events: mpsc::Sender<Event>,
    log: &Log,
) -> io::Result<WorkerHandle> {
    let (
        process,
        Pipes {
            stdin,
            stdout,
            stderr,
        },
    ) = Process::spawn(shim, &pack.command)?;
    let outbox = Outbox::default();
    let start = rpc::Start {
        protocol: rpc::PROTOCOL,
        generation,
        pool: limits.pool,
        frame_bytes: limits.worker_frame_bytes,
        grace_ms: limits.grace_ms,
        settings: pack.settings.clone(),
    };
    outbox.push(&line(&ToWorker::Start(start)));
    let (orders, incoming) = mpsc::channel(2);
    let handle = WorkerHandle {
        outbox: outbox.clone(),
        orders,
    };
    let last_words = LastWords::new(limits.stderr_lines);
    let stderr = Source::pipe(stderr)?;
    let prefix = format!("worker pack={} generation={generation}", pack.name);
    tokio::spawn(read_stderr(stderr, last_words.clone(), prefix, log.clone()));
    let writer = write_out(Sink::pipe(stdin)?, outbox);
    tokio::spawn(write_calls(
        writer,
        generation,
        handle.orders.clone(),
        events.clone(),
    ));
    let task = Task {
        process,
        program: pack.command.program.display().to_string(),
        generation,
        grace: Duration::from_millis(limits.grace_ms),
        events,
        last_words,
        lost: false,
        reported: false,
    };
    let frames = FrameReader::new(limits.worker_frame_bytes);
    tokio::spawn(task.run(Source::pipe(stdout)?, frames, incoming));
    Ok(handle)
}

/// A worker that takes no more calls is of no use, even if it lives.
async fn write_calls(
    writer: impl Future<Output = bool>,
    generation: Generation,
    orders: mpsc::Sender<Manner>,
    events: mpsc::Sender<Event>,
) {
    if writer.await {
        return;
    }
    // One that is dying closes its pipe, too; its exit says more, and comes by then.
    tokio::time::sleep(LAST_WORDS).await;
    let fault = Fault::new(ErrorKind::WorkerProtocol, "the worker closed its input").of(generation);
    let what = What::Lost(fault);
    let _ = events
        .send(Event::Worker(WorkerEvent { generation, what }))
        .await;
    let _ = orders.try_send(Manner::Terminate);
}

struct Task {
    process: Process,
    program: String,
    generation: Generation,
    grace: Duration,
    events: mpsc::Sender<Event>,
    last_words: LastWords,
    lost: bool,
    /// That it cannot be killed was said.
    reported: bool,
}

/// What the worker's output is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Output {
    /// Nothing is read before the process is known.
    NotYet,
    Open,
    /// It cannot be used any more; when the exit is not told by then, that is the fault.
    Broken {
        broken: Broken,
        until: Instant,
    },
    Done,
}

impl Task {
    async fn run(
        mut self,
        mut stdout: Source,
        mut frames: FrameReader,
        mut orders: mpsc::Receiver<Manner>,
    ) {
        let mut ladder: Option<Ladder> = None;
        let mut output = Output::NotYet;
        loop {
            let climb_at = ladder.map(|ladder| ladder.until());
            let give_up_at = match &output {
                Output::Broken { until, .. } => Some(*until),
                _ => None,
            };
            tokio::select! {
                biased;
                read = stdout.read(frames.spare()), if output == Output::Open => {
                    let broken = match read {
                        Ok(0) => Some(Broken::new("closed its output")),
                        Err(error) => Some(Broken::new(format!("its output cannot be read: {error}"))),
                        Ok(count) => {
                            frames.filled(count);
                            self.tell_frames(&mut frames).await
                        }
                    };
                    if let Some(broken) = broken {
                        let until = Instant::now() + LAST_WORDS;
                        output = Output::Broken { broken, until };
                    }
                }
                happened = self.process.next() => match happened {
                    Happened::Up { rung, pid } => {
                        output = Output::Open;
                        self.tell(What::Up { pid, tree_kill: rung.as_str() }).await;
                    }
                    Happened::NotStarted(why) => {
                        output = Output::Done;
                        let detail = format!("cannot be started as {}: {why}", self.program);
                        self.lose(ErrorKind::WorkerUnavailable, Broken::new(detail)).await;
                    }
                    Happened::Ended(end) => {
                        let said = self.read_rest(&mut output, &mut stdout, &mut frames).await;
                        let broken = Broken { said, ..Broken::new(end.to_string()) };
                        self.lose(ErrorKind::WorkerUnavailable, broken).await;
                        // What it leaves behind has the grace of a stop, or none at all.
                        let now = Instant::now();
                        ladder.get_or_insert_with(|| Ladder::kill(now)).hurry(now);
                    }
                    Happened::Orphaned => {
                        self.read_rest(&mut output, &mut stdout, &mut frames).await;
                        self.lose(ErrorKind::WorkerUnavailable, Broken::new("lost its shim")).await;
                        ladder = Some(Ladder::kill(Instant::now()));
                    }
                    Happened::Gone => break,
                },
                // Without an engine this task ends, and the tree with our end of the lifeline.
                Some(order) = orders.recv() => {
                    let now = Instant::now();
                    let ladder = ladder.get_or_insert_with(|| Ladder::dismiss(now, self.grace));
                    if order == Manner::Terminate {
                        ladder.hurry(now);
                    }
                }
                () = sleep_until(give_up_at) => {
                    if let Output::Broken { broken, .. } = std::mem::replace(&mut output, Output::Done) {
                        self.lose(ErrorKind::WorkerProtocol, broken).await;
                        ladder.get_or_insert_with(|| Ladder::terminate(Instant::now(), self.grace));
                    }
                }
                () = sleep_until(climb_at) => if let Some(ladder) = &mut ladder {
                    match ladder.climb(Instant::now()) {
                        Climb::Send(order) => self.process.order(order),
                        Climb::Stuck => self.stuck().await,
                    }
                },
            }
        }
        self.read_rest(&mut output, &mut stdout, &mut frames).await;
        self.lose(
            ErrorKind::WorkerUnavailable,
            Broken::new("was killed with its shim"),
        )
        .await;
        self.tell(What::Reaped).await;
    }

    /// What it said before its end counts, and why it says no more.
    async fn read_rest(
        &mut self,
        output: &mut Output,
        stdout: &mut Source,
        frames: &mut FrameReader,
    ) -> Option<String> {
        match std::mem::replace(output, Output::Done) {
            Output::Broken { broken, .. } => return broken.said,
            Output::NotYet | Output::Done => return None,
            Output::Open => {}
        }
        while let Some(Ok(count @ 1..)) = stdout.read_now(frames.spare()) {
            frames.filled(count);
            if let Some(broken) = self.tell_frames(frames).await {
                return broken.said;
            }
        }
        None
    }

    /// It was killed and is still there: say so once, and try without the shim.
    async fn stuck(&mut self) {
        if std::mem::replace(&mut self.reported, true) {
            return self.tell(What::Unkillable).await;
        }
        let detail = "the worker's tree was killed and is still there";
        let fault = Fault::new(ErrorKind::WorkerUnavailable, detail).of(self.generation);
        self.tell(What::Stuck(fault)).await;
        self.process.take_over();
    }

    /// Passes frames on. A frame that cannot be used is the worker's end; says why.
    async fn tell_frames(&mut self, frames: &mut FrameReader) -> Option<Broken> {
        loop {
            let what = match frames.next_frame()? {
                Frame::Line(line) => match serde_json::from_slice::<FromWorker>(line) {
                    Ok(FromWorker::Unable { detail }) => {
                        return Some(Broken::new("cannot start").saying(detail));
                    }
                    Ok(message) => translate(message),
                    Err(error) => {
                        let broken = Broken::new("sent a frame that is none of ours");
                        return Some(broken.saying(error.to_string()));
                    }
                },
                Frame::Oversize(oversize) => match call_of(&oversize.head) {
                    Some(call) => Some(What::Answer {
                        call,
                        answer: Box::new(Answer::Failed(Problem::of(ErrorKind::AnswerTooLarge))),
                    }),
                    None => return Some(Broken::new("sent a frame over the limit")),
                },
            };
            if let Some(what) = what {
                self.tell(what).await;
            }
        }
    }

    async fn lose(&mut self, kind: ErrorKind, broken: Broken) {
        if std::mem::replace(&mut self.lost, true) {
            return;
        }
        let words = broken.said.or_else(|| self.last_words.last());
        let fault = Fault::new(kind, format!("the worker {}", broken.detail))
            .of(self.generation)
            .saying(words)
            .with_stderr(&self.last_words.all());
        self.tell(What::Lost(fault)).await;
    }

    async fn tell(&self, what: What) {
        let event = Event::Worker(WorkerEvent {
            generation: self.generation,
            what,
        });
        // Without an engine there is nobody to tell.
        let _ = self.events.send(event).await;
    }
}

/// Why a worker can do no more: in our words, and what it said itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Broken {
    detail: String,
    said: Option<String>,
}

impl Broken {
    fn new(detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            said: None,
        }
    }

    fn saying(mut self, words: String) -> Self {
        self.said = Some(words);
        self
    }
}

fn translate(message: FromWorker) -> Option<What> {
    match message {
        FromWorker::Ready(ready) => Some(What::Ready(Box::new(ready))),
        FromWorker::Progress { call, progress } => Some(What::Progress { call, progress }),
        FromWorker::Answer { call, answer } => Some(What::Answer {
            call,
            answer: Box::new(answer),
        }),
        FromWorker::Pong { .. } => Some(What::Pong),
        FromWorker::Unable { .. } | FromWorker::Drained {} => None,
    }
}

/// The call whose answer was too long to be read, if its beginning says so.
fn call_of(head: &[u8]) -> Option<CallId> {
    let digits = head.strip_prefix(br#"{"answer":{"call":"#)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    let number = std::str::from_utf8(digits.get(..end)?).ok()?;
    number.parse().ok().map(CallId::new)
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// The last lines of a worker's stderr.
#[derive(Clone, Debug)]
struct LastWords {
    keep: usize,
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl LastWords {
    fn new(keep: usize) -> Self {
        Self {
            keep,
            lines: Arc::default(),
        }
    }

    fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(line);
        while lines.len() > self.keep {
            lines.pop_front();
        }
    }

    fn all(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn last(&self) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let last = lines.back()?;
        Some(mainstay_contract::render::shorten(last, 200))
    }
}

async fn read_stderr(mut stderr: Source, last_words: LastWords, prefix: String, log: Log) {
    let mut frames = FrameReader::new(STDERR_LINE);
    loop {
        let count = match stderr.read(frames.spare()).await {
            Ok(count) if count > 0 => count,
            _ => return,
        };
        frames.filled(count);
        while let Some(frame) = frames.next_frame() {
            let text = match frame {
                Frame::Line(line) => String::from_utf8_lossy(line).into_owned(),
                Frame::Oversize(cut) => String::from_utf8_lossy(&cut.head).into_owned(),
            };
            log.say(Level::Info, format!("{prefix} {text}"));
            last_words.push(text);
        }
    }
}
