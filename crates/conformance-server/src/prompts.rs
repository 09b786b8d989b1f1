//! The prompts: fixed messages with the arguments put in.

use rmcp::ErrorData;
use rmcp::model::{GetPromptRequestParams, GetPromptResponse, GetPromptResult};
use serde_json::{Value, json};

use crate::catalog::{CHANGING_PROMPT, IMAGE};
use crate::{rounds, tools};

pub(crate) fn get(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let argument = |name: &str| -> Result<&str, ErrorData> {
        request
            .arguments
            .as_ref()
            .and_then(|arguments| arguments.get(name))
            .and_then(Value::as_str)
            .ok_or_else(|| ErrorData::invalid_params(format!("{name} is missing"), None))
    };
    let user = |content: Value| json!({"role": "user", "content": content});
    let text = |text: &str| json!({"type": "text", "text": text});
    let messages = match request.name.as_str() {
        "test_simple_prompt" => vec![user(text("This is a simple prompt for testing."))],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1")?, argument("arg2")?);
            vec![user(text(&format!(
                "Prompt with arguments: arg1='{first}', arg2='{second}'"
            )))]
        }
        "test_prompt_with_embedded_resource" => vec![
            user(json!({"type": "resource", "resource": {
                "uri": argument("resourceUri")?,
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            }})),
            user(text("Please process the embedded resource above.")),
        ],
        "test_prompt_with_image" => vec![
            user(json!({"type": "image", "data": IMAGE, "mimeType": "image/png"})),
            user(text("Please analyze the image above.")),
        ],
        "test_input_required_result_prompt" => return rounds::prompt(request),
        CHANGING_PROMPT => vec![user(text("Here for the moment."))],
        other => {
            return Err(ErrorData::invalid_params(
                format!("no prompt is called {other}"),
                None,
            ));
        }
    };
    let result: GetPromptResult = tools::complete(json!({ "messages": messages }))?;
    Ok(result.into())
}
