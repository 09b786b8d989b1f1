//! A schema cut into forms without references and alternatives.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map, Value, json};

use crate::{
    Limits, bounds,
    dialect::Dialect,
    keywords::{Shape, is_classic, join, reference_keywords, shape},
    link::Linked,
    world::{At, Reached, World},
};

/// The keyword that stands for what was cut out. Its value lists stops.
pub(crate) const STOP: &str = "x-mainstay-stop";

/// All forms together may hold this many times the values a schema may hold: forms
/// can overlap, since a reference may lead into the middle of another.
const OVERLAP: usize = 4;

pub(crate) struct Cut {
    /// The first is the root.
    pub(crate) forms: Vec<CutForm>,
    pub(crate) stops: Vec<Stop>,
}

pub(crate) struct CutForm {
    pub(crate) at: At,
    pub(crate) dialect: Arc<Dialect>,
    pub(crate) schema: Value,
}

/// The parts cut out at one place. Forms are numbers into [`Cut::forms`], addresses
/// are URIs of schemas.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A reference, or a schema in another dialect.
    Reference { form: usize, address: String },
    /// `anyOf`, or `oneOf` if `one`.
    Union {
        one: bool,
        branches: Vec<(usize, String)>,
    },
    /// A reference that cannot be followed here, by the schema that holds it.
    Opaque { address: String },
    /// A schema with `unevaluatedProperties` or `unevaluatedItems`, which depend on
    /// everything else in it.
    Whole { address: String },
}

impl Stop {
    /// A schema that says whether a value passes this stop.
    pub(crate) fn schema(&self) -> Value {
        let reference = |address: &str| json!({"$ref": address});
        match self {
            Self::Reference { address, .. } => reference(address),
            Self::Union { one, branches } => {
                let branches: Vec<_> = branches.iter().map(|(_, at)| reference(at)).collect();
                json!({if *one { "oneOf" } else { "anyOf" }: branches})
            }
            Self::Opaque { address } | Self::Whole { address } => reference(address),
        }
    }
}

pub(crate) fn cut(world: &World, reach: &Reached, linked: &Linked, limits: &Limits) -> Option<Cut> {
    let mut cutter = Cutter {
        world,
        reach,
        linked,
        numbers: HashMap::new(),
        forms: Vec::new(),
        stops: Vec::new(),
    };
    cutter.form(world.root())?;
    let mut left = limits.schema_values.saturating_mul(OVERLAP);
    let mut next = 0;
    while let Some(form) = cutter.forms.get(next) {
        let (at, dialect) = (form.at.clone(), Arc::clone(&form.dialect));
        let source = world.schema(&at)?;
        let schema = cutter.schema(source, &at, &dialect);
        left = left.checked_sub(bounds::values(&schema))?;
        if let Some(form) = cutter.forms.get_mut(next) {
            form.schema = schema;
        }
        next += 1;
    }
    Some(Cut {
        forms: cutter.forms,
        stops: cutter.stops,
    })
}

struct Cutter<'a> {
    world: &'a World,
    reach: &'a Reached,
    linked: &'a Linked,
    numbers: HashMap<At, usize>,
    forms: Vec<CutForm>,
    stops: Vec<Stop>,
}

