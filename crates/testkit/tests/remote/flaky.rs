//! A server that restarts, forgets sessions, rejects tokens, answers 503, cuts answers and has two replicas, all
//! the time. Reads never fail, and no effect happens twice.
//!
//! `MAINSTAY_FLAKY_SECONDS` sets how long; the suite runs a few seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mainstay_testkit::hostile::Rng;
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{Launch, TempDir, binary};
use serde_json::json;

use crate::upstream::{DrawFault, Fault, Upstream, World};
use crate::wrapping::text;

/// Seconds of a run in the suite.
const SECONDS: u64 = 10;
/// Clients at the same time.
const CLIENTS: u64 = 3;

#[derive(Debug)]
struct Chance(Rng);

impl DrawFault for Chance {
    fn draw(&mut self) -> Option<Fault> {
        match self.0.next() % 100 {
            0..=2 => Some(Fault::Status(503)),
            3 => Some(Fault::Status(502)),
            4 => Some(Fault::Status(429)),
            5..=6 => Some(Fault::CutBefore),
            7..=8 => Some(Fault::CutAfter),
            _ => None,
        }
    }
}

/// What one client saw.
#[derive(Debug, Default)]
struct Tally {
    reads: u64,
    failed_reads: Vec<String>,
    /// Effects that the client was told of, and those of unknown outcome.
    done: BTreeSet<String>,
    unknown: u64,
}

#[test]
fn reads_never_fail_and_no_effect_happens_twice() -> anyhow::Result<()> {
    let seconds = std::env::var("MAINSTAY_FLAKY_SECONDS").ok();
    let seconds: u64 = seconds.map_or(Ok(SECONDS), |text| text.parse())?;
    let upstream = Arc::new(Upstream::start(World {
        replicas: vec![BTreeSet::new(), BTreeSet::new()],
        token: Some("token-number-0".to_owned()),
        chance: Some(Box::new(Chance(Rng::new(7)))),
        ..World::default()
    })?);
    let folder = TempDir::new()?;
    let token = folder.join("token");
    std::fs::write(&token, "token-number-0")?;
    let over = Arc::new(AtomicBool::new(false));
    let trouble = {
        let (upstream, over, token) = (Arc::clone(&upstream), Arc::clone(&over), token.clone());
        thread::spawn(move || make_trouble(&upstream, &over, &token))
    };
    let until = Instant::now() + Duration::from_secs(seconds);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (url, token) = (upstream.url(), token.clone());
            thread::spawn(move || work(number, &url, &token, until))
        })
        .collect();
    let mut tallies = Vec::new();
    for client in clients {
        tallies.push(
            client
                .join()
                .map_err(|_| anyhow::anyhow!("a client panicked"))??,
        );
    }
    over.store(true, Ordering::SeqCst);
    let troubles = trouble
        .join()
        .map_err(|_| anyhow::anyhow!("trouble panicked"))??;
    let effects = upstream.world().effects.clone();
    let twice: BTreeMap<_, _> = effects.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let failed: Vec<_> = tallies
        .iter()
        .flat_map(|tally| &tally.failed_reads)
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    for key in tallies.iter().flat_map(|tally| &tally.done) {
        assert_eq!(effects.get(key), Some(&1), "{key}");
    }
    let reads: u64 = tallies.iter().map(|tally| tally.reads).sum();
    let unknown: u64 = tallies.iter().map(|tally| tally.unknown).sum();
    let done: usize = tallies.iter().map(|tally| tally.done.len()).sum();
    let sessions = upstream.asked("initialize").len();
    println!(
        "{seconds} s: {reads} reads, {done} effects, {unknown} of unknown outcome, {troubles} troubles, {sessions} sessions"
    );
    assert!(reads > 0 && done > 0 && troubles > 0);
    Ok(())
}

fn work(number: u64, url: &str, token: &PathBuf, until: Instant) -> anyhow::Result<Tally> {
    let launch = Launch::new([binary("mainstay")?.into_os_string(), "wrap".into()])?;
    let launch = launch.words(["--url", url, "--token-file"]).words([token]);
    let running = launch.spawn()?;
    let client: &Client = running.client()?;
    client.open(&json!({}))?;
    let mut tally = Tally::default();
    let mut turn = 0;
    while Instant::now() < until {
        turn += 1;
        let key = format!("client-{number}-{turn}");
        let read = client.call(&format!("{turn}"), "read", &json!({"key": key}))?;
        tally.reads += 1;
        if text(&read) != key {
            tally.failed_reads.push(format!("{read:?}"));
        }
        let id = format!("\"e{turn}\"");
        let effect = client.call(&id, "effect", &json!({"key": key}))?;
        if effect.at("/result/isError") == true {
            let said = text(&effect);
            anyhow::ensure!(said.contains("outcome is unknown"), "{said}");
            tally.unknown += 1;
        } else {
            anyhow::ensure!(text(&effect) == "done", "{effect:?}");
            tally.done.insert(key);
        }
    }
    running.finish()?;
    Ok(tally)
}

/// Restarts, forgotten sessions and new tokens until the end; how many there were.
fn make_trouble(upstream: &Upstream, over: &AtomicBool, token: &PathBuf) -> anyhow::Result<u64> {
    let mut rng = Rng::new(11);
    let mut troubles = 0;
    while !over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(300 + rng.next() % 900));
        troubles += 1;
        match rng.next() % 4 {
            0 => {
                upstream.go_down();
                thread::sleep(Duration::from_millis(rng.next() % 1500));
                upstream.come_up(rng.next().is_multiple_of(2))?;
            }
            1 => {
                let mut world = upstream.world();
                let replica = rng.between(0, 1);
                world.replicas[replica].clear();
            }
            2 => {
                let next = format!("token-number-{troubles}");
                upstream.world().token = Some(next.clone());
                // Whoever renews the token is a little late.
                thread::sleep(Duration::from_millis(rng.next() % 200));
                let fresh = token.with_extension("new");
                std::fs::write(&fresh, next)?;
                std::fs::rename(fresh, token)?;
            }
            _ => upstream
                .world()
                .replicas
                .iter_mut()
                .for_each(BTreeSet::clear),
        }
    }
    Ok(troubles)
}
