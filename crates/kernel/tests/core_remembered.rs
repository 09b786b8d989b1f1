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

/// The parameters of a request of a modern client.
fn modern_params(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

/// The handshake of a modern server.
fn described() -> Value {
    json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } })
}

/// The methods of the requests that the newest process got.
fn heard(shell: &Shell) -> Vec<&str> {
    let lines = shell.workers[&shell.newest()].lines.iter();
    lines.filter_map(|line| line["method"].as_str()).collect()
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
    let meta = modern_params(json!({}));
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
    shell.reply_all(&described());
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

#[test]
fn a_modern_client_hears_of_a_catalog_that_differs_after_its_acknowledgement() {
    let mut shell = Shell::new(wrapping(json!({})));
    shell.server.is_modern = true;
    let client = shell.open();
    shell.ask(client, "1", "server/discover", modern_params(json!({})));
    let declared = "/result/capabilities/tools/listChanged";
    let found = forwarded(shell.outcome(client, "1"));
    assert_eq!(found.pointer(declared), Some(&json!(true)), "{found}");
    shell.ask(client, "2", "tools/list", modern_params(json!({})));
    let memory = stored(&shell, "demo").expect("it was stored");
    let mut shell = second_run(wrapping(json!({})), &memory);
    shell.server.is_modern = true;
    let client = shell.open();
    shell.ask(client, "1", "server/discover", modern_params(json!({})));
    let found = forwarded(shell.outcome(client, "1"));
    assert_eq!(found.pointer(declared), Some(&json!(true)), "{found}");
    shell.ask(client, "2", "tools/list", modern_params(json!({})));
    assert_eq!(listed(&shell, client, "2").len(), 5);
    let wanted =
        json!({ "notifications": { "toolsListChanged": true, "promptsListChanged": true } });
    let listen = "subscriptions/listen";
    shell.ask(client, "3", listen, modern_params(wanted));
    shell.server.tools.retain(|tool| tool["name"] != "write");
    shell.server.opens = true;
    // This server knows no subscriptions.
    shell.reply_all(&described());
    assert!(heard(&shell).contains(&listen));
    let order = [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    ];
    assert_eq!(notified(&shell, client), order);
    let told = shell.told(client);
    let granted = &told[0]["params"]["notifications"];
    assert_eq!(
        *granted,
        json!({ "toolsListChanged": true }),
        "it has no prompts"
    );
    let subscription = "/params/_meta/io.modelcontextprotocol~1subscriptionId";
    assert_eq!(told[1].pointer(subscription), Some(&json!(3)));
    assert_eq!(shell.end_of(client, "3"), None, "it goes on");
}

#[test]
fn a_server_that_acknowledges_less_than_the_host_announces_is_corrected() {
    let mut shell = Shell::new(wrapping(json!({})));
    shell.server.is_modern = true;
    shell.server.starts = true;
    let client = shell.open();
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    shell.ask(client, "3", "subscriptions/listen", modern_params(wanted));
    let acknowledged = json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
        "params": { "notifications": { "resourceSubscriptions": [] },
            "_meta": { "io.modelcontextprotocol/subscriptionId": 3 } } });
    let server = shell.newest();
    shell.server_says(server, &acknowledged);
    let granted = json!({ "resourceSubscriptions": [], "toolsListChanged": true });
    assert_eq!(shell.told(client)[0]["params"]["notifications"], granted);
}

#[test]
fn a_legacy_client_of_a_modern_server_is_introduced_before_the_server_starts() {
    let bridged = || wrapping(json!({ "bridge": true }));
    let mut shell = Shell::new(bridged());
    (shell.server.is_modern, shell.server.refuses_sessions) = (true, true);
    shell.server.ttl_ms = Some(30_000);
    let client = shell.greet();
    let opened = forwarded(shell.outcome(client, "\"hello\""));
    shell.ask(client, "1", "tools/list", json!({}));
    let memory = stored(&shell, "demo").expect("it was stored");
    let again = |memory: &ServerMemory| {
        let mut shell = second_run(bridged(), memory);
        let client = shell.greet();
        assert_eq!(forwarded(shell.outcome(client, "\"hello\"")), opened);
        shell.ask(client, "1", "tools/list", json!({}));
        let list = forwarded(shell.outcome(client, "1"));
        assert_eq!(list["result"]["ttlMs"], Value::Null, "{list}");
        assert_eq!(listed(&shell, client, "1").len(), 5);
        shell.call(client, 2, "read", json!({}));
        (shell, client)
    };
    let (mut shell, client) = again(&memory);
    (shell.server.is_modern, shell.server.refuses_sessions) = (true, true);
    shell.server.tools.retain(|tool| tool["name"] != "write");
    shell.server.opens = true;
    let (server, pending) = shell.pending(0).unwrap();
    shell.reply(server, &pending, &described());
    assert_eq!(heard(&shell)[0], "server/discover");
    shell.reply_all(&json!({ "content": [], "resultType": "complete" }));
    let answer = forwarded(shell.outcome(client, "2"));
    assert_eq!(answer["result"], json!({ "content": [] }));
    let changed = "notifications/tools/list_changed";
    assert_eq!(notified(&shell, client), [changed]);
    // The server has sessions now, and nothing else.
    let (mut shell, client) = again(&memory);
    shell.server.opens = true;
    let (server, pending) = shell.pending(0).unwrap();
    let error = json!({ "code": -32601, "message": "unknown method" });
    shell.server_says(
        server,
        &json!({ "jsonrpc": "2.0", "id": pending.id, "error": error }),
    );
    shell.workers.get_mut(&server).unwrap().pending.clear();
    let order = ["server/discover", "initialize", "notifications/initialized"];
    assert_eq!(heard(&shell)[..3], order);
    shell.call(client, 3, "read", json!({}));
    shell.reply_all(&json!({ "content": [] }));
    forwarded(shell.outcome(client, "3"));
}

