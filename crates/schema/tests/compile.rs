//! Which schemas are accepted, under which draft, and what refused ones are told.

// Helpers of tests are tests, which clippy cannot see here.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::{Duration, Instant};

use mainstay_schema::{CompileError, Fingerprint, Limits, SchemaRegistry, Validator};
use serde_json::{Value, json};

fn compile(schema: &Value) -> Result<Validator, CompileError> {
    SchemaRegistry::new().compile(schema)
}

#[test]
fn equal_schemas_share_one_compiled_state() {
    let registry = SchemaRegistry::new();
    let one = registry
        .compile(&json!({"type": "string", "minLength": 1}))
        .unwrap();
    let two = registry
        .compile(&json!({"minLength": 1, "type": "string"}))
        .unwrap();
    let three = registry
        .compile(&json!({"minLength": 2, "type": "string"}))
        .unwrap();
    assert!(one.shares_state_with(&two) && one.shares_state_with(&one.clone()));
    assert!(!one.shares_state_with(&three));
    assert_eq!(one.fingerprint(), Fingerprint::of(one.schema()));
}

#[test]
fn the_cache_is_bounded() {
    let mut limits = Limits::default();
    limits.cached_schemas = 2;
    let registry = SchemaRegistry::with_limits(limits);
    let first = registry.compile(&json!({"minimum": 0})).unwrap();
    for number in 1..5 {
        registry.compile(&json!({"minimum": number})).unwrap();
    }
    let again = registry.compile(&json!({"minimum": 0})).unwrap();
    assert!(!first.shares_state_with(&again));
}

#[test]
fn the_documents_own_schema_decides_the_draft() {
    // `prefixItems` exists since 2020-12; before, a list in `items` meant that.
    let pairs = |dialect: Option<&str>, keyword: &str| {
        let mut schema = json!({keyword: [{"type": "string"}]});
        if let Some(dialect) = dialect {
            schema["$schema"] = json!(dialect);
        }
        compile(&schema).map(|validator| !validator.is_valid(&json!([1])))
    };
    let draft7 = Some("http://json-schema.org/draft-07/schema#");
    let latest = Some("https://json-schema.org/draft/2020-12/schema");
    assert_eq!(pairs(None, "prefixItems"), Ok(true));
    assert_eq!(pairs(latest, "prefixItems"), Ok(true));
    assert_eq!(pairs(draft7, "prefixItems"), Ok(false));
    assert_eq!(pairs(draft7, "items"), Ok(true));
    assert!(pairs(latest, "items").is_err());
    assert_eq!(
        compile(&json!({"$schema": "https://example.com/own"})).unwrap_err(),
        CompileError::UnknownDialect {
            dialect: "https://example.com/own".into()
        }
    );
}

#[test]
fn remote_references_are_refused_by_name() {
    for (reference, holder) in [
        ("https://example.com/a.json#/x", json!({})),
        ("other.json", json!({})),
        ("file:///etc/passwd", json!({})),
        ("b.json", json!({"$id": "https://example.com/a.json"})),
    ] {
        let mut schema = holder;
        schema["properties"] = json!({"a/b": {"$ref": reference}});
        let error = compile(&schema).unwrap_err();
        assert_eq!(
            error,
            CompileError::RemoteReference {
                pointer: "/properties/a~1b".into(),
                reference: reference.into()
            }
        );
        assert_eq!(
            error.to_string(),
            format!(
                "reference \"{reference}\" at \"/properties/a~1b\" is not available; nothing is \
                 fetched, so put its target into a schema root, or correct it"
            )
        );
    }
}

#[test]
fn published_meta_schemas_are_built_in() {
    for dialect in [
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-04/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        for own in [None, Some("http://json-schema.org/draft-07/schema#")] {
            let mut schema = json!({"properties": {"schema": {"$ref": dialect}}});
            if let Some(own) = own {
                schema["$schema"] = json!(own);
            }
            let validator = compile(&schema).unwrap();
            assert!(
                validator.is_valid(&json!({"schema": {"type": "string"}})),
                "{dialect}"
            );
            let violations = validator.check(&json!({"schema": {"type": "text"}}));
            assert_eq!(violations.len(), 1, "{dialect}");
            assert_eq!(violations[0].path, "/schema");
            assert_eq!(violations[0].message, "does not match the schema");
        }
    }
}

