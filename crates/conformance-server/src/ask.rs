//! Tools that ask the client in the middle of a call, as servers of the legacy era do.

#![expect(
    deprecated,
    reason = "the suite still asks for what the SDK deprecates"
)]

use rmcp::model::{
    CallToolResponse, ClientCapabilities, CreateMessageRequestParams, ElicitRequestParams,
};
use rmcp::service::{RequestContext, ServiceError};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::tools::{text, typed};

type Context = RequestContext<RoleServer>;

pub(crate) fn lacks(
    context: &Context,
    has: impl Fn(&ClientCapabilities) -> bool,
) -> Result<(), Value> {
    match context.client_capabilities() {
        Some(capabilities) if has(&capabilities) => Ok(()),
        _ => Err(json!({})),
    }
}

/// -32021, with the capability that the client lacks.
pub(crate) fn missing(capability: &str) -> ErrorData {
    match typed::<ClientCapabilities>(json!({ capability: {} })) {
        Ok(required) => ErrorData::missing_required_client_capability(required),
        Err(error) => error,
    }
}

pub(crate) async fn sample(prompt: &str, context: &Context) -> Result<CallToolResponse, ErrorData> {
    if lacks(context, |client| client.sampling.is_some()).is_err() {
        return Err(missing("sampling"));
    }
    let params: CreateMessageRequestParams = typed(json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}],
        "maxTokens": 100,
    }))?;
    let answer = context.peer.create_message(params).await.map_err(refused)?;
    let answer = serde_json::to_value(answer).map_err(|error| unreadable(&error))?;
    let said = answer
        .pointer("/content/text")
        .and_then(Value::as_str)
        .unwrap_or("nothing");
    Ok(text(&format!("LLM response: {said}")))
}

/// `verb` begins the sentence that the suite reads.
pub(crate) async fn elicit(
    message: &str,
    schema: Value,
    verb: &str,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    if lacks(context, |client| client.elicitation.is_some()).is_err() {
        return Err(missing("elicitation"));
    }
    let params: ElicitRequestParams = typed(json!({
        "mode": "form",
        "message": message,
        "requestedSchema": schema,
    }))?;
    let answer = context
        .peer
        .create_elicitation(params)
        .await
        .map_err(refused)?;
    let answer = serde_json::to_value(answer).map_err(|error| unreadable(&error))?;
    let action = answer.get("action").and_then(Value::as_str).unwrap_or("?");
    let content = answer.get("content").cloned().unwrap_or(json!({}));
    Ok(text(&format!("{verb}: action={action}, content={content}")))
}

pub(crate) fn user_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        },
        "required": ["username", "email"],
    })
}

pub(crate) fn defaults_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": true},
        },
        "required": [],
    })
}

pub(crate) fn enums_schema() -> Value {
    let titled = |what: &str| {
        json!([
            {"const": "value1", "title": format!("First {what}")},
            {"const": "value2", "title": format!("Second {what}")},
            {"const": "value3", "title": format!("Third {what}")},
        ])
    };
    let plain = json!(["option1", "option2", "option3"]);
    json!({
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled("Option")},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
        },
        "required": [],
    })
}

fn refused(error: ServiceError) -> ErrorData {
    match error {
        ServiceError::McpError(error) => error,
        other => ErrorData::internal_error(format!("the client was not asked: {other}"), None),
    }
}

fn unreadable(error: &serde_json::Error) -> ErrorData {
    ErrorData::internal_error(format!("the client's answer: {error}"), None)
}
