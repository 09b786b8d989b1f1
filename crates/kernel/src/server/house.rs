//! The house: requests of callers that have no MCP session of their own (REST, the command line).
//!
//! The host opens one session per caller, speaks the modern era where the server does and the legacy one
//! otherwise, and offers the server nothing: its questions are refused. A caller's request is an ordinary
//! call of the link, and the caller receives its typed end.

use mainstay_contract::dialect::{LEGACY_VERSIONS, MODERN_VERSION, Op, Request, encode};
use mainstay_contract::envelope::{ENVELOPE_VERSION, TOOL_ID_PREFIX, is_tool_name};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, Generation, RequestId, SessionId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::outcome::{Forwarded, Outcome, Problem, Success};
use mainstay_contract::rpc::Progress;
use mainstay_contract::scan;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::incarnation::{Awaited, Purpose};
use super::memory::{Step, request};
use super::replies::error_code;
use super::requests::ClientRequest;
use super::tasks::{CallTask, TaskRun};
use super::{Client, Cx, Discovered, Link, edit};
use crate::call::Work;

/// How long a listing waits for a server that is ready, in milliseconds.
const LISTING_MS: u64 = 10_000;

/// The code of a method that a server does not have.
pub(super) const UNKNOWN_METHOD: i64 = -32601;

/// A session that the host opened for a caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct House {
    /// The caller: a digest of its credential, or a name of the host's own.
    pub(crate) caller: String,
    /// The server's answer to the handshake.
    handshake: Option<Json>,
    /// The server speaks the modern era.
    modern: bool,
    /// A server was lost while it was asked for its era: the next one is not asked.
    skips_discovery: bool,
    /// The client's session, where several servers serve it together.
    pub(crate) session: Option<SessionId>,
    /// The parameters of that client's `initialize`.
    pub(crate) opening: Option<Json>,
}

impl House {
    pub(crate) const fn of(caller: String) -> Self {
        Self {
            caller,
            handshake: None,
            modern: false,
            skips_discovery: false,
            session: None,
            opening: None,
        }
    }

    /// The session that the host opens for a client of several servers.
    pub(crate) fn of_member(session: SessionId, opening: Option<Json>) -> Self {
        Self {
            session: Some(session),
            opening,
            ..Self::of(String::new())
        }
    }

    /// The server's answer to the handshake.
    pub(crate) const fn handshake(&self) -> Option<&Json> {
        self.handshake.as_ref()
    }

    /// True if the server speaks the modern era.
    pub(super) const fn is_modern(&self) -> bool {
        self.modern
    }

    /// Introduces the server with its handshake of an earlier run until it has answered.
    pub(super) fn remember_handshake(&mut self, handshake: Json) {
        self.handshake = Some(handshake);
    }

    /// The parameters of the `initialize` that a legacy server gets.
    fn legacy_params(&self, version: &str) -> String {
        match &self.opening {
            Some(opening) => opening.as_str().to_owned(),
            None => legacy_params(version),
        }
    }
}

