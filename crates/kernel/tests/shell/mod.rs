//! A shell for tests: drives a [`Core`] in virtual time and carries out its actions at once.
//!
//! Workers and servers run here, too: a [`Server`] answers everything but tool calls by itself, and a
//! pack's worker announces two tools. Tool calls stay pending until the test answers them or ends their
//! worker. Every action is recorded with the time at which the core asked for it.

#![allow(clippy::needless_pass_by_value, reason = "tests write values in place")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use mainstay_contract::dialect::{Dialect, MODERN_VERSION, Op, Request, TASKS_VERSION, TaskWish};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation, RequestId, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::outcome::{Problem, Success, ToolReply};
use mainstay_contract::render::RenderMode;
use mainstay_contract::replay::Replay;
use mainstay_contract::rpc::{self, Answer, Ready};
use mainstay_contract::tool::{Annotations, Catalog, Pace, Rejections, ToolSpec};
use mainstay_kernel::core::action::{CoreAction, CoreEvent, WorkerNews};
use mainstay_kernel::server::{Rules, ServerConfig, ServerMemory};
use mainstay_kernel::time::Time;
use mainstay_kernel::{Core, CoreConfig, Lifetime, PackConfig};
use mainstay_schema::check::{Compiled, Definition, Subject, Verdict};
use serde_json::{Value, json};

mod seen;

/// Most events that one event of a test may lead to.
const BUSY: usize = 10_000;

/// A core with everything around it.
#[derive(Debug)]
pub struct Shell {
    pub core: Core,
    pub now: Time,
    /// Every action, with the time at which it was polled.
    pub did: Vec<(Time, CoreAction)>,
    pub workers: BTreeMap<Generation, Worker>,
    pub server: Server,
    /// The build of every pack that is started next.
    pub build: Build,
    /// The answer of packs to a probe, if they give one.
    pub probe: Option<Answer>,
    /// Checks get no verdict while this is set.
    pub keeps_checks: bool,
    /// The number of the event after which the core is saved and restored.
    pub restore_after: Option<usize>,
    /// The server and the session of each process of a wrapped server.
    pub homes: BTreeMap<Generation, (String, Option<SessionId>)>,
    handled: usize,
    events: VecDeque<CoreEvent>,
    nonce: u64,
}

/// The server that is wrapped: every process of it behaves like this.
#[derive(Clone, Debug)]
pub struct Server {
    pub is_modern: bool,
    /// It opens no sessions: it is a modern server, and only that.
    pub refuses_sessions: bool,
    pub tools: Vec<Value>,
    pub capabilities: Value,
    /// The answer of the tool `lookup`.
    pub found: bool,
    /// It lists its tools by itself.
    pub answers_lists: bool,
    /// It opens sessions by itself; else the handshake stays pending, as while it downloads its program.
    pub opens: bool,
    /// The revision of the sessions that it opens.
    pub version: &'static str,
    /// The `ttlMs` of its lists.
    pub ttl_ms: Option<u64>,
    /// It answers nothing by itself: it is still starting.
    pub starts: bool,
}

/// A build of a pack.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The version of its tool `read`.
    pub version: u32,
    /// The type of the argument `n` of that tool.
    pub argument: &'static str,
}

impl Build {
    /// The next build, in which the argument of `read` has another type.
    pub fn change(&mut self, with_bump: bool) {
        self.version += u32::from(with_bump);
        self.argument = match self.argument {
            "integer" => "string",
            _ => "integer",
        };
    }
}

/// One process.
#[derive(Debug, Default)]
pub struct Worker {
    pub is_pack: bool,
    /// The build of a pack.
    pub build: Option<Build>,
    /// Everything that a server got.
    pub lines: Vec<Value>,
    /// Tool calls that are not answered.
    pub pending: Vec<Pending>,
    /// Ids of its questions that are not answered.
    pub asked: Vec<Value>,
    /// Resources whose changes it reports.
    pub subscribed: BTreeSet<String>,
}

