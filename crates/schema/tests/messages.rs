//! The texts clients see, keyword by keyword.

// Helpers of tests are tests, which clippy cannot see here.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
// Calls read better with the values in place.
#![allow(clippy::needless_pass_by_value)]

use mainstay_schema::{SchemaRegistry, Violation};
use serde_json::{Value, json};

fn check(schema: &Value, value: &Value) -> Vec<(String, String)> {
    let validator = SchemaRegistry::new().compile(schema).unwrap();
    let violations = validator.check(value);
    assert_eq!(violations.is_empty(), validator.is_valid(value));
    violations
        .into_iter()
        .map(|Violation { path, message }| (path, message))
        .collect()
}

#[track_caller]
fn says(schema: Value, value: Value, expected: &[(&str, &str)]) {
    let found = check(&schema, &value);
    let found: Vec<_> = found
        .iter()
        .map(|(path, message)| (path.as_str(), message.as_str()))
        .collect();
    assert_eq!(found, expected, "{schema} of {value}");
}

#[test]
fn every_keyword_has_its_sentence() {
    let draft7 = "http://json-schema.org/draft-07/schema#";
    let table = [
        (json!({"type": "number"}), json!("x"), "expected number"),
        (
            json!({"type": ["string", "null", "array"]}),
            json!(1),
            "expected array, string or null",
        ),
        (
            json!({"type": ["integer", "number"]}),
            json!("x"),
            "expected number",
        ),
        (json!({"const": {"a": 1}}), json!(2), r#"must be {"a":1}"#),
        (
            json!({"enum": ["a", "b", 3]}),
            json!("c"),
            r#"must be one of "a", "b", 3"#,
        ),
        (json!({"enum": []}), json!("c"), "not allowed here"),
        (json!({"enum": ["a"]}), json!("c"), r#"must be "a""#),
        (json!({"minimum": 1}), json!(0), "must be at least 1"),
        (json!({"maximum": 1.5}), json!(2), "must be at most 1.5"),
        (
            json!({"exclusiveMinimum": 1}),
            json!(1),
            "must be more than 1",
        ),
        (
            json!({"exclusiveMaximum": 1}),
            json!(1),
            "must be less than 1",
        ),
        (
            json!({"multipleOf": 2}),
            json!(3),
            "must be a multiple of 2",
        ),
        (
            json!({"multipleOf": 0.5}),
            json!(0.3),
            "must be a multiple of 0.5",
        ),
        (
            json!({"minLength": 1}),
            json!(""),
            "must have at least 1 character",
        ),
        (
            json!({"maxLength": 2}),
            json!("abc"),
            "must have at most 2 characters",
        ),
        (
            json!({"pattern": "^a+$"}),
            json!("b"),
            r#"must match the pattern "^a+$""#,
        ),
        (
            json!({"minItems": 2}),
            json!([]),
            "must have at least 2 items",
        ),
        (
            json!({"maxItems": 1}),
            json!([1, 2]),
            "must have at most 1 item",
        ),
        (
            json!({"uniqueItems": true}),
            json!([1, 1]),
            "items must be unique",
        ),
        (
            json!({"contains": {"type": "null"}}),
            json!([1]),
            "must have at least 1 item of the required form",
        ),
        (
            json!({"contains": {"type": "null"}, "minContains": 2, "maxContains": 3}),
            json!([null]),
            "must have 2 to 3 items of the required form",
        ),
        (
            json!({"contains": {"type": "null"}, "maxContains": 1}),
            json!([null, null]),
            "must have exactly 1 item of the required form",
        ),
        (
            json!({"unevaluatedItems": false}),
            json!([1]),
            "has items that are not allowed",
        ),
        (
            json!({"minProperties": 1}),
            json!({}),
            "must have at least 1 member",
        ),
        (
            json!({"maxProperties": 0}),
            json!({"a": 1}),
            "must have at most 0 members",
        ),
        (
            json!({"required": ["name"]}),
            json!({}),
            r#"missing required member "name""#,
        ),
        (
            json!({"dependentRequired": {"a": ["b"]}}),
            json!({"a": 1}),
            r#"missing required member "b""#,
        ),
        (
            json!({"additionalProperties": false}),
            json!({"foo": 1}),
            r#"unknown member "foo""#,
        ),
        (
            json!({"properties": {"food": {}}, "additionalProperties": false}),
            json!({"foo": 1}),
            r#"unknown member "foo" (did you mean "food"?)"#,
        ),
        (
            json!({"unevaluatedProperties": false}),
            json!({"foo": 1}),
            r#"unknown member "foo""#,
        ),
        (
            json!({"propertyNames": {"maxLength": 2}}),
            json!({"foo": 1}),
            r#"member name "foo" must have at most 2 characters"#,
        ),
        (
            json!({"propertyNames": false}),
            json!({"foo": 1}),
            "not allowed here",
        ),
        (
            json!({"propertyNames": {"anyOf": [{"const": "a"}, {"const": "b"}]}}),
            json!({"foo": 1}),
            r#"member name "foo" is not allowed"#,
        ),
        (
            json!({"not": {"type": "string"}}),
            json!("x"),
            "matches a form that is not allowed",
        ),
        (json!(false), json!(1), "not allowed here"),
        (
            json!({"$schema": draft7, "format": "email"}),
            json!("x"),
            r#"must have the format "email""#,
        ),
        (
            json!({"$schema": draft7, "contentEncoding": "base64"}),
            json!("?"),
            r#"must be encoded as "base64""#,
        ),
        (
            json!({"$schema": draft7, "contentMediaType": "application/json"}),
            json!("{"),
            r#"must hold "application/json""#,
        ),
        (
            json!({"$schema": draft7, "items": [{}], "additionalItems": false}),
            json!([1, 2]),
            "must have at most 1 item",
        ),
        (
            json!({"pattern": "^(?:(?=a)a+)+$"}),
            json!("a".repeat(5000) + "!"),
            "was not checked: it is too long or too complex for its pattern",
        ),
    ];
    for (schema, value, expected) in table {
        says(schema, value, &[("", expected)]);
    }
}

#[test]
fn values_names_and_lists_are_shortened() {
    let long = "x".repeat(1000);
    let cut = format!("\"{}…\"", "x".repeat(63));
    says(
        json!({"const": long}),
        json!(1),
        &[("", &format!("must be {cut}"))],
    );
    says(
        json!({"additionalProperties": false}),
        json!({long: 1}),
        &[("", &format!("unknown member {cut}"))],
    );
    let many: Vec<_> = (0..1000).map(|number| format!("value {number}")).collect();
    let found = check(&json!({"enum": many}), &json!(1));
    assert_eq!(
        found[0].1,
        concat!(
            r#"must be one of "value 0", "value 1", "value 2", "value 3", "value 4", "#,
            r#""value 5", "value 6", "value 7", "value 8", "value 9", "value 10", "#,
            r#""value 11", "value 12", "value 13" or 986 more"#
        )
    );
}

#[test]
fn each_unknown_and_each_missing_member_is_one_violation_at_the_parent() {
    says(
        json!({"properties": {"o": {
            "required": ["a", "b"], "additionalProperties": false, "properties": {"a": {}, "b": {}}
        }}}),
        json!({"o": {"z": 1, "y": 2}}),
        &[
            ("/o", r#"missing required member "a""#),
            ("/o", r#"missing required member "b""#),
            ("/o", r#"unknown member "y""#),
            ("/o", r#"unknown member "z""#),
        ],
    );
    says(
        json!({"$ref": "#/$defs/a", "unevaluatedProperties": false, "$defs": {
            "a": {"properties": {"a": {}}}
        }}),
        json!({"a": 1, "y": 2, "z": 3}),
        &[("", r#"unknown member "y""#), ("", r#"unknown member "z""#)],
    );
}

#[test]
fn pointers_are_escaped_and_count_items() {
    says(
        json!({"additionalProperties": {"items": {"additionalProperties": {"type": "null"}}}}),
        json!({"a/b": [{}, {"c~d": 1, "é \"": 2}]}),
        &[
            ("/a~1b/1/c~0d", "expected null"),
            ("/a~1b/1/é \"", "expected null"),
        ],
    );
    says(
        json!({"items": {"$ref": "#/$defs/a~1b%25"}, "$defs": {"a/b%": {"anyOf": [{"type": "null"}]}}}),
        json!([1]),
        &[("/0", "expected null")],
    );
}

#[test]
fn violations_are_sorted_by_path_then_message() {
    says(
        json!({"properties": {
            "b": {"type": "string"}, "a": {"minimum": 3, "multipleOf": 2}, "A": {"type": "null"}
        }, "required": ["z"]}),
        json!({"b": 1, "a": 1, "A": 1}),
        &[
            ("", r#"missing required member "z""#),
            ("/A", "expected null"),
            ("/a", "must be a multiple of 2"),
            ("/a", "must be at least 3"),
            ("/b", "expected string"),
        ],
    );
}

#[test]
fn alternatives_of_types_are_told_together() {
    let optional = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    says(optional, json!(5), &[("", "expected string or null")]);
    says(
        json!({"anyOf": [{"type": "object"}, {"enum": ["auto", "none"]}, {"const": "all"}]}),
        json!("x"),
        &[("", r#"must be one of "auto", "none", "all""#)],
    );
    says(
        json!({"oneOf": [{"type": "object"}, {"const": "auto"}]}),
        json!(5),
        &[("", "expected object or string")],
    );
}

/// Shapes told apart by `kind`, and names.
fn shapes() -> Value {
    json!({
        "items": {"oneOf": [
            {"$ref": "#/$defs/circle"}, {"$ref": "#/$defs/box"}, {"type": "string", "minLength": 2}
        ]},
        "$defs": {
            "circle": {
                "type": "object",
                "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
                "required": ["kind", "radius"], "additionalProperties": false
            },
            "box": {
                "type": "object",
                "properties": {"kind": {"const": "box"}, "width": {"type": "number"}},
                "required": ["kind", "width"], "additionalProperties": false
            }
        }
    })
}

#[test]
fn the_branch_that_was_meant_is_explained() {
    says(
        shapes(),
        json!([{"kind": "circle", "radius": "big", "widht": 1}]),
        &[
            ("/0", r#"unknown member "widht""#),
            ("/0/radius", "expected number"),
        ],
    );
    says(
        shapes(),
        json!([{"kind": "box", "widht": 1}]),
        &[
            ("/0", r#"missing required member "width""#),
            ("/0", r#"unknown member "widht" (did you mean "width"?)"#),
        ],
    );
    says(
        shapes(),
        json!([{"kind": "line"}]),
        &[("/0/kind", r#"must be one of "circle", "box""#)],
    );
    says(
        shapes(),
        json!(["a"]),
        &[("/0", "must have at least 2 characters")],
    );
    says(
        shapes(),
        json!([true]),
        &[("/0", "expected object or string")],
    );
    // What the equally near branches have in common.
    says(
        shapes(),
        json!([{}]),
        &[("/0", r#"missing required member "kind""#)],
    );
}

#[test]
fn when_no_branch_is_better_their_number_is_told() {
    says(
        json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        json!({}),
        &[("", "matches none of the 2 allowed forms")],
    );
}

#[test]
fn one_of_that_fits_twice_says_so() {
    says(
        json!({"properties": {"a": {"oneOf": [{"type": "integer"}, {"minimum": 2}]}}}),
        json!({"a": 3}),
        &[("/a", "matches more than one of the allowed forms")],
    );
}

#[test]
fn a_deep_recursive_alternative_is_explained_at_its_leaf() {
    let schema = json!({"$ref": "#/$defs/expr", "$defs": {"expr": {"oneOf": [
        {"type": "object", "required": ["op", "args"], "additionalProperties": false, "properties": {
            "op": {"enum": ["and", "or"]}, "args": {"items": {"$ref": "#/$defs/expr"}}
        }},
        {"type": "object", "required": ["op", "arg"], "additionalProperties": false, "properties": {
            "op": {"const": "not"}, "arg": {"$ref": "#/$defs/expr"}
        }},
        {"type": "string"}
    ]}}});
    let mut value = json!(5);
    let mut path = String::new();
    for _ in 0..30 {
        value = json!({"op": "and", "args": ["x", {"op": "not", "arg": value}]});
        path += "/args/1/arg";
    }
    says(schema, value, &[(&path, "expected object or string")]);
}

#[test]
fn keywords_beside_a_reference_count_only_from_2019_on() {
    let schema = |dialect: &str| {
        json!({"$schema": dialect, "properties": {"a": {"$ref": "#/$defs/a", "maximum": 3}},
               "$defs": {"a": {"type": "integer"}}})
    };
    says(
        schema("http://json-schema.org/draft-07/schema#"),
        json!({"a": 5}),
        &[],
    );
    says(
        schema("https://json-schema.org/draft/2020-12/schema"),
        json!({"a": 5.5}),
        &[("/a", "expected integer"), ("/a", "must be at most 3")],
    );
}

#[test]
fn conditions_and_dynamic_references_are_explained_or_at_least_told() {
    says(
        json!({"if": {"$ref": "#/$defs/s"}, "then": {"minLength": 3}, "else": {"$ref": "#/$defs/n"},
               "$defs": {"s": {"type": "string"}, "n": {"type": "null"}}}),
        json!("ab"),
        &[("", "must have at least 3 characters")],
    );
    says(
        json!({"properties": {"a": {"$dynamicRef": "#x"}}, "$defs": {
            "x": {"$dynamicAnchor": "x", "type": "string"}
        }}),
        json!({"a": 1}),
        &[("/a", "expected string")],
    );
}
