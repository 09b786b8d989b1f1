//! The published contracts: the result envelope, and what goes in and out of tools.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use mainstay_schema::{
    CompileError, Limits, ParseToolIdError, SchemaRegistry, ToolIoError, ToolPart, Validator,
    Violation,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn texts(violations: Vec<Violation>) -> Vec<(String, String)> {
    let violations = violations.into_iter();
    violations
        .map(|violation| (violation.path, violation.message))
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let expected = expected.iter();
    expected
        .map(|(path, message)| ((*path).to_owned(), (*message).to_owned()))
        .collect()
}

fn envelope() -> Validator {
    SchemaRegistry::new().load_envelope().unwrap()
}

fn meta(status: &str) -> Value {
    json!({
        "requestId": "r", "traceId": "t", "spanId": "s", "schemaVersion": "1",
        "deterministic": true, "transport": "stdio", "route": "tool", "method": "list_schemas",
        "durationMs": 0.5, "status": status, "attempt": 0, "inputBytes": 2, "outputBytes": 4
    })
}

fn success() -> Value {
    json!({"ok": true, "data": [1], "error": null, "meta": meta("ok")})
}

fn failure() -> Value {
    let error = json!({"code": "NOT_FOUND", "message": "no such schema"});
    json!({"ok": false, "data": null, "error": error, "meta": meta("error")})
}

#[test]
fn envelopes_of_either_kind_are_valid() {
    let envelope = envelope();
    assert_eq!(texts(envelope.check(&success())), []);
    assert_eq!(texts(envelope.check(&failure())), []);
    let mut of_a_tool = failure();
    of_a_tool["meta"]["toolId"] = json!("mcp.tool:get_schema");
    of_a_tool["error"]["details"] = json!({"name": "x"});
    assert_eq!(texts(envelope.check(&of_a_tool)), []);
    let mut of_nothing = success();
    of_nothing["data"] = json!(null);
    assert_eq!(texts(envelope.check(&of_nothing)), []);
}

