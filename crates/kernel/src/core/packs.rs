//! Workers: of packs, and, as far as every worker is alike, of wrapped servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::health::Health;
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::json::Json;
use mainstay_contract::rpc::{self, Answer, Ready};
use mainstay_schema::check::Subject;
use serde::{Deserialize, Serialize};
use serde_json::json;
use thiserror::Error;

use super::Core;
use super::action::{CoreAction, LogLevel, WorkerNews};
use super::checks::Purpose as CheckPurpose;
use super::merged::SERVERS_PAGE;
use crate::call::SlotId;
use crate::catalog::{Announced, Occasion, Refused};
use crate::locked::Locked;
use crate::slot::Purpose;

/// Facts about workers that are not reaped yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Workers {
    by_generation: BTreeMap<Generation, WorkerFacts>,
    setup: Option<SetupError>,
    /// Workers that were lost after a fault, by the name of their pack or server.
    #[serde(default)]
    losses: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WorkerFacts {
    slot: SlotId,
    /// Process id, and the way in which its tree is killed.
    process: Option<(u32, String)>,
    build: Option<String>,
    facts: Option<Json>,
    /// The settings that it was started with.
    settings: Option<Json>,
}

/// A pack cannot start as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("the pack {pack} cannot start: {said}")]
pub struct SetupError {
    pub pack: String,
    /// In the pack's own words.
    pub said: String,
}

impl Workers {
    pub(super) fn slot_of(&self, generation: Generation) -> Option<SlotId> {
        self.by_generation.get(&generation).map(|facts| facts.slot)
    }

    /// Counts a worker that was lost.
    pub(super) fn count_loss(&mut self, pack: &str) {
        *self.losses.entry(pack.to_owned()).or_default() += 1;
    }

    /// Workers that were lost after a fault, by the name of their pack or server.
    pub(super) const fn losses(&self) -> &BTreeMap<String, u64> {
        &self.losses
    }

    pub(super) const fn setup_error(&self) -> Option<&SetupError> {
        self.setup.as_ref()
    }

    /// Adds what is known of each worker's process to the health payload.
    pub(super) fn fill(&self, health: &mut Health) {
        for worker in &mut health.workers {
            if let Some(known) = self.by_generation.get(&worker.generation) {
                worker.pid = known.process.as_ref().map(|(pid, _)| *pid);
                worker.tree_kill = known.process.as_ref().map(|(_, rung)| rung.clone());
                worker.build.clone_from(&known.build);
                worker.facts.clone_from(&known.facts);
            }
            if let Some(standby) = &mut worker.standby
                && let Some(known) = self.by_generation.get(&standby.generation)
            {
                standby.pid = known.process.as_ref().map(|(pid, _)| *pid);
            }
        }
    }
}

impl Core {
    pub(super) fn spawn(&mut self, slot: SlotId, generation: Generation) {
        let settings = self.roots.settings(slot).cloned();
        self.with_link(slot, |link, cx| link.spawned(cx, generation));
        let facts = WorkerFacts {
            slot,
            process: None,
            build: None,
            facts: None,
            settings: settings.clone(),
        };
        self.workers.by_generation.insert(generation, facts);
        self.out.push_back(CoreAction::Spawn {
            slot,
            generation,
            settings,
            fresh: self.kernel.is_rollout(slot, generation),
        });
        self.watch_crowd();
    }

    /// Gives an order to a worker. The link of a wrapped server translates it.
    pub(super) fn order(&mut self, generation: Generation, order: CoreAction) {
        match self.workers.slot_of(generation) {
            Some(slot) if self.is_server(slot) => {
                self.with_link(slot, |link, cx| match &order {
                    CoreAction::Call { call, .. } => link.send(cx, generation, call),
                    CoreAction::Cancel { call, .. } => link.cancel(cx, generation, *call),
                    CoreAction::Ping { .. } => link.ping(cx, generation),
                    _ => {}
                });
            }
            Some(_) => match order {
                CoreAction::Call { call, .. } if self.is_outdated_call(&call) => {
                    self.kernel.recall(self.clock.now, generation, call.call);
                }
                order => self.out.push_back(order),
            },
            None => {}
        }
    }

    /// True if the tool of a call has changed since its arguments were checked.
    fn is_outdated_call(&self, call: &rpc::Call) -> bool {
        let rpc::Op::Tool { name, .. } = &call.op else {
            return false;
        };
        let pending = self.requests.get(&call.call);
        let admitted = pending.and_then(|pending| pending.admitted.as_ref());
        admitted.is_some_and(|admitted| self.catalog.epoch_of(name) != Some(admitted.epoch))
    }

