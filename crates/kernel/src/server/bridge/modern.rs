//! A modern client on a legacy server.
//!
//! The host opens the legacy session with the capabilities of the client's first request. A question of the server
//! ends the client's call with `input_required`; the server's call stays open (*parked*) until the client
//! repeats the call with the `requestState` that the host made up, and then belongs to the repeated call. Legacy
//! questions do not name their calls, so the server may work on only one call at that time.

use std::collections::VecDeque;

use mainstay_contract::dialect::{LEGACY_VERSIONS, encode};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, Generation, RequestId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::outcome::Problem;
use mainstay_contract::rpc::Answer;
use mainstay_contract::scan;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::house::{self, refuse_question};
use super::super::incarnation::{Awaited, Incarnation, Purpose};
use super::super::listening::{acknowledgement, is_listen, subscription};
use super::super::memory::{Step, request};
use super::super::replies::response;
use super::super::requests::ClientRequest;
use super::super::{Cx, Discovered, Link, edit};
use super::{Way, common_capabilities};
use crate::core::action::CoreAction;

/// Calls that may be parked; the oldest one is given up for another.
const PARKED: usize = 64;
/// Bytes of an answer to a parked call that is kept until the client repeats the call.
const ANSWER_BYTES: usize = 1024 * 1024;
/// Progress of a parked call that is kept, and its bytes; older progress is dropped.
const PROGRESS: usize = 64;
const PROGRESS_BYTES: usize = 64 * 1024;
/// Requests that may end with `input_required`.
const MAY_ASK: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];
/// The name of the only question in `inputRequests`.
const QUESTION: &str = "question";
/// Members of a modern `_meta` that mean nothing to a legacy server.
const MODERN_META: [&str; 4] = [
    meta::PROTOCOL_VERSION,
    meta::CLIENT_CAPABILITIES,
    meta::CLIENT_INFO,
    meta::LOG_LEVEL,
];

/// A call whose server asked something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Parked {
    generation: Generation,
    /// The id under which the server got the call.
    wire: RequestId,
    /// The id of the server's question.
    question: RequestId,
    /// The method and the tool of the call; only the same call may take it up.
    method: String,
    tool: Option<String>,
    /// The server's answer, if it did not wait.
    answer: Option<Json>,
    /// The progress token that the server knows.
    #[serde(default)]
    token: Option<String>,
    /// Progress that the server reported meanwhile, oldest first.
    #[serde(default)]
    progress: VecDeque<Json>,
    /// Counts up, for the oldest one.
    number: u64,
}

impl Parked {
    pub(super) fn is_of(&self, generation: Generation) -> bool {
        self.generation == generation
    }
}

impl Link {
    /// The handshake of a server for a modern client: the modern one, and if the server does not know it, the
    /// legacy one.
    pub(in super::super) fn bridge_script(&mut self, cx: &Cx<'_>) -> Vec<Step> {
        let meta = self.memory.modern_meta.clone();
        let Some(meta) = meta.filter(|_| self.may_bridge() && self.bridge.way.is_none()) else {
            return Vec::new();
        };
        if self.bridge.is_native {
            return Vec::new();
        }
        let mut script = Vec::new();
        let is_legacy = cx.memory.discovered == Some(Discovered::Legacy);
        if !is_legacy && !self.bridge.skips_discovery {
            let id = self.own_id();
            let params = edit::with_member("{}", "_meta", meta.as_str());
            let line = request(&id, Method::Discover.name(), &params);
            let purpose = Purpose::Discover;
            script.push(Step::Ask { id, line, purpose });
        }
        let id = self.own_id();
        let line = request(&id, Method::Initialize.name(), &opening(meta.as_str()));
        let purpose = Purpose::Open;
        script.push(Step::Ask { id, line, purpose });
        script.push(Step::Say(house::initialized()));
        script
    }

    /// The script for a server that had sessions in its last run and refuses to open one: a modern handshake.
    pub(super) fn modern_after_all(&mut self, cx: &mut Cx<'_>) -> Option<Vec<Step>> {
        let is_legacy = cx.memory.discovered == Some(Discovered::Legacy);
        let is_open = self.bridge.way.is_some() || self.memory.has_session();
        let meta = self.memory.modern_meta.clone();
        let meta = meta.filter(|_| is_legacy && !is_open && self.may_bridge())?;
        cx.memory.discovered = None;
        self.remember(cx);
        self.recall.is_bridged = false;
        let id = self.own_id();
        let params = edit::with_member("{}", "_meta", meta.as_str());
        let line = request(&id, Method::Discover.name(), &params);
        let purpose = Purpose::Discover;
        Some(vec![Step::Ask { id, line, purpose }])
    }

