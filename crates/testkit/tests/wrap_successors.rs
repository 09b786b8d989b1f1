//! A server that takes over from another may offer something else: nothing is sent to it that it does
//! not offer, a bad one does not take over, and every client hears of a changed list.

mod wrapping;

use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use mainstay_testkit::fixture::read_told;
use mainstay_testkit::peer::{Client, Message};
use mainstay_testkit::process::{Launch, Running, TempDir, binary, kill};
use mainstay_testkit::wrapped::Fixture;
use serde_json::{Value, json};

use self::wrapping::{call, echo, failure, fixture, only_server, stop, text, wait_told};

/// A tool of the fixture, with this type of its only argument.
fn definition(name: &str, argument: &str, kind: &str) -> Value {
    json!({"name": name, "annotations": {"readOnlyHint": true}, "inputSchema": {
        "type": "object", "properties": {argument: {"type": kind}}, "required": [argument]}})
}

fn all_tools() -> Value {
    json!([
        definition("echo", "text", "string"),
        definition("sleep", "ms", "integer"),
        definition("big", "bytes", "integer"),
        definition("put", "key", "string"),
    ])
}

/// The same without `put`, and with another schema of `sleep`.
fn other_tools() -> Value {
    json!([
        definition("echo", "text", "string"),
        definition("sleep", "ms", "string"),
        definition("big", "bytes", "integer"),
    ])
}

/// A wrapped fixture whose tools stand in a file.
fn listing(wrap: &str, options: &str) -> anyhow::Result<Fixture> {
    let fixture = fixture(wrap, options)?;
    let (tools, spoil) = (fixture.path("tools.json"), fixture.path("spoil"));
    std::fs::write(&tools, all_tools().to_string())?;
    let fixture = fixture.options("--tools").word(tools);
    Ok(fixture.options("--spoil").word(spoil))
}

fn in_folder(running: &Running, name: &str, content: &str) -> anyhow::Result<()> {
    std::fs::write(running.folder().join(name), content).with_context(|| name.to_owned())
}

fn rollout(running: &Running) -> anyhow::Result<Output> {
    Command::new(binary("mainstay")?)
        .arg("rollout")
        .env("MAINSTAY_RUNTIME_DIR", running.folder().join("run"))
        .output()
        .context("starting mainstay rollout")
}

#[test]
fn a_queued_call_is_checked_again_when_the_successor_offers_other_tools() -> anyhow::Result<()> {
    let fixture = listing("", "")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    client.request("\"l\"", "tools/list", &json!({}))?;
    let first = only_server(&running)?;
    client.send(&call("1", "put", &json!({"key": "k", "pause_ms": 60_000})))?;
    client.send(&call("2", "sleep", &json!({"ms": 60_000})))?;
    wait_told(&state, "\"sleep\"", 1)?;
    in_folder(&running, "tools.json", &other_tools().to_string())?;
    assert!(kill(first));
    client.send(&call("3", "big", &json!({"bytes": 10})))?;
    let withdrawn = client.answer("1")?;
    assert_eq!(withdrawn.at("/error/code"), -32602, "{withdrawn:?}");
    let said = withdrawn.at("/error/message");
    let said = said.as_str().unwrap_or_default();
    assert!(said.contains("put is no longer offered"), "{withdrawn:?}");
    let changed = failure(&client.answer("2")?)?;
    assert_eq!(changed["code"], "INVALID_REQUEST", "{changed}");
    let said = changed["message"].as_str().unwrap_or_default();
    assert!(said.contains("/ms"), "{changed}");
    assert_eq!(
        text(&client.answer("3")?).len(),
        10,
        "what is offered is served"
    );
    let second = only_server(&running)?;
    let told = read_told(&state)?;
    let calls: Vec<&str> = told
        .iter()
        .filter(|told| told.pid == second && told.line.contains("tools/call"))
        .map(|told| told.line.as_str())
        .collect();
    assert!(
        calls.iter().all(|call| call.contains("\"big\"")),
        "{calls:?}"
    );
    stop(running)
}

#[test]
fn a_successor_with_an_unreadable_list_does_not_take_over() -> anyhow::Result<()> {
    let running = listing("", "")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    echo(client, "1")?;
    let incumbent = only_server(&running)?;
    in_folder(&running, "spoil", "refuse-list")?;
    let refused = rollout(&running)?;
    assert_ne!(refused.status.code(), Some(0), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stdout) + String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("list of tools cannot be read"), "{said}");
    let failed = "reason=rollout_failed pack=mcp-fixture rollout fault";
    running.wait_for_line(failed)?;
    running.wait_for_line("reason=worker_refused")?;
    echo(client, "2")?;
    assert_eq!(only_server(&running)?, incumbent, "the incumbent goes on");
    std::fs::remove_file(running.folder().join("spoil"))?;
    let done = rollout(&running)?;
    assert!(done.status.success(), "{done:?}");
    running.wait_for_line("mcp:rollout pack=mcp-fixture generation=3")?;
    echo(client, "3")?;
    assert_ne!(only_server(&running)?, incumbent);
    stop(running)
}

