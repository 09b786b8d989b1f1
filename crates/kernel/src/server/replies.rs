//! How requests end: the server's answers with the few changes that may be made to them, and the host's
//! own answers in the server's place.

use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, Generation, RequestId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::outcome::{Forwarded, Outcome, Problem, Success};
use mainstay_contract::render;
use mainstay_contract::rpc::Answer;
use mainstay_contract::scan;
use mainstay_schema::check::Subject;
use serde_json::json;

use super::client::unknown_method;
use super::lists::PAGE_BYTES;
use super::outputs::Bounded;
use super::requests::ClientRequest;
use super::tools::{Learned, Standing};
use super::{Cx, Discovered, Link, edit, probe};
use crate::action::End;
use crate::core::checks::Purpose;
use crate::core::mismatches::Culprit;
use crate::locked::Withdrawn;

impl Link {
    /// The meaning of a server's answer to a call, for the kernel.
    pub(super) fn answer_of(
        &mut self,
        cx: &mut Cx<'_>,
        call: CallId,
        text: &str,
        result: Option<&str>,
        generation: Generation,
    ) -> Answer {
        if cx.kernel.is_probing(call) {
            let request = self.requests.get(call);
            let tool = request.and_then(|request| request.tool.as_ref());
            let rules = tool.and_then(|tool| self.rules().tools.get(tool));
            return match rules.and_then(|rules| rules.probe.as_ref()) {
                Some(rule) => Answer::Probed(probe::judge(rule, result)),
                None => Answer::Failed(Problem::of(ErrorKind::OutcomeUnknown)),
            };
        }
        let says_no = |result: &str| scan::member(result, "isError") == Some("true");
        let is_error = result.is_none_or(says_no);
        self.remember_discovery(cx, call, text, result);
        let mut line = Json::from_scanned(text);
        // The kernel drops the answer of an abandoned call; nothing of it counts.
        let live = cx.kernel.sent(generation, call).is_some();
        if let (Some(result), true) = (result, live) {
            match self.pass_result(cx, call, text, result, generation) {
                Ok(Some(changed)) => line = changed,
                Ok(None) => {}
                Err(problem) => return Answer::Failed(problem),
            }
        }
        Answer::Forwarded(Forwarded { line, is_error })
    }

    /// Remembers how the server answered `server/discover`, so that the next run need not ask.
    fn remember_discovery(
        &mut self,
        cx: &mut Cx<'_>,
        call: CallId,
        text: &str,
        result: Option<&str>,
    ) {
        let Some(request) = self.requests.get(call) else {
            return;
        };
        let learned = match (Method::parse(&request.method), result) {
            (Some(Method::Discover), Some(result)) => {
                let ttl_ms = public_ttl_ms(result);
                ttl_ms.map(|ttl_ms| Discovered::Modern {
                    result: Json::from_scanned(result),
                    expires_ms: cx.wall_ms().saturating_add(ttl_ms),
                })
            }
            // A malformed request says nothing about the server.
            (Some(Method::Discover), None)
                if !is_modern_error(text) && request.meta(meta::PROTOCOL_VERSION).is_some() =>
            {
                Some(Discovered::Legacy)
            }
            // The server refuses the older handshake: it is not what it was.
            (Some(Method::Initialize), None) => None,
            _ => return,
        };
        if cx.memory.discovered != learned {
            cx.memory.discovered = learned;
            self.remember(cx);
        }
    }

