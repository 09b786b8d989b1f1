//! `/openapi.json`: what a program must know to use the routes, in OpenAPI 3.1.
//!
//! The statuses of a route are those of the rows that it can answer with, so they follow the error
//! table. Envelopes are described by the published schemas, which are parts of the document.

mod parts;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use mainstay_contract::envelope::ENVELOPE_VERSION;
use mainstay_contract::error::ErrorKind;
use serde_json::{Map, Value, json};

/// The document.
pub(super) fn text() -> String {
    static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());
    TEXT.clone()
}

/// Rows that every route can answer with.
const ANYWHERE: [ErrorKind; 6] = [
    ErrorKind::Unauthorized,
    ErrorKind::Forbidden,
    ErrorKind::MethodNotAllowed,
    ErrorKind::Overloaded,
    ErrorKind::ShuttingDown,
    ErrorKind::Internal,
];
/// Rows of a route that takes a body.
const BODY: [ErrorKind; 5] = [
    ErrorKind::ParseError,
    ErrorKind::InvalidMessage,
    ErrorKind::RequestTimeout,
    ErrorKind::FrameTooLarge,
    ErrorKind::UnsupportedMedia,
];
/// Rows of sessions, which only `/mcp` has.
const SESSIONS: [ErrorKind; 5] = [
    ErrorKind::HeaderMismatch,
    ErrorKind::NotAcceptable,
    ErrorKind::UnknownSession,
    ErrorKind::StreamInUse,
    ErrorKind::UnsupportedVersion,
];

fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Mainstay",
            "summary": "Tools of a Mainstay host over HTTP.",
            "version": ENVELOPE_VERSION,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "bearer": [] }, {}],
        "paths": paths(),
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
            "schemas": parts::schemas(),
        },
    })
}

fn paths() -> Value {
    let mut paths = Map::new();
    let mut add = |path: &str, item: Value| {
        paths.insert(path.to_owned(), item);
    };
    add(
        "/v1/tools",
        read("listTools", "The catalog.", &json("Catalog"), &RUN),
    );
    add("/v1/tool/{tool}", tool());
    add("/v1/invoke", invoke());
    add("/v1/tasks/{id}", task());
    let waiting = "The calls that wait for an approval; the credential needs the scope approve.";
    add(
        "/v1/approvals",
        read("listApprovals", waiting, &json("Approvals"), &[]),
    );
    add("/v1/approvals/{id}", approval());
    let diagnostics = "The last inputs, outputs and envelopes that did not fit their schemas.";
    add(
        "/v1/diagnostics",
        read("diagnostics", diagnostics, &json("Diagnostics"), &[]),
    );
    let schema = content("application/schema+json", &json!({ "type": "object" }));
    for (path, id) in [
        ("/schemas/{file}", "schema"),
        ("/schemas/v1/{file}", "schemaOfVersion1"),
        ("/schemas/tools/{file}", "toolSchema"),
        ("/schemas/v1/tools/{file}", "toolSchemaOfVersion1"),
    ] {
        let kinds = [&RUN[..], &[ErrorKind::UnknownRoute]].concat();
        let mut item = read(
            id,
            "A published schema, or a tool with its own.",
            &schema,
            &kinds,
        );
        merge(
            &mut item,
            json!({ "parameters": [parts::in_path("file", "^[^/]+$")] }),
        );
        add(path, item);
    }
    let own = content("application/json", &json!({ "type": "object" }));
    add(
        "/openapi.json",
        read("openapi", "This document.", &own, &[]),
    );
    let text = content("text/plain", &json!({ "type": "string" }));
    add(
        "/metrics",
        read("metrics", "What is counted, for Prometheus.", &text, &[]),
    );
    for (path, id, says) in [
        (
            "/healthz",
            "health",
            "The health of the host; 503 once it has failed.",
        ),
        (
            "/readyz",
            "ready",
            "The health of the host; 503 until it is ready.",
        ),
    ] {
        let mut item = read(id, says, &json("Health"), &[]);
        let unready = json!({ "description": "The host is not.", "content": json("Health") });
        for method in ["get", "head"] {
            let at = format!("/{method}/responses/503");
            if let Some(response) = item.pointer_mut(&at) {
                *response = unready.clone();
            }
        }
        add(path, item);
    }
    add("/mcp", parts::mcp());
    Value::Object(paths)
}

