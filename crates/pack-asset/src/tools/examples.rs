//! `list_examples` and `get_example`.

use mainstay_schema::{Verdict, Violations};
use mainstay_worker::{
    Code, ErrorKind, Json, ObjectWriter, Porcelain, Problem, Reply, ToolSpec, render, tool_spec,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::contract::{closed, or_verdict, with_required};
use super::verdict::{invalid, not_checked, summary};
use crate::assets::Assets;
use crate::examples::{Example, Examples};
use crate::paths;

/// Names that stand for every component.
const EVERYTHING: [&str; 3] = ["all", "*", ""];

const HINT: &str = "use a path that list_examples gives";

#[derive(Debug, Deserialize)]
pub(super) struct List {
    #[serde(default)]
    component: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Get {
    path: String,
}

pub(super) fn list_spec(tooling_version: &str) -> ToolSpec {
    let text = json!({"type": "string"});
    tool_spec(
        "list_examples",
        "Lists example assets, all or those of one component.",
    )
    .input(with_required(
        &json!([]),
        &json!({"component": {
            "type": "string",
            "description": "Default all.",
        }}),
    ))
    .output(closed(&json!({
        "ok": {"const": true},
        "examples": {"type": "array", "items": closed(&json!({"component": text, "path": text}))},
    })))
    .schema_version(2)
    .tooling_version(tooling_version)
    .read_only()
}

pub(super) fn get_spec(tooling_version: &str) -> ToolSpec {
    tool_spec(
        "get_example",
        "Gives one example asset, or its violations if its schema rejects it.",
    )
    .input(closed(&json!({"path": {
        "type": "string", "format": "path", "minLength": 1,
        "description": "From list_examples.",
    }})))
    .output(or_verdict(&json!({
        "example": {"type": "object"},
        "schema": {"type": "string", "description": "Name of the schema it was validated against."},
        "validated": {"type": "boolean", "const": true},
    })))
    .errors(&[Code::NotFound])
    .schema_version(4)
    .tooling_version(tooling_version)
    .read_only()
}

pub(super) fn list(examples: &Examples, arguments: &List) -> Reply {
    let wanted = arguments.component.as_str();
    let everything = EVERYTHING.contains(&wanted);
    let listed: Vec<&Example> = examples
        .list()
        .iter()
        .filter(|example| everything || example.component == wanted)
        .collect();
    let row = |example: &&Example| json!({"component": example.component, "path": example.path});
    let rows: Vec<Value> = listed.iter().map(row).collect();
    let lines: Vec<String> = listed.iter().map(|example| example.path.clone()).collect();
    let misses = !everything && listed.is_empty() && !examples.list().is_empty();
    Reply::json(&json!({"ok": true, "examples": rows})).porcelain(move || {
        let number = render::count(lines.len(), "example", "examples");
        let porcelain = Porcelain::summary(number).items(lines);
        if misses {
            porcelain.hint("no example has this component; list_examples without one lists all")
        } else {
            porcelain
        }
    })
}

pub(super) fn get(assets: &Assets, arguments: &Get) -> Result<Reply, Problem> {
    let path = &arguments.path;
    if paths::leaves_root(path) {
        let message = "the path leaves the examples directory";
        return Err(paths::invalid("path", message, HINT));
    }
    let example = assets.examples.find(path).ok_or_else(|| {
        let path = render::shorten(path, 80);
        Problem::new(ErrorKind::NotFound, format!("there is no example {path}"))
            .with_hint(HINT)
            .with_details(Json::from(json!({"ok": false, "reason": "not_found"})))
    })?;
    let shown = render::shorten(&example.path, 200);
    let schema = match assets.schemas.usable(&example.schema) {
        Ok(schema) => schema,
        Err(why) => {
            let summary = format!("{shown} cannot be validated: {}", why.message());
            return Ok(invalid(Violations::one(why.violation()), summary));
        }
    };
    let document = example.document();
    match schema.check(&document) {
        Verdict::Valid => {}
        Verdict::Invalid(violations) => {
            let summary = format!("{shown} is not given: {}", summary(&violations, &schema));
            return Ok(invalid(violations, summary));
        }
        Verdict::NotChecked(why) => return Err(not_checked(&why, &shown)),
    }
    let answer = ObjectWriter::with_capacity(document.len() + 96)
        .raw("ok", "true")
        .raw("example", document.as_str())
        .string("schema", schema.name())
        .raw("validated", "true")
        .finish();
    let title = schema.title();
    Ok(Reply::raw(Json::from_scanned(&answer)).porcelain(move || {
        Porcelain::summary(format!("{shown}, valid: {title}"))
            .section("members")
            .table(&["name", "value"], members(&document))
            .hint("the whole example is in the structured result; render \"json\" shows it")
    }))
}

/// The members of an asset, each in a few words.
fn members(document: &Json) -> Vec<[String; 2]> {
    let value = document.to_value().unwrap_or_default();
    let members = value.as_object().into_iter().flatten();
    members
        .map(|(name, member)| {
            let shown = match member {
                Value::Object(members) => render::count(members.len(), "member", "members"),
                Value::Array(elements) => render::count(elements.len(), "element", "elements"),
                other => render::shorten(&other.to_string(), 80),
            };
            [name.clone(), shown]
        })
        .collect()
}
