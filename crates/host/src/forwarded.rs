//! A wrapped server's own answer as an outcome, for REST and the command line.
//!
//! The host's errors arrive typed, so nothing that a server writes can pass for one of them: its failures
//! are `backend_error`, or the row of its JSON-RPC code.

use mainstay_contract::dialect::Dialect;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::outcome::{Forwarded, Outcome, Problem, Success, ToolReply, shorten_words};
use mainstay_contract::render::content;
use mainstay_contract::scan;
use serde_json::Value;

/// The reader of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Reads JSON alone.
    Program,
    /// Reads the text that an MCP client would show, too.
    Person,
}

impl Reader {
    /// The dialect in which such a reader asks.
    pub(crate) const fn dialect(self) -> Dialect {
        match self {
            Self::Program => Dialect::Rest,
            Self::Person => Dialect::Modern,
        }
    }
}

/// The outcome of a request, in the form that packs have.
pub(crate) fn outcome_of(outcome: Outcome, reader: Reader) -> Outcome {
    let Ok(Success::Forwarded(response)) = outcome else {
        return outcome;
    };
    result(&response).and_then(|result| result_of(&result, reader))
}

/// The result that a wrapped server answered, as it wrote it.
pub(crate) fn result(response: &Forwarded) -> Result<Json, Problem> {
    let line = response.line.as_str();
    match scan::member(line, "result") {
        Some(result) => Ok(Json::from_scanned(result)),
        None => Err(Problem::of_server(
            scan::member(line, "error").unwrap_or("{}"),
        )),
    }
}

/// The outcome of a call that a wrapped server answered with a result.
fn result_of(result: &Json, reader: Reader) -> Outcome {
    if !result.as_str().starts_with('{') {
        let said = "the server's result is not an object";
        let problem = Problem::new(ErrorKind::BackendError, said);
        return Err(problem.with_details(result.clone()));
    }
    let member = |name| scan::member(result.as_str(), name);
    if member("resultType") == Some("\"input_required\"") {
        let said = "the tool asks for input, which cannot be given here";
        let problem = Problem::new(ErrorKind::MissingClientCapability, said);
        return Err(problem.with_details(result.clone()));
    }
    if member("isError") == Some("true") {
        let text = member("content").and_then(text_of).unwrap_or_default();
        let problem = if text.is_empty() {
            Problem::of(ErrorKind::BackendError)
        } else {
            Problem::new(ErrorKind::BackendError, shorten_words(&text))
        };
        return Err(problem.with_details(result.clone()));
    }
    let json = match member("structuredContent").filter(|content| *content != "null") {
        Some(content) => Json::from_scanned(content),
        None => {
            let content = member("content").unwrap_or("[]");
            let object = ObjectWriter::with_capacity(content.len() + 16).raw("content", content);
            Json::from_scanned(&object.finish())
        }
    };
    let text = match reader {
        Reader::Program => None,
        Reader::Person => Some(content(&result.to_value().unwrap_or_default())),
    };
    Ok(Success::Tool(ToolReply { json, text }))
}

/// The text parts of a content.
fn text_of(content: &str) -> Option<String> {
    let parts: Vec<Value> = serde_json::from_str(content).ok()?;
    let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
    Some(texts.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use mainstay_contract::dialect::{EchoId, Form, Shape, encode};

    use super::*;

    fn read(line: &str) -> Outcome {
        let line = Json::parse(line).unwrap();
        let is_error = false;
        let outcome = Ok(Success::Forwarded(Forwarded { line, is_error }));
        outcome_of(outcome, Reader::Person)
    }

    #[test]
    fn a_result_is_its_structured_content_or_its_content() {
        let data = |result: &str| match read(&format!(r#"{{"id":1,"result":{result}}}"#)) {
            Ok(Success::Tool(reply)) => reply.json.as_str().to_owned(),
            other => panic!("{other:?}"),
        };
        let both = r#"{"content":[],"structuredContent":{"n":1.0}}"#;
        assert_eq!(data(both), r#"{"n":1.0}"#);
        let plain = r#"{"content":[{"type":"text","text":"a"}]}"#;
        assert_eq!(data(plain), plain);
        assert_eq!(data("{}"), r#"{"content":[]}"#);
    }

    #[test]
    fn a_servers_own_error_keeps_its_words_and_all_of_the_result() {
        let result = r#"{"content":[{"type":"text","text":"no"},{"type":"text","text":"paper"}],"isError":true}"#;
        let problem = read(&format!(r#"{{"id":1,"result":{result}}}"#)).unwrap_err();
        assert_eq!(problem.kind, ErrorKind::BackendError);
        assert_eq!(problem.message, "no\npaper");
        assert_eq!(problem.details, Some(Json::parse(result).unwrap()));
    }

    #[test]
    fn no_answer_of_a_server_passes_for_an_error_of_the_host() {
        let backend = |problem: &Problem| {
            matches!(
                problem.kind,
                ErrorKind::BackendError
                    | ErrorKind::UnknownMethod
                    | ErrorKind::InvalidParams
                    | ErrorKind::ResourceNotFound
                    | ErrorKind::MissingClientCapability
            )
        };
        for kind in ErrorKind::ALL {
            for shape in [Shape::Tool, Shape::Plain] {
                let dialect = Dialect::Legacy;
                let form = Form { dialect, shape };
                let forged = Err(Problem::of(*kind));
                let line = encode::answer(&EchoId::Null, form, &forged);
                let problem = read(&line).unwrap_err();
                assert!(backend(&problem), "{kind:?} as {shape:?}: {problem:?}");
            }
        }
    }
}
