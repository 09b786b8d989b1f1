//! Arguments as a tree, without the parts that no check reads.
//!
//! An argument whose schema takes anything (`asset` of `validate_asset`, say) can be the largest
//! part of a call, and no rule reads its tree. [`Free`] lists such arguments of a tool.
//! [`Free::read`] parses them with the same parser and the same limits as the rest, but keeps `null`
//! in their place. It rejects exactly the texts that a full parse rejects, except for one thing: a
//! number out of range (`1e400`) inside a free argument, or inside an argument that may be any object
//! or any array, is the tool's to judge.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mainstay_contract::json::push_pointer_part;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_json::value::RawValue;
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
pub(super) struct Free {
    names: BTreeSet<String>,
    /// Those that may be any object or any array, with an empty one.
    containers: BTreeMap<String, Value>,
}

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
        let candidates = || properties.iter().filter(|(name, _)| !has_alias(name));
        let free = candidates().filter(|(_, schema)| takes_anything(schema));
        let containers =
            candidates().filter_map(|(name, schema)| Some((name.clone(), container(schema)?)));
        Self {
            names: free.map(|(name, _)| name.clone()).collect(),
            containers: containers.collect(),
        }
    }

    /// True if an argument of this name may be anything.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The arguments, `null` in place of those that may be anything. The error has the place of the
    /// mistake, where that is known.
    pub(super) fn read(&self, text: &str) -> Result<Value, (String, String)> {
        let twice = RefCell::new(None);
        let value = self.parse(text, Range::Strict, &twice).or_else(|error| {
            if !is_out_of_range(&error) {
                return Err((String::new(), error.to_string()));
            }
            let lenient = self.parse(text, Range::Lenient, &twice);
            lenient.map_err(|_| (self.out_of_range(text), OUT_OF_RANGE.to_owned()))
        })?;
        match twice.into_inner() {
            Some(name) => {
                let mut pointer = String::new();
                push_pointer_part(&mut pointer, &name);
                Err((pointer, TWICE.to_owned()))
            }
            None => Ok(value),
        }
    }

    fn parse(
        &self,
        text: &str,
        range: Range,
        twice: &RefCell<Option<String>>,
    ) -> serde_json::Result<Value> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let value = reader.deserialize_any(Arguments(self, range, twice))?;
        reader.end()?;
        Ok(value)
    }

    /// The pointer to the first number out of range that the tool does not judge itself.
    fn out_of_range(&self, text: &str) -> String {
        let path = RefCell::new(String::new());
        let mut reader = serde_json::Deserializer::from_str(text);
        let _ = Find(&path, Some(self)).deserialize(&mut reader);
        path.into_inner()
    }

    /// True if all numbers of an argument are the tool's to judge.
    fn passes_over(&self, name: &str, raw: &str) -> bool {
        let first = match self.containers.get(name) {
            Some(Value::Object(_)) => '{',
            Some(_) => '[',
            None => return self.names.contains(name),
        };
        raw.starts_with(first)
    }
}

/// The message for an argument that a call has twice.
const TWICE: &str = "is given twice";

/// The message for such a number, shared with the asset tools.
const OUT_OF_RANGE: &str = "number is out of range";

fn is_out_of_range(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("number out of range")
}

/// True if numbers of free arguments must be in range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Strict,
    Lenient,
}

