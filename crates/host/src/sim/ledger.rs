//! The simulated ledger of tasks: all hosts of a world share it, and it outlives each of them.
//!
//! A host has it through [`Clerk`], which carries out one order after the other, late or not at all. A host that
//! crashes loses the orders that wait; the replies to others are lost although they were carried out.
//! Its lease is free when its last process has gone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mainstay_ledger::{
    Key, Ledger, LedgerError, NewTask, Order, Owner, Recorded, Reply, Status, Task, TaskId,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{WORLD, entropy};
use crate::clock::wall_ms;
use crate::engine::Event;
use crate::tasks::{TaskView, view};

/// Orders that may wait.
const WAITING: usize = 4096;
/// How long outcomes are kept: longer than any run.
const RETENTION_MS: u64 = 86_400_000;

/// How the ledger of a world misbehaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerNoise {
    /// The longest time before an order is carried out, and before its reply, in milliseconds.
    pub late_ms: u64,
    /// One in so many orders fails; 0 is none.
    pub fails_one_in: u32,
}

/// The records of a world.
#[derive(Debug, Default)]
pub(super) struct Records {
    noise: LedgerNoise,
    tasks: BTreeMap<TaskId, (Task, Option<Key>)>,
    /// The leases of all hosts, by their names.
    leases: BTreeMap<String, Weak<()>>,
    /// The lease of the host that runs.
    current: Option<Arc<()>>,
}

/// Gives the world a ledger, or changes how it misbehaves.
pub fn keep_ledger(noise: LedgerNoise) {
    WORLD.with_borrow_mut(|world| {
        if let Some(world) = world {
            world.records.get_or_insert_default().noise = noise;
        }
    });
}

/// Everything in the ledger of the world.
pub fn recorded() -> Vec<TaskView> {
    with_records(|records| {
        let tasks = records.tasks.values();
        tasks
            .map(|(task, _)| view(task, RETENTION_MS))
            .collect::<Vec<_>>()
    })
    .unwrap_or_default()
}

/// The lease of the host that runs, for its processes.
pub(super) fn lease() -> Option<Arc<()>> {
    with_records(|records| records.current.clone()).flatten()
}

/// The host has crashed.
pub(super) fn drop_lease() {
    with_records(|records| records.current = None);
}

/// The identity of the wrapped server in a world with a ledger.
pub(crate) fn backend() -> Option<String> {
    with_records(|_| "server:simulated".to_owned())
}

fn with_records<R>(work: impl FnOnce(&mut Records) -> R) -> Option<R> {
    WORLD.with_borrow_mut(|world| world.as_mut()?.records.as_mut().map(work))
}

/// A number below `most`, or 0.
fn draw(most: u64) -> u64 {
    match most {
        0 => 0,
        most => entropy().map_or(0, |number| number % most),
    }
}

/// The ledger as one host has it.
#[derive(Debug)]
struct HostLedger {
    holder: String,
}

impl Ledger for HostLedger {
    fn apply(&mut self, now_ms: u64, orders: &[Order]) -> Vec<Result<Reply, LedgerError>> {
        let one = |order: &Order| {
            let fails = with_records(|records| records.noise.fails_one_in).unwrap_or(0);
            // A claim that fails is only late.
            let may_fail = fails > 0 && !matches!(order, Order::Claim { .. });
            if may_fail && draw(u64::from(fails)) == 0 {
                return Err(LedgerError::DiskFull(PathBuf::from("simulated")));
            }
            let applied = with_records(|records| records.apply(&self.holder, now_ms, order));
            applied.ok_or_else(|| LedgerError::ReadOnly(PathBuf::from("simulated")))
        };
        orders.iter().map(one).collect()
    }
}

impl Records {
    fn apply(&mut self, holder: &str, now_ms: u64, order: &Order) -> Reply {
        match order {
            Order::Record(new) => Reply::Recorded(self.record(holder, now_ms, new)),
            Order::Finish {
                id,
                status,
                outcome,
            } => {
                let task = self.tasks.get_mut(id).map(|(task, _)| task);
                let task = task.filter(|task| task.holder == holder && task.ended_ms.is_none());
                let is_open = task.is_some();
                if let Some(task) = task {
                    end(task, *status, outcome, now_ms);
                }
                Reply::Done(is_open)
            }
            Order::Forget { id } => {
                let task = self.tasks.get(id).map(|(task, _)| task);
                let is_open =
                    task.is_some_and(|task| task.holder == holder && task.ended_ms.is_none());
                if is_open {
                    self.tasks.remove(id);
                }
                Reply::Done(is_open)
            }
            Order::Read { who, id } => Reply::Task(self.find(who, *id).cloned().map(Box::new)),
            Order::List { who, before, most } => Reply::Tasks(self.list(who, *before, *most)),
            Order::Cancel { who, id, outcome } => {
                let found = self.find(who, *id).map(|task| {
                    let is_open = task.ended_ms.is_none();
                    if is_open {
                        end(task, Status::Cancelled, outcome, now_ms);
                    }
                    (Box::new(task.clone()), is_open)
                });
                Reply::Cancelled(found)
            }
            Order::Claim { backends } => self.claim(holder, now_ms, backends),
            Order::Cancelled { ids } => {
                let is_cancelled = |id: &&TaskId| {
                    let task = self.tasks.get(*id).map(|(task, _)| task);
                    task.is_some_and(|task| {
                        task.holder == holder && task.status == Status::Cancelled
                    })
                };
                Reply::Ids(ids.iter().filter(is_cancelled).copied().collect())
            }
            // No run lasts as long as tasks are kept.
            Order::Prune { .. } | Order::Expire { .. } => Reply::Pruned(0),
        }
    }