/// Rows with which listing tools can end.
const RUN: [ErrorKind; 3] = [
    ErrorKind::WorkerUnavailable,
    ErrorKind::Timeout,
    ErrorKind::WorkerProtocol,
];

fn tool() -> Value {
    let body = json!({
        "type": "object",
        "properties": { "arguments": { "type": "object", "description": "Fit for the tool's input schema." } },
        "additionalProperties": false,
    });
    let answers = json("ResultEnvelope");
    let mut good = answers.clone();
    let text = json!({ "type": "string" });
    merge(&mut good, content("text/plain", &text));
    let name = r"^(mcp\.tool:)?[A-Za-z0-9_][A-Za-z0-9_./-]*$";
    let mut parameters = vec![parts::in_path("tool", name)];
    parameters.extend(parts::run_headers());
    json!({
        "parameters": parameters,
        "post": {
            "operationId": "callTool",
            "summary": "Runs a tool.",
            "requestBody": { "required": true, "content": content("application/json", &body) },
            "responses": with_accepted(responses(&good, &answers, &of_a_run()), &answers),
        },
    })
}

/// A run may be accepted as a task.
fn with_accepted(mut responses: Value, content: &Value) -> Value {
    let header = |says: &str| json!({ "description": says, "schema": { "type": "string" } });
    let accepted = json!({
        "description": "It runs as a task.",
        "content": content,
        "headers": {
            "Location": header("Where the task is read."),
            "Preference-Applied": header("respond-async"),
        },
    });
    merge(&mut responses, json!({ "202": accepted }));
    responses
}

fn task() -> Value {
    let kinds = [
        &ANYWHERE[..],
        &[ErrorKind::ResourceNotFound, ErrorKind::TaskNotRecorded],
    ]
    .concat();
    let operation = |id: &str, summary: &str| {
        json!({
            "operationId": id,
            "summary": summary,
            "responses": responses(&json("Task"), &json("Error"), &kinds),
        })
    };
    json!({
        "parameters": [parts::in_path("id", "^[^/]+$")],
        "get": operation("getTask", "A task, and its outcome once there is one."),
        "head": operation("getTaskHead", "A task, and its outcome once there is one."),
        "delete": operation("cancelTask", "Cancels a task; one that has ended stays as it is."),
    })
}

fn approval() -> Value {
    let kinds = [
        &ANYWHERE[..],
        &BODY[..],
        &[ErrorKind::NotFound, ErrorKind::InvalidParams],
    ]
    .concat();
    let body = json!({
        "type": "object",
        "properties": { "verdict": { "type": "string", "enum": ["grant", "deny"] } },
        "required": ["verdict"],
        "additionalProperties": false,
    });
    json!({
        "parameters": [parts::in_path("id", "^[^/]+$")],
        "post": {
            "operationId": "answerApproval",
            "summary": "Grants or denies a call; the credential needs the scope approve, and cannot be the caller's.",
            "requestBody": { "required": true, "content": content("application/json", &body) },
            "responses": responses(&json("ApprovalAnswer"), &json("Error"), &kinds),
        },
    })
}

fn invoke() -> Value {
    let answers = json("InvocationResponse");
    json!({
        "parameters": parts::run_headers(),
        "post": {
            "operationId": "invoke",
            "summary": "Runs the tool that a request envelope names.",
            "requestBody": { "required": true, "content": json("InvocationRequest") },
            "responses": with_accepted(responses(&answers, &answers, &of_a_run()), &answers),
        },
    })
}

/// Every row but those of sessions.
fn of_a_run() -> Vec<ErrorKind> {
    let all = ErrorKind::ALL.iter().copied();
    all.filter(|kind| !SESSIONS.contains(kind)).collect()
}

