//! Properties of every tool: its contract, its text, its determinism.

use mainstay_pack_asset::{AssetSettings, catalog, pack};
use mainstay_schema::SchemaRegistry;
use mainstay_worker::render::Bounds;
use mainstay_worker::{Annotations, Code, Problem, Replay, ToolSpec};
use serde_json::{Value, json};

use crate::fixture::{Given, World, call, output_violations};
use crate::http::{Server, reply};

fn tool<'a>(tools: &'a [ToolSpec], name: &str) -> &'a ToolSpec {
    tools.iter().find(|tool| tool.name == name).unwrap()
}

#[test]
fn the_catalog_is_known_without_reading_anything() {
    assert_eq!(World::new().pack().catalog(), catalog("1.0.0"));
    let without_roots = pack(&AssetSettings::default(), "1.0.0").unwrap();
    assert_eq!(without_roots.catalog(), catalog("1.0.0"));
    let catalog = catalog("1.0.0+abc");
    let names: Vec<_> = catalog
        .tools
        .iter()
        .map(|tool| tool.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "diff_assets",
            "get_example",
            "get_schema",
            "list_examples",
            "list_schemas",
            "populate_backend",
            "validate_asset",
            "validate_many",
        ]
    );
    assert_eq!(catalog.resource_schemes, ["schema", "example"]);
    assert!(catalog.completions);
}

#[test]
fn only_the_backend_is_never_replayed() {
    for tool in catalog("1.0.0").tools {
        if tool.name == "populate_backend" {
            assert_eq!(tool.replay, Replay::NeverReplay);
            assert!(!tool.annotations.read_only_hint && !tool.annotations.idempotent_hint);
            assert!(tool.annotations.open_world_hint);
        } else {
            assert_eq!(tool.replay, Replay::Convergent, "{}", tool.name);
            assert_eq!(tool.annotations, Annotations::READ_ONLY, "{}", tool.name);
        }
    }
}

#[test]
fn every_contract_is_closed_and_compiles() {
    let registry = SchemaRegistry::new();
    for tool in catalog("1.0.0").tools {
        let output = tool.output_schema.as_ref().unwrap();
        for schema in [&tool.input_schema, output] {
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
            registry.compile(schema).unwrap();
        }
        registry.compile(&tool.full_input_schema()).unwrap();
        assert!((1..=4).contains(&tool.schema_version), "{}", tool.name);
    }
}

#[test]
fn the_alias_belongs_to_validate_asset_and_nothing_else_has_one() {
    let tools = catalog("1.0.0").tools;
    assert_eq!(tool(&tools, "validate_asset").aliases, ["validate"]);
    let others = tools.iter().filter(|tool| tool.name != "validate_asset");
    assert!(others.into_iter().all(|tool| tool.aliases.is_empty()));
}

#[test]
fn codes_beyond_the_usual_are_declared() {
    let tools = catalog("1.0.0").tools;
    for tool in &tools {
        let expected: &[Code] = match tool.name.as_str() {
            "get_schema" | "get_example" => &[Code::NotFound],
            _ => &[],
        };
        assert_eq!(tool.errors, expected, "{}", tool.name);
    }
}

#[test]
fn schema_is_required_and_says_so_in_its_own_words() {
    let tools = catalog("1.0.0").tools;
    for name in ["validate_asset", "validate_many"] {
        let input = &tool(&tools, name).input_schema;
        assert!(
            input["required"]
                .as_array()
                .unwrap()
                .contains(&json!("schema"))
        );
        let words = &input["properties"]["schema"]["x-mainstay-required"];
        assert_eq!(words, "schema param is required");
    }
}

