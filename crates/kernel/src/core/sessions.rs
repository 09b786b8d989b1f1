//! Sessions of clients: from a line or a typed request to work, and from its end to an action.

use mainstay_contract::dialect::{
    self, Dialect, EchoId, Form, Inbound, Op, Request, ServerFacts, Shape, TASKS_VERSION,
    decode_oversize, negotiate_legacy,
};
use mainstay_contract::envelope::{Asked, Route as AskedRoute, TOOL_ID_PREFIX};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Outcome, Problem, Success};
use mainstay_contract::scan;
use mainstay_contract::telemetry::Side;
use mainstay_schema::Violation;
use mainstay_schema::check::{Definition, Subject, Verdict};
use serde::{Deserialize, Serialize};

use super::action::{CheckRequest, CoreAction};
use super::checks::Purpose;
use super::gate::Round;
use super::links::Caller;
use super::mismatches::{Culprit, Mismatch};
use super::tasks::{self, TaskOwner};
use super::{Admitted, Core, Lifetime, Pending, PendingStage};
use crate::action::End;
use crate::call::{NewRequest, SlotId, Work};
use crate::catalog::{PackCatalog, Prepared, Route};
use crate::log_limit::suppressed;
use crate::session::Pace;
use crate::tool_list::rewritten_line;

/// The way in which a session is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Front {
    /// Lines, for packs, and for servers that are served together; the dialect of the last request decides how a line over the limit is rejected.
    Packs {
        last: Option<Dialect>,
        /// The client has sent `initialize`, so it takes notifications.
        opened: bool,
        /// The client's revision is the legacy one that has tasks.
        #[serde(default = "had_tasks")]
        has_tasks: bool,
    },
    /// Lines, for the wrapped server of this slot.
    Link(SlotId),
    /// One typed request, for packs, and for servers that are served together.
    Single,
    /// One typed request, for the wrapped server of this slot.
    House(SlotId),
    /// One task; no client waits for it.
    Task,
}

/// Builds that did not save the revision gave tasks to every session.
const fn had_tasks() -> bool {
    true
}

impl Core {
    /// Opens the session of a client that sends lines. `None` if there is no room for another one.
    /// `nonce` is random: no peer may guess the ids of the host's own requests.
    pub fn open(&mut self, now: crate::time::Time, nonce: u64) -> Option<SessionId> {
        self.open_with(now, nonce, None)
    }

    /// The same, for a client that uses only one of the servers.
    pub(super) fn open_with(
        &mut self,
        now: crate::time::Time,
        nonce: u64,
        only: Option<String>,
    ) -> Option<SessionId> {
        self.clock.now = now;
        let limits = self.kernel.limits();
        let most = limits.connections;
        // A host that drains starts no further server.
        let closed = self.links.server_name().is_some() && !self.kernel.is_serving();
        let is_connection = |front: &&Front| matches!(front, Front::Packs { .. } | Front::Link(_));
        let connections = self.sessions.values().filter(is_connection).count();
        if closed || connections >= most || !self.has_room_for_servers(only.as_deref()) {
            if let Some(more) = self.links.refusals.admit(now) {
                let more = suppressed(more);
                self.log(format!("mcp:warning reason=too_many_connections{more}"));
            }
            return None;
        }
        let session = self.kernel.open_session();
        let front = match self.open_link(session, nonce) {
            Some(slot) => Front::Link(slot),
            None => Front::Packs {
                last: None,
                opened: false,
                has_tasks: false,
            },
        };
        if let Front::Packs { .. } = front {
            self.add_member(session, nonce, only);
        }
        self.sessions.insert(session, front);
        self.watch_clients();
        Some(session)
    }

    /// Decides when a host that is started on demand ends.
    pub(super) fn watch_clients(&mut self) {
        if self.identity.lifetime == Lifetime::Demand {
            let idle_ms = self.kernel.limits().share_idle_ms;
            let until = self.clock.now.plus_ms(idle_ms);
            self.clock.ends = self.sessions.is_empty().then_some(until);
        }
    }

    /// Opens the session of a single typed request. `caller` names who asks: callers do not share a
    /// server's session.
    pub fn open_single(
        &mut self,
        now: crate::time::Time,
        caller: &str,
        nonce: u64,
    ) -> Option<SessionId> {
        self.clock.now = now;
        let server = self.links.server_name().map(str::to_owned);
        let front = match server {
            Some(server) => Front::House(self.house_of(caller, &server, nonce)?),
            None => Front::Single,
        };
        let session = self.kernel.open_session();
        if front == Front::Single {
            let name = caller.to_owned();
            self.links.callers.insert(session, Caller { name, nonce });
        }
        self.sessions.insert(session, front);
        self.set_caller(session, caller);
        Some(session)
    }

