//! Birth and death of a host: ready file, signals, end of input, standard output.

use std::fs;

use anyhow::{Context as _, ensure};
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{Serve, TempDir, kill};
use rustix::process::Signal;
use serde_json::json;

fn answered(client: &Client) -> anyhow::Result<()> {
    client.request("\"up\"", "ping", &json!({})).map(|_| ())
}

#[test]
fn ready_file_names_the_process_and_the_time_and_goes_with_the_host() -> anyhow::Result<()> {
    let serve = Serve::stdio()?;
    let path = serve.ready_file();
    let host = serve.spawn()?;
    host.wait_for_line("mcp:ready mode=stdio")?;
    answered(host.client()?)?;
    let text = fs::read_to_string(&path)?;
    let (pid, time) = text.split_once(' ').context("two words")?;
    assert_eq!(pid, host.pid().to_string());
    let time = time.strip_suffix('\n').context("a newline at the end")?;
    assert!(is_iso_8601_utc(time), "{time}");
    host.stop()?;
    assert!(!path.exists());
    Ok(())
}

/// `2026-01-31T23:59:59Z`, with or without a fraction.
fn is_iso_8601_utc(time: &str) -> bool {
    let shape: String = time
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    let (whole, fraction) = shape.split_at_checked(19).unwrap_or_default();
    let fraction = fraction
        .strip_suffix('Z')
        .map(|rest| rest.trim_start_matches('.'));
    whole == "0000-00-00T00:00:00"
        && fraction.is_some_and(|digits| digits.bytes().all(|byte| byte == b'0'))
}

#[test]
fn ready_file_of_a_living_owner_is_left_alone() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let path = folder.join("shared");
    let first = Serve::stdio()?.env("MCP_READY_FILE", &path).spawn()?;
    answered(first.client()?)?;
    let text = fs::read_to_string(&path)?;
    let second = Serve::stdio()?.env("MCP_READY_FILE", &path).spawn()?;
    answered(second.client()?)?;
    assert_eq!(fs::read_to_string(&path)?, text);
    second.stop()?;
    assert_eq!(fs::read_to_string(&path)?, text);
    first.stop()?;
    assert!(!path.exists());
    Ok(())
}

#[test]
fn ready_file_of_a_dead_owner_is_taken_over() -> anyhow::Result<()> {
    let serve = Serve::stdio()?;
    let path = serve.ready_file();
    fs::write(&path, "4194304 2026-01-01T00:00:00Z\n")?;
    let host = serve.spawn()?;
    answered(host.client()?)?;
    let text = fs::read_to_string(&path)?;
    assert!(text.starts_with(&format!("{} ", host.pid())), "{text}");
    host.stop()?;
    assert!(!path.exists());
    Ok(())
}

#[test]
fn termination_finishes_the_call_in_flight_and_exits_with_0() -> anyhow::Result<()> {
    for signal in [Signal::TERM, Signal::INT] {
        let mut host = Serve::stdio()?.misbehaving("slow")?.spawn()?;
        let client = host.take_client()?;
        client.send(r#"{"jsonrpc":"2.0","id":1,"method":"once","params":{"ms":300}}"#)?;
        // Progress says that the call runs.
        client.notification("notifications/progress")?;
        host.signal(signal)?;
        let answer = client.answer("1")?;
        assert_eq!(answer.at("/result/ms"), 300, "{answer:?}");
        assert_eq!(host.wait()?.code(), Some(0), "{:?}", host.stderr());
        ensure!(
            client.finish()?.is_empty(),
            "something came after the answer"
        );
        ensure!(
            host.stderr()
                .iter()
                .any(|line| line.contains("mcp:shutdown mode=stdio")),
            "{:?}",
            host.stderr()
        );
    }
    Ok(())
}

#[test]
fn termination_of_an_idle_socket_host_removes_its_socket() -> anyhow::Result<()> {
    let mut host = Serve::socket()?.misbehaving("honest")?.spawn()?;
    let socket = host.folder().join("sock");
    let client = host.connect()?;
    client.call("1", "again", &json!({}))?;
    assert!(socket.exists());
    host.terminate()?;
    assert_eq!(host.wait()?.code(), Some(0), "{:?}", host.stderr());
    assert!(!socket.exists());
    assert!(client.finish()?.is_empty());
    Ok(())
}

#[test]
fn end_of_input_answers_every_accepted_request_and_exits_with_0() -> anyhow::Result<()> {
    const REQUESTS: usize = 40;
    let host = Serve::stdio()?.misbehaving("honest")?.spawn()?;
    let client = host.client()?;
    for id in 0..REQUESTS {
        client.send(&match id % 4 {
            0 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"again","params":{{}}}}"#),
            1 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#),
            2 => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"once","arguments":{{}}}}}}"#
            ),
            _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"nothing"}}"#),
        })?;
    }
    // The last one has no newline: at the end of input a complete object is a frame.
    client.send_raw(*br#"{"jsonrpc":"2.0","id":"last","method":"ping"}"#)?;
    let (answers, _) = host.finish()?;
    for answer in &answers {
        // Accepted before the worker was ready is accepted all the same.
        let id: usize = answer.id().and_then(|id| id.parse().ok()).unwrap_or(1);
        let result = match id % 4 {
            0 => answer.at("/result"),
            2 => answer.at("/result/structuredContent"),
            _ => json!({}),
        };
        assert_eq!(result, json!({}), "{answer:?}");
    }
    let mut ids: Vec<&str> = answers.iter().filter_map(|answer| answer.id()).collect();
    ids.sort_unstable();
    let mut expected: Vec<String> = (0..REQUESTS).map(|id| id.to_string()).collect();
    expected.push("\"last\"".to_owned());
    expected.sort_unstable();
    assert_eq!(ids, expected);
    Ok(())
}

