//! The storm over a server of others: the fixture, killed with KILL at random moments under mixed load
//! of one session, behind whatever stands between it and its client.
//!
//! [`storm`] takes the words before the fixture's command, runs load and killer for a while, and then
//! asks the oracle whether each call had its one answer and no effect happened more often than its
//! contract allows; whether the session, its processes, its memory and its descriptors are as they
//! should be. Without kills any way to the server must pass, so that a failure is the kills' doing.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use mainstay_contract::replay::Replay;
use serde_json::{Value, json};

use crate::fixture::{Executed, read_executed};
use crate::hostile::Rng;
use crate::oracle::{
    Asked, Attempts, CancelKind, Dialect, Effect, History, Ledger, Recorder, Summary, verify,
};
use crate::peer::Client;
use crate::process::{Running, descriptors, kill};
use crate::wrapped::Fixture;

/// The program that is killed.
const VICTIM: &str = "mcp-fixture";
/// Time for what comes late to be heard.
const LATE: Duration = Duration::from_millis(500);
/// How long an answer may take while everything is restarted all the time.
const PATIENCE: Duration = Duration::from_secs(60);

/// How hard it blows.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub time: Duration,
    /// Kills a second on average; 0 is a calm.
    pub kills: u32,
    /// Calls a second.
    pub rate: u32,
    /// Calls in flight.
    pub window: usize,
    pub seed: u64,
    /// Whether `settle`, which must be looked up before it is repeated, is among the calls: only for
    /// whoever was told how to look.
    pub probes: bool,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(10),
            kills: 20,
            rate: 200,
            window: 8,
            seed: 1,
            probes: false,
        }
    }
}

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub summary: Summary,
    pub kills: u64,
    /// Resident memory of the first process, in KiB: before, at most, and after.
    pub memory: [u64; 3],
    /// Open descriptors of the first process, before and after.
    pub descriptors: [usize; 2],
}

/// Runs a storm over the fixture behind `prefix`, which ends where the server's command begins.
/// Any broken promise is an error that names it.
pub fn storm(
    prefix: impl IntoIterator<Item = impl Into<OsString>>,
    weather: Weather,
) -> anyhow::Result<Seen> {
    let fixture = Fixture::after(prefix)?;
    let effects = fixture.effects();
    let mut host = fixture.spawn()?;
    let client = host.take_client()?.with_patience(PATIENCE);
    client.open(&json!({}))?;
    client.call("\"warm\"", "echo", &json!({"text": "warm"}))?;
    let (memory, open) = (host.usage()?.resident, descriptors(host.pid())?);
    let epoch = Instant::now();
    let recorder = Recorder::new(client, 0, Dialect::Legacy, epoch)
        .reading(speaks)
        .ignoring("notifications/message")
        .ignoring("notifications/tools/list_changed");
    let is_over = AtomicBool::new(false);
    let (loaded, kills, peak) = thread::scope(|scope| {
        let loading = scope.spawn(|| load(recorder, weather, epoch + weather.time));
        let killing = scope.spawn(|| kill_at_random(&host, weather, &is_over));
        let watching = scope.spawn(|| watch_memory(&host, &is_over));
        let loaded = loading.join();
        is_over.store(true, Ordering::Relaxed);
        (loaded, killing.join(), watching.join())
    });
    let (history, client) = loaded.map_err(|_| anyhow!("the client panicked"))??;
    let kills = kills.map_err(|_| anyhow!("the killer panicked"))?;
    let peak = peak.map_err(|_| anyhow!("the watcher panicked"))?;
    let answer = client.call("\"served\"", "echo", &json!({"text": "served"}))?;
    ensure!(
        answer.at("/result/content/0/text") == "served",
        "the session is no longer served: {answer:?}"
    );
    let seen = |summary| -> anyhow::Result<Seen> {
        Ok(Seen {
            summary,
            kills,
            memory: [memory, peak, host.usage()?.resident],
            descriptors: [open, descriptors(host.pid())?],
        })
    };
    let mut seen = seen(Summary::default())?;
    client.finish().context("the end of the session")?;
    let status = host.wait()?;
    ensure!(status.success(), "it ended with {status}");
    // The folder with the file goes with `host`.
    let executed = read_executed(&effects)?;
    seen.summary = judged(&history, &executed)?;
    Ok(seen)
}