/// One tool call that a worker has.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    pub call: Option<CallId>,
    pub id: Value,
    pub token: Option<Value>,
    /// The session of the client, as its arguments name it.
    pub who: Option<u64>,
}

impl Server {
    /// The result of `initialize`.
    pub fn opened(&self) -> Value {
        json!({
            "protocolVersion": self.version,
            "capabilities": self.capabilities,
            "serverInfo": { "name": "demo", "version": "3" },
        })
    }
}

impl Default for Server {
    fn default() -> Self {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let tools = vec![
            json!({ "name": "read", "annotations": { "readOnlyHint": true } }),
            json!({ "name": "write" }),
            json!({ "name": "once" }),
            json!({ "name": "lookup", "annotations": { "readOnlyHint": true } }),
            json!({ "name": "strict", "inputSchema": schema }),
        ];
        Self {
            is_modern: false,
            refuses_sessions: false,
            tools,
            capabilities: json!({ "tools": { "listChanged": true }, "logging": {} }),
            found: false,
            answers_lists: true,
            version: TASKS_VERSION,
            opens: true,
            ttl_ms: None,
            starts: false,
        }
    }
}

/// A host that wraps the server, with these rules.
pub fn wrapping(rules: Value) -> CoreConfig {
    let mut rules: Rules = serde_json::from_value(rules).unwrap();
    let probed = json!({
        "replay": "probe_required",
        "probe": {
            "tool": "lookup",
            "applied": { "path": "/structuredContent/found", "equals": true },
            "not_applied": { "path": "/structuredContent/found", "equals": false },
        },
    });
    let probed = serde_json::from_value(probed).unwrap();
    rules.tools.entry("once".to_owned()).or_insert(probed);
    CoreConfig {
        servers: vec![ServerConfig {
            name: "demo".to_owned(),
            rules: Arc::new(rules),
            locked: None,
            memory: ServerMemory::default(),
            version: "1".to_owned(),
            trial: false,
            backend: None,
            prefix: None,
            limits: None,
            shared: None,
        }],
        ..packs(&[])
    }
}

/// A host that serves a pack and three servers, one of them without a prefix.
pub fn merging() -> CoreConfig {
    let server = |(key, prefix): (&str, &str)| ServerConfig {
        name: key.to_owned(),
        prefix: Some(prefix.to_owned()),
        limits: Some(Limits {
            pool: 128,
            ..Limits::default()
        }),
        ..wrapping(json!({})).servers.remove(0)
    };
    let servers = [("bare", ""), ("one", "one"), ("two", "second")];
    CoreConfig {
        servers: servers.map(server).into(),
        ..packs(&["a"])
    }
}

/// A host in which all sessions share two of the servers.
pub fn sharing() -> CoreConfig {
    let mut config = merging();
    for server in &mut config.servers {
        server.shared = Some(server.name != "two");
    }
    config
}

/// A host that serves these packs.
pub fn packs(names: &[&str]) -> CoreConfig {
    let pack = |name: &&str| PackConfig {
        name: (*name).to_owned(),
        settings: Json::empty_object(),
        expected: None,
        follows_roots: None,
    };
    CoreConfig {
        limits: Limits::default(),
        seed: 7,
        span_seed: None,
        epoch_ms: 0,
        name: "test".to_owned(),
        version: "1".to_owned(),
        instructions: None,
        tooling_version: "1".to_owned(),
        render: RenderMode::Json,
        locked: None,
        packs: names.iter().map(pack).collect(),
        servers: Vec::new(),
        lifetime: Lifetime::Service,
        tasks: BTreeMap::new(),
        tool_list: mainstay_kernel::tool_list::ToolListRules::default(),
        approvals: mainstay_kernel::approvals::Policy::default(),
        approval_secret: "secret".to_owned(),
        audits: false,
        quotas: Default::default(),
    }
}

impl Shell {
    pub fn new(config: CoreConfig) -> Self {
        Self::with_server(config, Server::default())
    }

