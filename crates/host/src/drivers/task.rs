//! A process behind a shim, whatever it speaks.
//!
//! One task per worker owns the process: it reads frames, watches the tree, and climbs the
//! ladder when told to end it, or when the worker ended and left something behind. A second task
//! writes, a third reads the worker's stderr. What a frame means is the driver's [`Speech`].

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainstay_contract::envelope::redact::{KeyBlock, Redactor};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_contract::id::Generation;
use mainstay_contract::limits::Limits;
use mainstay_kernel::action::Manner;
use mainstay_kernel::defect::{Defect, is_planted};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{What, WorkerEvent};
use crate::config::{Command, Shim};
use crate::io::Source;
use crate::log::{Level, Log};
use crate::outbox::Outbox;
use crate::process::{Climb, Happened, Ladder, Pipes, Process};
use crate::transport::{Gate, write_out};

/// Longest line of a worker's stderr; the rest of it is cut.
const STDERR_LINE: usize = 4096;
/// After a worker closed its output, the time for its exit to be told: it says more.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// Bytes that are read of a worker that has ended.
const LAST_BYTES: usize = 64 * 1024 * 1024;

/// What a frame of a worker means.
pub(super) trait Speech: Send + Sync + 'static {
    fn hear(&mut self, frame: Frame<'_>) -> Heard;
}

/// What was heard.
pub(super) enum Heard {
    Nothing,
    Tell(What),
    /// The worker says itself that it cannot start.
    Unable(String),
    /// It cannot be understood; that is its end.
    Broken(Broken),
}

/// Where the events of a worker go.
pub(crate) trait Listener: From<WorkerEvent> + Send + 'static {}

impl<E: From<WorkerEvent> + Send + 'static> Listener for E {}

/// How a worker's stderr is passed on.
#[derive(Clone, Debug)]
pub(super) enum StderrForm {
    /// As log lines that begin so.
    Prefixed(String),
    /// As lines without secrets: the host's standard error is its log.
    Redacted,
    /// As it comes: the host's standard error belongs to the server's only client.
    Unchanged,
}

/// The ends of a running process that its driver holds.
#[derive(Debug)]
pub(super) struct Grip {
    pub(super) outbox: Outbox,
    pub(super) orders: mpsc::Sender<Manner>,
    /// While it is closed, nothing is read from the worker.
    pub(super) gate: Gate,
    pub(super) last_words: LastWords,
}

impl Drop for Grip {
    fn drop(&mut self) {
        // The task that writes waits for more, and keeps the worker's pipe open, until it is told
        // that there will be no more.
        self.outbox.close();
    }
}

/// Starts a process and the tasks around it. What is in `outbox` already is written first.
#[expect(clippy::too_many_arguments, reason = "the parts of one process, named")]
pub(super) fn start<E: Listener>(
    shim: &Shim,
    command: &Command,
    program: Option<&OwnedFd>,
    generation: Generation,
    limits: &Limits,
    speech: impl Speech,
    stderr_form: StderrForm,
    outbox: Outbox,
    events: mpsc::Sender<E>,
    log: &Log,
) -> io::Result<Grip> {
    let (
        process,
        Pipes {
            stdin,
            stdout,
            stderr,
        },
    ) = Process::spawn(shim, command, program)?;
    let (orders, incoming) = mpsc::channel(2);
    let gate = Gate::default();
    let last_words = LastWords::new(limits.stderr_lines);
    let grip = Grip {
        outbox: outbox.clone(),
        orders,
        gate: gate.clone(),
        last_words: last_words.clone(),
    };
    let words = last_words.clone();
    tokio::spawn(read_stderr(stderr, words, stderr_form, log.clone()));
    let caught_up = move || {
        let what = What::CaughtUp;
        WorkerEvent { generation, what }.into()
    };
    let writer = write_out(stdin, outbox, events.clone(), caught_up);
    tokio::spawn(write_calls(
        writer,
        generation,
        grip.orders.clone(),
        events.clone(),
    ));
    let task = Task {
        process,
        program: command.program.display().to_string(),
        generation,
        grace: Duration::from_millis(limits.grace_ms),
        events,
        speech,
        gate,
        last_words,
        redactor: log.redactor().clone(),
        lost: false,
        reported: false,
    };
    let frames = FrameReader::new(limits.worker_frame_bytes);
    tokio::spawn(task.run(stdout, frames, incoming));
    Ok(grip)
}

