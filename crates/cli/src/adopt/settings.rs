//! Settings of an entry that only a host reads: on a command line they would be lost.

use super::tree::{Member, Node};

/// A server with a member `mainstay` stays as it is.
const OWN_SETTINGS: &str =
    "it has settings under mainstay; lead the client to mainstay wrap --config FILE --server NAME";
/// A server with a reference stays as it is.
const REFERENCES: &str =
    "it has references to secrets; lead the client to mainstay wrap --config FILE --server NAME";
/// Members with values that may be references, as clients call them.
const VALUES: [&str; 5] = ["env", "environment", "envs", "headers", "http_headers"];

/// The settings that would be lost, if there are any.
pub(super) fn lost(entry: &Node) -> Option<&'static str> {
    if entry.get("mainstay").is_some() {
        return Some(OWN_SETTINGS);
    }
    let is_reference =
        |one: &Member| matches!(one.value.as_text(), Some(text) if text.contains("${secret:"));
    let tables = VALUES.iter().filter_map(|name| entry.get(name));
    let mut values = tables.flat_map(|table| table.value.members());
    values.any(is_reference).then_some(REFERENCES)
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Chosen, Plan, What};
    use super::super::servers::find;
    use super::super::tree::{Document, Syntax};
    use super::*;

    #[test]
    fn settings_of_a_host_are_found() {
        for (entry, expected) in [
            (r#"{"command": "x", "env": {"K": "$V"}}"#, None),
            (
                r#"{"command": "x", "mainstay": {"deny": ["y"]}}"#,
                Some(OWN_SETTINGS),
            ),
            (
                r#"{"command": "x", "env": {"K": "a ${secret:k}"}}"#,
                Some(REFERENCES),
            ),
            (
                r#"{"url": "https://x", "headers": {"K": "${secret:k}"}}"#,
                Some(REFERENCES),
            ),
        ] {
            let text = format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#);
            let document = Document::parse(&text, Syntax::Json).unwrap();
            let servers = find(&document).unwrap();
            assert_eq!(lost(servers[0].entry), expected, "{entry}");
        }
    }

    #[test]
    fn an_entry_with_settings_of_a_host_is_left_alone() {
        let text = r#"{"mcpServers": {"a": {"command": "x", "mainstay": {"deny": ["y"]}}}}"#;
        let document = Document::parse(text, Syntax::Json).unwrap();
        for share in [None, Some(vec!["a".to_owned()])] {
            let chosen = Chosen {
                share,
                ..Chosen::default()
            };
            let plan = Plan::adopt(&document, "mainstay", &chosen, |_| false).unwrap();
            assert_eq!(plan.text, text);
            assert_eq!(plan.fates[0].what, What::LeftAlone(OWN_SETTINGS));
        }
    }
}
