//! `list_schemas` and `get_schema`.

use mainstay_worker::{
    Code, ErrorKind, Json, ObjectWriter, Porcelain, Problem, Reply, ToolSpec, render, tool_spec,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::contract::closed;
use crate::paths;
use crate::schemas::{Schema, Schemas};

const HINT: &str = "use a name or path that list_schemas gives";

#[derive(Debug, Deserialize)]
pub(super) struct Get {
    name: String,
}

pub(super) fn list_spec(tooling_version: &str) -> ToolSpec {
    let text = json!({"type": "string"});
    tool_spec("list_schemas", "Lists the asset schemas.")
        .output(closed(&json!({
            "ok": {"const": true},
            "schemas": {"type": "array",
                "items": closed(&json!({"name": text, "version": text, "path": text}))},
        })))
        .tooling_version(tooling_version)
        .read_only()
}

pub(super) fn get_spec(tooling_version: &str) -> ToolSpec {
    tool_spec("get_schema", "Gives one asset schema.")
        .input(closed(&json!({"name": {
            "type": "string", "format": "path", "minLength": 1,
            "description": "Name or path from list_schemas.",
        }})))
        .output(closed(&json!({
            "ok": {"const": true},
            "schema": {"type": "object"},
            "version": {"type": "string"},
        })))
        .errors(&[Code::NotFound])
        .schema_version(3)
        .tooling_version(tooling_version)
        .read_only()
}

pub(super) fn list(schemas: &Schemas) -> Reply {
    let row = |schema: &Schema| json!({"name": schema.name, "version": schema.version, "path": schema.path});
    let rows: Vec<Value> = schemas.list().iter().map(row).collect();
    let lines: Vec<String> = schemas.list().iter().map(title).collect();
    Reply::json(&json!({"ok": true, "schemas": rows})).porcelain(move || {
        Porcelain::summary(render::count(lines.len(), "schema", "schemas")).items(lines)
    })
}

pub(super) fn get(schemas: &Schemas, arguments: &Get) -> Result<Reply, Problem> {
    let name = &arguments.name;
    if paths::leaves_root(name) {
        let message = "the name leaves the schemas directory";
        return Err(paths::invalid("name", message, HINT));
    }
    let schema = schemas.find(name).ok_or_else(|| {
        let message = match schemas.why_broken(name) {
            Some(why) => format!("the file of schema {name} cannot be used: {why}"),
            None => format!("there is no schema {}", render::shorten(name, 80)),
        };
        Problem::new(ErrorKind::NotFound, message)
            .with_hint(HINT)
            .with_details(Json::from(json!({"ok": false, "reason": "not_found"})))
    })?;
    let document = schema.document();
    let answer = ObjectWriter::with_capacity(document.len() + 64)
        .raw("ok", "true")
        .raw("schema", document.as_str())
        .string("version", &schema.version)
        .finish();
    let summary = title(schema);
    Ok(Reply::raw(Json::from_scanned(&answer)).porcelain(move || digest(&summary, &document)))
}

fn title(schema: &Schema) -> String {
    format!("{} ({})", schema.title(), schema.path)
}

/// A schema in a few lines: what it is about and which members it has.
fn digest(title: &str, document: &Json) -> Porcelain {
    let value = document.to_value().unwrap_or_default();
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let mut porcelain = Porcelain::summary(title);
    for key in ["$id", "title", "description"] {
        if let Some(text) = text(key) {
            porcelain = porcelain.field(key, text);
        }
    }
    let required: Vec<&str> = value
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    if let Some(properties) = value.get("properties").and_then(Value::as_object) {
        let rows = properties.iter().map(|(name, property)| {
            let needed = if required.contains(&name.as_str()) {
                "required"
            } else {
                "optional"
            };
            [name.clone(), kind(property), needed.to_owned()]
        });
        porcelain = porcelain
            .section("properties")
            .table(&["name", "type", "presence"], rows);
    }
    porcelain.hint("the whole document is in the structured result; render \"json\" shows it")
}

fn kind(property: &Value) -> String {
    let text = |key: &str| property.get(key).and_then(Value::as_str).map(str::to_owned);
    let of = |key: &str| property.get(key).map(|_| key.to_owned());
    text("type")
        .or_else(|| text("$ref"))
        .or_else(|| {
            ["const", "enum", "anyOf", "oneOf", "allOf"]
                .into_iter()
                .find_map(of)
        })
        .unwrap_or_else(|| "any".to_owned())
}
