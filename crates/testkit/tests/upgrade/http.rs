//! Hosts on HTTP: answers end first, streams are closed, sessions and idle connections continue.

use std::thread;
use std::time::Instant;

use anyhow::{anyhow, ensure};
use mainstay_testkit::http::{Connection, Event, Events, Framing, Request, Session, modern};
use mainstay_testkit::peer::request_line;
use mainstay_testkit::process::{Launch, Running, Serve, binary};
use serde_json::json;

use crate::{PATIENCE, build, refused, shown, upgrade};

/// Reads events until one contains `text`.
fn hear(connection: &mut Connection, text: &str) -> anyhow::Result<Vec<Event>> {
    let (head, mut framing) = connection.head()?;
    ensure!(head.is_stream(), "{head:?}");
    let (mut reader, mut seen) = (Events::default(), Vec::new());
    while let Some(piece) = connection.piece(&mut framing)? {
        seen.extend(reader.push(&piece));
        if seen.iter().any(|event: &Event| event.data.contains(text)) {
            return Ok(seen);
        }
    }
    anyhow::bail!("the stream ended after {seen:?}")
}

fn wrapped_http() -> anyhow::Result<Running> {
    let words = [shown(&binary("mainstay")?), "wrap", "--http", "127.0.0.1:0"].map(str::to_owned);
    let server = ["--", shown(&binary("mcp-fixture")?), "--era", "both"].map(str::to_owned);
    Launch::new(words.into_iter().chain(server))?.spawn_http()
}

#[test]
fn sessions_and_connections_over_http_survive() -> anyhow::Result<()> {
    let serve = Serve::http()?.ledger()?;
    let other = serve.folder().join("mainstay");
    let host = serve.spawn()?;
    let address = host.address()?;
    let session = Session::open(address)?;
    // A connection that is used again, and one in the middle of a request.
    let health = Request::to(address, "GET", "/healthz");
    let (mut kept, mut half) = (Connection::open(address)?, Connection::open(address)?);
    ensure!(kept.ask(&health)?.status() == 200);
    let bytes = session
        .post(&request_line(
            "7",
            "tools/call",
            &json!({"name": "get", "arguments": {}}),
        ))
        .bytes();
    let (first, rest) = bytes.split_at(30);
    half.send(first)?;
    // A call that is answered before the host is replaced.
    let slow = thread::spawn({
        let session = session.clone();
        move || session.call("8", "append", &json!({"text": "slow", "pause_ms": 1500}))
    });
    let until = Instant::now() + PATIENCE;
    while kept.ask(&health)?.json()?.get("in_flight") != Some(&json!(1)) {
        ensure!(Instant::now() < until, "the call does not start");
    }
    build(&other)?;
    upgrade(&host, &[shown(&other)])?;
    let answer = slow.join().map_err(|_| anyhow!("it panicked"))??;
    ensure!(
        answer.pointer("/result/isError") != Some(&json!(true)),
        "{answer}"
    );
    ensure!(kept.ask(&health)?.status() == 200, "on the same connection");
    half.send(rest)?;
    let answer = half.response()?;
    ensure!(answer.status() == 200, "{}", answer.text());
    let answer = session.call("9", "append", &json!({"text": "after"}))?;
    ensure!(
        answer.pointer("/result/isError") != Some(&json!(true)),
        "{answer}"
    );
    ensure!(session.ask(&session.delete())?.status() == 204);
    host.stop()
}

