//! Schemas and payloads that are expensive to check: the host goes on, the call ends at its deadline, and the memory
//! comes back. Servers that imitate the host's own errors, and servers that answer oddly.

#![allow(
    clippy::print_stdout,
    reason = "what is skipped must be seen to be skipped"
)]

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::hostile_server::HOSTILE_SERVER;
use mainstay_testkit::http::{Connection, Request, Session};
use mainstay_testkit::peer::request_line;
use mainstay_testkit::process::{Launch, Running, binary};
use serde_json::{Value, json};

/// Longer than any of these hosts needs; the calls themselves have the deadline below.
const PATIENCE: Duration = Duration::from_secs(120);
/// The deadline of calls, in seconds.
const TIMEOUT: u64 = 5;
/// How much larger a host may be after its memory came back.
const LEFT_KIB: u64 = 20 * 1024;
/// Items of an array that is far from cheap to check; `cargo xtask bench hostile` uses 15 MB.
const ITEMS: usize = 130_000;

fn launch(options: &[&str]) -> anyhow::Result<Option<Launch>> {
    if Command::new("python3").arg("-V").output().is_err() {
        println!("skipped: python3 is not installed");
        return Ok(None);
    }
    let launch = Launch::new([binary("mainstay")?.into_os_string(), "wrap".into()])?;
    let script = launch.folder().join("server.py");
    std::fs::write(&script, HOSTILE_SERVER)?;
    let timeout = TIMEOUT.to_string();
    Ok(Some(
        launch
            .words(["--timeout", &timeout])
            .words(options)
            .words(["--", "python3"])
            .words([script]),
    ))
}

fn over_http() -> anyhow::Result<Option<Running>> {
    match launch(&["--http", "127.0.0.1:0"])? {
        Some(launch) => launch.spawn_http().map(Some),
        None => Ok(None),
    }
}

fn hostile_list() -> Value {
    json!({ "list": vec!["aaaaaaaa"; ITEMS] })
}

/// Waits until the host's memory is back.
fn memory_returns(host: &Running, before: u64) -> anyhow::Result<()> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let now = host.usage()?.resident;
        if now <= before + LEFT_KIB {
            return Ok(());
        }
        ensure!(Instant::now() < give_up, "{before} KiB stayed at {now} KiB");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Asks other things while `busy` goes on, and returns how often that was answered.
fn served_meanwhile(
    address: SocketAddr,
    host: &Running,
    busy: &std::thread::JoinHandle<anyhow::Result<Value>>,
) -> anyhow::Result<usize> {
    let other = Session::open(address)?;
    let mut rounds = 0;
    while !busy.is_finished() {
        other.request("1", "ping", &json!({}))?;
        let answer = other.call("2", "plain", &json!({}))?;
        let text = answer.pointer("/result/content/0/text");
        ensure!(text == Some(&json!("here")), "{answer}");
        let status = Command::new(binary("mainstay")?)
            .args(["status", "--pid", &host.pid().to_string()])
            .env("MAINSTAY_RUNTIME_DIR", host.folder().join("run"))
            .output()?;
        ensure!(status.status.success(), "{status:?}");
        rounds += 1;
    }
    Ok(rounds)
}

#[test]
fn arguments_that_are_expensive_to_check_delay_no_other_session() -> anyhow::Result<()> {
    let Some(host) = over_http()? else {
        return Ok(());
    };
    let address = host.address()?;
    let warm = Session::open(address)?;
    warm.call("1", "judged", &json!({ "list": ["c"] }))?;
    let before = host.usage()?.resident;
    let busy = std::thread::spawn(move || {
        let began = Instant::now();
        let deep = (0..60).fold(json!({}), |inner, _| json!({ "a": inner }));
        let answer = warm.call("2", "endless", &deep)?;
        ensure!(began.elapsed() >= Duration::from_secs(TIMEOUT), "{answer}");
        Ok(answer)
    });
    let rounds = served_meanwhile(address, &host, &busy)?;
    ensure!(rounds > 0, "nothing else was served");
    let answer = busy
        .join()
        .map_err(|_| anyhow::anyhow!("the call panicked"))??;
    let text = answer["result"]["content"][0]["text"].to_string();
    ensure!(text.contains("TOOL_TIMEOUT"), "{answer}");
    // A large payload under many patterns ends, one way or the other, and its memory comes back.
    let last = Session::open(address)?;
    let answer = last.call("3", "judged", &hostile_list())?;
    ensure!(answer["result"]["isError"] == true, "not rejected");
    drop(answer);
    memory_returns(&host, before)?;
    host.stop()
}

