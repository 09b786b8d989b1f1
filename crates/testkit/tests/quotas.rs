//! Quotas of callers and repeated failures, in front of a server that counts its calls.

#![allow(
    clippy::indexing_slicing,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::fs;

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Request, Response, Session};
use mainstay_testkit::process::{Launch, binary};
use serde_json::{Value, json};

const TOKEN: &str = "the-token-of-all-the-tests";

/// A server in a shell that notes each call in `calls`; `fail` answers with an error until there is a file `good`.
const SERVER: &str = r#"
say() { printf '%s\n' "$1"; }
while IFS= read -r line; do
  case "$line" in *'"id":'*) ;; *) continue ;; esac
  id=${line#*'"id":'}; id=${id%%[,\}]*}
  case "$line" in
  *'"method":"initialize"'*)
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"counts\",\"version\":\"1\"}}}" ;;
  *'"method":"tools/list"'*)
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"tools\":[{\"name\":\"work\",\"inputSchema\":{\"type\":\"object\"}},{\"name\":\"fail\",\"inputSchema\":{\"type\":\"object\"}}]}}" ;;
  *'"name":"work"'*)
    echo work >> calls
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}}" ;;
  *'"name":"fail"'*)
    echo fail >> calls
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"no such file\"}],\"isError\":true}}" ;;
  *) say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{}}" ;;
  esac
done
"#;

fn launch(words: &str, ours: &Value) -> anyhow::Result<Launch> {
    let launch = Launch::new([binary("mainstay")?])?
        .words(["wrap", "--config", "servers.json"])
        .words(words.split_whitespace());
    let file = json!({"mcpServers": {"counts": {"command": "sh", "args": ["server.sh"], "mainstay": ours}}});
    fs::write(launch.folder().join("servers.json"), file.to_string())?;
    fs::write(launch.folder().join("server.sh"), SERVER)?;
    Ok(launch)
}

/// The error in a tool's result.
fn refusal(answer: &Value) -> anyhow::Result<Value> {
    ensure!(answer["result"]["isError"] == true, "{answer}");
    let structured = &answer["result"]["structuredContent"];
    let text = answer["result"]["content"][0]["text"].as_str();
    match structured {
        Value::Null => Ok(serde_json::from_str(text.context("a text")?)?),
        structured => Ok(structured.clone()),
    }
}

#[test]
fn a_session_has_quotas_for_all_tools_and_for_one() -> anyhow::Result<()> {
    let ours = json!({"limits": {"quota_calls": 3, "quota_period_ms": 86_400_000},
        "quotas": {"fa*": {"calls": 1}}});
    let running = launch("", &ours)?.spawn()?;
    let calls = running.folder().join("calls");
    let client = running.client()?;
    client.open(&json!({}))?;
    let call = |id: &str, tool: &str| -> anyhow::Result<Value> {
        Ok(serde_json::from_str(
            client.call(id, tool, &json!({}))?.text(),
        )?)
    };
    call("1", "fail")?;
    let refused = refusal(&call("2", "fail")?)?;
    ensure!(refused["code"] == "QUEUE_OVERLOADED", "{refused}");
    let details = &refused["details"];
    ensure!(
        details["quota"] == "calls" && details["tool"] == "fa*",
        "{refused}"
    );
    ensure!(details["limit"] == 1, "{refused}");
    let left = details["retryAfterMs"].as_u64().context("retryAfterMs")?;
    ensure!((86_000_000..=86_400_000).contains(&left), "{refused}");
    call("3", "work")?;
    call("4", "work")?;
    let refused = refusal(&call("5", "work")?)?;
    ensure!(refused["details"]["tool"].is_null(), "{refused}");
    ensure!(
        refused["details"]["limit"] == 3,
        "a refused call is not counted: {refused}"
    );
    ensure!(fs::read_to_string(calls)? == "fail\nwork\nwork\n");
    running.stop()
}

#[test]
fn a_call_that_fails_again_and_again_does_not_run_again() -> anyhow::Result<()> {
    let ours = json!({"limits": {"repeated_failures": 3, "repeated_failures_ms": 86_400_000}});
    let running = launch("", &ours)?.spawn()?;
    let calls = running.folder().join("calls");
    let client = running.client()?;
    client.open(&json!({}))?;
    let call = |id: &str, arguments: Value| -> anyhow::Result<Value> {
        Ok(serde_json::from_str(
            client.call(id, "fail", &arguments)?.text(),
        )?)
    };
    for id in ["1", "2", "3"] {
        call(id, json!({"path": "x"}))?;
    }
    let refused = refusal(&call("4", json!({"path": "x"}))?)?;
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains("failed 3 times") && message.contains("no such file"),
        "{refused}"
    );
    ensure!(refused["retryable"] == false, "{refused}");
    call("5", json!({"path": "y"}))?;
    ensure!(fs::read_to_string(calls)?.lines().count() == 4);
    running.stop()
}

#[test]
fn all_sessions_and_requests_of_a_credential_share_its_quota() -> anyhow::Result<()> {
    let ours = json!({"limits": {"quota_calls": 3, "quota_period_ms": 86_400_000}});
    let launch = launch("--http 127.0.0.1:0", &ours)?.env("MAINSTAY_TOKEN", TOKEN);
    let running = launch.spawn_http()?;
    let address = running.address()?;
    let rest = || -> anyhow::Result<Response> {
        let request = Request::to(address, "POST", "/v1/tool/work")
            .header("Authorization", &format!("Bearer {TOKEN}"))
            .header("Content-Type", "application/json")
            .body(r#"{"arguments":{}}"#);
        Connection::open(address)?.ask(&request)
    };
    ensure!(rest()?.status() == 200);
    for number in 1..=2 {
        let session = Session::open_as(address, Some(TOKEN))?;
        let answer = session.call(&number.to_string(), "work", &json!({}))?;
        ensure!(answer.to_string().contains("done"), "{answer}");
    }
    let session = Session::open_as(address, Some(TOKEN))?;
    let refused = session.call("9", "work", &json!({}))?;
    ensure!(
        refused.to_string().contains("of this caller is used up"),
        "{refused}"
    );
    let refused = rest()?;
    ensure!(refused.status() == 429, "{refused:?}");
    let wait: u64 = refused
        .head
        .header("Retry-After")
        .context("Retry-After")?
        .parse()?;
    ensure!((86_000..=86_400).contains(&wait), "{wait}");
    let metrics =
        Request::to(address, "GET", "/metrics").header("Authorization", &format!("Bearer {TOKEN}"));
    let metrics = Connection::open(address)?.ask(&metrics)?.text();
    ensure!(
        metrics.contains(r#"mainstay_calls_refused_total{reason="calls"} 2"#),
        "{metrics}"
    );
    let calls = fs::read_to_string(running.folder().join("calls"))?;
    ensure!(calls == "work\nwork\nwork\n", "{calls}");
    running.stop()
}
