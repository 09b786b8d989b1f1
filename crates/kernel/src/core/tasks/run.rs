//! Running tasks, recording their ends, and taking over those of lost hosts.

use mainstay_contract::audit::AuditRecord;
use mainstay_contract::dialect::{Inbound, Op, Request};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, RequestId, SessionId};
use mainstay_contract::outcome::{Outcome, Problem};
use mainstay_contract::replay::Replay;

use super::{Core, Later, Purpose, Running, TaskOrder, TaskOrigin, TaskReply, TaskView, wire};
use crate::action::{Delivery, End};
use crate::core::action::CoreAction;
use crate::core::gate::name_of;
use crate::core::sessions::Front;
use crate::defect::{Defect, is_planted};

/// Milliseconds until tasks of lost hosts are claimed again, while some may be left: first, and at most. A host
/// without such tasks looks for them at the longest pause.
pub(super) const CLAIM_MS: (u64, u64) = (250, 10_000);
/// Milliseconds until a task runs that found no place in a queue or no worker.
const RUN_MS: u64 = 500;
/// Milliseconds until an outcome is recorded that could not be: first, and at most.
const AGAIN_MS: (u64, u64) = (100, 5_000);
/// Milliseconds until a task is forgotten that could not be.
const FORGET_MS: u64 = 1_000;
/// Milliseconds between two looks for tasks of this host that were cancelled elsewhere.
const WATCH_MS: u64 = 2_000;
/// Milliseconds between two looks at a task of another host for which a client waits.
const FOREIGN_MS: u64 = 500;

impl Core {
    /// The time that a task has left, in milliseconds.
    pub(super) fn time_left(&self, view: &TaskView) -> u64 {
        let end_ms = view.created_ms.saturating_add(view.limit_ms);
        end_ms.saturating_sub(self.wall_ms())
    }

    /// The time for the call of a task. A probe has the time of a call, even if that of the task is over.
    pub(super) fn run_ms(&self, running: &Running) -> u64 {
        let left_ms = self.time_left(&running.view);
        match running.resumed && running.view.replay == Replay::ProbeRequired {
            true => left_ms.max(self.kernel.limits().call_timeout_ms),
            false => left_ms,
        }
    }

    pub(super) fn wall_ms(&self) -> u64 {
        let since_start = self.clock.now.as_micros() / 1000;
        self.clock.epoch_ms.saturating_add(since_start)
    }

    /// True if the host must not end before its tasks.
    pub(in crate::core) fn linger(&mut self) -> bool {
        self.tasks.lingers = !self.tasks.running.is_empty() && self.kernel.is_serving();
        self.tasks.lingers
    }

    /// Starts the call of a task in a session that no client can end.
    pub(super) fn run_task(&mut self, view: TaskView, resumed: bool, creator: Option<SessionId>) {
        let id = view.id.clone();
        let running = Running {
            view,
            session: None,
            resumed,
            is_over: false,
            creator,
        };
        self.tasks.running.insert(id.clone(), running);
        self.watch_later();
        self.start_task(&id);
    }

    pub(super) fn watch_later(&mut self) {
        self.later(WATCH_MS, Later::Watch);
    }

    fn start_task(&mut self, id: &str) {
        let Ok(request_id) = RequestId::parse(super::REQUEST) else {
            return;
        };
        let owner = self.tasks.running.get(id).map(|task| &task.view.owner);
        let Ok(house) = owner
            .cloned()
            .map_or(Ok(None), |owner| self.task_house(&owner))
        else {
            return self.later(RUN_MS, Later::Run(id.to_owned()));
        };
        let session = self.kernel.open_session();
        let Some(running) = self.tasks.running.get_mut(id) else {
            return;
        };
        running.session = Some(session);
        let caller = running.view.owner.caller();
        self.kernel.set_caller(session, &caller);
        let work = running.view.work.clone();
        let name = running.view.tool.clone();
        self.sessions.insert(session, Front::Task);
        self.tasks.by_session.insert(session, id.to_owned());
        let bytes = work.arguments.len();
        let request = Request {
            id: request_id,
            dialect: work.dialect,
            op: Op::CallTool {
                name,
                arguments: work.arguments,
            },
            progress_token: None,
            trace: None,
            task: None,
        };
        match house {
            Some(slot) => self.ask_house(slot, session, request, bytes),
            None => self.inbound(session, Inbound::Request(request), bytes, None),
        }
        self.kernel.handle_input_end(self.clock.now, session);
    }

