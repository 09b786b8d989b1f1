//! The fixture itself, bare, over its pipes: it does what tests of wrapped servers rely on.

use std::time::Duration;

use mainstay_testkit::fixture::{LEGACY, read_executed, read_told};
use mainstay_testkit::peer::{Client, Message};
use mainstay_testkit::process::Running;
use mainstay_testkit::wrapped::{Fixture, Way};
use serde_json::{Value, json};

fn start(options: &str) -> anyhow::Result<Running> {
    let running = Fixture::new(Way::Bare)?.options(options).spawn()?;
    running
        .client()?
        .open(&json!({"elicitation": {}, "sampling": {}, "roots": {}}))?;
    Ok(running)
}

fn text(answer: &Message) -> String {
    let text = answer.at("/result/content/0/text");
    text.as_str().unwrap_or_default().to_owned()
}

fn call(id: &str, tool: &str, arguments: &Value) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

#[test]
fn nothing_is_served_before_the_handshake_and_no_session_is_opened_twice() -> anyhow::Result<()> {
    let running = Fixture::new(Way::Bare)?.spawn()?;
    let client = running.client()?;
    let early = client.request("1", "tools/list", &json!({}))?;
    assert_eq!(early.at("/error/code"), -32600);
    assert!(
        client
            .request("2", "ping", &json!({}))?
            .at("/result")
            .is_object()
    );
    let probe = client.request("3", "server/discover", &json!({}))?;
    assert_eq!(probe.at("/error/code"), -32601);
    let opened = client.open(&json!({}))?;
    assert_eq!(opened.at("/result/protocolVersion"), LEGACY);
    let again = client.request("4", "initialize", &json!({}))?;
    assert_eq!(again.at("/error/code"), -32600);
    let listed = client.request("5", "tools/list", &json!({}))?;
    assert_eq!(listed.at("/result/tools/0/name"), "echo");
    running.stop()
}

#[test]
fn tools_answer_and_their_effects_are_noted() -> anyhow::Result<()> {
    let fixture = Fixture::new(Way::Bare)?;
    let (effects, state) = (fixture.effects(), fixture.state());
    let running = fixture.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    client.send(&call("1", "echo", &json!({"text": "é"})).replace('é', "\\u00e9"))?;
    assert!(client.answer("1")?.text().contains(r#""text":"\u00e9""#));
    assert_eq!(
        text(&client.call("2", "add", &json!({"a": 1, "b": 2.5}))?),
        "3.5"
    );
    let wrong = client.call("3", "add", &json!({"a": "1", "b": 2}))?;
    assert_eq!(wrong.at("/result/isError"), true);
    let done = client.call("4", "append", &json!({"key": "k", "text": "t"}))?;
    assert_eq!(done.at("/result/structuredContent/value"), "t");
    client.call(
        "5",
        "put",
        &json!({"key": "p", "value": "v", "pause_ms": 5}),
    )?;
    let found = client.call("6", "lookup", &json!({"key": "k"}))?;
    assert_eq!(found.at("/result/structuredContent/value"), "t");
    let found = client.call("7", "lookup", &json!({"key": "no"}))?;
    assert_eq!(found.at("/result/structuredContent/found"), false);
    let big = client.call("8", "big", &json!({"bytes": 100_000, "structured": true}))?;
    assert_eq!(
        big.at("/result/structuredContent/data")
            .as_str()
            .map(str::len),
        Some(100_000)
    );
    let unknown = client.call("9", "nothing", &json!({}))?;
    assert_eq!(unknown.at("/error/code"), -32602);
    client.send(r#"{"jsonrpc":"2.0","method":"x/unknown","params":[1]}"#)?;
    let echoed = client.request("10", "x/echo", &json!([1, {"a": null}]))?;
    assert_eq!(echoed.member("result"), Some(r#"[1,{"a":null}]"#));
    let pid = running.pid();
    let executed = read_executed(&effects)?;
    let seen: Vec<_> = executed
        .iter()
        .map(|one| (one.tool.as_str(), one.pid))
        .collect();
    assert_eq!(seen, [("append", pid), ("put", pid)]);
    let told = read_told(&state)?;
    assert_eq!(told.len(), 13);
    assert!(told[11].line.contains("x/unknown") && told[11].pid == pid);
    assert!(told.is_sorted_by_key(|one| one.at));
    running.stop()
}

#[test]
fn sleep_reports_progress_and_a_cancel_ends_it_without_an_answer() -> anyhow::Result<()> {
    let running = start("")?;
    let client = running.client()?;
    let sleep = |id: &str, ms: u64| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "sleep",
            "arguments": {"ms": ms, "steps": 2}, "_meta": {"progressToken": "t"}}})
        .to_string()
    };
    client.send(&sleep("a", 20))?;
    for step in 1..=2 {
        let progress = client.next()?;
        assert_eq!(progress.at("/params/progress"), step);
    }
    assert_eq!(text(&client.answer("\"a\"")?), "slept 20 ms");
    client.send(&sleep("b", 60_000))?;
    client.send(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"b"}}"#,
    )?;
    // The id is free as soon as the thread has gone.
    client.call("1", "echo", &json!({"text": "x"}))?;
    client.silence(Duration::from_millis(50))?;
    running.stop()
}

