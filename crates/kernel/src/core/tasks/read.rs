//! Requests of clients about tasks.

use mainstay_contract::dialect::{Dialect, Op, TaskOp, encode};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::CallId;
use mainstay_contract::json::Json;
use mainstay_contract::meta;
use mainstay_contract::outcome::{Outcome, Problem, Success};
use serde_json::json;

use super::{Core, Purpose, TaskOrder, TaskOwner, TaskReply, TaskView, id_of, wire};
use crate::server::edit;

impl Core {
    /// Asks the ledger what a request wants to know.
    pub(in crate::core) fn ask_task(&mut self, call: CallId) {
        let who = self.owner_of(call);
        let Some(pending) = self.requests.get(&call) else {
            return;
        };
        let order = match &pending.op {
            Op::ReadResource { uri } => TaskOrder::Read {
                who,
                id: id_of(uri).unwrap_or_default().to_owned(),
            },
            Op::Task(TaskOp::Get { id } | TaskOp::Result { id } | TaskOp::Update { id }) => {
                let id = id.clone();
                TaskOrder::Read { who, id }
            }
            Op::Task(TaskOp::Cancel { id }) => {
                let id = id.clone();
                TaskOrder::Cancel { who, id }
            }
            // Without a credential the id is the right to a task, so none may be shown.
            Op::Task(TaskOp::List { .. }) if who == TaskOwner::Holder => {
                let problem = Problem::of(ErrorKind::UnknownMethod);
                return self
                    .kernel
                    .handle_served(self.clock.now, call, Err(problem));
            }
            Op::Task(TaskOp::List { cursor }) => {
                let cursor = cursor.clone();
                TaskOrder::List { who, cursor }
            }
            _ => return,
        };
        self.order_ledger(Purpose::Answer(call), order);
    }

    /// The ledger answered what a request wanted to know.
    pub(super) fn answered(&mut self, call: CallId, reply: Result<TaskReply, Problem>) {
        let Some(pending) = self.requests.get(&call) else {
            return;
        };
        let (dialect, op) = (pending.dialect, pending.op.clone());
        let outcome = match (op, reply) {
            (_, Err(problem)) => Err(problem),
            (Op::ReadResource { uri }, Ok(TaskReply::Task(Some(view)))) => {
                Ok(wire::resource(&uri, &view))
            }
            (Op::Task(TaskOp::Get { .. }), Ok(TaskReply::Task(Some(view)))) => {
                Ok(wire::detailed(dialect, &view))
            }
            (Op::Task(TaskOp::Update { .. }), Ok(TaskReply::Task(Some(_)))) => {
                Ok(Json::empty_object())
            }
            (Op::Task(TaskOp::Result { .. }), Ok(TaskReply::Task(Some(view)))) => {
                return self.wait_for(call, *view);
            }
            (Op::Task(TaskOp::List { .. }), Ok(TaskReply::Page { tasks, next })) => {
                Ok(wire::page(&tasks, next.as_deref()))
            }
            (Op::Task(TaskOp::Cancel { .. }), Ok(TaskReply::Cancelled(Some((view, ended))))) => {
                self.cancelled(dialect, &view, ended)
            }
            (Op::Task(TaskOp::List { .. }), Ok(_)) => {
                let said = "cursor is not one that was given out";
                Err(Problem::new(ErrorKind::InvalidParams, said))
            }
            _ => Err(self.unknown_task(call)),
        };
        let outcome = outcome.map(Success::Members);
        self.kernel.handle_served(self.clock.now, call, outcome);
    }

    fn cancelled(
        &mut self,
        dialect: Dialect,
        view: &TaskView,
        ended: bool,
    ) -> Result<Json, Problem> {
        if ended {
            self.stop_task(&view.id);
        }
        match dialect {
            Dialect::Modern => Ok(Json::empty_object()),
            Dialect::Legacy if !ended => {
                let said = "the task has ended, so it cannot be cancelled";
                Err(Problem::new(ErrorKind::InvalidParams, said))
            }
            _ => Ok(wire::detailed(dialect, view)),
        }
    }

    /// The answer to every id that is not a task of this caller.
    pub(super) fn unknown_task(&self, call: CallId) -> Problem {
        let said = "there is no such task";
        let pending = self.requests.get(&call);
        let is_mcp = pending
            .is_some_and(|pending| pending.dialect.is_mcp() && matches!(pending.op, Op::Task(_)));
        match is_mcp {
            true => Problem::new(ErrorKind::InvalidParams, said),
            false => Problem::new(ErrorKind::ResourceNotFound, said)
                .with_hint("it may have expired, or belong to another caller"),
        }
    }

    /// The outcome of a task as the result of a request: legacy clients get the id with it.
    pub(super) fn as_result(&self, call: CallId, id: &str, outcome: Outcome) -> Outcome {
        let pending = self.requests.get(&call);
        let is_legacy = pending.is_some_and(|pending| {
            pending.dialect == Dialect::Legacy && matches!(pending.op, Op::Task(_))
        });
        if !is_legacy {
            return outcome;
        }
        match (encode::tool_result(Dialect::Legacy, &outcome), outcome) {
            (Ok(result), _) => {
                let task = json!({ "taskId": id }).to_string();
                let result = edit::with_inner(&result, "_meta", meta::RELATED_TASK, &task);
                Ok(Success::Members(Json::from_scanned(&result)))
            }
            // The server's own line has the id of another request.
            (Err(error), Ok(_)) => Err(Problem::of_server(&error)),
            (Err(_), problem) => problem,
        }
    }
}
