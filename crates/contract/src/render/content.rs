//! Text form of a tool result of MCP: its texts, and a line for each other item.

use serde_json::Value;

use super::bytes;

/// The whole of a result as text: the parts of its content, or its structured content where it has
/// no other. Nothing is left out without a word.
pub fn content(result: &Value) -> String {
    let parts = result.get("content").and_then(Value::as_array);
    let shown: Vec<String> = parts.into_iter().flatten().map(part).collect();
    match result.get("structuredContent") {
        Some(structured) if shown.is_empty() && !structured.is_null() => {
            format!("{structured:#}")
        }
        _ => shown.join("\n"),
    }
}

fn part(part: &Value) -> String {
    let text = |name: &str| part.get(name).and_then(Value::as_str);
    let kind = text("type").unwrap_or("part");
    match (kind, text("text"), part.get("resource")) {
        ("text", Some(text), _) => text.to_owned(),
        ("image" | "audio", ..) => {
            let size = text("data").map_or(0, decoded_len);
            let mime = text("mimeType").unwrap_or("of no type");
            format!("[{kind} {mime}, {}]", bytes(size))
        }
        ("resource_link", ..) => match text("name") {
            Some(name) => format!("[link {name}: {}]", text("uri").unwrap_or("no URI")),
            None => format!("[link {}]", text("uri").unwrap_or("no URI")),
        },
        ("resource", _, Some(resource)) => embedded(resource),
        // An extension: better raw than lost.
        _ => part.to_string(),
    }
}

fn embedded(resource: &Value) -> String {
    let text = |name: &str| resource.get(name).and_then(Value::as_str);
    let uri = text("uri").unwrap_or("without a URI");
    match (text("text"), text("blob")) {
        (Some(words), _) => format!("[resource {uri}]\n{words}"),
        (None, blob) => {
            let mime = text("mimeType").unwrap_or("of no type");
            let size = blob.map_or(0, decoded_len);
            format!("[resource {uri}, {mime}, {}]", bytes(size))
        }
    }
}

/// Bytes that a text in base64 stands for.
fn decoded_len(base64: &str) -> u64 {
    let digits = base64.trim_end_matches('=').len() as u64;
    digits * 3 / 4
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_part_is_shown_in_its_place() {
        let result = json!({"content": [
            {"type": "text", "text": "one\ntwo"},
            {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="},
            {"type": "audio", "data": ""},
            {"type": "resource_link", "name": "readme", "uri": "file:///a"},
            {"type": "resource_link", "uri": "file:///b"},
            {"type": "resource", "resource": {"uri": "file:///c", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///d", "mimeType": "a/b", "blob": "aGk="}},
            {"type": "hologram", "n": 1},
            {"text": "of no type"},
        ], "structuredContent": {"not": "shown twice"}});
        assert_eq!(
            content(&result),
            "one\ntwo\n[image image/png, 5 B]\n[audio of no type, 0 B]\n[link readme: file:///a]\n\
             [link file:///b]\n[resource file:///c]\ninside\n[resource file:///d, a/b, 2 B]\n\
             {\"type\":\"hologram\",\"n\":1}\n{\"text\":\"of no type\"}"
        );
    }

    #[test]
    fn structured_content_alone_is_shown() {
        let result = json!({"content": [], "structuredContent": {"n": 1}});
        assert_eq!(content(&result), "{\n  \"n\": 1\n}");
        assert_eq!(content(&json!({"content": []})), "");
        assert_eq!(content(&json!({})), "");
    }
}
