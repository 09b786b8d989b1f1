//! Checks of arguments and replies that cannot stop the host.
//!
//! [`Checkers::submit`] returns the verdict at once where compiling and checking are provably cheap.
//! Everything else goes to a checker: a process of the same executable that is killed at the check's
//! deadline, limited in memory, and replaced after a crash or a large check. The verdict follows as
//! [`Checked`] on the channel given to [`Checkers::new`].
//!
//! Theory of operation. Checks wait in a [`queue`]. [`Shared::pump`] starts a task for each check
//! that may run; the task takes a warm checker or spawns one, and brings it back. A single task,
//! [`Shared::tend`], lets checks expire in the queue and ends idle checkers; it runs only while there
//! is something to tend. Without checks there is neither a task nor a process.
//!
//! * [`queue`]: order and bounds of waiting checks;
//! * [`checker`]: the host's side of one process; [`child`]: the process; [`protocol`]: between them;
//! * [`cache`]: compiled definitions in the host;
//! * [`limits`]: every bound.

mod cache;
mod checker;
mod child;
mod limits;
mod protocol;
mod queue;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

use mainstay_kernel::core::action::CheckRequest;
use mainstay_schema::Violation;
use mainstay_schema::check::{Compiled, Definition, GaveUp, Subject, Verdict};
use tokio::sync::{Notify, mpsc};

use self::cache::Cache;
use self::checker::Checker;
pub use self::child::run_checker;
pub(crate) use self::limits::CheckLimits;
use self::queue::{Queue, Waiting};
use crate::config::Shim;

/// The session that pays for catalogs.
const CATALOGS: u64 = u64::MAX;

/// The end of a check that did not end at once.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) ticket: u64,
    pub(crate) verdict: Verdict,
    /// For a catalog that did not pass: the tool at fault.
    pub(crate) tool: Option<String>,
}

/// Every check of a host. Dropping it cancels all checks and ends all processes.
#[derive(Debug)]
pub(crate) struct Checkers<E: From<Checked> + Send + 'static> {
    cache: Cache,
    shared: Arc<Shared<E>>,
}

impl<E: From<Checked> + Send + 'static> Checkers<E> {
    /// No process starts before the first check that needs one. Needs a tokio runtime from then on.
    pub(crate) fn new(shim: &Shim, limits: CheckLimits, events: mpsc::Sender<E>) -> Self {
        let state = State {
            queue: Queue::new(limits.queue, limits.queue_bytes, limits.checkers),
            running: BTreeMap::new(),
            idle: Vec::new(),
            is_tended: false,
            is_closed: false,
        };
        Self {
            cache: Cache::new(limits.cached, limits.cached_bytes),
            shared: Arc::new(Shared {
                limits,
                program: shim.program.clone(),
                _holds: Arc::clone(&shim.holds),
                events,
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
        }
    }

    /// Checks a value. `None`: the verdict follows under this ticket, at the deadline at the latest.
    pub(crate) fn submit(
        &mut self,
        ticket: u64,
        request: &CheckRequest,
        deadline: Instant,
    ) -> Option<Verdict> {
        let (definition, subject) = (&request.definition, &request.subject);
        if !definition.reads(subject) {
            return Some(Verdict::Passed);
        }
        match self.compiled(definition) {
            Some(Ok(compiled)) if compiled.is_cheap(subject) => {
                return Some(compiled.run(subject));
            }
            Some(Err(reason)) => return Some(rejected("", &reason)),
            Some(Ok(_)) | None => {}
        }
        let bytes = match subject {
            Subject::Arguments(text) | Subject::Reply(text) => text.len(),
            Subject::NoReply => 0,
        };
        self.enqueue(Waiting {
            ticket,
            fair: request.fair,
            deadline,
            bytes,
            work: Work::Check(definition.clone(), subject.clone()),
        })
    }

    /// Compiles the tools of a catalog. `Passed` if all of them can be served; otherwise the path of
    /// the violation, the reason of `Unchecked` or [`Checked::tool`] names the first one that
    /// cannot. `None`: the verdict follows.
    pub(crate) fn vet(
        &mut self,
        ticket: u64,
        definitions: Vec<Definition>,
        deadline: Instant,
    ) -> Option<Verdict> {
        let mut left = self.shared.limits.vet_bytes;
        let mut rest = Vec::new();
        for definition in definitions {
            let room = left.checked_sub(definition.schema_bytes());
            let compiled = room.and_then(|room| Some((room, self.compiled(&definition)?)));
            match compiled {
                Some((room, compiled)) => {
                    left = room;
                    let verdict = vetted(&definition, &compiled);
                    if verdict != Verdict::Passed {
                        return Some(verdict);
                    }
                }
                None => rest.push(definition),
            }
        }
        if rest.is_empty() {
            return Some(Verdict::Passed);
        }
        self.enqueue(Waiting {
            ticket,
            fair: CATALOGS,
            deadline,
            bytes: 0,
            work: Work::Vet(rest),
        })
    }

    /// Cancels a check. A verdict that is already in the channel still arrives.
    pub(crate) fn forget(&mut self, ticket: u64) {
        let mut state = self.shared.state();
        if state.queue.remove(ticket).is_none()
            && let Some(cancel) = state.running.get(&ticket)
        {
            cancel.notify_one();
        }
    }

    /// The validators of a definition that is cheap to compile.
    fn compiled(&mut self, definition: &Definition) -> Option<Result<Compiled, String>> {
        definition
            .is_cheap_to_compile()
            .then(|| self.cache.get(definition))
    }

    fn enqueue(&self, waiting: Waiting<Work>) -> Option<Verdict> {
        if waiting.deadline <= Instant::now() {
            return Some(gave_up(GaveUp::Deadline));
        }
        if self.shared.state().queue.push(waiting).is_err() {
            return Some(gave_up(GaveUp::Budget));
        }
        self.shared.pump();
        None
    }
}

impl<E: From<Checked> + Send + 'static> Drop for Checkers<E> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_closed = true;
        state.queue.clear();
        for cancel in state.running.values() {
            cancel.notify_one();
        }
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        drop(idle);
        self.shared.changed.notify_one();
    }
}

