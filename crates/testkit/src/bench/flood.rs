//! A thousand calls at once in one session, at the default limits: how soon the refused ones know,
//! how long the others take, and what the host's memory is afterwards.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};

use super::{Options, Report, Samples};
use crate::peer::PATIENCE;
use crate::process::{Serve, usage, wait_for};

const CALLS: usize = 1000;

/// Which dialect floods.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Mcp,
    Direct,
}

pub(super) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    for (dialect, name) in [(Dialect::Mcp, "mcp"), (Dialect::Direct, "direct")] {
        measure(dialect, options.rounds, report, name).context(name)?;
    }
    Ok(())
}

fn measure(dialect: Dialect, rounds: usize, report: &mut Report, name: &str) -> anyhow::Result<()> {
    let serve = Serve::stdio()?.ledger()?;
    let mut child = serve
        .command()?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("starting mainstay")?;
    let mut to = child.stdin.take().context("no pipe to mainstay")?;
    let mut from = BufReader::new(child.stdout.take().context("no pipe from mainstay")?);
    // One call, so that the worker is there.
    flood(&mut to, &mut from, dialect, 1)?;
    let before = usage(child.id())?.resident;
    let (mut refused, mut done, mut all) =
        (Samples::default(), Samples::default(), Samples::default());
    let mut peak = before;
    for _ in 0..rounds {
        let start = Instant::now();
        for answer in flood(&mut to, &mut from, dialect, CALLS)? {
            let samples = if answer.is_refused {
                &mut refused
            } else {
                &mut done
            };
            samples.add(answer.after);
        }
        all.add(start.elapsed());
        peak = peak.max(usage(child.id())?.resident);
    }
    let after = usage(child.id())?.resident;
    drop(to);
    ensure!(wait_for(&mut child, PATIENCE)?.success(), "mainstay failed");

    let mut add = |key: &str, what: &str, value: f64, unit| {
        let (key, what) = (
            format!("flood.{name}.{key}"),
            format!("flood of 1,000, {name}, {what}"),
        );
        report.add(&key, &what, value, unit);
    };
    let share = refused.len() as f64 / (refused.len() + done.len()) as f64;
    add("refused", "share that is refused", share, "x");
    if !refused.is_empty() {
        add("refused.p50", "refusal, p50", refused.p50() / 1e3, "ms");
        add("refused.p99", "refusal, p99", refused.p99() / 1e3, "ms");
        add(
            "refused.max",
            "refusal, the slowest",
            refused.percentile(1.0) / 1e3,
            "ms",
        );
    }
    add("done.p50", "answer of a tool, p50", done.p50() / 1e3, "ms");
    add(
        "all.p50",
        "until all are answered, p50",
        all.p50() / 1e3,
        "ms",
    );
    let mib = |kib: u64| kib as f64 / 1024.0;
    add("rss.before", "resident memory before", mib(before), "MiB");
    add(
        "rss.peak",
        "resident memory, most after a round",
        mib(peak),
        "MiB",
    );
    add("rss.after", "resident memory after", mib(after), "MiB");
    Ok(())
}

struct Answered {
    is_refused: bool,
    after: Duration,
}

/// Sends so many calls as fast as they are taken, and times each from its own sending on.
fn flood(
    to: &mut ChildStdin,
    from: &mut BufReader<ChildStdout>,
    dialect: Dialect,
    count: usize,
) -> anyhow::Result<Vec<Answered>> {
    thread::scope(|scope| {
        let writer = scope.spawn(move || -> anyhow::Result<Vec<Instant>> {
            let mut sent = Vec::with_capacity(count);
            for id in 0..count {
                let line = match dialect {
                    Dialect::Mcp => format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"wait","arguments":{{"ms":1}}}}}}"#
                    ),
                    Dialect::Direct => format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"method":"wait","params":{{"ms":0}}}}"#
                    ),
                };
                sent.push(Instant::now());
                to.write_all(format!("{line}\n").as_bytes())
                    .context("writing a request")?;
            }
            Ok(sent)
        });
        let mut heard = Vec::with_capacity(count);
        let mut line = String::new();
        while heard.len() < count {
            line.clear();
            let read = from.read_line(&mut line).context("reading an answer")?;
            ensure!(read > 0, "the host has gone");
            if line.contains("\"notifications/progress\"") {
                continue;
            }
            let now = Instant::now();
            let id = super::link::id_of(line.as_bytes()).context("an answer without id")?;
            if dialect == Dialect::Direct {
                ensure!(id == heard.len(), "{id} answered out of order");
            }
            heard.push((id, now, line.contains("QUEUE_OVERLOADED")));
        }
        let sent = writer
            .join()
            .map_err(|_| anyhow!("the writer panicked"))??;
        let answered = heard.into_iter().map(|(id, now, is_refused)| {
            let at = sent.get(id).context("an answer to no request")?;
            Ok(Answered {
                is_refused,
                after: now.saturating_duration_since(*at),
            })
        });
        answered.collect()
    })
}
