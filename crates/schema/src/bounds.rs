//! Rejects schemas that are too expensive, before they are compiled.
//!
//! A small document can ask for a lot of work: definitions that each refer twice to
//! the next one double the work with every line, and a long chain of references takes
//! stack. Both show in the graph of schemas that apply to the same place of a value.
//! A cycle in that graph costs nothing more, since `jsonschema` cuts it.

use std::collections::HashMap;

use serde_json::Value;

use crate::{
    CompileError, Limits,
    keywords::{Place, is_classic, references, subschemas},
    world::{At, Reached, World},
};

/// How deeply `value` is nested; a scalar is not.
pub(crate) fn depth(value: &Value) -> u32 {
    let deepest = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => return 0,
    };
    deepest.unwrap_or_default().saturating_add(1)
}

/// Fails when `schema` is nested too deeply or holds too many values. Looks no deeper
/// than the limit, so a bomb does no harm here.
pub(crate) fn check_size(schema: &Value, limits: &Limits) -> Result<(), CompileError> {
    let mut left = limits.schema_values;
    count(schema, limits.schema_depth, &mut left).map_err(|reason| match reason {
        Excess::Depth => CompileError::TooDeep {
            limit: limits.schema_depth,
        },
        Excess::Values => CompileError::TooLarge {
            limit: limits.schema_values,
        },
    })
}

/// True if `value` holds more than `limit` JSON values.
pub(crate) fn exceeds(value: &Value, limit: usize) -> bool {
    count(value, usize::MAX, &mut limit.clone()).is_err()
}

/// The number of JSON values in `value`.
pub(crate) fn values(value: &Value) -> usize {
    let mut left = usize::MAX;
    // Neither limit can be reached.
    let _ = count(value, usize::MAX, &mut left);
    usize::MAX - left
}

/// The most schemas that one place of a value could meet; fails when there are too many.
pub(crate) fn check_work(
    world: &World,
    reach: &Reached,
    limits: &Limits,
) -> Result<u64, CompileError> {
    let mut work = Work {
        world,
        reach,
        limits,
        known: HashMap::new(),
    };
    let mut most = 1;
    for at in &reach.schemas {
        most = most.max(work.cost(at, 0)?.schemas);
    }
    Ok(most)
}

enum Excess {
    Depth,
    Values,
}

fn count(value: &Value, depth: usize, left: &mut usize) -> Result<(), Excess> {
    *left = left.checked_sub(1).ok_or(Excess::Values)?;
    let deeper = || depth.checked_sub(1).ok_or(Excess::Depth);
    match value {
        Value::Array(items) => {
            let depth = deeper()?;
            items.iter().try_for_each(|item| count(item, depth, left))
        }
        Value::Object(members) => {
            let depth = deeper()?;
            members
                .values()
                .try_for_each(|member| count(member, depth, left))
        }
        _ => Ok(()),
    }
}

#[derive(Clone, Copy)]
struct Cost {
    schemas: u64,
    depth: usize,
}

struct Work<'a> {
    world: &'a World,
    reach: &'a Reached,
    limits: &'a Limits,
    /// `None` while a schema is being counted.
    known: HashMap<At, Option<Cost>>,
}

