//! Where a schema holds further schemas, and references.

use jsonschema::Draft;
use mainstay_contract::json::push_pointer_part;
use serde_json::{Map, Value};

/// The values that a subschema applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The value of the schema around it.
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

/// How `keyword` holds schemas in `draft`, if it does.
pub(crate) fn shape(keyword: &str, draft: Draft) -> Option<(Shape, Place)> {
    let since_2019 = !is_classic(draft);
    let since_2020 = since_2019 && draft != Draft::Draft201909;
    Some(match keyword {
        "not" | "if" | "then" | "else" => (Shape::One, Place::Here),
        // Later drafts have neither `additionalItems` nor `dependencies`, but the engine
        // honours them.
        "additionalItems" | "additionalProperties" | "contains" | "propertyNames" => {
            (Shape::One, Place::Part)
        }
        "unevaluatedItems" | "unevaluatedProperties" if since_2019 => (Shape::One, Place::Part),
        "items" if since_2020 => (Shape::One, Place::Part),
        "items" => (Shape::OneOrList, Place::Part),
        "allOf" | "anyOf" | "oneOf" => (Shape::List, Place::Here),
        "prefixItems" if since_2020 => (Shape::List, Place::Part),
        "dependentSchemas" if since_2019 => (Shape::Map, Place::Here),
        "dependencies" => (Shape::Map, Place::Here),
        "properties" | "patternProperties" => (Shape::Map, Place::Part),
        "definitions" => (Shape::Map, Place::Shelf),
        "$defs" if since_2019 => (Shape::Map, Place::Shelf),
        "contentSchema" if since_2019 => (Shape::One, Place::Shelf),
        _ => return None,
    })
}

/// True if the draft is one in which a `$ref` hides the keywords beside it, and `$id`
/// can name an anchor.
pub(crate) fn is_classic(draft: Draft) -> bool {
    matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7)
}

/// The keywords of `draft` whose value is a reference.
pub(crate) fn reference_keywords(draft: Draft) -> &'static [&'static str] {
    match draft {
        Draft::Draft4 | Draft::Draft6 | Draft::Draft7 => &["$ref"],
        Draft::Draft201909 => &["$ref", "$recursiveRef"],
        _ => &["$ref", "$dynamicRef"],
    }
}

/// The references of `schema`: keyword and text.
pub(crate) fn references(
    schema: &Map<String, Value>,
    draft: Draft,
) -> impl Iterator<Item = (&'static str, &str)> {
    reference_keywords(draft)
        .iter()
        .filter_map(|keyword| Some((*keyword, schema.get(*keyword)?.as_str()?)))
}

/// Calls `visit` with the pointer, the schema and the place of every direct subschema
/// of `schema`, which is at `pointer`.
pub(crate) fn subschemas<'a>(
    schema: &'a Map<String, Value>,
    pointer: &str,
    draft: Draft,
    visit: &mut dyn FnMut(String, &'a Value, Place),
) {
    for (keyword, value) in schema {
        let Some((shape, place)) = shape(keyword, draft) else {
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
    push_pointer_part(&mut joined, name);
    joined
}
