//! What a client over HTTP keeps: its session when workers die, its stream when the connection
//! breaks, its answer when the host is told to stop; and what it does not get: anybody else's.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

mod issuer;

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Event, Events, Request, Session, modern};
use mainstay_testkit::process::{Launch, Running, Serve, binary, kill};
use serde_json::{Value, json};

use self::issuer::{FAR, Issuer, RESOURCE};

const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until so many requests are in flight.
fn wait_in_flight(address: SocketAddr, count: u64) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let health = Connection::open(address)?.ask(&Request::to(address, "GET", "/healthz"))?;
        let health = health.json()?;
        if health["in_flight"] == count {
            return Ok(());
        }
        ensure!(Instant::now() < until, "never {count} in flight: {health}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn request_line(id: &str, method: &str, params: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

fn wrapped(limits: &str) -> anyhow::Result<Running> {
    let launch = Launch::new([binary("mainstay")?])?;
    let config = launch.folder().join("config.toml");
    fs::write(
        &config,
        format!("[servers.wrapped.mainstay.limits]\n{limits}\n"),
    )?;
    launch
        .words(["wrap", "--http", "127.0.0.1:0", "--config"])
        .words([config])
        .words(["--".into(), binary("mcp-fixture")?])
        .words(["--era", "both", "--effects", "effects.jsonl"])
        .spawn_http()
}

/// Reads events until one fits.
fn events_until(
    connection: &mut Connection,
    fits: impl Fn(&Event) -> bool,
) -> anyhow::Result<Vec<Event>> {
    let (head, mut framing) = connection.head()?;
    ensure!(head.is_stream(), "{head:?}");
    let (mut reader, mut seen) = (Events::default(), Vec::new());
    while let Some(piece) = connection.piece(&mut framing)? {
        for event in reader.push(&piece) {
            let is_it = fits(&event);
            seen.push(event);
            if is_it {
                return Ok(seen);
            }
        }
    }
    anyhow::bail!("the stream ended after {seen:?}")
}

fn is_answer(event: &Event) -> bool {
    event.data.contains("\"result\"")
}

#[test]
fn a_session_outlives_its_workers() -> anyhow::Result<()> {
    let packs = Serve::http()?.ledger()?.spawn()?;
    let session = Session::open(packs.address()?)?;
    for round in 0..3 {
        let answer = session.call(&round.to_string(), "get", &json!({}))?;
        ensure!(answer["result"]["isError"] != json!(true), "{answer}");
        for worker in packs.wait_for_workers("ledger", 1)? {
            kill(worker);
        }
    }
    session.call("9", "get", &json!({}))?;
    packs.stop()?;

    let server = wrapped("")?;
    let session = Session::open(server.address()?)?;
    for round in 0..3 {
        let answer = session.call(&round.to_string(), "add", &json!({"a": 1, "b": round}))?;
        ensure!(answer["result"]["isError"] != json!(true), "{answer}");
        for worker in server.wait_for_workers("mcp-fixture", 1)? {
            kill(worker);
        }
    }
    session.call("9", "add", &json!({"a": 1, "b": 2}))?;
    server.stop()
}

#[test]
fn a_stream_that_breaks_goes_on_where_it_broke() -> anyhow::Result<()> {
    let host = Serve::http()?.ledger()?.spawn()?;
    let session = Session::open(host.address()?)?;
    let params = json!({"name": "wait", "arguments": {"ms": 1500, "steps": 30}, "_meta": {"progressToken": "p"}});
    let mut connection = Connection::open(host.address()?)?;
    let post = session.post(&request_line("1", "tools/call", &params));
    connection.send(&post.bytes())?;
    let seen = events_until(&mut connection, |event| {
        event.data.contains("progressToken")
    })?;
    ensure!(
        seen[0].data.is_empty() && seen[0].id.is_some(),
        "primed: {seen:?}"
    );
    let last = seen
        .last()
        .and_then(|event| event.id.clone())
        .context("no id")?;
    drop(connection);
    thread::sleep(Duration::from_millis(300));

    let mut again = Connection::open(host.address()?)?;
    again.send(&session.get().header("Last-Event-ID", &last).bytes())?;
    let rest = events_until(&mut again, is_answer)?;
    let mut numbers: Vec<u64> = Vec::new();
    for event in rest.iter().filter_map(|event| event.id.as_deref()) {
        let (stream, number) = event.split_once('-').context("an id")?;
        ensure!(
            last.starts_with(&format!("{stream}-")),
            "{event} of another stream"
        );
        numbers.push(number.parse()?);
    }
    let first: u64 = last.split_once('-').context("an id")?.1.parse()?;
    let expected: Vec<u64> = (first + 1..).take(numbers.len()).collect();
    ensure!(numbers == expected, "behind {last}: {numbers:?}");

    let mut gone = Connection::open(host.address()?)?;
    let refused = gone.ask(&session.get().header("Last-Event-ID", "77-1"))?;
    ensure!(refused.status() == 400, "{}", refused.status());
    host.stop()
}

#[test]
fn a_subscription_lasts_as_long_as_its_stream() -> anyhow::Result<()> {
    let mut host = Serve::http()?.ledger()?.spawn()?;
    let address = host.address()?;
    let listen = modern(
        address,
        "\"s\"",
        "subscriptions/listen",
        &json!({"notifications": {}}),
    );
    let mut closed = Connection::open(address)?;
    closed.send(&listen.bytes())?;
    let acknowledged = |event: &Event| event.data.contains("subscriptions/acknowledged");
    let seen = events_until(&mut closed, acknowledged)?;
    let said: Value = serde_json::from_str(&seen.last().context("an event")?.data)?;
    let meta = &said["params"]["_meta"];
    ensure!(
        meta["io.modelcontextprotocol/subscriptionId"] == "s",
        "{said}"
    );
    drop(closed);
    let mut open = Connection::open(address)?;
    open.send(&listen.bytes())?;
    let waiting = thread::spawn(move || events_until(&mut open, is_answer));
    wait_in_flight(address, 1)?;
    host.terminate()?;
    let seen = waiting.join().unwrap()?;
    let end: Value = serde_json::from_str(&seen.last().context("an event")?.data)?;
    ensure!(
        end["id"] == "s" && end["result"]["resultType"] == "complete",
        "{end}"
    );
    ensure!(host.wait()?.success());
    Ok(())
}

#[test]
fn what_is_in_flight_is_answered_before_the_end() -> anyhow::Result<()> {
    let mut host = Serve::http()?.ledger()?.spawn()?;
    let address = host.address()?;
    let session = Session::open(address)?;
    let legacy = thread::spawn(move || session.call("1", "wait", &json!({"ms": 8000, "steps": 1})));
    let single = thread::spawn(move || {
        let params = json!({"name": "wait", "arguments": {"ms": 8000, "steps": 1}});
        Connection::open(address)?.ask(&modern(address, "2", "tools/call", &params))
    });
    let rest = thread::spawn(move || {
        let request = Request::to(address, "POST", "/v1/tool/wait")
            .header("Content-Type", "application/json")
            .body(r#"{"arguments":{"ms":8000,"steps":1}}"#);
        Connection::open(address)?.ask(&request)
    });
    wait_in_flight(address, 3)?;
    host.terminate()?;
    let legacy = legacy.join().unwrap()?;
    ensure!(legacy["result"]["isError"] != json!(true), "{legacy}");
    let single = single.join().unwrap()?;
    ensure!(single.text().contains("\"result\""), "{}", single.text());
    let rest = rest.join().unwrap()?;
    ensure!(
        rest.status() == 200 && rest.json()?["ok"] == true,
        "{}",
        rest.text()
    );
    ensure!(host.wait()?.success());
    ensure!(
        Connection::open(address).is_err(),
        "nobody listens any more"
    );
    Ok(())
}

#[test]
fn requests_beyond_the_limit_are_told_to_come_back() -> anyhow::Result<()> {
    let host = Serve::http()?
        .ledger()?
        .limits("http_in_flight = 2")?
        .spawn()?;
    let address = host.address()?;
    let slow = move || {
        let request = Request::to(address, "POST", "/v1/tool/wait")
            .header("Content-Type", "application/json")
            .body(r#"{"arguments":{"ms":8000,"steps":1}}"#);
        Connection::open(address)?.ask(&request)
    };
    let waiting = [thread::spawn(slow), thread::spawn(slow)];
    wait_in_flight(address, 2)?;
    let tools = || Connection::open(address)?.ask(&Request::to(address, "GET", "/v1/tools"));
    let refused = tools()?;
    ensure!(refused.status() == 429, "{}", refused.status());
    ensure!(
        refused.head.header("retry-after").is_some(),
        "{:?}",
        refused.head
    );
    let health = Connection::open(address)?.ask(&Request::to(address, "GET", "/healthz"))?;
    ensure!(health.status() == 200, "an operator can still look");
    for call in waiting {
        ensure!(call.join().unwrap()?.status() == 200);
    }
    ensure!(tools()?.status() == 200);
    host.stop()
}

#[test]
fn idle_servers_make_way_and_come_back() -> anyhow::Result<()> {
    let host = wrapped("wrapped_workers = 2")?;
    let address = host.address()?;
    let sessions: Vec<Session> = (0..4)
        .map(|_| Session::open(address))
        .collect::<anyhow::Result<_>>()?;
    for round in 0..2 {
        for (number, session) in sessions.iter().enumerate() {
            let answer = session.call(&round.to_string(), "add", &json!({"a": number, "b": 1}))?;
            ensure!(answer["result"]["isError"] != json!(true), "{answer}");
        }
    }
    let until = Instant::now() + PATIENCE;
    while host.workers("mcp-fixture").len() > 2 {
        ensure!(Instant::now() < until, "{:?}", host.workers("mcp-fixture"));
        thread::sleep(Duration::from_millis(50));
    }
    host.stop()
}

#[test]
fn idle_servers_make_way_when_descriptors_run_out() -> anyhow::Result<()> {
    let host = Launch::new(["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"])?
        .words([binary("mainstay")?])
        .words(["wrap", "--http", "127.0.0.1:0", "--"])
        .words([binary("mcp-fixture")?])
        .spawn_http()?;
    let address = host.address()?;
    let mut sessions = Vec::new();
    for _ in 0..25 {
        sessions.push(Session::open(address)?);
    }
    for session in &sessions {
        let answer = session.call("1", "echo", &json!({"text": "here"}))?;
        let text = answer.pointer("/result/content/0/text");
        ensure!(text == Some(&json!("here")), "{answer}");
    }
    host.stop()
}

fn ask_as(address: SocketAddr, request: Request, token: &str) -> anyhow::Result<u16> {
    let request = request.header("Authorization", &format!("Bearer {token}"));
    Ok(Connection::open(address)?.ask(&request)?.status())
}

#[test]
fn those_whom_an_issuer_vouches_for_are_served_and_kept_apart() -> anyhow::Result<()> {
    let serve = Serve::http()?.ledger()?;
    let issuer = Issuer::new(serve.folder())?;
    let host = issuer.trusted_by(serve).spawn()?;
    let address = host.address()?;

    let refused = Connection::open(address)?.ask(&Request::to(address, "GET", "/v1/tools"))?;
    ensure!(refused.status() == 401);
    let challenge = refused
        .head
        .header("www-authenticate")
        .context("no challenge")?;
    let metadata = "https://tools.example/.well-known/oauth-protected-resource/mcp";
    ensure!(
        challenge == format!("Bearer resource_metadata=\"{metadata}\""),
        "{challenge}"
    );
    let path = "/.well-known/oauth-protected-resource/mcp";
    let answer = Connection::open(address)?.ask(&Request::to(address, "GET", path))?;
    let metadata: Value = answer.json()?;
    ensure!(metadata["resource"] == RESOURCE, "{metadata}");
    ensure!(metadata["authorization_servers"] == json!(["https://issuer.example"]));

    let (ada, bob) = (
        issuer.token("ada", RESOURCE, FAR),
        issuer.token("bob", RESOURCE, FAR),
    );
    let tools = || Request::to(address, "GET", "/v1/tools");
    ensure!(ask_as(address, tools(), &ada)? == 200);
    let stale = issuer.token("ada", RESOURCE, 1_000_000_000);
    let foreign = issuer.token("ada", "https://other.example/mcp", FAR);
    for wrong in [stale, foreign, ada.replace("ey", "ez"), "x".to_owned()] {
        ensure!(ask_as(address, tools(), &wrong)? == 401, "{wrong}");
    }

    let session = Session::open_as(address, Some(&ada))?;
    session.call("1", "get", &json!({}))?;
    let list = request_line("2", "tools/list", &json!({}));
    let stolen = Request::message(address, &list).header("Mcp-Session-Id", session.id());
    ensure!(
        ask_as(address, stolen.clone(), &bob)? == 404,
        "bob has no such session"
    );
    ensure!(ask_as(address, stolen, &ada)? == 200);
    host.stop()
}
