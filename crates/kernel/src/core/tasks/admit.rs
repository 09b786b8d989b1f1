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
use crate::defect::{Defect, is_planted};

/// The time that the ledger has to record the outcome of a call with a key, in milliseconds.
const RECORDING_MS: u64 = 30_000;

impl Core {
    /// The time for the call of a task, instead of that of its tool.
    pub(in crate::core) fn task_limit(&self, call: CallId) -> Option<u64> {
        let (session, _) = self.kernel.request_of(call)?;
        let id = self.tasks.by_session.get(&session)?;
        let running = self.tasks.running.get(id)?;
        Some(self.run_ms(running))
    }

    /// True if this host may run one more task.
    pub(super) fn has_room_for_task(&self) -> bool {
        self.tasks.running.len() < self.kernel.limits().tasks
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
            let mut timeout_ms = self.run_ms(running);
            if running.resumed {
                let left_ms = self.time_left(&running.view);
                let until = self.clock.now.plus_ms(left_ms);
                self.kernel.mark_resumed(call, until);
            } else if running.view.origin == TaskOrigin::Key && self.catalog.detaches(tool) {
                // Recorded with the time of a task, it begins with that of a call.
                timeout_ms = task.timeout_ms.min(timeout_ms);
                self.kernel.mark_detachable(call);
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
        // A key may be known; if it is not, the call is refused once that is certain.
        if wish.key.is_none() && !self.has_room_for_task() {
            return Work::Refused(Problem::of(ErrorKind::Overloaded));
        }
        let limit_ms = match as_task || self.catalog.detaches(tool) {
            true => self.kernel.limits().task_ms,
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

    /// True if a request is answered with the outcome of its own call, which is recorded.
    pub(super) fn is_recorded(&self, call: CallId) -> bool {
        let pending = self.requests.get(&call);
        pending.is_some_and(|pending| matches!(pending.stage, PendingStage::Recording(_)))
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
    pub(super) fn admitted(
        &mut self,
        call: CallId,
        new: &NewTask,
        reply: Result<TaskReply, Problem>,
    ) {
        let now = self.clock.now;
        let (view, is_new) = match reply {
            Ok(TaskReply::New(view)) => (view, true),
            Ok(TaskReply::Same(view)) => (view, false),
            Ok(TaskReply::OtherArguments) => {
                let problem = Problem::of(ErrorKind::KeyReused);
                return self.kernel.handle_served(now, call, Err(problem));
            }
            Ok(_) => return,
            Err(_) if is_planted(Defect::UnrecordedTaskRuns) => {
                (Box::new(self.unrecorded(new)), true)
            }
            Err(problem) => return self.kernel.handle_served(now, call, Err(problem)),
        };
        let has_key = new.key.is_some();
        if is_new && has_key && !self.has_room_for_task() {
            let full = Problem::of(ErrorKind::Overloaded);
            self.kernel.handle_served(now, call, Err(full));
            return self.order_ledger(Purpose::Forget, TaskOrder::Forget { id: view.id });
        }
        let Some(pending) = self.requests.get(&call) else {
            return match is_new {
                // Others may wait for the record of a key: a caller that leaves does not stop its call.
                true if has_key => self.run_task(*view, false, None),
                // Its client has left without an answer: its id is unknown to all, and it never ran.
                true => self.order_ledger(Purpose::Forget, TaskOrder::Forget { id: view.id }),
                false => {}
            };
        };
        let dialect = pending.dialect;
        if is_new {
            let creator = self.kernel.request_of(call).map(|(session, _)| session);
            let creator = creator.filter(|_| dialect == Dialect::Legacy);
            self.run_task((*view).clone(), false, creator);
        }
        if new.origin == TaskOrigin::Task {
            let members = wire::created(dialect, &view);
            return self
                .kernel
                .handle_served(now, call, Ok(Success::Members(members)));
        }
        self.wait_for(call, *view);
    }

    /// A task that the ledger does not have, for a deliberate defect.
    fn unrecorded(&self, new: &NewTask) -> TaskView {
        let now_ms = self.wall_ms();
        TaskView {
            id: format!("{:032x}", self.tasks.next_ticket),
            owner: new.owner.clone(),
            backend: new.backend.clone(),
            tool: new.tool.clone(),
            work: new.work.clone(),
            replay: new.replay,
            origin: new.origin,
            limit_ms: new.limit_ms,
            created_ms: now_ms,
            updated_ms: now_ms,
            ttl_ms: new.limit_ms,
            outcome: None,
        }
    }

    /// Answers a request with the outcome of a task, once there is one.
    pub(super) fn wait_for(&mut self, call: CallId, view: TaskView) {
        let now = self.clock.now;
        if let Some(outcome) = view.outcome.clone() {
            let outcome = self.as_result(call, &view.id, outcome);
            return self.kernel.handle_served(now, call, outcome);
        }
        let who = self.owner_of(call);
        let ours = self.tasks.running.get(&view.id);
        let is_ours = ours.is_some();
        if ours.map_or(view.origin, |running| running.view.origin) == TaskOrigin::Key {
            // The deadline of the call itself counts, which progress may move.
            self.kernel.postpone_deadline(call, RECORDING_MS);
        }
        self.tasks.waiters.insert(call, Waiter { id: view.id, who });
        if !is_ours {
            self.claim_tasks();
            self.poll_later();
        }
    }
}
