//! What servers do and say, and what becomes of it.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use mainstay_contract::dialect::{EchoId, Refused, Relayed, relay};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation, RequestId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::outcome::Problem;
use mainstay_contract::render;
use mainstay_contract::rpc::{self, Answer};
use mainstay_contract::scan;
use mainstay_contract::telemetry::Event as Recorded;
use mainstay_kernel::action::Manner;
use mainstay_kernel::time::Time;

use super::activity::Looks;
use super::client::cancel_line;
use super::edit;
use super::engine::{Engine, SLOT};
use super::lists::{Kind, Seen};
use super::successor::Catalog;
use super::told::Step;
use crate::drivers::{self, ServerHandle, What, WorkerEvent};
use crate::log::Level;

/// Calls that were given up and whose answers are still recognised.
const GIVEN_UP: usize = 1024;

/// One incarnation of the server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) handle: ServerHandle,
    /// Number of its process, and how its tree is killed.
    pub(super) process: Option<(u32, &'static str)>,
    /// What it must still be told before it gets requests.
    pub(super) script: VecDeque<Step>,
    /// Whose answers are awaited, by the id that was sent.
    pub(super) awaited: BTreeMap<RequestId, Awaited>,
    /// Ids of calls that were given up, oldest first; their answers may never come.
    given_up: VecDeque<RequestId>,
    /// It took too much memory and is being replaced.
    pub(super) outgrown: bool,
    /// How far it is from its first answer.
    pub(super) start: Start,
    /// When it was silent.
    pub(super) looks: Looks,
    /// Its tools, read ahead; gone once it has taken over or they have changed.
    pub(super) catalog: Option<Catalog>,
}

/// How far a server is from its first answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It was asked nothing yet.
    Unasked,
    /// It was asked something then. Once it is to open a session only an answer counts, before
    /// that whatever it says.
    Asked {
        since: Time,
        opening: bool,
    },
    Over,
}

impl Start {
    /// It is asked something.
    fn asked(self, now: Time, method: &str) -> Self {
        let opening = method == "initialize";
        match self {
            // One that is still starting, or never heard of it, may leave it unanswered.
            Self::Unasked if method == "server/discover" => self,
            Self::Unasked => Self::Asked {
                since: now,
                opening,
            },
            Self::Asked {
                since,
                opening: was,
            } => Self::Asked {
                since,
                opening: was || opening,
            },
            Self::Over => Self::Over,
        }
    }

    /// It says something.
    const fn heard(self) -> Self {
        match self {
            Self::Asked { opening: true, .. } => self,
            Self::Asked { .. } | Self::Over => Self::Over,
            Self::Unasked => Self::Unasked,
        }
    }

    fn until(self, patience_ms: u64) -> Option<Time> {
        match self {
            Self::Asked { since, .. } => Some(since.plus_ms(patience_ms)),
            Self::Unasked | Self::Over => None,
        }
    }
}

/// What an answer of the server means.
#[derive(Debug)]
pub(super) enum Awaited {
    Call(CallId),
    /// The next step of the script may follow.
    Script {
        vital: bool,
        until: Time,
    },
    Ping,
    /// A page of its tools, before it is ready.
    Catalog {
        cursor: Option<String>,
        catalog: Catalog,
        until: Time,
    },
    List {
        /// Of the knowledge about tools, when it was begun.
        epoch: u64,
        kind: Kind,
        cursor: Option<String>,
        seen: Seen,
        until: Time,
    },
}

impl Server {
    pub(super) fn pid(&self) -> u32 {
        self.process.map_or(0, |(pid, _)| pid)
    }

    /// When the first of our own requests is late.
    pub(super) fn own_deadline(&self, start_ms: u64) -> Option<Time> {
        let until = |awaited: &Awaited| match awaited {
            Awaited::Script { until, .. }
            | Awaited::Catalog { until, .. }
            | Awaited::List { until, .. } => Some(*until),
            Awaited::Call(_) | Awaited::Ping => None,
        };
        let awaited = self.awaited.values().filter_map(until);
        awaited.chain(self.start.until(start_ms)).min()
    }

    /// Whether it has answered nothing for as long as it may take to start.
    pub(super) fn is_never_ready(&self, now: Time, start_ms: u64) -> bool {
        self.start.until(start_ms).is_some_and(|until| until <= now)
    }

