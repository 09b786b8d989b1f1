//! The world in `examples/assets`: every example validates but the one that must not.

use std::path::Path;

use mainstay_pack_asset::{AssetSettings, pack, validate_file};
use serde_json::{Value, json};

use crate::fixture::answer;

/// Each example and its schema, in the order of the listing.
const EXPECTED: [(&str, &str); 16] = [
    ("Colour_Example.json", "colour"),
    ("Colour_Example2.json", "colour"),
    ("Cue-List_Example.json", "cue-list"),
    ("Cue_Example1.json", "cue"),
    ("Cue_Example2.json", "cue"),
    ("Fixture_Example1.json", "fixture"),
    ("Fixture_Example2.json", "fixture"),
    ("Fixture_Example3.json", "fixture"),
    ("Lamp_Example.json", "lamp"),
    ("Lamp_Example2.json", "lamp"),
    ("Patch_Example.json", "patch"),
    ("Scene_Example.json", "scene"),
    ("Show_Example.json", "show"),
    ("Venue_Example.json", "venue"),
    ("rehearsal.json", "cue-list"),
    ("tour/winter.v2.json", "show"),
];

/// Where examples lie that are wrong on purpose.
const BROKEN: &str = "broken/";

fn settings() -> AssetSettings {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/assets");
    AssetSettings {
        schemas_dir: Some(root.join("jsonschema")),
        examples_dir: Some(root.join("examples")),
        ..AssetSettings::default()
    }
}

fn listed(listing: &Value, member: &str, field: &str) -> Vec<String> {
    let rows = listing[member].as_array().unwrap().iter();
    rows.map(|row| row[field].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn every_example_of_the_world_validates_but_the_broken_one() {
    let settings = settings();
    let pack = pack(&settings, "1.0.0").unwrap();
    let examples = answer(&pack, "list_examples", &json!({}));
    let (broken, sound): (Vec<_>, Vec<_>) = listed(&examples, "examples", "path")
        .into_iter()
        .partition(|path| path.starts_with(BROKEN));
    assert_eq!(sound, EXPECTED.map(|(path, _)| path));
    for (path, schema) in EXPECTED {
        let given = answer(&pack, "get_example", &json!({"path": path}));
        assert_eq!(given["validated"], true, "{path}: {given}");
        assert_eq!(given["schema"], schema, "{path}");
        // The command line finds the schema in the same way.
        let file = settings.examples_dir.as_ref().unwrap().join(path);
        assert!(validate_file(&settings, &file, None).unwrap().is_valid);
    }
    assert_eq!(broken, ["broken/Cue_Invalid_Example.json"]);
    let refused = answer(&pack, "get_example", &json!({"path": broken[0]}));
    let paths = listed(&refused, "errors", "path");
    assert_eq!(
        paths,
        [
            "/action/levels/front-wash-1/colour/hue",
            "/action/levels/front-wash-1/level",
            "/fade",
            "/fade/up",
            "/label",
            "/number"
        ]
    );
}

#[test]
fn every_schema_of_the_world_has_a_version_and_an_example() {
    let pack = pack(&settings(), "1.0.0").unwrap();
    let schemas = answer(&pack, "list_schemas", &json!({}));
    let names = listed(&schemas, "schemas", "name");
    assert_eq!(names.len(), 9);
    for (name, version) in names.iter().zip(listed(&schemas, "schemas", "version")) {
        assert_eq!(version.split('.').count(), 3, "{name} {version}");
        assert!(EXPECTED.iter().any(|(_, schema)| schema == name), "{name}");
    }
}

#[test]
fn each_document_of_the_world_counts_by_its_own_dialect() {
    let pack = pack(&settings(), "1.0.0").unwrap();
    let verdict = |schema: &str, asset: Value| {
        let asked = json!({"asset": asset, "schema": schema});
        listed(&answer(&pack, "validate_asset", &asked), "errors", "path")
    };
    let venue = json!({"name": "Hall", "contact": "a@b.example", "inspected": "2026-02-31"});
    assert_eq!(verdict("venue", venue.clone()), ["/inspected"]);
    // Also where a document of another dialect leads to it.
    let path = "tour/winter.v2.json";
    let mut show = answer(&pack, "get_example", &json!({"path": path}))["example"].clone();
    show["opens"] = json!("2026-02-31T19:30:00Z");
    show["venue"] = venue;
    assert_eq!(verdict("show", show), ["/venue/inspected"]);
}
