//! The ledger of tasks behind the loop: orders of the core go to a thread of their own, replies come back as
//! events.
//!
//! The file is opened by the first order that needs it. A host that may run tasks takes a lease before it starts
//! its first worker; every worker's shim holds it, too, so no other host takes over a task while a process may
//! still work on it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mainstay_contract::canonical::canonical_text;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::limits::Limits;
use mainstay_contract::outcome::{Outcome, Problem, Success};
use mainstay_contract::replay::Replay;
use mainstay_contract::trace::Hex;
use mainstay_kernel::core::tasks::{
    NewTask, TaskOrder, TaskOrigin, TaskOwner, TaskReply, TaskWork,
};
pub use mainstay_kernel::core::tasks::{OnTimeout, TaskRules, TaskView, ToolTasks, describe};
use mainstay_ledger::{
    Clerk, Flush, Key, Lease, LeaseHolder, LeaseSlot, Ledger, LedgerError, Order, Origin, Owner,
    Recorded, Reply, Settings, SqliteLedger, Status, Task, TaskId,
};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::clock::wall_ms;
use crate::engine::Event;
use crate::entropy;
use crate::log::{Level, Log};

/// The file in the state directory.
const FILE: &str = "tasks.db";
/// The directory of leases beside it.
const LEASES: &str = "hosts";
/// The way to a directory for tasks.
const DIRECTORY_HINT: &str = "set MAINSTAY_STATE_DIR to a directory that the host can write";
/// Milliseconds between two attempts to take the lease.
const RETRY_MS: u64 = 1_000;
/// Tasks of one page.
const PAGE: usize = 50;

/// Where the tasks of a user are, and their limits.
#[derive(Clone, Debug)]
pub struct TaskStore {
    path: PathBuf,
    leases: PathBuf,
    settings: Settings,
}

impl TaskStore {
    /// The store in a state directory.
    pub fn new(directory: &Path, limits: &Limits) -> Self {
        Self {
            path: directory.join(FILE),
            leases: directory.join(LEASES),
            settings: Settings {
                bytes: limits.ledger_bytes as u64,
                flush: match limits.ledger_flush {
                    0 => Flush::Checkpoints,
                    _ => Flush::Every,
                },
                retention_ms: limits.task_retention_ms,
            },
        }
    }

    /// Opens the file without a lease, for the command line. `None` if there is none yet.
    pub fn open(&self) -> Result<Option<TaskDesk>, Problem> {
        if !self.path.exists() {
            return Ok(None);
        }
        let holder = LeaseHolder::from_random(entropy::random_id());
        let ledger = self.ledger(&holder).map_err(|error| problem(&error))?;
        let store = self.clone();
        Ok(Some(TaskDesk { ledger, store }))
    }

    fn take_lease(&self) -> Result<Lease, Problem> {
        let holder = LeaseHolder::from_random(entropy::random_id());
        Lease::take(&self.leases, holder).map_err(|error| {
            let place = self.leases.display();
            let said = format!("the host cannot record tasks: {place}: {error}");
            Problem::new(ErrorKind::TaskNotRecorded, said).with_hint(DIRECTORY_HINT)
        })
    }

    fn ledger(&self, holder: &LeaseHolder) -> Result<SqliteLedger, LedgerError> {
        SqliteLedger::open(&self.path, &self.leases, holder, self.settings)
    }
}

/// The tasks of a user, for the command line.
#[derive(Debug)]
pub struct TaskDesk {
    ledger: SqliteLedger,
    store: TaskStore,
}

/// A task as the command line shows it.
#[derive(Clone, Debug)]
pub struct TaskLine {
    pub view: TaskView,
    /// True if a living host runs it.
    pub is_held: bool,
}

impl TaskDesk {
    /// The newest tasks of the user.
    pub fn list(&mut self, most: usize) -> Result<Vec<TaskLine>, Problem> {
        let who = user();
        let order = Order::List {
            who,
            before: None,
            most,
        };
        match self.apply(order)? {
            Reply::Tasks(tasks) => Ok(tasks.iter().map(|task| self.line(task)).collect()),
            _ => Err(Problem::of(ErrorKind::Internal)),
        }
    }

