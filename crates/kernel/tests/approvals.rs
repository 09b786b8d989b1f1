//! Stories of calls that a person must approve, and of records that must be on the disk first.

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

mod shell;

use std::sync::Arc;

use mainstay_contract::audit::{AuditEvent, AuditRecord};
use mainstay_contract::dialect::{ApprovalOp, MODERN_VERSION, Op};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::SessionId;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Outcome, Success};
use mainstay_kernel::CoreConfig;
use mainstay_kernel::approvals::{AnswerError, Policy};
use mainstay_kernel::core::action::{CoreAction, CoreEvent};
use mainstay_kernel::server::Rules;
use serde_json::{Value, json};

use self::shell::{Shell, merging, packs, wrapping};

const WAIT_MS: u64 = 300_000;

fn ask_writes() -> Value {
    json!({ "approvals": { "rules": [{ "verdict": "ask", "tool": "write" }] } })
}

fn wrapped() -> Shell {
    Shell::new(wrapping(ask_writes()))
}

/// A client of the legacy era that can ask its user.
fn greet_asking(shell: &mut Shell) -> SessionId {
    let session = shell.open();
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "test", "version": "1" } });
    shell.ask(session, "\"hello\"", "initialize", params);
    shell.say(
        session,
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
    );
    session
}

fn kind(outcome: Option<&Outcome>) -> Option<ErrorKind> {
    outcome?.as_ref().err().map(|problem| problem.kind)
}

/// The only call that waits.
fn waiting(shell: &Shell) -> String {
    let all = shell.core.approvals();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].id.clone()
}

fn grant(shell: &mut Shell, id: &str, by: Option<&str>) -> Result<(), AnswerError> {
    answer(shell, id, true, by)
}

fn answer(shell: &mut Shell, id: &str, granted: bool, by: Option<&str>) -> Result<(), AnswerError> {
    let done = shell.core.answer_approval(shell.now, id, granted, by);
    shell.wait(0);
    shell.handle(CoreEvent::Timeout);
    done
}

/// The lines that a client got.
fn told(shell: &Shell, session: SessionId) -> Vec<Value> {
    let lines = shell.actions().filter_map(|action| match action {
        CoreAction::Tell { session: to, line } if *to == session => Some(line),
        _ => None,
    });
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn question(shell: &Shell, session: SessionId) -> Value {
    let told = told(shell, session);
    let asked = told
        .iter()
        .rfind(|line| line["method"] == "elicitation/create");
    asked
        .unwrap_or_else(|| panic!("no question in {told:?}"))
        .clone()
}

#[test]
fn a_call_that_is_asked_about_holds_no_worker_and_runs_once_it_is_granted() {
    let mut shell = wrapped();
    let client = shell.greet();
    shell.call(client, 1, "write", json!({ "path": "a" }));
    shell.call(client, 2, "read", json!({}));
    assert_eq!(
        shell.workers[&shell.newest()].pending.len(),
        1,
        "only the other call"
    );
    // Longer than the timeout of a call.
    shell.wait(200_000);
    let id = waiting(&shell);
    grant(&mut shell, &id, None).unwrap();
    shell.reply_all(&json!({ "content": [] }));
    assert!(shell.outcome(client, "1").unwrap().is_ok());
    assert_eq!(
        grant(&mut shell, &id, None),
        Err(AnswerError::Unknown),
        "used"
    );
    shell.call(client, 3, "write", json!({ "path": "a" }));
    assert_ne!(waiting(&shell), id, "the same call asks again");
}

#[test]
fn a_call_that_is_denied_or_not_answered_ends_with_its_own_error() {
    let mut shell = wrapped();
    let client = shell.greet();
    shell.call(client, 1, "write", json!({}));
    let id = waiting(&shell);
    answer(&mut shell, &id, false, None).unwrap();
    assert_eq!(
        kind(shell.outcome(client, "1")),
        Some(ErrorKind::ApprovalDenied)
    );
    shell.call(client, 2, "write", json!({}));
    shell.wait(WAIT_MS - 1);
    assert_eq!(shell.outcome(client, "2"), None);
    let id = waiting(&shell);
    shell.wait(1);
    assert_eq!(
        kind(shell.outcome(client, "2")),
        Some(ErrorKind::ApprovalExpired)
    );
    assert_eq!(grant(&mut shell, &id, None), Err(AnswerError::Unknown));
    assert!(shell.workers[&shell.newest()].pending.is_empty());
}

#[test]
fn a_call_that_is_cancelled_waits_no_more() {
    let mut shell = wrapped();
    let client = greet_asking(&mut shell);
    shell.call(client, 1, "write", json!({}));
    let asked = question(&shell, client);
    let id = waiting(&shell);
    let params = json!({ "requestId": 1 });
    shell.say(
        client,
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }),
    );
    assert!(shell.core.approvals().is_empty());
    let told = told(&shell, client);
    let cancelled = told.last().unwrap();
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    assert_eq!(grant(&mut shell, &id, None), Err(AnswerError::Unknown));
    shell.say(
        client,
        json!({ "jsonrpc": "2.0", "id": asked["id"],
        "result": { "action": "accept", "content": { "decision": "run it once" } } }),
    );
    assert!(shell.workers[&shell.newest()].pending.is_empty());
}

