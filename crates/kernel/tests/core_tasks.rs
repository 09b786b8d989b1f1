//! Tasks in the core: recorded before they run, independent of their client, resumed by the next host.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod book;
mod shell;
mod task_keys;
mod task_revisions;
mod task_servers;

use mainstay_contract::dialect::{MODERN_VERSION, Op, TaskOp};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::SessionId;
use mainstay_contract::outcome::{Problem, Success};
use mainstay_contract::replay::Replay;
use mainstay_contract::rpc;
use mainstay_kernel::core::action::{CoreAction, CoreEvent};
use mainstay_kernel::core::tasks::{OnTimeout, ToolTasks};
use mainstay_kernel::{CoreConfig, Lifetime};
use serde_json::{Value, json};

use self::book::{Book, orders, view};
use self::shell::{Shell, packs};

/// The messages to workers.
fn sent(shell: &Shell) -> Vec<rpc::Op> {
    let calls = shell.actions().filter_map(|action| match action {
        CoreAction::Call { call, .. } => Some(call.op.clone()),
        _ => None,
    });
    calls.collect()
}

/// A host whose tools `read` and `write` may run as tasks.
fn host() -> CoreConfig {
    let tasks = ToolTasks {
        tasks: Some(true),
        ..ToolTasks::default()
    };
    let rules = ["read", "write"].map(|tool| (tool.to_owned(), tasks));
    CoreConfig {
        tasks: rules.into_iter().collect(),
        ..packs(&["p"])
    }
}

fn start() -> (Shell, Book, SessionId) {
    let mut shell = Shell::new(host());
    let mut book = Book::default();
    book.work(&mut shell);
    let client = shell.greet();
    (shell, book, client)
}

fn call_as_task(shell: &mut Shell, client: SessionId, id: &str, tool: &str) {
    let params = json!({ "name": tool, "arguments": {}, "task": { "ttl": 1000 } });
    shell.ask(client, id, "tools/call", params);
}

fn members(shell: &Shell, client: SessionId, id: &str) -> Value {
    match shell.outcome(client, id) {
        Some(Ok(Success::Members(members))) => members.to_value().unwrap(),
        other => panic!("{id}: {other:?}"),
    }
}

fn first() -> String {
    format!("{:032x}", 1)
}

/// The statuses of tasks that a client was sent.
fn statuses(shell: &Shell, client: SessionId) -> Vec<Value> {
    let lines = shell.told(client).into_iter();
    let lines = lines.filter(|line| line["method"] == "notifications/tasks/status");
    lines.map(|line| line["params"]["status"].clone()).collect()
}

#[test]
fn a_task_is_recorded_before_anything_is_sent_and_outlives_its_client() {
    let (mut shell, mut book, client) = start();
    call_as_task(&mut shell, client, "1", "write");
    assert_eq!(sent(&shell), [], "it is not recorded yet");
    assert!(shell.outcome(client, "1").is_none());
    book.work(&mut shell);
    let task = &members(&shell, client, "1")["task"];
    assert_eq!(task["taskId"], first());
    assert_eq!(task["status"], "working");
    assert_eq!(sent(&shell).len(), 1);
    shell.handle(CoreEvent::Gone { session: client });
    assert!(
        !shell
            .actions()
            .any(|action| matches!(action, CoreAction::Cancel { .. })),
        "its client has no say in it"
    );
    shell.reply_all(&json!({ "ok": true }));
    book.work(&mut shell);
    assert!(matches!(book.outcome(&first()), Some(Ok(Success::Tool(_)))));
    assert!(shell.core.is_idle());
}

#[test]
fn a_call_that_is_not_a_task_never_touches_the_ledger() {
    let (mut shell, _, client) = start();
    let before = orders(&shell).len();
    shell.call(client, 1, "write", json!({}));
    shell.reply_all(&json!({ "ok": true }));
    assert!(shell.outcome(client, "1").unwrap().is_ok());
    assert_eq!(orders(&shell).len(), before);
}

