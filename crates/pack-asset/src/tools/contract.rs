//! The pieces that the tools' schemas are made of.

use serde_json::{Map, Value, json};

/// An object with exactly these members.
pub(super) fn closed(properties: &Value) -> Value {
    let required: Vec<&String> = properties
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .collect();
    with_required(&json!(required), properties)
}

/// An object with no other than these members, some of them required.
pub(super) fn with_required(required: &Value, properties: &Value) -> Value {
    json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    })
}

/// Output schema of a tool that may find an asset invalid: either these members, or a verdict with at
/// least one violation.
pub(super) fn or_verdict(success: &Value) -> Value {
    let refusal = json!({"reason": {"const": "validation_failed"}, "errors": errors()});
    alternatives(success, &refusal)
}

/// One result of a batch.
pub(super) fn verdict() -> Value {
    alternatives(&json!({}), &json!({"errors": errors()}))
}

/// The members of a verdict that does not list all its violations.
fn incomplete() -> Value {
    json!({
        "complete": {"type": "boolean", "description": "False if not every violation is listed."},
        "more": {"type": "integer", "minimum": 1,
            "description": "Violations that are not listed; absent if they were not counted."},
    })
}

/// The schema that nothing fits. Some clients reject a bare `false`.
pub(super) fn never() -> Value {
    json!({"not": {}})
}

/// Any JSON. Some clients reject a schema without a type.
pub(super) fn any_json(description: &str) -> Value {
    let kinds = ["object", "array", "string", "number", "boolean", "null"];
    let kinds = kinds.map(|kind| json!({"type": kind}));
    json!({"description": description, "anyOf": kinds})
}

/// A closed object: with `ok` true it has the members of `yes`, with `ok` false those of `no`.
fn alternatives(yes: &Value, no: &Value) -> Value {
    let names = |members: &Value| -> Vec<String> {
        let members = members.as_object().into_iter().flat_map(Map::keys);
        members.cloned().collect()
    };
    let mut properties = json!({"ok": {"type": "boolean"}});
    for side in [yes, no, &incomplete()] {
        if let (Some(all), Some(more)) = (properties.as_object_mut(), side.as_object()) {
            all.extend(more.clone());
        }
    }
    let absent = |members: &Value| -> Value {
        names(members)
            .into_iter()
            .map(|name| (name, never()))
            .collect()
    };
    let mut refusal = incomplete();
    if let (Some(all), Some(more)) = (refusal.as_object_mut(), no.as_object()) {
        all.extend(more.clone());
    }
    let mut schema = with_required(&json!(["ok"]), &properties);
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".into(), json!("Look at ok first."));
        schema.insert("if".into(), json!({"properties": {"ok": {"const": true}}}));
        schema.insert(
            "then".into(),
            json!({"required": names(yes), "properties": absent(&refusal)}),
        );
        schema.insert(
            "else".into(),
            json!({"required": names(no), "properties": absent(yes)}),
        );
    }
    schema
}

/// A list of violations.
fn errors() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    json!({
        "type": "array", "minItems": 1,
        "items": closed(&json!({
            "path": text("JSON Pointer into the asset; empty for the whole."),
            "msg": text("What is wrong there."),
        })),
    })
}

#[cfg(test)]
mod tests {
    use mainstay_schema::SchemaRegistry;

    use super::*;

    fn accepts(schema: &Value, value: &Value) -> bool {
        let validator = SchemaRegistry::new().compile(schema).unwrap();
        validator.is_valid(value)
    }

    #[test]
    fn an_answer_is_a_success_or_a_verdict_and_never_both() {
        let schema = or_verdict(&json!({"id": {"type": "string"}}));
        let errors = json!([{"path": "", "msg": "x"}]);
        for good in [
            json!({"ok": true, "id": "a"}),
            json!({"ok": false, "reason": "validation_failed", "errors": errors}),
        ] {
            assert!(accepts(&schema, &good), "{good}");
        }
        for bad in [
            json!({}),
            json!({"ok": true}),
            json!({"ok": false}),
            json!({"ok": true, "id": "a", "errors": errors}),
            json!({"ok": false, "id": "a", "reason": "validation_failed", "errors": errors}),
            json!({"ok": false, "reason": "other", "errors": errors}),
            json!({"ok": false, "reason": "validation_failed", "errors": []}),
            json!({"ok": false, "reason": "validation_failed", "errors": [{"path": ""}]}),
            json!({"ok": true, "id": "a", "more": 1}),
        ] {
            assert!(!accepts(&schema, &bad), "{bad}");
        }
        assert!(accepts(&verdict(), &json!({"ok": true})));
        assert!(accepts(&verdict(), &json!({"ok": false, "errors": errors})));
        assert!(!accepts(&verdict(), &json!({"ok": true, "errors": errors})));
    }
}
