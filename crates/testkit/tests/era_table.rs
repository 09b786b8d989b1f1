//! Every row of docs/eras.md: a client of one era on a server of the other, behind `mainstay wrap --bridge`.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing member of a JSON value is null"
)]
#![expect(clippy::print_stdout, reason = "a test says when it is skipped")]

mod wrapping;

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use mainstay_testkit::foreign::{self, Driven, Mode};
use mainstay_testkit::peer::{Client, Message};
use mainstay_testkit::process::Running;
use serde_json::{Value, json};

use self::wrapping::{SERVER, call, echo, eventually, fixture, stop, text, wait_told};

const MODERN: &str = "modern client, legacy server";
const LEGACY: &str = "legacy client, modern server";

/// A row of the table, without its explanation.
type Row = (String, String, String);
type Check = fn() -> anyhow::Result<()>;

const CHECKS: [(&str, &str, &str, Check); 28] = [
    ("handshake", MODERN, "mapped", modern_handshake),
    ("lists", MODERN, "mapped", modern_lists),
    ("pagination", MODERN, "mapped", modern_pagination),
    ("calls", MODERN, "mapped", modern_calls),
    ("progress", MODERN, "mapped", modern_progress),
    ("cancellation", MODERN, "mapped", modern_cancellation),
    ("elicitation", MODERN, "degraded", modern_elicitation),
    ("sampling", MODERN, "degraded", modern_sampling),
    ("roots", MODERN, "degraded", modern_roots),
    (
        "resource subscriptions",
        MODERN,
        "mapped",
        modern_subscriptions,
    ),
    ("list changes", MODERN, "mapped", modern_list_changes),
    ("logging", MODERN, "degraded", modern_logging),
    (
        "questions outside a call",
        MODERN,
        "refused",
        modern_stray_question,
    ),
    ("tasks", MODERN, "refused", modern_tasks),
    ("handshake", LEGACY, "mapped", legacy_handshake),
    ("lists", LEGACY, "mapped", legacy_lists),
    ("pagination", LEGACY, "mapped", legacy_pagination),
    ("calls", LEGACY, "mapped", legacy_calls),
    ("progress", LEGACY, "mapped", legacy_progress),
    ("cancellation", LEGACY, "mapped", legacy_cancellation),
    ("elicitation", LEGACY, "mapped", legacy_elicitation),
    ("sampling", LEGACY, "mapped", legacy_sampling),
    ("roots", LEGACY, "mapped", legacy_roots),
    (
        "resource subscriptions",
        LEGACY,
        "mapped",
        legacy_subscriptions,
    ),
    ("list changes", LEGACY, "mapped", legacy_list_changes),
    ("logging", LEGACY, "mapped", legacy_logging),
    ("ping", LEGACY, "mapped", legacy_ping),
    ("tasks", LEGACY, "refused", legacy_tasks),
];

fn rows() -> Vec<Row> {
    let page = include_str!("../../../docs/eras.md");
    let cells = |line: &str| -> Option<Row> {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let mut cell = || cells.next().map(|cell| cell.trim().to_owned());
        Some((cell()?, cell()?, cell()?))
    };
    let rows = page.lines().filter_map(cells);
    rows.filter(|(_, direction, _)| direction == MODERN || direction == LEGACY)
        .collect()
}

fn run_rows(direction: &str) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for (feature, of, result) in rows().into_iter().filter(|(_, of, _)| of == direction) {
        let mut checks = CHECKS.iter();
        let check = checks.find(|check| check.0 == feature && check.1 == of && check.2 == result);
        let (.., check) = check.with_context(|| format!("no test: {feature}, {of}, {result}"))?;
        if let Err(error) = check() {
            failed.push(format!("{feature}: {error:#}"));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

#[test]
fn every_test_has_a_row() {
    let rows: BTreeSet<Row> = rows().into_iter().collect();
    let tested = CHECKS.iter().map(|(feature, direction, result, _)| {
        (
            (*feature).to_owned(),
            (*direction).to_owned(),
            (*result).to_owned(),
        )
    });
    assert_eq!(rows, tested.collect());
}

#[test]
fn every_row_about_modern_clients_holds() -> anyhow::Result<()> {
    run_rows(MODERN)
}

#[test]
fn every_row_about_legacy_clients_holds() -> anyhow::Result<()> {
    run_rows(LEGACY)
}

#[test]
fn a_modern_client_of_others_finds_every_row_to_be_true() -> anyhow::Result<()> {
    client_of_others(MODERN, Mode::Auto)
}

#[test]
fn a_legacy_client_of_others_finds_every_row_to_be_true() -> anyhow::Result<()> {
    client_of_others(LEGACY, Mode::Legacy)
}

fn client_of_others(direction: &str, mode: Mode) -> anyhow::Result<()> {
    let tried = match foreign::try_eras(mode)? {
        Driven::Well(report) => report,
        Driven::Skipped(why) => {
            println!("SKIPPED: {why}");
            return Ok(());
        }
        Driven::Badly(said) => anyhow::bail!("{said}"),
    };
    let tried = tried.as_array().into_iter().flatten();
    let tried: BTreeSet<String> = tried
        .filter_map(|feature| feature.as_str().map(str::to_owned))
        .collect();
    let rows = rows().into_iter().filter(|(_, of, _)| of == direction);
    assert_eq!(tried, rows.map(|(feature, ..)| feature).collect());
    Ok(())
}

/// The `_meta` of a client that can be asked everything.
fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}, "roots": {}},
    })
}

