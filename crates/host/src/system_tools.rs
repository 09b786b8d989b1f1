//! The host's own two tools, answered even when every worker is down.

use mainstay_contract::health::Health;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::ToolReply;
use mainstay_contract::render::{Bounds, Porcelain, RenderMode, count};
use mainstay_contract::replay::Replay;
use mainstay_contract::telemetry::Telemetry;
use mainstay_contract::tool::{Annotations, ToolSpec};
use serde_json::{Value, json};

/// The name of the health tool.
pub(crate) const HEALTH: &str = "system_health";
/// The name of the telemetry tool.
pub(crate) const TELEMETRY: &str = "system_telemetry";

/// Their contracts.
pub(crate) fn specs(tooling_version: &str) -> Vec<ToolSpec> {
    let spec = |name: &str, description: &str, output: Value| ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: json!({ "type": "object", "properties": {}, "additionalProperties": false }),
        output_schema: Some(output),
        annotations: Annotations::READ_ONLY,
        schema_version: 1,
        tooling_version: tooling_version.to_owned(),
        replay: Replay::Convergent,
        timeout_ms: None,
        errors: Vec::new(),
        aliases: Vec::new(),
        argument_aliases: Vec::new(),
    };
    vec![
        spec(
            HEALTH,
            "Health of the host and of each worker: state, generation, restarts, last fault.",
            health_schema(),
        ),
        spec(
            TELEMETRY,
            "Counts, latencies and last errors of every method and tool since the host started.",
            telemetry_schema(),
        ),
    ]
}

fn health_schema() -> Value {
    let state = json!({ "enum": ["ready", "cold", "starting", "recovering", "failed"] });
    let rollout = json!({ "enum": ["stable", "pending", "draining"] });
    let count = json!({ "type": "integer", "minimum": 0 });
    let fault = json!({ "type": ["object", "null"] });
    json!({
        "type": "object",
        "required": ["state", "generation", "uptime_ms", "consecutive_failures", "restart_count",
            "rollout", "last_fault", "queue_depth", "in_flight", "sessions", "workers"],
        "properties": {
            "state": state, "generation": count, "uptime_ms": count,
            "consecutive_failures": count, "restart_count": count, "rollout": rollout,
            "last_fault": fault, "queue_depth": count, "in_flight": count, "sessions": count,
            "workers": { "type": "array", "items": {
                "type": "object",
                "required": ["name", "state", "generation", "rollout"],
                "properties": { "name": { "type": "string" }, "state": state,
                    "generation": count, "rollout": rollout, "last_fault": fault },
            } },
        },
    })
}

fn telemetry_schema() -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let counts = json!({
        "request_count": count, "success_count": count, "response_error_count": count,
        "transport_fault_count": count, "retry_count": count,
    });
    json!({
        "type": "object",
        "required": ["totals", "methods", "last_fault", "last_restart_fault", "schema_mismatches"],
        "properties": {
            "totals": { "type": "object", "properties": counts },
            "methods": { "type": "array", "items": {
                "type": "object", "required": ["method", "request_count", "p50", "p99"],
            } },
            "last_fault": { "type": ["object", "null"] },
            "last_restart_fault": { "type": ["object", "null"] },
            "schema_mismatches": { "type": "array", "items": { "type": "object" } },
        },
    })
}

/// The answer of `system_health`.
pub(crate) fn health(health: &Health, render: RenderMode, bounds: Bounds) -> ToolReply {
    let text = (render == RenderMode::Porcelain).then(|| {
        let workers = count(health.workers.len(), "worker", "workers");
        let state = word(&health.state);
        let mut page = Porcelain::summary(format!("{state}: {workers}"))
            .field("uptime", millis(health.uptime_ms))
            .field("sessions", health.sessions)
            .field("in flight", health.in_flight)
            .field("queued", health.queue_depth)
            .field("restarts", health.restart_count);
        let rows = health.workers.iter().map(|worker| {
            vec![
                worker.name.clone(),
                word(&worker.state),
                worker.generation.to_string(),
                worker.pid.map_or_else(String::new, |pid| pid.to_string()),
                worker.in_flight.to_string(),
                worker.queue_depth.to_string(),
                worker.restart_count.to_string(),
            ]
        });
        let headers = [
            "worker",
            "state",
            "generation",
            "pid",
            "running",
            "queued",
            "restarts",
        ];
        page = page.table(&headers, rows);
        if let Some(fault) = &health.last_fault {
            page = page.warning(format!("last fault: {fault}"));
        }
        page.finish(bounds)
    });
    ToolReply {
        json: Json::from_serialize(health),
        text,
    }
}

/// The answer of `system_telemetry`.
pub(crate) fn telemetry(telemetry: &Telemetry, render: RenderMode, bounds: Bounds) -> ToolReply {
    let text = (render == RenderMode::Porcelain).then(|| {
        let totals = &telemetry.totals;
        let requests = usize::try_from(totals.request_count).unwrap_or(usize::MAX);
        let summary = format!(
            "{}: {} ok, {} failed",
            count(requests, "request", "requests"),
            totals.success_count,
            totals.response_error_count
        );
        let rows = telemetry.methods.iter().map(|method| {
            vec![
                method.method.clone(),
                method.counts.request_count.to_string(),
                method.counts.response_error_count.to_string(),
                method.counts.retry_count.to_string(),
                format!("{:.3}", method.p50),
                format!("{:.3}", method.p99),
                format!("{:.3}", method.max_latency_ms),
            ]
        });
        let headers = [
            "method", "requests", "errors", "retries", "p50 ms", "p99 ms", "max ms",
        ];
        let mut page = Porcelain::summary(summary).table(&headers, rows);
        if !telemetry.schema_mismatches.is_empty() {
            let mismatches = telemetry.schema_mismatches.len();
            let said = count(
                mismatches,
                "recent schema mismatch",
                "recent schema mismatches",
            );
            page = page.note(said);
        }
        if let Some(fault) = &telemetry.last_restart_fault {
            page = page.warning(format!("last restart: {fault}"));
        }
        page.finish(bounds)
    });
    ToolReply {
        json: Json::from_serialize(telemetry),
        text,
    }
}

fn millis(ms: u64) -> String {
    mainstay_contract::render::millis(std::time::Duration::from_millis(ms))
}

/// A unit variant in its serialised spelling.
fn word(value: &impl serde::Serialize) -> String {
    Json::from_serialize(value)
        .as_str()
        .trim_matches('"')
        .to_owned()
}
