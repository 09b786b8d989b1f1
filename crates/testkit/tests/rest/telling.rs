//! What operators are told about requests over HTTP: under their clients' own names.

use std::net::SocketAddr;

use anyhow::Context as _;
use mainstay_testkit::http::{Connection, modern};
use mainstay_testkit::process::{Serve, TempDir};
use serde_json::{Value, json};

use crate::http::Host;

fn requests(file: &std::path::Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).context("reading the events")?;
    let events = text.lines().map(serde_json::from_str::<Value>);
    let events = events.collect::<Result<Vec<_>, _>>()?;
    let is_request = |event: &Value| event["event"] == "request";
    Ok(events.into_iter().filter(is_request).collect())
}

#[test]
fn modern_requests_are_recorded_under_the_ids_of_their_clients() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let file = folder.join("events.jsonl");
    let serve = Serve::stdio()?.pack("asset").argument("--telemetry");
    let host = Host::start(serve.argument(&file))?;
    let address: SocketAddr = host.address.parse()?;
    let params = json!({ "name": "list_schemas", "arguments": {} });
    // Two clients may well use the same id.
    let ids = ["\"client-1\"", "7", "7"];
    for id in ids {
        let answer = Connection::open(address)?.ask(&modern(address, id, "tools/call", &params))?;
        let answer = answer.messages()?.remove(0);
        assert_eq!(answer["id"], serde_json::from_str::<Value>(id)?);
    }
    host.stop()?;
    let recorded = requests(&file)?;
    let of = |method: &str| -> Vec<String> {
        let of = recorded.iter().filter(|event| event["method"] == method);
        of.map(|event| event["request_id"].to_string()).collect()
    };
    let text = |id: &str| serde_json::to_string(id);
    let expected = ids.map(text).into_iter().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(of("tools/call"), expected);
    // The host itself asks once which arguments stand in headers, and says that it is the host.
    assert_eq!(of("tools/list"), [text("\"headers\"")?]);
    Ok(())
}

#[test]
fn an_envelope_names_the_trace_that_its_client_is_in() -> anyhow::Result<()> {
    let host = Host::start(Serve::stdio()?.pack("asset"))?;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01");
    let headers = ["Content-Type: application/json", &parent];
    let answer = host.ask("POST", "/v1/tool/list_schemas", &headers, "{}")?;
    assert_eq!(answer.json()?["meta"]["traceId"], trace);
    let without = host.call("list_schemas", &json!({}))?.json()?;
    assert_ne!(without["meta"]["traceId"], trace);
    host.stop()
}

#[test]
fn refused_request_envelopes_are_in_diagnostics_and_no_failures_of_the_host() -> anyhow::Result<()>
{
    let host = Host::start(Serve::stdio()?.pack("asset").limits("diagnostics = 2")?)?;
    let mut bad = crate::http::envelope("list_schemas", &json!({}));
    for (name, value) in [
        ("timestamp", json!("noon")),
        ("tool", json!("a b")),
        ("password=hunter2", json!(1)),
    ] {
        let mut request = bad.clone();
        request[name] = value;
        assert_eq!(host.post("/v1/invoke", &request)?.status, 400);
    }
    bad["payload"] = json!({});
    assert_eq!(host.post("/v1/invoke", &bad)?.status, 200);
    let diagnostics = host.get("/v1/diagnostics")?;
    let told = diagnostics.json()?;
    let mismatches = told["schema_mismatches"].as_array().context("mismatches")?;
    assert_eq!(mismatches.len(), 2, "the limit: {told}");
    assert_eq!(mismatches[0]["path"], "/tool", "{told}");
    assert_eq!(mismatches[0]["side"], "envelope", "{told}");
    assert_eq!(mismatches[0]["tool"], "invocation", "{told}");
    assert!(!diagnostics.body.contains("hunter2"), "{told}");
    // Four answers, three of them refusals; the requests themselves are not the host's.
    assert_eq!(told["envelopes"]["failure_count"], 0, "{told}");
    assert_eq!(told["envelopes"]["success_count"], 4, "{told}");
    host.stop()
}