    /// The call of a task ended.
    pub(in crate::core) fn task_ended(&mut self, mut end: Box<End>) {
        let id = self.tasks.by_session.remove(&end.session);
        let outcome = end.outcome.clone();
        let attempt = end.attempt;
        end.delivery = Delivery::Withhold;
        self.out.push_back(CoreAction::End { end, asked: None });
        let Some(id) = id else { return };
        let is_serving = self.kernel.is_serving();
        let Some(running) = self.tasks.running.get_mut(&id) else {
            return;
        };
        running.session = None;
        if running.is_over {
            return self.task_done(&id);
        }
        let running = running.clone();
        let was_sent = attempt > u32::from(running.resumed);
        let has_time = self.time_left(&running.view) > 0;
        // A lost host may have sent it, and no probe has answered.
        let in_doubt = running.resumed && !was_sent && running.view.replay == Replay::ProbeRequired;
        let kind = outcome.as_ref().err().map(|problem| problem.kind);
        match kind {
            Some(kind) if !is_serving && is_left(kind, running.view.replay) => {
                // The next host runs it.
                self.answer_waiters(&id, &outcome);
                self.task_done(&id);
            }
            Some(ErrorKind::Overloaded | ErrorKind::ShuttingDown)
                if running.view.origin == TaskOrigin::Key && !was_sent =>
            {
                // Its client learns that nothing was started, so nothing is recorded.
                self.answer_waiters(&id, &outcome);
                self.order_ledger(Purpose::Forget, TaskOrder::Forget { id: id.clone() });
                self.task_done(&id);
            }
            Some(ErrorKind::Overloaded | ErrorKind::WorkerUnavailable)
                if !was_sent && (has_time || !in_doubt) =>
            {
                self.later(RUN_MS, Later::Run(id));
            }
            Some(ErrorKind::Overloaded | ErrorKind::WorkerUnavailable) if in_doubt => {
                self.finish_task(id, Err(Problem::of(ErrorKind::OutcomeUnknown)));
            }
            // It was not routed in time.
            Some(ErrorKind::Timeout) if in_doubt && attempt == 0 => {
                self.finish_task(id, Err(Problem::of(ErrorKind::OutcomeUnknown)));
            }
            _ => self.finish_task(id, outcome),
        }
    }

    fn finish_task(&mut self, id: String, outcome: Outcome) {
        if is_planted(Defect::OutcomeToldEarly) {
            self.answer_waiters(&id, &outcome);
        }
        if is_planted(Defect::TaskOutcomeLost) {
            self.answer_waiters(&id, &outcome);
            return self.task_done(&id);
        }
        let again_ms = AGAIN_MS.0;
        self.order_ledger(
            Purpose::Finish { again_ms },
            TaskOrder::Finish { id, outcome },
        );
    }

    /// An outcome was recorded, or could not be.
    fn finished(
        &mut self,
        ticket: u64,
        (again_ms, id, outcome): (u64, String, Outcome),
        reply: Result<TaskReply, Problem>,
    ) {
        match reply {
            Ok(TaskReply::Done(true)) => {
                self.notify_creator(&id, &outcome);
                self.answer_waiters(&id, &outcome);
                self.task_done(&id);
            }
            // It was cancelled meanwhile; waiters read how it ended.
            Ok(_) => {
                self.poll_waiters(Some(&id));
                self.task_done(&id);
            }
            Err(problem) => {
                if again_ms == AGAIN_MS.0 {
                    let why = problem.sentence();
                    self.log(format!(
                        "mcp:warning reason=outcome_not_recorded task={id} tried again: {why}"
                    ));
                }
                let purpose = Purpose::Finish {
                    again_ms: (again_ms * 2).min(AGAIN_MS.1),
                };
                let order = TaskOrder::Finish { id, outcome };
                self.tasks.orders.insert(ticket, (purpose, order));
                self.later(again_ms, Later::Order(ticket));
            }
        }
    }

    /// A task is over for this host.
    fn task_done(&mut self, id: &str) {
        self.tasks.running.remove(id);
        if self.tasks.lingers && self.tasks.running.is_empty() {
            self.kernel.handle_stop(self.clock.now);
        }
    }

    fn notify_creator(&mut self, id: &str, outcome: &Outcome) {
        let updated_ms = self.wall_ms();
        let Some(running) = self.tasks.running.get_mut(id) else {
            return;
        };
        running.view.outcome = Some(outcome.clone());
        running.view.updated_ms = updated_ms;
        let Some(session) = running.creator else {
            return;
        };
        let front = self.sessions.get(&session);
        if matches!(
            front,
            Some(Front::Packs { opened: true, .. } | Front::Link(_))
        ) {
            let line = wire::status_line(&running.view);
            self.out.push_back(CoreAction::Tell { session, line });
        }
    }

