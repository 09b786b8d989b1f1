//! What a recovery adds to the start of a server that is slow to start.
//!
//! Servers of others take hundreds of milliseconds to start, and a session that was lost with one
//! cannot be back before its successor runs. So each round measures the server alone, from its start
//! to its answer to `initialize` and to the first call, and then the recovery behind `mainstay wrap`:
//! from the kill to the answer of the next call in the same session. What is added is the
//! difference within a round.

use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Options, Report};
use crate::foreign::Server;
use crate::oracle::Failure;
use crate::peer::Client;
use crate::process::{Launch, kill};

/// One of Node.js, one of Python.
const SERVERS: [(&str, Server); 2] = [("node", Server::Everything), ("python", Server::Time)];

pub(super) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    for (key, server) in SERVERS {
        measure(key, server, options, report).with_context(|| format!("{server:?}"))?;
    }
    Ok(())
}

/// Milliseconds of one round.
struct Round {
    initialized: f64,
    answered: f64,
    back: f64,
}

fn measure(
    key: &str,
    server: Server,
    options: &Options,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        let Some(alone) = alone(server)? else {
            let key = format!("faults.{key}");
            report.skip(&key, "it is not installed (cargo xtask tools installs it)");
            return Ok(());
        };
        let back = recovered(server, &options.prefix)?;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        rounds.push(Round {
            initialized: ms(alone.0),
            answered: ms(alone.1),
            back: ms(back),
        });
    }
    let of = |value: fn(&Round) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(value).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    for (part, what, values) in [
        (
            "initialize",
            "alone, start to initialize",
            of(|round| round.initialized),
        ),
        (
            "start",
            "alone, start to the answer of a call",
            of(|round| round.answered),
        ),
        (
            "back",
            "kill to the answer of the next call",
            of(|round| round.back),
        ),
        (
            "added",
            "the same less start to initialize",
            of(|round| round.back - round.initialized),
        ),
        (
            "added_to_call",
            "the same less start to the answer of a call",
            of(|round| round.back - round.answered),
        ),
    ] {
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let at = (values.len().saturating_sub(1) as f64 * share).round() as usize;
            let value = values.get(at).copied().unwrap_or(f64::NAN);
            let said = format!("{server:?} ({key}): {what}, {name}");
            report.add(&format!("faults.{key}.{part}.{name}"), &said, value, "ms");
        }
    }
    Ok(())
}

/// A server to be started, and a call that it answers at once.
struct Prepared {
    launch: Launch,
    tool: &'static str,
    arguments: Value,
}

impl Prepared {
    fn new(server: Server, prefix: &[OsString]) -> anyhow::Result<Option<Self>> {
        let launch = Launch::new(prefix.iter().cloned())?;
        let files = launch.folder().join("files");
        fs::create_dir(&files).context("creating a folder")?;
        let Some(command) = server.command(&files)? else {
            return Ok(None);
        };
        let (tool, arguments) = server.quick_call(&files);
        Ok(Some(Self {
            launch: launch.words(command),
            tool,
            arguments,
        }))
    }
}

fn called(client: &Client, id: &str, tool: &str, arguments: &Value) -> anyhow::Result<()> {
    let answer = client.call(id, tool, arguments)?;
    ensure!(Failure::read(&answer).is_none(), "{tool}: {answer:?}");
    Ok(())
}

/// From its start to its answers to `initialize` and to the first call.
fn alone(server: Server) -> anyhow::Result<Option<(Duration, Duration)>> {
    let Some(prepared) = Prepared::new(server, &[])? else {
        return Ok(None);
    };
    let start = Instant::now();
    let mut running = prepared.launch.spawn()?;
    let client = running.take_client()?;
    client.open(&json!({}))?;
    let initialized = start.elapsed();
    called(&client, "1", prepared.tool, &prepared.arguments)?;
    let answered = start.elapsed();
    client.finish()?;
    running.wait()?;
    Ok(Some((initialized, answered)))
}

/// From the kill of the server to the answer of the next call.
fn recovered(server: Server, prefix: &[OsString]) -> anyhow::Result<Duration> {
    let prepared = Prepared::new(server, prefix)?.context("it was installed a moment ago")?;
    let mut host = prepared.launch.spawn()?;
    let client = host.take_client()?;
    client.open(&json!({}))?;
    called(&client, "1", prepared.tool, &prepared.arguments)?;
    let found = server.processes(&host);
    let [victim] = found.as_slice() else {
        anyhow::bail!("{} servers instead of one", found.len());
    };
    ensure!(kill(*victim), "the server had gone");
    let start = Instant::now();
    called(&client, "2", prepared.tool, &prepared.arguments)?;
    let back = start.elapsed();
    client.finish()?;
    let status = host.wait()?;
    ensure!(status.success(), "it ended with {status}");
    Ok(back)
}
