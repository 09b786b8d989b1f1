//! A legacy client on a modern server.
//!
//! A server that refuses `initialize` is asked `server/discover`; its answer becomes the result of `initialize`. Every
//! request gets the client's capabilities in its `_meta`. A result with `input_required` begins a *round*: the
//! host asks the client each question as a request, and repeats the call with the answers. One subscription of the host
//! covers those of the client and changes of lists.

use std::collections::BTreeMap;

use mainstay_contract::dialect::{Dialect, MODERN_VERSION, encode, negotiate_legacy};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, Generation, RequestId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::outcome::{Forwarded, Problem};
use mainstay_contract::rpc::Answer;
use mainstay_contract::scan;
use serde::{Deserialize, Serialize};

use super::super::client::cancel_line;
use super::super::house;
use super::super::incarnation::Awaited;
use super::super::memory::{Step, request};
use super::super::requests::ClientRequest;
use super::super::shared::with_own_token;
use super::super::{Cx, Link, edit};
use super::{Way, common_capabilities};
use crate::core::action::CoreAction;

/// Rounds of questions that one call may have.
const ROUNDS: u32 = 16;
/// Questions of one round.
const QUESTIONS: usize = 16;
/// Members of modern results that legacy clients do not know.
pub(super) const MODERN_MEMBERS: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// A call whose server wants answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Round {
    generation: Generation,
    number: u32,
    /// The names of the questions that are open, by the ids that the client knows.
    open: BTreeMap<RequestId, String>,
    answers: BTreeMap<String, Json>,
    state: Option<Json>,
}

impl Round {
    pub(super) fn is_of(&self, generation: Generation) -> bool {
        self.generation == generation
    }
}

impl Link {
    /// A server refused to open a session: it may be a modern one. True if the host asks it, and the client waits.
    pub(in super::super) fn tries_modern(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
        refusal: &str,
    ) -> bool {
        let Some(asked) = self.requests.get(call) else {
            return false;
        };
        let opens = asked.method == Method::Initialize.name() && asked.dialect != Dialect::Modern;
        let is_live = cx.kernel.sent(generation, call).is_some();
        let may_try = self.may_bridge() && self.bridge.way.is_none();
        if !opens || !is_live || !may_try || self.memory.modern_meta.is_some() {
            return false;
        }
        let meta = modern_meta(asked);
        let params = edit::with_member("{}", "_meta", meta.as_str());
        self.memory.modern_meta = Some(meta);
        let id = self.own_id();
        let line = request(&id, Method::Discover.name(), &params);
        let refusal = Json::from_scanned(refusal);
        if let Some(server) = self.incarnations.get_mut(&generation) {
            let _ = server.awaited.open(id, Awaited::OtherEra { call, refusal });
        }
        cx.say(generation, line);
        true
    }

    /// A server that refused to open a session answered `server/discover`.
    pub(in super::super) fn other_era(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
        refusal: Json,
        result: Option<&str>,
    ) {
        let request = self.requests.get(call).cloned();
        let modern = result.filter(|result| house::speaks_modern(result));
        let (Some(result), Some(request)) = (modern, request) else {
            self.memory.modern_meta = None;
            let (line, is_error) = (refusal, true);
            let answer = Answer::Forwarded(Forwarded { line, is_error });
            return cx.kernel.handle_answer(cx.now, generation, call, answer);
        };
        self.bridge.way = Some(Way::LegacyClient);
        let offered = request.param("protocolVersion").and_then(scan::unquote);
        let opened = opened(result, &offered.unwrap_or_default());
        self.bridge.handshake = Some(opened);
        self.record_handshake(cx, result);
        if let Some(shown) = self.shown_bridged(cx) {
            self.answer_here(cx, generation, call, &request, shown.as_str());
        }
        self.listen(cx, generation);
    }

    /// Subscribes to changes of a modern server for its legacy client.
    pub(in super::super) fn listen(&mut self, cx: &mut Cx<'_>, generation: Generation) {
        if !self.serves_legacy() {
            return;
        }
        let uris = self.memory.subscribed();
        let uris = edit::array(uris.iter().map(String::as_str));
        let mut wanted = ObjectWriter::with_capacity(128);
        for kind in ListKind::ALL {
            if kind != ListKind::Templates {
                wanted = wanted.raw(kind.wanted(), "true");
            }
        }
        let wanted = wanted.raw("resourceSubscriptions", &uris).finish();
        let params = edit::with_member("{}", "notifications", &wanted);
        let id = self.own_id();
        let line = request(&id, Method::Listen.name(), &params);
        let line = self.with_own_meta(&line);
        if let Some((of, old)) = self.bridge.listening.replace((generation, id.clone())) {
            let cancel = cancel_line(&old, "the host subscribes again");
            cx.say(of, Json::from_scanned(&cancel));
        }
        if let Some(server) = self.incarnations.get_mut(&generation) {
            let _ = server.awaited.open(id, Awaited::Ping);
            cx.say(generation, line);
        }
    }

