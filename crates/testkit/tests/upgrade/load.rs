//! Mixed load while workers are rolled out and the host is upgraded.
//!
//! `MAINSTAY_UPGRADE_SECONDS` says for how long, with an upgrade every 10 s; otherwise 12 s with one every 3 s.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use mainstay_testkit::hostile::Rng;
use mainstay_testkit::http::{Connection, Era, Request, bridge, modern};
use mainstay_testkit::oracle::{
    Attempts, Dialect, History, Ledger, Recorder, Summary, read_effects, verify,
};
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{Running, Serve, Transport};
use serde_json::json;

use crate::{PATIENCE, build, operate, shown, text, upgrade};

/// How long the load runs, and the pause between two upgrades.
fn weather() -> (Duration, Duration) {
    let told = std::env::var("MAINSTAY_UPGRADE_SECONDS").ok();
    let seconds = told.and_then(|told| told.parse().ok());
    match seconds {
        Some(seconds) => (Duration::from_secs(seconds), Duration::from_secs(10)),
        None => (Duration::from_secs(12), Duration::from_secs(3)),
    }
}

/// Calls that each client keeps in flight.
const WINDOW: usize = 6;
/// Calls a second of each client.
const RATE: u32 = 60;
/// Time for what comes late to be heard.
const LATE: Duration = Duration::from_millis(500);

#[test]
fn no_call_fails_while_workers_are_rolled_out_and_the_host_is_upgraded() -> anyhow::Result<()> {
    let limits = "pool = 8, restarts = 1000000, restart_period_ms = 1000";
    let kinds = [
        (Transport::Stdio, vec![Dialect::Legacy]),
        (
            Transport::Socket,
            vec![Dialect::Legacy, Dialect::Legacy, Dialect::Direct],
        ),
        (Transport::Http, vec![Dialect::Legacy, Dialect::Legacy]),
    ];
    let results: Vec<anyhow::Result<()>> = thread::scope(|scope| {
        let hosts: Vec<_> = kinds
            .into_iter()
            .map(|(transport, dialects)| {
                scope.spawn(move || -> anyhow::Result<()> {
                    let serve = Serve::new(transport)?.ledger()?.limits(limits)?;
                    let file = serve.ledger_file();
                    let other = serve.folder().join("mainstay");
                    let mut host = serve.spawn()?;
                    let clients = dialects.iter().map(|dialect| {
                        let client = match transport {
                            Transport::Http => bridge(host.address()?, Era::Legacy),
                            _ => host.take_client()?,
                        };
                        let client = client.with_patience(PATIENCE);
                        client.call("\"warm\"", "get", &json!({}))?;
                        Ok((client, *dialect))
                    });
                    let clients: Vec<_> = clients.collect::<anyhow::Result<_>>()?;
                    let (summary, upgrades, rollouts) = run(&host, clients, &file, &other)?;
                    println!(
                        "{transport:?}: {upgrades} upgrades, {rollouts} rollouts: {summary:?}"
                    );
                    if transport != Transport::Stdio {
                        host.terminate()?;
                    }
                    ensure!(host.wait()?.success(), "{:#?}", host.stderr());
                    Ok(())
                })
            })
            .collect();
        let joined = hosts.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|result| result.unwrap_or_else(|_| Err(anyhow!("a host's thread panicked"))))
            .collect()
    });
    results.into_iter().collect()
}

