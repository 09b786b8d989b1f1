//! From an outcome to one line, in the form that the request's dialect wants.
//!
//! Every error form here is a projection of the error table's row; no code is chosen in this
//! file, but for one that MCP itself retired between its eras.

use super::{Dialect, EchoId, Form, Shape};
use crate::error::{ErrorKind, Surface};
use crate::id::RequestId;
use crate::json::{Json, ObjectWriter, push_string};
use crate::meta;
use crate::method::Method;
use crate::outcome::{Outcome, Problem, Success};
use crate::rpc::Progress;
use crate::scan;

/// Members that every cacheable modern result carries. Nothing is cached: a catalog may change
/// with the next generation, and asking again costs microseconds.
const CACHE_MEMBERS: &str = r#"{"ttlMs":0,"cacheScope":"private"}"#;

/// The answer to a request, without its line end. Envelopes come from [`enveloped`].
pub fn answer(id: &EchoId, form: Form, outcome: &Outcome) -> String {
    match outcome {
        Ok(Success::Forwarded(response)) => response.line.as_str().to_owned(),
        Ok(success) => result(id, &success_members(form, success)),
        Err(problem) => refusal(id, form, problem),
    }
}

/// The result or the error that a tool call has in an era of MCP, without its envelope.
pub fn tool_result(dialect: Dialect, outcome: &Outcome) -> Result<String, String> {
    let form = Form {
        dialect,
        shape: Shape::Tool,
    };
    match outcome {
        Ok(Success::Forwarded(response)) => {
            let line = response.line.as_str();
            let Some(result) = scan::member(line, "result") else {
                return Err(scan::member(line, "error").unwrap_or("{}").to_owned());
            };
            // A server of the legacy era does not write the type of its results.
            let is_typed = scan::member(result, "resultType").is_some();
            if is_typed || dialect != Dialect::Modern || !result.starts_with('{') {
                return Ok(result.to_owned());
            }
            let object = modern_type(form, ObjectWriter::with_capacity(result.len() + 32));
            Ok(object.members_of(result).finish())
        }
        Ok(success) => Ok(success_members(form, success)),
        Err(problem) if problem.kind.row().surface == Surface::Tool => {
            Ok(tool_failure(form, problem))
        }
        Err(problem) => Err(error_object(form, problem)),
    }
}

/// A notification in the host's own words, without its line end.
pub fn notification(method: Method, params: Option<&str>) -> String {
    ObjectWriter::with_capacity(params.map_or(0, str::len) + 96)
        .raw("jsonrpc", "\"2.0\"")
        .string("method", method.name())
        .optional_raw("params", params)
        .finish()
}

/// A question to the client without params, without its line end.
pub fn question(id: &str, method: &str) -> String {
    ObjectWriter::with_capacity(96)
        .string("jsonrpc", "2.0")
        .string("id", id)
        .string("method", method)
        .finish()
}

/// The answer whose result is an envelope that was made elsewhere, without its line end.
pub fn enveloped(id: &EchoId, envelope: &str) -> String {
    result(id, envelope)
}

/// True if a problem is a JSON-RPC error in the direct and the envelope dialect, too: a line
/// that is not a request has no result, and a second request of an id must not be taken for the first.
pub const fn is_of_the_message(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ParseError | ErrorKind::InvalidMessage | ErrorKind::DuplicateId
    )
}

fn success_members(form: Form, success: &Success) -> String {
    match (form.dialect, success) {
        (Dialect::Direct | Dialect::Envelope | Dialect::Rest, Success::Tool(reply)) => {
            reply.json.as_str().to_owned()
        }
        (Dialect::Direct | Dialect::Envelope | Dialect::Rest, Success::Members(members)) => {
            members.as_str().to_owned()
        }
        (_, Success::Forwarded(response)) => response.line.as_str().to_owned(),
        (_, Success::Tool(reply)) => {
            let text = reply.text.as_deref().unwrap_or(reply.json.as_str());
            let capacity = text.len() + reply.json.len() + 128;
            modern_type(form, ObjectWriter::with_capacity(capacity))
                .raw("content", &text_content(text))
                .raw("structuredContent", reply.json.as_str())
                .finish()
        }
        (_, Success::Members(members)) => {
            let object = ObjectWriter::with_capacity(members.len() + 64);
            // A tool's answer has no members of its own: these are of a task.
            let object = match (form.dialect, form.shape) {
                (Dialect::Modern, Shape::Tool) => object.raw("resultType", "\"task\""),
                _ => modern_type(form, object),
            };
            let object = object.members_of(members.as_str());
            match (form.dialect, form.shape) {
                (Dialect::Modern, Shape::Cacheable) => object.members_of(CACHE_MEMBERS).finish(),
                _ => object.finish(),
            }
        }
    }
}

fn refusal(id: &EchoId, form: Form, problem: &Problem) -> String {
    let row = problem.kind.row();
    match (form.dialect, form.shape, row.surface) {
        (Dialect::Direct, _, _) if is_of_the_message(problem.kind) => error(id, form, problem),
        (Dialect::Direct, _, _) => result(id, &direct_failure(problem)),
        (Dialect::Envelope | Dialect::Rest, _, _) => error(id, form, problem),
        (_, Shape::Tool, Surface::Tool) => result(id, &tool_failure(form, problem)),
        _ => error(id, form, problem),
    }
}

