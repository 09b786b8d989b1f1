//! ripgrep and csearch on the same tree with the same queries.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use super::queries::Group;
use super::{Row, load};
use crate::bench::Samples;
use crate::process::{program, workspace};

/// Times that each query is asked.
const ROUNDS: usize = 1;

pub(super) fn measure(tree: &Path, cache: &Path, out: &mut String) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let folder = workspace()?.join("target/tools/bin");
    let find = |name: &str| program(name, &folder);
    let _ = writeln!(out);
    match find("rg") {
        Some(rg) => rows.push(ripgrep(&rg, tree)?),
        None => missing("rg", &folder, out),
    }
    match (find("cindex"), find("csearch")) {
        (Some(cindex), Some(csearch)) => {
            rows.push(codesearch(&cindex, &csearch, tree, cache, out)?);
        }
        (cindex, csearch) => {
            for (name, found) in [("cindex", cindex), ("csearch", csearch)] {
                if found.is_none() {
                    missing(name, &folder, out);
                }
            }
        }
    }
    Ok(rows)
}

fn missing(name: &str, folder: &Path, out: &mut String) {
    let _ = writeln!(
        out,
        "{name}: SKIPPED, it is neither on PATH nor in {}",
        folder.display()
    );
}

fn ripgrep(rg: &Path, tree: &Path) -> anyhow::Result<Row> {
    let mut row = Row {
        name: version(rg, "ripgrep"),
        index_share: Some(0.0),
        ..Row::default()
    };
    for group in Group::COMMON {
        row.groups.push(Some(asked(group, |query| {
            let mut command = Command::new(rg);
            command.args(["-n", "-S"]);
            if group != Group::Regex {
                command.arg("-F");
            }
            command.args(["-e", query, "."]).current_dir(tree);
            command
        })?));
    }
    Ok(row)
}

fn codesearch(
    cindex: &Path,
    csearch: &Path,
    tree: &Path,
    cache: &Path,
    out: &mut String,
) -> anyhow::Result<Row> {
    let index = cache.join("csearchindex");
    // It would only be brought up to date.
    let _ = fs::remove_file(&index);
    let begin = Instant::now();
    let mut child = Command::new(cindex)
        .arg(tree)
        .env("CSEARCHINDEX", &index)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("starting cindex")?;
    let mut peak = 0;
    while child.try_wait()?.is_none() {
        if let Ok(usage) = crate::process::usage(child.id()) {
            peak = usage.peak.max(peak);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let took = begin.elapsed().as_secs_f64();
    ensure!(child.wait()?.success(), "cindex failed");
    let text = text_bytes(tree) as f64;
    let mut row = Row {
        name: "csearch".to_owned(),
        build_mb: Some(text / 1e6 / took),
        index_share: Some(fs::metadata(&index)?.len() as f64 / text),
        memory_mb: Some(peak as f64 / 1024.0),
        groups: Vec::new(),
    };
    let _ = writeln!(out, "cindex: {took:.1} s (load {})", load());
    for group in Group::COMMON {
        row.groups.push(Some(asked(group, |query| {
            let mut command = Command::new(csearch);
            command.arg("-n").env("CSEARCHINDEX", &index);
            // As smart case has it.
            if !query.chars().any(char::is_uppercase) {
                command.arg("-i");
            }
            match group {
                Group::Regex => command.arg(query),
                _ => command.arg(escaped(query)),
            };
            command
        })?));
    }
    Ok(row)
}

/// The median time of a group's queries, in milliseconds.
fn asked(group: Group, command: impl Fn(&str) -> Command) -> anyhow::Result<f64> {
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        for query in group.queries() {
            let mut command = command(query);
            command.stdin(Stdio::null()).stderr(Stdio::null());
            let begin = Instant::now();
            let output = command.output().context("starting a search")?;
            samples.add(begin.elapsed());
            // 1 says that nothing was found.
            let code = output.status.code();
            ensure!(
                matches!(code, Some(0 | 1)),
                "{command:?} ended with {}",
                output.status
            );
        }
    }
    Ok(samples.p50() / 1e3)
}

fn version(program: &Path, name: &str) -> String {
    let said = Command::new(program).arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let number = said.ok().and_then(|said| {
        let word = said.split_whitespace().nth(1)?;
        Some(word.to_owned())
    });
    match number {
        Some(number) => format!("{name} {number}"),
        None => name.to_owned(),
    }
}

/// The query as an expression that matches just it.
fn escaped(query: &str) -> String {
    let mut text = String::new();
    for character in query.chars() {
        if !character.is_ascii_alphanumeric() && !character.is_whitespace() && character != '_' {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

/// Bytes of all files of a tree, as a measure that is nobody's own.
fn text_bytes(tree: &Path) -> u64 {
    let mut bytes = 0;
    let mut left: Vec<PathBuf> = vec![tree.to_owned()];
    while let Some(folder) = left.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => left.push(entry.path()),
                Ok(metadata) if metadata.is_file() => bytes += metadata.len(),
                _ => {}
            }
        }
    }
    bytes
}