    pub(super) fn client_line(&mut self, session: SessionId, line: &[u8]) {
        if self.gates.approvals.asks(session) && self.approval_answer(session, line) {
            return;
        }
        match self.sessions.get(&session) {
            Some(Front::Link(slot)) => {
                self.with_link(*slot, |link, cx| link.client_line(cx, line));
            }
            Some(Front::Packs {
                last,
                opened,
                has_tasks,
            }) => {
                let (last, opened, has_tasks) = (*last, *opened, *has_tasks);
                let inbound = dialect::decode(line, self.kernel.limits().json_depth);
                if let Inbound::Request(request) = &inbound {
                    let opening = match &request.op {
                        Op::Initialize {
                            version, elicits, ..
                        } => {
                            self.gates.set_elicits(session, *elicits);
                            Some(negotiate_legacy(version))
                        }
                        _ => None,
                    };
                    if last != Some(request.dialect) || opening.is_some() {
                        let front = Front::Packs {
                            last: Some(request.dialect),
                            opened: opened || opening.is_some(),
                            has_tasks: opening
                                .map_or(has_tasks, |version| version == TASKS_VERSION),
                        };
                        self.sessions.insert(session, front);
                    }
                }
                self.inbound(session, inbound, line.len(), Some(line));
            }
            Some(Front::Single | Front::House(_) | Front::Task) | None => {}
        }
    }

    pub(super) fn client_oversize(&mut self, session: SessionId, head: &[u8]) {
        match self.sessions.get(&session) {
            Some(Front::Link(slot)) => {
                self.with_link(*slot, |link, cx| link.client_oversize(cx, head));
            }
            Some(Front::Packs { last, .. }) => {
                let limit = self.kernel.limits().request_frame_bytes;
                let inbound = decode_oversize(head, *last, limit);
                self.inbound(session, inbound, limit, None);
            }
            Some(Front::Single | Front::House(_) | Front::Task) | None => {}
        }
    }

    /// A session that takes a typed end asks its only request.
    pub(super) fn ask(&mut self, session: SessionId, request: Request, bytes: usize) {
        let limit = self.kernel.limits().request_frame_bytes;
        match self.sessions.get(&session) {
            Some(Front::House(_) | Front::Single) if bytes > limit => {
                let mut new = self.new_request(&request, bytes);
                new.work = Work::Refused(Problem::too_large(limit));
                self.kernel.handle_request(self.clock.now, session, new);
            }
            Some(Front::House(slot)) if !matches!(request.op, Op::Task(_) | Op::Approvals(_)) => {
                self.ask_house(*slot, session, request, bytes);
            }
            Some(Front::House(_) | Front::Single) => {
                self.inbound(session, Inbound::Request(request), bytes, None);
            }
            Some(Front::Packs { .. } | Front::Link(_) | Front::Task) | None => return,
        }
        self.kernel.handle_input_end(self.clock.now, session);
    }

