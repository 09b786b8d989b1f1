//! The measurements, floor and product in turn.

use std::ffi::OsString;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::floor::Floor;
use super::{Link, Report, Samples, request};
use crate::process::{Serve, cpu_time, usage};

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    RoundTrip,
    Load,
    Start,
    /// A thousand calls at once.
    Flood,
    /// Other sessions while a hostile payload is checked.
    Hostile,
    /// A worker killed with calls in flight.
    Recovery,
    /// Validation beside the libraries of others, and through the host.
    Validate,
    /// What a wrapped server costs over the bare one.
    Wrap,
    /// What `--sandbox` costs over `wrap` without it.
    Sandbox,
    /// HTTP in front of a server, beside proxies of others.
    Http,
    /// A wrapped server killed, hanging and cancelled.
    Faults,
    /// Servers of others beside one that is killed every second.
    Servers,
}

impl Part {
    /// Whether it needs a wrapped server.
    pub const fn wraps(self) -> bool {
        matches!(self, Self::Wrap | Self::Faults)
    }
}

/// How thoroughly.
#[derive(Clone, Debug)]
pub struct Options {
    pub parts: Vec<Part>,
    /// Times that floor and product take turns.
    pub rounds: usize,
    /// Round trips in one turn.
    pub trips: usize,
    /// Time of one turn under load.
    pub load: Duration,
    /// The pack: its program in the workspace, its arguments and its echoing tool.
    pub pack: (String, String, String),
    /// The words before the command of a wrapped server.
    pub prefix: Vec<OsString>,
}

/// Line lengths that are measured.
const SIZES: [(usize, &str); 2] = [(200, "200B"), (4096, "4kB")];
/// Requests in flight under load.
pub(super) const IN_FLIGHT: [usize; 3] = [1, 16, 64];
/// Starts that are timed.
const STARTS: usize = 20;
/// Round trips before anything counts.
const WARM_UP: usize = 500;

/// Measures.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for part in &options.parts {
        match part {
            Part::RoundTrip => round_trip(options, &mut report).context("roundtrip")?,
            Part::Load => load(options, &mut report).context("load")?,
            Part::Start => start(options, &mut report).context("start")?,
            Part::Flood => super::flood::run(options, &mut report).context("flood")?,
            Part::Hostile => super::hostile::run(&mut report).context("hostile")?,
            Part::Wrap => super::wrap::run(options, &mut report).context("wrap")?,
            Part::Sandbox => super::sandbox::run(options, &mut report).context("sandbox")?,
            Part::Http => super::http::run(options, &mut report).context("http")?,
            Part::Faults => super::faults::run(options, &mut report).context("faults")?,
            Part::Servers => super::servers::run(options, &mut report).context("servers")?,
            Part::Recovery => super::recovery::run(options, &mut report).context("recovery")?,
            Part::Validate => super::validate::run(options, &mut report).context("validate")?,
        }
    }
    Ok(report)
}

