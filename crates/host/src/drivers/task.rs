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
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{What, WorkerEvent};
use crate::config::{Command, Shim};
use crate::io::{SavedEnd, Sink, Source};
use crate::log::{Level, Log};
use crate::outbox::{Outbox, SavedOutbox};
use crate::process::{Climb, Happened, Ladder, Pipes, Process, SavedLadder, SavedProcess};
use crate::shim::NOT_STARTED;
use crate::transport::{Gate, Wrote, write_out};
use crate::upgrade::{Incoming, Outgoing, Pause, SavedFrames};

/// Longest line of a worker's stderr; the rest of it is cut.
const STDERR_LINE: usize = 4096;
/// Grace period after a protocol violation for the exit status, which explains more.
const LAST_WORDS: Duration = Duration::from_millis(20);
/// Grace period after the end of the output: the process is exiting, unless it closed the pipe itself.
const EXIT_STATUS: Duration = Duration::from_millis(500);

/// Bytes that are read of a worker that has ended.
const LAST_BYTES: usize = 64 * 1024 * 1024;

/// Meaning of a worker's frames.
pub(super) trait Speech: Send + Sync + 'static {
    /// The process in sentences for operators and clients.
    const SUBJECT: &str;

    fn hear(&mut self, frame: Frame<'_>) -> Heard;
}

/// A frame, understood.
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StderrForm {
    /// As log lines that begin so.
    Prefixed(String),
    /// As lines without secrets: the host's standard error is its log.
    Redacted,
    /// As it comes but for the values that the host knows as secrets: the host's standard error belongs to the server's
    /// only client, which need not know them.
    #[serde(alias = "unchanged")]
    Known,
}

/// The ends of a running process that its driver holds.
#[derive(Debug)]
pub(crate) struct Grip {
    pub(super) outbox: Outbox,
    pub(super) orders: mpsc::Sender<Manner>,
    /// While it is closed, nothing is read from the worker.
    pub(super) gate: Gate,
    pub(super) last_words: LastWords,
    tasks: Tasks,
    /// The parts of tasks that have ended in a pause.
    parts: Parts,
}

/// The tasks around a process. Each ends with its part when the host pauses.
#[derive(Debug, Default)]
struct Tasks {
    reader: Option<JoinHandle<Option<Box<Body>>>>,
    writer: Option<JoinHandle<Option<Sink>>>,
    stderr: Option<JoinHandle<Option<Stderr>>>,
}

/// The parts that the tasks around a process own.
#[derive(Debug, Default)]
struct Parts {
    body: Option<Box<Body>>,
    stdin: Option<Sink>,
    stderr: Option<Stderr>,
}

/// The process itself, and what is known about its end.
#[derive(Debug)]
struct Body {
    process: Process,
    program: String,
    stdout: Source,
    frames: FrameReader,
    output: Output,
    orders: mpsc::Receiver<Manner>,
    /// Orders that were taken from the channel in a pause.
    ordered: VecDeque<Manner>,
    ladder: Option<Ladder>,
    lost: bool,
    /// That it cannot be killed was said.
    reported: bool,
}

#[derive(Debug)]
struct Stderr {
    source: Source,
    frames: FrameReader,
    key: KeyBlock,
    form: StderrForm,
}

/// The parts of the host that a worker's tasks use.
#[derive(Debug)]
pub(crate) struct Surroundings<'a, E> {
    pub(crate) generation: Generation,
    pub(crate) limits: &'a Limits,
    pub(crate) events: mpsc::Sender<E>,
    pub(crate) log: &'a Log,
    pub(crate) pause: Pause,
}

