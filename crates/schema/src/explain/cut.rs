//! A schema cut into forms without references and alternatives.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::{
    Limits, bounds,
    document::Document,
    keywords::{Shape, join, shape},
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
    pointer: String,
    pub(crate) schema: Value,
}

/// What was cut out at one place. Forms are numbers into [`Cut::forms`], addresses
/// are URIs of schemas in the document.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A reference within the document.
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

pub(crate) fn cut(document: &Document<'_>, limits: &Limits) -> Option<Cut> {
    let mut cutter = Cutter {
        document,
        numbers: HashMap::new(),
        forms: Vec::new(),
        stops: Vec::new(),
    };
    cutter.form(String::new());
    let mut left = limits.schema_values.saturating_mul(OVERLAP);
    let mut next = 0;
    while let Some(form) = cutter.forms.get(next) {
        let pointer = form.pointer.clone();
        let source = document.root.pointer(&pointer)?;
        let schema = cutter.schema(source, &pointer);
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
    document: &'a Document<'a>,
    numbers: HashMap<String, usize>,
    forms: Vec<CutForm>,
    stops: Vec<Stop>,
}

impl Cutter<'_> {
    /// The number of the form at `pointer`, which is cut later if it is new.
    fn form(&mut self, pointer: String) -> usize {
        let new = self.forms.len();
        *self.numbers.entry(pointer).or_insert_with_key(|pointer| {
            self.forms.push(CutForm {
                pointer: pointer.clone(),
                schema: Value::Null,
            });
            new
        })
    }

    fn schema(&mut self, source: &Value, pointer: &str) -> Value {
        let Value::Object(members) = source else {
            return source.clone();
        };
        let mut kept = Map::new();
        let mut stops = Vec::new();
        let alone = !self.document.refs_have_siblings() && members.contains_key("$ref");
        let mut whole = false;
        for (keyword, value) in members {
            if alone && keyword != "$ref" {
                continue;
            }
            match keyword.as_str() {
                "$ref" => stops.push(self.reference(value, pointer)),
                "$dynamicRef" | "$recursiveRef" => stops.push(Stop::Opaque {
                    address: self.document.address(pointer),
                }),
                "anyOf" | "oneOf" => stops.extend(self.union(keyword, value, pointer)),
                "unevaluatedProperties" | "unevaluatedItems" => whole = true,
                // Names and shelves mean nothing in a form.
                "$schema" | "$id" | "id" | "$anchor" | "$dynamicAnchor" | "$recursiveAnchor"
                | "$vocabulary" | "$comment" | "$defs" | "definitions" | STOP => {}
                _ => {
                    let value = self.value(keyword, value, pointer);
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
                address: self.document.address(pointer),
            });
        }
        if !stops.is_empty() {
            let first = self.stops.len();
            self.stops.extend(stops);
            let ids: Vec<_> = (first..self.stops.len()).collect();
            kept.insert(STOP.to_owned(), ids.into());
        }
        Value::Object(kept)
    }

    /// The value of a keyword that stays, its subschemas cut.
    fn value(&mut self, keyword: &str, value: &Value, pointer: &str) -> Value {
        let Some((shape, _)) = shape(keyword) else {
            return value.clone();
        };
        let at = join(pointer, keyword);
        match (shape, value) {
            (Shape::One | Shape::OneOrList, Value::Object(_)) => self.schema(value, &at),
            (Shape::List | Shape::OneOrList, Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, item)| self.schema(item, &format!("{at}/{index}")))
                .collect(),
            (Shape::Map, Value::Object(members)) => Value::Object(
                members
                    .iter()
                    .map(|(name, member)| (name.clone(), self.schema(member, &join(&at, name))))
                    .collect(),
            ),
            _ => value.clone(),
        }
    }

    fn reference(&mut self, value: &Value, pointer: &str) -> Stop {
        let target = value
            .as_str()
            .and_then(|text| self.document.resolve(pointer, text));
        match target {
            Some(target) => Stop::Reference {
                address: self.document.address(&target),
                form: self.form(target),
            },
            None => Stop::Opaque {
                address: self.document.address(pointer),
            },
        }
    }

    fn union(&mut self, keyword: &str, value: &Value, pointer: &str) -> Option<Stop> {
        let at = join(pointer, keyword);
        let branches = (0..value.as_array()?.len())
            .map(|index| {
                let branch = format!("{at}/{index}");
                let address = self.document.address(&branch);
                (self.form(branch), address)
            })
            .collect();
        Some(Stop::Union {
            one: keyword == "oneOf",
            branches,
        })
    }
}
