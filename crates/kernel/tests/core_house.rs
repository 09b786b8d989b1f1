//! Callers without a session of their own, on a wrapped server.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod merged_names;
mod shared_servers;
mod shell;

use mainstay_contract::dialect::Op;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::health::Lifecycle;
use mainstay_contract::id::{Generation, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Outcome, Problem, Success};
use mainstay_kernel::core::action::{CoreAction, CoreEvent};
use serde_json::{Value, json};

use self::shell::{Server, Shell, wrapping};

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
        let session = shell.ask_single("a", Op::ListTools { full: true });
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
    // A host that remembers the catalog starts a server only when a client asks for something.
    let mut shell = service(json!({ "remember": false }));
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
fn a_host_is_not_ready_while_its_server_has_answered_nothing() {
    let mut config = wrapping(json!({ "remember": false }));
    config.servers[0].trial = true;
    let pending = Server {
        opens: false,
        ..Server::default()
    };
    let mut shell = Shell::with_server(config, pending);
    assert_eq!((spawned(&shell), announced(&shell)), (1, 0));
    assert!(!shell.core.is_ready(), "it runs, and has answered nothing");
    shell.server.opens = true;
    shell.crash(shell.newest());
    shell.wait(10_000);
    assert!(shell.core.is_ready());
    assert_eq!(announced(&shell), 1);
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

#[test]
fn a_modern_server_that_starts_slowly_may_refuse_the_other_handshake() {
    let mut config = wrapping(json!({}));
    config.limits.start_timeout_ms = 600_000;
    let mut shell = Shell::new(config);
    (shell.server.is_modern, shell.server.opens) = (true, false);
    let caller = shell.ask_single("caller", Op::ListTools { full: false });
    shell.wait(8_000);
    let server = shell.newest();
    let pending = shell.workers[&server].pending.iter();
    let ids: Vec<Value> = pending.map(|pending| pending.id.clone()).collect();
    let [discover, initialize] = &ids[..] else {
        panic!("both handshakes are pending: {ids:?}");
    };
    shell.server.opens = true;
    let found = json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } });
    let found = json!({ "jsonrpc": "2.0", "id": discover, "result": found });
    shell.server_says(server, &found);
    let refused = json!({ "code": -32022, "message": "unsupported protocol version" });
    let refused = json!({ "jsonrpc": "2.0", "id": initialize, "error": refused });
    shell.server_says(server, &refused);
    assert_eq!(shell.newest(), server, "it was not replaced");
    let mut ends = shell.ends();
    assert!(ends.any(|end| end.session == caller && end.outcome.is_ok()));
}