/// A worker with the state of its tasks, as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedWorker {
    process: SavedProcess,
    program: String,
    stdin: Option<SavedEnd>,
    stdout: SavedEnd,
    frames: SavedFrames,
    output: SavedOutput,
    stderr: Option<SavedStderr>,
    ordered: VecDeque<Manner>,
    ladder: Option<SavedLadder>,
    lost: bool,
    reported: bool,
    outbox: SavedOutbox,
    last_words: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedStderr {
    source: SavedEnd,
    frames: SavedFrames,
    key: KeyBlock,
    form: StderrForm,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedOutput {
    NotYet,
    Open,
    Broken(Broken),
    Done,
}

impl Drop for Grip {
    fn drop(&mut self) {
        // The task that writes waits for more, and keeps the worker's pipe open, until it is told
        // that there will be no more.
        self.outbox.close();
    }
}

/// Starts a process and the tasks around it. What is in `outbox` already is written first.
pub(super) fn start<E: Listener>(
    shim: &Shim,
    command: &Command,
    program: Option<&OwnedFd>,
    speech: impl Speech,
    form: StderrForm,
    outbox: Outbox,
    around: Surroundings<'_, E>,
) -> io::Result<Grip> {
    let (process, pipes) = Process::spawn(shim, command, program)?;
    let Pipes {
        stdin,
        stdout,
        stderr,
    } = pipes;
    let (orders, incoming) = mpsc::channel(2);
    let body = Body {
        process,
        program: command.program.display().to_string(),
        stdout,
        frames: FrameReader::new(around.limits.worker_frame_bytes),
        output: Output::NotYet,
        orders: incoming,
        ordered: VecDeque::new(),
        ladder: None,
        lost: false,
        reported: false,
    };
    let stderr = Stderr {
        source: stderr,
        frames: FrameReader::new(STDERR_LINE),
        key: KeyBlock::default(),
        form,
    };
    let mut grip = Grip {
        outbox,
        orders,
        gate: Gate::default(),
        last_words: LastWords::new(around.limits.stderr_lines),
        tasks: Tasks::default(),
        parts: Parts {
            body: Some(Box::new(body)),
            stdin: Some(stdin),
            stderr: Some(stderr),
        },
    };
    grip.run(speech, around);
    Ok(grip)
}

impl Grip {
    /// Starts a task for each part that has none.
    pub(super) fn run<S: Speech, E: Listener>(&mut self, speech: S, around: Surroundings<'_, E>) {
        let Surroundings {
            generation,
            limits,
            events,
            log,
            pause,
        } = around;
        if let Some(stderr) = self.parts.stderr.take() {
            let (words, log) = (self.last_words.clone(), log.clone());
            let reading = read_stderr(stderr, words, log, pause.clone());
            self.tasks.stderr = Some(tokio::spawn(reading));
        }
        if let Some(stdin) = self.parts.stdin.take() {
            let caught_up = move || {
                let what = What::CaughtUp;
                WorkerEvent { generation, what }.into()
            };
            let (outbox, events) = (self.outbox.clone(), events.clone());
            let writer = write_out(stdin, outbox, events.clone(), caught_up, pause.clone());
            let orders = self.orders.clone();
            let writing = write_calls(writer, S::SUBJECT, generation, orders, events);
            self.tasks.writer = Some(tokio::spawn(writing));
        }
        if let Some(body) = self.parts.body.take() {
            let task = Task {
                body,
                generation,
                grace: Duration::from_millis(limits.grace_ms),
                events,
                speech,
                gate: self.gate.clone(),
                last_words: self.last_words.clone(),
                redactor: log.redactor().clone(),
                pause,
            };
            self.tasks.reader = Some(tokio::spawn(task.run()));
        }
    }

    /// True if every task has ended.
    pub(crate) fn is_paused(&self) -> bool {
        fn is_over<T>(task: &Option<JoinHandle<T>>) -> bool {
            task.as_ref().is_none_or(JoinHandle::is_finished)
        }
        is_over(&self.tasks.reader) && is_over(&self.tasks.writer) && is_over(&self.tasks.stderr)
    }

    /// Takes the parts of the tasks that have ended.
    pub(crate) async fn collect(&mut self) {
        async fn part<T>(task: &mut Option<JoinHandle<Option<T>>>, to: &mut Option<T>) {
            if let Some(ended) = task.take_if(|task| task.is_finished()) {
                *to = ended.await.ok().flatten();
            }
        }
        part(&mut self.tasks.reader, &mut self.parts.body).await;
        part(&mut self.tasks.writer, &mut self.parts.stdin).await;
        part(&mut self.tasks.stderr, &mut self.parts.stderr).await;
        if let Some(body) = &mut self.parts.body {
            while let Ok(order) = body.orders.try_recv() {
                body.ordered.push_back(order);
            }
        }
    }

    /// The state of a paused worker, for a process that continues in this one's place; `None` if it cannot move.
    pub(crate) fn save<'a>(&'a self, descriptors: &mut Outgoing<'a>) -> Option<SavedWorker> {
        let body = self.parts.body.as_deref()?;
        let stderr = match &self.parts.stderr {
            None => None,
            Some(stderr) => Some(SavedStderr {
                source: stderr.source.save(descriptors)?,
                frames: SavedFrames::of(&stderr.frames),
                key: stderr.key,
                form: stderr.form.clone(),
            }),
        };
        let stdin = match &self.parts.stdin {
            None => None,
            Some(stdin) => Some(stdin.save(descriptors)?),
        };
        let now = Instant::now();
        Some(SavedWorker {
            process: body.process.save(descriptors)?,
            program: body.program.clone(),
            stdin,
            stdout: body.stdout.save(descriptors)?,
            frames: SavedFrames::of(&body.frames),
            output: match &body.output {
                Output::NotYet => SavedOutput::NotYet,
                Output::Open => SavedOutput::Open,
                Output::Broken { broken, .. } => SavedOutput::Broken(broken.clone()),
                Output::Done => SavedOutput::Done,
            },
            stderr,
            ordered: body.ordered.clone(),
            ladder: body.ladder.map(|ladder| ladder.save(now)),
            lost: body.lost,
            reported: body.reported,
            outbox: self.outbox.save(),
            last_words: self.last_words.lines(),
        })
    }

    /// A worker that another process saved. [`Grip::run`] starts its tasks.
    pub(super) fn restore(
        saved: SavedWorker,
        descriptors: &mut Incoming,
        mark: usize,
        limits: &Limits,
    ) -> io::Result<Self> {
        let now = Instant::now();
        let (orders, incoming) = mpsc::channel(2);
        let body = Body {
            process: Process::restore(saved.process, descriptors)?,
            program: saved.program,
            stdout: Source::restore(saved.stdout, descriptors, None)?,
            frames: saved.frames.restore(limits.worker_frame_bytes),
            output: match saved.output {
                SavedOutput::NotYet => Output::NotYet,
                SavedOutput::Open => Output::Open,
                SavedOutput::Broken(broken) => Output::Broken {
                    broken,
                    until: now + LAST_WORDS,
                },
                SavedOutput::Done => Output::Done,
            },
            orders: incoming,
            ordered: saved.ordered,
            ladder: saved.ladder.map(|ladder| Ladder::restore(ladder, now)),
            lost: saved.lost,
            reported: saved.reported,
        };
        let stdin = saved
            .stdin
            .map(|end| Sink::restore(&end, descriptors, None));
        let stderr = saved.stderr.map(|stderr| {
            io::Result::Ok(Stderr {
                source: Source::restore(stderr.source, descriptors, None)?,
                frames: stderr.frames.restore(STDERR_LINE),
                key: stderr.key,
                form: stderr.form,
            })
        });
        let last_words = LastWords::new(limits.stderr_lines);
        saved
            .last_words
            .into_iter()
            .for_each(|line| last_words.push(line));
        Ok(Self {
            outbox: Outbox::restore(mark, saved.outbox),
            orders,
            gate: Gate::default(),
            last_words,
            tasks: Tasks::default(),
            parts: Parts {
                body: Some(Box::new(body)),
                stdin: stdin.transpose()?,
                stderr: stderr.transpose()?,
            },
        })
    }
}