    /// A scripted request of the bridge was answered.
    pub(in super::super) fn bridge_answer(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        purpose: Purpose,
        result: Option<&str>,
    ) {
        let is_open = self.bridge.way.is_some() || self.memory.has_session();
        let (Some(meta), Some(result)) = (self.memory.modern_meta.clone(), result) else {
            return;
        };
        if is_open || !self.may_bridge() {
            return;
        }
        match purpose {
            Purpose::Discover | Purpose::LateDiscover if house::speaks_modern(result) => {
                self.bridge.is_native = true;
                if let Some(server) = self.incarnations.get_mut(&generation) {
                    server.script.clear();
                }
            }
            Purpose::Open => {
                let method = Method::Initialize.name();
                let params = opening(meta.as_str());
                self.memory.record_answer(method, Some(&params), result);
                let line = house::initialized();
                let method = Method::Initialized.name();
                self.memory.record_notification(method, line.as_str());
                self.bridge.way = Some(Way::ModernClient);
                self.bridge.is_native = false;
                self.bridge.handshake = Some(discovery(result));
                let discovered = Some(Discovered::Legacy);
                if cx.memory.discovered != discovered {
                    cx.memory.discovered = discovered;
                    self.remember(cx);
                }
            }
            Purpose::Discover | Purpose::LateDiscover | Purpose::Restore => {}
        }
    }

    /// Acknowledges a subscription: the host announces changes itself.
    pub(super) fn acknowledge(&mut self, cx: &mut Cx<'_>, call: CallId, request: &ClientRequest) {
        let wanted = request.param("notifications").unwrap_or("{}");
        let mut granted = ObjectWriter::with_capacity(96);
        for kind in ListKind::ALL {
            // Templates are announced with the resources.
            let is_wanted = scan::member(wanted, kind.wanted()) == Some("true");
            let is_list = kind != ListKind::Templates;
            if is_wanted && is_list && self.memory.announces(kind.capability()) {
                granted = granted.raw(kind.wanted(), "true");
            }
        }
        let resources = self.memory.capability("resources").unwrap_or("{}");
        if let Some(uris) = scan::member(wanted, "resourceSubscriptions")
            && scan::member(resources, "subscribe") == Some("true")
        {
            granted = granted.raw("resourceSubscriptions", uris);
            for uri in edit::items(uris) {
                let params = edit::with_member("{}", "uri", uri);
                self.tell_servers(cx, Method::SubscribeResource, &params);
            }
        }
        self.tell_client(cx, acknowledgement(&request.id, &granted.finish()));
        self.begin_listening(cx, call);
    }

    /// The client cancelled a subscription. False if the request is another one.
    pub(in super::super) fn ends_subscription(&mut self, cx: &mut Cx<'_>, call: CallId) -> bool {
        let is_listen = |request: &&ClientRequest| request.method == Method::Listen.name();
        let request = self.requests.get(call).filter(is_listen).cloned();
        let Some(request) = request.filter(|_| self.serves_modern()) else {
            return false;
        };
        for uri in resources_of(&request) {
            let others = self
                .requests
                .values()
                .filter(|other| other.id != request.id);
            if !others
                .into_iter()
                .any(|other| resources_of(other).contains(&uri))
            {
                let params = edit::with_member("{}", "uri", uri);
                self.tell_servers(cx, Method::UnsubscribeResource, &params);
            }
        }
        true
    }

    /// Sends a request that changes the state of the session to every server, and keeps it for successors.
    fn tell_servers(&mut self, cx: &mut Cx<'_>, method: Method, params: &str) {
        self.memory.record_answer(method.name(), Some(params), "{}");
        self.update_standbys(cx, None, method.name(), Some(params));
    }

    /// Sets the log level of the server to that of a request.
    pub(super) fn follow_log_level(&mut self, cx: &mut Cx<'_>, call: CallId) {
        let request = self.requests.get(call);
        let level = request.and_then(|request| request.meta(meta::LOG_LEVEL));
        let Some(level) = level.map(str::to_owned) else {
            return;
        };
        let params = edit::with_member("{}", "level", &level);
        let is_set = self
            .memory
            .level()
            .is_some_and(|set| set.as_str() == params);
        if self.memory.capability("logging").is_some() && !is_set {
            self.tell_servers(cx, Method::SetLogLevel, &params);
        }
    }

