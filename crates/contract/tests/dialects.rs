//! The codecs, dialect by dialect: what a line means, and what an outcome looks like.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use mainstay_contract::dialect::encode::{self, ProgressOf};
use mainstay_contract::dialect::{
    Answer, Cancel, CancelKind, Dialect, EchoId, Form, Inbound, Notice, Op, Refused, Shape, decode,
    decode_oversize,
};
use mainstay_contract::error::{ErrorKind, Surface};
use mainstay_contract::id::RequestId;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::{Problem, Success, ToolReply};
use mainstay_contract::rpc::{CompletionTarget, Progress};
use serde_json::{Value, json};

const MODERN_META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"t"}"#;

fn read(line: &str) -> Inbound {
    decode(line.as_bytes(), 128)
}

fn request(line: &str) -> mainstay_contract::dialect::Request {
    match read(line) {
        Inbound::Request(request) => request,
        other => panic!("not a request: {other:?}"),
    }
}

fn refused(line: &str) -> Refused {
    match read(line) {
        Inbound::Refused(refused) => refused,
        other => panic!("not refused: {other:?}"),
    }
}

fn id(raw: &str) -> EchoId {
    EchoId::Known(RequestId::parse(raw).unwrap())
}

fn form(dialect: Dialect, shape: Shape) -> Form {
    Form { dialect, shape }
}

fn parsed(line: &str) -> Value {
    assert!(!line.contains('\n'));
    serde_json::from_str(line).unwrap()
}

#[test]
fn each_message_decides_its_own_dialect() {
    let legacy = request(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    assert_eq!(
        (legacy.dialect, legacy.op),
        (Dialect::Legacy, Op::ListTools { full: false })
    );
    let modern =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{MODERN_META}}}}}"#);
    assert_eq!(request(&modern).dialect, Dialect::Modern);
    let direct = request(r#"{"jsonrpc":"2.0","id":1,"method":"list_schemas"}"#);
    assert_eq!(direct.dialect, Dialect::Direct);
    assert_eq!(
        direct.op,
        Op::CallTool {
            name: "list_schemas".into(),
            arguments: Json::empty_object()
        }
    );
}

#[test]
fn arguments_are_kept_byte_for_byte() {
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n":1.00,"big":123456789012345678901234567890,"e":"\u00e9","a":1,"a":2}}}"#;
    let Op::CallTool { arguments, .. } = request(line).op else {
        panic!("not a call")
    };
    assert_eq!(
        arguments.as_str(),
        r#"{"n":1.00,"big":123456789012345678901234567890,"e":"\u00e9","a":1,"a":2}"#
    );
}

#[test]
fn every_mcp_method_is_understood_in_both_eras() {
    let methods = [
        ("tools/list", "", "tools/list"),
        ("tools/call", r#""name":"x""#, "tools/call"),
        ("resources/list", r#""cursor":"1""#, "resources/list"),
        ("resources/templates/list", "", "resources/templates/list"),
        ("resources/read", r#""uri":"a:///b""#, "resources/read"),
        ("prompts/list", "", "prompts/list"),
        (
            "prompts/get",
            r#""name":"p","arguments":{"a":"b"}"#,
            "prompts/get",
        ),
        (
            "completion/complete",
            r#""ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}"#,
            "completion/complete",
        ),
    ];
    for (method, params, expected) in methods {
        let legacy =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#);
        assert_eq!(request(&legacy).op.method(), expected);
        let comma = if params.is_empty() { "" } else { "," };
        let modern = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}{comma}{MODERN_META}}}}}"#
        );
        let modern = request(&modern);
        assert_eq!(
            (modern.dialect, modern.op.method()),
            (Dialect::Modern, expected)
        );
        assert_eq!(modern.progress_token.unwrap().as_str(), "\"t\"");
    }
}

