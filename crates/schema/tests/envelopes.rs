//! Envelopes: what their schemas refuse our readers refuse, and the other way round; every error
//! row says the same in each of its forms.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use mainstay_contract::dialect::encode;
use mainstay_contract::dialect::{Dialect, EchoId, Form, Shape};
use mainstay_contract::envelope::{
    Asked, FieldErrorKind, Ids, Invocation, InvocationError, InvocationResponse, Meta,
    ResultEnvelope, Timings, Transport,
};
use mainstay_contract::error::{ErrorKind, Surface};
use mainstay_contract::id::RequestId;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Forwarded, Outcome, Problem, Success, ToolReply};
use mainstay_schema::{SchemaRegistry, Validator, canonical_json};
use proptest::prelude::*;
use serde_json::{Value, json};

const DEPTH: usize = 64;

/// One of the three kinds of envelope.
struct Kind {
    name: &'static str,
    validator: Validator,
    /// The host reads only requests by itself.
    parses: Option<fn(&[u8]) -> bool>,
    samples: Vec<Value>,
}

fn kinds() -> Vec<Kind> {
    let registry = SchemaRegistry::new();
    vec![
        Kind {
            name: "result",
            validator: registry.load_envelope().unwrap(),
            parses: None,
            samples: outcomes().iter().map(result_of).collect(),
        },
        Kind {
            name: "request",
            validator: registry.load_request().unwrap(),
            parses: Some(|text| Invocation::parse(text, DEPTH).is_ok()),
            samples: vec![full_request(), small_request()],
        },
        Kind {
            name: "response",
            validator: registry.load_response().unwrap(),
            parses: None,
            samples: responses(),
        },
    ]
}

fn full_request() -> Value {
    json!({
        "id": "5b0c7d0a-6f6e-4f3c-9a57-0d8f3a1c2e44",
        "version": "1.0.0",
        "timestamp": "2026-03-02T09:30:00Z",
        "tool": "assets/validate_asset",
        "trace_id": "trace-lamp-7",
        "context": {"task_id": "task-9", "agent": "Gaffer"},
        "auth": {"type": "bearer", "token": "not-a-real-one", "scopes": ["assets:read"]},
        "metadata": {"priority": "high"},
        "payload": {"schema": "lamp", "asset": {"name": "key light"}},
    })
}

fn small_request() -> Value {
    json!({
        "id": "", "version": "1.7.12", "timestamp": "2026-03-02t09:30:00.5+01:00",
        "tool": "x", "payload": {}, "auth": {"type": "none"},
    })
}

fn responses() -> Vec<Value> {
    let sample = json!({
        "id": "5b0c7d0a-6f6e-4f3c-9a57-0d8f3a1c2e44",
        "version": "1.0.0",
        "status": {"code": "success", "http": 200, "message": "1 asset checked"},
        "timestamp": "2026-03-02T09:30:01Z",
        "duration_ms": 845,
        "output": [{"path": "/name", "msg": "expected string"}],
        "metadata": {"cached": false},
        "headers": {"x-served-by": "lamp"},
    });
    let accepted = json!({
        "id": "a", "version": "1.0.0", "status": {"code": "accepted"},
        "timestamp": "2026-03-02T09:30:01Z", "errors": [],
    });
    let mut all = vec![sample, accepted];
    all.extend(outcomes().iter().map(response_of));
    all
}

