//! Upper bounds on the work of a check, proven before it runs.
//!
//! # Compiling
//!
//! [`profile`] gives bounds for a schema only if all of these hold ([`Cheap`] has the numbers):
//! its text is short; it reaches few subschemas; no reference is recursive, dynamic, or leads out of
//! the document; with every reference replaced by its target it stays small (counted with saturating
//! arithmetic, each target once); every pattern runs in linear time and its automaton is small; and
//! no keyword defeats the bound below (`unevaluatedItems`, `unevaluatedProperties`, `format: regex`).
//!
//! # Checking
//!
//! Without recursion, the path from the root of the expanded schema to one of its nodes fixes the
//! path from the root of the value to every place where that node can apply. So a node applies to a
//! place at most once, and only to places at its own level: the number of steps into a part of the
//! value on its path. A profile therefore has, for each level, the most keyword evaluations at one
//! place of that level; of several `properties` only one can apply to a place, so the largest
//! counts. Levels of the value times levels of the schema, summed up, bound the evaluations.
//!
//! Patterns are bounded likewise: bytes of text at a level times the weight of the patterns there.
//!
//! The bound holds for the yes-or-no check. Explaining a failure repeats it for each branch and
//! reference on the way to the failure, which the limits on nesting and on subschemas keep small.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_contract::json::Json;
use memchr::memchr2_iter;
use serde_json::{Map, Value};

use super::free::Free;
use super::pattern;
use super::shape::Shape;
use crate::keywords::{Place, is_classic, references, shape, subschemas};
use crate::limits::Cheap;
use crate::world::{At, World};
use crate::{Limits, bounds};

const CHEAP: Cheap = Cheap::DEFAULT;

/// Keywords that do not constrain a value, whatever they hold.
const NOTES: [&str; 6] = [
    "$comment",
    "default",
    "deprecated",
    "description",
    "examples",
    "title",
];
/// Times that `uniqueItems` reads everything below it: items are compared pairwise up to 15, and
/// hashed beyond.
const UNIQUE_READS: u64 = 16;
/// Reads of a text by a keyword that is linear in it: lengths, formats, encodings.
const LINEAR_READS: u64 = 8;

/// Bounds for one schema, by level.
#[derive(Debug)]
pub(super) struct Profile {
    everywhere: u64,
    evaluations: Vec<u64>,
    matching: Vec<u64>,
}

impl Profile {
    /// True if a text is too short to be expensive: at worst each byte is a value, and text, where the
    /// schema does most. Spares most calls the count of [`Shape`].
    fn covers(&self, text: &str) -> bool {
        let Ok(bytes) = u64::try_from(text.len()) else {
            return false;
        };
        let most = |weights: &[u64]| {
            let most = weights.iter().copied().max().unwrap_or_default();
            bytes.saturating_mul(most.saturating_add(self.everywhere))
        };
        let openings = memchr2_iter(b'{', b'[', text.as_bytes());
        bytes <= CHEAP.values
            && most(&self.evaluations) <= CHEAP.evaluations
            && most(&self.matching) <= CHEAP.matching
            && openings.take(CHEAP.depth + 1).count() <= CHEAP.depth
    }
}

/// The bounds of `schema`; `None` where none are proven.
pub(super) fn profile(schema: &Json) -> Option<Profile> {
    if schema.len() > CHEAP.schema_bytes {
        return None;
    }
    let schema = schema.to_value().ok()?;
    let limits = Limits::DEFAULT;
    bounds::check_size(&schema, &limits).ok()?;
    let world = World::of_schema(&Arc::default(), &schema, &limits);
    let reach = world.reach();
    let is_plain = reach.lost.is_empty() && !reach.meta_schemas;
    if !is_plain || reach.schemas.len() > CHEAP.subschemas {
        return None;
    }
    let mut walk = Walk {
        world: &world,
        known: BTreeMap::new(),
        patterns: 0,
    };
    let root = walk.levels(&world.root(), 0)?;
    (walk.patterns <= CHEAP.patterns_weight).then_some(Profile {
        everywhere: root.everywhere,
        evaluations: root.evaluations,
        matching: root.matching,
    })
}