    /// One task of the user.
    pub fn show(&mut self, id: &str) -> Result<Option<TaskLine>, Problem> {
        let Some(id) = TaskId::parse(id) else {
            return Ok(None);
        };
        match self.apply(Order::Read { who: user(), id })? {
            Reply::Task(task) => Ok(task.map(|task| self.line(&task))),
            _ => Err(Problem::of(ErrorKind::Internal)),
        }
    }

    /// Cancels a task of the user. False if it had ended; `None` if there is none.
    pub fn cancel(&mut self, id: &str) -> Result<Option<bool>, Problem> {
        let Some(id) = TaskId::parse(id) else {
            return Ok(None);
        };
        let outcome = cancelled_text();
        let who = user();
        match self.apply(Order::Cancel { who, id, outcome })? {
            Reply::Cancelled(found) => Ok(found.map(|(_, ended)| ended)),
            _ => Err(Problem::of(ErrorKind::Internal)),
        }
    }

    /// Removes tasks that ended longer ago than this.
    pub fn prune(&mut self, age_ms: u64) -> Result<u64, Problem> {
        // A task that ended in this millisecond has ended, too.
        let before_ms = wall_ms().saturating_sub(age_ms).saturating_add(1);
        let mut removed = 0;
        loop {
            match self.apply(Order::Prune { before_ms })? {
                Reply::Pruned(0) => return Ok(removed),
                Reply::Pruned(count) => removed += count,
                _ => return Err(Problem::of(ErrorKind::Internal)),
            }
        }
    }

    fn line(&self, task: &Task) -> TaskLine {
        TaskLine {
            view: view(task, self.store.settings.retention_ms),
            is_held: mainstay_ledger::is_held(&self.store.leases, &task.holder),
        }
    }

    fn apply(&mut self, order: Order) -> Result<Reply, Problem> {
        let mut replies = self.ledger.apply(wall_ms(), &[order]);
        match replies.pop() {
            Some(reply) => reply.map_err(|error| problem(&error)),
            None => Err(Problem::of(ErrorKind::Internal)),
        }
    }
}

/// A lease that the host could not take at its start: tasks are rejected, and all other calls are served.
#[derive(Debug)]
struct LateLease {
    /// The shims of all workers hold it.
    slot: Option<LeaseSlot>,
    refusal: Problem,
    tried_ms: u64,
}

/// The loop's end of the ledger.
#[derive(Debug, Default)]
pub(crate) struct TaskLedger {
    store: Option<TaskStore>,
    lease: Option<Lease>,
    late: Option<LateLease>,
    clerk: Option<Clerk>,
    #[cfg(feature = "simulation")]
    simulated: Option<crate::sim::Clerk>,
    /// Orders whose reply has not been handled.
    in_flight: usize,
}

impl TaskLedger {
    /// A ledger in this store. With `may_run_tasks` the host takes its lease now, or with a later task.
    pub(crate) fn new(store: Option<TaskStore>, may_run_tasks: bool, log: &Log) -> Self {
        let lease = store.as_ref().filter(|_| may_run_tasks);
        let (lease, late) = match lease.map(TaskStore::take_lease) {
            Some(Ok(lease)) => (Some(lease), None),
            Some(Err(refusal)) => {
                let line = format!("mcp:warning reason=tasks_not_recorded {}", refusal.message);
                log.say(Level::Warn, line);
                let late = LateLease {
                    slot: LeaseSlot::new().ok(),
                    refusal,
                    tried_ms: wall_ms(),
                };
                (None, Some(late))
            }
            None => (None, None),
        };
        Self {
            store,
            lease,
            late,
            clerk: None,
            #[cfg(feature = "simulation")]
            simulated: crate::sim::Clerk::start(),
            in_flight: 0,
        }
    }

    /// Takes the lease if the directory allows it by now.
    fn retry_lease(&mut self) {
        let now_ms = wall_ms();
        let (Some(store), Some(late)) = (&self.store, &mut self.late) else {
            return;
        };
        if self.lease.is_some() || now_ms.abs_diff(late.tried_ms) < RETRY_MS {
            return;
        }
        late.tried_ms = now_ms;
        match (store.take_lease(), &late.slot) {
            (Ok(lease), Some(slot)) if slot.put(&lease).is_ok() => self.lease = Some(lease),
            (Ok(_), _) => {}
            (Err(refusal), _) => late.refusal = refusal,
        }
    }

