//! Correct messages that ask for odd things, or for nothing.

use super::{Expectation, Make, Rng};

pub(super) const KINDS: &[(&str, Make)] = &[
    ("unknown notification", notification),
    ("cancel of nothing", cancel_nothing),
    ("answer to no question", answer),
    ("blank line", blank),
    ("unknown tool", unknown_tool),
    ("odd spelling of an id", odd_id),
    ("deep but allowed", deep),
    ("wide params", wide),
    ("huge number as an argument", huge_number),
    ("carriage return", carriage_return),
    ("duplicate keys further in", inner_duplicates),
    ("wrong argument, direct", wrong_argument),
    ("wrong argument, MCP", wrong_argument_mcp),
    ("unknown MCP method", unknown_method),
    ("wrong params of an MCP method", wrong_params),
    ("unknown tool, MCP", unknown_tool_mcp),
    ("unsupported modern version", version),
    ("modern without capabilities", no_capabilities),
];

const META: &str = "io.modelcontextprotocol/protocolVersion";

fn notification(rng: &mut Rng, _: u64) -> (Vec<u8>, Expectation) {
    let method = rng.pick(&[
        "m",
        "tools/list",
        "system_health",
        "notifications/x",
        "$/x",
        "",
    ]);
    let params = rng.pick(&["", r#","params":{}"#, r#","params":[1]"#]);
    let line = format!(r#"{{"jsonrpc":"2.0","method":"{method}"{params}}}"#);
    (line.into(), Expectation::Silence)
}

fn cancel_nothing(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let params = match rng.between(0, 4) {
        0 => format!(r#"{{"id":"never-{id}","requestId":"never-{id}"}}"#),
        1 => r#"{"id":null,"requestId":null}"#.to_owned(),
        2 => "{}".to_owned(),
        3 => "[]".to_owned(),
        _ => format!(r#"{{"id":[{id}],"requestId":{{}}}}"#),
    };
    let method = rng.pick(&["$/cancelRequest", "notifications/cancelled"]);
    let line = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#);
    (line.into(), Expectation::Silence)
}

fn answer(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let body = rng.pick(&[
        r#""result":{}"#,
        r#""result":null"#,
        r#""error":{"code":1,"message":""}"#,
    ]);
    (
        format!(r#"{{"jsonrpc":"2.0","id":{id},{body}}}"#).into(),
        Expectation::Silence,
    )
}

fn blank(rng: &mut Rng, _: u64) -> (Vec<u8>, Expectation) {
    let line = rng.pick(&["", " ", "\t", "\r", " \t \r", "    "]);
    (line.into(), Expectation::Silence)
}

fn unknown_tool(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let method = rng.pick(&["m", "", "system_healt", "eval", "\\u0000", "é", "a b"]);
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#);
    (line.into(), Expectation::unknown_tool(id))
}

fn odd_id(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let id = match rng.between(0, 8) {
        0 => format!("{id}.0"),
        1 => format!("{id}e0"),
        2 => format!("-{id}.50"),
        3 => format!(r#""\u0031{id}""#),
        4 => format!("{id}000000000000000000000000001"),
        5 => format!("{id}E+400"),
        6 => format!(r#""\"\\\/{id}\ud83d\ude00""#),
        7 => format!("{}{id}", "9".repeat(1_000)),
        _ => format!("\"é {id} \u{7f}\""),
    };
    let line = format!(r#"{{"jsonrpc":"2.0", "id" : {id} ,"method":"m"}}"#);
    let reason = "unsupported";
    (line.into(), Expectation::DirectFailure { id, reason })
}

fn deep(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    // With the message and its params exactly 128 at most.
    let depth = rng.between(1, 126);
    let inside = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"a":{inside}}}}}"#);
    (line.into(), Expectation::unknown_tool(id))
}

fn wide(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let keys: Vec<String> = (0..rng.between(1, 200))
        .map(|n| format!(r#""k{n}":[]"#))
        .collect();
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{{}}}}}"#,
        keys.join(",")
    );
    (line.into(), Expectation::unknown_tool(id))
}

const HUGE: [&str; 5] = ["1e400", "-1e400", "1E+999999999", "0.1e-999999999", "1e308"];

fn huge_number(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let number = rng.pick(&HUGE);
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"system_health","params":{{"a":{number}}}}}"#
    );
    let reason = "validation_failed";
    (
        line.into(),
        Expectation::DirectFailure {
            id: id.to_string(),
            reason,
        },
    )
}

fn carriage_return(_: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let line = format!("{{\"jsonrpc\":\"2.0\",\r\"id\":{id},\"method\":\"m\"}}\r");
    (line.into(), Expectation::unknown_tool(id))
}

fn inner_duplicates(_: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let params = r#"{"a":1,"a":2,"_meta":{},"_meta":{}}"#;
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{params}}}"#);
    (line.into(), Expectation::unknown_tool(id))
}

fn wrong_argument(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let params = rng.pick(&[
        r#"{"x":1}"#,
        r#"{"":null}"#,
        r#"{"render":"xml"}"#,
        r#"{"render":1}"#,
    ]);
    let method = rng.pick(&["system_health", "system_telemetry"]);
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    let reason = "validation_failed";
    (
        line.into(),
        Expectation::DirectFailure {
            id: id.to_string(),
            reason,
        },
    )
}

fn wrong_argument_mcp(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let arguments = rng.pick(&[r#"{"x":1e400}"#, r#"{"x":[[]]}"#, r#"{"render":"xml"}"#]);
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"system_health","arguments":{arguments}}}}}"#
    );
    let code = "INVALID_REQUEST";
    (
        line.into(),
        Expectation::ToolError {
            id: id.to_string(),
            code,
        },
    )
}

fn unknown_method(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let method = rng.pick(&[
        "a/b",
        "tools/lists",
        "/",
        "resources/subscribe",
        "tools/call/",
    ]);
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#);
    (line.into(), Expectation::mcp(-32601, id))
}

fn wrong_params(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let (method, params) = match rng.between(0, 5) {
        0 => ("tools/call", "{}"),
        1 => ("tools/call", r#"{"name":7}"#),
        2 => ("tools/call", r#"{"name":"system_health","arguments":[]}"#),
        3 => ("tools/list", r#"{"cursor":"x"}"#),
        4 => ("completion/complete", r#"{"ref":{"type":"ref/x"}}"#),
        _ => ("resources/read", r#"{"uri":null}"#),
    };
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    (line.into(), Expectation::mcp(-32602, id))
}

fn unknown_tool_mcp(_: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"nothing"}}}}"#
    );
    (line.into(), Expectation::mcp(-32602, id))
}

fn version(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let version = rng.pick(&["2027-01-01", "", "2025-11-25", "latest"]);
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{"_meta":{{"{META}":"{version}"}}}}}}"#
    );
    (line.into(), Expectation::mcp(-32022, id))
}

fn no_capabilities(rng: &mut Rng, id: u64) -> (Vec<u8>, Expectation) {
    let method = rng.pick(&["tools/list", "server/discover"]);
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{{"{META}":"2026-07-28"}}}}}}"#
    );
    (line.into(), Expectation::mcp(-32602, id))
}
