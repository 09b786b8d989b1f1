//! Errors that hosts make themselves: refusals, losses, limits. Each is caused for real.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context as _, bail};
use mainstay_testkit::http::Session;
use mainstay_testkit::process::{Launch, Serve, binary};
use serde_json::{Value, json};

use super::ways::{Said, Ways, call};
use crate::http::{Host, envelope};

/// Short times, and no second attempts.
const LIMITS: &str = "call_timeout_ms = 600, replays = 0, restarts = 1000, backoff_min_ms = 0, \
    backoff_max_ms = 0, worker_frame_bytes = 65536";
/// The same with time for a slow machine, where no timeout is wanted.
const PATIENT: &str = "call_timeout_ms = 60000, replays = 0, restarts = 1000, backoff_min_ms = 0, \
    backoff_max_ms = 0, worker_frame_bytes = 65536";
/// Longer than a test waits.
const LONG: u64 = 60_000;

/// A tool, its arguments, and the kind of error that it ends with.
type Case = (&'static str, Value, &'static str);

fn packs(serve: Serve, mode: &str, limits: &str) -> anyhow::Result<Serve> {
    serve
        .pack("asset")
        .ledger()?
        .misbehaving(mode)?
        .limits(limits)
}

/// The words with which `mainstay call` makes the same host for itself.
fn own_host(serve: &Serve) -> anyhow::Result<Vec<OsString>> {
    let whole = serve.command()?;
    let words = whole.get_args().filter(|word| *word != "serve");
    Ok(words.map(OsString::from).collect())
}

/// Compares cases that come out the same however often they are called.
fn all(mode: &str, limits: &str, cases: &[Case]) -> anyhow::Result<()> {
    let mut ways = Ways::start(|serve| packs(serve, mode, limits))?;
    for (tool, arguments, kind) in cases {
        let case = || format!("{mode}: {tool} {kind}");
        let said = ways.programs(tool, arguments).with_context(case)?;
        assert_eq!(said.kind().row().name, *kind, "{}", said.payload());
        ways.commands(&said, tool, arguments).with_context(case)?;
        let serve = packs(Serve::stdio()?, mode, limits)?;
        let command = call(tool, arguments, own_host(&serve)?)?;
        said.is_printed(command).with_context(case)?;
    }
    ways.stop()
}

#[test]
fn refusals_and_failures_of_tools() -> anyhow::Result<()> {
    all(
        "honest",
        LIMITS,
        &[
            ("nope", json!({}), "unknown_tool"),
            ("get", json!({ "key": "none" }), "not_found"),
            ("wait", json!({ "ms": 0, "fail": "problem" }), "unsupported"),
            ("wait", json!({ "ms": 0, "fail": "panic" }), "tool_panicked"),
            ("wait", json!({ "ms": LONG }), "timeout"),
        ],
    )
}

#[test]
fn arguments_that_do_not_fit() -> anyhow::Result<()> {
    let cases = [("diff_assets", json!({ "base": 1 }), "invalid_arguments")];
    all("honest", LIMITS, &cases)
}

#[test]
fn losses_of_workers() -> anyhow::Result<()> {
    let lost = [
        ("once", json!({}), "outcome_unknown"),
        ("again", json!({}), "call_kills_worker"),
    ];
    all("die-on-call", PATIENT, &lost)
}

#[test]
fn answers_that_cannot_be_used() -> anyhow::Result<()> {
    for (mode, kind) in [
        ("oversize-answer", "answer_too_large"),
        ("bare-answer", "invalid_output"),
        ("wrong-answer", "worker_protocol"),
    ] {
        all(mode, PATIENT, &[("once", json!({}), kind)])?;
    }
    Ok(())
}

#[test]
fn requests_over_the_limit() -> anyhow::Result<()> {
    let limits = "request_frame_bytes = 65536";
    let large = json!({ "key": "x".repeat(80 << 10) });
    all("honest", limits, &[("get", large, "frame_too_large")])
}

#[test]
fn workers_that_do_not_come_back() -> anyhow::Result<()> {
    let limits = "restarts = 1, restart_period_ms = 600000, backoff_min_ms = 0, backoff_max_ms = 0";
    for (mode, kind) in [
        ("exit-later", "worker_unavailable"),
        ("unable-later", "worker_setup"),
    ] {
        let mut ways = Ways::start(|serve| serve.misbehaving(mode)?.limits(limits))?;
        let nothing = json!({});
        for _ in 0..3 {
            ways.everywhere("once", &nothing)?;
        }
        let said = ways.programs("once", &nothing).context(mode)?;
        assert_eq!(said.kind().row().name, kind, "{}", said.payload());
        ways.commands(&said, "once", &nothing).context(mode)?;
        ways.stop()?;
    }
    Ok(())
}

