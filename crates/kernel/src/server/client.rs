//! Lines of the client: requests, notifications, and answers to the server's questions.

use mainstay_contract::dialect::{
    Cancel, CancelKind, Dialect, EchoId, Inbound, Refused, Relayed, RelayedRequest, declares_forms,
    decode_oversize, encode, relay, task_wish,
};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, RequestId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta;
use mainstay_contract::method::{self, Method};
use mainstay_contract::outcome::Problem;
use mainstay_contract::replay::Replay;
use mainstay_contract::rpc;
use mainstay_contract::scan;
use mainstay_contract::telemetry::Side;
use mainstay_contract::tool::Pace;
use mainstay_contract::trace::TraceContext;
use mainstay_schema::check::{Definition, Subject, Verdict};
use serde_json::json;

use super::requests::ClientRequest;
use super::tasks::CallTask;
use super::{Cx, Discovered, Link, edit, outputs, probe};
use crate::approvals::policy::Hints;
use crate::call::{Late, NewRequest, Task, UNTIMED_MS, Work};
use crate::core::action::{CheckRequest, CoreAction, LogLevel};
use crate::core::checks::Purpose;
use crate::core::gate::{GateCall, Round};
use crate::core::mismatches::{Culprit, Mismatch};
use crate::system_tools;

/// Most notifications that are deferred to the next server, and the longest of them.
const DEFERRED: usize = 64;
const DEFERRED_BYTES: usize = 64 * 1024;
/// Members of a modern client's `_meta` that requests of the host repeat.
const OWN_META: [&str; 3] = [
    meta::PROTOCOL_VERSION,
    meta::CLIENT_CAPABILITIES,
    meta::CLIENT_INFO,
];
/// How long a call waits for the list of tools, in milliseconds.
const HELD_MS: u64 = 10_000;
/// A server that has not answered `server/discover` after so many milliseconds does not know it.
pub(super) const DISCOVER_MS: u64 = 8000;

impl Link {
    /// The client sent a line.
    pub(crate) fn client_line(&mut self, cx: &mut Cx<'_>, line: &[u8]) {
        self.touch(cx.now);
        let relayed = relay(line, cx.kernel.limits().json_depth);
        // A scanned line is UTF-8.
        let text = std::str::from_utf8(line).unwrap_or_default();
        match relayed {
            Ok(Relayed::Request(request)) => {
                if !self.named_call(cx, text, &request) {
                    self.request(cx, text, &request);
                }
            }
            Ok(Relayed::Notice { method, params }) => self.notification(cx, text, &method, params),
            Ok(Relayed::Answer { id, .. }) => self.client_answer(cx, text, &id),
            Err(refused) => self.reject(cx, refused, line.len()),
        }
    }

    /// The client sent a line over the limit; only its beginning was kept.
    pub(crate) fn client_oversize(&mut self, cx: &mut Cx<'_>, head: &[u8]) {
        let limit = cx.kernel.limits().request_frame_bytes;
        if let Inbound::Refused(refused) = decode_oversize(head, Some(Dialect::Legacy), limit) {
            self.reject(cx, refused, limit);
        }
    }

    fn reject(&self, cx: &mut Cx<'_>, refused: Refused, bytes: usize) {
        if let Some(session) = self.session() {
            let request = NewRequest::rejected(refused, bytes);
            cx.kernel.handle_request(cx.now, session, request);
        }
    }