    /// Something happened to a worker.
    pub(super) fn worker_news(&mut self, generation: Generation, news: WorkerNews) {
        let now = self.clock.now;
        let Some(slot) = self.workers.slot_of(generation) else {
            return;
        };
        match news {
            WorkerNews::Up { pid, tree_kill } => {
                if let Some(worker) = self.workers.by_generation.get_mut(&generation) {
                    worker.process = Some((pid, tree_kill));
                }
                self.with_link(slot, |link, cx| link.up(cx, generation));
            }
            WorkerNews::Connected { url } => {
                if let Some(worker) = self.workers.by_generation.get_mut(&generation) {
                    worker.facts = Some(Json::from_serialize(&json!({ "url": url })));
                }
                self.kernel.mark_remote(slot);
                self.with_link(slot, |link, cx| link.up(cx, generation));
            }
            WorkerNews::CallLost { call, sent, fault } => {
                self.with_link(slot, |link, cx| {
                    link.call_lost(cx, generation, call, sent, &fault);
                });
            }
            WorkerNews::Unfit(fault) => {
                self.with_link(slot, |link, cx| link.session_ended(cx, generation, &fault));
            }
            WorkerNews::Ready { ready, vetted } => self.ready(slot, generation, *ready, vetted),
            WorkerNews::Progress { call, progress } => {
                self.kernel.handle_progress(now, generation, call, progress);
            }
            WorkerNews::Answer { call, answer } => {
                self.worker_answer(slot, generation, call, *answer);
            }
            WorkerNews::Pong => self.kernel.handle_pong(now, generation),
            WorkerNews::Line(line) => {
                self.with_link(slot, |link, cx| link.server_line(cx, generation, &line));
            }
            WorkerNews::Oversize(head) => {
                self.with_link(slot, |link, cx| link.server_oversize(cx, generation, &head));
            }
            WorkerNews::Lost { fault, unsent } => {
                let lost = self.with_link(slot, |link, cx| {
                    link.lost(cx, generation, &fault, &unsent);
                });
                if lost.is_none() {
                    self.lose(slot, generation, &fault, &unsent);
                }
            }
            WorkerNews::Shortage => self.make_room(),
            WorkerNews::Reaped => self.reaped(slot, generation),
            WorkerNews::Stuck(fault) => {
                self.log(format!("mcp:warning reason=kill_failed {fault}"));
                self.kernel.handle_kill_failed(generation, fault);
            }
            WorkerNews::Unkillable if self.kernel.is_stopping() => self.reaped(slot, generation),
            WorkerNews::Unkillable => {}
            WorkerNews::Words(words) => self.kernel.handle_words(generation, &words),
            WorkerNews::Looked { at_ping, seen } => {
                self.with_link(slot, |link, cx| link.looked(cx, generation, at_ping, seen));
            }
            WorkerNews::Weighed { bytes } => {
                self.with_link(slot, |link, cx| link.weighed(cx, generation, bytes));
            }
        }
    }

    fn reaped(&mut self, slot: SlotId, generation: Generation) {
        self.with_link(slot, |link, _| link.reaped(generation));
        self.workers.by_generation.remove(&generation);
        self.kernel.handle_reaped(self.clock.now, generation);
    }

