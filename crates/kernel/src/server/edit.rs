//! Changes to lines that otherwise pass as they are: one member is replaced or added, everything
//! else keeps its bytes.

use std::collections::BTreeSet;

use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::scan;

/// The object with one member replaced by JSON text, or added at its end.
pub fn with_member(object: &str, key: &str, value: &str) -> String {
    let mut writer = ObjectWriter::with_capacity(object.len() + value.len() + key.len() + 8);
    let mut placed = false;
    for (name, old) in scan::members(object) {
        let is_it = name == key;
        writer = writer.raw(&name, if is_it { value } else { old });
        placed |= is_it;
    }
    if !placed {
        writer = writer.raw(key, value);
    }
    writer.finish()
}

/// The object with one member of the member `outer`, itself an object, replaced or added.
pub fn with_inner(object: &str, outer: &str, key: &str, value: &str) -> String {
    let inner = scan::member(object, outer).filter(|inner| inner.starts_with('{'));
    let changed = with_member(inner.unwrap_or("{}"), key, value);
    with_member(object, outer, &changed)
}

/// The object with only those members whose names `keeps` accepts.
pub fn filtered(object: &str, keeps: impl Fn(&str) -> bool) -> String {
    let mut writer = ObjectWriter::with_capacity(object.len());
    for (name, value) in scan::members(object).filter(|(name, _)| keeps(name)) {
        writer = writer.raw(&name, value);
    }
    writer.finish()
}

/// The response with another result.
pub fn with_result(line: &str, result: &str) -> Json {
    Json::from_scanned(&with_member(line, "result", result))
}

/// The items of an array, as JSON text.
pub fn items(array: &str) -> Vec<&str> {
    let items: Result<Vec<&serde_json::value::RawValue>, _> = serde_json::from_str(array);
    items
        .unwrap_or_default()
        .into_iter()
        .map(serde_json::value::RawValue::get)
        .collect()
}

/// True if an object anywhere in a JSON text has a member twice, in whatever spelling.
pub(crate) fn has_twice(json: &str) -> bool {
    match json.as_bytes().first() {
        Some(b'{') => {
            let mut names = BTreeSet::new();
            scan::members(json).any(|(name, value)| !names.insert(name) || has_twice(value))
        }
        Some(b'[') => items(json).into_iter().any(has_twice),
        _ => false,
    }
}

/// An array of JSON texts.
pub fn array<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    let items: Vec<&str> = items.into_iter().collect();
    format!("[{}]", items.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_the_member_keeps_its_bytes() {
        let line =
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":1.00,"_meta":{"x":12345678901234567890}}}"#;
        assert_eq!(
            with_result(line, "{}").as_str(),
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#
        );
        let result = scan::member(line, "result").unwrap();
        assert_eq!(
            with_inner(result, "_meta", "y", "true"),
            r#"{"a":1.00,"_meta":{"x":12345678901234567890,"y":true}}"#
        );
        assert_eq!(
            with_inner("{\"b\":2}", "_meta", "y", "true"),
            r#"{"b":2,"_meta":{"y":true}}"#
        );
    }

    #[test]
    fn arrays_come_apart_and_together() {
        let raw = r#"[{"a":1.0}, 2,"x,y"]"#;
        assert_eq!(items(raw), [r#"{"a":1.0}"#, "2", r#""x,y""#]);
        assert_eq!(array(items(raw)), r#"[{"a":1.0},2,"x,y"]"#);
        assert!(items("{}").is_empty());
    }
}