#[test]
fn a_successor_that_is_never_ready_does_not_take_over() -> anyhow::Result<()> {
    let fixture = listing("--start-timeout 6", "")?;
    let running = fixture.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    echo(client, "1")?;
    let incumbent = only_server(&running)?;
    // The incumbent says nothing either while the file is there; nothing is asked of it.
    in_folder(&running, "spoil", "mute")?;
    let refused = rollout(&running)?;
    std::fs::remove_file(running.folder().join("spoil"))?;
    assert_ne!(refused.status.code(), Some(0), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stdout) + String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("in time"), "{said}");
    echo(client, "2")?;
    assert_eq!(only_server(&running)?, incumbent);
    stop(running)
}

#[test]
fn a_changed_list_is_announced_before_anything_of_the_successor() -> anyhow::Result<()> {
    let running = listing("", "--declare-list-changed")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    client.request("\"l\"", "tools/list", &json!({}))?;
    in_folder(&running, "tools.json", &other_tools().to_string())?;
    let done = rollout(&running)?;
    assert!(done.status.success(), "{done:?}");
    client.notification("notifications/tools/list_changed")?;
    let listed = client.request("2", "tools/list", &json!({}))?;
    assert!(!listed.text().contains("\"put\""), "{listed:?}");
    stop(running)
}

#[test]
fn a_watched_server_is_rolled_out_and_a_broken_one_does_not_take_over() -> anyhow::Result<()> {
    let sources = TempDir::new()?;
    let touch = |text: &str| std::fs::write(sources.join("server.py"), text);
    touch("one")?;
    let watch = format!("--watch {}", sources.path().display());
    let running = listing(&watch, "--declare-list-changed")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    client.request("\"l\"", "tools/list", &json!({}))?;
    let incumbent = only_server(&running)?;
    in_folder(&running, "spoil", "refuse-list")?;
    touch("two")?;
    running.wait_for_line("reason=rollout_failed pack=mcp-fixture")?;
    assert_eq!(only_server(&running)?, incumbent);
    std::fs::remove_file(running.folder().join("spoil"))?;
    echo(client, "1")?;
    in_folder(&running, "tools.json", &other_tools().to_string())?;
    touch("three")?;
    client.notification("notifications/tools/list_changed")?;
    running.wait_for_line("mcp:rollout pack=mcp-fixture")?;
    let listed = client.request("2", "tools/list", &json!({}))?;
    assert!(!listed.text().contains("\"put\""), "{listed:?}");
    stop(running)
}

/// A broken server writes a file of its own at every start.
#[test]
fn one_save_of_a_broken_server_leads_to_one_attempt() -> anyhow::Result<()> {
    let sources = TempDir::new()?;
    let server = sources.join("server.sh");
    let write = |last: &str| {
        let dot = sources.join(".lock");
        let text = format!("echo started >> {}\n{last} \"$@\"\n", dot.display());
        std::fs::write(&server, text)
    };
    let fixture = binary("mcp-fixture")?;
    write(&format!("exec {}", fixture.display()))?;
    let running = Launch::new([binary("mainstay")?])?
        .words(["wrap", "--watch"])
        .words([sources.path()])
        .words(["--", "sh"])
        .words([&server])
        .spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    echo(client, "1")?;
    write("exit 3")?;
    running.wait_for_line("reason=rollout_failed")?;
    // Each further attempt would begin within the time for quiet.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let lines = running.stderr();
    let attempts = lines
        .iter()
        .filter(|line| line.contains("mcp:watch changed"));
    assert_eq!(attempts.count(), 1, "{lines:?}");
    echo(client, "2")?;
    write(&format!("exec {}", fixture.display()))?;
    running.wait_for_line("mcp:rollout pack=")?;
    echo(client, "3")?;
    stop(running)
}

/// A request of the stateless revision.
fn modern(client: &Client, id: &str, method: &str, params: &Value) -> anyhow::Result<()> {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
    let mut params = params.clone();
    if let Some(members) = params.as_object_mut() {
        members.insert("_meta".to_owned(), meta);
    }
    let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    client.send(&line.to_string())
}

#[test]
fn a_modern_client_hears_of_a_changed_list_on_the_stream_that_asked_for_it() -> anyhow::Result<()> {
    for by_rollout in [true, false] {
        let fixture = listing("", "--era modern")?;
        let state = fixture.state();
        let running = fixture.spawn()?;
        let client = running.client()?;
        modern(client, "list", "tools/list", &json!({}))?;
        client.answer("\"list\"")?;
        let wanted = json!({"notifications": {"toolsListChanged": true}});
        modern(client, "hears", "subscriptions/listen", &wanted)?;
        let other = json!({"notifications": {"resourceSubscriptions": []}});
        modern(client, "other", "subscriptions/listen", &other)?;
        wait_told(&state, "\"other\"", 1)?;
        in_folder(&running, "tools.json", &other_tools().to_string())?;
        if by_rollout {
            let done = rollout(&running)?;
            ensure!(done.status.success(), "{done:?}");
        } else {
            ensure!(kill(only_server(&running)?));
        }
        let told = client.notification("notifications/tools/list_changed")?;
        let tag = |told: &Message| told.at("/params/_meta/io.modelcontextprotocol~1subscriptionId");
        assert_eq!(tag(&told), "hears", "{told:?}");
        modern(client, "again", "tools/list", &json!({}))?;
        let listed = client.answer("\"again\"")?;
        assert!(!listed.text().contains("\"put\""), "{listed:?}");
        let (rest, _) = running.finish()?;
        let twice = rest.iter().any(|line| line.text().contains("list_changed"));
        assert!(!twice, "told once, to one: {rest:?}");
    }
    Ok(())
}
