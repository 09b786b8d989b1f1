//! Five servers of others and a small native one behind one host: what the others notice when the native one is
//! killed every second.
//!
//! Blocks in which the native server is killed alternate with blocks in which an unrelated process of the same
//! program is killed and started at the same rate, so that a busy moment of the machine hits both.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Options, Report, Samples};
use crate::peer::{Client, PATIENCE};
use crate::process::{Launch, Running, binary, kill, tool};

/// The native server.
const NATIVE: &str = "mcp-fixture";
/// One block, and the pause between two kills in it.
const BLOCK: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_secs(1);

/// A tool, and its arguments.
type Call = (String, Value);

pub(super) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let Some((running, calls)) = open()? else {
        report.skip(
            "servers",
            "cargo xtask tools installs the servers of others",
        );
        return Ok(());
    };
    let client = running.client()?;
    for (number, (tool, arguments)) in calls.iter().enumerate() {
        until_served(client, number, tool, arguments)?;
    }
    let (mut with, mut without) = (Samples::default(), Samples::default());
    for block in 0..(options.rounds / 4).max(2) {
        let from = 1_000_000 * (2 * block + 1);
        let measured = during(&mut Killer::Native(&running), client, &calls, from)?;
        with.extend(&measured);
        let measured = during(&mut Killer::unrelated()?, client, &calls, from + 500_000)?;
        without.extend(&measured);
    }
    for (key, what, samples) in [
        ("killed", "a server beside them is killed", &with),
        ("unrelated", "an unrelated process is killed", &without),
    ] {
        for (part, value) in [("p50", samples.p50()), ("p99", samples.p99())] {
            let what = format!("call of another server while {what}, {part}");
            report.add(&format!("servers.{key}.{part}"), &what, value / 1e3, "ms");
        }
    }
    let ratio = with.p99() / without.p99();
    let what = format!(
        "p99 with kills to p99 without, {} calls each",
        with.len().min(without.len())
    );
    report.add("servers.p99_ratio", &what, ratio, "times");
    // Notices about restarts of the native server are left.
    running.finish()?;
    Ok(())
}

/// The process that is killed every second.
enum Killer<'a> {
    Native(&'a Running),
    Unrelated(Child),
}

impl Killer<'_> {
    fn unrelated() -> anyhow::Result<Self> {
        Ok(Self::Unrelated(unrelated()?))
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Native(running) => {
                for pid in running.workers(NATIVE) {
                    kill(pid);
                }
            }
            Self::Unrelated(child) => {
                child.kill().context("killing")?;
                child.wait().context("reaping")?;
                *child = unrelated()?;
            }
        }
        Ok(())
    }
}

impl Drop for Killer<'_> {
    fn drop(&mut self) {
        if let Self::Unrelated(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn unrelated() -> anyhow::Result<Child> {
    let mut command = Command::new(binary(NATIVE)?);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().context("starting an unrelated process")
}

/// Calls the servers in turn for one block, while something is killed every second.
fn during(
    killer: &mut Killer<'_>,
    client: &Client,
    calls: &[Call],
    from: usize,
) -> anyhow::Result<Samples> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let killing = scope.spawn(|| -> anyhow::Result<()> {
            while !over.load(Ordering::Relaxed) {
                killer.kill()?;
                std::thread::sleep(PAUSE);
            }
            Ok(())
        });
        let measured = measure(client, calls, from);
        over.store(true, Ordering::Relaxed);
        let killed = killing.join();
        killed.map_err(|_| anyhow::anyhow!("the killer panicked"))??;
        measured
    })
}

fn measure(client: &Client, calls: &[Call], from: usize) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    let until = Instant::now() + BLOCK;
    for (id, (tool, arguments)) in (from..).zip(calls.iter().cycle()) {
        if Instant::now() >= until {
            break;
        }
        let began = Instant::now();
        let answer = client.call(&id.to_string(), tool, arguments)?;
        samples.add(began.elapsed());
        ensure!(answer.at("/result/isError") != true, "{tool}: {answer:?}");
    }
    Ok(samples)
}

/// Servers of Python take seconds to start.
fn until_served(client: &Client, id: usize, tool: &str, arguments: &Value) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = client.call(&format!("\"{id}\""), tool, arguments)?;
        if answer.at("/result/content") != Value::Null && answer.at("/result/isError") != true {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{tool}: {answer:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The host, and a call of each server of others. `None` if they are not installed.
fn open() -> anyhow::Result<Option<(Running, Vec<Call>)>> {
    let node = |package: &str| {
        tool(&format!(
            "node-servers/node_modules/@modelcontextprotocol/server-{package}/dist/index.js"
        ))
    };
    let installed = (
        node("everything")?,
        node("filesystem")?,
        node("memory")?,
        tool("python-servers/bin/python")?,
    );
    let (Some(everything), Some(filesystem), Some(memory), Some(python)) = installed else {
        return Ok(None);
    };
    let words = [binary("mainstay")?.into_os_string(), "serve".into()];
    let launch = Launch::new(words)?.words(["--config", "servers.json"]);
    let files = launch.folder().join("files");
    prepare(&files)?;
    let native = json!({"limits": {"restarts": 1_000_000, "restart_period_ms": 1000, "backoff_min_ms": 0,
        "backoff_max_ms": 0}});
    let servers = json!({
        "everything": {"command": "node", "args": [everything, "stdio"]},
        "files": {"command": "node", "args": [filesystem, files]},
        "git": {"command": python, "args": ["-m", "mcp_server_git", "--repository", files]},
        "memory": {"command": "node", "args": [memory],
            "env": {"MEMORY_FILE_PATH": launch.folder().join("memory.json")}},
        "native": {"command": binary(NATIVE)?, "mainstay": native},
        "time": {"command": python, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
    });
    let file = json!({ "mcpServers": servers });
    std::fs::write(launch.folder().join("servers.json"), file.to_string())?;
    let running = launch.spawn()?;
    running.client()?.open(&json!({}))?;
    let calls = [
        ("everything__echo", json!({"message": "x"})),
        (
            "files__read_text_file",
            json!({"path": files.join("a.txt")}),
        ),
        ("git__git_status", json!({"repo_path": files})),
        ("memory__read_graph", json!({})),
        ("time__get_current_time", json!({"timezone": "UTC"})),
    ];
    let calls = calls.map(|(tool, arguments)| (tool.to_owned(), arguments));
    Ok(Some((running, calls.into())))
}

fn prepare(files: &Path) -> anyhow::Result<()> {
    std::fs::create_dir(files)?;
    std::fs::write(files.join("a.txt"), "hello")?;
    let git = Command::new("git")
        .args(["init", "-q"])
        .arg(files)
        .status()?;
    ensure!(git.success(), "git init failed");
    Ok(())
}
