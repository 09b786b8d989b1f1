//! Checks of our own tools never need a process of their own.

use std::fs;
use std::path::Path;

use mainstay_contract::json::Json;
use mainstay_schema::check::{Compiled, Definition, Owner, Parts, Subject, Verdict};
use serde_json::{Map, Value, json};

/// Items of a list in a sample; a list within a list has the root of it.
const ITEMS: usize = 64;
/// Bytes of every text without a pattern.
const TEXT: usize = 400;

/// A value of the shape that `schema` describes, with every member and long lists.
fn sample(schema: &Value, items: usize) -> Value {
    if let Some(fixed) = schema.get("const") {
        return fixed.clone();
    }
    if let Some(first) = schema.get("enum").and_then(|all| all.get(0)) {
        return first.clone();
    }
    for keyword in ["anyOf", "oneOf", "allOf"] {
        if let Some(first) = schema.get(keyword).and_then(|all| all.get(0)) {
            return sample(first, items);
        }
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str),
        kind => kind.and_then(Value::as_str),
    };
    match kind {
        Some("object") => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let members = properties.into_iter().flatten();
            let mut object: Map<_, _> = members
                .map(|(name, schema)| (name.clone(), sample(schema, items)))
                .collect();
            if let Some(others) = schema.get("additionalProperties").filter(|s| s.is_object()) {
                object.extend(
                    (0..items).map(|n| (format!("name{n}"), sample(others, items.isqrt()))),
                );
            }
            Value::Object(object)
        }
        Some("array") => {
            let item = schema.get("items").unwrap_or(&Value::Null);
            Value::from(vec![sample(item, items.isqrt()); items])
        }
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("string") if schema.get("pattern").is_some() => json!("a".repeat(64)),
        Some("string") => json!("x".repeat(TEXT)),
        _ => json!({"any": ["thing", 1]}),
    }
}

#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
fn definitions() -> Vec<Definition> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    for folder in ["schemas/tools", "examples/ledger/schemas/tools"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let tool: Value = serde_json::from_str(&text).unwrap();
            all.push(Definition::new(Parts {
                name: tool["name"].as_str().unwrap().to_owned(),
                input: Some(Json::from_serialize(&tool["inputSchema"])),
                output: tool.get("outputSchema").map(Json::from_serialize),
                aliases: Vec::new(),
                side: Owner::Pack,
            }));
        }
    }
    all
}

#[test]
fn our_own_tools_are_cheap_at_ordinary_payloads() {
    let all = definitions();
    assert!(all.len() >= 20, "only {} tools were found", all.len());
    for definition in &all {
        let name = &definition.name;
        assert!(definition.is_cheap_to_compile(), "{name}");
        let compiled = Compiled::compile(definition).unwrap();
        let input = definition.input.as_ref().unwrap().to_value().unwrap();
        let arguments = Subject::Arguments(Json::from_serialize(&sample(&input, ITEMS)));
        assert!(compiled.is_cheap(&arguments), "arguments of {name}");
        if let Some(output) = &definition.output {
            let reply = sample(&output.to_value().unwrap(), ITEMS);
            let reply = Subject::Reply(Json::from_serialize(&reply));
            assert!(compiled.is_cheap(&reply), "reply of {name}");
            assert!(
                !matches!(compiled.run(&reply), Verdict::GaveUp { .. }),
                "{name}"
            );
        }
    }
}

#[test]
fn an_asset_of_a_megabyte_is_cheap_as_an_argument_without_rules() {
    let all = definitions();
    let tool = all.iter().find(|tool| tool.name == "validate_asset");
    let tool = Compiled::compile(tool.unwrap()).unwrap();
    let asset = vec![json!({"a": [1, 2, "x".repeat(20)]}); 25_000];
    let arguments = Json::from_serialize(&json!({"schema": "lamp", "asset": asset}));
    assert!((800_000..1_040_000).contains(&arguments.len()));
    assert!(tool.is_cheap(&Subject::Arguments(arguments)));
}
