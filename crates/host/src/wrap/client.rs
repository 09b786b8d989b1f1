//! What the client says, and what becomes of it.

use std::borrow::Cow;

use mainstay_contract::dialect::{
    Cancel, CancelKind, Dialect, EchoId, Inbound, Op, Relayed, RelayedRequest, decode_oversize,
    relay,
};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, Generation, RequestId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::outcome::Problem;
use mainstay_contract::replay::Replay;
use mainstay_contract::rpc;
use mainstay_contract::scan;
use mainstay_contract::trace::TraceContext;
use mainstay_kernel::call::{Late, NewRequest, Task, UNTIMED_MS, Work};
use mainstay_kernel::session::Pace;

use super::asks::Asks;
use super::engine::{Engine, SLOT};
use super::remembered::{Discovered, Remembered};
use super::{edit, output, probe};
use crate::log::Level;
use crate::system_tools;

/// Notices that are kept for the next server, and the longest of them.
const LATER: usize = 64;
const LATER_BYTES: usize = 64 * 1024;
/// What requests of our own take over from the client's `_meta`.
const OWN_META: [&str; 3] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/clientInfo",
];
/// Milliseconds that a call waits for the list of tools.
const HELD_MS: u64 = 10_000;
/// Longest progress token that is followed.
const TOKEN_BYTES: usize = 1024;
/// Milliseconds after which a server that does not answer `server/discover` has never heard of it.
const DISCOVER_MS: u64 = 8000;

/// A request in flight, as far as it is known.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) id: RequestId,
    pub(super) method: String,
    pub(super) tool: Option<String>,
    /// The line as the client wrote it.
    pub(super) line: Json,
    pub(super) token: Option<String>,
    /// The client's own line that cancels it.
    pub(super) cancel: Option<Json>,
    /// The server for whose tools it was found to be in order.
    pub(super) admitted: Option<Generation>,
    /// Whether its tool was known then.
    pub(super) listed: bool,
}

impl Passed {
    /// Its parameters, as JSON text.
    pub(super) fn params(&self) -> Option<&str> {
        scan::member(self.line.as_str(), "params")
    }

    pub(super) fn param(&self, key: &str) -> Option<&str> {
        scan::member(self.params()?, key)
    }
}

impl Engine {
    pub(super) fn client_line(&mut self, line: &[u8]) {
        self.worked();
        let relayed = relay(line, self.kernel.limits().json_depth);
        // What was scanned is text.
        let text = std::str::from_utf8(line).unwrap_or_default();
        match relayed {
            Ok(Relayed::Request(request)) => self.request(text, &request),
            Ok(Relayed::Notice { method, params }) => self.notice(text, &method, params),
            Ok(Relayed::Answer { id, .. }) => self.client_answer(text, &id),
            Err(refused) => self.refuse(refused.id, refused.form, refused.problem, line.len()),
        }
        self.pace();
    }

    pub(super) fn client_oversize(&mut self, head: &[u8]) {
        let limit = self.kernel.limits().request_frame_bytes;
        if let Inbound::Refused(refused) = decode_oversize(head, Some(Dialect::Legacy), limit) {
            self.refuse(refused.id, refused.form, refused.problem, limit);
        }
    }

    fn refuse(
        &mut self,
        id: EchoId,
        form: mainstay_contract::dialect::Form,
        problem: Problem,
        bytes: usize,
    ) {
        let request = NewRequest {
            id,
            form,
            method: "invalid".to_owned(),
            tool: None,
            progress_token: None,
            input_bytes: bytes,
            trace: None,
            work: Work::Refused(problem),
        };
        let now = self.clock.now();
        self.kernel.handle_request(now, self.session, request);
    }