    pub(super) fn answer_waiters(&mut self, id: &str, outcome: &Outcome) {
        let waiters = self.tasks.waiters.iter();
        let calls: Vec<CallId> = waiters
            .filter(|(_, waiter)| waiter.id == id)
            .map(|(call, _)| *call)
            .collect();
        for call in calls {
            self.tasks.waiters.remove(&call);
            let outcome = self.as_result(call, id, outcome.clone());
            self.kernel.handle_served(self.clock.now, call, outcome);
        }
    }

    /// Stops the call of a task that has ended in the ledger.
    pub(super) fn stop_task(&mut self, id: &str) {
        let Some(running) = self.tasks.running.get_mut(id) else {
            return;
        };
        if std::mem::replace(&mut running.is_over, true) {
            return;
        }
        let session = running.session;
        let cancelled = AuditRecord {
            who: Some(name_of(&running.view.owner)),
            tool: Some(running.view.tool.clone()),
            ..AuditRecord::operator("tasks cancel", Some(id.to_owned()))
        };
        self.record(cancelled);
        self.notify_creator(id, &Err(Problem::of(ErrorKind::Cancelled)));
        match session {
            Some(session) => self.kernel.handle_gone(self.clock.now, session),
            None => self.task_done(id),
        }
        self.poll_waiters(Some(id));
    }

    /// Asks for the tasks that lost hosts have left, unless an answer is on its way.
    pub(in crate::core) fn claim_tasks(&mut self) {
        let mut orders = self.tasks.orders.values();
        let is_asked = orders.any(|(purpose, _)| *purpose == Purpose::Claim);
        if is_asked || self.tasks.lingers || !self.kernel.is_serving() {
            return;
        }
        let backends = match self.links.wrapped() {
            Some(server) => server.config.backend.iter().cloned().collect(),
            None => self.catalog.backends(),
        };
        if !backends.is_empty() {
            self.order_ledger(Purpose::Claim, TaskOrder::Claim { backends });
        }
    }

    /// The ledger gave the tasks of lost hosts, or could not. Either way the host looks again.
    fn claimed(&mut self, reply: Result<TaskReply, Problem>) {
        let (tasks, may_be_more) = match reply {
            Ok(TaskReply::Claimed { tasks, busy }) => {
                self.tasks.claim_failed = false;
                let found = !tasks.is_empty();
                (tasks, busy || found)
            }
            Ok(_) => return,
            Err(problem) => {
                if !std::mem::replace(&mut self.tasks.claim_failed, true) {
                    self.tasks.claim_ms = CLAIM_MS.0;
                    let why = problem.sentence();
                    self.log(format!(
                        "mcp:warning reason=tasks_not_claimed tried again: {why}"
                    ));
                }
                (Vec::new(), true)
            }
        };
        if !tasks.is_empty() {
            self.tasks.claim_ms = CLAIM_MS.0;
        }
        for view in tasks {
            if !is_planted(Defect::ClaimedTaskDropped) {
                self.resume_task(view);
            }
        }
        let pause = match may_be_more {
            true => self.tasks.claim_ms,
            false => CLAIM_MS.1,
        };
        self.tasks.claim_ms = (pause * 2).min(CLAIM_MS.1);
        self.later(pause, Later::Claim);
    }

    /// Decides about a task of a lost host.
    fn resume_task(&mut self, view: TaskView) {
        let (id, tool, replay) = (view.id.clone(), &view.tool, view.replay);
        self.log(format!(
            "task resumed id={id} tool={tool} replay={}",
            replay.as_str()
        ));
        let kind = match replay {
            Replay::NeverReplay if is_planted(Defect::NeverReplayResumed) => None,
            Replay::NeverReplay => Some(ErrorKind::OutcomeUnknown),
            Replay::Convergent if self.time_left(&view) == 0 => Some(ErrorKind::Timeout),
            Replay::Convergent | Replay::ProbeRequired => None,
        };
        let Some(kind) = kind else {
            return self.run_task(view, !is_planted(Defect::ResumedWithoutProbe), None);
        };
        let problem = match kind {
            ErrorKind::OutcomeUnknown => Problem::new(
                kind,
                "the host that ran the task was lost; its outcome is unknown",
            ),
            _ => Problem::of(kind).with_timeout(view.limit_ms),
        };
        let running = Running {
            view,
            session: None,
            resumed: true,
            is_over: false,
            creator: None,
        };
        self.tasks.running.insert(id.clone(), running);
        self.finish_task(id, Err(problem));
    }

