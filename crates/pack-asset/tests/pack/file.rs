//! The verdict about one file, without a worker.

use std::fs;

use mainstay_pack_asset::{FileError, validate_file};
use serde_json::{Value, json};

use crate::fixture::{World, answer, failed};

fn verdict(world: &World, name: &str, schema: Option<&str>) -> Value {
    let verdict = validate_file(&world.settings, &world.path(name), schema).unwrap();
    verdict.json.to_value().unwrap()
}

#[test]
fn every_example_gets_the_verdict_that_its_tool_gives() {
    let world = World::new();
    let pack = world.pack();
    let listed = answer(&pack, "list_examples", &json!({}));
    for example in listed["examples"].as_array().unwrap() {
        let path = example["path"].as_str().unwrap();
        let given = answer(&pack, "get_example", &json!({"path": path}));
        let found = verdict(&world, &format!("examples/{path}"), None);
        assert_eq!(found["ok"], given["ok"], "{path}");
        assert_eq!(found.get("errors"), given.get("errors"), "{path}");
    }
}

#[test]
fn a_text_that_is_too_long_for_its_pattern_is_not_checked() {
    let world = World::empty();
    let schema = r#"{"type": "object", "properties": {"text": {"pattern": "^(?!x)"}}}"#;
    world.write("schemas/text.schema.json", schema);
    let asset = json!({"text": "a".repeat(5_000)}).to_string();
    world.write("long.json", &asset);
    let found = verdict(&world, "long.json", Some("text"));
    assert_eq!(found["ok"], false);
    assert_eq!(found["reason"], "unsupported");
    assert_eq!(found["detail"], "not_checked");
    assert_eq!(found["errors"][0]["path"], "/text");
}

#[test]
fn a_named_schema_counts_before_everything_else() {
    let world = World::new();
    world.write("lamp.json", r#"{"hue": 7}"#);
    assert_eq!(verdict(&world, "lamp.json", None)["ok"], false);
    assert_eq!(
        verdict(&world, "lamp.json", Some("colour")),
        json!({"ok": true})
    );
    let none = verdict(&world, "lamp.json", Some("none"));
    assert_eq!(none, failed(&[("/schema", "schema_not_found")]));
    world.write("twice.json", r#"{"hue": 7, "hue": 8}"#);
    let twice = verdict(&world, "twice.json", Some("colour"));
    assert_eq!(twice, failed(&[("", "member \"hue\" is given twice")]));
}

#[test]
fn what_cannot_be_read_is_no_verdict() {
    let world = World::new();
    world.write("torn.json", "{\"hue\":");
    fs::write(world.path("binary.json"), b"\"\xff\"").unwrap();
    let error = |name: &str| {
        let path = world.path(name);
        validate_file(&world.settings, &path, Some("colour")).unwrap_err()
    };
    for (name, is_read) in [
        ("none.json", true),
        ("schemas", true),
        ("torn.json", false),
        ("binary.json", false),
    ] {
        let error = error(name);
        assert_eq!(
            matches!(error, FileError::Read { .. }),
            is_read,
            "{error:?}"
        );
        assert_eq!(
            matches!(error, FileError::Parse { .. }),
            !is_read,
            "{error:?}"
        );
        assert!(error.to_string().contains(name), "{error}");
    }
    let mut settings = world.settings.clone();
    settings.schemas_dir = Some(world.path("none"));
    let path = world.path("examples/Lamp_Example.json");
    let unable = validate_file(&settings, &path, None).unwrap_err();
    assert!(matches!(unable, FileError::Unable(_)), "{unable:?}");
}
