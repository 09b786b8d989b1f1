//! Answers from the catalog of the last start while a wrapped server starts.

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

use mainstay_contract::dialect::TASKS_VERSION;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::SessionId;
use mainstay_contract::outcome::{Outcome, Problem, Success};
use mainstay_kernel::CoreConfig;
use mainstay_kernel::core::action::CoreAction;
use mainstay_kernel::locked::Locked;
use mainstay_kernel::server::ServerMemory;
use mainstay_schema::Fingerprint;
use serde_json::{Value, json};

use self::shell::{Shell, merging, wrapping};

/// Longest time for a server to open a session, as `mainstay wrap` sets it.
const START_MS: u64 = 600_000;

/// The line with which a request ended, as the server's answer.
fn forwarded(outcome: Option<&Outcome>) -> Value {
    match outcome {
        Some(Ok(Success::Forwarded(answer))) => serde_json::from_str(answer.line.as_str()).unwrap(),
        other => panic!("not an answer of the server: {other:?}"),
    }
}

fn problem(outcome: Option<&Outcome>) -> &Problem {
    match outcome {
        Some(Err(problem)) => problem,
        other => panic!("not an error of the host: {other:?}"),
    }
}

/// Answers the request that opens a session.
fn opens(shell: &mut Shell) {
    shell.server.opens = true;
    let opened = shell.server.opened();
    shell.reply_all(&opened);
}

/// The memory of a server that the shell stored last.
fn stored(shell: &Shell, key: &str) -> Option<ServerMemory> {
    let stored = shell.actions().filter_map(|action| match action {
        CoreAction::Remember { server, memory } if server == key => Some((**memory).clone()),
        _ => None,
    });
    stored.last()
}

/// The memory that a run leaves in which a client opened a session and listed the tools.
fn first_run(config: CoreConfig) -> ServerMemory {
    let mut shell = Shell::new(config);
    let client = shell.greet();
    shell.ask(client, "1", "tools/list", json!({}));
    assert!(shell.outcome(client, "1").is_some());
    stored(&shell, "demo").expect("it was stored")
}

/// A second run, whose server does not open a session yet.
fn second_run(mut config: CoreConfig, memory: &ServerMemory) -> Shell {
    config.limits.start_timeout_ms = START_MS;
    config.servers[0].memory = memory.clone();
    let mut shell = Shell::new(config);
    shell.server.opens = false;
    shell
}

