//! Several wrapped servers and packs behind one host: names, routes, isolation, and what survives.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "variables choose the size of tests; a missing member of a JSON value is null"
)]

mod asked;
#[path = "../issuer/mod.rs"]
mod issuer;
mod life;
mod names;
mod search;
mod share_rules;
mod shared;
#[path = "../wrapping/mod.rs"]
mod wrapping;

use std::path::Path;

use anyhow::{Context as _, ensure};
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{Launch, Running, Serve, binary};
use serde_json::{Value, json};

use self::wrapping::{SERVER, eventually, text};

/// An entry of a file: the fixture with options and our own keys.
pub(crate) fn entry(options: &str, ours: Value) -> anyhow::Result<Value> {
    let args: Vec<&str> = options.split_whitespace().collect();
    let command = binary("mcp-fixture")?;
    let members = [
        ("command", json!(command)),
        ("args", json!(args)),
        ("mainstay", ours),
    ];
    Ok(members.into_iter().collect())
}

/// A host that serves the servers of a file.
pub(crate) fn host(servers: &Value, arguments: &str) -> anyhow::Result<Launch> {
    let words = [binary("mainstay")?.into_os_string(), "serve".into()];
    let launch = Launch::new(words)?.words(["--config", "servers.json"]);
    let launch = launch.words(arguments.split_whitespace());
    write(launch.folder(), servers)?;
    Ok(launch)
}

pub(crate) fn write(folder: &Path, servers: &Value) -> anyhow::Result<()> {
    let file = json!({ "mcpServers": servers });
    std::fs::write(folder.join("servers.json"), file.to_string()).context("writing servers.json")
}

/// The same, started and with a session.
pub(crate) fn open(servers: &Value, arguments: &str) -> anyhow::Result<Running> {
    let running = host(servers, arguments)?.spawn()?;
    running.client()?.open(&json!({}))?;
    Ok(running)
}

pub(crate) fn names(client: &Client, id: &str, method: &str) -> anyhow::Result<Vec<String>> {
    let answer = client.request(id, method, &json!({}))?;
    let (list, key) = match method {
        "tools/list" => ("tools", "name"),
        "prompts/list" => ("prompts", "name"),
        "resources/list" => ("resources", "uri"),
        _ => ("resourceTemplates", "uriTemplate"),
    };
    let items = answer.at(&format!("/result/{list}"));
    let items = items.as_array().with_context(|| format!("{answer:?}"))?;
    let name = |item: &Value| item[key].as_str().unwrap_or_default().to_owned();
    Ok(items.iter().map(name).collect())
}

pub(crate) fn says(client: &Client, id: &str, tool: &str, said: &str) -> anyhow::Result<()> {
    let answer = client.call(id, tool, &json!({"text": said}))?;
    ensure!(text(&answer) == said, "{tool}: {answer:?}");
    Ok(())
}

/// Why the host does not start.
pub(crate) fn refused(servers: &Value) -> anyhow::Result<String> {
    let output = host(servers, "--pack asset")?.command()?.output()?;
    ensure!(output.status.code() == Some(2), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The processes of servers, by the last word of their command.
pub(crate) fn server_of(running: &Running, word: &str) -> anyhow::Result<u32> {
    let has_word = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words
            .split(|byte| *byte == 0)
            .any(|other| other == word.as_bytes())
    };
    let found = || running.workers(SERVER).into_iter().find(has_word);
    eventually(&format!("a server {word} runs"), || found().is_some())?;
    found().context("it runs")
}

/// A host on a socket or over HTTP.
pub(crate) fn serve(serve: Serve, servers: &Value) -> anyhow::Result<Running> {
    write(serve.folder(), servers)?;
    serve.argument("--config").argument("servers.json").spawn()
}