    /// A shell whose servers behave in this way from the start.
    pub fn with_server(config: CoreConfig, server: Server) -> Self {
        let mut shell = Self {
            core: Core::new(config).unwrap(),
            now: Time::from_ms(0),
            did: Vec::new(),
            workers: BTreeMap::new(),
            server,
            build: Build {
                version: 1,
                argument: "integer",
            },
            probe: Some(Answer::Failed(Problem::of(ErrorKind::UnknownMethod))),
            keeps_checks: false,
            restore_after: None,
            homes: BTreeMap::new(),
            handled: 0,
            events: VecDeque::new(),
            nonce: 0,
        };
        shell.core.start(shell.now);
        shell.settle();
        shell
    }

    /// Opens a client's session.
    pub fn open(&mut self) -> SessionId {
        self.nonce += 1;
        let session = self.core.open(self.now, self.nonce).unwrap();
        self.settle();
        session
    }

    /// Opens a client's session and completes the legacy handshake.
    pub fn greet(&mut self) -> SessionId {
        self.greet_as(TASKS_VERSION)
    }

    /// The same, in a revision.
    pub fn greet_as(&mut self, version: &str) -> SessionId {
        let session = self.open();
        self.shake_hands(session, version);
        session
    }

    /// The same, of a client with a credential.
    pub fn greet_with(&mut self, credential: &str) -> SessionId {
        let session = self.open();
        self.core.set_caller(session, credential);
        self.shake_hands(session, TASKS_VERSION);
        session
    }

    fn shake_hands(&mut self, session: SessionId, version: &str) {
        let params = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        self.ask(session, "\"hello\"", "initialize", params);
        self.say(
            session,
            json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        );
    }

    /// A client sends a request with this id, as JSON text.
    pub fn ask(&mut self, session: SessionId, id: &str, method: &str, params: Value) {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        self.line(session, line.into_bytes());
    }

    /// A client calls a tool; its progress token is its id.
    pub fn call(&mut self, session: SessionId, id: u64, tool: &str, arguments: Value) {
        let params = json!({
            "name": tool,
            "arguments": arguments,
            "_meta": { "progressToken": id },
        });
        self.ask(session, &id.to_string(), "tools/call", params);
    }

    pub fn say(&mut self, session: SessionId, message: Value) {
        self.line(session, message.to_string().into_bytes());
    }

    pub fn line(&mut self, session: SessionId, line: Vec<u8>) {
        self.handle(CoreEvent::Line { session, line });
    }

    /// A caller without a session asks; returns the session of its only request.
    pub fn ask_single(&mut self, caller: &str, op: Op) -> SessionId {
        self.ask_wishing(caller, op, None)
    }

    /// The same, of a caller that wishes a task or names a key.
    pub fn ask_wishing(&mut self, caller: &str, op: Op, task: Option<TaskWish>) -> SessionId {
        self.nonce += 1;
        let session = self.core.open_single(self.now, caller, self.nonce).unwrap();
        self.settle();
        let request = Box::new(Request {
            id: RequestId::parse("1").unwrap(),
            dialect: Dialect::Rest,
            op,
            progress_token: None,
            trace: None,
            task,
        });
        let bytes = 100;
        self.handle(CoreEvent::Ask {
            session,
            request,
            bytes,
        });
        session
    }

    /// A worker sends a line.
    pub fn server_line(&mut self, generation: Generation, line: &[u8]) {
        let news = WorkerNews::Line(line.to_vec());
        self.handle(CoreEvent::Worker { generation, news });
    }

    /// A server sends a message. It remembers its questions.
    pub fn server_says(&mut self, generation: Generation, message: &Value) {
        if let (Some(_), Some(id)) = (message.get("method"), message.get("id")) {
            let worker = self.workers.get_mut(&generation).unwrap();
            worker.asked.push(id.clone());
        }
        self.server_line(generation, message.to_string().as_bytes());
    }