fn with_meta(mut params: Value) -> Value {
    let mut own = meta();
    if let (Some(own), Some(given)) = (own.as_object_mut(), params["_meta"].as_object()) {
        own.extend(given.clone());
    }
    params["_meta"] = own;
    params
}

fn ask(client: &Client, id: &str, method: &str, params: Value) -> anyhow::Result<Message> {
    client.request(id, method, &with_meta(params))
}

/// A legacy server behind a bridge, of which a modern client has discovered what it can do.
fn modern(options: &str) -> anyhow::Result<Running> {
    let running = fixture("--bridge", options)?.spawn()?;
    let found = ask(running.client()?, "\"d\"", "server/discover", json!({}))?;
    ensure!(found.at("/result/resultType") == "complete", "{found:?}");
    Ok(running)
}

/// A modern server behind a bridge, with the session of a legacy client.
fn legacy(options: &str) -> anyhow::Result<Running> {
    let running = fixture("--bridge", &format!("--era modern {options}"))?.spawn()?;
    let capabilities = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    let opened = running.client()?.open(&capabilities)?;
    ensure!(opened.at("/result/serverInfo/name") == SERVER, "{opened:?}");
    Ok(running)
}

fn modern_handshake() -> anyhow::Result<()> {
    let fixture = fixture("--bridge", "")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    let found = ask(running.client()?, "1", "server/discover", json!({}))?;
    ensure!(
        found.at("/result/supportedVersions") == json!(["2026-07-28"]),
        "{found:?}"
    );
    ensure!(
        found.at("/result/capabilities/tools/listChanged") == true,
        "{found:?}"
    );
    let info = found.at("/result/_meta/io.modelcontextprotocol~1serverInfo/name");
    ensure!(info == SERVER, "{found:?}");
    wait_told(&state, "notifications/initialized", 1)?;
    stop(running)
}

fn modern_lists() -> anyhow::Result<()> {
    let running = modern("")?;
    for method in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ] {
        let list = ask(running.client()?, "1", method, json!({}))?;
        ensure!(list.at("/result/resultType") == "complete", "{list:?}");
        ensure!(list.at("/result/ttlMs") == 0, "{list:?}");
        ensure!(list.at("/result/cacheScope") == "private", "{list:?}");
    }
    stop(running)
}

/// Reads all tools page by page.
fn paged(request: impl Fn(&str, Value) -> anyhow::Result<Message>) -> anyhow::Result<()> {
    let (mut params, mut tools) = (json!({}), 0);
    for page in 1..100 {
        let list = request(&page.to_string(), params)?;
        let items = list.at("/result/tools").as_array().map_or(0, Vec::len);
        ensure!((1..=3).contains(&items), "{list:?}");
        tools += items;
        match list.at("/result/nextCursor") {
            Value::Null => {
                ensure!(page > 2 && tools > 6, "{tools} tools on {page} pages");
                return Ok(());
            }
            cursor => params = json!({"cursor": cursor}),
        }
    }
    anyhow::bail!("the list does not end")
}

fn modern_pagination() -> anyhow::Result<()> {
    let running = modern("--page 3")?;
    let client = running.client()?;
    paged(|id, params| ask(client, id, "tools/list", params))?;
    stop(running)
}