    /// `line` is what a client wrote, for servers that must get it.
    pub(super) fn inbound(
        &mut self,
        session: SessionId,
        inbound: Inbound,
        bytes: usize,
        line: Option<&[u8]>,
    ) {
        let now = self.clock.now;
        let text = line.and_then(|line| std::str::from_utf8(line).ok());
        let line = line.filter(|_| self.links.serves_many());
        match (&inbound, line) {
            (Inbound::Ignored | Inbound::Notice(_), Some(line)) => self.broadcast(session, line),
            (Inbound::Answer(answer), Some(line))
                if self.answer_question(session, &answer.id, line) =>
            {
                return;
            }
            _ => {}
        }
        let asked = asked_of(&inbound).map(Box::new);
        match inbound {
            Inbound::Ignored => {}
            Inbound::Notice(notice) => self.roots_notice(session, notice),
            Inbound::Answer(answer) => self.roots_answer(session, answer),
            Inbound::Cancel(cancel) => self.kernel.handle_cancel(now, session, &cancel),
            Inbound::Refused(refused) => {
                let dialect = refused.form.dialect;
                let pending = asked.map(|asked| Pending::new(dialect, Op::Ping {}, Some(asked)));
                let request = NewRequest::rejected(refused, bytes);
                let call = self.kernel.handle_request(now, session, request);
                self.requests.extend(call.zip(pending.map(Box::new)));
            }
            Inbound::Request(mut request) => {
                let is_replaced = self.resolve_named_call(session, &mut request.op);
                self.roots_request(session, &request.op);
                let mut new = self.new_request(&request, bytes);
                new.may_have_run = self.is_unsettled(session, &request.id);
                let task = request
                    .task
                    .filter(|_| self.has_tasks(session, request.dialect));
                if let Some(problem) = task.as_ref().and_then(|wish| wish.malformed.clone()) {
                    new.work = Work::Refused(problem);
                }
                let mut pending = Pending::new(request.dialect, request.op, asked);
                if let (Op::CallTool { .. }, Some(text)) = (&pending.op, text)
                    && pending.dialect == Dialect::Modern
                {
                    let params = scan::member(text.trim(), "params").unwrap_or("{}");
                    let meta = scan::member(params, "_meta");
                    let round = Round::of(pending.dialect, params, meta);
                    pending.round = Some(Box::new(round));
                }
                pending.progress_token = request.progress_token;
                pending.trace = request.trace;
                if pending.dialect.is_mcp() {
                    let text = line.and_then(|line| std::str::from_utf8(line).ok());
                    let replaced = text.filter(|_| is_replaced).and_then(rewritten_line);
                    let text = replaced.as_deref().or(text);
                    pending.line = text.map(|text| Json::from_scanned(text.trim()));
                }
                if let Some(line) = &pending.line {
                    self.note_opening(session, &pending.op, line);
                }
                pending.task = task;
                let call = self.kernel.handle_request(now, session, new);
                self.requests.extend(call.zip(Some(Box::new(pending))));
            }
        }
    }

    /// A typed request, as the kernel admits it.
    pub(super) fn new_request(&mut self, request: &Request, bytes: usize) -> NewRequest {
        NewRequest {
            id: EchoId::Known(request.id.clone()),
            form: Form {
                dialect: request.dialect,
                shape: request.op.shape(),
            },
            method: request.op.method().to_owned(),
            tool: None,
            progress_token: request.progress_token.clone(),
            input_bytes: bytes,
            trace: self.clock.spans.of(request.trace),
            may_have_run: false,
            work: Work::Unrouted,
        }
    }

    /// True if a client may ask for tasks: of the legacy revisions one has them.
    fn has_tasks(&self, session: SessionId, dialect: Dialect) -> bool {
        match (dialect, self.sessions.get(&session)) {
            (Dialect::Legacy, Some(Front::Packs { has_tasks, .. })) => *has_tasks,
            _ => true,
        }
    }

    /// Routes a request once that is possible.
    pub(super) fn route(&mut self, call: CallId) {
        if let Some(slot) = self.link_of(call) {
            return self.route_link(slot, call);
        }
        if let Some(Op::Approvals(op)) = self.requests.get(&call).map(|pending| &pending.op) {
            let op = op.clone();
            let outcome = self.approval_op(call, &op);
            let now = self.clock.now;
            return self.kernel.end_routing(now, call, None, outcome);
        }
        if self.route_search(call) || self.links.serves_many() && self.route_merged(call) {
            return;
        }
        let Some(pending) = self.requests.get_mut(&call) else {
            return;
        };
        let is_about_task = match &pending.op {
            Op::ReadResource { uri } => tasks::id_of(uri).is_some(),
            Op::Task(_) => pending.dialect == Dialect::Rest,
            _ => false,
        };
        if let (Op::Task(_), dialect) = (&pending.op, pending.dialect)
            && let Some((session, _)) = self.kernel.request_of(call)
            && !self.has_tasks(session, dialect)
        {
            let refused = Work::Refused(Problem::of(ErrorKind::UnknownMethod));
            return self
                .kernel
                .handle_routed(self.clock.now, call, None, refused);
        }
        let Some(pending) = self.requests.get_mut(&call) else {
            return;
        };
        if is_about_task {
            return self
                .kernel
                .handle_routed(self.clock.now, call, None, Work::Host);
        }
        if !self.catalog.can_route(&pending.op) {
            pending.stage = PendingStage::Unrouted;
            return;
        }
        let routed = self.catalog.route(&pending.op);
        // Nothing is sent to a pack that is not known, so nothing else asks for its worker after a rest.
        for slot in self.catalog.missing_slots() {
            self.kernel.warm(self.clock.now, slot);
        }
        let slot = match &routed.route {
            Route::Work(Work::Worker(task)) => Some(task.slot),
            Route::Check { slot, .. } => *slot,
            Route::Work(_) => None,
        };
        if slot.is_some_and(|slot| self.roots.holds(slot)) {
            pending.stage = PendingStage::Unrouted;
            return;
        }
        pending.stage = PendingStage::Open;
        if let Some(alias) = &routed.deprecated {
            self.log(format!(
                "mcp:warning reason=deprecated_alias method={alias}"
            ));
        }
        self.follow_route(call, routed.tool, routed.route);
    }

