//! What a wrapped server costs over the bare one: the fixture's `echo`, with and without a prefix, in
//! turn in the same run.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::measure::{IN_FLIGHT, Rate, Rounds};
use super::{Link, Options, Report, Samples, request};
use crate::process::{cpu_time, usage, wait_for};
use crate::wrapped::Fixture;

/// The tool that is called.
pub(super) const TOOL: &str = "echo";
/// Starts that are timed.
const STARTS: usize = 20;

pub(super) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    round_trip(options, report)?;
    load(options, report)?;
    start(options, report)
}

/// As for packs: fresh processes in each round, and the median of the rounds' medians.
fn round_trip(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let line = request(0, TOOL, 200);
    let [mut bare, mut wrapped]: [Rounds; 2] = Default::default();
    for _ in 0..options.rounds {
        for (prefix, rounds) in [(&[][..], &mut bare), (&options.prefix, &mut wrapped)] {
            let mut server = Server::start(prefix)?;
            rounds.measure(&mut server.link, &line, options.trips)?;
            server.stop()?;
        }
    }
    for (key, what, rounds) in [("bare", "bare", &bare), ("wrapped", "wrapped", &wrapped)] {
        let (p50, p99) = (rounds.p50(0.5), rounds.all.p99());
        report.add(
            &format!("wrap.1.{key}.p50"),
            &format!("round trip, {what}, p50"),
            p50,
            "us",
        );
        report.add(
            &format!("wrap.1.{key}.p99"),
            &format!("round trip, {what}, p99"),
            p99,
            "us",
        );
    }
    let added = wrapped.p50(0.5) - bare.p50(0.5);
    report.add(
        "wrap.1.added",
        "added over the bare server, p50",
        added,
        "us",
    );
    Ok(())
}

fn load(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (mut bare, mut wrapped) = (Server::start(&[])?, Server::start(&options.prefix)?);
    for in_flight in IN_FLIGHT {
        let lines: Vec<_> = (0..in_flight).map(|id| request(id, TOOL, 200)).collect();
        let (mut floor, mut ours, mut cpu) = (Rate::default(), Rate::default(), Duration::ZERO);
        for _ in 0..options.rounds {
            floor.add(bare.link.pump(&lines, options.load)?);
            let before = cpu_time(wrapped.child.id())?;
            ours.add(wrapped.link.pump(&lines, options.load)?);
            cpu += cpu_time(wrapped.child.id())?.saturating_sub(before);
        }
        let mut add = |key: &str, what: &str, value: f64, unit| {
            let key = format!("wrap.{in_flight}.{key}");
            report.add(&key, &format!("{in_flight} in flight, {what}"), value, unit);
        };
        add("bare", "bare", floor.per_second(), "calls/s");
        add("wrapped", "wrapped", ours.per_second(), "calls/s");
        let each = cpu.as_secs_f64() * 1e6 / ours.calls as f64;
        add("cpu", "processor time of the wrapper per call", each, "us");
    }
    let memory = usage(wrapped.child.id())?;
    let mib = |kib: u64| kib as f64 / 1024.0;
    report.add(
        "wrap.rss",
        "resident memory of the wrapper",
        mib(memory.resident),
        "MiB",
    );
    report.add(
        "wrap.rss.peak",
        "resident memory of the wrapper, peak",
        mib(memory.peak),
        "MiB",
    );
    bare.stop()?;
    wrapped.stop()
}

/// From the start of the process to the first answer of a tool, handshake included.
fn start(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let line = request(0, TOOL, 200);
    let [mut bare, mut wrapped]: [Samples; 2] = Default::default();
    for _ in 0..STARTS {
        for (prefix, samples) in [(&[][..], &mut bare), (&options.prefix, &mut wrapped)] {
            let begin = Instant::now();
            let mut server = Server::start(prefix)?;
            server.link.round_trip(&line)?;
            samples.add(begin.elapsed());
            server.stop()?;
        }
    }
    for (key, samples) in [("bare", &bare), ("wrapped", &wrapped)] {
        let what = format!("start to the first answer, {key}, p50");
        report.add(
            &format!("wrap.start.{key}"),
            &what,
            samples.p50() / 1e3,
            "ms",
        );
    }
    Ok(())
}

/// The fixture behind a prefix, with an open session. What it notes about itself would be measured, so
/// it notes nothing.
pub(super) struct Server {
    pub(super) link: Link,
    child: Child,
    /// Its folder is there as long as it is.
    _fixture: Fixture,
}

impl Server {
    pub(super) fn start(prefix: &[std::ffi::OsString]) -> anyhow::Result<Self> {
        let fixture = Fixture::silent(prefix.iter().cloned())?;
        let mut child = fixture
            .launch()
            .command()?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("starting the server")?;
        let to = child.stdin.take().context("no pipe to the server")?;
        let from = child.stdout.take().context("no pipe from the server")?;
        let mut link = Link::new(from, to);
        link.round_trip(OPEN)?;
        link.send(OPENED)?;
        link.round_trip(&request(0, TOOL, 200))?;
        let said = String::from_utf8_lossy(link.last());
        ensure!(said.contains("\"text\":\"xxx"), "the tool failed: {said}");
        Ok(Self {
            link,
            child,
            _fixture: fixture,
        })
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        let Self {
            link, mut child, ..
        } = self;
        drop(link);
        let status = wait_for(&mut child, crate::peer::PATIENCE)?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

const OPEN: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}\n";
const OPENED: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