/// The names of the tools in the answer to a list.
fn listed(shell: &Shell, client: SessionId, id: &str) -> Vec<String> {
    let answer = forwarded(shell.outcome(client, id));
    let tools = answer["result"]["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

/// The methods of the notifications that a client got.
fn notified(shell: &Shell, client: SessionId) -> Vec<String> {
    let told = shell.told(client).into_iter();
    let methods = told.filter_map(|line| line["method"].as_str().map(str::to_owned));
    methods.collect()
}

#[test]
fn the_second_start_answers_the_handshake_and_the_list_before_the_server_does() {
    let memory = first_run(wrapping(json!({})));
    let mut shell = second_run(wrapping(json!({})), &memory);
    let client = shell.greet();
    let opened = forwarded(shell.outcome(client, "\"hello\""));
    assert_eq!(opened["result"]["serverInfo"]["name"], "demo");
    shell.ask(client, "1", "tools/list", json!({}));
    assert_eq!(listed(&shell, client, "1").len(), 5);
    shell.call(client, 2, "write", json!({}));
    let server = shell.newest();
    assert!(
        shell.workers[&server].pending.len() == 1,
        "only the handshake"
    );
    shell.wait(60_000);
    assert_eq!(shell.outcome(client, "2"), None, "it waits");
    opens(&mut shell);
    shell.reply_all(&json!({ "content": [] }));
    forwarded(shell.outcome(client, "2"));
    let got: Vec<&str> = shell.workers[&server]
        .lines
        .iter()
        .filter_map(|line| line["method"].as_str())
        .collect();
    let order = [
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
    ];
    assert_eq!(got, order);
    assert_eq!(
        notified(&shell, client),
        [""; 0],
        "the same tools, and no restart"
    );
    // From now on the server answers.
    shell.server.tools.clear();
    shell.ask(client, "3", "tools/list", json!({}));
    assert_eq!(listed(&shell, client, "3"), [""; 0]);
}

#[test]
fn a_catalog_that_differs_is_announced_and_calls_are_checked_against_the_new_one() {
    let memory = first_run(wrapping(json!({})));
    let mut shell = second_run(wrapping(json!({})), &memory);
    let client = shell.greet();
    shell.ask(client, "1", "tools/list", json!({}));
    shell.call(client, 2, "write", json!({}));
    shell.call(client, 3, "read", json!({}));
    shell.server.tools.retain(|tool| tool["name"] != "write");
    opens(&mut shell);
    let gone = problem(shell.outcome(client, "2")).kind;
    assert_eq!(gone, ErrorKind::UnknownTool);
    shell.reply_all(&json!({ "content": [] }));
    forwarded(shell.outcome(client, "3"));
    let changed = "notifications/tools/list_changed";
    assert_eq!(notified(&shell, client), [changed]);
    let newer = stored(&shell, "demo").expect("the new list is stored");
    let mut shell = second_run(wrapping(json!({})), &newer);
    let client = shell.greet();
    shell.ask(client, "1", "tools/list", json!({}));
    assert!(!listed(&shell, client, "1").contains(&"write".to_owned()));
}

#[test]
fn a_catalog_is_given_only_to_the_same_kind_of_client_with_the_same_lock() {
    let memory = first_run(wrapping(json!({})));
    let hello = |version: &str, capabilities: Value| {
        json!({ "protocolVersion": version, "capabilities": capabilities,
            "clientInfo": { "name": "another", "version": "2" } })
    };
    let is_given = |config: CoreConfig, caller: Option<&str>, params: Value| {
        let mut shell = second_run(config, &memory);
        let client = shell.open();
        if let Some(caller) = caller {
            shell.core.set_caller(client, caller);
        }
        shell.ask(client, "1", "initialize", params);
        shell.outcome(client, "1").is_some()
    };
    let same = hello(TASKS_VERSION, json!({}));
    assert!(is_given(wrapping(json!({})), None, same.clone()));
    assert!(!is_given(
        wrapping(json!({})),
        Some("token:a"),
        same.clone()
    ));
    assert!(!is_given(
        wrapping(json!({ "remember": false })),
        None,
        same.clone()
    ));
    for params in [
        hello("2025-03-26", json!({})),
        hello(TASKS_VERSION, json!({ "sampling": {} })),
    ] {
        assert!(
            !is_given(wrapping(json!({})), None, params.clone()),
            "{params}"
        );
    }
    let mut locked = wrapping(json!({}));
    locked.servers[0].locked = Some(Locked::of_tools([]).into());
    assert!(!is_given(locked, None, same));
}

#[test]
fn a_withdrawn_tool_stays_withdrawn_in_a_remembered_catalog() {
    let read = json!({ "name": "read", "annotations": { "readOnlyHint": true } });
    let locked = || {
        let mut config = wrapping(json!({ "deny": ["lookup"] }));
        let reviewed = [("read".to_owned(), Fingerprint::of(&read))];
        config.servers[0].locked = Some(Locked::of_tools(reviewed).into());
        config
    };
    let memory = first_run(locked());
    let mut shell = second_run(locked(), &memory);
    let client = shell.greet();
    shell.ask(client, "1", "tools/list", json!({}));
    assert_eq!(listed(&shell, client, "1"), ["read"]);
    for (id, tool) in [(2, "write"), (3, "lookup")] {
        shell.call(client, id, tool, json!({}));
        let kind = problem(shell.outcome(client, &id.to_string())).kind;
        assert_eq!(kind, ErrorKind::Forbidden, "{tool}");
    }
}

#[test]
fn a_server_that_never_starts_ends_calls_at_their_deadlines_and_the_session_lives() {
    let rules = json!({ "timeout_ms": 20_000 });
    let memory = first_run(wrapping(rules.clone()));
    let mut shell = second_run(wrapping(rules), &memory);
    let client = shell.greet();
    shell.call(client, 1, "write", json!({}));
    shell.call(client, 2, "unknown", json!({}));
    shell.wait(19_999);
    assert_eq!(shell.outcome(client, "1"), None);
    shell.wait(1);
    for id in ["1", "2"] {
        assert_eq!(problem(shell.outcome(client, id)).kind, ErrorKind::Timeout);
    }
    shell.ask(client, "3", "tools/list", json!({}));
    assert_eq!(listed(&shell, client, "3").len(), 5);
}

#[test]
fn a_modern_list_keeps_the_rest_of_its_time_to_live_and_none_after_it() {
    let meta = json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    } });
    let modern = |config: CoreConfig| {
        let mut shell = Shell::new(config);
        shell.server.is_modern = true;
        shell.server.ttl_ms = Some(30_000);
        shell
    };
    let mut shell = modern(wrapping(json!({})));
    let client = shell.open();
    shell.ask(client, "1", "server/discover", meta.clone());
    shell.ask(client, "2", "tools/list", meta.clone());
    let memory = stored(&shell, "demo").expect("it was stored");
    let mut config = wrapping(json!({}));
    config.servers[0].memory = memory;
    let mut shell = modern(config);
    shell.server.opens = false;
    let client = shell.open();
    shell.wait(10_000);
    for (id, left_ms) in [("1", 20_000), ("2", 0)] {
        shell.ask(client, id, "tools/list", meta.clone());
        let answer = forwarded(shell.outcome(client, id));
        assert_eq!(answer["result"]["ttlMs"], left_ms);
        assert_eq!(answer["result"]["tools"].as_array().unwrap().len(), 5);
        shell.wait(20_000);
    }
    shell.server.opens = true;
    let described = json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } });
    shell.reply_all(&described);
    shell.ask(client, "3", "tools/list", meta);
    let answer = forwarded(shell.outcome(client, "3"));
    assert_eq!(answer["result"]["ttlMs"], 30_000, "the server's own answer");
}

