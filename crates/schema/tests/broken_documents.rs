//! Documents that are refused, as a whole or when they are used.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use mainstay_schema::{CompileError, DocumentsError, Limits, SchemaDocument, SchemaRegistry};
use serde_json::{Value, json};

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
fn a_mistake_in_another_document_is_told_with_its_place() {
    let long = "a".repeat(300);
    let deep = (0..200).fold(json!({}), |inner, _| json!({"not": inner}));
    let registry = registry(&[
        ("file:///user/1.json", json!({"$ref": "../invalid.json"})),
        (
            "file:///user/2.json",
            json!({"$ref": "../pattern.json#/$defs/a"}),
        ),
        ("file:///user/3.json", json!({"$ref": "../deep.json"})),
        ("file:///user/4.json", json!({"$ref": "../twins.json"})),
        ("file:///user/5.json", json!({"$ref": "../dialect.json"})),
        (
            "file:///user/6.json",
            json!({"$ref": "../anchor.json#gone"}),
        ),
        (
            "file:///invalid.json",
            json!({"properties": {"a": {"type": "text"}}}),
        ),
        (
            "file:///pattern.json",
            json!({"$defs": {"a": {"pattern": "("}}}),
        ),
        ("file:///user/7.json", json!({"$ref": "../misnamed.json"})),
        (
            "file:///misnamed.json",
            json!({"items": {"$id": "http://[/"}}),
        ),
        ("file:///deep.json", deep),
        (
            "file:///twins.json",
            json!({"$defs": {"a": {"$id": "https://example.com/x"}, "b": {"$id": "https://example.com/x"}}}),
        ),
        ("file:///dialect.json", json!({"$schema": long.as_str()})),
        ("file:///anchor.json", json!({"$anchor": "here"})),
    ]);
    let says = |number: u8, message: &str| {
        let uri = format!("file:///user/{number}.json");
        let error = registry.compile_document(&uri).unwrap_err();
        assert_eq!(error.to_string(), message);
    };
    says(
        1,
        r#"in "file:///invalid.json": invalid schema at "/properties/a/type": must be one of "array", "boolean", "integer", "null", "number", "object", "string""#,
    );
    says(
        2,
        r#"in "file:///pattern.json": invalid schema at "/$defs/a/pattern": must have the format "regex""#,
    );
    says(
        3,
        r#"in "file:///deep.json": schema is nested more than 128 levels deep"#,
    );
    says(
        4,
        r#"in "file:///twins.json": "https://example.com/x" is the "$id" of two schemas, the second at "/$defs/b""#,
    );
    let cut = "a".repeat(63);
    says(
        5,
        &format!(
            r#"in "file:///dialect.json": unknown schema dialect "{cut}…"; name a published draft, or put its meta-schema into a schema root"#
        ),
    );
    says(
        7,
        r#"in "file:///misnamed.json": invalid schema at "/items/$id": is not a URI"#,
    );
    says(
        6,
        r#"reference "../anchor.json#gone" at its root leads nowhere"#,
    );
}

#[test]
fn a_remote_reference_says_what_to_do() {
    let registry = registry(&[(
        "file:///r/a.json",
        json!({"properties": {"x": {"$ref": "https://example.com/far.json#/$defs/x"}}}),
    )]);
    let error = registry.compile_document("file:///r/a.json").unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"reference "https://example.com/far.json#/$defs/x" at "/properties/x" is not available; nothing is fetched, so put its target into a schema root, or correct it"#
    );
    // Neither is a file that exists: documents are handed in.
    let own = json!({"$ref": concat!("file://", file!())});
    assert!(matches!(
        registry.compile(&own),
        Err(CompileError::RemoteReference { .. })
    ));
}

#[test]
fn one_name_for_two_schemas_is_refused() {
    let refused = |all: &[(&str, Value)]| {
        SchemaRegistry::with_documents(Limits::default(), documents(all)).unwrap_err()
    };
    let named = json!({"$id": "https://example.com/x"});
    let twice = refused(&[
        ("file:///a.json", named.clone()),
        ("file:///b.json", json!({"$defs": {"x": named}})),
    ]);
    assert_eq!(
        twice,
        DocumentsError::DuplicateId {
            id: "https://example.com/x".into(),
            first_uri: "file:///a.json".into(),
            second_uri: "file:///b.json".into()
        }
    );
    assert_eq!(
        twice.to_string(),
        r#""https://example.com/x" is the name of two schemas, in "file:///a.json" and in "file:///b.json"; give one of them another "$id""#
    );
    let same_place = refused(&[
        ("file:///a.json", json!({})),
        ("file:///./a.json", json!({})),
    ]);
    assert!(matches!(same_place, DocumentsError::DuplicateId { .. }));
    let place_of_another = refused(&[
        ("file:///a.json", json!({"$id": "file:///b.json"})),
        ("file:///b.json", json!({})),
    ]);
    assert!(matches!(
        place_of_another,
        DocumentsError::DuplicateId { .. }
    ));
}

#[test]
fn documents_are_bounded_and_their_uris_are_absolute() {
    let mut limits = Limits::default();
    limits.documents = 1;
    let one = [("file:///a.json", json!({}))];
    let two = [("file:///a.json", json!({})), ("file:///b.json", json!({}))];
    assert!(SchemaRegistry::with_documents(limits, documents(&one)).is_ok());
    let error = SchemaRegistry::with_documents(limits, documents(&two)).unwrap_err();
    assert_eq!(error, DocumentsError::TooMany { limit: 1 });
    let mut limits = Limits::default();
    limits.document_values = 2;
    assert!(SchemaRegistry::with_documents(limits, documents(&two)).is_ok());
    let more = [("file:///a.json", json!({"enum": [1]}))];
    let error = SchemaRegistry::with_documents(limits, documents(&more)).unwrap_err();
    assert_eq!(error, DocumentsError::TooLarge { limit: 2 });
    for uri in [
        "",
        "a.json",
        "/r/a.json",
        "file:///a b.json",
        "file:///a.json#/x",
        "r\\a",
    ] {
        let error =
            SchemaRegistry::with_documents(Limits::default(), documents(&[(uri, json!({}))]));
        assert_eq!(
            error.unwrap_err(),
            DocumentsError::InvalidUri { uri: uri.into() }
        );
    }
}
