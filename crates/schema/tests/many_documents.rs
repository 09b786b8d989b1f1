//! Work stays bounded over many documents, however they refer to each other.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use std::time::{Duration, Instant};

use mainstay_schema::{CompileError, Limits, SchemaDocument, SchemaRegistry};
use serde_json::{Value, json};

/// Far more than any of this takes, far less than work without a bound.
const SOON: Duration = Duration::from_secs(120);

fn uri(number: usize) -> String {
    format!("file:///r/{number}.json")
}

fn registry(count: usize, schema: impl Fn(usize) -> Value) -> SchemaRegistry {
    limited(Limits::default(), count, schema)
}

fn limited(limits: Limits, count: usize, schema: impl Fn(usize) -> Value) -> SchemaRegistry {
    let documents = (0..count).map(|number| SchemaDocument {
        uri: uri(number),
        schema: schema(number),
    });
    SchemaRegistry::with_documents(limits, documents.collect()).unwrap()
}

fn reference(number: usize) -> Value {
    json!({"$ref": format!("{number}.json")})
}

#[test]
fn a_doubling_chain_over_documents_is_refused() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let registry = registry(41, |number| match number {
            40 => json!({"type": "string"}),
            _ => json!({keyword: [reference(number + 1), reference(number + 1)]}),
        });
        let start = Instant::now();
        let error = registry.compile_document(&uri(0)).unwrap_err();
        let CompileError::InDocument { reason, .. } = error else {
            panic!("{error:?}");
        };
        assert!(matches!(*reason, CompileError::TooMuchWork { .. }));
        assert!(start.elapsed() < SOON, "{keyword}");
        // Its end is cheap.
        assert!(registry.compile_document(&uri(35)).is_ok());
    }
}

#[test]
fn a_long_chain_in_one_place_is_refused() {
    let registry = registry(200, |number| reference((number + 1).min(199)));
    let error = registry.compile_document(&uri(0)).unwrap_err();
    assert!(
        error.to_string().contains("asks for too much work"),
        "{error}"
    );
}

#[test]
fn recursion_over_documents_is_not_refused() {
    let registry = registry(3, |number| {
        let next = reference((number + 1) % 3);
        json!({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"next": next}}]})
    });
    let validator = registry.compile_document(&uri(0)).unwrap();
    let mut value = json!(1);
    let mut path = String::new();
    for _ in 0..50 {
        value = json!({"next": value});
        path += "/next";
    }
    let violations = validator.check(&value);
    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].path, path);
    assert_eq!(violations[0].message, "expected object or null");
    // In place, too: the cycle by itself asks for nothing.
    let cycle = self::registry(3, |number| json!({"allOf": [reference((number + 1) % 3)]}));
    assert!(cycle.compile_document(&uri(0)).unwrap().is_valid(&json!(1)));
}

#[test]
fn ways_through_documents_that_multiply_are_compiled_once() {
    // Two documents between each and the next: twice as many ways with every step.
    let registry = registry(121, |number| match number % 3 {
        _ if number == 120 => json!({"type": "object"}),
        0 => json!({"properties": {"b": reference(number + 1), "c": reference(number + 2)}}),
        kind => json!({"properties": {"a": reference((number + 3 - kind).min(120))}}),
    });
    let start = Instant::now();
    let validator = registry.compile_document(&uri(0)).unwrap();
    assert!(validator.is_valid(&json!({"b": {"a": {"c": {}}}})));
    assert!(start.elapsed() < SOON);
}

#[test]
fn ways_that_a_mixture_of_drafts_multiplies_are_bounded() {
    let dialects = [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
    ];
    let mut limits = Limits::default();
    limits.compiled_schemas = 10_000;
    let of = |length: usize| {
        limited(limits, 3 * length + 1, move |number| {
            let kind = number % 3;
            let next = (number + 3 - kind).min(3 * length);
            let mut schema = match kind {
                0 if number == 3 * length => json!({}),
                0 => {
                    json!({"properties": {"b": reference(number + 1), "c": reference(number + 2)}})
                }
                _ => json!({"properties": {"a": reference(next)}}),
            };
            schema["$schema"] = dialects[kind].into();
            schema
        })
    };
    let start = Instant::now();
    assert!(of(5).compile_document(&uri(0)).is_ok());
    assert_eq!(
        of(40).compile_document(&uri(0)).unwrap_err(),
        CompileError::TooMuchWork {
            pointer: String::new()
        }
    );
    assert!(start.elapsed() < SOON);
}