#[test]
fn a_tool_that_may_not_be_a_task_is_refused_where_others_may() {
    let mut config = host();
    config.tasks.remove("write");
    let mut shell = Shell::new(config);
    let client = shell.greet();
    call_as_task(&mut shell, client, "1", "write");
    let problem = shell.outcome(client, "1").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind, ErrorKind::UnknownMethod);
    let mut plain = Shell::new(packs(&["p"]));
    let client = plain.greet();
    call_as_task(&mut plain, client, "1", "write");
    plain.reply_all(&json!({ "ok": true }));
    assert!(
        plain.outcome(client, "1").unwrap().is_ok(),
        "the member is ignored"
    );
}

#[test]
fn a_task_that_cannot_be_recorded_does_not_run() {
    let (mut shell, mut book, client) = start();
    book.is_full = true;
    call_as_task(&mut shell, client, "1", "write");
    book.work(&mut shell);
    let problem = shell.outcome(client, "1").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind, ErrorKind::TaskNotRecorded);
    assert_eq!(sent(&shell), []);
}

#[test]
fn a_task_whose_client_left_before_it_was_recorded_is_forgotten() {
    let (mut shell, mut book, client) = start();
    call_as_task(&mut shell, client, "1", "write");
    shell.handle(CoreEvent::Gone { session: client });
    book.work(&mut shell);
    assert!(book.tasks.is_empty());
    assert_eq!(sent(&shell), []);
}

#[test]
fn a_result_is_delivered_once_the_outcome_is_recorded() {
    let (mut shell, mut book, client) = start();
    call_as_task(&mut shell, client, "1", "write");
    book.work(&mut shell);
    shell.ask(client, "2", "tasks/result", json!({ "taskId": first() }));
    book.work(&mut shell);
    assert!(shell.outcome(client, "2").is_none());
    shell.reply_all(&json!({ "ok": true }));
    assert!(shell.outcome(client, "2").is_none(), "it is not recorded");
    book.work(&mut shell);
    let result = members(&shell, client, "2");
    assert_eq!(result["structuredContent"], json!({ "ok": true }));
    let related = &result["_meta"]["io.modelcontextprotocol/related-task"];
    assert_eq!(related["taskId"], first());
    assert_eq!(statuses(&shell, client), ["completed"]);
    shell.ask(client, "3", "tasks/get", json!({ "taskId": first() }));
    book.work(&mut shell);
    let task = members(&shell, client, "3");
    assert_eq!(task["status"], "completed");
    assert!(task["ttl"].is_number() && task["createdAt"].is_string());
    shell.ask(client, "4", "tasks/list", json!({}));
    book.work(&mut shell);
    assert_eq!(members(&shell, client, "4")["tasks"][0]["taskId"], first());
    shell.ask(client, "5", "tasks/list", json!({ "cursor": "x" }));
    book.work(&mut shell);
    let problem = shell.outcome(client, "5").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind, ErrorKind::InvalidParams);
    assert!(problem.sentence().contains("cursor"), "{problem:?}");
}

#[test]
fn an_outcome_that_cannot_be_recorded_is_tried_again() {
    let (mut shell, mut book, client) = start();
    call_as_task(&mut shell, client, "1", "write");
    book.work(&mut shell);
    shell.ask(client, "2", "tasks/result", json!({ "taskId": first() }));
    book.work(&mut shell);
    book.is_full = true;
    shell.reply_all(&json!({ "ok": true }));
    book.work(&mut shell);
    for _ in 0..5 {
        shell.wait(5_000);
        book.work(&mut shell);
    }
    assert_eq!(book.outcome(&first()), None);
    assert!(shell.outcome(client, "2").is_none());
    book.is_full = false;
    shell.wait(5_000);
    book.work(&mut shell);
    assert!(book.outcome(&first()).unwrap().is_ok());
    assert!(shell.outcome(client, "2").unwrap().is_ok());
    assert_eq!(sent(&shell).len(), 1, "the call itself ran once");
}

