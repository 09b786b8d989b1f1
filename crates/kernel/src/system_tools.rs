//! The host's own two tools, answered even when every worker is down.

mod schemas;

use std::time::Duration;

use mainstay_contract::health::Health;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::ToolReply;
use mainstay_contract::render::{Bounds, Porcelain, RenderMode, count, elapsed};
use mainstay_contract::replay::Replay;
use mainstay_contract::telemetry::Telemetry;
use mainstay_contract::tool::{Annotations, Pace, Rejections, ToolSpec};
use serde_json::{Value, json};

/// The name of the health tool.
pub const HEALTH: &str = "system_health";
/// The name of the telemetry tool.
pub const TELEMETRY: &str = "system_telemetry";

/// True for the names of the host's own tools.
pub fn is_own(name: &str) -> bool {
    matches!(name, HEALTH | TELEMETRY)
}

/// Their contracts.
pub fn specs(tooling_version: &str) -> Vec<ToolSpec> {
    let spec = |name: &str, schema_version, description: &str, output: Value| ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: json!({ "type": "object", "properties": {}, "additionalProperties": false }),
        output_schema: Some(output),
        annotations: Annotations::READ_ONLY,
        schema_version,
        tooling_version: tooling_version.to_owned(),
        replay: Replay::Convergent,
        timeout_ms: None,
        errors: Vec::new(),
        aliases: Vec::new(),
        argument_aliases: Vec::new(),
        rejections: Rejections::Plain,
        pace: Pace::Short,
        tasks: false,
    };
    vec![
        spec(
            HEALTH,
            2,
            "Health of the host and each worker: state, restarts, last fault.",
            schemas::health(),
        ),
        spec(
            TELEMETRY,
            3,
            "Counts, latencies and last errors per method and tool.",
            schemas::telemetry(),
        ),
    ]
}

/// The answer of `system_health`.
pub fn health(health: &Health, render: RenderMode, bounds: Bounds) -> ToolReply {
    let text = (render == RenderMode::Porcelain).then(|| {
        let workers = count(health.workers.len(), "worker", "workers");
        let state = health.state;
        let mut page = Porcelain::summary(format!("{state}: {workers}"))
            .field("uptime", elapsed(Duration::from_millis(health.uptime_ms)))
            .field("sessions", health.sessions)
            .field("in flight", health.in_flight)
            .field("queued", health.queue_depth)
            .field("restarts", health.restart_count);
        let rows = health.workers.iter().map(|worker| {
            vec![
                worker.name.clone(),
                worker.state.to_string(),
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
        page.finish_answer(bounds)
    });
    ToolReply {
        json: Json::from_serialize(health),
        text,
    }
}

/// The answer of `system_telemetry`.
pub fn telemetry(telemetry: &Telemetry, render: RenderMode, bounds: Bounds) -> ToolReply {
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
        page.finish_answer(bounds)
    });
    ToolReply {
        json: Json::from_serialize(telemetry),
        text,
    }
}

#[cfg(test)]
mod tests {
    use mainstay_schema::SchemaRegistry;

    use super::*;

    /// The JSON example below a heading of the reference page.
    fn example(heading: &str) -> Value {
        let page = include_str!("../../../docs/telemetry.md");
        let section = page.split_once(heading).unwrap().1;
        let example = section.split_once("```json\n").unwrap().1;
        serde_json::from_str(example.split_once("```").unwrap().0).unwrap()
    }

    #[test]
    fn the_examples_of_the_reference_page_fit_the_output_schemas() {
        for (name, schema) in [
            (HEALTH, schemas::health()),
            (TELEMETRY, schemas::telemetry()),
        ] {
            let validator = SchemaRegistry::new().compile(&schema).unwrap();
            let mut value = example(&format!("## `{name}`"));
            assert_eq!(validator.check(&value), [], "{name}");
            // It is closed, inside as well.
            value["surprise"] = true.into();
            assert!(!validator.is_valid(&value), "{name}");
        }
        let validator = SchemaRegistry::new()
            .compile(&schemas::telemetry())
            .unwrap();
        let mut value = example("## `system_telemetry`");
        value["methods"][0]["surprise"] = true.into();
        assert!(!validator.is_valid(&value));
    }
}