    fn request(&mut self, text: &str, request: &RelayedRequest<'_>) {
        if let Some(problem) = Self::objection(text, request) {
            let id = EchoId::Known(request.id.clone());
            return self.refuse(id, request.form(), problem, text.len());
        }
        let tool = (request.method == "tools/call")
            .then(|| request.param("name").and_then(scan::unquote))
            .flatten()
            .map(Cow::into_owned);
        let listed = tool
            .as_deref()
            .is_some_and(|tool| self.tools.get(tool).is_some());
        let passed = Passed {
            admitted: self.met,
            listed,
            id: request.id.clone(),
            method: request.method.clone().into_owned(),
            tool,
            line: Json::from_scanned(text),
            token: request
                .meta("progressToken")
                .filter(|token| token.len() <= TOKEN_BYTES)
                .map(str::to_owned),
            cancel: None,
        };
        if request.dialect == Dialect::Modern
            && let Some(meta) = request.param("_meta")
        {
            self.meta = Some(Json::from_scanned(&edit::only(meta, &OWN_META)));
        }
        let known = passed
            .tool
            .as_deref()
            .is_none_or(|tool| self.tools.knows(tool));
        let work = if known || self.route_own(&passed).is_some() {
            self.route(&passed)
        } else {
            Work::Unrouted(Op::CallTool {
                name: passed.tool.clone().unwrap_or_default(),
                arguments: Json::empty_object(),
            })
        };
        let new = NewRequest {
            id: EchoId::Known(passed.id.clone()),
            form: request.form(),
            method: counted(&passed.method).to_owned(),
            // Only names that exist are counted: clients can make up any number of them.
            tool: passed
                .tool
                .clone()
                .filter(|tool| self.tools.get(tool).is_some()),
            progress_token: None,
            input_bytes: text.len(),
            trace: self.common.recorder.span(trace_of(request)),
            work,
        };
        let now = self.clock.now();
        if let Some(call) = self.kernel.handle_request(now, self.session, new) {
            self.passed.insert(call, passed);
            self.last_call = call;
        }
    }

    /// Why a request is not even looked at.
    fn objection(text: &str, request: &RelayedRequest<'_>) -> Option<Problem> {
        // Readers differ in what they make of two members that are called almost the same; what
        // we decide about must be what the server reads.
        let params = request.params.unwrap_or("{}");
        let twice = twofold(text, &["id", "method", "params"])
            || (request.method == "tools/call" && twofold(params, &["name", "arguments"]));
        if twice {
            let said = "the message has a member twice, in one spelling or another";
            return Some(Problem::new(ErrorKind::InvalidMessage, said));
        }
        None
    }

    /// Who answers a request, and under which contract.
    pub(super) fn route(&mut self, passed: &Passed) -> Work {
        if let Some(own) = self.route_own(passed) {
            return own;
        }
        let limits = self.kernel.limits();
        let timeout_ms = self.common.rules.timeout_ms;
        let mut timeout_ms = timeout_ms.unwrap_or(limits.call_timeout_ms);
        let mut late = Late::Ask;
        let mut replay = replay_of(&passed.method);
        let mut probe = None;
        match passed.method.as_str() {
            // One that does not even open a session is of no use.
            "initialize" => (timeout_ms, late) = (limits.start_timeout_ms, Late::Open),
            "server/discover" => {
                let known = self.common.remembered.as_ref();
                if known.and_then(Remembered::answer) == Some(&Discovered::Legacy) {
                    return Work::Refused(unknown_method(&passed.method));
                }
                // A server that is still starting may not have read it.
                (timeout_ms, late) = (timeout_ms.min(DISCOVER_MS), Late::Leave);
            }
            "subscriptions/listen" => timeout_ms = UNTIMED_MS,
            _ => {}
        }
        if let Some(name) = &passed.tool {
            let ends;
            (timeout_ms, ends) = self.tools.patience(name, timeout_ms);
            late = if ends { Late::End } else { Late::Ask };
            match self.tools.get(name) {
                Some(tool) => {
                    if let Some(problem) = tool.refusal(name, passed.param("arguments")) {
                        return Work::Refused(problem);
                    }
                    replay = tool.replay;
                }
                None => {
                    if let Some(problem) = self.tools.stranger(name).problem(name) {
                        return Work::Refused(problem);
                    }
                    replay = self.tools.told_replay(name).unwrap_or(Replay::NeverReplay);
                }
            }
            let rules = self.common.rules.tools.get(name);
            if let Some(rule) = rules.and_then(|rules| rules.probe.clone()) {
                let id = self.own_id();
                let arguments = passed.param("arguments");
                probe = Some(probe::line(&rule, &id, arguments, passed.param("_meta")));
            }
        }
        Work::Worker(Task {
            slot: SLOT,
            op: rpc::Op::Forward(rpc::Forward {
                line: passed.line.clone(),
                probe,
            }),
            replay,
            timeout_ms,
            late,
        })
    }

