//! Clients of one era on a wrapped server of the other.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "shared helpers; a test that cannot go on should say where"
)]

mod shell;

use mainstay_contract::outcome::{Outcome, Success};
use serde_json::{Value, json};

use self::shell::{Shell, wrapping};

/// A call of a modern client that can be asked for roots.
fn call(token: Option<u64>, more: &Value) -> Value {
    let mut params = json!({ "name": "write", "arguments": {}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "roots": {} },
    } });
    if let Some(token) = token {
        params["_meta"]["progressToken"] = json!(token);
    }
    let members = more.as_object().unwrap().clone();
    params.as_object_mut().unwrap().extend(members);
    params
}

fn result(outcome: Option<&Outcome>) -> Value {
    match outcome {
        Some(Ok(Success::Forwarded(answer))) => {
            let line: Value = serde_json::from_str(answer.line.as_str()).unwrap();
            line["result"].clone()
        }
        other => panic!("not an answer of the server: {other:?}"),
    }
}

#[test]
fn progress_of_a_repeated_call_has_the_token_of_the_repetition() {
    for second_token in [Some(9), None] {
        let mut shell = Shell::new(wrapping(json!({ "bridge": true })));
        let client = shell.open();
        shell.ask(client, "8", "tools/call", call(Some(8), &json!({})));
        let server = shell.newest();
        let progress = |shell: &mut Shell, done: u64| {
            let params = json!({ "progressToken": 8, "progress": done });
            let line =
                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
            shell.server_says(server, &line);
        };
        progress(&mut shell, 1);
        let question = json!({ "jsonrpc": "2.0", "id": 1, "method": "roots/list" });
        shell.server_says(server, &question);
        let asked = result(shell.outcome(client, "8"));
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        // No request waits for the call at the moment.
        progress(&mut shell, 2);
        let again = json!({ "requestState": asked["requestState"],
            "inputResponses": { "question": { "roots": [], "by": server.get() } } });
        shell.ask(client, "9", "tools/call", call(second_token, &again));
        progress(&mut shell, 3);
        let (_, pending) = shell.pending(0).unwrap();
        shell.reply(server, &pending, &json!({ "content": [] }));
        let answer = result(shell.outcome(client, "9"));
        assert_eq!(answer["resultType"], "complete", "{answer}");
        let told: Vec<(u64, u64)> = shell
            .told(client)
            .iter()
            .filter(|line| line["method"] == "notifications/progress")
            .map(|line| &line["params"])
            .map(|params| {
                let number = |key: &str| params[key].as_u64().unwrap();
                (number("progressToken"), number("progress"))
            })
            .collect();
        let expected = match second_token {
            Some(token) => vec![(8, 1), (token, 2), (token, 3)],
            None => vec![(8, 1)],
        };
        assert_eq!(told, expected);
    }
}
