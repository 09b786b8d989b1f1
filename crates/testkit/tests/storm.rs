//! The storm: workers killed with KILL at random, twenty times a second, under mixed load of
//! several clients. Each call has its one answer, no effect happens more often than its contract
//! allows, no session closes, no process is left, memory stays bounded.
//!
//! `MAINSTAY_STORM_SECONDS` says for how long; 60 with `CI=true`, otherwise 10.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test that is told by its environment how long to run, and says what came of it"
)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use mainstay_testkit::hostile::Rng;
use mainstay_testkit::oracle::{
    Attempts, CancelKind, Dialect, History, Ledger, Recorder, Summary, read_effects, verify,
};
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{Running, Serve, Transport, descriptors, kill};
use serde_json::{Value, json};

/// Kills a second, of each host's workers.
const KILLS: u32 = 20;
/// Calls that each client keeps in flight.
const WINDOW: usize = 6;
/// Calls a second of all clients of a host. Not more: the ledger's tools read the whole file, and a
/// call that takes longer than workers live is rightly given up in the end.
const RATE: u32 = 130;
/// Calls of one host per planned second: two hosts make 10,000 in a minute.
const CALLS: u64 = 85;
/// How many times its planned time a storm may take on a busy machine.
const SLOWEST: u32 = 20;
/// The host's resident memory may end so much over its beginning, in KiB.
const GROWTH: u64 = 8 * 1024;
/// Time for the last workers to be reaped.
const REAPED_WITHIN: Duration = Duration::from_secs(60);
/// Descriptors that a host may have more than before: those of a worker that is just being started.
const SPARE: usize = 8;
/// Time for what comes late to be heard.
const LATE: Duration = Duration::from_millis(500);

/// The budget is raised so that only the calls' own promises are tested.
const LIMITS: &str = "restarts = 1000000, restart_period_ms = 1000, backoff_min_ms = 0, \
    backoff_max_ms = 0, replays = 100, pool = 8";

fn seconds() -> u64 {
    let told = std::env::var("MAINSTAY_STORM_SECONDS").ok();
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let default = if in_ci { 60 } else { 10 };
    told.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A host in the storm, with what is known of it.
struct Stormed {
    host: Running,
    file: PathBuf,
    clients: Vec<(Client, Dialect)>,
}

impl Stormed {
    fn start(transport: Transport, dialects: &[Dialect]) -> anyhow::Result<Self> {
        let serve = Serve::new(transport)?.ledger()?.limits(LIMITS)?;
        let file = serve.ledger_file();
        let mut host = serve.spawn()?;
        let mut clients = Vec::new();
        for dialect in dialects {
            let client = host.take_client()?.with_patience(Duration::from_secs(60));
            client.call("\"warm\"", "get", &json!({}))?;
            clients.push((client, *dialect));
        }
        Ok(Self {
            host,
            file,
            clients,
        })
    }
}

/// Resident memory of a host over the storm, in KiB.
struct Memory {
    start: u64,
    /// Half way through.
    middle: u64,
    peak: u64,
    end: u64,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            start,
            middle,
            peak,
            end,
        } = self;
        write!(
            f,
            "resident {start} KiB at the start, {middle} half way, {end} at the end, peak {peak}"
        )
    }
}

#[test]
fn nothing_is_lost_or_done_twice_while_workers_are_killed_at_random() -> anyhow::Result<()> {
    let seconds = seconds();
    println!("storm of {seconds} s (MAINSTAY_STORM_SECONDS; 60 with CI=true, otherwise 10)");
    let hosts = [
        Stormed::start(Transport::Stdio, &[Dialect::Legacy])?,
        Stormed::start(
            Transport::Socket,
            &[Dialect::Legacy, Dialect::Legacy, Dialect::Direct],
        )?,
    ];
    let time = Duration::from_secs(seconds);
    let results: Vec<anyhow::Result<(Summary, u64)>> = thread::scope(|scope| {
        let storms: Vec<_> = hosts
            .into_iter()
            .zip(1..)
            .map(|(host, seed)| scope.spawn(move || storm(host, seed, time)))
            .collect();
        let joined = storms.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|result| result.unwrap_or_else(|_| Err(anyhow!("a storm panicked"))))
            .collect()
    });
    for result in results {
        let (summary, kills) = result?;
        let (calls, wanted) = (summary.calls as u64, Quota::of(time));
        ensure!(kills >= wanted.kills, "only {kills} kills");
        ensure!(calls >= wanted.calls, "only {calls} calls");
    }
    Ok(())
}

