//! The part of a schema that applies to one place in the arguments.
//!
//! A place is a list of schemas that all apply to it. [`Schemas::conjuncts`] spreads them out over
//! `$ref` and `allOf`, and over the branch of an `anyOf` or `oneOf` that is the only one to take a
//! value of a given kind. [`Schemas::admits`] says which kinds of value may be valid there.
//!
//! Both are allowed to know less than a validator, in one direction only: a keyword that is not
//! understood makes [`Kinds`] larger, never smaller, so that a string which might be valid is never
//! taken for one that is not. Work is bounded by [`VISITS_MAX`] schemas per question, which also
//! ends cycles of references. Deliberately absent: remote references, and `$id` inside a schema;
//! the schemas of our packs have neither.

use std::ops::{BitAnd, BitOr};

use serde_json::{Map, Value};

/// How many schemas one question about one place may look at.
const VISITS_MAX: usize = 256;

type Object = Map<String, Value>;

/// A set of kinds of JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    const NONE: Self = Self(0);
    pub(super) const STRING: Self = Self(1);
    pub(super) const INTEGER: Self = Self(2);
    /// Numbers that are not integers.
    pub(super) const FRACTION: Self = Self(4);
    pub(super) const OBJECT: Self = Self(8);
    pub(super) const ARRAY: Self = Self(16);
    const OTHER: Self = Self(32);
    const ALL: Self = Self(63);

    pub(super) fn has(self, kind: Self) -> bool {
        (self & kind) != Self::NONE
    }

    fn of_type(name: &Value) -> Self {
        match name.as_str() {
            Some("string") => Self::STRING,
            Some("integer") => Self::INTEGER,
            Some("number") => Self::INTEGER | Self::FRACTION,
            Some("object") => Self::OBJECT,
            Some("array") => Self::ARRAY,
            Some("boolean" | "null") => Self::OTHER,
            _ => Self::ALL,
        }
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::String(_) => Self::STRING,
            Value::Number(number) if number.is_f64() => Self::INTEGER | Self::FRACTION,
            Value::Number(_) => Self::INTEGER,
            Value::Object(_) => Self::OBJECT,
            Value::Array(_) => Self::ARRAY,
            Value::Bool(_) | Value::Null => Self::OTHER,
        }
    }
}

impl BitAnd for Kinds {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Kinds {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The types that may be valid at a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admits {
    pub(super) kinds: Kinds,
    /// An `enum` or `const` lists a string, valid or not: strings mean something here.
    pub(super) names_strings: bool,
}

impl Admits {
    const ANYTHING: Self = Self {
        kinds: Kinds::ALL,
        names_strings: false,
    };
    /// The answer when the visits are used up.
    const UNKNOWN: Self = Self {
        kinds: Kinds::ALL,
        names_strings: true,
    };

    fn narrow(&mut self, other: Self) {
        self.kinds = self.kinds & other.kinds;
        self.names_strings |= other.names_strings;
    }
}

/// A tool's input schema, for questions about places in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schemas<'a> {
    pub(super) root: &'a Value,
    /// Up to draft 7 a `$ref` hides its neighbours.
    ref_alone: bool,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let dialect = root.get("$schema").and_then(Value::as_str);
        Self {
            root,
            ref_alone: dialect.is_some_and(|uri| uri.contains("/draft-0")),
        }
    }

