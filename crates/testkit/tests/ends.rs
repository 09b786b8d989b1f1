//! Calls that end before their work is done: one answer or none, nothing afterwards, no process
//! and no output left.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::oracle::Failure;
use mainstay_testkit::peer::{Client, Message, PATIENCE};
use mainstay_testkit::process::{Running, Serve};
use serde_json::{Value, json};

/// Longer than anything late would take: progress is due four times a second.
const QUIET: Duration = Duration::from_millis(700);

fn wait_line(dialect: &str, id: u64) -> String {
    let arguments = json!({"ms": 60_000, "steps": 1000});
    match dialect {
        "direct" => json!({"jsonrpc": "2.0", "id": id, "method": "wait", "params": arguments}),
        _ => json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": "wait", "arguments": arguments, "_meta": {"progressToken": id}}}),
    }
    .to_string()
}

fn cancel_line(method: &str, id: u64) -> String {
    let params = match method {
        "$/cancelRequest" => json!({ "id": id }),
        _ => json!({ "requestId": id }),
    };
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

/// Everything that comes until nothing has come for a while.
fn heard(client: &Client) -> anyhow::Result<Vec<Message>> {
    let mut messages = Vec::new();
    while let Some(message) = client.next_until(Instant::now() + QUIET)? {
        messages.push(message);
    }
    Ok(messages)
}

fn telemetry_of(client: &Client, method: &str) -> anyhow::Result<Value> {
    let answer = client.call("\"telemetry\"", "system_telemetry", &json!({}))?;
    let methods = answer.at("/result/structuredContent/methods");
    let mut entries = methods.as_array().into_iter().flatten();
    let found = entries.find(|entry| entry.get("method").is_some_and(|name| name == method));
    found
        .cloned()
        .with_context(|| format!("no {method} in {methods}"))
}

#[test]
fn cancel_request_gives_one_cancelled_answer_and_nothing_after_it() -> anyhow::Result<()> {
    for dialect in ["direct", "legacy"] {
        let host = Serve::stdio()?.ledger()?.spawn()?;
        let client = host.client()?;
        client.send(&wait_line(dialect, 1))?;
        client.notification("notifications/progress")?;
        client.send(&cancel_line("$/cancelRequest", 1))?;
        // A second cancel finds nothing.
        client.send(&cancel_line("$/cancelRequest", 1))?;
        let heard = heard(client)?;
        let answers = heard
            .iter()
            .filter(|message| message.id().is_some())
            .count();
        let last = heard.last().context("no answer")?;
        assert_eq!((answers, last.id()), (1, Some("1")), "{dialect}: {heard:?}");
        assert_eq!(
            Failure::read(last),
            Some(Failure::Cancelled),
            "{dialect}: {last:?}"
        );
        host.stop().context(dialect)?;
    }
    Ok(())
}

#[test]
fn no_progress_comes_after_either_cancel() -> anyhow::Result<()> {
    for method in ["$/cancelRequest", "notifications/cancelled"] {
        let host = Serve::stdio()?.ledger()?.spawn()?;
        let client = host.client()?;
        client.send(&wait_line("legacy", 1))?;
        client.notification("notifications/progress")?;
        client.send(&cancel_line(method, 1))?;
        // The host answers this itself, after it has read the cancel.
        let params = json!({"name": "system_health", "arguments": {}});
        let health = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
        client.send(&health.to_string())?;
        let heard = heard(client)?;
        let last = heard.last().and_then(Message::id);
        assert_eq!(last, Some("2"), "{method}: {heard:?}");
        host.stop().context(method)?;
    }
    Ok(())
}

#[test]
fn cancelled_notification_gives_silence_and_its_code_in_telemetry() -> anyhow::Result<()> {
    for dialect in ["direct", "legacy"] {
        let host = Serve::stdio()?.ledger()?.spawn()?;
        let client = host.client()?;
        client.send(&wait_line(dialect, 1))?;
        client.notification("notifications/progress")?;
        client.send(&cancel_line("notifications/cancelled", 1))?;
        let answered: Vec<_> = heard(client)?
            .into_iter()
            .filter(|message| message.id().is_some())
            .collect();
        ensure!(answered.is_empty(), "{dialect}: {answered:?}");
        let wait = telemetry_of(client, "wait")?;
        ensure!(wait.to_string().contains("CANCELLED"), "{dialect}: {wait}");
        host.stop().context(dialect)?;
    }
    Ok(())
}

#[test]
fn cancelled_append_leaves_no_effect_when_it_had_none_yet() -> anyhow::Result<()> {
    for method in ["$/cancelRequest", "notifications/cancelled"] {
        let host = Serve::stdio()?.ledger()?.spawn()?;
        let client = host.client()?;
        client.call("0", "get", &json!({}))?;
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "append", "arguments": {"text": "never", "pause_ms": 20_000}}});
        client.send(&call.to_string())?;
        client.send(&cancel_line(method, 1))?;
        let answers = heard(client)?;
        let expected = usize::from(method == "$/cancelRequest");
        assert_eq!(answers.len(), expected, "{method}: {answers:?}");
        let entries = client.call("2", "get", &json!({}))?;
        assert_eq!(
            entries.at("/result/structuredContent/entries"),
            0,
            "{method}"
        );
        host.stop().context(method)?;
    }
    Ok(())
}

