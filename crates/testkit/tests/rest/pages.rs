//! What is only read: the catalog, schemas, OpenAPI, metrics; and what no route takes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::Serve;
use serde_json::{Value, json};

use crate::http::Host;

#[test]
fn the_catalog_is_that_of_the_envelope_dialect() -> anyhow::Result<()> {
    let host = Host::start(Serve::stdio()?.pack("asset"))?;
    let answer = host.get("/v1/tools")?;
    assert_eq!(answer.status, 200);
    let stdio = Serve::stdio()?.pack("asset").spawn()?;
    let client = stdio.client()?;
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"mcp.discover"}"#)?;
    let told = client.take("the catalog", |message| message.id() == Some("1"))?;
    assert_eq!(answer.json()?, told.at("/result/data"));
    stdio.stop()?;
    host.stop()
}

#[test]
fn routes_take_their_methods_and_nothing_else_is_served() -> anyhow::Result<()> {
    let host = Host::start(Serve::stdio()?.pack("asset"))?;
    for path in [
        "/v1/tools",
        "/v1/diagnostics",
        "/schemas/envelope.schema.json",
        "/openapi.json",
        "/metrics",
    ] {
        let (whole, head) = (host.get(path)?, host.ask("HEAD", path, &[], "")?);
        assert_eq!((whole.status, head.status), (200, 200), "{path}");
        assert_eq!(head.body, "");
        assert_eq!(head.header("content-type"), whole.header("content-type"));
        let refused = host.ask("POST", path, &[], "")?;
        assert_eq!(refused.status, 405);
        assert_eq!(refused.header("allow"), Some("GET, HEAD"));
        assert_eq!(refused.json()?["code"], "INVALID_REQUEST");
    }
    for path in ["/v1/tool/list_schemas", "/v1/invoke"] {
        let refused = host.get(path)?;
        assert_eq!(refused.status, 405);
        assert_eq!(refused.header("allow"), Some("POST"));
    }
    for path in [
        "/v1/tool/",
        "/v1/nothing",
        "/schemas/none.json",
        "/schemas/tools/none.json",
    ] {
        assert_eq!(host.get(path)?.status, 404, "{path}");
    }
    let foreign = host.ask("GET", "/v1/tools", &["Origin: http://evil.example"], "")?;
    assert_eq!(foreign.status, 403);
    host.stop()
}

#[test]
fn schemas_are_served_under_their_ids_and_tools_with_their_own() -> anyhow::Result<()> {
    let host = Host::start(Serve::stdio()?.pack("asset"))?;
    for file in ["envelope", "request", "response", "tool_io"] {
        let path = format!("/schemas/v1/{file}.schema.json");
        let answer = host.get(&path)?;
        assert_eq!(
            answer.header("content-type"),
            Some("application/schema+json")
        );
        let id = answer.json()?["$id"].clone();
        assert_eq!(id, format!("https://mainstay.dev{path}"));
        assert_eq!(host.get(&path.replace("/v1", ""))?.body, answer.body);
    }
    let tool = host.get("/schemas/tools/validate_asset.json")?.json()?;
    assert_eq!(tool["name"], "validate_asset");
    ensure!(tool["inputSchema"].is_object(), "{tool}");
    host.stop()
}

#[test]
fn the_description_names_only_schemas_that_are_served() -> anyhow::Result<()> {
    let host = Host::start(Serve::stdio()?.pack("asset"))?;
    let document = host.get("/openapi.json")?.json()?;
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], "1.0.0");
    let mut references = BTreeSet::new();
    collect(&document, &mut references);
    ensure!(references.len() > 5, "{references:?}");
    for reference in references {
        match reference.strip_prefix('#') {
            Some(pointer) => ensure!(document.pointer(pointer).is_some(), "{reference}"),
            // Relative to the document, so that it holds behind a proxy, too.
            None => assert_eq!(
                host.get(&format!("/{reference}"))?.status,
                200,
                "{reference}"
            ),
        }
    }
    host.stop()
}

fn collect(part: &Value, references: &mut BTreeSet<String>) {
    if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
        references.insert(reference.to_owned());
    }
    let members = part.as_object().into_iter().flat_map(|part| part.values());
    let items = part.as_array().into_iter().flatten();
    members
        .chain(items)
        .for_each(|part| collect(part, references));
}

/// The samples of a page, after a check of its form.
fn samples(page: &str) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut types = BTreeMap::new();
    let mut samples = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').context("a type")?;
            ensure!(types.insert(name, kind).is_none(), "{name} twice");
            ensure!((kind == "counter") == name.ends_with("_total"), "{line}");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').context("a sample")?;
        let family = name.split('{').next().unwrap_or_default();
        let of = ["_bucket", "_sum", "_count"].iter();
        let base = of.filter_map(|end| family.strip_suffix(end));
        let mut families = base.chain([family]);
        ensure!(families.any(|family| types.contains_key(family)), "{line}");
        let value: f64 = value.parse().with_context(|| line.to_owned())?;
        ensure!(
            samples.insert(name.to_owned(), value).is_none(),
            "{line} twice"
        );
    }
    Ok(samples)
}

#[test]
fn metrics_count_what_was_asked() -> anyhow::Result<()> {
    let host = Host::start(Serve::stdio()?.pack("asset"))?;
    for _ in 0..3 {
        host.call("list_schemas", &json!({}))?;
    }
    host.call("list_schemas", &json!({ "x": 1 }))?;
    let page = host.get("/metrics")?;
    let kind = page.header("content-type");
    assert_eq!(kind, Some("text/plain; version=0.0.4; charset=utf-8"));
    let samples = samples(&page.body)?;
    let count = |name: &str| {
        samples
            .get(name)
            .copied()
            .with_context(|| format!("no {name}"))
    };
    let requests = |outcome: &str| {
        count(&format!(
            r#"mainstay_requests_total{{method="tools/call",tool="list_schemas",outcome="{outcome}"}}"#
        ))
    };
    assert_eq!((requests("success")?, requests("error")?), (3.0, 1.0));
    let labels = r#"{mcp_method_name="tools/call",gen_ai_tool_name="list_schemas""#;
    let all = format!(r#"mcp_server_operation_duration_seconds_bucket{labels},le="+Inf"}}"#);
    assert_eq!(count(&all)?, 4.0);
    assert_eq!(count(r#"mainstay_workers{state="ready"}"#)?, 1.0);
    assert_eq!(
        count(r#"mainstay_envelope_validations_total{result="success"}"#)?,
        4.0
    );
    assert_eq!(
        count("mainstay_envelope_validation_duration_seconds_count")?,
        4.0
    );
    let http = |class| {
        count(&format!(
            r#"mainstay_http_requests_total{{route="/v1/tool/{{tool}}",status="{class}"}}"#
        ))
    };
    assert_eq!((http("2xx")?, http("4xx")?), (3.0, 1.0));
    assert_eq!(count("mainstay_http_requests_in_flight")?, 1.0);
    host.stop()
}
