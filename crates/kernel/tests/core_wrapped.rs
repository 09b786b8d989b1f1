//! Stories of a core with a wrapped server: ids, unreadable answers, progress, hand-over, checks.

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

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::{CallId, Generation, SessionId};
use mainstay_contract::outcome::{Outcome, Problem, Success};
use mainstay_kernel::core::action::{CoreAction, CoreEvent, WorkerNews};
use serde_json::{Value, json};

use self::shell::{Shell, packs, wrapping};

fn wrapped() -> (Shell, SessionId) {
    let mut shell = Shell::new(wrapping(json!({})));
    let client = shell.greet();
    (shell, client)
}

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

/// Longest time for a server to open a session, as `mainstay wrap` sets it.
const START_MS: u64 = 600_000;

/// A client that asks a server to open a session while the server still downloads its program.
fn starting() -> (Shell, SessionId, Generation) {
    let mut config = wrapping(json!({}));
    config.limits.start_timeout_ms = START_MS;
    let mut shell = Shell::new(config);
    shell.server.opens = false;
    let client = shell.greet();
    let server = shell.newest();
    (shell, client, server)
}

/// Answers the request that opens a session.
fn opens(shell: &mut Shell) {
    shell.server.opens = true;
    let opened = shell.server.opened();
    shell.reply_all(&opened);
}

#[test]
fn a_server_may_take_as_long_to_start_as_its_client_waits() {
    let (mut shell, client, server) = starting();
    shell.wait(START_MS - 1);
    assert_eq!(shell.outcome(client, "\"hello\""), None);
    assert_eq!(shell.newest(), server, "it was not replaced");
    opens(&mut shell);
    let opened = forwarded(shell.outcome(client, "\"hello\""));
    assert_eq!(opened["result"]["serverInfo"]["name"], "demo");
    shell.call(client, 1, "write", json!({}));
    shell.reply_all(&json!({ "content": [] }));
    forwarded(shell.outcome(client, "1"));
    let (mut shell, client, _) = starting();
    shell.wait(START_MS);
    let kind = problem(shell.outcome(client, "\"hello\"")).kind;
    assert_eq!(kind, ErrorKind::WorkerNotReady);
}

#[test]
fn a_server_that_exits_while_it_starts_fails_the_session_at_once() {
    let (mut shell, client, server) = starting();
    shell.wait(40_000);
    shell.crash(server);
    let kind = problem(shell.outcome(client, "\"hello\"")).kind;
    assert_eq!(kind, ErrorKind::WorkerSetup);
}

#[test]
fn a_client_that_leaves_ends_the_server_that_still_starts() {
    let (mut shell, client, server) = starting();
    shell.wait(40_000);
    shell.handle(CoreEvent::Gone { session: client });
    shell.wait(10_000);
    assert!(!shell.workers.contains_key(&server), "it was stopped");
}

#[test]
fn a_client_that_ends_its_input_waits_for_a_drain_and_no_longer() {
    let (mut shell, client, _) = starting();
    shell.handle(CoreEvent::InputEnded { session: client });
    shell.wait(29_999);
    assert_eq!(shell.outcome(client, "\"hello\""), None);
    shell.wait(1);
    let kind = problem(shell.outcome(client, "\"hello\"")).kind;
    assert_eq!(kind, ErrorKind::WorkerNotReady);
}

#[test]
fn a_client_that_cancels_its_start_can_open_the_session_later() {
    let (mut shell, client, _) = starting();
    shell.wait(40_000);
    let params = json!({ "requestId": "hello" });
    shell.say(
        client,
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }),
    );
    shell.wait(60_000);
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } });
    shell.ask(client, "2", "initialize", params);
    shell.wait(40_000);
    assert_eq!(shell.outcome(client, "2"), None);
    opens(&mut shell);
    forwarded(shell.outcome(client, "2"));
}

