//! The forms of a task: legacy MCP, modern MCP, REST, the command line.

use mainstay_contract::dialect::{Dialect, encode};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::method::Method;
use mainstay_contract::outcome::{Outcome, Success};
use mainstay_contract::wall;
use serde_json::json;

use super::{POLL_MS, TaskView};

/// The status of a task in a dialect. Modern clients call a tool's own failure completed.
fn status(dialect: Dialect, outcome: Option<&Outcome>) -> &'static str {
    match outcome {
        None => "working",
        Some(outcome @ Ok(Success::Forwarded(response))) if response.is_error => {
            // A modern task with a result is completed, even if the result is a failure of the tool.
            match encode::tool_result(dialect, outcome) {
                Ok(_) if dialect == Dialect::Modern => "completed",
                _ => "failed",
            }
        }
        Some(Ok(_)) => "completed",
        Some(Err(problem)) if problem.kind == ErrorKind::Cancelled => "cancelled",
        Some(outcome @ Err(_)) if dialect == Dialect::Modern => {
            match encode::tool_result(dialect, outcome) {
                Ok(_) => "completed",
                Err(_) => "failed",
            }
        }
        Some(Err(_)) => "failed",
    }
}

fn members(dialect: Dialect, view: &TaskView) -> ObjectWriter {
    let (ttl, poll) = match dialect {
        Dialect::Legacy => ("ttl", "pollInterval"),
        _ => ("ttlMs", "pollIntervalMs"),
    };
    let object = ObjectWriter::with_capacity(256)
        .string("taskId", &view.id)
        .string("status", status(dialect, view.outcome.as_ref()));
    let object = match &view.outcome {
        Some(Err(problem)) => object.string("statusMessage", problem.sentence()),
        _ => object,
    };
    object
        .string("createdAt", &wall::iso(view.created_ms))
        .string("lastUpdatedAt", &wall::iso(view.updated_ms))
        .value(ttl, &view.ttl_ms)
        .value(poll, &POLL_MS)
}

/// The answer to a call that became a task.
pub(super) fn created(dialect: Dialect, view: &TaskView) -> Json {
    let task = members(dialect, view).finish();
    let object = match dialect {
        Dialect::Legacy => ObjectWriter::with_capacity(task.len() + 16)
            .raw("task", &task)
            .finish(),
        _ => task,
    };
    Json::from_scanned(&object)
}

/// A task with everything that its client may know.
pub(super) fn detailed(dialect: Dialect, view: &TaskView) -> Json {
    let object = members(dialect, view);
    let object = match (dialect, &view.outcome) {
        (Dialect::Legacy, _) | (Dialect::Modern, None) => object,
        (Dialect::Modern, Some(Err(problem))) if problem.kind == ErrorKind::Cancelled => object,
        (Dialect::Modern, Some(outcome)) => match encode::tool_result(dialect, outcome) {
            Ok(result) => object.raw("result", &result),
            Err(error) => object.raw("error", &error),
        },
        _ => return describe(view),
    };
    Json::from_scanned(&object.finish())
}

fn with_outcome(object: ObjectWriter, outcome: &Outcome) -> ObjectWriter {
    match outcome {
        Ok(Success::Tool(reply)) => object.raw("result", reply.json.as_str()),
        Ok(Success::Members(members)) => object.raw("result", members.as_str()),
        Ok(Success::Forwarded(_)) => match encode::tool_result(Dialect::Legacy, outcome) {
            Ok(result) => object.raw("result", &result),
            Err(error) => object.raw("error", &error),
        },
        Err(problem) => object.raw("error", &problem.payload()),
    }
}

/// A task for people and programs outside MCP: the resource, REST and `mainstay tasks show`.
pub fn describe(view: &TaskView) -> Json {
    let object = members(Dialect::Rest, view)
        .string("tool", &view.tool)
        .string("replay", view.replay.as_str());
    let object = match &view.outcome {
        Some(outcome) => with_outcome(object, outcome),
        None => object,
    };
    Json::from_scanned(&object.finish())
}

/// The result of reading a task as a resource.
pub(super) fn resource(uri: &str, view: &TaskView) -> Json {
    let text = describe(view).to_string();
    json!({ "contents": [{ "uri": uri, "mimeType": "application/json", "text": text }] }).into()
}

/// A page of tasks.
pub(super) fn page(tasks: &[TaskView], next: Option<&str>) -> Json {
    let tasks: Vec<Json> = tasks
        .iter()
        .map(|view| Json::from_scanned(&members(Dialect::Legacy, view).finish()))
        .collect();
    let mut page = json!({ "tasks": tasks });
    if let (Some(page), Some(next)) = (page.as_object_mut(), next) {
        page.insert("nextCursor".to_owned(), json!(next));
    }
    page.into()
}

/// The notification that a task has ended.
pub(super) fn status_line(view: &TaskView) -> String {
    ObjectWriter::with_capacity(320)
        .string("jsonrpc", "2.0")
        .string("method", Method::TaskStatus.name())
        .raw("params", &members(Dialect::Legacy, view).finish())
        .finish()
}
