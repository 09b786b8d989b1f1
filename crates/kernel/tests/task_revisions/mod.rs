//! The revisions of MCP in which clients see tasks, and wishes that cannot be read.

use mainstay_contract::dialect::{LEGACY_VERSIONS, MODERN_VERSION, TASKS_VERSION};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::SessionId;
use mainstay_contract::outcome::Success;
use serde_json::{Value, json};

use super::book::{Book, orders};
use super::shell::{Shell, wrapping};
use super::{call_as_task, host, sent};

/// Hosts of both kinds, with tools that may run as tasks.
fn hosts(version: &'static str) -> [(&'static str, Shell); 2] {
    let mut config = wrapping(json!({ "tasks": true }));
    config.servers[0].backend = Some("server:x".to_owned());
    let mut wrapped = Shell::new(config);
    wrapped.server.version = version;
    [("packs", Shell::new(host())), ("server", wrapped)]
}

/// The result of a request.
fn result(shell: &Shell, client: SessionId, id: &str) -> Value {
    match shell.outcome(client, id) {
        Some(Ok(Success::Members(members))) => members.to_value().unwrap(),
        Some(Ok(Success::Forwarded(answer))) => answer.line.to_value().unwrap()["result"].clone(),
        other => panic!("{id}: {other:?}"),
    }
}

fn is_marked(listed: &Value) -> bool {
    let mut tools = listed["tools"].as_array().unwrap().iter();
    tools.any(|tool| tool.get("execution").is_some())
}

fn modern(mut params: Value, extensions: &Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientCapabilities": { "extensions": extensions },
    });
    params
}

#[test]
fn only_sessions_of_one_revision_see_tasks() {
    for version in LEGACY_VERSIONS {
        for (kind, mut shell) in hosts(version) {
            let has_tasks = version == TASKS_VERSION;
            let client = shell.greet_as(version);
            Book::default().work(&mut shell);
            let opened = result(&shell, client, "\"hello\"");
            let declared = opened["capabilities"].get("tasks").is_some();
            assert_eq!(declared, has_tasks, "{kind} {version}");
            shell.ask(client, "1", "tools/list", json!({}));
            let listed = result(&shell, client, "1");
            assert_eq!(is_marked(&listed), has_tasks, "{kind} {version}");
            let before = orders(&shell).len();
            call_as_task(&mut shell, client, "2", "write");
            shell.ask(client, "3", "tasks/list", json!({}));
            shell.reply_all(&json!({ "content": [] }));
            assert_eq!(orders(&shell).len() > before, has_tasks, "{kind} {version}");
            if !has_tasks {
                assert!(
                    shell.outcome(client, "2").unwrap().is_ok(),
                    "{kind} {version}"
                );
            }
        }
    }
}

#[test]
fn modern_lists_do_not_mark_tools() {
    let mut shell = Shell::new(host());
    let client = shell.greet();
    let tasks = json!({ "io.modelcontextprotocol/tasks": {} });
    shell.ask(client, "1", "tools/list", modern(json!({}), &tasks));
    assert!(!is_marked(&result(&shell, client, "1")));
    shell.ask(client, "2", "tools/list", json!({}));
    assert!(
        is_marked(&result(&shell, client, "2")),
        "the revision of the request counts"
    );
}

#[test]
fn a_wish_that_cannot_be_read_is_refused_with_its_place() {
    for (kind, mut shell) in hosts(TASKS_VERSION) {
        let client = shell.greet();
        Book::default().work(&mut shell);
        let before = orders(&shell).len();
        let odd = json!({ "io.modelcontextprotocol/tasks": 5 });
        let wishes = [
            (json!({ "task": 5 }), "/params/task"),
            (json!({ "task": { "ttl": -1 } }), "/params/task/ttl"),
            (modern(json!({}), &odd), "/params/_meta/"),
        ];
        for (number, (mut params, place)) in wishes.into_iter().enumerate() {
            params["name"] = json!("write");
            params["arguments"] = json!({});
            let id = number.to_string();
            shell.ask(client, &id, "tools/call", params);
            let problem = shell.outcome(client, &id).unwrap().as_ref().unwrap_err();
            assert_eq!(problem.kind, ErrorKind::InvalidParams, "{kind} {place}");
            let details = problem.details.as_ref().unwrap().to_value().unwrap();
            let pointer = details["pointer"].as_str().unwrap();
            assert!(pointer.starts_with(place), "{kind}: {pointer}");
        }
        let get = modern(json!({ "taskId": "x" }), &odd);
        shell.ask(client, "\"get\"", "tasks/get", get);
        let problem = shell
            .outcome(client, "\"get\"")
            .unwrap()
            .as_ref()
            .unwrap_err();
        assert_eq!(problem.kind, ErrorKind::InvalidParams, "{kind}");
        assert_eq!(
            (sent(&shell).len(), orders(&shell).len()),
            (0, before),
            "{kind}"
        );
        assert!(shell.pending(0).is_none(), "{kind}: nothing runs");
    }
}

#[test]
fn a_session_of_a_build_that_did_not_save_the_revision_keeps_its_tasks() {
    let mut shell = Shell::new(host());
    let client = shell.greet();
    let state = shell.core.save().unwrap();
    let older = state.replace(",\"has_tasks\":true", "");
    assert_ne!(older, state);
    shell.core = mainstay_kernel::Core::restore(&older).unwrap();
    let before = orders(&shell).len();
    call_as_task(&mut shell, client, "1", "write");
    assert!(orders(&shell).len() > before, "it is recorded");
}
