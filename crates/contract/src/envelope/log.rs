//! One line of the validation log: what an envelope said about itself, in a form that can be
//! compared from run to run.

use serde_json::{Value, json};

use super::ResultEnvelope;
use crate::canonical::canonical_json;

/// Members whose values differ from run to run without meaning anything, at the top and inside
/// `metadata`.
pub const VOLATILE: [&str; 8] = [
    "ts",
    "traceId",
    "spanId",
    "durationMs",
    "requestId",
    "runId",
    "attemptId",
    "logPath",
];

/// Members that every record has.
pub const REQUIRED: [&str; 17] = [
    "agentId",
    "attempt",
    "durationMs",
    "error",
    "inputBytes",
    "metadata",
    "method",
    "outputBytes",
    "requestId",
    "route",
    "spanId",
    "status",
    "stepId",
    "taskId",
    "traceId",
    "transport",
    "ts",
];

/// The writer of a record, and the reason.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub agent: &'a str,
    pub task: &'a str,
    pub step: &'a str,
}

/// The record of an envelope, on one line, its keys sorted.
pub fn record(envelope: &ResultEnvelope, step: Step<'_>, ts: &str) -> String {
    let meta = &envelope.meta;
    let mut metadata = json!({
        "schemaVersion": meta.schema_version,
        "deterministic": meta.deterministic,
    });
    if let (Some(tool_id), Some(members)) = (&meta.tool_id, metadata.as_object_mut()) {
        members.insert("toolId".to_owned(), json!(tool_id));
    }
    let (status, error) = match &envelope.result {
        Ok(_) => ("ok", Value::Null),
        Err(error) => (
            "error",
            json!({ "canonical": error.code.as_str(), "message": error.message }),
        ),
    };
    canonical_json(&json!({
        "ts": ts,
        "agentId": step.agent,
        "taskId": step.task,
        "stepId": step.step,
        "transport": meta.transport.as_str(),
        "route": meta.route,
        "method": meta.method,
        "status": status,
        "durationMs": meta.duration_ms,
        "attempt": meta.attempt,
        "inputBytes": meta.input_bytes,
        "outputBytes": meta.output_bytes,
        "requestId": meta.ids.request,
        "traceId": meta.ids.trace,
        "spanId": meta.ids.span,
        "metadata": metadata,
        "error": error,
    }))
}

/// A record without what differs from run to run.
pub fn settled(record: &Value) -> Value {
    let mut settled = record.clone();
    let without = |value: &mut Value| {
        if let Some(members) = value.as_object_mut() {
            members.retain(|key, _| !VOLATILE.contains(&key.as_str()));
        }
    };
    without(&mut settled);
    if let Some(metadata) = settled.get_mut("metadata") {
        without(metadata);
    }
    settled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Asked, Ids, Meta, Transport};
    use crate::error::ErrorKind;
    use crate::json::Json;
    use crate::outcome::{Problem, Success};

    fn record_of(ok: bool, random: u8) -> Value {
        let asked = Asked::tool("mcp.tool:t", &Json::empty_object());
        let ids = Ids::random([random; Ids::RANDOM_BYTES]);
        let mut meta = Meta::new(&asked, Transport::Http, ids, false);
        meta.tool_id = Some("mcp.tool:t".to_owned());
        let outcome = if ok {
            Ok(Success::Members(Json::empty_object()))
        } else {
            Err(Problem::of(ErrorKind::NotFound))
        };
        let step = Step {
            agent: "a",
            task: "t",
            step: "s",
        };
        let envelope = ResultEnvelope::new(meta, &outcome);
        serde_json::from_str(&record(&envelope, step, "2026-01-01T00:00:00.000Z")).unwrap()
    }

    #[test]
    fn a_record_has_every_member_and_no_other() {
        for ok in [true, false] {
            let record = record_of(ok, 1);
            let keys: Vec<&str> = record
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            assert_eq!(keys, REQUIRED, "sorted, too");
        }
        assert_eq!(record_of(true, 1)["error"], Value::Null);
        assert_eq!(record_of(false, 1)["error"]["canonical"], "NOT_FOUND");
        assert_eq!(record_of(true, 1)["metadata"]["toolId"], "mcp.tool:t");
    }

    #[test]
    fn what_is_random_does_not_count() {
        assert_ne!(record_of(true, 1), record_of(true, 2));
        assert_eq!(settled(&record_of(true, 1)), settled(&record_of(true, 2)));
        assert_ne!(settled(&record_of(true, 1)), settled(&record_of(false, 1)));
        let mut inside = record_of(true, 1);
        inside["metadata"]["runId"] = json!("x");
        assert_eq!(settled(&inside), settled(&record_of(true, 1)));
    }
}
