//! Workers that crash, hang, fork, flood and babble behind a real host: one terminal answer for
//! each request, the right fault, the same session afterwards, no process left.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::peer::{Client, Message};
use mainstay_testkit::process::{Running, Serve};
use serde_json::{Value, json};

fn host(mode: &str) -> anyhow::Result<Running> {
    Serve::stdio()?.misbehaving(mode)?.spawn()
}

/// The payload of a tool error.
fn failure(answer: &Message) -> anyhow::Result<Value> {
    ensure!(
        answer.at("/result/isError") == true,
        "not a tool error: {answer:?}"
    );
    let text = answer.at("/result/content/0/text");
    serde_json::from_str(text.as_str().unwrap_or_default())
        .with_context(|| format!("the payload is no JSON: {answer:?}"))
}

fn session_lives(client: &Client) -> anyhow::Result<()> {
    let answer = client.call("\"alive\"", "system_health", &json!({}))?;
    ensure!(
        answer.at("/result/structuredContent/state").is_string(),
        "{answer:?}"
    );
    Ok(())
}

#[test]
fn call_that_must_not_be_repeated_gets_a_typed_fault_when_its_worker_dies() -> anyhow::Result<()> {
    for mode in ["die-on-call", "half-frame", "babble"] {
        let host = host(mode)?;
        let client = host.client()?;
        let payload = failure(&client.call("1", "once", &json!({}))?).context(mode.to_owned())?;
        assert_eq!(payload["code"], "INTERNAL", "{mode}: {payload}");
        assert_eq!(payload["retryable"], false, "{mode}: {payload}");
        assert_eq!(payload["fault"], "process", "{mode}: {payload}");
        let message = payload["message"].as_str().unwrap_or_default();
        assert!(message.contains("outcome is unknown"), "{mode}: {payload}");
        session_lives(client)?;
        host.stop().context(mode.to_owned())?;
    }
    Ok(())
}

#[test]
fn convergent_call_is_answered_by_the_successor() -> anyhow::Result<()> {
    let host = host("die-once")?;
    let client = host.client()?;
    let answer = client.call("1", "again", &json!({"n": 1}))?;
    assert_eq!(
        answer.at("/result/structuredContent"),
        json!({"n": 1}),
        "{answer:?}"
    );
    let health = client.call("2", "system_health", &json!({}))?;
    assert_eq!(
        health.at("/result/structuredContent/generation"),
        2,
        "{health:?}"
    );
    assert_eq!(
        health.at("/result/structuredContent/restart_count"),
        1,
        "{health:?}"
    );
    host.stop()
}

#[test]
fn convergent_call_that_kills_every_worker_ends_when_its_attempts_are_used_up() -> anyhow::Result<()>
{
    let host = host("die-on-call")?;
    let client = host.client()?;
    let payload = failure(&client.call("1", "again", &json!({}))?)?;
    assert_eq!(payload["code"], "INTERNAL", "{payload}");
    assert_eq!(payload["fault"], "replay", "{payload}");
    session_lives(client)?;
    host.stop()
}

#[test]
fn duplicate_and_unknown_answers_of_a_worker_reach_no_client() -> anyhow::Result<()> {
    for mode in ["duplicate-answer", "answer-unknown-call"] {
        let host = host(mode)?;
        let client = host.client()?;
        for id in 0..20 {
            let answer = client.call(&id.to_string(), "again", &json!({"n": id}))?;
            assert_eq!(
                answer.at("/result/structuredContent/n"),
                id,
                "{mode}: {answer:?}"
            );
        }
        session_lives(client)?;
        host.stop().context(mode.to_owned())?;
    }
    Ok(())
}

#[test]
fn answer_over_the_limit_is_a_typed_failure() -> anyhow::Result<()> {
    let host = host("oversize-answer")?;
    let client = host.client()?;
    let payload = failure(&client.call("1", "once", &json!({}))?)?;
    assert!(
        payload["code"].is_string() && payload["message"].is_string(),
        "{payload}"
    );
    session_lives(client)?;
    host.stop()
}

