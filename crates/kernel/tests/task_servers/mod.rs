//! Tasks of a wrapped server: in the house, or, after their deadline, on the link of their client.

use mainstay_contract::dialect::{MODERN_VERSION, Op};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::SessionId;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::Success;
use mainstay_contract::replay::Replay;
use mainstay_kernel::CoreConfig;
use mainstay_kernel::core::action::{CoreAction, CoreEvent};
use mainstay_kernel::core::tasks::TaskOrigin;
use serde_json::{Value, json};

use super::book::{Book, orders, view};
use super::shell::{Shell, wrapping};
use super::task_keys::call_with_key;
use super::{call_as_task, first, members};

/// A host that wraps a server and makes tasks of its calls.
fn wrapping_tasks() -> CoreConfig {
    let mut config = wrapping(json!({ "tasks": true, "tools": { "lookup": { "tasks": false } } }));
    let server = &mut config.servers[0];
    server.backend = Some("server:x".to_owned());
    config
}

/// The tool calls that servers got.
fn forwarded(shell: &Shell) -> Vec<Value> {
    let lines = shell.workers.values().flat_map(|worker| &worker.lines);
    lines
        .filter(|line| line["method"] == "tools/call")
        .cloned()
        .collect()
}

#[test]
fn a_call_of_a_wrapped_server_is_recorded_and_runs_in_the_house() {
    let mut shell = Shell::new(wrapping_tasks());
    let mut book = Book::default();
    let client = shell.greet();
    book.work(&mut shell);
    shell.ask(client, "0", "tools/list", json!({}));
    let answer = shell.outcome(client, "0").unwrap().as_ref().unwrap();
    let Success::Forwarded(answer) = answer else {
        panic!("{answer:?}");
    };
    let list = answer.line.to_value().unwrap();
    let marked = list["result"]["tools"].as_array().unwrap().iter();
    let marked = marked.filter(|tool| tool["execution"]["taskSupport"] == "optional");
    assert_eq!(marked.count(), 4, "all but one: {list}");
    let before = shell.workers.len();
    call_as_task(&mut shell, client, "1", "write");
    assert_eq!(
        forwarded(&shell),
        [] as [Value; 0],
        "it is not recorded yet"
    );
    book.work(&mut shell);
    let task = &members(&shell, client, "1")["task"];
    assert_eq!(task["taskId"], first());
    let (_, view) = &book.tasks[&first()];
    assert_eq!(view.backend, "server:x");
    assert_eq!(shell.workers.len(), before + 1, "on a server of its own");
    let sent = forwarded(&shell);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0]["params"]["name"], "write");
    assert_eq!(
        sent[0]["params"].get("task"),
        None,
        "the server knows no task"
    );
    shell.handle(CoreEvent::Gone { session: client });
    shell.reply_all(&json!({ "content": [], "x": 1 }));
    book.work(&mut shell);
    let next = shell.greet();
    shell.ask(next, "1", "tasks/result", json!({ "taskId": first() }));
    book.work(&mut shell);
    let result = members(&shell, next, "1");
    assert_eq!(result["x"], 1);
    let related = &result["_meta"]["io.modelcontextprotocol/related-task"];
    assert_eq!(related["taskId"], first());
    call_as_task(&mut shell, next, "2", "lookup");
    let problem = shell.outcome(next, "2").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind, ErrorKind::UnknownMethod, "by its own rule");
}

#[test]
fn a_failure_of_a_wrapped_server_is_an_outcome_in_each_era() {
    let failure = json!({ "content": [], "isError": true });
    for (is_modern, status) in [(false, "failed"), (true, "completed")] {
        let mut shell = Shell::new(wrapping_tasks());
        let mut book = Book::default();
        let client = shell.greet();
        book.work(&mut shell);
        call_as_task(&mut shell, client, "1", "write");
        book.work(&mut shell);
        shell.reply_all(&failure);
        book.work(&mut shell);
        let mut params = json!({ "taskId": first() });
        if is_modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
                "io.modelcontextprotocol/clientCapabilities": {
                    "extensions": { "io.modelcontextprotocol/tasks": {} },
                },
            });
        }
        shell.ask(client, "2", "tasks/get", params);
        book.work(&mut shell);
        let task = members(&shell, client, "2");
        assert_eq!(task["status"], status, "{task}");
        if is_modern {
            assert_eq!(task["result"]["isError"], true);
            assert_eq!(task["result"]["resultType"], "complete");
        }
    }
}

