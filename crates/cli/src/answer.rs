//! A host's answer, in the form in which a command shows it.

use anyhow::anyhow;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::{Problem, ToolReply, says_no};
use mainstay_contract::render::content;
use serde_json::{Map, Value, json};

use mainstay_host::AskError;

use crate::exit::{self, Failure};

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

/// The answer of a tool.
#[derive(Debug)]
pub(crate) struct ToolAnswer {
    /// The exit code of the command that asked.
    pub(crate) code: u8,
    /// The form for people.
    pub(crate) text: String,
    /// The form for programs: the structured content, else the content.
    pub(crate) json: Value,
}

impl ToolAnswer {
    /// A tool's success.
    pub(crate) fn of_reply(reply: &ToolReply) -> Self {
        let text = reply.text.as_deref().unwrap_or(reply.json.as_str());
        let json = reply.json.to_value().unwrap_or_default();
        Self {
            code: verdict_code(&json),
            text: text.to_owned(),
            json,
        }
    }

    /// The error payload of a problem.
    pub(crate) fn of_problem(problem: &Problem) -> Self {
        let text = problem.payload();
        Self {
            code: code_of(problem.kind.row().code.as_str()),
            json: serde_json::from_str(&text).unwrap_or_default(),
            text,
        }
    }

    /// A wrapped server's own error: a failed result keeps its words.
    pub(crate) fn of_server_problem(problem: &Problem) -> Self {
        let details = problem.details.as_ref();
        match details.and_then(|details| details.to_value().ok()) {
            Some(result) if is_failure(&result) => Self::of_failure(result, problem.payload()),
            _ => Self::of_problem(problem),
        }
    }

    /// A result that a wrapped server marked as an error. Words that look like an error payload of the host
    /// are shown inside `payload`, the payload of the server's failure.
    pub(crate) fn of_failure(result: Value, payload: String) -> Self {
        let answer = Self::of_result(result);
        let text = match payload_code(&answer.text) {
            Some(_) => payload,
            None => answer.text,
        };
        let code = exit::NO;
        Self {
            code,
            text,
            ..answer
        }
    }

    /// A result of `tools/call` over MCP.
    pub(crate) fn of_result(mut result: Value) -> Self {
        let text = content(&result);
        let is_error = is_failure(&result);
        let code = match is_error {
            true => exit_code(&text),
            false => exit::SUCCESS,
        };
        let mut part = |name: &str| result.get_mut(name).map(Value::take);
        let json = match part("structuredContent").filter(|json| !json.is_null()) {
            Some(structured) if !is_error => structured,
            _ => json!({ "content": part("content").unwrap_or_else(|| json!([])) }),
        };
        let code = match code {
            exit::SUCCESS => verdict_code(&json),
            code => code,
        };
        Self { code, text, json }
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
        let text = json.to_string();
        Self {
            code: exit_code(&text),
            text,
            json,
        }
    }
}

/// The exit code of a tool's own answer.
pub(crate) fn verdict_code(answer: &Value) -> u8 {
    match says_no(answer) {
        true => exit::NO,
        false => exit::SUCCESS,
    }
}

/// True for a result of `tools/call` that its server marked as an error.
pub(crate) fn is_failure(result: &Value) -> bool {
    result.get("isError") == Some(&json!(true))
}

/// The exit code of an error payload.
pub(crate) fn exit_code(payload: &str) -> u8 {
    payload_code(payload).map_or(exit::NO, |code| code_of(&code))
}

/// The code in an error payload. `None` for other texts.
fn payload_code(text: &str) -> Option<String> {
    let payload: Value = serde_json::from_str(text).ok()?;
    payload.get("code")?.as_str().map(str::to_owned)
}

/// The exit code of an error code: it shows who must act.
fn code_of(code: &str) -> u8 {
    match code {
        "INVALID_REQUEST" | "UNAUTHORIZED" | "FORBIDDEN" => exit::INPUT,
        "INTERNAL" => exit::FAULT,
        _ => exit::NO,
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
    /// A JSON-RPC error of a host on a socket. An error with a code in its data counts as the host's own. A
    /// server that this host wraps could write the same, but the peer is the host that the owner of the socket
    /// runs: the command believes it as it would believe that host's list of tools. With a host of its own
    /// the command gets typed errors instead.
    pub(crate) fn of_error(error: &Value) -> Self {
        let message = error.get("message").and_then(Value::as_str);
        let message = message.unwrap_or_default().to_owned();
        match error.get("data").and_then(Value::as_object) {
            Some(facts) if facts.get("code").is_some_and(Value::is_string) => Self::Problem {
                message,
                facts: facts.clone(),
            },
            _ => {
                let problem = Problem::of_server(&error.to_string());
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

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Host(problem) => {
                let failure = Self::fault(anyhow!(problem.sentence().to_owned()));
                let failure = failure.said(problem.payload());
                match problem.hint {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            }
            AskError::Server(problem) => {
                let said = anyhow!("the server says: {}", problem.sentence());
                Self::input(said).said(problem.payload())
            }
        }
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
            Refused::Server(problem) => AskError::Server(problem).into(),
            Refused::Other(error) => Self::fault(error),
        }
    }
}
