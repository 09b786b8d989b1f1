//! References from document to document.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use mainstay_schema::{CompileError, Limits, SchemaDocument, SchemaRegistry, Validator};
use serde_json::{Value, json};

const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";

fn documents(documents: &[(&str, Value)]) -> Vec<SchemaDocument> {
    documents
        .iter()
        .map(|(uri, schema)| SchemaDocument {
            uri: (*uri).to_owned(),
            schema: schema.clone(),
        })
        .collect()
}

fn registry(all: &[(&str, Value)]) -> SchemaRegistry {
    SchemaRegistry::with_documents(Limits::default(), documents(all)).unwrap()
}

fn found(validator: &Validator, value: &Value) -> Vec<(String, String)> {
    let violations = validator.check(value).into_iter();
    violations
        .map(|violation| (violation.path, violation.message))
        .collect()
}

fn says(validator: &Validator, value: &Value, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(path, message)| ((*path).to_owned(), (*message).to_owned()))
        .collect();
    assert_eq!(found(validator, value), expected, "{value}");
}

#[test]
fn a_relative_reference_leads_to_the_file_beside() {
    let registry = registry(&[
        (
            "file:///r/asset.json",
            json!({"properties": {"colour": {"$ref": "parts/colour.json#/$defs/name"}}}),
        ),
        (
            "file:///r/parts/colour.json",
            json!({"$defs": {"name": {"$ref": "../names.json"}}}),
        ),
        ("file:///r/names.json", json!({"enum": ["red", "green"]})),
    ]);
    let asset = registry.compile_document("file:///r/asset.json").unwrap();
    says(&asset, &json!({"colour": "red"}), &[]);
    says(
        &asset,
        &json!({"colour": "blue"}),
        &[("/colour", r#"must be one of "red", "green""#)],
    );
}

#[test]
fn a_document_is_known_by_its_uri_and_by_its_id() {
    let registry = registry(&[
        (
            "file:///r/a.json",
            json!({"$ref": "b.json#/$defs/x", "description": "by file"}),
        ),
        (
            "file:///r/b.json",
            // What it refers to is relative to its `$id`.
            json!({"$id": "https://example.com/s/b.json", "$defs": {"x": {"$ref": "c.json"}}}),
        ),
        (
            "file:///r/c.json",
            json!({"$id": "https://example.com/s/c.json", "type": "string"}),
        ),
    ]);
    let a = registry.compile_document("file:///r/a.json").unwrap();
    says(&a, &json!(1), &[("", "expected string")]);
    let by_id = registry
        .compile_document("https://example.com/s/b.json")
        .unwrap();
    let by_uri = registry.compile_document("file:///r/b.json").unwrap();
    assert!(by_id.shares_state_with(&by_uri));
    let free = registry
        .compile(&json!({"items": {"$ref": "https://example.com/s/b.json#/$defs/x"}}))
        .unwrap();
    says(&free, &json!([1]), &[("/0", "expected string")]);
}

#[test]
fn each_document_has_its_own_draft() {
    // A list in `items` means something in Draft 7 only, `prefixItems` since 2020-12.
    let old = json!({"$schema": DRAFT_7, "items": [{"type": "string"}],
                     "properties": {"new": {"$ref": "new.json"}}});
    let new = json!({"prefixItems": [{"type": "string"}],
                     "properties": {"old": {"$ref": "old.json"}}});
    let registry = registry(&[("file:///old.json", old), ("file:///new.json", new)]);
    for (uri, other) in [("file:///old.json", "new"), ("file:///new.json", "old")] {
        let validator = registry.compile_document(uri).unwrap();
        says(&validator, &json!([1]), &[("/0", "expected string")]);
        says(
            &validator,
            &json!({other: [1]}),
            &[(&format!("/{other}/0"), "expected string")],
        );
    }
}

#[test]
fn equal_documents_share_one_state_unless_their_place_makes_a_difference() {
    let plain = json!({"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}});
    let placed = json!({"$ref": "x.json"});
    let registry = registry(&[
        ("file:///a/plain.json", plain.clone()),
        ("file:///b/plain.json", plain.clone()),
        ("file:///a/placed.json", placed.clone()),
        ("file:///b/placed.json", placed),
        ("file:///a/x.json", json!({"type": "string"})),
        ("file:///b/x.json", json!({"type": "null"})),
    ]);
    let compile = |uri| registry.compile_document(uri).unwrap();
    assert!(compile("file:///a/plain.json").shares_state_with(&compile("file:///b/plain.json")));
    assert!(compile("file:///a/plain.json").shares_state_with(&registry.compile(&plain).unwrap()));
    let (a, b) = (
        compile("file:///a/placed.json"),
        compile("file:///b/placed.json"),
    );
    assert!(!a.shares_state_with(&b));
    assert_eq!(a.fingerprint(), b.fingerprint());
    assert!(a.is_valid(&json!("x")) && !a.is_valid(&json!(null)));
    assert!(b.is_valid(&json!(null)) && !b.is_valid(&json!("x")));
}

#[test]
fn anchors_pointers_and_embedded_resources_are_found_in_other_documents() {
    let registry = registry(&[
        (
            "file:///r/parts.json",
            json!({"$id": "https://example.com/parts", "$defs": {
                "text": {"$anchor": "text", "type": "string"},
                "inner": {"$id": "deep/inner", "type": "array", "items": {"$ref": "#item"}, "$defs": {
                    "i": {"$anchor": "item", "$ref": "../parts#/$defs/text"},
                    "x y/z": {"type": "null"}
                }}
            }}),
        ),
        ("file:///r/true.json", json!(true)),
        ("file:///r/false.json", json!(false)),
    ]);
    for (reference, good, bad, expected) in [
        (
            "file:///r/parts.json#text",
            json!("a"),
            json!(1),
            ("", "expected string"),
        ),
        (
            "https://example.com/parts#/$defs/text",
            json!("a"),
            json!(1),
            ("", "expected string"),
        ),
        (
            "https://example.com/deep/inner",
            json!(["a"]),
            json!([1]),
            ("/0", "expected string"),
        ),
        (
            "https://example.com/deep/inner#item",
            json!("a"),
            json!(1),
            ("", "expected string"),
        ),
        (
            "https://example.com/deep/inner#/$defs/x%20y~1z",
            json!(null),
            json!(1),
            ("", "expected null"),
        ),
        // A pointer may cross into an embedded resource.
        (
            "file:///r/parts.json#/$defs/inner/items",
            json!("a"),
            json!(1),
            ("", "expected string"),
        ),
    ] {
        let validator = registry.compile(&json!({"$ref": reference})).unwrap();
        assert!(validator.is_valid(&good), "{reference}");
        says(&validator, &bad, &[expected]);
    }
    let all = registry.compile_document("file:///r/true.json").unwrap();
    says(&all, &json!(1), &[]);
    let none = json!({"properties": {"a": {"$ref": "file:///r/false.json"}}});
    let none = registry.compile(&none).unwrap();
    says(&none, &json!({"a": 1}), &[("/a", "not allowed here")]);
}

#[test]
fn a_relative_id_is_seen_from_where_the_document_was_loaded() {
    let registry = registry(&[
        (
            "file:///r/a.json",
            json!({"$id": "named/b.json", "properties": {"c": {"$ref": "c.json"}, "self": {"$ref": "b.json"}}}),
        ),
        ("file:///r/named/c.json", json!({"type": "null"})),
    ]);
    for uri in [
        "file:///r/a.json",
        "file:///r/named/b.json",
        "file:///r/x/../a.json#",
    ] {
        let validator = registry.compile_document(uri).unwrap();
        let value = json!({"self": {"c": 1}});
        says(&validator, &value, &[("/self/c", "expected null")]);
    }
}

#[test]
fn a_free_schema_comes_before_a_document_of_the_same_name() {
    let name = "https://example.com/x";
    let registry = registry(&[("file:///x.json", json!({"$id": name, "type": "null"}))]);
    let own = json!({"$id": name, "anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": name}}]});
    let validator = registry.compile(&own).unwrap();
    assert!(validator.is_valid(&json!([["a"]])) && !validator.is_valid(&json!([[1]])));
    let document = registry.compile_document(name).unwrap();
    assert!(document.is_valid(&json!(null)));
}

#[test]
fn dynamic_references_go_through_documents() {
    let tree = json!({"$id": "https://example.com/tree", "$dynamicAnchor": "node", "type": "object",
        "properties": {"children": {"type": "array", "items": {"$dynamicRef": "#node"}}}});
    let strict = json!({"$id": "https://example.com/strict", "$dynamicAnchor": "node",
        "$ref": "tree", "unevaluatedProperties": false});
    let registry = registry(&[("file:///tree.json", tree), ("file:///strict.json", strict)]);
    let value = json!({"children": [{"daat": 1}]});
    let tree = registry.compile_document("file:///tree.json").unwrap();
    says(&tree, &value, &[]);
    let strict = registry.compile_document("file:///strict.json").unwrap();
    says(
        &strict,
        &value,
        &[("/children/0", r#"unknown member "daat""#)],
    );
    // Where several ways lead to different anchors, each way counts.
    let both = json!({"properties": {
        "tree": {"$ref": "https://example.com/tree"}, "strict": {"$ref": "https://example.com/strict"}
    }});
    let both = registry.compile(&both).unwrap();
    says(&both, &json!({"tree": value}), &[]);
    assert!(!both.is_valid(&json!({"strict": value})));
    assert_eq!(found(&both, &json!({"strict": value})).len(), 1);
}

#[test]
fn a_document_may_have_a_dialect_of_its_own() {
    let dialect = |uses: &[&str]| {
        let vocabulary = |name: &&str| {
            let known = format!("https://json-schema.org/draft/2020-12/vocab/{name}");
            (known, json!(true))
        };
        let vocabularies: serde_json::Map<_, _> = uses.iter().map(vocabulary).collect();
        json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "$vocabulary": vocabularies})
    };
    let unknown = json!({"$schema": "https://json-schema.org/draft/2020-12/schema",
                         "$vocabulary": {"https://example.com/units": true}});
    let lax = json!({"$schema": "https://example.com/lax", "properties": {
        "a": {"minimum": 3}, "b": false
    }});
    let registry = registry(&[
        ("https://example.com/lax", dialect(&["core", "applicator"])),
        ("https://example.com/metric", unknown),
        ("file:///lax.json", lax),
        (
            "file:///metric.json",
            json!({"$schema": "https://example.com/metric", "unit": "m"}),
        ),
        (
            "file:///user.json",
            json!({"properties": {"lax": {"$ref": "lax.json"}, "a": {"$ref": "lax.json#/properties/a"}, "c": {"minimum": 3}}}),
        ),
    ]);
    let lax = registry.compile_document("file:///lax.json").unwrap();
    says(
        &lax,
        &json!({"a": 1, "b": 2}),
        &[("/b", "not allowed here")],
    );
    let user = registry.compile_document("file:///user.json").unwrap();
    says(
        &user,
        &json!({"lax": {"a": 1, "b": 1}, "a": 1, "c": 1}),
        &[("/c", "must be at least 3"), ("/lax/b", "not allowed here")],
    );
    assert_eq!(
        registry
            .compile_document("file:///metric.json")
            .unwrap_err(),
        CompileError::UnknownDialect {
            dialect: "https://example.com/units".into()
        }
    );
}

#[test]
fn an_embedded_schema_of_another_draft_keeps_its_rules() {
    let old = json!({"$id": "https://example.com/old", "$schema": DRAFT_7,
        "items": [{"$ref": "#/definitions/text", "maxLength": 1}],
        "definitions": {"text": {"type": "string"}}});
    let schema = json!({"$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/new",
        "properties": {"old": old, "by": {"$ref": "old#/definitions/text"}, "new": {"prefixItems": [{"type": "null"}]}}});
    let validator = SchemaRegistry::new().compile(&schema).unwrap();
    says(
        &validator,
        &json!({"old": ["long"], "by": "a", "new": [null]}),
        &[],
    );
    says(
        &validator,
        &json!({"old": [1], "by": 1, "new": [1]}),
        &[
            ("/by", "expected string"),
            ("/new/0", "expected null"),
            ("/old/0", "expected string"),
        ],
    );
}
