//! The public schemas and examples that the asset adapter was written for.

use std::collections::BTreeMap;
use std::fs;

use mainstay_pack_asset::{AssetSettings, pack};
use mainstay_worker::Pack;
use serde_json::{Value, json};

use crate::data::data;
use crate::fixture::{answer, failed};

/// Each public example and its schema.
const EXPECTED: [(&str, &str); 14] = [
    ("Control-Bundle_Example.json", "control-bundle"),
    ("Haptic_Example.json", "haptic"),
    ("Rule-Bundle_Example.json", "rule-bundle"),
    ("Shader_Example.json", "shader"),
    ("SynestheticAsset_Example1.json", "synesthetic-asset"),
    ("SynestheticAsset_Example2.json", "synesthetic-asset"),
    ("SynestheticAsset_Example3.json", "synesthetic-asset"),
    ("SynestheticAsset_Example4.json", "synesthetic-asset"),
    ("SynestheticAsset_Example5.json", "synesthetic-asset"),
    ("SynestheticAsset_Example6.json", "synesthetic-asset"),
    ("SynestheticAsset_Example7.json", "synesthetic-asset"),
    ("SynestheticAsset_Example8.json", "synesthetic-asset"),
    ("SynestheticAsset_Example9.json", "synesthetic-asset"),
    ("Tone_Example.json", "tone"),
];

fn public() -> Option<Pack> {
    let root = data("synesthetic")?;
    let settings = AssetSettings {
        schemas_dir: Some(root.join("jsonschema")),
        examples_dir: Some(root.join("examples")),
        ..AssetSettings::default()
    };
    Some(pack(&settings, "1.0.0").unwrap())
}

#[test]
fn all_public_examples_validate() {
    let Some(pack) = public() else { return };
    let listed = answer(&pack, "list_examples", &json!({"component": "all"}));
    let listed: Vec<&str> = listed["examples"]
        .as_array()
        .unwrap()
        .iter()
        .map(|example| example["path"].as_str().unwrap())
        .filter(|path| !path.starts_with("_skip/"))
        .collect();
    assert_eq!(listed, EXPECTED.map(|(path, _)| path));
    let mut by_schema: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (path, schema) in EXPECTED {
        let given = answer(&pack, "get_example", &json!({"path": path}));
        assert_eq!(given["ok"], true, "{path}: {given}");
        assert_eq!(given["schema"], schema, "{path}");
        assert_eq!(given["validated"], true, "{path}");
        let asset = given["example"].clone();
        assert!(
            asset.get("$schemaRef").is_some(),
            "{path} is given as it is"
        );
        let verdict = answer(
            &pack,
            "validate_asset",
            &json!({"asset": asset, "schema": schema}),
        );
        assert_eq!(verdict, json!({"ok": true}), "{path}");
        by_schema.entry(schema).or_default().push(asset);
    }
    for (schema, assets) in by_schema {
        let number = assets.len();
        let many = answer(
            &pack,
            "validate_many",
            &json!({"assets": assets, "schema": schema}),
        );
        assert_eq!(many["results"], json!(vec![json!({"ok": true}); number]));
    }
}

#[test]
fn nested_assets_validate_under_the_alias() {
    let Some(pack) = public() else { return };
    for (path, schema) in EXPECTED {
        let asset = answer(&pack, "get_example", &json!({"path": path}))["example"].clone();
        let arguments = json!({"asset": asset, "schema": "nested-synesthetic-asset"});
        let verdict = answer(&pack, "validate_asset", &arguments);
        let is_nested = schema == "synesthetic-asset";
        assert_eq!(verdict["ok"], is_nested, "{path}: {verdict}");
    }
}

#[test]
fn an_example_without_a_schema_is_not_given() {
    let Some(pack) = public() else { return };
    let given = answer(
        &pack,
        "get_example",
        &json!({"path": "_skip/ShaderLib_Example.json"}),
    );
    assert_eq!(given, failed(&[("/schema", "schema_not_found")]));
}

#[test]
fn all_public_schemas_are_listed_and_can_be_used() {
    let Some(pack) = public() else { return };
    let listed = answer(&pack, "list_schemas", &json!({}));
    let schemas = listed["schemas"].as_array().unwrap();
    assert_eq!(schemas.len(), 9);
    for schema in schemas {
        let arguments = json!({"asset": 7, "schema": schema["name"]});
        let verdict = answer(&pack, "validate_asset", &arguments);
        assert_eq!(verdict["reason"], "validation_failed", "{schema}");
        assert_eq!(verdict["errors"][0]["path"], "", "{schema}");
    }
}

#[test]
fn a_broken_public_example_is_refused_where_it_is_broken() {
    let Some(root) = data("synesthetic") else {
        return;
    };
    let pack = public().unwrap();
    let text = fs::read_to_string(root.join("examples/Haptic_Example.json")).unwrap();
    let mut asset: Value = serde_json::from_str(&text).unwrap();
    asset["device"]["type"] = json!(7);
    let verdict = answer(
        &pack,
        "validate_asset",
        &json!({"asset": asset, "schema": "haptic"}),
    );
    assert_eq!(verdict["errors"][0]["path"], "/device/type", "{verdict}");
    assert_eq!(verdict["errors"].as_array().unwrap().len(), 1, "{verdict}");
}
