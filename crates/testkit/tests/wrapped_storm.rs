//! The storm over a server of others, in every way in which a session outlives it.
//!
//! `MAINSTAY_STORM_SECONDS` says for how long; 60 with `CI=true`, otherwise 10.

#![expect(
    clippy::disallowed_methods,
    reason = "a test that is told by its environment how long to run"
)]

use std::time::Duration;

use anyhow::ensure;
use mainstay_testkit::process::TempDir;
use mainstay_testkit::storm::{Seen, Weather, storm};
use mainstay_testkit::wrapped::{WAYS, Way};

/// Resident memory may end so much over its beginning, in KiB.
const GROWTH: u64 = 8 * 1024;
/// Descriptors that there may be more than before: those of a server that is just being started.
const SPARE: usize = 8;

fn seconds() -> u64 {
    let told = std::env::var("MAINSTAY_STORM_SECONDS").ok();
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let default = if in_ci { 60 } else { 10 };
    told.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn nothing_is_lost_or_done_twice_while_the_server_is_killed_at_random() -> anyhow::Result<()> {
    let weather = Weather {
        time: Duration::from_secs(seconds()),
        ..Weather::default()
    };
    let folder = TempDir::new()?;
    let mut ways = 0;
    for way in WAYS.iter().filter(|way| way.survives_kills()) {
        ways += 1;
        let seen = storm(way.patient_prefix(folder.path())?, weather)?;
        println!("{way:?}: {seen:?}");
        steady(&seen)?;
        let wanted = u64::from(weather.kills) * weather.time.as_secs() / 2;
        ensure!(seen.kills >= wanted, "only {} kills", seen.kills);
        let calls = weather.time.as_secs() as usize * 50;
        ensure!(seen.summary.calls >= calls, "only {:?}", seen.summary);
    }
    if ways == 0 {
        println!("SKIPPED: in no way of starting it does a session outlive its server");
    }
    Ok(())
}

/// The load and the oracle are sound: without kills everything succeeds, in every way.
#[test]
fn in_a_calm_every_call_succeeds() -> anyhow::Result<()> {
    let weather = Weather {
        time: Duration::from_secs(1),
        kills: 0,
        ..Weather::default()
    };
    for way in WAYS {
        let seen = storm(way.prefix()?, weather)?;
        println!("{way:?}: {seen:?}");
        steady(&seen)?;
        let summary = seen.summary;
        ensure!(summary.unknown == 0, "{summary:?}");
        ensure!(
            summary.calls == summary.successes + summary.silent,
            "{summary:?}"
        );
    }
    Ok(())
}

/// The storm can fail: without anything in between, the first kill ends the session.
#[test]
fn bare_session_does_not_outlive_the_first_kill() {
    let weather = Weather {
        time: Duration::from_secs(5),
        ..Weather::default()
    };
    let prefix = Way::Bare.prefix().unwrap();
    let error = storm(prefix, weather).map(|seen| panic!("went on: {seen:?}"));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("closed"), "{error}");
}

fn steady(seen: &Seen) -> anyhow::Result<()> {
    let [before, _, after] = seen.memory;
    ensure!(after <= before + GROWTH, "memory grew: {seen:?}");
    let [before, after] = seen.descriptors;
    ensure!(
        after <= before + SPARE,
        "descriptors were left open: {seen:?}"
    );
    Ok(())
}
