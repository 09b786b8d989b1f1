//! `validate_asset`, its alias's contract, and `validate_many`.

use mainstay_worker::testing::rpc::{Answer, Op};
use mainstay_worker::testing::{context, perform_in};
use mainstay_worker::{CancelToken, ErrorKind, Json, RenderMode};
use serde_json::{Value, json};

use crate::fixture::{World, answer, call, call_raw, failed, refusal};

// covers: validate_asset.asset
#[test]
fn a_valid_asset_is_valid_and_an_invalid_one_says_everything_in_order() {
    let pack = World::new().pack();
    let valid = call(
        &pack,
        "validate_asset",
        &json!({"asset": {"name": "l"}, "schema": "lamp"}),
    );
    let valid = valid.unwrap();
    assert_eq!(valid.json.as_str(), r#"{"ok":true}"#);
    assert_eq!(valid.text, "valid: lamp 2.0");
    let asset = json!({"name": 7, "colour": {"hue": 400, "b": 1}, "a/b": 1});
    let invalid = call(
        &pack,
        "validate_asset",
        &json!({"asset": asset, "schema": "lamp"}),
    );
    let invalid = invalid.unwrap();
    let errors = invalid.value()["errors"].clone();
    let paths: Vec<&str> = errors
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["", "/colour", "/colour/hue", "/name"]);
    let lines: Vec<&str> = invalid.text.lines().collect();
    assert_eq!(lines[0], "4 violations against lamp 2.0");
    assert!(lines[1].starts_with("- (root): "), "{}", invalid.text);
    assert_eq!(lines.len(), 5);
    assert!(lines[4].starts_with("- /name: "), "{}", invalid.text);
}

// covers: validate_asset.schema
#[test]
fn the_schema_decides_and_must_be_there() {
    let pack = World::new().pack();
    let asset = json!({"hue": 7});
    let verdict = |schema: &str| {
        answer(
            &pack,
            "validate_asset",
            &json!({"asset": asset, "schema": schema}),
        )
    };
    assert_eq!(verdict("colour"), json!({"ok": true}));
    assert_eq!(verdict("colour.schema.json"), json!({"ok": true}));
    assert_eq!(verdict("lamp")["ok"], false);
    for name in ["none", "Colour", "../colour", "colour.schema", " colour"] {
        let arguments = json!({"asset": asset, "schema": name});
        let (kind, details) = refusal(&pack, "validate_asset", &arguments);
        assert_eq!(kind, ErrorKind::InvalidArguments, "{name}");
        assert_eq!(
            details,
            failed(&[("/schema", "schema_not_found")]),
            "{name}"
        );
    }
}

#[test]
fn the_alias_validates_against_the_canonical_schema() {
    let world = World::new();
    let verdict = |world: &World, asset: &Value| {
        let arguments = json!({"asset": asset, "schema": "nested-synesthetic-asset"});
        answer(&world.pack(), "validate_asset", &arguments)["ok"].clone()
    };
    let nested = json!({"title": "t", "lamp": {"name": "l"}});
    assert_eq!(verdict(&world, &nested), true);
    assert_eq!(verdict(&world, &json!({"lamp": {}})), false);
    // A file of the alias's own name does not change that.
    world.write(
        "schemas/nested-synesthetic-asset.schema.json",
        r#"{"type": "string"}"#,
    );
    assert_eq!(verdict(&world, &nested), true);
    // Nor does a canonical one that cannot be used.
    let canonical = world.path("schemas/synesthetic-asset.schema.json");
    let text = std::fs::read_to_string(&canonical).unwrap();
    std::fs::write(&canonical, "{").unwrap();
    let arguments = json!({"asset": nested, "schema": "nested-synesthetic-asset"});
    let (_, details) = refusal(&world.pack(), "validate_asset", &arguments);
    let said = details["errors"][0]["msg"].as_str().unwrap();
    assert!(
        said.starts_with("schema synesthetic-asset cannot be used"),
        "{said}"
    );
    std::fs::write(&canonical, text).unwrap();
    // Without the canonical one it is all there is.
    std::fs::remove_file(world.path("schemas/synesthetic-asset.schema.json")).unwrap();
    assert_eq!(verdict(&world, &json!("text")), true);
}

