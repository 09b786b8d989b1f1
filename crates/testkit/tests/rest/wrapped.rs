//! REST in front of a wrapped server, in both eras.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use mainstay_testkit::fixture::read_told;
use mainstay_testkit::process::binary;
use mainstay_testkit::wrapped::Fixture;
use serde_json::{Value, json};

use crate::http::{Host, envelope};

const ERAS: [&str; 3] = ["legacy", "modern", "both"];

fn fixture(options: &[&str]) -> anyhow::Result<Fixture> {
    let mainstay = binary("mainstay")?.into_os_string();
    let mut prefix = vec![
        mainstay,
        "wrap".into(),
        "--http".into(),
        "127.0.0.1:0".into(),
    ];
    prefix.extend(options.iter().map(Into::into));
    prefix.push("--".into());
    Fixture::after(prefix)
}

#[test]
fn tools_of_either_era_are_listed_and_called() -> anyhow::Result<()> {
    for era in ERAS {
        let options = format!("--era {era} --page 3");
        let host = Host::of(fixture(&[])?.options(&options).spawn()?)?;
        let catalog = host.get("/v1/tools")?.json()?;
        assert_eq!(catalog["server"]["name"], "mcp-fixture", "{era}");
        let tools = catalog["tools"].as_array().context("tools")?;
        ensure!(tools.len() > 20, "all pages: {}", tools.len());
        let echo = tools.iter().find(|tool| tool["name"] == "echo");
        assert_eq!(echo.context("echo")?["toolId"], "mcp.tool:echo");

        let plain = host.call("echo", &json!({ "text": "hi" }))?.json()?;
        assert_eq!(
            plain["data"],
            json!({"content": [{"type": "text", "text": "hi"}]})
        );
        let typed = host.call("typed", &json!({ "n": 1 }))?;
        assert_eq!(typed.status, 200, "{typed:?}");
        ensure!(
            typed.json()?["data"].get("content").is_none(),
            "structured: {typed:?}"
        );
        let response = host.post("/v1/invoke", &envelope("echo", &json!({ "text": "hi" })))?;
        assert_eq!(response.json()?["output"], plain["data"]);
        assert_eq!(
            host.get("/schemas/tools/echo.json")?.json()?["name"],
            "echo"
        );
        ensure!(
            host.get("/metrics")?
                .body
                .contains(r#"tool="echo",outcome="success"} 2"#)
        );
        host.stop()?;
    }
    Ok(())
}

#[test]
fn a_servers_errors_keep_its_words() -> anyhow::Result<()> {
    let host = Host::of(fixture(&[])?.options("--era legacy").spawn()?)?;
    let unknown = host.call("nope", &json!({}))?;
    assert_eq!(unknown.status, 400);
    let error = unknown.json()?["error"].clone();
    assert_eq!(error["code"], "INVALID_INPUT");
    assert_eq!(error["message"], "Unknown tool: nope");
    // What the server asks meanwhile is refused: this client offers nothing.
    let asked = host.call("ask_user", &json!({}))?;
    assert_eq!(asked.status, 502);
    let error = asked.json()?["error"].clone();
    assert_eq!(error["details"]["kind"], "backend_error");
    assert_eq!(error["details"]["details"]["isError"], true);
    assert_eq!(
        error["message"],
        error["details"]["details"]["content"][0]["text"]
    );
    host.stop()
}

#[test]
fn what_the_host_says_in_the_servers_place_is_its_own_row() -> anyhow::Result<()> {
    for era in ["legacy", "modern"] {
        let options = ["--timeout", "0.5"];
        let host = Host::of(
            fixture(&options)?
                .options(&format!("--era {era}"))
                .spawn()?,
        )?;
        let late = host.call("hang", &json!({}))?;
        assert_eq!(late.status, 504, "{late:?}");
        let error = late.json()?["error"].clone();
        assert_eq!(error["details"]["kind"], "timeout");
        assert_eq!(error["details"]["timeoutMs"], 500);
        let lost = host.call("crash", &json!({}))?.json()?;
        let kind = &lost["error"]["details"]["kind"];
        ensure!(
            kind == "outcome_unknown" || kind == "call_kills_worker",
            "{lost}"
        );
        let next = host.call("echo", &json!({ "text": "still here" }))?;
        assert_eq!(next.status, 200, "{next:?}");
        host.stop()?;
    }
    Ok(())
}

#[test]
fn a_client_that_goes_away_cancels_its_call() -> anyhow::Result<()> {
    for era in ["legacy", "modern"] {
        let fixture = fixture(&[])?.options(&format!("--era {era}"));
        let state = fixture.state();
        let host = Host::of(fixture.spawn()?)?;
        let body = r#"{"arguments":{}}"#;
        let stream = host.send(&format!(
            "POST /v1/tool/hang HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            host.address,
            body.len()
        ))?;
        wait_for_line(&state, "tools/call")?;
        drop(stream);
        wait_for_line(&state, "notifications/cancelled")?;
        assert_eq!(host.call("echo", &json!({ "text": "x" }))?.status, 200);
        ensure!(!host.running().stderr().join("\n").contains("worker lost"));
        host.stop()?;
    }
    Ok(())
}

fn wait_for_line(state: &std::path::Path, text: &str) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_secs(120);
    while Instant::now() < until {
        let told = read_told(state).unwrap_or_default();
        if told.iter().any(|told| format!("{told:?}").contains(text)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("the server was never told {text}")
}

#[test]
fn text_is_what_a_person_would_be_shown() -> anyhow::Result<()> {
    let host = Host::of(fixture(&[])?.spawn()?)?;
    let headers = ["Content-Type: application/json", "Accept: text/plain"];
    let body = json!({ "arguments": { "text": "hi" } }).to_string();
    let answer = host.ask("POST", "/v1/tool/echo", &headers, &body)?;
    assert_eq!(answer.body, "hi");
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let refused = host.ask("POST", "/v1/tool/nope", &headers, &body)?;
    let error: Value = refused.json()?;
    assert_eq!(error["ok"], false);
    host.stop()
}
