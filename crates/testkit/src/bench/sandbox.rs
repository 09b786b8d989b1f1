//! What `--sandbox` costs: the fixture behind `wrap`, with and without it, in interleaved pairs.

use std::time::Instant;

use anyhow::ensure;

use super::stats::interval;
use super::wrap::{Server, TOOL};
use super::{Options, Report, Samples, request};
use crate::wrapped::Way;

/// Pairs of turns on one pair of hosts, and of starts.
const PAIRS: usize = 61;
/// Round trips in one turn, and before anything counts.
const TRIPS: usize = 400;
const WARM_UP: usize = 500;
/// How much a call may cost more, as a ratio.
const WORSE: f64 = 1.03;

pub(super) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let plain = Way::Wrapped.prefix()?;
    let mut boxed = plain.clone();
    boxed.insert(boxed.len().saturating_sub(1), "--sandbox".into());
    let pairs = if options.rounds < 21 { 21 } else { PAIRS };
    let line = request(0, TOOL, 200);

    let mut added = Vec::new();
    for pair in 0..pairs {
        let start = |prefix| -> anyhow::Result<f64> {
            let begin = Instant::now();
            let mut server = Server::start(prefix)?;
            server.link.round_trip(&line)?;
            let took = begin.elapsed();
            server.stop()?;
            Ok(took.as_secs_f64() * 1e3)
        };
        let (without, with) = in_turn(pair, || start(&plain), || start(&boxed))?;
        added.push(with - without);
    }
    let (low, middle, high) = interval(added);
    for (key, what, value) in [
        ("low", "lower end", low),
        ("p50", "median", middle),
        ("high", "upper end", high),
    ] {
        report.add(
            &format!("sandbox.start.{key}"),
            &format!("added to the start, {what}"),
            value,
            "ms",
        );
    }

    let (mut without, mut with) = (Server::start(&plain)?, Server::start(&boxed)?);
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        let warm_up = if pair == 0 { WARM_UP } else { 0 };
        let (first, second) = if pair.is_multiple_of(2) {
            let first = turn(&mut without, &line, warm_up)?;
            (first, turn(&mut with, &line, warm_up)?)
        } else {
            let second = turn(&mut with, &line, warm_up)?;
            (turn(&mut without, &line, warm_up)?, second)
        };
        ratios.push(second / first);
    }
    without.stop()?;
    with.stop()?;
    let (low, middle, high) = interval(ratios);
    for (key, what, value) in [
        ("low", "lower end", low),
        ("p50", "median", middle),
        ("high", "upper end", high),
    ] {
        report.add(
            &format!("sandbox.call.{key}"),
            &format!("time of a call, with and without, {what}"),
            value,
            "x",
        );
    }
    ensure!(
        low <= WORSE,
        "a call costs {middle:.3} [{low:.3}, {high:.3}] times as much in the sandbox"
    );
    Ok(())
}

/// The median of a turn's round trips, in microseconds.
fn turn(server: &mut Server, line: &[u8], warm_up: usize) -> anyhow::Result<f64> {
    let mut samples = Samples::default();
    for trip in 0..warm_up + TRIPS {
        let begin = Instant::now();
        server.link.round_trip(line)?;
        if trip >= warm_up {
            samples.add(begin.elapsed());
        }
    }
    Ok(samples.p50())
}

/// Both measurements, the first one first in every other pair.
fn in_turn<T>(
    pair: usize,
    one: impl Fn() -> anyhow::Result<T>,
    other: impl Fn() -> anyhow::Result<T>,
) -> anyhow::Result<(T, T)> {
    if pair.is_multiple_of(2) {
        let first = one()?;
        Ok((first, other()?))
    } else {
        let second = other()?;
        Ok((one()?, second))
    }
}
