//! Callers without a session of their own, on a wrapped server.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod shell;

use mainstay_contract::dialect::Op;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::health::Lifecycle;
use mainstay_contract::id::{Generation, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Outcome, Problem, Success};
use mainstay_kernel::core::action::{CoreAction, CoreEvent};
use serde_json::{Value, json};

use self::shell::{Shell, sharing, wrapping};

fn house(is_modern: bool) -> Shell {
    let mut shell = Shell::new(wrapping(json!({ "system_tools": true })));
    shell.server.is_modern = is_modern;
    shell
}

fn call(tool: &str, arguments: Value) -> Op {
    Op::CallTool {
        name: tool.to_owned(),
        arguments: Json::from(arguments),
    }
}

/// The only outcome of a caller's request.
fn outcome(shell: &Shell, session: SessionId) -> &Outcome {
    let ends: Vec<_> = shell.ends().filter(|end| end.session == session).collect();
    assert_eq!(ends.len(), 1, "{ends:?}");
    &ends[0].outcome
}

fn members(outcome: &Outcome) -> Value {
    match outcome {
        Ok(Success::Members(members)) => members.to_value().unwrap(),
        other => panic!("not a listing: {other:?}"),
    }
}

/// The methods that a server got, in order.
fn heard(shell: &Shell, generation: Generation) -> Vec<String> {
    let lines = shell.workers[&generation].lines.iter();
    let methods = lines.map(|line| line["method"].as_str().unwrap_or("answer").to_owned());
    methods.collect()
}

