//! The content of a keyword, and how far the schemas below it reach.

use serde_json::Value;

use crate::keywords::Shape;

/// How a keyword holds schemas, in any draft. Where it does not, in the draft at hand, it has no
/// effect, and neither has what changes below it.
pub(super) fn shape(keyword: &str) -> Option<Shape> {
    Some(match keyword {
        "additionalItems"
        | "contains"
        | "contentSchema"
        | "else"
        | "if"
        | "not"
        | "propertyNames"
        | "then"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Shape::One,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Shape::List,
        "items" => Shape::OneOrList,
        "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties" => {
            Shape::Map
        }
        _ => return None,
    })
}

pub(super) const fn is_schema(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Bool(_))
}

/// True if a place holds schemas that apply to nothing by themselves.
pub(super) fn is_shelf(pointer: &str) -> bool {
    pointer.ends_with("/$defs") || pointer.ends_with("/definitions")
}

/// True if a definition has a name of its own, by which something may come to mean it.
pub(super) fn is_anchored(schema: &Value) -> bool {
    const NAMES: [&str; 5] = ["$anchor", "$dynamicAnchor", "$id", "$recursiveAnchor", "id"];
    holds(schema, &|name, value| {
        NAMES.contains(&name) && (value.is_string() || value.is_boolean())
    })
}

/// True if the reach of a place is hard to tell: something asks what other places evaluated, or
/// a reference may come from where permitting more means permitting less.
pub(super) fn is_doubtful(schema: &Value) -> bool {
    const ASKING: [&str; 4] = [
        "$dynamicRef",
        "$recursiveRef",
        "unevaluatedItems",
        "unevaluatedProperties",
    ];
    const TURNING: [&str; 9] = [
        "contains",
        "dependencies",
        "dependentSchemas",
        "else",
        "if",
        "not",
        "oneOf",
        "propertyNames",
        "then",
    ];
    holds(schema, &|name, _| ASKING.contains(&name))
        || (holds(schema, &|name, _| name == "$ref")
            && holds(schema, &|name, _| TURNING.contains(&name)))
}

/// True if some member anywhere in `value` is a `wanted` one.
fn holds(value: &Value, wanted: &dyn Fn(&str, &Value) -> bool) -> bool {
    match value {
        Value::Object(members) => members
            .iter()
            .any(|(name, member)| wanted(name, member) || holds(member, wanted)),
        Value::Array(items) => items.iter().any(|item| holds(item, wanted)),
        _ => false,
    }
}