impl Link {
    /// A caller's request as an entry of the request table. `None` if servers have no such request. `run` is
    /// there for the call of a task.
    pub(crate) fn house_request(
        &mut self,
        now: crate::time::Time,
        request: &Request,
        run: Option<TaskRun>,
    ) -> Option<ClientRequest> {
        self.touch(now);
        let id = self.own_id();
        let (method, tool, params) = match &request.op {
            Op::CallTool { name, arguments } => {
                let trace = request.trace.map(|trace| trace.to_string());
                let token = request.progress_token.as_ref().map(|_| id.as_raw());
                let meta = ObjectWriter::with_capacity(96)
                    .optional_string(meta::TRACEPARENT, trace.as_deref())
                    .optional_raw(meta::PROGRESS_TOKEN, token)
                    .finish();
                let params = ObjectWriter::with_capacity(arguments.len() + 96)
                    .string("name", name)
                    .raw("arguments", arguments.as_str())
                    .optional_raw("_meta", Some(meta.as_str()).filter(|meta| *meta != "{}"));
                let name = Some(name.clone());
                (Method::CallTool.name(), name, params.finish())
            }
            Op::ListTools { .. } => (Method::ListTools.name(), None, "{}".to_owned()),
            Op::Catalog {} => (request.op.method(), None, "{}".to_owned()),
            Op::Discover {} => (Method::Discover.name(), None, "{}".to_owned()),
            Op::List { kind, cursor } => {
                let params = ObjectWriter::with_capacity(64);
                let params = params.optional_string("cursor", cursor.as_deref());
                (kind.method().name(), None, params.finish())
            }
            _ => return None,
        };
        Some(ClientRequest {
            line: self::request(&id, method, &params),
            token: request
                .progress_token
                .as_ref()
                .map(|_| id.as_raw().to_owned()),
            id,
            dialect: request.dialect,
            method: method.to_owned(),
            tool,
            wire_token: None,
            cancel: None,
            admitted: None,
            checked: None,
            listed: false,
            listening: None,
            task: match (run, &request.task) {
                (Some(run), _) => Some(Box::new(CallTask::Runs(run))),
                (None, Some(wish)) => Some(Box::new(CallTask::Wished(wish.clone()))),
                (None, None) => None,
            },
        })
    }

    /// Adds a caller's request that the kernel admitted.
    pub(crate) fn insert_house_request(&mut self, call: CallId, request: ClientRequest) {
        self.requests.insert(call, request);
    }

    /// A caller's listing must be routed: the tools are read anew.
    pub(super) fn decide_listing(&mut self, cx: &mut Cx<'_>, call: CallId) {
        let patience = cx.kernel.limits().start_timeout_ms + LISTING_MS;
        self.requests.hold(call, cx.now.plus_ms(patience));
        self.tools.forget();
        self.want_tools(cx);
    }

    /// True for a caller's request that is answered from what the host knows of the server.
    pub(super) fn is_listing(&self, request: &ClientRequest) -> bool {
        let is_forwarded = matches!(
            Method::parse(&request.method).and_then(Method::list),
            Some(ListKind::Prompts | ListKind::Resources | ListKind::Templates)
        );
        self.is_house() && self.shelf.is_none() && request.tool.is_none() && !is_forwarded
    }

    /// Decides about a caller's listing once the tools are known, or cannot be.
    pub(super) fn admit_listing(&mut self, cx: &mut Cx<'_>, call: CallId) {
        let work = match self.serving(cx) {
            Some(_) => Work::Host,
            None => Work::Refused(cx.kernel.unavailable(cx.now, self.slot)),
        };
        cx.kernel.handle_routed(cx.now, call, None, work);
    }

    /// The answer to a caller's listing.
    pub(super) fn listing(&self, cx: &Cx<'_>, request: &ClientRequest) -> Outcome {
        let Client::House(house) = &self.client else {
            return Err(Problem::of(ErrorKind::Internal));
        };
        if request.method == Method::Discover.name() {
            let handshake = house.handshake.clone();
            return Ok(Success::Members(
                handshake.unwrap_or_else(Json::empty_object),
            ));
        }
        match self.tools.refusal() {
            _ if self.tools.is_complete() => {}
            // The server has no tools at all.
            Some(line) if error_code(line.as_str()) == Some(UNKNOWN_METHOD) => {}
            Some(line) => {
                let (line, is_error) = (line.clone(), true);
                return Ok(Success::Forwarded(Forwarded { line, is_error }));
            }
            None => {
                let said = "the server's list of tools cannot be read";
                return Err(Problem::new(ErrorKind::WorkerProtocol, said));
            }
        }
        let mut tools: Vec<String> = self.tools.visible().map(Json::to_string).collect();
        tools.extend(self.own_definitions(cx));
        let listing = if request.method == Method::ListTools.name() {
            ObjectWriter::with_capacity(1024)
                .raw("tools", &edit::array(tools.iter().map(String::as_str)))
                .finish()
        } else {
            tools.sort_by_cached_key(|tool| name_of(tool));
            let entries: Vec<String> = tools.iter().map(|tool| entry(tool)).collect();
            let handshake = house.handshake.as_ref().map(Json::as_str);
            let (name, version) = handshake
                .and_then(server_info)
                .unwrap_or_else(|| (self.name.clone(), cx.version.to_owned()));
            ObjectWriter::with_capacity(1024)
                .value("server", &json!({ "name": name, "version": version }))
                .string("version", ENVELOPE_VERSION)
                .raw("tools", &edit::array(entries.iter().map(String::as_str)))
                .finish()
        };
        Ok(Success::Members(Json::from_scanned(&listing)))
    }

