//! Two schemas of the same thing, side by side, and every difference between them by its kind.
//!
//! The walk knows where a schema holds schemas, so a member called `description` is not taken for
//! a description. References are not followed: what they lead to is compared where it stands. A
//! difference that the walk does not understand is [`Kind::SchemaRearranged`].
//!
//! Members that are added and not required are harmless only where they cannot take anything
//! away: not below `not` or `oneOf`, say, where to permit more can mean to permit less.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::reach::{is_anchored, is_doubtful, is_schema, is_shelf, shape};
use super::rules::Kind;
use crate::keywords::{Shape, join};
use mainstay_contract::canonical::canonical_json;

/// The values that a schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Arguments,
    Result,
}

/// A difference: kind, place, before, after.
pub(crate) type Report<'a> = &'a mut dyn FnMut(Kind, String, Option<&Value>, Option<&Value>);

/// Reports every difference between two schemas that stand at `pointer`.
pub(crate) fn compare_schemas(
    side: Side,
    pointer: &str,
    old: &Value,
    new: &Value,
    report: Report<'_>,
) {
    let doubtful = is_doubtful(old) || is_doubtful(new);
    let mut walk = Walk {
        side,
        doubtful,
        report,
    };
    walk.schema(pointer, !doubtful, old, new);
}

/// Keywords for people: no call turns out otherwise because of them.
const WORDS: [&str; 5] = ["$comment", "deprecated", "description", "examples", "title"];
const LOWER_BOUNDS: [&str; 5] = [
    "exclusiveMinimum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
];
const UPPER_BOUNDS: [&str; 5] = [
    "exclusiveMaximum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
];
const CONSTRAINTS: [&str; 8] = [
    "const",
    "contentEncoding",
    "contentMediaType",
    "dependentRequired",
    "format",
    "multipleOf",
    "pattern",
    "uniqueItems",
];
/// To permit more below these is to permit more, or as much, in the whole.
const GROWING: [&str; 10] = [
    "$defs",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "definitions",
    "items",
    "patternProperties",
    "prefixItems",
    "properties",
];

pub(super) struct Walk<'a> {
    side: Side,
    /// Something in the schema makes the reach of a place hard to tell.
    doubtful: bool,
    report: Report<'a>,
}

