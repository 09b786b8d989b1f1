//! The MCP clients of others, in automatic and in legacy mode, over stdio.

#![expect(
    clippy::indexing_slicing,
    reason = "a JSON value has null where it has no member"
)]
#![expect(clippy::print_stdout, reason = "a test says when it is skipped")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::{Serve, TempDir, tool, wait_for, workspace};
use serde_json::{Value, json};

/// Starting an interpreter and its libraries on a busy machine takes a while.
const PATIENCE: Duration = Duration::from_secs(600);

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// Calls whose answers these clients check against the output schema, and their `ok`.
const JUDGED: [(&str, &str, bool); 7] = [
    ("list_examples", "{}", true),
    ("get_example", r#"{"path":"Thing_Example.json"}"#, true),
    ("validate_asset", r#"{"asset":{},"schema":"thing"}"#, true),
    ("validate_asset", r#"{"asset":7,"schema":"thing"}"#, false),
    (
        "validate_many",
        r#"{"assets":[{},7],"schema":"thing"}"#,
        true,
    ),
    ("diff_assets", r#"{"base":{"a":1},"new":{"b":null}}"#, true),
    ("diff_assets", r#"{"base":[],"new":[]}"#, true),
];

#[test]
fn python_client_lists_and_calls_our_tools_in_both_modes() -> anyhow::Result<()> {
    with_python(conversation)
}

#[test]
fn typescript_client_lists_and_calls_our_tools_in_both_modes() -> anyhow::Result<()> {
    with_typescript(conversation)
}

#[test]
fn the_first_search_of_a_legacy_python_client_is_in_its_root() -> anyhow::Result<()> {
    with_python(search_in_root)
}

#[test]
fn the_first_search_of_a_legacy_typescript_client_is_in_its_root() -> anyhow::Result<()> {
    with_typescript(search_in_root)
}

/// The Inspector finds nothing in the schemas of all our tools that a client might reject.
#[test]
fn inspector_accepts_every_schema_of_ours() -> anyhow::Result<()> {
    const PROGRAM: &str =
        "node/node_modules/@modelcontextprotocol/inspector/clients/cli/build/index.js";
    let Some(program) = tool(PROGRAM)? else {
        println!("SKIPPED: the Inspector is not installed (cargo xtask tools installs it)");
        return Ok(());
    };
    let serve = Serve::stdio()?.ledger()?.pack("asset").pack("code");
    let serve = serve.argument("--tool-definitions").argument("full");
    let host = serve.command()?;
    let output = Command::new("node")
        // It runs only under its own path, not under a link to it.
        .arg(program.canonicalize()?)
        .args([
            "--format",
            "json",
            "--method",
            "tools/list",
            "--strict",
            "--",
        ])
        .arg(host.get_program())
        .args(host.get_args())
        .stdin(Stdio::null())
        .output()
        .context("starting the Inspector")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    ensure!(!said.contains("Warning: tool"), "{said}");
    let listed: Value = serde_json::from_slice(&output.stdout).with_context(|| said.to_string())?;
    let tools = listed["result"]["tools"].as_array().map_or(0, Vec::len);
    ensure!(tools > 15, "{tools} tools: {listed}");
    Ok(())
}

/// Models read the list of tools before the first question, so its size counts, in tokens of `o200k_base`.
#[test]
fn all_our_tools_together_have_less_than_3000_tokens() -> anyhow::Result<()> {
    const MOST: u64 = 3000;
    let Some(modules) = tool("node/node_modules")? else {
        println!("SKIPPED: target/tools/node is not installed (cargo xtask tools installs it)");
        return Ok(());
    };
    let folder = TempDir::new()?;
    let counter = folder.join("tokens.mjs");
    fs::copy(workspace()?.join("tests/clients/tokens.mjs"), &counter)?;
    symlink(modules.canonicalize()?, folder.join("node_modules"))?;
    let count = |form: &str| -> anyhow::Result<Value> {
        let serve = Serve::stdio()?.pack("asset").pack("code");
        let serve = serve.argument("--tool-definitions").argument(form);
        let running = serve.spawn()?;
        let client = running.client()?;
        client.open(&json!({}))?;
        let listed = client.request("1", "tools/list", &json!({}))?;
        let list = folder.join("list.json");
        fs::write(&list, listed.at("/result").to_string())?;
        running.stop()?;
        let output = Command::new("node").arg(&counter).arg(&list).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        serde_json::from_slice(&output.stdout).context("reading the counts")
    };
    let (brief, full) = (count("brief")?, count("full")?);
    println!("| tool | brief | full |");
    let tools = brief["tools"].as_object().context("counts by tool")?;
    for (name, tokens) in tools {
        println!("| `{name}` | {tokens} | {} |", full["tools"][name]);
    }
    println!("| all | {} | {} |", brief["all"], full["all"]);
    ensure!(tools.len() == 16, "{brief}");
    let all = brief["all"].as_u64().context("a number")?;
    ensure!(all < MOST, "{all} tokens: {brief:#}");
    ensure!(full["all"].as_u64() > Some(all), "{full}");
    Ok(())
}

type Talk = fn(&mut Command, &str) -> anyhow::Result<()>;

fn with_python(talk: Talk) -> anyhow::Result<()> {
    let driver = workspace()?.join("tests/clients/python_client.py");
    let interpreter = tool("python/bin/python").or_else(|missing| match tool("python-site")? {
        Some(site) => Ok(Some(site)),
        None => Err(missing),
    })?;
    let site = match interpreter {
        Some(path) if path.is_file() => return both_modes(&mut Command::new(path), &driver, talk),
        Some(site) => Some(site),
        None => tool("python-site")?,
    };
    let Some(site) = site else {
        println!("SKIPPED: target/tools/python is not installed (cargo xtask test installs it)");
        return Ok(());
    };
    both_modes(
        Command::new("python3").env("PYTHONPATH", site),
        &driver,
        talk,
    )
}

fn with_typescript(talk: Talk) -> anyhow::Result<()> {
    let Some(modules) = tool("node/node_modules")? else {
        println!("SKIPPED: target/tools/node is not installed (cargo xtask test installs it)");
        return Ok(());
    };
    // Modules are looked for beside the program that wants them.
    let folder = TempDir::new()?;
    let driver = folder.join("typescript_client.mjs");
    fs::copy(
        workspace()?.join("tests/clients/typescript_client.mjs"),
        &driver,
    )?;
    symlink(modules.canonicalize()?, folder.join("node_modules"))?;
    both_modes(&mut Command::new("node"), &driver, talk)
}

fn both_modes(interpreter: &mut Command, driver: &PathBuf, talk: Talk) -> anyhow::Result<()> {
    for (mode, protocol) in [("auto", MODERN), ("legacy", LEGACY)] {
        let mut command = Command::new(interpreter.get_program());
        for (name, value) in interpreter.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        talk(command.arg(driver).arg(mode), protocol).context(mode)?;
    }
    Ok(())
}

/// A modern client has roots, too, but nobody can ask it for them.
fn search_in_root(client: &mut Command, protocol: &str) -> anyhow::Result<()> {
    let (root, folder) = (TempDir::new()?, TempDir::new()?);
    fs::write(root.join("a.rs"), "fn wanted_word() {} // its root\n")?;
    fs::write(folder.join("b.rs"), "fn wanted_word() {} // the folder\n")?;
    let serve = Serve::stdio()?
        .pack("code")
        .env("MAINSTAY_CACHE_DIR", folder.join("cache"));
    let host = serve.command()?;
    let search = r#"{"query":"wanted_word","kind":"literal"}"#;
    client
        .arg("--root")
        .arg(root.path())
        .args(["--call", "search", search, "--"])
        .arg(host.get_program())
        .args(host.get_args())
        .envs(
            host.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(folder.path());
    let lines = run(client)?;
    let [listed, found, ..] = lines.as_slice() else {
        anyhow::bail!("too few lines: {lines:#?}");
    };
    ensure!(listed["protocol"] == protocol, "{listed}");
    ensure!(found["structured"]["total"]["value"] == 1, "{found}");
    let place = if protocol == LEGACY { "a.rs" } else { "b.rs" };
    ensure!(found["structured"].to_string().contains(place), "{found}");
    Ok(())
}

fn conversation(client: &mut Command, protocol: &str) -> anyhow::Result<()> {
    let schemas = TempDir::new()?;
    let schema = r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","version":"1"}"#;
    fs::write(schemas.join("thing.schema.json"), schema)?;
    let examples = TempDir::new()?;
    fs::write(examples.join("Thing_Example.json"), "{}")?;
    // The clients check answers against the schemas of results that they are shown.
    let serve = Serve::stdio()?
        .pack("asset")
        .argument("--tool-definitions")
        .argument("full")
        .env("SYN_SCHEMAS_DIR", schemas.path())
        .env("SYN_EXAMPLES_DIR", examples.path());
    let host = serve.command()?;
    client
        .args(["--call", "list_schemas", "{}"])
        .args(["--call", "get_schema", r#"{"name":"thing"}"#])
        .args(["--call", "get_schema", r#"{"name":"nothing"}"#])
        .args(["--call", "system_health", "{}"])
        .args(
            JUDGED
                .iter()
                .flat_map(|(tool, arguments, _)| ["--call", tool, arguments]),
        )
        .arg("--")
        .arg(host.get_program())
        .args(host.get_args())
        .envs(
            host.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    let lines = run(client)?;
    let [listed, schemas, thing, nothing, health, judged @ ..] = lines.as_slice() else {
        anyhow::bail!("too few lines: {lines:#?}");
    };
    ensure!(listed["protocol"] == protocol, "{listed}");
    let tools = listed["tools"].as_array().cloned().unwrap_or_default();
    for name in [
        "get_schema",
        "list_schemas",
        "system_health",
        "system_telemetry",
    ] {
        ensure!(
            tools.contains(&json!(name)),
            "{name} is not listed: {listed}"
        );
    }
    ensure!(schemas["isError"] == false, "{schemas}");
    ensure!(schemas["structured"]["ok"] == true, "{schemas}");
    ensure!(
        thing["isError"] == false && thing["structured"]["ok"] == true,
        "{thing}"
    );
    ensure!(nothing["isError"] == true, "{nothing}");
    ensure!(health["structured"]["state"].is_string(), "{health}");
    for ((tool, arguments, ok), answer) in JUDGED.iter().zip(judged) {
        let own = &answer["structured"];
        let is_good = answer["isError"] == false && own["ok"] == *ok;
        ensure!(is_good, "{tool} {arguments}: {answer}");
    }
    ensure!(judged.len() >= JUDGED.len(), "too few lines: {lines:#?}");
    Ok(())
}

/// Runs the driver and parses what it printed, a JSON value on each line.
fn run(client: &mut Command) -> anyhow::Result<Vec<Value>> {
    let mut child = client
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", client.get_program().display()))?;
    // What it prints fits into the pipes, so waiting first cannot block it.
    let status = wait_for(&mut child, PATIENCE);
    if status.is_err() {
        let _ = child.kill();
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(status?.success(), "the client failed: {said}");
    let lines = String::from_utf8(output.stdout)?;
    lines
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect()
}