/// The least kills and calls of a storm, however slow the machine is.
struct Quota {
    kills: u64,
    calls: u64,
}

impl Quota {
    fn of(time: Duration) -> Self {
        Self {
            kills: time.as_secs() * u64::from(KILLS) * 3 / 4,
            calls: time.as_secs() * CALLS,
        }
    }
}

/// The end of a storm: its time has passed and its quota is reached.
struct Finish {
    until: Instant,
    give_up: Instant,
    quota: Quota,
    kills: AtomicU64,
    calls: AtomicU64,
}

impl Finish {
    fn new(epoch: Instant, time: Duration) -> Self {
        Self {
            until: epoch + time,
            give_up: epoch + time * SLOWEST,
            quota: Quota::of(time),
            kills: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        }
    }

    fn is_reached(&self) -> bool {
        let now = Instant::now();
        let enough = self.kills.load(Ordering::Relaxed) >= self.quota.kills
            && self.calls.load(Ordering::Relaxed) >= self.quota.calls;
        now >= self.until && (enough || now >= self.give_up)
    }
}

/// One host, its clients and its killer; gives how the calls ended and the number of kills.
fn storm(stormed: Stormed, seed: u64, time: Duration) -> anyhow::Result<(Summary, u64)> {
    let Stormed {
        mut host,
        file,
        clients,
    } = stormed;
    let sessions = clients.len();
    let start = host.usage()?.resident;
    let open = descriptors(host.pid())?;
    let (epoch, is_over) = (Instant::now(), AtomicBool::new(false));
    let finish = Finish::new(epoch, time);
    let (histories, kills, seen) = thread::scope(|scope| {
        let finish = &finish;
        let loads: Vec<_> = clients
            .into_iter()
            .zip(0..)
            .map(|((client, dialect), number)| {
                let recorder = Recorder::new(client, number, dialect, epoch);
                let rng = Rng::new(seed * 1000 + number as u64);
                let pause = Duration::from_secs(1) / RATE * sessions as u32;
                scope.spawn(move || load(recorder, number, rng, pause, finish))
            })
            .collect();
        let (host, is_over) = (&host, &is_over);
        let killer = scope.spawn(move || kill_at_random(host, seed, is_over, finish));
        let watcher = scope.spawn(move || watch_memory(host, epoch + time / 2, is_over));
        let loads = loads.into_iter().map(thread::ScopedJoinHandle::join);
        let histories: Vec<_> = loads.collect();
        is_over.store(true, Ordering::Relaxed);
        (histories, killer.join(), watcher.join())
    });
    let kills = kills.map_err(|_| anyhow!("the killer panicked"))?;
    let (middle, peak) = seen.map_err(|_| anyhow!("the watcher panicked"))??;
    let mut whole = History::default();
    let mut last = Vec::new();
    for history in histories {
        let (history, client) = history.map_err(|_| anyhow!("a client panicked"))??;
        whole.merge(history);
        last.push(client);
    }
    let memory = Memory {
        start,
        middle,
        peak,
        end: host.usage()?.resident,
    };
    let restarts = every_session_lives(&last, sessions)?;
    // The last ones that were killed may still be on their way out.
    let until = Instant::now() + REAPED_WITHIN;
    loop {
        let left_open = descriptors(host.pid())?;
        if left_open <= open + SPARE {
            break;
        }
        ensure!(
            Instant::now() < until,
            "{open} descriptors before, {left_open} after"
        );
        thread::sleep(Duration::from_millis(50));
    }
    for client in last {
        let rest = client.finish()?;
        ensure!(rest.is_empty(), "said without being asked: {rest:?}");
    }
    stop(&mut host, sessions)?;
    let summary = judged(&whole, &file, sessions)?;
    println!("{sessions} clients, {kills} kills, {restarts} restarts: {summary:?}; {memory}");
    ensure!(memory.end <= memory.start + GROWTH, "memory grew: {memory}");
    Ok((summary, kills))
}