#[test]
fn standard_output_carries_frames_only_whatever_a_worker_says() -> anyhow::Result<()> {
    for mode in ["honest", "babble", "exit-at-start"] {
        let host = Serve::stdio()?.misbehaving(mode)?.spawn()?;
        let client = host.client()?;
        client.send(r#"{"jsonrpc":"2.0","id":1,"method":"system_health"}"#)?;
        // Every line is parsed on the way; one that is no message is an error.
        client.answer("1").with_context(|| mode.to_owned())?;
        let (rest, stderr) = host.finish().with_context(|| mode.to_owned())?;
        assert!(rest.is_empty(), "{mode}: {rest:?}");
        assert!(
            stderr.iter().all(|line| !line.contains("\"jsonrpc\"")),
            "{mode}: {stderr:?}"
        );
    }
    Ok(())
}

#[test]
fn worker_that_is_set_up_wrongly_ends_the_host_with_its_words() -> anyhow::Result<()> {
    let mut host = Serve::stdio()?.misbehaving("unable")?.spawn()?;
    let client = host.take_client()?;
    assert_eq!(host.wait()?.code(), Some(2));
    assert!(client.finish()?.is_empty());
    let stderr = host.stderr();
    let last = stderr.last().map(String::as_str).unwrap_or_default();
    assert_eq!(
        last,
        "mainstay: error: the pack bad cannot start: told to be unable"
    );
    Ok(())
}

#[test]
fn successor_that_finds_other_schemas_is_told_to_the_operator() -> anyhow::Result<()> {
    let roots = TempDir::new()?;
    let schema = roots.join("lamp.schema.json");
    fs::write(&schema, r#"{"type": "object"}"#)?;
    let host = Serve::stdio()?
        .pack("asset")
        .env("SYN_SCHEMAS_DIR", roots.path())
        .spawn()?;
    let client = host.client()?;
    let get = r#"{"jsonrpc":"2.0","id":1,"method":"get_schema","params":{"name":"lamp"}}"#;
    client.send(get)?;
    assert_eq!(client.answer("1")?.at("/result/schema/type"), "object");
    fs::write(&schema, r#"{"type": "array"}"#)?;
    client.send(get)?;
    assert_eq!(
        client.answer("1")?.at("/result/schema/type"),
        "object",
        "read once"
    );
    for worker in host.workers("mainstay-worker") {
        kill(worker);
    }
    client.send(get)?;
    assert_eq!(client.answer("1")?.at("/result/schema/type"), "array");
    host.wait_for_line("mcp:warning reason=roots_changed pack=asset")?;
    host.stop()
}

#[test]
fn worker_runs_in_a_process_of_its_own() -> anyhow::Result<()> {
    let host = Serve::stdio()?.misbehaving("honest")?.spawn()?;
    host.client()?.call("1", "again", &json!({}))?;
    let family = host.family();
    assert!(
        family.len() >= 2 && family.contains(&host.pid()),
        "{family:?}"
    );
    host.stop()
}