#[test]
fn flood_of_progress_is_throttled_and_the_answer_comes() -> anyhow::Result<()> {
    let host = host("flood")?;
    let client = host.client()?;
    let start = Instant::now();
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"once","params":{}}"#)?;
    let answer = client.answer("1")?;
    let seconds = start.elapsed().as_secs();
    let padding = answer.at("/result/padding");
    assert_eq!(padding.as_str().map(str::len), Some(4 << 20));
    let mut steps = 0;
    while let Ok(step) = client.take("progress", |message| message.id().is_none()) {
        assert!(
            step.method().as_deref() == Some("notifications/progress"),
            "{step:?}"
        );
        steps += 1;
        if client.silence(Duration::ZERO).is_ok() {
            break;
        }
    }
    assert!(
        steps <= 4 * (seconds + 1) + 1,
        "{steps} steps of progress in {seconds} s"
    );
    session_lives(client)?;
    host.stop()
}

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"once","arguments":{}}}"#;
const CANCEL: &str = r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}"#;
const SILENT_CANCEL: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;

#[test]
fn hanging_call_is_cancelled_with_one_answer() -> anyhow::Result<()> {
    let host = host("hang")?;
    let client = host.client()?;
    client.request("0", "tools/list", &json!({}))?;
    client.send(CALL)?;
    client.send(CANCEL)?;
    assert_eq!(failure(&client.answer("1")?)?["code"], "CANCELLED");
    session_lives(client)?;
    host.stop()
}

#[test]
fn call_cancelled_before_its_worker_is_ready_ends_like_any_other() -> anyhow::Result<()> {
    let host = host("hang")?;
    let client = host.client()?;
    client.send(CALL)?;
    client.send(CANCEL)?;
    assert_eq!(failure(&client.answer("1")?)?["code"], "CANCELLED");
    session_lives(client)?;
    host.stop()
}

#[test]
fn call_silently_cancelled_before_its_worker_is_ready_never_runs() -> anyhow::Result<()> {
    let host = host("honest")?;
    let client = host.client()?;
    client.send(CALL)?;
    client.send(SILENT_CANCEL)?;
    session_lives(client)?;
    // An answer to the cancelled call would be found here.
    host.stop()
}

#[test]
fn worker_that_ignores_every_request_to_end_is_killed() -> anyhow::Result<()> {
    let host = host("ignore-term")?;
    let client = host.client()?;
    client.request("0", "tools/list", &json!({}))?;
    client.send(CALL)?;
    client.send(CANCEL)?;
    assert_eq!(failure(&client.answer("1")?)?["code"], "CANCELLED");
    host.stop()
}

#[test]
fn health_is_answered_while_a_worker_is_not_ready() -> anyhow::Result<()> {
    let mut host = host("never-ready")?;
    // Well under the time that a worker has to become ready.
    let client = host.take_client()?.with_patience(Duration::from_secs(25));
    let health = client.call("1", "system_health", &json!({}))?;
    assert_eq!(
        health.at("/result/structuredContent/state"),
        "starting",
        "{health:?}"
    );
    let health = client.request("2", "system_health", &json!({}))?;
    assert_eq!(health.at("/result/state"), "starting", "{health:?}");
    assert!(client.finish()?.is_empty());
    host.stop()
}

#[test]
fn worker_that_cannot_start_is_told_to_the_caller() -> anyhow::Result<()> {
    for mode in ["exit-at-start", "wrong-protocol"] {
        let host = host(mode)?;
        let client = host.client()?;
        session_lives(client)?;
        // Its tools are not known, so the call may be of one of them.
        let payload = failure(&client.call("1", "once", &json!({}))?).context(mode.to_owned())?;
        let message = payload["message"].as_str().unwrap_or_default();
        let said = "there is no tool once; the pack bad, which may have it, cannot start: ";
        assert!(message.starts_with(said), "{mode}: {payload}");
        assert_eq!(payload["retryable"], true, "{mode}: {payload}");
        host.wait_for_line("reason=pack_missing pack=bad")?;
        host.stop().context(mode.to_owned())?;
    }
    Ok(())
}

