//! Properties of every pair of schemas.

use mainstay_schema::lock::{Change, Contract, Demand, Kind, Lock, compare};
use mainstay_schema::{Fingerprint, SchemaRegistry};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};

use crate::{contract, lock};

/// Few names and small values, so that schemas, changes and values meet.
fn name() -> impl Strategy<Value = String> {
    select(vec!["a", "b", "c", "description", "not"]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-1..4i64).prop_map(Value::from),
        select(vec!["", "x", "xy", "xyz"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            3 => prop::collection::btree_map(name(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// One keyword with a fitting value.
fn keyword(
    inner: impl Strategy<Value = Value> + Clone + 'static,
) -> BoxedStrategy<(String, Value)> {
    let types = || {
        select(vec![
            "null", "integer", "number", "string", "array", "object",
        ])
    };
    let schemas = || prop::collection::vec(inner.clone(), 1..3).prop_map(Value::from);
    let members = || {
        prop::collection::btree_map(name(), inner.clone(), 0..3)
            .prop_map(|members| Value::Object(members.into_iter().collect()))
    };
    let named = |name: &'static str, value: BoxedStrategy<Value>| {
        value
            .prop_map(move |value| (name.to_owned(), value))
            .boxed()
    };
    let count = || (0..4u64).prop_map(Value::from).boxed();
    prop_oneof![
        2 => named("type", types().prop_map(Value::from).boxed()),
        1 => named("type", prop::collection::btree_set(types(), 1..3).prop_map(|t| json!(t)).boxed()),
        1 => named("minimum", count()),
        1 => named("maxLength", count()),
        1 => named("minItems", count()),
        1 => named("const", value().boxed()),
        1 => named("enum", prop::collection::vec(value(), 1..4).prop_map(Value::from).boxed()),
        1 => named("default", value().boxed()),
        1 => named("description", "[a-z]{0,3}".prop_map(Value::from).boxed()),
        1 => named("title", "[a-z]{0,3}".prop_map(Value::from).boxed()),
        1 => named("$comment", "[a-z]{0,3}".prop_map(Value::from).boxed()),
        4 => named("properties", members().boxed()),
        1 => named("patternProperties", members().boxed()),
        2 => named("required", prop::collection::btree_set(name(), 0..3).prop_map(|n| json!(n)).boxed()),
        5 => named("additionalProperties", prop_oneof![
            4 => Just(json!(false)), 1 => Just(json!(true)), 1 => inner.clone()].boxed()),
        1 => named("items", inner.clone().boxed()),
        1 => named("prefixItems", schemas().boxed()),
        1 => named("not", inner.clone().boxed()),
        1 => named("if", inner.clone().boxed()),
        1 => named("then", inner.clone().boxed()),
        1 => named("contains", inner.clone().boxed()),
        1 => named("allOf", schemas().boxed()),
        1 => named("anyOf", schemas().boxed()),
        1 => named("oneOf", schemas().boxed()),
        1 => named("unevaluatedProperties", inner.clone().boxed()),
        1 => named("propertyNames", inner.clone().boxed()),
        1 => named("$ref", select(vec!["#", "#/$defs/a", "#/$defs/b"]).prop_map(Value::from).boxed()),
        1 => named("$defs", members().boxed()),
    ]
    .boxed()
}

fn schema() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        any::<bool>().prop_map(Value::from),
        Just(json!({"type": "string"})),
        Just(json!({"properties": {"a": {}}, "additionalProperties": false})),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop::collection::vec(keyword(inner), 0..4)
            .prop_map(|members| Value::Object(members.into_iter().collect()))
    })
    .boxed()
}

/// Ways to put a schema around another, which is at the end of the pointer.
fn around(inner: &Value, pointer: &str, how: usize) -> (Value, String) {
    let string = json!({"type": "string"});
    let (schema, place) = match how {
        0 => (json!({"not": inner}), "/not"),
        1 => (
            json!({"oneOf": [inner, {"properties": {"b": {}}, "required": ["b"]}]}),
            "/oneOf/0",
        ),
        2 => (json!({"anyOf": [string, inner]}), "/anyOf/1"),
        3 => (json!({"allOf": [inner]}), "/allOf/0"),
        4 => (json!({"if": inner, "then": {"maxProperties": 1}}), "/if"),
        5 => (json!({"properties": {"a": inner}}), "/properties/a"),
        6 => (
            json!({"allOf": [inner], "unevaluatedProperties": false}),
            "/allOf/0",
        ),
        7 => (
            json!({"propertyNames": {"not": inner}}),
            "/propertyNames/not",
        ),
        8 => (json!({"items": inner}), "/items"),
        9 => (json!({"contains": inner, "maxContains": 1}), "/contains"),
        10 => (
            json!({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": inner}}),
            "/$defs/a",
        ),
        _ => (
            json!({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": inner}}),
            "/$defs/a",
        ),
    };
    (schema, format!("{place}{pointer}"))
}

/// An object schema that may or may not be closed to members it does not list.
fn object() -> impl Strategy<Value = Value> {
    let others = prop_oneof![
        4 => Just(Some(json!(false))), 1 => Just(None), 1 => schema().prop_map(Some)];
    let members = prop::collection::btree_map(name(), schema(), 0..3);
    let patterns = prop::option::weighted(0.2, schema());
    (members, others, patterns).prop_map(|(members, others, pattern)| {
        let mut schema = json!({ "properties": members });
        if let Some(others) = others {
            schema["additionalProperties"] = others;
        }
        if let Some(pattern) = pattern {
            schema["patternProperties"] = json!({ "^[a-c]$": pattern });
        }
        schema
    })
}

/// The schema of a tool's arguments or result: an object, with something to refer to.
fn root() -> impl Strategy<Value = Value> {
    (
        prop::collection::vec(keyword(schema()), 0..5),
        schema(),
        schema(),
    )
        .prop_map(|(members, a, b)| {
            let mut root: Map<String, Value> = members.into_iter().collect();
            root.insert("type".to_owned(), json!("object"));
            root.insert("$defs".to_owned(), json!({"a": a, "b": b}));
            Value::Object(root)
        })
}

/// A change somewhere in a schema.
#[derive(Clone, Debug)]
enum Edit {
    Replace(Value),
    Remove,
    Insert(String, Value),
}

fn edit() -> impl Strategy<Value = (Index, Edit)> {
    let edit = prop_oneof![
        2 => value().prop_map(Edit::Replace),
        2 => schema().prop_map(Edit::Replace),
        2 => Just(Edit::Remove),
        3 => keyword(schema()).prop_map(|(name, value)| Edit::Insert(name, value)),
        // What most edits are: one more member.
        6 => (name(), schema()).prop_map(|(name, schema)| Edit::Insert(name, schema)),
    ];
    (any::<Index>(), edit)
}

fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                places(member, &format!("{at}/{}", escaped(name)), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

fn edited(schema: &Value, (index, edit): &(Index, Edit)) -> Value {
    let mut new = schema.clone();
    let mut found = Vec::new();
    places(schema, "", &mut found);
    let place = &found[index.index(found.len())];
    match edit {
        Edit::Replace(value) => *new.pointer_mut(place).unwrap() = value.clone(),
        Edit::Remove => {
            if let Some((parent, member)) = place.rsplit_once('/') {
                match new.pointer_mut(parent).unwrap() {
                    Value::Object(members) => drop(members.remove(member)),
                    Value::Array(items) => drop(items.remove(member.parse().unwrap())),
                    _ => {}
                }
            }
        }
        Edit::Insert(name, value) => {
            // Into the nearest object from here upwards.
            let mut place = place.as_str();
            while !new.pointer(place).unwrap().is_object() {
                let Some((parent, _)) = place.rsplit_once('/') else {
                    return new;
                };
                place = parent;
            }
            let members = new.pointer_mut(place).unwrap().as_object_mut().unwrap();
            members.insert(name.clone(), value.clone());
        }
    }
    new
}

fn of_input(schema: &Value) -> Lock {
    let aliases = std::collections::BTreeMap::new();
    lock([Contract {
        input_schema: schema.clone(),
        argument_aliases: aliases,
        ..contract("search")
    }])
}

fn of_output(schema: &Value) -> Lock {
    lock([Contract {
        output_schema: Some(schema.clone()),
        ..contract("search")
    }])
}

fn worst(changes: &[Change]) -> Demand {
    let demands = changes.iter().map(|change| change.demand);
    demands.max().unwrap_or(Demand::Nothing)
}

/// `value` with the members of every object in the opposite order.
fn backwards(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().rev();
            Value::Object(
                members
                    .map(|(name, value)| (name.clone(), backwards(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(backwards).collect()),
        scalar => scalar.clone(),
    }
}

/// Kinds that leave the set of valid values alone.
const MEANINGLESS: [Kind; 4] = [
    Kind::ArgumentDescriptionChanged,
    Kind::ResultDescriptionChanged,
    Kind::DefinitionAdded,
    Kind::FormChanged,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn nothing_differs_from_itself_whatever_the_order_of_its_members(schema in root()) {
        for side in [of_input, of_output] {
            prop_assert_eq!(compare(&side(&schema), &side(&backwards(&schema))), []);
        }
        let text = of_input(&schema).to_text();
        prop_assert_eq!(&text, &of_input(&backwards(&schema)).to_text());
        prop_assert_eq!(&Lock::parse(&text).unwrap(), &of_input(&schema));
    }

    #[test]
    fn a_difference_is_seen_from_both_sides_at_the_same_places(
        old in root(), edits in prop::collection::vec(edit(), 1..3),
    ) {
        let new = edits.iter().fold(old.clone(), |schema, edit| edited(&schema, edit));
        for side in [of_input, of_output] {
            let places = |changes: &[Change]| -> std::collections::BTreeSet<String> {
                changes.iter().map(|change| change.pointer.clone()).collect()
            };
            let changes = compare(&side(&old), &side(&new));
            let forth = places(&changes);
            prop_assert_eq!(&forth, &places(&compare(&side(&new), &side(&old))));
            // The same changes in the same order, however the members are ordered.
            let again = compare(&side(&backwards(&old)), &side(&backwards(&new)));
            prop_assert_eq!(&changes, &again);
            let differs = Fingerprint::of(&old) != Fingerprint::of(&new);
            prop_assert_eq!(!forth.is_empty(), differs);
        }
    }

    /// The validator is the judge: a change that demands nothing of a tool refuses no call that
    /// was accepted before, and one of words or of form changes nothing at all.
    #[test]
    fn what_demands_nothing_takes_nothing_away(
        old in root(),
        edits in prop::collection::vec(edit(), 1..3),
        values in prop::collection::vec(value(), 24),
    ) {
        let new = edits.iter().fold(old.clone(), |schema, edit| edited(&schema, edit));
        let registry = SchemaRegistry::new();
        let compiled = (registry.compile(&old), registry.compile(&new));
        let (Ok(before), Ok(after)) = compiled else {
            return Ok(());
        };
        let input = compare(&of_input(&old), &of_input(&new));
        let output = compare(&of_output(&old), &of_output(&new));
        let meaningless = |changes: &[Change]| {
            changes.iter().all(|change| MEANINGLESS.contains(&change.kind))
        };
        prop_assert_eq!(meaningless(&input), meaningless(&output));
        for value in &values {
            let (was, is) = (before.is_valid(value), after.is_valid(value));
            if worst(&input) < Demand::Bump {
                prop_assert!(!was || is, "{value} was accepted:\n{old}\n{new}\n{input:#?}");
            }
            if meaningless(&output) {
                prop_assert_eq!(was, is, "{} changed:\n{}\n{}\n{:#?}", value, old, new, output);
            }
        }
    }

    /// A new optional member, the most frequent change, in every surrounding.
    #[test]
    fn an_optional_member_that_demands_nothing_takes_nothing_away(
        inner in object(),
        ways in prop::collection::vec(0..12usize, 0..3),
        member in name(),
        added in prop_oneof![Just(json!(false)), schema()],
        values in prop::collection::vec(value(), 24),
    ) {
        let mut old = inner;
        let mut place = String::new();
        for (index, how) in ways.iter().enumerate() {
            // A reference leads to the root, so only the outermost way may be one.
            let how = if index + 1 == ways.len() { *how } else { how % 10 };
            (old, place) = around(&old, &place, how);
        }
        let mut new = old.clone();
        new.pointer_mut(&place).unwrap()["properties"][&member] = added;
        let registry = SchemaRegistry::new();
        let (Ok(before), Ok(after)) = (registry.compile(&old), registry.compile(&new)) else {
            return Ok(());
        };
        let changes = compare(&of_input(&old), &of_input(&new));
        if worst(&changes) < Demand::Bump {
            for value in values {
                let accepted = !before.is_valid(&value) || after.is_valid(&value);
                prop_assert!(accepted, "{value} was accepted:\n{old}\n{new}\n{changes:#?}");
            }
        }
    }

    /// Small edits of what a schema demands are never taken for words.
    #[test]
    fn an_edited_demand_always_wants_a_bump(
        old in root(), index in any::<Index>(), other in value(),
    ) {
        const DEMANDS: [&str; 7] =
            ["type", "minimum", "maxLength", "minItems", "const", "default", "$ref"];
        let mut found = Vec::new();
        places(&old, "", &mut found);
        // Only where the last two steps tell that it is a keyword, not a member or data.
        found.retain(|place| {
            let mut steps = place.rsplit('/');
            let is_demand = steps.next().is_some_and(|step| DEMANDS.contains(&step));
            let data = ["const", "enum", "default"];
            is_demand && !steps.any(|step| data.contains(&step))
        });
        prop_assume!(!found.is_empty());
        let place = &found[index.index(found.len())];
        let mut new = old.clone();
        let demand = new.pointer_mut(place).unwrap();
        prop_assume!(*demand != other && json!([*demand]) != other);
        *demand = other;
        prop_assert_eq!(worst(&compare(&of_input(&old), &of_input(&new))), Demand::Bump);
        prop_assert_eq!(worst(&compare(&of_output(&old), &of_output(&new))), Demand::Bump);
    }
}