/// A route that is only read.
fn read(id: &str, summary: &str, content: &Value, kinds: &[ErrorKind]) -> Value {
    let kinds = [&ANYWHERE[..], kinds].concat();
    let operation = |id: String| {
        json!({
            "operationId": id,
            "summary": summary,
            "responses": responses(content, &json("Error"), &kinds),
        })
    };
    json!({ "get": operation(id.to_owned()), "head": operation(format!("{id}Head")) })
}

/// The answers of a route, by status: a good one, and one for the rows of each status.
fn responses(good: &Value, bad: &Value, kinds: &[ErrorKind]) -> Value {
    let mut by_status: BTreeMap<u16, Vec<ErrorKind>> = BTreeMap::new();
    for kind in kinds {
        by_status.entry(kind.row().http).or_default().push(*kind);
    }
    let mut responses = Map::new();
    responses.insert(
        "200".to_owned(),
        json!({ "description": "It is done.", "content": good }),
    );
    for (status, mut kinds) in by_status {
        kinds.sort_by_key(|kind| kind.row().name);
        kinds.dedup();
        let names: Vec<_> = kinds.iter().map(|kind| kind.row().name).collect();
        let mut response = json!({ "description": names.join(", "), "content": bad });
        let header = match status {
            401 => Some(("WWW-Authenticate", "What the client must show.")),
            405 => Some(("Allow", "The methods that the route has.")),
            429 | 503 => Some(("Retry-After", "Seconds after which a retry may help.")),
            _ => None,
        };
        if let Some((name, says)) = header {
            let header = json!({ "description": says, "schema": { "type": "string" } });
            merge(&mut response, json!({ "headers": { name: header } }));
        }
        responses.insert(status.to_string(), response);
    }
    let head = "The head of the request is too large.";
    responses.insert("431".to_owned(), json!({ "description": head }));
    Value::Object(responses)
}

fn content(media: &str, schema: &Value) -> Value {
    json!({ media: { "schema": schema } })
}

/// JSON of a named schema.
fn json(schema: &str) -> Value {
    let of = json!({ "$ref": format!("#/components/schemas/{schema}") });
    content("application/json", &of)
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::counts::Place;
    use super::*;

    #[test]
    fn every_route_that_is_served_is_described() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let undescribed = ["/", "/.well-known/oauth-protected-resource", "other"];
        for name in Place::NAMES {
            assert!(
                paths.contains_key(name) != undescribed.contains(&name),
                "{name}"
            );
        }
        assert_eq!(document["info"]["version"], ENVELOPE_VERSION);
    }

    #[test]
    fn every_reference_leads_into_the_document() {
        fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
            match value {
                Value::Object(members) => {
                    found.extend(members.get("$ref").and_then(Value::as_str));
                    members
                        .values()
                        .for_each(|member| references(member, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for reference in found {
            let pointer = reference
                .strip_prefix('#')
                .unwrap_or_else(|| panic!("{reference}"));
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        for name in ["InvocationRequest", "InvocationResponse", "ResultEnvelope"] {
            let schema = &document["components"]["schemas"][name];
            assert_eq!(schema["type"], "object", "{name}");
        }
    }

    #[test]
    fn every_status_of_a_run_is_that_of_a_row_and_carries_an_envelope() {
        let document = document();
        for (path, schema) in [
            ("/v1/tool/{tool}", "ResultEnvelope"),
            ("/v1/invoke", "InvocationResponse"),
        ] {
            let responses = &document["paths"][path]["post"]["responses"];
            for kind in of_a_run() {
                let response = &responses[kind.row().http.to_string()];
                let of = &response["content"]["application/json"]["schema"]["$ref"];
                assert_eq!(*of, format!("#/components/schemas/{schema}"), "{kind}");
                let names = response["description"].as_str().unwrap();
                assert!(names.contains(kind.row().name), "{kind}");
            }
        }
    }
}
