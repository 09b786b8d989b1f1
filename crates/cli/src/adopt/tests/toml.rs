//! Properties of TOML files; `toml` itself is the judge of what they say.

use proptest::prelude::{prop_assert_eq, proptest};
use serde_json::Value;

use super::model::{Style, servers, style, wrapped};
use super::{BINARY, holds, wraps};
use crate::adopt::tree::Syntax;

fn judged(text: &str) -> Value {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn text_of(text: &str, style: &mut Style) -> String {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric());
    match style.pick(&["basic", "basic", "literal", "long"]) {
        "literal" if is_plain => format!("'{text}'"),
        "long" if is_plain => format!("\"\"\"\n{text}\"\"\""),
        _ => Value::from(text).to_string().replace('\u{7f}', "\\u007f"),
    }
}

fn key_of(key: &str, style: &mut Style) -> String {
    let is_bare = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if is_bare && style.chance() {
        key.to_owned()
    } else {
        Value::from(key).to_string().replace('\u{7f}', "\\u007f")
    }
}

/// A value on the right of an equals sign.
fn inline(value: &Value, style: &mut Style) -> String {
    match value {
        Value::String(text) => text_of(text, style),
        Value::Array(items) => {
            let mut out = String::from("[");
            for item in items {
                out.push_str(style.pick(&["", " ", "\n  ", " # ]\n"]));
                out.push_str(&inline(item, style));
                out.push(',');
            }
            if !items.is_empty() && style.chance() {
                out.pop();
            }
            out.push_str(style.pick(&["", " ", "\n", " # \"\n"]));
            out + "]"
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(key, value)| format!("{} = {}", key_of(key, style), inline(value, style)))
                .collect();
            format!("{{ {} }}", members.join(", "))
        }
        other => other.to_string(),
    }
}

/// One server as a table with a header, as one in braces, or as dotted keys.
fn write(name: &str, entry: &Value, style: &mut Style, tables: &mut String, dotted: &mut String) {
    let eol = style.pick(&["\n", " # c\n", "\r\n", " # = [\r\n"]);
    let name = key_of(name, style);
    let members = entry.as_object().unwrap();
    match style.pick(&["header", "header", "braces", "dotted"]) {
        "braces" => {
            dotted.push_str(&format!("{name} = {}{eol}", inline(entry, style)));
        }
        "dotted" if !members.is_empty() => {
            for (key, value) in members {
                let (key, value) = (key_of(key, style), inline(value, style));
                let dot = style.pick(&[".", " . "]);
                dotted.push_str(&format!("{name}{dot}{key} = {value}{eol}"));
            }
        }
        _ => {
            tables.push_str(&format!("[mcp_servers.{name}]{eol}"));
            for (key, value) in members {
                let indent = style.pick(&["", "  "]);
                let (key, value) = (key_of(key, style), inline(value, style));
                tables.push_str(&format!("{indent}{key} = {value}{eol}"));
            }
        }
    }
}

proptest! {
    #[test]
    fn only_command_and_args_change(
        servers in servers(), mut style in style(), bom in proptest::bool::ANY,
    ) {
        let (mut tables, mut dotted) = (String::new(), String::new());
        for (name, entry) in servers.as_object().unwrap() {
            write(name, entry, &mut style, &mut tables, &mut dotted);
        }
        let bom = if bom { "\u{feff}" } else { "" };
        let text = format!(
            "{bom}model = \"x\"\ncommand = \"npx\"\n[mcp_servers] # all\n{dotted}{tables}[last]\nargs = []"
        );
        prop_assert_eq!(&judged(&text)["mcp_servers"], &servers, "the text says what was meant");
        let adopted = holds(&text, Syntax::Toml);
        let mut expected = judged(&text);
        expected["mcp_servers"] = wrapped(&servers, BINARY, |name| wraps(&text, Syntax::Toml, name));
        prop_assert_eq!(judged(&adopted), expected);
    }
}
