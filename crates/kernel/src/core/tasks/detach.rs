//! A call that reaches its deadline and runs on as a task.

use mainstay_contract::dialect::Op;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, RequestId};
use mainstay_contract::outcome::Problem;
use serde_json::json;

use super::{Core, NewTask, Purpose, Running, TaskOrder, TaskOrigin, TaskReply, TaskWork};
use crate::core::sessions::Front;

impl Core {
    /// The deadline of a call has passed that may run on: records it, before its client gets the error.
    pub(in crate::core) fn overdue(&mut self, call: CallId) {
        let session = self.kernel.request_of(call).map(|(session, _)| session);
        if let Some(id) = session.and_then(|session| self.tasks.by_session.get(&session)) {
            return self.run_on(call, &id.clone());
        }
        match self.new_detached(call) {
            Some(new) => self.order_ledger(Purpose::Detach(call), TaskOrder::Record(Box::new(new))),
            None => self.kernel.abort_overdue(self.clock.now, call),
        }
    }

    /// A call with a key is recorded already: its callers get the error, and it has the time of a task.
    fn run_on(&mut self, call: CallId, id: &str) {
        let Some(running) = self.tasks.running.get_mut(id) else {
            return self.kernel.abort_overdue(self.clock.now, call);
        };
        running.view.origin = TaskOrigin::Detached;
        let view = running.view.clone();
        let limit_ms = self.time_left(&view);
        let mut problem = runs_on(id);
        problem.timeout_ms = self.kernel.run_on(self.clock.now, call, limit_ms);
        self.answer_waiters(id, &Err(problem));
    }

    fn new_detached(&self, call: CallId) -> Option<NewTask> {
        if !self.has_room_for_task() {
            return None;
        }
        if let Some(slot) = self.link_of(call) {
            return self.overdue_task(slot, call);
        }
        let pending = self.requests.get(&call)?;
        let Op::CallTool { arguments, .. } = &pending.op else {
            return None;
        };
        let (tool, replay) = self.kernel.tool_of(call)?;
        Some(NewTask {
            owner: self.owner_of(call),
            backend: self.catalog.backend_of(&tool)?,
            work: TaskWork {
                arguments: arguments.clone(),
                dialect: pending.dialect,
            },
            tool,
            replay,
            origin: TaskOrigin::Detached,
            limit_ms: self.kernel.limits().task_ms,
            key: None,
        })
    }

    /// The ledger recorded a call whose deadline has passed, or did not.
    pub(super) fn detached(&mut self, call: CallId, reply: Result<TaskReply, Problem>) {
        let now = self.clock.now;
        let Ok(TaskReply::New(view)) = reply else {
            return self.kernel.abort_overdue(now, call);
        };
        let id = view.id.clone();
        let Ok(request_id) = RequestId::parse(super::REQUEST) else {
            return self.kernel.abort_overdue(now, call);
        };
        let session = self.kernel.open_session();
        let limit_ms = self.time_left(&view);
        let to = (session, request_id);
        if !self.kernel.detach(now, call, to, limit_ms, runs_on(&id)) {
            // It ended meanwhile, or its answer is being checked.
            self.kernel.handle_input_end(now, session);
            self.order_ledger(Purpose::Forget, TaskOrder::Forget { id });
            return self.kernel.abort_overdue(now, call);
        }
        self.sessions.insert(session, Front::Task);
        self.tasks.by_session.insert(session, id.clone());
        self.kernel.handle_input_end(now, session);
        let running = Running {
            view: *view,
            session: Some(session),
            resumed: false,
            is_over: false,
            creator: None,
        };
        self.tasks.running.insert(id, running);
        self.watch_later();
    }
}

/// The error of a client whose call runs on as a task.
fn runs_on(id: &str) -> Problem {
    let said = "the tool did not finish before its deadline; it runs on as a task";
    let hint = format!("read mainstay://task/{id}, or run mainstay tasks show {id}");
    Problem::new(ErrorKind::Timeout, said)
        .with_hint(hint)
        .with_details(json!({ "taskId": id }).into())
}
