//! The tools: which name does what.

#![expect(
    deprecated,
    reason = "the suite still asks for what the SDK deprecates"
)]

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::catalog::{CHANGING_TOOL, IMAGE, SOUND};
use crate::listeners::Changed;
use crate::server::Fixture;
use crate::{ask, rounds};

type Context = RequestContext<RoleServer>;

/// Between two notifications of one call.
const STEP: Duration = Duration::from_millis(50);

pub(crate) async fn call(
    fixture: &Fixture,
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    let argument = |name: &str| -> Result<&str, ErrorData> {
        request
            .arguments
            .as_ref()
            .and_then(|arguments| arguments.get(name))
            .and_then(Value::as_str)
            .ok_or_else(|| ErrorData::invalid_params(format!("{name} is missing"), None))
    };
    let image = json!({"type": "image", "data": IMAGE, "mimeType": "image/png"});
    match request.name.as_ref() {
        "test_simple_text" => Ok(text("This is a simple text response for testing.")),
        "test_image_content" => contents(&json!([image])),
        "test_audio_content" => {
            contents(&json!([{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}]))
        }
        "test_embedded_resource" => contents(&json!([{"type": "resource", "resource": {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        }}])),
        "test_multiple_content_types" => contents(&json!([
            {"type": "text", "text": "Multiple content types test:"},
            image,
            {"type": "resource", "resource": {
                "uri": "test://mixed-content-resource",
                "mimeType": "application/json",
                "text": "{\"test\":\"data\",\"value\":123}",
            }},
        ])),
        "test_error_handling" => complete::<CallToolResult>(json!({
            "isError": true,
            "content": [{"type": "text", "text": "This tool intentionally returns an error for testing"}],
        }))
        .map(Into::into),
        "test_tool_with_logging" | "test_logging_tool" => logged(fixture, context).await,
        "test_tool_with_progress" => progressed(context).await,
        "test_sampling" => ask::sample(argument("prompt")?, context).await,
        "test_elicitation" => {
            let message = argument("message")?;
            ask::elicit(message, ask::user_schema(), "User response", context).await
        }
        "test_elicitation_sep1034_defaults" => {
            let schema = ask::defaults_schema();
            ask::elicit("Review the defaults", schema, "Elicitation completed", context).await
        }
        "test_elicitation_sep1330_enums" => {
            let schema = ask::enums_schema();
            ask::elicit("Choose", schema, "Elicitation completed", context).await
        }
        "test_missing_capability" => match ask::lacks(context, |client| client.sampling.is_some()) {
            Ok(()) => Ok(text("The client can sample.")),
            Err(_) => Err(ask::missing("sampling")),
        },
        "test_trigger_tool_change" => {
            fixture.toggle(Changed::Tools).await;
            Ok(text("The list of tools has changed."))
        }
        "test_trigger_prompt_change" => {
            fixture.toggle(Changed::Prompts).await;
            Ok(text("The list of prompts has changed."))
        }
        "test_custom_header" => Ok(text(argument("value")?)),
        "json_schema_2020_12_tool" => Ok(text("The schema is all there is to see.")),
        CHANGING_TOOL => Ok(text("Here for the moment.")),
        _ => {
            let client = context.client_capabilities().unwrap_or_default();
            rounds::tool(request, &client)
        }
    }
}

/// Modern: only what `_meta` of the request asks for. Legacy: what `logging/setLevel` said.
async fn logged(fixture: &Fixture, context: &Context) -> Result<CallToolResponse, ErrorData> {
    let wanted = if fixture.is_modern(context) {
        context.meta.log_level()
    } else {
        Some(fixture.level())
    };
    let info = wanted.is_some_and(|level| rank(level) <= rank(LoggingLevel::Info));
    let lines = [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ];
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            tokio::time::sleep(STEP).await;
        }
        if info {
            let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(line));
            // The call goes on for a client that has stopped listening.
            let _ = context.peer.notify_logging_message(message).await;
        }
    }
    Ok(text("Logged."))
}

fn rank(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}

async fn progressed(context: &Context) -> Result<CallToolResponse, ErrorData> {
    let token = context.meta.get_progress_token();
    for done in [0.0, 50.0, 100.0] {
        if done > 0.0 {
            tokio::time::sleep(STEP).await;
        }
        if let Some(token) = &token {
            let mut progress = ProgressNotificationParam::new(token.clone(), done);
            progress.total = Some(100.0);
            let _ = context.peer.notify_progress(progress).await;
        }
    }
    Ok(text("Progress was made."))
}

pub(crate) fn text(text: &str) -> CallToolResponse {
    CallToolResult::success(vec![rmcp::model::ContentBlock::text(text)]).into()
}

fn contents(content: &Value) -> Result<CallToolResponse, ErrorData> {
    complete::<CallToolResult>(json!({ "content": content })).map(Into::into)
}

/// A result of the SDK from its JSON. The SDK takes the mark away where the client is of the legacy era.
pub(crate) fn complete<T: DeserializeOwned>(mut result: Value) -> Result<T, ErrorData> {
    if let Some(members) = result.as_object_mut() {
        members.insert("resultType".to_owned(), json!("complete"));
    }
    typed(result)
}

/// A value of the SDK from its JSON; an error only if the fixture is wrong.
pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(format!("the fixture is wrong: {error}"), None))
}