fn modern_calls() -> anyhow::Result<()> {
    let fixture = fixture("--bridge", "")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    // A client need not discover first.
    let params = json!({"name": "echo", "arguments": {"text": "here"}});
    let answer = ask(running.client()?, "1", "tools/call", params)?;
    ensure!(text(&answer) == "here", "{answer:?}");
    ensure!(answer.at("/result/resultType") == "complete", "{answer:?}");
    let told = mainstay_testkit::fixture::read_told(&state)?;
    let mut calls = told.iter().filter(|told| told.line.contains("tools/call"));
    let is_plain = calls.all(|told| !told.line.contains("protocolVersion"));
    ensure!(is_plain, "{told:?}");
    stop(running)
}

fn progress(client: &Client, params: &Value) -> anyhow::Result<()> {
    client.send(&mainstay_testkit::peer::request_line(
        "1",
        "tools/call",
        params,
    ))?;
    let step = client.notification("notifications/progress")?;
    ensure!(step.at("/params/progressToken") == "t", "{step:?}");
    let answer = client.answer("1")?;
    ensure!(text(&answer) == "slept 50 ms", "{answer:?}");
    Ok(())
}

fn modern_progress() -> anyhow::Result<()> {
    let running = modern("")?;
    let params = json!({"name": "sleep", "arguments": {"ms": 50, "steps": 3},
        "_meta": {"progressToken": "t"}});
    progress(running.client()?, &with_meta(params))?;
    stop(running)
}

fn cancelled(fixture: mainstay_testkit::wrapped::Fixture, is_modern: bool) -> anyhow::Result<()> {
    let state = fixture.state();
    let running = fixture.spawn()?;
    let client = running.client()?;
    let mut params = json!({"name": "sleep", "arguments": {"ms": 600_000}});
    match is_modern {
        true => params = with_meta(params),
        false => {
            client.open(&json!({}))?;
        }
    }
    client.send(&mainstay_testkit::peer::request_line(
        "7",
        "tools/call",
        &params,
    ))?;
    wait_told(&state, "\"sleep\"", 1)?;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    client.send(cancel)?;
    wait_told(&state, "notifications/cancelled", 1)?;
    stop(running)
}

fn modern_cancellation() -> anyhow::Result<()> {
    cancelled(fixture("--bridge", "")?, true)
}

/// A tool that asks, the answer that the client gives, and the place of the answer in the tool's result.
const QUESTIONS: [(&str, &str, &str, &str); 3] = [
    (
        "ask_user",
        "elicitation/create",
        r#"{"action":"accept","content":{"name":"Ada"}}"#,
        "/content/name",
    ),
    (
        "ask_model",
        "sampling/createMessage",
        r#"{"role":"assistant","model":"m","content":{"type":"text","text":"Ada"}}"#,
        "/content/text",
    ),
    (
        "list_roots",
        "roots/list",
        r#"{"roots":[{"uri":"Ada"}]}"#,
        "/roots/0/uri",
    ),
];

fn modern_question(number: usize) -> anyhow::Result<()> {
    let (tool, method, answer, place) = QUESTIONS.get(number).copied().context("it is there")?;
    let running = modern("")?;
    let client = running.client()?;
    let asked = ask(
        client,
        "1",
        "tools/call",
        json!({"name": tool, "arguments": {}}),
    )?;
    ensure!(
        asked.at("/result/resultType") == "input_required",
        "{asked:?}"
    );
    let requests = asked.at("/result/inputRequests");
    let requests = requests.as_object().context("inputRequests")?;
    let (name, request) = requests.iter().next().context("a question")?;
    ensure!(request["method"] == method, "{asked:?}");
    let answer: Value = serde_json::from_str(answer)?;
    let again = json!({"name": tool, "arguments": {}, "requestState": asked.at("/result/requestState"),
        "inputResponses": {name.as_str(): answer}});
    // Other calls are served meanwhile.
    let params = json!({"name": "echo", "arguments": {"text": "here"}});
    ensure!(text(&ask(client, "2", "tools/call", params)?) == "here");
    let told = ask(client, "3", "tools/call", again.clone())?;
    let place = format!("/result/structuredContent/answer{place}");
    ensure!(told.at(&place) == "Ada", "{told:?}");
    let refused = ask(client, "4", "tools/call", again)?;
    ensure!(
        refused.text().contains("requestState is not known"),
        "{refused:?}"
    );
    stop(running)
}

fn modern_elicitation() -> anyhow::Result<()> {
    modern_question(0)
}

fn modern_sampling() -> anyhow::Result<()> {
    modern_question(1)
}

fn modern_roots() -> anyhow::Result<()> {
    modern_question(2)
}

