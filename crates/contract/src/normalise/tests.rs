//! Claims about whole arguments; the parts have their own tests.

use proptest::collection::{btree_map, vec};
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use serde_json::{Value, json};

use super::{NormaliseError, UriProblem, normalise};

const ALIASES: &[(&str, &str)] = &[
    ("lines", "max_lines"),
    ("n", "lines"),
    ("x", "y"),
    ("y", "x"),
];

/// Normalises and returns the result.
fn through(mut arguments: Value, schema: &Value) -> Value {
    normalise(&mut arguments, schema, &[]).unwrap();
    arguments
}

/// Normalises `value` at a place with `schema`.
fn at(schema: &Value, value: &Value) -> Value {
    let root = json!({
        "properties": { "a": schema },
        "$defs": {
            "int": { "type": "integer" },
            "text": { "type": "string" },
            "loop": { "$ref": "#/$defs/loop" },
            "tree": { "properties": { "n": { "type": "integer" }, "kids": {
                "type": "array", "items": { "$ref": "#/$defs/tree" } } } },
        },
    });
    let mut result = through(json!({ "a": value }), &root);
    result["a"].take()
}

#[test]
fn integer_like_strings_become_numbers_where_no_string_is_valid() {
    for schema in [
        json!({ "type": "integer" }),
        json!({ "type": ["integer", "null"] }),
        json!({ "type": "number" }),
        json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }),
        json!({ "oneOf": [{ "$ref": "#/$defs/int" }, { "type": "boolean" }] }),
        json!({ "$ref": "#/$defs/int" }),
        json!({ "allOf": [{ "minimum": 3 }, { "$ref": "#/$defs/int" }] }),
        json!({ "enum": [12, 13] }),
        json!({ "const": 12 }),
    ] {
        assert_eq!(at(&schema, &json!("12")), json!(12), "{schema}");
        assert_eq!(at(&schema, &json!("00713")), json!("00713"), "{schema}");
    }
    assert_eq!(at(&json!({ "type": "number" }), &json!("1.5")), json!(1.5));
    assert_eq!(
        at(&json!({ "type": "integer" }), &json!("1.5")),
        json!("1.5")
    );
}

#[test]
fn whole_numbers_lose_their_fraction_where_only_integers_are_valid() {
    for (given, whole) in [
        (json!(5.0), json!(5)),
        (json!(-2.0), json!(-2)),
        (json!(1e3), json!(1000)),
        (json!(-0.0), json!(0)),
    ] {
        assert_eq!(at(&json!({ "type": "integer" }), &given), whole);
        for schema in [json!({ "type": "number" }), json!({})] {
            let same = at(&schema, &given);
            assert!(same.is_f64(), "{schema}: {same}");
        }
    }
    for other in [json!(2.5), json!(1e300)] {
        assert_eq!(at(&json!({ "type": "integer" }), &other), other);
    }
}

#[test]
fn strings_stay_where_a_string_may_be_valid_or_means_something() {
    for schema in [
        json!({}),
        json!(true),
        json!({ "type": "string" }),
        json!({ "type": ["integer", "string"] }),
        json!({ "anyOf": [{ "type": "integer" }, { "$ref": "#/$defs/text" }] }),
        json!({ "oneOf": [{ "type": "integer" }, { "minLength": 1 }] }),
        json!({ "enum": [12, "12"] }),
        json!({ "type": "integer", "enum": [12, "auto"] }),
        json!({ "anyOf": [{ "type": "integer" }, { "const": "auto" }] }),
        json!({ "anyOf": [{ "type": "integer" }, { "$ref": "https://example.com/s" }] }),
        json!({ "$ref": "#/$defs/missing" }),
        json!({ "$ref": "#/$defs/loop" }),
        json!({ "type": "integer", "allOf": [{ "$ref": "#/$defs/loop" }] }),
        json!({ "not": { "type": "string" } }),
        json!({ "type": "made-up" }),
        json!({ "type": "boolean" }),
        json!(false),
    ] {
        assert_eq!(at(&schema, &json!("12")), json!("12"), "{schema}");
    }
}

