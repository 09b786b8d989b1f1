//! A simulated process, whatever it speaks: it reads lines, makes effects, answers, and misbehaves
//! as its plan says.
//!
//! Its language is a [`Tongue`]. One task is one process; a crash is the end of the task, with
//! whatever bytes the pipes already hold.

use std::collections::BTreeMap;
use std::time::Duration;

use mainstay_contract::frame::{Frame, FrameReader};
use mainstay_host::sim::{Child, Exit, Order, PipeReader, PipeWriter, Weather};
use tokio::time::Instant;

use super::book::{Book, Pages};
use super::plan::{Deed, Incarnation, Start, Tool};

/// Longest line that a program reads.
const LINE: usize = 256 * 1024;
/// Milliseconds between a call and its effect, and between the effect and its answer.
const WORK_MS: u64 = 2;

/// Milliseconds for which a process does not read after it closed its output.
const UNHEARD_MS: u64 = 25;

/// The language of a program.
pub(super) trait Tongue: Send {
    /// What the process says by itself once it has started.
    fn greeting(&self) -> Option<String>;
    fn hear(&mut self, line: &[u8]) -> Heard;
    fn answer(&self, call: &Call) -> String;
    fn refusal(&self, call: &Call) -> String;
    /// What is said about a call that was cancelled.
    fn cancelled(&self, call: &Call) -> Option<String>;
    fn probed(&self, call: &Call, applied: bool) -> String;
    fn progress(&self, call: &Call, step: u64) -> Option<String>;
    /// An answer to a call that was never sent.
    fn stranger(&self) -> String;
}

/// What a line means.
pub(super) enum Heard {
    Nothing,
    Say(String),
    Call(Call),
    Cancel(String),
    /// Finish and exit.
    Drain,
}

/// One call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// How the answer names it.
    pub(super) reference: String,
    pub(super) tool: Tool,
    pub(super) key: String,
    pub(super) size: usize,
    pub(super) token: Option<String>,
    /// Only asks whether the effect was made.
    pub(super) probe: bool,
}

/// What is still to be done.
#[derive(Clone, Debug)]
enum Task {
    Ready,
    Effect(Call),
    Answer(Call),
    Progress(Call, u64),
    Say(String),
    Crash(Exit),
    /// The child of a dead process makes its effect.
    OrphanEffect(String),
    /// The tree is gone.
    Vanish,
    ReadAgain,
}

/// The pipes of a process.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) stdin: Option<PipeReader>,
    pub(super) stdout: Option<PipeWriter>,
    /// Only held open.
    pub(super) _stderr: Option<PipeWriter>,
}

/// One process.
pub(super) struct Body<T> {
    tongue: T,
    plan: Incarnation,
    book: Book,
    weather: Weather,
    child: Child,
    pid: u32,
    ends: Ends,
    frames: FrameReader,
    agenda: BTreeMap<(Instant, u64), Task>,
    sequence: u64,
    out: Vec<u8>,
    /// Calls that were heard, and those that are not answered.
    heard: usize,
    open: Vec<Call>,
    reads: bool,
    draining: bool,
    /// Does not react to cancels.
    deaf: bool,
    /// It did, or was planned to do, something that a host may end it for.
    guilty: bool,
    asked_to_end: bool,
    dead: bool,
    /// It exits once everything is written.
    last_words: Option<Exit>,
}

impl<T: Tongue> Body<T> {
    pub(super) fn new(
        tongue: T,
        plan: Incarnation,
        (book, weather): (Book, Weather),
        (child, pid): (Child, u32),
        ends: Ends,
    ) -> Self {
        let guilty = plan.start != Start::Normal || plan.ignores_term;
        Self {
            tongue,
            plan,
            book,
            weather,
            child,
            pid,
            ends,
            frames: FrameReader::new(LINE),
            agenda: BTreeMap::new(),
            sequence: 0,
            out: Vec::new(),
            heard: 0,
            open: Vec::new(),
            reads: true,
            draining: false,
            deaf: false,
            guilty,
            asked_to_end: false,
            dead: false,
            last_words: None,
        }
    }

