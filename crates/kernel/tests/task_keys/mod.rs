//! Calls with an idempotency key, and the tasks that a living host takes over.

use mainstay_contract::dialect::{Op, TaskAnswer, TaskWish};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::SessionId;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::ToolReply;
use mainstay_contract::replay::Replay;
use mainstay_contract::rpc::{self, Answer, Probed, Progress, Stream};
use mainstay_kernel::core::action::{CoreAction, CoreEvent, WorkerNews};
use mainstay_kernel::core::tasks::{TaskOrigin, TaskOwner};
use serde_json::json;

use super::book::{Book, view};
use super::shell::Shell;
use super::{call_as_task, detaching, first, host, sent, start};

/// A request with an idempotency key.
pub(super) fn call_with_key(shell: &mut Shell, key: &str, tool: &str) -> SessionId {
    let op = Op::CallTool {
        name: tool.to_owned(),
        arguments: Json::empty_object(),
    };
    let wish = TaskWish {
        answer: TaskAnswer::Outcome,
        required: false,
        key: Some(key.to_owned()),
        malformed: None,
    };
    shell.ask_wishing("\"command line\"", op, Some(wish))
}

#[test]
fn a_request_that_waits_for_a_lost_host_takes_its_call_over_at_once() {
    let (mut shell, mut book, _) = start();
    let mut lost = view(1, "read", Replay::Convergent);
    lost.backend = "k".to_owned();
    lost.origin = TaskOrigin::Key;
    book.tasks
        .insert(lost.id.clone(), (TaskOwner::User, lost.clone()));
    book.left.push(lost);
    let single = call_with_key(&mut shell, "k", "read");
    book.work(&mut shell);
    assert_eq!(sent(&shell).len(), 1, "without a wait");
    shell.reply_all(&json!({ "ok": true }));
    book.work(&mut shell);
    assert!(shell.outcome(single, "1").unwrap().is_ok());
}

#[test]
fn a_caller_that_leaves_does_not_stop_a_call_with_a_key() {
    let (mut shell, mut book, _) = start();
    let first = call_with_key(&mut shell, "k", "write");
    let second = call_with_key(&mut shell, "k", "write");
    shell.handle(CoreEvent::Gone { session: first });
    book.work(&mut shell);
    shell.reply_all(&json!({ "ok": true }));
    book.work(&mut shell);
    assert!(shell.outcome(second, "1").unwrap().is_ok());
    assert_eq!((sent(&shell).len(), book.tasks.len()), (1, 1));
}

#[test]
fn a_request_whose_record_is_forgotten_runs_its_call() {
    let (mut shell, mut book, _) = start();
    let mut other = view(1, "write", Replay::NeverReplay);
    other.backend = "k".to_owned();
    other.origin = TaskOrigin::Key;
    book.tasks
        .insert(other.id.clone(), (TaskOwner::User, other));
    let single = call_with_key(&mut shell, "k", "write");
    book.work(&mut shell);
    assert_eq!(sent(&shell), []);
    book.tasks.clear();
    shell.wait(1_000);
    book.work(&mut shell);
    shell.reply_all(&json!({ "ok": true }));
    book.work(&mut shell);
    assert!(shell.outcome(single, "1").unwrap().is_ok());
    assert_eq!(sent(&shell).len(), 1);
}

#[test]
fn progress_moves_the_deadline_of_a_call_with_a_key() {
    let (mut shell, mut book, _) = start();
    let single = call_with_key(&mut shell, "k", "read");
    book.work(&mut shell);
    let call_ms = shell.core.limits().call_timeout_ms;
    for _ in 0..3 {
        shell.wait(call_ms / 2 + 1);
        book.work(&mut shell);
        let (generation, pending) = shell.pending(0).unwrap();
        let news = WorkerNews::Progress {
            call: pending.call.unwrap(),
            progress: Progress {
                message: "on its way".to_owned(),
                done: None,
                total: None,
                stream: Stream::Info,
                phase: String::new(),
            },
        };
        shell.handle(CoreEvent::Worker { generation, news });
        assert!(shell.outcome(single, "1").is_none());
    }
    shell.wait(call_ms);
    book.work(&mut shell);
    let problem = shell.outcome(single, "1").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind, ErrorKind::Timeout, "without progress it ends");
}

#[test]
fn a_known_key_is_answered_while_no_other_task_may_run() {
    let mut config = host();
    config.limits.tasks = 1;
    let mut shell = Shell::new(config);
    let mut book = Book::default();
    let client = shell.greet();
    call_with_key(&mut shell, "known", "write");
    book.work(&mut shell);
    shell.reply_all(&json!({ "ok": true }));
    book.work(&mut shell);
    call_as_task(&mut shell, client, "1", "write");
    book.work(&mut shell);
    let known = call_with_key(&mut shell, "known", "write");
    let new = call_with_key(&mut shell, "new", "write");
    book.work(&mut shell);
    assert!(shell.outcome(known, "1").unwrap().is_ok());
    let problem = shell.outcome(new, "1").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind, ErrorKind::Overloaded);
    assert_eq!(book.tasks.len(), 2, "a refusal is not recorded");
}

