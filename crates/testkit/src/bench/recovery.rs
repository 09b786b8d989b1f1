//! A worker killed with KILL and eight calls in flight: how soon the lost calls have their fault,
//! how soon the same session is served again, cold and with a standby.
//!
//! Every round is a fresh host, so that each recovery is a first one: pauses between restarts grow
//! with their number. Times are from the kill on, so the time to notice it is in them.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::json;

use super::{Options, Report, Samples};
use crate::oracle::Failure;
use crate::peer::{Client, PATIENCE};
use crate::process::{Running, Serve, kill};

/// Calls in flight: as many that must not be repeated, and as many that are.
const EACH: u64 = 4;
/// Work of a convergent call.
const WORK_MS: u64 = 100;
/// The id of the call after the kill.
const NEXT: u64 = 100;
/// The limits of a host with a standby, if it knows the key.
const STANDBY: &str = "pool = 8, standby = 1";
/// Time for a standby to get through its handshake once it is there.
const WARM_UP: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Times {
    fault: Samples,
    next: Samples,
    convergent: Samples,
}

pub(super) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let rounds = options.rounds * 2;
    let mut cold = Times::default();
    for _ in 0..rounds {
        round("pool = 8", 1, &mut cold).context("cold")?;
    }
    tell(report, "cold", &cold);
    if !has_standby()? {
        report.skip("recovery.standby", "this host does not know limits.standby");
        return Ok(());
    }
    let mut standby = Times::default();
    for _ in 0..rounds {
        round(STANDBY, 2, &mut standby).context("standby")?;
    }
    tell(report, "standby", &standby);
    Ok(())
}

fn tell(report: &mut Report, name: &str, times: &Times) {
    for (key, what, samples) in [
        ("fault", "fault of a lost call", &times.fault),
        ("next", "answer of the next call", &times.next),
        (
            "convergent",
            "answer of a repeated call of 100 ms",
            &times.convergent,
        ),
    ] {
        for (part, value) in [
            ("p50", samples.p50()),
            ("p99", samples.p99()),
            ("max", samples.percentile(1.0)),
        ] {
            let key = format!("recovery.{name}.{key}.{part}");
            let what = format!("{name}: kill to the {what}, {part}");
            report.add(&key, &what, value / 1e3, "ms");
        }
    }
}

/// Whether the host knows the key: one that does not refuses to start.
fn has_standby() -> anyhow::Result<bool> {
    // Kept until the end: the configuration is in its folder.
    let serve = Serve::stdio()?.ledger()?.limits(STANDBY)?;
    let mut child = serve
        .command()?
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .context("starting mainstay")?;
    let status = crate::process::wait_for(&mut child, PATIENCE)?;
    Ok(status.success())
}

fn round(limits: &str, workers: usize, times: &mut Times) -> anyhow::Result<()> {
    let host = Serve::stdio()?.ledger()?.limits(limits)?.spawn()?;
    let client = host.client()?;
    client.call("\"warm\"", "get", &json!({}))?;
    host.wait_for_workers("ledger", workers)?;
    if workers > 1 {
        std::thread::sleep(WARM_UP);
    }
    for id in 0..EACH {
        let text = format!("lost {id}");
        client.send(&call(
            id,
            "append",
            &json!({"text": text, "pause_ms": 60_000}),
        ))?;
        client.send(&call(EACH + id, "wait", &json!({ "ms": WORK_MS })))?;
    }
    let victim = serving(&host, client)?;
    ensure!(kill(victim), "the worker had gone");
    let start = Instant::now();
    client.send(&call(NEXT, "get", &json!({})))?;
    for _ in 0..=2 * EACH {
        let answer = client.next()?;
        let after = start.elapsed();
        let id = answer.at("/id").as_u64().context("an answer without id")?;
        match (id, Failure::read(&answer)) {
            (NEXT, None) => times.next.add(after),
            (0..EACH, Some(Failure::OutcomeUnknown)) => times.fault.add(after),
            (EACH..NEXT, None) => times.convergent.add(after),
            _ => bail!("a wrong answer: {answer:?}"),
        }
    }
    host.stop()
}

fn call(id: u64, tool: &str, arguments: &serde_json::Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments}})
    .to_string()
}

/// The process that has all the calls. Health may name its keeper instead: a process above it.
fn serving(host: &Running, client: &Client) -> anyhow::Result<u32> {
    let until = Instant::now() + PATIENCE;
    loop {
        let health = client.call("\"health\"", "system_health", &json!({}))?;
        let worker = |key| health.at(&format!("/result/structuredContent/workers/0/{key}"));
        if worker("in_flight") == 2 * EACH {
            let named = worker("pid").as_u64().context("health names no process")?;
            let named = u32::try_from(named)?;
            let found = host
                .workers("ledger")
                .into_iter()
                .find(|pid| is_below(*pid, named));
            return found.context("the worker that health names does not run");
        }
        ensure!(Instant::now() < until, "never all in flight: {health:?}");
    }
}

fn is_below(pid: u32, keeper: u32) -> bool {
    let mut pid = pid;
    // Shims do not nest deeply.
    for _ in 0..4 {
        if pid == keeper {
            return true;
        }
        let Some(parent) = parent_of(pid) else {
            return false;
        };
        pid = parent;
    }
    false
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}
