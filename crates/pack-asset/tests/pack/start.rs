//! The files that a generation reads at its start, and its treatment of those that it cannot use.

use std::fs;
use std::os::unix::fs::symlink;

use mainstay_pack_asset::{AssetSettings, pack};
use mainstay_worker::ErrorKind;
use mainstay_worker::testing::{Peer, rpc::FromWorker};
use serde_json::{Value, json};

use crate::fixture::{World, answer, call, failed, refusal};

fn unable(settings: &AssetSettings) -> String {
    pack(settings, "1.0.0").unwrap_err().detail
}

fn facts(world: &World) -> Value {
    let pack = world.pack();
    let (mut peer, ready) = Peer::ready(pack).unwrap();
    peer.hang_up();
    let facts = ready.facts.to_value().unwrap();
    while let Ok(message) = peer.receive() {
        assert!(!matches!(message, FromWorker::Unable { .. }));
    }
    facts
}

#[test]
fn settings_have_the_documented_defaults_and_refuse_what_they_do_not_know() {
    let empty: AssetSettings = serde_json::from_value(json!({})).unwrap();
    assert_eq!(empty, AssetSettings::default());
    assert_eq!(empty.max_batch, 100);
    assert_eq!(empty.backend_assets_path, "/synesthetic-assets/");
    assert!(!empty.allow_unvalidated && empty.backend_url.is_none());
    assert!(serde_json::from_value::<AssetSettings>(json!({"schema_dir": "/x"})).is_err());
}

#[test]
fn each_root_that_is_no_directory_says_what_to_set() {
    let mut world = World::new();
    let file = world.path("schemas/lamp.schema.json");
    let settings = &mut world.settings;
    settings.examples_dir = Some(file.clone());
    let said = unable(settings);
    assert!(
        said.contains("set SYN_EXAMPLES_DIR to a directory"),
        "{said}"
    );
    settings.examples_dir = None;
    settings.schemas_dir = Some(file);
    let said = unable(settings);
    assert!(
        said.contains("set SYN_SCHEMAS_DIR to a directory"),
        "{said}"
    );
}

#[test]
fn a_batch_limit_outside_its_range_says_what_to_set() {
    let mut settings = AssetSettings::default();
    for (max_batch, good) in [(0, false), (1, true), (10_000, true), (10_001, false)] {
        settings.max_batch = max_batch;
        match pack(&settings, "1.0.0") {
            Ok(_) => assert!(good, "{max_batch}"),
            Err(unable) => {
                assert!(!good, "{max_batch}");
                assert!(unable.detail.contains("MCP_MAX_BATCH"), "{unable}");
            }
        }
    }
}

#[test]
fn without_roots_listings_are_empty_and_nothing_is_found() {
    let pack = pack(&AssetSettings::default(), "1.0.0").unwrap();
    let listed = answer(&pack, "list_examples", &json!({}));
    assert_eq!(listed, json!({"ok": true, "examples": []}));
    let not_found = json!({"ok": false, "reason": "not_found"});
    for (tool, arguments) in [
        ("get_example", json!({"path": "a.json"})),
        ("get_schema", json!({"name": "a"})),
    ] {
        let (kind, details) = refusal(&pack, tool, &arguments);
        assert_eq!((kind, &details), (ErrorKind::NotFound, &not_found));
    }
    let (_, details) = refusal(&pack, "validate_asset", &json!({"asset": 1, "schema": "a"}));
    assert_eq!(details, failed(&[("/schema", "schema_not_found")]));
}

