//! `bench code TREE CACHE [TREE...]`: the code pack on a large tree, beside ripgrep and csearch.
//!
//! Everything is measured in one run: a host and a client over standard input and output for our
//! figures, the other programs as people start them. Beside each round trip stand the time that the
//! tool itself says it took and the processor time of all our processes, because on a busy machine
//! the clock alone says little. The first tree is built and timed, text and rank layers alone; on all of them the definitions
//! that ctags knows exactly once are looked up by name. With `-` as the first tree nothing is timed.

mod host;
mod others;
mod queries;
mod symbols;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use self::host::{Host, Layers};
use self::queries::Group;
use super::Samples;

/// Times that each query is asked; the first is not counted.
const ROUNDS: usize = 12;
/// Starts that are timed.
const STARTS: usize = 15;
/// How long comparing a large tree with its index may take.
const SWEEP: Duration = Duration::from_secs(120);

/// Runs it; says what it has found as soon as it is known, for a run takes long.
pub fn run(arguments: &[OsString], say: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
    let [first, cache, more @ ..] = arguments else {
        anyhow::bail!("usage: bench code TREE CACHE [TREE...]");
    };
    fs::create_dir_all(cache)?;
    let cache = PathBuf::from(cache).canonicalize()?;
    let mut out = String::new();
    let _ = writeln!(out, "load at the beginning: {}", load());
    let mut trees: Vec<&Path> = Vec::new();
    if first != "-" {
        let tree = Path::new(first)
            .canonicalize()
            .with_context(|| format!("the tree {}", first.display()))?;
        let ours = measure(&tree, &cache, &mut out)?;
        say(&std::mem::take(&mut out));
        let mut rows = others::measure(&tree, &cache, &mut out)?;
        rows.push(ours);
        table(&rows, &mut out);
        say(&std::mem::take(&mut out));
        trees.push(Path::new(first));
    }
    trees.extend(more.iter().map(Path::new));
    let _ = writeln!(out, "\nsymbol: names that ctags knows exactly once");
    for tree in trees {
        symbols::measure(tree, &cache, &mut out)?;
        say(&std::mem::take(&mut out));
    }
    say(&format!("load at the end: {}\n", load()));
    Ok(())
}

/// A member of an answer; null where there is none.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

/// A row of the table: what a program needs for the tree.
#[derive(Debug, Default)]
struct Row {
    name: String,
    build_mb: Option<f64>,
    index_share: Option<f64>,
    memory_mb: Option<f64>,
    /// Median of each group of queries, in milliseconds.
    groups: Vec<Option<f64>>,
}

fn table(rows: &[Row], out: &mut String) {
    let _ = writeln!(
        out,
        "\n{:<28} {:>10} {:>10} {:>9} {:>12} {:>15} {:>10}",
        "", "build MB/s", "index/text", "memory", "literal p50", "identifier p50", "regex p50"
    );
    let show = |value: Option<f64>, digits: usize, unit: &str| match value {
        Some(value) => format!("{value:.digits$}{unit}"),
        None => "-".to_owned(),
    };
    for row in rows {
        let group = |at: usize| show(row.groups.get(at).copied().flatten(), 1, " ms");
        let _ = writeln!(
            out,
            "{:<28} {:>10} {:>10} {:>9} {:>12} {:>15} {:>10}",
            row.name,
            show(row.build_mb, 1, ""),
            show(row.index_share, 3, ""),
            show(row.memory_mb, 0, " MB"),
            group(0),
            group(1),
            group(2)
        );
    }
}

/// The load averages, as the system says them.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().take(3).collect();
    words.join(" ")
}