    pub(super) fn request(&mut self, cx: &mut Cx<'_>, text: &str, request: &RelayedRequest<'_>) {
        let Some(session) = self.session() else {
            return;
        };
        if request.ambiguous {
            let said = "the message has a member twice, in one spelling or another";
            let refused = Refused {
                id: EchoId::Known(request.id.clone()),
                form: request.form(),
                problem: Problem::new(ErrorKind::InvalidMessage, said),
                payload: None,
            };
            return self.reject(cx, refused, text.len());
        }
        let meta = request.param("_meta");
        if request.known_method() == Some(Method::Initialize) {
            let capabilities = request.param("capabilities");
            let elicits = capabilities.is_some_and(declares_forms);
            cx.gates.set_elicits(session, elicits);
        }
        let asked = self.read_request(text, request);
        self.identify(cx, &asked);
        // A tool call is decided about once its tool is known.
        let work = match &asked.tool {
            Some(_) => Work::Unrouted,
            None if self.is_searched_listing(cx, &asked) => Work::Unrouted,
            None => self.route(cx, &asked),
        };
        let new = NewRequest {
            id: EchoId::Known(asked.id.clone()),
            form: request.form(),
            method: method::telemetry_name_of(&asked.method).to_owned(),
            tool: None,
            progress_token: None,
            input_bytes: text.len(),
            trace: cx.spans.of(meta.and_then(trace_of)),
            may_have_run: false,
            work,
        };
        if let Some(call) = cx.kernel.handle_request(cx.now, session, new) {
            self.requests.insert(call, asked);
        }
    }

    /// A client's request as an entry of the request table.
    pub(super) fn read_request(
        &mut self,
        text: &str,
        request: &RelayedRequest<'_>,
    ) -> ClientRequest {
        let meta = request.param("_meta");
        if request.dialect == Dialect::Modern
            && !self.is_shared()
            && let Some(meta) = meta
        {
            let is_own = |name: &str| OWN_META.contains(&name);
            self.memory.modern_meta = Some(Json::from_scanned(&edit::filtered(meta, is_own)));
        }
        let mut asked = ClientRequest::new(text, request, meta);
        if asked.tool.is_some() && self.offers_tasks_to(request.dialect) {
            let wish = task_wish(request.dialect, request.param("task"), meta);
            asked.task = wish.map(|wish| Box::new(CallTask::Wished(wish)));
        }
        asked
    }

    /// The name and the arguments of a call of one of the host's own tools.
    pub(crate) fn own_tool(&self, call: CallId) -> Option<(Dialect, String, Json)> {
        let request = self.requests.get(call)?;
        let name = request.tool.as_deref()?;
        if !self.rules().system_tools || !system_tools::is_own(name) {
            return None;
        }
        let arguments = request.param("arguments").unwrap_or("{}");
        let arguments = Json::from_scanned(arguments);
        Some((request.dialect, name.to_owned(), arguments))
    }

    /// A tool call must be routed. A call of a tool that is not known yet waits for the list.
    pub(crate) fn decide(&mut self, cx: &mut Cx<'_>, call: CallId) {
        let Some(request) = self.requests.get(call) else {
            return;
        };
        if self.is_listing(request) {
            return self.decide_listing(cx, call);
        }
        if self.decide_search(cx, call) {
            return;
        }
        let Some(request) = self.requests.get(call) else {
            return;
        };
        if request.tool.is_none() {
            return self.finish_routing(cx, call, None);
        }
        let unknown = request.tool.clone().filter(|tool| !self.tools.knows(tool));
        let listable = self.lists.unlistable.is_none() || self.lists.unlistable != self.serving(cx);
        if let Some(tool) = unknown.filter(|_| listable) {
            let timeout_ms = self.call_timeout(cx, call, &tool);
            // While the first server starts, a call waits as long as it may.
            let held_ms = match self.recall.is_active {
                true => timeout_ms,
                false => HELD_MS.min(timeout_ms),
            };
            let until = cx.now.plus_ms(held_ms);
            self.requests.hold(call, until);
            cx.kernel.start_clock(cx.now, call, timeout_ms);
            return self.want_tools(cx);
        }
        self.admit(cx, call);
    }

    /// Releases held calls: the tools are known now, or cannot be.
    pub(super) fn release(&mut self, cx: &mut Cx<'_>) {
        for call in self.requests.release() {
            self.admit(cx, call);
        }
    }