#[test]
fn a_call_keeps_its_own_deadline_while_a_server_starts_again() {
    let mut config = wrapping(json!({ "timeout_ms": 20_000 }));
    config.limits.start_timeout_ms = START_MS;
    let mut shell = Shell::new(config);
    let client = shell.greet();
    shell.server.opens = false;
    shell.crash(shell.newest());
    shell.wait(1000);
    shell.call(client, 1, "write", json!({}));
    shell.wait(19_999);
    assert_eq!(shell.outcome(client, "1"), None);
    shell.wait(1);
    let kind = problem(shell.outcome(client, "1")).kind;
    assert_eq!(kind, ErrorKind::Timeout);
}

#[test]
fn a_number_that_the_server_spells_differently_ends_the_call() {
    for (sent, answered) in [
        ("1.0", "1"),
        ("100", "1e2"),
        ("1e2", "100"),
        ("-0", "0"),
        ("7", "\"7\""),
        ("\"7\"", "7"),
        ("\"ä\"", "\"\\u00e4\""),
    ] {
        let (mut shell, client) = wrapped();
        shell.ask(
            client,
            sent,
            "tools/call",
            json!({ "name": "write", "arguments": {} }),
        );
        let server = shell.newest();
        let line = format!(r#"{{"jsonrpc":"2.0","id":{answered},"result":{{"content":[]}}}}"#);
        shell.server_line(server, line.as_bytes());
        let Some(Ok(Success::Forwarded(answer))) = shell.outcome(client, sent) else {
            panic!("{sent} answered as {answered} did not end");
        };
        let line = answer.line.as_str();
        assert!(line.contains(&format!("\"id\":{sent},")), "{line}");
    }
}

#[test]
fn an_unreadable_answer_with_a_legible_id_fails_its_call_at_once() {
    let answers: [&[u8]; 4] = [
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"text\":\"\xff\xfe\"}}",
        b"{\"result\":{\"text\":\"\xc3\"},\"id\":1,\"jsonrpc\":\"2.0\"}",
        b"\xEF\xBB\xBF{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}",
        b"{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":{}}",
    ];
    for answer in answers {
        let (mut shell, client) = wrapped();
        shell.call(client, 1, "write", json!({}));
        shell.call(client, 2, "write", json!({}));
        let server = shell.newest();
        shell.server_line(server, answer);
        let said = String::from_utf8_lossy(answer);
        let kind = problem(shell.outcome(client, "1")).kind;
        assert_eq!(kind, ErrorKind::WorkerProtocol, "{said}");
        assert_eq!(shell.outcome(client, "2"), None, "{said}");
    }
}

#[test]
fn an_unreadable_question_does_not_end_the_call_with_the_same_id() {
    let questions: [&[u8]; 5] = [
        b"{\"params\":{\"text\":\"\xff\"},\"id\":1,\"method\":\"roots/list\",\"jsonrpc\":\"2.0\"}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"\xff\"}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\",\"params\":{\"text\":\"\xff\"}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\",\"params\":[]}",
        b"\xEF\xBB\xBF{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}",
    ];
    for question in questions {
        let (mut shell, client) = wrapped();
        shell.call(client, 1, "write", json!({}));
        let server = shell.newest();
        shell.server_line(server, question);
        let said = String::from_utf8_lossy(question);
        assert_eq!(shell.outcome(client, "1"), None, "{said}");
        let news = WorkerNews::Oversize(question.to_vec());
        shell.handle(CoreEvent::Worker {
            generation: server,
            news,
        });
        assert_eq!(shell.outcome(client, "1"), None, "an oversize line: {said}");
        shell.reply_all(&json!({ "content": [] }));
        forwarded(shell.outcome(client, "1"));
    }
}

