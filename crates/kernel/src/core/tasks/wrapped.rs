//! Tasks of a wrapped server: recorded for its clients, run in the house.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, SessionId};
use mainstay_contract::outcome::Problem;

use super::{Core, NewTask, PEER, TaskOrigin, TaskOwner, TaskWork};
use crate::call::SlotId;
use crate::core::{Pending, PendingStage};
use crate::server::{LinkTask, NewCall, TaskRun};

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
        let server = self.links.wrapped();
        let Some(backend) = server.and_then(|server| server.config.backend.clone()) else {
            return self.refuse_task(call, NewCall::not_recorded());
        };
        if new.key.is_none() && !self.has_room_for_task() {
            return self.refuse_task(call, Problem::of(ErrorKind::Overloaded));
        }
        let limits = self.kernel.limits();
        let (origin, limit_ms) = match new.as_task {
            true => (TaskOrigin::Task, limits.task_ms),
            false => (TaskOrigin::Key, new.timeout_ms),
        };
        let owner = self.owner_of(call);
        let pending = self.requests.entry(call);
        let pending =
            pending.or_insert_with(|| Box::new(Pending::new(new.dialect, new.op(), None)));
        pending.stage = PendingStage::Recording(Box::new(NewTask {
            owner,
            backend,
            tool: new.tool,
            work: TaskWork {
                arguments: new.arguments,
                dialect: new.dialect,
            },
            replay: new.replay,
            origin,
            limit_ms,
            key: new.key,
        }));
        self.record_task(call);
    }

    fn refuse_task(&mut self, call: CallId, problem: Problem) {
        self.kernel
            .handle_served(self.clock.now, call, Err(problem));
    }
}