/// The empty container, if a schema takes any object or any array.
fn container(schema: &Value) -> Option<Value> {
    let keywords = schema.as_object()?;
    let is_plain = |key: &String| key == "type" || NOTES.contains(&key.as_str());
    if !keywords.keys().all(is_plain) {
        return None;
    }
    match keywords.get("type")?.as_str()? {
        "object" => Some(Value::Object(Map::new())),
        "array" => Some(Value::Array(Vec::new())),
        _ => None,
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

/// Reads arguments, and leaves the name of one that is there twice.
struct Arguments<'a>(&'a Free, Range, &'a RefCell<Option<String>>);

impl Arguments<'_> {
    /// Reads one argument.
    fn member<'de, A: MapAccess<'de>>(
        &self,
        name: &str,
        members: &mut A,
    ) -> Result<Value, A::Error> {
        let Self(free, range, _) = self;
        match (range, free.names.contains(name), free.containers.get(name)) {
            (Range::Strict, true, _) => {
                members.next_value_seed(Skip)?;
                Ok(Value::Null)
            }
            (Range::Lenient, true, _) => {
                members.next_value::<IgnoredAny>()?;
                Ok(Value::Null)
            }
            (Range::Lenient, false, Some(empty)) => {
                let raw: &RawValue = members.next_value()?;
                match free.passes_over(name, raw.get()) {
                    true => Ok(empty.clone()),
                    false => serde_json::from_str(raw.get()).map_err(A::Error::custom),
                }
            }
            (_, false, _) => members.next_value(),
        }
    }
}

impl<'de> Visitor<'de> for Arguments<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = self.member(&name, &mut members)?;
            if read.contains_key(&name) {
                self.2.replace(Some(name.clone()));
            }
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

/// Follows a value up to its first mistake, and leaves the place of that in the path.
struct Find<'a>(&'a RefCell<String>, Option<&'a Free>);

impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Find<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let length = self.0.borrow().len();
        while let Some(name) = members.next_key::<String>()? {
            push_pointer_part(&mut self.0.borrow_mut(), &name);
            let raw: &RawValue = members.next_value()?;
            if !self
                .1
                .is_some_and(|free| free.passes_over(&name, raw.get()))
            {
                let mut inner = serde_json::Deserializer::from_str(raw.get());
                let found = Find(self.0, None).deserialize(&mut inner);
                found.map_err(A::Error::custom)?;
            }
            self.0.borrow_mut().truncate(length);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let length = self.0.borrow().len();
        for index in 0_usize.. {
            push_pointer_part(&mut self.0.borrow_mut(), &index.to_string());
            let next = items.next_element_seed(Find(self.0, None))?;
            self.0.borrow_mut().truncate(length);
            if next.is_none() {
                break;
            }
        }
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
        Free::of(&aliases, schema).names.into_iter().collect()
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
        Free {
            names: BTreeSet::from(["free".to_owned()]),
            containers: BTreeMap::from([("list".to_owned(), json!([]))]),
        }
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
            r#"{"free":"\ud800"}"#,
            r#"{"free":{"\ud800":1}}"#,
            r#"{"free":1} x"#,
            "[1, 2]",
            "7",
            "\"a\"",
            "null",
            deep.as_str(),
            r#"{"free":1,"a":[1.5,-2,true,null,"x"]}"#,
        ] {
            let read = reads().read(text).map_err(|(_, said)| said);
            assert_eq!(read, whole(text), "{text}");
        }
    }

    #[test]
    fn an_argument_that_is_given_twice_is_named() {
        for text in [r#"{"a/b":1,"a/b":1}"#, r#"{"free":1,"a/b":2,"a/b":[]}"#] {
            let said = ("/a~1b".to_owned(), TWICE.to_owned());
            assert_eq!(reads().read(text), Err(said), "{text}");
        }
        let inner = r#"{"a":{"b":1,"b":2}}"#;
        assert_eq!(reads().read(inner), Ok(json!({"a": {"b": 2}})));
    }

    #[test]
    fn numbers_out_of_range_are_left_to_the_tool_or_named_by_their_place() {
        for (text, read) in [
            (r#"{"free":{"x":[1e400]}}"#, json!({"free": null})),
            (r#"{"a":1,"list":[1,-1e400]}"#, json!({"a": 1, "list": []})),
        ] {
            assert_eq!(reads().read(text), Ok(read), "{text}");
        }
        for (text, place) in [
            (r#"{"a":{"b~/c":[1,1e400]},"free":1e400}"#, "/a/b~0~1c/1"),
            (r#"{"free":1e400,"a":-1e400}"#, "/a"),
            (r#"{"list":1e400}"#, "/list"),
        ] {
            let said = (place.to_owned(), OUT_OF_RANGE.to_owned());
            assert_eq!(reads().read(text), Err(said), "{text}");
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
                let read = reads().read(text).map_err(|(_, said)| said);
                prop_assert_eq!(read, whole(text));
            }
        }
    }
}