    /// A worker ends and is reaped.
    pub fn crash(&mut self, generation: Generation) {
        let fault = Fault::new(ErrorKind::WorkerUnavailable, "it ended").of(generation);
        self.lose(generation, fault);
        self.settle();
    }

    fn lose(&mut self, generation: Generation, fault: Fault) {
        if self.workers.remove(&generation).is_none() {
            return;
        }
        let unsent = Vec::new();
        let news = WorkerNews::Lost { fault, unsent };
        self.events
            .push_back(CoreEvent::Worker { generation, news });
        let news = WorkerNews::Reaped;
        self.events
            .push_back(CoreEvent::Worker { generation, news });
    }

    /// The newest process.
    pub fn newest(&self) -> Generation {
        *self.workers.keys().next_back().unwrap()
    }

    /// A server or a pack's worker answers a call that it has.
    pub fn reply(&mut self, generation: Generation, pending: &Pending, result: &Value) {
        let worker = self.workers.get_mut(&generation).unwrap();
        worker.pending.retain(|other| other != pending);
        match pending.call {
            None => {
                let line = json!({ "jsonrpc": "2.0", "id": pending.id, "result": result });
                self.server_says(generation, &line);
            }
            Some(call) => {
                let json = Json::from(result.clone());
                let answer = Box::new(Answer::Tool(ToolReply { json, text: None }));
                let news = WorkerNews::Answer { call, answer };
                self.handle(CoreEvent::Worker { generation, news });
            }
        }
    }

    /// Answers every call that any worker has.
    pub fn reply_all(&mut self, result: &Value) {
        while let Some((generation, pending)) = self.pending(0) {
            self.reply(generation, &pending, result);
        }
    }

    /// One of the calls that workers have.
    pub fn pending(&self, number: usize) -> Option<(Generation, Pending)> {
        let workers = self.workers.iter();
        let all: Vec<(Generation, Pending)> = workers
            .flat_map(|(generation, worker)| {
                let pending = worker.pending.iter();
                pending.map(|pending| (*generation, pending.clone()))
            })
            .collect();
        let all_len = all.len().max(1);
        all.into_iter().nth(number % all_len)
    }

    pub fn handle(&mut self, event: CoreEvent) {
        self.events.push_back(event);
        self.settle();
    }

    /// Lets time pass, and with it every timeout on the way.
    pub fn wait(&mut self, ms: u64) {
        let until = self.now.plus_ms(ms);
        for _ in 0..BUSY {
            match self.core.next_timeout().filter(|at| *at <= until) {
                None => {
                    self.now = until;
                    return;
                }
                Some(at) => {
                    self.now = self.now.max(at);
                    self.handle(CoreEvent::Timeout);
                }
            }
        }
        panic!("the core asks for a timeout again and again");
    }

    /// Handles events and carries out actions until there are none left.
    fn settle(&mut self) {
        for _ in 0..BUSY {
            while let Some(action) = self.core.poll() {
                self.did.push((self.now, action.clone()));
                self.carry_out(action);
            }
            let Some(event) = self.events.pop_front() else {
                return;
            };
            self.core.handle(self.now, event);
            self.handled += 1;
            if self.restore_after == Some(self.handled) {
                let state = self.core.save().unwrap();
                let restored = Core::restore(&state).unwrap();
                assert_eq!(restored, self.core);
                self.core = restored;
            }
        }
        panic!("actions and events never end");
    }

