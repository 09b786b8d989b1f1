//! Envelopes of real hosts: the mode they are checked in, and secrets that are written nowhere.

use std::fs;

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::{Running, Serve, TempDir};
use serde_json::{Value, json};

/// What `system_telemetry` says, in an envelope.
fn telemetry(host: &Running) -> anyhow::Result<Value> {
    let client = host.client()?;
    client.send(
        r#"{"jsonrpc":"2.0","id":"t","method":"mcp.tool.invoke","params":{"toolId":"mcp.tool:system_telemetry"}}"#,
    )?;
    let answer = client.take("telemetry", |message| message.id() == Some("\"t\""))?;
    Ok(answer.at("/result/data"))
}

fn mode(serve: Serve) -> anyhow::Result<Value> {
    let host = serve.pack("asset").spawn()?;
    let told = telemetry(&host)?;
    host.stop()?;
    let mode = told.pointer("/envelopes/mode").cloned();
    mode.with_context(|| format!("no mode in {told}"))
}

fn configured(serve: Serve) -> anyhow::Result<Serve> {
    let config = serve.folder().join("config.toml");
    fs::write(&config, "envelopes = \"off\"\n").context("writing the configuration")?;
    Ok(serve.argument("--config").argument(config))
}

#[test]
fn the_mode_is_shadow_unless_file_environment_or_option_say_otherwise() -> anyhow::Result<()> {
    let variable = "MAINSTAY_ENVELOPE_VALIDATION";
    assert_eq!(mode(Serve::stdio()?)?, "shadow");
    assert_eq!(mode(configured(Serve::stdio()?)?)?, "off");
    let serve = configured(Serve::stdio()?)?.env(variable, "enforce");
    assert_eq!(mode(serve)?, "enforce", "the environment before the file");
    let serve = Serve::stdio()?
        .env(variable, "off")
        .argument("--envelopes")
        .argument("shadow");
    assert_eq!(mode(serve)?, "shadow", "the option before the environment");
    Ok(())
}

#[test]
fn in_enforce_mode_every_valid_envelope_is_sent_and_counted() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.argument("--envelopes").argument("enforce");
    let host = serve.pack("asset").spawn()?;
    let client = host.client()?;
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"mcp.discover"}"#)?;
    let catalog = client.take("the catalog", |message| message.id() == Some("1"))?;
    ensure!(catalog.at("/result/ok") == json!(true), "{catalog:?}");
    let checks = telemetry(&host)?["envelopes"].clone();
    assert_eq!(checks["success_count"], 1);
    assert_eq!(checks["failure_count"], 0);
    host.stop()
}

#[test]
fn a_clients_secrets_are_in_no_event_no_diagnostic_and_no_log_line() -> anyhow::Result<()> {
    const SECRET: &str = "s3cr3t";
    let folder = TempDir::new()?;
    let file = folder.join("events.jsonl");
    let serve = Serve::stdio()?
        .argument("--telemetry")
        .argument(&file)
        .argument("--log")
        .argument("debug");
    let host = serve.pack("asset").spawn()?;
    let client = host.client()?;
    let requests = [
        format!(r#"{{"jsonrpc":"2.0","id":"Bearer {SECRET}","method":"list_schemas"}}"#),
        format!(
            r#"{{"jsonrpc":"2.0","id":"api_key={SECRET}","method":"list_schemas","params":{{"password={SECRET}":1}}}}"#
        ),
        format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"mcp.tool.invoke","params":{{"toolId":"mcp.tool:list_schemas","arguments":{{"Authorization: Bearer {SECRET}":1}}}}}}"#
        ),
    ];
    for request in &requests {
        client.send(request)?;
        client.next()?;
    }
    let told = telemetry(&host)?;
    let kept = told["schema_mismatches"].as_array().context("a list")?;
    assert_eq!(kept.len(), 2, "{told}");
    ensure!(!told.to_string().contains(SECRET), "{told}");
    let said = host.stderr().join("\n");
    ensure!(!said.contains(SECRET), "{said}");
    host.stop()?;
    let events = fs::read_to_string(&file).context("reading the events")?;
    ensure!(events.contains("[redacted]"), "{events}");
    ensure!(!events.contains(SECRET), "{events}");
    Ok(())
}
