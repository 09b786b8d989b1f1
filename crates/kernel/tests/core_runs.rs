//! Random runs of a whole core, with a wrapped server, a pack, or both and several servers: what holds in every
//! one of them.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod crosstalk;
mod shell;

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::dialect::{EchoId, Op};
use mainstay_contract::id::{CallId, Generation, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::rpc;
use mainstay_kernel::CoreConfig;
use mainstay_kernel::action::Delivery;
use mainstay_kernel::core::action::{CoreAction, CoreEvent, WorkerNews};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use self::crosstalk::check_crosstalk;
use self::shell::{Pending, Shell, merging, packs, sharing, wrapping};

/// Tools of the server; a pack has the first two.
const TOOLS: [&str; 4] = ["read", "write", "once", "strict"];
/// Rounds of answers and pauses after which a core must be idle.
const ROUNDS: usize = 100;

/// One thing that clients, workers or an operator do. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Event {
    Open,
    Call {
        client: usize,
        tool: usize,
    },
    Ask {
        client: usize,
        method: usize,
    },
    Notify(usize),
    Cancel {
        client: usize,
        id: u64,
    },
    AnswerQuestion(usize),
    InputEnds(usize),
    Leave(usize),
    Pace {
        client: usize,
        behind: bool,
    },
    /// A caller without a session calls a tool, or lists them.
    Single {
        caller: usize,
        tool: usize,
    },
    Reply(usize),
    ReplyTwice(usize),
    ReplyUnreadably(usize),
    Fail(usize),
    Progress {
        worker: usize,
        token: u64,
    },
    Question {
        worker: usize,
        id: u64,
    },
    Withdraw {
        worker: usize,
        id: u64,
    },
    Junk(usize),
    Crash(usize),
    /// A client subscribes to a resource of a server, or ends that.
    Subscribe {
        client: usize,
        uri: usize,
        ends: bool,
    },
    /// A server reports a change of a resource that it was asked to watch.
    Update(usize),
    /// A server logs something.
    Log(usize),
    /// A server says that its tools changed.
    Announce(usize),
    ChangeTools(bool),
    KeepChecks(bool),
    Rollout,
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let number = || 0..8_usize;
    prop_oneof![
        1 => Just(Event::Open),
        12 => (number(), 0..TOOLS.len()).prop_map(|(client, tool)| Event::Call { client, tool }),
        3 => (number(), number()).prop_map(|(client, method)| Event::Ask { client, method }),
        1 => number().prop_map(Event::Notify),
        3 => (number(), 0..8_u64).prop_map(|(client, id)| Event::Cancel { client, id }),
        2 => number().prop_map(Event::AnswerQuestion),
        1 => number().prop_map(Event::InputEnds),
        1 => number().prop_map(Event::Leave),
        1 => (number(), any::<bool>()).prop_map(|(client, behind)| Event::Pace { client, behind }),
        2 => (0..2_usize, 0..6_usize).prop_map(|(caller, tool)| Event::Single { caller, tool }),
        8 => number().prop_map(Event::Reply),
        1 => number().prop_map(Event::ReplyTwice),
        1 => number().prop_map(Event::ReplyUnreadably),
        1 => number().prop_map(Event::Fail),
        4 => (number(), 0..8_u64).prop_map(|(worker, token)| Event::Progress { worker, token }),
        2 => (number(), 0..3_u64).prop_map(|(worker, id)| Event::Question { worker, id }),
        1 => (number(), 0..3_u64).prop_map(|(worker, id)| Event::Withdraw { worker, id }),
        1 => number().prop_map(Event::Junk),
        3 => number().prop_map(Event::Crash),
        4 => (number(), 0..4_usize, any::<bool>())
            .prop_map(|(client, uri, ends)| Event::Subscribe { client, uri, ends }),
        3 => number().prop_map(Event::Update),
        2 => number().prop_map(Event::Log),
        1 => number().prop_map(Event::Announce),
        1 => any::<bool>().prop_map(Event::ChangeTools),
        1 => any::<bool>().prop_map(Event::KeepChecks),
        1 => Just(Event::Rollout),
        6 => prop_oneof![0..100_u64, 0..10_000_u64].prop_map(Event::Wait),
    ]
}

/// A request of a client: its session and its id.
type Asked = (SessionId, u64);

