//! One suite of conversations, every dialect, unchanged over stdio and socket, MCP over HTTP.

use std::collections::BTreeMap;
use std::fs;

use anyhow::ensure;
use mainstay_testkit::process::{Transport, workspace};
use mainstay_testkit::transcript::{run_folder, run_some};

/// What every dialect must show, in a file `DIALECT-BEHAVIOUR.jsonl`.
const SHARED: [&str; 12] = [
    "handshake",
    "call",
    "render",
    "invalid-arguments",
    "unknown-tool",
    "failure",
    "progress",
    "cancel",
    "ids",
    "oversize",
    "system",
    "assets",
];

/// What only MCP has words for.
const MCP_ONLY: [&str; 4] = ["list-tools", "resources", "prompts", "completion"];

/// What HTTP has other words for, and where that is tested.
const NOT_OVER_HTTP: [(&str, &str); 4] = [
    (
        "modern-listen.jsonl",
        "a subscription ends with its stream: http_sessions.rs",
    ),
    (
        "modern-cancel.jsonl",
        "a closed stream cancels: http_attacks.rs",
    ),
    (
        "legacy-oversize.jsonl",
        "413 before the body is read: http_attacks.rs",
    ),
    (
        "modern-oversize.jsonl",
        "413 before the body is read: http_attacks.rs",
    ),
];

#[test]
fn every_transcript_holds_over_stdio() -> anyhow::Result<()> {
    run_folder(&workspace()?.join("transcripts"), Transport::Stdio).map(|_| ())
}

#[test]
fn every_transcript_holds_over_the_socket() -> anyhow::Result<()> {
    run_folder(&workspace()?.join("transcripts"), Transport::Socket).map(|_| ())
}

/// Legacy in one session, modern each request for itself.
#[test]
fn every_transcript_of_mcp_holds_over_http() -> anyhow::Result<()> {
    let folder = workspace()?.join("transcripts");
    let ran = run_some(&folder, Transport::Http, |name| {
        let is_mcp = name.starts_with("legacy-") || name.starts_with("modern-");
        is_mcp && !NOT_OVER_HTTP.iter().any(|(other, _)| name == *other)
    })?;
    ensure!(ran >= 28, "only {ran} transcripts ran over HTTP");
    Ok(())
}

#[test]
fn every_behaviour_is_shown_in_every_dialect_that_has_it() -> anyhow::Result<()> {
    let folder = workspace()?.join("transcripts");
    let mut missing = BTreeMap::new();
    for dialect in ["legacy", "modern", "direct", "envelope"] {
        let is_mcp = matches!(dialect, "legacy" | "modern");
        let only: &[&str] = if is_mcp { &MCP_ONLY } else { &[] };
        for behaviour in SHARED.iter().chain(only) {
            let name = format!("{dialect}-{behaviour}.jsonl");
            if !fs::exists(folder.join(&name))? {
                missing.insert(name, ());
            }
        }
    }
    ensure!(missing.is_empty(), "no transcripts {:?}", missing.keys());
    Ok(())
}
