//! The binary `ledger`, as the host starts it.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "helpers of tests"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use mainstay_worker::testing::TempDir;
use serde_json::Value;

const START: &str = r#"{"start":{"protocol":1,"generation":1,"pool":4,"frame_bytes":1000000,"grace_ms":2000,"settings":{}}}"#;

/// Sends `lines` and gives everything that comes back, and the exit code.
fn converse(arguments: &[&str], lines: &[&str]) -> (Vec<Value>, i32) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ledger"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for line in lines {
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
    let output = BufReader::new(child.stdout.take().unwrap());
    let received = output
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    let code = child.wait().unwrap().code().unwrap();
    (received, code)
}

#[test]
fn the_binary_serves_its_pack() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("ledger.jsonl");
    let call = r#"{"call":{"call":1,"attempt":1,"timeout_ms":1000,"op":{"tool":{"name":"append","arguments":{"text":"x"},"render":"json"}}}}"#;
    let arguments = ["--file", file.to_str().unwrap()];
    let (received, code) = converse(&arguments, &[START, call, r#"{"drain":{}}"#]);
    assert_eq!(received[0]["ready"]["catalog"]["pack"], "ledger");
    assert_eq!(received[1]["answer"]["answer"]["tool"]["json"]["text"], "x");
    assert_eq!(received[2], serde_json::json!({"drained": {}}));
    assert_eq!((received.len(), code), (3, 0));
    let effects = std::fs::read_to_string(&file).unwrap();
    assert_eq!(effects, "{\"effect\":\"append\",\"text\":\"x\"}\n");
}

#[test]
fn without_a_file_or_with_wrong_arguments_it_cannot_start() {
    for (arguments, says) in [(&[][..], "--file PATH"), (&["--fil", "x"][..], "usage")] {
        let (received, code) = converse(arguments, &[START]);
        let detail = received[0]["unable"]["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{detail}");
        assert_eq!((received.len(), code), (1, 2));
    }
}

#[test]
fn a_wait_that_exits_takes_the_worker_with_it() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("ledger.jsonl");
    let call = r#"{"call":{"call":1,"attempt":1,"timeout_ms":1000,"op":{"tool":{"name":"wait","arguments":{"ms":1,"fail":"exit"},"render":"json"}}}}"#;
    let (received, code) = converse(&["--file", file.to_str().unwrap()], &[START, call]);
    assert_eq!(code, 70);
    assert!(
        received
            .iter()
            .all(|message| message.get("answer").is_none())
    );
}