#[test]
fn successor_with_another_catalog_is_served_under_it() -> anyhow::Result<()> {
    let host = host("wrong-build")?;
    let client = host.client()?;
    let opened = client.open(&json!({}))?;
    let declared = opened.at("/result/capabilities/tools/listChanged");
    assert_eq!(declared, true, "{opened:?}");
    // The first generation dies of the call. The tools of the second are not those of the first; the call is
    // checked again, and fits.
    let answer = client.call("1", "again", &json!({"n": 0}))?;
    assert_eq!(
        answer.at("/result/structuredContent"),
        json!({"n": 0}),
        "{answer:?}"
    );
    client.notification("notifications/tools/list_changed")?;
    let listed = client.request("2", "tools/list", &json!({}))?;
    let tools = listed.at("/result/tools");
    let tools = tools.as_array().context("a list")?;
    let again = tools.iter().find(|tool| tool["name"] == "again");
    assert_eq!(again.context("again")?["schemaVersion"], 2, "{listed:?}");
    let answer = client.call("3", "again", &json!({"n": 1}))?;
    assert_eq!(
        answer.at("/result/structuredContent"),
        json!({"n": 1}),
        "{answer:?}"
    );
    host.stop()
}

#[test]
fn pack_that_starts_late_is_announced_to_clients() -> anyhow::Result<()> {
    let serve = Serve::stdio()?;
    let go = serve.folder().join("go");
    let script = serve.folder().join("late.sh");
    let worker = mainstay_testkit::process::binary("misbehaving-worker")?;
    let text = format!(
        "test -e {} || exit 1\nexec {} die-once\n",
        go.display(),
        worker.display()
    );
    std::fs::write(&script, text)?;
    let host = serve
        .pack(format!("late=sh {}", script.display()))
        .spawn()?;
    let client = host.client()?;
    client.open(&json!({}))?;
    let payload = failure(&client.call("1", "again", &json!({}))?)?;
    let message = payload["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("the pack late, which may have it"),
        "{payload}"
    );
    std::fs::write(&go, "")?;
    client.notification("notifications/tools/list_changed")?;
    let answer = client.call("2", "again", &json!({"n": 1}))?;
    assert_eq!(
        answer.at("/result/structuredContent"),
        json!({"n": 1}),
        "{answer:?}"
    );
    host.stop()
}

#[test]
fn calls_that_end_every_worker_do_not_cost_others_their_pack() -> anyhow::Result<()> {
    let host = Serve::stdio()?
        .limits("restarts = 1")?
        .misbehaving("die-on-call")?
        .spawn()?;
    let client = host.client()?;
    for id in ["1", "2", "3"] {
        let payload = failure(&client.call(id, "again", &json!({}))?)?;
        let message = payload["message"].as_str().unwrap_or_default();
        assert!(
            message.starts_with("this call ended every process"),
            "{payload}"
        );
        assert_eq!(payload["retryable"], false, "{payload}");
    }
    let health = client.call("4", "system_health", &json!({}))?;
    let states = health.at("/result/structuredContent/workers/0/state");
    assert_ne!(states, "failed", "{health:?}");
    host.stop()
}

#[test]
fn worker_that_takes_no_calls_is_replaced_and_none_is_lost() -> anyhow::Result<()> {
    let host = host("deaf")?;
    let client = host.client()?;
    host.wait_for_line("worker ready")?;
    // Not a byte of it was taken, so even this one may be sent to the successor.
    let answer = client.call("1", "once", &json!({}))?;
    assert!(answer.at("/result/isError").is_null(), "{answer:?}");
    host.stop()
}