#[test]
fn a_modern_client_of_a_legacy_server_is_introduced_before_the_server_starts() {
    let bridged = || wrapping(json!({ "bridge": true }));
    let mut shell = Shell::new(bridged());
    let client = shell.open();
    shell.ask(client, "1", "server/discover", modern_params(json!({})));
    let found = forwarded(shell.outcome(client, "1"));
    shell.ask(client, "2", "tools/list", modern_params(json!({})));
    let memory = stored(&shell, "demo").expect("it was stored");
    let again = |memory: &ServerMemory| {
        let mut shell = second_run(bridged(), memory);
        let client = shell.open();
        shell.ask(client, "1", "server/discover", modern_params(json!({})));
        assert_eq!(forwarded(shell.outcome(client, "1")), found);
        shell.ask(client, "2", "tools/list", modern_params(json!({})));
        let list = forwarded(shell.outcome(client, "2"));
        assert_eq!(list["result"]["resultType"], "complete", "{list}");
        assert_eq!(list["result"]["ttlMs"], 0, "{list}");
        let wanted = json!({ "notifications": { "toolsListChanged": true } });
        shell.ask(client, "3", "subscriptions/listen", modern_params(wanted));
        shell.ask(
            client,
            "4",
            "tools/call",
            modern_params(json!({ "name": "read" })),
        );
        (shell, client)
    };
    let (mut shell, client) = again(&memory);
    shell.server.tools.retain(|tool| tool["name"] != "write");
    opens(&mut shell);
    let order = ["initialize", "notifications/initialized", "tools/list"];
    assert_eq!(heard(&shell)[..3], order);
    shell.reply_all(&json!({ "content": [] }));
    let answer = forwarded(shell.outcome(client, "4"));
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let order = [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    ];
    assert_eq!(notified(&shell, client), order);
    // The server speaks only the modern era now.
    let (mut shell, client) = again(&memory);
    (shell.server.is_modern, shell.server.opens) = (true, true);
    let (server, pending) = shell.pending(0).unwrap();
    let error = json!({ "code": -32601, "message": "unknown method" });
    shell.server_says(
        server,
        &json!({ "jsonrpc": "2.0", "id": pending.id, "error": error }),
    );
    assert_eq!(heard(&shell)[..2], ["initialize", "server/discover"]);
    shell
        .workers
        .get_mut(&server)
        .unwrap()
        .pending
        .retain(|left| left.id != pending.id);
    shell.reply_all(&json!({ "content": [] }));
    forwarded(shell.outcome(client, "4"));
}

#[test]
fn modern_clients_and_sharers_of_several_servers_get_lists_before_they_start() {
    let bridged = |shared: Option<bool>| {
        let mut config = merging();
        for server in &mut config.servers {
            let mut rules = (*server.rules).clone();
            rules.bridge = true;
            server.rules = rules.into();
            server.shared = shared;
        }
        config
    };
    for (shared, server_is_modern) in [(None, true), (None, false), (Some(true), false)] {
        let began = |config: CoreConfig, opens: bool| {
            let mut shell = Shell::new(config);
            (shell.server.is_modern, shell.server.opens) = (server_is_modern, opens);
            let client = shell.open();
            shell.ask(client, "1", "server/discover", modern_params(json!({})));
            shell.ask(client, "2", "tools/list", modern_params(json!({})));
            (shell, client)
        };
        let (shell, _) = began(bridged(shared), true);
        let mut config = bridged(shared);
        for server in &mut config.servers {
            server.memory = stored(&shell, &server.name).expect("it was stored");
        }
        let (shell, client) = began(config, false);
        assert!(shell.outcome(client, "1").is_some(), "{shared:?}");
        match shell.outcome(client, "2") {
            Some(Ok(Success::Members(members))) => {
                assert!(members.to_string().contains("\"one__write\""), "{shared:?}");
            }
            other => panic!("{shared:?}: not a list: {other:?}"),
        }
    }
}