    /// True if no order is under way.
    pub(crate) const fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// The reply to an order is handled.
    pub(crate) const fn count_reply(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The lease, for a program that continues this host.
    pub(crate) fn lease(&self) -> Option<(&str, BorrowedFd<'_>)> {
        let lease = self.lease.as_ref()?;
        Some((lease.holder().as_str(), lease.as_fd()))
    }

    /// Takes the lease of the host that this one continues.
    pub(crate) fn restore(&mut self, holder: String, lease: OwnedFd) {
        self.lease = Some(Lease::restore(holder, lease));
    }

    /// The place for a lease that the host does not have yet, for a program that continues it.
    pub(crate) fn lease_slot(&self) -> Option<&LeaseSlot> {
        let late = self.late.as_ref().filter(|_| self.lease.is_none());
        late?.slot.as_ref()
    }

    /// Takes the place that the shims of the running workers hold. If this program has a lease, they hold it from now on.
    pub(crate) fn restore_slot(&mut self, slot: LeaseSlot) {
        let lease = self.lease.as_ref();
        if lease.is_some_and(|lease| slot.put(lease).is_ok()) {
            return;
        }
        self.lease = None;
        let late = self.late.take();
        self.late = Some(LateLease {
            slot: Some(slot),
            refusal: late.map_or_else(no_directory, |late| late.refusal),
            tried_ms: wall_ms(),
        });
    }

    /// A descriptor that holds the lease, for shims.
    pub(crate) fn share_lease(&self) -> Option<Arc<OwnedFd>> {
        let shared = match (&self.lease, &self.late) {
            (Some(lease), _) => lease.share(),
            (None, late) => late.as_ref()?.slot.as_ref()?.share(),
        };
        shared.ok().map(Arc::new)
    }

    /// Carries out an order; the reply comes as an event, or at once where no file is needed.
    pub(crate) fn order(
        &mut self,
        ticket: u64,
        order: TaskOrder,
        events: mpsc::Sender<Event>,
    ) -> Option<Result<TaskReply, Problem>> {
        #[cfg(feature = "simulation")]
        if let Some(clerk) = &self.simulated {
            let order = match to_ledger(order) {
                Ok(order) => order,
                Err(reply) => return Some(Ok(reply)),
            };
            self.in_flight += usize::from(clerk.send(order, event_of(ticket, 0), events));
            return None;
        }
        if matches!(order, TaskOrder::Record(_)) {
            self.retry_lease();
        }
        let Some(store) = &self.store else {
            return Some(without_store(&order, None));
        };
        let needs_file = matches!(order, TaskOrder::Record(_) | TaskOrder::Finish { .. });
        if !needs_file && self.clerk.is_none() && !store.path.exists() {
            return Some(nothing(&order));
        }
        let Some(lease) = &self.lease else {
            let late = self.late.as_ref();
            return Some(without_store(&order, late.map(|late| &late.refusal)));
        };
        let order = match to_ledger(order) {
            Ok(order) => order,
            Err(reply) => return Some(Ok(reply)),
        };
        if self.clerk.is_none() {
            let (store, holder) = (store.clone(), lease.holder().clone());
            let unknown = text_of(&Err(Problem::of(ErrorKind::OutcomeUnknown)));
            match Clerk::start(move || store.ledger(&holder), wall_ms, unknown) {
                Ok(clerk) => self.clerk = Some(clerk),
                Err(error) => {
                    let said = format!("the thread of the task ledger cannot start: {error}");
                    return Some(Err(Problem::new(ErrorKind::TaskNotRecorded, said)));
                }
            }
        }
        let retention_ms = store.settings.retention_ms;
        let event = event_of(ticket, retention_ms);
        let sent = self.clerk.as_ref().is_some_and(|clerk| {
            clerk.send(order, move |reply| {
                let _ = events.blocking_send(event(reply));
            })
        });
        if sent {
            self.in_flight += 1;
            None
        } else {
            let said = "too many tasks wait for the disk";
            Some(Err(Problem::new(ErrorKind::TaskNotRecorded, said)))
        }
    }
}

/// Turns the reply to an order into the event of the loop.
fn event_of(
    ticket: u64,
    retention_ms: u64,
) -> impl FnOnce(Result<Reply, LedgerError>) -> Event + Send + 'static {
    move |reply| {
        let reply = reply
            .map(|reply| from_ledger(reply, retention_ms))
            .map_err(|error| problem(&error));
        Event::Ledger { ticket, reply }
    }
}

