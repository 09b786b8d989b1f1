//! Servers at a URL behind `mainstay wrap --url` and `serve --config`.

#![expect(
    clippy::disallowed_methods,
    reason = "a test that is told by its environment how long to run"
)]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, which clippy does not know as such"
)]

mod credentials;
mod flaky;
mod foreign;
mod recovery;
mod upstream;
#[path = "../wrapping/mod.rs"]
mod wrapping;

use std::collections::BTreeSet;
use std::ffi::OsStr;

use mainstay_testkit::peer::{Client, Message};
use mainstay_testkit::process::{Launch, Running, TempDir, binary};
use serde_json::{Value, json};

use self::upstream::{Form, Upstream, World};
use self::wrapping::{eventually, stop, text};

/// A world with sessions on one replica.
pub(crate) fn sessions() -> World {
    World {
        replicas: vec![BTreeSet::new()],
        ..World::default()
    }
}

/// `mainstay wrap` with options.
pub(crate) fn wrap(options: &[&str]) -> anyhow::Result<Launch> {
    let words = [binary("mainstay")?.into_os_string(), "wrap".into()];
    Ok(Launch::new(words)?.words(options))
}

/// The same for a server, with a session.
pub(crate) fn open(upstream: &Upstream, options: &[&str]) -> anyhow::Result<Running> {
    let running = wrap(&["--url", &upstream.url()])?.words(options).spawn()?;
    running.client()?.open(&json!({}))?;
    Ok(running)
}

pub(crate) fn read(client: &Client, id: &str, key: &str) -> anyhow::Result<()> {
    let answer = client.call(id, "read", &json!({"key": key}))?;
    anyhow::ensure!(text(&answer) == key, "{answer:?}");
    Ok(())
}

fn names(answer: &Message) -> Vec<String> {
    let tools = answer.at("/result/tools");
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    tools.as_array().into_iter().flatten().map(name).collect()
}

#[test]
fn a_session_over_http_has_its_headers_its_stream_and_its_end() -> anyhow::Result<()> {
    let upstream = Upstream::start(sessions())?;
    let running = open(&upstream, &[])?;
    let client = running.client()?;
    let tools = client.request("1", "tools/list", &json!({}))?;
    assert_eq!(names(&tools), ["read", "effect"]);
    for (number, form) in [Form::Json, Form::Events].into_iter().enumerate() {
        upstream.world().form = form;
        read(client, &format!("{}", number + 2), "a")?;
    }
    eventually("the host listens", || {
        upstream.world().seen.iter().any(|seen| seen.http == "GET")
    })?;
    upstream
        .world()
        .notices
        .push_back(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    client.notification("notifications/tools/list_changed")?;
    let calls = upstream.asked("tools/call");
    for seen in &calls {
        assert_eq!(seen.headers["mcp-session-id"], "session-1");
        assert_eq!(seen.headers["mcp-protocol-version"], "2025-11-25");
        assert_eq!(
            seen.headers["accept"],
            "application/json, text/event-stream"
        );
        assert_eq!(
            seen.headers["host"],
            format!("localhost:{}", upstream.address().port())
        );
    }
    let opened = upstream.asked("initialize");
    assert!(!opened[0].headers.contains_key("mcp-session-id"));
    stop(running)?;
    let world = upstream.world();
    let ends: Vec<_> = world
        .seen
        .iter()
        .filter(|seen| seen.http == "DELETE")
        .collect();
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0].headers["mcp-session-id"], "session-1");
    Ok(())
}

#[test]
fn a_server_of_the_older_transport_is_recognised_or_named() -> anyhow::Result<()> {
    for options in [&[][..], &["--url-type", "sse"]] {
        let upstream = Upstream::start(World {
            only_sse: true,
            ..World::default()
        })?;
        let running = open(&upstream, options)?;
        let client = running.client()?;
        read(client, "1", "a")?;
        // Its session ends with its stream, and is opened again.
        upstream.go_down();
        upstream.come_up(true)?;
        read(client, "2", "b")?;
        assert!(upstream.asked("initialize").len() >= 2, "{options:?}");
        stop(running)?;
    }
    Ok(())
}

#[test]
fn a_modern_client_reaches_a_modern_server_without_a_session() -> anyhow::Result<()> {
    let upstream = Upstream::start(sessions())?;
    let running = wrap(&["--url", &upstream.url()])?.spawn()?;
    let client = running.client()?;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = client.request("1", "server/discover", &json!({ "_meta": meta }))?;
    assert_eq!(
        found.at("/result/supportedVersions/0"),
        "2026-07-28",
        "{found:?}"
    );
    let arguments = json!({"key": "k", "region": "us-west1"});
    let params = json!({"name": "read", "arguments": arguments, "_meta": meta});
    let answer = client.request("2", "tools/call", &params)?;
    assert_eq!(text(&answer), "k", "{answer:?}");
    let calls = upstream.asked("tools/call");
    assert_eq!(calls[0].headers["mcp-param-region"], "us-west1");
    assert_eq!(calls[0].headers["mcp-method"], "tools/call");
    assert_eq!(calls[0].headers["mcp-name"], "read");
    assert!(!calls[0].headers.contains_key("mcp-session-id"));
    stop(running)
}

