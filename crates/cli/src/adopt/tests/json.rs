//! Properties of JSON files, with another parser as a judge.

use jsonc_parser::ParseOptions;
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};

use super::model::{Style, servers, style, wrapped};
use super::{BINARY, holds, wraps};
use crate::adopt::tree::{Document, Syntax};

/// What another parser makes of a text; it is made as strict as ours.
fn judged(text: &str) -> Option<Value> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    jsonc_parser::parse_to_serde_value(text, &options).ok()
}

/// Writes a value with whatever people put around values.
fn write(value: &Value, style: &mut Style, out: &mut String) {
    const AROUND: [&str; 9] = [
        "",
        "",
        " ",
        "\n  ",
        "\r\n\t",
        "/* } */",
        " // \"x\": {\n",
        "//\r\n",
        "/**/ ",
    ];
    let (open, close, items): (_, _, Vec<(Option<&String>, &Value)>) = match value {
        Value::Object(members) => (
            "{",
            "}",
            members
                .iter()
                .map(|(name, value)| (Some(name), value))
                .collect(),
        ),
        Value::Array(items) => ("[", "]", items.iter().map(|item| (None, item)).collect()),
        Value::String(text) => return write_text(text, style, out),
        other => return out.push_str(&other.to_string()),
    };
    out.push_str(open);
    out.push_str(style.pick(&AROUND));
    let last = items.len().saturating_sub(1);
    for (index, (name, value)) in items.iter().enumerate() {
        if let Some(name) = name {
            write_text(name, style, out);
            out.push_str(style.pick(&AROUND));
            out.push(':');
            out.push_str(style.pick(&AROUND));
        }
        write(value, style, out);
        out.push_str(style.pick(&AROUND));
        if index < last || style.chance() {
            out.push(',');
            out.push_str(style.pick(&AROUND));
        }
    }
    out.push_str(close);
}

fn write_text(text: &str, style: &mut Style, out: &mut String) {
    let first = text.chars().next().filter(char::is_ascii_alphanumeric);
    match first {
        Some(first) if style.chance() => {
            let rest = Value::from(&text[1..]).to_string();
            out.push_str(&format!("\"\\u{:04x}{}", u32::from(first), &rest[1..]));
        }
        _ => out.push_str(&Value::from(text).to_string()),
    }
}

/// A file with servers in one of the places where clients keep them.
fn file(place: usize, servers: &Value) -> Value {
    let noise = json!({"command": "npx", "args": ["x"], "n": 1.5, "deep": [[{"mcpServers": 1}]]});
    match place {
        0 => json!({"first": noise, "mcpServers": servers, "last": null}),
        1 => {
            json!({"projects": {"/srv/p": {"mcpServers": servers, "history": ["\\"]}}, "x": noise})
        }
        2 => json!({"inputs": [noise], "servers": servers}),
        3 => json!({"editor.x": 1, "mcp": {"servers": servers, "noise": noise}}),
        _ => json!({"mcp.servers": servers}),
    }
}

proptest! {
    #[test]
    fn only_command_and_args_change(
        servers in servers(), place in 0..5usize, mut style in style(), bom in proptest::bool::ANY,
    ) {
        let value = file(place, &servers);
        let mut text = String::from(if bom { "\u{feff}" } else { "" });
        write(&value, &mut style, &mut text);
        prop_assert_eq!(judged(&text), Some(value), "the text says what was meant");
        let adopted = holds(&text, Syntax::Json);
        let expected = file(
            place,
            &wrapped(&servers, BINARY, |name| wraps(&text, Syntax::Json, name)),
        );
        prop_assert_eq!(judged(&adopted), Some(expected));
    }

    #[test]
    fn what_is_json_is_what_another_parser_thinks(text in "[\\[\\]{}:,\"/*\\\\ \n\rau0-9.eE+-]{0,24}") {
        let ours = Document::parse(&text, Syntax::Json).is_ok();
        // The judge lets line breaks inside texts pass; what it refuses is nothing to us, either.
        prop_assert!(!ours || judged(&text).is_some(), "{}", text);
        let strict = serde_json::from_str::<Value>(&text).is_ok();
        prop_assert!(ours || !strict, "{}", text);
    }

    #[test]
    fn a_damaged_file_is_never_half_read(
        servers in servers(), mut style in style(), at in 0..2000usize, with in "[\\[\\]{}:,\"/* \n]?",
    ) {
        let mut text = String::new();
        write(&file(0, &servers), &mut style, &mut text);
        let at = text.char_indices().map(|(at, _)| at).nth(at % text.chars().count()).unwrap();
        let next = at + text[at..].chars().next().unwrap().len_utf8();
        let damaged = format!("{}{with}{}", &text[..at], &text[next..]);
        let ours = Document::parse(&damaged, Syntax::Json).is_ok();
        prop_assert!(!ours || judged(&damaged).is_some(), "{}", damaged);
    }
}