    /// Nobody waits for the answer any more.
    pub(super) fn given_up(&mut self, call: CallId) {
        if let Some(id) = self.wire_id(call).cloned() {
            self.given_up.push_back(id);
        }
        if self.given_up.len() > GIVEN_UP
            && let Some(oldest) = self.given_up.pop_front()
        {
            self.awaited.remove(&oldest);
        }
    }

    /// The id under which a call was sent.
    fn wire_id(&self, call: CallId) -> Option<&RequestId> {
        let is_it = |awaited: &Awaited| matches!(awaited, Awaited::Call(sent) if *sent == call);
        let mut found = self.awaited.iter().filter(|(_, awaited)| is_it(awaited));
        found.next().map(|(id, _)| id)
    }

    /// Says a line after what it must still be told.
    pub(super) fn also_say(&mut self, line: &str) {
        if self.script.is_empty() {
            self.handle.say(line);
        } else {
            self.script.push_back(Step::Say(Json::from_scanned(line)));
        }
    }

    /// Whether it was sent a call that it has not answered.
    pub(super) fn has_calls(&self) -> bool {
        let is_call = |awaited: &Awaited| matches!(awaited, Awaited::Call(_));
        self.awaited.values().any(is_call)
    }

    /// The only call that it works on.
    fn only_call(&self) -> Option<CallId> {
        let mut calls = self.awaited.values().filter_map(|awaited| match awaited {
            Awaited::Call(call) => Some(*call),
            _ => None,
        });
        calls.next().filter(|_| calls.next().is_none())
    }

    pub(super) fn lists(&self, wanted: Kind) -> bool {
        self.awaited
            .values()
            .any(|awaited| matches!(awaited, Awaited::List { kind, .. } if *kind == wanted))
    }
}

impl Engine {
    pub(super) fn spawn(&mut self, generation: Generation) {
        let common = &self.common;
        let limits = self.kernel.limits();
        let events = self.events.clone();
        let log = &common.log;
        match drivers::start_server(
            &common.shim,
            &common.command,
            generation,
            limits,
            events,
            log,
        ) {
            Ok(handle) => {
                let told = std::mem::take(&mut self.told);
                let script = told.script(|| self.own_id());
                self.told = told;
                let server = Server {
                    handle,
                    process: None,
                    script: script.into(),
                    awaited: BTreeMap::new(),
                    given_up: VecDeque::new(),
                    outgrown: false,
                    start: Start::Unasked,
                    looks: Looks::default(),
                    catalog: None,
                };
                self.servers.insert(generation, server);
            }
            Err(error) => {
                let gone = common.command.cwd.as_ref().filter(|cwd| !cwd.is_dir());
                let detail = match gone {
                    Some(cwd) => format!("its cwd {} is no folder", cwd.display()),
                    None => format!("cannot start the server's shim: {error}"),
                };
                let fault = Fault::new(ErrorKind::WorkerUnavailable, detail).of(generation);
                self.lose(generation, &fault, &[]);
                self.kernel.handle_reaped(self.clock.now(), generation);
            }
        }
    }

    pub(super) fn worker(&mut self, WorkerEvent { generation, what }: WorkerEvent) {
        let now = self.clock.now();
        match what {
            What::Up { pid, tree_kill } => self.up(generation, pid, tree_kill),
            What::Line(line) => self.server_line(generation, &line),
            What::Oversize(head) => self.server_oversize(generation, &head),
            What::Lost(fault) => {
                if let Some(server) = self.servers.get(&generation) {
                    let unsent = server.handle.seal();
                    self.lose(generation, &fault, &unsent);
                }
            }
            What::Reaped => {
                if let Some(server) = self.servers.remove(&generation) {
                    let (name, pid) = (&self.common.name, server.pid());
                    self.common
                        .recorder
                        .worker(Recorded::WorkerReaped, name, generation, pid);
                }
                self.kernel.handle_reaped(now, generation);
            }
            What::Stuck(fault) => {
                let line = format!("mcp:warning reason=kill_failed {fault}");
                self.common.log.line(&line);
                self.kernel.handle_kill_failed(generation, fault);
            }
            What::Unkillable if self.kernel.is_stopping() => {
                self.servers.remove(&generation);
                self.kernel.handle_reaped(now, generation);
            }
            // What only packs say.
            What::Unkillable
            | What::Ready(_)
            | What::Progress { .. }
            | What::Answer { .. }
            | What::Pong
            | What::CaughtUp => {}
        }
    }