    /// What the host answers itself: its own tools, and outputs that it keeps.
    fn route_own(&self, passed: &Passed) -> Option<Work> {
        let own_tool = |name: &str| name == system_tools::HEALTH || name == system_tools::TELEMETRY;
        let is_own = match passed.method.as_str() {
            "tools/call" => {
                let tool = passed.tool.as_deref();
                self.common.rules.system_tools && tool.is_some_and(own_tool)
            }
            "resources/read" => {
                let uri = passed.param("uri").and_then(scan::unquote);
                self.common.rules.max_output.is_some()
                    && uri.is_some_and(|uri| uri.starts_with(output::PREFIX))
            }
            "resources/list" | "resources/templates/list" => self.lends_resources,
            "server/discover" => {
                let known = self.common.remembered.as_ref();
                match known.and_then(Remembered::answer) {
                    Some(Discovered::Modern(result)) => is_served(result, passed),
                    _ => false,
                }
            }
            _ => false,
        };
        is_own.then_some(Work::Host(Op::Ping {}))
    }

    /// A call of a tool that is not known yet waits for the list.
    pub(super) fn hold(&mut self, call: CallId) {
        let until = self.clock.now().plus_ms(HELD_MS);
        self.held.push((call, until));
        self.want_tools();
    }

    /// The tools are known, or cannot be: calls that waited for that go on.
    pub(super) fn release(&mut self) {
        let now = self.clock.now();
        for (call, _) in std::mem::take(&mut self.held) {
            let Some(mut passed) = self.passed.remove(&call) else {
                continue;
            };
            let work = self.route(&passed);
            let tool = passed
                .tool
                .clone()
                .filter(|tool| self.tools.get(tool).is_some());
            (passed.admitted, passed.listed) = (self.met, tool.is_some());
            self.passed.insert(call, passed);
            self.kernel.handle_routed(now, call, tool, work);
        }
    }

    fn notice(&mut self, text: &str, method: &str, params: Option<&str>) {
        let target = |key: &str| {
            let target = params.and_then(|params| scan::member(params, key));
            target.and_then(|target| RequestId::parse(target).ok())
        };
        let cancel = match method {
            "notifications/cancelled" => target("requestId").map(|id| (id, CancelKind::Silent)),
            "$/cancelRequest" => target("id").map(|id| (id, CancelKind::Answered)),
            _ => None,
        };
        if let Some((target, kind)) = cancel {
            let cancel = Cancel { target, kind };
            if let Some(call) = self.kernel.find(self.session, &cancel.target) {
                let own_words = kind == CancelKind::Silent;
                if let Some(passed) = self.passed.get_mut(&call).filter(|_| own_words) {
                    passed.cancel = Some(Json::from_scanned(text));
                }
                self.kernel
                    .handle_cancel(self.clock.now(), self.session, &cancel);
                return;
            }
            if kind == CancelKind::Answered {
                return;
            }
        }
        if counted(method) != "other" {
            let line = format!("mcp:warning reason=request_without_id method={method}");
            return self.common.log.say(Level::Warn, line);
        }
        if self.told.noticed(method, text) {
            let serving = self.serving();
            for (generation, server) in &mut self.servers {
                if Some(*generation) != serving && !self.kernel.is_fenced(*generation) {
                    server.also_say(text);
                }
            }
        }
        match self
            .serving()
            .and_then(|serving| self.servers.get(&serving))
        {
            Some(server) => server.handle.say(text),
            // The script of a successor has the end of the handshake already.
            None if self.told.has_session() && method == "notifications/initialized" => {}
            None => {
                if self.later.len() >= LATER {
                    self.later.pop_front();
                }
                if text.len() <= LATER_BYTES {
                    let line = Json::from_scanned(text);
                    self.later.push_back((self.last_call, line));
                }
            }
        }
    }

    /// The client answers what a server asked.
    fn client_answer(&mut self, text: &str, id: &RequestId) {
        let Some((by, asked)) = self.asks.answered(id) else {
            return;
        };
        if let Some(server) = self.servers.get(&by) {
            if asked == *id {
                server.handle.say(text);
            } else {
                server
                    .handle
                    .say(&edit::with_member(text, "id", asked.as_raw()));
            }
        }
        let asking = self.asks.pauses();
        self.kernel.handle_asking(self.clock.now(), asking);
    }