    fn ready(
        &mut self,
        slot: SlotId,
        generation: Generation,
        ready: Ready,
        vetted: Result<(), String>,
    ) {
        let was_complete = self.catalog.is_complete();
        let is_first = !self.catalog.has_served(slot);
        let name = self.catalog.pack_name(slot).to_owned();
        let occasion = match self.kernel.purpose(slot, generation) {
            Some(Purpose::Rollout) => Occasion::Rollout,
            Some(Purpose::Standby) => Occasion::Standby,
            None => Occasion::Start,
        };
        let is_rollout = self.kernel.is_rollout(slot, generation);
        let reasons = self.rollouts.reasons(slot);
        let accepted = vetted
            .map_err(Refused::from)
            .and_then(|()| self.catalog.announce(slot, &ready, occasion, reasons));
        match accepted {
            Ok(Announced {
                roots_changed,
                lists,
                changes,
            }) => {
                if roots_changed && !self.roots.follows(slot) {
                    self.log(format!(
                        "mcp:warning reason=roots_changed pack={name} generation={generation}"
                    ));
                }
                for change in &changes {
                    self.log(format!(
                        "mcp:catalog changed pack={name} generation={generation} {change}"
                    ));
                }
                if is_rollout {
                    self.rollouts.report_changes(slot, changes);
                }
                if is_first || !lists.is_empty() {
                    self.report_withdrawn(slot, &name);
                }
                self.announce_lists(&name, &lists);
                self.accept(generation, &name, ready);
                self.out.push_back(CoreAction::WorkerReady { generation });
                self.kernel.handle_ready(self.clock.now, generation);
                self.renew(slot);
            }
            Err(Refused { reason, changes }) => {
                let detail = format!("the worker {reason}");
                let fault = Fault::new(ErrorKind::WorkerProtocol, detail).of(generation);
                self.log(format!(
                    "mcp:warning reason=worker_refused pack={name} {fault}"
                ));
                for change in &changes {
                    self.log(format!(
                        "mcp:warning reason=change_refused pack={name} generation={generation} {change}"
                    ));
                }
                if is_rollout {
                    self.rollouts.report_changes(slot, changes);
                }
                self.catalog.give_up(slot, &fault.cause());
                self.kernel.handle_unfit(self.clock.now, generation, &fault);
            }
        }
        self.continue_if_complete(was_complete);
    }

    /// Routes what waited for the last pack, and reports the packs that are missing.
    fn continue_if_complete(&mut self, was_complete: bool) {
        if was_complete || !self.catalog.is_complete() {
            return;
        }
        let missing: Vec<String> = self
            .catalog
            .missing()
            .map(|(pack, reason)| {
                format!(
                    "mcp:warning reason=pack_missing pack={pack} its tools are not served until it starts: {reason}"
                )
            })
            .collect();
        for line in missing {
            self.log(line);
        }
        self.route_waiting();
    }

    fn accept(&mut self, generation: Generation, name: &str, ready: Ready) {
        let Some(worker) = self.workers.by_generation.get_mut(&generation) else {
            return;
        };
        let pid = worker.process.as_ref().map_or(0, |(pid, _)| *pid);
        let build = ready.build.clone();
        worker.build = Some(ready.build);
        worker.facts = Some(ready.facts).filter(|facts| *facts != Json::null());
        let said =
            format!("worker ready pack={name} generation={generation} pid={pid} build={build}");
        self.log_at(LogLevel::Info, said);
    }

    /// Holds the packs or the wrapped server to another lock.
    pub(super) fn apply_lock(&mut self, locked: Arc<Locked>) {
        if self.links.wrapped().is_some() {
            return self.apply_server_lock(&locked);
        }
        for (slot, lists) in self.catalog.apply_lock(locked) {
            let name = self.catalog.pack_name(slot).to_owned();
            self.report_withdrawn(slot, &name);
            self.announce_lists(&name, &lists);
        }
    }

    fn report_withdrawn(&mut self, slot: SlotId, pack: &str) {
        let withdrawn: Vec<String> = self
            .catalog
            .withdrawn(slot)
            .map(|(kind, name, withdrawn)| withdrawn.line(pack, kind, name))
            .collect();
        for line in withdrawn {
            self.out.extend(self.gates.withdrawal(pack, &line));
            self.log(line);
        }
    }

    /// A pack's worker answered a call. A tool's reply is checked before it counts.
    fn worker_answer(
        &mut self,
        slot: SlotId,
        generation: Generation,
        call: CallId,
        answer: Answer,
    ) {
        let now = self.clock.now;
        let answer = as_failure_of_tool(answer);
        let answer = match (self.kernel.sent(generation, call), answer) {
            (Some(rpc::Op::ListResources {}), Answer::Resources(resources)) => {
                let resources = Json::from_serialize(&resources);
                let last = self.links.serves_many().then_some(SERVERS_PAGE);
                Answer::Members(self.catalog.resource_listing(slot, &resources, last))
            }
            (Some(op), answer) => {
                let answer = self.catalog.bounded(op, answer);
                let pending = self.requests.get(&call);
                let admitted = pending.and_then(|pending| pending.admitted.as_ref());
                let admitted = admitted.map(|admitted| &admitted.definition);
                match self.catalog.reply_check(op, &answer, admitted) {
                    Some((definition, reply)) => {
                        let subject = Subject::Reply(reply.json.clone());
                        return self.hold(generation, call, answer, definition, subject);
                    }
                    None => answer,
                }
            }
            // The call has ended; the kernel frees its place.
            (None, answer) => answer,
        };
        self.kernel.handle_answer(now, generation, call, answer);
    }