/// A request about a subscription: its id, the number of earlier requests with that id, and true if it ends one.
type Subscription = (u64, usize, bool);

/// One run, and what its clients know.
struct Run {
    shell: Shell,
    /// The text before the names of tools, for each server.
    prefixes: Vec<(String, String)>,
    clients: Vec<SessionId>,
    next_id: u64,
    /// Every request, with the number of actions before it.
    asked: Vec<(Asked, usize)>,
    /// Clients that left, with the number of actions before.
    left: BTreeMap<SessionId, usize>,
    ended_input: BTreeSet<SessionId>,
    /// Requests about subscriptions of each client and resource.
    subscriptions: BTreeMap<(SessionId, String), Vec<Subscription>>,
}

impl Run {
    fn new(config: CoreConfig, restore_after: Option<usize>) -> Self {
        let prefixes = config.servers.iter().filter_map(|server| {
            let prefix = match server.prefix.as_deref()? {
                "" => String::new(),
                prefix => format!("{prefix}__"),
            };
            Some((server.name.clone(), prefix))
        });
        let prefixes = prefixes.collect();
        let shares = config.servers.iter().any(|server| server.shared.is_some());
        let mut shell = Shell::new(config);
        if shares {
            shell.server.capabilities["resources"] = json!({ "subscribe": true });
        }
        shell.restore_after = restore_after;
        let clients = vec![shell.greet()];
        Self {
            shell,
            prefixes,
            clients,
            next_id: 0,
            asked: Vec::new(),
            left: BTreeMap::new(),
            ended_input: BTreeSet::new(),
            subscriptions: BTreeMap::new(),
        }
    }

    fn of(config: &CoreConfig, events: &[Event], restore_after: Option<usize>) -> Self {
        let mut run = Self::new(config.clone(), restore_after);
        for event in events {
            run.happen(event);
        }
        run.finish();
        run
    }

    /// A client that may still send something.
    fn client(&self, number: usize) -> Option<SessionId> {
        let closed = |session: &SessionId| {
            let close = CoreAction::Close { session: *session };
            self.left.contains_key(session) || self.shell.actions().any(|action| *action == close)
        };
        let mut open = self
            .clients
            .iter()
            .copied()
            .filter(|session| !closed(session));
        let count = open.clone().count().max(1);
        let session = open.nth(number % count)?;
        let reads = self.shell.core.wants_input(session);
        (reads && !self.ended_input.contains(&session)).then_some(session)
    }

    /// Requests of a client so far that have not ended.
    fn open(&self, session: SessionId) -> BTreeSet<u64> {
        let asked = self
            .asked
            .iter()
            .filter(|((asker, _), _)| *asker == session);
        let mut open: BTreeSet<u64> = asked.map(|((_, id), _)| *id).collect();
        for id in open.clone() {
            let count = self
                .asked
                .iter()
                .filter(|(asked, _)| *asked == (session, id))
                .count();
            if ends(&self.shell, (session, id)).len() == count {
                open.remove(&id);
            }
        }
        open
    }

    /// An id that the client has not in flight; small ones are used again.
    fn fresh_id(&mut self, session: SessionId) -> u64 {
        let open = self.open(session);
        self.next_id += 1;
        let wanted = self.next_id % 8;
        if open.contains(&wanted) {
            100 + self.next_id
        } else {
            wanted
        }
    }

    fn ask(&mut self, session: SessionId, method: &str, params: Value) -> u64 {
        let id = self.fresh_id(session);
        self.asked.push(((session, id), self.shell.did.len()));
        self.shell.ask(session, &id.to_string(), method, params);
        id
    }

    /// The name of a tool, of each server in turn, and the key of that server.
    fn tool(&self, tool: usize) -> (String, Option<String>) {
        let number = usize::try_from(self.next_id).unwrap();
        let count = self.prefixes.len().max(1);
        match self.prefixes.get(number % count) {
            None => (TOOLS[tool].to_owned(), None),
            // The pack has these names, too.
            Some((key, prefix)) if prefix.is_empty() && tool < 2 => {
                let _ = key;
                (TOOLS[tool].to_owned(), None)
            }
            Some((key, prefix)) => (format!("{prefix}{}", TOOLS[tool]), Some(key.clone())),
        }
    }