impl Cutter<'_> {
    /// The number of the form at `at`, which is cut later if it is new.
    fn form(&mut self, at: At) -> Option<usize> {
        if let Some(known) = self.numbers.get(&at) {
            return Some(*known);
        }
        let new = self.forms.len();
        self.forms.push(CutForm {
            dialect: Arc::clone(self.world.dialect(&at)?),
            schema: Value::Null,
            at: at.clone(),
        });
        self.numbers.insert(at, new);
        Some(new)
    }

    /// The schema at `at`, cut for a form in `dialect`.
    fn schema(&mut self, source: &Value, at: &At, dialect: &Arc<Dialect>) -> Value {
        let Value::Object(members) = source else {
            return source.clone();
        };
        if self.world.dialect(at) != Some(dialect) {
            let stop = self.reference(Some(at.clone()), at);
            return Value::Object(self.stopped(Map::new(), vec![stop]));
        }
        let mut kept = Map::new();
        let mut stops = Vec::new();
        let alone = is_classic(dialect.draft) && members.contains_key("$ref");
        let mut whole = false;
        for (keyword, value) in members {
            if alone && keyword != "$ref" {
                continue;
            }
            match keyword.as_str() {
                "$ref" => {
                    let target = value.as_str();
                    let target = target.and_then(|text| self.world.resolve(at, text).ok());
                    stops.push(self.reference(target, at));
                }
                "$dynamicRef" if reference_keywords(dialect.draft).contains(&"$dynamicRef") => {
                    let target = value
                        .as_str()
                        .and_then(|text| self.world.resolve_dynamic(self.reach, at, text));
                    stops.push(self.reference(target, at));
                }
                "$recursiveRef" if reference_keywords(dialect.draft).contains(&"$recursiveRef") => {
                    stops.push(self.reference(None, at));
                }
                "anyOf" | "oneOf" => stops.extend(self.union(keyword, value, at)),
                "unevaluatedProperties" | "unevaluatedItems"
                    if shape(keyword, dialect.draft).is_some() =>
                {
                    whole = true;
                }
                // Names and shelves mean nothing in a form.
                "$schema" | "$id" | "id" | "$anchor" | "$dynamicAnchor" | "$recursiveAnchor"
                | "$vocabulary" | "$comment" | "$defs" | "definitions" | STOP => {}
                _ => {
                    let value = self.value(keyword, value, at, dialect);
                    kept.insert(keyword.clone(), value);
                }
            }
        }
        // Without `properties` beside it the error would not name the members.
        if kept.get("additionalProperties") == Some(&Value::Bool(false)) {
            kept.entry("properties").or_insert_with(|| json!({}));
        }
        if whole {
            stops.push(Stop::Whole {
                address: self.linked.address(at),
            });
        }
        Value::Object(self.stopped(kept, stops))
    }

    /// `schema` with these stops in it.
    fn stopped(&mut self, mut schema: Map<String, Value>, stops: Vec<Stop>) -> Map<String, Value> {
        if !stops.is_empty() {
            let first = self.stops.len();
            self.stops.extend(stops);
            let ids: Vec<_> = (first..self.stops.len()).collect();
            schema.insert(STOP.to_owned(), ids.into());
        }
        schema
    }

    /// The value of a keyword that stays, its subschemas cut.
    fn value(&mut self, keyword: &str, value: &Value, at: &At, dialect: &Arc<Dialect>) -> Value {
        let Some((shape, _)) = shape(keyword, dialect.draft) else {
            return value.clone();
        };
        let pointer = join(&at.pointer, keyword);
        let mut part = |value: &Value, pointer: String| {
            let document = at.document;
            self.schema(value, &At { document, pointer }, dialect)
        };
        match (shape, value) {
            (Shape::One | Shape::OneOrList, Value::Object(_)) => part(value, pointer),
            (Shape::List | Shape::OneOrList, Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, item)| part(item, format!("{pointer}/{index}")))
                .collect(),
            (Shape::Map, Value::Object(members)) => Value::Object(
                members
                    .iter()
                    .map(|(name, member)| (name.clone(), part(member, join(&pointer, name))))
                    .collect(),
            ),
            _ => value.clone(),
        }
    }

    /// The stop for a reference at `at` to `target`, if that is known.
    fn reference(&mut self, target: Option<At>, at: &At) -> Stop {
        let known = target.and_then(|target| {
            let address = self.linked.address(&target);
            Some((self.form(target)?, address))
        });
        match known {
            Some((form, address)) => Stop::Reference { form, address },
            None => Stop::Opaque {
                address: self.linked.address(at),
            },
        }
    }

    fn union(&mut self, keyword: &str, value: &Value, at: &At) -> Option<Stop> {
        let branches = (0..value.as_array()?.len())
            .map(|index| {
                let branch = At {
                    document: at.document,
                    pointer: format!("{}/{index}", join(&at.pointer, keyword)),
                };
                let address = self.linked.address(&branch);
                Some((self.form(branch)?, address))
            })
            .collect::<Option<_>>()?;
        Some(Stop::Union {
            one: keyword == "oneOf",
            branches,
        })
    }
}