#[test]
fn hosts_that_are_full() -> anyhow::Result<()> {
    let limits = "pool = 1, queue = 1";
    let mut ways = Ways::start(|serve| packs(serve, "honest", limits))?;
    let _held = ways.occupy("wait", &json!({ "ms": LONG }), 2)?;
    let at_once = json!({ "ms": 0 });
    let said = ways.programs("wait", &at_once)?;
    assert_eq!(said.kind().row().name, "overloaded", "{}", said.payload());
    ways.commands(&said, "wait", &at_once)
}

#[test]
fn hosts_that_are_stopping() -> anyhow::Result<()> {
    let mut ways = Ways::start(|serve| packs(serve, "honest", "drain_ms = 60000"))?;
    let _held = ways.occupy("wait", &json!({ "ms": LONG }), 1)?;
    let mut kept = ways.begin_to_stop()?;
    let said = ways.programs_that_stayed(&mut kept, "wait", &json!({ "ms": 0 }))?;
    assert_eq!(
        said.kind().row().name,
        "shutting_down",
        "{}",
        said.payload()
    );
    Ok(())
}

/// Who denies a tool is a wrapped server's host, which adds no methods of its own to what its
/// clients can ask.
#[test]
fn tools_that_are_denied() -> anyhow::Result<()> {
    let wrap = |more: &[&str]| -> anyhow::Result<Launch> {
        let mut words = vec![binary("mainstay")?.into_os_string(), "wrap".into()];
        words.extend(more.iter().map(OsString::from));
        words.extend(["--deny", "echo", "--"].map(OsString::from));
        words.push(binary("mcp-fixture")?.into_os_string());
        Launch::new(words)
    };
    let host = Host::of(wrap(&["--http", "127.0.0.1:0"])?.spawn()?)?;
    let arguments = json!({ "text": "hi" });
    let answer = host.call("echo", &arguments)?;
    let said = Said::of(&answer.json()?)?;
    assert_eq!(said.kind().row().name, "forbidden");
    assert_eq!(answer.status, 403);
    let response = host.post("/v1/invoke", &envelope("echo", &arguments))?;
    assert_eq!(response.status, 403);
    let error = &response.json()?["errors"][0];
    assert_eq!(error["detail"], answer.json()?["error"]["details"]);
    let session = Session::open(host.address.parse()?)?;
    said.is_mcp(&session.call("1", "echo", &arguments)?)?;
    let url = ["--url".into(), host.url().into()];
    said.is_printed(call("echo", &arguments, url)?)?;
    host.stop()?;

    let mut stdio = wrap(&[])?.spawn()?;
    let client = stdio.take_client()?;
    client.open(&json!({}))?;
    said.is_mcp(&client.call("1", "echo", &arguments)?.value())?;
    drop(client);
    stdio.stop()
}

#[test]
fn a_name_that_is_no_identifier_is_refused_in_the_words_of_the_envelope_dialect()
-> anyhow::Result<()> {
    let host = Host::start(Serve::stdio()?.pack("asset"))?;
    let answer = host.call("no%20tool", &json!({}))?;
    assert_eq!(answer.status, 400);
    let stdio = Serve::stdio()?.pack("asset").spawn()?;
    let params = json!({ "toolId": "mcp.tool:no tool", "arguments": {} });
    let invoked = stdio.client()?.request("1", "mcp.tool.invoke", &params)?;
    assert_eq!(answer.json()?["error"], invoked.at("/result/error"));
    stdio.stop()?;
    host.stop()
}

#[test]
fn a_pack_that_rests_says_for_how_long() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.misbehaving("exit-later")?;
    let host = Host::start(serve.limits("restarts = 0, rest_ms = 300000")?)?;
    // The first worker dies of the call, the second at its start.
    let answer = host.call("again", &json!({}))?;
    assert_eq!(answer.status, 503, "{answer:?}");
    let seconds = answer.header("retry-after").context("a header")?;
    let seconds: u64 = seconds.parse()?;
    assert!((60..=300).contains(&seconds), "{seconds}");
    host.stop()
}

#[test]
fn a_full_host_serves_again_when_those_who_waited_have_gone() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.ledger()?.limits("pool = 1, queue = 1")?;
    let host = Host::start(serve)?;
    // Those who close their connections cancel their calls, so that the end need not wait.
    let waiting = host.occupy("wait", &json!({ "ms": LONG }), 2)?;
    let answer = host.call("wait", &json!({ "ms": 0 }))?;
    assert_eq!(answer.header("retry-after"), Some("1"));
    drop(waiting);
    for _ in 0..250 {
        if host.call("wait", &json!({ "ms": 0 }))?.status == 200 {
            return host.stop();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("calls of clients that have gone still run")
}