    /// The script that opens a house's session on its first server; later ones restore it.
    pub(super) fn house_script(&mut self, cx: &Cx<'_>) -> Vec<Step> {
        let Client::House(house) = &self.client else {
            return Vec::new();
        };
        if house.modern {
            return Vec::new();
        }
        let params = house.legacy_params(cx.version);
        // A client of the older era opened a session, so its servers do.
        let is_opened = house.opening.is_some();
        let asks = !is_opened
            && !house.skips_discovery
            && cx.memory.discovered != Some(Discovered::Legacy);
        let mut script = Vec::new();
        if asks {
            let id = self.own_id();
            let params = json!({ "_meta": modern_meta(cx.version).to_value().unwrap_or_default() });
            let line = request(&id, Method::Discover.name(), &params.to_string());
            let purpose = Purpose::Discover;
            script.push(Step::Ask { id, line, purpose });
        }
        let id = self.own_id();
        let line = request(&id, Method::Initialize.name(), &params);
        let purpose = Purpose::Open;
        script.push(Step::Ask { id, line, purpose });
        if is_opened {
            // The client ends the handshake itself.
            script.extend(self.memory.initialized().cloned().map(Step::Say));
        } else {
            script.push(Step::Say(initialized()));
        }
        if let Some(level) = self.memory.level().cloned() {
            let id = self.own_id();
            let line = request(&id, Method::SetLogLevel.name(), level.as_str());
            let purpose = Purpose::Restore;
            script.push(Step::Ask { id, line, purpose });
        }
        script
    }

    /// A server of a house was lost. Some older servers end when they are asked for their era.
    pub(super) fn house_lost(&mut self, generation: Generation) {
        let server = self.incarnations.get(&generation);
        let was_asked = server.is_some_and(|server| server.awaits(Purpose::Discover));
        if let (Client::House(house), true) = (&mut self.client, was_asked) {
            house.skips_discovery = true;
        }
    }

    /// True if a server has refused the handshakes of both eras when it refuses this one.
    pub(super) fn was_last_try(&self, refused: Purpose) -> bool {
        let is_opened = matches!(&self.client, Client::House(house) if house.opening.is_some());
        refused == Purpose::Discover && is_opened
    }

    /// A server refused to open the session of a legacy client: it may be a modern one, which the host asks next.
    pub(super) fn house_tries_modern(
        &mut self,
        cx: &Cx<'_>,
        generation: Generation,
        refused: Purpose,
    ) -> bool {
        let Client::House(house) = &self.client else {
            return false;
        };
        let is_member = house.opening.is_some() && !house.modern && !self.memory.has_session();
        if refused != Purpose::Open || !is_member || !self.rules().bridge {
            return false;
        }
        let id = self.own_id();
        let params = edit::with_member("{}", "_meta", modern_meta(cx.version).as_str());
        let line = request(&id, Method::Discover.name(), &params);
        let purpose = Purpose::Discover;
        if let Some(server) = self.incarnations.get_mut(&generation) {
            server.script.clear();
            server.script.push_back(Step::Ask { id, line, purpose });
        }
        true
    }