fn judged(history: &History, file: &Path, sessions: usize) -> anyhow::Result<Summary> {
    let summary = verify(history, &read_effects(file)?, Attempts::Last)
        .with_context(|| format!("host with {sessions} clients"))?;
    ensure!(summary.unavailable == 0, "given up: {summary:?}");
    ensure!(
        summary.refused == 0,
        "refused though there was room: {summary:?}"
    );
    ensure!(summary.tool_failures == 0, "tools failed: {summary:?}");
    ensure!(summary.timeouts == 0, "deadlines passed: {summary:?}");
    Ok(summary)
}

/// Exit code 0, no process left.
fn stop(host: &mut Running, sessions: usize) -> anyhow::Result<()> {
    if sessions > 1 {
        host.terminate()?;
    }
    let status = host.wait()?;
    ensure!(status.success(), "the host ended with {status}");
    Ok(())
}

/// Every client is still in its first session, and is served; gives the number of restarts.
fn every_session_lives(clients: &[Client], sessions: usize) -> anyhow::Result<Value> {
    let mut restarts = Value::Null;
    for client in clients {
        let answer = client.call("\"served\"", "get", &json!({}))?;
        ensure!(
            answer.at("/result/structuredContent/ok") == true,
            "{answer:?}"
        );
        let health = client.call("\"health\"", "system_health", &json!({}))?;
        let health = health.at("/result/structuredContent");
        ensure!(health["state"] == "ready", "{health}");
        ensure!(health["sessions"] == sessions, "{health}");
        ensure!(health["in_flight"].as_u64() <= Some(1), "{health}");
        restarts = health["restart_count"].clone();
    }
    Ok(restarts)
}

/// Keeps calls of every kind in flight until the time is over, then waits for every answer.
fn load(
    mut recorder: Recorder,
    number: usize,
    mut rng: Rng,
    pause: Duration,
    finish: &Finish,
) -> anyhow::Result<(History, Client)> {
    let mut count = 0;
    let mut next = Instant::now();
    while !finish.is_reached() {
        while recorder.waiting().len() < WINDOW {
            // Late ones are made up for.
            next += pause;
            thread::sleep(next.saturating_duration_since(Instant::now()));
            count += 1;
            finish.calls.fetch_add(1, Ordering::Relaxed);
            let call = random_call(&mut rng, number, count);
            let id = recorder.ask(call)?;
            // A tenth is cancelled, some at once, some while it runs.
            match rng.between(0, 39) {
                0 => recorder.cancel(id, CancelKind::Answered)?,
                1 => recorder.cancel(id, CancelKind::Silent)?,
                2 | 3 => {
                    let oldest = recorder.waiting().first().copied().unwrap_or(id);
                    let kind = [CancelKind::Answered, CancelKind::Silent][rng.between(0, 1)];
                    recorder.cancel(oldest, kind)?;
                }
                _ => {}
            }
        }
        recorder.hear()?;
    }
    recorder.settle()?;
    recorder.finish(LATE)
}

fn random_call(rng: &mut Rng, client: usize, count: u64) -> Ledger {
    let unique = format!("c{client}.{count}");
    let (before, after) = (rng.between(0, 12) as u64, rng.between(0, 6) as u64);
    match rng.between(0, 99) {
        0..30 => Ledger::append(&unique).pausing(before, after),
        30..60 => {
            // Few keys, so that later calls meet earlier ones.
            let key = format!("k{client}.{}", rng.between(0, 3));
            Ledger::put(&key, &unique).pausing(before, after)
        }
        60..85 => Ledger::transfer(&unique, "x", "y").pausing(before, after),
        85..88 => Ledger::get(),
        _ => Ledger::wait(rng.between(0, 40) as u64, 4),
    }
}

/// Kills a worker [`KILLS`] times a second on average, at random moments; says how often it did.
fn kill_at_random(host: &Running, seed: u64, is_over: &AtomicBool, finish: &Finish) -> u64 {
    let mut rng = Rng::new(seed);
    let mean = 1_000_000 / KILLS as usize;
    let mut kills = 0;
    let mut next = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        next += Duration::from_micros(rng.between(0, 2 * mean) as u64);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let workers = host.workers("ledger");
        if !workers.is_empty() {
            kills += u64::from(kill(workers[rng.between(0, workers.len() - 1)]));
            finish.kills.store(kills, Ordering::Relaxed);
        }
    }
    kills
}

