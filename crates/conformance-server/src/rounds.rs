//! Tools and a prompt that ask in their result and are called again, as the modern era has it.
//!
//! State that a caller must bring back is sealed: one that was changed on its way is refused.

use std::sync::LazyLock;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, InputRequiredResult, InputResponses, RequestStateCodec,
};
use serde_json::{Map, Value, json};

use crate::tools::{complete, text, typed};

/// Fixed, since this server guards nothing.
static SEAL: LazyLock<RequestStateCodec> =
    LazyLock::new(|| RequestStateCodec::new_unchecked(*b"the key of a fixture guards nothing"));

pub(crate) fn tool(
    request: &CallToolRequestParams,
    client: &ClientCapabilities,
) -> Result<CallToolResponse, ErrorData> {
    let responses = request.input_responses.as_ref();
    let state = request.request_state.as_deref();
    match request.name.as_ref() {
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
            match content(responses, "user_name", "name") {
                Some(Value::String(name)) => Ok(text(&format!("Hello, {name}!"))),
                _ => asked(&[("user_name", ask_name())], None),
            }
        }
        "test_input_required_result_sampling" => match response(responses, "capital_question") {
            Some(answer) => Ok(text(&format!("The model said {}", said(answer)))),
            None => asked(
                &[("capital_question", sample("What is the capital of France?"))],
                None,
            ),
        },
        "test_input_required_result_list_roots" => match response(responses, "client_roots") {
            Some(answer) => Ok(text(&format!("Roots: {}", json!(answer.get("roots"))))),
            None => asked(&[("client_roots", roots())], None),
        },
        "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => {
            if let Some(state) = state {
                opened(state, "confirm")?;
                if response(responses, "confirm").is_some() {
                    return Ok(text("state-ok"));
                }
            }
            asked(&[("confirm", confirm())], Some("confirm"))
        }
        "test_input_required_result_multiple_inputs" => {
            if let Some(state) = state {
                opened(state, "three")?;
            }
            let given = ["user_name", "greeting", "client_roots"]
                .iter()
                .all(|key| response(responses, key).is_some());
            if given && state.is_some() {
                return Ok(text("All three arrived."));
            }
            asked(
                &[
                    ("user_name", ask_name()),
                    ("greeting", sample("Generate a greeting")),
                    ("client_roots", roots()),
                ],
                Some("three"),
            )
        }
        "test_input_required_result_multi_round" => several(responses, state),
        "test_input_required_result_capabilities" => only_declared(responses, client),
        other => Err(ErrorData::invalid_params(
            format!("no tool is called {other}"),
            None,
        )),
    }
}

pub(crate) fn prompt(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let responses = request.input_responses.as_ref();
    let Some(context) = content(responses, "user_context", "context") else {
        let ask = form("What context should the prompt use?", "context", "string");
        return Ok(required(&[("user_context", ask)], None)?.into());
    };
    let result: GetPromptResult = complete(json!({"messages": [
        {"role": "user", "content": {"type": "text", "text": format!("In the context of {context}.")}},
    ]}))?;
    Ok(result.into())
}

fn several(
    responses: Option<&InputResponses>,
    state: Option<&str>,
) -> Result<CallToolResponse, ErrorData> {
    let first = || {
        let ask = form("Step 1: What is your name?", "name", "string");
        asked(&[("step1", ask)], Some("step1"))
    };
    let Some(state) = state else { return first() };
    match open(state)?.as_str() {
        "step1" if response(responses, "step1").is_some() => {
            let ask = form("Step 2: What is your favorite color?", "color", "string");
            asked(&[("step2", ask)], Some("step2"))
        }
        "step2" => match content(responses, "step2", "color") {
            Some(color) => Ok(text(&format!("You like {color}."))),
            None => first(),
        },
        _ => first(),
    }
}

fn only_declared(
    responses: Option<&InputResponses>,
    client: &ClientCapabilities,
) -> Result<CallToolResponse, ErrorData> {
    if responses.is_some_and(|responses| !responses.is_empty()) {
        return Ok(text("Answered."));
    }
    let mut asks = Vec::new();
    if client.sampling.is_some() {
        asks.push(("model", sample("Say anything")));
    }
    if client.elicitation.is_some() {
        asks.push(("user_name", ask_name()));
    }
    if client.roots.is_some() {
        asks.push(("client_roots", roots()));
    }
    if asks.is_empty() {
        return Ok(text("No client to ask."));
    }
    asked(&asks, None)
}

fn asked(asks: &[(&str, Value)], state: Option<&str>) -> Result<CallToolResponse, ErrorData> {
    Ok(required(asks, state)?.into())
}

fn required(asks: &[(&str, Value)], state: Option<&str>) -> Result<InputRequiredResult, ErrorData> {
    let requests: Map<String, Value> = asks
        .iter()
        .map(|(key, ask)| ((*key).to_owned(), ask.clone()))
        .collect();
    Ok(InputRequiredResult::new(
        Some(typed(Value::Object(requests))?),
        state.map(|state| SEAL.seal(state.as_bytes())),
    ))
}

fn open(state: &str) -> Result<String, ErrorData> {
    let foreign = || ErrorData::invalid_params("requestState is not ours", None);
    let bytes = SEAL.open(state).map_err(|_| foreign())?;
    String::from_utf8(bytes).map_err(|_| foreign())
}

fn opened(state: &str, expected: &str) -> Result<(), ErrorData> {
    if open(state)? == expected {
        Ok(())
    } else {
        Err(ErrorData::invalid_params(
            "requestState is of another call",
            None,
        ))
    }
}

/// Anything but an object counts as not given.
fn response<'a>(
    responses: Option<&'a InputResponses>,
    key: &str,
) -> Option<&'a Map<String, Value>> {
    responses?.get(key)?.as_object()
}

fn content<'a>(
    responses: Option<&'a InputResponses>,
    key: &str,
    member: &str,
) -> Option<&'a Value> {
    response(responses, key)?.get("content")?.get(member)
}

fn said(answer: &Map<String, Value>) -> String {
    let text = answer
        .get("content")
        .and_then(|content| content.get("text"));
    text.and_then(Value::as_str).unwrap_or("nothing").to_owned()
}

fn ask_name() -> Value {
    form("What is your name?", "name", "string")
}

fn confirm() -> Value {
    form("Please confirm", "ok", "boolean")
}

fn form(message: &str, member: &str, kind: &str) -> Value {
    json!({"method": "elicitation/create", "params": {
        "mode": "form",
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": {member: {"type": kind}},
            "required": [member],
        },
    }})
}

fn sample(prompt: &str) -> Value {
    json!({"method": "sampling/createMessage", "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}],
        "maxTokens": 100,
    }})
}

fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}
