//! Properties of every schema and every value.

// Helpers of tests are tests, which clippy cannot see here.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use mainstay_schema::{
    Fingerprint, Limits, SchemaDocument, SchemaRegistry, Violation, canonical_json,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Longer than any sentence with two shortened names, or a list of values.
const LONGEST_MESSAGE: usize = 320;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c", "kind"]).prop_map(str::to_owned),
        1 => ".{0,80}",
        1 => "[~/%\"]{1,3}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..5i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        name().prop_map(Value::from),
        ".{0,200}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn types() -> impl Strategy<Value = Value> {
    let names = vec![
        "null", "boolean", "integer", "number", "string", "array", "object",
    ];
    prop_oneof![
        prop::sample::select(names.clone()).prop_map(Value::from),
        prop::sample::subsequence(names, 1..4).prop_map(Value::from),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    let references = ["#", "#/$defs/x", "#/$defs/y"].map(|text| json!({"$ref": text}));
    schema_with(references.to_vec())
}

/// A schema in which these stand here and there.
fn schema_with(references: Vec<Value>) -> impl Strategy<Value = Value> {
    let reference = prop::sample::select(references);
    let leaf = prop_oneof![
        4 => types().prop_map(|types| json!({"type": types})),
        1 => any::<bool>().prop_map(Value::from),
        1 => value().prop_map(|value| json!({"const": value})),
        1 => prop::collection::hash_set(name(), 1..4).prop_map(|names| json!({"enum": names})),
        1 => (0..4u64).prop_map(|limit| json!({"minimum": limit, "maxLength": limit, "maxItems": limit})),
        1 => (0..4u64).prop_map(|limit| json!({"minLength": limit, "minProperties": limit})),
        1 => Just(json!({"pattern": "^(?!a)[a-z]+$"})),
        1 => Just(json!({"uniqueItems": true, "multipleOf": 2})),
        3 => reference,
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..4);
        let members = prop::collection::btree_map(name(), inner.clone(), 0..3);
        let keyword = |names: &'static [&'static str]| prop::sample::select(names);
        prop_oneof![
            3 => (keyword(&["anyOf", "oneOf", "allOf", "prefixItems"]), list)
                .prop_map(|(keyword, list)| json!({keyword: list})),
            2 => (keyword(&["not", "items", "contains", "propertyNames", "additionalProperties"]), inner.clone())
                .prop_map(|(keyword, inner)| json!({keyword: inner})),
            3 => (members, prop::collection::hash_set(name(), 0..2), inner.clone(), 0..4u8).prop_map(
                |(properties, required, rest, closed)| {
                    let mut schema = json!({"properties": properties, "required": required});
                    match closed {
                        0 => schema["additionalProperties"] = json!(false),
                        1 => schema["unevaluatedProperties"] = json!(false),
                        2 => schema["allOf"] = json!([rest]),
                        _ => {}
                    }
                    schema
                }
            ),
            1 => (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| json!({"if": a, "then": b, "else": c})),
        ]
    })
}

fn document() -> impl Strategy<Value = Value> {
    let dialect = prop::sample::select(vec![
        None,
        Some("http://json-schema.org/draft-07/schema#"),
        Some("https://json-schema.org/draft/2019-09/schema"),
    ]);
    (schema(), schema(), schema(), dialect).prop_map(|(root, x, y, dialect)| {
        let mut document = Map::new();
        document.insert("allOf".into(), json!([root]));
        document.insert("$defs".into(), json!({"x": x, "y": y}));
        if let Some(dialect) = dialect {
            document.insert("$schema".into(), json!(dialect));
        }
        document.into()
    })
}

const FOLDER: &str = "https://example.com/";

/// Three documents that refer to each other, as files or by `$id`, each in a draft of
/// its own.
fn linked_documents() -> impl Strategy<Value = Vec<SchemaDocument>> {
    let references = [
        ("$ref", "#"),
        ("$ref", "#/$defs/x"),
        ("$ref", "a.json"),
        ("$ref", "b.json"),
        ("$ref", "c.json"),
        ("$ref", "a.json#/$defs/x"),
        ("$ref", "b.json#/$defs/y/$defs/z"),
        ("$ref", "c.json#/allOf/0"),
        ("$ref", "https://example.com/part-b"),
        ("$ref", "part-c#z"),
        ("$dynamicRef", "#node"),
        ("$dynamicRef", "b.json#node"),
    ];
    // Only about parts of a value: a schema that asks itself about the same value has
    // no meaning that could be kept.
    let references = references.map(|(keyword, text)| {
        let part = json!({keyword: text});
        json!({"items": part, "properties": {"a": part, "b": part}})
    });
    let document = move |name: &'static str| {
        let part = || schema_with(references.to_vec());
        let draft = prop::sample::select(vec![
            "http://json-schema.org/draft-07/schema#",
            "https://json-schema.org/draft/2020-12/schema",
        ]);
        let named = (any::<bool>(), any::<bool>());
        (part(), part(), part(), draft, named).prop_map(move |(root, x, z, draft, (id, node))| {
            let mut schema = json!({"$schema": draft, "allOf": [root], "$defs": {
                "x": x,
                "y": {"$id": format!("part-{name}"), "$defs": {"z": {"$anchor": "z", "not": z}}},
                "node": {"$dynamicAnchor": if node { "node" } else { "other" }, "items": {"$ref": "#/$defs/x"}}
            }});
            let uri = format!("{FOLDER}{name}.json");
            if id {
                schema["$id"] = uri.clone().into();
            }
            SchemaDocument { uri, schema }
        })
    };
    (document("a"), document("b"), document("c")).prop_map(|(a, b, c)| vec![a, b, c])
}

