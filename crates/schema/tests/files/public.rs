//! Assets of the real world: public schemas and examples, and what is told about
//! damaged ones.

use std::{fmt::Write as _, path::PathBuf};

use mainstay_schema::{Limits, SchemaRegistry, Validator};
use serde_json::{Value, json};

use crate::data;

const BASE: &str = "file:///roots/";

fn assets() -> Option<(PathBuf, SchemaRegistry)> {
    let folder = data::public("synesthetic")?;
    let documents = data::documents(&folder.join("jsonschema"), BASE);
    let registry = SchemaRegistry::with_documents(Limits::default(), documents).unwrap();
    Some((folder.join("examples"), registry))
}

/// An example without the member that says which schema it follows, and that schema.
fn opened(registry: &SchemaRegistry, name: &str, mut example: Value) -> (Value, Validator) {
    let members = example.as_object_mut().unwrap();
    let named = members.shift_remove("$schemaRef");
    let schema = match &named {
        Some(named) => named
            .as_str()
            .unwrap()
            .rsplit('/')
            .next()
            .unwrap()
            .to_owned(),
        None => {
            let component = name.split(['.', '_']).next().unwrap().to_lowercase();
            format!("{component}.schema.json")
        }
    };
    let validator = registry.compile_document(&format!("{BASE}{schema}"));
    (example, validator.unwrap())
}

#[test]
fn all_public_examples_are_valid() {
    let Some((folder, registry)) = assets() else {
        return;
    };
    let mut checked = 0;
    for (name, example) in data::files(&folder) {
        // These have no schema.
        if name.starts_with("_skip/") {
            continue;
        }
        let (example, validator) = opened(&registry, &name, example);
        assert_eq!(validator.check(&example), [], "{name}");
        checked += 1;
    }
    assert_eq!(checked, 14);
}

fn set(example: &mut Value, place: &str, value: Value) {
    *example.pointer_mut(place).unwrap() = value;
}

fn add(example: &mut Value, place: &str, name: &str, value: Value) {
    let members = example.pointer_mut(place).unwrap();
    members[name] = value;
}

fn take(example: &mut Value, place: &str, name: &str) {
    let members = example.pointer_mut(place).unwrap();
    members.as_object_mut().unwrap().shift_remove(name).unwrap();
}

type Damage = (&'static str, fn(&mut Value));

const CONTROL: &str = "/control/control_parameters/0";

/// Damage to an asset that is made of parts of eight documents.
const DAMAGES: [Damage; 22] = [
    ("no name", |asset| take(asset, "", "name")),
    ("an empty name", |asset| set(asset, "/name", json!(""))),
    ("a member that no asset has", |asset| {
        add(asset, "", "shdaer", json!({}));
    }),
    ("a part of another type", |asset| {
        set(asset, "/shader", json!("circle"));
    }),
    ("a part that may not be null", |asset| {
        set(asset, "/rule_bundle", json!(null));
    }),
    ("a part without a member", |asset| {
        take(asset, "/shader", "vertex_shader");
    }),
    ("a part with a member it does not have", |asset| {
        add(asset, "/shader", "fragment", json!(""));
    }),
    ("a misspelled member in an item of a part", |asset| {
        add(asset, CONTROL, "lable", json!("x"));
    }),
    ("an item of a part without several members", |asset| {
        take(asset, CONTROL, "label");
        take(asset, CONTROL, "unit");
    }),
    ("a number as text in a part", |asset| {
        set(asset, "/shader/input_parameters/0/min", json!("0"));
    }),
    ("a number or null as text in a part", |asset| {
        set(asset, &format!("{CONTROL}/max"), json!("1"));
    }),
    ("an empty text in a part", |asset| {
        set(asset, &format!("{CONTROL}/label"), json!(""));
    }),
    ("a word that is not in a list", |asset| {
        set(
            asset,
            &format!("{CONTROL}/mappings/0/action/axis"),
            json!("mouse.z"),
        );
    }),
    (
        "a word that is not in a list, by a reference to a part of a document",
        |asset| {
            set(asset, "/modulations/0/waveform", json!("noise"));
        },
    ),
    ("an object where a list belongs", |asset| {
        set(asset, "/control/control_parameters", json!({}));
    }),
    ("an item of another type", |asset| {
        set(asset, "/control/control_parameters/1", json!([]));
    }),
    ("a member of a map", |asset| {
        set(
            asset,
            "/haptic/device/options",
            json!({"strength": {"value": "high"}}),
        );
    }),
    ("none of four forms", |asset| {
        add(asset, "/rule_bundle/rules/0", "expr", json!(3));
    }),
    ("a name that is a number", |asset| {
        set(asset, "/tone/name", json!(440));
    }),
    ("an alternative that both forms refuse", |asset| {
        set(asset, "/tone/synth", json!(true));
    }),
    ("mistakes in three documents at once", |asset| {
        set(asset, "/shader/name", json!(1));
        take(asset, "/haptic", "device");
        set(asset, "/tone/name", json!(null));
    }),
    ("something else altogether", |asset| *asset = json!([])),
];

#[test]
fn damage_to_a_public_example_is_told_at_its_place() {
    let Some((folder, registry)) = assets() else {
        return;
    };
    let name = "SynestheticAsset_Example1.json";
    let (_, example) = data::files(&folder)
        .into_iter()
        .find(|(found, _)| found == name)
        .unwrap();
    let (example, validator) = opened(&registry, name, example);
    let mut told = String::new();
    for (damage, apply) in DAMAGES {
        let mut damaged = example.clone();
        apply(&mut damaged);
        let violations = validator.check(&damaged);
        assert!(!violations.is_empty(), "{damage}");
        writeln!(told, "{damage}").unwrap();
        for violation in violations {
            writeln!(told, "    {:?}: {}", violation.path, violation.message).unwrap();
        }
    }
    insta::assert_snapshot!("public_damage", told);
}