    /// Lives and dies.
    pub(super) async fn run(mut self) {
        self.book.lock().alive += 1;
        self.begin();
        loop {
            let next = self.agenda.keys().next().map(|(at, _)| *at);
            let has_output = !self.out.is_empty();
            tokio::select! {
                biased;
                order = self.child.order() => self.obey(order),
                () = sleep_until(next) => {
                    let Some((_, task)) = self.agenda.pop_first() else { continue };
                    if matches!(task, Task::Vanish) {
                        break;
                    }
                    self.act(task);
                }
                wrote = write(&mut self.ends.stdout, &self.out), if has_output => {
                    self.out.drain(..wrote.min(self.out.len()));
                    if let Some(exit) = self.last_words.filter(|_| self.out.is_empty()) {
                        self.die(exit);
                    }
                }
                count = read(&mut self.ends.stdin, self.frames.spare()), if self.reads => {
                    self.frames.filled(count);
                    if count == 0 {
                        self.reads = false;
                        self.draining = true;
                    }
                    self.hear_lines();
                }
            }
            let is_idle = self.open.is_empty() && self.out.is_empty();
            if self.draining && is_idle && !self.dead {
                self.die(Exit::Code(0));
            }
        }
        self.ends = Ends::default();
        self.book.lock().alive -= 1;
        self.child.gone();
    }

    fn begin(&mut self) {
        match self.plan.start {
            Start::NotStarted => {
                self.child.not_started("no such program");
                self.dead = true;
                self.reads = false;
                self.later(0, Task::Vanish);
                return;
            }
            Start::Normal => self.later(1, Task::Ready),
            Start::Slow(ms) => self.later(ms, Task::Ready),
            Start::DiesAtOnce => self.later(1, Task::Crash(Exit::Code(1))),
            Start::NeverReady => {}
        }
        self.child.up(self.pid);
    }

    fn later(&mut self, ms: u64, task: Task) {
        self.sequence += 1;
        let at = Instant::now() + Duration::from_millis(ms);
        self.agenda.insert((at, self.sequence), task);
    }

    fn obey(&mut self, order: Order) {
        if !self.asked_to_end && !self.guilty && !self.dead && !self.draining {
            self.book.lock().ended_innocent = true;
        }
        self.asked_to_end = true;
        match order {
            Order::Terminate if self.plan.ignores_term || self.dead => {}
            Order::Terminate => self.later(0, Task::Crash(Exit::Signal(15))),
            Order::Kill | Order::TakeOver => {
                self.later(self.plan.kill_ms, Task::Crash(Exit::Signal(9)));
                self.later(self.plan.kill_ms, Task::Vanish);
            }
        }
    }

    fn act(&mut self, task: Task) {
        match task {
            Task::OrphanEffect(key) => self.effect(&key),
            Task::Crash(exit) => self.die(exit),
            _ if self.dead || self.last_words.is_some() => {}
            Task::Ready => {
                if let Some(line) = self.tongue.greeting() {
                    self.say(&line);
                }
            }
            Task::Effect(call) => {
                if self.is_open(&call) {
                    self.effect(&call.key);
                }
            }
            Task::Answer(call) => {
                if self.close(&call) {
                    self.answer(&call);
                }
            }
            Task::Progress(call, step) => {
                if self.is_open(&call)
                    && let Some(line) = self.tongue.progress(&call, step)
                {
                    self.say(&line);
                }
            }
            Task::Say(line) => self.say(&line),
            Task::ReadAgain => self.reads = true,
            Task::Vanish => {}
        }
    }

    fn answer(&mut self, call: &Call) {
        let line = self.tongue.answer(call);
        self.say(&line);
        *self
            .book
            .lock()
            .answered
            .entry(call.key.clone())
            .or_default() += 1;
    }

