//! Arguments as a tree, without the parts that no check reads.
//!
//! An argument whose schema takes anything (`asset` of `validate_asset`, say) can be the largest
//! part of a call, and no rule reads its tree. [`Free`] lists such arguments of a tool.
//! [`Free::read`] parses them with the same parser and the same limits as the rest, so that it
//! rejects exactly the texts that a full parse rejects, but keeps `null` in their place.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Keywords of a tool's schema that leave each argument to its own schema.
const PLAIN_ROOT: [&str; 12] = [
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "additionalProperties",
    "dependentRequired",
    "description",
    "examples",
    "properties",
    "required",
    "title",
    "type",
];

/// Keywords that do not constrain a value.
const NOTES: [&str; 5] = ["$comment", "deprecated", "description", "examples", "title"];

/// The arguments of a tool that may be anything.
#[derive(Debug, Default)]
pub(super) struct Free(BTreeSet<String>);

impl Free {
    pub(super) fn of(aliases: &[(String, String)], schema: &Value) -> Self {
        let is_plain = schema
            .as_object()
            .is_some_and(|root| root.keys().all(|key| PLAIN_ROOT.contains(&key.as_str())));
        let properties = schema.get("properties").and_then(Value::as_object);
        let Some(properties) = properties.filter(|_| is_plain) else {
            return Self::default();
        };
        // Two names for one argument are compared by their values.
        let has_alias = |name: &str| {
            let mut aliases = aliases.iter();
            aliases.any(|(alias, canonical)| alias == name || canonical == name)
        };
        let free = properties
            .iter()
            .filter(|(name, schema)| takes_anything(schema) && !has_alias(name));
        Self(free.map(|(name, _)| name.clone()).collect())
    }

    /// Whether an argument of this name may be anything.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// The arguments, `null` in place of those that may be anything.
    pub(super) fn read(&self, text: &str) -> serde_json::Result<Value> {
        if self.0.is_empty() {
            return serde_json::from_str(text);
        }
        let mut reader = serde_json::Deserializer::from_str(text);
        let value = reader.deserialize_any(Arguments(self))?;
        reader.end()?;
        Ok(value)
    }
}

fn takes_anything(schema: &Value) -> bool {
    match schema {
        Value::Bool(all) => *all,
        Value::Object(keywords) => keywords.iter().all(|(key, value)| {
            NOTES.contains(&key.as_str()) || (key == "anyOf" && has_every_type(value))
        }),
        _ => false,
    }
}

/// True for a list of schemas that together permit each type, and constrain nothing else.
fn has_every_type(branches: &Value) -> bool {
    let mut missing = BTreeSet::from(["array", "boolean", "null", "number", "object", "string"]);
    for branch in branches.as_array().into_iter().flatten() {
        if let Some(kind) = branch.get("type").and_then(Value::as_str)
            && branch.as_object().is_some_and(|branch| branch.len() == 1)
        {
            missing.remove(kind);
        }
    }
    missing.is_empty()
}

struct Arguments<'a>(&'a Free);

impl<'de> Visitor<'de> for Arguments<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = if self.0.0.contains(&name) {
                members.next_value_seed(Skip)?;
                Value::Null
            } else {
                members.next_value()?
            };
            read.insert(name, value);
        }
        Ok(Value::Object(read))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element()? {
            read.push(item);
        }
        Ok(Value::Array(read))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// Parses a value completely, numbers included, and drops it.
struct Skip;

impl<'de> DeserializeSeed<'de> for Skip {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Skip {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_key::<Name>()?.is_some() {
            members.next_value_seed(Skip)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Skip)?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A member's name, parsed and dropped.
struct Name;

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Skip).map(|()| Self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn free(schema: &Value, aliases: &[(&str, &str)]) -> Vec<String> {
        let aliases: Vec<_> = aliases
            .iter()
            .map(|(alias, name)| ((*alias).to_owned(), (*name).to_owned()))
            .collect();
        Free::of(&aliases, schema).0.into_iter().collect()
    }

    #[test]
    fn a_list_of_every_type_is_not_a_rule() {
        let kinds = ["array", "boolean", "null", "number", "object", "string"];
        let any_of = |kinds: &[&str]| {
            let kinds: Vec<Value> = kinds.iter().map(|kind| json!({"type": kind})).collect();
            json!({"description": "x", "anyOf": kinds})
        };
        assert!(takes_anything(&any_of(&kinds)));
        assert!(!takes_anything(&any_of(&kinds[1..])));
        let mut ruled = any_of(&kinds);
        ruled["anyOf"][0]["minItems"] = json!(1);
        assert!(!takes_anything(&ruled));
    }

    #[test]
    fn only_arguments_without_any_rule_are_left_unread() {
        let properties = json!({
            "any": {"description": "x"}, "all": true, "none": false, "text": {"type": "string"},
            "needed": {"x-mainstay-required": "say"}, "path": {"x-mainstay-path": true},
        });
        let plain = json!({"type": "object", "properties": properties, "required": ["any"]});
        assert_eq!(free(&plain, &[]), ["all", "any"]);
        assert_eq!(free(&plain, &[("every", "all")]), ["any"]);
        for judge in [
            "allOf",
            "not",
            "if",
            "minProperties",
            "patternProperties",
            "$ref",
        ] {
            let mut judged = plain.clone();
            judged[judge] = json!({});
            assert!(free(&judged, &[]).is_empty(), "{judge}");
        }
    }

    fn reads() -> Free {
        Free(BTreeSet::from(["free".to_owned()]))
    }

    /// The result of a full parse, `null` in place of the free member.
    fn whole(text: &str) -> Result<Value, String> {
        let mut value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if let Some(member) = value.get_mut("free") {
            *member = Value::Null;
        }
        Ok(value)
    }

    #[test]
    fn a_text_that_a_full_parse_rejects_is_rejected_in_the_same_words() {
        let deep = format!("{{\"free\":{}{}}}", "[".repeat(200), "]".repeat(200));
        for text in [
            r#"{"free":1e400}"#,
            r#"{"a":1,"free":[{"x":-1e400}]}"#,
            r#"{"free":"\ud800"}"#,
            r#"{"free":{"\ud800":1}}"#,
            r#"{"free":1} x"#,
            "[1, 2]",
            "7",
            "\"a\"",
            "null",
            deep.as_str(),
            r#"{"free":1,"a":[1.5,-2,true,null,"x"],"free":{"b":[]}}"#,
        ] {
            let read = reads().read(text).map_err(|error| error.to_string());
            assert_eq!(read, whole(text), "{text}");
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,5}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("free|a|.{0,3}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_text_reads_as_in_a_full_parse(value in json(), cut in any::<prop::sample::Index>()) {
            let text = value.to_string();
            let part: String = text.chars().take(cut.index(text.len() + 1)).collect();
            for text in [&text, &part] {
                let read = reads().read(text).map_err(|error| error.to_string());
                prop_assert_eq!(read, whole(text));
            }
        }
    }
}