    pub(super) fn follow_route(&mut self, call: CallId, tool: Option<String>, route: Route) {
        let now = self.clock.now;
        let (definition, timeout_ms, epoch) = match route {
            Route::Work(work) => return self.kernel.handle_routed(now, call, tool, work),
            Route::Check {
                definition,
                timeout_ms,
                epoch,
                ..
            } => (definition, timeout_ms, epoch),
        };
        let Some(pending) = self.requests.get_mut(&call) else {
            return;
        };
        let Op::CallTool { arguments, .. } = &pending.op else {
            return;
        };
        let subject = Subject::Arguments(arguments.clone());
        pending.admitted = Some(Admitted {
            definition: definition.clone(),
            epoch,
        });
        let limit_ms = self.task_limit(call).unwrap_or(timeout_ms);
        self.kernel.start_clock(now, call, limit_ms);
        let tool = tool.unwrap_or_default();
        let purpose = Purpose::PackArguments { call, tool };
        self.begin_check(call, purpose, definition, subject, timeout_ms);
    }

    /// Asks for a check on behalf of a call's session, which is given up after `timeout_ms`.
    pub(super) fn begin_check(
        &mut self,
        call: CallId,
        purpose: Purpose,
        definition: Definition,
        subject: Subject,
        timeout_ms: u64,
    ) {
        let session = self.kernel.request_of(call);
        let request = CheckRequest {
            fair: session.map_or(0, |(session, _)| session.get()),
            definition,
            subject,
            until: self.clock.now.plus_ms(timeout_ms),
        };
        let check = self.checks.begin(purpose, request);
        self.out.push_back(check);
    }

    /// Routes requests that waited for the last pack or for the client's roots.
    pub(super) fn route_waiting(&mut self) {
        let waiting = |pending: &Pending| pending.stage == PendingStage::Unrouted;
        let requests = self.requests.iter();
        let calls: Vec<CallId> = requests
            .filter(|(_, pending)| waiting(pending))
            .map(|(call, _)| *call)
            .collect();
        for call in calls {
            self.route(call);
        }
    }

    /// A check has its verdict.
    pub(super) fn checked(&mut self, ticket: u64, verdict: Verdict) {
        let now = self.clock.now;
        let Some(purpose) = self.checks.end(ticket) else {
            return;
        };
        match purpose {
            Purpose::PackArguments { call, tool } => self.arguments_checked(call, tool, verdict),
            Purpose::PackReply { call, tool, answer } => {
                let (answer, violation) = PackCatalog::checked_answer(*answer, &verdict);
                if let Some(violation) = &violation {
                    self.note_mismatch_of(call, &tool, Side::Output, violation);
                }
                self.kernel.handle_checked(now, call, answer);
            }
            Purpose::ServerArguments { slot, call } => {
                self.with_link(slot, |link, cx| link.arguments_checked(cx, call, &verdict));
            }
            Purpose::ServerRecheck {
                slot,
                generation,
                call,
            } => {
                self.with_link(slot, |link, cx| {
                    link.rechecked(cx, generation, call, &verdict);
                });
            }
            Purpose::ServerReply {
                slot,
                tool,
                culprit,
            } => match verdict {
                Verdict::Rejected { violations } => {
                    if let Some(violation) = violations.first() {
                        self.note_mismatch(Mismatch {
                            culprit,
                            tool: &tool,
                            side: Side::Output,
                            violation,
                        });
                    }
                }
                Verdict::Unchecked { reason } => {
                    self.with_link(slot, |link, cx| link.report_unchecked(cx, &tool, &reason));
                }
                _ => {}
            },
        }
    }