    fn carry_out(&mut self, action: CoreAction) {
        match action {
            CoreAction::Spawn {
                slot,
                generation,
                settings,
                ..
            } => {
                let is_pack = settings.is_some();
                if let Some(server) = self.core.server_of(slot) {
                    let home = (server.to_owned(), self.core.client_of(generation));
                    self.homes.insert(generation, home);
                }
                let worker = Worker {
                    is_pack,
                    build: is_pack.then_some(self.build),
                    ..Worker::default()
                };
                self.workers.insert(generation, worker);
                let (pid, tree_kill) = (1, "group".to_owned());
                self.news(generation, WorkerNews::Up { pid, tree_kill });
                if is_pack {
                    let (ready, vetted) = (Box::new(ready(self.build)), Ok(()));
                    self.news(generation, WorkerNews::Ready { ready, vetted });
                }
            }
            CoreAction::Call { generation, call } => self.worker_call(generation, &call),
            CoreAction::Forward {
                generation, line, ..
            }
            | CoreAction::Say {
                generation, line, ..
            } => {
                self.hear(generation, &line);
            }
            CoreAction::Ping { generation } => self.news(generation, WorkerNews::Pong),
            CoreAction::Stop { generation, .. } => {
                let fault =
                    Fault::new(ErrorKind::WorkerUnavailable, "it was stopped").of(generation);
                self.lose(generation, fault);
            }
            CoreAction::Abandon { generation, fault } => self.lose(generation, fault),
            CoreAction::Look {
                generation,
                at_ping,
            } => {
                self.news(
                    generation,
                    WorkerNews::Looked {
                        at_ping,
                        seen: None,
                    },
                );
            }
            CoreAction::Check { ticket, request } if !self.keeps_checks => {
                let verdict = check(&request.definition, &request.subject);
                self.events
                    .push_back(CoreEvent::Checked { ticket, verdict });
            }
            CoreAction::OwnTool { call, .. } => {
                let json = Json::from_serialize(&self.core.health(self.now));
                let outcome = Ok(Success::Tool(ToolReply { json, text: None }));
                self.events.push_back(CoreEvent::Served { call, outcome });
            }
            // The connection is closed once its output is written.
            CoreAction::Close { session } => self.events.push_back(CoreEvent::Gone { session }),
            _ => {}
        }
    }

    fn news(&mut self, generation: Generation, news: WorkerNews) {
        self.events
            .push_back(CoreEvent::Worker { generation, news });
    }

    fn worker_call(&mut self, generation: Generation, call: &rpc::Call) {
        let Some(worker) = self.workers.get_mut(&generation) else {
            return;
        };
        let id = Value::from(call.call.get());
        match &call.op {
            rpc::Op::Tool {
                name, arguments, ..
            } => {
                let fits = match worker.build.map(|build| build.argument) {
                    Some("string") if name == "read" => {
                        !arguments.to_value().unwrap()["n"].is_number()
                    }
                    _ => true,
                };
                assert!(fits, "a worker gets a call that does not fit: {call:?}");
                worker.pending.push(Pending {
                    call: Some(call.call),
                    id,
                    token: None,
                    who: arguments.to_value().unwrap()["who"].as_u64(),
                });
            }
            rpc::Op::Probe { .. } if self.probe.is_none() => {}
            op => {
                let unknown = Answer::Failed(Problem::of(ErrorKind::UnknownMethod));
                let probed = matches!(op, rpc::Op::Probe { .. });
                let answer = self.probe.clone().filter(|_| probed).unwrap_or(unknown);
                let answer = Box::new(answer);
                self.news(
                    generation,
                    WorkerNews::Answer {
                        call: call.call,
                        answer,
                    },
                );
            }
        }
    }