    fn worker(&self, number: usize) -> Option<Generation> {
        let workers = &self.shell.workers;
        workers.keys().nth(number % workers.len().max(1)).copied()
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Open if self.clients.len() < 3 => self.clients.push(self.shell.greet()),
            Event::Open => {}
            Event::Call { client, tool } => {
                let Some(session) = self.client(client) else {
                    return;
                };
                let id = self.fresh_id(session);
                self.asked.push(((session, id), self.shell.did.len()));
                let (name, to) = self.tool(tool);
                let arguments = json!({ "n": tool, "who": session.get(), "to": to });
                self.shell.call(session, id, &name, arguments);
            }
            Event::Ask { client, method } => {
                let Some(session) = self.client(client) else {
                    return;
                };
                let (method, params) = match method % 5 {
                    0 => ("tools/list", json!({})),
                    1 => ("ping", json!({})),
                    2 => ("logging/setLevel", json!({ "level": "debug" })),
                    3 => ("resources/read", json!({ "uri": "r" })),
                    _ => ("tools/call", json!({ "name": "unknown", "arguments": {} })),
                };
                self.ask(session, method, params);
            }
            Event::Subscribe { client, uri, ends } => {
                let Some(session) = self.client(client) else {
                    return;
                };
                let uri = ["one:a", "one:b", "bare:a", "two:a"][uri];
                let method = match ends {
                    true => "resources/unsubscribe",
                    false => "resources/subscribe",
                };
                let id = self.ask(session, method, json!({ "uri": uri }));
                let asks = self.asked.iter();
                let nth = asks.filter(|(asked, _)| *asked == (session, id)).count() - 1;
                let asked = (session, uri.to_owned());
                self.subscriptions
                    .entry(asked)
                    .or_default()
                    .push((id, nth, ends));
            }
            Event::Notify(client) => {
                let Some(session) = self.client(client) else {
                    return;
                };
                let line = json!({ "jsonrpc": "2.0", "method": "notifications/other" });
                self.shell.say(session, line);
            }
            Event::Cancel { client, id } => {
                let Some(session) = self.client(client) else {
                    return;
                };
                let params = json!({ "requestId": id });
                let method = "notifications/cancelled";
                let line = json!({ "jsonrpc": "2.0", "method": method, "params": params });
                self.shell.say(session, line);
            }
            Event::AnswerQuestion(client) => {
                let Some(session) = self.client(client) else {
                    return;
                };
                let told = self.shell.told(session);
                let question = told
                    .iter()
                    .rev()
                    .find(|line| line["method"] == "roots/list");
                let Some(question) = question else { return };
                let by = &question["params"]["by"];
                let result = json!({ "by": by });
                let line = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
                self.shell.say(session, line);
            }
            Event::InputEnds(client) => {
                let Some(session) = self.client(client) else {
                    return;
                };
                self.ended_input.insert(session);
                self.shell.handle(CoreEvent::InputEnded { session });
            }
            Event::Leave(client) => {
                let Some(session) = self.client(client) else {
                    return;
                };
                self.left.insert(session, self.shell.did.len());
                self.shell.handle(CoreEvent::Gone { session });
            }
            Event::Pace { client, behind } => {
                let Some(session) = self.clients.get(client).copied() else {
                    return;
                };
                self.shell.handle(CoreEvent::Pace { session, behind });
            }
            Event::Single { caller, tool } => {
                let op = match TOOLS.get(tool) {
                    None => Op::ListTools { full: true },
                    Some(_) => {
                        let (name, to) = self.tool(tool);
                        let arguments = Json::from(json!({ "to": to }));
                        Op::CallTool { name, arguments }
                    }
                };
                let caller = if caller == 0 { "a" } else { "b" };
                let before = self.shell.did.len();
                let session = self.shell.ask_single(caller, op);
                self.asked.push(((session, 1), before));
            }
            Event::Wait(ms) => self.shell.wait(ms),
            Event::ChangeTools(all) => {
                let tools = shell::Server::default().tools;
                let kept = if all { tools.len() } else { 2 };
                self.shell.server.tools = tools.into_iter().take(kept).collect();
                self.shell.server.found = all;
                self.shell.build.change(all);
            }
            Event::KeepChecks(keeps) => self.shell.keeps_checks = keeps,
            Event::Rollout => self.shell.handle(CoreEvent::Rollout {
                waiter: 1,
                pack: None,
                reasons: Vec::new(),
            }),
            _ => self.worker_happens(event),
        }
    }

    fn worker_happens(&mut self, event: &Event) {
        let result = |pending: &Pending| json!({ "content": [], "who": pending.who });
        match *event {
            Event::Reply(number) => {
                let Some((generation, pending)) = self.shell.pending(number) else {
                    return;
                };
                let result = result(&pending);
                self.shell.reply(generation, &pending, &result);
            }
            Event::ReplyTwice(number) => {
                let Some((generation, pending)) = self.shell.pending(number) else {
                    return;
                };
                let result = result(&pending);
                self.shell.reply(generation, &pending, &result);
                if self.shell.workers.contains_key(&generation) {
                    self.shell.reply(generation, &pending, &result);
                }
            }
            Event::ReplyUnreadably(number) | Event::Fail(number) => {
                let Some((generation, pending)) = self.shell.pending(number) else {
                    return;
                };
                if pending.call.is_some() {
                    return self
                        .shell
                        .reply(generation, &pending, &json!("not an object"));
                }
                let worker = self.shell.workers.get_mut(&generation).unwrap();
                worker.pending.retain(|other| *other != pending);
                let error = json!({ "code": -31429, "message": "overloaded" });
                let line = json!({ "jsonrpc": "2.0", "id": pending.id, "error": error });
                let mark = match event {
                    Event::Fail(_) => "",
                    _ => "\u{feff}",
                };
                self.shell
                    .server_line(generation, format!("{mark}{line}").as_bytes());
            }
            Event::Progress { worker, token } => {
                let Some(generation) = self.worker(worker) else {
                    return;
                };
                if self.shell.workers[&generation].is_pack {
                    let calls = self.shell.workers[&generation].pending.clone();
                    // Of a call that it has, or of one that it may never have had.
                    let had = calls.get(usize::try_from(token).unwrap());
                    let call = had.and_then(|pending| pending.call);
                    let call = call.unwrap_or(CallId::new(token));
                    let progress = rpc::Progress::default();
                    let news = WorkerNews::Progress { call, progress };
                    return self.shell.handle(CoreEvent::Worker { generation, news });
                }
                // Of a call that it has, or under a token that it guessed.
                let calls = &self.shell.workers[&generation].pending;
                let had = calls.get(usize::try_from(token).unwrap());
                let (token, who) = match had.and_then(|had| Some((had.token.clone()?, had.who))) {
                    Some((token, who)) => (token, who),
                    None => (json!(token), None),
                };
                let message = format!("{}/{}", generation.get(), who.unwrap_or(0));
                let params = json!({ "progressToken": token, "progress": 1, "message": message });
                let method = "notifications/progress";
                let line = json!({ "jsonrpc": "2.0", "method": method, "params": params });
                self.shell.server_says(generation, &line);
            }
            Event::Question { worker, id } => {
                let Some(generation) = self.worker(worker) else {
                    return;
                };
                if self.shell.workers[&generation].asked.contains(&json!(id)) {
                    return;
                }
                let params = json!({ "by": generation.get() });
                let line =
                    json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list", "params": params });
                self.shell.server_says(generation, &line);
            }
            Event::Withdraw { worker, id } => {
                let Some(generation) = self.worker(worker) else {
                    return;
                };
                let worker = self.shell.workers.get_mut(&generation).unwrap();
                worker.asked.retain(|asked| *asked != json!(id));
                let params = json!({ "requestId": id });
                let method = "notifications/cancelled";
                let line = json!({ "jsonrpc": "2.0", "method": method, "params": params });
                self.shell.server_says(generation, &line);
            }
            Event::Update(worker) => {
                let Some(generation) = self.worker(worker) else {
                    return;
                };
                for uri in self.shell.workers[&generation].subscribed.clone() {
                    let method = "notifications/resources/updated";
                    let params = json!({ "uri": uri });
                    let line = json!({ "jsonrpc": "2.0", "method": method, "params": params });
                    self.shell.server_says(generation, &line);
                }
            }
            Event::Log(worker) => {
                let Some(generation) = self.worker(worker).filter(|worker| self.is_server(*worker))
                else {
                    return;
                };
                let calls = self.shell.workers[&generation].pending.iter();
                let whos: BTreeSet<u64> = calls.filter_map(|pending| pending.who).collect();
                let data = json!({ "by": generation.get(), "whos": whos });
                let params = json!({ "level": "info", "data": data });
                let method = "notifications/message";
                let line = json!({ "jsonrpc": "2.0", "method": method, "params": params });
                self.shell.server_says(generation, &line);
            }
            Event::Announce(worker) => {
                let Some(generation) = self.worker(worker).filter(|worker| self.is_server(*worker))
                else {
                    return;
                };
                let method = "notifications/tools/list_changed";
                let line = json!({ "jsonrpc": "2.0", "method": method });
                self.shell.server_says(generation, &line);
            }
            Event::Junk(worker) => {
                let Some(generation) = self.worker(worker) else {
                    return;
                };
                self.shell.server_line(generation, b"Listening on port 80");
            }
            Event::Crash(worker) => {
                let Some(generation) = self.worker(worker) else {
                    return;
                };
                self.shell.crash(generation);
            }
            _ => {}
        }
    }

    fn is_server(&self, worker: Generation) -> bool {
        !self.shell.workers[&worker].is_pack
    }

    /// Every peer reads and answers, until the core is idle; then the host stops.
    fn finish(&mut self) {
        self.shell.keeps_checks = false;
        for session in self.clients.clone() {
            let behind = false;
            self.shell.handle(CoreEvent::Pace { session, behind });
        }
        for _ in 0..ROUNDS {
            self.shell.reply_all(&json!({ "content": [] }));
            if self.shell.core.is_idle() {
                break;
            }
            self.shell.wait(1000);
        }
        assert!(self.shell.core.is_idle(), "a request never ends");
        self.check_subscriptions();
        self.shell.handle(CoreEvent::Stop);
        self.shell.wait(60_000);
        assert!(self.shell.core.is_stopped());
        assert!(self.shell.workers.is_empty());
    }
}