    fn effect(&self, key: &str) {
        let mut pages = self.book.lock();
        let times = pages.effects.entry(key.to_owned()).or_default();
        times.push(Instant::now());
    }

    fn is_open(&self, call: &Call) -> bool {
        let is_it = |open: &Call| open.reference == call.reference;
        self.open.iter().any(is_it)
    }

    fn close(&mut self, call: &Call) -> bool {
        let is_it = |open: &Call| open.reference == call.reference;
        let place = self.open.iter().position(is_it);
        place.map(|place| self.open.remove(place)).is_some()
    }

    fn say(&mut self, line: &str) {
        self.out.extend(line.as_bytes());
        self.out.push(b'\n');
    }

    fn hear_lines(&mut self) {
        let mut lines = Vec::new();
        while let Some(frame) = self.frames.next_frame() {
            if let Frame::Line(line) = frame {
                lines.push(line.to_vec());
            }
        }
        for line in lines {
            if self.dead {
                note_keys(&mut self.book.lock(), &line);
            } else {
                self.hear(&line);
            }
        }
    }

    fn hear(&mut self, line: &[u8]) {
        if self.last_words.is_some() {
            return note_keys(&mut self.book.lock(), line);
        }
        match self.tongue.hear(line) {
            Heard::Nothing => {}
            Heard::Say(line) => self.say(&line),
            Heard::Drain => self.draining = true,
            Heard::Cancel(reference) => {
                let is_it = |open: &Call| open.reference == reference;
                let place = self.open.iter().position(is_it);
                if let Some(place) = place.filter(|_| !self.deaf) {
                    let call = self.open.remove(place);
                    if let Some(line) = self.tongue.cancelled(&call) {
                        self.say(&line);
                    }
                }
            }
            Heard::Call(call) if call.probe => {
                let applied = self.book.lock().is_applied(&call.key);
                let line = self.tongue.probed(&call, applied);
                self.say(&line);
            }
            Heard::Call(call) => {
                note_keys(&mut self.book.lock(), line);
                let number = self.heard;
                self.heard += 1;
                let deed = self.plan.deeds.iter().find(|(nth, _)| *nth == number);
                let deed = deed.map(|(_, deed)| *deed);
                let deed = deed.filter(|_| !self.weather.is_calm());
                self.guilty |= deed.is_some();
                self.open.push(call.clone());
                match deed {
                    None => self.serve(call),
                    Some(deed) => self.misbehave(call, deed),
                }
            }
        }
    }

    /// Makes the effect, then answers.
    fn serve(&mut self, call: Call) {
        self.effect_soon(&call);
        self.later(2 * WORK_MS, Task::Answer(call));
    }

    fn effect_soon(&mut self, call: &Call) {
        if call.tool != Tool::Get {
            self.later(WORK_MS, Task::Effect(call.clone()));
        }
    }

    fn effect_now(&self, call: &Call) {
        if call.tool != Tool::Get {
            self.effect(&call.key);
        }
    }

