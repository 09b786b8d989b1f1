//! Tasks in front of a wrapped server: the calls that the host records, and the offer in handshakes and lists.
//!
//! The host makes tasks only for a server that makes none itself: the ids and `tasks/*` of a server that does pass
//! unchanged. A call that is recorded before it runs does not run in the session of its client: the core runs it as
//! a request of the house ([`super::house`]), so it outlives the client and its server.
//!
//! A call that is recorded at its deadline (`on_timeout = "detach"`) runs on where it is. If its client leaves, the
//! link and its server stay until the call ends; the host refuses the server's questions from then on.

use mainstay_contract::dialect::{
    Dialect, Op, TASKS_VERSION, TaskAnswer, TaskFacts, TaskWish, task_op,
};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, RequestId};
use mainstay_contract::json::Json;
use mainstay_contract::meta;
use mainstay_contract::method::Method;
use mainstay_contract::outcome::Problem;
use mainstay_contract::replay::Replay;
use mainstay_contract::scan;
use mainstay_contract::tool::TASK_SUPPORT;
use serde::{Deserialize, Serialize};

use super::house::refuse_question;
use super::requests::ClientRequest;
use super::rules::OnTimeout;
use super::{Cx, Link, edit};
use crate::call::{Task, Work};
use crate::core::tasks;

/// The code of a request that the client of a server cannot answer any more.
const CLIENT_LEFT: i64 = -32603;

/// The facts about tasks that a link learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OwnTasks {
    /// The server makes tasks itself.
    of_server: bool,
    /// The client has no identity of its own, so it cannot list its tasks.
    is_anonymous: bool,
    /// The session has an older revision, without tasks.
    #[serde(default)]
    predates_tasks: bool,
    /// The client answers no more questions, and calls of it run on.
    #[serde(default)]
    is_unattended: bool,
}

/// The part of a call in a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallTask {
    /// The client takes a task for an answer, or names a key.
    Wished(TaskWish),
    /// It is recorded before it runs.
    Recorded(NewCall),
    /// It is the call of a task.
    Runs(TaskRun),
    /// It became a task at its deadline.
    Detached,
}

impl CallTask {
    /// The time for the call of a task.
    pub(super) const fn timeout_ms(&self) -> Option<u64> {
        match self {
            Self::Runs(run) => Some(run.timeout_ms),
            Self::Wished(_) | Self::Recorded(_) | Self::Detached => None,
        }
    }
}

/// A call that is to be recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NewCall {
    pub(crate) dialect: Dialect,
    pub(crate) tool: String,
    pub(crate) arguments: Json,
    pub(crate) replay: Replay,
    /// The time for the call, unless the client takes a task for an answer.
    pub(crate) timeout_ms: u64,
    /// The client takes a task for an answer.
    pub(crate) as_task: bool,
    /// It runs on when its deadline passes.
    #[serde(default)]
    pub(crate) detaches: bool,
    pub(crate) key: Option<String>,
}

/// The contract under which the call of a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskRun {
    pub(crate) replay: Replay,
    pub(crate) timeout_ms: u64,
    /// A lost host may have sent it.
    pub(crate) resumed: bool,
    /// The time after which it may not be sent again.
    #[serde(default)]
    pub(crate) left_ms: u64,
    /// It has a key, so it begins with the time of a call.
    #[serde(default)]
    pub(crate) has_key: bool,
}

/// A request that the ledger of tasks answers.
#[derive(Debug)]
pub(crate) enum LinkTask {
    Record(NewCall),
    Ask { dialect: Dialect, op: Op },
    Reject(Problem),
}

impl Link {
    /// True if the host makes tasks of calls: the operator permits it, and the server makes none itself.
    pub(super) fn offers_tasks(&self) -> bool {
        self.rules().has_tasks() && !self.own_tasks.of_server
    }

    /// True if the host makes tasks of calls of clients that speak this dialect: of the legacy revisions one has tasks.
    pub(super) fn offers_tasks_to(&self, dialect: Dialect) -> bool {
        let predates_tasks = dialect == Dialect::Legacy && self.own_tasks.predates_tasks;
        self.offers_tasks() && !predates_tasks
    }

    /// The client is known by nothing but the ids of its tasks.
    pub(crate) const fn mark_anonymous(&mut self) {
        self.own_tasks.is_anonymous = true;
    }

    /// True if a call of this tool runs on when its deadline passes.
    fn detaches(&self, tool: &str) -> bool {
        self.shelf.is_none() && self.rules().on_timeout(tool) == OnTimeout::Detach
    }

