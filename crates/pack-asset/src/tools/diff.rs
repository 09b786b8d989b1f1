//! `diff_assets`.

use mainstay_schema::{Violation, Violations};
use mainstay_worker::{ErrorKind, Json, Porcelain, Problem, Reply, ToolSpec, render, tool_spec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::contract::{any_json, closed, never, with_required};
use super::verdict::failed;
use crate::diff::{Change, MAX_PATCH_BYTES, Op, diff};
use crate::exact::Exact;

#[derive(Debug, Deserialize)]
pub(super) struct Arguments {
    base: Json,
    new: Json,
}

pub(super) fn spec(tooling_version: &str) -> ToolSpec {
    tool_spec(
        "diff_assets",
        "Gives the JSON Patch (RFC 6902) that turns base into new. Arrays are replaced whole.",
    )
    .input(closed(&json!({
        "base": any_json("The asset before: any JSON."),
        "new": any_json("The asset after: any JSON."),
    })))
    .output(closed(&json!({
        "ok": {"const": true},
        "patch": {"type": "array", "items": operation_schema()},
    })))
    .schema_version(2)
    .tooling_version(tooling_version)
    .read_only()
}

fn operation_schema() -> Value {
    let mut schema = with_required(
        &json!(["op", "path"]),
        &json!({
            "op": {"enum": ["add", "remove", "replace"]},
            "path": {"type": "string", "description": "JSON Pointer; empty for the whole."},
            "value": any_json("The new value, which may be null."),
        }),
    );
    if let Some(schema) = schema.as_object_mut() {
        schema.insert(
            "if".into(),
            json!({"properties": {"op": {"const": "remove"}}}),
        );
        schema.insert("then".into(), json!({"properties": {"value": never()}}));
        schema.insert("else".into(), json!({"required": ["value"]}));
    }
    schema
}

pub(super) fn run(arguments: &Arguments) -> Result<Reply, Problem> {
    let base = read("base", &arguments.base)?;
    let new = read("new", &arguments.new)?;
    let changes = diff(&base, &new).map_err(|_| {
        let message = format!("the patch would have more than {MAX_PATCH_BYTES} bytes");
        Problem::new(ErrorKind::AnswerTooLarge, message)
            .with_hint("compare parts of the assets, or replace the asset as a whole")
    })?;
    let (mut operations, mut lines) = (Vec::new(), Vec::new());
    for change in &changes {
        let value = change.value_text();
        operations.push(change.operation(value.as_deref()));
        lines.push(line(change, value.as_deref()));
    }
    let answer = format!(r#"{{"ok":true,"patch":[{}]}}"#, operations.join(","));
    let summary = summary(&changes);
    Ok(Reply::raw(Json::from_scanned(&answer))
        .porcelain(move || Porcelain::summary(summary).items(lines)))
}

/// Reads a document, or says at which argument and where in it the mistake is.
fn read<'a>(argument: &str, document: &'a Json) -> Result<Exact<'a>, Problem> {
    // A number out of range has no value that a patch could set.
    let in_range = |exact: Exact<'a>| exact.to_value().map(|_| exact);
    Exact::parse(document.as_str())
        .and_then(in_range)
        .map_err(|wrong| {
            let violation = Violation {
                path: format!("/{argument}{}", wrong.path),
                message: wrong.message,
            };
            let message = format!("{} {}", violation.path, violation.message);
            Problem::new(ErrorKind::InvalidArguments, render::shorten(&message, 300))
                .with_details(Json::from(failed(&Violations::one(violation))))
        })
}

fn summary(changes: &[Change<'_, '_>]) -> String {
    if changes.is_empty() {
        return "no changes".to_owned();
    }
    let of = |op: Op| changes.iter().filter(|change| change.op == op).count();
    let parts: Vec<String> = [Op::Add, Op::Remove, Op::Replace]
        .into_iter()
        .filter(|op| of(*op) > 0)
        .map(|op| format!("{} {}", of(op), op.as_str()))
        .collect();
    let number = render::count(changes.len(), "change", "changes");
    format!("{number}: {}", parts.join(", "))
}

fn line(change: &Change<'_, '_>, value: Option<&str>) -> String {
    let op = change.op.as_str();
    let path = match change.path.as_str() {
        "" => "(root)".to_owned(),
        path => render::shorten(path, 200),
    };
    match value {
        Some(value) => format!("{op} {path}: {}", render::shorten(value, 80)),
        None => format!("{op} {path}"),
    }
}