#[test]
fn a_client_of_one_era_reaches_a_server_of_the_other() -> anyhow::Result<()> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for is_modern_client in [false, true] {
        let upstream = Upstream::start(World {
            era: Some(!is_modern_client),
            ..sessions()
        })?;
        let running = wrap(&["--bridge", "--url", &upstream.url()])?.spawn()?;
        let client = running.client()?;
        let mut params = json!({"name": "read", "arguments": {"key": "k", "region": "eu"}});
        if is_modern_client {
            params["_meta"] = meta.clone();
            let found = client.request("1", "server/discover", &json!({ "_meta": meta }))?;
            assert_eq!(found.at("/result/resultType"), "complete", "{found:?}");
        } else {
            let opened = client.open(&json!({}))?;
            assert_eq!(
                opened.at("/result/protocolVersion"),
                "2025-11-25",
                "{opened:?}"
            );
        }
        let answer = client.request("2", "tools/call", &params)?;
        assert_eq!(text(&answer), "k", "{answer:?}");
        let calls = upstream.asked("tools/call");
        let headers = &calls[calls.len() - 1].headers;
        assert_eq!(headers.contains_key("mcp-session-id"), is_modern_client);
        assert_eq!(headers.contains_key("mcp-param-region"), !is_modern_client);
        stop(running)?;
    }
    Ok(())
}

#[test]
fn several_servers_of_a_file_may_be_at_urls() -> anyhow::Result<()> {
    let (one, other) = (Upstream::start(sessions())?, Upstream::start(sessions())?);
    let words = [binary("mainstay")?.into_os_string(), "serve".into()];
    let launch = Launch::new(words)?.words(["--config", "servers.json"]);
    let file = json!({"mcpServers": {
        "one": {"type": "http", "url": one.url(), "headers": {"X-Key": "${KEY}"}},
        "other": {"url": other.url()},
        "local": {"command": binary("mcp-fixture")?},
    }});
    std::fs::write(launch.folder().join("servers.json"), file.to_string())?;
    let running = launch.env("KEY", "s3cret-value").spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let tools = names(&client.request("1", "tools/list", &json!({}))?);
    for name in ["one__read", "other__effect", "local__echo"] {
        assert!(tools.iter().any(|tool| tool == name), "{name}: {tools:?}");
    }
    let answer = client.call("2", "one__read", &json!({"key": "a"}))?;
    assert_eq!(text(&answer), "a");
    assert_eq!(one.asked("tools/call")[0].headers["x-key"], "s3cret-value");
    // One that is down does not hold the others back.
    one.go_down();
    let answer = client.call("3", "other__read", &json!({"key": "b"}))?;
    assert_eq!(text(&answer), "b");
    one.come_up(true)?;
    let answer = client.call("4", "one__read", &json!({"key": "c"}))?;
    assert_eq!(text(&answer), "c");
    stop(running)
}

#[test]
fn health_names_the_url_without_its_query_and_the_last_failure() -> anyhow::Result<()> {
    let upstream = Upstream::start(sessions())?;
    let url = format!("{}?key=s3cret-value", upstream.url());
    let running = wrap(&["--url", &url, "--system-tools"])?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    read(client, "1", "a")?;
    upstream.world().replicas[0].clear();
    read(client, "2", "b")?;
    let health = client.call("3", "system_health", &json!({}))?;
    let shown = format!("{health:?}");
    assert!(shown.contains(&upstream.url()), "{shown}");
    assert!(shown.contains("no longer knows the session"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(
        upstream.asked("tools/call")[0]
            .path
            .ends_with("?key=s3cret-value")
    );
    let (_, log) = running.finish()?;
    assert!(!log.iter().any(|line| line.contains("s3cret")), "{log:?}");
    Ok(())
}

#[test]
fn an_adopted_server_at_a_url_gets_its_headers_from_the_environment() -> anyhow::Result<()> {
    let upstream = Upstream::start(World {
        token: Some("token-of-file".to_owned()),
        ..sessions()
    })?;
    let folder = TempDir::new()?;
    let file = folder.join("mcp.json");
    let before = json!({"mcpServers": {"tools": {
        "type": "http", "url": upstream.url(), "headers": {"Authorization": "Bearer token-of-file"},
    }}});
    std::fs::write(&file, before.to_string())?;
    let program = folder.join("mainstay");
    std::os::unix::fs::symlink(binary("mainstay")?, &program)?;
    let adopt = |words: &[&OsStr]| {
        let mut command = std::process::Command::new(&program);
        let output = command.arg("adopt").arg(&file).args(words).output()?;
        anyhow::ensure!(output.status.success(), "{output:?}");
        Ok(serde_json::from_slice::<Value>(&std::fs::read(&file)?)?)
    };
    let adopted = adopt(&["--binary".as_ref(), program.as_os_str()])?;
    let entry = &adopted["mcpServers"]["tools"];
    let words: Vec<&str> = entry["args"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    assert!(
        !words.iter().any(|word| word.contains("token-of-file")),
        "{entry}"
    );
    let mut launch = Launch::new([&program])?.words(words);
    for (name, value) in entry["env"].as_object().into_iter().flatten() {
        launch = launch.env(name, value.as_str().unwrap_or_default());
    }
    let running = launch.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    read(client, "1", "a")?;
    let environment = std::fs::read(format!("/proc/{}/environ", running.pid()))?;
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(
        !environment.contains("token-of-file"),
        "other processes read it"
    );
    stop(running)?;
    assert_eq!(adopt(&["--undo".as_ref()])?, before);
    Ok(())
}