#[test]
fn a_top_level_schema_ref_is_ignored_and_one_further_in_is_not() {
    let pack = World::new().pack();
    for reference in [
        json!("jsonschema/colour.schema.json"),
        json!("https://elsewhere.example/x.json"),
        json!("file:///etc/passwd"),
        json!({"any": "thing"}),
        json!(null),
    ] {
        let asset = json!({"$schemaRef": reference, "name": "l"});
        let arguments = json!({"asset": asset, "schema": "lamp"});
        assert_eq!(
            answer(&pack, "validate_asset", &arguments),
            json!({"ok": true})
        );
    }
    let inner = json!({"name": "l", "colour": {"hue": 1, "$schemaRef": "x"}});
    let verdict = answer(
        &pack,
        "validate_asset",
        &json!({"asset": inner, "schema": "lamp"}),
    );
    assert_eq!(verdict["errors"][0]["path"], "/colour");
}

#[test]
fn what_two_readers_may_understand_differently_is_not_valid() {
    let pack = World::new().pack();
    let verdict = |asset: &str| {
        let arguments = format!(r#"{{"asset":{asset},"schema":"lamp"}}"#);
        call_raw(&pack, "validate_asset", &arguments)
            .unwrap()
            .value()
    };
    assert_eq!(
        verdict(r#"{"name":"l","colour":{"hue":1,"hue":2}}"#),
        failed(&[("/colour", "member \"hue\" is given twice")])
    );
    assert_eq!(
        verdict(r#"{"name":"l","colour":{"hue":1e400}}"#),
        failed(&[("/colour/hue", "number is out of range")])
    );
    let deep = format!("{}{}", "[".repeat(110), "]".repeat(110));
    assert!(
        verdict(&deep)["errors"][0]["msg"]
            .as_str()
            .unwrap()
            .contains("100 levels")
    );
}

// covers: validate_many.assets
#[test]
fn each_asset_of_a_batch_has_its_own_result_in_its_own_place() {
    let pack = World::new().pack();
    let assets = json!([{"name": "l"}, {"name": ""}, 7, {"$schemaRef": "x", "name": "m"}]);
    let many = call(
        &pack,
        "validate_many",
        &json!({"assets": assets, "schema": "lamp"}),
    )
    .unwrap();
    let results = many.value()["results"].clone();
    for (index, asset) in assets.as_array().unwrap().iter().enumerate() {
        let alone = answer(
            &pack,
            "validate_asset",
            &json!({"asset": asset, "schema": "lamp"}),
        );
        assert_eq!(results[index]["ok"], alone["ok"]);
        assert_eq!(results[index].get("errors"), alone.get("errors"), "{asset}");
        assert!(results[index].get("reason").is_none());
    }
    let lines: Vec<&str> = many.text.lines().collect();
    assert_eq!(lines[0], "2 of 4 assets valid: lamp 2.0");
    assert!(lines[1].starts_with("- asset 1: /name: "), "{}", many.text);
    assert!(lines[2].starts_with("- asset 2: (root): "), "{}", many.text);
    let empty = answer(
        &pack,
        "validate_many",
        &json!({"assets": [], "schema": "lamp"}),
    );
    assert_eq!(empty, json!({"ok": true, "results": []}));
}

// covers: validate_many.schema
#[test]
fn a_batch_has_one_schema() {
    let pack = World::new().pack();
    let assets = json!([{"hue": 1}, {"name": "l"}]);
    let results = |schema: &str| {
        let many = answer(
            &pack,
            "validate_many",
            &json!({"assets": assets, "schema": schema}),
        );
        [0, 1].map(|index| many["results"][index]["ok"].clone())
    };
    assert_eq!(results("colour"), [json!(true), json!(false)]);
    assert_eq!(results("lamp"), [json!(false), json!(true)]);
    let (kind, details) = refusal(
        &pack,
        "validate_many",
        &json!({"assets": assets, "schema": "no"}),
    );
    assert_eq!(kind, ErrorKind::InvalidArguments);
    assert_eq!(details, failed(&[("/schema", "schema_not_found")]));
}

#[test]
fn a_batch_of_exactly_the_limit_runs_and_one_more_does_not() {
    let mut world = World::new();
    for limit in [1, 3, 100] {
        world.settings.max_batch = limit;
        let pack = world.pack();
        let batch =
            |number: usize| json!({"assets": vec![json!({"name": "l"}); number], "schema": "lamp"});
        let full = answer(&pack, "validate_many", &batch(limit));
        assert_eq!(full["results"].as_array().unwrap().len(), limit);
        let (kind, details) = refusal(&pack, "validate_many", &batch(limit + 1));
        assert_eq!(kind, ErrorKind::Unsupported);
        let expected = json!({"ok": false, "reason": "unsupported",
            "detail": "batch_too_large", "limit": limit});
        assert_eq!(details, expected);
    }
}

#[test]
fn a_cancelled_batch_ends_between_two_assets() {
    let pack = World::new().pack();
    let token = CancelToken::new();
    let batch = |assets: Value| Op::Tool {
        name: "validate_many".to_owned(),
        arguments: Json::from(json!({"assets": assets, "schema": "lamp"})),
        render: RenderMode::Json,
    };
    let context = context(token.clone());
    assert!(matches!(
        perform_in(&pack, &batch(json!([1])), &context),
        Answer::Tool(_)
    ));
    token.cancel();
    match perform_in(&pack, &batch(json!([1])), &context) {
        Answer::Failed(problem) => assert_eq!(problem.kind, ErrorKind::Cancelled),
        other => panic!("{other:?}"),
    }
}

/// Asset schemas for lists: of numbers, and of texts that a look-ahead reads.
fn lists() -> World {
    let world = World::empty();
    world.write(
        "schemas/list.schema.json",
        r#"{"type": "object", "properties": {"n": {"items": {"type": "number"}}}}"#,
    );
    world.write(
        "schemas/text.schema.json",
        r#"{"type": "object", "properties": {"text": {"pattern": "^(?!x)"}, "n": {"type": "number"}}}"#,
    );
    world
}

#[test]
fn violations_that_are_not_listed_are_counted() {
    let mut world = lists();
    for (limit, items, more) in [
        (100, 100, None),
        (100, 300, Some(200)),
        (2, 20_000, Some(19_998)),
    ] {
        world.settings.max_violations = limit;
        let asset = json!({"n": vec!["x"; items]});
        let given = call(
            &world.pack(),
            "validate_asset",
            &json!({"asset": asset, "schema": "list"}),
        );
        let given = given.unwrap();
        let value = given.value();
        assert_eq!(value["errors"].as_array().unwrap().len(), limit.min(items));
        assert_eq!(value.get("more").and_then(Value::as_u64), more);
        assert_eq!(value.get("complete"), more.map(|_| &json!(false)));
        let summary = format!("{items} violations against list");
        assert_eq!(given.text.lines().next(), Some(summary.as_str()));
        let said = more.map(|more| format!("note: {more} more violations are not listed"));
        let note = given.text.lines().find(|line| line.starts_with("note: "));
        assert_eq!(note, said.as_deref(), "{}", given.text);
        assert_eq!(
            given.text.contains("raise limits.violations"),
            more.is_some()
        );
    }
    let many = json!({"assets": [{"n": vec!["x"; 5]}, {"n": []}], "schema": "list"});
    let given = call(&world.pack(), "validate_many", &many).unwrap();
    assert_eq!(given.value()["results"][0]["more"], 3);
    assert!(
        given.text.contains("expected number (and 4 more)"),
        "{}",
        given.text
    );
}

#[test]
fn a_text_that_is_too_long_for_its_pattern_is_not_checked_and_never_invalid() {
    let pack = lists().pack();
    let long = json!({"text": "a".repeat(5_000)});
    let asked = json!({"asset": long, "schema": "text"});
    let (kind, details) = refusal(&pack, "validate_asset", &asked);
    assert_eq!(kind, ErrorKind::Unsupported);
    assert_eq!(details["detail"], "not_checked");
    assert_eq!(details["errors"][0]["path"], "/text");
    let many = json!({"assets": [{"text": "a"}, long], "schema": "text"});
    let given = call(&pack, "validate_many", &many).unwrap();
    assert!(
        given.text.starts_with("1 of 2 assets valid, 1 not checked"),
        "{}",
        given.text
    );
    // Something else is wrong whatever the text is.
    let wrong = json!({"asset": {"text": "a".repeat(5_000), "n": "x"}, "schema": "text"});
    let errors = answer(&pack, "validate_asset", &wrong);
    assert_eq!(
        errors["errors"],
        json!([{"path": "/n", "msg": "expected number"}])
    );
}

#[test]
fn a_number_out_of_range_is_a_violation_of_its_asset_alone() {
    let pack = lists().pack();
    let one = r#"{"asset":{"n":[1,1e400]},"schema":"list"}"#;
    let expected = json!([{"path": "/n/1", "msg": "number is out of range"}]);
    let given = call_raw(&pack, "validate_asset", one).unwrap();
    assert_eq!(given.value()["errors"], expected);
    let many = r#"{"assets":[{"n":[1]},{"n":[1,1e400]}],"schema":"list"}"#;
    let given = call_raw(&pack, "validate_many", many).unwrap();
    let results = given.value()["results"].clone();
    assert_eq!(
        results,
        json!([{"ok": true}, {"ok": false, "errors": expected}])
    );
}
