//! The official conformance suite, both revisions, against `mainstay wrap --http` in front of a
//! server on another SDK: every required scenario runs and passes, and none is expected to fail.
//!
//! The same server on its SDK's own HTTP is judged first, so that a failure behind `wrap` is ours.

#![expect(
    clippy::print_stdout,
    reason = "what is skipped is said, and what the suite warns of is shown"
)]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use mainstay_testkit::judge::Suite;
use mainstay_testkit::process::{Launch, Running, Serve, binary};

/// Each revision with the number of scenarios that it requires of a server.
const LEGACY: (&str, usize) = ("2025-11-25", 30);
const MODERN: (&str, usize) = ("2026-07-28", 37);
/// Resumable streams; only the legacy revision has it.
const POLLING: &str = "server-sse-polling";

#[test]
fn fixture_alone_meets_the_legacy_requirements() -> anyhow::Result<()> {
    bare(LEGACY)
}

#[test]
fn fixture_alone_meets_the_modern_requirements() -> anyhow::Result<()> {
    bare(MODERN)
}

#[test]
fn wrapped_server_meets_the_legacy_requirements_over_http() -> anyhow::Result<()> {
    wrapped(LEGACY)
}

#[test]
fn wrapped_server_meets_the_modern_requirements_over_http() -> anyhow::Result<()> {
    wrapped(MODERN)
}

/// The scenarios of the tasks extension that apply: tasks never ask the client for input (`tasks-mrtr-input`,
/// `tasks-mrtr-composition`), no tool must run as a task (`tasks-required-task-error`), and the suite itself skips
/// `tasks-status-notifications`.
const TASKS: [&str; 6] = [
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
];

#[test]
fn packs_meet_the_scenarios_of_the_tasks_extension() -> anyhow::Result<()> {
    let Some(suite) = installed()? else {
        return Ok(());
    };
    let host = Serve::http()?.program("tasks", "task-pack", "")?.spawn()?;
    meets_tasks(&suite, &host)?;
    host.stop()
}

#[test]
fn wrapped_servers_meet_the_scenarios_of_the_tasks_extension() -> anyhow::Result<()> {
    let Some(suite) = installed()? else {
        return Ok(());
    };
    let launch = Launch::new([binary("mainstay")?])?;
    let rules = launch.folder().join("rules.json");
    let greet = r#"{"mcpServers":{"tasks":{"command":"none","mainstay":{"tools":{"greet":{"tasks":false}}}}}}"#;
    std::fs::write(&rules, greet)?;
    // The wrapped host makes no tasks itself.
    let inner = launch.folder().join("inner.toml");
    let tools = ["slow_compute", "confirm_delete", "failing_job"];
    let mut config = format!("[packs.tasks]\ncommand = [{:?}]\n", binary("task-pack")?);
    for tool in tools.into_iter().chain(["protocol_error_job"]) {
        config += &format!("[packs.tasks.tools.{tool}]\ntasks = false\n");
    }
    std::fs::write(&inner, config)?;
    let host = launch
        .words(["wrap", "--http", "127.0.0.1:0", "--tasks", "--config"])
        .words([rules.into_os_string(), "--".into()])
        .words([binary("mainstay")?.into_os_string(), "serve".into()])
        .words(["--pack", "tasks", "--config"])
        .words([inner])
        .spawn_http()?;
    meets_tasks(&suite, &host)?;
    host.stop()
}

fn meets_tasks(suite: &Suite, host: &Running) -> anyhow::Result<()> {
    let url = format!("http://{}/mcp", host.address()?);
    let (revision, _) = MODERN;
    let verdict = suite.run(&url, revision)?;
    let mut faults = Vec::new();
    for scenario in TASKS {
        let checks = verdict.scenarios.get(scenario);
        let checks = checks.with_context(|| format!("{scenario} did not run"))?;
        let good = checks.iter().filter(|check| check.status == "SUCCESS");
        println!("{scenario}: {} of {} checks", good.count(), checks.len());
        for check in checks.iter().filter(|check| check.status == "FAILURE") {
            let said = check.error_message.as_deref().unwrap_or_default();
            faults.push(format!("{scenario}: {}: {said}", check.id));
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

fn wrapped(requirements: (&str, usize)) -> anyhow::Result<()> {
    let Some(suite) = installed()? else {
        return Ok(());
    };
    let host = Launch::new([binary("mainstay")?])?
        .words(["wrap", "--http", "127.0.0.1:0", "--"])
        .words([binary("conformance-server")?])
        .spawn_http()?;
    let url = format!("http://{}/mcp", host.address()?);
    judged(&suite, &url, requirements)
        .with_context(|| format!("standard error: {:#?}", host.stderr()))?;
    host.stop()
}

fn bare(requirements: (&str, usize)) -> anyhow::Result<()> {
    let Some(suite) = installed()? else {
        return Ok(());
    };
    let mut server = Command::new(binary("conformance-server")?)
        .args(["--http", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the fixture")?;
    let result = (|| {
        let mut line = String::new();
        let out = server.stdout.take().context("no output")?;
        BufReader::new(out).read_line(&mut line)?;
        let url = line.trim().strip_prefix("listening ");
        judged(&suite, url.with_context(|| line.clone())?, requirements)
    })();
    server.kill().context("ending the fixture")?;
    server.wait().context("ending the fixture")?;
    result
}

fn installed() -> anyhow::Result<Option<Suite>> {
    let suite = Suite::find()?;
    if suite.is_none() {
        println!("SKIPPED: the conformance suite is not installed (cargo xtask tools installs it)");
    }
    Ok(suite)
}

fn judged(suite: &Suite, url: &str, (revision, count): (&str, usize)) -> anyhow::Result<()> {
    let required = suite.required(revision)?;
    ensure!(
        required.len() == count,
        "{revision} requires {} scenarios, not {count}: {required:?}",
        required.len()
    );
    let verdict = suite.run(url, revision)?;
    let mut faults = Vec::new();
    for scenario in &required {
        let Some(checks) = verdict.scenarios.get(scenario) else {
            faults.push(format!("{scenario} did not run"));
            continue;
        };
        if !checks.iter().any(|check| check.status == "SUCCESS") {
            faults.push(format!("{scenario} has nothing that succeeded"));
        }
        for check in checks {
            let said = check.error_message.as_deref().unwrap_or_default();
            let line = format!("{scenario}: {}: {said}", check.id);
            match check.status.as_str() {
                "SUCCESS" | "INFO" => {}
                "WARNING" | "SKIPPED" => println!("{} {line}", check.status),
                _ => faults.push(line),
            }
        }
    }
    for (scenario, checks) in &verdict.scenarios {
        let failed = checks.iter().filter(|check| check.status == "FAILURE");
        let failed: Vec<&str> = failed.map(|check| check.id.as_str()).collect();
        if !required.contains(scenario) && !failed.is_empty() {
            println!("not required: {scenario} fails {failed:?}");
        }
    }
    // Not required, and without failures also where no event is sent.
    if let Some(checks) = verdict.scenarios.get(POLLING) {
        let good = checks.iter().filter(|check| check.status == "SUCCESS");
        if good.count() < 2 {
            faults.push(format!(
                "{POLLING}: the first event and its retry field: {checks:?}"
            ));
        }
    }
    ensure!(
        faults.is_empty(),
        "{revision}, {} of the requirements are not met:\n{}",
        faults.len(),
        faults.join("\n")
    );
    ensure!(verdict.is_content, "the suite failed: {}", verdict.report);
    Ok(())
}