impl Walk<'_> {
    /// `grows`: whether permitting more here permits nothing less in the whole. The depth is that
    /// of the documents, which their parser has bounded.
    pub(super) fn schema(&mut self, at: &str, grows: bool, old: &Value, new: &Value) {
        let (Value::Object(before), Value::Object(after)) = (old, new) else {
            if old != new {
                self.found(Kind::SchemaRearranged, at, Some(old), Some(new));
            }
            return;
        };
        self.members(at, grows, before, after);
        let keywords: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for keyword in keywords {
            let (old, new) = (before.get(keyword), after.get(keyword));
            if old != new && !matches!(keyword.as_str(), "properties" | "required") {
                self.keyword(at, grows, keyword, old, new);
            }
        }
    }

    fn keyword(
        &mut self,
        at: &str,
        grows: bool,
        keyword: &str,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        let at = join(at, keyword);
        let kind = match keyword {
            "type" => self.types(old, new),
            "enum" => return self.values(&at, old, new),
            "default" => self.pick(Kind::ArgumentDefaultChanged, Kind::ResultDefaultChanged),
            "additionalProperties" => match (old, new) {
                (Some(old @ Value::Object(_)), Some(new @ Value::Object(_))) => {
                    return self.schema(&at, grows, old, new);
                }
                _ => self.openness(old, new),
            },
            word if WORDS.contains(&word) => self.pick(
                Kind::ArgumentDescriptionChanged,
                Kind::ResultDescriptionChanged,
            ),
            bound if LOWER_BOUNDS.contains(&bound) => self.bound(old, new, f64::gt),
            bound if UPPER_BOUNDS.contains(&bound) => self.bound(old, new, f64::lt),
            constraint if CONSTRAINTS.contains(&constraint) => self.constraint(old, new),
            holder => match shape(holder) {
                Some(shape) => {
                    let grows = grows && GROWING.contains(&holder);
                    return self.held(&at, grows, shape, old, new);
                }
                None => Kind::SchemaRearranged,
            },
        };
        self.found(kind, &at, old, new);
    }

    fn types(&self, old: Option<&Value>, new: Option<&Value>) -> Kind {
        let names = |value: Option<&Value>| -> Option<BTreeSet<String>> {
            match value? {
                Value::String(name) => Some(BTreeSet::from([name.clone()])),
                Value::Array(names) => names
                    .iter()
                    .map(|name| name.as_str().map(str::to_owned))
                    .collect(),
                _ => None,
            }
        };
        match (names(old), names(new)) {
            (Some(old), Some(new)) if old == new => Kind::FormChanged,
            _ => self.pick(Kind::ArgumentTypeChanged, Kind::ResultTypeChanged),
        }
    }

    fn values(&mut self, at: &str, old: Option<&Value>, new: Option<&Value>) {
        let (Some(Value::Array(before)), Some(Value::Array(after))) = (old, new) else {
            let kind = self.constraint(old, new);
            return self.found(kind, at, old, new);
        };
        let texts =
            |values: &[Value]| -> BTreeSet<String> { values.iter().map(canonical_json).collect() };
        let (known, present) = (texts(before), texts(after));
        if known == present {
            return self.found(Kind::FormChanged, at, old, new);
        }
        for value in before {
            if !present.contains(&canonical_json(value)) {
                let kind = self.pick(Kind::ArgumentValueRemoved, Kind::ResultValueRemoved);
                self.found(kind, at, Some(value), None);
            }
        }
        for value in after {
            if !known.contains(&canonical_json(value)) {
                let kind = self.pick(Kind::ArgumentValueAdded, Kind::ResultValueAdded);
                self.found(kind, at, None, Some(value));
            }
        }
    }

    /// True if members that are not listed may come.
    fn openness(&self, old: Option<&Value>, new: Option<&Value>) -> Kind {
        let rank = |value: Option<&Value>| match value {
            None | Some(Value::Bool(true)) => 2,
            Some(Value::Bool(false)) => 0,
            Some(_) => 1,
        };
        match (rank(old), rank(new)) {
            // With or without it the schema is equal, unless another keyword depends on evaluated members.
            (2, 2) if !self.doubtful => Kind::FormChanged,
            (old, new) if old < new => self.constrained(Kind::ArgumentLoosened),
            (old, new) if old > new => self.constrained(Kind::ArgumentTightened),
            _ => Kind::SchemaRearranged,
        }
    }

    fn bound(
        &self,
        old: Option<&Value>,
        new: Option<&Value>,
        tighter: fn(&f64, &f64) -> bool,
    ) -> Kind {
        let numbers = (old.and_then(Value::as_f64), new.and_then(Value::as_f64));
        match numbers {
            (Some(old), Some(new)) if tighter(&new, &old) => {
                self.constrained(Kind::ArgumentTightened)
            }
            (Some(old), Some(new)) if tighter(&old, &new) => {
                self.constrained(Kind::ArgumentLoosened)
            }
            _ => self.constraint(old, new),
        }
    }

    fn constraint(&self, old: Option<&Value>, new: Option<&Value>) -> Kind {
        self.constrained(match (old, new) {
            (None, _) => Kind::ArgumentTightened,
            (_, None) => Kind::ArgumentLoosened,
            _ => Kind::ArgumentConstraintChanged,
        })
    }

    fn constrained(&self, kind: Kind) -> Kind {
        self.pick(kind, Kind::ResultConstraintChanged)
    }

    /// A keyword that holds schemas.
    fn held(
        &mut self,
        at: &str,
        grows: bool,
        shape: Shape,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        let empty = Value::Object(Map::new());
        let both = match shape {
            // Without a member it says nothing, whether it stands there or not.
            Shape::Map => (old.or(Some(&empty)), new.or(Some(&empty))),
            _ => (old, new),
        };
        match (shape, both) {
            (
                Shape::List | Shape::OneOrList,
                (Some(Value::Array(before)), Some(Value::Array(after))),
            ) if before.len() == after.len() => {
                for (index, (before, after)) in before.iter().zip(after).enumerate() {
                    self.schema(&format!("{at}/{index}"), grows, before, after);
                }
            }
            (Shape::One | Shape::OneOrList, (Some(before), Some(after)))
                if is_schema(before) && is_schema(after) =>
            {
                self.schema(at, grows, before, after);
            }
            (Shape::Map, (Some(Value::Object(before)), Some(Value::Object(after)))) => {
                let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
                if names.is_empty() {
                    self.found(Kind::FormChanged, at, old, new);
                }
                for name in names {
                    let place = join(at, name);
                    match (before.get(name), after.get(name)) {
                        (Some(before), Some(after)) => self.schema(&place, grows, before, after),
                        (None, Some(after)) if is_shelf(at) && !is_anchored(after) => {
                            self.found(Kind::DefinitionAdded, &place, None, Some(after));
                        }
                        (before, after) => {
                            self.found(Kind::SchemaRearranged, &place, before, after);
                        }
                    }
                }
            }
            _ => self.found(Kind::SchemaRearranged, at, old, new),
        }
    }

    /// The kind on this side.
    pub(super) const fn pick(&self, of_arguments: Kind, of_result: Kind) -> Kind {
        match self.side {
            Side::Arguments => of_arguments,
            Side::Result => of_result,
        }
    }

    pub(super) const fn side(&self) -> Side {
        self.side
    }

    pub(super) fn found(
        &mut self,
        kind: Kind,
        at: &str,
        before: Option<&Value>,
        after: Option<&Value>,
    ) {
        (self.report)(kind, at.to_owned(), before, after);
    }
}
