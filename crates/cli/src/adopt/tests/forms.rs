//! Forms that only one client has: YAML of goose, lists of opencode, nested commands of Zed.

use super::{document, holds};
use crate::adopt::plan::{Chosen, Plan, What};
use crate::adopt::tree::Syntax;

#[test]
fn lists_of_goose_keep_their_form() {
    for (before, after) in [
        (
            "extensions:\n  a:\n    cmd: npx # why\n    args:\n      - -y\n      - 'z'\n",
            "extensions:\n  a:\n    cmd: \"/opt/bin/mainstay\" # why\n    args:\n      - \"wrap\"\n      - \"--name\"\n      - \"a\"\n      - \"--\"\n      - npx\n      - -y\n      - 'z'\n",
        ),
        (
            "extensions:\r\n  a:\r\n    args:\r\n    -   y\r\n    cmd: 'x'\r\n",
            "extensions:\r\n  a:\r\n    args:\r\n    -   \"wrap\"\r\n    -   \"--name\"\r\n    -   \"a\"\r\n    -   \"--\"\r\n    -   'x'\r\n    -   y\r\n    cmd: \"/opt/bin/mainstay\"\r\n",
        ),
        (
            "extensions:\n  a:\n    cmd: x\n    args: []\n",
            "extensions:\n  a:\n    cmd: \"/opt/bin/mainstay\"\n    args: [\"wrap\", \"--name\", \"a\", \"--\", x]\n",
        ),
        (
            "extensions:\n  a:\n    cmd: x # why\n    type: stdio",
            "extensions:\n  a:\n    cmd: \"/opt/bin/mainstay\" # why\n    args: [\"wrap\", \"--name\", \"a\", \"--\", x]\n    type: stdio",
        ),
        (
            "extensions: {a: {cmd: x}, b: {cmd: \"y\", args: [z, 'w']}}\n",
            "extensions: {a: {cmd: \"/opt/bin/mainstay\", args: [\"wrap\", \"--name\", \"a\", \"--\", x]}, b: {cmd: \"/opt/bin/mainstay\", args: [\"wrap\", \"--name\", \"b\", \"--\", \"y\", z, 'w']}}\n",
        ),
    ] {
        assert_eq!(holds(before, Syntax::Yaml), after);
    }
}

#[test]
fn servers_of_goose_that_cannot_be_moved_are_left_alone() {
    for left in [
        "extensions:\n  a:\n    type: builtin\n    cmd: x\n",
        "extensions:\n  a:\n    type: streamable_http\n    uri: https://h/mcp\n",
        "extensions:\n  a:\n    type: sse\n    url: https://h/mcp\n",
        "extensions:\n  a:\n    cmd: &c x\n  b:\n    cmd: *c\n",
        "extensions:\n  a: &all\n    cmd: x\n  b: *all\n",
        "extensions:\n  a:\n    cmd: x\n    args: [1]\n",
        "extensions:\n  a:\n    cmd: x\n    args:\n",
        "extensions:\n  a:\n    cmd: >\n      x\n",
        "extensions:\n  a:\n    cmd: x{y}\n",
    ] {
        assert_eq!(holds(left, Syntax::Yaml), left);
    }
}

#[test]
fn commands_in_a_list_and_nested_commands_keep_their_form() {
    for (before, after) in [
        (
            r#"{"mcp":{"a":{"type":"local","command":["x","y"]},"inputs":[]}}"#,
            r#"{"mcp":{"a":{"type":"local","command":["/opt/bin/mainstay","wrap","--name","a","--","x","y"]},"inputs":[]}}"#,
        ),
        (
            "{\"mcp\": {\"servers\": {\"a\": {\"command\": [ // p\n  \"x\"\n]}}}}",
            "{\"mcp\": {\"servers\": {\"a\": {\"command\": [ // p\n  \"/opt/bin/mainstay\",\n  \"wrap\",\n  \"--name\",\n  \"a\",\n  \"--\",\n  \"x\"\n]}}}}",
        ),
        (
            r#"{"context_servers": {"a": {"command": {"path": "x", "args": ["y"]}}}}"#,
            r#"{"context_servers": {"a": {"command": {"path": "/opt/bin/mainstay", "args": ["wrap", "--name", "a", "--", "x", "y"]}}}}"#,
        ),
        (
            r#"{"context_servers": {"a": {"command": {"path": "x"}, "settings": {}}}}"#,
            r#"{"context_servers": {"a": {"command": {"path": "/opt/bin/mainstay", "args": ["wrap", "--name", "a", "--", "x"]}, "settings": {}}}}"#,
        ),
    ] {
        assert_eq!(holds(before, Syntax::Json), after);
    }
    for left in [
        r#"{"mcp":{"a":{"type":"remote","url":"https://h"},"b":{"type":"local","command":[]}}}"#,
        r#"{"mcp":{"a":{"type":"local","command":["x",1]}}}"#,
        r#"{"context_servers":{"a":{"source":"extension","settings":{}}}}"#,
    ] {
        assert_eq!(holds(left, Syntax::Json), left);
    }
}

#[test]
fn options_by_hand_are_named_when_a_list_is_undone() {
    let text = r#"{"mcp":{"a":{"type":"local","command":["mainstay","wrap","--name","a","--lazy","--","x","y"]}}}"#;
    let plan = Plan::undo(
        &document(text, Syntax::Json),
        &[],
        &Chosen {
            only: vec!["a".to_owned()],
            ..Chosen::default()
        },
    );
    let plan = plan.unwrap();
    assert_eq!(
        plan.text,
        r#"{"mcp":{"a":{"type":"local","command":["x","y"]}}}"#
    );
    let What::Unwrapped {
        program, dropped, ..
    } = &plan.fates[0].what
    else {
        panic!("{:?}", plan.fates);
    };
    assert_eq!(
        (program.as_str(), dropped.as_slice()),
        ("x", &["--lazy".to_owned()][..])
    );
}
