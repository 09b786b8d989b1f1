//! Every kind of change is seen, at its place.

use mainstay_schema::lock::{Contract, Demand, compare};
use serde_json::{Value, json};

use crate::{contract, lock, spec};

/// The names of an edit's changes: `kind pointer` each.
fn seen(edit: impl FnOnce(&mut Contract)) -> Vec<String> {
    let mut new = contract("search");
    edit(&mut new);
    let changes = compare(&lock([contract("search")]), &lock([new]));
    changes
        .iter()
        .map(|change| format!("{} {}", change.kind.as_str(), change.pointer))
        .collect()
}

/// The names of the changes when a member is set (or with `null` removed).
fn set(pointer: &str, value: Value) -> String {
    let found = seen(|contract| {
        let (place, pointer) = match pointer.strip_prefix("/outputSchema") {
            Some(rest) => (contract.output_schema.as_mut().unwrap(), rest),
            None => (
                &mut contract.input_schema,
                pointer.strip_prefix("/inputSchema").unwrap(),
            ),
        };
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        let parent = place.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Value::Null => parent.remove(member),
            value => parent.insert(member.to_owned(), value),
        };
    });
    found.join(", ")
}

const ARGUMENT: &str = "/inputSchema/properties";
const FIELD: &str = "/outputSchema/properties";

#[test]
fn a_tool_equals_itself_whatever_build_it_is_of() {
    let mut other = spec("search");
    other.tooling_version = "9.9.9".to_owned();
    other.aliases.push("grep".to_owned());
    let other = Contract::of(&other, 120_000);
    assert_eq!(compare(&lock([contract("search")]), &lock([other])), []);
}

#[test]
fn changes_of_arguments_are_told_apart() {
    let cases = [
        ("/query/minLength", json!(2), "argument_tightened"),
        ("/query/minLength", json!(0), "argument_loosened"),
        ("/query/minLength", Value::Null, "argument_loosened"),
        ("/limit/maximum", json!(50), "argument_tightened"),
        ("/limit/maximum", json!(200.5), "argument_loosened"),
        ("/limit/exclusiveMaximum", json!(200), "argument_tightened"),
        ("/limit/multipleOf", json!(5), "argument_tightened"),
        ("/query/pattern", json!("^a"), "argument_tightened"),
        ("/limit/type", json!("number"), "argument_type_changed"),
        ("/limit/type", json!(["integer"]), "form_changed"),
        ("/mode/type", json!("string"), "argument_type_changed"),
        ("/mode/enum", json!(["fuzzy", "exact"]), "form_changed"),
        ("/mode/enum", json!(["exact"]), "argument_value_removed"),
        ("/mode/enum", Value::Null, "argument_loosened"),
        ("/limit/default", json!(20), "argument_default_changed"),
        ("/limit/default", Value::Null, "argument_default_changed"),
        ("/query/default", json!("*"), "argument_default_changed"),
        (
            "/query/description",
            json!("Text."),
            "argument_description_changed",
        ),
        (
            "/query/description",
            Value::Null,
            "argument_description_changed",
        ),
        (
            "/query/examples",
            json!(["x"]),
            "argument_description_changed",
        ),
        (
            "/query/deprecated",
            json!(true),
            "argument_description_changed",
        ),
        ("/query/x-unknown", json!(1), "schema_rearranged"),
        ("/query/$ref", json!("#/$defs/path"), "schema_rearranged"),
        ("/query/oneOf", json!([{}]), "schema_rearranged"),
        ("/query", json!(true), "schema_rearranged"),
        (
            "/where/additionalProperties",
            json!(true),
            "argument_loosened",
        ),
        (
            "/where/properties/deep",
            json!({}),
            "optional_argument_added",
        ),
        ("/where/properties/path", Value::Null, "argument_removed"),
        (
            "/depth",
            json!({"type": "integer"}),
            "optional_argument_added",
        ),
        // Not a description: an argument of that name.
        ("/description", json!({}), "optional_argument_added"),
        ("/mode", Value::Null, "argument_removed"),
        ("/render/enum", json!(["json"]), "render_changed"),
        ("/render", Value::Null, "render_changed"),
        (
            "/render/description",
            json!("How."),
            "argument_description_changed",
        ),
    ];
    for (place, value, kind) in cases {
        let place = format!("{ARGUMENT}{place}");
        assert_eq!(
            set(&place, value.clone()),
            format!("{kind} {place}"),
            "{value}"
        );
    }
    let two = "argument_value_removed /inputSchema/properties/mode/enum";
    assert_eq!(
        set(&format!("{ARGUMENT}/mode/enum"), json!(["exact", "near"])),
        format!("argument_value_added /inputSchema/properties/mode/enum, {two}")
    );
}

