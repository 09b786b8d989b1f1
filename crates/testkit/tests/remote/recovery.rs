//! Lost sessions, lost answers and servers that are away: reads go on, and no effect happens twice.

use std::collections::BTreeSet;

use mainstay_testkit::process::binary;
use serde_json::json;

use crate::upstream::{Fault, Form, Upstream, World};
use crate::wrapping::{eventually, failure, stop, text};
use crate::{open, read, sessions};

#[test]
fn a_forgotten_session_is_opened_again_with_its_state() -> anyhow::Result<()> {
    let upstream = Upstream::start(sessions())?;
    let running = open(&upstream, &[])?;
    let client = running.client()?;
    client.request("1", "logging/setLevel", &json!({"level": "debug"}))?;
    read(client, "2", "a")?;
    upstream.world().replicas[0].clear();
    // The server rejected it, so it is sent in the next session.
    let answer = client.call("3", "effect", &json!({"key": "k"}))?;
    assert_eq!(text(&answer), "done", "{answer:?}");
    assert_eq!(upstream.world().effects["k"], 1);
    assert_eq!(upstream.asked("initialize").len(), 2);
    let levels = upstream.asked("logging/setLevel");
    assert_eq!(levels.len(), 2, "the successor gets the level");
    assert_eq!(levels[1].headers["mcp-session-id"], "session-2");
    stop(running)
}

#[test]
fn a_rejection_of_the_session_is_no_answer_though_it_has_the_id_of_the_request()
-> anyhow::Result<()> {
    let mut world = sessions();
    world.echoes_ids = true;
    let upstream = Upstream::start(world)?;
    let running = open(&upstream, &[])?;
    let client = running.client()?;
    read(client, "1", "a")?;
    upstream.world().replicas[0].clear();
    let answer = client.call("2", "effect", &json!({"key": "k"}))?;
    assert_eq!(text(&answer), "done", "{answer:?}");
    assert_eq!(upstream.world().effects["k"], 1);
    stop(running)
}

#[test]
fn replicas_that_do_not_know_each_others_sessions_keep_one_session() -> anyhow::Result<()> {
    let upstream = Upstream::start(World {
        replicas: vec![BTreeSet::new(), BTreeSet::new()],
        ..World::default()
    })?;
    let running = open(&upstream, &[])?;
    let client = running.client()?;
    for number in 0..20 {
        let key = format!("k{number}");
        read(client, &format!("{number}"), &key)?;
        let answer = client.call(&format!("\"e{number}\""), "effect", &json!({"key": key}))?;
        assert_eq!(text(&answer), "done", "{answer:?}");
    }
    let world = upstream.world();
    assert_eq!(world.effects.len(), 20);
    assert!(world.effects.values().all(|times| *times == 1));
    drop(world);
    stop(running)
}

#[test]
fn a_lost_answer_repeats_a_read_and_never_an_effect() -> anyhow::Result<()> {
    let upstream = Upstream::start(sessions())?;
    let running = open(&upstream, &[])?;
    let client = running.client()?;
    client.request("0", "tools/list", &json!({}))?;
    for (number, fault) in [Fault::CutAfter, Fault::CutBefore, Fault::Status(503)]
        .into_iter()
        .enumerate()
    {
        upstream.world().faults.extend([fault]);
        read(client, &format!("{number}"), "a")?;
        upstream.world().faults.extend([fault]);
        let key = format!("k{number}");
        let lost = client.call(&format!("\"e{number}\""), "effect", &json!({"key": key}))?;
        let failure = failure(&lost)?;
        let said = failure["message"].as_str().unwrap_or_default();
        assert!(said.contains("outcome is unknown"), "{fault:?}: {said}");
        let times = upstream.world().effects.get(&key).copied().unwrap_or(0);
        assert_eq!(times, u32::from(fault == Fault::CutAfter), "{fault:?}");
    }
    assert_eq!(upstream.asked("initialize").len(), 1, "the session goes on");
    stop(running)
}