/// Where the scheduler puts a chain of processes decides its round trip by a factor of two to
/// three, often for as long as the processes live. So each round starts fresh ones, and what counts is
/// the median over the rounds of each round's median, with the best and the worst beside it.
fn round_trip(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let tool = &options.pack.2;
    for (size, name) in SIZES {
        let line = request(0, tool, size);
        let mut rounds: [Rounds; 4] = Default::default();
        for _ in 0..options.rounds {
            let [single, turns, pipelined, mainstay] = &mut rounds;
            for (floor, rounds) in [
                (Floor::SingleHop, single),
                (Floor::TwoHops, turns),
                (Floor::TwoHopsPipelined, pipelined),
            ] {
                let mut running = floor.spawn()?;
                rounds.measure(&mut running.link, &line, options.trips)?;
                running.stop()?;
            }
            let mut product = Product::start(options)?;
            mainstay.measure(&mut product.link, &line, options.trips)?;
            ensure!(!product.failed(), "the tool failed: {}", product.said());
            product.stop()?;
        }
        let [single, turns, pipelined, mainstay] = &rounds;
        let floor = |share| turns.p50(share).min(pipelined.p50(share));
        let mut add = |key: &str, what: &str, value: f64, unit| {
            let (key, what) = (format!("roundtrip.{name}.{key}"), format!("{name} {what}"));
            report.add(&key, &what, value, unit);
        };
        for (key, what, rounds) in [
            ("single", "single-hop floor", single),
            ("turns", "relay of one thread", turns),
            ("pipelined", "relay of two threads", pipelined),
            ("mainstay", "mainstay", mainstay),
        ] {
            add(
                &format!("{key}.p50"),
                &format!("{what}, p50"),
                rounds.p50(0.5),
                "us",
            );
            add(
                &format!("{key}.best"),
                &format!("{what}, p50, best round"),
                rounds.p50(0.0),
                "us",
            );
            add(
                &format!("{key}.worst"),
                &format!("{what}, p50, worst round"),
                rounds.p50(1.0),
                "us",
            );
            add(
                &format!("{key}.p99"),
                &format!("{what}, p99"),
                rounds.p99(),
                "us",
            );
        }
        for (key, what, share) in [
            ("p50", "p50", 0.5),
            ("best", "best rounds", 0.0),
            ("worst", "worst rounds", 1.0),
        ] {
            let added = mainstay.p50(share) - floor(share);
            let what = format!("added over the two-hop floor, {what}");
            add(&format!("added.{key}"), &what, added, "us");
        }
        add(
            "floor.p50",
            "two-hop floor (the cheaper relay), p50",
            floor(0.5),
            "us",
        );
        let ratio = mainstay.p50(0.5) / floor(0.5);
        add("ratio.p50", "times the two-hop floor, p50", ratio, "x");
    }
    Ok(())
}

/// The medians of the rounds, and every sample.
#[derive(Default)]
pub(super) struct Rounds {
    medians: Samples,
    pub(super) all: Samples,
}

impl Rounds {
    pub(super) fn measure(
        &mut self,
        link: &mut Link,
        line: &[u8],
        count: usize,
    ) -> anyhow::Result<()> {
        trips(link, line, WARM_UP, &mut Samples::default())?;
        let mut round = Samples::default();
        trips(link, line, count, &mut round)?;
        self.add(&round);
        Ok(())
    }

    /// Adds the samples of a round.
    pub(super) fn add(&mut self, round: &Samples) {
        self.medians.add(Duration::from_secs_f64(round.p50() / 1e6));
        self.all.extend(round);
    }

    /// The 99th percentile of all samples.
    pub(super) fn p99(&self) -> f64 {
        self.all.p99()
    }

    /// The median of the round at this place among all: 0 is the best, 1 the worst.
    pub(super) fn p50(&self, share: f64) -> f64 {
        self.medians.percentile(share)
    }
}

fn trips(link: &mut Link, line: &[u8], count: usize, samples: &mut Samples) -> anyhow::Result<()> {
    for _ in 0..count {
        samples.add(link.round_trip(line)?);
    }
    Ok(())
}

fn load(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let mut double = Floor::TwoHopsPipelined.spawn()?;
    let mut product = Product::start(options)?;
    let tool = &options.pack.2;
    trips(
        &mut product.link,
        &request(0, tool, 200),
        WARM_UP,
        &mut Samples::default(),
    )?;
    for in_flight in IN_FLIGHT {
        let lines: Vec<_> = (0..in_flight).map(|id| request(id, tool, 200)).collect();
        let (mut floor, mut ours) = (Rate::default(), Rate::default());
        let (mut host_cpu, mut worker_cpu) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..options.rounds {
            floor.add(double.link.pump(&lines, options.load)?);
            let before = product.cpu()?;
            ours.add(product.link.pump(&lines, options.load)?);
            let after = product.cpu()?;
            host_cpu += after.0.saturating_sub(before.0);
            worker_cpu += after.1.saturating_sub(before.1);
        }
        let mut add = |key: &str, what: &str, value: f64, unit| {
            let key = format!("load.{in_flight}.{key}");
            report.add(&key, &format!("{in_flight} in flight, {what}"), value, unit);
        };
        let each = |time: Duration| time.as_secs_f64() * 1e6 / ours.calls as f64;
        add("floor", "two-hop floor", floor.per_second(), "calls/s");
        add("mainstay", "mainstay", ours.per_second(), "calls/s");
        add(
            "ratio",
            "share of the floor",
            ours.per_second() / floor.per_second(),
            "x",
        );
        add(
            "cpu.host",
            "processor time of the host per call",
            each(host_cpu),
            "us",
        );
        add(
            "cpu.all",
            "processor time of host and worker",
            each(host_cpu + worker_cpu),
            "us",
        );
    }
    let (host, workers) = product.memory()?;
    report.add("load.rss.host", "resident memory of the host", host, "MiB");
    report.add(
        "load.rss.workers",
        "resident memory of its processes",
        workers,
        "MiB",
    );
    double.stop()?;
    product.stop()
}