    pub(super) fn input_ended(&mut self) {
        self.cancel_endless();
        // Nobody answers any more.
        self.asks = Asks::default();
        self.kernel.handle_asking(self.clock.now(), false);
        self.kernel.handle_input_end(self.session);
    }

    /// What never ends by itself ends with its client.
    pub(super) fn cancel_endless(&mut self) {
        let endless: Vec<RequestId> = self
            .passed
            .values()
            .filter(|passed| passed.method == "subscriptions/listen")
            .map(|passed| passed.id.clone())
            .collect();
        let now = self.clock.now();
        for target in endless {
            let kind = CancelKind::Silent;
            self.kernel
                .handle_cancel(now, self.session, &Cancel { target, kind });
        }
    }

    pub(super) fn client_gone(&mut self) {
        if self.client.take().is_some() {
            let now = self.clock.now();
            self.kernel.handle_gone(now, self.session);
            self.kernel.handle_stop(now);
        }
    }

    /// A client that does not take what it is sent is not read, and neither is its server.
    pub(super) fn pace(&mut self) {
        let Some(client) = &self.client else { return };
        let behind = client.outbox.watch_behind();
        let pace = if behind { Pace::Behind } else { Pace::Even };
        let mut stuck = false;
        for server in self.servers.values() {
            let server_behind = server.handle.watch_behind();
            server.handle.set_readable(!behind && !server_behind);
            stuck |= server_behind;
        }
        let open = !behind && !stuck && self.kernel.wants_input(self.session);
        if client.gate.is_closed() == open {
            client.gate.set_open(open);
        }
        self.kernel
            .handle_pace(self.clock.now(), self.session, pace);
    }
}

/// The line that asks a server to stop a request, in our words.
pub(super) fn cancel_line(id: &RequestId, reason: &str) -> String {
    let params = ObjectWriter::with_capacity(64)
        .raw("requestId", id.as_raw())
        .string("reason", reason)
        .finish();
    ObjectWriter::with_capacity(params.len() + 80)
        .string("jsonrpc", "2.0")
        .string("method", "notifications/cancelled")
        .raw("params", &params)
        .finish()
}

/// Whether an object has one of these members twice, whatever the case of its letters.
fn twofold(object: &str, keys: &[&str]) -> bool {
    keys.iter().any(|key| {
        let same = scan::members(object).filter(|(name, _)| name.eq_ignore_ascii_case(key));
        same.count() > 1
    })
}

/// Whether a remembered discovery names the version that a request is written in; only the server
/// itself can say what it thinks of another.
fn is_served(result: &Json, passed: &Passed) -> bool {
    let versions = scan::member(result.as_str(), "supportedVersions").unwrap_or("[]");
    let meta = passed.param("_meta").unwrap_or("{}");
    let version = scan::member(meta, "io.modelcontextprotocol/protocolVersion");
    version.is_some_and(|version| edit::items(versions).contains(&version))
}

/// The span of the client that asks.
fn trace_of(request: &RelayedRequest<'_>) -> Option<TraceContext> {
    let raw = request.meta("traceparent").and_then(scan::unquote)?;
    TraceContext::parse(&raw)
}

/// What a lost server means for a request that is no tool call.
fn replay_of(method: &str) -> Replay {
    let reads = matches!(
        method,
        "initialize"
            | "ping"
            | "server/discover"
            | "completion/complete"
            | "logging/setLevel"
            | "prompts/get"
            | "resources/read"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "subscriptions/listen"
            | "tasks/get"
            | "tasks/result"
    ) || method.ends_with("/list");
    if reads {
        Replay::Convergent
    } else {
        Replay::NeverReplay
    }
}

/// The method in telemetry: a closed set, since clients can make up any number of them.
fn counted(method: &str) -> &str {
    let known = matches!(
        method,
        "initialize"
            | "ping"
            | "server/discover"
            | "tools/list"
            | "tools/call"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "prompts/list"
            | "prompts/get"
            | "completion/complete"
            | "logging/setLevel"
            | "subscriptions/listen"
    );
    if known { method } else { "other" }
}

/// The problem of a request that a server never understood.
pub(super) fn unknown_method(method: &str) -> Problem {
    Problem::new(
        ErrorKind::UnknownMethod,
        format!("the method {method} is not offered"),
    )
}