    /// Decides if a call whose arguments are checked is sent now, or recorded first.
    pub(super) fn as_task(
        &self,
        cx: &mut Cx<'_>,
        call: CallId,
        request: &mut ClientRequest,
        work: Work,
    ) -> Work {
        let (Work::Worker(task), Some(tool)) = (&work, request.tool.clone()) else {
            return work;
        };
        let detaches = self.detaches(&tool);
        let wish = match request.task.as_deref() {
            None | Some(CallTask::Detached) => None,
            Some(CallTask::Wished(wish)) => Some(wish),
            Some(CallTask::Recorded(_)) => return Work::Host,
            Some(CallTask::Runs(run)) => {
                let mut timeout_ms = run.timeout_ms;
                if run.resumed {
                    let until = cx.now.plus_ms(run.left_ms);
                    cx.kernel.mark_resumed(call, until);
                } else if run.has_key && detaches {
                    // Recorded with the time of a task, it begins with that of a call.
                    timeout_ms = task.timeout_ms.min(timeout_ms);
                    cx.kernel.mark_detachable(call);
                }
                // The contract under which it was recorded counts.
                return Work::Worker(Task {
                    timeout_ms,
                    replay: run.replay,
                    ..task.clone()
                });
            }
        };
        let may_be_task = self.offers_tasks() && self.rules().may_be_task(&tool);
        if let Some(problem) = wish.and_then(|wish| wish.malformed.clone()) {
            return Work::Refused(problem);
        }
        if wish.is_some_and(|wish| wish.required) && !may_be_task {
            return Work::Refused(tasks::not_a_task(&tool));
        }
        let as_task = may_be_task && wish.is_some_and(|wish| wish.answer == TaskAnswer::Task);
        let key = wish.and_then(|wish| wish.key.clone());
        if !as_task && key.is_none() {
            if detaches {
                cx.kernel.mark_detachable(call);
            }
            return work;
        }
        let timeout_ms = task.timeout_ms;
        let mut new = NewCall::of(request, tool, task.replay);
        (new.timeout_ms, new.as_task, new.detaches, new.key) = (timeout_ms, as_task, detaches, key);
        request.task = Some(Box::new(CallTask::Recorded(new)));
        Work::Host
    }

    /// A call that is to be recorded because its deadline has passed.
    pub(crate) fn overdue_call(&self, call: CallId, replay: Replay) -> Option<NewCall> {
        let request = self.requests.get(call)?;
        let tool = request.tool.clone()?;
        Some(NewCall::of(request, tool, replay))
    }

    /// A call became a task at its deadline: its client has its answer, and hears no more of it.
    pub(crate) fn detach(&mut self, call: CallId) {
        self.progress.finish(call);
        if let Some(request) = self.requests.get_mut(call) {
            request.token = None;
            request.cancel = None;
            request.task = Some(Box::new(CallTask::Detached));
        }
    }

    /// The requests that became tasks at their deadlines.
    fn detached(&self) -> impl Iterator<Item = &ClientRequest> {
        let is_detached =
            |request: &&ClientRequest| matches!(request.task.as_deref(), Some(CallTask::Detached));
        self.requests.values().filter(is_detached)
    }

    /// True if a client's request with this id runs on as a task.
    pub(super) fn runs_on(&self, id: &RequestId) -> bool {
        self.detached().any(|request| request.id.same_value(id))
    }

    /// True if the link must stay although its client has left: calls of it run on. The host answers the open questions
    /// of its servers.
    pub(crate) fn outlives_client(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.detached().next().is_none() {
            return false;
        }
        if !std::mem::replace(&mut self.own_tasks.is_unattended, true) {
            for (by, id) in self.questions.take_all() {
                let refusal = refuse_question(&id, CLIENT_LEFT, "the client has left");
                cx.say(by, Json::from_scanned(&refusal));
            }
            self.pause_deadlines(cx);
        }
        true
    }

    /// True once the last call has ended for which the link stayed without its client.
    pub(crate) fn is_left(&self) -> bool {
        self.own_tasks.is_unattended && self.detached().next().is_none()
    }

    /// True if the client answers no more questions, and calls of it run on.
    pub(super) const fn is_unattended(&self) -> bool {
        self.own_tasks.is_unattended
    }

    /// True for a question about a task of the host.
    pub(super) fn is_about_task(&self, request: &ClientRequest) -> bool {
        let Some(method) = Method::parse(&request.method) else {
            return false;
        };
        match method {
            Method::ReadResource => self.rules().keeps_tasks() && task_uri(request).is_some(),
            Method::GetTask
            | Method::GetTaskResult
            | Method::ListTasks
            | Method::CancelTask
            | Method::UpdateTask => self.offers_tasks_to(request.dialect),
            _ => false,
        }
    }