    pub(super) fn admits(&self, place: &[&'a Value]) -> Admits {
        let mut visits = VISITS_MAX;
        let mut admits = Admits::ANYTHING;
        for schema in place {
            admits.narrow(self.look(schema, &mut visits));
        }
        admits
    }

    /// Every schema object that applies to a value of `kind` at `place`.
    pub(super) fn conjuncts(&self, place: &[&'a Value], kind: Kinds) -> Vec<&'a Object> {
        let mut found: Vec<&'a Object> = Vec::new();
        let mut open: Vec<&'a Value> = place.iter().rev().copied().collect();
        while let Some(schema) = open.pop() {
            let Value::Object(object) = schema else {
                continue;
            };
            if found.iter().any(|known| std::ptr::eq(*known, object)) {
                continue;
            }
            if found.len() == VISITS_MAX {
                break;
            }
            if let Some(target) = self.target(object) {
                open.extend(target);
                if self.ref_alone {
                    continue;
                }
            }
            found.push(object);
            open.extend(branches(object, "allOf"));
            for keyword in ["anyOf", "oneOf"] {
                let mut fit = branches(object, keyword)
                    .filter(|branch| self.admits(&[branch]).kinds.has(kind));
                if let (Some(only), None) = (fit.next(), fit.next()) {
                    open.push(only);
                }
            }
        }
        found
    }

    fn look(&self, schema: &'a Value, visits: &mut usize) -> Admits {
        let Some(left) = visits.checked_sub(1) else {
            return Admits::UNKNOWN;
        };
        *visits = left;
        let object = match schema {
            Value::Object(object) => object,
            Value::Bool(false) => {
                return Admits {
                    kinds: Kinds::NONE,
                    names_strings: false,
                };
            }
            _ => return Admits::ANYTHING,
        };
        let mut admits = Admits::ANYTHING;
        if let Some(target) = self.target(object) {
            admits.narrow(target.map_or(Admits::ANYTHING, |target| self.look(target, visits)));
            if self.ref_alone {
                return admits;
            }
        }
        admits.narrow(own_keywords(object));
        for branch in branches(object, "allOf") {
            admits.narrow(self.look(branch, visits));
        }
        for keyword in ["anyOf", "oneOf"] {
            let any = branches(object, keyword)
                .map(|branch| self.look(branch, visits))
                .reduce(|a, b| Admits {
                    kinds: a.kinds | b.kinds,
                    names_strings: a.names_strings | b.names_strings,
                });
            admits.narrow(any.unwrap_or(Admits::ANYTHING));
        }
        admits
    }

    /// Where a `$ref` leads: `Some(None)` when it is there and leads nowhere this can follow.
    fn target(&self, object: &'a Object) -> Option<Option<&'a Value>> {
        let reference = object.get("$ref")?;
        let pointer = reference.as_str().and_then(|uri| uri.strip_prefix('#'));
        // An escaped fragment is legal and never needed; it stays unknown.
        let pointer = pointer.filter(|pointer| !pointer.contains('%'));
        Some(pointer.and_then(|pointer| self.root.pointer(pointer)))
    }
}

/// True if `schema` itself declares the property.
pub(super) fn declares(schema: &Object, name: &str) -> bool {
    schema
        .get("properties")
        .is_some_and(|properties| properties.get(name).is_some())
}

/// The schemas of a property, from every conjunct that says something about it.
pub(super) fn property<'a>(conjuncts: &[&'a Object], name: &str) -> Vec<&'a Value> {
    let schema = |object: &&'a Object| {
        let named = object
            .get("properties")
            .and_then(|properties| properties.get(name));
        // Patterns are not matched here, so with them additional members are unknown.
        let additional = || match object.contains_key("patternProperties") {
            true => None,
            false => object.get("additionalProperties"),
        };
        named.or_else(additional)
    };
    conjuncts.iter().filter_map(schema).collect()
}

/// The schemas of an element, from every conjunct that says something about it.
pub(super) fn element<'a>(conjuncts: &[&'a Object], index: usize) -> Vec<&'a Value> {
    let schema = |object: &&'a Object| {
        let tuple = object.get("prefixItems").and_then(Value::as_array);
        match (tuple, object.get("items")) {
            (Some(tuple), rest) => tuple.get(index).or(rest),
            // Up to draft 2019-09 a tuple is an array in `items`.
            (None, Some(Value::Array(tuple))) => {
                tuple.get(index).or_else(|| object.get("additionalItems"))
            }
            (None, rest) => rest,
        }
    };
    conjuncts.iter().filter_map(schema).collect()
}

/// True if elements at different places have different schemas.
pub(super) fn is_tuple(object: &Object) -> bool {
    object.contains_key("prefixItems") || object.get("items").is_some_and(Value::is_array)
}

fn own_keywords(object: &Object) -> Admits {
    let mut admits = Admits::ANYTHING;
    let union = |kinds: &mut dyn Iterator<Item = Kinds>| kinds.fold(Kinds::NONE, Kinds::bitor);
    if let Some(types) = object.get("type") {
        admits.kinds = match types {
            Value::Array(names) => union(&mut names.iter().map(Kinds::of_type)),
            name => Kinds::of_type(name),
        };
    }
    if let Some(Value::Array(values)) = object.get("enum") {
        let kinds = union(&mut values.iter().map(Kinds::of_value));
        admits.narrow(Admits {
            kinds,
            names_strings: kinds.has(Kinds::STRING),
        });
    }
    if let Some(value) = object.get("const") {
        let kinds = Kinds::of_value(value);
        admits.narrow(Admits {
            kinds,
            names_strings: value.is_string(),
        });
    }
    admits
}

fn branches<'a>(object: &'a Object, keyword: &str) -> impl Iterator<Item = &'a Value> {
    object
        .get(keyword)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}