    /// Rejects a tool call, has its arguments checked, or queues it.
    fn admit(&mut self, cx: &mut Cx<'_>, call: CallId) {
        let tools_of = self.handover.tools_of;
        if self
            .requests
            .get(call)
            .is_some_and(|request| self.is_listing(request))
        {
            return self.admit_listing(cx, call);
        }
        if self.admit_search(cx, call) {
            return;
        }
        let Some(request) = self.requests.get_mut(call) else {
            return;
        };
        request.admitted = tools_of;
        let Some(name) = request.tool.clone() else {
            return;
        };
        let Some(tool) = self.tools.get(&name) else {
            let refused = self.tools.stranger(&name).problem(&name);
            return self.finish_routing(cx, call, refused);
        };
        request.listed = true;
        if let Some(problem) = tool.refusal(&name) {
            return self.finish_routing(cx, call, Some(problem));
        }
        if tool.check.input.is_none() {
            return self.finish_routing(cx, call, None);
        }
        request.checked = Some(tool.check.digest());
        let arguments = Json::from_scanned(request.param("arguments").unwrap_or("{}"));
        let (definition, slot) = (tool.check.clone(), self.slot);
        let timeout_ms = self.call_timeout(cx, call, &name);
        cx.kernel.start_clock(cx.now, call, timeout_ms);
        let purpose = Purpose::ServerArguments { slot, call };
        let subject = Subject::Arguments(arguments);
        self.begin_check(cx, purpose, definition, subject, timeout_ms);
    }

    /// Asks for a check, which is given up after `timeout_ms`.
    pub(super) fn begin_check(
        &self,
        cx: &mut Cx<'_>,
        purpose: Purpose,
        definition: Definition,
        subject: Subject,
        timeout_ms: u64,
    ) {
        let request = CheckRequest {
            fair: self.fair(),
            definition,
            subject,
            until: cx.now.plus_ms(timeout_ms),
        };
        let check = cx.checks.begin(purpose, request);
        cx.out.push_back(check);
    }

    /// The arguments of a call were checked.
    pub(crate) fn arguments_checked(&mut self, cx: &mut Cx<'_>, call: CallId, verdict: &Verdict) {
        let name = self
            .requests
            .get(call)
            .and_then(|request| request.tool.clone());
        let Some(name) = name else { return };
        let problem = self.objection_of(cx, call, &name, verdict);
        self.finish_routing(cx, call, problem);
    }

    /// The error that a verdict about arguments means for a call.
    pub(super) fn objection_of(
        &mut self,
        cx: &mut Cx<'_>,
        call: CallId,
        name: &str,
        verdict: &Verdict,
    ) -> Option<Problem> {
        match verdict {
            Verdict::Passed | Verdict::Prepared { .. } => None,
            // A schema that cannot be compiled checks nothing.
            Verdict::Unchecked { reason } => {
                self.report_unchecked(cx, name, reason);
                None
            }
            Verdict::GaveUp { reason } => Some(crate::core::checks::gave_up(*reason)),
            Verdict::Rejected { violations } => {
                let first = violations.first()?;
                cx.note_mismatch(Mismatch {
                    culprit: Culprit::of(cx.kernel, call),
                    tool: name,
                    side: Side::Input,
                    violation: first,
                });
                let place = match first.path.as_str() {
                    "" => String::new(),
                    path => format!("{path} "),
                };
                let message = format!(
                    "the arguments do not fit the tool's schema: {place}{}",
                    first.message
                );
                let details = json!({ "errors": violations });
                let problem = Problem::new(ErrorKind::InvalidArguments, message);
                Some(problem.with_details(Json::from(details)))
            }
        }
    }

    pub(super) fn finish_routing(
        &mut self,
        cx: &mut Cx<'_>,
        call: CallId,
        refused: Option<Problem>,
    ) {
        if refused.is_none() && self.waits_at_gate(cx, call) {
            return;
        }
        // A request may repeat a call that is not asked about any more.
        let request = self.requests.get(call);
        let round = request.map(|request| {
            let params = request.params().unwrap_or("{}");
            Round::of(request.dialect, params, None)
        });
        self.leave_gate(cx, call, refused, &round.unwrap_or_default());
    }

    /// Puts a tool call into the line at the gate. False if it need not pass it.
    fn waits_at_gate(&self, cx: &mut Cx<'_>, call: CallId) -> bool {
        let Some(request) = self.requests.get(call) else {
            return false;
        };
        let Some(tool) = request
            .tool
            .clone()
            .filter(|_| cx.gates.concerns(Some(self.rules())))
        else {
            return false;
        };
        let arguments = Json::from_scanned(request.param("arguments").unwrap_or("{}"));
        let params = request.params().unwrap_or("{}");
        cx.gates.ask(GateCall {
            call,
            slot: Some(self.slot),
            server: self.server.clone(),
            hints: self.hints_of(&tool),
            tool,
            trusted: self.rules().approvals.trust_annotations,
            rules: Some(self.tools.shared_rules()),
            arguments,
            dialect: request.dialect,
            round: Round::of(request.dialect, params, request.param("_meta")),
        });
        true
    }