#[test]
fn a_modern_request_that_declares_the_extension_gets_a_task() {
    let (mut shell, mut book, client) = start();
    let params = |members: Value, extensions: Value| {
        let mut params = members;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
            "io.modelcontextprotocol/clientCapabilities": { "extensions": extensions },
        });
        params
    };
    let tasks = json!({ "io.modelcontextprotocol/tasks": {} });
    let call = json!({ "name": "read", "arguments": {} });
    shell.ask(
        client,
        "1",
        "tools/call",
        params(call.clone(), tasks.clone()),
    );
    book.work(&mut shell);
    let task = members(&shell, client, "1");
    assert_eq!(
        (&task["taskId"], &task["status"]),
        (&json!(first()), &json!("working"))
    );
    assert!(task["ttlMs"].is_number() && task["pollIntervalMs"].is_number());
    shell.reply_all(&json!({ "ok": true }));
    book.work(&mut shell);
    let get = json!({ "taskId": first() });
    shell.ask(client, "2", "tasks/get", params(get.clone(), tasks.clone()));
    book.work(&mut shell);
    let task = members(&shell, client, "2");
    assert_eq!(task["status"], "completed");
    assert_eq!(task["result"]["structuredContent"], json!({ "ok": true }));
    shell.ask(client, "3", "tasks/cancel", params(get, tasks.clone()));
    book.work(&mut shell);
    assert_eq!(
        members(&shell, client, "3"),
        json!({}),
        "an acknowledgement, also twice"
    );
    let unknown = json!({ "taskId": "f".repeat(32) });
    shell.ask(client, "4", "tasks/get", params(unknown, tasks));
    book.work(&mut shell);
    let problem = shell.outcome(client, "4").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind.row().jsonrpc, -32602);
    shell.ask(client, "5", "tools/call", params(call, json!({})));
    shell.reply_all(&json!({ "ok": true }));
    assert!(matches!(
        shell.outcome(client, "5"),
        Some(Ok(Success::Tool(_)))
    ));
}

#[test]
fn the_tasks_of_a_lost_host_follow_their_contracts() {
    let mut shell = Shell::new(host());
    let mut book = Book {
        left: vec![
            view(1, "read", Replay::Convergent),
            view(2, "read", Replay::ProbeRequired),
            view(3, "write", Replay::NeverReplay),
        ],
        ..Book::default()
    };
    book.work(&mut shell);
    let ops = sent(&shell);
    let is_tool = |op: &&rpc::Op| matches!(op, rpc::Op::Tool { name, .. } if name == "read");
    assert_eq!(ops.iter().filter(is_tool).count(), 1, "{ops:?}");
    let is_probe = |op: &&rpc::Op| matches!(op, rpc::Op::Probe { .. });
    assert_eq!(ops.iter().filter(is_probe).count(), 1, "{ops:?}");
    assert_eq!(ops.len(), 2, "{ops:?}");
    let kind = |number: usize| match book.outcome(&format!("{number:032x}")) {
        Some(Err(problem)) => Some(problem.kind),
        _ => None,
    };
    assert_eq!(kind(3), Some(ErrorKind::OutcomeUnknown));
    // The worker of these tests cannot probe.
    assert_eq!(kind(2), Some(ErrorKind::OutcomeUnknown));
    shell.reply_all(&json!({ "ok": true }));
    book.work(&mut shell);
    assert!(book.outcome(&first()).unwrap().is_ok());
}

#[test]
fn a_task_of_a_lost_host_whose_time_is_over_fails() {
    let mut shell = Shell::new(host());
    shell.wait(10_000);
    let mut late = view(1, "read", Replay::Convergent);
    late.limit_ms = 5_000;
    let mut book = Book {
        left: vec![late],
        ..Book::default()
    };
    book.work(&mut shell);
    match book.outcome(&first()) {
        Some(Err(problem)) => assert_eq!(problem.kind, ErrorKind::Timeout),
        other => panic!("{other:?}"),
    }
    assert_eq!(sent(&shell), []);
}

#[test]
fn a_cancel_through_another_process_stops_the_call_and_is_reported() {
    let (mut shell, mut book, client) = start();
    call_as_task(&mut shell, client, "1", "write");
    book.work(&mut shell);
    shell.wait(60_000);
    book.work(&mut shell);
    let (_, task) = book.tasks.get_mut(&first()).unwrap();
    task.outcome = Some(Err(Problem::of(ErrorKind::Cancelled)));
    shell.wait(2_000);
    book.work(&mut shell);
    assert!(
        shell
            .actions()
            .any(|action| matches!(action, CoreAction::Cancel { .. }))
    );
    assert_eq!(statuses(&shell, client), ["cancelled"]);
}