fn listen(client: &Client, wanted: &Value) -> anyhow::Result<Value> {
    let params = with_meta(json!({"notifications": wanted}));
    let line = mainstay_testkit::peer::request_line("\"l\"", "subscriptions/listen", &params);
    client.send(&line)?;
    let granted = client.notification("notifications/subscriptions/acknowledged")?;
    Ok(granted.at("/params/notifications"))
}

fn modern_subscriptions() -> anyhow::Result<()> {
    let fixture = fixture("--bridge", "")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    let client = running.client()?;
    let wanted = json!({"resourceSubscriptions": ["fixture:///readme"]});
    ensure!(listen(client, &wanted)? == wanted);
    let touch = json!({"name": "touch", "arguments": {"uri": "fixture:///readme"}});
    ask(client, "1", "tools/call", touch)?;
    let updated = client.notification("notifications/resources/updated")?;
    let of = updated.at("/params/_meta/io.modelcontextprotocol~1subscriptionId");
    ensure!(
        of == "l" && updated.at("/params/uri") == "fixture:///readme",
        "{updated:?}"
    );
    client.send(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}"#,
    )?;
    wait_told(&state, "resources/unsubscribe", 1)?;
    stop(running)
}

fn modern_list_changes() -> anyhow::Result<()> {
    let running = modern("--declare-list-changed")?;
    let client = running.client()?;
    let wanted = json!({"toolsListChanged": true});
    ensure!(listen(client, &wanted)? == wanted);
    let change = json!({"name": "change_tools", "arguments": {"action": "add"}});
    ask(client, "1", "tools/call", change)?;
    let changed = client.notification("notifications/tools/list_changed")?;
    let of = changed.at("/params/_meta/io.modelcontextprotocol~1subscriptionId");
    ensure!(of == "l", "{changed:?}");
    stop(running)
}

fn modern_logging() -> anyhow::Result<()> {
    let running = modern("")?;
    let client = running.client()?;
    let log = |level: Option<&str>, said: &str| {
        let mut params = json!({"name": "log", "arguments": {"level": "info", "text": said}});
        if let Some(level) = level {
            params["_meta"] = json!({"io.modelcontextprotocol/logLevel": level});
        }
        params
    };
    ask(client, "1", "tools/call", log(None, "unwanted"))?;
    ask(client, "2", "tools/call", log(Some("debug"), "wanted"))?;
    let message = client.notification("notifications/message")?;
    ensure!(message.at("/params/data") == "wanted", "{message:?}");
    stop(running)
}

fn modern_stray_question() -> anyhow::Result<()> {
    let fixture = fixture("--bridge", "--roots-at-start")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    let client = running.client()?;
    ask(client, "1", "server/discover", json!({}))?;
    wait_told(&state, "the client cannot be asked", 1)?;
    let params = json!({"name": "echo", "arguments": {"text": "here"}});
    ensure!(text(&ask(client, "2", "tools/call", params)?) == "here");
    let (rest, _) = running.finish()?;
    ensure!(rest.is_empty(), "{rest:?}");
    Ok(())
}

fn modern_tasks() -> anyhow::Result<()> {
    let running = modern("")?;
    let client = running.client()?;
    let found = ask(client, "1", "server/discover", json!({}))?;
    ensure!(!found.text().contains("tasks"), "{found:?}");
    let refused = ask(client, "2", "tasks/get", json!({"taskId": "x"}))?;
    ensure!(refused.at("/error/code").is_i64(), "{refused:?}");
    stop(running)
}

fn legacy_handshake() -> anyhow::Result<()> {
    let running = fixture("--bridge", "--era modern")?.spawn()?;
    let opened = running.client()?.open(&json!({}))?;
    ensure!(
        opened.at("/result/protocolVersion") == "2025-11-25",
        "{opened:?}"
    );
    ensure!(
        opened.at("/result/capabilities/tools/listChanged") == true,
        "{opened:?}"
    );
    ensure!(opened.at("/result/instructions").is_string(), "{opened:?}");
    stop(running)?;
    // Without the setting the server's own refusal passes.
    let running = fixture("", "--era modern")?.spawn()?;
    let refused = running.client()?.open(&json!({}))?;
    ensure!(refused.at("/error/code").is_i64(), "{refused:?}");
    stop(running)
}

fn legacy_lists() -> anyhow::Result<()> {
    let running = legacy("")?;
    for method in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ] {
        let list = running.client()?.request("1", method, &json!({}))?;
        for member in ["resultType", "ttlMs", "cacheScope"] {
            ensure!(list.at(&format!("/result/{member}")).is_null(), "{list:?}");
        }
        ensure!(list.at("/result").is_object(), "{list:?}");
    }
    stop(running)
}