#[test]
fn ways_that_dynamic_references_multiply_are_bounded() {
    let mut limits = Limits::default();
    limits.compiled_schemas = 10_000;
    let of = |length: usize| {
        limited(limits, 3 * length + 1, move |number| {
            let kind = number % 3;
            let next = (number + 3 - kind).min(3 * length);
            let mut schema = match kind {
                0 if number == 3 * length => json!({"$dynamicRef": "#x"}),
                0 => {
                    json!({"properties": {"b": reference(number + 1), "c": reference(number + 2)}})
                }
                _ => json!({"properties": {"a": reference(next)}}),
            };
            if number > 0 {
                schema["$defs"] = json!({"x": {"$dynamicAnchor": "x", "minimum": number}});
            }
            schema
        })
    };
    let start = Instant::now();
    let few = of(3).compile_document(&uri(0)).unwrap();
    // The first document on the way decides: number 1 or number 2.
    let way = |first: &str, value: u8| json!({first: {"a": {"b": {"a": {"c": {"a": value}}}}}});
    assert!(few.is_valid(&way("b", 1)) && !few.is_valid(&way("b", 0)));
    assert!(few.is_valid(&way("c", 2)) && !few.is_valid(&way("c", 1)));
    assert_eq!(few.check(&way("c", 1)).len(), 1);
    assert!(matches!(
        of(40).compile_document(&uri(0)),
        Err(CompileError::TooMuchWork { .. })
    ));
    assert!(start.elapsed() < SOON);
}

#[test]
fn patterns_of_other_documents_are_bounded_in_time() {
    let patterns = json!({"$defs": {
        "value": {"pattern": r"^(a|a)*\1$"},
        "names": {"patternProperties": {"^(?:(?=a)a+)+$": {}}, "additionalProperties": false}
    }});
    let registry = registry(2, |number| match number {
        0 => json!({"properties": {
            "value": {"$ref": "1.json#/$defs/value"}, "names": {"$ref": "1.json#/$defs/names"}
        }}),
        _ => patterns.clone(),
    });
    let validator = registry.compile_document(&uri(0)).unwrap();
    let start = Instant::now();
    for length in [4_000, 1_000_000] {
        let long = "a".repeat(length) + "!";
        assert_eq!(validator.check(&json!({"value": long})).len(), 1);
        assert_eq!(validator.check(&json!({"names": {long: 1}})).len(), 1);
    }
    assert!(validator.is_valid(&json!({"names": {"aa": 1}})));
    assert!(start.elapsed() < SOON);
    let huge = self::registry(2, |number| match number {
        0 => reference(1),
        _ => json!({"properties": {"a": {"pattern": "(a{1000}){1000}"}}}),
    });
    let error = huge.compile_document(&uri(0)).unwrap_err();
    assert!(
        matches!(&error, CompileError::InDocument { uri, .. } if *uri == self::uri(1)),
        "{error:?}"
    );
}

#[test]
fn a_thousand_documents_are_loaded_and_compiled_in_time() {
    // As schemas are: a few that all use, and each using some of those before it.
    let registry = registry(1_000, |number| match number {
        0 => {
            json!({"$id": "https://example.com/common", "$defs": {"name": {"type": "string", "minLength": 1}}})
        }
        _ => json!({
            "type": "object",
            "properties": {
                "name": {"$ref": "https://example.com/common#/$defs/name"},
                "half": reference(number / 2),
                "third": {"anyOf": [reference(number / 3), {"type": "null"}]},
            },
            "additionalProperties": false
        }),
    });
    let start = Instant::now();
    let compile = || {
        let start = Instant::now();
        for number in (0..1_000).step_by(5) {
            registry.compile_document(&uri(number)).unwrap();
        }
        start.elapsed()
    };
    let first = compile();
    let last = registry.compile_document(&uri(999)).unwrap();
    let value = json!({"name": "a", "half": {"name": ""}, "third": {"nmae": "b"}});
    let violations = last.check(&value);
    assert_eq!(violations.len(), 2);
    assert_eq!(violations[0].path, "/half/name");
    assert_eq!(violations[1].path, "/third");
    assert!(start.elapsed() < SOON);
    // The best of some, since the machine may do other things.
    let again = (0..5).map(|_| compile()).min().unwrap();
    assert!(again < first / 2, "{again:?} after {first:?}");
}

#[test]
fn the_cache_is_bounded_by_what_its_validators_reach() {
    let mut limits = Limits::default();
    limits.cached_subschemas = 10;
    let registry = SchemaRegistry::with_limits(limits);
    let small = json!({"items": {"type": "string"}});
    let large = json!({"anyOf": vec![json!({"minimum": 1}); 9]});
    let first = registry.compile(&small).unwrap();
    assert!(first.shares_state_with(&registry.compile(&small).unwrap()));
    registry.compile(&large).unwrap();
    assert!(!first.shares_state_with(&registry.compile(&small).unwrap()));
}
