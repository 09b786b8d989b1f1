//! Servers and clients at the edge of the protocol: what is odd passes or is refused, and nobody is
//! left waiting. The servers here are a few lines of Python each, so that they can say anything.

#![allow(
    clippy::print_stdout,
    reason = "what is skipped must be seen to be skipped"
)]

mod wrapping;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use mainstay_testkit::process::{Launch, Running, TempDir, binary};
use rustix::process::{Pid, Resource, Rlimit};
use serde_json::json;

use self::wrapping::{call, configured, failure, fixture, open, stop, text};

/// A server in Python that answers `initialize` and hands every other request to `handle(m)`, whose
/// result is written as it is, if it is text.
fn server(handle: &str) -> String {
    format!(
        r#"
import json, os, sys, time
def say(text):
    sys.stdout.write(text + "\n"); sys.stdout.flush()
def handle(m):
{handle}
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        say(json.dumps({{"jsonrpc": "2.0", "id": m["id"], "result": {{"protocolVersion": "2025-11-25", "capabilities": {{"tools": {{}}}}, "serverInfo": {{"name": "odd", "version": "1"}}}}}}))
    elif m.get("method") == "ping":
        say(json.dumps({{"jsonrpc": "2.0", "id": m["id"], "result": {{}}}}))
    elif "id" in m:
        answer = handle(m)
        if answer: say(answer)
"#
    )
}

fn start(options: &str, handle: &str) -> anyhow::Result<Option<Running>> {
    if std::process::Command::new("python3")
        .arg("-V")
        .output()
        .is_err()
    {
        println!("skipped: python3 is not installed");
        return Ok(None);
    }
    let launch = Launch::new([binary("mainstay")?.into_os_string(), "wrap".into()])?;
    let script = launch.folder().join("server.py");
    std::fs::write(&script, server(handle))?;
    let launch = launch
        .words(options.split_whitespace())
        .words(["--", "python3"])
        .words([script]);
    let running = launch.spawn()?;
    running.client()?.open(&json!({}))?;
    Ok(Some(running))
}

#[test]
fn halves_of_pairs_and_nulls_pass_and_spellings_of_ids_are_those_of_the_client()
-> anyhow::Result<()> {
    let handle = r#"
    if m["method"] == "tools/list":
        return json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"tools": []}})
    return '{"result":{"content":[{"type":"text","text":"half \\ud83d"}]},"error":null,"jsonrpc":"2.0","id":"%s"}' % m["id"]
"#;
    let Some(running) = start("", handle)? else {
        return Ok(());
    };
    let client = running.client()?;
    client.send(&call("7", "x", &json!({})))?;
    let line = client.answer("7")?;
    assert!(line.text().contains(r#""half \ud83d""#), "{line:?}");
    stop(running)
}

#[test]
fn an_answer_that_cannot_be_used_fails_its_call_at_once() -> anyhow::Result<()> {
    let handle = r#"
    if m["method"] == "tools/list":
        return json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"tools": []}})
    return json.dumps({"jsonrpc": "1.0", "id": m["id"], "result": {}})
"#;
    let Some(running) = start("", handle)? else {
        return Ok(());
    };
    let began = Instant::now();
    let client = running.client()?;
    let failure = failure(&client.call("1", "x", &json!({}))?)?;
    let message = failure["message"].as_str().unwrap_or_default();
    assert!(message.contains("cannot be used"), "{message}");
    assert!(began.elapsed() < Duration::from_secs(60));
    stop(running)
}

#[test]
fn a_list_that_does_not_end_holds_no_call_for_ever() -> anyhow::Result<()> {
    let handle = r#"
    if m["method"] == "tools/list":
        return json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"tools": [], "nextCursor": str(time.time())}})
    return json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"content": []}})
"#;
    let Some(running) = start("", handle)? else {
        return Ok(());
    };
    let client = running.client()?;
    let answer = client.call("1", "x", &json!({}))?;
    assert!(answer.at("/result/content").is_array(), "{answer:?}");
    stop(running)
}

#[test]
fn a_server_that_floods_junk_can_still_be_ended() -> anyhow::Result<()> {
    let handle = r#"
    while True:
        os.write(1, b"junk junk junk\n" * 4096)
"#;
    let Some(mut running) = start("--timeout 1", handle)? else {
        return Ok(());
    };
    let client = running.take_client()?;
    client.send(&call("1", "x", &json!({})))?;
    running.wait_for_line("reason=junk_on_stdout")?;
    assert_eq!(failure(&client.answer("1")?)?["code"], "TOOL_TIMEOUT");
    client.close();
    assert!(running.wait()?.success());
    Ok(())
}

