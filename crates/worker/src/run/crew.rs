//! The threads of a worker: one leads, the others run calls or wait in line. See [`crate::run`].

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::CallId;
use mainstay_contract::outcome::Problem;
use mainstay_contract::rpc::{Answer, Call, FromWorker, Op, Start, ToWorker};
use mainstay_contract::tool::Pace;

use super::desk::{Admission, Desk, Job};
use super::gate::Gate;
use super::input::{Incoming, Input};
use super::{Ended, Outlet, broken};
use crate::context::{Context, Surroundings};
use crate::dispatch::dispatch;
use crate::pack::Pack;
use crate::progress::{Reporter, Way};
use crate::settings::Unable;
use crate::sync::lock;
use crate::warning::warn;

/// Most calls at once, whatever the host says.
const MAX_POOL: usize = 64;

/// Everything that the threads share.
#[derive(Debug)]
pub(super) struct Crew(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pack: Pack,
    /// Calls that may run at once; there is one thread more.
    pool: usize,
    /// Where threads wait that have nothing to do.
    gate: Gate,
    /// Held by the leader.
    input: Mutex<Input>,
    desk: Desk,
    way: Way,
    surroundings: Surroundings,
}

/// Why a thread stops reading.
#[derive(Debug)]
enum Turn {
    Run(Job),
    End,
}

impl Crew {
    pub(super) fn new(pack: Pack, start: &Start, input: Input, outlet: &Arc<Outlet>) -> Self {
        let pool = start.pool.clamp(1, MAX_POOL);
        Self(Arc::new(Shared {
            pack,
            pool,
            gate: Gate::new(input.file()),
            input: Mutex::new(input),
            desk: Desk::new(pool),
            way: Way {
                outlet: Arc::clone(outlet),
                clock: Arc::default(),
            },
            surroundings: Surroundings::new(Duration::from_millis(start.grace_ms), start.text),
        }))
    }

    /// Starts the threads, announces the worker and serves until its end.
    pub(super) fn work(self, ready: &FromWorker) -> Result<Ended, Unable> {
        let shared = &self.0;
        // Threads read only after the announcement is out, so no answer overtakes it.
        let input = lock(&shared.input);
        for number in 0..=shared.pool {
            let shared = Arc::clone(shared);
            thread::Builder::new()
                .name(format!("calls-{number}"))
                .spawn(move || shared.take_turns())
                .map_err(|error| Unable::new(format_args!("cannot start a thread: {error}")))?;
        }
        shared.send(ready);
        drop(input);
        // Messages may have come together with the first one.
        shared.gate.announce();
        let ended = shared.way.clock.run();
        shared.desk.abandon();
        #[cfg(unix)]
        shared.surroundings.trees.kill_all();
        Ok(ended)
    }
}

impl Shared {
    fn take_turns(self: &Arc<Self>) {
        while let Some(first) = self.lead() {
            let mut next = Some(first);
            while let Some(job) = next {
                next = self.run(job);
            }
        }
    }

    /// Waits for messages and reads until there is a call for this thread. `None` at the end.
    fn lead(self: &Arc<Self>) -> Option<Job> {
        // Left over by a thread that went to run a call: no need to wait, nor to wake another.
        if let Ok(mut input) = self.input.try_lock()
            && input.has_more()
            && let Some(turn) = self.read(&mut input)
        {
            return self.leave(turn, &input);
        }
        loop {
            let seen = self.gate.wait();
            let mut input = lock(&self.input);
            input.refresh(seen);
            if let Some(turn) = self.read(&mut input) {
                return self.leave(turn, &input);
            }
        }
    }

    /// Reads until there is a reason to stop, or for now nothing.
    fn read(self: &Arc<Self>, input: &mut Input) -> Option<Turn> {
        if self.way.clock.has_ended() {
            return Some(Turn::End);
        }
        loop {
            match input.next()? {
                Incoming::Message(message) => {
                    if let Some(job) = self.take(message) {
                        return Some(Turn::Run(job));
                    }
                }
                Incoming::End => self.end(Ended::HostGone),
                Incoming::Broken(detail) => self.end(broken(&detail)),
            }
            if self.way.clock.has_ended() {
                return Some(Turn::End);
            }
        }
    }

