//! What a collector of spans and durations is told, read with OpenTelemetry's own message types.

#![expect(clippy::print_stdout, reason = "what is skipped is said")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Request};
use mainstay_testkit::judge::python;
use mainstay_testkit::process::{Serve, workspace};
use serde_json::{Value, json};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A collector that runs.
struct Collector {
    child: Child,
    port: u16,
    posts: BufReader<std::process::ChildStdout>,
}

impl Collector {
    /// `None`, with a word, where the types are not installed.
    fn start() -> anyhow::Result<Option<Self>> {
        let Some(mut python) = python()? else {
            println!("SKIPPED: OpenTelemetry's types are not installed (cargo xtask tools)");
            return Ok(None);
        };
        let script = workspace()?.join("tests/conformance/otlp_collector.py");
        let mut child = python
            .arg(script)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the collector")?;
        let stdout = child.stdout.take().context("no output")?;
        let mut posts = BufReader::new(stdout);
        let mut port = String::new();
        posts.read_line(&mut port)?;
        let port = port.trim().parse().context("the collector's port")?;
        Ok(Some(Self { child, port, posts }))
    }

    /// Everything that was posted, once nobody posts any more.
    fn finish(mut self) -> anyhow::Result<Vec<Value>> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status()?;
        let mut posted = Vec::new();
        for line in self.posts.lines() {
            posted.push(serde_json::from_str(&line?)?);
        }
        let status = self.child.wait()?;
        ensure!(
            status.success(),
            "the collector could not read a post: {status}"
        );
        Ok(posted)
    }
}

fn found(posted: &[Value], path: &str) -> Vec<Value> {
    let posts = posted.iter().filter(|post| post["path"] == path);
    let found = posts.flat_map(|post| post["found"].as_array().cloned().unwrap_or_default());
    found.collect()
}

fn call(id: u64, tool: &str, arguments: &Value, flags: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": tool, "arguments": arguments,
        "_meta": {"traceparent": format!("00-{TRACE}-{PARENT}-{flags}")},
    }})
    .to_string()
}

#[test]
fn every_request_is_a_span_of_its_clients_trace() -> anyhow::Result<()> {
    let Some(collector) = Collector::start()? else {
        return Ok(());
    };
    let host = Serve::stdio()?
        .ledger()?
        .env(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            format!("http://127.0.0.1:{}", collector.port),
        )
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=s3cret")
        .env("OTEL_SERVICE_NAME", "ledgers")
        .spawn()?;
    let client = host.client()?;
    client.send(&call(1, "get", &json!({}), "01"))?;
    client.send(&call(2, "get", &json!({"surprise": 1}), "01"))?;
    client.send(&call(3, "nowhere", &json!({}), "01"))?;
    client.send(&call(4, "get", &json!({}), "00"))?;
    client.send(r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#)?;
    let (answers, stderr) = host.finish()?;
    ensure!(answers.len() == 5, "{answers:?}");
    ensure!(
        !stderr.iter().any(|line| line.contains("s3cret")),
        "{stderr:?}"
    );
    let posted = collector.finish()?;
    ensure!(
        posted.iter().all(|post| post["key"] == "s3cret"),
        "{posted:?}"
    );

    let spans = found(&posted, "/v1/traces");
    let span = |id: &str| {
        let mut spans = spans.iter();
        let span = spans.find(|span| span["attributes"]["jsonrpc.request.id"] == id);
        span.cloned()
            .with_context(|| format!("no span of {id} in {spans:?}"))
    };
    let good = span("1")?;
    assert_eq!(good["name"], "tools/call get");
    assert_eq!(
        (&good["traceId"], &good["parentSpanId"]),
        (&json!(TRACE), &json!(PARENT))
    );
    assert_ne!(good["spanId"], PARENT);
    assert_eq!(good["kind"], 2);
    assert_eq!(good["status"], Value::Null);
    assert_eq!(good["resource"]["service.name"], "ledgers");
    let attributes = &good["attributes"];
    for (name, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "get"),
        ("network.transport", "pipe"),
    ] {
        assert_eq!(attributes[name], value);
    }
    let refused = span("2")?;
    assert_eq!(refused["attributes"]["error.type"], "tool_error");
    assert_eq!(refused["status"]["code"], 2);
    let unknown = span("3")?;
    assert_eq!(
        unknown["name"], "tools/call",
        "names that clients make up are no names"
    );
    assert_eq!(unknown["attributes"]["error.type"], "unknown_tool");
    assert_eq!(unknown["attributes"]["rpc.response.status_code"], "-32602");
    assert!(span("4").is_err(), "its client does not record it");
    let root = span("5")?;
    assert_eq!(root["parentSpanId"], Value::Null);
    assert_ne!(root["traceId"], TRACE);

    let durations = found(&posted, "/v1/metrics");
    let counted: u64 = durations
        .iter()
        .filter_map(|point| point["count"].as_str()?.parse::<u64>().ok())
        .sum();
    assert_eq!(counted, 4);
    assert!(
        durations.iter().all(|point| {
            point["name"] == "mcp.server.operation.duration" && point["unit"] == "s"
        })
    );
    Ok(())
}

#[test]
fn requests_over_rest_belong_to_the_trace_that_they_name() -> anyhow::Result<()> {
    let Some(collector) = Collector::start()? else {
        return Ok(());
    };
    let host = Serve::http()?
        .ledger()?
        .env(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            format!("http://127.0.0.1:{}", collector.port),
        )
        .spawn()?;
    let address = host.address()?;
    let tool = Request::to(address, "POST", "/v1/tool/get")
        .header("Content-Type", "application/json")
        .header("traceparent", &format!("00-{TRACE}-{PARENT}-01"))
        .body("{}");
    ensure!(Connection::open(address)?.ask(&tool)?.status() == 200);
    let envelope = json!({"id": "e1", "version": "1.0.0", "timestamp": "2026-01-01T00:00:00Z",
        "tool": "get", "trace_id": TRACE, "payload": {}});
    let invoke = Request::to(address, "POST", "/v1/invoke")
        .header("Content-Type", "application/json")
        .body(envelope.to_string());
    let answer = Connection::open(address)?.ask(&invoke)?;
    ensure!(answer.json()?["trace_id"] == TRACE, "{}", answer.text());
    host.stop()?;
    let spans = found(&collector.finish()?, "/v1/traces");
    ensure!(spans.len() == 2, "{spans:?}");
    for span in &spans {
        assert_eq!(span["traceId"], TRACE);
        assert_eq!(span["name"], "tools/call get");
        assert_eq!(span["attributes"]["network.transport"], "tcp");
        assert_eq!(span["attributes"]["network.protocol.name"], "http");
    }
    assert_eq!(spans[0]["parentSpanId"], PARENT);
    assert_eq!(spans[1]["attributes"]["jsonrpc.request.id"], "e1");
    Ok(())
}

#[test]
fn a_collector_that_is_gone_costs_nothing_but_a_warning() -> anyhow::Result<()> {
    let host = Serve::stdio()?
        .ledger()?
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        .spawn()?;
    let client = host.client()?;
    for id in 0..50 {
        client.send(&call(id, "get", &json!({}), "01"))?;
    }
    host.wait_for_line("reason=spans_lost")?;
    let (answers, stderr) = host.finish()?;
    ensure!(answers.len() == 50, "{}", answers.len());
    let warnings = stderr.iter().filter(|line| line.contains("spans_lost"));
    assert_eq!(warnings.count(), 1, "one a minute");
    Ok(())
}
