//! Two real hosts with the code pack over one tree and one cache at once.

#![allow(
    clippy::indexing_slicing,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use mainstay_testkit::process::{Running, Serve, TempDir, binary, give_away, is_root, kill};
use serde_json::{Value, json};

/// Every wait ends after this time.
const PATIENCE: Duration = Duration::from_secs(120);
const FILES: usize = 400;

fn tree(folder: &TempDir, files: usize) -> anyhow::Result<PathBuf> {
    let root = folder.join("tree");
    for number in 0..files {
        let path = root.join(format!("d{}/f{number}.txt", number % 20));
        fs::create_dir_all(path.parent().context("a folder")?)?;
        let text: String = (0..900)
            .map(|line| {
                format!(
                    "word{} other{} thing{line} of file {number}\n",
                    line * number,
                    line * 7
                )
            })
            .collect();
        fs::write(path, text)?;
    }
    Ok(root)
}

fn host(root: &Path, cache: &Path) -> anyhow::Result<Running> {
    let running = Serve::stdio()?
        .pack("code")
        .argument("--root")
        .argument(root)
        .env("MAINSTAY_CACHE_DIR", cache)
        .spawn()?;
    running.client()?.open(&json!({}))?;
    Ok(running)
}

fn call(host: &Running, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
    let answer = host.client()?.call("1", tool, arguments)?;
    let result = answer.at("/result/structuredContent");
    ensure!(result.is_object(), "{tool}: {answer:?}");
    Ok(result)
}

fn found(host: &Running, text: &str) -> anyhow::Result<Value> {
    call(host, "search", &json!({"query": text, "kind": "literal"}))
}

/// Waits until a host answers from an index that is fresh.
fn settled(host: &Running) -> anyhow::Result<()> {
    wait_until("a fresh index", || {
        let status = call(host, "index_status", &json!({}))?;
        let is = |key: &str, value: Value| status.get(key) == Some(&value);
        Ok(is("fresh", json!(true)) && !is("generation", json!(0)))
    })
}

