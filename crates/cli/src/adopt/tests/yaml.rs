//! Properties of YAML files of goose.

use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
use serde_json::Value;

use super::model::{Style, servers, style};
use super::{document, holds};
use crate::adopt::servers::{Standing, find};
use crate::adopt::tree::{Node, Syntax};

fn text_of(text: &str, style: &mut Style) -> String {
    let is_plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase());
    match style.pick(&["double", "double", "single", "plain"]) {
        "plain" if is_plain => text.to_owned(),
        "single" if !text.chars().any(|c| c.is_control() || !c.is_ascii()) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        _ => Value::from(text).to_string().replace('\u{7f}', "\\u007f"),
    }
}

/// A value in braces and brackets.
fn flow(value: &Value, style: &mut Style) -> String {
    match value {
        Value::String(text) => text_of(text, style),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| flow(item, style)).collect();
            format!("[{}]", items.join(style.pick(&[", ", " , "])))
        }
        Value::Object(members) => {
            let members = members.iter();
            let members: Vec<String> = members
                .map(|(key, value)| {
                    format!("{}: {}", Value::from(key.as_str()), flow(value, style))
                })
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}

fn write(name: &str, entry: &Value, style: &mut Style) -> String {
    let eol = style.pick(&["\n", " # c\n", "\r\n"]);
    let name = Value::from(name).to_string().replace('\u{7f}', "\\u007f");
    if style.chance() && style.chance() {
        return format!("  {name}: {}{eol}", flow(entry, style));
    }
    let mut out = format!("  {name}:{eol}");
    if entry.as_object().unwrap().is_empty() {
        return format!("  {name}: {{}}{eol}");
    }
    for (key, value) in entry.as_object().unwrap() {
        match value {
            Value::Array(items) if !items.is_empty() && style.chance() => {
                out.push_str(&format!("    {key}:{eol}"));
                let indent = style.pick(&["    ", "      "]);
                let dash = style.pick(&["- ", "-   "]);
                for item in items {
                    out.push_str(&format!("{indent}{dash}{}{eol}", flow(item, style)));
                }
            }
            value => out.push_str(&format!("    {key}: {}{eol}", flow(value, style))),
        }
    }
    out
}

/// Program and arguments of every server that is started, by our reader.
fn started(text: &str) -> Vec<Option<Vec<String>>> {
    let document = document(text, Syntax::Yaml);
    let said = |node: &Node| node.as_text().unwrap().to_owned();
    let servers = find(&document).unwrap_or_default();
    let of = servers.iter().map(|server| match server.standing() {
        Standing::Plain(started) => {
            let items = started.items.iter().map(said);
            Some(
                std::iter::once(started.program.to_owned())
                    .chain(items)
                    .collect(),
            )
        }
        Standing::Wrapped(wrapped) => {
            let inner = wrapped.inner?;
            Some(wrapped.outer.items.iter().skip(inner).map(said).collect())
        }
        _ => None,
    });
    of.collect()
}

proptest! {
    #[test]
    fn only_the_command_line_changes(servers in servers(), mut style in style()) {
        let mut body = String::new();
        let mut meant = Vec::new();
        for (name, entry) in servers.as_object().unwrap() {
            let mut entry = entry.clone();
            let members = entry.as_object_mut().unwrap();
            members.remove("url");
            let command = members.remove("command");
            let args = members.get("args").cloned();
            if let Some(command) = command {
                members.insert("cmd".to_owned(), command.clone());
                let words = command.as_str().map(|program| {
                    let args: Vec<String> = serde_json::from_value(args.unwrap_or_default()).unwrap_or_default();
                    std::iter::once(program.to_owned()).chain(args).collect::<Vec<_>>()
                });
                meant.push(words);
            } else {
                meant.push(None);
            }
            body.push_str(&write(name, &entry, &mut style));
        }
        if body.is_empty() {
            body.push_str("  {}\n");
        }
        let text = format!("# all\nGOOSE_MODEL: x\nextensions:\n{body}last:\n  args: []\n");
        let before = started(&text);
        prop_assert_eq!(before.len(), meant.len());
        let is_ours = |words: &Vec<String>| words[0].starts_with("mainstay") && words.get(1).is_some_and(|word| word == "wrap");
        for (read, meant) in before.iter().zip(&meant) {
            if let Some(meant) = meant.as_ref().filter(|words| !words[0].is_empty() && !is_ours(words)) {
                prop_assert_eq!(read.as_ref(), Some(meant), "{}", text);
            }
        }
        let adopted = holds(&text, Syntax::Yaml);
        prop_assert_eq!(started(&adopted), before, "{}", adopted);
        let tail = "last:\n  args: []\n";
        prop_assert!(adopted.ends_with(tail));
    }
}
