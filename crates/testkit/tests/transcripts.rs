//! One suite of conversations, every dialect, unchanged over stdio and socket.

use std::collections::BTreeMap;
use std::fs;

use anyhow::ensure;
use mainstay_testkit::process::{Transport, workspace};
use mainstay_testkit::transcript::run_folder;

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

#[test]
fn every_transcript_holds_over_stdio() -> anyhow::Result<()> {
    run_folder(&workspace()?.join("transcripts"), Transport::Stdio).map(|_| ())
}

#[test]
fn every_transcript_holds_over_the_socket() -> anyhow::Result<()> {
    run_folder(&workspace()?.join("transcripts"), Transport::Socket).map(|_| ())
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