#[test]
fn streams_are_closed_at_the_hand_over_and_no_list_change_is_missed() -> anyhow::Result<()> {
    let host = wrapped_http()?;
    let address = host.address()?;
    let session = Session::open(address)?;
    let mut legacy = Connection::open(address)?;
    legacy.send(&session.get().bytes())?;
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let listen = || modern(address, "\"s\"", "subscriptions/listen", &wanted);
    let mut modern_stream = Connection::open(address)?;
    modern_stream.send(&listen().bytes())?;
    hear(&mut modern_stream, "subscriptions/acknowledged")?;
    let (head, _) = legacy.head()?;
    ensure!(head.is_stream(), "{head:?}");
    upgrade(&host, &[])?;
    // The connections are kept for the next request.
    for stream in [&mut legacy, &mut modern_stream] {
        while stream.piece(&mut Framing::Chunks)?.is_some() {}
    }
    // The lists change before the clients are back.
    let changed = session.call("1", "change_tools", &json!({"action": "add"}))?;
    ensure!(changed.get("result").is_some(), "{changed}");
    legacy.send(&session.get().bytes())?;
    hear(&mut legacy, "notifications/tools/list_changed")?;
    modern_stream.send(&listen().bytes())?;
    let seen = hear(&mut modern_stream, "notifications/tools/list_changed")?;
    let said = seen
        .last()
        .map(|event| event.data.clone())
        .unwrap_or_default();
    ensure!(
        said.contains(r#""io.modelcontextprotocol/subscriptionId":"s""#),
        "{said}"
    );
    drop((legacy, modern_stream));
    host.stop()
}

#[test]
fn an_answer_that_does_not_end_refuses_the_upgrade_or_is_ended_by_now() -> anyhow::Result<()> {
    let host = Serve::http()?
        .ledger()?
        .limits("drain_ms = 1000")?
        .spawn()?;
    let address = host.address()?;
    let wait = |id: &str, ms: u64| {
        let arguments = json!({"name": "wait", "arguments": {"ms": ms, "steps": 1}});
        modern(address, id, "tools/call", &arguments)
    };
    let health = Request::to(address, "GET", "/healthz");
    let in_flight = |count: u64| -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let health = Connection::open(address)?.ask(&health)?.json()?;
            if health.get("in_flight") == Some(&json!(count)) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "{health}");
        }
    };
    let mut open = Connection::open(address)?;
    open.send(&wait("\"long\"", 60_000).bytes())?;
    in_flight(1)?;
    let reason = refused(&host, &[])?;
    ensure!(reason.contains("tools/call wait (id \"long\")"), "{reason}");
    in_flight(1)?;
    // Its client does not want it any more.
    drop(open);
    in_flight(0)?;
    // Ended with an error that has a code.
    let mut ended = Connection::open(address)?;
    ended.send(&wait("\"now\"", 60_000).bytes())?;
    let mut single = Connection::open(address)?;
    let body = json!({"arguments": {"ms": 60_000, "steps": 1}}).to_string();
    let request = Request::to(address, "POST", "/v1/tool/wait");
    single.send(
        &request
            .header("Content-Type", "application/json")
            .body(body)
            .bytes(),
    )?;
    in_flight(2)?;
    upgrade(&host, &["--now"])?;
    let answer = ended.response()?;
    let said = answer.messages()?;
    let error = said
        .last()
        .and_then(|said| said.pointer("/error/code"))
        .cloned();
    ensure!(error == Some(json!(-31503)), "{said:?}");
    ensure!(
        answer.head.header("connection") == Some("close"),
        "{answer:?}"
    );
    let answer = single.response()?;
    ensure!(answer.status() == 503, "{answer:?}");
    in_flight(0)?;
    host.stop()
}

#[test]
fn deadlines_are_due_while_the_host_waits_for_answers() -> anyhow::Result<()> {
    let host = Serve::http()?
        .ledger()?
        .limits("drain_ms = 100000, call_timeout_ms = 2000")?
        .spawn()?;
    let address = host.address()?;
    let mut open = Connection::open(address)?;
    let body = json!({"arguments": {"ms": 600_000, "steps": 1}}).to_string();
    let request = Request::to(address, "POST", "/v1/tool/wait");
    let request = request.header("Content-Type", "application/json");
    open.send(&request.body(body).bytes())?;
    let health = Request::to(address, "GET", "/healthz");
    let until = Instant::now() + PATIENCE;
    loop {
        let health = Connection::open(address)?.ask(&health)?.json()?;
        if health.get("in_flight") == Some(&json!(1)) {
            break;
        }
        ensure!(Instant::now() < until, "{health}");
    }
    // It waits for the answer of the call, which ends at its deadline and not with the wait.
    upgrade(&host, &[])?;
    let answer = open.response()?;
    ensure!(answer.status() == 504, "{}", answer.text());
    host.stop()
}
