//! What a wrapped server says, as outcomes.

use mainstay_contract::dialect::Op;
use mainstay_contract::envelope::{ENVELOPE_VERSION, TOOL_ID_PREFIX, is_tool_name};
use mainstay_contract::error::{ErrorKind, Surface};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::outcome::{Outcome, Problem, Success, ToolReply, shorten_words};
use mainstay_contract::render::content;
use mainstay_contract::scan;
use serde_json::{Value, json};

use super::super::Front;
use super::super::access::Credential;
use super::ask::{Order, Reader};
use super::caller::{Handle, META, Said};
use crate::wrap::edit;

/// Pages that a list may have.
const PAGES: usize = 64;

/// Calls a tool.
pub(super) async fn call(front: &Front, who: &Credential, op: &Op, order: Order<'_>) -> Outcome {
    let Op::CallTool { name, arguments } = op else {
        return Err(Problem::of(ErrorKind::UnknownMethod));
    };
    let caller = front.callers.of(front, who).await?;
    let name = Json::from_serialize(name);
    let mut params = vec![("name", name.as_str()), ("arguments", arguments.as_str())];
    let meta = order.trace.map(|trace| {
        let meta = ObjectWriter::with_capacity(80).string("traceparent", &trace.to_string());
        meta.finish()
    });
    if let Some(meta) = &meta {
        params.push((META, meta));
    }
    match caller.ask("tools/call", &params).await? {
        Said::Result(result) => outcome_of(&result, order.reader),
        Said::Error(error) => Err(problem_of(&error)),
    }
}

/// The catalog, in the form that packs have.
pub(super) async fn catalog(front: &Front, who: &Credential) -> Outcome {
    let caller = front.callers.of(front, who).await?;
    let mut tools = tools(&caller).await?;
    tools.sort_by_key(name_of);
    let entries: Vec<_> = tools.iter().map(entry).collect();
    let server = caller
        .server()
        .unwrap_or_else(|| (front.name.clone(), front.version.clone()));
    let server = json!({ "name": server.0, "version": server.1 });
    let catalog = ObjectWriter::with_capacity(1024)
        .value("server", &server)
        .string("version", ENVELOPE_VERSION)
        .raw("tools", &edit::array(entries.iter().map(String::as_str)))
        .finish();
    Ok(Success::Members(Json::from_scanned(&catalog)))
}

/// The definitions of all tools.
pub(super) async fn listing(front: &Front, who: &Credential) -> Outcome {
    let caller = front.callers.of(front, who).await?;
    let tools = tools(&caller).await?;
    let listing = ObjectWriter::with_capacity(1024)
        .raw("tools", &edit::array(tools.iter().map(Json::as_str)))
        .finish();
    Ok(Success::Members(Json::from_scanned(&listing)))
}

async fn tools(caller: &Handle) -> Result<Vec<Json>, Problem> {
    let mut tools = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let params: Vec<_> = cursor
            .iter()
            .map(|cursor| ("cursor", cursor.as_str()))
            .collect();
        let page = match caller.ask("tools/list", &params).await? {
            Said::Result(page) => page,
            Said::Error(error) => return Err(problem_of(&error)),
        };
        let listed = scan::member(page.as_str(), "tools").unwrap_or("[]");
        tools.extend(edit::items(listed).into_iter().map(Json::from_scanned));
        cursor = scan::member(page.as_str(), "nextCursor")
            .filter(|cursor| cursor.starts_with('"'))
            .map(str::to_owned);
        if cursor.is_none() {
            return Ok(tools);
        }
    }
    let said = format!("the server's list of tools has more than {PAGES} pages");
    Err(Problem::new(ErrorKind::WorkerProtocol, said))
}

fn name_of(tool: &Json) -> Option<String> {
    let name = scan::unquote(scan::member(tool.as_str(), "name")?)?;
    Some(name.into_owned())
}

/// A definition with the identifier by which envelopes name the tool.
fn entry(tool: &Json) -> String {
    let mut entry = ObjectWriter::with_capacity(tool.len() + 64);
    if let Some(name) = name_of(tool).filter(|name| is_tool_name(name)) {
        entry = entry.string("toolId", &format!("{TOOL_ID_PREFIX}{name}"));
    }
    entry.members_of(tool.as_str()).finish()
}

