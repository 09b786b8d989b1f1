//! Work and output stay bounded whatever the value.

// Helpers of tests are tests, which clippy cannot see here.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::time::{Duration, Instant};

use mainstay_schema::{SchemaRegistry, Validator, Verdict, Violations};
use serde_json::{Value, json};

fn compile(schema: &Value) -> Validator {
    SchemaRegistry::new().compile(schema).unwrap()
}

#[test]
fn catastrophic_patterns_are_bounded_in_time() {
    let patterns = [
        "(a+)+$",
        "^(a|a)*$",
        "^(?:(?=a)a+)+$",
        r"^(a|a)*\1$",
        "(?=(a+)+$)b",
        "(?:(?=.*$).)+b",
    ];
    for length in [4_000, 1_000_000] {
        let text = "a".repeat(length) + "!";
        for pattern in patterns {
            let validator = compile(&json!({"pattern": pattern}));
            let named = compile(
                &json!({"patternProperties": {pattern: {}}, "additionalProperties": false}),
            );
            let start = Instant::now();
            assert_eq!(validator.check(&json!(text)).len(), 1, "{pattern}");
            assert_eq!(
                named.check(&json!({text.as_str(): 1})).len(),
                1,
                "{pattern}"
            );
            assert!(start.elapsed() < Duration::from_secs(60), "{pattern}");
        }
    }
}

#[test]
fn a_text_that_cannot_be_decided_is_not_checked_even_under_not() {
    let validator = compile(&json!({"not": {"pattern": "(?=.*b)"}, "$defs": {}}));
    assert!(validator.is_valid(&json!("a")));
    assert!(!validator.is_valid(&json!("ab")));
    let long = json!("a".repeat(10_000));
    assert!(!validator.is_valid(&long));
    assert!(matches!(validator.verdict(&long), Verdict::NotChecked(_)));
    assert!(validator.is_valid(&json!("a")));
}

#[test]
fn a_long_text_is_not_checked_unless_something_else_is_wrong() {
    let validator = compile(&json!({"properties": {
        "text": {"pattern": "^(?!x)"}, "n": {"type": "integer"}
    }}));
    let value = |n: Value| json!({"text": "a".repeat(5_000), "n": n});
    let Verdict::NotChecked(why) = validator.verdict(&value(json!(1))) else {
        panic!("the text is too long for its pattern");
    };
    assert_eq!(why.path, "/text");
    assert!(why.message.starts_with("was not checked"), "{why:?}");
    let Verdict::Invalid(violations) = validator.verdict(&value(json!("one"))) else {
        panic!("n is wrong whatever the text is");
    };
    assert_eq!(violations.listed.len(), 1);
    assert_eq!(violations.listed[0].path, "/n");
    let at_the_limit = json!({"text": "a".repeat(4_096)});
    assert_eq!(validator.verdict(&at_the_limit), Verdict::Valid);
}

/// The violations of a value that has some.
fn violations(validator: &Validator, value: &Value) -> Violations {
    match validator.verdict(value) {
        Verdict::Invalid(violations) => violations,
        other => panic!("{other:?}"),
    }
}

