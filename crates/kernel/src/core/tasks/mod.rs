//! Tasks: calls that are recorded before they run and outlive their client, their worker and the host.
//!
//! Theory of operation. A call becomes a task at admission, once its arguments are checked: the client's
//! request waits while the shell's ledger records the task ([`TaskOrder::Record`]), then it is answered, and the
//! call itself runs in a session of its own that no client can end. Its end is recorded before any client
//! learns of it. `tasks/*`, the resource `mainstay://task/ID` and REST read the ledger, so it makes no
//! difference which host runs a task.
//!
//! When the host is ready, and from then on now and again, it claims the tasks that lost hosts left
//! ([`TaskOrder::Claim`]). Convergent ones run again, those that need a probe are probed first, and those that must not be repeated end as "outcome
//! unknown". A host that stops leaves tasks that may run again to its successor.
//!
//! * [`admit`]: from a call to a task; [`detach`]: the same at a deadline;
//! * [`run`]: running, finishing, claiming;
//! * [`read`]: what clients ask about tasks;
//! * [`wrapped`]: calls of a wrapped server, which run in the house;
//! * [`wire`]: the forms of a task in each dialect.
//!
//! Deliberately absent: the file, ids and the lease, which belong to the shell and `mainstay-ledger`.

mod admit;
mod detach;
mod read;
mod run;
mod wire;
mod wrapped;

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::dialect::Dialect;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Outcome, Problem};
use mainstay_contract::replay::Replay;
use serde::{Deserialize, Serialize};

use super::Core;
use super::action::CoreAction;
use super::sessions::Front;
use crate::time::Time;

pub use self::wire::describe;

/// The URI of a task, before its id.
const URI: &str = "mainstay://task/";
/// The request id of a task's call in its own session.
const REQUEST: &str = "\"task\"";
/// The name of a caller that is another Unix user, before its uid.
pub const PEER: &str = "uid:";
/// How often a client should ask about a task, in milliseconds.
const POLL_MS: u64 = 1000;

/// The settings for tasks, by the name of the tool.
pub type TaskRules = BTreeMap<String, ToolTasks>;

/// The settings for tasks of one tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolTasks {
    /// Calls may run as tasks; without it the pack's contract decides.
    pub tasks: Option<bool>,
    /// The fate of a call that reaches its deadline.
    pub on_timeout: OnTimeout,
}

/// The fate of a call that reaches its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    /// It is aborted.
    #[default]
    Abort,
    /// It runs on as a task, whose id is in the error.
    Detach,
}

/// The one to whom a task belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOwner {
    /// The user of the host: stdio, the socket and the command line.
    User,
    /// Another Unix user, at the socket.
    Peer(u32),
    /// A credential over HTTP.
    Credential(String),
    /// Any caller that knows the id.
    Holder,
}

impl TaskOwner {
    /// The caller whose quotas hold for the task.
    fn caller(&self) -> String {
        match self {
            Self::User => "user".to_owned(),
            Self::Peer(uid) => format!("{PEER}{uid}"),
            Self::Credential(caller) => caller.clone(),
            Self::Holder => "anonymous".to_owned(),
        }
    }
}

/// Why a call is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOrigin {
    Task,
    Key,
    /// Its deadline passed and it runs on.
    Detached,
}

/// A call that is to be recorded. The shell gives it an id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewTask {
    pub owner: TaskOwner,
    /// The identity of the backend that must run it.
    pub backend: String,
    pub tool: String,
    pub work: TaskWork,
    pub replay: Replay,
    pub origin: TaskOrigin,
    pub limit_ms: u64,
    pub key: Option<String>,
}

/// The work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskWork {
    pub arguments: Json,
    /// The dialect of the client, which decides about the form of texts.
    pub dialect: Dialect,
}

/// A task as the ledger has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskView {
    pub id: String,
    pub owner: TaskOwner,
    pub backend: String,
    pub tool: String,
    pub work: TaskWork,
    pub replay: Replay,
    pub origin: TaskOrigin,
    pub limit_ms: u64,
    /// Milliseconds since the epoch.
    pub created_ms: u64,
    pub updated_ms: u64,
    /// How long it is kept at least, from its creation.
    pub ttl_ms: u64,
    pub outcome: Option<Outcome>,
}

/// An order to the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOrder {
    Record(Box<NewTask>),
    Finish {
        id: String,
        outcome: Outcome,
    },
    /// The call never ran, and its client knows that.
    Forget {
        id: String,
    },
    Read {
        who: TaskOwner,
        id: String,
    },
    List {
        who: TaskOwner,
        cursor: Option<String>,
    },
    Cancel {
        who: TaskOwner,
        id: String,
    },
    /// Tasks of these backends whose host is lost.
    Claim {
        backends: Vec<String>,
    },
    /// Those of these tasks, which this host runs, that were cancelled through others.
    Watch {
        ids: Vec<String>,
    },
}

/// The ledger's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskReply {
    New(Box<TaskView>),
    /// The key is known with the same arguments.
    Same(Box<TaskView>),
    /// The key is known with other arguments.
    OtherArguments,
    /// False if the task had ended before.
    Done(bool),
    /// `None` if there is no such task for this caller.
    Task(Option<Box<TaskView>>),
    /// The task, and true if the cancel ended it.
    Cancelled(Option<(Box<TaskView>, bool)>),
    Page {
        tasks: Vec<TaskView>,
        next: Option<String>,
    },
    /// `busy` if other hosts hold unfinished tasks of these backends.
    Claimed {
        tasks: Vec<TaskView>,
        busy: bool,
    },
    Ids(Vec<String>),
}