    /// Translates a notification of a legacy server. False if the client gets it as it is.
    pub(in super::super) fn takes_for_modern(
        &mut self,
        cx: &mut Cx<'_>,
        method: &str,
        params: Option<&str>,
    ) -> bool {
        if !self.serves_modern() {
            return false;
        }
        let mut kinds = ListKind::ALL.into_iter();
        if let Some(kind) = kinds.find(|kind| kind.changed().name() == method) {
            self.announce(cx, kind);
            return true;
        }
        match Method::parse(method) {
            Some(Method::ResourceUpdated) => {
                let params = params.unwrap_or("{}");
                let Some(uri) = scan::member(params, "uri") else {
                    return true;
                };
                let listeners = self.requests.values();
                let listeners = listeners.filter(|request| resources_of(request).contains(&uri));
                let ids: Vec<String> = listeners.map(|request| request.id.to_string()).collect();
                for id in ids {
                    let params = edit::with_member(params, "_meta", &subscription(&id));
                    let line = encode::notification(Method::ResourceUpdated, Some(&params));
                    self.tell_client(cx, line);
                }
                true
            }
            // A modern client gets log messages only for requests that ask for them.
            Some(Method::LogMessage) => {
                let mut requests = self.requests.values();
                !requests.any(|request| request.meta(meta::LOG_LEVEL).is_some())
            }
            _ => false,
        }
    }

    /// Turns a question of a legacy server into the end of its call. False if the client can be asked.
    pub(in super::super) fn parks(
        &mut self,
        cx: &mut Cx<'_>,
        by: Generation,
        text: &str,
        id: &RequestId,
        method: &str,
    ) -> bool {
        if !self.serves_modern() {
            return false;
        }
        let refused = match self.call_that_asks(by, method) {
            Ok((call, wire)) => {
                self.park(cx, by, call, wire, text, id, method);
                return true;
            }
            Err(_) if method == Method::Ping.name() => house::answer_question(id, method),
            Err((code, why)) => refuse_question(id, code, why),
        };
        cx.out.push_back(CoreAction::Say {
            generation: by,
            line: Json::from_scanned(&refused),
            if_room: true,
        });
        true
    }