    pub(super) fn poll_later(&mut self) {
        self.later(FOREIGN_MS, Later::Poll);
    }

    /// Reads the tasks of other hosts for which requests wait, or one task.
    fn poll_waiters(&mut self, id: Option<&str>) {
        let ours = |waiting: &str| self.tasks.running.contains_key(waiting);
        let wanted = |waiting: &str| id.map_or_else(|| !ours(waiting), |id| id == waiting);
        let waiters = self.tasks.waiters.iter();
        let reads: Vec<_> = waiters
            .filter(|(_, waiter)| wanted(&waiter.id))
            .map(|(call, waiter)| (*call, waiter.who.clone(), waiter.id.clone()))
            .collect();
        for (call, who, id) in reads {
            self.order_ledger(Purpose::Poll(call), TaskOrder::Read { who, id });
        }
    }

    /// The ledger carried out an order, or could not.
    pub(in crate::core) fn ledger_reply(&mut self, ticket: u64, reply: Result<TaskReply, Problem>) {
        let Some((purpose, order)) = self.tasks.orders.remove(&ticket) else {
            return;
        };
        match (purpose, order) {
            (Purpose::Admit(call), TaskOrder::Record(new)) => self.admitted(call, &new, reply),
            (Purpose::Detach(call), _) => self.detached(call, reply),
            (Purpose::Finish { again_ms }, TaskOrder::Finish { id, outcome }) => {
                self.finished(ticket, (again_ms, id, outcome), reply);
            }
            (Purpose::Answer(call), _) => self.answered(call, reply),
            (Purpose::Poll(call), _) => self.polled(call, reply),
            (Purpose::Claim, _) => self.claimed(reply),
            (Purpose::Watch, _) => {
                if let Ok(TaskReply::Ids(ids)) = reply {
                    for id in ids {
                        self.stop_task(&id);
                    }
                }
            }
            // While it is recorded, everyone who asks with its key waits for it.
            (Purpose::Forget, order) if reply.is_err() => {
                self.tasks.orders.insert(ticket, (Purpose::Forget, order));
                self.later(FORGET_MS, Later::Order(ticket));
            }
            (Purpose::Forget | Purpose::Finish { .. } | Purpose::Admit(_), _) => {}
        }
    }

    fn polled(&mut self, call: CallId, reply: Result<TaskReply, Problem>) {
        if !self.tasks.waiters.contains_key(&call) {
            return;
        }
        let outcome = match reply {
            Ok(TaskReply::Task(Some(view))) => match view.outcome.clone() {
                Some(outcome) => self.as_result(call, &view.id, outcome),
                None => return self.poll_later(),
            },
            Ok(_) if self.is_recorded(call) => {
                // The call of the first request never ran, so this one takes its place.
                self.tasks.waiters.remove(&call);
                return self.record_task(call);
            }
            Ok(_) => Err(self.unknown_task(call)),
            Err(_) => return self.poll_later(),
        };
        self.tasks.waiters.remove(&call);
        self.kernel.handle_served(self.clock.now, call, outcome);
    }

    /// Does what is due.
    pub(in crate::core) fn tasks_due(&mut self) {
        let now = self.clock.now;
        while let Some((at, later)) = self.tasks.timers.first().cloned() {
            if at > now {
                return;
            }
            self.tasks.timers.remove(&(at, later.clone()));
            match later {
                Later::Run(id) => match self.kernel.is_serving() {
                    true => self.start_task(&id),
                    // The next host runs it.
                    false => self.task_done(&id),
                },
                Later::Order(ticket) => {
                    if let Some((_, order)) = self.tasks.orders.get(&ticket) {
                        let order = Box::new(order.clone());
                        self.out.push_back(CoreAction::Ledger { ticket, order });
                    }
                }
                Later::Claim => self.claim_tasks(),
                Later::Watch => {
                    if !self.tasks.running.is_empty() {
                        let ids = self.tasks.running.keys().cloned().collect();
                        self.order_ledger(Purpose::Watch, TaskOrder::Watch { ids });
                        self.later(WATCH_MS, Later::Watch);
                    }
                }
                Later::Poll => {
                    self.claim_tasks();
                    self.poll_waiters(None);
                }
            }
        }
    }
}

/// True if a task that ended so while the host stops is left to the next host.
fn is_left(kind: ErrorKind, replay: Replay) -> bool {
    match (kind, replay) {
        (_, Replay::NeverReplay) => false,
        (ErrorKind::ShuttingDown, _) => true,
        // The next host probes.
        (ErrorKind::OutcomeUnknown, Replay::ProbeRequired) => true,
        _ => false,
    }
}
