//! The schemas that Mainstay publishes for its own messages.

use std::sync::LazyLock;

use serde_json::{Value, json};

/// A published schema: the name of its file, and the file.
pub const PUBLISHED_SCHEMAS: [(&str, &str); 4] = [
    (
        "envelope.schema.json",
        include_str!("../../../schemas/envelope.schema.json"),
    ),
    (
        "request.schema.json",
        include_str!("../../../schemas/request.schema.json"),
    ),
    (
        "response.schema.json",
        include_str!("../../../schemas/response.schema.json"),
    ),
    (
        "tool_io.schema.json",
        include_str!("../../../schemas/tool_io.schema.json"),
    ),
];

/// The result envelope.
pub(crate) static ENVELOPE: LazyLock<Value> = LazyLock::new(|| parsed("envelope.schema.json"));

/// The invocation envelopes.
pub(crate) static REQUEST: LazyLock<Value> = LazyLock::new(|| parsed("request.schema.json"));
pub(crate) static RESPONSE: LazyLock<Value> = LazyLock::new(|| parsed("response.schema.json"));

/// Input of a tool.
pub(crate) static TOOL_INPUT: LazyLock<Value> = LazyLock::new(|| parsed("tool_io.schema.json"));

/// Output of a tool: this document, entered at its anchor.
pub(crate) static TOOL_OUTPUT: LazyLock<Value> = LazyLock::new(|| {
    let definitions = TOOL_INPUT.get("$defs").cloned().unwrap_or_default();
    json!({"$ref": "#output", "$defs": definitions})
});

fn parsed(file: &str) -> Value {
    let mut files = PUBLISHED_SCHEMAS.iter();
    let text = files.find(|(name, _)| *name == file).map(|(_, text)| *text);
    // Null is not a schema and never compiles; a test reads each file.
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_schema_is_named_after_its_file_and_explains_every_member() {
        for (file, text) in PUBLISHED_SCHEMAS {
            let schema: Value = serde_json::from_str(text).unwrap();
            assert_eq!(
                schema["$id"],
                format!("https://mainstay.dev/schemas/v1/{file}")
            );
            // The invocation envelopes are for OpenAPI documents and older validators, too.
            let draft = match file {
                "request.schema.json" | "response.schema.json" => {
                    "http://json-schema.org/draft-07/schema#"
                }
                _ => "https://json-schema.org/draft/2020-12/schema",
            };
            assert_eq!(schema["$schema"], draft, "{file}");
            explained(file, &schema, &schema);
        }
    }

    /// Every member of every object in `part` is described.
    fn explained(file: &str, schema: &Value, part: &Value) {
        let members = part.get("properties").and_then(Value::as_object);
        // A condition repeats members that are explained elsewhere.
        if part.get("type") == Some(&json!("object")) {
            for (name, member) in members.into_iter().flatten() {
                let explained = member.get("description").or_else(|| {
                    let target = member["$ref"].as_str()?.strip_prefix('#')?;
                    schema.pointer(target)?.get("description")
                });
                assert!(explained.is_some_and(Value::is_string), "{file}: {name}");
            }
        }
        let inner = part.as_object().into_iter().flat_map(|part| part.values());
        let items = part.as_array().into_iter().flatten();
        inner
            .chain(items)
            .for_each(|inner| explained(file, schema, inner));
    }
}