impl Work<'_> {
    /// The schemas that apply where the one at `at` applies, itself included.
    fn cost(&mut self, at: &At, depth: usize) -> Result<Cost, CompileError> {
        let none = Cost {
            schemas: 0,
            depth: 0,
        };
        if let Some(known) = self.known.get(at) {
            return Ok(known.unwrap_or(none));
        }
        let too_much = || {
            let error = CompileError::TooMuchWork {
                pointer: at.pointer.clone(),
            };
            self.world.placed(at.document, error)
        };
        if depth > self.limits.in_place_depth {
            return Err(too_much());
        }
        self.known.insert(at.clone(), None);
        let mut cost = Cost {
            schemas: 1,
            depth: 1,
        };
        for next in self.next(at) {
            let part = self.cost(&next, depth + 1)?;
            cost.schemas = cost.schemas.saturating_add(part.schemas);
            cost.depth = cost.depth.max(part.depth + 1);
        }
        if cost.schemas > self.limits.in_place_schemas || cost.depth > self.limits.in_place_depth {
            return Err(self.world.placed(
                at.document,
                CompileError::TooMuchWork {
                    pointer: at.pointer.clone(),
                },
            ));
        }
        self.known.insert(at.clone(), Some(cost));
        Ok(cost)
    }

    fn next(&self, at: &At) -> Vec<At> {
        let mut next = Vec::new();
        let Some(schema) = self.world.schema(at).and_then(Value::as_object) else {
            return next;
        };
        let draft = self.world.draft(at);
        for (keyword, text) in references(schema, draft) {
            // It may lead to any anchor of its name, depending on the way to it.
            match (keyword, text.rsplit_once('#')) {
                ("$dynamicRef", Some((_, name))) if !name.starts_with('/') => {
                    next.extend(self.world.dynamic_anchors(self.reach, name));
                }
                _ => {}
            }
            next.extend(self.world.resolve(at, text));
        }
        if is_classic(draft) && schema.contains_key("$ref") {
            return next;
        }
        subschemas(schema, &at.pointer, draft, &mut |pointer, _, place| {
            if place == Place::Here {
                next.push(At {
                    document: at.document,
                    pointer,
                });
            }
        });
        next.sort_unstable();
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Map, json};

    use super::*;

    fn work(schema: &Value) -> Result<u64, CompileError> {
        let world = World::of_schema(&Arc::default(), schema, &Limits::DEFAULT);
        check_work(&world, &world.reach(), &Limits::DEFAULT)
    }

    fn definitions(count: usize, next: impl Fn(String) -> Value) -> Value {
        let mut all: Map<_, _> = (0..count)
            .map(|at| (format!("d{at}"), next(format!("#/$defs/d{}", at + 1))))
            .collect();
        all.insert(format!("d{count}"), json!({"type": "string"}));
        json!({"$ref": "#/$defs/d0", "$defs": all})
    }

    #[test]
    fn doubling_references_are_refused() {
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let bomb = definitions(
                30,
                |next| json!({keyword: [{"$ref": next}, {"$ref": next}]}),
            );
            assert!(
                matches!(work(&bomb), Err(CompileError::TooMuchWork { .. })),
                "{keyword}"
            );
        }
    }

    #[test]
    fn long_reference_chains_are_refused_and_short_ones_are_not() {
        assert!(work(&definitions(20, |next| json!({"allOf": [{"$ref": next}]}))).is_ok());
        let long = definitions(10_000, |next| json!({"$ref": next}));
        assert!(matches!(work(&long), Err(CompileError::TooMuchWork { .. })));
    }

    #[test]
    fn recursion_through_parts_and_cycles_in_place_cost_nothing_more() {
        let tree = json!({"$defs": {"node": {"anyOf": [
            {"properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}}},
            {"items": {"$ref": "#/$defs/node"}}
        ]}}, "$ref": "#/$defs/node"});
        assert_eq!(work(&tree), Ok(4));
        let cycle = json!({"$defs": {
            "a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}
        }, "$ref": "#/$defs/a"});
        assert!(work(&cycle).is_ok());
    }

    #[test]
    fn size_is_counted_no_further_than_the_limit() {
        assert!(check_size(&json!({"a": [1, 2]}), &Limits::DEFAULT).is_ok());
        let wide = Value::from(vec![0; 200_000]);
        assert!(matches!(
            check_size(&wide, &Limits::DEFAULT),
            Err(CompileError::TooLarge { limit: 100_000 })
        ));
        assert!(exceeds(&wide, 200_000));
        assert!(!exceeds(&wide, 200_001));
    }
}
