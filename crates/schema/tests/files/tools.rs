//! The published definitions of our own tools.

use std::path::Path;

use mainstay_schema::SchemaRegistry;
use serde_json::{Value, json};

use crate::data;

#[test]
fn the_messages_of_every_published_tool_can_be_checked() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/tools");
    let files = data::files(&folder);
    let definitions: Vec<Value> = files.iter().map(|(_, tool)| tool.clone()).collect();
    let registry = SchemaRegistry::new();
    registry.add_tool_definitions(&definitions).unwrap();
    assert!(files.len() >= 10, "{} tools", files.len());
    for (file, _) in files {
        let id = format!("mcp.tool:{}", file.strip_suffix(".json").unwrap());
        let tool = registry.load_tool_io(&id).unwrap();
        assert_eq!(tool.id().as_str(), id);
        // Every tool refuses arguments it does not have, in its own place.
        let input = json!({"tool": id, "input": {"no such argument": 1}});
        let told = r#"unknown member "no such argument""#;
        let violations = tool.check_input(&input);
        assert!(
            violations
                .iter()
                .any(|violation| violation.path == "/input" && violation.message == told),
            "{violations:?}"
        );
        let output = json!({"tool": id, "output": 1});
        let violations = tool.check_output(&output);
        assert!(
            violations
                .iter()
                .all(|violation| violation.path.starts_with("/output")),
            "{violations:?}"
        );
        assert!(tool.tool().output.is_none() || !violations.is_empty());
    }
}