#[test]
fn long_texts_pass_beside_a_pattern_with_look_ahead() {
    let validator = compile(&json!({"properties": {
        "to": {"pattern": "^(?!\\.)[a-z.]+@[a-z.]+$"}, "body": {"pattern": "^a*$"}
    }}));
    let mail = |to: &str, body: &str| json!({"to": to, "body": body});
    assert!(validator.is_valid(&mail("me@example.com", &"a".repeat(1_000_000))));
    let violations = validator.check(&mail(".me@example.com", "b"));
    assert_eq!(violations.len(), 2);
    assert_eq!(violations[0].message, r#"must match the pattern "^a*$""#);
    assert_eq!(violations[1].path, "/to");
}

#[test]
fn huge_patterns_are_refused() {
    for pattern in ["(a{1000}){1000}", r"(\w{500}){500}"] {
        assert!(
            SchemaRegistry::new()
                .compile(&json!({"pattern": pattern}))
                .is_err(),
            "{pattern}"
        );
    }
}

#[test]
fn the_first_hundred_violations_are_reported_and_the_others_counted() {
    let validator = compile(&json!({"items": {"type": "string"}}));
    let exactly = violations(&validator, &json!(vec![1; 100]));
    assert_eq!((exactly.listed.len(), exactly.more), (100, Some(0)));
    let many = violations(&validator, &json!(vec![1; 20_000]));
    assert_eq!((many.listed.len(), many.more), (100, Some(19_900)));
    let all = violations(&validator, &json!(vec![1; 1000]));
    assert_eq!(all.more, Some(900));
    let violations = all.listed;
    let mut paths: Vec<_> = (0..1000).map(|index| format!("/{index}")).collect();
    paths.sort();
    assert!(
        violations
            .iter()
            .map(|violation| &violation.path)
            .eq(paths.iter().take(100))
    );
}

#[test]
fn unknown_members_without_number_are_bounded() {
    let validator = compile(&json!({"additionalProperties": false, "properties": {"member": {}}}));
    let many: serde_json::Map<_, _> = (0..10_000)
        .map(|index| (format!("member{index}"), json!(1)))
        .collect();
    let start = Instant::now();
    let found = violations(&validator, &many.into());
    assert_eq!((found.listed.len(), found.more), (100, Some(9_900)));
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_large_value_gets_its_first_violation_only() {
    let validator = compile(&json!({"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}));
    let found = violations(&validator, &json!(vec![1; 500_000]));
    assert_eq!((found.listed.len(), found.more), (1, None));
    assert_eq!(found.listed[0].path, "/0");
    assert_eq!(
        found.listed[0].message,
        "matches none of the 2 allowed forms"
    );
    let list = found.into_list();
    assert!(list[1].message.contains("too large to look for more"));
}

#[test]
fn a_spent_budget_still_gives_the_first_violations() {
    let validator =
        compile(&json!({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "null"}}}));
    let found = violations(&validator, &json!(vec![1; 10_000]));
    assert_eq!((found.listed.len(), found.more), (100, Some(9_900)));
    assert_eq!(found.listed[99].path, "/1087");
}

#[test]
fn recursive_alternatives_do_not_multiply() {
    let branch = |name: &str| json!({"properties": {name: {"type": "null"}, "next": {"$ref": "#/$defs/node"}}, "required": [name]});
    let schema = json!({"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": [
        branch("a"), branch("b"), branch("c"), branch("d"), branch("e")
    ]}}});
    let validator = compile(&schema);
    let mut value = json!({"a": 1});
    for _ in 0..100 {
        value = json!({"a": null, "next": value});
    }
    let start = Instant::now();
    assert_eq!(validator.check(&value).len(), 1);
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn doubled_members_do_not_multiply() {
    let node = json!({"properties": {"next": {"$ref": "#/$defs/node"}}});
    let schema = json!({"$ref": "#/$defs/node", "$defs": {
        "node": {"type": "object", "allOf": [node, node, node]}
    }});
    let validator = compile(&schema);
    let mut closed = schema;
    closed["unevaluatedProperties"] = json!(false);
    let closed = compile(&closed);
    let mut value = json!(1);
    let mut valid = json!({});
    for _ in 0..100 {
        value = json!({"next": value});
        valid = json!({"next": valid});
    }
    let start = Instant::now();
    assert_eq!(validator.check(&value).len(), 1);
    valid["other"] = json!(1);
    assert!(validator.is_valid(&valid));
    assert_eq!(closed.check(&valid)[0].message, "does not match the schema");
    let shallow = json!({"next": {}, "other": 1});
    assert_eq!(
        closed.check(&shallow)[0].message,
        r#"unknown member "other""#
    );
    assert!(start.elapsed() < Duration::from_secs(60));
}