/// The problem of a client whose task the ledger could not record or read.
fn problem(error: &LedgerError) -> Problem {
    Problem::new(ErrorKind::TaskNotRecorded, error.to_string()).with_hint(error.hint())
}

fn no_directory() -> Problem {
    let said = "this host has no directory in which it can record tasks";
    Problem::new(ErrorKind::TaskNotRecorded, said).with_hint(DIRECTORY_HINT)
}

/// The reply of a host that cannot keep tasks.
fn without_store(order: &TaskOrder, why: Option<&Problem>) -> Result<TaskReply, Problem> {
    match order {
        TaskOrder::Record(_) | TaskOrder::Finish { .. } => {
            Err(why.cloned().unwrap_or_else(no_directory))
        }
        order => nothing(order),
    }
}

/// The reply of a ledger that has no file yet.
fn nothing(order: &TaskOrder) -> Result<TaskReply, Problem> {
    Ok(match order {
        TaskOrder::Claim { .. } => TaskReply::Claimed {
            tasks: Vec::new(),
            busy: false,
        },
        TaskOrder::List { .. } => TaskReply::Page {
            tasks: Vec::new(),
            next: None,
        },
        TaskOrder::Cancel { .. } => TaskReply::Cancelled(None),
        TaskOrder::Watch { .. } => TaskReply::Ids(Vec::new()),
        TaskOrder::Read { .. } => TaskReply::Task(None),
        TaskOrder::Forget { .. } | TaskOrder::Record(_) | TaskOrder::Finish { .. } => {
            TaskReply::Done(false)
        }
    })
}

fn user() -> Owner {
    Owner::User(rustix::process::geteuid().as_raw())
}

fn owner(owner: TaskOwner) -> Owner {
    match owner {
        TaskOwner::User => user(),
        TaskOwner::Peer(uid) => Owner::User(uid),
        TaskOwner::Credential(digest) => Owner::Credential(digest),
        TaskOwner::Holder => Owner::Holder,
    }
}

fn cancelled_text() -> String {
    let cancelled: Outcome = Err(Problem::of(ErrorKind::Cancelled));
    text_of(&cancelled)
}

fn text_of(outcome: &Outcome) -> String {
    serde_json::to_string(outcome).unwrap_or_default()
}

/// The order in the ledger's words. An id that cannot be one gets its reply at once.
fn to_ledger(order: TaskOrder) -> Result<Order, TaskReply> {
    let parse = |id: &str, reply: TaskReply| TaskId::parse(id).ok_or(reply);
    Ok(match order {
        TaskOrder::Record(new) => Order::Record(Box::new(new_task(*new))),
        TaskOrder::Finish { id, outcome } => Order::Finish {
            id: parse(&id, TaskReply::Done(false))?,
            status: match &outcome {
                Ok(Success::Forwarded(response)) if response.is_error => Status::Failed,
                Ok(_) => Status::Completed,
                Err(problem) if problem.kind == ErrorKind::Cancelled => Status::Cancelled,
                Err(_) => Status::Failed,
            },
            outcome: text_of(&outcome),
        },
        TaskOrder::Forget { id } => Order::Forget {
            id: parse(&id, TaskReply::Done(false))?,
        },
        TaskOrder::Read { who, id } => Order::Read {
            id: parse(&id, TaskReply::Task(None))?,
            who: owner(who),
        },
        TaskOrder::List { who, cursor } => Order::List {
            who: owner(who),
            before: match cursor {
                Some(cursor) => Some(place(&cursor).ok_or(TaskReply::Task(None))?),
                None => None,
            },
            most: PAGE + 1,
        },
        TaskOrder::Cancel { who, id } => Order::Cancel {
            id: parse(&id, TaskReply::Cancelled(None))?,
            who: owner(who),
            outcome: cancelled_text(),
        },
        TaskOrder::Claim { backends } => Order::Claim { backends },
        TaskOrder::Watch { ids } => Order::Cancelled {
            ids: ids.iter().filter_map(|id| TaskId::parse(id)).collect(),
        },
    })
}

