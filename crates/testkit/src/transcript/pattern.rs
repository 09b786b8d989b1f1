//! What an expected message may leave open.
//!
//! A pattern is JSON. Plain values stand for themselves; these do not:
//!
//! | pattern | matches |
//! |---|---|
//! | `"$any"` | anything |
//! | `"$string"` `"$number"` `"$integer"` `"$bool"` `"$object"` `"$array"` | anything of that type |
//! | `"$contains:TEXT"` | a string with TEXT in it |
//! | `{"$json": pattern}` | a string that is JSON and matches |
//! | `{"$has": pattern}` | an array with a matching element |
//! | an object with the key `"..."` | an object with at least the other members |
//! | an array that ends in `"..."` | an array with at least the other elements in front |

use std::fmt;

use serde_json::{Map, Value};

/// The first place where a value is not what the pattern says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// JSON Pointer; empty for the whole.
    pub at: String,
    pub why: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.at.is_empty() {
            "the message"
        } else {
            &self.at
        };
        write!(f, "{at}: {}", self.why)
    }
}

/// Compares a value with a pattern.
pub fn matches(pattern: &Value, value: &Value) -> Result<(), Mismatch> {
    compare(pattern, value, "")
}

const REST: &str = "...";

fn compare(pattern: &Value, value: &Value, at: &str) -> Result<(), Mismatch> {
    let fail = |why: String| {
        Err(Mismatch {
            at: at.to_owned(),
            why,
        })
    };
    let ok = match (pattern, value) {
        (Value::String(text), _) if text.starts_with('$') => word(text, value),
        (Value::Object(object), _) if object.len() == 1 && object.contains_key("$json") => {
            let inner = value
                .as_str()
                .and_then(|text| serde_json::from_str(text).ok());
            return match (object.get("$json"), inner) {
                (Some(pattern), Some(inner)) => compare(pattern, &inner, at),
                _ => fail(format!("expected a string with JSON, got {value}")),
            };
        }
        (Value::Object(object), _) if object.len() == 1 && object.contains_key("$has") => {
            let wanted = object.get("$has").unwrap_or(&Value::Null);
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            items.iter().any(|item| compare(wanted, item, at).is_ok())
        }
        (Value::Object(pattern), Value::Object(value)) => return members(pattern, value, at),
        (Value::Array(pattern), Value::Array(value)) => return elements(pattern, value, at),
        _ => pattern == value,
    };
    if ok {
        Ok(())
    } else {
        fail(format!("expected {pattern}, got {value}"))
    }
}

fn word(text: &str, value: &Value) -> bool {
    match text {
        "$any" => true,
        "$string" => value.is_string(),
        "$number" => value.is_number(),
        "$integer" => value.is_i64() || value.is_u64(),
        "$bool" => value.is_boolean(),
        "$object" => value.is_object(),
        "$array" => value.is_array(),
        _ => match (text.strip_prefix("$contains:"), value.as_str()) {
            (Some(part), Some(value)) => value.contains(part),
            _ => value.as_str() == Some(text),
        },
    }
}

fn members(
    pattern: &Map<String, Value>,
    value: &Map<String, Value>,
    at: &str,
) -> Result<(), Mismatch> {
    for (key, wanted) in pattern.iter().filter(|(key, _)| *key != REST) {
        let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        match value.get(key) {
            Some(found) => compare(wanted, found, &at)?,
            None => {
                let why = format!("is missing, expected {wanted}");
                return Err(Mismatch { at, why });
            }
        }
    }
    let extra = value.keys().find(|key| !pattern.contains_key(*key));
    match extra {
        Some(key) if !pattern.contains_key(REST) => Err(Mismatch {
            at: at.to_owned(),
            why: format!("has the unexpected member {key:?}"),
        }),
        _ => Ok(()),
    }
}

fn elements(pattern: &[Value], value: &[Value], at: &str) -> Result<(), Mismatch> {
    let (wanted, open) = match pattern.split_last() {
        Some((Value::String(last), front)) if last == REST => (front, true),
        _ => (pattern, false),
    };
    if value.len() < wanted.len() || (!open && value.len() > wanted.len()) {
        return Err(Mismatch {
            at: at.to_owned(),
            why: format!("has {} elements, expected {}", value.len(), wanted.len()),
        });
    }
    for (index, (wanted, found)) in wanted.iter().zip(value).enumerate() {
        compare(wanted, found, &format!("{at}/{index}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "the tests read better")]
    fn fits(pattern: Value, value: Value) -> bool {
        matches(&pattern, &value).is_ok()
    }

    #[test]
    fn plain_values_stand_for_themselves() {
        assert!(fits(
            json!({"a": [1, "x", null]}),
            json!({"a": [1, "x", null]})
        ));
        assert!(!fits(json!({"a": 1}), json!({"a": "1"})));
        assert!(!fits(json!({"a": 1}), json!({"a": 1, "b": 2})));
        assert!(!fits(json!({"a": 1, "b": 2}), json!({"a": 1})));
        assert!(!fits(json!([1]), json!([1, 2])));
    }

    #[test]
    fn words_stand_for_types_and_parts() {
        assert!(fits(json!("$any"), json!(null)));
        assert!(fits(json!("$integer"), json!(3)) && !fits(json!("$integer"), json!(3.5)));
        assert!(fits(json!("$contains:lo w"), json!("hello world")));
        assert!(!fits(json!("$contains:x"), json!("hello")));
        assert!(fits(json!({"$json": {"a": "$number"}}), json!("{\"a\":1}")));
        assert!(!fits(json!({"$json": "$any"}), json!("{")));
        assert!(fits(json!({"$has": {"n": 2}}), json!([{"n": 1}, {"n": 2}])));
        assert!(!fits(json!({"$has": 3}), json!([1, 2])));
    }

    #[test]
    fn dots_leave_the_rest_open() {
        assert!(fits(json!({"a": 1, "...": ""}), json!({"a": 1, "b": 2})));
        assert!(fits(json!([1, "..."]), json!([1, 2, 3])));
        assert!(!fits(json!([1, 2, "..."]), json!([1])));
    }

    #[test]
    fn mismatch_names_its_place() {
        let mismatch = matches(&json!({"a": [{"b/c": 1}]}), &json!({"a": [{"b/c": 2}]}));
        assert_eq!(
            mismatch.unwrap_err().to_string(),
            "/a/0/b~1c: expected 1, got 2"
        );
    }
}