/// A host whose tool starts processes that write for ever, and the file they write to.
fn growing(stubborn: bool) -> anyhow::Result<(Running, std::path::PathBuf, Message)> {
    let host = Serve::stdio()?
        .program("tree", "tree-pack", "")?
        .limits("call_timeout_ms = 6000, grace_ms = 300")?
        .spawn()?;
    let file = host.folder().join("grown");
    let arguments = json!({"file": file, "stubborn": stubborn});
    let start = Instant::now();
    let answer = host.client()?.call("1", "grow", &arguments)?;
    let after = start.elapsed();
    ensure!(
        (Duration::from_millis(5900)..Duration::from_secs(60)).contains(&after),
        "answered after {after:?}: {answer:?}"
    );
    Ok((host, file, answer))
}

fn lines(file: &Path) -> anyhow::Result<usize> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    Ok(text.lines().count())
}

/// Waits until nothing but the host and at most one worker is alive.
fn only_host_and_worker(host: &Running) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut others = host.family();
        others.retain(|pid| *pid != host.pid());
        let shells = host.workers("sh").len() + host.workers("sleep").len();
        if shells == 0 {
            return Ok(());
        }
        ensure!(
            Instant::now() < until,
            "{shells} processes left among {others:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn timeout_leaves_no_process_and_no_output() -> anyhow::Result<()> {
    for stubborn in [false, true] {
        let (host, file, answer) = growing(stubborn)?;
        assert_eq!(Failure::read(&answer), Some(Failure::Timeout), "{answer:?}");
        let payload = answer.at("/result/content/0/text");
        let payload: Value = serde_json::from_str(payload.as_str().unwrap_or_default())?;
        assert_eq!(payload["timeoutMs"], 6000, "{payload}");
        // Both writers were at work.
        let text = fs::read_to_string(&file)?;
        assert!(text.contains("inner") && text.contains("outer"), "{text}");
        only_host_and_worker(&host).with_context(|| format!("stubborn: {stubborn}"))?;
        let grown = lines(&file)?;
        host.client()?.silence(Duration::from_millis(300))?;
        assert_eq!(lines(&file)?, grown, "stubborn: {stubborn}");
        // The same session is served, by this worker or the next.
        let health = host.client()?.call("2", "system_health", &json!({}))?;
        assert!(
            health.at("/result/structuredContent/state").is_string(),
            "{health:?}"
        );
        host.stop()?;
    }
    Ok(())
}

#[test]
fn cancel_ends_the_processes_of_a_tool() -> anyhow::Result<()> {
    for method in ["$/cancelRequest", "notifications/cancelled"] {
        let host = Serve::stdio()?
            .program("tree", "tree-pack", "")?
            .limits("grace_ms = 300")?
            .spawn()?;
        let client = host.client()?;
        let file = host.folder().join("grown");
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "grow", "arguments": {"file": file}}});
        client.send(&call.to_string())?;
        let until = Instant::now() + PATIENCE;
        while !fs::read_to_string(&file).is_ok_and(|text| text.contains("inner")) {
            ensure!(Instant::now() < until, "nothing was started");
            std::thread::sleep(Duration::from_millis(5));
        }
        client.send(&cancel_line(method, 1))?;
        only_host_and_worker(&host).context(method)?;
        let grown = lines(&file)?;
        let answers = heard(client)?;
        assert_eq!(
            answers.len(),
            usize::from(method == "$/cancelRequest"),
            "{answers:?}"
        );
        assert_eq!(lines(&file)?, grown, "{method}");
        host.stop().context(method)?;
    }
    Ok(())
}