/// The tasks of this host, and the clients that wait for any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Tasks {
    /// Orders that the ledger has not answered.
    orders: BTreeMap<u64, (Purpose, TaskOrder)>,
    next_ticket: u64,
    running: BTreeMap<String, Running>,
    /// The sessions in which tasks run.
    by_session: BTreeMap<SessionId, String>,
    /// Callers other than the host's own user.
    owners: BTreeMap<SessionId, TaskOwner>,
    /// Requests that wait for the outcome of a task.
    waiters: BTreeMap<CallId, Waiter>,
    timers: BTreeSet<(Time, Later)>,
    /// The only client has gone; the host ends with its last task.
    lingers: bool,
    /// The pause before the next claim, in milliseconds.
    claim_ms: u64,
    /// The last claim failed, and the log has the reason.
    #[serde(default)]
    claim_failed: bool,
}

/// A task that this host runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Running {
    view: TaskView,
    /// The session in which it runs, unless it waits for its turn.
    session: Option<SessionId>,
    /// A lost host may have sent it.
    resumed: bool,
    /// It has ended in the ledger: its end is not recorded.
    is_over: bool,
    /// The legacy session that asked for it.
    creator: Option<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Waiter {
    id: String,
    who: TaskOwner,
}

/// Why an order was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Purpose {
    Admit(CallId),
    Detach(CallId),
    Finish {
        again_ms: u64,
    },
    Forget,
    Answer(CallId),
    /// A waiter looks if its task has ended in another host.
    Poll(CallId),
    Claim,
    Watch,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Later {
    Run(String),
    Order(u64),
    Claim,
    Watch,
    Poll,
}

impl Tasks {
    pub(super) fn new() -> Self {
        Self {
            orders: BTreeMap::new(),
            next_ticket: 1,
            running: BTreeMap::new(),
            by_session: BTreeMap::new(),
            owners: BTreeMap::new(),
            waiters: BTreeMap::new(),
            timers: BTreeSet::new(),
            lingers: false,
            claim_ms: run::CLAIM_MS.0,
            claim_failed: false,
        }
    }

    pub(super) fn timeout(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub(super) fn forget_waiter(&mut self, call: CallId) {
        self.waiters.remove(&call);
    }

    pub(super) fn forget_caller(&mut self, session: SessionId) {
        self.owners.remove(&session);
    }

    fn is_timed(&self, later: &Later) -> bool {
        self.timers.iter().any(|(_, timed)| timed == later)
    }
}

/// The id in the URI of a task.
pub(crate) fn id_of(uri: &str) -> Option<&str> {
    uri.strip_prefix(URI)
}

/// The error of a client that asks for a task of a tool that cannot run as one.
pub(crate) fn not_a_task(tool: &str) -> Problem {
    let said = format!("the tool {tool} cannot run as a task");
    Problem::new(ErrorKind::UnknownMethod, said).with_hint("call it without the member task")
}

impl Core {
    /// Names the caller of a session: a credential over HTTP, another Unix user, or the host's own.
    pub fn set_caller(&mut self, session: SessionId, caller: &str) {
        self.kernel.set_caller(session, caller);
        if let Some(Front::Link(slot)) = self.sessions.get(&session) {
            self.with_link(*slot, |link, _| link.set_credential(caller));
        } else if let Some(member) = self.links.members.get_mut(&session) {
            member.credential = Some(caller.to_owned());
        }
        let uid = caller.strip_prefix(PEER).and_then(|uid| uid.parse().ok());
        let owner = match (caller, uid) {
            (_, Some(uid)) => TaskOwner::Peer(uid),
            ("anonymous", None) => TaskOwner::Holder,
            _ if caller.starts_with("token:") || caller.starts_with("subject:") => {
                TaskOwner::Credential(caller.to_owned())
            }
            _ => return,
        };
        if let (TaskOwner::Holder, Some(Front::Link(slot))) = (&owner, self.sessions.get(&session))
        {
            self.with_link(*slot, |link, _| link.mark_anonymous());
        }
        self.tasks.owners.insert(session, owner);
    }

    /// The one to whom tasks of a request belong.
    pub(super) fn owner_of(&self, call: CallId) -> TaskOwner {
        let session = self.kernel.request_of(call).map(|(session, _)| session);
        let owner = session.and_then(|session| self.tasks.owners.get(&session));
        owner.cloned().unwrap_or(TaskOwner::User)
    }

    /// The task whose call runs in a session, its owner, and true if a lost host had it.
    pub(in crate::core) fn task_of_session(
        &self,
        session: SessionId,
    ) -> Option<(String, TaskOwner, bool)> {
        let id = self.tasks.by_session.get(&session)?;
        let running = self.tasks.running.get(id)?;
        Some((id.clone(), running.view.owner.clone(), running.resumed))
    }

    fn order_ledger(&mut self, purpose: Purpose, order: TaskOrder) {
        let ticket = self.tasks.next_ticket;
        self.tasks.next_ticket += 1;
        self.tasks.orders.insert(ticket, (purpose, order.clone()));
        let order = Box::new(order);
        self.out.push_back(CoreAction::Ledger { ticket, order });
    }

    fn later(&mut self, ms: u64, later: Later) {
        if !self.tasks.is_timed(&later) {
            let at = self.clock.now.plus_ms(ms);
            self.tasks.timers.insert((at, later));
        }
    }
}