fn outcomes() -> Vec<Outcome> {
    let reply = ToolReply {
        json: Json::parse(r#"{"ok": true, "n": 1.50, "a": [null]}"#).unwrap(),
        text: None,
    };
    let forwarded = |line: &str, is_error| {
        let line = Json::parse(line).unwrap();
        Ok(Success::Forwarded(Forwarded { line, is_error }))
    };
    let mut timeout = Problem::of(ErrorKind::Timeout).with_timeout(1500);
    timeout.stderr = Some("last words".to_owned());
    let mute = Problem::new(ErrorKind::NotFound, "").with_details(json!({"ok": false}).into());
    vec![
        Ok(Success::Tool(reply)),
        Ok(Success::Members(Json::empty_object())),
        forwarded(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#, false),
        forwarded(r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#, true),
        Err(timeout),
        Err(mute),
        Err(Problem::of(ErrorKind::Overloaded)),
    ]
}

fn meta() -> Meta {
    let asked = Asked::tool("mcp.tool:put", &Json::parse(r#"{ "a": 1 }"#).unwrap());
    let ids = Ids::deterministic(&asked);
    let mut meta = Meta::new(&asked, Transport::Socket, ids, true);
    meta.duration_ms = 1.25;
    meta.tool_id = Some("mcp.tool:put".to_owned());
    meta
}

fn result_of(outcome: &Outcome) -> Value {
    parsed(&ResultEnvelope::new(meta(), outcome).encode())
}

fn response_of(outcome: &Outcome) -> Value {
    let timings = Timings {
        timestamp: "2026-03-02T09:30:01.000Z".to_owned(),
        duration_ms: 0.5,
    };
    let trace = Some("t".to_owned());
    parsed(&InvocationResponse::new("a".to_owned(), trace, outcome, timings).encode())
}

fn parsed(line: &str) -> Value {
    assert!(!line.contains('\n'));
    serde_json::from_str(line).unwrap()
}

fn agree(kind: &Kind, value: &Value) -> Result<bool, String> {
    let by_schema = kind.validator.is_valid(value);
    let text = value.to_string();
    let by_reader = kind
        .parses
        .map_or(by_schema, |parses| parses(text.as_bytes()));
    if by_schema == by_reader {
        Ok(by_schema)
    } else {
        let (name, said) = (kind.name, kind.validator.check(value));
        Err(format!(
            "{name}: the reader takes it: {by_reader}; the schema: {said:?}; {value}"
        ))
    }
}

#[test]
fn every_sample_and_every_envelope_we_make_is_valid() {
    for kind in kinds() {
        for sample in &kind.samples {
            assert_eq!(kind.validator.check(sample), [], "{}", kind.name);
            assert_eq!(agree(&kind, sample), Ok(true));
        }
    }
}

/// The paths of all objects in a value, itself included.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.push(at.to_owned());
            for (name, member) in members {
                objects(member, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                objects(item, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// Objects that may have any members.
const OPEN: [&str; 9] = [
    "/data",
    "/details",
    "/detail",
    "/output",
    "/payload",
    "/context",
    "/metadata",
    "/headers",
    "/error/details",
];

fn is_open(path: &str) -> bool {
    OPEN.iter().any(|open| path.contains(open))
}

#[test]
fn a_missing_required_member_is_refused_wherever_it_is() {
    let optional = [
        "toolId",
        "details",
        "trace_id",
        "context",
        "auth",
        "metadata",
        "token",
        "scopes",
        "http",
        "message",
        "duration_ms",
        "output",
        "headers",
        "code",
        "detail",
        "errors",
    ];
    for kind in kinds() {
        let mut refused = 0;
        for sample in &kind.samples {
            let mut paths = Vec::new();
            objects(sample, "", &mut paths);
            for path in paths.iter().filter(|path| !is_open(path)) {
                let names = sample.pointer(path).unwrap().as_object().unwrap().keys();
                for name in names {
                    let mut without = sample.clone();
                    let object = without.pointer_mut(path).unwrap().as_object_mut().unwrap();
                    object.shift_remove(name);
                    let valid = agree(&kind, &without).unwrap();
                    assert!(!valid || optional.contains(&name.as_str()), "{path}/{name}");
                    refused += usize::from(!valid);
                }
            }
        }
        assert!(refused > 4, "{}: {refused}", kind.name);
    }
}

#[test]
fn an_unknown_member_is_refused_wherever_the_envelope_is_ours() {
    for kind in kinds() {
        for sample in &kind.samples {
            let mut paths = Vec::new();
            objects(sample, "", &mut paths);
            for path in paths {
                let mut with = sample.clone();
                with.pointer_mut(&path).unwrap()["surprise"] = json!("x");
                let valid = agree(&kind, &with).unwrap();
                assert_eq!(valid, is_open(&path), "{}: {path}", kind.name);
            }
        }
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let error = json!({"code": "NOT_FOUND", "message": "x"});
    let errors = json!([{"message": "x"}]);
    let changes: [(&str, usize, &str, Value); 14] = [
        ("result", 0, "/ok", json!(false)),
        ("result", 0, "/error", error),
        ("result", 0, "/meta/status", json!("error")),
        ("result", 4, "/ok", json!(true)),
        ("result", 4, "/data", json!({})),
        ("result", 4, "/error", json!(null)),
        ("result", 4, "/meta/status", json!("ok")),
        ("request", 0, "/auth/type", json!("none")),
        ("response", 0, "/status/code", json!("error")),
        ("response", 0, "/status/http", json!(500)),
        ("response", 0, "/status/http", json!(302)),
        ("response", 1, "/errors", errors),
        ("response", 6, "/status/code", json!("success")),
        ("response", 6, "/status/http", json!(200)),
    ];
    let kinds = kinds();
    for (name, sample, path, value) in changes {
        let kind = kinds.iter().find(|kind| kind.name == name).unwrap();
        let mut changed = kind.samples[sample].clone();
        *changed.pointer_mut(path).unwrap() = value;
        assert_eq!(agree(kind, &changed), Ok(false), "{name} {path}");
    }
    let response = kinds.iter().find(|kind| kind.name == "response").unwrap();
    let mut both = response.samples[6].clone();
    both["output"] = json!(1);
    assert_eq!(agree(response, &both), Ok(false));
}

fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "",
        "ok",
        "error",
        "success",
        "retry",
        "accepted",
        "none",
        "bearer",
        "1.0.0",
        "1.9.0",
        "2.0.0",
        "1.0",
        "01.0.0",
        "NOT_FOUND",
        "mcp.tool:x",
        "mcp.tool:a b",
        "a b",
        "x/y",
        "http",
        "2026-03-02T09:30:00Z",
        "2026-02-30T09:30:00Z",
        "2026-03-02",
    ]);
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec![
            json!(0),
            json!(1.0),
            json!(-1),
            json!(0.5),
            json!(-0.0)
        ]),
        (95_u64..605).prop_map(Value::from),
        word.prop_map(Value::from),
        ".{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,8}", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn schema_and_reader_agree_on_every_change(
        which in 0..3_usize,
        sample in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, any_json()), 1..4),
    ) {
        thread_local! {
            static KINDS: Vec<Kind> = kinds();
        }
        KINDS.with(|kinds| {
            let kind = &kinds[which];
            let mut value = sample.get(&kind.samples).clone();
            for (place, how, new) in changes {
                let mut paths = Vec::new();
                objects(&value, "", &mut paths);
                let Some(object) = value
                    .pointer_mut(&paths[place.index(paths.len())])
                    .and_then(Value::as_object_mut)
                else {
                    continue;
                };
                let names: Vec<String> = object.keys().cloned().collect();
                if names.is_empty() {
                    continue;
                }
                let name = &names[place.index(names.len())];
                match how {
                    0 => drop(object.shift_remove(name)),
                    1 => drop(object.insert(name.clone(), new)),
                    _ => drop(object.insert(format!("{name}_"), new)),
                }
            }
            prop_assert_eq!(agree(kind, &value).err(), None);
            Ok(())
        })?;
    }

    #[test]
    fn schema_and_reader_agree_on_every_date(text in "[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,3})?(Z|z|[+-][0-2][0-9]:[0-6][0-9])?") {
        thread_local! {
            static REQUEST: Kind = kinds().remove(1);
        }
        REQUEST.with(|kind| {
            let mut request = small_request();
            request["timestamp"] = json!(text);
            prop_assert_eq!(agree(kind, &request).err(), None);
            Ok(())
        })?;
    }
}

#[test]
fn members_twice_bad_json_and_deep_nesting_are_refused_with_their_reason() {
    let refused = |text: &str| Invocation::parse(text.as_bytes(), 4).unwrap_err();
    let kind_of = |text: &str| match refused(text).reason {
        InvocationError::Field(error) => error.kind,
        other => panic!("{other}"),
    };
    assert_eq!(kind_of("{"), FieldErrorKind::NotJson { offset: 1 });
    assert_eq!(kind_of("[]"), FieldErrorKind::WrongType("object"));
    assert_eq!(
        kind_of(r#"{"id":"a","id":"b"}"#),
        FieldErrorKind::Twice("id".into())
    );
    assert_eq!(
        kind_of(r#"{"payload":[[[[1]]]]}"#),
        FieldErrorKind::TooDeep { limit: 4 }
    );
    let twice = r#"{"id":"a","version":"1.0.0","timestamp":"2026-03-02T09:30:00Z","tool":"x","payload":{},"auth":{"type":"none","type":"bearer"}}"#;
    assert_eq!(kind_of(twice), FieldErrorKind::Twice("type".into()));
    let bad = refused("{").reason.to_problem();
    assert_eq!(
        (bad.kind, bad.kind.row().http),
        (ErrorKind::ParseError, 400)
    );
}

#[test]
fn a_refused_request_keeps_its_id_and_trace_and_says_what_is_wrong_where() {
    let mut request = full_request();
    request["timestamp"] = json!("yesterday");
    let refused = Invocation::parse(request.to_string().as_bytes(), DEPTH).unwrap_err();
    assert_eq!(refused.id.as_deref(), request["id"].as_str());
    assert_eq!(refused.trace_id.as_deref(), request["trace_id"].as_str());
    let problem = refused.reason.to_problem();
    assert_eq!(problem.kind, ErrorKind::InvalidParams);
    assert_eq!(
        problem.message,
        "the request envelope cannot be used: /timestamp: must be a date and time of RFC 3339"
    );
    let details = problem.details.unwrap().to_value().unwrap();
    assert_eq!(details["errors"][0]["path"], "/timestamp");
}

#[test]
fn another_major_version_is_told_what_is_supported_and_a_newer_minor_only_what_it_cannot_have() {
    let with = |version: &str, extra: bool| {
        let mut request = full_request();
        request["version"] = json!(version);
        if extra {
            request["deadline"] = json!(1);
        }
        Invocation::parse(request.to_string().as_bytes(), DEPTH)
    };
    assert_eq!(with("1.4.2", false).unwrap().version, "1.4.2");
    for (version, extra) in [("2.0.0", false), ("0.9.1", true)] {
        let reason = with(version, extra).unwrap_err().reason;
        let problem = reason.to_problem();
        assert_eq!(problem.kind.row().http, 400);
        let details = problem.details.unwrap().to_value().unwrap();
        assert_eq!(
            details,
            json!({"supported": ["1.0.0"], "requested": version})
        );
    }
    let newer = with("1.4.2", true).unwrap_err().reason;
    assert_eq!(
        newer,
        InvocationError::NewerMember {
            member: "deadline".into(),
            version: "1.4.2".into()
        }
    );
    let problem = newer.to_problem();
    assert!(
        problem.message.contains("\"deadline\""),
        "{}",
        problem.message
    );
    assert_eq!(problem.kind.row().http, 400);
    let ours = with("1.0.9", true).unwrap_err().reason;
    let InvocationError::Field(error) = ours else {
        panic!("{ours}");
    };
    assert_eq!(error.kind, FieldErrorKind::Unknown("deadline".into()));
}

#[test]
fn a_requests_credentials_are_never_in_its_debug_form() {
    let request = Invocation::parse(full_request().to_string().as_bytes(), DEPTH).unwrap();
    assert!(!format!("{request:?}").contains("not-a-real-one"));
    assert_eq!(
        request.auth.unwrap().token.as_deref(),
        Some("not-a-real-one")
    );
}

#[test]
fn sizes_are_those_of_canonical_json_of_payload_and_of_data() {
    let ok = result_of(&outcomes()[0]);
    let payload = json!({"toolId": "mcp.tool:put", "arguments": {"a": 1}});
    assert_eq!(ok["meta"]["inputBytes"], canonical_json(&payload).len());
    assert_eq!(ok["meta"]["outputBytes"], canonical_json(&ok["data"]).len());
    let failed = result_of(&outcomes()[4]);
    assert_eq!(failed["meta"]["outputBytes"], 4, "data is null");
}

#[test]
fn the_reference_page_names_the_namespace_of_ids() {
    let page = include_str!("../../../docs/envelopes.md");
    assert!(page.contains(&mainstay_contract::envelope::NAMESPACE.to_string()));
}

/// A row in one form.
#[derive(Debug, PartialEq)]
struct Said {
    canonical: Value,
    code: Value,
    http: Value,
    retryable: Value,
    message: Value,
}

fn said(of: &Value, message: &Value) -> Said {
    Said {
        canonical: of["canonical"].clone(),
        code: of["code"].clone(),
        http: of["httpStatus"].clone(),
        retryable: of["retryable"].clone(),
        message: message.clone(),
    }
}

#[test]
fn every_error_row_is_equal_in_envelopes_json_rpc_and_direct() {
    for kind in ErrorKind::ALL.iter().copied() {
        let row = kind.row();
        let problem = Problem::of(kind);
        let outcome = Err(problem.clone());
        let expected = Said {
            canonical: json!(row.canonical.as_str()),
            code: json!(row.code.as_str()),
            http: json!(row.http),
            retryable: json!(row.retryable),
            message: json!(row.message),
        };
        let envelope = result_of(&outcome);
        let error = &envelope["error"];
        assert_eq!(error["code"], row.canonical.as_str(), "{kind}");
        assert_eq!(said(&error["details"], &error["message"]), expected);

        let response = response_of(&outcome);
        assert_eq!(
            response["status"]["code"],
            row.invocation_status(),
            "{kind}"
        );
        assert_eq!(response["status"]["http"], row.http, "{kind}");
        assert_eq!(response["status"]["message"], row.message, "{kind}");
        let error = &response["errors"][0];
        assert_eq!(error["code"], row.code.as_str(), "{kind}");
        assert_eq!(said(&error["detail"], &error["message"]), expected);

        let id = EchoId::Known(RequestId::parse("1").unwrap());
        let line = |dialect, shape| parsed(&encode::answer(&id, Form { dialect, shape }, &outcome));
        let rpc = line(Dialect::Legacy, Shape::Plain);
        let error = &rpc["error"];
        assert_eq!(error["code"], row.jsonrpc, "{kind}");
        assert_eq!(said(&error["data"], &error["message"]), expected);

        if row.surface == Surface::Tool {
            let tool = line(Dialect::Legacy, Shape::Tool);
            let text = tool["result"]["content"][0]["text"].as_str().unwrap();
            let payload = parsed(text);
            assert_eq!(payload["code"], expected.code, "{kind}");
            assert_eq!(payload["message"], expected.message, "{kind}");
            assert_eq!(payload["retryable"], expected.retryable, "{kind}");
        }
        let direct = line(Dialect::Direct, Shape::Tool);
        match direct.get("error") {
            Some(error) => assert_eq!(error["code"], row.jsonrpc, "{kind}"),
            None => assert_eq!(direct["result"]["reason"], row.reason, "{kind}"),
        }
    }
}
