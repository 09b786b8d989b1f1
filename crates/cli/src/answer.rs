//! What a host answered, in the one form in which a command shows it.

use anyhow::anyhow;
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

/// What a tool answered.
#[derive(Debug)]
pub(crate) struct ToolAnswer {
    pub(crate) is_error: bool,
    pub(crate) text: String,
    pub(crate) structured: Value,
}

impl ToolAnswer {
    /// A failure in a wrapped server's own words.
    pub(crate) fn failed(text: &str) -> Self {
        Self {
            is_error: true,
            text: text.to_owned(),
            structured: Value::Null,
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
        Self::failed(&Value::Object(payload).to_string())
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
    /// It is no host of ours, or did not answer.
    Other(anyhow::Error),
}

impl Refused {
    /// What a JSON-RPC error says. Only a host of ours has a code in its data.
    pub(crate) fn of_error(error: &Value) -> Self {
        let message = error.get("message").and_then(Value::as_str);
        let message = message.unwrap_or("no message").to_owned();
        match error.get("data").and_then(Value::as_object) {
            Some(facts) if facts.get("code").is_some_and(Value::is_string) => Self::Problem {
                message,
                facts: facts.clone(),
            },
            _ => Self::Other(anyhow!(message)),
        }
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
            Refused::Other(error) => Self::fault(error),
        }
    }
}
