//! The fixture's misdeeds, bare, over its pipes: each is what it says.

use std::fs;
use std::time::{Duration, Instant};

use mainstay_testkit::fixture::read_executed;
use mainstay_testkit::peer::{Message, PATIENCE};
use mainstay_testkit::process::{Running, TempDir, kill, usage};
use mainstay_testkit::wrapped::{Fixture, Way};
use serde_json::{Value, json};

fn start(options: &str) -> anyhow::Result<Running> {
    let running = Fixture::new(Way::Bare)?.options(options).spawn()?;
    running.client()?.open(&json!({}))?;
    Ok(running)
}

fn text(answer: &Message) -> String {
    let text = answer.at("/result/content/0/text");
    text.as_str().unwrap_or_default().to_owned()
}

/// Calls a tool that ends the server, and waits for that; gives its exit code.
fn fatal(tool: &str, arguments: &Value) -> anyhow::Result<(Option<i32>, Vec<String>)> {
    let mut running = start("")?;
    let client = running.take_client()?;
    client.send(&call("1", tool, arguments))?;
    let status = running.wait()?;
    let rest = client.finish();
    let rest = match rest {
        Ok(rest) => rest.iter().map(|one| one.text().to_owned()).collect(),
        Err(error) => vec![format!("{error:#}")],
    };
    Ok((status.code(), rest))
}

fn call(id: &str, tool: &str, arguments: &Value) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

#[test]
fn crashes_look_as_they_were_ordered() -> anyhow::Result<()> {
    for (how, code) in [
        ("exit", Some(9)),
        ("abort", None),
        ("segv", None),
        ("kill", None),
    ] {
        let (found, rest) = fatal("crash", &json!({"how": how, "delay_ms": 5}))?;
        assert_eq!((found, rest.len()), (code, 0), "{how}");
    }
    assert_eq!(fatal("exit_clean", &json!({}))?.0, Some(0));
    assert_eq!(fatal("exit_clean", &json!({"answer": false}))?.1.len(), 0);
    let (code, rest) = fatal("half_frame", &json!({}))?;
    assert_eq!(code, Some(9));
    assert!(rest[0].contains("middle of a line"), "{rest:?}");
    Ok(())
}

#[test]
fn crash_after_an_effect_has_the_effect() -> anyhow::Result<()> {
    let fixture = Fixture::new(Way::Bare)?;
    let effects = fixture.effects();
    let mut running = fixture.spawn()?;
    let client = running.take_client()?;
    client.open(&json!({}))?;
    client.send(&call(
        "1",
        "crash",
        &json!({"how": "kill", "after_effect": "e"}),
    ))?;
    assert!(!running.wait()?.success());
    // The folder with the file goes with `running`.
    assert_eq!(read_executed(&effects)?[0].key, "e");
    Ok(())
}

#[test]
fn misdeeds_on_the_wire_are_what_they_say() -> anyhow::Result<()> {
    let running = start("")?;
    let client = running.client()?;
    client.send(&call("1", "answer_twice", &json!({})))?;
    assert_eq!(text(&client.answer("1")?), "once");
    assert_eq!(text(&client.answer("1")?), "twice");
    client.send(&call("2", "wrong_id", &json!({"then_right": true})))?;
    assert_eq!(text(&client.answer("\"nobody\"")?), "for nobody");
    assert_eq!(text(&client.answer("2")?), "for the right one");
    client.send(&call("3", "hang", &json!({})))?;
    let long = client.call("4", "oversize", &json!({"bytes": 2_000_000}))?;
    assert!(long.text().len() > 2_000_000);
    let before = usage(running.pid())?.resident;
    client.call("5", "hog", &json!({"mb": 64}))?;
    assert!(usage(running.pid())?.resident > before + 60 * 1024);
    client.send(&call("6", "garbage", &json!({})))?;
    assert!(client.next().is_err(), "garbage is no message");
    Ok(())
}

#[test]
fn forked_process_outlives_the_server() -> anyhow::Result<()> {
    let mut running = start("")?;
    let client = running.take_client()?;
    let pid: u32 = text(&client.call("1", "fork", &json!({"seconds": 100}))?).parse()?;
    client.finish()?;
    let until = Instant::now() + PATIENCE;
    while running.family() != [pid] {
        assert!(Instant::now() < until, "{:?} are left", running.family());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(kill(pid));
    assert!(running.wait()?.success());
    Ok(())
}

#[test]
fn frozen_server_is_silent_until_it_is_killed() -> anyhow::Result<()> {
    let mut running = start("")?;
    let client = running.take_client()?;
    client.send(&call("1", "freeze", &json!({})))?;
    client.send(&call("2", "echo", &json!({"text": "x"})))?;
    client.silence(Duration::from_millis(100))?;
    assert!(kill(running.pid()));
    assert_eq!(running.wait()?.code(), None);
    Ok(())
}

#[test]
fn starts_fail_as_often_as_they_were_told_to() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let counter = folder.join("count");
    for expected in [Some(3), Some(3), Some(0)] {
        let fixture = Fixture::new(Way::Bare)?
            .options("--exit-at-start --times 2 --counter")
            .word(&counter);
        let mut running = fixture.spawn()?;
        running.take_client()?.close();
        assert_eq!(running.wait()?.code(), expected);
    }
    Ok(())
}

#[test]
fn modes_of_the_command_line_do_what_they_say() -> anyhow::Result<()> {
    let running = Fixture::new(Way::Bare)?.options("--no-ping").spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)?;
    client.call("2", "echo", &json!({"text": "x"}))?;
    client.silence(Duration::from_millis(50))?;
    running.stop()?;

    let mut running = start("--crash-on prompts/list")?;
    let client = running.take_client()?;
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"prompts/list"}"#)?;
    assert_eq!(running.wait()?.code(), Some(9));

    let running = Fixture::new(Way::Bare)?.options("--never-ready").spawn()?;
    running
        .client()?
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)?;
    running.client()?.silence(Duration::from_millis(50))?;
    running.stop()?;

    let running = Fixture::new(Way::Bare)?.options("--banner").spawn()?;
    assert!(running.client()?.next().is_err());
    drop(running);

    let fixture = Fixture::new(Way::Bare)?;
    let tools = fixture.path("tools.json");
    fs::write(
        &tools,
        r#"[{"name":"echo", "inputSchema":{"type":"object"}}]"#,
    )?;
    let running = fixture.options("--tools").word(&tools).spawn()?;
    running.client()?.open(&json!({}))?;
    let listed = running.client()?.request("1", "tools/list", &json!({}))?;
    let exactly = r#"{"tools":[{"name":"echo", "inputSchema":{"type":"object"}}]}"#;
    assert_eq!(listed.member("result"), Some(exactly));
    running.stop()
}

#[test]
fn stubborn_server_ends_by_nothing_but_kill() -> anyhow::Result<()> {
    let mut running = start("--stubborn")?;
    let client = running.take_client()?;
    client.call("1", "echo", &json!({"text": "x"}))?;
    client.close();
    running.terminate()?;
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(running.family(), [running.pid()]);
    assert!(kill(running.pid()));
    running.wait()?;
    Ok(())
}