/// True if checking `value` against a schema with this profile is quick. Without a schema only the
/// size of the value counts.
pub(super) fn is_cheap(profile: Option<&Profile>, free: &Free, value: &Json) -> bool {
    if value.len() > CHEAP.value_bytes {
        return false;
    }
    if profile.is_some_and(|profile| profile.covers(value.as_str())) {
        return true;
    }
    let Some(shape) = Shape::of(value.as_str(), free) else {
        return false;
    };
    let Some(profile) = profile else {
        return true;
    };
    let total = |counts: &[u64], weights: &[u64]| {
        let weights = weights.iter().copied().chain(std::iter::repeat(0));
        counts
            .iter()
            .zip(weights)
            .fold(0_u64, |sum, (count, weight)| {
                let weight = weight.saturating_add(profile.everywhere);
                sum.saturating_add(count.saturating_mul(weight))
            })
    };
    total(&shape.values, &profile.evaluations) <= CHEAP.evaluations
        && total(&shape.texts, &profile.matching) <= CHEAP.matching
}

/// Bounds for a subschema, by level below the place where it applies.
#[derive(Clone, Debug, Default)]
struct Levels {
    /// JSON values of the expanded subschema.
    size: u64,
    /// Reads of whole values, whatever their levels.
    everywhere: u64,
    evaluations: Vec<u64>,
    matching: Vec<u64>,
}

struct Walk<'a> {
    world: &'a World,
    /// `None` while a subschema is being measured.
    known: BTreeMap<At, Option<Levels>>,
    /// Weight of all patterns so far.
    patterns: u64,
}

impl Walk<'_> {
    fn levels(&mut self, at: &At, depth: usize) -> Option<Levels> {
        if let Some(known) = self.known.get(at) {
            return known.clone();
        }
        if depth > CHEAP.depth {
            return None;
        }
        self.known.insert(at.clone(), None);
        let levels = self.measure(at, depth)?;
        if levels.size > CHEAP.expanded_values || levels.evaluations.len() > CHEAP.depth {
            return None;
        }
        self.known.insert(at.clone(), Some(levels.clone()));
        Some(levels)
    }

    fn measure(&mut self, at: &At, depth: usize) -> Option<Levels> {
        let Some(Value::Object(schema)) = self.world.schema(at) else {
            return Some(Levels {
                size: 1,
                everywhere: 0,
                evaluations: vec![1],
                matching: vec![0],
            });
        };
        let draft = self.world.draft(at);
        if self.world.dialect(at).is_none_or(|dialect| dialect.derived) {
            return None;
        }
        let mut levels = self.own_work(schema, draft)?;
        for (keyword, text) in references(schema, draft) {
            if keyword != "$ref" {
                return None;
            }
            let target = self.world.resolve(at, text).ok()?;
            let part = self.levels(&target, depth + 1)?;
            levels.add(&part, 0);
        }
        if is_classic(draft) && schema.contains_key("$ref") {
            return Some(levels);
        }
        let mut next = Vec::new();
        subschemas(schema, &at.pointer, draft, &mut |pointer, _, place| {
            next.push((pointer, place));
        });
        // Only one of these applies to one place.
        let mut member = Levels::default();
        let members = format!("{}/properties/", at.pointer);
        for (pointer, place) in next {
            let is_member = pointer.starts_with(&members);
            let part = At {
                document: at.document,
                pointer,
            };
            match place {
                Place::Shelf => {}
                Place::Here => levels.add(&self.levels(&part, depth + 1)?, 0),
                Place::Part if is_member => member.widen(&self.levels(&part, depth + 1)?),
                Place::Part => levels.add(&self.levels(&part, depth + 1)?, 1),
            }
        }
        levels.add(&member, 1);
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
            levels.everywhere = levels.everywhere.saturating_add(UNIQUE_READS);
        }
        Some(levels)
    }

    /// The work of a subschema's own keywords.
    fn own_work(
        &mut self,
        schema: &Map<String, Value>,
        draft: jsonschema::Draft,
    ) -> Option<Levels> {
        let (mut own, mut here, mut names) = (1_u64, 0_u64, 0_u64);
        for (keyword, value) in schema {
            let values = match shape(keyword, draft) {
                Some(_) => members(value),
                None if NOTES.contains(&keyword.as_str()) => 0,
                None => bounds::values(value),
            };
            own = own.saturating_add(u64::try_from(values).ok()?);
            match keyword.as_str() {
                "pattern" => here = here.saturating_add(self.pattern(value.as_str()?)?),
                "patternProperties" => {
                    for pattern in value.as_object()?.keys() {
                        // `additionalProperties` matches them a second time.
                        let weight = self.pattern(pattern)?.saturating_mul(2);
                        names = names.saturating_add(weight);
                    }
                }
                "format" if value.as_str()? == "regex" => return None,
                "format" | "contentEncoding" | "contentMediaType" | "minLength" | "maxLength" => {
                    here = here.saturating_add(LINEAR_READS);
                }
                "unevaluatedItems" | "unevaluatedProperties" => return None,
                _ => {}
            }
        }
        Some(Levels {
            size: own,
            everywhere: 0,
            evaluations: vec![own],
            matching: vec![here, names],
        })
    }

    fn pattern(&mut self, pattern: &str) -> Option<u64> {
        let weight = pattern::weight(pattern)?;
        self.patterns = self.patterns.saturating_add(weight);
        (weight <= CHEAP.pattern_weight).then_some(weight)
    }
}