    /// The only call that can have caused a question, and the id under which the server got it.
    fn call_that_asks(
        &self,
        by: Generation,
        method: &str,
    ) -> Result<(CallId, RequestId), (i64, &'static str)> {
        let server = self.incarnations.get(&by);
        let calls = server.into_iter().flat_map(Incarnation::calls);
        let requests = calls.filter_map(|call| Some((call, self.requests.get(call)?)));
        let mut able = requests.filter(|(_, request)| MAY_ASK.contains(&request.method.as_str()));
        let only = able.next().filter(|_| able.next().is_none());
        let wire = only.and_then(|(call, _)| server?.wire_id(call).cloned());
        let (Some((call, request)), Some(wire)) = (only, wire) else {
            return Err((
                -32603,
                "the client cannot be asked: the server works on no call, or on several",
            ));
        };
        let needed = match method {
            "elicitation/create" => "elicitation",
            "sampling/createMessage" => "sampling",
            "roots/list" => "roots",
            _ => return Err((-32601, "the client has no such method")),
        };
        let declared = request.meta(meta::CLIENT_CAPABILITIES).unwrap_or("{}");
        match scan::member(declared, needed) {
            Some(capability) if capability != "null" => Ok((call, wire)),
            _ => Err((-32601, "the client did not declare this capability")),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one question")]
    fn park(
        &mut self,
        cx: &mut Cx<'_>,
        by: Generation,
        call: CallId,
        wire: RequestId,
        text: &str,
        id: &RequestId,
        method: &str,
    ) {
        let (state, number) = (self.own_id(), self.upkeep.next_id);
        let key = scan::unquote(state.as_raw())
            .unwrap_or_default()
            .into_owned();
        let Some(request) = self.requests.get(call).cloned() else {
            return;
        };
        if let Some(server) = self.incarnations.get_mut(&by) {
            server.awaited.close(&wire);
            let awaited = Awaited::Parked(key.clone());
            let _ = server.awaited.open(wire.clone(), awaited);
        }
        if self.bridge.parked.len() >= PARKED {
            let parked = self.bridge.parked.iter();
            let oldest = parked.min_by_key(|(_, parked)| parked.number);
            let oldest = oldest.map(|(key, _)| key.clone());
            if let Some(oldest) = oldest.and_then(|key| self.bridge.parked.remove(&key)) {
                let why = "the client did not answer in time";
                let line = refuse_question(&oldest.question, -32603, why);
                cx.say(oldest.generation, Json::from_scanned(&line));
            }
        }
        let parked = Parked {
            generation: by,
            wire,
            question: id.clone(),
            method: request.method.clone(),
            tool: request.tool.clone(),
            answer: None,
            token: request.server_token().cloned(),
            progress: VecDeque::new(),
            number,
        };
        self.bridge.parked.insert(key, parked);
        let params = scan::member(text, "params").unwrap_or("{}");
        let question = ObjectWriter::with_capacity(params.len() + 64)
            .string("method", method)
            .raw("params", params)
            .finish();
        let result = ObjectWriter::with_capacity(question.len() + 128)
            .string("resultType", "input_required")
            .raw(
                "inputRequests",
                &edit::with_member("{}", QUESTION, &question),
            )
            .raw("requestState", state.as_raw())
            .finish();
        if let Some(last) = self.progress.finish(call) {
            self.report_progress(cx, call, last);
        }
        self.answer_here(cx, by, call, &request, &result);
    }

    /// Keeps progress of a parked call until the client repeats the call.
    pub(in super::super) fn park_progress(&mut self, by: Generation, token: &str, text: &str) {
        let is_its = |parked: &&mut Parked| {
            parked.generation == by && parked.token.as_deref() == Some(token)
        };
        let mut parked = self.bridge.parked.values_mut();
        let Some(parked) = parked.find(is_its).filter(|_| text.len() <= PROGRESS_BYTES) else {
            return;
        };
        parked.progress.push_back(Json::from_scanned(text));
        let bytes = |all: &VecDeque<Json>| all.iter().map(Json::len).sum::<usize>();
        while parked.progress.len() > PROGRESS || bytes(&parked.progress) > PROGRESS_BYTES {
            parked.progress.pop_front();
        }
    }

    /// The server answered a parked call: the client gets it when it repeats the call.
    pub(in super::super) fn parked_answer(&mut self, state: &str, text: &str) {
        if let Some(parked) = self.bridge.parked.get_mut(state) {
            parked.answer = (text.len() <= ANSWER_BYTES).then(|| Json::from_scanned(text));
        }
    }

    /// Takes up a parked call for a request that repeats it. False if it repeats none.
    pub(super) fn resumes(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
        request: &ClientRequest,
    ) -> bool {
        let Some(state) = request.param("requestState") else {
            return false;
        };
        let key = scan::unquote(state).unwrap_or_default().into_owned();
        let is_same = |parked: &&Parked| {
            let is_same = parked.method == request.method && parked.tool == request.tool;
            parked.generation == generation && is_same
        };
        if self.bridge.parked.get(&key).filter(is_same).is_none() {
            let said = "requestState is not known, or its server was lost";
            let problem = Problem::new(ErrorKind::InvalidParams, said);
            let problem = problem.with_hint("repeat the call without requestState");
            let answer = Answer::Failed(problem);
            cx.kernel.handle_answer(cx.now, generation, call, answer);
            return true;
        }
        let (Some(parked), Some(server)) = (
            self.bridge.parked.remove(&key),
            self.incarnations.get_mut(&generation),
        ) else {
            return true;
        };
        server.awaited.close(&parked.wire);
        let _ = server
            .awaited
            .open(parked.wire.clone(), Awaited::Call(call));
        let given = request.param("inputResponses");
        let given = given.and_then(|given| scan::member(given, QUESTION));
        let line = match given {
            Some(given) => response(&parked.question, given),
            None => {
                let why = "the client did not answer the question";
                Json::from_scanned(&refuse_question(&parked.question, -32603, why))
            }
        };
        cx.out.push_back(CoreAction::Forward {
            generation,
            call,
            line,
            headers: Vec::new(),
        });
        // The server goes on to report under the token of the first request.
        if let Some(request) = self.requests.get_mut(call) {
            request.wire_token.clone_from(&parked.token);
        }
        for text in parked.progress {
            let params = scan::member(text.as_str(), "params");
            self.own_progress(cx, generation, call, text.as_str(), params);
        }
        if let Some(text) = parked.answer {
            let result = scan::member(text.as_str(), "result").map(str::to_owned);
            self.server_answer(
                cx,
                generation,
                text.as_str(),
                &parked.wire,
                result.as_deref(),
            );
        }
        true
    }
}

/// The parameters of the `initialize` that the host sends for a modern client.
fn opening(meta: &str) -> String {
    let info = json!({ "name": "modern client", "version": "unknown" }).to_string();
    let newest = LEGACY_VERSIONS.iter().max().copied().unwrap_or_default();
    ObjectWriter::with_capacity(256)
        .string("protocolVersion", newest)
        .raw(
            "capabilities",
            scan::member(meta, meta::CLIENT_CAPABILITIES).unwrap_or("{}"),
        )
        .raw(
            "clientInfo",
            scan::member(meta, meta::CLIENT_INFO).unwrap_or(&info),
        )
        .finish()
}

/// The result of `server/discover` for the `initialize` of a legacy server.
pub(super) fn discovery(result: &str) -> Json {
    let declared = scan::member(result, "capabilities").unwrap_or("{}");
    let info = scan::member(result, "serverInfo").unwrap_or("{}");
    let versions = json!([mainstay_contract::dialect::MODERN_VERSION]);
    let result = ObjectWriter::with_capacity(result.len() + 256)
        .string("resultType", "complete")
        .value("supportedVersions", &versions)
        .raw("capabilities", &common_capabilities(declared))
        .optional_raw("instructions", scan::member(result, "instructions"))
        .raw("ttlMs", "0")
        .string("cacheScope", "private")
        .raw("_meta", &edit::with_member("{}", meta::SERVER_INFO, info))
        .finish();
    Json::from_scanned(&result)
}

/// A result of a legacy server with the members that modern clients need, if it lacks any.
pub(super) fn completed(method: &str, result: &str) -> Option<String> {
    let lacks = |key: &str| scan::member(result, key).is_none();
    if !lacks("resultType") {
        return None;
    }
    let mut whole = edit::with_member(result, "resultType", "\"complete\"");
    let method = Method::parse(method);
    let is_cached = method.is_some_and(|method| method.list().is_some());
    if is_cached || method == Some(Method::ReadResource) {
        whole = edit::with_member(&whole, "ttlMs", "0");
        whole = edit::with_member(&whole, "cacheScope", "\"private\"");
    }
    Some(whole)
}

/// A modern client's line without the members that a legacy server does not know.
pub(super) fn plain_line(line: &Json) -> Json {
    let Some(params) =
        scan::member(line.as_str(), "params").filter(|params| params.starts_with('{'))
    else {
        return line.clone();
    };
    let modern = |name: &str| name == "inputResponses" || name == "requestState";
    let mut plain = edit::filtered(params, |name| !modern(name));
    if let Some(meta) = scan::member(params, "_meta").filter(|meta| meta.starts_with('{')) {
        let kept = edit::filtered(meta, |name| !MODERN_META.contains(&name));
        plain = match kept.as_str() {
            "{}" => edit::filtered(&plain, |name| name != "_meta"),
            kept => edit::with_member(&plain, "_meta", kept),
        };
    }
    Json::from_scanned(&edit::with_member(line.as_str(), "params", &plain))
}

/// The resources that a subscription names, as JSON texts.
fn resources_of(request: &ClientRequest) -> Vec<&str> {
    let is_listen = is_listen(&request.method, request.dialect);
    let wanted = request.param("notifications").filter(|_| is_listen);
    let uris = wanted.and_then(|wanted| scan::member(wanted, "resourceSubscriptions"));
    edit::items(uris.unwrap_or("[]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_everything_that_a_legacy_server_knows() {
        let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n":1.00},"requestState":"s","inputResponses":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":7}}}"#;
        let plain = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n":1.00},"_meta":{"progressToken":7}}}"#;
        assert_eq!(plain_line(&Json::from_scanned(line)).as_str(), plain);
        let bare = r#"{"id":1,"method":"ping"}"#;
        assert_eq!(plain_line(&Json::from_scanned(bare)).as_str(), bare);
    }

    #[test]
    fn only_results_that_may_be_cached_say_that_they_may_not() {
        let list = completed("tools/list", r#"{"tools":[]}"#);
        let whole = r#"{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;
        assert_eq!(list.as_deref(), Some(whole));
        let call = completed("tools/call", r#"{"content":[]}"#);
        let whole = r#"{"content":[],"resultType":"complete"}"#;
        assert_eq!(call.as_deref(), Some(whole));
        assert_eq!(completed("tools/call", whole), None, "it is modern already");
    }

    #[test]
    fn a_handshake_offers_what_both_eras_have() {
        let opened = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{},"logging":{}},"serverInfo":{"name":"s"}}"#;
        let found = discovery(opened);
        let declared = scan::member(found.as_str(), "capabilities").unwrap();
        assert_eq!(declared, r#"{"tools":{"listChanged":true},"logging":{}}"#);
        let opening = opening(r#"{"io.modelcontextprotocol/clientCapabilities":{"roots":{}}}"#);
        assert!(
            opening.contains(r#""capabilities":{"roots":{}}"#),
            "{opening}"
        );
    }
}