/// A worker that takes no more calls is of no use, even if it lives.
async fn write_calls<E: Listener>(
    writer: impl Future<Output = bool>,
    generation: Generation,
    orders: mpsc::Sender<Manner>,
    events: mpsc::Sender<E>,
) {
    if writer.await {
        return;
    }
    // One that is dying closes its pipe, too; its exit says more, and comes by then.
    tokio::time::sleep(LAST_WORDS).await;
    let fault = Fault::new(ErrorKind::WorkerProtocol, "the worker closed its input").of(generation);
    let what = What::Lost(fault);
    let _ = events.send(WorkerEvent { generation, what }.into()).await;
    let _ = orders.try_send(Manner::Terminate);
}

struct Task<S, E> {
    process: Process,
    program: String,
    generation: Generation,
    grace: Duration,
    events: mpsc::Sender<E>,
    speech: S,
    gate: Gate,
    last_words: LastWords,
    redactor: Redactor,
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

impl<S: Speech, E: Listener> Task<S, E> {
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
                        self.read_rest(&mut output, &mut stdout, &mut frames).await;
                        self.lose(ErrorKind::WorkerUnavailable, Broken::new(end.to_string())).await;
                        if is_planted(Defect::ReapedEarly) {
                            self.tell(What::Reaped).await;
                        }
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
                // Only to look again whether it may be read.
                () = self.gate.pass(), if self.gate.is_closed() => {}
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
                // Last: a worker that floods must not keep us from ending it.
                read = stdout.read(frames.spare()), if output == Output::Open && !self.gate.is_closed() => {
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

    /// What it said before its end counts.
    async fn read_rest(
        &mut self,
        output: &mut Output,
        stdout: &mut Source,
        frames: &mut FrameReader,
    ) {
        if is_planted(Defect::LastAnswerLost) {
            *output = Output::Done;
        }
        let was_open = *output == Output::Open;
        // Something that it left behind may go on writing for ever.
        let mut left = LAST_BYTES;
        while *output == Output::Open && left > 0 {
            match stdout.read_now(frames.spare()) {
                Some(Ok(count)) if count > 0 => {
                    left = left.saturating_sub(count);
                    frames.filled(count);
                    if self.tell_frames(frames).await.is_some() {
                        *output = Output::Done;
                    }
                }
                _ => *output = Output::Done,
            }
        }
        *output = Output::Done;
        // A last line that is whole but for its end.
        let last = if was_open { frames.finish() } else { None };
        if let Some(frame) = last
            && let Heard::Tell(what) = self.speech.hear(frame)
        {
            self.tell(what).await;
        }
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
            match self.speech.hear(frames.next_frame()?) {
                Heard::Nothing => {}
                Heard::Tell(what) => self.tell(what).await,
                Heard::Unable(why) => {
                    // At once: its exit, which follows, says less.
                    let broken = Broken::new("cannot start").saying(why);
                    self.lose(ErrorKind::WorkerSetup, broken.clone()).await;
                    return Some(broken);
                }
                Heard::Broken(broken) => return Some(broken),
            }
        }
    }

    async fn lose(&mut self, kind: ErrorKind, broken: Broken) {
        if std::mem::replace(&mut self.lost, true) {
            return;
        }
        let said = broken
            .said
            .map(|said| self.redactor.text(&said).into_owned());
        let words = said.or_else(|| self.last_words.last());
        let fault = Fault::new(kind, format!("the worker {}", broken.detail))
            .of(self.generation)
            .saying(words)
            .with_stderr(&self.last_words.all());
        self.tell(What::Lost(fault)).await;
    }

    async fn tell(&self, what: What) {
        let generation = self.generation;
        // Without an engine there is nobody to tell.
        let _ = self
            .events
            .send(WorkerEvent { generation, what }.into())
            .await;
    }
}

/// Why a worker can do no more: in our words, and what it said itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    detail: String,
    said: Option<String>,
}

impl Broken {
    pub(super) fn new(detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            said: None,
        }
    }

    pub(super) fn saying(mut self, words: String) -> Self {
        self.said = Some(words);
        self
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The last lines of a worker's stderr.
#[derive(Clone, Debug)]
pub(super) struct LastWords {
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

    pub(super) fn all(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }

    pub(super) fn last(&self) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let last = lines.back()?;
        Some(mainstay_contract::render::shorten(last, 200))
    }
}

async fn read_stderr(mut stderr: Source, last_words: LastWords, form: StderrForm, log: Log) {
    let mut frames = FrameReader::new(STDERR_LINE);
    let mut key = KeyBlock::default();
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
            // Last words reach health, faults and the log.
            let clean = log.redactor().line(&text, &mut key).into_owned();
            match &form {
                StderrForm::Prefixed(prefix) => log.say(Level::Info, format!("{prefix} {clean}")),
                StderrForm::Redacted => log.pass_on(&clean),
                StderrForm::Unchanged => log.pass_on(&text),
            }
            last_words.push(clean);
        }
    }
}