fn judged(history: &History, executed: &[Executed]) -> anyhow::Result<Summary> {
    let effects: Vec<Effect> = executed.iter().map(Executed::effect).collect();
    let summary = verify(history, &effects, Attempts::Last)?;
    ensure!(summary.unavailable == 0, "given up: {summary:?}");
    ensure!(summary.refused == 0, "refused: {summary:?}");
    ensure!(summary.tool_failures == 0, "tools failed: {summary:?}");
    ensure!(summary.timeouts == 0, "deadlines passed: {summary:?}");
    Ok(summary)
}

/// The effect of which an answer of the fixture speaks.
fn speaks(_tool: &str, structured: &Value) -> Option<Effect> {
    let of = |key: &str| Some(structured.get(key)?.as_str()?.to_owned());
    Some(Effect {
        tool: of("effect")?,
        subject: of("key")?,
        value: of("value")?,
    })
}

/// Keeps calls of every kind in flight until then, and waits for every answer.
fn load(
    mut recorder: Recorder,
    weather: Weather,
    until: Instant,
) -> anyhow::Result<(History, Client)> {
    let mut rng = Rng::new(weather.seed);
    let pause = Duration::from_secs(1) / weather.rate.max(1);
    let (mut count, mut next) = (0, Instant::now());
    while Instant::now() < until {
        while recorder.waiting().len() < weather.window {
            // Late ones are made up for.
            next += pause;
            thread::sleep(next.saturating_duration_since(Instant::now()));
            count += 1;
            let id = recorder.ask(random_call(&mut rng, count, weather.probes))?;
            // A few are cancelled, some at once, some while they run.
            match rng.between(0, 39) {
                0 => recorder.cancel(id, CancelKind::Silent)?,
                1 => {
                    let oldest = recorder.waiting().first().copied().unwrap_or(id);
                    recorder.cancel(oldest, CancelKind::Silent)?;
                }
                _ => {}
            }
        }
        recorder.hear()?;
    }
    recorder.settle()?;
    recorder.finish(LATE)
}

fn random_call(rng: &mut Rng, count: u64, probes: bool) -> Ledger {
    let unique = format!("c{count}");
    let pauses = json!({
        "pause_ms": rng.between(0, 8),
        "pause_after_ms": rng.between(0, 4),
    });
    match rng.between(0, 99) {
        0..35 => effect("append", Replay::NeverReplay, &unique, "", pauses),
        // Few keys, so that later calls meet earlier ones.
        35..65 => {
            let key = format!("k{}", rng.between(0, 3));
            effect("put", Replay::Convergent, &key, &unique, pauses)
        }
        65..75 if probes => effect("settle", Replay::ProbeRequired, &unique, "", pauses),
        65..85 => reading("echo", json!({ "text": unique })),
        _ => reading("sleep", json!({"ms": rng.between(0, 30), "steps": 2})),
    }
}

fn effect(tool: &str, replay: Replay, key: &str, value: &str, pauses: Value) -> Ledger {
    let mut arguments = pauses;
    if let Some(members) = arguments.as_object_mut() {
        members.insert("key".to_owned(), key.into());
        members.insert("value".to_owned(), value.into());
    }
    let effect = Effect {
        tool: tool.to_owned(),
        subject: key.to_owned(),
        value: value.to_owned(),
    };
    Ledger {
        asked: Asked {
            tool: tool.to_owned(),
            replay,
            effect: Some(effect),
        },
        arguments,
    }
}

fn reading(tool: &str, arguments: Value) -> Ledger {
    Ledger {
        asked: Asked {
            tool: tool.to_owned(),
            replay: Replay::Convergent,
            effect: None,
        },
        arguments,
    }
}

/// Kills at random moments, as often as the weather says on average; says how often it did.
fn kill_at_random(host: &Running, weather: Weather, is_over: &AtomicBool) -> u64 {
    if weather.kills == 0 {
        return 0;
    }
    let mut rng = Rng::new(weather.seed ^ 0x5eed);
    let mean = 1_000_000 / weather.kills as usize;
    let (mut kills, mut next) = (0, Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        next += Duration::from_micros(rng.between(0, 2 * mean) as u64);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let victims = host.workers(VICTIM);
        if let Some(last) = victims.len().checked_sub(1) {
            let victim = victims.get(rng.between(0, last)).copied();
            kills += u64::from(victim.is_some_and(kill));
        }
    }
    kills
}

/// The most that ever was resident, in KiB.
fn watch_memory(host: &Running, is_over: &AtomicBool) -> u64 {
    let mut peak = 0;
    while !is_over.load(Ordering::Relaxed) {
        // A process that has gone is noticed by its client.
        peak = peak.max(host.usage().map_or(0, |usage| usage.resident));
        thread::sleep(Duration::from_millis(100));
    }
    peak
}