/// The places of the ends of a client's requests with this id.
fn ends(shell: &Shell, (session, id): Asked) -> Vec<usize> {
    let id = id.to_string();
    let is_end = |action: &CoreAction| match action {
        CoreAction::End { end, .. } => {
            let is_it = matches!(&end.id, EchoId::Known(known) if known.as_raw() == id);
            end.session == session && is_it
        }
        _ => false,
    };
    let all = shell.actions().enumerate();
    all.filter(|(_, action)| is_end(action))
        .map(|(at, _)| at)
        .collect()
}

/// The client that an action sends something to.
fn receiver(action: &CoreAction) -> Option<SessionId> {
    match action {
        CoreAction::Tell { session, .. } => Some(*session),
        CoreAction::Progress(notice) => Some(notice.session),
        CoreAction::End { end, .. } if end.delivery == Delivery::Send => Some(end.session),
        _ => None,
    }
}

/// The call and the tool that an action hands to a worker.
fn handed_over(action: &CoreAction) -> Option<(CallId, String)> {
    match action {
        CoreAction::Forward { call, line, .. } => {
            let line = line.to_value().unwrap();
            let tool = line["params"]["name"].as_str()?;
            Some((*call, tool.to_owned()))
        }
        CoreAction::Call { call, .. } => match &call.op {
            rpc::Op::Tool { name, .. } => Some((call.call, name.clone())),
            _ => None,
        },
        _ => None,
    }
}

