//! Many seeds, on every processor.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::book::Violation;
use super::plan::Scenario;
use super::run::run;

/// Failures after which a sweep ends.
const FAILURES: usize = 100;

/// What a sweep over many seeds found.
#[derive(Debug, Default)]
pub struct Sweep {
    pub seeds: u64,
    pub requests: u64,
    pub events: u64,
    pub virtual_ms: u64,
    /// How often a host was replaced by one that continued its saved state.
    pub upgraded: u64,
    /// How often that was refused.
    pub not_upgraded: u64,
    /// The seed that took longest, and how long.
    pub slowest: (Duration, u64),
    /// Seeds that broke a rule, lowest first, with the first rule that each broke.
    pub failed: Vec<(u64, Violation)>,
}

/// Runs `seeds` seeds from `first` on.
pub fn sweep(first: u64, seeds: u64) -> Sweep {
    let next = AtomicU64::new(first);
    let end = first.saturating_add(seeds);
    let found = Mutex::new(Sweep::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let began = Instant::now();
                    let report = run(&Scenario::of(seed), false);
                    let took = began.elapsed();
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.seeds += 1;
                    found.requests += report.requests as u64;
                    found.events += report.events;
                    found.virtual_ms += report.virtual_ms;
                    found.upgraded += report.upgraded.done;
                    found.not_upgraded += report.upgraded.refused;
                    found.slowest = found.slowest.max((took, seed));
                    let broken = report.violations.into_iter().next();
                    found.failed.extend(broken.map(|broken| (seed, broken)));
                    if found.failed.len() >= FAILURES {
                        return;
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.failed.sort_by_key(|(seed, _)| *seed);
    found
}