/// A worker that takes no more calls is of no use, even if it lives.
async fn write_calls<E: Listener>(
    writer: impl Future<Output = Wrote>,
    subject: &'static str,
    generation: Generation,
    orders: mpsc::Sender<Manner>,
    events: mpsc::Sender<E>,
) -> Option<Sink> {
    match writer.await {
        Wrote::All => return None,
        Wrote::Paused(sink) => return Some(sink),
        Wrote::Broken => {}
    }
    // A process that exits closes its pipe, too; its exit status explains more.
    tokio::time::sleep(EXIT_STATUS).await;
    let detail = format!("{subject} closed its input");
    let fault = Fault::new(ErrorKind::WorkerProtocol, detail).of(generation);
    let what = What::Lost(fault);
    let _ = events.send(WorkerEvent { generation, what }.into()).await;
    let _ = orders.try_send(Manner::Terminate);
    None
}

struct Task<S, E> {
    body: Box<Body>,
    generation: Generation,
    grace: Duration,
    events: mpsc::Sender<E>,
    speech: S,
    gate: Gate,
    last_words: LastWords,
    redactor: Redactor,
    pause: Pause,
}

/// Use of the worker's output.
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
    /// Returns the process if the host pauses.
    async fn run(mut self) -> Option<Box<Body>> {
        loop {
            while let Some(order) = self.body.ordered.pop_front() {
                self.end(order);
            }
            let climb_at = self.body.ladder.map(|ladder| ladder.until());
            let give_up_at = match &self.body.output {
                Output::Broken { until, .. } => Some(*until),
                _ => None,
            };
            let can_move = self.body.process.can_move();
            let may_read = self.body.output == Output::Open && !self.gate.is_closed();
            tokio::select! {
                biased;
                happened = self.body.process.next() => match happened {
                    Happened::Up { rung, pid } => {
                        self.body.output = Output::Open;
                        self.tell(What::Up { pid, tree_kill: rung.as_str() }).await;
                    }
                    Happened::NotStarted(why) => {
                        self.body.output = Output::Done;
                        let detail = format!("{NOT_STARTED} {}: {why}", self.body.program);
                        self.lose(ErrorKind::WorkerUnavailable, Broken::new(detail)).await;
                    }
                    Happened::Ended(end) => {
                        self.read_rest().await;
                        self.lose(ErrorKind::WorkerUnavailable, Broken::new(end.to_string())).await;
                        if is_planted(Defect::ReapedEarly) {
                            self.tell(What::Reaped).await;
                        }
                        // What it leaves behind has the grace of a stop, or none at all.
                        let now = Instant::now();
                        self.body.ladder.get_or_insert_with(|| Ladder::kill(now)).hurry(now);
                    }
                    Happened::Orphaned => {
                        self.read_rest().await;
                        self.lose(ErrorKind::WorkerUnavailable, Broken::new("lost its shim")).await;
                        self.body.ladder = Some(Ladder::kill(Instant::now()));
                    }
                    Happened::Gone => break,
                },
                // A tree without a shim is killed first.
                () = self.pause.begun(), if can_move => return Some(self.body),
                // Only to look again whether it may be read.
                () = self.gate.pass(), if self.gate.is_closed() => {}
                // Without an engine this task ends, and the tree with our end of the lifeline.
                Some(order) = self.body.orders.recv() => self.end(order),
                () = sleep_until(give_up_at) => {
                    let output = std::mem::replace(&mut self.body.output, Output::Done);
                    if let Output::Broken { broken, .. } = output {
                        self.lose(ErrorKind::WorkerProtocol, broken).await;
                        let (now, grace) = (Instant::now(), self.grace);
                        self.body.ladder.get_or_insert_with(|| Ladder::terminate(now, grace));
                    }
                }
                () = sleep_until(climb_at) => if let Some(ladder) = &mut self.body.ladder {
                    match ladder.climb(Instant::now()) {
                        Climb::Send(order) => self.body.process.order(order),
                        Climb::Stuck => self.stuck().await,
                    }
                },
                // Last: a worker that floods must not keep us from ending it.
                read = self.body.stdout.read(self.body.frames.spare()), if may_read => {
                    let mut wait = LAST_WORDS;
                    let broken = match read {
                        Ok(0) => {
                            wait = EXIT_STATUS;
                            Some(Broken::new("closed its output"))
                        }
                        Err(error) => Some(Broken::new(format!("its output cannot be read: {error}"))),
                        Ok(count) => {
                            self.body.frames.filled(count);
                            self.tell_frames().await
                        }
                    };
                    if let Some(broken) = broken {
                        let until = Instant::now() + wait;
                        self.body.output = Output::Broken { broken, until };
                    }
                }
            }
        }
        self.read_rest().await;
        self.lose(
            ErrorKind::WorkerUnavailable,
            Broken::new("was killed with its shim"),
        )
        .await;
        self.tell(What::Reaped).await;
        None
    }

    /// Begins to end the worker.
    fn end(&mut self, order: Manner) {
        let (now, grace) = (Instant::now(), self.grace);
        let ladder = self
            .body
            .ladder
            .get_or_insert_with(|| Ladder::dismiss(now, grace));
        if order == Manner::Terminate {
            ladder.hurry(now);
        }
    }

    /// Reads the output that the worker wrote before its end.
    async fn read_rest(&mut self) {
        if is_planted(Defect::LastAnswerLost) {
            self.body.output = Output::Done;
        }
        let was_open = self.body.output == Output::Open;
        // Something that it left behind may go on writing for ever.
        let mut left = LAST_BYTES;
        while self.body.output == Output::Open && left > 0 {
            match self.body.stdout.read_now(self.body.frames.spare()) {
                Some(Ok(count)) if count > 0 => {
                    left = left.saturating_sub(count);
                    self.body.frames.filled(count);
                    if self.tell_frames().await.is_some() {
                        self.body.output = Output::Done;
                    }
                }
                _ => self.body.output = Output::Done,
            }
        }
        self.body.output = Output::Done;
        // A last line that is whole but for its end.
        let last = if was_open {
            self.body.frames.finish()
        } else {
            None
        };
        if let Some(frame) = last
            && let Heard::Tell(what) = self.speech.hear(frame)
        {
            self.tell(what).await;
        }
    }

    /// It was killed and is still there: say so once, and try without the shim.
    async fn stuck(&mut self) {
        if std::mem::replace(&mut self.body.reported, true) {
            return self.tell(What::Unkillable).await;
        }
        let detail = format!(
            "{}'s process tree was killed and is still there",
            S::SUBJECT
        );
        let fault = Fault::new(ErrorKind::WorkerUnavailable, detail).of(self.generation);
        self.tell(What::Stuck(fault)).await;
        self.body.process.take_over();
    }

    /// Passes frames on. A frame that cannot be used is the worker's end; says why.
    async fn tell_frames(&mut self) -> Option<Broken> {
        loop {
            match self.speech.hear(self.body.frames.next_frame()?) {
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
        if std::mem::replace(&mut self.body.lost, true) {
            return;
        }
        let said = broken
            .said
            .map(|said| self.redactor.text(&said).into_owned());
        let words = said.or_else(|| self.last_words.last());
        let fault = Fault::new(kind, format!("{} {}", S::SUBJECT, broken.detail))
            .of(self.generation)
            .saying(words)
            .with_stderr(&self.last_words.all());
        self.tell(What::Lost(fault)).await;
    }

    async fn tell(&self, what: What) {
        let generation = self.generation;
        // Without an engine the report has no receiver.
        let _ = self
            .events
            .send(WorkerEvent { generation, what }.into())
            .await;
    }
}

/// Why a worker can do no more: in our words, and what it said itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// The last lines of a worker's stderr, or of what is known about a remote server.
#[derive(Clone, Debug)]
pub(crate) struct LastWords {
    keep: usize,
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl LastWords {
    pub(super) fn new(keep: usize) -> Self {
        Self {
            keep,
            lines: Arc::default(),
        }
    }

    pub(super) fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(line);
        while lines.len() > self.keep {
            lines.pop_front();
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect()
    }

    pub(super) fn all(&self) -> String {
        self.lines().join("\n")
    }

    pub(super) fn last(&self) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let last = lines.back()?;
        Some(mainstay_contract::render::shorten(last, 200))
    }
}

/// Returns the standard error if the host pauses.
async fn read_stderr(
    mut stderr: Stderr,
    last_words: LastWords,
    log: Log,
    pause: Pause,
) -> Option<Stderr> {
    loop {
        let read = tokio::select! {
            biased;
            () = pause.begun() => return Some(stderr),
            read = stderr.source.read(stderr.frames.spare()) => read,
        };
        let count = match read {
            Ok(count) if count > 0 => count,
            _ => return None,
        };
        stderr.frames.filled(count);
        while let Some(frame) = stderr.frames.next_frame() {
            let redactor = log.redactor();
            let text = match frame {
                Frame::Line(line) => String::from_utf8_lossy(line).into_owned(),
                // The rest is missing: what is there may end within a secret.
                Frame::Oversize(cut) => redactor
                    .cut(&String::from_utf8_lossy(&cut.head))
                    .into_owned(),
            };
            // Last words reach health, faults and the log.
            let clean = redactor.line(&text, &mut stderr.key).into_owned();
            match &stderr.form {
                StderrForm::Prefixed(prefix) => match clean.strip_prefix("mcp:warning reason=") {
                    Some(warning) => log.warn_of_worker(prefix, warning),
                    None => log.say(Level::Info, format!("{prefix} {clean}")),
                },
                StderrForm::Redacted => log.pass_on(&clean),
                StderrForm::Known => log.pass_on(&redactor.known(&text)),
            }
            last_words.push(clean);
        }
    }
}