    fn up(&mut self, generation: Generation, pid: u32, tree_kill: &'static str) {
        let Some(server) = self.servers.get_mut(&generation) else {
            return;
        };
        server.process = Some((pid, tree_kill));
        let name = &self.common.name;
        let said = format!(
            "server started pack={name} generation={generation} pid={pid} tree_kill={tree_kill}"
        );
        self.common.log.say(Level::Debug, said);
        self.common
            .recorder
            .worker(Recorded::WorkerStarted, name, generation, pid);
        self.tell_on(generation);
    }
    pub(super) fn lose(&mut self, generation: Generation, fault: &Fault, unsent: &[CallId]) {
        for id in self.asks.lost(generation) {
            self.tell_client(&cancel_line(&id, "the server that asked was lost"));
        }
        if let Some(server) = self.servers.get_mut(&generation) {
            server.awaited.clear();
            server.script.clear();
            server.start = Start::Over;
        }
        if self.served_by == Some(generation) {
            self.tools.doubt();
        }
        let now = self.clock.now();
        let asking = self.asks.pauses();
        self.kernel.handle_asking(now, asking);
        self.kernel.handle_lost(now, generation, fault, unsent);
        if self.kernel.is_closed(now, SLOT) {
            self.release();
        }
    }

    /// A server that is of no use is ended with its tree, and its calls are judged like those of one
    /// that died. Of what was not handed over nothing reaches it any more.
    pub(super) fn give_up_on(&mut self, generation: Generation, fault: Fault) {
        let Some(server) = self.servers.get(&generation) else {
            return;
        };
        let fault = server.handle.lament(fault.of(generation));
        let unsent = server.handle.seal();
        server.handle.stop(Manner::Terminate);
        self.lose(generation, &fault, &unsent);
    }

    /// Says what the client said before a call, or all that it said.
    pub(super) fn say_later(&mut self, generation: Generation, before: Option<CallId>) {
        let Some(server) = self.servers.get(&generation) else {
            return;
        };
        while let Some((after, _)) = self.later.front() {
            if before.is_some_and(|before| *after >= before) {
                return;
            }
            if let Some((_, line)) = self.later.pop_front() {
                server.handle.say(line.as_str());
            }
        }
    }

    pub(super) fn send(&mut self, generation: Generation, call: &rpc::Call) {
        let rpc::Op::Forward(forward) = &call.op else {
            return;
        };
        if self.serving() == Some(generation) {
            self.meet(generation);
        }
        if self.refuses(generation, call.call) {
            return;
        }
        self.say_later(generation, Some(call.call));
        let id = scan::member(forward.line.as_str(), "id").and_then(|id| RequestId::parse(id).ok());
        let token = self
            .passed
            .get(&call.call)
            .and_then(|passed| passed.token.as_ref());
        if let Some(token) = token {
            // What was given up under this token is over; this call's progress counts.
            self.silenced.retain(|silenced| silenced != token);
        }
        let Some(id) = id else { return };
        let known = self.servers.get(&generation);
        // The answer to a call that was given up under the same id may still come: it must not be
        // taken for this one's.
        let taken = known.is_some_and(|server| server.awaited.contains_key(&id));
        let (id, line) = if taken {
            let own = self.own_id();
            let line = edit::with_member(forward.line.as_str(), "id", own.as_raw());
            (own, Json::from_scanned(&line))
        } else {
            (id, forward.line.clone())
        };
        let method = self.passed.get(&call.call);
        let method = method.map_or("", |passed| passed.method.as_str());
        if let Some(server) = self.servers.get_mut(&generation) {
            server.start = server.start.asked(self.clock.now(), method);
            server.awaited.insert(id, Awaited::Call(call.call));
            server.handle.send(line.as_str(), call.call);
        }
    }