    /// Records a result on its way, and changes it where it must be changed.
    fn pass_result(
        &mut self,
        cx: &mut Cx<'_>,
        call: CallId,
        text: &str,
        result: &str,
        generation: Generation,
    ) -> Result<Option<Json>, Problem> {
        let Some(request) = self.requests.get(call) else {
            return Ok(None);
        };
        let method = Method::parse(&request.method);
        // Nothing is remembered of a tool call, and its parameters can be large.
        if method != Some(Method::CallTool) {
            let (name, params) = (request.method.clone(), request.params().map(str::to_owned));
            if self.memory.record_answer(&name, params.as_deref(), result) {
                self.update_standbys(cx, Some(generation), &name, params.as_deref());
                self.record_subscription(cx, call, &name);
            }
        }
        if method.and_then(Method::list) == Some(ListKind::Tools) && result.len() > PAGE_BYTES {
            let said = format!(
                "the page of tools has {} bytes; {PAGE_BYTES} are allowed",
                result.len()
            );
            let problem = Problem::new(ErrorKind::AnswerTooLarge, said);
            return Err(problem.with_hint("the server must list its tools in smaller pages"));
        }
        let mut changed: Option<String> = None;
        match method {
            Some(Method::CallTool) => {
                self.shadow_check(cx, call, result);
                self.note_resource_links(result);
                if let Some(limit) = self.rules().max_output {
                    match self.outputs.bound(cx.now, result, limit) {
                        Bounded::AsItIs => {}
                        Bounded::Cut(cut) => changed = Some(cut),
                        Bounded::TooLarge(problem) => return Err(*problem),
                    }
                }
            }
            Some(Method::Initialize | Method::Discover) => {
                self.record_handshake(cx, result);
                self.lists.offer(result);
                changed = self.shown_handshake(cx, result);
                let announced = with_list_changes(changed.as_deref().unwrap_or(result));
                changed = announced.or(changed);
            }
            _ => {}
        }
        if let Some(kind) = method.and_then(Method::list) {
            let visible = self.list_passed(cx, call, kind, result, Some(generation));
            changed = visible.or(changed);
        }
        if method != Some(Method::Initialize)
            && result.starts_with('{')
            && let Some(generation) = self.handover.restarted.take()
        {
            // A modern client asks for log messages with each request.
            let request = self.requests.get(call);
            let wants_log = request.is_some_and(|request| request.meta(meta::LOG_LEVEL).is_some());
            if wants_log && !self.memory.has_session() {
                self.log_restart(cx, generation);
            }
            let time = mainstay_contract::wall::iso(cx.wall_ms());
            let note = json!({"generation": generation, "time": time}).to_string();
            let result = changed.as_deref().unwrap_or(result);
            changed = Some(edit::with_inner(result, "_meta", meta::RESTART, &note));
        }
        let bridged = self.requests.get(call).and_then(|request| {
            let result = changed.as_deref().unwrap_or(result);
            self.bridged_result(request, result)
        });
        let changed = bridged.or(changed);
        Ok(changed.map(|result| edit::with_result(text, &result)))
    }

    /// Records a page of a list that the client fetched from a server, or that the host remembers. Returns the
    /// page as the client may see it, if that differs.
    fn list_passed(
        &mut self,
        cx: &mut Cx<'_>,
        call: CallId,
        kind: ListKind,
        result: &str,
        generation: Option<Generation>,
    ) -> Option<String> {
        let request = self.requests.get(call);
        let dialect = request.map(|request| request.dialect);
        let cursor = request
            .and_then(|request| request.param("cursor"))
            .and_then(scan::unquote)
            .map(std::borrow::Cow::into_owned);
        let serves = generation.is_some() && self.serving(cx) == generation;
        let visible;
        if kind == ListKind::Tools {
            if serves {
                self.learn(cx, result);
            }
            let page = self.with_task_support(dialect, result);
            let page = page.as_deref();
            let seen = self.visible_tools(cx, page.unwrap_or(result));
            visible = seen.or_else(|| page.map(str::to_owned));
            if cursor.is_none() {
                self.lists.begun = self.tools.epoch();
            }
        } else {
            let withdrawn;
            (visible, withdrawn) = self.reviewed.page(kind, cursor.is_none(), result);
            for (name, why) in withdrawn {
                let line = why.line(&self.name, kind, &render::visible(&name));
                cx.withdraw(&self.server, line);
            }
        }
        let seen = self.lists.last_seen.entry(kind).or_default();
        let follows = seen.page(kind, cursor.as_deref(), result);
        let is_whole = seen.next().is_none();
        if follows && serves {
            self.record_page(cx, kind, cursor.is_none(), result);
            if kind == ListKind::Tools && is_whole {
                self.tools_complete(cx, self.lists.begun);
            }
        }
        visible
    }