#[test]
fn progress_of_an_abandoned_call_is_not_that_of_the_next_with_its_token() {
    let progress = |token: &Value| {
        let params = json!({ "progressToken": token, "progress": 1 });
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
    };
    // The client cancels, or the deadline passes; the server works on.
    for is_cancelled in [true, false] {
        let (mut shell, client) = wrapped();
        let call = |shell: &mut Shell, id: u64, token: Value| {
            let meta = json!({ "progressToken": token });
            let params = json!({ "name": "write", "arguments": {}, "_meta": meta });
            shell.did.clear();
            shell.ask(client, &id.to_string(), "tools/call", params);
            shell.forwarded_token()
        };
        assert_eq!(call(&mut shell, 1, json!(7)), json!(7), "passed as it is");
        if is_cancelled {
            let params = json!({ "requestId": 1 });
            let line =
                json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
            shell.say(client, line);
        } else {
            shell.wait(120_000);
            problem(shell.outcome(client, "1"));
        }
        let server = shell.newest();
        let own = call(&mut shell, 2, json!(7));
        assert_ne!(
            own,
            json!(7),
            "the server may still use it for the first call"
        );
        shell.did.clear();
        for spelling in [json!(7), json!(7.0)] {
            shell.server_says(server, &progress(&spelling));
            assert_eq!(shell.told(client), [] as [Value; 0], "of the first call");
        }
        shell.server_says(server, &progress(&own));
        let told = shell.told(client);
        assert_eq!(told[0]["params"]["progressToken"], 7, "{told:?}");
        // Once the server has answered both, it reports no more under the token.
        shell.reply_all(&json!({ "content": [] }));
        forwarded(shell.outcome(client, "2"));
        assert_eq!(call(&mut shell, 3, json!(7)), json!(7));
    }
}

#[test]
fn progress_reaches_the_client_only_for_a_call_that_is_open() {
    let (mut shell, client) = wrapped();
    let progress = |token: &Value| {
        let params = json!({ "progressToken": token, "progress": 1 });
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
    };
    shell.call(client, 1, "write", json!({}));
    let server = shell.newest();
    shell.did.clear();
    shell.server_says(server, &progress(&json!(1)));
    assert_eq!(shell.told(client).len(), 1, "the call is open");
    for unknown in [json!(2), json!("1"), json!(null), json!("never given")] {
        shell.server_says(server, &progress(&unknown));
        assert_eq!(shell.told(client).len(), 1, "{unknown}");
    }
    shell.reply_all(&json!({ "content": [] }));
    shell.server_says(server, &progress(&json!(1)));
    assert_eq!(shell.told(client).len(), 1, "after the answer");
    let other = shell.greet();
    shell.call(other, 1, "write", json!({}));
    shell.did.clear();
    shell.server_says(server, &progress(&json!(1)));
    assert_eq!(
        shell.told(other).len() + shell.told(client).len(),
        0,
        "of another session"
    );
}

#[test]
fn notifications_keep_their_place_between_requests_while_a_server_starts() {
    let mut shell = Shell::new(wrapping(json!({ "lazy": true })));
    let client = shell.greet();
    shell.crash(shell.newest());
    for number in 0..5 {
        let method = format!("notifications/n{number}");
        shell.say(client, json!({ "jsonrpc": "2.0", "method": method }));
        shell.ask(
            client,
            &number.to_string(),
            "resources/read",
            json!({ "uri": "r" }),
        );
    }
    assert!(shell.workers.is_empty(), "the successor waits for its turn");
    shell.wait(10_000);
    let got = &shell.workers[&shell.newest()].lines;
    let got: Vec<String> = got
        .iter()
        .filter(|line| {
            line["method"] == "resources/read"
                || line["method"]
                    .as_str()
                    .is_some_and(|method| method.starts_with("notifications/n"))
        })
        .map(|line| {
            line["method"]
                .as_str()
                .unwrap()
                .replace("notifications/", "")
                + &line["id"].to_string()
        })
        .collect();
    let expected: Vec<String> = (0..5)
        .flat_map(|number| [format!("n{number}null"), format!("resources/read{number}")])
        .collect();
    assert_eq!(got, expected);
}

/// Calls that wait for a server, whose successor lists these tools instead.
fn handed_over(tools: &[Value]) -> (Shell, SessionId) {
    let (mut shell, client) = wrapped();
    shell.ask(client, "0", "tools/list", json!({}));
    shell.server.tools = tools.to_vec();
    shell.crash(shell.newest());
    shell.call(client, 1, "read", json!({ "n": "text" }));
    shell.wait(10_000);
    shell.reply_all(&json!({ "content": [] }));
    (shell, client)
}