#[test]
fn a_rejected_effect_is_sent_again() -> anyhow::Result<()> {
    let upstream = Upstream::start(sessions())?;
    let running = open(&upstream, &[])?;
    let client = running.client()?;
    upstream
        .world()
        .faults
        .extend([Fault::Status(429), Fault::Status(429)]);
    let answer = client.call("1", "effect", &json!({"key": "k"}))?;
    assert_eq!(text(&answer), "done", "{answer:?}");
    assert_eq!(upstream.world().effects["k"], 1);
    stop(running)
}

#[test]
fn a_stream_with_event_ids_is_resumed_before_the_call_counts_as_lost() -> anyhow::Result<()> {
    let upstream = Upstream::start(World {
        form: Form::CutEvents,
        ..sessions()
    })?;
    let running = open(&upstream, &[])?;
    let client = running.client()?;
    let answer = client.call("1", "effect", &json!({"key": "k"}))?;
    assert_eq!(text(&answer), "done", "{answer:?}");
    assert_eq!(upstream.world().effects["k"], 1);
    let world = upstream.world();
    let resumed = world
        .seen
        .iter()
        .filter(|seen| seen.headers.contains_key("last-event-id"));
    assert_eq!(resumed.count(), 1);
    drop(world);
    stop(running)
}

#[test]
fn a_call_during_a_restart_waits_for_the_server() -> anyhow::Result<()> {
    let upstream = Upstream::start(sessions())?;
    let running = open(&upstream, &[])?;
    let client = running.client()?;
    read(client, "1", "a")?;
    upstream.go_down();
    let line = crate::wrapping::call("2", "effect", &json!({"key": "k"}));
    client.send(&line)?;
    client.send(&crate::wrapping::call("3", "read", &json!({"key": "b"})))?;
    std::thread::sleep(std::time::Duration::from_secs(3));
    upstream.come_up(true)?;
    assert_eq!(text(&client.answer("2")?), "done");
    assert_eq!(text(&client.answer("3")?), "b");
    assert_eq!(upstream.world().effects["k"], 1);
    stop(running)
}

#[test]
fn a_cancelled_call_of_a_session_is_cancelled_at_the_server() -> anyhow::Result<()> {
    let upstream = Upstream::start(sessions())?;
    let running = open(&upstream, &[])?;
    let client = running.client()?;
    client.request("0", "tools/list", &json!({}))?;
    client.send(&crate::wrapping::call(
        "1",
        "read",
        &json!({"key": "a", "pause_ms": 3000}),
    ))?;
    eventually("the call arrived", || {
        upstream.asked("tools/call").len() == 1
    })?;
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)?;
    eventually("the cancel arrived", || {
        upstream.asked("notifications/cancelled").len() == 1
    })?;
    read(client, "2", "b")?;
    stop(running)
}

#[test]
fn an_upgrade_in_place_keeps_the_session_and_resumes_streams() -> anyhow::Result<()> {
    let upstream = Upstream::start(World {
        form: Form::CutEvents,
        retry_ms: 4000,
        ..sessions()
    })?;
    let running = open(&upstream, &[])?;
    let client = running.client()?;
    client.request("0", "tools/list", &json!({}))?;
    // Its stream is cut, and would be resumed only after the upgrade.
    client.send(&crate::wrapping::call("1", "effect", &json!({"key": "k"})))?;
    eventually("the call arrived", || {
        upstream.asked("tools/call").len() == 1
    })?;
    let output = std::process::Command::new(binary("mainstay")?)
        .arg("upgrade")
        .env("MAINSTAY_RUNTIME_DIR", running.folder().join("run"))
        .output()?;
    anyhow::ensure!(output.status.success(), "{output:?}");
    assert_eq!(text(&client.answer("1")?), "done");
    assert_eq!(upstream.world().effects["k"], 1);
    upstream.world().form = Form::Json;
    read(client, "2", "a")?;
    assert_eq!(upstream.asked("initialize").len(), 1, "the same session");
    stop(running)
}