    /// The script for a server that was taken for a modern one and has sessions: the client's own handshake.
    pub(super) fn legacy_after_all(&mut self) -> Option<Vec<Step>> {
        let was_assumed = self.recall.is_active && self.recall.is_bridged && self.serves_legacy();
        let opening = self.recall.opening.clone().filter(|_| was_assumed)?;
        let handshake = self.bridge.handshake.take()?;
        self.recall.is_bridged = false;
        self.bridge.way = None;
        let memory = &mut self.memory;
        memory.modern_meta = None;
        let opens = Method::Initialize.name();
        memory.record_answer(opens, Some(opening.as_str()), handshake.as_str());
        let line = house::initialized();
        memory.record_notification(Method::Initialized.name(), line.as_str());
        let memory = std::mem::take(&mut self.memory);
        let script = memory.restore_script(|| self.own_id());
        self.memory = memory;
        Some(script)
    }

    /// The result of a request that modern servers do not know.
    pub(super) fn answer_legacy(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        request: &ClientRequest,
    ) -> Option<Json> {
        match Method::parse(&request.method)? {
            Method::Initialize => return self.shown_bridged(cx),
            Method::Ping => {}
            Method::SetLogLevel => {
                self.bridge.level = request.param("level").map(Json::from_scanned);
            }
            Method::SubscribeResource | Method::UnsubscribeResource => {
                let params = request.params();
                self.memory.record_answer(&request.method, params, "{}");
                self.listen(cx, generation);
            }
            _ => return None,
        }
        Some(Json::empty_object())
    }

    /// A legacy client's line with the `_meta` that modern servers need.
    pub(super) fn with_own_meta(&self, line: &Json) -> Json {
        let own = self.memory.own_meta().map_or("{}", Json::as_str);
        let params = scan::member(line.as_str(), "params").unwrap_or("{}");
        let given = scan::member(params, "_meta").unwrap_or("{}");
        let meta = ObjectWriter::with_capacity(own.len() + given.len())
            .members_of(own)
            .optional_raw(
                meta::LOG_LEVEL,
                self.bridge.level.as_ref().map(Json::as_str),
            )
            .members_of(given)
            .finish();
        let params = edit::with_member(params, "_meta", &meta);
        Json::from_scanned(&edit::with_member(line.as_str(), "params", &params))
    }

    /// Asks the client what a modern server wants to know. False if the result is an end.
    pub(in super::super) fn asks_client(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
        result: &str,
    ) -> bool {
        let may_ask = self.serves_legacy() && cx.kernel.sent(generation, call).is_some();
        if !may_ask || scan::member(result, "resultType") != Some("\"input_required\"") {
            return false;
        }
        let before = self.bridge.rounds.remove(&call);
        let number = before.map_or(1, |before| before.number + 1);
        let asked = scan::member(result, "inputRequests").unwrap_or("{}");
        let asked: Vec<(String, String)> = scan::members(asked)
            .map(|(name, question)| (name.into_owned(), question.to_owned()))
            .collect();
        if number > ROUNDS || asked.len() > QUESTIONS {
            let said = "the server asks without end";
            self.fail_round(cx, generation, call, said);
            return true;
        }
        let mut round = Round {
            generation,
            number,
            open: BTreeMap::new(),
            answers: BTreeMap::new(),
            state: scan::member(result, "requestState").map(Json::from_scanned),
        };
        for (name, question) in asked {
            let method = scan::member(&question, "method").and_then(scan::unquote);
            let method = method.unwrap_or_default().into_owned();
            let params = scan::member(&question, "params").unwrap_or("{}");
            let id = self.own_id();
            let opened = self
                .questions
                .open(generation, id.clone(), &method, || id.clone());
            if opened.is_none() {
                return {
                    self.fail_round(cx, generation, call, "too many questions are open");
                    true
                };
            }
            self.tell_client(cx, request(&id, &method, params).to_string());
            round.open.insert(id, name);
        }
        let is_empty = round.open.is_empty();
        self.bridge.rounds.insert(call, round);
        if is_empty {
            self.repeat(cx, call);
        }
        self.pause_deadlines(cx);
        true
    }

    fn fail_round(&self, cx: &mut Cx<'_>, generation: Generation, call: CallId, said: &str) {
        let answer = Answer::Failed(Problem::new(ErrorKind::WorkerProtocol, said));
        cx.kernel.handle_answer(cx.now, generation, call, answer);
    }