    fn arguments_checked(&mut self, call: CallId, tool: String, verdict: Verdict) {
        let now = self.clock.now;
        let Some(pending) = self.requests.get_mut(&call) else {
            return;
        };
        let work = match self.catalog.prepared(&tool, pending.dialect, verdict) {
            Prepared::Own(render) => {
                pending.stage = PendingStage::Own(render);
                Work::Host
            }
            Prepared::Work(work) => match self.gate_pack(call, &tool, work) {
                Some(work) => self.as_task(call, &tool, work),
                None => return,
            },
            Prepared::Rejected(problem, violation) => {
                if let Some(violation) = &violation {
                    self.note_mismatch_of(call, &tool, Side::Input, violation);
                }
                Work::Refused(problem)
            }
        };
        self.kernel.handle_routed(now, call, Some(tool), work);
    }

    fn note_mismatch_of(&mut self, call: CallId, tool: &str, side: Side, violation: &Violation) {
        let culprit = Culprit::of(&self.kernel, call);
        self.note_mismatch(Mismatch {
            culprit,
            tool,
            side,
            violation,
        });
    }

    /// Answers a request from the host's own knowledge.
    pub(super) fn serve(&mut self, call: CallId) {
        if self.serve_link_task(call) {
            return;
        }
        let Some(pending) = self.requests.get(&call) else {
            if let Some(slot) = self.link_of(call) {
                self.with_link(slot, |link, cx| link.serve_own(cx, call));
            }
            return;
        };
        match (&pending.stage, &pending.op) {
            (PendingStage::Own(render), Op::CallTool { name, .. }) => {
                let (tool, render) = (name.clone(), *render);
                self.out
                    .push_back(CoreAction::OwnTool { call, tool, render });
            }
            (PendingStage::Recording(_), _) => self.record_task(call),
            (_, Op::Task(_) | Op::ReadResource { .. }) if pending.house.is_none() => {
                self.ask_task(call);
            }
            (_, Op::Listen { .. }) => self.listen(call),
            _ if pending.house.is_some() => {
                if let Some(slot) = pending.house {
                    self.with_link(slot, |link, cx| link.serve_own(cx, call));
                }
            }
            (_, op) => {
                let op = op.clone();
                let outcome = self.own_answer(call, &op);
                self.kernel.handle_served(self.clock.now, call, outcome);
            }
        }
    }

    fn own_answer(&mut self, call: CallId, op: &Op) -> Outcome {
        let session = self.kernel.request_of(call).map(|(session, _)| session);
        if let Some(session) = session {
            match op {
                Op::ListTools { full } => {
                    let pending = self.requests.get(&call);
                    let marks_tasks = pending
                        .is_some_and(|pending| pending.dialect == Dialect::Legacy)
                        && self.has_tasks(session, Dialect::Legacy);
                    let listing = self.tool_listing(session, *full, marks_tasks);
                    return Ok(Success::Members(listing));
                }
                Op::CallTool { arguments, .. } => return self.search_tools(session, arguments),
                _ => {}
            }
        }
        let mut about = self.identity.instructions.clone();
        let mut servers = None;
        if self.links.serves_many()
            && let Some(session) = session
        {
            if let Some(listing) = self.merged_listing(session, op) {
                return Ok(Success::Members(listing));
            }
            if let Op::Initialize { version, .. } = op
                && let Some(handshake) = self.only_handshake(session, version)
            {
                return Ok(Success::Members(handshake));
            }
            if let Op::Initialize { .. } | Op::Discover {} = op {
                let (instructions, facts) = self.introduction(session);
                (about, servers) = (instructions, Some(facts));
            }
        }
        let identity = &self.identity;
        let is_known = self.owner_of(call) != TaskOwner::Holder;
        let facts = || {
            let about = about.as_deref();
            let facts = self
                .catalog
                .facts(&identity.name, &identity.version, about, is_known);
            ServerFacts { servers, ..facts }
        };
        let members = match op {
            Op::SetLogLevel { .. } => Json::empty_object(),
            Op::Initialize { version, .. } => facts().initialized(version),
            Op::Discover {} => facts().discovered(),
            Op::Catalog {} => self.catalog.catalog(&identity.name, &identity.version),
            Op::Ping {} => Json::empty_object(),
            listing => self
                .catalog
                .listing(listing)
                .ok_or_else(|| Problem::of(ErrorKind::UnknownMethod))?,
        };
        Ok(Success::Members(members))
    }