    fn misbehave(&mut self, call: Call, deed: Deed) {
        let crash = Task::Crash(Exit::Signal(11));
        match deed {
            Deed::Twice => {
                let line = self.tongue.answer(&call);
                self.serve(call);
                self.later(2 * WORK_MS, Task::Say(line));
            }
            Deed::Garbage => {
                self.out.extend(b"\xff\xfe{garbage\n");
                self.serve(call);
            }
            Deed::Stranger => {
                let line = self.tongue.stranger();
                self.say(&line);
                self.serve(call);
            }
            Deed::Refuse => {
                self.close(&call);
                let line = self.tongue.refusal(&call);
                self.say(&line);
            }
            Deed::CrashBeforeEffect => self.later(WORK_MS, crash),
            Deed::CrashAfterEffect => {
                self.effect_soon(&call);
                self.later(2 * WORK_MS, crash);
            }
            Deed::CrashInsideAnswer => {
                self.effect_now(&call);
                let line = self.tongue.answer(&call);
                let half = line.as_bytes().get(..line.len() / 2);
                self.out.extend(half.unwrap_or_default());
                self.last_words = Some(Exit::Signal(11));
            }
            Deed::AnswerThenCrash | Deed::LastLineOpen => {
                self.effect_now(&call);
                self.close(&call);
                self.answer(&call);
                if deed == Deed::LastLineOpen {
                    self.out.pop();
                }
                self.last_words = Some(Exit::Code(0));
            }
            Deed::Orphan(ms) => {
                if call.tool != Tool::Get {
                    self.later(ms, Task::OrphanEffect(call.key));
                }
                self.die(Exit::Signal(11));
            }
            Deed::Hang => {}
            Deed::HangDeaf => self.deaf = true,
            Deed::Late(ms) => {
                self.effect_soon(&call);
                self.later(ms, Task::Answer(call));
            }
            Deed::Progress { count, every_ms } => {
                self.effect_soon(&call);
                for step in 1..=count {
                    self.later(every_ms * step, Task::Progress(call.clone(), step));
                }
                self.later(every_ms * count + 1, Task::Answer(call));
            }
            Deed::ProgressThenHang => {
                for step in 1..=2 {
                    self.later(300 * step, Task::Progress(call.clone(), step));
                }
            }
            Deed::Flood(lines) => {
                for step in 1..=lines {
                    if let Some(line) = self.tongue.progress(&call, step) {
                        self.say(&line);
                    }
                }
                self.serve(call);
            }
            Deed::CloseOutput => {
                self.out.clear();
                self.ends.stdout = None;
                // What is sent meanwhile waits, and is read after the host has given it up.
                self.reads = false;
                self.later(UNHEARD_MS, Task::ReadAgain);
                self.plan.ignores_term = true;
            }
            Deed::CloseInput => {
                self.close_input();
                self.serve(call);
            }
            Deed::StopReading(ms) => {
                self.reads = false;
                self.later(ms, Task::ReadAgain);
                self.serve(call);
            }
        }
    }

    /// What its pipe holds was handed over, although it is never read.
    fn close_input(&mut self) {
        self.reads = false;
        let Some(stdin) = self.ends.stdin.take() else {
            return;
        };
        let mut pages = self.book.lock();
        let mut rest = Vec::new();
        if let Some(Frame::Line(line)) = self.frames.finish() {
            rest.extend_from_slice(line);
        }
        rest.extend(stdin.unread());
        note_keys(&mut pages, &rest);
    }

    fn die(&mut self, exit: Exit) {
        if self.dead {
            return;
        }
        self.dead = true;
        self.out.clear();
        self.close_input();
        self.ends = Ends::default();
        self.book.lock().deaths.push(Instant::now());
        self.child.ended(exit);
    }
}

/// Notes the calls in bytes that a process was sent.
fn note_keys(pages: &mut Pages, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in text.split_inclusive('\n') {
        let key = line.split("\"key\":\"").nth(1);
        match key.and_then(|rest| rest.split_once('"')) {
            Some((key, _)) => *pages.handed_over.entry(key.to_owned()).or_default() += 1,
            None if !line.ends_with('\n') => pages.torn = true,
            None => {}
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Writes some bytes; to a pipe that is closed or broken, all of them at once.
async fn write(pipe: &mut Option<PipeWriter>, bytes: &[u8]) -> usize {
    match pipe {
        Some(pipe) => pipe.write(bytes).await.unwrap_or(bytes.len()),
        None => bytes.len(),
    }
}

async fn read(pipe: &mut Option<PipeReader>, buffer: &mut [u8]) -> usize {
    match pipe {
        Some(pipe) => pipe.read(buffer).await,
        None => std::future::pending().await,
    }
}