#[test]
fn a_call_is_reconsidered_when_the_tools_of_the_successor_differ() {
    let read = json!({ "name": "read" });
    let (shell, client) = handed_over(std::slice::from_ref(&read));
    forwarded(shell.outcome(client, "1"));
    let told = shell.told(client);
    let is_change = |line: &&Value| line["method"] == "notifications/tools/list_changed";
    assert_eq!(told.iter().filter(is_change).count(), 1, "{told:?}");

    let (shell, client) = handed_over(&[json!({ "name": "other" })]);
    assert_eq!(
        problem(shell.outcome(client, "1")).kind,
        ErrorKind::UnknownTool
    );

    let mut strict = read;
    strict["inputSchema"] = json!({ "properties": { "n": { "type": "integer" } } });
    let (shell, client) = handed_over(&[strict]);
    assert_eq!(
        problem(shell.outcome(client, "1")).kind,
        ErrorKind::InvalidArguments
    );
}

#[test]
fn own_tools_are_listed_on_the_last_page_also_if_its_cursor_is_null() {
    let mut shell = Shell::new(wrapping(json!({ "system_tools": true })));
    let client = shell.greet();
    shell.ask(client, "1", "tools/list", json!({ "cursor": "x" }));
    let server = shell.newest();
    assert!(
        forwarded(shell.outcome(client, "1"))
            .to_string()
            .contains("system_health")
    );
    shell.server.answers_lists = false;
    shell.ask(client, "2", "tools/list", json!({}));
    let page = json!({ "tools": [{ "name": "a" }], "nextCursor": null });
    shell.server_says(
        server,
        &json!({ "jsonrpc": "2.0", "id": 2, "result": page }),
    );
    let listed = forwarded(shell.outcome(client, "2"));
    assert!(listed.to_string().contains("system_health"), "{listed}");
}

#[test]
fn wrong_arguments_of_an_own_tool_are_rejected_alike_by_both_kinds_of_host() {
    let mut rejected = Vec::new();
    for config in [packs(&[]), wrapping(json!({ "system_tools": true }))] {
        let mut shell = Shell::new(config);
        let client = shell.greet();
        shell.call(
            client,
            1,
            "system_health",
            json!({ "render": "xml", "bogus": 1 }),
        );
        shell.call(client, 2, "system_health", json!({}));
        let outcome = shell.outcome(client, "2");
        assert!(matches!(outcome, Some(Ok(Success::Tool(_)))), "{outcome:?}");
        rejected.push(problem(shell.outcome(client, "1")).clone());
    }
    assert_eq!(rejected[0].kind, ErrorKind::InvalidArguments);
    assert_eq!(rejected[0], rejected[1]);
}

#[test]
fn a_check_that_never_ends_costs_only_its_own_call() {
    let mut shell = Shell::new(wrapping(json!({ "timeout_ms": 3000 })));
    let (client, other) = (shell.greet(), shell.greet());
    shell.keeps_checks = true;
    shell.call(client, 1, "strict", json!({ "n": 1 }));
    let began = shell.now;
    let ticket = shell.actions().find_map(|action| match action {
        CoreAction::Check { ticket, .. } => Some(*ticket),
        _ => None,
    });
    let ticket = ticket.unwrap();
    for (session, id) in [(other, 1), (client, 2)] {
        shell.call(session, id, "read", json!({}));
        shell.reply_all(&json!({ "content": [] }));
        forwarded(shell.outcome(session, &id.to_string()));
    }
    shell.wait(2999);
    assert_eq!(shell.outcome(client, "1"), None);
    shell.wait(1);
    assert_eq!(problem(shell.outcome(client, "1")).kind, ErrorKind::Timeout);
    assert_eq!(shell.now.ms_since(began), 3000);
    let forget = CoreAction::ForgetCheck { ticket };
    assert_eq!(
        shell.actions().filter(|action| **action == forget).count(),
        1
    );
    let verdict = mainstay_schema::check::Verdict::Passed;
    shell.handle(CoreEvent::Checked { ticket, verdict });
    shell.reply_all(&json!({ "content": [] }));
    assert_eq!(shell.ends().filter(|end| end.session == client).count(), 3);
    assert!(shell.core.is_idle());
}

