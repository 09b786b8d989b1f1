//! Parts of a saved state that a build would drop: those that only the build knows which saved them.
//!
//! Versions say that two builds agree. This is the check that they do: a state that was read is written again,
//! and must have every member that it had.

use serde_json::Value;

/// The place of a member or element of `before` that is not in `after`. Both are JSON, which has been read already.
pub(crate) fn first_loss(before: &str, after: &str) -> Option<String> {
    let read = |text| serde_json::from_str::<Value>(text).ok();
    let mut path = String::new();
    is_lost(&read(before)?, &read(after)?, &mut path).then_some(path)
}

/// Leaves the place in `path` if something is lost. Values are not compared: the types of both builds are the same.
fn is_lost(before: &Value, after: &Value, path: &mut String) -> bool {
    let length = path.len();
    let mut look = |name: &str, before: &Value, after: Option<&Value>| {
        path.truncate(length);
        path.push('/');
        path.push_str(name);
        after.is_none_or(|after| is_lost(before, after, path))
    };
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before
            .iter()
            .any(|(name, value)| look(name, value, after.get(name))),
        (Value::Array(before), Value::Array(after)) => before
            .iter()
            .enumerate()
            .any(|(at, value)| look(&at.to_string(), value, after.get(at))),
        (Value::Object(_) | Value::Array(_), _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_or_element_that_is_missing_is_named() {
        let before = r#"{"a":[{"b":1},{"b":2,"c":{}}],"d":null}"#;
        assert_eq!(first_loss(before, before), None);
        let fewer = r#"{"a":[{"b":1}],"d":null}"#;
        assert_eq!(first_loss(before, fewer).as_deref(), Some("/a/1"));
        let without = r#"{"a":[{"b":1},{"b":2}],"d":null}"#;
        assert_eq!(first_loss(before, without).as_deref(), Some("/a/1/c"));
        let other = r#"{"a":[{"b":1},{"b":2,"c":0}],"d":null}"#;
        assert_eq!(first_loss(before, other).as_deref(), Some("/a/1/c"));
        let no_null = r#"{"a":[{"b":1},{"b":2,"c":{}}]}"#;
        assert_eq!(first_loss(before, no_null).as_deref(), Some("/d"));
    }

    #[test]
    fn what_a_newer_build_adds_is_not_a_loss() {
        let before = r#"{"a":[{"b":1.1}]}"#;
        let after = r#"{"a":[{"b":1.1000000000000001,"new":[]}],"new":{}}"#;
        assert_eq!(first_loss(before, after), None);
    }
}
