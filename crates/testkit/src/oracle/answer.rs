//! What an answer says about its call, read out of any dialect.

use serde_json::Value;

use super::Effect;
use crate::peer::Message;

/// The one terminal answer of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The effect that the answer speaks of, where it says so.
    Success(Option<Effect>),
    Failed(Failure),
}

/// A typed failure, as far as it says something about effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Refused before dispatch: overload, bad arguments, shutting down.
    Refused(String),
    /// No worker: refused before dispatch or, if its contract lets it be repeated, after attempts
    /// that were lost.
    Unavailable(String),
    /// The worker was lost, the outcome is unknown and the call was not repeated.
    OutcomeUnknown,
    /// Every attempt was lost with its worker.
    Exhausted,
    Timeout,
    Cancelled,
    /// The tool itself said no, or its answer could not be used.
    Tool(String),
}

impl Failure {
    /// What an answer of `mainstay` says, in the direct dialect or in MCP. `None` is a success.
    pub fn read(message: &Message) -> Option<Self> {
        let tree = message.value();
        if let Some(error) = tree.get("error") {
            return Some(Self::Refused(text(error, "message")));
        }
        let result = tree.get("result")?;
        let is_error = result.get("isError") == Some(&Value::Bool(true));
        if result.get("ok") == Some(&Value::Bool(false)) {
            return Some(Self::classify(result));
        }
        if !is_error {
            return None;
        }
        let payload = result.pointer("/content/0/text").and_then(Value::as_str);
        match payload.map(serde_json::from_str::<Value>) {
            Some(Ok(payload)) => Some(Self::classify(&payload)),
            _ => Some(Self::Tool(result.to_string())),
        }
    }

    /// By code, fault class and whether a retry can help: the members that are the contract.
    fn classify(payload: &Value) -> Self {
        let (code, fault) = (text(payload, "code"), text(payload, "fault"));
        let retryable = payload.get("retryable") == Some(&Value::Bool(true));
        match (code.as_str(), fault.as_str(), retryable) {
            ("CANCELLED", _, _) => Self::Cancelled,
            ("TOOL_TIMEOUT", _, _) => Self::Timeout,
            ("QUEUE_OVERLOADED", _, _) => Self::Refused(code),
            ("INTERNAL", "process", false) => Self::OutcomeUnknown,
            ("INTERNAL", "process", true) => Self::Unavailable(text(payload, "message")),
            ("INTERNAL", "rollout", true) => Self::Refused(text(payload, "message")),
            ("INTERNAL", "replay", _) => Self::Exhausted,
            ("INVALID_REQUEST", "", _) if payload.get("details").is_some() => {
                Self::Refused(text(payload, "message"))
            }
            _ => Self::Tool(text(payload, "message")),
        }
    }
}

fn text(of: &Value, key: &str) -> String {
    let member = of.get(key).and_then(Value::as_str);
    member.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Failure> {
        Failure::read(&Message::parse(line.as_bytes()).unwrap())
    }

    #[test]
    fn the_same_failure_is_read_out_of_both_dialects() {
        for (payload, failure) in [
            (
                r#""code":"INTERNAL","retryable":false,"fault":"process""#,
                Failure::OutcomeUnknown,
            ),
            (
                r#""code":"INTERNAL","retryable":true,"fault":"replay""#,
                Failure::Exhausted,
            ),
            (
                r#""code":"INTERNAL","retryable":true,"fault":"process","message":"m""#,
                Failure::Unavailable("m".to_owned()),
            ),
            (
                r#""code":"QUEUE_OVERLOADED","retryable":true,"fault":"resource""#,
                Failure::Refused("QUEUE_OVERLOADED".to_owned()),
            ),
            (
                r#""code":"CANCELLED","retryable":false,"fault":"transport""#,
                Failure::Cancelled,
            ),
        ] {
            let direct = format!(
                r#"{{"id":1,"result":{{"ok":false,"isError":true,"reason":"r",{payload}}}}}"#
            );
            assert_eq!(read(&direct), Some(failure.clone()));
            let text = Value::String(format!("{{{payload}}}"));
            let legacy = format!(
                r#"{{"id":1,"result":{{"content":[{{"type":"text","text":{text}}}],"isError":true}}}}"#
            );
            assert_eq!(read(&legacy), Some(failure));
        }
    }

    #[test]
    fn a_result_is_a_success_and_a_protocol_error_a_refusal() {
        assert_eq!(read(r#"{"id":1,"result":{"ok":true}}"#), None);
        assert_eq!(read(r#"{"id":1,"result":{"content":[]}}"#), None);
        let refused = read(r#"{"id":1,"error":{"code":-32602,"message":"no such tool"}}"#);
        assert_eq!(refused, Some(Failure::Refused("no such tool".to_owned())));
    }
}
