//! Tasks of a wrapped server: recorded for its clients, run in the house. A call that becomes a task at its deadline
//! stays on its link.

use mainstay_contract::dialect::Op;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, SessionId};
use mainstay_contract::outcome::Problem;

use super::{Core, NewTask, PEER, TaskOrigin, TaskOwner, TaskWork};
use crate::action::End;
use crate::call::SlotId;
use crate::core::sessions::Front;
use crate::core::{Pending, PendingStage};
use crate::server::{Link, LinkTask, NewCall, TaskRun};

/// The house of tasks that belong to the host's own user.
const USER: &str = "tasks";
/// The house of callers without a credential.
const ANONYMOUS: &str = "anonymous";

impl Core {
    /// The house in which tasks of this owner run: callers do not share a server's session. `Ok(None)` if the host
    /// serves packs; an error if there is no room for another server now.
    pub(super) fn task_house(&mut self, owner: &TaskOwner) -> Result<Option<SlotId>, ()> {
        let caller = match owner {
            TaskOwner::User => USER.to_owned(),
            TaskOwner::Peer(uid) => format!("{PEER}{uid}"),
            TaskOwner::Credential(caller) => caller.clone(),
            TaskOwner::Holder => ANONYMOUS.to_owned(),
        };
        let Some(server) = self.links.server_name().map(str::to_owned) else {
            return Ok(None);
        };
        let nonce = self.readiness.next_nonce();
        let house = self.house_of(&caller, &server, nonce);
        house.map(Some).ok_or(())
    }

    /// The contract of the task that runs in a session.
    pub(in crate::core) fn task_run(&self, session: SessionId) -> Option<TaskRun> {
        let id = self.tasks.by_session.get(&session)?;
        let running = self.tasks.running.get(id)?;
        Some(TaskRun {
            replay: running.view.replay,
            timeout_ms: self.run_ms(running),
            resumed: running.resumed,
            left_ms: self.time_left(&running.view),
            has_key: running.view.origin == TaskOrigin::Key,
        })
    }

    /// Lets the ledger answer a request to a wrapped server. False if the request is not about a task.
    pub(in crate::core) fn serve_link_task(&mut self, call: CallId) -> bool {
        let Some(slot) = self.link_of(call) else {
            return false;
        };
        let wanted = self.with_link(slot, |link, _| link.take_task(call));
        match wanted.flatten() {
            None => return false,
            Some(LinkTask::Reject(problem)) => self.refuse_task(call, problem),
            Some(LinkTask::Ask { dialect, op }) => {
                let pending = Pending::new(dialect, op, None);
                self.requests.insert(call, Box::new(pending));
                self.ask_task(call);
            }
            Some(LinkTask::Record(new)) => self.record_call(call, new),
        }
        true
    }

    fn record_call(&mut self, call: CallId, new: NewCall) {
        if new.key.is_none() && !self.has_room_for_task() {
            return self.refuse_task(call, Problem::of(ErrorKind::Overloaded));
        }
        let task_ms = self.kernel.limits().task_ms;
        let (origin, limit_ms) = match (new.as_task, new.detaches) {
            (true, _) => (TaskOrigin::Task, task_ms),
            (false, true) => (TaskOrigin::Key, task_ms),
            (false, false) => (TaskOrigin::Key, new.timeout_ms),
        };
        let pending = Pending::new(new.dialect, new.op(), None);
        let Some(task) = self.new_server_task(call, new, origin, limit_ms) else {
            return self.refuse_task(call, NewCall::not_recorded());
        };
        let known = self.requests.entry(call);
        let pending = known.or_insert_with(|| Box::new(pending));
        pending.stage = PendingStage::Recording(Box::new(task));
        self.record_task(call);
    }

    /// A call of the wrapped server, as the ledger records it. `None` if the server has no identity.
    fn new_server_task(
        &self,
        call: CallId,
        new: NewCall,
        origin: TaskOrigin,
        limit_ms: u64,
    ) -> Option<NewTask> {
        let server = self.links.wrapped()?;
        Some(NewTask {
            owner: self.owner_of(call),
            backend: server.config.backend.clone()?,
            tool: new.tool,
            work: TaskWork {
                arguments: new.arguments,
                dialect: new.dialect,
            },
            replay: new.replay,
            origin,
            limit_ms,
            key: new.key,
        })
    }

    /// A call of a link whose deadline has passed, as the ledger records it.
    pub(super) fn overdue_task(&self, slot: SlotId, call: CallId) -> Option<NewTask> {
        let (_, replay) = self.kernel.tool_of(call)?;
        let new = self.links.get(slot)?.overdue_call(call, replay)?;
        let limit_ms = self.kernel.limits().task_ms;
        self.new_server_task(call, new, TaskOrigin::Detached, limit_ms)
    }

    /// True if a request has ended for its client and its call runs on as a task.
    pub(in crate::core) fn runs_on(&self, call: CallId) -> bool {
        let session = self.kernel.request_of(call).map(|(session, _)| session);
        session.is_some_and(|session| self.tasks.by_session.contains_key(&session))
    }

    /// Keeps the call of a request that has ended for its client.
    pub(in crate::core) fn keep_call(&mut self, slot: SlotId, end: &End) {
        let call = end.call;
        self.with_link(slot, |link, _| link.detach(call));
        let mut pending = Pending::new(end.form.dialect, Op::Ping {}, None);
        pending.house = Some(slot);
        self.requests.insert(call, Box::new(pending));
    }

    /// Closes a link whose client has left if its last call has ended.
    pub(in crate::core) fn close_left_link(&mut self, slot: SlotId) {
        let link = self.links.get(slot).filter(|link| link.is_left());
        let session = link.and_then(Link::session);
        let front = session.and_then(|session| self.sessions.get(&session));
        if link.is_some() && !matches!(front, Some(Front::Link(_))) {
            self.kernel.close_slot(self.clock.now, slot);
        }
    }

    fn refuse_task(&mut self, call: CallId, problem: Problem) {
        self.kernel
            .handle_served(self.clock.now, call, Err(problem));
    }
}