    /// A scripted request of a house was answered.
    pub(super) fn house_answer(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        purpose: Purpose,
        result: Option<&str>,
    ) {
        let (Client::House(house), Some(result)) = (&mut self.client, result) else {
            return;
        };
        match purpose {
            Purpose::Discover if speaks_modern(result) => {
                house.modern = true;
                house.handshake = Some(Json::from_scanned(result));
                self.memory.modern_meta = Some(modern_meta(cx.version));
                if let Some(server) = self.incarnations.get_mut(&generation) {
                    server.script.clear();
                }
            }
            Purpose::Open if !self.memory.has_session() => {
                house.handshake = Some(Json::from_scanned(result));
                let params = house.legacy_params(cx.version);
                let is_opened = house.opening.is_some();
                let method = Method::Initialize.name();
                self.memory.record_answer(method, Some(&params), result);
                if !is_opened {
                    let line = initialized();
                    let method = Method::Initialized.name();
                    self.memory.record_notification(method, line.as_str());
                }
            }
            Purpose::Open | Purpose::Discover | Purpose::LateDiscover | Purpose::Restore => {}
        }
    }

    /// A server that starts slowly named its era after the host had gone on to the older handshake, which it will
    /// refuse. True if it speaks the modern one.
    pub(super) fn late_era(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        result: Option<&str>,
    ) -> bool {
        if self.memory.has_session() || !result.is_some_and(speaks_modern) {
            return false;
        }
        self.house_answer(cx, generation, Purpose::Discover, result);
        if let Some(server) = self.incarnations.get_mut(&generation) {
            let opens = |awaited: &Awaited| {
                matches!(
                    awaited,
                    Awaited::Script {
                        purpose: Purpose::Open,
                        ..
                    }
                )
            };
            server.awaited.retain(|_, awaited| !opens(awaited));
        }
        true
    }

    /// A caller's line as this server must get it: modern servers want the caller's `_meta` in each request.
    pub(super) fn house_line(&self, line: &Json) -> Json {
        let (Client::House(_), Some(own)) = (&self.client, self.memory.own_meta()) else {
            return line.clone();
        };
        let params = scan::member(line.as_str(), "params").unwrap_or("{}");
        let given = scan::member(params, "_meta").unwrap_or("{}");
        if scan::member(given, meta::PROTOCOL_VERSION).is_some() {
            return line.clone();
        }
        let meta = ObjectWriter::with_capacity(own.len() + given.len())
            .members_of(own.as_str())
            .members_of(given)
            .finish();
        let params = edit::with_member(params, "_meta", &meta);
        Json::from_scanned(&edit::with_member(line.as_str(), "params", &params))
    }
}

/// Progress of a call in a server's words. Shares of a unit become thousandths.
pub(super) fn progress_of(params: &str) -> Progress {
    let number = |key| scan::member(params, key).and_then(|raw| raw.parse::<f64>().ok());
    let (done, total) = (number("progress"), number("total"));
    let whole = |number: &Option<f64>| number.is_none_or(|number| number.fract() == 0.0);
    let scale = match whole(&done) && whole(&total) {
        true => 1.0,
        false => 1000.0,
    };
    let counted = |number: f64| (number * scale) as u64;
    let message = scan::member(params, "message").and_then(scan::unquote);
    Progress {
        message: message.unwrap_or_default().into_owned(),
        done: done.map(counted),
        total: total.map(counted),
        ..Progress::default()
    }
}

/// The answer to a question of a server that no client can answer.
pub(super) fn answer_question(id: &RequestId, method: &str) -> String {
    if method == Method::Ping.name() {
        answer_to(id).raw("result", "{}").finish()
    } else {
        refuse_question(id, UNKNOWN_METHOD, "the client offers nothing")
    }
}

/// The answer to a question of a server that does not reach the client.
pub(super) fn refuse_question(id: &RequestId, code: i64, message: &str) -> String {
    let error = json!({ "code": code, "message": message });
    answer_to(id).value("error", &error).finish()
}