impl Levels {
    /// Adds `part`, which applies `down` levels below.
    fn add(&mut self, part: &Self, down: usize) {
        self.size = self.size.saturating_add(part.size);
        self.everywhere = self.everywhere.saturating_add(part.everywhere);
        merge(
            &mut self.evaluations,
            &part.evaluations,
            down,
            u64::saturating_add,
        );
        merge(
            &mut self.matching,
            &part.matching,
            down,
            u64::saturating_add,
        );
    }

    /// Takes `part` in as an alternative: at each level the larger one counts.
    fn widen(&mut self, part: &Self) {
        self.size = self.size.saturating_add(part.size);
        self.everywhere = self.everywhere.max(part.everywhere);
        merge(&mut self.evaluations, &part.evaluations, 0, u64::max);
        merge(&mut self.matching, &part.matching, 0, u64::max);
    }
}

fn merge(into: &mut Vec<u64>, from: &[u64], down: usize, join: fn(u64, u64) -> u64) {
    if into.len() < from.len() + down {
        into.resize(from.len() + down, 0);
    }
    for (into, from) in into.iter_mut().skip(down).zip(from) {
        *into = join(*into, *from);
    }
}

/// The members of a keyword that holds subschemas, with the names that `dependencies` lists.
fn members(value: &Value) -> usize {
    let members = value.as_object().into_iter().flatten();
    let names = members.map(|(_, member)| member.as_array().map_or(0, Vec::len) + 1);
    names.fold(1, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Compiled, Definition, Owner, Parts, Subject};
    use super::*;

    fn definition(schema: &Value) -> Definition {
        Definition::new(Parts {
            name: "t".to_owned(),
            input: Some(Json::from_serialize(schema)),
            output: None,
            aliases: Vec::new(),
            side: Owner::Server,
        })
    }

    fn compiles_cheaply(schema: &Value) -> bool {
        definition(schema).is_cheap_to_compile()
    }

    fn checks_cheaply(schema: &Value, value: &Value) -> bool {
        let compiled = Compiled::compile(&definition(schema)).unwrap();
        compiled.is_cheap(&Subject::Arguments(Json::from_serialize(value)))
    }

    fn chain(length: usize, link: impl Fn(Value) -> Value) -> Value {
        let mut all: Map<_, _> = (0..length)
            .map(|at| {
                let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
                (format!("d{at}"), link(next))
            })
            .collect();
        all.insert(format!("d{length}"), json!({"type": "string"}));
        json!({"$ref": "#/$defs/d0", "$defs": all})
    }

    #[test]
    fn ordinary_schemas_are_cheap() {
        for schema in [
            json!({}),
            json!(true),
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]+$"},
                "b": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
                "required": ["a"], "$defs": {"n": {"anyOf": [{"type": "null"}, {"type": "number"}]}}}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"x": {"type": "string"}},
                "properties": {"a": {"$ref": "#/definitions/x"}}}),
        ] {
            assert!(compiles_cheaply(&schema), "{schema}");
            assert!(checks_cheaply(&schema, &json!({"a": "x", "b": [1, null]})));
        }
    }

    #[test]
    fn recursion_is_not_cheap() {
        let node = json!({"anyOf": [
            {"properties": {"a": {"$ref": "#/$defs/node"}}},
            {"properties": {"a": {"$ref": "#/$defs/node"}, "b": false}},
        ]});
        for schema in [
            json!({"$ref": "#/$defs/node", "$defs": {"node": node}}),
            json!({"properties": {"a": {"$ref": "#"}}}),
            json!({"$id": "mainstay:///x", "items": {"$ref": "mainstay:///x"}}),
            json!({"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}}),
            json!({"$schema": "https://json-schema.org/draft/2019-09/schema",
                "$recursiveAnchor": true, "items": {"$recursiveRef": "#"}}),
            json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
        ] {
            assert!(!compiles_cheaply(&schema), "{schema}");
        }
    }

    #[test]
    fn references_that_multiply_are_not_cheap() {
        let here = chain(20, |next| json!({"anyOf": [next, next]}));
        assert!(!compiles_cheaply(&here));
        let part = chain(20, |next| json!({"properties": {"a": next, "b": next}}));
        assert!(!compiles_cheaply(&part));
        let many = chain(64, |next| json!({"anyOf": [next, next, next, next]}));
        assert!(!compiles_cheaply(&many), "saturates");
        assert!(compiles_cheaply(&chain(
            10,
            |next| json!({"allOf": [next]})
        )));
        assert!(compiles_cheaply(&chain(
            5,
            |next| json!({"anyOf": [next, next]})
        )));
        assert!(!compiles_cheaply(&chain(
            100,
            |next| json!({"items": next})
        )));
    }

    #[test]
    fn patterns_that_backtrack_or_explode_are_not_cheap() {
        for pattern in [r"^(?=.*a)b", r"(a)\1", "(a{500}){500}", r"\p{L}"] {
            assert!(!compiles_cheaply(&json!({"pattern": pattern})), "{pattern}");
            assert!(!compiles_cheaply(
                &json!({"patternProperties": {pattern: {}}})
            ));
            assert!(!compiles_cheaply(
                &json!({"not": {"items": {"pattern": pattern}}})
            ));
        }
        let fifty: Vec<_> = (0..50)
            .map(|n| json!({"pattern": format!("(?=.*a{n})")}))
            .collect();
        assert!(!compiles_cheaply(&json!({"items": {"anyOf": fifty}})));
        let many: Vec<_> = (0..500)
            .map(|n| json!({"pattern": format!("^abcdefg{n}$")}))
            .collect();
        assert!(!compiles_cheaply(&json!({"anyOf": many})));
        assert!(!compiles_cheaply(&json!({"format": "regex"})));
        assert!(!compiles_cheaply(&json!({"unevaluatedProperties": false})));
    }

    #[test]
    fn large_schemas_are_not_cheap() {
        let long = "x".repeat(CHEAP.schema_bytes);
        assert!(!compiles_cheaply(&json!({"description": long})));
        let wide: Vec<_> = (0..500).map(|n| json!({"minimum": n})).collect();
        assert!(!compiles_cheaply(&json!({"anyOf": wide})));
    }

    #[test]
    fn large_or_deep_values_are_not_cheap() {
        let any = json!({"type": "array"});
        let array = vec![json!("0123456789"); 1_200_000];
        assert!(!checks_cheaply(&any, &json!(array)), "15 MB");
        assert!(!checks_cheaply(&any, &json!(vec![0; 8_000])));
        assert!(checks_cheaply(&any, &json!(vec![0; 7_999])));
        let deep = (0..40).fold(json!(1), |inner, _| json!([inner]));
        assert!(!checks_cheaply(&any, &deep));
        assert!(checks_cheaply(&any, &json!("x".repeat(1_000_000))));
        assert!(!checks_cheaply(&any, &json!("x".repeat(1_100_000))));
    }

    #[test]
    fn many_evaluations_or_much_matching_are_not_cheap() {
        let branches: Vec<_> = (0..100).map(|n| json!({"minimum": n})).collect();
        let schema = json!({"items": {"anyOf": branches}});
        assert!(checks_cheaply(&schema, &json!(vec![0; 400])));
        assert!(!checks_cheaply(&schema, &json!(vec![0; 5_000])));
        let matching = json!({"items": {"pattern": "^[0-9a-f]{40}$"}});
        assert!(checks_cheaply(&matching, &json!(["a".repeat(1_000)])));
        assert!(!checks_cheaply(&matching, &json!(["a".repeat(100_000)])));
        let unique = json!({"properties": {"a": {"uniqueItems": true}}});
        let items = |count: usize| json!({"a": vec![json!([1]); count]});
        assert!(checks_cheaply(&unique, &items(1_000)));
        assert!(!checks_cheaply(&unique, &items(3_500)));
    }

    #[test]
    fn a_value_that_is_not_read_is_cheap_at_any_size() {
        let compiled = Compiled::compile(&definition(&json!({}))).unwrap();
        let large = Json::from_serialize(&vec![0; 100_000]);
        assert!(compiled.is_cheap(&Subject::Reply(large.clone())));
        assert!(!compiled.is_cheap(&Subject::Arguments(large)));
        assert!(compiled.is_cheap(&Subject::NoReply));
    }
}