    /// The client answered a question of a round. False if it is a question of another kind.
    pub(in super::super) fn takes_answer(
        &mut self,
        cx: &mut Cx<'_>,
        id: &RequestId,
        text: &str,
    ) -> bool {
        let mut rounds = self.bridge.rounds.iter_mut();
        let Some((call, round)) = rounds.find(|(_, round)| round.open.contains_key(id)) else {
            return false;
        };
        let (call, generation) = (*call, round.generation);
        let name = round.open.remove(id).unwrap_or_default();
        let Some(result) = scan::member(text, "result") else {
            let open: Vec<RequestId> = round.open.keys().cloned().collect();
            self.bridge.rounds.remove(&call);
            for id in open {
                self.questions.close(&id);
                self.tell_client(cx, cancel_line(&id, "another question was refused"));
            }
            self.fail_round(
                cx,
                generation,
                call,
                "the client refused a question of the server",
            );
            return true;
        };
        round.answers.insert(name, Json::from_scanned(result));
        if round.open.is_empty() {
            self.repeat(cx, call);
        }
        true
    }

    /// Withdraws the questions of a call that is cancelled.
    pub(in super::super) fn cancel_round(&mut self, cx: &mut Cx<'_>, call: CallId) {
        let round = self.bridge.rounds.remove(&call);
        for id in round.into_iter().flat_map(|round| round.open.into_keys()) {
            self.questions.close(&id);
            self.tell_client(cx, cancel_line(&id, "the call was cancelled"));
        }
        self.pause_deadlines(cx);
    }

    /// Repeats a call with the client's answers.
    fn repeat(&mut self, cx: &mut Cx<'_>, call: CallId) {
        let (Some(round), Some(request)) = (self.bridge.rounds.get(&call), self.requests.get(call))
        else {
            return;
        };
        let generation = round.generation;
        let mut answers = ObjectWriter::with_capacity(256);
        for (name, answer) in &round.answers {
            answers = answers.raw(name, answer.as_str());
        }
        let params = request.params().unwrap_or("{}");
        let mut params = edit::with_member(params, "inputResponses", &answers.finish());
        if let Some(state) = &round.state {
            params = edit::with_member(&params, "requestState", state.as_str());
        }
        let line = edit::with_member(request.line.as_str(), "params", &params);
        let id = self.own_id();
        let line = edit::with_member(&line, "id", id.as_raw());
        let line = with_own_token(&line, &id);
        if let Some(request) = self.requests.get_mut(call) {
            request.wire_token = Some(id.as_raw().to_owned());
        }
        let line = self.with_own_meta(&Json::from_scanned(&line));
        let headers = self.headers_of(call);
        if let Some(server) = self.incarnations.get_mut(&generation) {
            let _ = server.awaited.open(id, Awaited::Call(call));
            cx.out.push_back(CoreAction::Forward {
                generation,
                call,
                line,
                headers,
            });
        }
    }

    /// Translates a notification of a modern server. False if the client gets it as it is.
    pub(in super::super) fn takes_for_legacy(
        &self,
        cx: &mut Cx<'_>,
        method: &str,
        params: Option<&str>,
    ) -> bool {
        if !self.serves_legacy() {
            return false;
        }
        let Some(known) = Method::parse(method) else {
            return false;
        };
        if known == Method::Acknowledged {
            return true;
        }
        let params = params.unwrap_or("{}");
        let meta = scan::member(params, "_meta").unwrap_or("{}");
        if scan::member(meta, meta::SUBSCRIPTION_ID).is_none() {
            return false;
        }
        let plain = edit::filtered(params, |name| name != "_meta");
        let plain = Some(plain.as_str()).filter(|plain| *plain != "{}");
        self.tell_client(cx, encode::notification(known, plain));
        true
    }
}

/// The `_meta` that a modern server gets with the requests of a legacy client, from its `initialize`.
pub(super) fn modern_meta(asked: &ClientRequest) -> Json {
    let meta = ObjectWriter::with_capacity(256)
        .string(meta::PROTOCOL_VERSION, MODERN_VERSION)
        .raw(
            meta::CLIENT_CAPABILITIES,
            asked.param("capabilities").unwrap_or("{}"),
        )
        .optional_raw(meta::CLIENT_INFO, asked.param("clientInfo"));
    Json::from_scanned(&meta.finish())
}

/// The result of `initialize` for the `server/discover` of a modern server.
pub(super) fn opened(result: &str, offered: &str) -> Json {
    let declared = scan::member(result, "capabilities").unwrap_or("{}");
    let mut capabilities = common_capabilities(declared);
    capabilities = edit::with_member(&capabilities, "logging", "{}");
    if scan::member(&capabilities, "resources").is_some() {
        capabilities = edit::with_inner(&capabilities, "resources", "subscribe", "true");
    }
    let meta = scan::member(result, "_meta").unwrap_or("{}");
    let info = scan::member(meta, meta::SERVER_INFO);
    let result = ObjectWriter::with_capacity(result.len() + 128)
        .string("protocolVersion", negotiate_legacy(offered))
        .raw("capabilities", &capabilities)
        .raw(
            "serverInfo",
            info.unwrap_or(r#"{"name":"modern server","version":"unknown"}"#),
        )
        .optional_raw("instructions", scan::member(result, "instructions"))
        .finish();
    Json::from_scanned(&result)
}