/// The work of one check.
#[derive(Debug)]
enum Work {
    Check(Definition, Subject),
    Vet(Vec<Definition>),
}

/// Between the owner and the tasks.
#[derive(Debug)]
struct Shared<E> {
    limits: CheckLimits,
    program: PathBuf,
    /// Keeps open what `program` names.
    _holds: Arc<std::os::fd::OwnedFd>,
    events: mpsc::Sender<E>,
    /// Never locked across an await.
    state: Mutex<State>,
    /// Something that [`Shared::tend`] waits for may be earlier now.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    queue: Queue<Work>,
    /// Cancels a running check, by ticket.
    running: BTreeMap<u64, Arc<Notify>>,
    /// Warm checkers and since when; the last one was used last.
    idle: Vec<(Instant, Checker)>,
    is_tended: bool,
    is_closed: bool,
}

impl<E: From<Checked> + Send + 'static> Shared<E> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts every check that may run now.
    fn pump(self: &Arc<Self>) {
        let mut state = self.state();
        while state.running.len() < self.limits.checkers {
            let Some(waiting) = state.queue.pop() else {
                break;
            };
            let cancel = Arc::new(Notify::new());
            state.running.insert(waiting.ticket, Arc::clone(&cancel));
            let warm = state.idle.pop().map(|(_, checker)| checker);
            tokio::spawn(Arc::clone(self).run(waiting, cancel, warm));
        }
        if !state.is_tended && (state.queue.next_deadline().is_some() || !state.idle.is_empty()) {
            state.is_tended = true;
            tokio::spawn(Arc::clone(self).tend());
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Runs one check to its end.
    async fn run(
        self: Arc<Self>,
        waiting: Waiting<Work>,
        cancel: Arc<Notify>,
        warm: Option<Checker>,
    ) {
        let mut slot = Slot {
            limits: self.limits,
            program: &self.program,
            checker: warm,
            tool: None,
        };
        let deadline = waiting.deadline;
        let verdict = tokio::select! {
            biased;
            () = cancel.notified() => None,
            verdict = slot.work(&waiting.work) => Some(verdict),
            () = tokio::time::sleep_until(deadline) => Some(Err(GaveUp::Deadline)),
        };
        // Whatever did not end by itself still computes.
        let has_ended = matches!(verdict, Some(Ok(_)));
        let Slot { checker, tool, .. } = slot;
        let keep = checker.and_then(|checker| {
            let keeps = has_ended && checker.is_small(&self.limits);
            if keeps {
                return Some(checker);
            }
            // Reaping does not delay the verdict.
            tokio::spawn(checker.end());
            None
        });
        {
            let mut state = self.state();
            state.running.remove(&waiting.ticket);
            state.queue.finish(waiting.fair);
            if !state.is_closed {
                state
                    .idle
                    .extend(keep.map(|checker| (Instant::now(), checker)));
            }
        }
        self.pump();
        if let Some(verdict) = verdict {
            let verdict = verdict.unwrap_or_else(gave_up);
            let tool = tool.filter(|_| verdict != Verdict::Passed);
            self.report(waiting.ticket, verdict, tool).await;
        }
    }

    /// Lets checks expire and ends idle checkers, until there is neither.
    async fn tend(self: Arc<Self>) {
        loop {
            let now = Instant::now();
            let (expired, idle, next) = {
                let mut state = self.state();
                let expired = state.queue.expire(now);
                let is_old = |since: &Instant| now.duration_since(*since) >= self.limits.idle;
                let old = state.idle.iter().position(|(since, _)| is_old(since));
                let idle = old.map(|at| state.idle.remove(at).1);
                let ends = state
                    .idle
                    .iter()
                    .map(|(since, _)| *since + self.limits.idle);
                let next = ends.chain(state.queue.next_deadline()).min();
                if expired.is_none() && idle.is_none() && next.is_none() {
                    state.is_tended = false;
                    return;
                }
                (expired, idle, next)
            };
            if expired.is_some() || idle.is_some() {
                if let Some(checker) = idle {
                    checker.end().await;
                }
                if let Some(waiting) = expired {
                    let tool = None;
                    self.report(waiting.ticket, gave_up(GaveUp::Deadline), tool)
                        .await;
                }
                continue;
            }
            let next = next.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    async fn report(&self, ticket: u64, verdict: Verdict, tool: Option<String>) {
        let checked = Checked {
            ticket,
            verdict,
            tool,
        };
        // Without a receiver the host is ending, and the verdict is dropped.
        let _ = self.events.send(checked.into()).await;
    }
}

/// A checker at work on one check.
struct Slot<'a> {
    limits: CheckLimits,
    program: &'a std::path::Path,
    checker: Option<Checker>,
    /// The tool of a catalog that is being compiled.
    tool: Option<String>,
}

impl Slot<'_> {
    async fn work(&mut self, work: &Work) -> Result<Verdict, GaveUp> {
        match work {
            Work::Check(definition, subject) => self.check(definition, Some(subject)).await,
            Work::Vet(definitions) => {
                for definition in definitions {
                    self.tool = Some(definition.name.clone());
                    let verdict = self.check(definition, None).await?;
                    if verdict != Verdict::Passed {
                        return Ok(verdict);
                    }
                }
                Ok(Verdict::Passed)
            }
        }
    }

    /// Checks a value, or only compiles the definition.
    async fn check(
        &mut self,
        definition: &Definition,
        subject: Option<&Subject>,
    ) -> Result<Verdict, GaveUp> {
        loop {
            let was_warm = self.checker.is_some();
            let checker = self.checker_for(definition).await?;
            let verdict = match subject {
                Some(subject) => checker.check(definition, subject).await,
                None => checker.compile(definition).await,
            };
            let Err(reason) = verdict else {
                return verdict;
            };
            // Already reaped.
            self.checker = None;
            // A warm checker may have died before this check. A fresh one proves that it did not.
            if !was_warm || reason != GaveUp::Crashed {
                return Err(reason);
            }
        }
    }

    /// The checker of this slot, replaced if it cannot serve this definition.
    async fn checker_for(&mut self, definition: &Definition) -> Result<&mut Checker, GaveUp> {
        if let Some(mut checker) = self.checker.take() {
            if checker.is_fit(definition, &self.limits) {
                return Ok(self.checker.insert(checker));
            }
            checker.end().await;
        }
        let spawned = Checker::spawn(self.program, self.limits.memory_bytes);
        let checker = spawned.map_err(|_| GaveUp::Crashed)?;
        Ok(self.checker.insert(checker))
    }
}

fn gave_up(reason: GaveUp) -> Verdict {
    Verdict::GaveUp { reason }
}

fn rejected(path: &str, message: &str) -> Verdict {
    Verdict::Rejected {
        violations: vec![Violation::new(path, message)],
    }
}

/// The verdict about one tool of a catalog.
fn vetted(definition: &Definition, compiled: &Result<Compiled, String>) -> Verdict {
    let name = &definition.name;
    match compiled {
        Err(reason) => rejected(name, reason),
        Ok(compiled) => match compiled.unchecked() {
            Some(reason) => Verdict::Unchecked {
                reason: format!("{name}: {reason}"),
            },
            None => Verdict::Passed,
        },
    }
}