#[test]
fn a_check_of_a_packs_arguments_that_never_ends_costs_only_its_own_call() {
    let mut config = packs(&["a"]);
    config.limits.call_timeout_ms = 3000;
    let mut shell = Shell::new(config);
    let (client, other) = (shell.greet(), shell.greet());
    shell.keeps_checks = true;
    shell.call(client, 1, "read", json!({}));
    shell.ask(other, "1", "ping", json!({}));
    assert!(shell.outcome(other, "1").unwrap().is_ok());
    shell.wait(2999);
    assert_eq!(shell.outcome(client, "1"), None);
    shell.wait(1);
    assert_eq!(problem(shell.outcome(client, "1")).kind, ErrorKind::Timeout);
    let is_forgotten = |action: &CoreAction| matches!(action, CoreAction::ForgetCheck { .. });
    assert!(shell.actions().any(is_forgotten));
    assert!(shell.core.is_idle());
}

#[test]
fn a_question_of_a_lost_server_is_withdrawn_and_its_answer_dropped() {
    let (mut shell, client) = wrapped();
    let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "roots/list" });
    shell.server_says(shell.newest(), &question);
    assert_eq!(shell.told(client).last(), Some(&question));
    shell.crash(shell.newest());
    let withdrawn = shell.told(client).pop().unwrap();
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], 0);
    shell.wait(10_000);
    let successor = shell.newest();
    assert_ne!(successor, Generation::new(1));
    shell.server_says(successor, &question);
    let shown = shell.told(client).pop().unwrap();
    assert_eq!(shown["method"], "roots/list");
    assert_ne!(shown["id"], 0);
    let heard = shell.workers[&successor].lines.len();
    shell.say(
        client,
        json!({ "jsonrpc": "2.0", "id": 0, "result": "late" }),
    );
    assert_eq!(
        shell.workers[&successor].lines.len(),
        heard,
        "the answer was for another server"
    );
    shell.say(
        client,
        json!({ "jsonrpc": "2.0", "id": shown["id"], "result": "now" }),
    );
    let answer = json!({ "jsonrpc": "2.0", "id": 0, "result": "now" });
    assert_eq!(shell.workers[&successor].lines.last(), Some(&answer));
}

#[test]
fn a_server_withdraws_only_its_own_questions() {
    let mut config = wrapping(json!({}));
    config.limits.standby = 1;
    let mut shell = Shell::new(config);
    let client = shell.greet();
    let (serving, standby) = (Generation::new(1), shell.newest());
    assert_ne!(serving, standby);
    let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "roots/list" });
    let params = json!({ "requestId": 0 });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    shell.server_says(serving, &question);
    let before = shell.told(client).len();
    shell.server_says(standby, &cancel);
    assert_eq!(shell.told(client).len(), before, "it asked nothing");
    shell.server_says(standby, &question);
    let shown = shell.told(client).pop().unwrap();
    shell.server_says(standby, &cancel);
    let withdrawn = shell.told(client).pop().unwrap();
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], shown["id"]);
    shell.say(client, json!({ "jsonrpc": "2.0", "id": 0, "result": {} }));
    let answered = shell.workers[&serving].lines.last().unwrap();
    assert_eq!(answered["result"], json!({}));
}

/// The calls that were forwarded, in order.
fn sent_calls(shell: &Shell) -> Vec<CallId> {
    let calls = shell.actions().filter_map(|action| match action {
        CoreAction::Forward { call, .. } => Some(*call),
        _ => None,
    });
    calls.collect()
}