#[test]
fn an_envelope_that_contradicts_itself_says_where() {
    let envelope = envelope();
    let says = |value: &Value, expected: &[(&str, &str)]| {
        assert_eq!(texts(envelope.check(value)), pairs(expected), "{value}");
    };
    let mut both = success();
    both["error"] = failure()["error"].clone();
    says(&both, &[("/error", "expected null")]);
    let mut neither = failure();
    neither["error"] = json!(null);
    says(&neither, &[("/error", "expected object")]);
    let mut data = failure();
    data["data"] = json!({});
    says(&data, &[("/data", "expected null")]);
    let mut status = success();
    status["meta"]["status"] = json!("error");
    says(&status, &[("/meta/status", r#"must be "ok""#)]);
    let mut code = failure();
    code["error"]["code"] = json!("TOOL_TIMEOUT");
    says(
        &code,
        &[(
            "/error/code",
            r#"must be one of "INVALID_INPUT", "INVALID_OUTPUT", "NOT_FOUND", "UNAUTHORIZED", "INTERNAL_ERROR""#,
        )],
    );
    let mut neither_nor = success();
    neither_nor["ok"] = json!("yes");
    says(&neither_nor, &[("/ok", "expected boolean")]);
}

/// Any envelope that keeps its contract.
fn any_envelope() -> impl Strategy<Value = Value> {
    let data = prop_oneof![
        Just(json!(null)),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
        prop::collection::vec(any::<bool>(), 0..3).prop_map(Value::from),
    ];
    let about = (
        "[a-z0-9-]{1,12}",
        any::<bool>(),
        prop::sample::select(vec!["stdio", "socket", "http", "cli"]),
        prop::sample::select(vec!["discover", "tool", "health"]),
        0.0..1e6f64,
        any::<u32>(),
        prop::option::of("mcp\\.tool:[A-Za-z0-9_./-]{1,12}"),
    );
    let codes = vec![
        "INVALID_INPUT",
        "INVALID_OUTPUT",
        "NOT_FOUND",
        "UNAUTHORIZED",
        "INTERNAL_ERROR",
    ];
    let error = prop::option::of((prop::sample::select(codes), ".{1,20}", any::<bool>()));
    (data, about, error).prop_map(
        |(data, (id, deterministic, transport, route, duration, count, tool), error)| {
            let mut envelope = match error {
                None => json!({"ok": true, "data": data, "error": null, "meta": meta("ok")}),
                Some((code, message, details)) => {
                    let mut envelope = failure();
                    envelope["error"] = json!({"code": code, "message": message});
                    if details {
                        envelope["error"]["details"] = data;
                    }
                    envelope
                }
            };
            let meta = envelope["meta"].as_object_mut().unwrap();
            for (name, value) in [
                ("requestId", json!(id)),
                ("deterministic", json!(deterministic)),
                ("transport", json!(transport)),
                ("route", json!(route)),
                ("durationMs", json!(duration)),
                ("inputBytes", json!(count)),
            ] {
                meta.insert(name.to_owned(), value);
            }
            meta.extend(tool.map(|tool| ("toolId".to_owned(), json!(tool))));
            envelope
        },
    )
}

/// The objects of an envelope whose members are all known, by pointer.
fn closed_objects(envelope: &Value) -> Vec<&'static str> {
    let all = ["", "/meta", "/error"].into_iter();
    all.filter(|pointer| envelope.pointer(pointer).unwrap().is_object())
        .collect()
}

fn members_mut<'a>(envelope: &'a mut Value, pointer: &str) -> &'a mut Map<String, Value> {
    envelope
        .pointer_mut(pointer)
        .unwrap()
        .as_object_mut()
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_member_of_an_envelope_may_be_missing(envelope in any_envelope()) {
        let validator = self::envelope();
        prop_assert_eq!(texts(validator.check(&envelope)), []);
        for pointer in closed_objects(&envelope) {
            let names: Vec<String> = members_mut(&mut envelope.clone(), pointer).keys().cloned().collect();
            for name in names {
                let mut damaged = envelope.clone();
                members_mut(&mut damaged, pointer).shift_remove(&name);
                let optional = ["toolId", "details"].contains(&name.as_str());
                prop_assert_eq!(validator.is_valid(&damaged), optional, "{} without {}", pointer, name);
                let told = Violation {
                    path: pointer.to_owned(),
                    message: format!("missing required member \"{name}\""),
                };
                prop_assert_eq!(validator.check(&damaged).contains(&told), !optional);
            }
        }
    }

    #[test]
    fn no_other_member_may_be_in_an_envelope(envelope in any_envelope(), name in ".{0,12}", value in any::<u8>()) {
        let validator = self::envelope();
        for pointer in closed_objects(&envelope) {
            let mut damaged = envelope.clone();
            let members = members_mut(&mut damaged, pointer);
            if members.contains_key(&name) || ["toolId", "details"].contains(&name.as_str()) {
                continue;
            }
            members.insert(name.clone(), json!(value));
            let violations = validator.check(&damaged);
            prop_assert_eq!(violations.len(), 1);
            prop_assert_eq!(violations[0].path.as_str(), pointer);
            prop_assert!(violations[0].message.starts_with("unknown member "));
        }
    }

    #[test]
    fn no_member_of_an_envelope_may_contradict_another(envelope in any_envelope(), wrong in any::<i32>()) {
        let validator = self::envelope();
        let ok = envelope["ok"] == json!(true);
        let other = if ok { "error" } else { "ok" };
        let mut damages = vec![("/ok".to_owned(), json!(!ok)), ("/meta/status".to_owned(), json!(other))];
        if ok {
            damages.push(("/error".to_owned(), failure()["error"].clone()));
        } else {
            for (pointer, value) in [
                ("/error", json!(null)),
                ("/data", json!(wrong)),
                ("/error/code", json!("OTHER")),
                ("/error/message", json!("")),
            ] {
                damages.push((pointer.to_owned(), value));
            }
        }
        for name in ["requestId", "traceId", "spanId", "schemaVersion", "deterministic", "transport", "route", "method"] {
            damages.push((format!("/meta/{name}"), json!(wrong)));
        }
        for name in ["durationMs", "attempt", "inputBytes", "outputBytes"] {
            damages.push((format!("/meta/{name}"), json!(-1)));
        }
        for (pointer, value) in damages {
            let mut damaged = envelope.clone();
            *damaged.pointer_mut(&pointer).unwrap() = value;
            prop_assert!(!validator.check(&damaged).is_empty(), "{}", pointer);
        }
    }
}

fn tools() -> SchemaRegistry {
    let registry = SchemaRegistry::new();
    let input =
        json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let output = json!({"type": "object", "required": ["ok"]});
    let definitions = [
        json!({"name": "get_schema", "description": "x", "inputSchema": input, "outputSchema": output}),
        json!({"name": "get_example", "inputSchema": input}),
    ];
    registry.add_tool_definitions(&definitions).unwrap();
    registry
}

