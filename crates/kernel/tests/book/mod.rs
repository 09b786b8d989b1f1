//! A ledger of tasks in memory, for tests of the core.

use std::collections::BTreeMap;

use mainstay_contract::dialect::Dialect;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Outcome, Problem};
use mainstay_contract::replay::Replay;
use mainstay_kernel::core::action::{CoreAction, CoreEvent};
use mainstay_kernel::core::tasks::{
    TaskOrder, TaskOrigin, TaskOwner, TaskReply, TaskView, TaskWork,
};

use crate::shell::Shell;

/// A ledger in memory that the test asks to carry out the core's orders.
#[derive(Default)]
pub struct Book {
    pub tasks: BTreeMap<String, (TaskOwner, TaskView)>,
    /// Tasks that a lost host has left.
    pub left: Vec<TaskView>,
    pub answered: usize,
    /// Orders fail while this is set.
    pub is_full: bool,
    /// Orders to forget a task fail while this is set.
    pub keeps: bool,
}

impl Book {
    /// Answers every order of the core, and those that follow.
    pub fn work(&mut self, shell: &mut Shell) {
        loop {
            let orders = orders(shell);
            let Some((ticket, order)) = orders.get(self.answered).cloned() else {
                return;
            };
            self.answered += 1;
            let reply = self.carry_out(order);
            shell.handle(CoreEvent::Ledger { ticket, reply });
        }
    }

    fn carry_out(&mut self, order: TaskOrder) -> Result<TaskReply, Problem> {
        let is_kept = self.keeps && matches!(order, TaskOrder::Forget { .. });
        if self.is_full || is_kept {
            return Err(Problem::of(ErrorKind::TaskNotRecorded));
        }
        let mine = |who: &TaskOwner, owner: &TaskOwner| who == owner || *owner == TaskOwner::Holder;
        Ok(match order {
            TaskOrder::Record(new) => {
                let known = self.tasks.values().find(|(_, view)| {
                    new.key.is_some() && view.backend == new.key.clone().unwrap()
                });
                if let Some((_, view)) = known {
                    return Ok(match view.work.arguments == new.work.arguments {
                        true => TaskReply::Same(Box::new(view.clone())),
                        false => TaskReply::OtherArguments,
                    });
                }
                let mut view = view(self.tasks.len() + 1, &new.tool, new.replay);
                view.work = new.work;
                view.origin = new.origin;
                view.limit_ms = new.limit_ms;
                // Tests have one backend, so its place is free for the key.
                view.backend = new.key.unwrap_or(new.backend);
                self.tasks
                    .insert(view.id.clone(), (new.owner, view.clone()));
                TaskReply::New(Box::new(view))
            }
            TaskOrder::Finish { id, outcome } => match self.tasks.get_mut(&id) {
                Some((_, view)) if view.outcome.is_none() => {
                    view.outcome = Some(outcome);
                    TaskReply::Done(true)
                }
                _ => TaskReply::Done(false),
            },
            TaskOrder::Forget { id } => TaskReply::Done(self.tasks.remove(&id).is_some()),
            TaskOrder::Read { who, id } => {
                let found = self.tasks.get(&id).filter(|(owner, _)| mine(&who, owner));
                TaskReply::Task(found.map(|(_, view)| Box::new(view.clone())))
            }
            TaskOrder::List {
                cursor: Some(_), ..
            } => TaskReply::Task(None),
            TaskOrder::List { who, .. } => {
                let tasks = self.tasks.values().filter(|(owner, _)| who == *owner);
                TaskReply::Page {
                    tasks: tasks.map(|(_, view)| view.clone()).collect(),
                    next: None,
                }
            }
            TaskOrder::Cancel { who, id } => {
                let found = self
                    .tasks
                    .get_mut(&id)
                    .filter(|(owner, _)| mine(&who, owner));
                TaskReply::Cancelled(found.map(|(_, view)| {
                    let ended = view.outcome.is_none();
                    let cancelled = Err(Problem::of(ErrorKind::Cancelled));
                    view.outcome.get_or_insert(cancelled);
                    (Box::new(view.clone()), ended)
                }))
            }
            TaskOrder::Claim { .. } => {
                let tasks = std::mem::take(&mut self.left);
                for view in &tasks {
                    let entry = (TaskOwner::User, view.clone());
                    self.tasks.insert(view.id.clone(), entry);
                }
                TaskReply::Claimed { tasks, busy: false }
            }
            TaskOrder::Watch { mut ids } => {
                let is_cancelled = |id: &String| {
                    let outcome = self.outcome(id);
                    matches!(outcome, Some(Err(problem)) if problem.kind == ErrorKind::Cancelled)
                };
                ids.retain(is_cancelled);
                TaskReply::Ids(ids)
            }
        })
    }

    pub fn outcome(&self, id: &str) -> Option<&Outcome> {
        self.tasks
            .get(id)
            .and_then(|(_, view)| view.outcome.as_ref())
    }
}

/// A task of the tests' only backend.
pub fn view(number: usize, tool: &str, replay: Replay) -> TaskView {
    TaskView {
        owner: TaskOwner::User,
        id: format!("{number:032x}"),
        backend: "pack:p@1".to_owned(),
        tool: tool.to_owned(),
        work: TaskWork {
            arguments: Json::empty_object(),
            dialect: Dialect::Legacy,
        },
        replay,
        origin: TaskOrigin::Task,
        limit_ms: 86_400_000,
        created_ms: 0,
        updated_ms: 0,
        ttl_ms: 1000,
        outcome: None,
    }
}

/// The orders that the core gave to the ledger.
pub fn orders(shell: &Shell) -> Vec<(u64, TaskOrder)> {
    let orders = shell.actions().filter_map(|action| match action {
        CoreAction::Ledger { ticket, order } => Some((*ticket, (**order).clone())),
        _ => None,
    });
    orders.collect()
}
