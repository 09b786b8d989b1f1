//! The schemas of bodies without an envelope, and `/mcp`.

use mainstay_schema::PUBLISHED_SCHEMAS;
use serde_json::{Value, json};

use super::{ANYWHERE, BODY, SESSIONS, content, merge, responses};
use crate::http::rest::openapi::json as json_of;

/// A part of the path.
pub(super) fn in_path(name: &str, pattern: &str) -> Value {
    json!({
        "name": name, "in": "path", "required": true,
        "schema": { "type": "string", "minLength": 1, "maxLength": 256, "pattern": pattern },
    })
}

/// The headers of a run that concern tasks.
pub(super) fn run_headers() -> [Value; 2] {
    let header = |name: &str, says: &str, schema: Value| json!({ "name": name, "in": "header", "description": says, "schema": schema });
    [
        header(
            "Idempotency-Key",
            "The same key with the same arguments gives the recorded outcome and runs nothing again.",
            json!({ "type": "string", "pattern": "^[!-~]{1,255}$" }),
        ),
        header(
            "Prefer",
            "respond-async: run as a task, if the tool may.",
            json!({ "type": "string", "enum": ["respond-async"] }),
        ),
    ]
}

/// A published schema as a part of the document: without a base of its own, so that its references
/// lead into the document and a saved copy needs no other file.
fn published(name: &str, file: &str) -> Value {
    let mut files = PUBLISHED_SCHEMAS.iter();
    let text = files.find(|(published, _)| *published == file);
    let mut schema = text.and_then(|(_, text)| serde_json::from_str(text).ok());
    if let Some(Value::Object(members)) = &mut schema {
        members.remove("$schema");
        members.remove("$id");
    }
    let mut schema = schema.unwrap_or_default();
    rebase(&mut schema, &format!("#/components/schemas/{name}/"));
    schema
}

fn rebase(schema: &mut Value, base: &str) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(target) if name == "$ref" => {
                        *target = target.replacen("#/", base, 1);
                    }
                    _ => rebase(member, base),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rebase(item, base)),
        _ => {}
    }
}

/// The calls that wait for an approval.
fn approvals() -> Value {
    let text = |says: &str| json!({ "type": "string", "description": says });
    let one = json!({
        "type": "object",
        "properties": {
            "id": text("The name of the approval."),
            "who": text("The caller: user, uid:N, or the digest of a credential."),
            "server": text("The server or the pack."),
            "tool": text("The tool, as its server has it."),
            "arguments": text("Canonical JSON, perhaps cut."),
            "digest": text("SHA-256 of the canonical JSON of all arguments."),
            "rule": text("The rule that asks."),
            "asked": text("ISO-8601 UTC."),
            "expires": text("ISO-8601 UTC."),
            "granted": { "type": "boolean", "description": "It waits only for its client to repeat the call." },
        },
        "required": ["id", "who", "server", "tool", "arguments", "digest", "rule", "asked", "expires", "granted"],
    });
    json!({
        "type": "object",
        "properties": { "approvals": { "type": "array", "items": one } },
        "required": ["approvals"],
    })
}

