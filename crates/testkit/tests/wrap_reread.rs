//! The configuration of a wrapped server is read again at SIGHUP: what can change changes at once,
//! what cannot is said, and a mistake leaves everything as it was.

mod wrapping;

use std::time::Duration;

use mainstay_testkit::process::Running;
use rustix::process::Signal;
use serde_json::{Value, json};

use self::wrapping::{configured, echo, failure, only_server, stop, text};

fn rewrite(running: &Running, rules: &Value) -> anyhow::Result<()> {
    let file = json!({"mcpServers": {"fixture": {"command": "unused", "mainstay": rules}}});
    std::fs::write(running.folder().join("servers.json"), file.to_string())?;
    running.signal(Signal::HUP)
}

fn opened(rules: &Value, options: &str) -> anyhow::Result<Running> {
    let running = configured(rules, options)?.spawn()?;
    running.client()?.open(&json!({}))?;
    Ok(running)
}

#[test]
fn rules_that_are_read_again_count_from_then_on_in_the_same_session() -> anyhow::Result<()> {
    let running = opened(&json!({"timeout_ms": 60_000}), "--declare-list-changed")?;
    let client = running.client()?;
    client.request("1", "tools/list", &json!({}))?;
    echo(client, "2")?;
    let server = only_server(&running)?;
    let rules = json!({"timeout_ms": 5000, "deny": ["echo"], "max_output": 2000});
    rewrite(&running, &rules)?;
    running.wait_for_line("mcp:config reread")?;
    client.notification("notifications/tools/list_changed")?;
    let listed = client.request("3", "tools/list", &json!({}))?;
    assert!(!listed.text().contains("\"name\":\"echo\""), "{listed:?}");
    let denied = failure(&client.call("4", "echo", &json!({"text": "x"}))?)?;
    assert_eq!(denied["code"], "FORBIDDEN", "{denied}");
    let late = failure(&client.call("5", "hang", &json!({}))?)?;
    assert_eq!(late["code"], "TOOL_TIMEOUT", "{late}");
    assert_eq!(late["timeoutMs"], 5000, "{late}");
    let long = client.call("6", "big", &json!({"bytes": 50_000}))?;
    assert!(text(&long).len() < 4000, "it is cut: {long:?}");
    assert_eq!(only_server(&running)?, server, "nothing was started again");
    stop(running)
}

#[test]
fn a_replay_class_that_is_read_again_decides_about_the_next_loss() -> anyhow::Result<()> {
    let running = opened(&json!({}), "")?;
    let client = running.client()?;
    let crash = json!({"how": "kill"});
    let lost = failure(&client.call("1", "crash", &crash)?)?;
    assert_eq!(lost["fault"], "process", "{lost}");
    let rules = json!({"tools": {"append": {"replay": "convergent"}}});
    rewrite(&running, &rules)?;
    running.wait_for_line("mcp:config reread")?;
    let server = only_server(&running)?;
    let append = json!({"key": "k", "pause_after_ms": 4000});
    client.send(&wrapping::call("2", "append", &append))?;
    std::thread::sleep(Duration::from_millis(500));
    assert!(mainstay_testkit::process::kill(server));
    let answer = client.answer("2")?;
    assert_ne!(answer.at("/result/isError"), true, "{answer:?}");
    stop(running)
}

#[test]
fn a_mistake_leaves_the_configuration_as_it_was() -> anyhow::Result<()> {
    let running = opened(&json!({"tools": {"hang": {"timeout_ms": 300}}}), "")?;
    let client = running.client()?;
    rewrite(&running, &json!({"tiemout_ms": 1, "deny": ["echo"]}))?;
    let refused = running.wait_for_line("reason=config_refused")?;
    assert!(refused.contains("tiemout_ms"), "{refused}");
    assert!(refused.contains("servers.json"), "{refused}");
    echo(client, "1")?;
    let late = failure(&client.call("2", "hang", &json!({}))?)?;
    assert_eq!(late["timeoutMs"], 300, "{late}");
    stop(running)
}

#[test]
fn what_needs_a_restart_is_said() -> anyhow::Result<()> {
    let running = opened(&json!({}), "")?;
    rewrite(&running, &json!({"limits": {"queue": 3}, "lazy": true}))?;
    running.wait_for_line("reason=needs_restart what=limits")?;
    running.wait_for_line("reason=needs_restart what=lazy")?;
    running.wait_for_line("mcp:config reread")?;
    echo(running.client()?, "1")?;
    stop(running)
}
