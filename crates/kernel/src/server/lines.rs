//! Life and lines of the servers: spawn, answers, questions, notifications, loss.

use mainstay_contract::dialect::{EchoId, Refused, Relayed, relay};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation, RequestId};
use mainstay_contract::json::Json;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::outcome::Problem;
use mainstay_contract::render;
use mainstay_contract::rpc::{self, Answer};
use mainstay_contract::scan;

use super::client::cancel_line;
use super::edit;
use super::house::{refuse_question, speaks_modern};
use super::incarnation::{Awaited, Incarnation, Purpose, Start};
use super::param_headers::param_headers;
use super::shared::with_own_token;
use super::{Cx, Link};
use crate::core::action::{CoreAction, LogLevel};
use crate::core::readiness::Proof;

impl Link {
    /// The kernel starts a server.
    pub(crate) fn spawned(&mut self, cx: &Cx<'_>, generation: Generation) {
        let memory = std::mem::take(&mut self.memory);
        let mut script = memory.restore_script(|| self.own_id());
        self.memory = memory;
        if script.is_empty() {
            script = self.house_script(cx);
        }
        if script.is_empty() {
            script = self.bridge_script(cx);
        }
        if script.is_empty() {
            script = self.recalled_script();
        }
        let mut server = Incarnation::default();
        server.script.extend(script);
        self.incarnations.insert(generation, server);
    }

    /// A server's process runs: it gets its script.
    pub(crate) fn up(&mut self, cx: &mut Cx<'_>, generation: Generation) {
        self.run_script(cx, generation);
    }

    /// A server and its whole tree are gone.
    pub(crate) fn reaped(&mut self, generation: Generation) {
        self.incarnations.remove(&generation);
    }

    /// A server was lost. `unsent` are calls of which not one byte was handed over.
    pub(crate) fn lost(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        fault: &Fault,
        unsent: &[CallId],
    ) {
        for id in self.questions.drop_server(generation) {
            self.tell_client(cx, cancel_line(&id, "the server that asked was lost"));
        }
        let server = self.incarnations.get(&generation);
        let was_asked = server.is_some_and(|server| server.awaits(Purpose::Discover));
        self.bridge_lost(generation, was_asked);
        self.house_lost(generation);
        let mut unsent = unsent.to_vec();
        if let Some(server) = self.incarnations.get_mut(&generation) {
            unsent.extend(server.lose());
        }
        if self.handover.serving == Some(generation) {
            self.tools.doubt();
            self.progress.clear();
        }
        self.pause_deadlines(cx);
        cx.kernel.handle_lost(cx.now, generation, fault, &unsent);
        let is_closed = cx.kernel.is_closed(cx.now, self.slot);
        self.count_loss(is_closed);
        if is_closed {
            self.release(cx);
        }
    }

    /// The answer of a server to one call will not come; the server goes on. It rejected the call before it
    /// ran if `sent` is false.
    pub(crate) fn call_lost(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
        sent: bool,
        fault: &Fault,
    ) {
        if let Some(server) = self.incarnations.get_mut(&generation) {
            server.forget(call);
        }
        cx.kernel
            .handle_call_lost(cx.now, generation, call, sent, fault);
    }

    /// A server ended the session: a successor opens another one, and calls under way may still be answered.
    pub(crate) fn session_ended(&mut self, cx: &mut Cx<'_>, generation: Generation, fault: &Fault) {
        cx.log_at(
            LogLevel::Info,
            format!("mcp:session_ended pack={} {fault}", self.name),
        );
        cx.kernel.handle_unfit(cx.now, generation, fault);
    }

    /// Sends a call to a server, unless its tools changed since the call was admitted.
    pub(crate) fn send(&mut self, cx: &mut Cx<'_>, generation: Generation, call: &rpc::Call) {
        let rpc::Op::Forward(forward) = &call.op else {
            return;
        };
        if self.serving(cx) == Some(generation) {
            self.adopt_tools(cx, generation);
        }
        if self.is_reconsidered(cx, generation, call.call) {
            return;
        }
        self.forward(cx, generation, call.call, &forward.line);
    }