    /// Asks the server to stop a call, in the client's own words where there are any.
    pub(super) fn cancel(&mut self, generation: Generation, call: CallId) {
        let (Some(server), Some(passed)) =
            (self.servers.get(&generation), self.passed.get_mut(&call))
        else {
            return;
        };
        let wire = server.wire_id(call).unwrap_or(&passed.id);
        match passed.cancel.take() {
            Some(line) if *wire == passed.id => server.handle.say(line.as_str()),
            // MCP forbids it for this one.
            None if passed.method == "initialize" => {}
            _ => server
                .handle
                .say(&cancel_line(wire, "given up by the host")),
        }
    }
    fn server_line(&mut self, generation: Generation, line: &[u8]) {
        if !self.servers.contains_key(&generation) || self.kernel.is_fenced(generation) {
            return;
        }
        let relayed = relay(line, self.kernel.limits().json_depth);
        let text = std::str::from_utf8(line).unwrap_or_default();
        self.kernel.handle_pong(self.clock.now(), generation);
        if let (Ok(said), Some(server)) = (&relayed, self.servers.get_mut(&generation)) {
            server.start = match said {
                Relayed::Answer { .. } => Start::Over,
                Relayed::Request(_) | Relayed::Notice { .. } => server.start.heard(),
            };
        }
        match relayed {
            Ok(Relayed::Answer { id, result, .. }) => {
                self.kernel.handle_proof(generation);
                self.server_answer(generation, text, &id, result);
            }
            Ok(Relayed::Request(request)) => {
                self.worked();
                self.server_asks(generation, text, &request.id, &request.method);
            }
            // What a standby says was said by the one that serves.
            Ok(Relayed::Notice { method, .. }) if self.kernel.is_spare(SLOT, generation) => {
                if method == Kind::Tools.changed()
                    && let Some(server) = self.servers.get_mut(&generation)
                {
                    server.catalog = None;
                }
            }
            Ok(Relayed::Notice { method, params }) => {
                self.worked();
                self.server_notice(generation, text, &method, params);
            }
            Err(refused) => self.server_unreadable(generation, line, &refused),
        }
    }

    /// What is no message may still be the answer that somebody waits for.
    fn server_unreadable(&mut self, generation: Generation, line: &[u8], refused: &Refused) {
        let server = self.servers.get_mut(&generation);
        let awaited = match (&refused.id, server) {
            (EchoId::Known(id), Some(server)) => server.awaited.remove(id),
            _ => None,
        };
        match awaited {
            Some(Awaited::Call(call)) => {
                let message = format!(
                    "the server's answer cannot be used: {}",
                    refused.problem.message
                );
                let problem = Problem::new(ErrorKind::WorkerProtocol, message);
                let now = self.clock.now();
                self.kernel
                    .handle_answer(now, generation, call, Answer::Failed(problem));
            }
            Some(other) => self.own_answer(generation, other, None),
            None => self.server_junk(line),
        }
    }

    /// Many servers print to their output what is no message: it is dropped, and said.
    fn server_junk(&mut self, line: &[u8]) {
        self.junk += 1;
        // The first ones, then ever fewer.
        if self.junk <= 3 || self.junk.is_power_of_two() {
            let shown = render::shorten(&String::from_utf8_lossy(line), 120);
            self.common.log.line(&format!(
                "mcp:warning reason=junk_on_stdout pack={} lines={} {shown}",
                self.common.name, self.junk
            ));
        }
    }

    fn server_oversize(&mut self, generation: Generation, head: &[u8]) {
        let id = scan::head_id(head)
            .id
            .and_then(|id| RequestId::parse(id).ok());
        let Some(server) = self.servers.get_mut(&generation) else {
            return;
        };
        let named = id.and_then(|id| server.awaited.remove(&id));
        // Many servers write the id last; of one call alone it is clear which is meant.
        let only = server.only_call().filter(|_| named.is_none());
        match named.or(only.map(Awaited::Call)) {
            Some(Awaited::Call(call)) => {
                let answer = Answer::Failed(Problem::of(ErrorKind::AnswerTooLarge));
                self.kernel
                    .handle_answer(self.clock.now(), generation, call, answer);
            }
            Some(other) => self.own_answer(generation, other, None),
            None => self.server_junk(head),
        }
    }