#[test]
fn a_key_whose_task_could_not_be_forgotten_is_free_later() {
    let mut config = host();
    config.limits.tasks = 1;
    let mut shell = Shell::new(config);
    let mut book = Book::default();
    let client = shell.greet();
    call_as_task(&mut shell, client, "1", "write");
    book.work(&mut shell);
    book.keeps = true;
    let refused = call_with_key(&mut shell, "k", "write");
    book.work(&mut shell);
    let problem = shell.outcome(refused, "1").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind, ErrorKind::Overloaded);
    shell.reply_all(&json!({ "ok": true }));
    let again = call_with_key(&mut shell, "k", "write");
    for keeps in [true, false, false] {
        book.keeps = keeps;
        shell.wait(1_000);
        book.work(&mut shell);
        assert!(shell.outcome(again, "1").is_none());
    }
    shell.reply_all(&json!({ "ok": true }));
    book.work(&mut shell);
    assert!(shell.outcome(again, "1").unwrap().is_ok());
    assert_eq!(sent(&shell).len(), 2);
}

#[test]
fn a_call_with_a_key_detaches_and_its_key_gives_the_outcome() {
    let (mut shell, mut book, _) = detaching();
    let call_ms = shell.core.limits().call_timeout_ms;
    let single = call_with_key(&mut shell, "k", "write");
    book.work(&mut shell);
    shell.wait(call_ms);
    book.work(&mut shell);
    let problem = shell.outcome(single, "1").unwrap().as_ref().unwrap_err();
    let details = problem.details.as_ref().unwrap().to_value().unwrap();
    assert_eq!(
        (problem.kind, problem.timeout_ms, details),
        (
            ErrorKind::Timeout,
            Some(call_ms),
            json!({ "taskId": first() })
        )
    );
    let again = call_with_key(&mut shell, "k", "write");
    book.work(&mut shell);
    shell.wait(call_ms / 2);
    shell.reply_all(&json!({ "ok": true }));
    book.work(&mut shell);
    assert!(shell.outcome(again, "1").unwrap().is_ok());
    assert!(book.outcome(&first()).unwrap().is_ok());
    assert_eq!(sent(&shell).len(), 1);
}

#[test]
fn a_claim_that_fails_is_logged_and_tried_again() {
    let mut shell = Shell::new(host());
    let mut book = Book {
        left: vec![view(1, "read", Replay::Convergent)],
        is_full: true,
        ..Book::default()
    };
    for _ in 0..5 {
        book.work(&mut shell);
        shell.wait(10_000);
    }
    let warnings = shell.actions().filter(|action| {
        matches!(action, CoreAction::Log { line, .. } if line.contains("reason=tasks_not_claimed"))
    });
    assert_eq!(warnings.count(), 1, "once");
    book.is_full = false;
    book.work(&mut shell);
    shell.wait(10_000);
    book.work(&mut shell);
    assert_eq!(sent(&shell).len(), 1);
}

#[test]
fn a_living_host_takes_over_tasks_of_hosts_that_are_lost_later() {
    let (mut shell, mut book, _) = start();
    shell.wait(60_000);
    book.work(&mut shell);
    book.left.push(view(1, "read", Replay::Convergent));
    shell.wait(10_000);
    book.work(&mut shell);
    assert_eq!(sent(&shell).len(), 1);
    shell.handle(CoreEvent::Stop);
    book.left.push(view(2, "read", Replay::Convergent));
    shell.wait(10_000);
    book.work(&mut shell);
    assert_eq!(book.left.len(), 1, "a host that stops takes none");
}

#[test]
fn a_probe_decides_about_a_task_of_a_lost_host_whose_time_is_over() {
    let reply = ToolReply {
        json: json!({ "ok": true }).into(),
        text: None,
    };
    let applied = Answer::Probed(Probed::Applied(reply));
    let not_applied = Answer::Probed(Probed::NotApplied {});
    for (probe, kind) in [
        (Some(applied), None),
        (Some(not_applied), Some(ErrorKind::Timeout)),
        (None, Some(ErrorKind::OutcomeUnknown)),
    ] {
        let mut shell = Shell::new(host());
        shell.probe = probe;
        shell.wait(9_000);
        let mut late = view(1, "read", Replay::ProbeRequired);
        late.limit_ms = 5_000;
        let mut book = Book {
            left: vec![late],
            ..Book::default()
        };
        book.work(&mut shell);
        let call_ms = shell.core.limits().call_timeout_ms;
        shell.wait(call_ms);
        book.work(&mut shell);
        let outcome = book.outcome(&first()).unwrap().as_ref();
        assert_eq!(outcome.err().map(|problem| problem.kind), kind);
        let ops = sent(&shell);
        assert!(
            matches!(ops.as_slice(), [rpc::Op::Probe { .. }]),
            "it does not run again: {ops:?}"
        );
    }
}

#[test]
fn the_key_of_a_call_that_never_ran_is_free_after_a_stop() {
    let mut config = host();
    config.limits.pool = 1;
    let drain_ms = config.limits.drain_ms;
    let mut shell = Shell::new(config);
    let mut book = Book::default();
    book.work(&mut shell);
    let client = shell.greet();
    shell.call(client, 1, "write", json!({}));
    let single = call_with_key(&mut shell, "k", "write");
    book.work(&mut shell);
    assert_eq!((sent(&shell).len(), book.tasks.len()), (1, 1), "it waits");
    shell.handle(CoreEvent::Stop);
    shell.wait(drain_ms);
    book.work(&mut shell);
    let problem = shell.outcome(single, "1").unwrap().as_ref().unwrap_err();
    assert_eq!(problem.kind, ErrorKind::ShuttingDown);
    assert!(book.tasks.is_empty(), "a retry runs it: {:?}", book.tasks);
}
