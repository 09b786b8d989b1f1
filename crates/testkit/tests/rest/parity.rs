//! Every error row that can be reached from outside is the same in every way.

use std::process::Command;

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::{Running, Serve, TempDir, binary};
use serde_json::{Value, json};

use crate::http::{Host, envelope};

/// Short times, and no second attempts.
const LIMITS: &str = "call_timeout_ms = 600, replays = 0, restarts = 1000, backoff_min_ms = 0, \
    backoff_max_ms = 0, worker_frame_bytes = 65536";

/// A tool, its arguments, and the kind of error that it ends with.
type Case = (&'static str, Value, &'static str);

fn packs(serve: Serve, mode: &str) -> anyhow::Result<Serve> {
    serve
        .pack("asset")
        .ledger()?
        .misbehaving(mode)?
        .limits(LIMITS)
}

/// What `mcp.tool.invoke` says is wrong.
fn invoked(host: &mut Running, (tool, arguments, _): &Case) -> anyhow::Result<Value> {
    let client = host.take_client()?;
    let params = json!({ "toolId": format!("mcp.tool:{tool}"), "arguments": arguments });
    let line = json!({ "jsonrpc": "2.0", "id": 1, "method": "mcp.tool.invoke", "params": params });
    client.send(&line.to_string())?;
    let answer = client.take("the envelope", |message| message.id() == Some("1"))?;
    Ok(answer.at("/result/error"))
}

/// What the command line says, on either stream.
fn called(serve: &Serve, (tool, arguments, _): &Case) -> anyhow::Result<(String, String)> {
    let whole = serve.command()?;
    let mut words = whole.get_args().filter(|word| *word != "serve");
    let mut command = Command::new(binary("mainstay")?);
    command.arg("call").arg(tool).arg(arguments.to_string());
    command.args(["--render", "json"]);
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        command.arg(name).arg(value);
    }
    let output = command.output().context("running mainstay call")?;
    ensure!(output.status.code() != Some(0), "{output:?}");
    Ok((
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?,
    ))
}

fn check(host: &Host, case: &Case, mode: &str) -> anyhow::Result<()> {
    let (tool, arguments, kind) = case;
    let answer = host.call(tool, arguments)?;
    let error = answer.json()?["error"].clone();
    let details = &error["details"];
    assert_eq!(details["kind"], *kind, "{error}");
    assert_eq!(error["code"], details["canonical"]);
    assert_eq!(details["httpStatus"], answer.status);
    let retry = answer.header("retry-after").is_some();
    let wants_retry = matches!(answer.status, 429 | 503) && details["retryable"] == true;
    assert_eq!(retry, wants_retry, "{answer:?}");

    let response = host.post("/v1/invoke", &envelope(tool, arguments))?;
    assert_eq!(response.status, answer.status, "{response:?}");
    let response = response.json()?;
    assert_eq!(response["status"]["http"], answer.status);
    let said = &response["errors"][0];
    assert_eq!(said["message"], error["message"]);
    assert_eq!(said["detail"], *details);
    assert_eq!(said["code"], details["code"]);

    for serve in [Serve::stdio()?, Serve::socket()?] {
        let mut other = packs(serve, mode)?.spawn()?;
        assert_eq!(invoked(&mut other, case)?, error);
        other.stop()?;
    }
    let (stdout, stderr) = called(&packs(Serve::stdio()?, mode)?, case)?;
    if *kind == "unknown_tool" {
        // It looks for the tool itself, so that it can say what was meant.
        ensure!(stderr.contains("there is no tool \"nope\""), "{stderr}");
        return Ok(());
    }
    let payload: Value = serde_json::from_str(&stdout).with_context(|| stderr)?;
    let payload = payload.as_object().context("a payload")?;
    for (name, value) in payload {
        let same = match name.as_str() {
            "message" => &error["message"],
            name => &details[name],
        };
        assert_eq!(value, same, "{name}");
    }
    assert_eq!(payload.get("code"), Some(&details["code"]));
    Ok(())
}

fn all(mode: &str, cases: &[Case]) -> anyhow::Result<()> {
    let host = Host::start(packs(Serve::stdio()?, mode)?)?;
    for case in cases {
        check(&host, case, mode).with_context(|| format!("{mode}: {case:?}"))?;
    }
    host.stop()
}

#[test]
fn refusals_and_failures_of_tools_are_the_same_in_every_way() -> anyhow::Result<()> {
    all(
        "honest",
        &[
            ("nope", json!({}), "unknown_tool"),
            ("diff_assets", json!({ "base": 1 }), "invalid_arguments"),
            ("get", json!({ "key": "none" }), "not_found"),
            ("wait", json!({ "ms": 0, "fail": "problem" }), "unsupported"),
            ("wait", json!({ "ms": 0, "fail": "panic" }), "tool_panicked"),
            ("wait", json!({ "ms": 60_000 }), "timeout"),
        ],
    )
}

#[test]
fn losses_of_workers_are_the_same_in_every_way() -> anyhow::Result<()> {
    let lost = [
        ("once", json!({}), "outcome_unknown"),
        ("again", json!({}), "replay_exhausted"),
    ];
    all("die-on-call", &lost)
}

#[test]
fn answers_that_cannot_be_used_are_the_same_in_every_way() -> anyhow::Result<()> {
    all(
        "oversize-answer",
        &[("once", json!({}), "answer_too_large")],
    )
}

#[test]
fn a_name_that_is_no_identifier_is_refused_in_the_words_of_the_envelope_dialect()
-> anyhow::Result<()> {
    let host = Host::start(Serve::stdio()?.pack("asset"))?;
    let answer = host.call("no%20tool", &json!({}))?;
    assert_eq!(answer.status, 400);
    let mut stdio = Serve::stdio()?.pack("asset").spawn()?;
    let case = ("no tool", json!({}), "invalid_params");
    assert_eq!(answer.json()?["error"], invoked(&mut stdio, &case)?);
    stdio.stop()?;
    host.stop()
}

#[test]
fn a_full_host_turns_calls_away_with_an_envelope_and_a_time() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let file = folder.join("limits.toml");
    std::fs::write(&file, "[limits]\npool = 1\nqueue = 1\n")?;
    let serve = Serve::stdio()?.ledger()?;
    let host = Host::start(serve.argument("--config").argument(file))?;
    let body = r#"{"arguments":{"ms":60000}}"#;
    let request = format!(
        "POST /v1/tool/wait HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        host.address,
        body.len()
    );
    // Those who close their connections cancel their calls, so that the end need not wait.
    let waiting = [host.send(&request)?, host.send(&request)?];
    let mut answer = host.call("wait", &json!({ "ms": 0 }))?;
    for _ in 0..50 {
        if answer.status == 429 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        answer = host.call("wait", &json!({ "ms": 0 }))?;
    }
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.json()?["error"]["details"]["kind"], "overloaded");
    drop(waiting);
    for _ in 0..250 {
        answer = host.call("wait", &json!({ "ms": 0 }))?;
        if answer.status == 200 {
            return host.stop();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    anyhow::bail!("calls of clients that have gone still run: {answer:?}")
}
