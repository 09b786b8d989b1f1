//! References from document to document.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use mainstay_schema::{
    CompileError, DocumentsError, Limits, SchemaDocument, SchemaRegistry, Validator,
};
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
fn a_broken_document_fails_only_when_it_is_used() {
    let registry = registry(&[
        ("file:///good.json", json!({"type": "string"})),
        (
            "file:///remote.json",
            json!({"items": {"$ref": "https://example.com/x"}}),
        ),
        ("file:///user.json", json!({"$ref": "remote.json"})),
        ("file:///invalid.json", json!({"type": "text"})),
        (
            "file:///nowhere.json",
            json!({"$ref": "good.json#/$defs/x"}),
        ),
    ]);
    assert!(registry.compile_document("file:///good.json").is_ok());
    let remote = CompileError::RemoteReference {
        pointer: "/items".into(),
        reference: "https://example.com/x".into(),
    };
    let fails = |uri| registry.compile_document(uri).unwrap_err();
    assert_eq!(fails("file:///remote.json"), remote);
    assert_eq!(
        fails("file:///user.json"),
        CompileError::InDocument {
            uri: "file:///remote.json".into(),
            reason: Box::new(remote)
        }
    );
    assert!(matches!(
        fails("file:///invalid.json"),
        CompileError::Invalid { .. }
    ));
    assert_eq!(
        fails("file:///nowhere.json"),
        CompileError::BrokenReference {
            pointer: String::new(),
            reference: "good.json#/$defs/x".into()
        }
    );
    assert_eq!(
        fails("file:///unknown.json"),
        CompileError::UnknownDocument {
            uri: "file:///unknown.json".into()
        }
    );
}

#[test]
fn one_name_for_two_schemas_is_refused() {
    let twice = [
        ("file:///a.json", json!({"$id": "https://example.com/x"})),
        (
            "file:///b.json",
            json!({"$defs": {"x": {"$id": "https://example.com/x"}}}),
        ),
    ];
    let error = SchemaRegistry::with_documents(Limits::default(), documents(&twice)).unwrap_err();
    assert_eq!(
        error,
        DocumentsError::DuplicateId {
            id: "https://example.com/x".into(),
            first_uri: "file:///a.json".into(),
            second_uri: "file:///b.json".into()
        }
    );
}