    /// Compares a result with the tool's schema. A difference is only reported, and the answer does not wait.
    fn shadow_check(&mut self, cx: &mut Cx<'_>, call: CallId, result: &str) {
        let request = self.requests.get(call);
        let name = request.and_then(|request| request.tool.as_deref());
        let Some((name, tool)) = name.and_then(|name| Some((name, self.tools.get(name)?))) else {
            return;
        };
        if tool.check.output.is_none() {
            return;
        }
        let complete = matches!(
            scan::member(result, "resultType"),
            None | Some("\"complete\"")
        );
        let failed = scan::member(result, "isError") == Some("true");
        if failed || !complete {
            return;
        }
        let subject = match scan::member(result, "structuredContent") {
            Some(structured) => Subject::Reply(Json::from_scanned(structured)),
            None => Subject::NoReply,
        };
        let purpose = Purpose::ServerReply {
            slot: self.slot,
            tool: name.to_owned(),
            culprit: Culprit::of(cx.kernel, call),
        };
        let definition = tool.check.clone();
        let timeout_ms = cx.kernel.limits().call_timeout_ms;
        self.begin_check(cx, purpose, definition, subject, timeout_ms);
    }

    /// The handshake with `resources`: stored outputs can be read, whatever the server offers.
    fn with_resources(&self, result: &str) -> Option<String> {
        self.rules().max_output?;
        let capabilities = scan::member(result, "capabilities")?;
        if scan::member(capabilities, "resources").is_some() {
            return None;
        }
        Some(edit::with_inner(result, "capabilities", "resources", "{}"))
    }

    /// The page without withdrawn tools and with the host's own, if that makes a difference.
    fn visible_tools(&self, cx: &Cx<'_>, result: &str) -> Option<String> {
        let tools = scan::member(result, "tools")?;
        let all = edit::items(tools);
        let mut open: Vec<String> = all
            .iter()
            .filter(|definition| self.tools.shows(definition))
            .map(|definition| (*definition).to_owned())
            .collect();
        let next = scan::member(result, "nextCursor").and_then(scan::unquote);
        let is_last = next.is_none();
        if self.rules().system_tools && is_last {
            open.extend(self.own_definitions(cx));
        } else if open.len() == all.len() {
            return None;
        }
        let tools = edit::array(open.iter().map(String::as_str));
        Some(edit::with_member(result, "tools", &tools))
    }

    /// Reports a definition that an operator should know about.
    pub(super) fn report_definition(&self, cx: &mut Cx<'_>, learned: &Learned) {
        let (pack, tool) = (&self.name, render::visible(&learned.name));
        if let Standing::Withdrawn(withdrawn) = learned.standing {
            cx.withdraw(&self.server, withdrawn.line(pack, ListKind::Tools, &tool));
        }
        if learned.ambiguous {
            let line = Withdrawn::Ambiguous.line(pack, ListKind::Tools, &tool);
            cx.withdraw(&self.server, line);
        }
        if let Some(first) = learned.hidden.first() {
            let more = match learned.hidden.len() - 1 {
                0 => String::new(),
                more => format!(" places={}", more + 1),
            };
            cx.log(format!(
                "mcp:warning reason=hidden_characters pack={pack} tool={tool}{more} at {first}"
            ));
        }
    }

    /// Answers a request from the host's own knowledge.
    pub(crate) fn serve_own(&mut self, cx: &mut Cx<'_>, call: CallId) {
        if let Some(outcome) = self.search_answer(cx, call) {
            return cx.kernel.handle_served(cx.now, call, outcome);
        }
        let Some(request) = self.requests.get(call) else {
            return;
        };
        if let Some(result) = self.recalled_answer(cx, request) {
            let request = request.clone();
            return self.serve_recalled(cx, call, &request, &result);
        }
        let outcome = match Method::parse(&request.method) {
            _ if self.is_listing(request) => self.listing(cx, request),
            Some(Method::ReadResource) => {
                let uri = request.param("uri").and_then(scan::unquote);
                let uri = uri.unwrap_or_default();
                let read = self.outputs.read(cx.now, &uri);
                read.unwrap_or_else(|| Err(Problem::of(ErrorKind::ResourceNotFound)))
                    .map(Success::Members)
                    .map_err(|problem| problem.with_uri(&uri))
            }
            Some(Method::Discover) => self.remembered_discovery(cx, &request.clone()),
            Some(Method::UnsubscribeResource) => Ok(Success::Members(Json::empty_object())),
            Some(Method::ListResources) => {
                Ok(Success::Members(Json::from(json!({"resources": []}))))
            }
            Some(Method::ListResourceTemplates) => {
                let empty = json!({"resourceTemplates": []});
                Ok(Success::Members(Json::from(empty)))
            }
            _ => Err(Problem::of(ErrorKind::Internal)),
        };
        cx.kernel.handle_served(cx.now, call, outcome);
    }