    /// The one end of a request.
    pub(super) fn ended(&mut self, mut end: Box<End>) {
        self.out.extend(self.checks.forget(end.call));
        self.links.merged.drop_gather(end.call);
        self.tasks.forget_waiter(end.call);
        if self.sessions.get(&end.session) == Some(&Front::Task) {
            let pending = self.requests.remove(&end.call);
            let slot = pending.and_then(|pending| pending.house);
            if let Some(slot) = slot {
                self.with_link(slot, |link, _| link.ended(&mut end));
            }
            self.task_ended(end);
            if let Some(slot) = slot {
                self.close_left_link(slot);
            }
            return;
        }
        let pending = self.requests.remove(&end.call);
        let house = pending.as_ref().and_then(|pending| pending.house);
        let link = match self.sessions.get(&end.session) {
            Some(Front::Link(slot) | Front::House(slot)) => Some(*slot),
            _ => house,
        };
        match link {
            Some(slot) if self.runs_on(end.call) => self.keep_call(slot, &end),
            Some(slot) => {
                self.with_link(slot, |link, _| link.ended(&mut end));
            }
            None => {}
        }
        if let Some(Op::ReadResource { uri }) = pending.as_ref().map(|pending| &pending.op) {
            end.outcome = end.outcome.map_err(|problem| problem.with_uri(uri));
        }
        let asked = pending.and_then(|pending| pending.asked);
        self.out.push_back(CoreAction::End { end, asked });
    }

    pub(super) fn pace(&mut self, session: SessionId, behind: bool) {
        let pace = if behind { Pace::Behind } else { Pace::Even };
        self.kernel.handle_pace(self.clock.now, session, pace);
        for slot in self.slots_of_client(session) {
            self.links.touch(slot);
        }
    }

    pub(super) fn input_ended(&mut self, session: SessionId) {
        self.end_listeners(Some(session));
        self.roots_end(session);
        for slot in self.slots_of_client(session) {
            self.with_link(slot, |link, cx| link.input_ended(cx));
        }
        self.kernel.handle_input_end(self.clock.now, session);
    }

    /// A client is gone: its calls are given up, and its server ends.
    pub(super) fn gone(&mut self, session: SessionId) {
        let now = self.clock.now;
        let Some(front) = self.sessions.remove(&session) else {
            return;
        };
        let stays = match front {
            Front::Link(slot) => self.with_link(slot, |link, cx| link.outlives_client(cx)),
            _ => None,
        };
        if let (Front::Link(slot), Some(true)) = (front, stays)
            && self.kernel.has_session(session)
        {
            // The link still has to learn how its other requests end.
            self.sessions.insert(session, Front::House(slot));
        }
        self.kernel.handle_gone(now, session);
        self.tasks.forget_caller(session);
        self.gates.set_elicits(session, false);
        self.tool_lists.forget(session);
        match front {
            Front::Single | Front::House(_) | Front::Task => {
                self.links.callers.remove(&session);
                return;
            }
            Front::Link(_) if stays == Some(true) => {}
            Front::Link(slot) => self.kernel.close_slot(now, slot),
            Front::Packs { .. } => self.remove_member(session),
        }
        self.watch_clients();
        // Tasks outlive their client; the host ends with the last of them.
        if self.identity.lifetime == Lifetime::Client && !self.linger() {
            self.kernel.handle_stop(now);
        }
    }

    /// Everything that a client asked is answered, and it will ask no more.
    pub(super) fn session_over(&mut self, session: SessionId) {
        match self.sessions.get(&session) {
            Some(Front::Single | Front::House(_) | Front::Task) => {
                self.sessions.remove(&session);
                self.links.callers.remove(&session);
                self.tasks.forget_caller(session);
            }
            Some(Front::Packs { .. } | Front::Link(_)) => {
                self.out.push_back(CoreAction::Close { session });
            }
            None => {}
        }
    }
}

/// The request envelope that an answer refers to, if the answer is an envelope.
fn asked_of(inbound: &Inbound) -> Option<Asked> {
    match inbound {
        Inbound::Request(request) if request.dialect == Dialect::Envelope => match &request.op {
            Op::CallTool { name, arguments } => {
                Some(Asked::tool(&format!("{TOOL_ID_PREFIX}{name}"), arguments))
            }
            _ => Some(Asked::catalog()),
        },
        Inbound::Refused(refused) if refused.form.dialect == Dialect::Envelope => {
            let route = match refused.form.shape {
                Shape::Tool => AskedRoute::Tool,
                Shape::Cacheable | Shape::Plain => AskedRoute::Discover,
            };
            Some(Asked {
                route,
                payload: refused.payload.clone().unwrap_or_else(Json::null),
            })
        }
        _ => None,
    }
}