    fn hold(
        &mut self,
        generation: Generation,
        call: CallId,
        answer: Answer,
        definition: mainstay_schema::check::Definition,
        subject: Subject,
    ) {
        let now = self.clock.now;
        if !self.kernel.hold_answer(now, generation, call) {
            return;
        }
        let tool = definition.name.clone();
        let is_object = matches!(&subject, Subject::Reply(json) if json.as_str().starts_with('{'));
        if definition.output.is_none() && is_object {
            return self.kernel.handle_checked(now, call, answer);
        }
        let timeout_ms = self.kernel.limits().call_timeout_ms;
        let answer = Box::new(answer);
        let purpose = CheckPurpose::PackReply { call, tool, answer };
        self.begin_check(call, purpose, definition, subject, timeout_ms);
    }

    fn lose(&mut self, slot: SlotId, generation: Generation, fault: &Fault, unsent: &[CallId]) {
        let expected = self.kernel.is_ending(generation);
        let unable = fault.kind == ErrorKind::WorkerSetup;
        let with_roots = unable && self.roots.refuse(slot);
        let refused = unable && !with_roots && !self.catalog.has_served(slot);
        let was_complete = self.catalog.is_complete();
        self.catalog.count_loss(slot, &fault.cause());
        let now = self.clock.now;
        self.kernel.handle_lost(now, generation, fault, unsent);
        if refused {
            self.refuse_setup(slot, fault);
        }
        // A worker that was ended because it was never ready will not do better next time.
        if expected || self.kernel.is_closed(now, slot) {
            self.catalog.give_up(slot, &fault.cause());
        }
        self.continue_if_complete(was_complete);
        if self.kernel.serving(slot).is_none() {
            // A pack that cannot start as it is configured is not started again by itself.
            if with_roots {
                self.kernel.handle_rollout(now, slot);
            }
            // The next worker is started with the present settings.
            self.release(slot);
        }
    }

    /// A host that is configured wrongly ends, with the pack's own words about it.
    fn refuse_setup(&mut self, slot: SlotId, fault: &Fault) {
        let said = fault.said.as_deref().unwrap_or(&fault.detail).to_owned();
        let pack = self.catalog.pack_name(slot).to_owned();
        let error = SetupError { pack, said };
        self.workers.setup.get_or_insert(error);
        self.kernel.handle_stop(self.clock.now);
    }

    /// True if a worker was started with other settings than its pack has now.
    pub(super) fn is_outdated(&self, generation: Generation) -> bool {
        let worker = self.workers.by_generation.get(&generation);
        worker.is_some_and(|worker| self.roots.settings(worker.slot) != worker.settings.as_ref())
    }

    /// True if a worker of the slot is starting with other settings.
    pub(super) fn starts_outdated(&self, slot: SlotId) -> bool {
        self.workers
            .by_generation
            .iter()
            .filter(|(generation, worker)| {
                worker.slot == slot && !self.kernel.is_fenced(**generation)
            })
            .any(|(generation, _)| self.is_outdated(*generation))
    }
}

/// An internal error of a tool is not a broken invariant of the host.
fn as_failure_of_tool(mut answer: Answer) -> Answer {
    if let Answer::Failed(problem) = &mut answer
        && problem.kind == ErrorKind::Internal
    {
        problem.kind = ErrorKind::ToolFailed;
        let (row, internal) = (ErrorKind::ToolFailed.row(), ErrorKind::Internal.row());
        if problem.hint.as_deref() == internal.hint {
            problem.hint = row.hint.map(str::to_owned);
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use mainstay_contract::outcome::Problem;

    use super::*;

    #[test]
    fn an_internal_error_of_a_tool_is_not_one_of_the_host() {
        let failed = |problem| match as_failure_of_tool(Answer::Failed(problem)) {
            Answer::Failed(problem) => problem,
            other => panic!("{other:?}"),
        };
        let problem = failed(Problem::new(ErrorKind::Internal, "the disk is full"));
        assert_eq!(problem.kind, ErrorKind::ToolFailed);
        assert_eq!(problem.message, "the disk is full");
        assert_eq!(problem.fault_class(), None);
        assert_eq!(problem.hint.as_deref(), ErrorKind::ToolFailed.row().hint);
        let hinted = Problem::of(ErrorKind::Internal).with_hint("free some space");
        assert_eq!(failed(hinted).hint.as_deref(), Some("free some space"));
        let other = Problem::of(ErrorKind::NotFound);
        assert_eq!(failed(other.clone()), other);
    }
}