#[test]
fn what_an_object_must_have_is_told_by_member() {
    let required = "/inputSchema/required";
    assert_eq!(
        set(required, json!(["query", "limit"])),
        "argument_became_required /inputSchema/properties/limit"
    );
    assert_eq!(
        set(required, Value::Null),
        "argument_became_optional /inputSchema/properties/query"
    );
    assert_eq!(
        set(required, json!(["query", "other"])),
        "required_argument_added /inputSchema/properties/other"
    );
    assert_eq!(
        set(required, json!("query")),
        "schema_rearranged /inputSchema/required"
    );
    assert_eq!(
        set("/outputSchema/required", json!(["hits", "ok"])),
        "form_changed /outputSchema/required"
    );
    assert_eq!(
        set("/outputSchema/required", json!(["hits", "ok", "note"])),
        "result_field_became_required /outputSchema/properties/note"
    );
    let added = seen(|contract| {
        let schema = &mut contract.input_schema;
        schema["properties"]["scope"] = json!({"type": "string"});
        schema["required"] = json!(["query", "scope"]);
    });
    assert_eq!(
        added,
        ["required_argument_added /inputSchema/properties/scope"]
    );
}

#[test]
fn changes_of_results_are_told_apart() {
    let cases = [
        ("/note", Value::Null, "optional_result_field_removed"),
        ("/more", json!({}), "optional_result_field_added"),
        (
            "/hits/items/properties/line",
            json!({}),
            "optional_result_field_added",
        ),
        (
            "/hits/items/properties/path/type",
            json!("integer"),
            "result_type_changed",
        ),
        (
            "/hits/items/properties/path/description",
            json!("x"),
            "result_description_changed",
        ),
        ("/hits/maxItems", json!(3), "result_constraint_changed"),
        ("/ok/const", json!(false), "result_constraint_changed"),
        ("/note/enum", json!(["a"]), "result_constraint_changed"),
        ("/note/default", json!("a"), "result_default_changed"),
    ];
    for (place, value, kind) in cases {
        let place = format!("{FIELD}{place}");
        assert_eq!(
            set(&place, value.clone()),
            format!("{kind} {place}"),
            "{value}"
        );
    }
    let removed = seen(|contract| {
        let schema = contract.output_schema.as_mut().unwrap();
        schema["properties"].as_object_mut().unwrap().remove("hits");
        schema["required"] = json!(["ok"]);
    });
    assert_eq!(
        removed,
        ["required_result_field_removed /outputSchema/properties/hits"]
    );
    assert_eq!(
        seen(|contract| contract.output_schema = None),
        ["output_schema_removed /outputSchema"]
    );
}

#[test]
fn definitions_that_nothing_means_yet_are_harmless() {
    let defs = "/inputSchema/$defs";
    assert_eq!(
        set(
            &format!("{defs}/line"),
            json!({"properties": {"id": {"type": "string"}}})
        ),
        format!("definition_added {defs}/line")
    );
    for named in [
        json!({"$anchor": "a"}),
        json!({"$id": "x:y"}),
        json!({"allOf": [{"id": "z"}]}),
    ] {
        assert_eq!(
            set(&format!("{defs}/line"), named),
            format!("schema_rearranged {defs}/line")
        );
    }
    assert_eq!(
        set(&format!("{defs}/path"), Value::Null),
        format!("schema_rearranged {defs}/path")
    );
    assert_eq!(
        set(&format!("{defs}/path/description"), json!("Which file.")),
        format!("argument_description_changed {defs}/path/description")
    );
}

