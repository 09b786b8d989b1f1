//! The validation log of a run, the golden one, and the comparison of the two.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mainstay_contract::envelope::log::REQUIRED;
use mainstay_contract::error::CanonicalError;
use mainstay_testkit::process::TempDir;
use serde_json::{Value, json};

const BINARY: &str = env!("CARGO_BIN_EXE_mainstay");

fn golden() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../../tests/fixtures/mcp/envelope_validation_golden.jsonl")
}

fn mainstay(arguments: &[&str], folder: &Path) -> Output {
    Command::new(BINARY)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn once(folder: &Path) -> PathBuf {
    let ran = mainstay(
        &["once", "--deterministic-ids", "--log-dir", "runs"],
        folder,
    );
    assert!(ran.status.success(), "{ran:?}");
    folder.join("runs/mcp_server/envelope_validation.latest.jsonl")
}

fn diff(new: &Path, golden: &Path) -> (i32, String) {
    let (new, golden) = (new.display().to_string(), golden.display().to_string());
    let folder = std::env::temp_dir();
    let ran = mainstay(
        &["log", "diff", "--new", &new, "--golden", &golden],
        &folder,
    );
    let said = String::from_utf8(ran.stdout).unwrap() + &String::from_utf8(ran.stderr).unwrap();
    (ran.status.code().unwrap(), said)
}

fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_run_writes_what_the_golden_log_says() {
    let folder = TempDir::new().unwrap();
    let new = once(folder.path());
    let (code, said) = diff(&new, &golden());
    assert_eq!(
        (code, said.as_str()),
        (0, "no difference in 15 records\n"),
        "docs/runbooks.md says what to do about a difference"
    );
}

#[test]
fn a_difference_is_shown_and_is_exit_code_1() {
    let folder = TempDir::new().unwrap();
    let mut changed = records(&golden());
    changed[11]["error"]["message"] = json!("another sentence");
    changed.swap(3, 4);
    let path = folder.path().join("changed.jsonl");
    let lines: String = changed.iter().map(|record| format!("{record}\n")).collect();
    std::fs::write(&path, lines).unwrap();
    let (code, said) = diff(&path, &golden());
    assert_eq!(code, 1);
    assert!(
        said.contains("record 12 (not-found): error.message was"),
        "{said}"
    );
    assert!(said.contains("record 4 (read): stepId was"), "{said}");
    let (code, said) = diff(&folder.path().join("nowhere"), &golden());
    assert_eq!(code, 2, "{said}");
}

#[test]
fn the_golden_log_has_every_field_and_a_failure_for_each_code() {
    let records = records(&golden());
    let mut codes = BTreeSet::new();
    for record in &records {
        let members = record.as_object().unwrap();
        let keys: Vec<&str> = members.keys().map(String::as_str).collect();
        assert_eq!(keys, REQUIRED);
        assert_eq!(record["transport"], "http");
        assert_eq!(record["metadata"]["schemaVersion"], "1.0.0");
        assert_eq!(record["metadata"]["deterministic"], true);
        let is_tool = record["route"] == "tool";
        assert_eq!(record["metadata"]["toolId"].is_string(), is_tool);
        assert_eq!(record["status"] == "error", record["error"].is_object());
        if let Some(code) = record["error"]["canonical"].as_str() {
            codes.insert(code.to_owned());
        }
    }
    let all: BTreeSet<String> = CanonicalError::ALL
        .iter()
        .map(|code| code.as_str().to_owned())
        .collect();
    assert_eq!(codes, all);
    for route in ["discover", "health", "tool"] {
        assert!(
            records.iter().any(|record| record["route"] == route),
            "{route}"
        );
    }
}

/// The errors of the golden log come from HTTP; asked for over stdio they are the same.
#[test]
fn errors_are_the_same_over_stdio() {
    let mut host = Command::new(BINARY)
        .args(["serve", "--pack", "asset"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = host.stdin.take().unwrap();
    for (id, tool, arguments) in [
        ("invalid-input", "validate_asset", json!({"schema": 1})),
        ("not-found", "get_schema", json!({"name": "nowhere"})),
    ] {
        let params = json!({"toolId": format!("mcp.tool:{tool}"), "arguments": arguments});
        let line =
            json!({"jsonrpc": "2.0", "id": id, "method": "mcp.tool.invoke", "params": params});
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    let said = host.wait_with_output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    let golden = records(&golden());
    let mut compared = 0;
    for line in said.lines() {
        let answer: Value = serde_json::from_str(line).unwrap();
        let record = golden
            .iter()
            .find(|record| record["stepId"] == answer["id"]);
        let record = record.unwrap();
        let (envelope, expected) = (&answer["result"], &record["error"]);
        assert_eq!(envelope["error"]["code"], expected["canonical"]);
        assert_eq!(envelope["error"]["message"], expected["message"]);
        assert_eq!(envelope["meta"]["inputBytes"], record["inputBytes"]);
        compared += 1;
    }
    assert_eq!(compared, 2);
}

#[test]
fn the_last_five_logs_are_kept() {
    let folder = TempDir::new().unwrap();
    let logs = folder.path().join("runs/mcp_server");
    std::fs::create_dir_all(&logs).unwrap();
    for number in 0..7 {
        let name = format!("envelope_validation.2000010{number}T000000000Z.1.jsonl");
        std::fs::write(logs.join(name), "old\n").unwrap();
    }
    once(folder.path());
    let kept = std::fs::read_dir(&logs).unwrap().count();
    assert_eq!(kept, 5 + 1, "five logs and the link");
}