#[test]
fn the_envelope_dialect_has_two_methods_whatever_else_a_message_carries() {
    let discover =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"mcp.discover","params":{{{MODERN_META}}}}}"#);
    let discover = request(&discover);
    assert_eq!(
        (discover.dialect, discover.op),
        (Dialect::Envelope, Op::Catalog {})
    );
    let invoke = request(
        r#"{"jsonrpc":"2.0","id":1,"method":"mcp.tool.invoke","params":{"toolId":"mcp.tool:a/b","arguments":{"n":1.0}}}"#,
    );
    assert_eq!(invoke.dialect, Dialect::Envelope);
    assert_eq!(
        invoke.op,
        Op::CallTool {
            name: "a/b".into(),
            arguments: Json::parse(r#"{"n":1.0}"#).unwrap(),
        }
    );
    let other = request(r#"{"jsonrpc":"2.0","id":1,"method":"mcp.tool.list"}"#);
    assert_eq!(other.dialect, Dialect::Direct);
}

#[test]
fn envelope_params_that_cannot_be_used_are_refused_with_what_was_sent() {
    for params in [
        r"{}",
        r#"{"toolId":1}"#,
        r#"{"toolId":"a"}"#,
        r#"{"toolId":"mcp.tool:a","arguments":7}"#,
        r#"{"toolId":"mcp.tool:a","extra":7}"#,
    ] {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"mcp.tool.invoke","params":{params}}}"#);
        let refused = refused(&line);
        assert_eq!(refused.form, form(Dialect::Envelope, Shape::Tool));
        assert_eq!(refused.problem.kind, ErrorKind::InvalidParams, "{params}");
        assert_eq!(refused.payload.unwrap().as_str(), params);
    }
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"mcp.discover","params":{"x":1}}"#;
    assert_eq!(
        refused(line).form,
        form(Dialect::Envelope, Shape::Cacheable)
    );
}

#[test]
fn a_completion_names_its_target_and_context() {
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"x:///{k}"},"argument":{"name":"k","value":"v"},"context":{"arguments":{"a":"b"}}}}"#;
    let Op::Complete(completion) = request(line).op else {
        panic!("not a completion")
    };
    assert_eq!(completion.of, CompletionTarget::Resource("x:///{k}".into()));
    assert_eq!(completion.context.as_str(), r#"{"a":"b"}"#);
}

#[test]
fn only_the_era_that_has_a_method_takes_it() {
    assert_eq!(
        request(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).op,
        Op::Ping {}
    );
    let modern =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{{MODERN_META}}}}}"#);
    let answer = refused(&modern);
    assert_eq!(answer.problem.kind, ErrorKind::UnknownMethod);
    assert_eq!(answer.form.dialect, Dialect::Modern);
}