/// Members that are added and not required, where they may take something away.
#[test]
fn an_optional_member_is_harmless_only_where_it_takes_nothing_away() {
    let verdict = |schema: Value, place: &str, added: Value| {
        let old = Contract {
            input_schema: schema,
            ..contract("search")
        };
        let mut new = old.clone();
        let (parent, member) = place.rsplit_once('/').unwrap();
        new.input_schema.pointer_mut(parent).unwrap()[member] = added;
        let changes = compare(&lock([old]), &lock([new]));
        let worst = changes.iter().map(|change| change.demand).max();
        worst.unwrap()
    };
    let closed = json!({"properties": {}, "additionalProperties": false});
    let place = "/properties/x";
    assert_eq!(verdict(closed.clone(), place, json!({})), Demand::Nothing);
    // A sender of `x` was understood before, in any form.
    assert_eq!(
        verdict(json!({"properties": {}}), place, json!({})),
        Demand::Bump
    );
    let mut patterns = closed.clone();
    patterns["patternProperties"] = json!({"^x": {"type": "string"}});
    assert_eq!(verdict(patterns, place, json!({})), Demand::Bump);
    for (around, place) in [
        (json!({"not": closed}), "/not/properties/x"),
        (
            json!({"oneOf": [closed, {"type": "string"}]}),
            "/oneOf/0/properties/x",
        ),
        (json!({"if": closed, "then": false}), "/if/properties/x"),
        (json!({"contains": closed}), "/contains/properties/x"),
        (
            json!({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": closed}}),
            "/$defs/a/properties/x",
        ),
        (
            json!({"allOf": [closed], "unevaluatedProperties": false}),
            "/allOf/0/properties/x",
        ),
    ] {
        assert_eq!(verdict(around, place, json!({})), Demand::Bump, "{place}");
    }
    for (around, place) in [
        (
            json!({"anyOf": [closed, {"type": "string"}]}),
            "/anyOf/0/properties/x",
        ),
        (json!({"items": closed}), "/items/properties/x"),
        (
            json!({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": closed}}),
            "/$defs/a/properties/x",
        ),
    ] {
        assert_eq!(
            verdict(around, place, json!({})),
            Demand::Nothing,
            "{place}"
        );
    }
}

#[test]
fn changes_around_the_schemas_are_told_apart() {
    let one = |edit: fn(&mut Contract)| seen(edit).join(", ");
    assert_eq!(
        one(|c| c.description = "Finds.".into()),
        "tool_description_changed /description"
    );
    assert_eq!(
        one(|c| c.schema_version = 4),
        "schema_version_raised /schemaVersion"
    );
    assert_eq!(
        one(|c| c.schema_version = 2),
        "schema_version_decreased /schemaVersion"
    );
    assert_eq!(
        one(|c| c.replay = "never_replay".into()),
        "replay_changed /replay"
    );
    assert_eq!(one(|c| c.timeout_ms = 1), "timeout_changed /timeoutMs");
    assert_eq!(
        one(|c| c
            .annotations
            .insert("readOnlyHint".into(), false)
            .map_or((), drop)),
        "annotation_changed /annotations/readOnlyHint"
    );
    assert_eq!(
        one(|c| {
            c.errors.remove("NOT_FOUND");
            c.errors.insert("NO_INDEX".into());
        }),
        "error_code_added /errors, error_code_removed /errors"
    );
    assert_eq!(one(|c| c.aliases.clear()), "alias_removed /aliases");
    assert_eq!(
        one(|c| c.aliases = ["find".into(), "grep".into()].into()),
        "alias_added /aliases"
    );
    assert_eq!(
        one(|c| c.argument_aliases = [("q".into(), "mode".into())].into()),
        "argument_alias_changed /argumentAliases/q"
    );
    assert_eq!(
        one(|c| c.argument_aliases.clear()),
        "argument_alias_removed /argumentAliases/q"
    );
    // The other spelling `q` of `query` becomes an argument of its own.
    assert_eq!(
        set(&format!("{ARGUMENT}/q"), json!({})),
        format!("argument_alias_changed {ARGUMENT}/q")
    );
}