#[derive(Default)]
pub(super) struct Rate {
    pub(super) calls: u64,
    time: Duration,
}

impl Rate {
    pub(super) fn add(&mut self, (calls, time): (u64, Duration)) {
        self.calls += calls;
        self.time += time;
    }

    pub(super) fn per_second(&self) -> f64 {
        self.calls as f64 / self.time.as_secs_f64()
    }
}

fn start(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (mut floor, mut listed, mut called) =
        (Samples::default(), Samples::default(), Samples::default());
    let list = br#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}
"#;
    for _ in 0..STARTS {
        let begin = Instant::now();
        let mut echo = Floor::SingleHop.spawn()?;
        echo.link.round_trip(list)?;
        floor.add(begin.elapsed());
        echo.stop()?;

        let begin = Instant::now();
        let mut product = Product::start(options)?;
        product.link.round_trip(list)?;
        listed.add(begin.elapsed());
        product.stop()?;

        let begin = Instant::now();
        let mut product = Product::start(options)?;
        product.link.round_trip(&request(0, &options.pack.2, 200))?;
        called.add(begin.elapsed());
        ensure!(!product.failed(), "the tool failed: {}", product.said());
        product.stop()?;
    }
    report.add(
        "start.floor",
        "start of an echo process to its answer, p50",
        floor.p50() / 1e3,
        "ms",
    );
    report.add(
        "start.list",
        "start to the answer of tools/list, p50",
        listed.p50() / 1e3,
        "ms",
    );
    report.add(
        "start.call",
        "start to the answer of a tool, p50",
        called.p50() / 1e3,
        "ms",
    );
    Ok(())
}

/// A host with one pack, over its standard input and output.
pub(super) struct Product {
    pub(super) link: Link,
    child: Child,
    serve: Serve,
}

impl Product {
    fn start(options: &Options) -> anyhow::Result<Self> {
        let (program, arguments, _) = &options.pack;
        Self::of(Serve::stdio()?.program("bench", program, arguments)?)
    }

    pub(super) fn of(serve: Serve) -> anyhow::Result<Self> {
        let mut child = serve
            .command()?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("starting mainstay")?;
        let to = child.stdin.take().context("no pipe to mainstay")?;
        let from = child.stdout.take().context("no pipe from mainstay")?;
        Ok(Self {
            link: Link::new(from, to),
            child,
            serve,
        })
    }

    /// Processor time of the host, and of everything it started.
    fn cpu(&self) -> anyhow::Result<(Duration, Duration)> {
        let host = cpu_time(self.child.id())?;
        let others = self
            .others()
            .into_iter()
            .map(|pid| cpu_time(pid).unwrap_or_default());
        Ok((host, others.sum()))
    }

    /// Resident memory of the host, and of everything it started, in MiB.
    fn memory(&self) -> anyhow::Result<(f64, f64)> {
        let host = usage(self.child.id())?.resident;
        let others = self.others().into_iter().filter_map(|pid| usage(pid).ok());
        let others: u64 = others.map(|usage| usage.resident).sum();
        Ok((host as f64 / 1024.0, others as f64 / 1024.0))
    }

    fn others(&self) -> Vec<u32> {
        let mut family = self.serve.family();
        family.retain(|pid| *pid != self.child.id());
        family
    }

    fn failed(&self) -> bool {
        let said = self.said();
        said.contains("\"isError\":true") || said.contains("\"error\":")
    }

    pub(super) fn said(&self) -> String {
        String::from_utf8_lossy(self.link.last()).into_owned()
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        let Self {
            link, mut child, ..
        } = self;
        drop(link);
        let status = crate::process::wait_for(&mut child, crate::peer::PATIENCE)?;
        ensure!(status.success(), "mainstay ended with {status}");
        Ok(())
    }
}