    /// The annotations of a tool.
    pub(super) fn hints_of(&self, tool: &str) -> Hints {
        let definition = self.tools.get(tool).map(|tool| tool.definition.to_value());
        match definition {
            Some(Ok(definition)) => Hints::of(&definition),
            Some(Err(_)) | None => Hints::default(),
        }
    }

    /// A call has passed the gate, or is refused.
    pub(crate) fn leave_gate(
        &mut self,
        cx: &mut Cx<'_>,
        call: CallId,
        refused: Option<Problem>,
        round: &Round,
    ) {
        let Some(mut request) = self.requests.take(call) else {
            return;
        };
        let params = request.params();
        if let Some(params) = params.and_then(|params| round.params_for_server(params)) {
            let line = edit::with_member(request.line.as_str(), "params", &params);
            request.line = Json::from_scanned(&line);
        }
        let work = match refused {
            Some(problem) => Work::Refused(problem),
            None => match self.shared_work(cx, call, &request) {
                Some(work) => work,
                None => {
                    let work = self.route(cx, &request);
                    self.as_task(cx, call, &mut request, work)
                }
            },
        };
        // Telemetry counts only tools that exist: clients can invent any number of names.
        let known = |tool: &&String| self.tools.get(tool).is_some();
        let tool = request.tool.as_ref().filter(known);
        let tool = tool.map(|tool| self.shown_name(tool));
        self.requests.put_back(call, request);
        cx.kernel.handle_routed(cx.now, call, tool, work);
    }

    /// The timeout of a call: that of its task, else that of its tool.
    fn call_timeout(&self, cx: &Cx<'_>, call: CallId, tool: &str) -> u64 {
        let request = self.requests.get(call);
        let task = request.and_then(|request| request.task.as_deref());
        let of_task = task.and_then(CallTask::timeout_ms);
        of_task.unwrap_or_else(|| self.patience(cx, tool).0)
    }

    /// The timeout of a tool's calls, and true if a server that exceeds it must be replaced.
    fn patience(&self, cx: &Cx<'_>, tool: &str) -> (u64, bool) {
        let limits = cx.kernel.limits();
        let default_ms = self.rules().timeout_ms.unwrap_or(limits.call_timeout_ms);
        self.tools.patience(tool, default_ms)
    }

    /// Decides which server, or which part of the host, answers a request, and under which contract.
    fn route(&mut self, cx: &mut Cx<'_>, request: &ClientRequest) -> Work {
        if self.is_answered_here(cx, request) || self.is_about_task(request) {
            return Work::Host;
        }
        if let Some(problem) = self.reviewed.refusal(request) {
            return Work::Refused(problem);
        }
        if method::is_respelled(&request.method) {
            return Work::Refused(unknown_method(&request.method));
        }
        let limits = cx.kernel.limits();
        let timeout_ms = self.rules().timeout_ms;
        let mut timeout_ms = timeout_ms.unwrap_or(limits.call_timeout_ms);
        let mut late = Late::Ask;
        let mut replay = method::replay_of(&request.method);
        let mut probe = None;
        match Method::parse(&request.method) {
            // A server that does not open a session is of no use.
            Some(Method::Initialize) => (timeout_ms, late) = (self.start_ms(limits), Late::Open),
            Some(Method::Discover) => {
                let is_legacy = cx.memory.discovered == Some(Discovered::Legacy);
                let patience_ms = match self.may_bridge() {
                    // The host opens a legacy session for it.
                    true => self.start_ms(limits),
                    false if is_legacy => {
                        return Work::Refused(unknown_method(&request.method));
                    }
                    false => timeout_ms.min(DISCOVER_MS),
                };
                // A server that is still starting may not have read it.
                (timeout_ms, late) = (patience_ms, Late::Leave);
            }
            Some(Method::Listen) => timeout_ms = UNTIMED_MS,
            _ => {}
        }
        if let Some(name) = &request.tool {
            let ends;
            (timeout_ms, ends) = self.patience(cx, name);
            late = if ends { Late::End } else { Late::Ask };
            replay = match self.tools.get(name) {
                Some(tool) => tool.replay,
                None => {
                    let configured = self.tools.configured_replay(name);
                    configured.unwrap_or(Replay::NeverReplay)
                }
            };
            let rules = self.rules().tools.get(name);
            if let Some(rule) = rules.and_then(|rules| rules.probe.clone()) {
                let id = self.own_id();
                let arguments = request.param("arguments");
                probe = Some(probe::line(&rule, &id, arguments, request.param("_meta")));
            }
        }
        Work::Worker(Task {
            slot: self.slot,
            op: rpc::Op::Forward(rpc::Forward {
                line: request.line.clone(),
                probe,
            }),
            replay,
            timeout_ms,
            late,
            pace: Pace::Short,
        })
    }

