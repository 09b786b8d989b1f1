//! What HTTP in front of a stdio server costs, beside proxies of others: the fixture's `echo`, the
//! same load on each of them in turn in the same run.
//!
//! Each contender is started once and keeps its session; connections are kept alive. Ours checks
//! arguments and writes telemetry. [`contender`] says who takes part and how they are started,
//! [`load`] is the load.

mod contender;
mod load;

use std::time::{Duration, Instant};

use anyhow::Context as _;

use self::contender::{Contender, Who};
use self::load::Load;
use super::measure::{IN_FLIGHT, Rate, Rounds};
use super::{Options, Report, Samples};
use crate::process::{cpu_time, usage};

/// Starts that are timed; interpreters take long enough to need fewer.
const STARTS: usize = 10;
const SLOW_STARTS: usize = 3;
/// Calls before anything counts.
const WARM_UP: usize = 300;
/// Time of one turn under load; slower contenders need more than the others to show a rate.
const TURN: Duration = Duration::from_millis(300);

/// The one that ours is compared with.
const RIVAL: Who = Who::RustProxy;

pub(super) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let mut contenders = Vec::new();
    for who in Who::ALL {
        match Contender::start(who)? {
            Some(contender) => contenders.push(contender),
            None => report.skip(
                &format!("http.{}", who.key()),
                "not installed (cargo xtask bench http installs it)",
            ),
        }
    }
    let rounds = options.rounds.div_ceil(2);
    round_trip(&contenders, rounds, options.trips / 4, report)?;
    for in_flight in IN_FLIGHT {
        load(&contenders, rounds, in_flight, report)?;
    }
    memory(&contenders, report)?;
    for contender in contenders {
        contender.stop()?;
    }
    start(report)
}

fn round_trip(
    contenders: &[Contender],
    rounds: usize,
    trips: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut samples: Vec<Rounds> = contenders.iter().map(|_| Rounds::default()).collect();
    for _ in 0..rounds {
        for (contender, samples) in contenders.iter().zip(&mut samples) {
            let mut load = Load::new(contender, 1)?;
            load.trips(WARM_UP / 10, &mut Samples::default())?;
            let mut round = Samples::default();
            load.trips(trips, &mut round)?;
            samples.add(&round);
        }
    }
    for (contender, samples) in contenders.iter().zip(&samples) {
        let (key, name) = (contender.who.key(), contender.who.name());
        let (p50, p99) = (samples.p50(0.5), samples.p99());
        report.add(
            &format!("http.1.{key}.p50"),
            &format!("round trip, {name}, p50"),
            p50,
            "us",
        );
        report.add(
            &format!("http.1.{key}.p99"),
            &format!("round trip, {name}, p99"),
            p99,
            "us",
        );
    }
    ratio(report, "http.1.{}.p50", "round trip", contenders);
    Ok(())
}

fn load(
    contenders: &[Contender],
    rounds: usize,
    in_flight: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut loads = Vec::new();
    for contender in contenders {
        let mut load = Load::new(contender, in_flight)?;
        load.trips(WARM_UP.min(in_flight * 10), &mut Samples::default())?;
        loads.push((load, Rate::default(), Duration::ZERO));
    }
    for _ in 0..rounds {
        for (contender, (load, rate, cpu)) in contenders.iter().zip(&mut loads) {
            let before = cpu_time(contender.pid())?;
            rate.add(load.pump(TURN)?);
            *cpu += cpu_time(contender.pid())?.saturating_sub(before);
        }
    }
    for (contender, (_, rate, cpu)) in contenders.iter().zip(&loads) {
        let (key, name) = (contender.who.key(), contender.who.name());
        let mut add = |what: &str, said: &str, value: f64, unit| {
            let key = format!("http.{in_flight}.{key}.{what}");
            report.add(
                &key,
                &format!("{in_flight} in flight, {name}{said}"),
                value,
                unit,
            );
        };
        add("rate", "", rate.per_second(), "calls/s");
        let each = cpu.as_secs_f64() * 1e6 / rate.calls as f64;
        add("cpu", ", processor time per call", each, "us");
    }
    let key = format!("http.{in_flight}.{{}}.rate");
    ratio(report, &key, &format!("{in_flight} in flight"), contenders);
    Ok(())
}

/// Ours to each of the others, for the same figure.
fn ratio(report: &mut Report, key: &str, what: &str, contenders: &[Contender]) {
    let of = |who: Who| key.replace("{}", who.key());
    let Some(ours) = report.value(&of(Who::Legacy)) else {
        return;
    };
    for contender in contenders
        .iter()
        .filter(|contender| !contender.who.is_ours())
    {
        if let Some(theirs) = report.value(&of(contender.who)) {
            let to = if contender.who == RIVAL {
                "rival"
            } else {
                "other"
            };
            report.add(
                &format!("{}.ratio", of(contender.who)),
                &format!("{what}, mainstay to {} ({to})", contender.who.name()),
                ours / theirs,
                "x",
            );
        }
    }
}

fn memory(contenders: &[Contender], report: &mut Report) -> anyhow::Result<()> {
    for contender in contenders {
        let (key, name) = (contender.who.key(), contender.who.name());
        let memory = usage(contender.pid())?;
        for (end, said, kib) in [
            ("", "resident memory", memory.resident),
            (".peak", "resident memory, peak", memory.peak),
        ] {
            report.add(
                &format!("http.rss.{key}{end}"),
                &format!("{name}, {said}"),
                kib as f64 / 1024.0,
                "MiB",
            );
        }
    }
    Ok(())
}

/// From the start of the process to the first answer of a tool, handshake included.
fn start(report: &mut Report) -> anyhow::Result<()> {
    for who in Who::ALL {
        let mut samples = Samples::default();
        let count = if who.is_slow() { SLOW_STARTS } else { STARTS };
        for _ in 0..count {
            let begin = Instant::now();
            let Some(contender) = Contender::start(who).context("starting")? else {
                break;
            };
            samples.add(begin.elapsed());
            contender.stop()?;
        }
        if !samples.is_empty() {
            report.add(
                &format!("http.start.{}", who.key()),
                &format!("start to the first answer, {}, p50", who.name()),
                samples.p50() / 1e3,
                "ms",
            );
        }
    }
    Ok(())
}
