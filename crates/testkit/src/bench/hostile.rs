//! Other sessions while a host checks a hostile payload: 15 MB under fifty look-ahead patterns.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};

use super::{Report, Samples};
use crate::hostile_server::HOSTILE_SERVER;
use crate::http::Session;
use crate::process::{Launch, Running, binary};

/// Items of an array of about 15 MB.
const ITEMS: usize = 1_300_000;
/// The deadline of calls, in seconds.
const TIMEOUT: u64 = 5;
/// The time after which memory must be back.
const SETTLED: Duration = Duration::from_secs(10);

pub(super) fn run(report: &mut Report) -> anyhow::Result<()> {
    if std::process::Command::new("python3")
        .arg("-V")
        .output()
        .is_err()
    {
        report.skip("hostile", "python3 is not installed");
        return Ok(());
    }
    let list = json!({ "list": vec!["aaaaaaaa"; ITEMS] });
    measure(report, "arguments", "judged", &list).context("arguments")?;
    measure(report, "result", "large", &json!({ "items": ITEMS })).context("result")
}

fn start() -> anyhow::Result<Running> {
    let launch = Launch::new([binary("mainstay")?.into_os_string(), "wrap".into()])?;
    let script = launch.folder().join("server.py");
    std::fs::write(&script, HOSTILE_SERVER)?;
    let timeout = TIMEOUT.to_string();
    launch
        .words([
            "--timeout",
            &timeout,
            "--http",
            "127.0.0.1:0",
            "--",
            "python3",
        ])
        .words([script])
        .spawn_http()
}

fn measure(report: &mut Report, name: &str, tool: &str, arguments: &Value) -> anyhow::Result<()> {
    let host = start()?;
    let address = host.address()?;
    let busy = Session::open(address)?;
    busy.call("1", "plain", &json!({}))?;
    let other = Session::open(address)?;
    other.call("1", "plain", &json!({}))?;
    let before = host.usage()?.resident;
    let (tool, arguments) = (tool.to_owned(), arguments.clone());
    let began = Instant::now();
    let call = thread::spawn(move || busy.call("2", &tool, &arguments).map(drop));
    let (mut pings, mut calls) = (Samples::default(), Samples::default());
    // A result is checked beside its delivery, so the check goes on after the answer.
    let least = Duration::from_secs(TIMEOUT);
    while !call.is_finished() || began.elapsed() < least {
        pings.add(timed(&other, true)?);
        calls.add(timed(&other, false)?);
    }
    let ended = began.elapsed();
    call.join().map_err(|_| anyhow!("the call panicked"))??;
    thread::sleep(SETTLED);
    let after = host.usage()?.resident;
    let mut add = |key: &str, what: &str, value: f64, unit| {
        let what = format!("15 MB {name} being checked, {what}");
        report.add(&format!("hostile.{name}.{key}"), &what, value, unit);
    };
    add(
        "ping.p50",
        "ping of another session, p50",
        pings.p50() / 1e3,
        "ms",
    );
    add(
        "ping.p99",
        "ping of another session, p99",
        pings.p99() / 1e3,
        "ms",
    );
    add(
        "ping.max",
        "the slowest ping",
        pings.percentile(1.0) / 1e3,
        "ms",
    );
    add(
        "call.p50",
        "call of another session, p50",
        calls.p50() / 1e3,
        "ms",
    );
    add(
        "call.p99",
        "call of another session, p99",
        calls.p99() / 1e3,
        "ms",
    );
    add(
        "call.max",
        "the slowest call",
        calls.percentile(1.0) / 1e3,
        "ms",
    );
    add(
        "ended",
        "until the hostile call ended",
        ended.as_secs_f64(),
        "s",
    );
    let mib = |kib: u64| kib as f64 / 1024.0;
    add("rss.before", "resident memory before", mib(before), "MiB");
    add("rss.after", "resident memory 10 s after", mib(after), "MiB");
    host.stop()
}

fn timed(session: &Session, is_ping: bool) -> anyhow::Result<Duration> {
    let start = Instant::now();
    if is_ping {
        session.request("1", "ping", &json!({}))?;
    } else {
        session.call("2", "plain", &json!({}))?;
    }
    Ok(start.elapsed())
}
