//! Which members an object has, and which it must have: `properties` and `required` together.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::rules::Kind;
use super::walk::{Side, Walk};
use crate::keywords::join;

impl Walk<'_> {
    /// Compares the members of two object schemas.
    pub(super) fn members(
        &mut self,
        at: &str,
        grows: bool,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
    ) {
        let (Some(before), Some(after)) = (Members::of(old), Members::of(new)) else {
            for keyword in ["properties", "required"] {
                let (old, new) = (old.get(keyword), new.get(keyword));
                if old != new {
                    self.found(Kind::SchemaRearranged, &join(at, keyword), old, new);
                }
            }
            return;
        };
        let harmless = grows && self.takes_no_place(old, new);
        let place = join(at, "properties");
        for name in before.names().union(&after.names()) {
            let place = join(&place, name);
            let (was, is) = (
                before.required.contains(name),
                after.required.contains(name),
            );
            match (before.listed.get(name), after.listed.get(name)) {
                (Some(before), Some(after)) => {
                    self.requirement(&place, was, is);
                    self.schema(&place, grows, before, after);
                }
                (None, after) if !was => {
                    let kind =
                        match (is, harmless) {
                            (true, _) => self
                                .pick(Kind::RequiredArgumentAdded, Kind::RequiredResultFieldAdded),
                            (false, true) => self
                                .pick(Kind::OptionalArgumentAdded, Kind::OptionalResultFieldAdded),
                            // Until now it could have come as anything.
                            (false, false) => {
                                self.pick(Kind::ArgumentTightened, Kind::ResultConstraintChanged)
                            }
                        };
                    self.found(kind, &place, None, after);
                }
                (before, None) if !is => {
                    let of_result = if was {
                        Kind::RequiredResultFieldRemoved
                    } else {
                        Kind::OptionalResultFieldRemoved
                    };
                    let kind = self.pick(Kind::ArgumentRemoved, of_result);
                    self.found(kind, &place, before, None);
                }
                // Required all the time and described at one of them, or at neither.
                (before, after) => {
                    if before != after {
                        let kind = self.pick(
                            Kind::ArgumentConstraintChanged,
                            Kind::ResultConstraintChanged,
                        );
                        self.found(kind, &place, before, after);
                    }
                    self.requirement(&place, was, is);
                }
            }
        }
        for keyword in ["properties", "required"] {
            let (old, new) = (old.get(keyword), new.get(keyword));
            let same = match keyword {
                "required" => before.required == after.required,
                _ => before.listed.is_empty() && after.listed.is_empty(),
            };
            if same && old != new {
                self.found(Kind::FormChanged, &join(at, keyword), old, new);
            }
        }
    }

    fn requirement(&mut self, place: &str, was: bool, is: bool) {
        let kind = match (was, is) {
            (false, true) => self.pick(
                Kind::ArgumentBecameRequired,
                Kind::ResultFieldBecameRequired,
            ),
            (true, false) => self.pick(
                Kind::ArgumentBecameOptional,
                Kind::ResultFieldBecameOptional,
            ),
            _ => return,
        };
        self.found(kind, place, Some(&was.into()), Some(&is.into()));
    }

    /// True if a member that is not listed yet means nothing yet: arguments that were not listed
    /// must have been refused, fields of a result must not have been promised by their pattern.
    fn takes_no_place(&self, old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
        let side = self.side();
        [old, new].iter().all(|schema| {
            let others = schema.get("additionalProperties");
            let free = match side {
                Side::Arguments => others == Some(&Value::Bool(false)),
                Side::Result => others.is_none_or(Value::is_boolean),
            };
            free && !schema.contains_key("patternProperties")
        })
    }
}

/// The members of one object schema.
struct Members<'a> {
    listed: Listed<'a>,
    required: BTreeSet<&'a str>,
}

/// The value of `properties`, if it is there.
struct Listed<'a>(Option<&'a Map<String, Value>>);

impl<'a> Listed<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.and_then(|members| members.get(name))
    }

    fn is_empty(&self) -> bool {
        self.0.is_none_or(Map::is_empty)
    }
}

impl<'a> Members<'a> {
    /// Nothing where the keywords are not what they must be.
    fn of(schema: &'a Map<String, Value>) -> Option<Self> {
        let listed = match schema.get("properties") {
            None => None,
            Some(Value::Object(members)) => Some(members),
            Some(_) => return None,
        };
        let required = match schema.get("required") {
            None => BTreeSet::new(),
            Some(Value::Array(names)) => names.iter().map(Value::as_str).collect::<Option<_>>()?,
            Some(_) => return None,
        };
        Some(Self {
            listed: Listed(listed),
            required,
        })
    }

    fn names(&self) -> BTreeSet<&'a str> {
        let listed = self.listed.0.into_iter().flat_map(Map::keys);
        let mut names: BTreeSet<&str> = listed.map(String::as_str).collect();
        names.extend(&self.required);
        names
    }
}
