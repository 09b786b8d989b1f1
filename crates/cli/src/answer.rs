//! What a host answered, in the one form in which a command shows it.

use anyhow::anyhow;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::Problem;
use mainstay_contract::render::content;
use serde_json::{Map, Value, json};

use crate::exit::Failure;

/// Members of an error payload after its sentence, in its order.
const FACTS: [&str; 8] = [
    "code",
    "hint",
    "retryable",
    "fault",
    "timeoutMs",
    "details",
    "stderr",
    "stdout",
];

/// The form of an answer that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    Text,
    Json,
}

/// What a tool answered.
#[derive(Debug)]
pub(crate) struct ToolAnswer {
    pub(crate) is_error: bool,
    /// What a person is shown.
    pub(crate) text: String,
    /// What a program is given: the structured content, else the content.
    pub(crate) json: Value,
}

impl ToolAnswer {
    /// A result of `tools/call`.
    pub(crate) fn of_result(mut result: Value) -> Self {
        let text = content(&result);
        let is_error = result.get("isError") == Some(&json!(true));
        let mut part = |name: &str| result.get_mut(name).map(Value::take);
        let json = match part("structuredContent").filter(|json| !json.is_null()) {
            Some(structured) if !is_error => structured,
            _ => json!({ "content": part("content").unwrap_or_else(|| json!([])) }),
        };
        Self {
            is_error,
            text,
            json,
        }
    }

    /// A failure in the host's words: the error payload that MCP clients get, whichever form the
    /// facts of the error row came in.
    pub(crate) fn problem(message: &str, facts: &Map<String, Value>) -> Self {
        let mut payload = Map::new();
        payload.insert("message".to_owned(), json!(message));
        for name in FACTS {
            if let Some(value) = facts.get(name) {
                payload.insert(name.to_owned(), value.clone());
            }
        }
        let json = Value::Object(payload);
        Self {
            is_error: true,
            text: json.to_string(),
            json,
        }
    }
}

/// Why a host gave no result.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It said so itself, with the facts of an error row.
    Problem {
        message: String,
        facts: Map<String, Value>,
    },
    /// A wrapped server said so.
    Server(Box<Problem>),
    /// It is no host of ours, or did not answer.
    Other(anyhow::Error),
}

impl Refused {
    /// What a JSON-RPC error says. Only a host of ours has a code in its data.
    pub(crate) fn of_error(error: &Value) -> Self {
        let message = error.get("message").and_then(Value::as_str);
        let message = message.unwrap_or_default().to_owned();
        match error.get("data").and_then(Value::as_object) {
            Some(facts) if facts.get("code").is_some_and(Value::is_string) => Self::Problem {
                message,
                facts: facts.clone(),
            },
            _ => {
                let code = error.get("code").and_then(Value::as_i64);
                let problem =
                    Problem::of_server(code.unwrap_or_default(), &message, error.clone().into());
                Self::Server(Box::new(problem))
            }
        }
    }

    /// Whether the other side does not know the method at all.
    pub(crate) fn is_unknown_method(&self) -> bool {
        matches!(self, Self::Server(problem) if problem.kind == ErrorKind::UnknownMethod)
    }
}

impl From<anyhow::Error> for Refused {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Problem { message, facts } => {
                let answer = ToolAnswer::problem(&message, &facts);
                let failure = Self::fault(anyhow!(message)).said(answer.text);
                match facts.get("hint").and_then(Value::as_str) {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            }
            Refused::Server(problem) => {
                let said = anyhow!("the server says: {}", problem.sentence());
                Self::input(said).said(problem.payload())
            }
            Refused::Other(error) => Self::fault(error),
        }
    }
}