    fn leave(&self, turn: Turn, input: &Input) -> Option<Job> {
        match turn {
            Turn::Run(job) => {
                if input.has_more() {
                    self.gate.announce();
                }
                Some(job)
            }
            Turn::End => {
                self.gate.announce();
                None
            }
        }
    }

    fn take(self: &Arc<Self>, message: ToWorker) -> Option<Job> {
        match message {
            ToWorker::Call(call) => match self.admit(call) {
                Admission::Run(job) if job.pace == Pace::Long => self.run_apart(job),
                Admission::Run(job) => return Some(job),
                Admission::Waits => {}
                Admission::Refused(call, kind) => self.fail(call, kind),
            },
            ToWorker::Cancel { call } => {
                if let Some(call) = self.desk.cancel(call) {
                    self.fail(call, ErrorKind::Cancelled);
                }
            }
            ToWorker::Ping { nonce } => self.send(&FromWorker::Pong { nonce }),
            ToWorker::Drain {} => {
                if self.desk.drain() {
                    self.drained();
                }
            }
            ToWorker::Start(_) => warn("worker_protocol", "a second start was ignored"),
        }
        None
    }

    fn admit(&self, call: Call) -> Admission {
        let pace = match &call.op {
            Op::Tool { name, .. } => self.pack.pace_of(name),
            _ => Pace::Short,
        };
        self.desk.admit(call, pace, Instant::now())
    }

    /// Runs a long call, and those that wait behind it, on a thread of their own.
    fn run_apart(self: &Arc<Self>, job: Job) {
        let (shared, id) = (Arc::clone(self), job.call.call);
        let started = thread::Builder::new()
            .name("long-call".to_owned())
            .spawn(move || {
                let mut next = Some(job);
                while let Some(job) = next {
                    next = shared.run(job);
                }
            });
        if started.is_err() {
            // Nothing is lost: calls that wait were queued behind one that runs.
            self.desk.answered(id, Pace::Long);
            self.fail(id, ErrorKind::Overloaded);
            self.desk.written();
        }
    }

    /// Runs a call and answers it; gives the next one, if one waits.
    fn run(&self, job: Job) -> Option<Job> {
        let Job {
            call,
            pace,
            cancel,
            received,
        } = job;
        let reporter = Reporter::new(call.call, cancel.clone(), Some(self.way.clone()));
        let timeout = Duration::from_millis(call.timeout_ms);
        let context = Context {
            call: call.call,
            attempt: call.attempt,
            timeout,
            deadline: received.checked_add(timeout).unwrap_or(received),
            cancel,
            reporter,
            trace: call.trace,
            surroundings: self.surroundings.clone(),
        };
        let answer = dispatch(&self.pack, &call.op, &context);
        context.reporter.close();
        let next = self.desk.answered(call.call, pace);
        self.answer(call.call, answer);
        if self.desk.written() {
            self.drained();
        }
        next
    }

    fn fail(&self, call: CallId, kind: ErrorKind) {
        self.answer(call, Answer::Failed(Problem::of(kind)));
    }

    fn answer(&self, call: CallId, answer: Answer) {
        if self.way.outlet.answer(call, answer).is_err() {
            self.end(Ended::HostGone);
        }
    }

    fn send(&self, message: &FromWorker) {
        if self.way.outlet.send(message).is_err() {
            self.end(Ended::HostGone);
        }
    }

    fn drained(&self) {
        self.send(&FromWorker::Drained {});
        self.end(Ended::Drained);
    }

    /// Ends the worker. One after the other, every thread comes by the gate and ends too.
    fn end(&self, ended: Ended) {
        self.way.clock.end(ended);
        self.gate.announce();
    }
}
