//! Where a schema holds further schemas.

use serde_json::{Map, Value};

/// What a subschema applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The same value as the schema around it.
    Here,
    /// A part of that value.
    Part,
    /// Nothing, until something refers to it.
    Shelf,
}

/// How a keyword holds its subschemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    List,
    OneOrList,
    Map,
}

/// The keywords that hold schemas, over all drafts.
pub(crate) fn shape(keyword: &str) -> Option<(Shape, Place)> {
    Some(match keyword {
        "not" | "if" | "then" | "else" => (Shape::One, Place::Here),
        "additionalItems"
        | "additionalProperties"
        | "contains"
        | "propertyNames"
        | "unevaluatedItems"
        | "unevaluatedProperties" => (Shape::One, Place::Part),
        "items" => (Shape::OneOrList, Place::Part),
        "allOf" | "anyOf" | "oneOf" => (Shape::List, Place::Here),
        "prefixItems" => (Shape::List, Place::Part),
        "dependentSchemas" | "dependencies" => (Shape::Map, Place::Here),
        "properties" | "patternProperties" => (Shape::Map, Place::Part),
        "$defs" | "definitions" => (Shape::Map, Place::Shelf),
        "contentSchema" => (Shape::One, Place::Shelf),
        _ => return None,
    })
}

/// Calls `visit` with the pointer, the schema and the place of every direct subschema
/// of `schema`, which is at `pointer`.
pub(crate) fn subschemas<'a>(
    schema: &'a Map<String, Value>,
    pointer: &str,
    visit: &mut dyn FnMut(String, &'a Value, Place),
) {
    for (keyword, value) in schema {
        let Some((shape, place)) = shape(keyword) else {
            continue;
        };
        let at = join(pointer, keyword);
        match (shape, value) {
            (Shape::One | Shape::OneOrList, Value::Object(_) | Value::Bool(_)) => {
                visit(at, value, place);
            }
            (Shape::List | Shape::OneOrList, Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    visit(format!("{at}/{index}"), item, place);
                }
            }
            // An array in `dependencies` is a list of names.
            (Shape::Map, Value::Object(members)) => {
                for (name, member) in members {
                    if !member.is_array() {
                        visit(join(&at, name), member, place);
                    }
                }
            }
            _ => {}
        }
    }
}

/// `pointer` extended by one member name, escaped as RFC 6901 asks.
pub(crate) fn join(pointer: &str, name: &str) -> String {
    let mut joined = String::with_capacity(pointer.len() + name.len() + 1);
    joined.push_str(pointer);
    joined.push('/');
    for character in name.chars() {
        match character {
            '~' => joined.push_str("~0"),
            '/' => joined.push_str("~1"),
            other => joined.push(other),
        }
    }
    joined
}