/// What was resident half way through, and the most that ever was.
fn watch_memory(host: &Running, half: Instant, is_over: &AtomicBool) -> anyhow::Result<(u64, u64)> {
    let (mut middle, mut peak) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let resident = host.usage()?.resident;
        peak = peak.max(resident);
        if Instant::now() < half {
            middle = resident;
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok((middle, peak))
}

#[test]
fn exhausted_budget_is_a_typed_refusal_and_after_its_rest_the_worker_comes_back()
-> anyhow::Result<()> {
    // The default budget of restarts, without its pauses, and a short rest.
    let serve = Serve::socket()?
        .ledger()?
        .limits("backoff_min_ms = 0, backoff_max_ms = 0, rest_ms = 30000")?;
    let file = serve.ledger_file();
    let host = serve.spawn()?;
    let client = host.connect()?;
    client.call("\"warm\"", "get", &json!({}))?;
    // Another client has calls of every contract in flight whenever a worker dies.
    let mut loaded = Recorder::new(host.connect()?, 0, Dialect::Legacy, Instant::now());
    let mut kills = 0;
    // Of its own: a worker that is dead already cannot be killed, but its successor is asked anew.
    let mut round = 0;
    let until = Instant::now() + Duration::from_secs(120);
    let health = loop {
        let health = client.call("\"health\"", "system_health", &json!({}))?;
        let health = health.at("/result/structuredContent");
        match health["state"].as_str() {
            Some("failed") => break health,
            Some("ready") => {
                round += 1;
                loaded.ask(Ledger::append(&format!("a{round}")).pausing(5, 5))?;
                loaded.ask(Ledger::put("k", &format!("p{round}")).pausing(5, 5))?;
                loaded.ask(Ledger::transfer(&format!("t{round}"), "x", "y").pausing(5, 5))?;
                thread::sleep(Duration::from_millis(8));
                for pid in host.workers("ledger") {
                    kills += u32::from(kill(pid));
                }
            }
            _ => {}
        }
        ensure!(
            Instant::now() < until,
            "not exhausted after {kills} kills: {health}"
        );
    };
    let since = Instant::now();
    assert!(kills >= 11, "{kills} kills");
    assert!(health["last_fault"].is_object(), "{health}");
    assert_eq!(health["workers"][0]["state"], "failed", "{health}");

    // Every kind of call, convergent ones too, fails at once and says why.
    for (id, call) in [(1, "append"), (2, "get")] {
        let arguments = if call == "append" {
            json!({"text": "no"})
        } else {
            json!({})
        };
        let answer = client.call(&id.to_string(), call, &arguments)?;
        let text = answer.at("/result/content/0/text");
        let payload: Value = serde_json::from_str(text.as_str().unwrap_or_default())?;
        assert_eq!(payload["code"], "INTERNAL", "{payload}");
        assert_eq!(payload["fault"], "process", "{payload}");
        assert_eq!(payload["retryable"], true, "{payload}");
        let message = payload["message"].as_str().unwrap_or_default();
        assert!(message.contains("signal 9"), "{payload}");
    }
    assert!(
        since.elapsed() < Duration::from_millis(29_900),
        "the refusals were too late"
    );

    // The first call after the rest opens it again.
    thread::sleep(Duration::from_millis(30_100).saturating_sub(since.elapsed()));
    let answer = client.call("3", "append", &json!({"text": "back"}))?;
    assert_eq!(
        answer.at("/result/structuredContent/text"),
        "back",
        "{answer:?}"
    );
    let health = client.call("4", "system_health", &json!({}))?;
    assert_eq!(
        health.at("/result/structuredContent/state"),
        "ready",
        "{health:?}"
    );
    loaded.settle()?;
    let (history, _) = loaded.finish(LATE)?;
    let mut effects = read_effects(&file)?;
    // The call of the other client.
    let last = effects.pop().context("no effect")?;
    assert_eq!(last.subject, "back");
    let summary = verify(&history, &effects, Attempts::MayEnd)?;
    println!("{kills} kills: {summary:?}");
    host.stop()
}