#[test]
fn a_lost_server_gets_nothing_that_is_sent_to_its_successor() -> anyhow::Result<()> {
    // The first one closes its output, does not read for a while, then reads everything that is in
    // its pipe and notes it; the successor notes what it gets, too.
    let folder = TempDir::new()?;
    let notes = folder.join("notes");
    let handle = format!(
        r#"
    if m["method"] == "tools/list":
        return json.dumps({{"jsonrpc": "2.0", "id": m["id"], "result": {{"tools": []}}}})
    name = m["params"]["name"]
    if name == "deaf":
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(1)
        time.sleep(1.0)
        return None
    with open({notes:?}, "a") as f: f.write(name + "\n")
    return json.dumps({{"jsonrpc": "2.0", "id": m["id"], "result": {{"content": []}}}})
"#
    );
    let Some(running) = start("", &handle)? else {
        return Ok(());
    };
    let client = running.client()?;
    let mut lines = call("1", "deaf", &json!({})) + "\n";
    // More than a pipe holds, so that the last ones are not handed over.
    let filler = "x".repeat(9000);
    for id in 2..=20 {
        lines += &(call(
            &id.to_string(),
            &format!("effect{id}"),
            &json!({"f": filler}),
        ) + "\n");
    }
    client.send_raw(lines)?;
    for id in 1..=20 {
        client.answer(&id.to_string())?;
    }
    std::thread::sleep(Duration::from_millis(1500));
    let noted = std::fs::read_to_string(&notes).unwrap_or_default();
    let mut names: Vec<&str> = noted.lines().collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "an effect took place twice: {noted}");
    stop(running)
}

#[test]
fn what_reads_in_two_ways_is_refused_and_a_call_without_an_id_is_not_run() -> anyhow::Result<()> {
    let running = fixture("--deny append", "")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    for (id, params) in [
        (
            "1",
            r#"{"name":"echo","Name":"append","arguments":{"key":"k","text":"t"}}"#,
        ),
        (
            "2",
            r#"{"name":"append","name":"echo","arguments":{"key":"k","text":"t"}}"#,
        ),
    ] {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
        client.send(&line)?;
        let refused = client.answer(id)?;
        assert_eq!(refused.at("/error/code"), -32600, "{refused:?}");
    }
    client.send(
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"append","arguments":{"key":"k","text":"t"}}}"#,
    )?;
    running.wait_for_line("reason=request_without_id method=tools/call")?;
    let found = client.call("3", "lookup", &json!({"key": "k"}))?;
    assert_eq!(
        found.at("/result/structuredContent/found"),
        false,
        "{found:?}"
    );
    stop(running)
}

#[test]
fn a_denied_tool_that_is_not_listed_is_denied_all_the_same() -> anyhow::Result<()> {
    let running = fixture("--deny append", "")?;
    let tools = running.path("tools.json");
    std::fs::write(
        &tools,
        json!([{"name": "echo", "inputSchema": {"type": "object"}}]).to_string(),
    )?;
    let running = running.word("--tools").word(&tools).spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let refused = failure(&client.call("1", "append", &json!({"key": "k", "text": "t"}))?)?;
    assert_eq!(refused["code"], "FORBIDDEN");
    stop(running)
}

#[test]
fn an_idle_server_is_stopped_although_it_answers_pings() -> anyhow::Result<()> {
    let rules = json!({"idle_stop": 2, "limits": {"ping_interval_ms": 300}});
    let running = configured(&rules, "")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    running.wait_for_workers(wrapping::SERVER, 0)?;
    wrapping::echo(client, "1")?;
    stop(running)
}

#[test]
fn a_slow_start_outlives_a_probe_that_nobody_answered() -> anyhow::Result<()> {
    let rules = json!({"limits": {"grace_ms": 100, "ping_timeout_ms": 200}});
    let running = configured(&rules, "--slow-start 10000")?.spawn()?;
    let client = running.client()?;
    client.send(r#"{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#)?;
    let refused = client.answer("0")?;
    assert_eq!(refused.at("/error/code"), -32601, "{refused:?}");
    let opened = client.open(&json!({}))?;
    assert!(opened.at("/result/serverInfo").is_object(), "{opened:?}");
    assert!(
        running
            .stderr()
            .iter()
            .all(|line| !line.contains("worker_lost"))
    );
    stop(running)
}

#[test]
fn an_id_that_was_given_up_may_be_used_again_and_the_late_answer_is_not_its() -> anyhow::Result<()>
{
    let handle = r#"
    if m["method"] == "tools/list":
        return json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"tools": []}})
    if m["params"]["name"] == "slow":
        late.append(m["id"])
        return None
    for id in late: say(json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "late"}]}}))
    return json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"content": [{"type": "text", "text": "right"}]}})
