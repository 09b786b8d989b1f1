//! Output schemas of the host's own tools: every field, closed.

use mainstay_contract::fault::FaultClass;
use serde_json::{Map, Value, json};

/// The answer of `system_health`.
pub(super) fn health() -> Value {
    let state = one_of(&["ready", "cold", "starting", "recovering", "failed"]);
    let rollout = one_of(&["stable", "pending", "draining"]);
    let standby = object(&json!({
        "state": state, "generation": count(), "pid": or_null("integer"),
    }));
    let worker = object(&json!({
        "name": text(), "state": state, "generation": count(),
        "pid": or_null("integer"), "build": or_null("string"), "uptime_ms": or_null("integer"),
        "consecutive_failures": count(), "restart_count": count(), "rollout": rollout,
        "last_fault": fault_or_null(), "queue_depth": count(), "in_flight": count(),
        "tree_kill": or_null("string"), "facts": anything(),
        "standby": { "anyOf": [standby, { "type": "null" }] },
    }));
    object(&json!({
        "ready": { "type": "boolean" }, "state": state, "generation": count(), "uptime_ms": count(),
        "consecutive_failures": count(), "restart_count": count(), "rollout": rollout,
        "last_fault": fault_or_null(), "queue_depth": count(), "in_flight": count(),
        "sessions": count(), "workers": { "type": "array", "items": worker },
    }))
}

/// The answer of `system_telemetry`.
pub(super) fn telemetry() -> Value {
    let counts = json!({
        "request_count": count(), "success_count": count(), "response_error_count": count(),
        "transport_fault_count": count(), "retry_count": count(),
    });
    let error = object(&json!({ "code": text(), "message": text() }));
    let mut method = json!({
        "method": text(), "last_latency_ms": millis(), "max_latency_ms": millis(),
        "avg_latency_ms": millis(), "p50": millis(), "p99": millis(),
        "last_error": { "anyOf": [error, { "type": "null" }] },
    });
    if let (Some(method), Some(counts)) = (method.as_object_mut(), counts.as_object()) {
        method.extend(counts.clone());
    }
    let mismatch = object(&json!({
        "ts": text(), "request_id": or_null("string"),
        "trace_id": or_null("string"), "tool": text(),
        "side": one_of(&["input", "output", "envelope"]), "path": text(), "message": text(),
    }));
    let envelopes = object(&json!({
        "mode": one_of(&["off", "shadow", "enforce"]),
        "success_count": count(), "failure_count": count(), "avg_latency_ms": millis(),
        "max_latency_ms": millis(), "p50": millis(), "p99": millis(),
    }));
    object(&json!({
        "totals": object(&counts),
        "methods": { "type": "array", "items": object(&method) },
        "last_fault": fault_or_null(), "last_restart_fault": fault_or_null(),
        "schema_mismatches": { "type": "array", "items": mismatch },
        "envelopes": { "anyOf": [envelopes, { "type": "null" }] },
    }))
}

fn fault_or_null() -> Value {
    let fault = json!({
        "type": "object",
        "properties": {
            "class": { "type": "string", "enum": FaultClass::ALL }, "kind": text(), "generation": count(),
            "detail": text(), "said": text(), "hint": text(), "stderr": { "type": "string" },
        },
        "required": ["class", "kind", "detail"],
        "additionalProperties": false,
    });
    json!({ "anyOf": [fault, { "type": "null" }] })
}

/// An object of exactly these members.
fn object(properties: &Value) -> Value {
    let required: Vec<_> = match properties.as_object().map(Map::keys) {
        Some(keys) => keys.cloned().collect(),
        None => Vec::new(),
    };
    json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn millis() -> Value {
    json!({ "type": "number", "minimum": 0 })
}

/// Some clients reject a list of types.
fn or_null(kind: &str) -> Value {
    json!({ "anyOf": [{ "type": kind }, { "type": "null" }] })
}

fn one_of(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

/// Any JSON, in a form that clients accept which reject a bare `true`.
fn anything() -> Value {
    let kinds = ["object", "array", "string", "number", "boolean", "null"];
    let kinds = kinds.map(|kind| json!({ "type": kind }));
    json!({ "anyOf": kinds })
}