#[test]
fn a_client_of_the_legacy_era_asks_its_user() {
    for (config, tool) in [
        (wrapping(ask_writes()), "write"),
        (asking_packs(), "read"),
        (asking_servers(), "one__write"),
    ] {
        let mut shell = Shell::new(config);
        let client = greet_asking(&mut shell);
        shell.call(client, 1, tool, json!({}));
        let asked = question(&shell, client);
        assert_eq!(
            asked["params"]["requestedSchema"]["required"],
            json!(["decision"])
        );
        let say = |shell: &mut Shell, id: &Value, result: Value| {
            shell.say(
                client,
                json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            );
        };
        let accepted = json!({ "action": "accept", "content": { "decision": "run it once" } });
        say(&mut shell, &asked["id"], accepted.clone());
        say(&mut shell, &asked["id"], accepted);
        assert!(shell.pending(0).is_some(), "{tool} runs");
        shell.call(client, 2, tool, json!({}));
        let asked = question(&shell, client);
        say(&mut shell, &asked["id"], json!({ "action": "decline" }));
        assert_eq!(
            kind(shell.outcome(client, "2")),
            Some(ErrorKind::ApprovalDenied),
            "{tool}"
        );
        // A client that cannot ask leaves the answer to others.
        shell.call(client, 3, tool, json!({}));
        let asked = question(&shell, client);
        shell.say(client, json!({ "jsonrpc": "2.0", "id": asked["id"], "error": { "code": -32601, "message": "?" } }));
        assert_eq!(shell.outcome(client, "3"), None);
        let id = waiting(&shell);
        grant(&mut shell, &id, None).unwrap();
        assert!(shell.core.approvals().is_empty());
    }
}

fn asking_packs() -> CoreConfig {
    CoreConfig {
        approvals: serde_json::from_value(
            json!({ "rules": [{ "verdict": "ask", "server": "a", "tool": "read" }] }),
        )
        .unwrap(),
        ..packs(&["a"])
    }
}

fn asking_servers() -> CoreConfig {
    CoreConfig {
        approvals: serde_json::from_value(
            json!({ "rules": [{ "verdict": "ask", "server": "one" }] }),
        )
        .unwrap(),
        ..merging()
    }
}

#[test]
fn another_client_cannot_answer_a_question() {
    let mut shell = Shell::new(asking_servers());
    let (client, other) = (greet_asking(&mut shell), greet_asking(&mut shell));
    shell.call(client, 1, "one__write", json!({}));
    let asked = question(&shell, client);
    shell.say(
        other,
        json!({ "jsonrpc": "2.0", "id": asked["id"],
        "result": { "action": "accept", "content": { "decision": "run it once" } } }),
    );
    waiting(&shell);
    assert_eq!(shell.outcome(client, "1"), None);
}

