//! Simulated hosts: a few thousand seeds, the same trace for the same seed, and the catalogue of
//! deliberate defects.

use mainstay_kernel::defect::{self, Defect};
use mainstay_testkit::sim::catalogue::{self, CATALOGUE};
use mainstay_testkit::sim::{Scenario, run, shrink, sweep};

const SEEDS: u64 = 2000;

#[test]
fn no_seed_breaks_a_rule() {
    let found = sweep(0, SEEDS);
    if let Some((seed, broken)) = found.failed.first() {
        let small = shrink(&Scenario::of(*seed), broken.rule);
        panic!(
            "{} of {} seeds failed\nseed {seed}: {}: {}\nshrunken scenario:\n{small}\n\
             repeat with: cargo xtask sim --seed {seed}",
            found.failed.len(),
            found.seeds,
            broken.rule,
            broken.detail
        );
    }
    assert_eq!(found.seeds, SEEDS);
    assert!(found.requests > SEEDS, "{} requests", found.requests);
    assert!(found.upgraded > SEEDS, "{} upgrades", found.upgraded);
}

/// Seeds beyond those of every run that broke a rule before their causes were mended.
const MENDED: [u64; 4] = [10_224, 10_629, 14_710, 16_309];

#[test]
fn seeds_that_broke_a_rule_once_hold() {
    for seed in MENDED {
        let violations = run(&Scenario::of(seed), false).violations;
        assert!(violations.is_empty(), "seed {seed}: {violations:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..200 {
        let scenario = Scenario::of(seed);
        let (first, second) = (run(&scenario, true), run(&scenario, true));
        assert_eq!(first.text, second.text, "seed {seed}");
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!(run(&scenario, false).digest, first.digest, "seed {seed}");
    }
    let digests = [run(&Scenario::of(1), false), run(&Scenario::of(2), false)];
    assert_ne!(digests[0].digest, digests[1].digest);
}

#[test]
fn every_deliberate_defect_is_found_within_its_number_of_seeds() {
    let missing: Vec<_> = Defect::ALL
        .iter()
        .filter(|defect| !CATALOGUE.iter().any(|(known, _)| known == *defect))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let (mut lost, mut table) = (Vec::new(), String::new());
    for (defect, seeds) in CATALOGUE {
        match catalogue::find(*defect, 0, *seeds) {
            Some(found) => table += &format!("{}: {} seeds\n", defect.name(), found.seeds),
            None => lost.push(defect.name()),
        }
    }
    assert!(lost.is_empty(), "not found: {lost:?}\n{table}");
}

#[test]
fn a_failure_shrinks_to_what_it_needs() {
    let found = catalogue::find(Defect::NeverReplayReplayed, 0, 1000).unwrap();
    let scenario = Scenario::of(found.seed);
    defect::plant(Some(Defect::NeverReplayReplayed));
    let small = shrink(&scenario, found.rule);
    let report = run(&small, false);
    defect::plant(None);
    assert!(
        report
            .violations
            .iter()
            .any(|broken| broken.rule == found.rule)
    );
    assert!(small.parts() < scenario.parts(), "{small}");
    let steps: usize = small.clients.iter().map(|client| client.steps.len()).sum();
    assert!(steps <= 6, "{small}");
}