/// Calls with every tool, good and bad ones.
fn calls() -> Vec<(&'static str, Value)> {
    let lamp = json!({"name": "l"});
    let bad = json!({"colour": {"hue": 999, "x": 1}, "b": 0, "a": 0});
    let many_errors: Vec<Value> = (0..500).map(|n| json!({"name": n})).collect();
    let wide: Value = (0..3000)
        .map(|n| (format!("member {n:04}"), json!(n)))
        .collect();
    vec![
        ("list_schemas", json!({})),
        ("get_schema", json!({"name": "lamp"})),
        ("get_schema", json!({"name": "none"})),
        ("list_examples", json!({})),
        ("list_examples", json!({"component": "none"})),
        ("get_example", json!({"path": "Lamp_Example.json"})),
        ("get_example", json!({"path": "Lamp_Bad.json"})),
        ("get_example", json!({"path": "Ghost_Example.json"})),
        ("validate_asset", json!({"asset": lamp, "schema": "lamp"})),
        ("validate_asset", json!({"asset": bad, "schema": "lamp"})),
        ("validate_asset", json!({"asset": wide, "schema": "lamp"})),
        (
            "validate_many",
            json!({"assets": [lamp, bad, 7], "schema": "lamp"}),
        ),
        (
            "validate_many",
            json!({"assets": many_errors, "schema": "lamp"}),
        ),
        ("validate_many", json!({"assets": [], "schema": "lamp"})),
        ("diff_assets", json!({"base": lamp, "new": bad})),
        ("diff_assets", json!({"base": {}, "new": wide})),
        ("diff_assets", json!({"base": bad, "new": bad})),
        ("populate_backend", json!({"asset": {"schema": "lamp"}})),
        ("populate_backend", json!({"asset": {"schema": "loose"}})),
        ("populate_backend", json!({"asset": {}})),
    ]
}

fn run(calls: &[(&'static str, Value)], server: &Server) -> Vec<Result<Given, Problem>> {
    let mut world = World::new();
    world.write("schemas/loose.schema.json", "{}");
    world.settings.backend_url = Some(server.url());
    world.settings.max_batch = 1000;
    let pack = world.pack();
    calls
        .iter()
        .map(|(tool, arguments)| call(&pack, tool, arguments))
        .collect()
}

#[test]
fn the_same_call_gives_the_same_bytes_in_every_generation() {
    let server = Server::answering(reply(201, r#"{"id":"a"}"#));
    let calls = calls();
    let (first, second) = (run(&calls, &server), run(&calls, &server));
    for ((one, two), call) in first.iter().zip(&second).zip(&calls) {
        assert_eq!(one, two, "{call:?}");
    }
}

#[test]
fn every_text_is_short_and_begins_with_a_summary() {
    let server = Server::answering(reply(201, r#"{"id":"a"}"#));
    let calls = calls();
    for (given, call) in run(&calls, &server).into_iter().zip(&calls) {
        let Ok(given) = given else { continue };
        let Bounds { lines, bytes } = Bounds::PORCELAIN;
        assert!(given.text.len() <= bytes, "{call:?}");
        assert!(given.text.lines().count() <= lines, "{call:?}");
        let summary = given.text.lines().next().unwrap();
        assert!(
            !summary.is_empty() && !summary.starts_with(['-', '{', ' ']),
            "{call:?}: {summary}"
        );
    }
}

#[test]
fn output_schemas_are_precise() {
    let pack = World::new().pack();
    let errors = json!([{"path": "", "msg": "x"}]);
    for (tool, wrong) in [
        ("list_schemas", json!({"ok": true})),
        (
            "list_examples",
            json!({"ok": true, "examples": [{"component": "a"}]}),
        ),
        (
            "get_example",
            json!({"ok": true, "example": {}, "schema": "a", "validated": false}),
        ),
        (
            "get_example",
            json!({"ok": true, "example": 7, "schema": "a", "validated": true}),
        ),
        ("get_example", json!({"ok": false, "reason": "not_found"})),
        ("validate_asset", json!({"ok": true, "errors": []})),
        ("validate_asset", json!({"ok": false, "errors": errors})),
        ("validate_many", json!({"ok": false, "results": []})),
        (
            "validate_many",
            json!({"ok": true, "results": [{"ok": false}]}),
        ),
        (
            "diff_assets",
            json!({"ok": true, "patch": [{"op": "move", "path": "", "value": 1}]}),
        ),
        (
            "diff_assets",
            json!({"ok": true, "patch": [{"op": "remove", "path": "", "value": 1}]}),
        ),
        (
            "diff_assets",
            json!({"ok": true, "patch": [{"op": "add", "path": ""}]}),
        ),
        (
            "populate_backend",
            json!({"ok": true, "asset_id": 7, "backend_url": "x"}),
        ),
        (
            "populate_backend",
            json!({"ok": true, "asset_id": "", "backend_url": "x"}),
        ),
    ] {
        assert!(
            !output_violations(&pack, tool, &wrong).is_empty(),
            "{tool} {wrong}"
        );
    }
    let null = json!({"ok": true, "patch": [{"op": "add", "path": "", "value": null}]});
    assert!(output_violations(&pack, "diff_assets", &null).is_empty());
}