#[test]
fn a_caller_gets_the_answer_of_a_legacy_server() {
    let mut shell = house(false);
    let session = shell.ask_single("a", call("write", json!({ "n": 1.5 })));
    let server = shell.newest();
    assert_eq!(
        heard(&shell, server),
        [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "tools/list",
            "tools/call"
        ],
    );
    let sent = shell.workers[&server].lines.last().unwrap();
    assert_eq!(sent["params"]["arguments"], json!({ "n": 1.5 }));
    assert_eq!(sent["params"].get("_meta"), None);
    shell.reply_all(&json!({ "content": [], "x": 1 }));
    let Ok(Success::Forwarded(answer)) = outcome(&shell, session) else {
        panic!("the server answered");
    };
    assert!(!answer.is_error);
    assert!(answer.line.as_str().contains(r#""x":1"#), "{}", answer.line);
}

#[test]
fn a_caller_gets_the_answer_of_a_modern_server() {
    let mut shell = house(true);
    let session = shell.ask_single("a", call("write", json!({})));
    let server = shell.newest();
    assert_eq!(
        heard(&shell, server),
        ["server/discover", "tools/list", "tools/call"]
    );
    for line in &shell.workers[&server].lines {
        let version = &line["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        assert_eq!(version, "2026-07-28", "{line}");
    }
    shell.reply_all(&json!({ "content": [] }));
    assert!(outcome(&shell, session).is_ok());
}

#[test]
fn callers_do_not_share_a_session_and_one_caller_keeps_its_own() {
    let mut shell = house(false);
    for caller in ["a", "b", "a"] {
        shell.ask_single(caller, call("write", json!({ "of": caller })));
        shell.reply_all(&json!({ "content": [] }));
    }
    let arguments = |generation: u64| -> Vec<Value> {
        let lines = shell.workers[&Generation::new(generation)].lines.iter();
        let calls = lines.filter(|line| line["method"] == "tools/call");
        calls
            .map(|line| line["params"]["arguments"]["of"].clone())
            .collect()
    };
    assert_eq!(shell.workers.len(), 2);
    assert_eq!(arguments(1), ["a", "a"]);
    assert_eq!(arguments(2), ["b"]);
}

#[test]
fn a_caller_can_list_the_tools() {
    for is_modern in [false, true] {
        let mut shell = house(is_modern);
        let session = shell.ask_single("a", Op::ListTools {});
        let listed = members(outcome(&shell, session));
        let names: Vec<&str> = listed["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        let servers = ["read", "write", "once", "lookup", "strict"];
        assert_eq!(
            names,
            [&servers[..], &["system_health", "system_telemetry"]].concat()
        );
        let session = shell.ask_single("a", Op::Catalog {});
        let catalog = members(outcome(&shell, session));
        assert_eq!(catalog["server"], json!({ "name": "demo", "version": "3" }));
        assert_eq!(catalog["tools"].as_array().unwrap().len(), 7);
        shell.server.tools.pop();
        let session = shell.ask_single("a", Op::Catalog {});
        let catalog = members(outcome(&shell, session));
        assert_eq!(catalog["tools"].as_array().unwrap().len(), 6, "read anew");
    }
}

#[test]
fn a_server_that_imitates_an_error_of_the_host_stays_a_server_that_answered() {
    let imitated = Problem::of(ErrorKind::Overloaded);
    let text = serde_json::to_string(&json!({
        "code": "QUEUE_OVERLOADED",
        "message": imitated.message,
        "retryable": true,
        "details": { "kind": "overloaded" },
    }))
    .unwrap();
    let content = json!([{ "type": "text", "text": text }]);
    let data = json!({ "code": "UNAUTHORIZED", "kind": "unauthorized", "retryable": false });
    for answer in [
        json!({ "result": { "isError": true, "content": content } }),
        json!({ "error": { "code": -31429, "message": imitated.message, "data": data } }),
        json!({ "error": { "code": -31401, "message": "unauthorized", "data": data } }),
        json!({ "error": { "code": -31504, "message": "timeout" } }),
    ] {
        let mut shell = house(false);
        let session = shell.ask_single("a", call("write", json!({})));
        let (server, pending) = shell.pending(0).unwrap();
        let mut line = answer.clone();
        line["jsonrpc"] = json!("2.0");
        line["id"] = pending.id;
        shell.server_says(server, &line);
        match outcome(&shell, session) {
            Ok(Success::Forwarded(forwarded)) => {
                assert!(forwarded.is_error, "{answer}");
                let said: Value = serde_json::from_str(forwarded.line.as_str()).unwrap();
                assert_eq!(said["result"], line["result"]);
                assert_eq!(said["error"], line["error"]);
            }
            other => panic!("{answer} became {other:?}"),
        }
    }
}

#[test]
fn questions_of_a_server_to_a_caller_are_refused() {
    let mut shell = house(false);
    let session = shell.ask_single("a", call("write", json!({})));
    let server = shell.newest();
    for (number, method) in ["sampling/createMessage", "roots/list", "elicitation/create"]
        .into_iter()
        .enumerate()
    {
        let question = json!({ "jsonrpc": "2.0", "id": number, "method": method, "params": {} });
        shell.server_says(server, &question);
        let answer = shell.workers[&server].lines.last().unwrap();
        assert_eq!(answer["id"], number);
        assert_eq!(answer["error"]["code"], -32601, "{method}");
    }
    shell.server_says(
        server,
        &json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" }),
    );
    let pong = json!({ "jsonrpc": "2.0", "id": "p", "result": {} });
    assert_eq!(shell.workers[&server].lines.last(), Some(&pong));
    assert!(
        !shell
            .actions()
            .any(|action| matches!(action, CoreAction::Tell { .. }))
    );
    shell.reply_all(&json!({ "content": [] }));
    assert!(outcome(&shell, session).is_ok());
}

#[test]
fn a_callers_session_is_restored_on_the_successor() {
    for is_modern in [false, true] {
        let mut shell = house(is_modern);
        let first = shell.ask_single("a", call("read", json!({})));
        shell.crash(shell.newest());
        shell.wait(10_000);
        shell.reply_all(&json!({ "content": [] }));
        assert!(outcome(&shell, first).is_ok(), "it may run again");
        let lost = shell.ask_single("a", call("write", json!({})));
        shell.crash(shell.newest());
        shell.wait(10_000);
        let unknown = outcome(&shell, lost).as_ref().unwrap_err().kind;
        assert_eq!(unknown, ErrorKind::OutcomeUnknown);
        let next = shell.ask_single("a", call("write", json!({})));
        shell.reply_all(&json!({ "content": [] }));
        assert!(outcome(&shell, next).is_ok());
    }
}

#[test]
fn an_operation_that_servers_do_not_have_is_rejected() {
    let mut shell = house(false);
    let session = shell.ask_single("a", Op::Listen { lists: Vec::new() });
    let rejected = outcome(&shell, session).as_ref().unwrap_err().kind;
    assert_eq!(rejected, ErrorKind::UnknownMethod);
}

/// A host that serves many sessions and is new.
fn service(rules: Value) -> Shell {
    let mut config = wrapping(rules);
    config.servers[0].trial = true;
    Shell::new(config)
}

fn count(shell: &Shell, is_it: fn(&CoreAction) -> bool) -> usize {
    shell.actions().filter(|action| is_it(action)).count()
}

fn spawned(shell: &Shell) -> usize {
    count(shell, |action| matches!(action, CoreAction::Spawn { .. }))
}

fn announced(shell: &Shell) -> usize {
    count(shell, |action| matches!(action, CoreAction::Ready))
}

#[test]
fn a_host_tries_its_server_once_before_it_is_ready_and_again_when_one_never_answers() {
    let mut shell = service(json!({}));
    assert_eq!((spawned(&shell), announced(&shell)), (1, 1));
    assert!(shell.workers.is_empty(), "the trial is over");
    let health = shell.core.health(shell.now);
    assert!(health.ready && health.workers.is_empty(), "{health:?}");
    assert_eq!(health.state, Lifecycle::Ready);
    // A session whose server answers needs no trial.
    let first = shell.greet();
    shell.crash(shell.newest());
    shell.wait(10_000);
    assert_eq!(spawned(&shell), 3, "the session's, and its successor");
    shell.handle(CoreEvent::Gone { session: first });
    // This server is lost before it answers anything.
    let silent = shell.open();
    let server = shell.newest();
    shell.crash(server);
    shell.handle(CoreEvent::Gone { session: silent });
    shell.wait(10_000);
    assert!(shell.core.is_ready(), "a trial answered");
    assert!(shell.workers.is_empty());
    let lost: Vec<_> = shell.core.health(shell.now).workers;
    assert_eq!(lost, [], "no slot is left");
    assert_eq!(announced(&shell), 1, "once");
}

#[test]
fn a_lazy_server_is_not_tried_and_fails_when_its_start_does() {
    let mut shell = service(json!({ "lazy": true }));
    assert_eq!((spawned(&shell), announced(&shell)), (0, 1));
    let session = shell.open();
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    shell.server.answers_lists = false;
    shell.say(session, ping);
    let server = shell.newest();
    assert!(shell.core.is_ready(), "nothing is known yet");
    shell.crash(server);
    assert!(!shell.core.is_ready(), "the last start failed");
    assert_eq!(announced(&shell), 1, "once");
}

/// A host whose clients share the servers `one` and `bare`.
fn shared() -> Shell {
    let mut shell = Shell::new(sharing());
    shell.server.capabilities["resources"] = json!({ "subscribe": true });
    shell
}

/// The processes of a server.
fn processes(shell: &Shell, key: &str) -> Vec<Generation> {
    let homes = shell.homes.iter();
    let of_server = homes
        .filter(|(generation, (home, _))| home == key && shell.workers.contains_key(generation));
    of_server.map(|(generation, _)| *generation).collect()
}

/// The only process of a server.
fn only_process(shell: &Shell, key: &str) -> Generation {
    let all = processes(shell, key);
    assert_eq!(all.len(), 1, "{key} has {all:?}");
    all[0]
}

/// A server sends a notification.
fn notify(shell: &mut Shell, by: Generation, method: &str, params: Value) {
    let line = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    shell.server_says(by, &line);
}

/// The methods of everything that a client got beside its answers.
fn told(shell: &Shell, session: SessionId) -> Vec<String> {
    let told = shell.told(session).into_iter();
    told.map(|line| line["method"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn sessions_share_a_declared_server_and_each_has_its_own_of_the_others() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    assert_eq!(processes(&shell, "two").len(), 2);
    let server = only_process(&shell, "one");
    let lines = &shell.workers[&server].lines;
    let opening = lines.iter().find(|line| line["method"] == "initialize");
    let opening = &opening.unwrap()["params"];
    assert_eq!(
        opening["capabilities"],
        json!({}),
        "the host offers nothing"
    );
    assert_eq!(opening["clientInfo"]["name"], "mainstay");
    // Both use the same id and the same token.
    for session in [first, second] {
        shell.call(session, 7, "one__write", json!({ "who": session.get() }));
    }
    let calls = shell.workers[&server].pending.clone();
    assert_eq!(calls.len(), 2);
    for pending in &calls {
        let who = pending.who.unwrap();
        let params = json!({ "progressToken": pending.token, "progress": who });
        notify(&mut shell, server, "notifications/progress", params);
    }
    for (pending, session) in calls.iter().rev().zip([second, first]) {
        shell.reply(
            server,
            pending,
            &json!({ "content": [], "who": pending.who }),
        );
        let Some(Ok(Success::Forwarded(answer))) = shell.outcome(session, "7") else {
            panic!("{session} has its answer");
        };
        let answer = answer.line.to_value().unwrap();
        assert_eq!(answer["id"], 7);
        assert_eq!(answer["result"]["who"], session.get());
        let progress = shell.told(session);
        let progress: Vec<_> = progress
            .iter()
            .filter(|line| line["method"] == "notifications/progress")
            .map(|line| line["params"].clone())
            .collect();
        let wanted = json!({ "progressToken": 7, "progress": session.get() });
        assert_eq!(progress, [wanted]);
    }
}

#[test]
fn a_cancel_of_one_session_reaches_no_call_of_another() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    for session in [first, second] {
        shell.call(session, 7, "one__write", json!({ "who": session.get() }));
    }
    let calls = shell.workers[&server].pending.clone();
    let params = json!({ "requestId": 7 });
    let method = "notifications/cancelled";
    shell.say(
        second,
        json!({ "jsonrpc": "2.0", "method": method, "params": params }),
    );
    let cancelled: Vec<Value> = shell.workers[&server]
        .lines
        .iter()
        .filter(|line| line["method"] == method)
        .map(|line| line["params"]["requestId"].clone())
        .collect();
    assert_eq!(cancelled, [calls[1].id.clone()]);
    assert_eq!(calls[1].who, Some(second.get()));
    shell.reply(server, &calls[0], &json!({ "content": [] }));
    assert!(shell.outcome(first, "7").is_some());
}

#[test]
fn updates_reach_subscribers_and_a_session_ends_only_its_own_subscriptions() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    let update = |shell: &mut Shell| {
        let params = json!({ "uri": "one:a" });
        notify(shell, server, "notifications/resources/updated", params);
    };
    let updates = |shell: &Shell, session| {
        let told = told(shell, session).into_iter();
        told.filter(|method| method == "notifications/resources/updated")
            .count()
    };
    let uri = || json!({ "uri": "one:a" });
    shell.ask(first, "1", "resources/subscribe", uri());
    update(&mut shell);
    assert_eq!((updates(&shell, first), updates(&shell, second)), (1, 0));
    shell.ask(second, "1", "resources/subscribe", uri());
    update(&mut shell);
    assert_eq!((updates(&shell, first), updates(&shell, second)), (2, 1));
    // The host answers the first unsubscribe itself.
    shell.ask(first, "2", "resources/unsubscribe", uri());
    assert!(matches!(shell.outcome(first, "2"), Some(Ok(_))));
    assert!(shell.workers[&server].subscribed.contains("one:a"));
    update(&mut shell);
    assert_eq!((updates(&shell, first), updates(&shell, second)), (2, 2));
    // A client that does not read gets one update once it reads.
    shell.handle(CoreEvent::Pace {
        session: second,
        behind: true,
    });
    update(&mut shell);
    update(&mut shell);
    assert_eq!(updates(&shell, second), 2);
    shell.handle(CoreEvent::Pace {
        session: second,
        behind: false,
    });
    assert_eq!(updates(&shell, second), 3);
    shell.handle(CoreEvent::Gone { session: second });
    assert!(shell.workers[&server].subscribed.is_empty());
    update(&mut shell);
    assert_eq!((updates(&shell, first), updates(&shell, second)), (2, 3));
}

#[test]
fn a_successor_of_a_shared_server_gets_the_subscriptions_of_all_sessions() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    for (session, uri) in [(first, "one:a"), (second, "one:b")] {
        shell.ask(session, "1", "resources/subscribe", json!({ "uri": uri }));
    }
    shell.crash(only_process(&shell, "one"));
    shell.wait(60_000);
    let successor = only_process(&shell, "one");
    let subscribed: Vec<&String> = shell.workers[&successor].subscribed.iter().collect();
    assert_eq!(subscribed, ["one:a", "one:b"]);
}

#[test]
fn log_lines_of_a_shared_server_reach_the_only_session_with_a_call_or_the_hosts_log() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    let log = |shell: &mut Shell, data: &str| {
        let params = json!({ "level": "info", "data": data });
        notify(shell, server, "notifications/message", params);
    };
    let logged = |shell: &Shell, text: &str| {
        shell
            .actions()
            .any(|action| matches!(action, CoreAction::Log { line, .. } if line.contains(text)))
    };
    log(&mut shell, "nobody-asked");
    assert!(logged(&shell, "nobody-asked"));
    shell.call(first, 1, "one__write", json!({ "who": first.get() }));
    log(&mut shell, "one-call");
    assert!(!logged(&shell, "one-call"));
    let message = |shell: &Shell, session| {
        let told = shell.told(session).into_iter();
        told.filter(|line| line["method"] == "notifications/message")
            .map(|line| line["params"]["data"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(message(&shell, first), ["one-call"]);
    shell.call(second, 1, "one__write", json!({ "who": second.get() }));
    log(&mut shell, "two-calls");
    assert!(logged(&shell, "two-calls"));
    shell.reply_all(&json!({ "content": [] }));
    // A session that wants errors only gets no more than those.
    shell.ask(first, "2", "logging/setLevel", json!({ "level": "error" }));
    shell.call(first, 3, "one__write", json!({ "who": first.get() }));
    log(&mut shell, "too-quiet");
    assert_eq!(message(&shell, first), ["one-call"]);
    assert!(message(&shell, second).is_empty());
}

#[test]
fn questions_of_a_shared_server_are_refused_and_no_session_gets_them() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    let method = "sampling/createMessage";
    let question = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": {} });
    shell.server_says(server, &question);
    let answer = shell.workers[&server].lines.last().unwrap();
    assert_eq!(answer["error"]["code"], -32601);
    for session in [first, second] {
        assert!(!told(&shell, session).contains(&method.to_owned()));
    }
}

#[test]
fn changed_lists_of_a_shared_server_are_announced_to_every_session() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    shell.handle(CoreEvent::Pace {
        session: second,
        behind: true,
    });
    for _ in 0..3 {
        notify(
            &mut shell,
            server,
            "notifications/tools/list_changed",
            json!({}),
        );
    }
    let announced = |shell: &Shell, session| {
        let told = told(shell, session).into_iter();
        told.filter(|method| method == "notifications/tools/list_changed")
            .count()
    };
    assert_eq!(
        (announced(&shell, first), announced(&shell, second)),
        (3, 0)
    );
    shell.handle(CoreEvent::Pace {
        session: second,
        behind: false,
    });
    assert_eq!(announced(&shell, second), 1);
}

#[test]
fn a_shared_server_outlives_its_sessions_until_it_was_idle_for_long() {
    let mut shell = shared();
    let (first, second) = (shell.greet(), shell.greet());
    let server = only_process(&shell, "one");
    let facts = |shell: &Shell| {
        let workers = shell.core.health(shell.now).workers;
        let worker = workers.into_iter().find(|worker| worker.name == "one");
        worker.unwrap().facts.map(|facts| facts.to_value().unwrap())
    };
    let wanted = json!({ "shared": true, "why": "declared with shared = true", "sessions": 2 });
    assert_eq!(facts(&shell), Some(wanted));
    shell.call(first, 1, "one__write", json!({ "who": first.get() }));
    shell.handle(CoreEvent::Gone { session: first });
    shell.handle(CoreEvent::Gone { session: second });
    assert_eq!(only_process(&shell, "one"), server);
    assert_eq!(processes(&shell, "two"), []);
    let third = shell.greet();
    shell.call(third, 1, "one__write", json!({}));
    assert_eq!(only_process(&shell, "one"), server);
    shell.reply_all(&json!({ "content": [] }));
    shell.handle(CoreEvent::Gone { session: third });
    shell.wait(3_600_000);
    assert_eq!(processes(&shell, "one"), []);
    shell.greet();
    assert_eq!(processes(&shell, "one").len(), 1);
}

#[test]
fn a_modern_server_that_starts_slowly_is_not_given_the_older_handshake_for_good() {
    let mut shell = shared();
    shell.server.is_modern = true;
    shell.server.starts = true;
    let session = shell.greet();
    let server = only_process(&shell, "one");
    // The host goes on to the older handshake.
    shell.wait(9_000);
    assert_eq!(heard(&shell, server), ["server/discover", "initialize"]);
    shell.server.starts = false;
    let owed = shell.workers[&server].pending.clone();
    let era = json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } });
    shell.reply(server, &owed[0], &era);
    let error = json!({ "code": -32022, "message": "this connection is modern" });
    let refusal = json!({ "jsonrpc": "2.0", "id": owed[1].id, "error": error });
    shell.server_says(server, &refusal);
    shell.call(session, 1, "one__write", json!({}));
    shell.reply_all(&json!({ "content": [] }));
    assert!(matches!(shell.outcome(session, "1"), Some(Ok(_))));
    assert_eq!(only_process(&shell, "one"), server);
}