    /// Hands the line of a call over.
    pub(super) fn forward(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
        line: &Json,
    ) {
        self.send_deferred(cx, generation, Some(call));
        if !cx.kernel.is_probing(call) && self.answers_bridged(cx, generation, call) {
            return;
        }
        let line = self.house_line(line);
        let line = &self.bridged_line(cx, call, &line);
        let id = match self.requests.get(call) {
            Some(request) if request.line.is_clone_of(line) => Some(request.id.clone()),
            _ => scan::member(line.as_str(), "id").and_then(|id| RequestId::parse(id).ok()),
        };
        let Some(id) = id else { return };
        let token = self
            .requests
            .get(call)
            .and_then(|request| request.token.clone());
        let is_shared = self.shared.is_some();
        let known = self.incarnations.get_mut(&generation);
        // The answer to an abandoned call under the same id may still come, and its progress: neither may be
        // taken for that of this call.
        let needs_own = is_shared
            || known.is_some_and(|server| {
                let is_taken = |token: &String| server.is_token_taken(token);
                token.as_ref().is_some_and(is_taken) || server.is_taken(&id)
            });
        let (id, line, own_token) = if needs_own {
            let own = self.own_id();
            let line = edit::with_member(line.as_str(), "id", own.as_raw());
            let line = with_own_token(&line, &own);
            let token = own.as_raw().to_owned();
            (own, Json::from_scanned(&line), Some(token))
        } else {
            (id, line.clone(), None)
        };
        if let (Some(server), Some(token), None) =
            (self.incarnations.get_mut(&generation), token, &own_token)
        {
            server.has_token(id.clone(), token);
        }
        if let Some(request) = self.requests.get_mut(call) {
            request.wire_token = own_token;
        }
        let request = self.requests.get(call);
        let method = request.map_or("", |request| request.method.as_str());
        // A probe is a call of another tool.
        let headers = match cx.kernel.is_probing(call) {
            true => Vec::new(),
            false => self.headers_of(call),
        };
        if let Some(server) = self.incarnations.get_mut(&generation) {
            server.start = server.start.asked(cx.now, method);
            let _ = server.awaited.open(id, Awaited::Call(call));
            cx.out.push_back(CoreAction::Forward {
                generation,
                call,
                line,
                headers,
            });
        }
    }

    /// The arguments of a tool call that an HTTP request repeats as headers.
    pub(super) fn headers_of(&self, call: CallId) -> Vec<(String, String)> {
        let request = self.requests.get(call);
        let tool = request.and_then(|request| self.tools.get(request.tool.as_ref()?));
        let (Some(request), Some(tool)) = (request, tool) else {
            return Vec::new();
        };
        param_headers(tool.definition.as_str(), || {
            request.param("arguments").unwrap_or("{}")
        })
    }