#[test]
fn several_servers_are_introduced_and_listed_before_they_start() {
    let mut shell = Shell::new(merging());
    let client = shell.greet();
    shell.ask(client, "1", "tools/list", json!({}));
    let mut config = merging();
    for server in &mut config.servers {
        server.memory = stored(&shell, &server.name).expect("it was stored");
    }
    let mut shell = Shell::new(config);
    shell.server.opens = false;
    let client = shell.greet();
    assert!(
        shell.outcome(client, "\"hello\"").is_some(),
        "no server was waited for"
    );
    shell.ask(client, "1", "tools/list", json!({}));
    let listing = |shell: &Shell, id: &str| match shell.outcome(client, id) {
        Some(Ok(Success::Members(members))) => members.to_string(),
        other => panic!("not a list: {other:?}"),
    };
    assert!(listing(&shell, "1").contains("\"one__write\""));
    shell.call(client, 2, "one__write", json!({}));
    shell.wait(1000);
    assert_eq!(shell.outcome(client, "2"), None, "it waits");
    shell.server.tools.retain(|tool| tool["name"] != "once");
    opens(&mut shell);
    shell.reply_all(&json!({ "content": [] }));
    forwarded(shell.outcome(client, "2"));
    let told = notified(&shell, client);
    let changed = "notifications/tools/list_changed".to_owned();
    assert!(told.contains(&changed), "{told:?}");
    shell.ask(client, "3", "tools/list", json!({}));
    assert!(!listing(&shell, "3").contains("\"one__once\""));
}