/// What a result of a call means.
fn outcome_of(result: &Json, reader: Reader) -> Outcome {
    let member = |name| scan::member(result.as_str(), name);
    if member("resultType") == Some("\"input_required\"") {
        let said = "the tool asks for input, which cannot be given here";
        let problem = Problem::new(ErrorKind::MissingClientCapability, said);
        return Err(problem.with_details(result.clone()));
    }
    if member("isError") == Some("true") {
        let text = member("content").and_then(text_of).unwrap_or_default();
        return Err(host_problem(&text).unwrap_or_else(|| {
            let problem = if text.is_empty() {
                Problem::of(ErrorKind::BackendError)
            } else {
                Problem::new(ErrorKind::BackendError, shorten_words(&text))
            };
            problem.with_details(result.clone())
        }));
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

/// The problem of an error payload: what the host itself says in the server's place.
fn host_problem(text: &str) -> Option<Problem> {
    let payload: Value = serde_json::from_str(text).ok()?;
    let of = |name: &str| payload.get(name).and_then(Value::as_str);
    let (message, code) = (of("message")?, of("code")?);
    let retryable = payload.get("retryable")?.as_bool()?;
    let fault = of("fault");
    let fits = |kind: &ErrorKind| {
        let row = kind.row();
        row.surface == Surface::Tool
            && row.code.as_str() == code
            && row.retryable == retryable
            && Problem::of(*kind).fault_class().map(|class| class.as_str()) == fault
    };
    let fitting = || ErrorKind::ALL.iter().copied().filter(fits);
    let exact = fitting().find(|kind| message.starts_with(kind.row().message));
    let kind = exact.or_else(|| fitting().next())?;
    let mut problem = Problem::new(kind, message);
    problem.hint = of("hint").map(str::to_owned);
    problem.timeout_ms = payload.get("timeoutMs").and_then(Value::as_u64);
    problem.details = payload.get("details").map(|details| details.clone().into());
    problem.stderr = of("stderr").map(str::to_owned);
    problem.stdout = of("stdout").map(str::to_owned);
    Some(problem)
}

/// The nearest row of a JSON-RPC error.
pub(super) fn problem_of(error: &Json) -> Problem {
    let member = |name| scan::member(error.as_str(), name);
    let code: i64 = member("code")
        .and_then(|code| code.parse().ok())
        .unwrap_or_default();
    let data = member("data").unwrap_or("{}");
    let message = member("message")
        .and_then(scan::unquote)
        .unwrap_or_default();
    // The host's own errors name their status; their code alone is not enough.
    let status = scan::member(data, "canonical").and_then(|_| scan::member(data, "httpStatus"));
    let own = status.and_then(|status| {
        let fits = |kind: &ErrorKind| {
            let row = kind.row();
            i64::from(row.jsonrpc) == code && row.http.to_string() == status
        };
        let fitting = || ErrorKind::ALL.iter().copied().filter(fits);
        let exact = fitting().find(|kind| message.starts_with(kind.row().message));
        exact.or_else(|| fitting().next())
    });
    if let Some(kind) = own {
        let mut problem = Problem::new(kind, message.into_owned());
        if let Some(hint) = scan::member(data, "hint").and_then(scan::unquote) {
            problem.hint = Some(hint.into_owned());
        }
        problem.details = scan::member(data, "details").map(Json::from_scanned);
        problem.timeout_ms =
            scan::member(data, "timeoutMs").and_then(|timeout| timeout.parse().ok());
        let words = |name| {
            let raw = scan::member(data, name)?;
            scan::unquote(raw).map(std::borrow::Cow::into_owned)
        };
        (problem.stderr, problem.stdout) = (words("stderr"), words("stdout"));
        return problem;
    }
    Problem::of_server(code, &message, error.clone())
}

#[cfg(test)]
mod tests {
    use mainstay_contract::dialect::{Dialect, EchoId, Form, Shape, encode};

    use super::*;

    fn parsed(text: &str) -> Json {
        Json::parse(text).unwrap()
    }

    #[test]
    fn a_result_is_its_structured_content_or_its_content() {
        let data = |text: &str| match outcome_of(&parsed(text), Reader::Person) {
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
        let text = r#"{"content":[{"type":"text","text":"no"},{"type":"text","text":"paper"}],"isError":true}"#;
        let problem = outcome_of(&parsed(text), Reader::Person).unwrap_err();
        assert_eq!(problem.kind, ErrorKind::BackendError);
        assert_eq!(problem.message, "no\npaper");
        assert_eq!(problem.details, Some(parsed(text)));
    }

    #[test]
    fn every_row_that_the_host_answers_with_is_read_back_as_itself() {
        let id = EchoId::Null;
        let form = Form {
            dialect: Dialect::Legacy,
            shape: Shape::Tool,
        };
        for kind in ErrorKind::ALL {
            let problem = Problem::of(*kind);
            let line = encode::answer(&id, form, &Err(problem.clone()));
            let part = |name| scan::member(&line, name).map(Json::from_scanned);
            let read = match (part("result"), part("error")) {
                (Some(result), _) => outcome_of(&result, Reader::Program).unwrap_err(),
                (None, error) => problem_of(&error.unwrap()),
            };
            // MCP fixes the data of this one itself.
            if *kind != ErrorKind::UnsupportedVersion {
                assert_eq!(read.kind, *kind);
                assert_eq!(read, problem);
            }
        }
    }
}