/// The request whose progress an action reports.
fn progress(action: &CoreAction) -> Option<Asked> {
    match action {
        CoreAction::Progress(notice) => Some((notice.session, notice.id.as_raw().parse().unwrap())),
        CoreAction::Tell { session, line } => {
            let line: Value = serde_json::from_str(line).unwrap();
            let is_progress = line["method"] == "notifications/progress";
            let token = line["params"]["progressToken"].as_u64();
            is_progress.then(|| (*session, token.unwrap()))
        }
        _ => None,
    }
}

fn check(run: &Run) -> Result<(), TestCaseError> {
    check_crosstalk(run)?;
    let shell = &run.shell;
    let mut counts: BTreeMap<Asked, usize> = BTreeMap::new();
    for (asked, _) in &run.asked {
        *counts.entry(*asked).or_default() += 1;
    }
    for (asked, count) in counts {
        prop_assert_eq!(ends(shell, asked).len(), count, "{:?}", asked);
    }
    let mut closed = BTreeSet::new();
    let mut sent: BTreeMap<(CallId, String), usize> = BTreeMap::new();
    for (at, action) in shell.actions().enumerate() {
        if let CoreAction::Close { session } = action {
            prop_assert!(closed.insert(*session), "closed twice");
        }
        if let Some(session) = receiver(action) {
            let left = run.left.get(&session).is_some_and(|left| *left <= at);
            prop_assert!(!left && !closed.contains(&session), "{:?}", action);
        }
        if let Some((call, tool)) = handed_over(action) {
            if tool == "lookup" {
                sent.remove(&(call, "once".to_owned()));
            }
            let times = sent.entry((call, tool.clone())).or_default();
            *times += 1;
            let most = match tool.as_str() {
                // Never replayed: strict has no hint, and once was probed for in between.
                "write" | "strict" | "once" => 1,
                _ => usize::MAX,
            };
            prop_assert!(*times <= most, "{} is sent again: {:?}", tool, action);
        }
        if let Some(asked) = progress(action) {
            let before = |all: &[usize]| all.iter().filter(|place| **place < at).count();
            let began = run.asked.iter().filter(|(other, _)| *other == asked);
            let began: Vec<usize> = began.map(|(_, began)| *began).collect();
            let began = began.iter().filter(|began| **began <= at).count();
            let open = began > before(&ends(shell, asked));
            prop_assert!(open, "progress of a request that is not open: {:?}", action);
        }
    }
    Ok(())
}