    /// The part of a request that the ledger of tasks answers.
    pub(crate) fn take_task(&mut self, call: CallId) -> Option<LinkTask> {
        let request = self.requests.get_mut(call)?;
        let is_recorded = matches!(request.task.as_deref(), Some(CallTask::Recorded(_)));
        if is_recorded && let Some(part) = request.task.take() {
            return match *part {
                CallTask::Recorded(new) => Some(LinkTask::Record(new)),
                CallTask::Wished(_) | CallTask::Runs(_) | CallTask::Detached => None,
            };
        }
        let request = self.requests.get(call)?;
        if !self.is_about_task(request) {
            return None;
        }
        let (method, dialect) = (Method::parse(&request.method)?, request.dialect);
        if let Some(uri) = task_uri(request) {
            return Some(LinkTask::Ask {
                dialect,
                op: Op::ReadResource { uri },
            });
        }
        if !method.era().includes(dialect) {
            let problem = super::client::unknown_method(&request.method);
            return Some(LinkTask::Reject(problem));
        }
        let op = task_op(method, dialect, request.params().unwrap_or("{}"));
        Some(match op {
            Ok(op) => LinkTask::Ask {
                dialect,
                op: Op::Task(op),
            },
            Err(problem) => LinkTask::Reject(problem),
        })
    }

    /// The result of a handshake with the offer of tasks, if the host makes it.
    pub(super) fn with_tasks(&mut self, result: &str) -> Option<String> {
        let capabilities = scan::member(result, "capabilities").unwrap_or("{}");
        let extensions = scan::member(capabilities, "extensions").unwrap_or("{}");
        self.own_tasks.of_server = scan::member(capabilities, "tasks").is_some()
            || scan::member(extensions, meta::TASKS).is_some();
        let version = scan::member(result, "protocolVersion").and_then(scan::unquote);
        let is_legacy = version.is_some();
        if let Some(version) = version {
            self.own_tasks.predates_tasks = version != TASKS_VERSION;
        }
        let predates_tasks = is_legacy && self.own_tasks.predates_tasks;
        if !self.offers_tasks() || predates_tasks {
            return None;
        }
        Some(match is_legacy {
            true => {
                let list = !self.own_tasks.is_anonymous;
                let offer = TaskFacts { list }.capability().to_string();
                edit::with_inner(result, "capabilities", "tasks", &offer)
            }
            false => {
                let extensions = edit::with_member(extensions, meta::TASKS, "{}");
                edit::with_inner(result, "capabilities", "extensions", &extensions)
            }
        })
    }

    /// A page of tools for a legacy client, with the tools that may run as tasks marked. `None` without any.
    pub(super) fn with_task_support(
        &self,
        dialect: Option<Dialect>,
        result: &str,
    ) -> Option<String> {
        if dialect != Some(Dialect::Legacy) || !self.offers_tasks_to(Dialect::Legacy) {
            return None;
        }
        let (member, optional) = TASK_SUPPORT;
        let tools = edit::items(scan::member(result, "tools")?);
        let marked: Vec<String> = tools
            .into_iter()
            .map(|tool| {
                let name = scan::member(tool, "name").and_then(scan::unquote);
                let may = name.is_some_and(|name| self.rules().may_be_task(&name));
                match may && scan::member(tool, member).is_none() {
                    true => edit::with_member(tool, member, optional),
                    false => tool.to_owned(),
                }
            })
            .collect();
        let tools = edit::array(marked.iter().map(String::as_str));
        Some(edit::with_member(result, "tools", &tools))
    }
}

/// The URI of a task that a client reads as a resource.
fn task_uri(request: &ClientRequest) -> Option<String> {
    let is_read = Method::parse(&request.method) == Some(Method::ReadResource);
    let uri = request.param("uri").filter(|_| is_read)?;
    let uri = scan::unquote(uri)?;
    tasks::id_of(&uri).map(|_| uri.clone().into_owned())
}

impl NewCall {
    fn of(request: &ClientRequest, tool: String, replay: Replay) -> Self {
        Self {
            dialect: request.dialect,
            arguments: Json::from_scanned(request.param("arguments").unwrap_or("{}")),
            tool,
            replay,
            timeout_ms: 0,
            as_task: false,
            detaches: true,
            key: None,
        }
    }

    /// The request of the client, as the core keeps it.
    pub(crate) fn op(&self) -> Op {
        Op::CallTool {
            name: self.tool.clone(),
            arguments: self.arguments.clone(),
        }
    }

    /// The error of a host that has no identity for the server.
    pub(crate) fn not_recorded() -> Problem {
        let said = "this host has no directory in which it can record tasks";
        Problem::new(ErrorKind::TaskNotRecorded, said)
            .with_hint("set MAINSTAY_STATE_DIR to a directory that it can write")
    }
}