    /// Asks a server to stop a call, in the client's own words if there are any.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>, generation: Generation, call: CallId) {
        if self.ends_subscription(cx, call) {
            return;
        }
        self.cancel_round(cx, call);
        let (Some(server), Some(request)) = (
            self.incarnations.get(&generation),
            self.requests.get_mut(call),
        ) else {
            return;
        };
        let sent = server.wire_id(call);
        if self.shared.is_some() && sent.is_none() {
            return;
        }
        let wire = sent.unwrap_or(&request.id);
        let line = match request.cancel.take() {
            Some(line) if wire.as_raw() == request.id.as_raw() => line,
            // MCP forbids to cancel this one.
            None if request.method == Method::Initialize.name() => return,
            _ => Json::from_scanned(&cancel_line(wire, "given up by the host")),
        };
        cx.say(generation, line);
    }

    /// A server sent a line.
    pub(crate) fn server_line(&mut self, cx: &mut Cx<'_>, generation: Generation, line: &[u8]) {
        if cx.kernel.is_fenced(generation) {
            return;
        }
        let Some(server) = self.incarnations.get_mut(&generation) else {
            return;
        };
        let relayed = relay(line, cx.kernel.limits().json_depth);
        let text = std::str::from_utf8(line).unwrap_or_default();
        cx.kernel.handle_pong(cx.now, generation);
        match &relayed {
            Ok(Relayed::Answer { .. }) => server.start = Start::Over,
            Ok(_) => server.start = server.start.heard(),
            Err(_) => {}
        }
        match relayed {
            Ok(Relayed::Answer { id, result, .. }) => {
                cx.kernel.handle_proof(generation);
                if result.is_some() {
                    self.has_answered(cx, generation);
                }
                self.server_answer(cx, generation, text, &id, result);
            }
            Ok(Relayed::Request(request)) => {
                self.touch(cx.now);
                self.server_question(cx, generation, text, &request.id, &request.method);
            }
            // The server that serves said the same; a standby's copy is dropped. It may withdraw its questions.
            Ok(Relayed::Notice { method, .. })
                if method != Method::Cancelled.name()
                    && cx.kernel.is_spare(self.slot, generation) =>
            {
                if method == ListKind::Tools.changed().name() {
                    server.catalog = None;
                }
            }
            Ok(Relayed::Notice { method, params }) => {
                self.touch(cx.now);
                self.server_notification(cx, generation, text, &method, params);
            }
            Err(refused) => self.unreadable_line(cx, generation, line, &refused),
        }
    }

    /// A server answered a request with a result: its handshake is over.
    fn has_answered(&self, cx: &mut Cx<'_>, generation: Generation) {
        *cx.proof = Proof::Answers;
        let server = self.incarnations.get(&generation);
        if cx.kernel.handle_result(cx.now, generation) && server.is_some_and(|server| server.ready)
        {
            cx.out.push_back(CoreAction::WorkerReady { generation });
        }
    }

    /// A malformed line may still carry the id of a pending request, which then fails at once.
    fn unreadable_line(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        line: &[u8],
        refused: &Refused,
    ) {
        if is_request(line) {
            return self.junk(cx, line);
        }
        let id = match &refused.id {
            EchoId::Known(id) => Some(id.clone()),
            EchoId::Null | EchoId::Absent => scan::legible_id(line),
        };
        let server = self.incarnations.get_mut(&generation);
        let awaited = id.zip(server).and_then(|(id, server)| server.answered(&id));
        match awaited {
            Some(Awaited::Call(call)) => {
                let why = &refused.problem.message;
                let message = format!("the server's answer cannot be used: {why}");
                let problem = Problem::new(ErrorKind::WorkerProtocol, message);
                let answer = Answer::Failed(problem);
                cx.kernel.handle_answer(cx.now, generation, call, answer);
            }
            Some(other) => self.own_answer(cx, generation, other, None),
            None => self.junk(cx, line),
        }
    }

    /// Many servers print text to their output that is not a message: it is dropped and logged.
    fn junk(&mut self, cx: &mut Cx<'_>, line: &[u8]) {
        self.upkeep.junk += 1;
        let count = self.upkeep.junk;
        // The first ones, then ever fewer.
        if count <= 3 || count.is_power_of_two() {
            let shown = render::shorten(&String::from_utf8_lossy(line), 120);
            let name = &self.name;
            cx.log(format!(
                "mcp:warning reason=junk_on_stdout pack={name} lines={count} {shown}"
            ));
        }
    }

    /// A server sent a line over the limit; only its beginning was kept.
    pub(crate) fn server_oversize(&mut self, cx: &mut Cx<'_>, generation: Generation, head: &[u8]) {
        if is_request(head) {
            return self.junk(cx, head);
        }
        let id = scan::head_id(head)
            .id
            .and_then(|id| RequestId::parse(id).ok());
        let Some(server) = self.incarnations.get_mut(&generation) else {
            return;
        };
        let named = id.and_then(|id| server.answered(&id));
        // Many servers write the id last; with one call in flight it is clear which is meant.
        let only = server.only_call().filter(|_| named.is_none());
        match named.or(only.map(Awaited::Call)) {
            Some(Awaited::Call(call)) => {
                let answer = Answer::Failed(Problem::of(ErrorKind::AnswerTooLarge));
                cx.kernel.handle_answer(cx.now, generation, call, answer);
            }
            Some(other) => self.own_answer(cx, generation, other, None),
            None => self.junk(cx, head),
        }
    }

    pub(super) fn server_answer(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        text: &str,
        id: &RequestId,
        result: Option<&str>,
    ) {
        let Some(server) = self.incarnations.get_mut(&generation) else {
            return;
        };
        match server.answered(id) {
            Some(Awaited::Call(call)) => {
                self.touch(cx.now);
                let waits = match result {
                    Some(result) => self.asks_client(cx, generation, call, result),
                    None => {
                        self.tries_modern(cx, generation, call, text)
                            || self.listens_alone(cx, generation, call, text)
                    }
                };
                if waits {
                    return;
                }
                let asked = self.requests.get(call).map(|request| &request.id);
                let renamed = match asked {
                    Some(asked) if asked.as_raw() != id.as_raw() && !cx.kernel.is_probing(call) => {
                        Some(edit::with_member(text, "id", asked.as_raw()))
                    }
                    _ => None,
                };
                let text = renamed.as_deref().unwrap_or(text);
                if cx.kernel.sent(generation, call).is_some()
                    && let Some(last) = self.progress.finish(call)
                {
                    self.report_progress(cx, call, last);
                }
                let answer = self.answer_of(cx, call, text, result, generation);
                cx.kernel.handle_answer(cx.now, generation, call, answer);
            }
            Some(Awaited::Parked(state)) => self.parked_answer(&state, text),
            Some(other) => {
                if let (Awaited::List { kind, .. }, None) = (&other, result)
                    && *kind == ListKind::Tools
                {
                    self.tools.refuse(Json::from_scanned(text));
                }
                self.own_answer(cx, generation, other, result);
            }
            // The request was given up long ago.
            None => {}
        }
    }

    /// A request of the host was answered; `None` is an error.
    fn own_answer(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        awaited: Awaited,
        result: Option<&str>,
    ) {
        match awaited {
            Awaited::Script {
                purpose: Purpose::LateDiscover,
                ..
            } => {
                if self.late_era(cx, generation, result) {
                    self.run_script(cx, generation);
                }
            }
            Awaited::Script { purpose, .. } => {
                let tries_other = result.is_none()
                    && (self.house_tries_modern(cx, generation, purpose)
                        || self.tries_other_era(cx, generation, purpose));
                if tries_other {
                    return self.run_script(cx, generation);
                }
                let is_last = purpose == Purpose::Open || self.was_last_try(purpose);
                if is_last && result.is_none() && !self.speaks_modern_era() {
                    let detail = "the server refused to open the session again";
                    return self.unfit(cx, generation, detail);
                }
                let is_handshake = |result: &&str| {
                    let is_open = purpose == Purpose::Open || self.memory.own_meta().is_some();
                    is_open || (purpose == Purpose::Discover && speaks_modern(result))
                };
                if let Some(result) = result.filter(is_handshake) {
                    self.record_handshake(cx, result);
                    if purpose == Purpose::Open && self.memory.has_session() {
                        self.memory.record_capabilities(result);
                    }
                }
                self.house_answer(cx, generation, purpose, result);
                self.bridge_answer(cx, generation, purpose, result);
                let server = self.incarnations.get(&generation);
                if !server.is_some_and(|server| server.awaits(Purpose::Open)) {
                    self.run_script(cx, generation);
                }
            }
            Awaited::Catalog { catalog, .. } => self.read_page(cx, generation, catalog, result),
            Awaited::List {
                kind, seen, epoch, ..
            } => self.listed(cx, generation, kind, seen, epoch, result),
            Awaited::OtherEra { call, refusal } => {
                self.other_era(cx, generation, call, refusal, result);
            }
            Awaited::Ping | Awaited::Call(_) | Awaited::Parked(_) => {}
        }
    }

    fn server_question(
        &mut self,
        cx: &mut Cx<'_>,
        by: Generation,
        text: &str,
        id: &RequestId,
        method: &str,
    ) {
        if self.parks(cx, by, text, id, method) {
            return;
        }
        if self.answers_questions() {
            let answer = super::house::answer_question(id, method);
            return cx.say(by, Json::from_scanned(&answer));
        }
        let Self {
            questions, upkeep, ..
        } = self;
        match questions.open(by, id.clone(), method, || upkeep.own_id()) {
            Some(shown) if shown.as_raw() == id.as_raw() => self.tell_client(cx, text.to_owned()),
            Some(shown) => {
                self.tell_client(cx, edit::with_member(text, "id", shown.as_raw()));
            }
            None => {
                let refusal = refuse_question(id, -32603, "too many questions are open");
                // A server that does not read gets no more to read.
                return cx.out.push_back(CoreAction::Say {
                    generation: by,
                    line: Json::from_scanned(&refusal),
                    if_room: true,
                });
            }
        }
        self.pause_deadlines(cx);
    }

    /// A server reports progress of an open call.
    pub(super) fn own_progress(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
        text: &str,
        params: Option<&str>,
    ) {
        let request = self.requests.get(call);
        // A client that repeats a call may want no progress any more.
        let is_unwanted =
            request.is_some_and(|request| request.wire_token.is_some() && request.token.is_none());
        if is_unwanted || !cx.kernel.handle_own_progress(cx.now, generation, call) {
            return;
        }
        let rate = cx.kernel.limits().progress_per_second;
        let shown = self.with_client_token(call, text, params);
        if let Some(line) = self.progress.report(cx.now, call, &shown, rate) {
            self.report_progress(cx, call, line);
        }
    }

    fn server_notification(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        text: &str,
        method: &str,
        params: Option<&str>,
    ) {
        let param = |key: &str| params.and_then(|params| scan::member(params, key));
        match Method::parse(method) {
            // Progress reaches the client only for an open call of this server.
            Some(Method::Progress) => {
                let token = param("progressToken").unwrap_or_default();
                let call = match self.is_shared() {
                    true => self.call_of_token(generation, token),
                    false => self.requests.by_token(token),
                };
                if let (true, Some(call)) = (self.is_typed(cx, call), call) {
                    let progress = super::house::progress_of(params.unwrap_or_default());
                    return cx
                        .kernel
                        .handle_progress(cx.now, generation, call, progress);
                }
                return match call {
                    Some(call) => self.own_progress(cx, generation, call, text, params),
                    None => self.park_progress(generation, token, text),
                };
            }
            Some(Method::Cancelled) => {
                let id = param("requestId").and_then(|id| RequestId::parse(id).ok());
                // Another server may have an open question with this id.
                let Some(id) = id else { return };
                let Some(shown) = self.questions.cancel(generation, &id) else {
                    return;
                };
                self.pause_deadlines(cx);
                if shown.as_raw() != id.as_raw() {
                    let changed =
                        params.map(|params| edit::with_member(params, "requestId", shown.as_raw()));
                    let line = edit::with_member(text, "params", &changed.unwrap_or_default());
                    return self.tell_client(cx, line);
                }
            }
            Some(Method::Acknowledged) if self.acknowledged(cx, text, params.unwrap_or("{}")) => {
                return;
            }
            Some(Method::ToolsChanged) => {
                self.tools.forget();
                self.lists.unlistable = None;
                self.lists.comparing.remove(&ListKind::Tools);
            }
            _ => {}
        }
        if self.shared_notification(cx, generation, text, method, params)
            || self.takes_notification(method)
            || self.takes_for_modern(cx, method, params)
            || self.takes_for_legacy(cx, method, params)
            || !self.admits_notification(cx, method, text)
        {
            return;
        }
        self.tell_client(cx, text.to_owned());
    }
}

/// True if a line that cannot be read has a method. A question or a notification answers nothing, whatever
/// its id is.
fn is_request(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    // A byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    scan::head_id(text.as_bytes()).method.is_some()
}