/// A request of the modern era.
fn modern(name: &str, arguments: Value, more: Value) -> Value {
    let mut params = json!({ "name": name, "arguments": arguments, "_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    } });
    params
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    params
}

fn modern_wrapped() -> (Shell, SessionId) {
    let mut shell = wrapped();
    shell.server.is_modern = true;
    let client = shell.open();
    (shell, client)
}

/// The answer to a request as its client gets it.
fn result(shell: &Shell, client: SessionId, id: &str) -> Value {
    match shell.outcome(client, id) {
        Some(Ok(Success::Forwarded(answer))) => {
            serde_json::from_str::<Value>(answer.line.as_str()).unwrap()["result"].clone()
        }
        other => panic!("{other:?}"),
    }
}

fn accepted() -> Value {
    json!({ "approval": { "action": "accept", "content": { "decision": "run it once" } } })
}

#[test]
fn a_client_of_the_modern_era_repeats_the_call() {
    let (mut shell, client) = modern_wrapped();
    shell.ask(
        client,
        "1",
        "tools/call",
        modern("write", json!({ "n": 1 }), json!({})),
    );
    let asked = result(&shell, client, "1");
    assert_eq!(asked["resultType"], "input_required");
    assert_eq!(
        asked["inputRequests"]["approval"]["method"],
        "elicitation/create"
    );
    let round = json!({ "requestState": asked["requestState"], "inputResponses": accepted() });
    shell.ask(
        client,
        "2",
        "tools/call",
        modern("write", json!({ "n": 1 }), round),
    );
    let sent = shell.workers[&shell.newest()].lines.last().unwrap().clone();
    assert_eq!(sent["params"]["arguments"], json!({ "n": 1 }));
    assert!(sent["params"].get("requestState").is_none(), "{sent}");
    assert!(sent["params"].get("inputResponses").is_none(), "{sent}");
}

/// A client with the state of a round that is not for it.
type Attempt = fn(&mut Shell, SessionId, Value);

/// Attempts to use a grant again, for another caller, or for another call.
#[test]
fn a_grant_is_for_one_caller_one_tool_one_set_of_arguments_one_policy_and_one_use() {
    let attempts: [(&str, Attempt); 8] = [
        ("other arguments", |shell, client, round| {
            shell.ask(
                client,
                "2",
                "tools/call",
                modern("write", json!({ "n": 2 }), round),
            );
        }),
        ("another tool", |shell, client, round| {
            shell.ask(
                client,
                "2",
                "tools/call",
                modern("WRITE", json!({ "n": 1 }), round),
            );
        }),
        ("another session", |shell, _, round| {
            let other = shell.open();
            shell.ask(
                other,
                "2",
                "tools/call",
                modern("write", json!({ "n": 1 }), round),
            );
        }),
        ("another credential", |shell, _, round| {
            let other = shell.open();
            shell.core.set_caller(other, "token:77");
            shell.ask(
                other,
                "2",
                "tools/call",
                modern("write", json!({ "n": 1 }), round),
            );
        }),
        ("too late", |shell, client, round| {
            shell.wait(WAIT_MS);
            shell.ask(
                client,
                "2",
                "tools/call",
                modern("write", json!({ "n": 1 }), round),
            );
        }),
        ("another policy", |shell, client, round| {
            let mut rules = ask_writes();
            rules["approvals"]["rules"][0]["tool"] = json!("wr*");
            let rules: Rules = serde_json::from_value(rules).unwrap();
            shell.handle(CoreEvent::Rules(Arc::new(rules)));
            shell.ask(
                client,
                "2",
                "tools/call",
                modern("write", json!({ "n": 1 }), round),
            );
        }),
        ("a guessed id", |shell, client, mut round| {
            round["requestState"] = json!("io.mainstay/approval/0000000000000000");
            shell.ask(
                client,
                "2",
                "tools/call",
                modern("write", json!({ "n": 1 }), round),
            );
        }),
        ("no decision", |shell, client, mut round| {
            round["inputResponses"] = json!({});
            shell.ask(
                client,
                "2",
                "tools/call",
                modern("write", json!({ "n": 1 }), round),
            );
        }),
    ];
    for granted in [false, true] {
        for (what, attempt) in &attempts {
            // A grant of the operator needs no decision of the client.
            if granted && *what == "no decision" {
                continue;
            }
            let (mut shell, client) = modern_wrapped();
            shell.ask(
                client,
                "1",
                "tools/call",
                modern("write", json!({ "n": 1 }), json!({})),
            );
            let asked = result(&shell, client, "1");
            if granted {
                let id = waiting(&shell);
                grant(&mut shell, &id, None).unwrap();
            }
            let round =
                json!({ "requestState": asked["requestState"], "inputResponses": accepted() });
            attempt(&mut shell, client, round);
            assert_eq!(shell.pending(0), None, "{what} {granted}");
            let refused = shell
                .ends()
                .last()
                .unwrap()
                .outcome
                .clone()
                .unwrap_err()
                .kind;
            let expected = [
                ErrorKind::ApprovalExpired,
                ErrorKind::ApprovalDenied,
                ErrorKind::Forbidden,
            ];
            assert!(expected.contains(&refused), "{what}: {refused:?}");
        }
    }
    // And twice, one after the other and at the same time.
    let (mut shell, client) = modern_wrapped();
    shell.ask(
        client,
        "1",
        "tools/call",
        modern("write", json!({ "n": 1 }), json!({})),
    );
    let asked = result(&shell, client, "1");
    let round = json!({ "requestState": asked["requestState"], "inputResponses": accepted() });
    shell.ask(
        client,
        "2",
        "tools/call",
        modern("write", json!({ "n": 1 }), round.clone()),
    );
    shell.ask(
        client,
        "3",
        "tools/call",
        modern("write", json!({ "n": 1 }), round),
    );
    assert_eq!(
        kind(shell.outcome(client, "3")),
        Some(ErrorKind::ApprovalExpired)
    );
    let server = shell.newest();
    assert_eq!(shell.workers[&server].pending.len(), 1);
}

#[test]
fn a_credential_never_approves_its_own_call() {
    let mut shell = Shell::new(asking_packs());
    let call = |name: &str| Op::CallTool {
        name: name.to_owned(),
        arguments: Json::empty_object(),
    };
    let session = shell.ask_single("token:aa", call("read"));
    let id = waiting(&shell);
    let answer = |id: &str| {
        Op::Approvals(ApprovalOp::Answer {
            id: id.to_owned(),
            grant: true,
        })
    };
    let own = shell.ask_single("token:aa", answer(&id));
    assert_eq!(kind(shell.outcome(own, "1")), Some(ErrorKind::Forbidden));
    let other = shell.ask_single("token:bb", answer(&id));
    assert!(shell.outcome(other, "1").unwrap().is_ok());
    shell.reply_all(&json!({ "ok": true }));
    assert!(shell.outcome(session, "1").is_some());
    let again = shell.ask_single("token:bb", answer(&id));
    assert_eq!(kind(shell.outcome(again, "1")), Some(ErrorKind::NotFound));
}

#[test]
fn a_call_that_rules_deny_never_reaches_its_server() {
    let rules = json!({ "approvals": { "rules": [
        { "verdict": "deny", "arguments": [{ "path": "/path", "glob": "/etc/*" }] },
    ] } });
    let mut shell = Shell::new(wrapping(rules));
    let client = shell.greet();
    shell.call(client, 1, "write", json!({ "path": "/etc/passwd" }));
    assert_eq!(kind(shell.outcome(client, "1")), Some(ErrorKind::Forbidden));
    shell.ask(
        client,
        "2",
        "tools/call",
        json!({ "name": "write", "arguments": { "path": "/tmp/x" } }),
    );
    assert!(shell.pending(0).is_some());
    let line = br#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"write","arguments":{"path":"/etc/x","path":"/tmp/x"}}}"#;
    shell.line(client, line.to_vec());
    assert_eq!(
        kind(shell.outcome(client, "3")),
        Some(ErrorKind::Forbidden),
        "read in two ways"
    );
}

#[test]
fn waiting_calls_are_bounded_in_all_and_for_one_caller() {
    let mut config = wrapping(ask_writes());
    config.limits.approvals = 20;
    let mut shell = Shell::new(config);
    let client = shell.greet();
    for id in 1..=17 {
        shell.call(client, id, "write", json!({}));
    }
    assert_eq!(
        kind(shell.outcome(client, "17")),
        Some(ErrorKind::Overloaded)
    );
    let other = shell.greet();
    for id in 1..=5 {
        shell.call(other, id, "write", json!({}));
    }
    assert_eq!(kind(shell.outcome(other, "5")), Some(ErrorKind::Overloaded));
    assert_eq!(shell.core.approvals().len(), 20);
    shell.handle(CoreEvent::Gone { session: client });
    assert_eq!(
        shell.core.approvals().len(),
        4,
        "those of a client that left are gone"
    );
}

#[test]
fn a_changed_policy_ends_what_was_asked_about_under_the_old_one() {
    let mut shell = Shell::new(asking_packs());
    let client = shell.greet();
    shell.call(client, 1, "read", json!({}));
    waiting(&shell);
    let policy: Policy = serde_json::from_value(json!({ "otherwise": "ask" })).unwrap();
    shell.handle(CoreEvent::Policy(policy));
    assert_eq!(
        kind(shell.outcome(client, "1")),
        Some(ErrorKind::ApprovalExpired)
    );
}

#[test]
fn waiting_calls_survive_an_upgrade_at_any_event() {
    for event in 1..40 {
        let mut config = wrapping(ask_writes());
        config.audits = true;
        let mut shell = Shell::new(config);
        shell.restore_after = Some(event);
        let client = greet_asking(&mut shell);
        shell.call(client, 1, "write", json!({}));
        let asked = question(&shell, client);
        shell.say(
            client,
            json!({ "jsonrpc": "2.0", "id": asked["id"],
            "result": { "action": "accept", "content": { "decision": "run it once" } } }),
        );
        record_all(&mut shell, &mut 0, None);
        shell.reply_all(&json!({ "content": [] }));
        record_all(&mut shell, &mut 0, None);
        assert!(
            shell.outcome(client, "1").is_some_and(Result::is_ok),
            "event {event}"
        );
    }
}

/// Acknowledges every ticket from `seen` on.
fn record_all(shell: &mut Shell, seen: &mut u64, error: Option<&str>) {
    for _ in 0..20 {
        let tickets: Vec<u64> = shell
            .actions()
            .filter_map(|action| match action {
                CoreAction::Audit { ticket, .. } => *ticket,
                _ => None,
            })
            .filter(|ticket| ticket > seen)
            .collect();
        let Some(last) = tickets.last() else { return };
        *seen = *last;
        for ticket in tickets {
            let written = error.map_or(Ok(()), |error| Err(error.to_owned()));
            shell.handle(CoreEvent::Audited { ticket, written });
        }
    }
}

fn records(shell: &Shell) -> Vec<AuditRecord> {
    let records = shell.actions().filter_map(|action| match action {
        CoreAction::Audit { record, .. } => Some((**record).clone()),
        _ => None,
    });
    records.collect()
}

fn audited(rules: Value) -> CoreConfig {
    CoreConfig {
        audits: true,
        ..wrapping(rules)
    }
}

#[test]
fn a_call_with_effects_is_sent_and_answered_only_after_its_records_are_on_the_disk() {
    let mut shell = Shell::new(audited(json!({})));
    let client = shell.greet();
    let mut seen = 0;
    shell.call(client, 1, "write", json!({ "secret": "hunter2" }));
    assert_eq!(
        shell.pending(0),
        None,
        "not before the decision is on the disk"
    );
    record_all(&mut shell, &mut seen, None);
    shell.reply_all(&json!({ "content": [] }));
    assert_eq!(shell.outcome(client, "1"), None, "not before its end is");
    shell.handle(CoreEvent::InputEnded { session: client });
    let closes = |shell: &Shell| {
        shell
            .actions()
            .any(|action| matches!(action, CoreAction::Close { .. }))
    };
    assert!(!closes(&shell), "nor is its connection closed before");
    record_all(&mut shell, &mut seen, None);
    assert!(shell.outcome(client, "1").unwrap().is_ok());
    assert!(closes(&shell));
    let events: Vec<AuditEvent> = records(&shell).iter().map(|record| record.event).collect();
    assert_eq!(events, [AuditEvent::Decision, AuditEvent::Ended]);
    let text = format!("{:?}", records(&shell));
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_call_that_only_reads_waits_for_no_record() {
    let trusted = json!({ "approvals": { "trust_annotations": true } });
    let mut shell = Shell::new(audited(trusted));
    let client = shell.greet();
    shell.call(client, 1, "read", json!({}));
    shell.reply_all(&json!({ "content": [] }));
    assert!(shell.outcome(client, "1").unwrap().is_ok());
    assert_eq!(records(&shell).len(), 2);
}

#[test]
fn a_call_whose_decision_cannot_be_recorded_is_not_sent() {
    let mut shell = Shell::new(audited(json!({})));
    let client = shell.greet();
    shell.call(client, 1, "write", json!({}));
    record_all(&mut shell, &mut 0, Some("no space left on device"));
    assert_eq!(
        kind(shell.outcome(client, "1")),
        Some(ErrorKind::AuditUnavailable)
    );
    assert_eq!(shell.pending(0), None);
}

#[test]
fn the_result_of_a_call_whose_end_cannot_be_recorded_is_withheld() {
    for waits in [false, true] {
        let mut shell = Shell::new(audited(json!({})));
        let client = shell.greet();
        let mut seen = 0;
        shell.call(client, 1, "write", json!({}));
        record_all(&mut shell, &mut seen, None);
        shell.reply_all(&json!({ "content": [] }));
        if waits {
            // A disk that does not answer at all.
            shell.wait(10_000);
        } else {
            record_all(&mut shell, &mut seen, Some("input/output error"));
        }
        let problem = shell.outcome(client, "1").unwrap().clone().unwrap_err();
        assert_eq!(problem.kind, ErrorKind::AuditUnavailable);
        assert!(
            problem.message.contains("could not be recorded"),
            "{}",
            problem.message
        );
    }
}

#[test]
fn a_host_that_stops_waits_for_the_record_of_the_last_end() {
    let mut shell = Shell::new(audited(json!({})));
    let client = shell.greet();
    let mut seen = 0;
    shell.call(client, 1, "write", json!({}));
    record_all(&mut shell, &mut seen, None);
    shell.reply_all(&json!({ "content": [] }));
    shell.handle(CoreEvent::Stop);
    assert!(!shell.core.is_stopped());
    record_all(&mut shell, &mut seen, None);
    shell.wait(60_000);
    assert!(shell.core.is_stopped());
}

#[test]
fn a_tool_that_a_lock_withdraws_is_recorded() {
    let mut config = audited(json!({}));
    config.servers[0].locked = Some(Arc::new(mainstay_kernel::locked::Locked::of_tools([])));
    let mut shell = Shell::new(config);
    let client = shell.greet();
    shell.ask(client, "1", "tools/list", json!({}));
    let all = records(&shell);
    let withdrawn = all
        .iter()
        .find(|record| record.event == AuditEvent::Withdrawn)
        .unwrap();
    assert_eq!(withdrawn.server.as_deref(), Some("demo"));
    assert!(
        withdrawn.detail.as_ref().unwrap().contains("tool=read"),
        "{withdrawn:?}"
    );
}