fn run(
    host: &Running,
    clients: Vec<(Client, Dialect)>,
    file: &Path,
    other: &Path,
) -> anyhow::Result<(Summary, u32, u32)> {
    let (time, between) = weather();
    let (epoch, sessions, is_over) = (Instant::now(), clients.len(), AtomicBool::new(false));
    // On a busy machine an upgrade takes its time: the load goes on until there were enough of both.
    let (upgraded, rolled) = (AtomicU32::new(0), AtomicU32::new(0));
    let enough = || {
        let both = [&upgraded, &rolled].map(|count| count.load(Ordering::Relaxed));
        both.iter().all(|count| *count >= 2) || epoch.elapsed() > time + PATIENCE
    };
    let (upgraded, rolled, enough) = (&upgraded, &rolled, &enough);
    let (histories, upgrades, rollouts, singles) = thread::scope(|scope| {
        let loads: Vec<_> = clients
            .into_iter()
            .zip(0..)
            .map(|((client, dialect), number)| {
                let recorder = Recorder::new(client, number, dialect, epoch);
                scope.spawn(move || load(recorder, number, epoch + time, enough))
            })
            .collect();
        let is_over = &is_over;
        let every =
            move |pause: Duration, count: &AtomicU32, work: &dyn Fn() -> anyhow::Result<()>| {
                let mut next = Instant::now();
                while !is_over.load(Ordering::Relaxed) {
                    next += pause;
                    while Instant::now() < next && !is_over.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(20));
                    }
                    work()?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(count.load(Ordering::Relaxed))
            };
        let singles = scope.spawn(move || match host.address() {
            Ok(address) => single_calls(address, is_over),
            Err(_) => Ok(Vec::new()),
        });
        let upgrading = scope.spawn(move || {
            every(between, upgraded, &|| {
                build(other)?;
                upgrade(host, &[shown(other)])
            })
        });
        let rolling = scope.spawn(move || {
            every(Duration::from_secs(1), rolled, &|| {
                let output = operate(host, &["rollout"])?;
                ensure!(output.status.success(), "{}", text(&output));
                Ok(())
            })
        });
        let histories: Vec<_> = loads
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, Ordering::Relaxed);
        (histories, upgrading.join(), rolling.join(), singles.join())
    });
    let singles = singles.map_err(|_| anyhow!("the single calls panicked"))??;
    let upgrades = upgrades.map_err(|_| anyhow!("the upgrades panicked"))??;
    let rollouts = rollouts.map_err(|_| anyhow!("the rollouts panicked"))??;
    let mut whole = History::default();
    let mut clients = Vec::new();
    for history in histories {
        let (history, client) = history.map_err(|_| anyhow!("a client panicked"))??;
        whole.merge(history);
        clients.push(client);
    }
    for client in &clients {
        let health = client.call("\"health\"", "system_health", &json!({}))?;
        // Over HTTP, modern clients have a session for all of them together.
        if host.address().is_err() {
            assert_eq!(
                health.at("/result/structuredContent/sessions"),
                sessions,
                "{health:?}"
            );
        }
    }
    for client in clients {
        let rest = client.finish()?;
        ensure!(rest.is_empty(), "said without being asked: {rest:?}");
    }
    let (of_singles, effects): (Vec<_>, Vec<_>) = read_effects(file)?
        .into_iter()
        .partition(|effect| effect.subject.starts_with("single."));
    let of_singles: Vec<String> = of_singles
        .into_iter()
        .map(|effect| effect.subject)
        .collect();
    assert_eq!(of_singles, singles, "each single call has its one effect");
    let summary = verify(&whole, &effects, Attempts::Last)?;
    let failed = summary.unavailable + summary.refused + summary.tool_failures + summary.timeouts;
    ensure!(failed == 0 && summary.unknown == 0, "{summary:?}");
    ensure!(
        upgrades >= 2 && rollouts >= 2,
        "{upgrades} upgrades, {rollouts} rollouts"
    );
    Ok((summary, upgrades, rollouts))
}

fn load(
    mut recorder: Recorder,
    number: usize,
    until: Instant,
    enough: impl Fn() -> bool,
) -> anyhow::Result<(History, Client)> {
    let mut rng = Rng::new(number as u64 + 1);
    let (mut count, mut next) = (0, Instant::now());
    while Instant::now() < until || !enough() {
        while recorder.waiting().len() < WINDOW {
            next += Duration::from_secs(1) / RATE;
            thread::sleep(next.saturating_duration_since(Instant::now()));
            count += 1;
            let unique = format!("c{number}.{count}");
            let (before, after) = (rng.between(0, 60) as u64, rng.between(0, 20) as u64);
            let call = match rng.between(0, 9) {
                0..3 => Ledger::append(&unique).pausing(before, after),
                3..6 => Ledger::put(&format!("k{number}"), &unique).pausing(before, after),
                6..8 => Ledger::transfer(&unique, "x", "y").pausing(before, after),
                8 => Ledger::get(),
                _ => Ledger::wait(rng.between(0, 400) as u64, 4),
            };
            recorder.ask(call)?;
        }
        recorder.hear()?;
    }
    recorder.settle()?;
    recorder.finish(LATE)
}

/// Modern and REST calls in turn on connections that are used again, until the time is over. Returns the texts
/// that were appended.
fn single_calls(address: SocketAddr, is_over: &AtomicBool) -> anyhow::Result<Vec<String>> {
    let mut connection = Connection::open(address)?;
    let mut texts = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let text = format!("single.{}", texts.len());
        let arguments = json!({"text": text, "pause_ms": 5});
        let request = if texts.len() % 2 == 0 {
            let params = json!({"name": "append", "arguments": arguments});
            modern(address, "1", "tools/call", &params)
        } else {
            Request::to(address, "POST", "/v1/tool/append")
                .header("Content-Type", "application/json")
                .body(json!({"arguments": arguments}).to_string())
        };
        let answer = connection.ask(&request).with_context(|| text.clone())?;
        ensure!(answer.status() == 200, "{text}: {}", answer.text());
        texts.push(text);
        if answer.head.header("connection") == Some("close") {
            connection = Connection::open(address)?;
        }
    }
    Ok(texts)
}