#[test]
fn the_tasks_of_a_lost_host_run_on_the_wrapped_server_as_their_contracts_say() {
    let mut shell = Shell::new(wrapping_tasks());
    let left = vec![
        view(1, "read", Replay::Convergent),
        view(2, "write", Replay::NeverReplay),
        view(3, "once", Replay::ProbeRequired),
    ];
    let mut book = Book {
        left,
        ..Book::default()
    };
    shell.server.found = true;
    let client = shell.greet();
    book.work(&mut shell);
    shell.wait(1);
    book.work(&mut shell);
    let names: Vec<Value> = forwarded(&shell)
        .iter()
        .map(|line| line["params"]["name"].clone())
        .collect();
    assert!(names.contains(&json!("read")) && !names.contains(&json!("write")));
    assert!(
        !names.contains(&json!("once")),
        "its probe found it: {names:?}"
    );
    shell.reply_all(&json!({ "content": [] }));
    book.work(&mut shell);
    let outcome = |number: usize| book.outcome(&format!("{number:032x}")).unwrap();
    assert!(outcome(1).is_ok());
    let unknown = outcome(2).as_ref().unwrap_err();
    assert_eq!(unknown.kind, ErrorKind::OutcomeUnknown);
    assert!(outcome(3).is_ok());
    assert!(shell.outcome(client, "\"hello\"").is_some());
}

#[test]
fn a_server_with_tasks_of_its_own_keeps_them() {
    let mut shell = Shell::new(wrapping_tasks());
    shell.server.capabilities = json!({ "tools": {}, "tasks": { "cancel": {} } });
    let client = shell.greet();
    let before = orders(&shell).len();
    call_as_task(&mut shell, client, "1", "write");
    let sent = forwarded(&shell);
    assert_eq!(sent[0]["params"]["task"], json!({ "ttl": 1000 }));
    shell.ask(client, "2", "tasks/get", json!({ "taskId": "theirs" }));
    let lines = shell.workers.values().flat_map(|worker| &worker.lines);
    assert!(lines.into_iter().any(|line| line["method"] == "tasks/get"));
    assert_eq!(orders(&shell).len(), before);
}

#[test]
fn a_core_with_tasks_of_a_wrapped_server_is_saved_and_restored_at_any_event() {
    for event in 1..60 {
        let mut shell = Shell::new(wrapping_tasks());
        shell.restore_after = Some(event);
        let mut book = Book::default();
        let client = shell.greet();
        book.work(&mut shell);
        call_as_task(&mut shell, client, "1", "write");
        book.work(&mut shell);
        shell.ask(client, "2", "tasks/result", json!({ "taskId": first() }));
        book.work(&mut shell);
        shell.reply_all(&json!({ "content": [] }));
        book.work(&mut shell);
        assert!(shell.outcome(client, "2").unwrap().is_ok(), "{event}");
        assert_eq!(forwarded(&shell).len(), 1, "{event}");
    }
}

/// A host that wraps a server whose calls run on after their deadlines, and its first client.
fn detaching() -> (Shell, Book, SessionId) {
    let mut config = wrapping(json!({ "on_timeout": "detach" }));
    config.servers[0].backend = Some("server:x".to_owned());
    let mut shell = Shell::new(config);
    let mut book = Book::default();
    let client = shell.greet();
    book.work(&mut shell);
    (shell, book, client)
}

/// Lets the deadline of a call pass, and the ledger work.
fn miss_deadline(shell: &mut Shell, book: &mut Book) {
    shell.wait(shell.core.limits().call_timeout_ms);
    book.work(shell);
}

/// The lines of a method that servers got.
fn got(shell: &Shell, method: &str) -> Vec<Value> {
    let lines = shell.workers.values().flat_map(|worker| &worker.lines);
    let lines = lines.filter(|line| line["method"] == method);
    lines.cloned().collect()
}

fn stops(shell: &Shell) -> usize {
    let stops = shell.actions();
    stops
        .filter(|action| matches!(action, CoreAction::Stop { .. }))
        .count()
}

