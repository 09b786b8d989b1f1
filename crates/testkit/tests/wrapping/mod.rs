//! Helpers of the tests of `mainstay wrap`.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use mainstay_testkit::fixture::read_told;
use mainstay_testkit::peer::{Client, Message, PATIENCE};
use mainstay_testkit::process::{Running, binary};
use mainstay_testkit::wrapped::Fixture;
use serde_json::{Value, json};

/// The program of the server, as `Running::workers` looks for it.
pub(crate) const SERVER: &str = "mcp-fixture";

/// A fixture behind `mainstay wrap` with options.
pub(crate) fn fixture(wrap: &str, options: &str) -> anyhow::Result<Fixture> {
    let mut words = vec![binary("mainstay")?.into_os_string(), "wrap".into()];
    words.extend(wrap.split_whitespace().map(Into::into));
    words.push("--".into());
    Ok(Fixture::after(words)?.options(options))
}

/// The same, started and with a session.
pub(crate) fn open(wrap: &str, options: &str) -> anyhow::Result<Running> {
    let running = fixture(wrap, options)?.spawn()?;
    running.client()?.open(&json!({}))?;
    Ok(running)
}

/// A fixture whose rules stand in a configuration file in its folder.
pub(crate) fn configured(rules: &Value, options: &str) -> anyhow::Result<Fixture> {
    let fixture = fixture("--config servers.json", options)?;
    let file = json!({"mcpServers": {"fixture": {"command": "unused", "mainstay": rules}}});
    std::fs::write(fixture.path("servers.json"), file.to_string())?;
    Ok(fixture)
}

pub(crate) fn text(answer: &Message) -> String {
    let text = answer.at("/result/content/0/text");
    text.as_str().unwrap_or_default().to_owned()
}

/// The payload of a failed call.
pub(crate) fn failure(answer: &Message) -> anyhow::Result<Value> {
    anyhow::ensure!(answer.at("/result/isError") == true, "{answer:?}");
    serde_json::from_str(&text(answer)).with_context(|| format!("{answer:?}"))
}

pub(crate) fn echo(client: &Client, id: &str) -> anyhow::Result<()> {
    let answer = client.call(id, "echo", &json!({"text": "here"}))?;
    anyhow::ensure!(text(&answer) == "here", "{answer:?}");
    Ok(())
}

/// The line of a call.
pub(crate) fn call(id: &str, tool: &str, arguments: &Value) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

/// Ends the session in order; only notices that nobody took may be left.
pub(crate) fn stop(running: Running) -> anyhow::Result<()> {
    let (rest, _) = running.finish()?;
    let answers: Vec<_> = rest.iter().filter(|line| line.id().is_some()).collect();
    anyhow::ensure!(answers.is_empty(), "{answers:?}");
    Ok(())
}

/// Waits until the server has been told a text this many times.
pub(crate) fn wait_told(state: &Path, text: &str, times: usize) -> anyhow::Result<()> {
    let told = || read_told(state).unwrap_or_default();
    let count = || {
        told()
            .iter()
            .filter(|told| told.line.contains(text))
            .count()
    };
    eventually(&format!("the server was told {text} {times} times"), || {
        count() >= times
    })
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        anyhow::ensure!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

pub(crate) fn only_server(running: &Running) -> anyhow::Result<u32> {
    let servers = running.wait_for_workers(SERVER, 1)?;
    servers.first().copied().context("there is one")
}