#[test]
fn the_input_of_a_tool_is_checked_as_a_message_and_by_its_schema() {
    let tool = tools().load_tool_io("mcp.tool:get_schema").unwrap();
    let says = |message: &Value, expected: &[(&str, &str)]| {
        assert_eq!(
            texts(tool.check_input(message)),
            pairs(expected),
            "{message}"
        );
    };
    let message = json!({"tool": "mcp.tool:get_schema", "input": {"name": "a"},
                         "version": {"major": 1, "minor": 0}, "metadata": {"any": "thing"}});
    says(&message, &[]);
    says(
        &json!({"tool": "mcp.tool:get_schema", "input": {"name": 1}, "inptu": {}}),
        &[
            ("", r#"unknown member "inptu" (did you mean "input"?)"#),
            ("/input/name", "expected string"),
        ],
    );
    says(
        &json!({"tool": "mcp.tool:get_schema", "input": []}),
        &[("/input", "expected object")],
    );
    says(
        &json!({"version": {"minor": -1}}),
        &[
            ("", r#"missing required member "input""#),
            ("", r#"missing required member "tool""#),
            ("/version", r#"missing required member "major""#),
            ("/version/minor", "must be at least 0"),
        ],
    );
    says(&json!([]), &[("", "expected object")]);
}

#[test]
fn the_message_must_name_the_tool_by_its_canonical_identifier() {
    let tool = tools().load_tool_io("mcp.tool:get_schema").unwrap();
    let pattern = r#"must match the pattern "^mcp\\.tool:[A-Za-z0-9_./-]+$""#;
    for (name, message) in [
        (
            json!("mcp.tool:get_example"),
            r#"must be "mcp.tool:get_schema""#,
        ),
        (json!("get_schema"), pattern),
        (json!(""), pattern),
        (json!(1), "expected string"),
    ] {
        let input = json!({"tool": name, "input": {"name": "a"}});
        let output = json!({"tool": name, "output": {"ok": true}});
        let expected = pairs(&[("/tool", message)]);
        assert_eq!(texts(tool.check_input(&input)), expected);
        assert_eq!(texts(tool.check_output(&output)), expected);
    }
}

#[test]
fn the_output_of_a_tool_needs_no_input_but_keeps_its_schema() {
    let registry = tools();
    let tool = registry.load_tool_io("mcp.tool:get_schema").unwrap();
    let output = |output: Value| json!({"tool": "mcp.tool:get_schema", "output": output});
    assert_eq!(texts(tool.check_output(&output(json!({"ok": true})))), []);
    assert_eq!(
        texts(tool.check_output(&output(json!({})))),
        pairs(&[("/output", r#"missing required member "ok""#)])
    );
    assert_eq!(
        texts(tool.check_output(&json!({"tool": "mcp.tool:get_schema", "input": {}}))),
        pairs(&[
            ("", r#"missing required member "output""#),
            ("", r#"unknown member "input""#)
        ])
    );
    // A tool that declares no output may give anything.
    let free = registry.load_tool_io("mcp.tool:get_example").unwrap();
    let message = json!({"tool": "mcp.tool:get_example", "output": [1]});
    assert_eq!(texts(free.check_output(&message)), []);
}

#[test]
fn tools_share_the_validators_of_equal_schemas() {
    let registry = tools();
    let one = registry.load_tool_io("mcp.tool:get_schema").unwrap();
    let two = registry.load_tool_io("mcp.tool:get_example").unwrap();
    assert!(one.tool().input.shares_state_with(&two.tool().input));
    let again = registry.load_tool_io("mcp.tool:get_schema").unwrap();
    let (first, second) = (&one.tool().output, &again.tool().output);
    assert!(
        first
            .as_ref()
            .unwrap()
            .shares_state_with(second.as_ref().unwrap())
    );
    let (first, second) = (registry.load_envelope(), registry.load_envelope());
    assert!(first.unwrap().shares_state_with(&second.unwrap()));
}

#[test]
fn other_identifiers_and_unknown_tools_are_refused() {
    let registry = tools();
    for id in [
        "",
        "get_schema",
        "mcp.tool:",
        "mcp.tool:a b",
        "MCP.TOOL:get_schema",
    ] {
        let text = id.to_owned();
        assert_eq!(
            registry.load_tool_io(id).unwrap_err(),
            ToolIoError::NotCanonical(ParseToolIdError { text })
        );
    }
    let error = registry.load_tool_io("mcp.tool:gone").unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"no tool "mcp.tool:gone" is registered"#
    );
}

#[test]
fn bad_definitions_are_refused_with_their_reason() {
    let object = json!({"type": "object"});
    let refused = |definitions: &[Value]| {
        let registry = SchemaRegistry::new();
        registry.add_tool_definitions(definitions).unwrap_err()
    };
    let says = |definitions: &[Value], expected: &str| {
        assert_eq!(refused(definitions).to_string(), expected);
    };
    says(
        &[json!([])],
        r#"tool definition 0 cannot be used: it has no "name""#,
    );
    says(
        &[json!({"name": "a"})],
        r#"tool definition 0 cannot be used: it has no "inputSchema""#,
    );
    let a = json!({"name": "a", "inputSchema": object});
    says(
        &[a.clone(), a],
        "tool definition 1 cannot be used: it has the name of definition 0",
    );
    let error = refused(&[json!({"name": "a b", "inputSchema": object})]);
    assert!(matches!(error, ToolIoError::NotCanonical(_)));
    let error = refused(&[json!({"name": "a", "inputSchema": {"type": "string"}})]);
    let ToolIoError::BadSchema { id, source } = error else {
        panic!("{error:?}");
    };
    assert_eq!((id.name(), source.part), ("a", ToolPart::Input));
    assert_eq!(source.source, CompileError::NotAnObject);
    let mut limits = Limits::default();
    limits.tools = 1;
    let registry = SchemaRegistry::with_limits(limits);
    registry.add_tool("a", &object, None).unwrap();
    registry.add_tool("a", &object, Some(&object)).unwrap();
    assert_eq!(
        registry.add_tool("b", &object, None),
        Err(ToolIoError::TooMany { limit: 1 })
    );
}