/// A failure that the model should read.
fn tool_failure(form: Form, problem: &Problem) -> String {
    let object = ObjectWriter::with_capacity(problem.message.len() + 256);
    modern_type(form, object)
        .raw("content", &text_content(&problem.payload()))
        .raw("isError", "true")
        .finish()
}

/// A failure in the direct dialect: the tool's own JSON where it has one, else the row.
fn direct_failure(problem: &Problem) -> String {
    if let Some(details) = &problem.details {
        return details.as_str().to_owned();
    }
    let row = problem.kind.row();
    let object = ObjectWriter::with_capacity(160).raw("ok", "false");
    match problem.kind {
        ErrorKind::FrameTooLarge => object
            .string("reason", row.reason)
            .raw("errors", r#"[{"path":"","msg":"payload_too_large"}]"#)
            .finish(),
        ErrorKind::UnknownTool => object
            .string("reason", row.reason)
            .string("detail", row.message)
            .finish(),
        _ => {
            let payload = problem.payload();
            object
                .raw("isError", "true")
                .string("reason", row.reason)
                .members_of(&payload)
                .finish()
        }
    }
}

fn modern_type(form: Form, object: ObjectWriter) -> ObjectWriter {
    match form.dialect {
        Dialect::Modern => object.raw("resultType", "\"complete\""),
        Dialect::Legacy | Dialect::Direct | Dialect::Envelope | Dialect::Rest => object,
    }
}

fn text_content(text: &str) -> String {
    let mut content = String::with_capacity(text.len() + text.len() / 8 + 32);
    content.push_str(r#"[{"type":"text","text":"#);
    push_string(&mut content, text);
    content.push_str("}]");
    content
}

fn result(id: &EchoId, members: &str) -> String {
    envelope(id, members.len()).raw("result", members).finish()
}

fn error(id: &EchoId, form: Form, problem: &Problem) -> String {
    let error = error_object(form, problem);
    envelope(id, error.len()).raw("error", &error).finish()
}

fn error_object(form: Form, problem: &Problem) -> String {
    let code = match (problem.kind, form.dialect) {
        // The modern revision retired -32002 for an unknown resource.
        (ErrorKind::ResourceNotFound, Dialect::Modern) => ErrorKind::InvalidParams.row().jsonrpc,
        (kind, _) => kind.row().jsonrpc,
    };
    let data = match problem.kind {
        // MCP fixes the data of these itself.
        ErrorKind::UnsupportedVersion | ErrorKind::MissingClientCapability => problem
            .details
            .as_ref()
            .map_or_else(|| problem.jsonrpc_data(), Json::to_string),
        _ => problem.jsonrpc_data(),
    };
    ObjectWriter::with_capacity(data.len() + problem.message.len() + 64)
        .value("code", &code)
        .string("message", problem.sentence())
        .raw("data", &data)
        .finish()
}

fn envelope(id: &EchoId, body: usize) -> ObjectWriter {
    let object = ObjectWriter::with_capacity(body + 64).raw("jsonrpc", "\"2.0\"");
    match id {
        EchoId::Known(id) => object.raw("id", id.as_raw()),
        EchoId::Null => object.raw("id", "null"),
        EchoId::Absent => object,
    }
}

/// The request that a progress notification belongs to.
#[derive(Clone, Copy, Debug)]
pub struct ProgressOf<'a> {
    pub id: &'a RequestId,
    pub dialect: Dialect,
    /// MCP clients get progress only when they asked for it with a token.
    pub token: Option<&'a Json>,
    pub tool: &'a str,
    /// Increases with every notification of a call.
    pub step: u64,
    /// ISO-8601 UTC.
    pub ts: &'a str,
}

/// A progress notification, or `None` when this client wants none.
pub fn progress(of: &ProgressOf<'_>, progress: &Progress) -> Option<String> {
    let extra = ObjectWriter::with_capacity(192)
        .raw("id", of.id.as_raw())
        .string("tool", of.tool)
        .string("message", &progress.message)
        .value("stream", &progress.stream)
        .string("phase", &progress.phase)
        .string("ts", of.ts);
    let params = match (of.dialect, of.token) {
        (Dialect::Rest, _) => return None,
        (Dialect::Direct | Dialect::Envelope, _) => {
            let params = extra.optional_value("done", progress.done);
            params.optional_value("total", progress.total).finish()
        }
        (Dialect::Legacy | Dialect::Modern, None) => return None,
        (Dialect::Legacy | Dialect::Modern, Some(token)) => {
            let meta = ObjectWriter::with_capacity(256)
                .raw(meta::PROGRESS, &extra.finish())
                .finish();
            ObjectWriter::with_capacity(320)
                .raw(meta::PROGRESS_TOKEN, token.as_str())
                .value("progress", &of.step)
                .optional_value("total", progress.total)
                .string("message", &progress.message)
                .raw("_meta", &meta)
                .finish()
        }
    };
    Some(notification(Method::Progress, Some(&params)))
}