#[test]
fn client_is_asked_and_its_answer_is_told() -> anyhow::Result<()> {
    let running = start("--roots-at-start")?;
    let client = running.client()?;
    let first = client.next()?;
    assert_eq!(first.method().as_deref(), Some("roots/list"));
    client.send(r#"{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}"#)?;
    for (number, tool, method) in [
        (2, "ask_user", "elicitation/create"),
        (3, "ask_model", "sampling/createMessage"),
        (4, "list_roots", "roots/list"),
    ] {
        client.send(&call("\"q\"", tool, &json!({})))?;
        let question = client.next()?;
        assert_eq!(question.method().as_deref(), Some(method));
        assert_eq!(question.id(), Some(number.to_string().as_str()));
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{number},"result":{{"x":1.00}}}}"#
        ))?;
        let answer = client.answer("\"q\"")?;
        assert!(
            answer.text().contains(r#""answer":{"x":1.00}"#),
            "{answer:?}"
        );
    }
    client.send(&call("\"q\"", "ask_user", &json!({})))?;
    client.next()?;
    client.send(r#"{"jsonrpc":"2.0","id":5,"error":{"code":-1,"message":"no"}}"#)?;
    assert_eq!(client.answer("\"q\"")?.at("/result/isError"), true);
    running.stop()
}

#[test]
fn lists_have_pages_and_changes_are_announced() -> anyhow::Result<()> {
    let running = start("--page 2 --declare-list-changed")?;
    let client = running.client()?;
    for (method, key, count) in [
        ("tools/list", "tools", 28),
        ("prompts/list", "prompts", 3),
        ("resources/list", "resources", 3),
        ("resources/templates/list", "resourceTemplates", 1),
    ] {
        assert_eq!(every(client, method, key)?.len(), count, "{method}");
    }
    let bad = client.request("1", "tools/list", &json!({"cursor": "place-99"}))?;
    assert_eq!(bad.at("/error/code"), -32602);
    client.call("2", "change_tools", &json!({"action": "add"}))?;
    client.notification("notifications/tools/list_changed")?;
    assert_eq!(text(&client.call("3", "extra", &json!({}))?), "extra");
    let before = every(client, "tools/list", "tools")?;
    assert_eq!(before.last(), Some(&json!("extra")));
    client.call("4", "change_tools", &json!({"action": "remove"}))?;
    assert_eq!(
        client.call("5", "extra", &json!({}))?.at("/error/code"),
        -32602
    );
    client.notification("notifications/tools/list_changed")?;
    client.request(
        "6",
        "resources/subscribe",
        &json!({"uri": "fixture:///readme"}),
    )?;
    client.call("7", "touch", &json!({"uri": "fixture:///readme"}))?;
    let updated = client.notification("notifications/resources/updated")?;
    assert_eq!(updated.at("/params/uri"), "fixture:///readme");
    client.request(
        "8",
        "resources/unsubscribe",
        &json!({"uri": "fixture:///readme"}),
    )?;
    client.call("9", "touch", &json!({"uri": "fixture:///readme"}))?;
    running.stop()
}

fn every(client: &Client, method: &str, key: &str) -> anyhow::Result<Vec<Value>> {
    let (mut names, mut params) = (Vec::new(), json!({}));
    loop {
        let page = client.request("\"page\"", method, &params)?;
        let items = page.at(&format!("/result/{key}"));
        let items = items.as_array().cloned().unwrap_or_default();
        names.extend(items.iter().map(|item| item["name"].clone()));
        let cursor = page.at("/result/nextCursor");
        if cursor.is_null() {
            return Ok(names);
        }
        params = json!({ "cursor": cursor });
    }
}

#[test]
fn log_messages_below_the_level_are_not_sent() -> anyhow::Result<()> {
    let running = start("")?;
    let client = running.client()?;
    client.request("1", "logging/setLevel", &json!({"level": "warning"}))?;
    client.call("2", "log", &json!({"level": "info"}))?;
    client.call("3", "log", &json!({"level": "error", "text": "bad"}))?;
    let message = client.notification("notifications/message")?;
    assert_eq!(message.at("/params/data"), "bad");
    client.call("4", "stderr", &json!({"lines": 2}))?;
    running.wait_for_line("line 2")?;
    running.stop()
}

#[test]
fn modern_requests_are_served_without_a_handshake() -> anyhow::Result<()> {
    let running = Fixture::new(Way::Bare)?.options("--era both").spawn()?;
    let client = running.client()?;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}});
    let ask = |id: &str, method: &str, params: Value| {
        let mut params = params;
        params["_meta"] = meta.clone();
        client.request(id, method, &params)
    };
    let found = ask("1", "server/discover", json!({}))?;
    assert_eq!(found.at("/result/supportedVersions/0"), "2026-07-28");
    assert_eq!(found.at("/result/resultType"), "complete");
    let ping = ask("2", "ping", json!({}))?;
    assert_eq!(ping.at("/error/code"), -32601);
    let asked = ask("3", "tools/call", json!({"name": "ask_user"}))?;
    assert_eq!(asked.at("/result/resultType"), "input_required");
    let state = asked.at("/result/requestState");
    let answer = json!({"name": "ask_user", "requestState": state,
        "inputResponses": {"question": {"action": "accept", "content": {"name": "Ada"}}}});
    let told = ask("4", "tools/call", answer)?;
    assert_eq!(
        told.at("/result/structuredContent/answer/content/name"),
        "Ada"
    );
    let lacking = ask("5", "tools/call", json!({"name": "ask_model"}))?;
    assert_eq!(lacking.at("/error/code"), -32021);
    client.send(
        &json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen",
        "params": {"_meta": meta, "notifications": {"toolsListChanged": true}}})
        .to_string(),
    )?;
    client.notification("notifications/subscriptions/acknowledged")?;
    ask(
        "6",
        "tools/call",
        json!({"name": "change_tools", "arguments": {"action": "add"}}),
    )?;
    let changed = client.notification("notifications/tools/list_changed")?;
    assert_eq!(
        changed.at("/params/_meta/io.modelcontextprotocol~1subscriptionId"),
        "l"
    );
    client.open(&json!({}))?;
    running.stop()
}