#[test]
fn a_call_of_a_server_that_detaches_is_recorded_before_its_client_gets_the_error() {
    let (mut shell, mut book, client) = detaching();
    let call_ms = shell.core.limits().call_timeout_ms;
    shell.call(client, 1, "write", json!({ "n": 1 }));
    shell.wait(call_ms);
    assert!(shell.outcome(client, "1").is_none(), "not recorded yet");
    book.work(&mut shell);
    let problem = shell.outcome(client, "1").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind, ErrorKind::Timeout);
    assert_eq!(problem.timeout_ms, Some(call_ms));
    let details = problem.details.as_ref().unwrap().to_value().unwrap();
    assert_eq!(details, json!({ "taskId": first() }));
    let (_, task) = &book.tasks[&first()];
    assert_eq!(task.origin, TaskOrigin::Detached);
    assert_eq!(task.backend, "server:x");
    assert_eq!(task.replay, Replay::NeverReplay);
    assert_eq!(task.work.arguments.to_value().unwrap(), json!({ "n": 1 }));
    let (generation, pending) = shell.pending(0).unwrap();
    // The client gives up at the same time, and reuses its id and its token.
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 1 } });
    shell.say(client, cancel);
    assert_eq!(got(&shell, "notifications/cancelled"), [] as [Value; 0]);
    let before = shell.told(client).len();
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
        "params": { "progressToken": 1, "progress": 5 } });
    shell.server_says(generation, &progress);
    assert_eq!(shell.told(client).len(), before, "its request is over");
    shell.wait(call_ms * 3);
    shell.reply(generation, &pending, &json!({ "content": [], "x": 1 }));
    book.work(&mut shell);
    assert!(book.outcome(&first()).unwrap().is_ok());
    let uri = format!("mainstay://task/{}", first());
    shell.ask(client, "2", "resources/read", json!({ "uri": uri }));
    book.work(&mut shell);
    let read = members(&shell, client, "2");
    let text = read["contents"][0]["text"].as_str().unwrap();
    assert!(text.contains("\"completed\""), "{text}");
    assert_eq!(forwarded(&shell).len(), 1);
    assert_eq!(stops(&shell), 0, "its client has its server still");
}

#[test]
fn a_reused_id_is_not_mixed_up_with_a_call_that_runs_on() {
    let (mut shell, mut book, client) = detaching();
    shell.call(client, 1, "write", json!({}));
    miss_deadline(&mut shell, &mut book);
    let params = json!({ "name": "read", "arguments": {} });
    let before = shell.ends().count();
    shell.ask(client, "1", "tools/call", params);
    let ids: Vec<Value> = forwarded(&shell)
        .iter()
        .map(|line| line["id"].clone())
        .collect();
    assert!(ids.len() == 2 && ids[0] != ids[1], "{ids:?}");
    shell.reply_all(&json!({ "content": [] }));
    book.work(&mut shell);
    let ended: Vec<_> = shell
        .ends()
        .skip(before)
        .map(|end| end.outcome.is_ok())
        .collect();
    assert_eq!(ended, [true, true], "the second request and the task");
    assert!(book.outcome(&first()).unwrap().is_ok());
}

#[test]
fn a_call_that_runs_on_keeps_its_server_when_its_client_leaves() {
    for asks in ["before", "after"] {
        let (mut shell, mut book, client) = detaching();
        shell.call(client, 1, "write", json!({}));
        shell.call(client, 2, "read", json!({}));
        let (generation, _) = shell.pending(0).unwrap();
        shell.wait(shell.core.limits().call_timeout_ms);
        book.work(&mut shell);
        let question = json!({ "jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage",
            "params": {} });
        if asks == "before" {
            shell.server_says(generation, &question);
        }
        shell.call(client, 3, "once", json!({}));
        shell.handle(CoreEvent::Gone { session: client });
        if asks == "after" {
            shell.server_says(generation, &question);
        }
        assert_eq!(stops(&shell), 0, "{asks}: calls of it run on");
        let lines = &shell.workers[&generation].lines;
        let refused = lines.iter().find(|line| line["id"] == "q").unwrap();
        assert!(refused["error"]["code"].is_number(), "{asks}: {refused}");
        let cancels = got(&shell, "notifications/cancelled");
        assert_eq!(cancels.len(), 1, "{asks}: of the call that is no task");
        shell.wait(1_000_000);
        shell.reply_all(&json!({ "content": [] }));
        book.work(&mut shell);
        for number in [1, 2] {
            let id = format!("{number:032x}");
            assert!(book.outcome(&id).unwrap().is_ok(), "{asks}");
        }
        assert_eq!(book.tasks.len(), 2, "{asks}");
        assert_eq!(stops(&shell), 1, "{asks}: with its last call");
        assert!(shell.core.is_idle(), "{asks}");
    }
}