fn new_task(new: NewTask) -> mainstay_ledger::NewTask {
    let key = new.key.map(|name| {
        let arguments = canonical_text(&new.work.arguments);
        let digest: [u8; 32] = Sha256::digest(arguments.as_bytes()).into();
        Key {
            name,
            arguments: Hex(&digest).to_string(),
        }
    });
    mainstay_ledger::NewTask {
        id: TaskId::from_random(entropy::random_id()),
        owner: owner(new.owner),
        backend: new.backend,
        tool: new.tool,
        work: serde_json::to_string(&new.work).unwrap_or_default(),
        replay: new.replay.as_str().to_owned(),
        origin: match new.origin {
            TaskOrigin::Task => Origin::Task,
            TaskOrigin::Key => Origin::Key,
            TaskOrigin::Detached => Origin::Detached,
        },
        limit_ms: new.limit_ms,
        key,
    }
}

fn from_ledger(reply: Reply, retention_ms: u64) -> TaskReply {
    let view = |task: &Task| view(task, retention_ms);
    match reply {
        Reply::Recorded(Recorded::New(task)) => TaskReply::New(Box::new(view(&task))),
        Reply::Recorded(Recorded::Same(task)) => TaskReply::Same(Box::new(view(&task))),
        Reply::Recorded(Recorded::OtherArguments) => TaskReply::OtherArguments,
        Reply::Done(done) => TaskReply::Done(done),
        Reply::Task(task) => TaskReply::Task(task.map(|task| Box::new(view(&task)))),
        Reply::Cancelled(found) => {
            TaskReply::Cancelled(found.map(|(task, ended)| (Box::new(view(&task)), ended)))
        }
        Reply::Tasks(mut tasks) => {
            let more = tasks.len() > PAGE;
            tasks.truncate(PAGE);
            let last = tasks.last().filter(|_| more);
            TaskReply::Page {
                next: last.map(|task| format!("{}.{}", task.created_ms, task.id)),
                tasks: tasks.iter().map(view).collect(),
            }
        }
        Reply::Claimed { tasks, busy } => TaskReply::Claimed {
            tasks: tasks.iter().map(view).collect(),
            busy,
        },
        Reply::Ids(ids) => TaskReply::Ids(ids.iter().map(ToString::to_string).collect()),
        Reply::Pruned(_) => TaskReply::Done(true),
    }
}

/// The place in a listing that a cursor names.
fn place(cursor: &str) -> Option<(u64, TaskId)> {
    let (ms, id) = cursor.split_once('.')?;
    Some((ms.parse().ok()?, TaskId::parse(id)?))
}

pub(crate) fn view(task: &Task, retention_ms: u64) -> TaskView {
    let unreadable = || Err(Problem::of(ErrorKind::OutcomeUnknown));
    let work = serde_json::from_str(&task.work).unwrap_or_else(|_| TaskWork {
        arguments: mainstay_contract::json::Json::empty_object(),
        dialect: mainstay_contract::dialect::Dialect::Rest,
    });
    let outcome = task.outcome.as_deref();
    TaskView {
        id: task.id.to_string(),
        owner: match &task.owner {
            Owner::User(uid) if *uid != rustix::process::geteuid().as_raw() => {
                TaskOwner::Peer(*uid)
            }
            Owner::User(_) => TaskOwner::User,
            Owner::Credential(digest) => TaskOwner::Credential(digest.clone()),
            Owner::Holder => TaskOwner::Holder,
        },
        backend: task.backend.clone(),
        tool: task.tool.clone(),
        work,
        replay: replay(&task.replay),
        origin: match task.origin {
            Origin::Key => TaskOrigin::Key,
            Origin::Task => TaskOrigin::Task,
            Origin::Detached => TaskOrigin::Detached,
        },
        limit_ms: task.limit_ms,
        created_ms: task.created_ms,
        updated_ms: task.updated_ms,
        ttl_ms: retention_ms,
        outcome: outcome.map(|text| serde_json::from_str(text).unwrap_or_else(|_| unreadable())),
    }
}

/// A class that this build does not know is never run again.
fn replay(word: &str) -> Replay {
    let all = [Replay::Convergent, Replay::ProbeRequired];
    let known = all.into_iter().find(|class| class.as_str() == word);
    known.unwrap_or(Replay::NeverReplay)
}
