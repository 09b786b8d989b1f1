//! From a scenario that fails to a smaller one that fails in the same way.

use super::plan::Scenario;
use super::run::run;

/// Runs that one search may take.
const RUNS: usize = 2000;

/// Leaves out parts for as long as the same rule is still broken.
pub fn shrink(scenario: &Scenario, rule: &str) -> Scenario {
    let fails = |scenario: &Scenario| {
        let report = run(scenario, false);
        report.violations.iter().any(|broken| broken.rule == rule)
    };
    let mut best = scenario.clone();
    let mut runs = 0;
    loop {
        let mut smaller = false;
        let mut part = 0;
        while part < best.parts() && runs < RUNS {
            let less = best.without(part);
            runs += 1;
            if fails(&less) {
                best = less;
                smaller = true;
            } else {
                part += 1;
            }
        }
        if !smaller || runs >= RUNS {
            return best;
        }
    }
}