    fn server_answer(
        &mut self,
        generation: Generation,
        text: &str,
        id: &RequestId,
        result: Option<&str>,
    ) {
        let Some(server) = self.servers.get_mut(&generation) else {
            return;
        };
        let awaited = server.awaited.remove(id).or_else(|| {
            // Some servers give numbers back as text, or the other way round.
            let form = id.lookup_form();
            let is_same = |known: &&RequestId| {
                known.lookup_form() == form && !server.given_up.contains(*known)
            };
            let mut same = server.awaited.keys().filter(is_same);
            let only = same.next().filter(|_| same.next().is_none()).cloned();
            only.and_then(|only| server.awaited.remove(&only))
        });
        match awaited {
            Some(Awaited::Call(call)) => {
                self.worked();
                let asked = self.passed.get(&call).map(|passed| &passed.id);
                let text = match asked {
                    Some(asked) if asked != id && !self.kernel.is_probing(call) => {
                        Cow::Owned(edit::with_member(text, "id", asked.as_raw()))
                    }
                    _ => Cow::Borrowed(text),
                };
                let result = scan::member(&text, "result").filter(|_| result.is_some());
                let answer = self.called(call, &text, result, generation);
                self.kernel
                    .handle_answer(self.clock.now(), generation, call, answer);
            }
            Some(other) => self.own_answer(generation, other, result),
            // Nobody waits for it any more.
            None => {}
        }
    }

    /// The answer to a request of our own; `None` is a refusal.
    fn own_answer(&mut self, generation: Generation, awaited: Awaited, result: Option<&str>) {
        match awaited {
            Awaited::Script { vital, .. } => {
                if vital && result.is_none() {
                    let detail = "the server refused to open the session again";
                    return self.unfit(generation, detail);
                }
                self.tell_on(generation);
            }
            Awaited::Catalog {
                cursor, catalog, ..
            } => self.read_page(generation, cursor.as_deref(), catalog, result),
            Awaited::List {
                kind,
                cursor,
                seen,
                epoch,
                ..
            } => self.listed(generation, kind, cursor.as_deref(), seen, epoch, result),
            Awaited::Ping | Awaited::Call(_) => {}
        }
    }

    fn server_asks(&mut self, by: Generation, text: &str, id: &RequestId, method: &str) {
        match self.asks.ask(by, id.clone(), method) {
            Ok(shown) if shown == *id => self.tell_client(text),
            Ok(shown) => self.tell_client(&edit::with_member(text, "id", shown.as_raw())),
            Err(_) => {
                let error = ObjectWriter::with_capacity(64)
                    .raw("code", "-32603")
                    .string("message", "too many questions are open")
                    .finish();
                let refusal = ObjectWriter::with_capacity(128)
                    .string("jsonrpc", "2.0")
                    .raw("id", id.as_raw())
                    .raw("error", &error)
                    .finish();
                // One that does not even read gets no more to read.
                let server = self.servers.get(&by);
                if let Some(server) = server.filter(|server| !server.handle.is_behind()) {
                    server.handle.say(&refusal);
                }
                return;
            }
        }
        let asking = self.asks.pauses();
        self.kernel.handle_asking(self.clock.now(), asking);
        self.pace();
    }

    fn server_notice(
        &mut self,
        generation: Generation,
        text: &str,
        method: &str,
        params: Option<&str>,
    ) {
        let param = |key: &str| params.and_then(|params| scan::member(params, key));
        match method {
            "notifications/progress" => {
                let token = param("progressToken").unwrap_or_default();
                if self.silenced.iter().any(|silenced| silenced == token) {
                    return;
                }
                let call = self
                    .passed
                    .iter()
                    .find(|(_, passed)| passed.token.as_deref() == Some(token))
                    .map(|(call, _)| *call);
                if let Some(call) = call {
                    self.kernel
                        .handle_own_progress(self.clock.now(), generation, call);
                }
            }
            "notifications/cancelled" => {
                let id = param("requestId").and_then(|id| RequestId::parse(id).ok());
                if let Some(id) = id
                    && let Some(shown) = self.asks.withdrawn(generation, &id)
                {
                    let asking = self.asks.pauses();
                    self.kernel.handle_asking(self.clock.now(), asking);
                    if shown != id {
                        let changed = params
                            .map(|params| edit::with_member(params, "requestId", shown.as_raw()));
                        let line = edit::with_member(text, "params", &changed.unwrap_or_default());
                        return self.tell_client(&line);
                    }
                }
            }
            "notifications/tools/list_changed" => {
                self.tools.forget();
                self.comparing.remove(&Kind::Tools);
            }
            _ => {}
        }
        self.tell_client(text);
        self.pace();
    }
}