fn limits(config: CoreConfig, standby: bool) -> CoreConfig {
    let mut config = config;
    config.limits.call_timeout_ms = 5000;
    config.limits.progress_timeout_ms = 8000;
    config.limits.standby = u32::from(standby);
    config
}

proptest! {
    #[test]
    fn sessions_that_share_servers_keep_every_promise(
        events in vec(event(), 0..80),
        standby in any::<bool>(),
    ) {
        let config = limits(sharing(), standby);
        check(&Run::of(&config, &events, None))?;
    }

    #[test]
    fn a_core_with_shared_servers_that_is_restored_goes_on_as_before(
        events in vec(event(), 0..60),
        restore_after in 0..200_usize,
        standby in any::<bool>(),
    ) {
        let config = limits(sharing(), standby);
        let restored = Run::of(&config, &events, Some(restore_after));
        prop_assert_eq!(restored.shell.did, Run::of(&config, &events, None).shell.did);
    }

    #[test]
    fn a_wrapped_server_keeps_every_promise(events in vec(event(), 0..60), standby in any::<bool>()) {
        let config = limits(wrapping(json!({})), standby);
        check(&Run::of(&config, &events, None))?;
    }

    #[test]
    fn a_pack_keeps_every_promise(events in vec(event(), 0..60), standby in any::<bool>()) {
        let config = limits(packs(&["a"]), standby);
        check(&Run::of(&config, &events, None))?;
    }

    #[test]
    fn several_servers_and_a_pack_keep_every_promise(
        events in vec(event(), 0..60),
        standby in any::<bool>(),
    ) {
        let config = limits(merging(), standby);
        check(&Run::of(&config, &events, None))?;
    }

    #[test]
    fn a_core_with_several_servers_that_is_restored_goes_on_as_before(
        events in vec(event(), 0..60),
        restore_after in 0..200_usize,
        standby in any::<bool>(),
    ) {
        let config = limits(merging(), standby);
        let restored = Run::of(&config, &events, Some(restore_after));
        prop_assert_eq!(restored.shell.did, Run::of(&config, &events, None).shell.did);
    }

    #[test]
    fn a_wrapping_core_that_is_restored_goes_on_as_before(
        events in vec(event(), 0..60),
        restore_after in 0..200_usize,
        standby in any::<bool>(),
    ) {
        let config = limits(wrapping(json!({ "max_output": 300, "idle_stop": 5 })), standby);
        let restored = Run::of(&config, &events, Some(restore_after));
        prop_assert_eq!(restored.shell.did, Run::of(&config, &events, None).shell.did);
    }

    #[test]
    fn a_core_with_a_pack_that_is_restored_goes_on_as_before(
        events in vec(event(), 0..60),
        restore_after in 0..200_usize,
        standby in any::<bool>(),
    ) {
        let config = limits(packs(&["a"]), standby);
        let restored = Run::of(&config, &events, Some(restore_after));
        prop_assert_eq!(restored.shell.did, Run::of(&config, &events, None).shell.did);
    }
}
