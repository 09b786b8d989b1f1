//! Canonical JSON: one text for equal values, from which fingerprints, sizes and ids are made.

use serde_json::Value;

use crate::json::Json;

/// `value` as JSON without spaces, the members of each object sorted by the bytes of
/// their names. Numbers keep the form `serde_json` gives them: `1` and `1.0` differ.
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

/// Canonical form of a text. A text that cannot be a tree, such as one with a number out of range, stays unchanged.
pub fn canonical_text(json: &Json) -> String {
    match json.to_value() {
        Ok(value) => canonical_json(&value),
        Err(_) => json.as_str().to_owned(),
    }
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            // Sorted here: the order of `serde_json::Map` depends on a crate feature.
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (position, (name, member)) in members.into_iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_canonical(member, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_json_sorts_members_and_has_no_spaces() {
        let text = r#"{ "b": [1, 2.5, "é\n"], "a": { "z": null, "y": true } }"#;
        let json = Json::parse(text).unwrap();
        assert_eq!(
            canonical_text(&json),
            r#"{"a":{"y":true,"z":null},"b":[1,2.5,"é\n"]}"#
        );
    }

    #[test]
    fn a_number_out_of_range_is_kept_as_it_is_written() {
        let json = Json::parse(r#"{ "a": 1e400 }"#).unwrap();
        assert_eq!(canonical_text(&json), r#"{ "a": 1e400 }"#);
    }
}
