//! OTLP's JSON: field names of the protocol, attribute names of the MCP conventions.

use mainstay_contract::trace::Hex;
use serde_json::{Value, json};

use super::histogram::{BOUNDS, Durations, Series};
use super::{Finished, OtlpConfig};

/// `SPAN_KIND_SERVER`.
const SERVER: u8 = 2;
/// `STATUS_CODE_ERROR`.
const FAILED: u8 = 2;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;

/// A post of spans.
pub(super) fn spans(config: &OtlpConfig, batch: &[Finished]) -> String {
    let spans: Vec<Value> = batch.iter().map(span).collect();
    json!({ "resourceSpans": [{
        "resource": resource(config),
        "scopeSpans": [{ "scope": scope(config), "spans": spans }],
    }] })
    .to_string()
}

fn span(finished: &Finished) -> Value {
    let context = &finished.span.context;
    let took = finished.latency_us.saturating_mul(1000);
    let begin = finished.end_ns.saturating_sub(took);
    let name = match &finished.tool {
        Some(tool) => format!("{} {tool}", finished.method),
        None => finished.method.clone(),
    };
    let mut attributes = attributes(&Series::of(finished));
    attributes.push(text("mcp.session.id", &finished.session));
    if let Some(id) = &finished.request_id {
        attributes.push(text("jsonrpc.request.id", id));
    }
    if let Some(code) = finished.error.as_ref().and_then(|error| error.code) {
        attributes.push(text("rpc.response.status_code", &code.to_string()));
    }
    if finished.attempt > 1 {
        attributes.push(number("io.mainstay.attempt", finished.attempt));
    }
    let mut span = json!({
        "traceId": Hex(&context.trace).to_string(),
        "spanId": Hex(&context.span).to_string(),
        "flags": context.flags,
        "name": name,
        "kind": SERVER,
        "startTimeUnixNano": begin.to_string(),
        "endTimeUnixNano": finished.end_ns.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = &finished.span.parent {
        insert(
            &mut span,
            "parentSpanId",
            Hex(&parent.span).to_string().into(),
        );
    }
    if let Some(error) = &finished.error {
        let status = json!({ "code": FAILED, "message": error.message });
        insert(&mut span, "status", status);
    }
    span
}

/// A post of durations.
pub(super) fn durations(config: &OtlpConfig, durations: &Durations) -> String {
    let points: Vec<Value> = durations
        .series
        .iter()
        .map(|(series, histogram)| {
            let counts: Vec<String> = histogram.counts.iter().map(u64::to_string).collect();
            json!({
                "attributes": attributes(series),
                "startTimeUnixNano": durations.since_ns.to_string(),
                "timeUnixNano": durations.until_ns.to_string(),
                "count": histogram.count.to_string(),
                "sum": histogram.sum,
                "bucketCounts": counts,
                "explicitBounds": BOUNDS,
            })
        })
        .collect();
    json!({ "resourceMetrics": [{
        "resource": resource(config),
        "scopeMetrics": [{ "scope": scope(config), "metrics": [{
            "name": "mcp.server.operation.duration",
            "description": "Time from a request to its answer.",
            "unit": "s",
            "histogram": { "aggregationTemporality": CUMULATIVE, "dataPoints": points },
        }] }],
    }] })
    .to_string()
}

/// Common attributes of the requests of a series.
fn attributes(series: &Series) -> Vec<Value> {
    let mut attributes = vec![text("mcp.method.name", &series.method)];
    if let Some(tool) = &series.tool {
        attributes.push(text("gen_ai.operation.name", "execute_tool"));
        attributes.push(text("gen_ai.tool.name", tool));
    }
    if let Some(error) = series.error {
        attributes.push(text("error.type", error));
    }
    attributes.push(text("network.transport", series.transport));
    if !series.protocol.is_empty() {
        attributes.push(text("network.protocol.name", series.protocol));
    }
    attributes
}

fn resource(config: &OtlpConfig) -> Value {
    let mut attributes = vec![
        text("service.name", &config.service),
        text("service.version", &config.version),
    ];
    let more = config.attributes.iter();
    attributes.extend(more.map(|(key, value)| text(key, value)));
    json!({ "attributes": attributes })
}

fn scope(config: &OtlpConfig) -> Value {
    json!({ "name": "mainstay", "version": config.version })
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u32) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn insert(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}