fn measure(tree: &Path, cache: &Path, out: &mut String) -> anyhow::Result<Row> {
    let mut row = Row {
        name: "Mainstay, over stdio".to_owned(),
        ..Row::default()
    };
    build(tree, cache, &mut row, out)?;
    cold(tree, cache, out)?;
    let mut host = Host::start(tree, cache, Layers::Text)?;
    host.wait_until(SWEEP, |host| {
        let status = host.call("index_status", &json!({}))?;
        Ok(at(&status, "/fresh") == true)
    })?;
    let _ = writeln!(
        out,
        "\n{:<16} {:>26} {:>26} {:>32}  (load {})",
        "ms: p50 p90 p99",
        "round trip over stdio",
        "in the tool",
        "processor time, mean of all",
        load()
    );
    for group in Group::ALL {
        let [mut trips, mut inside, mut spent]: [Samples; 3] = Default::default();
        let mut worst = (Duration::ZERO, "");
        let whole = host.whole_cpu()?;
        for round in 0..ROUNDS {
            for query in group.queries() {
                let before = host.cpu()?;
                let (trip, answer) = host.timed("search", &group.arguments(query))?;
                let cpu = host.cpu()?.saturating_sub(before);
                ensure!(at(&answer, "/fresh") == true, "a stale answer to {query:?}");
                if round > 0 {
                    trips.add(trip);
                    inside.add(Duration::from_secs_f64(
                        at(&answer, "/elapsed_ms").as_f64().unwrap_or(0.0) / 1e3,
                    ));
                    spent.add(cpu);
                    worst = worst.max((cpu, query));
                }
            }
        }
        // Of all threads, those that a long search starts included.
        let whole = host.whole_cpu()?.saturating_sub(whole);
        let mean = whole.as_secs_f64() * 1e3 / (ROUNDS * group.queries().len()) as f64;
        let three = |samples: &Samples| {
            let at = |share: f64| samples.percentile(share) / 1e3;
            format!("{:8.2} {:8.2} {:8.2}", at(0.5), at(0.9), at(0.99))
        };
        let _ = writeln!(
            out,
            "{:<16} {} {} {} {mean:5.2}  worst: {} ({:.1} ms of processor time)",
            group.name(),
            three(&trips),
            three(&inside),
            three(&spent),
            worst.1,
            worst.0.as_secs_f64() * 1e3
        );
        row.groups.push(Some(trips.p50() / 1e3));
    }
    let _ = writeln!(
        out,
        "anonymous memory of all processes while answering: {:.0} MB",
        host.anonymous_mb()
    );
    host.stop()?;
    Ok(row)
}

fn build(tree: &Path, cache: &Path, row: &mut Row, out: &mut String) -> anyhow::Result<()> {
    let mut host = Host::start(tree, cache, Layers::Text)?;
    let (first, answer) = host.timed("search", &json!({"query": "spinlock", "kind": "literal"}))?;
    let _ = writeln!(
        out,
        "first answer of a new host: {:.0} ms ({})",
        first.as_secs_f64() * 1e3,
        if at(&answer, "/scanned") == true {
            "no index yet"
        } else {
            "with an index"
        }
    );
    // What the first call began must not be timed.
    host.call("index_build", &json!({}))?;
    let before = host.whole_cpu()?;
    let peak = host.watch_memory();
    let begin = Instant::now();
    let load_before = load();
    let mut job = host.call("index_build", &json!({"mode": "full"}))?;
    while at(&job, "/state") == "running" {
        job = host.call("index_build", &json!({}))?;
    }
    let took = begin.elapsed();
    let cpu = host.whole_cpu()?.saturating_sub(before);
    ensure!(at(&job, "/state") == "done", "the build ended as {job}");
    let status = host.call("index_status", &json!({}))?;
    let bytes = at(&status, "/bytes").as_f64().unwrap_or(0.0);
    row.build_mb = Some(bytes / 1e6 / took.as_secs_f64());
    row.index_share = at(&status, "/index_bytes")
        .as_f64()
        .map(|index| index / bytes);
    row.memory_mb = Some(peak.stop());
    let _ = writeln!(
        out,
        "full build: {:.0} MB of text in {} files in {:.1} s, {:.1} MB/s; {:.1} s of processor time, {:.1} MB per second of it (load {load_before} before, {} after)",
        bytes / 1e6,
        at(&status, "/files"),
        took.as_secs_f64(),
        bytes / 1e6 / took.as_secs_f64(),
        cpu.as_secs_f64(),
        bytes / 1e6 / cpu.as_secs_f64(),
        load()
    );
    host.stop()
}

/// From the start of a host to its first answer, and from its being ready, with an index there.
fn cold(tree: &Path, cache: &Path, out: &mut String) -> anyhow::Result<()> {
    let [mut start, mut ready]: [Samples; 2] = Default::default();
    for _ in 0..STARTS {
        let begin = Instant::now();
        let mut host = Host::start(tree, cache, Layers::Text)?;
        let (trip, answer) = host.timed(
            "search",
            &json!({"query": "spinlock", "kind": "literal", "limit": 50}),
        )?;
        start.add(begin.elapsed());
        ready.add(trip);
        ensure!(at(&answer, "/scanned") == false, "the index was not used");
        host.stop()?;
    }
    let _ = writeln!(
        out,
        "cold open, ms p50 p90: from the start of the process {:.1} {:.1}, from the answered handshake {:.1} {:.1} (load {})",
        start.p50() / 1e3,
        start.percentile(0.9) / 1e3,
        ready.p50() / 1e3,
        ready.percentile(0.9) / 1e3,
        load()
    );
    Ok(())
}
