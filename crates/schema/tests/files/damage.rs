//! Messages about damaged values, over documents of our own: every
//! sentence, at its place, whichever document asks for it.

use std::fmt::Write as _;

use mainstay_schema::{Limits, SchemaDocument, SchemaRegistry, Validator};
use serde_json::{Value, json};

use crate::data;

/// The scene that every damage is done to.
fn scene() -> Value {
    json!({
        "name": "Evening",
        "id": "evening-1",
        "lamps": [
            {"on": true, "socket": "E27", "level": 0.5, "angle": 45, "colour": "red"},
            {"on": false, "socket": "GU10", "colour": {"space": "warmth", "kelvin": 2700}}
        ],
        "palette": {"colours": ["black", {"space": "rgb", "red": 1, "green": 2, "blue": 3}]},
        "trigger": {"kind": "button", "presses": 2},
        "schedule": {"at": "20:15:00Z", "days": ["monday", "friday"], "zone": "here"},
        "group": {"members": ["a", {"members": ["b", {"members": []}]}]},
        "labels": {"room": "kitchen"},
        "fade": 90,
        "author": "me",
        "licence": "MIT"
    })
}

/// A damage: its name, its place, and the value there afterwards;
/// nothing if the member is taken away.
fn damages() -> Vec<(&'static str, &'static str, Option<Value>)> {
    let set = |name, place, value| (name, place, Some(value));
    let kelvin = json!({"space": "warmth", "kelvin": 10});
    let mixed = json!({"space": "rgb", "red": 300, "green": 2, "blue": "x"});
    vec![
        ("a member is missing", "/name", None),
        (
            "a member is missing in another document",
            "/lamps/0/socket",
            None,
        ),
        set("a member is misspelled", "/lables", json!({})),
        set(
            "a member is unknown in another document",
            "/palette/shades",
            json!([]),
        ),
        set(
            "a member is unevaluated in another document",
            "/lamps/0/wattage",
            json!(4),
        ),
        set("of another type", "/name", json!(7)),
        set("of none of several types", "/palette/mix", json!(1.5)),
        set("null where it is not allowed", "/trigger", json!(null)),
        set(
            "neither of the alternatives in another document",
            "/palette",
            json!("warm"),
        ),
        set("not in the list", "/lamps/1/socket", json!("B22")),
        set("not the constant", "/palette/colours/0", json!("white")),
        set("too small", "/lamps/0/level", json!(-0.1)),
        set("too large", "/lamps/0/level", json!(1)),
        set("not a multiple", "/lamps/0/angle", json!(40)),
        set("text too short", "/name", json!("")),
        set(
            "text too long",
            "/name",
            json!("a very long name for a scene"),
        ),
        set("text against its pattern", "/id", json!("Evening 1")),
        set(
            "text against its format, in an older document",
            "/schedule/at",
            json!("at eight"),
        ),
        set("too few items", "/lamps", json!([])),
        set(
            "too many items, in an older document",
            "/schedule/days",
            json!(["a", "b", "c"]),
        ),
        set(
            "items that are not unique",
            "/group/members",
            json!(["a", "a"]),
        ),
        set("no item of the required form", "/lamps/0/on", json!(false)),
        set(
            "deep inside alternatives that contain themselves",
            "/group/members/1/members/1/members",
            json!([{}]),
        ),
        set(
            "the branch told by its kind",
            "/trigger",
            json!({"kind": "sensor", "presses": 1}),
        ),
        set("no branch has this kind", "/trigger/kind", json!("voice")),
        set("the branch told by its members", "/lamps/1/colour", kelvin),
        set(
            "several mistakes in one branch",
            "/palette/colours/1",
            mixed,
        ),
        set("more than one branch fits", "/fade", json!(30)),
        set("a form that is not allowed", "/owner", json!("nobody")),
        ("what a condition asks for", "/lamps/0/level", None),
        ("what another member asks for", "/licence", None),
        (
            "what another member asks for, in an older document",
            "/schedule/zone",
            None,
        ),
        set(
            "a member name against its pattern",
            "/labels/Room 2",
            json!("x"),
        ),
        set("a member of a map", "/labels/room", json!(2)),
        set("the value as a whole", "", json!([])),
    ]
}

fn damaged(place: &str, value: Option<Value>) -> Value {
    let mut scene = scene();
    let Some((parent, name)) = place.rsplit_once('/') else {
        return value.unwrap();
    };
    let parent = scene.pointer_mut(parent).unwrap();
    match (parent, value) {
        (Value::Object(members), Some(value)) => {
            members.insert(name.to_owned(), value);
        }
        (Value::Object(members), None) => {
            members.shift_remove(name).unwrap();
        }
        (Value::Array(items), Some(value)) => items[name.parse::<usize>().unwrap()] = value,
        (parent, _) => panic!("{parent}"),
    }
    scene
}

fn told(validator: &Validator) -> String {
    let mut text = String::new();
    for (name, place, value) in damages() {
        let violations = validator.check(&damaged(place, value));
        writeln!(text, "{name}").unwrap();
        assert!(!violations.is_empty(), "{name}");
        for violation in violations {
            writeln!(text, "    {:?}: {}", violation.path, violation.message).unwrap();
        }
    }
    text
}

fn roots() -> Vec<SchemaDocument> {
    data::documents(&data::own("roots"), "https://example.com/light/")
}

#[test]
fn every_kind_of_damage_is_told_at_its_place() {
    let registry = SchemaRegistry::with_documents(Limits::default(), roots()).unwrap();
    let validator = registry
        .compile_document("https://example.com/light/scene.schema.json")
        .unwrap();
    assert_eq!(validator.check(&scene()), []);
    insta::assert_snapshot!("damage", told(&validator));
}

/// All documents in one: messages must not depend on that.
#[test]
fn damage_is_told_alike_across_documents_and_within_one() {
    let apart = SchemaRegistry::with_documents(Limits::default(), roots()).unwrap();
    let apart = apart
        .compile_document("https://example.com/light/scene.schema.json")
        .unwrap();
    let mut together = json!({"$ref": "https://example.com/light/scene.schema.json", "$defs": {}});
    for document in roots() {
        let mut schema = document.schema;
        schema["$id"] = document.uri.clone().into();
        together["$defs"][document.uri] = schema;
    }
    let together = SchemaRegistry::new().compile(&together).unwrap();
    assert_eq!(told(&together), told(&apart));
}