#[test]
fn neighbours_of_a_reference_count_only_where_the_draft_says_so() {
    let mut schema = json!({
        "properties": { "a": { "$ref": "#/$defs/text", "type": "integer" } },
        "$defs": { "text": { "type": ["string", "integer"] } },
    });
    assert_eq!(through(json!({ "a": "1" }), &schema), json!({ "a": 1 }));
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    assert_eq!(through(json!({ "a": "1" }), &schema), json!({ "a": "1" }));
}

#[test]
fn nested_places_are_reached() {
    let list = json!({ "type": "array", "items": { "type": "integer" } });
    assert_eq!(at(&list, &json!(["1", 2, "x"])), json!([1, 2, "x"]));
    let pair = json!({ "prefixItems": [{ "type": "string" }], "items": { "type": "integer" } });
    assert_eq!(at(&pair, &json!(["1", "2"])), json!(["1", 2]));
    let tree = json!({ "anyOf": [{ "$ref": "#/$defs/tree" }, { "type": "null" }] });
    // Of the two branches only the reference can take an object.
    assert_eq!(
        at(
            &tree,
            &json!({ "n": "1", "kids": [{ "n": "2", "kids": [{ "n": "x" }] }] })
        ),
        json!({ "n": 1, "kids": [{ "n": 2, "kids": [{ "n": "x" }] }] }),
    );
    let map = json!({ "additionalProperties": { "type": "integer" } });
    assert_eq!(at(&map, &json!({ "k": "1" })), json!({ "k": 1 }));
    let counted = json!({ "properties": { "n": { "type": "integer" } } });
    let either = json!({ "anyOf": [counted, { "type": "object" }] });
    assert_eq!(at(&either, &json!({ "n": "1" })), json!({ "n": "1" }));
}

#[test]
fn aliases_are_renamed_dropped_or_refused() {
    let schema = json!({ "properties": { "max_lines": { "type": "integer" } } });
    let run = |mut arguments: Value| normalise(&mut arguments, &schema, ALIASES).map(|_| arguments);
    assert_eq!(run(json!({ "lines": "5" })), Ok(json!({ "max_lines": 5 })));
    assert_eq!(run(json!({ "n": 5 })), Ok(json!({ "max_lines": 5 })));
    assert_eq!(
        run(json!({ "lines": 5, "max_lines": 5 })),
        Ok(json!({ "max_lines": 5 }))
    );
    assert_eq!(run(json!({ "x": 1 })), Ok(json!({ "x": 1 })));
    assert_eq!(run(json!([1])), Ok(json!([1])));
    let error = run(json!({ "lines": 5, "max_lines": 6 })).unwrap_err();
    assert_eq!(error.pointer(), "/lines");
    assert_eq!(
        error.to_string(),
        "`lines` is another name of `max_lines`, and the two differ"
    );
}

#[test]
fn an_alias_that_is_an_argument_of_its_own_stays() {
    let schema = json!({ "allOf": [{ "properties": { "lines": {}, "max_lines": {} } }] });
    let mut arguments = json!({ "lines": 1 });
    assert_eq!(normalise(&mut arguments, &schema, ALIASES), Ok(false));
    assert_eq!(arguments, json!({ "lines": 1 }));
}

#[test]
fn marked_strings_become_plain_paths() {
    for schema in [
        json!({ "type": "string", "format": "path" }),
        json!({ "type": "string", "x-mainstay-path": true }),
        json!({ "anyOf": [{ "type": "string", "format": "path" }, { "type": "null" }] }),
    ] {
        assert_eq!(at(&schema, &json!("file:///a%20b/./c/")), json!("/a b/c"));
        assert_eq!(at(&schema, &json!("./a//b/../c")), json!("a/b/../c"));
    }
    for schema in [
        json!({ "type": "string" }),
        json!({ "type": "string", "format": "uri" }),
        json!({ "type": "string", "x-mainstay-path": false }),
        json!({ "format": "path", "enum": ["./a", "file:///a"] }),
    ] {
        assert_eq!(at(&schema, &json!("file:///a")), json!("file:///a"));
        assert_eq!(at(&schema, &json!("./a")), json!("./a"));
    }
}