/// The named schemas.
pub(super) fn schemas() -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let amount = json!({ "type": "number", "minimum": 0 });
    json!({
        "InvocationRequest": published("InvocationRequest", "request.schema.json"),
        "InvocationResponse": published("InvocationResponse", "response.schema.json"),
        "ResultEnvelope": published("ResultEnvelope", "envelope.schema.json"),
        "Approvals": approvals(),
        "ApprovalAnswer": {
            "type": "object",
            "properties": { "id": { "type": "string" }, "granted": { "type": "boolean" } },
            "required": ["id", "granted"],
        },
        "Error": {
            "type": "object",
            "properties": {
                "message": { "type": "string", "description": "A sentence for the client." },
                "code": { "type": "string", "description": "The stable code." },
                "hint": { "type": "string", "description": "What the client can do." },
                "retryable": { "type": "boolean" },
                "fault": { "type": "string" },
                "timeoutMs": { "type": "integer" },
                "details": {},
                "stderr": { "type": "string" },
                "stdout": { "type": "string" },
            },
            "required": ["message", "code", "retryable"],
            "additionalProperties": false,
        },
        "Task": {
            "type": "object",
            "properties": {
                "taskId": { "type": "string", "pattern": "^[0-9a-f]{32}$" },
                "status": { "enum": ["working", "completed", "failed", "cancelled"] },
                "statusMessage": { "type": "string" },
                "createdAt": { "type": "string", "format": "date-time" },
                "lastUpdatedAt": { "type": "string", "format": "date-time" },
                "ttlMs": count,
                "pollIntervalMs": count,
                "tool": { "type": "string" },
                "replay": { "enum": ["convergent", "probe_required", "never_replay"] },
                "result": { "description": "The tool's own answer, once the task is completed." },
                "error": { "$ref": "#/components/schemas/Error" },
            },
            "required": ["taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "tool", "replay"],
            "additionalProperties": false,
        },
        "Catalog": {
            "type": "object",
            "properties": {
                "server": {
                    "type": "object",
                    "properties": { "name": { "type": "string" }, "version": { "type": "string" } },
                    "required": ["name", "version"],
                },
                "version": { "type": "string", "description": "The version of the envelopes." },
                "tools": { "type": "array", "items": { "$ref": "#/components/schemas/Tool" } },
            },
            "required": ["server", "version", "tools"],
        },
        "Tool": {
            "type": "object",
            "properties": {
                "toolId": { "type": "string", "description": "What envelopes call it." },
                "name": { "type": "string" },
                "description": { "type": "string" },
                "inputSchema": { "type": "object" },
                "outputSchema": { "type": "object" },
                "annotations": { "type": "object" },
                "schemaVersion": { "type": "integer" },
                "toolingVersion": { "type": "string" },
                "replay": { "type": "string" },
                "timeoutMs": { "type": "integer" },
                "errors": { "type": "array", "items": { "type": "string" } },
            },
            "required": ["name", "inputSchema"],
        },
        "Diagnostics": {
            "type": "object",
            "properties": {
                "schema_mismatches": {
                    "type": "array",
                    "maxItems": 400,
                    "items": {
                        "type": "object",
                        "properties": {
                            "ts": { "type": "string" },
                            "request_id": { "type": ["string", "null"] },
                            "trace_id": { "type": ["string", "null"] },
                            "tool": { "type": "string" },
                            "side": { "enum": ["input", "output", "envelope"] },
                            "path": { "type": "string" },
                            "message": { "type": "string" },
                        },
                        "required": [
                            "ts", "request_id", "trace_id", "tool", "side", "path", "message",
                        ],
                        "additionalProperties": false,
                    },
                },
                "envelopes": {
                    "type": "object",
                    "properties": {
                        "mode": { "enum": ["off", "shadow", "enforce"] },
                        "success_count": count, "failure_count": count,
                        "avg_latency_ms": amount, "max_latency_ms": amount,
                        "p50": amount, "p99": amount,
                    },
                    "required": ["mode", "success_count", "failure_count"],
                },
            },
            "required": ["schema_mismatches", "envelopes"],
            "additionalProperties": false,
        },
        "Health": {
            "type": "object",
            "properties": {
                "state": { "enum": ["ready", "cold", "starting", "recovering", "failed"] },
            },
            "required": ["state"],
        },
        "JsonRpc": {
            "type": "object",
            "properties": {
                "jsonrpc": { "const": "2.0" },
                "id": { "type": ["string", "number", "null"] },
                "method": { "type": "string" },
                "params": { "type": "object" },
                "result": {},
                "error": { "type": "object" },
            },
            "required": ["jsonrpc"],
        },
    })
}

/// Streamable HTTP.
pub(super) fn mcp() -> Value {
    let message = json_of("JsonRpc");
    let mut either = message.clone();
    let events = json!({ "type": "string" });
    merge(&mut either, content("text/event-stream", &events));
    let stream = content("text/event-stream", &events);
    let session = |required: bool| {
        json!({
            "name": "Mcp-Session-Id", "in": "header", "required": required,
            "schema": { "type": "string" },
        })
    };
    let asked = [&ANYWHERE[..], &BODY, &SESSIONS].concat();
    let read = [&ANYWHERE[..], &SESSIONS].concat();
    let with = |mut responses: Value, status: &str, says: &str| {
        merge(&mut responses, json!({ status: { "description": says } }));
        responses
    };
    let mut ended = with(
        responses(&message, &message, &read),
        "204",
        "The session has ended.",
    );
    if let Some(responses) = ended.as_object_mut() {
        responses.remove("200");
    }
    json!({
        "post": {
            "operationId": "mcpSend",
            "summary": "Sends a message of MCP.",
            "parameters": [session(false)],
            "requestBody": { "required": true, "content": message },
            "responses": with(responses(&either, &message, &asked), "202", "It was taken."),
        },
        "get": {
            "operationId": "mcpListen",
            "summary": "Takes what belongs to no request, or the rest of a stream that broke.",
            "parameters": [session(true)],
            "responses": responses(&stream, &message, &read),
        },
        "delete": {
            "operationId": "mcpEnd",
            "summary": "Ends a session.",
            "parameters": [session(true)],
            "responses": ended,
        },
    })
}