    /// Answers a request from the catalog of an earlier run, and starts the server.
    fn serve_recalled(
        &mut self,
        cx: &mut Cx<'_>,
        call: CallId,
        request: &ClientRequest,
        result: &str,
    ) {
        let method = Method::parse(&request.method);
        let shown = match method.and_then(Method::list) {
            Some(kind) => self.list_passed(cx, call, kind, result, None),
            None => self.shown_handshake(cx, result),
        };
        let mut shown = shown.unwrap_or_else(|| result.to_owned());
        if method == Some(Method::Initialize) && !self.opens_bridged(request, result) {
            let params = request.params();
            self.memory.record_answer(&request.method, params, result);
        }
        if method.and_then(Method::list).is_none() {
            self.lists.offer(result);
            shown = with_list_changes(&shown).unwrap_or(shown);
        }
        let shown = self.bridged_result(request, &shown).unwrap_or(shown);
        // Its process gets the session that was recorded.
        cx.kernel.warm(cx.now, self.slot);
        let forwarded = Forwarded {
            line: response(&request.id, &shown),
            is_error: false,
        };
        let outcome = Ok(Success::Forwarded(forwarded));
        cx.kernel.handle_served(cx.now, call, outcome);
    }

    /// The result of a handshake as the client may see it, if that differs.
    pub(super) fn shown_handshake(&mut self, cx: &mut Cx<'_>, result: &str) -> Option<String> {
        let reviewed = self.reviewed_handshake(cx, result);
        let lent = self.with_resources(reviewed.as_deref().unwrap_or(result));
        self.outputs.lent = lent.is_some();
        let changed = lent.or(reviewed);
        let offered = self.with_tasks(changed.as_deref().unwrap_or(result));
        offered.or(changed)
    }

    /// The result of a handshake without instructions that the lock does not have.
    fn reviewed_handshake(&mut self, cx: &mut Cx<'_>, result: &str) -> Option<String> {
        let (result, is_new) = self.reviewed.handshake(result)?;
        if is_new {
            let name = &self.name;
            let line = format!("mcp:warning reason=instructions_changed pack={name} withdrawn");
            cx.withdraw(&self.server, line);
        }
        Some(result)
    }

    fn remembered_discovery(&mut self, cx: &mut Cx<'_>, request: &ClientRequest) -> Outcome {
        let Some(Discovered::Modern { result, expires_ms }) = &cx.memory.discovered else {
            return Err(unknown_method(&request.method));
        };
        let left_ms = expires_ms.saturating_sub(cx.wall_ms());
        let result = edit::with_member(result.as_str(), "ttlMs", &left_ms.to_string());
        let result = self.shown_handshake(cx, &result).unwrap_or(result);
        self.lists.offer(&result);
        let result = with_list_changes(&result).unwrap_or(result);
        if !self.rules().lazy {
            cx.kernel.warm(cx.now, self.slot);
        }
        Ok(Success::Forwarded(Forwarded {
            line: response(&request.id, &result),
            is_error: false,
        }))
    }

    /// Removes a request that has ended, and gives its end the form that the client expects.
    pub(crate) fn ended(&mut self, end: &mut End) {
        let request = self.requests.remove(end.call);
        self.progress.finish(end.call);
        self.bridge_ended(end.call);
        if let (Err(_), Some(generation)) = (&end.outcome, end.generation)
            && let Some(server) = self.incarnations.get_mut(&generation)
        {
            server.abandon(end.call);
        }
        let is_discovery = |request: &ClientRequest| request.method == Method::Discover.name();
        let Some(request) = request.filter(|request| is_discovery(request)) else {
            return;
        };
        // An automatic client then falls back to the older handshake.
        let is_unclear = match &end.outcome {
            Err(_) => true,
            Ok(Success::Forwarded(response)) => {
                response.is_error && !is_clear_refusal(response.line.as_str())
            }
            Ok(_) => false,
        };
        if is_unclear {
            end.outcome = Err(unknown_method(&request.method));
        }
    }
}