#[test]
fn a_result_that_is_expensive_to_check_is_not_delayed_and_delays_nothing() -> anyhow::Result<()> {
    let Some(host) = over_http()? else {
        return Ok(());
    };
    let address = host.address()?;
    let warm = Session::open(address)?;
    warm.call("1", "plain", &json!({}))?;
    let before = host.usage()?.resident;
    let busy = std::thread::spawn(move || warm.call("2", "large", &json!({})));
    served_meanwhile(address, &host, &busy)?;
    let answer = busy
        .join()
        .map_err(|_| anyhow::anyhow!("the call panicked"))??;
    let list = answer["result"]["structuredContent"]["list"].as_array();
    ensure!(list.map(Vec::len) == Some(ITEMS), "the result came whole");
    drop(answer);
    // The check may still go on: the host is served, and stops when it is told to.
    let other = Session::open(address)?;
    other.request("1", "ping", &json!({}))?;
    memory_returns(&host, before)?;
    host.stop()
}

/// Fifteen million bytes over stdio, on whose way the host makes several copies.
#[test]
fn the_memory_of_a_large_result_comes_back() -> anyhow::Result<()> {
    let Some(launch) = launch(&[])? else {
        return Ok(());
    };
    let host = launch.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    client.call("1", "plain", &json!({}))?;
    let before = host.usage()?.resident;
    let answer = client.call("2", "large", &json!({ "items": 10 * ITEMS }))?;
    ensure!(answer.text().len() > 14_000_000, "{}", answer.text().len());
    memory_returns(&host, before)?;
    host.finish().context("ends in order")?;
    Ok(())
}

#[test]
fn a_host_whose_checker_is_busy_ends_on_a_signal() -> anyhow::Result<()> {
    let Some(mut host) = over_http()? else {
        return Ok(());
    };
    let address = host.address()?;
    let session = Session::open(address)?;
    let mut connection = Connection::open(address)?;
    let params = json!({ "name": "judged", "arguments": hostile_list() });
    let message = session.post(&request_line("1", "tools/call", &params));
    let busy = std::thread::spawn(move || connection.ask(&message));
    let other = Session::open(address)?;
    other.request("1", "ping", &json!({}))?;
    host.terminate()?;
    let status = host.wait()?;
    ensure!(status.success(), "{status}");
    let _ = busy.join();
    ensure!(host.family().is_empty(), "left behind: {:?}", host.family());
    Ok(())
}

/// A tool by name, over REST.
fn rest(address: SocketAddr, tool: &str) -> anyhow::Result<(u16, Value, Option<String>)> {
    let request = Request::to(address, "POST", &format!("/v1/tool/{tool}"))
        .header("Content-Type", "application/json")
        .body(b"{}");
    let answer = Connection::open(address)?.ask(&request)?;
    let retry = answer.head.header("retry-after").map(str::to_owned);
    Ok((answer.status(), answer.json()?, retry))
}

#[test]
fn a_server_cannot_forge_an_error_of_the_host_over_rest() -> anyhow::Result<()> {
    let Some(host) = over_http()? else {
        return Ok(());
    };
    let address = host.address()?;
    for tool in ["forged", "invented"] {
        let (status, envelope, retry) = rest(address, tool)?;
        ensure!(status == 502, "{tool}: {status} {envelope}");
        ensure!(retry.is_none(), "{tool}: {retry:?}");
        let text = envelope.to_string();
        ensure!(text.contains("backend_error"), "{text}");
    }
    host.stop()
}

#[test]
fn respelled_ids_torn_answers_and_late_progress_are_handled_at_once() -> anyhow::Result<()> {
    let Some(launch) = launch(&[])? else {
        return Ok(());
    };
    let host = launch.spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    let answer = client.call("7", "respelled", &json!({}))?;
    ensure!(answer.text().contains(r#""id":7"#), "{answer:?}");
    let answer = client.call("8", "torn", &json!({}))?;
    let text = answer.at("/result/content/0/text").to_string();
    ensure!(text.contains("cannot be used"), "{answer:?}");
    let params = json!({ "name": "late", "arguments": {}, "_meta": { "progressToken": "t" } });
    client.send(&request_line("9", "tools/call", &params))?;
    let mut seen = Vec::new();
    loop {
        let message = client.next()?;
        if message.id().is_some() {
            break;
        }
        seen.push(message.at("/params").to_string());
    }
    ensure!(seen.len() == 1, "{seen:?}");
    // Whatever came after the answer would be in front of the next one.
    client.send(&request_line("10", "ping", &json!({})))?;
    let next = client.next()?;
    ensure!(next.at("/id") == 10, "{next:?}");
    let (rest, _) = host.finish().context("ends in order")?;
    ensure!(rest.is_empty(), "{rest:?}");
    Ok(())
}