late = []
"#;
    let Some(running) = start("--timeout 5", handle)? else {
        return Ok(());
    };
    let client = running.client()?;
    assert_eq!(
        failure(&client.call("7", "slow", &json!({}))?)?["code"],
        "TOOL_TIMEOUT"
    );
    assert_eq!(text(&client.call("7", "quick", &json!({}))?), "right");
    stop(running)
}

#[test]
fn a_token_that_was_given_up_counts_again_with_the_next_call() -> anyhow::Result<()> {
    let running = open("", "")?;
    let client = running.client()?;
    let sleep = |id: &str, ms: u64| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"sleep","arguments":{{"ms":{ms},"steps":3}},"_meta":{{"progressToken":"t"}}}}}}"#
        )
    };
    client.send(&sleep("1", 60_000))?;
    std::thread::sleep(Duration::from_millis(100));
    client.send(r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}"#)?;
    failure(&client.answer("1")?)?;
    client.send(&sleep("2", 200))?;
    client.notification("notifications/progress")?;
    assert!(text(&client.answer("2")?).contains("slept"));
    stop(running)
}

#[test]
fn the_timeout_counts_for_every_request_and_not_for_calls_alone() -> anyhow::Result<()> {
    let Some(running) = start("--timeout 0.5", "    return None")? else {
        return Ok(());
    };
    let client = running.client()?;
    for (id, method) in [("1", "resources/read"), ("2", "prompts/list"), ("3", "x/y")] {
        let late = client.request(id, method, &json!({"uri": "x:///"}))?;
        assert_eq!(late.at("/error/data/code"), "TOOL_TIMEOUT", "{late:?}");
        assert_eq!(late.at("/error/data/timeoutMs"), 500);
    }
    stop(running)
}

#[test]
fn a_program_is_found_as_the_client_would_find_it_and_what_is_none_ends_at_once()
-> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let fixture = binary("mcp-fixture")?;
    let inside = folder.path().join("inside");
    std::fs::create_dir(&inside)?;
    std::os::unix::fs::symlink(&fixture, inside.join("own-server"))?;
    std::fs::write(folder.path().join("own-server"), "not this one")?;
    let file = folder.path().join("servers.json");
    let entries = json!({"mcpServers": {
        "relative": {"command": "./own-server", "cwd": inside},
        "searched": {"command": "own-server",
            "env": {"PATH": format!("{}:{}", folder.path().display(), inside.display())}},
        "nowhere": {"command": fixture, "cwd": "/nowhere"},
        "text": {"command": "/etc/passwd"},
    }});
    std::fs::write(&file, entries.to_string())?;
    for name in ["relative", "searched"] {
        let launch = Launch::new([binary("mainstay")?.into_os_string(), "wrap".into()])?;
        let running = launch
            .words(["--config".into(), file.clone().into_os_string()])
            .words(["--server", name])
            .spawn()?;
        let opened = running.client()?.open(&json!({}))?;
        assert!(
            opened.at("/result/serverInfo").is_object(),
            "{name} {opened:?}"
        );
        stop(running)?;
    }
    for (name, told) in [("nowhere", "set cwd"), ("text", "may not be executed")] {
        let output = std::process::Command::new(binary("mainstay")?)
            .args(["wrap", "--server", name, "--config"])
            .arg(&file)
            .stdin(std::process::Stdio::null())
            .output()?;
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(told), "{stderr}");
    }
    Ok(())
}

#[test]
fn an_answer_without_memory_for_it_fails_alone() -> anyhow::Result<()> {
    let running = open("", "")?;
    let client = running.client()?;
    wrapping::echo(client, "1")?;
    // The host has room for a part of the answer, as it is on a machine whose memory is used up.
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid()))?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let size = size.and_then(|size| size.split_whitespace().next());
    let size: u64 = size.context("its size")?.parse()?;
    let pid = i32::try_from(running.pid()).ok().and_then(Pid::from_raw);
    let most = Some(size * 1024 + 24 * 1024 * 1024);
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    rustix::process::prlimit(pid, Resource::As, limit)?;
    let refused = failure(&client.call("2", "big", &json!({"bytes": 15_000_000}))?)?;
    assert_eq!(refused["fault"], "resource", "{refused}");
    wrapping::echo(client, "3")?;
    stop(running)
}
