//! From a call to a task.

use mainstay_contract::dialect::{Dialect, Op, TaskAnswer, TaskWish};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::CallId;
use mainstay_contract::outcome::{Problem, Success};

use super::{
    Core, NewTask, Purpose, TaskOrder, TaskOrigin, TaskReply, TaskView, TaskWork, Waiter, wire,
};
use crate::call::{Task, Work};
use crate::core::PendingStage;

impl Core {
    /// The time for the call of a task, instead of that of its tool.
    pub(in crate::core) fn task_limit(&self, call: CallId) -> Option<u64> {
        let (session, _) = self.kernel.request_of(call)?;
        let id = self.tasks.by_session.get(&session)?;
        let running = self.tasks.running.get(id)?;
        Some(self.time_left(&running.view))
    }

    /// Decides if a call whose arguments are checked runs now, as the call of a task, or is recorded first.
    pub(in crate::core) fn as_task(&mut self, call: CallId, tool: &str, work: Work) -> Work {
        let Work::Worker(task) = work else {
            return work;
        };
        let session = self.kernel.request_of(call).map(|(session, _)| session);
        if let Some(id) = session.and_then(|session| self.tasks.by_session.get(&session)) {
            let Some(running) = self.tasks.running.get(id) else {
                return Work::Worker(task);
            };
            // The contract under which it was recorded counts, not that of a later release.
            let replay = running.view.replay;
            let timeout_ms = self.time_left(&running.view);
            if running.resumed {
                self.kernel.mark_resumed(call);
            }
            return Work::Worker(Task {
                timeout_ms,
                replay,
                ..task
            });
        }
        let wish = self
            .requests
            .get(&call)
            .and_then(|pending| pending.task.clone());
        let Some(wish) = wish else {
            if self.catalog.detaches(tool) {
                self.kernel.mark_detachable(call);
            }
            return Work::Worker(task);
        };
        let may_be_task = self.catalog.is_task(tool);
        if wish.required && !may_be_task && self.catalog.has_tasks() {
            return Work::Refused(super::not_a_task(tool));
        }
        let as_task = may_be_task && wish.answer == TaskAnswer::Task;
        if !as_task && wish.key.is_none() {
            if self.catalog.detaches(tool) {
                self.kernel.mark_detachable(call);
            }
            return Work::Worker(task);
        }
        let limits = self.kernel.limits();
        if self.tasks.running.len() >= limits.tasks {
            return Work::Refused(Problem::of(ErrorKind::Overloaded));
        }
        let limit_ms = match as_task {
            true => limits.task_ms,
            false => task.timeout_ms,
        };
        self.recorded(call, tool, task, &wish, (as_task, limit_ms))
    }

    fn recorded(
        &mut self,
        call: CallId,
        tool: &str,
        task: Task,
        wish: &TaskWish,
        (as_task, limit_ms): (bool, u64),
    ) -> Work {
        let owner = self.owner_of(call);
        let Some(backend) = self.catalog.backend_of(tool) else {
            return Work::Worker(task);
        };
        let Some(pending) = self.requests.get_mut(&call) else {
            return Work::Worker(task);
        };
        let Op::CallTool { arguments, .. } = &pending.op else {
            return Work::Worker(task);
        };
        let new = NewTask {
            owner,
            backend,
            tool: tool.to_owned(),
            work: TaskWork {
                arguments: arguments.clone(),
                dialect: pending.dialect,
            },
            replay: task.replay,
            origin: match as_task {
                true => TaskOrigin::Task,
                false => TaskOrigin::Key,
            },
            limit_ms,
            key: wish.key.clone(),
        };
        pending.stage = PendingStage::Recording(Box::new(new));
        Work::Host
    }

    /// Records the task of a request.
    pub(in crate::core) fn record_task(&mut self, call: CallId) {
        let pending = self.requests.get(&call);
        if let Some(PendingStage::Recording(new)) = pending.map(|pending| &pending.stage) {
            let order = TaskOrder::Record(new.clone());
            self.order_ledger(Purpose::Admit(call), order);
        }
    }

    /// The ledger recorded a task, or did not.
    pub(super) fn admitted(&mut self, call: CallId, reply: Result<TaskReply, Problem>) {
        let now = self.clock.now;
        let (view, is_new) = match reply {
            Ok(TaskReply::New(view)) => (view, true),
            Ok(TaskReply::Same(view)) => (view, false),
            Ok(TaskReply::OtherArguments) => {
                let problem = Problem::of(ErrorKind::KeyReused);
                return self.kernel.handle_served(now, call, Err(problem));
            }
            Ok(_) => return,
            Err(problem) => return self.kernel.handle_served(now, call, Err(problem)),
        };
        let is_waited_for = self.requests.contains_key(&call);
        if !is_waited_for && is_new {
            // Its client has left without an answer: its id is unknown to all, and it never ran.
            return self.order_ledger(Purpose::Forget, TaskOrder::Forget { id: view.id });
        }
        let Some(pending) = self.requests.get(&call) else {
            return;
        };
        let dialect = pending.dialect;
        let takes_task = match &pending.stage {
            PendingStage::Recording(new) => new.origin == TaskOrigin::Task,
            _ => false,
        };
        if is_new {
            let creator = self.kernel.request_of(call).map(|(session, _)| session);
            let creator = creator.filter(|_| dialect == Dialect::Legacy);
            self.run_task((*view).clone(), false, creator);
        }
        if takes_task {
            let members = wire::created(dialect, &view);
            return self
                .kernel
                .handle_served(now, call, Ok(Success::Members(members)));
        }
        self.wait_for(call, *view);
    }

    /// Answers a request with the outcome of a task, once there is one.
    pub(super) fn wait_for(&mut self, call: CallId, view: TaskView) {
        let now = self.clock.now;
        if let Some(outcome) = view.outcome.clone() {
            let outcome = self.as_result(call, &view.id, outcome);
            return self.kernel.handle_served(now, call, outcome);
        }
        let who = self.owner_of(call);
        let is_ours = self.tasks.running.contains_key(&view.id);
        self.tasks.waiters.insert(call, Waiter { id: view.id, who });
        if !is_ours {
            self.poll_later();
        }
    }
}