fn wait_until(what: &str, mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() >= until {
            bail!("{what}: not within {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The segments of the only index in a cache.
fn segments(cache: &Path) -> anyhow::Result<usize> {
    let mut count = 0;
    for index in fs::read_dir(cache.join("code"))? {
        for file in fs::read_dir(index?.path())? {
            let name = file?.file_name();
            count += usize::from(name.to_string_lossy().ends_with(".tri"));
        }
    }
    Ok(count)
}

/// What a build has kept of its work so far.
fn kept(cache: &Path) -> usize {
    let Ok(indexes) = fs::read_dir(cache.join("code")) else {
        return 0;
    };
    let files = indexes
        .flatten()
        .filter_map(|index| fs::read_dir(index.path()).ok());
    let names = files.flatten().flatten().map(|file| file.file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with("tmp-chunk-"))
        .count()
}

#[test]
fn two_hosts_over_one_index_both_answer_fresh_after_every_edit() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let (root, cache) = (tree(&folder, FILES)?, folder.join("cache"));
    let (one, two) = (host(&root, &cache)?, host(&root, &cache)?);
    // Both want to build; one does, and the other takes over what it wrote.
    thread::scope(|scope| {
        let other = scope.spawn(|| call(&two, "index_build", &json!({})));
        let first = call(&one, "index_build", &json!({}))?;
        let second = other.join().map_err(|_| anyhow::anyhow!("a panic"))??;
        ensure!(first["state"] == "done" && second["state"] == "done");
        anyhow::Ok(())
    })?;
    ensure!(segments(&cache)? == 1, "the tree was indexed twice");
    settled(&one)?;
    settled(&two)?;
    for round in 0..8 {
        let path = root.join(format!("d{round}/f{round}.txt"));
        let word = format!("edited_in_round_{round}");
        fs::write(&path, format!("{word}\n"))?;
        for host in [&one, &two] {
            let answer = found(host, &word)?;
            ensure!(
                answer["total"]["value"] == 1 && answer["fresh"] == true,
                "round {round}: {answer}"
            );
        }
        // One of them takes the change in while the other goes on answering.
        let builder = if round % 2 == 0 { &one } else { &two };
        call(builder, "index_build", &json!({}))?;
        fs::remove_file(&path)?;
        for host in [&one, &two] {
            let answer = found(host, &word)?;
            ensure!(
                answer["total"]["value"] == 0 && answer["fresh"] == true,
                "round {round}, removed: {answer}"
            );
        }
    }
    one.stop()?;
    two.stop()
}

#[test]
fn a_host_killed_while_it_builds_leaves_its_work_to_the_other() -> anyhow::Result<()> {
    // The faster the machine, the larger the tree whose build is met in the middle.
    for files in [FILES, 4 * FILES, 16 * FILES] {
        if killed_while_it_builds(files)? == Met::InTheMiddle {
            return Ok(());
        }
    }
    anyhow::bail!("no build was met in the middle")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    InTheMiddle,
    TooLate,
}

fn killed_while_it_builds(files: usize) -> anyhow::Result<Met> {
    let folder = TempDir::new()?;
    let (root, cache) = (tree(&folder, files)?, folder.join("cache"));
    let (mut one, two) = (host(&root, &cache)?, host(&root, &cache)?);
    let answer = found(&one, "word0 other0 thing0 of file 399")?;
    ensure!(answer["total"]["value"] == 1, "without an index: {answer}");
    wait_until("a part of the build", || {
        Ok(kept(&cache) > 0 || segments(&cache)? > 0)
    })?;
    if segments(&cache)? > 0 {
        one.stop()?;
        two.stop()?;
        return Ok(Met::TooLate);
    }
    // The other one waits for its turn meanwhile, and answers.
    let answer = found(&two, "word0 other0 thing0 of file 398")?;
    ensure!(
        answer["total"]["value"] == 1,
        "while the other builds: {answer}"
    );
    ensure!(kill(one.pid()), "it had gone already");
    one.wait()?;
    settled(&two)?;
    for number in [0, 200, 399] {
        let answer = found(&two, &format!("word0 other0 thing0 of file {number}"))?;
        ensure!(
            answer["total"]["value"] == 1 && answer["fresh"] == true && answer["scanned"] == false,
            "{answer}"
        );
    }
    ensure!(kept(&cache) == 0, "parts of the build were left over");
    fs::write(root.join("d0/new.txt"), "after_the_kill\n")?;
    ensure!(found(&two, "after_the_kill")?["total"]["value"] == 1);
    two.stop()?;
    Ok(Met::InTheMiddle)
}

#[test]
fn repeated_searches_on_the_command_line_get_to_an_index() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let (root, cache) = (tree(&folder, FILES)?, folder.join("cache"));
    let mut calls = 0;
    wait_until("an index", || {
        calls += 1;
        let output = Command::new(binary("mainstay")?)
            .args(["call", "search", "\"word0 other0 thing0 of file 399\""])
            .current_dir(&root)
            .env("MAINSTAY_CACHE_DIR", &cache)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(text.contains("f399.txt"), "call {calls}: {text}");
        Ok(segments(&cache)? == 1 && kept(&cache) == 0)
    })
}

#[test]
fn every_failure_has_its_code_and_words_in_the_direct_dialect() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let root = tree(&folder, 1)?;
    let running = Serve::stdio()?
        .pack("code")
        .argument("--root")
        .argument(&root)
        .env("MAINSTAY_CACHE_DIR", folder.join("cache"))
        .spawn()?;
    let client = running.client()?;
    let sha = "0".repeat(64);
    for (id, (tool, params)) in [
        ("search", json!({"query": "x", "limit": 0})),
        ("search", json!({"query": "x", "cursor": "nonsense"})),
        ("search", json!({"quest": "x"})),
        ("show_file", json!({"path": "d0/f0.txt", "expect_sha": sha})),
        ("index_build", json!({"mode": "sideways"})),
        ("check_status", json!({"x": 1})),
    ]
    .into_iter()
    .enumerate()
    {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": tool, "params": params});
        client.send(&line.to_string())?;
        let result = client.answer(&id.to_string())?.at("/result");
        ensure!(
            result["ok"] == false
                && result["reason"] == "validation_failed"
                && result["code"] == "INVALID_REQUEST"
                && result["message"].is_string()
                && result["hint"].is_string(),
            "{line}: {result}"
        );
        let by_schema = ["limit", "quest", "sideways", "x\":1"];
        if by_schema
            .iter()
            .any(|word| params.to_string().contains(word))
        {
            ensure!(result["errors"][0]["path"].is_string(), "{line}: {result}");
        }
    }
    running.stop()
}

#[test]
fn indexes_are_for_their_user_alone() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let (root, cache) = (tree(&folder, 3)?, folder.join("cache"));
    let host = Serve::stdio()?
        .umask(0)
        .pack("code")
        .argument("--root")
        .argument(&root)
        .env("MAINSTAY_CACHE_DIR", &cache)
        .spawn()?;
    host.client()?.open(&json!({}))?;
    call(&host, "index_build", &json!({}))?;
    let mut left = vec![cache.clone()];
    let mut files = 0;
    while let Some(path) = left.pop() {
        let facts = fs::symlink_metadata(&path)?;
        ensure!(
            facts.mode() & 0o077 == 0,
            "{} {:o}",
            path.display(),
            facts.mode()
        );
        if facts.is_dir() {
            left.extend(fs::read_dir(&path)?.flatten().map(|entry| entry.path()));
        } else {
            files += 1;
        }
    }
    ensure!(files > 0, "there is an index");
    host.stop()?;
    if is_root() {
        give_away(&cache.join("code"))?;
        let words = ["call", "check_status", "--pack", "code", "--root"];
        let checked = Command::new(binary("mainstay")?)
            .args(words)
            .arg(&root)
            .env("MAINSTAY_CACHE_DIR", &cache)
            .output()?;
        let said = String::from_utf8_lossy(&checked.stderr);
        ensure!(
            said.contains("is not a private directory of this user"),
            "{said}"
        );
    }
    Ok(())
}