    /// True for requests that the host answers itself: stored outputs, and what it remembers of the server.
    fn is_answered_here(&self, cx: &Cx<'_>, request: &ClientRequest) -> bool {
        if self.recalled_answer(cx, request).is_some() {
            return true;
        }
        match Method::parse(&request.method) {
            Some(Method::ReadResource) => {
                let uri = request.param("uri").and_then(scan::unquote);
                self.rules().max_output.is_some()
                    && uri.is_some_and(|uri| uri.starts_with(outputs::PREFIX))
            }
            Some(Method::ListResources | Method::ListResourceTemplates) => self.outputs.lent,
            Some(Method::Discover) => match &cx.memory.discovered {
                Some(Discovered::Modern { result, expires_ms }) => {
                    *expires_ms > cx.wall_ms() && names_version(result, request)
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// The client sent a notification.
    pub(crate) fn notification(
        &mut self,
        cx: &mut Cx<'_>,
        text: &str,
        method: &str,
        params: Option<&str>,
    ) {
        // Modern servers know no session.
        if self.cancel_of_client(cx, text, method, params) || self.serves_legacy() {
            return;
        }
        if method::telemetry_name_of(method) != method::OTHER {
            let line = format!("mcp:warning reason=request_without_id method={method}");
            return cx.log_at(LogLevel::Warn, line);
        }
        let line = Json::from_scanned(text);
        let serving = self.serving(cx);
        if self.memory.record_notification(method, text) {
            for (generation, server) in &mut self.incarnations {
                if Some(*generation) != serving
                    && !cx.kernel.is_fenced(*generation)
                    && let Some(line) = server.after_script(line.clone())
                {
                    cx.say(*generation, line);
                }
            }
        }
        match serving {
            // A server that does not read must not hold back what others share with it.
            Some(generation) if self.shelf.is_some() && method != Method::Initialized.name() => {
                cx.out.push_back(CoreAction::Say {
                    generation,
                    line,
                    if_room: true,
                });
            }
            Some(serving) => cx.say(serving, line),
            // The script of a successor ends the handshake already.
            None if (self.memory.has_session() || self.shelf.is_some())
                && method == Method::Initialized.name() => {}
            None if text.len() <= DEFERRED_BYTES => {
                if self.handover.deferred.len() >= DEFERRED {
                    self.handover.deferred.pop_front();
                }
                self.handover
                    .deferred
                    .push_back((self.requests.last(), line));
            }
            None => {}
        }
    }

    /// Handles a cancel. False if the notification is not one, or its request is not in flight here.
    fn cancel_of_client(
        &mut self,
        cx: &mut Cx<'_>,
        text: &str,
        method: &str,
        params: Option<&str>,
    ) -> bool {
        let (key, kind) = match (Method::parse(method), method) {
            (Some(Method::Cancelled), _) => ("requestId", CancelKind::Silent),
            (_, method::CANCEL_REQUEST) => ("id", CancelKind::Answered),
            _ => return false,
        };
        let target = params.and_then(|params| scan::member(params, key));
        let target = target.and_then(|target| RequestId::parse(target).ok());
        let (Some(target), Some(session)) = (target, self.session()) else {
            return false;
        };
        let Some(call) = cx.kernel.find(session, &target) else {
            // A call that runs on as a task is not cancelled by a client that gave up at the same time.
            return kind == CancelKind::Answered || self.runs_on(&target);
        };
        if let Some(request) = self.requests.get_mut(call)
            && kind == CancelKind::Silent
        {
            request.cancel = Some(Json::from_scanned(text));
        }
        let cancel = Cancel { target, kind };
        cx.kernel.handle_cancel(cx.now, session, &cancel);
        true
    }

    /// The client answered a question of a server.
    pub(crate) fn client_answer(&mut self, cx: &mut Cx<'_>, text: &str, id: &RequestId) {
        let Some((by, asked)) = self.questions.close(id) else {
            return;
        };
        if self.takes_answer(cx, id, text) {
            return self.pause_deadlines(cx);
        }
        if self.incarnations.contains_key(&by) {
            let line = if asked.as_raw() == id.as_raw() {
                Json::from_scanned(text)
            } else {
                Json::from_scanned(&edit::with_member(text, "id", asked.as_raw()))
            };
            cx.say(by, line);
        }
        self.pause_deadlines(cx);
    }

    /// Deadlines stand still while a person or a model is asked something.
    pub(super) fn pause_deadlines(&self, cx: &mut Cx<'_>) {
        let asking = self.questions.pauses();
        cx.kernel.handle_asking(cx.now, self.slot, asking);
    }

    /// The client will send nothing more.
    pub(crate) fn input_ended(&mut self, cx: &mut Cx<'_>) {
        self.cancel_endless(cx);
        if !self.outlives_client(cx) {
            // No answer can come any more.
            self.questions.clear();
            self.pause_deadlines(cx);
        }
    }

    /// Cancels requests that never end by themselves.
    pub(crate) fn cancel_endless(&mut self, cx: &mut Cx<'_>) {
        let Some(session) = self.session() else {
            return;
        };
        let endless: Vec<RequestId> = self
            .requests
            .values()
            .filter(|request| request.method == Method::Listen.name())
            .map(|request| request.id.clone())
            .collect();
        for target in endless {
            let kind = CancelKind::Silent;
            let cancel = Cancel { target, kind };
            cx.kernel.handle_cancel(cx.now, session, &cancel);
        }
    }

    /// Tells the operator once that a tool's schemas cannot be used.
    pub(crate) fn report_unchecked(&mut self, cx: &mut Cx<'_>, tool: &str, why: &str) {
        if self.tools.mark_unchecked(tool) {
            let (pack, tool) = (&self.name, mainstay_contract::render::visible(tool));
            let line = format!("mcp:warning reason=schema_unchecked pack={pack} tool={tool} {why}");
            cx.log_at(LogLevel::Warn, line);
        }
    }

    /// The key by which checks of this link share the checkers with those of others.
    pub(super) const fn fair(&self) -> u64 {
        self.slot.0 as u64
    }
}

/// The line that asks a peer to cancel a request, in the host's words.
pub(super) fn cancel_line(id: &RequestId, reason: &str) -> String {
    let params = ObjectWriter::with_capacity(64)
        .raw("requestId", id.as_raw())
        .string("reason", reason)
        .finish();
    encode::notification(Method::Cancelled, Some(&params))
}

/// True if a remembered discovery names the version of a request; only the server itself can judge another.
fn names_version(result: &Json, request: &ClientRequest) -> bool {
    let versions = scan::member(result.as_str(), "supportedVersions").unwrap_or("[]");
    let version = request.meta(meta::PROTOCOL_VERSION);
    version.is_some_and(|version| edit::items(versions).contains(&version))
}

/// The span of the client.
fn trace_of(meta: &str) -> Option<TraceContext> {
    let raw = scan::member(meta, meta::TRACEPARENT).and_then(scan::unquote)?;
    TraceContext::parse(&raw)
}

/// The problem of a request whose method the server does not know.
pub(super) fn unknown_method(method: &str) -> Problem {
    Problem::new(
        ErrorKind::UnknownMethod,
        format!("the method {method} is not offered"),
    )
}