    fn record(&mut self, holder: &str, now_ms: u64, new: &NewTask) -> Recorded {
        let is_known = |(task, key): &&(Task, Option<Key>)| {
            let same_name = match (key, &new.key) {
                (Some(key), Some(wanted)) => key.name == wanted.name,
                _ => false,
            };
            same_name
                && task.owner == new.owner
                && task.tool == new.tool
                && task.backend == new.backend
        };
        if let Some((task, key)) = self.tasks.values().find(is_known) {
            return match *key == new.key {
                true => Recorded::Same(Box::new(task.clone())),
                false => Recorded::OtherArguments,
            };
        }
        let task = Task {
            id: new.id,
            owner: new.owner.clone(),
            backend: new.backend.clone(),
            tool: new.tool.clone(),
            work: new.work.clone(),
            replay: new.replay.clone(),
            origin: new.origin,
            limit_ms: new.limit_ms,
            created_ms: now_ms,
            updated_ms: now_ms,
            holder: holder.to_owned(),
            holders: 1,
            status: Status::Working,
            ended_ms: None,
            outcome: None,
        };
        self.tasks.insert(new.id, (task.clone(), new.key.clone()));
        Recorded::New(Box::new(task))
    }

    fn find(&mut self, who: &Owner, id: TaskId) -> Option<&mut Task> {
        let task = self.tasks.get_mut(&id).map(|(task, _)| task);
        task.filter(|task| who.may_use(&task.owner))
    }

    fn list(&self, who: &Owner, before: Option<(u64, TaskId)>, most: usize) -> Vec<Task> {
        let place = |task: &Task| (task.created_ms, task.id);
        let tasks = self.tasks.values().map(|(task, _)| task);
        let tasks = tasks.filter(|task| task.owner == *who);
        let mut tasks: Vec<Task> = tasks
            .filter(|task| before.is_none_or(|before| place(task) < before))
            .cloned()
            .collect();
        tasks.sort_by_key(|task| std::cmp::Reverse(place(task)));
        tasks.truncate(most);
        tasks
    }

    fn claim(&mut self, holder: &str, now_ms: u64, backends: &[String]) -> Reply {
        let Self { tasks, leases, .. } = self;
        let is_dead = |holder: &str| {
            let lease = leases.get(holder);
            lease.is_none_or(|lease| lease.strong_count() == 0)
        };
        let (mut claimed, mut busy) = (Vec::new(), false);
        for (task, _) in tasks.values_mut() {
            let is_left = task.ended_ms.is_none() && task.holder != holder;
            if !is_left || !backends.contains(&task.backend) {
                continue;
            }
            if is_dead(&task.holder) {
                holder.clone_into(&mut task.holder);
                task.holders += 1;
                task.updated_ms = now_ms;
                claimed.push(task.clone());
            } else {
                busy = true;
            }
        }
        claimed.sort_by_key(|task| (task.created_ms, task.id));
        Reply::Claimed {
            tasks: claimed,
            busy,
        }
    }
}

fn end(task: &mut Task, status: Status, outcome: &str, now_ms: u64) {
    task.status = status;
    task.outcome = Some(outcome.to_owned());
    task.ended_ms = Some(now_ms);
    task.updated_ms = now_ms;
}

/// Turns the reply to an order into an event of the loop.
type Answer = Box<dyn FnOnce(Result<Reply, LedgerError>) -> Event + Send>;

struct Job {
    order: Order,
    answer: Answer,
    events: mpsc::Sender<Event>,
}

/// Carries out the orders of one host. It ends with the host.
#[derive(Debug)]
pub(crate) struct Clerk {
    jobs: mpsc::Sender<Job>,
    task: JoinHandle<()>,
}

impl Clerk {
    /// The clerk of a host that starts; `None` in a world without a ledger.
    pub(crate) fn start() -> Option<Self> {
        let holder = format!("host {}", entropy()?);
        let lease = Arc::new(());
        with_records(|records| {
            records
                .leases
                .insert(holder.clone(), Arc::downgrade(&lease));
            records.current = Some(lease);
        })?;
        let (jobs, incoming) = mpsc::channel(WAITING);
        let task = tokio::spawn(work(HostLedger { holder }, incoming));
        Some(Self { jobs, task })
    }

    /// Sends an order. False if too many wait.
    pub(crate) fn send(
        &self,
        order: Order,
        answer: impl FnOnce(Result<Reply, LedgerError>) -> Event + Send + 'static,
        events: mpsc::Sender<Event>,
    ) -> bool {
        let answer = Box::new(answer);
        let job = Job {
            order,
            answer,
            events,
        };
        self.jobs.try_send(job).is_ok()
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn work(mut ledger: HostLedger, mut incoming: mpsc::Receiver<Job>) {
    let late = || {
        let late_ms = with_records(|records| records.noise.late_ms).unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(draw(late_ms)))
    };
    while let Some(job) = incoming.recv().await {
        late().await;
        let reply = ledger.apply(wall_ms(), &[job.order]).pop();
        late().await;
        if let Some(reply) = reply {
            let _ = job.events.send((job.answer)(reply)).await;
        }
    }
}