#[test]
fn references_that_lead_nowhere_are_refused_by_name() {
    for reference in ["#/nowhere", "#nowhere", "#/properties/a/b"] {
        assert_eq!(
            compile(&json!({"properties": {"a": {"$ref": reference}}})).unwrap_err(),
            CompileError::BrokenReference {
                pointer: "/properties/a".into(),
                reference: reference.into()
            }
        );
    }
}

#[test]
fn invalid_schemas_are_refused_with_place_and_reason() {
    let table = [
        (
            json!({"type": "text"}),
            "/type",
            r#"must be one of "array", "boolean", "integer", "null", "number", "object", "string""#,
        ),
        (
            json!({"properties": {"a": {"minLength": -1}}}),
            "/properties/a/minLength",
            "must be at least 0",
        ),
        (
            json!({"properties": {"a": {"pattern": "("}}}),
            "/properties/a/pattern",
            r#"must have the format "regex""#,
        ),
        (json!({"required": "a"}), "/required", "expected array"),
        (json!(5), "", "expected boolean or object"),
        (json!({"anyOf": []}), "/anyOf", "must have at least 1 item"),
    ];
    for (schema, pointer, message) in table {
        assert_eq!(
            compile(&schema).unwrap_err(),
            CompileError::Invalid {
                pointer: pointer.into(),
                message: message.into()
            },
            "{schema}"
        );
    }
}

#[test]
fn deep_wide_and_doubling_schemas_are_refused_at_once() {
    let start = Instant::now();
    for wrap in [|inner| json!({"not": inner}), |inner| json!([inner])] {
        let mut bomb = json!({});
        for _ in 0..1_000 {
            bomb = wrap(bomb);
        }
        assert_eq!(
            compile(&bomb).unwrap_err(),
            CompileError::TooDeep { limit: 128 }
        );
    }
    let wide = json!({"enum": (0..200_000).collect::<Vec<_>>()});
    assert_eq!(
        compile(&wide).unwrap_err(),
        CompileError::TooLarge { limit: 100_000 }
    );
    let mut defs = json!({"d40": {"type": "string"}});
    for number in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        defs[format!("d{number}")] = json!({"allOf": [next, next]});
    }
    assert!(matches!(
        compile(&json!({"$ref": "#/$defs/d0", "$defs": defs})).unwrap_err(),
        CompileError::TooMuchWork { .. }
    ));
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn nested_schemas_within_the_limit_compile_and_run_on_a_small_stack() {
    let mut schema = json!({"type": "string"});
    let mut value = json!(1);
    for _ in 0..60 {
        schema = json!({"items": schema});
        value = json!([value]);
    }
    let run = move || {
        let validator = compile(&schema).unwrap();
        assert_eq!(validator.check(&value).len(), 1);
    };
    std::thread::Builder::new()
        .stack_size(1 << 20)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn a_recursive_schema_runs_on_the_deepest_value_on_a_small_stack() {
    let schema = json!({"$ref": "#/$defs/d0", "$defs": {
        "d0": {"allOf": [{"$ref": "#/$defs/d1"}]},
        "d1": {"allOf": [{"$ref": "#/$defs/d2"}]},
        "d2": {"anyOf": [{"type": "integer"}, {"items": {"$ref": "#/$defs/d0"}, "type": "array"}]},
    }});
    let mut value = json!("x");
    let mut path = String::new();
    for _ in 0..127 {
        value = json!([value]);
        path += "/0";
    }
    let run = move || {
        let violations = compile(&schema).unwrap().check(&value);
        assert_eq!(violations.len(), 1);
        assert_eq!(
            (violations[0].path.as_str(), violations[0].message.as_str()),
            (path.as_str(), "expected array or integer")
        );
    };
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn the_longest_chain_at_every_level_of_the_deepest_value_fits_the_stack() {
    let mut defs = json!({"d30": {"type": "array", "items": {"$ref": "#/$defs/d0"}}});
    for number in 0..30 {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        defs[format!("d{number}")] = json!({"allOf": [next]});
    }
    let schema = json!({"$ref": "#/$defs/d0", "$defs": defs});
    let mut valid = json!([]);
    let mut invalid = json!([1]);
    for _ in 0..126 {
        valid = json!([valid]);
        invalid = json!([invalid]);
    }
    let run = move || {
        let validator = compile(&schema).unwrap();
        assert!(validator.check(&valid).is_empty());
        assert!(!validator.check(&invalid).is_empty());
    };
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}
