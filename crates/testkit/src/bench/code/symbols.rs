//! Does `symbol` put the definition first? Universal Ctags says what is defined where; names that it
//! knows exactly once are looked up. Some stand in files that the index leaves out by rule (too large,
//! minified, ignored); the share is given of all names, and of those in files that the index takes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::at;
use super::host::{Host, Layers};
use crate::bench::Samples;
use crate::process::{program, workspace};

/// Names that are looked up.
const NAMES: usize = 600;
/// Names that were not first and are shown.
const SHOWN: usize = 12;
/// Lines that two notions of where a definition begins may be apart.
const APART: u64 = 3;
/// How long the symbols of a tree may take.
const BUILD: Duration = Duration::from_secs(1500);

/// A definition as ctags has it.
#[derive(Clone, Debug)]
struct Tag {
    path: String,
    line: u64,
    kind: String,
    language: String,
    /// A tag of any kind with the same name is there, too.
    ambiguous: bool,
}

pub(super) fn measure(tree: &Path, cache: &Path, out: &mut String) -> anyhow::Result<()> {
    let tree = tree.canonicalize()?;
    let shown = tree.file_name().unwrap_or_default().to_string_lossy();
    let folder = workspace()?.join("target/tools/bin");
    let Some(ctags) = program("ctags", &folder) else {
        let _ = writeln!(out, "{shown}: SKIPPED, there is no ctags");
        return Ok(());
    };
    let names: Vec<(String, Tag)> = tags(&ctags, &tree)?
        .into_iter()
        .filter(|(name, tag)| !tag.ambiguous && is_asked(name, tag))
        .collect();
    let step = names.len().div_ceil(NAMES).max(1);
    let mut host = Host::start(&tree, cache, Layers::All)?;
    host.call("index_build", &json!({}))?;
    host.wait_until(BUILD, |host| {
        let status = host.call("index_status", &json!({}))?;
        Ok(at(&status, "/fresh") == true && at(&status, "/layers/symbols").as_f64() >= Some(1.0))
    })?;
    let (mut asked, mut first, mut left_out) = (0_u32, 0_u32, 0_u32);
    let mut kinds: BTreeMap<(String, String), (u32, u32)> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut trips = Samples::default();
    for (name, tag) in names.iter().step_by(step) {
        let (trip, answer) = host.timed(
            "search",
            &json!({"query": name, "kind": "symbol", "limit": 5}),
        )?;
        trips.add(trip);
        let right = is_first(&answer, tag);
        asked += 1;
        first += u32::from(right);
        let count = kinds
            .entry((tag.language.clone(), tag.kind.clone()))
            .or_default();
        count.0 += 1;
        count.1 += u32::from(right);
        if !right && !is_taken(&mut host, name, tag)? {
            left_out += 1;
        } else if !right {
            let got = at(&answer, "/hits/0");
            wrong.push(format!(
                "  {name} ({} {}): {}:{}, got {} {}:{} of {}",
                tag.language,
                tag.kind,
                tag.path,
                tag.line,
                at(got, "/symbol"),
                at(got, "/path"),
                at(got, "/match_lines/0"),
                at(&answer, "/total/value")
            ));
        }
    }
    host.stop()?;
    let by_kind: Vec<String> = kinds
        .iter()
        .map(|((language, kind), (all, right))| format!("{language} {kind} {right}/{all}"))
        .collect();
    let _ = writeln!(
        out,
        "{shown}: {first} of {asked} first, {:.1} % (of {} unique names); without the {left_out} in files that the index leaves out {:.1} %; round trip p50 {:.1} ms, p99 {:.1}; {}",
        percent(first, asked),
        names.len(),
        percent(first, asked - left_out),
        trips.p50() / 1e3,
        trips.p99() / 1e3,
        by_kind.join(", ")
    );
    for line in wrong.iter().take(SHOWN) {
        let _ = writeln!(out, "{line}");
    }
    Ok(())
}

fn percent(part: u32, whole: u32) -> f64 {
    100.0 * f64::from(part) / f64::from(whole.max(1))
}

/// Whether the index takes the file of a definition: then its text is found there.
fn is_taken(host: &mut Host, name: &str, tag: &Tag) -> anyhow::Result<bool> {
    let within = json!({"query": name, "kind": "literal", "case": "sensitive", "path": [&tag.path], "limit": 1});
    let answer = host.call("search", &within)?;
    ensure!(at(&answer, "/fresh") == true, "a stale answer to {name:?}");
    Ok(at(&answer, "/total/value").as_u64() > Some(0))
}

fn is_first(answer: &Value, tag: &Tag) -> bool {
    let hit = at(answer, "/hits/0");
    let line = at(hit, "/match_lines/0").as_u64().unwrap_or(0);
    at(hit, "/path") == tag.path.as_str() && line.abs_diff(tag.line) <= APART
}

/// Names that people look up: not the anonymous ones, and no locals or fields.
fn is_asked(name: &str, tag: &Tag) -> bool {
    let kind = matches!(
        tag.kind.as_str(),
        "function"
            | "struct"
            | "union"
            | "enum"
            | "typedef"
            | "macro"
            | "class"
            | "method"
            | "interface"
            | "implementation"
            | "trait"
            | "type"
            | "func"
            | "methodSpec"
    );
    let word = |character: char| character.is_alphanumeric() || character == '_';
    kind && name.len() > 2 && !name.starts_with("__anon") && name.chars().all(word)
}

/// The tags of a tree by name, one of each; those that are not alone are marked.
fn tags(ctags: &Path, tree: &Path) -> anyhow::Result<BTreeMap<String, Tag>> {
    let mut child = Command::new(ctags)
        .args([
            "-R",
            "--output-format=json",
            "--fields=+nKl-P",
            "--links=no",
        ])
        .args([
            "--languages=C,C++,Python,Rust,Go,Java,C#,JavaScript,TypeScript,Ruby,PHP,Sh",
            "-f",
            "-",
            ".",
        ])
        .current_dir(tree)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("starting ctags")?;
    let from = child.stdout.take().context("no pipe from ctags")?;
    let mut found: BTreeMap<String, Tag> = BTreeMap::new();
    for line in BufReader::new(from).split(b'\n') {
        let Ok(tag) = serde_json::from_slice::<Value>(&line?) else {
            // Names outside UTF-8.
            continue;
        };
        let text = |key: &str| at(&tag, key).as_str().unwrap_or_default().to_owned();
        if at(&tag, "/_type") != "tag" {
            continue;
        }
        let path = text("/path");
        let path = path.strip_prefix("./").unwrap_or(&path).to_owned();
        match found.entry(text("/name")) {
            std::collections::btree_map::Entry::Occupied(mut known) => {
                known.get_mut().ambiguous = true;
            }
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(Tag {
                    path,
                    line: at(&tag, "/line").as_u64().unwrap_or(0),
                    kind: text("/kind"),
                    language: text("/language"),
                    ambiguous: false,
                });
            }
        }
    }
    ensure!(child.wait()?.success(), "ctags failed");
    Ok(found)
}
