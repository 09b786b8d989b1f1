//! The shape of a JSON text: how many values and how much text it has at each level.

use super::free::Free;
use crate::limits::Cheap;

/// Content of a value's text at each level: values, and bytes of strings and names.
pub(super) struct Shape {
    pub(super) values: Vec<u64>,
    pub(super) texts: Vec<u64>,
}

impl Shape {
    /// Scans JSON text once; `None` if it holds too many values or nests too deeply. Arguments
    /// without rules count for nothing.
    pub(super) fn of(text: &str, free: &Free) -> Option<Self> {
        let mut shape = Self {
            values: vec![0; Cheap::DEFAULT.depth + 1],
            texts: vec![0; Cheap::DEFAULT.depth + 1],
        };
        let mut left = Cheap::DEFAULT.values;
        let mut level = 0_usize;
        // The level at which a free argument is being skipped.
        let mut skipping = None;
        let mut last_string = "";
        let bytes = text.as_bytes();
        let mut at = 0;
        // A value starts where this is true, a name does too.
        let mut expects = true;
        while let Some(byte) = bytes.get(at) {
            let is_skipped = skipping.is_some_and(|skipping| level >= skipping);
            match byte {
                b'"' => {
                    let length = string_length(bytes.get(at + 1..)?)?;
                    last_string = text.get(at + 1..at + 1 + length)?;
                    if !is_skipped {
                        *shape.texts.get_mut(level)? += u64::try_from(length).ok()?;
                    }
                    at += length + 1;
                }
                b'{' | b'[' => {}
                b'}' | b']' => {
                    level = level.checked_sub(1)?;
                    expects = false;
                    at += 1;
                    if skipping.is_some_and(|skipping| level < skipping) {
                        skipping = None;
                    }
                    continue;
                }
                b',' => {
                    if skipping == Some(level) {
                        skipping = None;
                    }
                    expects = true;
                    at += 1;
                    continue;
                }
                b':' => {
                    // The string before it was a name: the value counts, not the name.
                    if !is_skipped {
                        left = left.checked_add(1)?;
                        let values = shape.values.get_mut(level)?;
                        *values = values.saturating_sub(1);
                    }
                    if level == 1 && skipping.is_none() && free.has(last_string) {
                        skipping = Some(level);
                    }
                    expects = true;
                    at += 1;
                    continue;
                }
                b' ' | b'\t' | b'\n' | b'\r' => {
                    at += 1;
                    continue;
                }
                _ => {}
            }
            let is_skipped = skipping.is_some_and(|skipping| level >= skipping);
            if expects && !is_skipped {
                left = left.checked_sub(1)?;
                *shape.values.get_mut(level)? += 1;
            }
            expects = false;
            if matches!(byte, b'{' | b'[') {
                level += 1;
                expects = true;
            }
            at += 1;
        }
        Some(shape)
    }
}

/// The bytes of a string up to its closing quote.
fn string_length(rest: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match rest.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_counted_at_their_levels() {
        let text = r#" {"a": [1, "x\"y", {}], "free": [[[1,2,3]]], "b": {"c": null}, "e": []} "#;
        let schema = json!({"type": "object", "properties": {"free": {}}});
        let shape = Shape::of(text, &Free::of(&[], &schema)).unwrap();
        assert_eq!(shape.values[..4], [1, 3, 4, 0]);
        // Names count as text of the level of their values.
        assert_eq!(shape.texts[..4], [0, 7, 5, 0]);
    }
}