#[test]
fn calls_that_run_on_follow_their_contracts_when_their_server_is_lost() {
    for (tool, runs_again) in [("read", true), ("write", false)] {
        let (mut shell, mut book, client) = detaching();
        shell.call(client, 1, tool, json!({}));
        miss_deadline(&mut shell, &mut book);
        shell.handle(CoreEvent::Gone { session: client });
        let (generation, _) = shell.pending(0).unwrap();
        shell.crash(generation);
        shell.wait(10_000);
        book.work(&mut shell);
        assert_eq!(forwarded(&shell).len(), usize::from(runs_again), "{tool}");
        shell.reply_all(&json!({ "content": [] }));
        book.work(&mut shell);
        let outcome = book.outcome(&first()).unwrap();
        let unknown = outcome.as_ref().err().map(|problem| problem.kind);
        let expected = (!runs_again).then_some(ErrorKind::OutcomeUnknown);
        assert_eq!(unknown, expected, "{tool}");
        assert!(shell.core.is_idle(), "{tool}");
    }
}

#[test]
fn a_cancel_stops_a_call_of_a_server_that_runs_on() {
    let (mut shell, mut book, client) = detaching();
    shell.call(client, 1, "write", json!({}));
    miss_deadline(&mut shell, &mut book);
    let cancelled = Err(mainstay_contract::outcome::Problem::of(
        ErrorKind::Cancelled,
    ));
    book.tasks.get_mut(&first()).unwrap().1.outcome = Some(cancelled);
    shell.wait(10_000);
    book.work(&mut shell);
    let cancels = got(&shell, "notifications/cancelled");
    assert_eq!(cancels.len(), 1, "through another process");
    assert_eq!(cancels[0]["params"]["requestId"], 1);
}

#[test]
fn a_call_over_rest_runs_on_in_its_house() {
    let (mut shell, mut book, _) = detaching();
    let op = Op::CallTool {
        name: "write".to_owned(),
        arguments: Json::empty_object(),
    };
    let single = shell.ask_single("\"command line\"", op);
    miss_deadline(&mut shell, &mut book);
    let problem = shell.outcome(single, "1").unwrap().as_ref().unwrap_err();
    assert!(problem.details.is_some(), "{problem:?}");
    shell.wait(10_000);
    shell.reply_all(&json!({ "content": [] }));
    book.work(&mut shell);
    assert!(book.outcome(&first()).unwrap().is_ok());
    assert!(shell.core.is_idle());
}

#[test]
fn a_call_with_a_key_runs_on_and_its_key_gives_the_outcome() {
    let (mut shell, mut book, _) = detaching();
    let call = call_with_key(&mut shell, "k", "write");
    book.work(&mut shell);
    miss_deadline(&mut shell, &mut book);
    let problem = shell.outcome(call, "1").unwrap().as_ref().unwrap_err();
    let details = problem.details.as_ref().unwrap().to_value().unwrap();
    assert_eq!(details, json!({ "taskId": first() }));
    assert_eq!(book.tasks.len(), 1, "it was recorded before it ran");
    shell.reply_all(&json!({ "content": [] }));
    book.work(&mut shell);
    let again = call_with_key(&mut shell, "k", "write");
    book.work(&mut shell);
    assert!(shell.outcome(again, "1").unwrap().is_ok());
    assert_eq!(forwarded(&shell).len(), 1);
}

#[test]
fn a_call_of_a_server_that_cannot_be_recorded_at_its_deadline_is_aborted() {
    let (mut shell, mut book, client) = detaching();
    book.is_full = true;
    shell.call(client, 1, "write", json!({}));
    miss_deadline(&mut shell, &mut book);
    let problem = shell.outcome(client, "1").unwrap().as_ref().unwrap_err();
    assert_eq!(
        (problem.kind, &problem.details),
        (ErrorKind::Timeout, &None)
    );
    assert_eq!(got(&shell, "notifications/cancelled").len(), 1);
}

#[test]
fn a_core_with_calls_of_a_server_that_run_on_is_saved_and_restored_at_any_event() {
    for event in 1..60 {
        let (mut shell, mut book, client) = detaching();
        shell.restore_after = Some(event);
        shell.call(client, 1, "write", json!({}));
        miss_deadline(&mut shell, &mut book);
        shell.handle(CoreEvent::Gone { session: client });
        shell.wait(1_000);
        shell.reply_all(&json!({ "content": [] }));
        book.work(&mut shell);
        assert!(book.outcome(&first()).unwrap().is_ok(), "{event}");
        let forwards = shell.actions();
        let forwards = forwards.filter(|action| {
            matches!(action, CoreAction::Forward { line, .. } if line.as_str().contains("tools/call"))
        });
        assert_eq!((forwards.count(), stops(&shell)), (1, 1), "{event}");
    }
}