#[test]
fn a_modern_request_must_carry_version_and_capabilities() {
    let bare = refused(r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#);
    assert_eq!(bare.problem.kind, ErrorKind::InvalidParams);
    let no_capabilities = refused(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
    );
    assert_eq!(no_capabilities.problem.kind, ErrorKind::InvalidParams);
    let future = refused(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
    );
    let answer = parsed(&encode::answer(
        &future.id,
        future.form,
        &Err(future.problem),
    ));
    assert_eq!(answer["error"]["code"], -32022);
    assert_eq!(answer["error"]["data"]["requested"], "2030-01-01");
    assert_eq!(answer["error"]["data"]["supported"][0], "2026-07-28");
}

#[test]
fn malformed_messages_get_their_code_and_their_id() {
    let cases = [
        ("", ErrorKind::ParseError, EchoId::Null),
        ("{", ErrorKind::ParseError, EchoId::Null),
        ("\u{feff}{}", ErrorKind::ParseError, EchoId::Null),
        ("[]", ErrorKind::InvalidMessage, EchoId::Null),
        ("{}", ErrorKind::InvalidMessage, EchoId::Null),
        (
            r#"{"jsonrpc":"1.0","id":3,"method":"x"}"#,
            ErrorKind::InvalidMessage,
            id("3"),
        ),
        (
            r#"{"id":3,"method":"x"}"#,
            ErrorKind::InvalidMessage,
            id("3"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":3}"#,
            ErrorKind::InvalidMessage,
            id("3"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":3,"method":7}"#,
            ErrorKind::InvalidMessage,
            id("3"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":3,"method":"x","params":[]}"#,
            ErrorKind::InvalidMessage,
            id("3"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":3,"method":"x","params":null}"#,
            ErrorKind::InvalidMessage,
            id("3"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
            ErrorKind::InvalidMessage,
            EchoId::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#,
            ErrorKind::InvalidMessage,
            EchoId::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","a":1,"a":2,"method":"x","id":"z"}"#,
            ErrorKind::InvalidMessage,
            id("\"z\""),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"$/cancelRequest","params":{"id":2}}"#,
            ErrorKind::InvalidMessage,
            id("1"),
        ),
    ];
    for (line, kind, expected) in cases {
        let answer = refused(line);
        assert_eq!((answer.problem.kind, answer.id), (kind, expected), "{line}");
    }
}

#[test]
fn a_message_without_an_id_is_never_answered() {
    for line in [
        r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"append"}}"#,
        r#"{"jsonrpc":"2.0","method":"x","params":7}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
    ] {
        assert_eq!(read(line), Inbound::Ignored, "{line}");
    }
    for (method, notice) in [
        ("notifications/initialized", Notice::Initialized),
        ("notifications/roots/list_changed", Notice::RootsChanged),
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
        assert_eq!(read(&line), Inbound::Notice(notice), "{line}");
    }
}

#[test]
fn an_answer_keeps_its_id_and_what_it_says() {
    let id = || RequestId::parse("\"io.mainstay/roots/1\"").unwrap();
    let json = |text| Json::parse(text).unwrap();
    for (member, result) in [
        (r#""result":{"roots":[]}"#, Ok(json(r#"{"roots":[]}"#))),
        (
            r#""error":{"code":1,"message":"x"}"#,
            Err(json(r#"{"code":1,"message":"x"}"#)),
        ),
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":"io.mainstay/roots/1",{member}}}"#);
        assert_eq!(
            read(&line),
            Inbound::Answer(Answer { id: id(), result }),
            "{line}"
        );
    }
    for line in [
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
    ] {
        assert_eq!(
            refused(line).problem.kind,
            ErrorKind::InvalidMessage,
            "{line}"
        );
    }
    assert_eq!(
        encode::question("io.mainstay/roots/1", "roots/list"),
        r#"{"jsonrpc":"2.0","id":"io.mainstay/roots/1","method":"roots/list"}"#
    );
}

#[test]
fn a_client_declares_its_roots_with_an_object() {
    for (capabilities, expected) in [
        (r#"{"roots":{}}"#, true),
        (r#"{"sampling":{},"roots":{"listChanged":true}}"#, true),
        (r#"{"roots":null}"#, false),
        (r#"{"sampling":{"roots":{}}}"#, false),
        ("{}", false),
        ("7", false),
    ] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{capabilities}}}}}"#
        );
        match request(&line).op {
            Op::Initialize { roots, .. } => assert_eq!(roots, expected, "{line}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn both_kinds_of_cancel_are_read() {
    let answered = read(r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"7"}}"#);
    let target = RequestId::parse("\"7\"").unwrap();
    assert_eq!(
        answered,
        Inbound::Cancel(Cancel {
            target,
            kind: CancelKind::Answered
        })
    );
    let silent =
        read(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
    let target = RequestId::parse("7").unwrap();
    assert_eq!(
        silent,
        Inbound::Cancel(Cancel {
            target,
            kind: CancelKind::Silent
        })
    );
}

#[test]
fn an_oversize_line_is_answered_in_the_dialect_it_shows() {
    let answer = |head: &str, last| match decode_oversize(head.as_bytes(), last, 1024) {
        Inbound::Refused(refused) => parsed(&encode::answer(
            &refused.id,
            refused.form,
            &Err(refused.problem),
        )),
        other => panic!("{other:?}"),
    };
    let direct = answer(
        r#"{"jsonrpc":"2.0","id":5,"method":"validate_asset","params":{"#,
        None,
    );
    assert_eq!(
        direct,
        json!({"jsonrpc": "2.0", "id": 5, "result": {"ok": false, "reason": "validation_failed",
            "errors": [{"path": "", "msg": "payload_too_large"}]}})
    );
    let legacy = answer(
        r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"#,
        None,
    );
    assert_eq!(
        (&legacy["id"], &legacy["error"]["code"]),
        (&json!(5), &json!(-31413))
    );
    let unknown = answer(r#"{"params":{"x":"yyyy"#, Some(Dialect::Legacy));
    assert!(unknown.get("id").is_none(), "left out in MCP");
    assert_eq!(
        answer(r#"{"params":{"x":"yyyy"#, None)["id"],
        Value::Null,
        "null in direct"
    );
}

#[test]
fn a_tools_answer_has_each_dialects_form() {
    let reply = ToolReply {
        json: Json::parse(r#"{"ok":true,"n":1.0}"#).unwrap(),
        text: Some("1 thing".into()),
    };
    let answer = |dialect| {
        encode::answer(
            &id("1"),
            form(dialect, Shape::Tool),
            &Ok(Success::Tool(reply.clone())),
        )
    };
    assert_eq!(
        answer(Dialect::Direct),
        r#"{"jsonrpc":"2.0","id":1,"result":{"ok":true,"n":1.0}}"#
    );
    let content =
        r#""content":[{"type":"text","text":"1 thing"}],"structuredContent":{"ok":true,"n":1.0}"#;
    assert_eq!(
        answer(Dialect::Legacy),
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{{content}}}}}"#)
    );
    assert_eq!(
        answer(Dialect::Modern),
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"resultType":"complete",{content}}}}}"#)
    );
}

#[test]
fn json_text_stands_in_where_there_is_no_porcelain() {
    let reply = ToolReply {
        json: Json::parse(r#"{"a":"b"}"#).unwrap(),
        text: None,
    };
    let line = encode::answer(
        &id("1"),
        form(Dialect::Legacy, Shape::Tool),
        &Ok(Success::Tool(reply)),
    );
    assert_eq!(
        parsed(&line)["result"]["content"][0]["text"],
        r#"{"a":"b"}"#
    );
}

#[test]
fn modern_listings_say_how_long_they_may_be_kept() {
    let members = Success::Members(json!({"tools": []}).into());
    let line = encode::answer(
        &id("1"),
        form(Dialect::Modern, Shape::Cacheable),
        &Ok(members.clone()),
    );
    assert_eq!(
        parsed(&line)["result"],
        json!({"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"})
    );
    let line = encode::answer(
        &id("1"),
        form(Dialect::Legacy, Shape::Cacheable),
        &Ok(members),
    );
    assert_eq!(parsed(&line)["result"], json!({"tools": []}));
    let line = encode::answer(
        &id("1"),
        form(Dialect::Legacy, Shape::Plain),
        &Ok(Success::Members(Json::empty_object())),
    );
    assert_eq!(
        line, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        "ping is exactly empty"
    );
}

#[test]
fn every_kind_of_error_projects_its_row_in_every_dialect() {
    for kind in ErrorKind::ALL.iter().copied() {
        let row = kind.row();
        let problem = Problem::of(kind);
        for dialect in [Dialect::Legacy, Dialect::Modern] {
            let line = encode::answer(&id("1"), form(dialect, Shape::Tool), &Err(problem.clone()));
            let answer = parsed(&line);
            match row.surface {
                Surface::Tool => {
                    assert_eq!(answer["result"]["isError"], true, "{kind}");
                    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
                    let payload: Value = serde_json::from_str(text).unwrap();
                    assert_eq!(payload["code"], row.code.as_str(), "{kind}");
                    assert_eq!(payload["retryable"], row.retryable, "{kind}");
                }
                Surface::Protocol => check_error(&answer, kind, dialect),
            }
            let line = encode::answer(&id("1"), form(dialect, Shape::Plain), &Err(problem.clone()));
            check_error(&parsed(&line), kind, dialect);
        }
        let line = encode::answer(&id("1"), form(Dialect::Direct, Shape::Tool), &Err(problem));
        let answer = parsed(&line);
        if answer.get("error").is_some() {
            check_error(&answer, kind, Dialect::Direct);
        } else {
            assert_eq!(answer["result"]["ok"], false, "{kind}");
            assert_eq!(answer["result"]["reason"], row.reason, "{kind}");
        }
    }
}

fn check_error(answer: &Value, kind: ErrorKind, dialect: Dialect) {
    let row = kind.row();
    let retired = kind == ErrorKind::ResourceNotFound && dialect == Dialect::Modern;
    let code = if retired { -32602 } else { row.jsonrpc };
    assert_eq!(answer["error"]["code"], code, "{kind}");
    assert_eq!(
        answer["error"]["data"]["canonical"],
        row.canonical.as_str(),
        "{kind}"
    );
    assert_eq!(answer["error"]["data"]["httpStatus"], row.http, "{kind}");
    assert_eq!(
        answer["error"]["data"]["retryable"], row.retryable,
        "{kind}"
    );
}

#[test]
fn a_cancelled_direct_call_has_the_decided_form() {
    let line = encode::answer(
        &id("\"x\""),
        form(Dialect::Direct, Shape::Tool),
        &Err(Problem::of(ErrorKind::Cancelled)),
    );
    let result = &parsed(&line)["result"];
    assert_eq!(result["ok"], false);
    assert_eq!(result["isError"], true);
    assert_eq!(result["reason"], "cancelled");
    assert_eq!(result["code"], "CANCELLED");
    assert!(result["message"].is_string());
}

#[test]
fn a_tools_own_failure_is_the_direct_answer_and_mcps_details() {
    let own: Json = json!({"ok": false, "reason": "not_found"}).into();
    let problem = Problem::of(ErrorKind::NotFound).with_details(own);
    let direct = encode::answer(
        &id("1"),
        form(Dialect::Direct, Shape::Tool),
        &Err(problem.clone()),
    );
    assert_eq!(
        parsed(&direct)["result"],
        json!({"ok": false, "reason": "not_found"})
    );
    let legacy = encode::answer(&id("1"), form(Dialect::Legacy, Shape::Tool), &Err(problem));
    let text = parsed(&legacy)["result"]["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    let payload: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        payload["details"],
        json!({"ok": false, "reason": "not_found"})
    );
}

#[test]
fn ids_are_echoed_byte_for_byte() {
    for raw in [
        "1",
        "1.0",
        "-0",
        "1e2",
        "9007199254740993",
        "\"\\u0031\"",
        "\"\"",
        "\"a/b\"",
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{raw},"method":"ping"}}"#);
        let echoed = EchoId::Known(request(&line).id);
        let answer = encode::answer(
            &echoed,
            form(Dialect::Legacy, Shape::Plain),
            &Ok(Success::Members(Json::empty_object())),
        );
        assert_eq!(
            answer,
            format!(r#"{{"jsonrpc":"2.0","id":{raw},"result":{{}}}}"#)
        );
    }
}

#[test]
fn progress_has_mcps_shape_with_a_token_and_ours_in_direct() {
    let request_id = RequestId::parse("7").unwrap();
    let token = Json::parse("\"tok\"").unwrap();
    let step = Progress {
        message: "half".into(),
        done: Some(1),
        total: Some(2),
        phase: "index".into(),
        ..Progress::default()
    };
    let of = |dialect, token| ProgressOf {
        id: &request_id,
        dialect,
        token,
        tool: "search",
        step: 1,
        ts: "2026-01-01T00:00:00.000Z",
    };
    assert_eq!(
        encode::progress(&of(Dialect::Legacy, None), &step),
        None,
        "unasked"
    );
    let mcp = parsed(&encode::progress(&of(Dialect::Modern, Some(&token)), &step).unwrap());
    assert_eq!(mcp["method"], "notifications/progress");
    assert_eq!(mcp["params"]["progressToken"], "tok");
    assert_eq!(mcp["params"]["progress"], 1);
    assert_eq!(mcp["params"]["total"], 2);
    assert_eq!(
        mcp["params"]["_meta"]["io.mainstay/progress"]["phase"],
        "index"
    );
    let direct = parsed(&encode::progress(&of(Dialect::Direct, None), &step).unwrap());
    assert_eq!(
        direct["params"],
        json!({"id": 7, "tool": "search", "message": "half", "stream": "info", "phase": "index",
            "ts": "2026-01-01T00:00:00.000Z", "done": 1, "total": 2})
    );
}