#[test]
fn a_bad_file_uri_names_its_place() {
    let schema = json!({ "properties": { "in/files": { "items": { "format": "path" } } } });
    let mut arguments = json!({ "in/files": ["a", "file://host/b"] });
    let error = normalise(&mut arguments, &schema, &[]).unwrap_err();
    let pointer = "/in~1files/1".to_owned();
    assert_eq!(
        error,
        NormaliseError::FileUri {
            pointer,
            problem: UriProblem::ForeignHost
        }
    );
    assert_eq!(
        error.to_string(),
        "not a usable file URI: it names another host"
    );
}

#[test]
fn several_changes_are_made_at_once() {
    let schema = json!({ "properties": {
        "max_lines": { "type": "integer" },
        "path": { "type": "string", "format": "path" },
    } });
    let mut arguments = json!({ "lines": "5", "path": "./a" });
    assert_eq!(normalise(&mut arguments, &schema, ALIASES), Ok(true));
    assert_eq!(arguments, json!({ "max_lines": 5, "path": "a" }));
}

#[test]
fn hostile_schemas_end() {
    let itself = vec![json!({ "$ref": "#" }); 50];
    let branch = json!({ "anyOf": itself, "allOf": itself, "oneOf": itself });
    assert_eq!(through(json!({ "a": "1" }), &branch), json!({ "a": "1" }));
    let deep = (0..500).fold(json!("1"), |inner, _| json!([inner]));
    let recursive = json!({ "type": ["array", "integer"], "items": { "$ref": "#" } });
    assert_eq!(through(deep.clone(), &recursive), deep);
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?[0-9]{1,3}",
        "-?[0-9]{1,2}\\.[0-9]{1,2}",
        "(file://)?(localhost)?[/.a%0-9]{0,8}",
        Just("00713".to_owned()),
        ".{0,5}",
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("a"),
        Just("b"),
        Just("n"),
        Just("lines"),
        Just("max_lines"),
        Just("x")
    ]
    .prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => text().prop_map(Value::String),
        1 => any::<i8>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            btree_map(name(), inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({ "type": "integer" })),
        Just(json!({ "type": "number" })),
        Just(json!({ "type": "string" })),
        Just(json!({ "type": ["integer", "null"] })),
        Just(json!({ "type": "string", "format": "path" })),
        Just(json!({ "x-mainstay-path": true })),
        Just(json!({ "$ref": "#" })),
        Just(json!({ "$ref": "#/properties/a" })),
        Just(json!({ "enum": [1, "a"] })),
        Just(json!(true)),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            btree_map(name(), inner.clone(), 0..4).prop_map(|p| json!({ "properties": p })),
            inner.clone().prop_map(|items| json!({ "items": items })),
            vec(inner.clone(), 1..3).prop_map(|all| json!({ "allOf": all })),
            vec(inner.clone(), 1..3).prop_map(|any| json!({ "anyOf": any })),
            vec(inner, 1..3).prop_map(|one| json!({ "oneOf": one, "type": ["object", "integer"] })),
        ]
    })
}

proptest! {
    #[test]
    fn normalising_twice_changes_nothing_more(arguments in value(), schema in schema()) {
        let mut once = arguments.clone();
        if let Ok(changed) = normalise(&mut once, &schema, ALIASES) {
            prop_assert_eq!(changed, once != arguments);
            let mut twice = once.clone();
            let again = normalise(&mut twice, &schema, ALIASES);
            prop_assert_eq!(again, Ok(false));
            prop_assert_eq!(twice, once);
        }
    }

    #[test]
    fn coercion_never_touches_a_place_that_allows_strings(text in text(), other in schema()) {
        for allowing in [
            json!({ "anyOf": [other, { "type": "string" }] }),
            json!({ "oneOf": [{ "minLength": 1 }, other] }),
            json!({ "type": ["integer", "number", "string"] }),
        ] {
            let mut arguments = json!({ "a": text });
            let root = json!({ "properties": { "a": allowing } });
            if normalise(&mut arguments, &root, &[]).is_ok() {
                prop_assert!(arguments["a"].is_string());
            }
        }
    }

    #[test]
    fn arbitrary_json_as_schema_never_panics(arguments in value(), schema in value()) {
        let mut arguments = arguments;
        let _ = normalise(&mut arguments, &schema, ALIASES);
    }
}
