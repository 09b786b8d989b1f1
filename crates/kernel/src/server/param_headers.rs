//! Arguments of a call that its HTTP request repeats as headers, where the tool asks for it (`x-mcp-header`,
//! revision 2026-07-28). A server rejects a call without them. The driver of a remote server sends them; other
//! drivers ignore them.

use mainstay_contract::scan;
use serde_json::Value;

/// The member of a property's schema with the name of its header.
const ANNOTATION: &str = "x-mcp-header";
/// Prefix of the header's name.
const PREFIX: &str = "Mcp-Param-";
/// Most headers of one call.
const HEADERS: usize = 64;
/// Deepest annotated property.
const DEPTH: usize = 16;

/// The headers for a call with these arguments, as names and plain values.
///
/// Finding the arguments reads the whole line of the call, so they are asked for only where a header is.
pub(super) fn param_headers<'a>(
    definition: &str,
    arguments: impl FnOnce() -> &'a str,
) -> Vec<(String, String)> {
    if !definition.contains(ANNOTATION) {
        return Vec::new();
    }
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    let schema = scan::member(definition, "inputSchema").and_then(read);
    let (Some(schema), Some(arguments)) = (schema, read(arguments())) else {
        return Vec::new();
    };
    let mut headers = Vec::new();
    collect(&schema, &arguments, DEPTH, &mut headers);
    headers
}

/// Only properties that `properties` alone leads to may be annotated.
fn collect(schema: &Value, arguments: &Value, depth: usize, headers: &mut Vec<(String, String)>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let Some(below) = depth.checked_sub(1) else {
        return;
    };
    for (name, property) in properties.into_iter().flatten() {
        let Some(argument) = arguments.get(name) else {
            continue;
        };
        let header = property.get(ANNOTATION).and_then(Value::as_str);
        if let (Some(header), Some(value)) = (header, plain(argument))
            && headers.len() < HEADERS
        {
            headers.push((format!("{PREFIX}{header}"), value));
        }
        collect(property, argument, below, headers);
    }
}

/// The value of a header. `None` for a null and for values with members.
fn plain(argument: &Value) -> Option<String> {
    match argument {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        // 42.0 is the integer 42.
        Value::Number(number) => {
            let text = number.to_string();
            let whole = text.strip_suffix(".0").map(str::to_owned);
            Some(whole.unwrap_or(text))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotated_arguments_become_headers_and_no_others() {
        let annotated = |kind: &str, header: &str| json!({ "type": kind, "x-mcp-header": header });
        let definition = json!({ "name": "query", "inputSchema": {
            "type": "object",
            "properties": {
                "region": annotated("string", "Region"),
                "shard": annotated("integer", "Shard"),
                "dry": annotated("boolean", "Dry-Run"),
                "gone": annotated("string", "Gone"),
                "empty": annotated("string", "Empty"),
                "query": { "type": "string" },
                "place": { "type": "object", "properties": { "zone": annotated("string", "Zone") } },
                "list": { "type": "array", "items": annotated("string", "Item") },
            },
        } });
        let arguments = json!({ "region": "us-west1", "shard": 42.0, "dry": true, "empty": null,
            "query": "select", "place": { "zone": "a" }, "list": ["x"] })
        .to_string();
        let headers = param_headers(&definition.to_string(), || arguments.as_str());
        let pairs: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let expected = [
            ("Mcp-Param-Region", "us-west1"),
            ("Mcp-Param-Shard", "42"),
            ("Mcp-Param-Dry-Run", "true"),
            ("Mcp-Param-Zone", "a"),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn a_schema_without_end_is_read_to_a_bound() {
        let (mut schema, mut arguments) = (json!({ "x-mcp-header": "Deep" }), json!("x"));
        for _ in 0..=DEPTH {
            schema = json!({ "properties": { "a": schema } });
            arguments = json!({ "a": arguments });
        }
        let definition = json!({ "inputSchema": schema }).to_string();
        let arguments = arguments.to_string();
        assert_eq!(param_headers(&definition, || arguments.as_str()), []);
    }
}