#[test]
fn a_task_has_its_own_limit_instead_of_the_deadline_of_a_call() {
    let mut config = host();
    config.limits.call_timeout_ms = 1_000;
    config.limits.task_ms = 60_000;
    let mut shell = Shell::new(config);
    let mut book = Book::default();
    book.work(&mut shell);
    let client = shell.greet();
    call_as_task(&mut shell, client, "1", "read");
    book.work(&mut shell);
    let call_ms = shell.core.limits().call_timeout_ms;
    let task_ms = shell.core.limits().task_ms;
    shell.wait(call_ms * 3);
    book.work(&mut shell);
    assert_eq!(book.outcome(&first()), None);
    shell.wait(task_ms);
    book.work(&mut shell);
    match book.outcome(&first()) {
        Some(Err(problem)) => assert_eq!(problem.kind, ErrorKind::Timeout),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cancel_ends_the_task_before_it_is_acknowledged() {
    let (mut shell, mut book, client) = start();
    call_as_task(&mut shell, client, "1", "write");
    book.work(&mut shell);
    shell.ask(client, "2", "tasks/result", json!({ "taskId": first() }));
    shell.ask(client, "3", "tasks/cancel", json!({ "taskId": first() }));
    book.work(&mut shell);
    assert_eq!(members(&shell, client, "3")["status"], "cancelled");
    assert!(
        shell
            .actions()
            .any(|action| matches!(action, CoreAction::Cancel { .. }))
    );
    book.work(&mut shell);
    assert_eq!(members(&shell, client, "2")["isError"], true);
    assert_eq!(statuses(&shell, client), ["cancelled"]);
    shell.ask(client, "4", "tasks/cancel", json!({ "taskId": first() }));
    book.work(&mut shell);
    let problem = shell.outcome(client, "4").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind, ErrorKind::InvalidParams, "it has ended");
}

#[test]
fn a_task_belongs_to_its_caller() {
    let (mut shell, mut book, client) = start();
    call_as_task(&mut shell, client, "1", "write");
    book.work(&mut shell);
    let get = || Op::Task(TaskOp::Get { id: first() });
    for (caller, finds) in [
        ("token:aa", false),
        ("anonymous", false),
        ("uid:7", false),
        ("\"command line\"", true),
    ] {
        let single = shell.ask_single(caller, get());
        book.work(&mut shell);
        let outcome = shell.outcome(single, "1").unwrap();
        assert_eq!(outcome.is_ok(), finds, "{caller}: {outcome:?}");
        if let Err(problem) = outcome {
            assert_eq!(problem.kind, ErrorKind::ResourceNotFound);
        }
    }
    let list = Op::Task(TaskOp::List { cursor: None });
    let single = shell.ask_single("anonymous", list);
    assert!(
        shell.outcome(single, "1").unwrap().is_err(),
        "it is offered to known callers only"
    );
}

#[test]
fn a_task_can_be_read_as_a_resource_that_no_list_shows() {
    let (mut shell, mut book, client) = start();
    call_as_task(&mut shell, client, "1", "write");
    book.work(&mut shell);
    let uri = format!("mainstay://task/{}", first());
    shell.ask(client, "2", "resources/read", json!({ "uri": uri }));
    book.work(&mut shell);
    let contents = &members(&shell, client, "2")["contents"][0];
    let text: Value = serde_json::from_str(contents["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&text["taskId"], &text["tool"]),
        (&json!(first()), &json!("write"))
    );
    shell.ask(
        client,
        "3",
        "resources/read",
        json!({ "uri": "mainstay://task/x" }),
    );
    book.work(&mut shell);
    let problem = shell.outcome(client, "3").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind, ErrorKind::ResourceNotFound);
}

#[test]
fn a_host_with_one_client_ends_with_its_last_task() {
    let mut shell = Shell::new(CoreConfig {
        lifetime: Lifetime::Client,
        ..host()
    });
    let mut book = Book::default();
    book.work(&mut shell);
    let client = shell.greet();
    call_as_task(&mut shell, client, "1", "write");
    book.work(&mut shell);
    shell.handle(CoreEvent::Gone { session: client });
    assert!(shell.core.is_serving());
    shell.reply_all(&json!({ "ok": true }));
    assert!(shell.core.is_serving(), "its outcome is not recorded");
    book.work(&mut shell);
    assert!(!shell.core.is_serving());
    assert!(book.outcome(&first()).unwrap().is_ok());
}

#[test]
fn a_host_that_stops_leaves_tasks_that_may_run_again_to_the_next() {
    let (mut shell, mut book, client) = start();
    for (id, tool) in [("1", "read"), ("2", "write")] {
        call_as_task(&mut shell, client, id, tool);
        book.work(&mut shell);
    }
    shell.handle(CoreEvent::Stop);
    let drain_ms = shell.core.limits().drain_ms;
    shell.wait(drain_ms * 2);
    book.work(&mut shell);
    assert_eq!(book.outcome(&first()), None, "the next host runs it");
    match book.outcome(&format!("{:032x}", 2)) {
        Some(Err(problem)) => assert_eq!(problem.kind, ErrorKind::OutcomeUnknown),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_core_that_is_saved_and_restored_at_any_event_keeps_its_tasks() {
    for event in 1..60 {
        let mut shell = Shell::new(host());
        shell.restore_after = Some(event);
        let mut book = Book::default();
        book.work(&mut shell);
        let client = shell.greet();
        call_as_task(&mut shell, client, "1", "write");
        book.work(&mut shell);
        shell.ask(client, "2", "tasks/result", json!({ "taskId": first() }));
        book.work(&mut shell);
        shell.reply_all(&json!({ "ok": true }));
        book.work(&mut shell);
        assert!(shell.outcome(client, "2").unwrap().is_ok(), "{event}");
    }
}

/// A host whose tool `write` runs on after its deadline.
fn detaching() -> (Shell, Book, SessionId) {
    let rule = ToolTasks {
        on_timeout: OnTimeout::Detach,
        ..ToolTasks::default()
    };
    let mut shell = Shell::new(CoreConfig {
        tasks: [("write".to_owned(), rule)].into_iter().collect(),
        ..packs(&["p"])
    });
    let mut book = Book::default();
    book.work(&mut shell);
    let client = shell.greet();
    (shell, book, client)
}

#[test]
fn a_call_that_detaches_is_recorded_before_its_client_gets_the_error() {
    let (mut shell, mut book, client) = detaching();
    let call_ms = shell.core.limits().call_timeout_ms;
    shell.call(client, 1, "write", json!({}));
    shell.wait(call_ms);
    assert!(
        shell.outcome(client, "1").is_none(),
        "it is not recorded yet"
    );
    book.work(&mut shell);
    let problem = shell.outcome(client, "1").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind, ErrorKind::Timeout);
    assert_eq!(problem.timeout_ms, Some(call_ms));
    let details = problem.details.as_ref().unwrap().to_value().unwrap();
    assert_eq!(details, json!({ "taskId": first() }));
    assert!(
        !shell
            .actions()
            .any(|action| matches!(action, CoreAction::Cancel { .. })),
        "it runs on"
    );
    shell.handle(CoreEvent::Gone { session: client });
    shell.wait(call_ms);
    shell.reply_all(&json!({ "ok": true }));
    book.work(&mut shell);
    assert!(book.outcome(&first()).unwrap().is_ok());
    assert!(shell.core.is_idle());
    assert_eq!(sent(&shell).len(), 1);
}

#[test]
fn a_call_that_cannot_be_recorded_at_its_deadline_is_aborted() {
    let (mut shell, mut book, client) = detaching();
    let call_ms = shell.core.limits().call_timeout_ms;
    book.is_full = true;
    shell.call(client, 1, "write", json!({}));
    shell.wait(call_ms);
    book.work(&mut shell);
    let problem = shell.outcome(client, "1").unwrap().as_ref().unwrap_err();
    assert_eq!(
        (problem.kind, &problem.details),
        (ErrorKind::Timeout, &None)
    );
    assert!(
        shell
            .actions()
            .any(|action| matches!(action, CoreAction::Cancel { .. }))
    );
}

#[test]
fn a_call_that_ends_while_it_is_recorded_ends_as_usual() {
    let (mut shell, mut book, client) = detaching();
    let call_ms = shell.core.limits().call_timeout_ms;
    shell.call(client, 1, "write", json!({}));
    shell.wait(call_ms);
    shell.reply_all(&json!({ "ok": true }));
    assert!(shell.outcome(client, "1").unwrap().is_ok());
    book.work(&mut shell);
    assert!(book.tasks.is_empty(), "its record is removed");
}
