//! JSON as it stands in files that people compare: members sorted, one per line.

use mainstay_contract::meta;
use serde_json::{Map, Value};

/// `value` with the members of every object sorted, indented by two spaces, with a line break at
/// the end.
pub fn pretty_json(value: &Value) -> String {
    format!("{:#}\n", sorted(value))
}

/// A definition of `tools/list` without what changes with every build of the same tool.
pub fn published(definition: &Value) -> Value {
    let mut definition = sorted(definition);
    let contract = format!("/_meta/{}", meta::CONTRACT.replace('/', "~1"));
    for place in ["", &contract] {
        if let Some(Value::Object(members)) = definition.pointer_mut(place) {
            members.shift_remove("toolingVersion");
        }
    }
    definition
}

/// `value` with the members of every object sorted by the bytes of their names.
pub(crate) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            let sorted: Map<String, Value> = members
                .into_iter()
                .map(|(name, member)| (name.clone(), sorted(member)))
                .collect();
            Value::Object(sorted)
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_sorted_at_every_depth_and_the_last_line_ends() {
        let value: Value = serde_json::from_str(r#"{"b": [{"d": 1, "c": 2}], "a": {}}"#).unwrap();
        assert_eq!(
            pretty_json(&value),
            "{\n  \"a\": {},\n  \"b\": [\n    {\n      \"c\": 2,\n      \"d\": 1\n    }\n  ]\n}\n"
        );
    }

    #[test]
    fn the_version_of_the_build_is_not_published() {
        let definition = json!({"name": "a", "toolingVersion": "1+x", "inputSchema": {
            "properties": {"toolingVersion": {}}},
            "_meta": {meta::CONTRACT: {"toolingVersion": "1+x", "replay": "convergent"}}});
        assert_eq!(
            published(&definition),
            json!({"name": "a", "inputSchema": {"properties": {"toolingVersion": {}}},
                "_meta": {meta::CONTRACT: {"replay": "convergent"}}})
        );
    }
}