    /// A server gets a line. It keeps tool calls and answers everything else.
    fn hear(&mut self, generation: Generation, line: &Json) {
        let line: Value = serde_json::from_str(line.as_str()).unwrap();
        let Some(worker) = self.workers.get_mut(&generation) else {
            return;
        };
        worker.lines.push(line.clone());
        let Some(id) = line.get("id") else { return };
        let Some(method) = line["method"].as_str() else {
            let question = worker.asked.iter().position(|asked| asked == id);
            let question = question.unwrap_or_else(|| panic!("it did not ask {id}"));
            worker.asked.remove(question);
            let by = &line["result"]["by"];
            assert!(
                by.is_null() || *by == generation.get(),
                "{line} is for another server"
            );
            return;
        };
        if self.server.starts {
            worker.pending.push(Pending {
                call: None,
                id: id.clone(),
                token: None,
                who: None,
            });
            return;
        }
        let is_used = worker.pending.iter().any(|pending| pending.id == *id);
        assert!(!is_used, "{id} is in flight");
        let greeted = |line: &Value| line["method"] == "notifications/initialized";
        if method == "tools/call" && !self.server.is_modern {
            assert!(
                worker.lines.iter().any(greeted),
                "a call before the handshake: {line}"
            );
        }
        let params = &line["params"];
        let is_lookup = params["name"] == "lookup";
        let has_resources = !self.server.capabilities["resources"].is_null();
        let result = match method {
            "tools/call" if is_lookup => {
                json!({ "content": [], "structuredContent": { "found": self.server.found } })
            }
            "tools/call" => {
                worker.pending.push(Pending {
                    call: None,
                    id: id.clone(),
                    token: params["_meta"].get("progressToken").cloned(),
                    who: params["arguments"]["who"].as_u64(),
                });
                return;
            }
            "initialize" | "server/discover" if !self.server.opens => {
                worker.pending.push(Pending {
                    call: None,
                    id: id.clone(),
                    token: None,
                    who: None,
                });
                return;
            }
            "resources/list" if has_resources => {
                let key = &self.homes[&generation].0;
                let listed =
                    ["a", "b"].map(|name| json!({ "uri": format!("{key}:{name}"), "name": name }));
                json!({ "resources": listed })
            }
            "tools/list" if !self.server.answers_lists => return,
            "tools/list" => match self.server.ttl_ms {
                Some(ttl_ms) => json!({ "tools": self.server.tools, "ttlMs": ttl_ms }),
                None => json!({ "tools": self.server.tools }),
            },
            "initialize" if !self.server.refuses_sessions => self.server.opened(),
            "server/discover" if self.server.is_modern => json!({
                "supportedVersions": [MODERN_VERSION],
                "capabilities": { "tools": {} },
                "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "demo", "version": "3" } },
            }),
            "ping" | "logging/setLevel" | "resources/read" => json!({}),
            "resources/subscribe" | "resources/unsubscribe" if has_resources => {
                let uri = params["uri"].as_str().unwrap().to_owned();
                match method {
                    "resources/subscribe" => worker.subscribed.insert(uri),
                    _ => worker.subscribed.remove(&uri),
                };
                json!({})
            }
            _ => {
                let error = json!({ "code": -32601, "message": "unknown method" });
                let line = json!({ "jsonrpc": "2.0", "id": id, "error": error });
                let line = line.to_string().into_bytes();
                return self.news(generation, WorkerNews::Line(line));
            }
        };
        let line = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        self.news(generation, WorkerNews::Line(line.to_string().into_bytes()));
    }
}

fn check(definition: &Definition, subject: &Subject) -> Verdict {
    match Compiled::compile(definition) {
        Ok(compiled) => compiled.run(subject),
        Err(reason) => Verdict::Unchecked { reason },
    }
}

/// The tools of every pack: one that may run again, and one that may not.
fn ready(build: Build) -> Ready {
    let tool = |name: &str, replay| ToolSpec {
        name: name.to_owned(),
        description: format!("The tool {name}."),
        input_schema: json!({ "type": "object" }),
        output_schema: None,
        annotations: Annotations::default(),
        schema_version: 1,
        tooling_version: "1".to_owned(),
        replay,
        timeout_ms: None,
        errors: Vec::new(),
        aliases: Vec::new(),
        argument_aliases: Vec::new(),
        rejections: Rejections::Plain,
        pace: Pace::Short,
        tasks: false,
    };
    Ready {
        protocol: rpc::PROTOCOL,
        build: "1".to_owned(),
        catalog: Catalog {
            tools: vec![
                ToolSpec {
                    schema_version: build.version,
                    input_schema: json!({ "type": "object",
                        "properties": { "n": { "type": build.argument } } }),
                    ..tool("read", Replay::Convergent)
                },
                tool("write", Replay::NeverReplay),
            ],
            ..Catalog::default()
        },
        facts: Json::empty_object(),
    }
}