/// The documents, as the engine follows them by itself.
fn unlinked(documents: &[SchemaDocument]) -> Option<jsonschema::Validator> {
    let pairs = documents
        .iter()
        .map(|document| (&document.uri, &document.schema));
    let registry = jsonschema::Registry::new().extend(pairs).ok()?;
    let registry = registry.prepare().ok()?;
    let options = jsonschema::options().offline().with_registry(&registry);
    let options = options.with_base_uri(&documents[0].uri);
    options.build(&documents[0].schema).ok()
}

/// The text in the place of a URI.
fn odd_uri() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "http:", "urn:", "file:", "//", "/", "a", "..", "?", "#", "#/", "%", "%zz", "[", "@", ":",
        " ", "é", "x:y",
    ]);
    prop_oneof![
        3 => prop::collection::vec(pieces, 0..6).prop_map(|pieces| pieces.concat()),
        1 => ".{0,8}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_stands_for_a_uri_is_refused_or_used(uris in prop::collection::vec(odd_uri(), 8), draft in any::<bool>()) {
        let dialect = if draft { "http://json-schema.org/draft-07/schema#" } else { "https://json-schema.org/draft/2020-12/schema" };
        let schema = |at: usize| json!({
            "$schema": dialect, "$id": uris[at],
            "properties": {"a": {"$ref": uris[at + 1]}, "b": {"$id": uris[at + 2], "items": {"$ref": uris[at + 3]}}}
        });
        let documents = [0, 4].map(|at| SchemaDocument { uri: format!("file:///{at}.json"), schema: schema(at) });
        let single = SchemaRegistry::new().compile(&documents[0].schema);
        if let Ok(validator) = single {
            validator.check(&json!({"a": 1, "b": [1]}));
        }
        if let Ok(registry) = SchemaRegistry::with_documents(Limits::default(), documents.to_vec()) {
            for document in &documents {
                if let Ok(validator) = registry.compile_document(&document.uri) {
                    validator.check(&json!({"a": 1, "b": [1]}));
                }
            }
        }
        for uri in uris {
            let document = SchemaDocument { uri, schema: json!({}) };
            let _ = SchemaRegistry::with_documents(Limits::default(), vec![document]);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn linking_documents_changes_no_verdict(documents in linked_documents(), values in prop::collection::vec(value(), 1..6)) {
        let ours = SchemaRegistry::with_documents(Limits::default(), documents.clone()).unwrap();
        let ours = ours.compile_document(&documents[0].uri);
        // The engine refuses more: it looks into documents that are not reached.
        let (Ok(ours), Some(theirs)) = (ours, unlinked(&documents)) else {
            return Ok(());
        };
        for value in values {
            prop_assert_eq!(ours.is_valid(&value), theirs.is_valid(&value), "{}", value);
            prop_assert_eq!(ours.check(&value).is_empty(), theirs.is_valid(&value), "{}", value);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn check_finds_something_exactly_in_invalid_values(schema in document(), values in prop::collection::vec(value(), 1..6)) {
        let Ok(validator) = SchemaRegistry::new().compile(&schema) else {
            return Ok(());
        };
        for value in values {
            let violations = validator.check(&value);
            prop_assert_eq!(violations.is_empty(), validator.is_valid(&value));
            // The sentence about those that are not listed comes last.
            let is_rest = |last: &&Violation| last.message.ends_with("correct these first");
            let listed = violations.len() - usize::from(violations.last().filter(is_rest).is_some());
            prop_assert!(violations[..listed].is_sorted());
            for violation in &violations {
                prop_assert!(value.pointer(&violation.path).is_some(), "{:?}", violation);
                prop_assert!(violation.message.chars().count() <= LONGEST_MESSAGE, "{:?}", violation);
            }
            prop_assert_eq!(violations, validator.check(&value));
        }
    }

    #[test]
    fn canonical_json_reads_back_and_fingerprints_survive_their_text(value in value()) {
        let text = canonical_json(&value);
        let read: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(canonical_json(&read), text);
        let fingerprint = Fingerprint::of(&value);
        prop_assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
    }
}