fn lose_call(shell: &mut Shell, generation: Generation, call: CallId, sent: bool) {
    let fault = Fault::new(ErrorKind::WorkerUnavailable, "answered 503").of(generation);
    let news = WorkerNews::CallLost { call, sent, fault };
    shell.handle(CoreEvent::Worker { generation, news });
}

#[test]
fn one_lost_call_is_judged_alone_and_its_server_goes_on() {
    let (mut shell, client) = wrapped();
    let server = shell.newest();
    let before = sent_calls(&shell).len();
    for (id, tool) in [(1, "read"), (2, "write"), (3, "write")] {
        shell.call(client, id, tool, json!({}));
    }
    let calls = sent_calls(&shell).split_off(before);
    assert_eq!(calls.len(), 3);
    let ids = |shell: &Shell| -> Vec<Value> {
        let pending = &shell.workers[&server].pending;
        pending.iter().map(|pending| pending.id.clone()).collect()
    };
    assert_eq!(ids(&shell), [json!(1), json!(2), json!(3)]);
    lose_call(&mut shell, server, calls[0], true);
    lose_call(&mut shell, server, calls[1], true);
    lose_call(&mut shell, server, calls[2], false);
    let kind = problem(shell.outcome(client, "2")).kind;
    assert_eq!(kind, ErrorKind::OutcomeUnknown);
    assert_eq!(
        sent_calls(&shell).split_off(before + 3),
        [calls[0], calls[2]]
    );
    let again = ids(&shell).split_off(3);
    assert!(
        !again.contains(&json!(1)) && !again.contains(&json!(3)),
        "under other ids"
    );
    shell.reply_all(&json!({ "content": [] }));
    for id in ["1", "3"] {
        assert_eq!(forwarded(shell.outcome(client, id))["id"].to_string(), id);
    }
    assert_eq!(shell.newest(), server);
}

#[test]
fn an_ended_session_finishes_its_calls_and_a_successor_gets_the_next() {
    let (mut shell, client) = wrapped();
    let server = shell.newest();
    shell.call(client, 1, "write", json!({}));
    let fault = Fault::new(ErrorKind::WorkerUnavailable, "the session ended").of(server);
    let news = WorkerNews::Unfit(fault);
    shell.handle(CoreEvent::Worker {
        generation: server,
        news,
    });
    shell.call(client, 2, "write", json!({}));
    shell.wait(10_000);
    let successor = shell.newest();
    assert_ne!(successor, server);
    let (first, pending) = shell.pending(0).unwrap();
    assert_eq!((first, &pending.id), (server, &json!(1)));
    shell.reply_all(&json!({ "content": [] }));
    forwarded(shell.outcome(client, "1"));
    forwarded(shell.outcome(client, "2"));
}

#[test]
fn a_probe_cannot_release_a_call_that_may_still_run_elsewhere() {
    let rules = json!({ "tools": { "write": {
        "replay": "probe_required",
        "probe": {
            "tool": "lookup",
            "arguments": {},
            "applied": { "path": "/structuredContent/found", "equals": true },
            "not_applied": { "path": "/structuredContent/found", "equals": false },
        },
    } } });
    for is_remote in [false, true] {
        let mut shell = Shell::new(wrapping(rules.clone()));
        let client = shell.greet();
        let server = shell.newest();
        if is_remote {
            let url = "https://tools.example.com/mcp".to_owned();
            let news = WorkerNews::Connected { url };
            shell.handle(CoreEvent::Worker {
                generation: server,
                news,
            });
        }
        shell.call(client, 1, "write", json!({}));
        let call = *sent_calls(&shell).last().unwrap();
        lose_call(&mut shell, server, call, true);
        shell.reply_all(&json!({ "content": [], "structuredContent": { "found": false } }));
        shell.reply_all(&json!({ "content": [] }));
        match is_remote {
            true => {
                let kind = problem(shell.outcome(client, "1")).kind;
                assert_eq!(kind, ErrorKind::OutcomeUnknown);
            }
            false => drop(forwarded(shell.outcome(client, "1"))),
        }
    }
}