fn answer_to(id: &RequestId) -> ObjectWriter {
    ObjectWriter::with_capacity(128)
        .string("jsonrpc", "2.0")
        .raw("id", id.as_raw())
}

fn about(version: &str) -> serde_json::Value {
    json!({ "name": "mainstay", "version": version })
}

fn modern_meta(version: &str) -> Json {
    Json::from(json!({
        meta::PROTOCOL_VERSION: MODERN_VERSION,
        meta::CLIENT_INFO: about(version),
        meta::CLIENT_CAPABILITIES: {},
    }))
}

fn legacy_params(version: &str) -> String {
    let newest = LEGACY_VERSIONS.iter().max();
    json!({ "protocolVersion": newest, "capabilities": {}, "clientInfo": about(version) })
        .to_string()
}

pub(super) fn initialized() -> Json {
    Json::from_scanned(&encode::notification(Method::Initialized, None))
}

/// True if a discovery names the modern version, or no version at all.
pub(super) fn speaks_modern(result: &str) -> bool {
    let versions = scan::member(result, "supportedVersions");
    let modern = format!("{MODERN_VERSION:?}");
    versions.is_none_or(|versions| edit::items(versions).contains(&modern.as_str()))
}

/// The server's name and version: legacy servers write them in the result, modern ones in `_meta`.
fn server_info(result: &str) -> Option<(String, String)> {
    let modern = || scan::member(scan::member(result, "_meta")?, meta::SERVER_INFO);
    let info = scan::member(result, "serverInfo").or_else(modern)?;
    let text = |key| {
        let raw = scan::member(info, key)?;
        scan::unquote(raw).map(std::borrow::Cow::into_owned)
    };
    Some((text("name")?, text("version")?))
}

fn name_of(tool: &str) -> Option<String> {
    let name = scan::unquote(scan::member(tool, "name")?)?;
    Some(name.into_owned())
}

/// A definition with the identifier by which envelopes name the tool.
pub(super) fn entry(tool: &str) -> String {
    let mut entry = ObjectWriter::with_capacity(tool.len() + 64);
    if let Some(name) = name_of(tool).filter(|name| is_tool_name(name)) {
        entry = entry.string("toolId", &format!("{TOOL_ID_PREFIX}{name}"));
    }
    entry.members_of(tool).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discovery_shows_the_era() {
        assert!(speaks_modern(
            r#"{"supportedVersions":["2025-06-18","2026-07-28"]}"#
        ));
        assert!(speaks_modern("{}"));
        assert!(!speaks_modern(r#"{"supportedVersions":["2027-01-01"]}"#));
    }

    #[test]
    fn progress_keeps_its_share_whatever_the_server_counts() {
        let counted = |params: &str| {
            let progress = progress_of(params);
            (progress.done, progress.total, progress.message)
        };
        let whole = counted(r#"{"progress":3,"total":4.0,"message":"a\nb"}"#);
        assert_eq!(whole, (Some(3), Some(4), "a\nb".to_owned()));
        let share = counted(r#"{"progress":0.25,"total":1}"#);
        assert_eq!(share, (Some(250), Some(1000), String::new()));
        assert_eq!(counted(r#"{"progress":-1}"#).0, Some(0));
        assert_eq!(counted(r#"{"progress":"x"}"#).0, None);
    }

    #[test]
    fn a_server_says_who_it_is_in_either_place() {
        let wanted = Some(("a".to_owned(), "1".to_owned()));
        let legacy = r#"{"serverInfo":{"name":"a","version":"1"}}"#;
        assert_eq!(server_info(legacy), wanted);
        let modern =
            r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"a","version":"1"}}}"#;
        assert_eq!(server_info(modern), wanted);
        assert_eq!(server_info("{}"), None);
    }

    #[test]
    fn questions_are_refused_and_pings_answered() {
        let id = RequestId::parse("7").unwrap();
        let pong = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        assert_eq!(answer_question(&id, "ping"), pong);
        assert!(answer_question(&id, "roots/list").contains("-32601"));
    }
}