/// The result of a handshake in which the host declares `listChanged` for every list that the server has, if that
/// differs: after a restart, or a start from memory, the host sends the notification itself.
fn with_list_changes(result: &str) -> Option<String> {
    let declared = scan::member(result, "capabilities")?;
    let mut changed: Option<String> = None;
    for kind in ListKind::ALL {
        let capability = kind.capability();
        let capabilities = changed.as_deref().unwrap_or(declared);
        let list = scan::member(capabilities, capability);
        let is_silent =
            |list: &str| list.starts_with('{') && scan::member(list, "listChanged") != Some("true");
        if list.is_some_and(is_silent) {
            changed = Some(edit::with_inner(
                capabilities,
                capability,
                "listChanged",
                "true",
            ));
        }
    }
    Some(edit::with_member(result, "capabilities", &changed?))
}

/// How long a result may be kept for clients of every credential, if it may.
fn public_ttl_ms(result: &str) -> Option<u64> {
    let is_public = scan::member(result, "cacheScope") == Some("\"public\"");
    let ttl_ms = scan::member(result, "ttlMs")?.parse().ok()?;
    (is_public && ttl_ms > 0).then_some(ttl_ms)
}

/// True for an error of the modern revision.
fn is_modern_error(line: &str) -> bool {
    error_code(line).is_some_and(|code| (-32099..=-32020).contains(&code))
}

/// True for a refusal that every client understands: the plain one about an unknown method, or a modern one.
fn is_clear_refusal(line: &str) -> bool {
    error_code(line) == Some(-32601) || is_modern_error(line)
}

pub(super) fn error_code(line: &str) -> Option<i64> {
    let error = scan::member(line, "error")?;
    scan::member(error, "code")?.parse().ok()
}

/// A response with this result.
pub(crate) fn response(id: &RequestId, result: &str) -> Json {
    let line = ObjectWriter::with_capacity(result.len() + 64)
        .string("jsonrpc", "2.0")
        .raw("id", id.as_raw())
        .raw("result", result)
        .finish();
    Json::from_scanned(&line)
}

#[cfg(test)]
mod tests {
    use mainstay_contract::dialect::{Dialect, EchoId, Form, Shape, encode};

    use super::*;

    #[test]
    fn a_refused_discovery_is_an_unknown_method() {
        let form = Form {
            dialect: Dialect::Modern,
            shape: Shape::Plain,
        };
        let line = encode::answer(&EchoId::Null, form, &Err(unknown_method("server/discover")));
        assert!(line.contains("-32601"), "{line}");
    }

    #[test]
    fn changes_are_declared_for_every_list_that_the_server_has() {
        let declared =
            r#"{"capabilities":{"tools":{},"prompts":{"listChanged":false},"logging":{}}}"#;
        let changed = r#"{"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"logging":{}}}"#;
        assert_eq!(with_list_changes(declared).as_deref(), Some(changed));
        assert_eq!(with_list_changes(changed), None);
        assert_eq!(
            with_list_changes(r#"{"capabilities":{"tools":null}}"#),
            None
        );
    }

    #[test]
    fn only_a_public_result_is_kept_and_only_as_long_as_it_lives() {
        let public = |ttl: &str| format!(r#"{{"cacheScope":"public","ttlMs":{ttl}}}"#);
        assert_eq!(public_ttl_ms(&public("5000")), Some(5000));
        for uncertain in [
            public("0"),
            public("-1"),
            public("\"5000\""),
            r#"{"cacheScope":"private","ttlMs":5000}"#.to_owned(),
            r#"{"ttlMs":5000}"#.to_owned(),
            r#"{"cacheScope":"public"}"#.to_owned(),
        ] {
            assert_eq!(public_ttl_ms(&uncertain), None, "{uncertain}");
        }
    }
}