#[test]
fn facts_name_the_roots_and_change_with_every_byte_of_them() {
    let world = World::new();
    let before = facts(&world);
    assert_eq!(
        (
            &before["roots"]["schemas"]["files"],
            &before["roots"]["examples"]["files"]
        ),
        (&json!(3), &json!(7))
    );
    assert_eq!(before["max_batch"], 100);
    assert_eq!(before["backend_url"], Value::Null);
    assert_eq!(facts(&world), before);
    world.write("examples/Odd.v2.json", r#"{"schema": "colour", "hue": 2}"#);
    let after = facts(&world);
    assert_ne!(
        after["roots"]["examples"]["fingerprint"],
        before["roots"]["examples"]["fingerprint"]
    );
    assert_eq!(
        after["roots"]["schemas"]["fingerprint"],
        before["roots"]["schemas"]["fingerprint"]
    );
    world.write("schemas/defs/unlisted.json", "{}");
    assert_ne!(
        facts(&world)["roots"]["schemas"]["fingerprint"],
        before["roots"]["schemas"]["fingerprint"]
    );
}

#[test]
fn a_generation_reads_its_roots_once() {
    let world = World::new();
    let pack = world.pack();
    let get = json!({"path": "Odd.v2.json"});
    let before = answer(&pack, "get_example", &get);
    world.write("examples/Odd.v2.json", "{}");
    world.write("examples/New.json", "{}");
    world.write("schemas/colour.schema.json", "false");
    assert_eq!(answer(&pack, "get_example", &get), before);
    let (kind, _) = refusal(&pack, "get_example", &json!({"path": "New.json"}));
    assert_eq!(kind, ErrorKind::NotFound);
}

#[test]
fn a_broken_schema_is_a_clear_error_when_it_is_used_and_the_rest_works() {
    let world = World::new();
    world.write("schemas/torn.schema.json", "{\"type\":");
    world.write(
        "schemas/twice.schema.json",
        r#"{"type": "object", "type": "string"}"#,
    );
    world.write("schemas/wrong.schema.json", r#"{"type": "lamp"}"#);
    world.write(
        "schemas/lost.schema.json",
        r#"{"properties": {"a": {"$ref": "gone.schema.json"}}}"#,
    );
    world.write(
        "schemas/far.schema.json",
        r#"{"$ref": "https://elsewhere.example/a.json"}"#,
    );
    let deep = format!("{}{{}}{}", "{\"not\":".repeat(200), "}".repeat(200));
    world.write("schemas/deep.schema.json", &deep);
    let pack = world.pack();
    for (name, why) in [
        ("torn", "EOF"),
        ("twice", "member \"type\" is given twice"),
        ("wrong", "/type"),
        ("lost", "gone.schema.json"),
        ("far", "https://elsewhere.example/a.json"),
        ("deep", "levels deep"),
    ] {
        let arguments = json!({"asset": {}, "schema": name});
        let (kind, details) = refusal(&pack, "validate_asset", &arguments);
        assert_eq!(kind, ErrorKind::InvalidArguments, "{name}");
        assert_eq!(details["reason"], "validation_failed");
        let error = &details["errors"][0];
        assert_eq!(error["path"], "/schema");
        let said = error["msg"].as_str().unwrap();
        let expected = format!("schema {name} cannot be used: ");
        assert!(said.starts_with(&expected) && said.contains(why), "{said}");
        assert_eq!(
            refusal(
                &pack,
                "validate_many",
                &json!({"assets": [], "schema": name})
            )
            .1,
            details
        );
    }
    let good = json!({"asset": {"name": "l", "colour": {"hue": 1}}, "schema": "lamp"});
    assert_eq!(answer(&pack, "validate_asset", &good), json!({"ok": true}));
    let listed = answer(&pack, "list_schemas", &json!({}));
    let names: Vec<&str> = listed["schemas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|schema| schema["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "colour",
            "far",
            "lamp",
            "lost",
            "synesthetic-asset",
            "wrong"
        ]
    );
    let torn = call(&pack, "get_schema", &json!({"name": "torn"})).unwrap_err();
    assert_eq!(torn.kind, ErrorKind::NotFound);
    assert!(torn.message.contains("cannot be used"), "{}", torn.message);
}

#[test]
fn a_broken_example_is_left_out_and_the_rest_works() {
    let world = World::new();
    world.write("examples/torn.json", "{\"a\":");
    world.write("examples/list.json", "[]");
    world.write("examples/twice.json", r#"{"a": 1, "a": 2}"#);
    world.write(
        "examples/large.json",
        &format!("{{\"a\":\"{}\"}}", "x".repeat(4 * 1024 * 1024)),
    );
    fs::write(world.path("examples/binary.json"), b"{\"\xff\":1}").unwrap();
    symlink("/etc/hostname", world.path("examples/out.json")).unwrap();
    symlink(
        "../schemas/lamp.schema.json",
        world.path("examples/up.json"),
    )
    .unwrap();
    symlink("Colour_Example2.json", world.path("examples/colour.json")).unwrap();
    let pack = world.pack();
    for name in ["torn", "list", "twice", "large", "binary", "out", "up"] {
        let (kind, _) = refusal(
            &pack,
            "get_example",
            &json!({"path": format!("{name}.json")}),
        );
        assert_eq!(kind, ErrorKind::NotFound, "{name}");
    }
    let listed = answer(&pack, "list_examples", &json!({}));
    assert_eq!(listed["examples"].as_array().unwrap().len(), 8);
    let inside = answer(&pack, "get_example", &json!({"path": "colour.json"}));
    assert_eq!(inside["example"]["hue"], 7);
}

#[test]
fn references_lead_to_files_below_the_root_and_nowhere_else() {
    let world = World::new();
    world.write(
        "schemas/defs/common.json",
        r#"{"$defs": {"size": {"type": "integer"}}}"#,
    );
    world.write("schemas/defs/noise.json", "not a schema at all");
    world.write(
        "schemas/box.schema.json",
        r#"{"properties": {"size": {"$ref": "defs/common.json#/$defs/size"}}}"#,
    );
    fs::write(world.path("outside.json"), r#"{"type": "string"}"#).unwrap();
    world.write(
        "schemas/thief.schema.json",
        r#"{"$ref": "../outside.json"}"#,
    );
    let pack = world.pack();
    let verdict = |size: Value| {
        answer(
            &pack,
            "validate_asset",
            &json!({"asset": {"size": size}, "schema": "box"}),
        )
    };
    assert_eq!(verdict(json!(3)), json!({"ok": true}));
    assert_eq!(verdict(json!("3"))["errors"][0]["path"], "/size");
    let (_, details) = refusal(
        &pack,
        "validate_asset",
        &json!({"asset": "x", "schema": "thief"}),
    );
    assert!(
        details["errors"][0]["msg"]
            .as_str()
            .unwrap()
            .contains("../outside.json")
    );
    let listed = answer(&pack, "list_schemas", &json!({}));
    assert_eq!(listed["schemas"].as_array().unwrap().len(), 5);
}

#[test]
fn a_file_that_is_only_referred_to_gives_way_to_one_that_is_served() {
    let world = World::new();
    let colour = fs::read_to_string(world.path("schemas/colour.schema.json")).unwrap();
    for number in 0..40 {
        world.write(&format!("schemas/old/{number}/colour.schema.json"), &colour);
    }
    let pack = world.pack();
    let asset = json!({"asset": {"name": "l", "colour": {"hue": 1}}, "schema": "lamp"});
    assert_eq!(answer(&pack, "validate_asset", &asset), json!({"ok": true}));
}

#[test]
fn two_served_files_with_one_id_are_refused_by_name() {
    let world = World::new();
    // The same name, once spelled out and once from the file's own place.
    world.write(
        "schemas/twin.schema.json",
        r#"{"$id": "https://x.example/lamp.schema.json#"}"#,
    );
    let said = unable(&world.settings);
    for part in [
        "lamp.schema.json",
        "twin.schema.json",
        "https://x.example/lamp",
    ] {
        assert!(said.contains(part), "{said}");
    }
    fs::remove_file(world.path("schemas/twin.schema.json")).unwrap();
    world.write(
        "schemas/other.schema.json",
        r#"{"$id": "synesthetic-asset.schema.json"}"#,
    );
    let said = unable(&world.settings);
    for part in [
        "other.schema.json and synesthetic-asset.schema.json",
        "same $id",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_root_with_too_many_files_is_refused_and_exactly_the_limit_is_not() {
    let world = World::empty();
    for number in 0..10_000 {
        world.write(&format!("examples/{}/{number}.json", number % 100), "{}");
    }
    let pack = world.pack();
    let listed = answer(&pack, "list_examples", &json!({}));
    assert_eq!(listed["examples"].as_array().unwrap().len(), 10_000);
    world.write("examples/one-more.json", "{}");
    let said = unable(&world.settings);
    assert!(said.contains("10001 JSON files; at most 10000"), "{said}");
}

#[test]
fn a_root_with_too_many_bytes_is_refused() {
    let world = World::empty();
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(4 * 1024 * 1024 - 8));
    for number in 0..17 {
        world.write(&format!("schemas/{number}.json"), &large);
    }
    let said = unable(&world.settings);
    assert!(said.contains("more than 67108864 bytes"), "{said}");
}
