//! `/v1/tool/{tool}`: one run of a tool, answered with a result envelope.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use mainstay_contract::dialect::{Op, run_of};
use mainstay_contract::envelope::{Asked, Meta, Route, TOOL_ID_PREFIX, Transport, tool_name};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Problem, Success, VERDICT_HEADER, VERDICT_NO};
use mainstay_contract::render::shorten;
use mainstay_contract::scan::{self, ScanErrorKind};
use mainstay_contract::trace::TraceContext;
use mainstay_contract::uri;

use super::super::access::Credential;
use super::super::respond::{self, Answer};
use super::super::{Front, headers};
use super::Sender;
use super::ask::{self, Ended, Order};
use super::tasks;
use crate::forwarded::Reader;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const VERDICT: HeaderName = HeaderName::from_static(VERDICT_HEADER);
const TEXT: &str = "text/plain; charset=utf-8";
/// The only member of a body.
const ARGUMENTS: &str = "arguments";

pub(super) async fn answer(
    front: &Front,
    tool: &str,
    headers: &HeaderMap,
    body: Incoming,
    who: &Credential,
) -> Answer {
    let body = match super::read(front, headers, body, Sender::Known).await {
        Ok(body) => body,
        Err(problem) => return refuse(front, tool, &problem),
    };
    let wished = tasks::wish(headers);
    match run(front, tool, &body).and_then(|run| Ok((run, wished?))) {
        Ok(((op, asked), task)) => {
            let mut meta = front.envelopes.meta(&asked, Transport::Http);
            if let Op::CallTool { name, .. } = &op {
                meta.tool_id = known_id(&identifier(name));
            }
            let trace = headers::value(headers, &TRACEPARENT).and_then(TraceContext::parse);
            if let Some(trace) = &trace {
                meta.follow(trace);
            }
            let id = meta.ids.request.clone();
            let reader = reader(headers);
            let order = Order {
                bytes: body.len(),
                id: &id,
                reader,
                trace,
                task,
            };
            let ended = ask::run(front, who, op, order).await;
            match &ended.outcome {
                Ok(Success::Tool(reply)) if reader == Reader::Person => {
                    let text = reply.text.as_deref().unwrap_or(reply.json.as_str());
                    let mut answer = respond::typed(TEXT, text.to_owned());
                    if reply.says_no() {
                        let headers = answer.headers_mut();
                        headers.insert(VERDICT, HeaderValue::from_static(VERDICT_NO));
                    }
                    answer
                }
                outcome => tasks::accepted(outcome, envelope(front, meta, &ended)),
            }
        }
        Err(problem) => refuse(front, tool, &problem),
    }
}

/// One that accepts text and no JSON wants to be read by people.
fn reader(headers: &HeaderMap) -> Reader {
    let accepts = |kind| headers::accepts(headers, kind);
    let says = headers.contains_key(ACCEPT);
    if says && accepts("text/plain") && !accepts("application/json") {
        Reader::Person
    } else {
        Reader::Program
    }
}

/// Refuses a request before any tool was asked.
pub(super) fn refuse(front: &Front, tool: &str, problem: &Problem) -> Answer {
    let asked = Asked {
        route: Route::Tool,
        payload: Json::null(),
    };
    let mut meta = front.envelopes.meta(&asked, Transport::Http);
    meta.tool_id = uri::decode(tool).and_then(|tool| known_id(&identifier(&tool)));
    if problem.kind == ErrorKind::FrameTooLarge {
        meta.input_bytes = front.limits.request_frame_bytes as u64;
    }
    envelope(front, meta, &Ended::refused(problem.clone()))
}

fn envelope(front: &Front, mut meta: Meta, ended: &Ended) -> Answer {
    meta.duration_ms = ended.duration_ms;
    meta.attempt = ended.repeated;
    if let Some(tool) = &ended.tool {
        meta.tool_id = known_id(&identifier(tool));
    }
    let sealed = front.envelopes.result(meta, &ended.outcome);
    let retry_after_ms = respond::retry_after_ms(&ended.outcome);
    respond::of_kind(sealed.kind, retry_after_ms, sealed.text)
}

/// Reads the operation of a request.
fn run(front: &Front, tool: &str, body: &Bytes) -> Result<(Op, Asked), Problem> {
    let Some(tool) = uri::decode(tool) else {
        let said = "the name of the tool in the path is not UTF-8 in percent-encoding";
        return Err(Problem::new(ErrorKind::InvalidParams, said));
    };
    let id = identifier(&tool);
    let arguments = arguments(body, front.limits.json_depth)?;
    let op = run_of(&id, arguments.as_ref().map(Json::as_str))?;
    let asked = Asked::tool(&id, &arguments.unwrap_or_else(Json::empty_object));
    Ok((op, asked))
}

/// The arguments of a body `{"arguments": {...}}`.
fn arguments(body: &[u8], depth: usize) -> Result<Option<Json>, Problem> {
    let text = match scan::scan(body.trim_ascii(), depth) {
        Ok(scanned) => scanned.text,
        Err(error) => {
            let kind = ErrorKind::InvalidMessage;
            return Err(match error.kind {
                ScanErrorKind::BadJson => {
                    let said = format!("the body is not valid JSON (at byte {})", error.offset);
                    Problem::new(ErrorKind::ParseError, said)
                }
                ScanErrorKind::NotAnObject => Problem::new(kind, "the body is not an object"),
                ScanErrorKind::DuplicateKey => Problem::new(kind, "the body has a member twice"),
                ScanErrorKind::TooManyMembers => {
                    Problem::new(kind, "the body has too many members")
                }
                ScanErrorKind::TooDeep => {
                    let said = format!("the body is nested deeper than {depth} levels");
                    Problem::new(kind, said)
                }
            }
            .with_hint(r#"send {"arguments": {...}}"#));
        }
    };
    let mut arguments = None;
    for (name, value) in scan::members(text) {
        if name != ARGUMENTS {
            let said = format!("the body has no member {:?}", shorten(&name, 64));
            let problem = Problem::new(ErrorKind::InvalidParams, said);
            return Err(problem.with_hint(r#"send {"arguments": {...}}"#));
        }
        arguments = Some(Json::from_scanned(value));
    }
    Ok(arguments)
}

/// The identifier of a tool that is named either way.
fn identifier(tool: &str) -> String {
    if tool.starts_with(TOOL_ID_PREFIX) {
        tool.to_owned()
    } else {
        format!("{TOOL_ID_PREFIX}{tool}")
    }
}

fn known_id(id: &str) -> Option<String> {
    tool_name(id).map(|_| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_arguments_and_nothing_else() {
        let read = |body: &str| arguments(body.as_bytes(), 8);
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(
            read(r#" {"arguments": {"a":1.0}} "#),
            Ok(Some(Json::parse(r#"{"a":1.0}"#).unwrap()))
        );
        for (body, kind) in [
            ("", ErrorKind::ParseError),
            ("{", ErrorKind::ParseError),
            ("[]", ErrorKind::InvalidMessage),
            (
                r#"{"arguments":{},"arguments":{}}"#,
                ErrorKind::InvalidMessage,
            ),
            (r#"{"argument":{}}"#, ErrorKind::InvalidParams),
            (
                r#"{"arguments":[[[[[[[[[]]]]]]]]]}"#,
                ErrorKind::InvalidMessage,
            ),
        ] {
            assert_eq!(read(body).unwrap_err().kind, kind, "{body}");
        }
    }
}
