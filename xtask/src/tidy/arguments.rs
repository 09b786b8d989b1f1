//! Every argument of every tool has a test.
//!
//! The tools are the definitions in `schemas/tools/*.json`, and below each example
//! that has some. A test that shows that an argument changes the result, or is
//! rejected, says so beside itself:
//!
//! ```text
//! // covers: validate_asset.schema, validate_asset.asset
//! ```
//!
//! An argument without a cover is a finding, and so is a line that covers what no
//! tool has. `render` is left out: one test over all tools covers it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::finding::Finding;
use super::rust_text;
use super::tree::{Tree, extension};

const FOLDER: &str = "schemas/tools/";
const EXAMPLES: &str = "examples/";
const COVERED_FOR_ALL: &str = "render";
const MARKER: &str = "// covers:";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Argument as `tool.argument`, and the file that defines it.
    let mut declared: BTreeMap<String, &str> = BTreeMap::new();
    let mut has_definitions = false;
    for (path, text) in tree.texts() {
        if !is_definition(path) {
            continue;
        }
        has_definitions = true;
        match arguments(text) {
            Some(arguments) => declared.extend(arguments.into_iter().map(|name| (name, path))),
            None => findings.push(Finding::fault(
                path,
                1,
                "not a tool definition; it needs `name` and `inputSchema.properties`",
            )),
        }
    }
    if !has_definitions {
        return findings;
    }
    let mut missing = declared.clone();
    for (path, text) in tree.texts().filter(|(path, _)| extension(path) == "rs") {
        for (line, name) in covered(text) {
            missing.remove(&name);
            if !declared.contains_key(&name) {
                let message =
                    format!("covers `{name}`, which no tool has; correct or remove the line");
                findings.push(Finding::fault(path, line, message));
            }
        }
    }
    findings.extend(missing.into_iter().map(|(name, path)| {
        let message =
            format!("the argument `{name}` has no test; write one and mark it `{MARKER} {name}`");
        Finding::fault(path, 1, message)
    }));
    findings
}

fn is_definition(path: &str) -> bool {
    let example = path
        .strip_prefix(EXAMPLES)
        .and_then(|rest| rest.split_once('/'));
    let inside = example.map_or(path, |(_, inside)| inside);
    inside.starts_with(FOLDER) && extension(path) == "json"
}

/// `tool.argument` for each argument of a definition.
fn arguments(definition: &str) -> Option<Vec<String>> {
    let definition: Value = serde_json::from_str(definition).ok()?;
    let tool = definition.get("name")?.as_str()?;
    let properties = definition
        .get("inputSchema")?
        .as_object()?
        .get("properties");
    // A tool without arguments need not have `properties`.
    let names = properties
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|map| map.keys());
    Some(
        names
            .filter(|name| *name != COVERED_FOR_ALL)
            .map(|name| format!("{tool}.{name}"))
            .collect(),
    )
}

/// Numbered names of what a file says it covers.
fn covered(text: &str) -> Vec<(usize, String)> {
    if !text.contains(MARKER) {
        return Vec::new();
    }
    let comments = rust_text::split(text).comments;
    let lines = comments.lines().enumerate();
    lines
        .filter_map(|(index, line)| Some((index + 1, line.trim().strip_prefix(MARKER)?)))
        .flat_map(|(line, names)| {
            names
                .split([',', ' '])
                .filter(|name| !name.is_empty())
                .map(move |name| (line, name.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;

    const TOOL: &str = r#"{"name": "find", "inputSchema": {"properties":
        {"path": {}, "limit": {}, "render": {}}}}"#;

    fn found(tool: &str, test: &str) -> Vec<String> {
        let tree = Tree::of([
            ("schemas/tools/find.json", tool),
            ("crates/x/tests/a.rs", test),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tool_whose_arguments_are_covered_passes() {
        assert_eq!(
            found(TOOL, "// covers: find.path\n\n    // covers: find.limit\n"),
            [""; 0]
        );
        assert_eq!(found(TOOL, "// covers: find.path, find.limit\n"), [""; 0]);
        assert_eq!(found(r#"{"name": "ping", "inputSchema": {}}"#, ""), [""; 0]);
    }

    #[test]
    fn the_tools_of_an_example_count_like_our_own() {
        let tree = Tree::of([
            ("examples/x/schemas/tools/find.json", TOOL),
            ("examples/x/tests/a.rs", "// covers: find.path\n"),
            ("crates/x/schemas/tools/other.json", TOOL),
        ]);
        let findings: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(findings.len(), 1);
        assert!(
            findings[0]
                .starts_with("examples/x/schemas/tools/find.json:1: the argument `find.limit`")
        );
    }

    #[test]
    fn an_argument_without_a_test_fails() {
        let findings = found(
            TOOL,
            "// covers: find.path\nlet a = \"// covers: find.limit\";\n",
        );
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("schemas/tools/find.json:1: the argument `find.limit`"));
    }

    #[test]
    fn covering_what_no_tool_has_fails() {
        let findings = found(
            TOOL,
            "// covers: find.path, find.limit\n// covers: find.depth\n",
        );
        assert_eq!(findings.len(), 1);
        assert!(
            findings[0].starts_with("crates/x/tests/a.rs:2: "),
            "{findings:?}"
        );
    }

    #[test]
    fn a_file_that_is_no_definition_fails() {
        assert_eq!(found("[]", "").len(), 1);
    }

    #[test]
    fn without_definitions_there_is_nothing_to_check() {
        let tree = Tree::of([("crates/x/tests/a.rs", "// covers: find.path\n")]);
        assert!(check(&tree).is_empty());
    }
}
