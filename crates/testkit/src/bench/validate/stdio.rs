//! `validate_asset` end to end: a client, the host and a worker, three processes joined by pipes.
//!
//! What it is compared with is the sum of two things that were measured beside it in the same
//! round: the bare library call on the same bytes, and the round trip of the cheapest call through
//! the same host to the same worker. That is `list_examples` without a root: it validates nothing, so
//! nothing is counted twice, and its answer is forty bytes.

use anyhow::ensure;
use serde_json::json;

use super::library;
use super::world::{World, calls};
use super::{Report, Rounds, Samples};
use crate::bench::measure::Product;
use crate::process::Serve;

/// Calls of each kind before anything counts.
const WARM_UP: usize = 300;

pub(super) fn measure(
    world: &World,
    rounds: usize,
    trips: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let params = json!({"name": "list_examples", "arguments": {}});
    let cheap = json!({"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": params});
    let cheap = format!("{cheap}\n").into_bytes();
    let validator = library::validator(world)?;
    for case in &world.cases {
        let lines = calls(world, case)?;
        let (mut whole, mut least, mut bare) =
            (Rounds::default(), Rounds::default(), Rounds::default());
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let serve = Serve::stdio()?.pack("asset");
            let mut host = Product::of(serve.env("SYN_SCHEMAS_DIR", &world.schemas))?;
            let (mut full, mut empty) = (Samples::default(), Samples::default());
            for trip in 0..WARM_UP + trips {
                let line = lines.get(trip % lines.len()).map_or(&[][..], Vec::as_slice);
                let call = host.link.round_trip(line)?;
                if trip == 0 {
                    let is_valid = host.said().contains(r#""structuredContent":{"ok":true"#);
                    ensure!(is_valid == case.is_valid, "answered {}", host.said());
                }
                let cheapest = host.link.round_trip(&cheap)?;
                if trip == 0 {
                    ensure!(
                        host.said().contains(r#""examples":[]"#),
                        "answered {}",
                        host.said()
                    );
                }
                if trip >= WARM_UP {
                    full.add(call);
                    empty.add(cheapest);
                }
            }
            host.stop()?;
            let alone = library::bare(&validator, case)?;
            ratios.push(full.p50() / (alone.p50() + empty.p50()));
            whole.add(&full);
            least.add(&empty);
            bare.add(&alone);
        }
        let bytes = lines.iter().map(Vec::len).sum::<usize>() as f64 / lines.len() as f64;
        ratios.sort_by(f64::total_cmp);
        let ratio = |place: usize| ratios.get(place).copied().unwrap_or(f64::NAN);
        let (of, name) = (world.name, case.name);
        let mut add = |key: &str, what: &str, value: f64, unit| {
            let (key, what) = (
                format!("validate.{of}.{name}.{key}"),
                format!("{of}, {name}, {what}"),
            );
            report.add(&key, &what, value, unit);
        };
        add("stdio.bytes", "length of a call", bytes, "B");
        add(
            "stdio.p50",
            "validate_asset over stdio, p50",
            whole.p50(0.5),
            "us",
        );
        add(
            "stdio.p99",
            "validate_asset over stdio, p99",
            whole.p99(),
            "us",
        );
        add(
            "cheapest.p50",
            "the cheapest call over stdio, p50",
            least.p50(0.5),
            "us",
        );
        add(
            "bare.p50",
            "parsing and checking alone, p50",
            bare.p50(0.5),
            "us",
        );
        add(
            "stdio.ratio",
            "stdio / (alone + cheapest)",
            ratio(ratios.len() / 2),
            "x",
        );
        add("stdio.ratio.best", "the same, best round", ratio(0), "x");
        let last = ratios.len().saturating_sub(1);
        add(
            "stdio.ratio.worst",
            "the same, worst round",
            ratio(last),
            "x",
        );
    }
    Ok(())
}