fn legacy_pagination() -> anyhow::Result<()> {
    let running = legacy("--page 3")?;
    let client = running.client()?;
    paged(|id, params| client.request(id, "tools/list", &params))?;
    stop(running)
}

fn legacy_calls() -> anyhow::Result<()> {
    let running = legacy("")?;
    let client = running.client()?;
    echo(client, "1")?;
    // A successor needs no handshake.
    client.send(&call("2", "crash", &json!({"how": "exit"})))?;
    client.answer("2")?;
    echo(client, "3")?;
    stop(running)
}

fn legacy_progress() -> anyhow::Result<()> {
    let running = legacy("")?;
    let params = json!({"name": "sleep", "arguments": {"ms": 50, "steps": 3},
        "_meta": {"progressToken": "t"}});
    progress(running.client()?, &params)?;
    stop(running)
}

fn legacy_cancellation() -> anyhow::Result<()> {
    cancelled(fixture("--bridge", "--era modern")?, false)
}

fn legacy_question(number: usize) -> anyhow::Result<()> {
    let (tool, method, answer, place) = QUESTIONS.get(number).copied().context("it is there")?;
    let running = legacy("")?;
    let client = running.client()?;
    client.send(&call("1", tool, &json!({})))?;
    let question = client.take("a question", |line| {
        line.method().as_deref() == Some(method)
    })?;
    echo(client, "2")?;
    let id = question.id().unwrap_or_default();
    client.send(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{answer}}}"#
    ))?;
    let told = client.answer("1")?;
    let place = format!("/result/structuredContent/answer{place}");
    ensure!(told.at(&place) == "Ada", "{told:?}");
    // A refusal ends the call.
    client.send(&call("3", tool, &json!({})))?;
    let question = client.take("a question", |line| {
        line.method().as_deref() == Some(method)
    })?;
    let id = question.id().unwrap_or_default();
    client.send(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"no"}}}}"#
    ))?;
    let refused = client.answer("3")?;
    ensure!(refused.text().contains("refused a question"), "{refused:?}");
    stop(running)
}

fn legacy_elicitation() -> anyhow::Result<()> {
    legacy_question(0)
}

fn legacy_sampling() -> anyhow::Result<()> {
    legacy_question(1)
}

fn legacy_roots() -> anyhow::Result<()> {
    legacy_question(2)
}

fn legacy_subscriptions() -> anyhow::Result<()> {
    let running = legacy("")?;
    let client = running.client()?;
    let uri = json!({"uri": "fixture:///readme"});
    let subscribed = client.request("1", "resources/subscribe", &uri)?;
    ensure!(subscribed.at("/result") == json!({}), "{subscribed:?}");
    client.call("2", "touch", &uri)?;
    let updated = client.notification("notifications/resources/updated")?;
    ensure!(updated.at("/params") == uri, "{updated:?}");
    stop(running)
}

fn legacy_list_changes() -> anyhow::Result<()> {
    let running = legacy("")?;
    let client = running.client()?;
    client.call("1", "change_tools", &json!({"action": "add"}))?;
    let changed = client.notification("notifications/tools/list_changed")?;
    ensure!(changed.at("/params").is_null(), "{changed:?}");
    stop(running)
}

fn legacy_logging() -> anyhow::Result<()> {
    let running = legacy("")?;
    let client = running.client()?;
    let set = client.request("1", "logging/setLevel", &json!({"level": "debug"}))?;
    ensure!(set.at("/result") == json!({}), "{set:?}");
    client.call("2", "log", &json!({"level": "info", "text": "wanted"}))?;
    let message = client.notification("notifications/message")?;
    ensure!(message.at("/params/data") == "wanted", "{message:?}");
    stop(running)
}

fn legacy_ping() -> anyhow::Result<()> {
    let running = legacy("")?;
    let pong = running.client()?.request("1", "ping", &json!({}))?;
    ensure!(pong.at("/result") == json!({}), "{pong:?}");
    stop(running)
}

fn legacy_tasks() -> anyhow::Result<()> {
    let running = legacy("")?;
    let client = running.client()?;
    let params = json!({"taskId": "x"});
    let refused = client.request("1", "tasks/get", &params)?;
    ensure!(refused.at("/error/code").is_i64(), "{refused:?}");
    eventually("it serves on", || echo(client, "2").is_ok())?;
    stop(running)
}
