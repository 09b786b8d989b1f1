//! `cargo xtask sim`: runs seeds of the simulation, or one seed with its trace.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for terminals"
)]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mainstay_kernel::defect::{self, Defect};
use mainstay_testkit::sim::catalogue;
use mainstay_testkit::sim::{Scenario, run, shrink};

const USAGE: &str = "\
usage: sim [--seeds N] [--first S]       run N seeds (2000) from S (0) on
       sim --seed S [--defect NAME]      run one seed and print its trace
       sim --catalogue [--seeds N]       look for each deliberate defect in at most N seeds";

/// Failures after which a run of many seeds ends, and those that are shown of one rule.
const FAILURES: usize = 100;
const SHOWN: usize = 3;

struct Options {
    seeds: u64,
    first: u64,
    seed: Option<u64>,
    defect: Option<Defect>,
    catalogue: bool,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(mistake) => {
            eprintln!("sim: {mistake}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // A panic is a violation of the run; its place is enough.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let good = match (options.seed, options.catalogue) {
        (Some(seed), _) => one(seed, options.defect),
        (None, true) => every_defect(&options),
        (None, false) => many(&options),
    };
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        seeds: 2000,
        first: 0,
        seed: None,
        defect: None,
        catalogue: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is not a number"));
        match word.as_str() {
            "--seeds" => options.seeds = number(value()?)?,
            "--first" => options.first = number(value()?)?,
            "--seed" => options.seed = Some(number(value()?)?),
            "--defect" => {
                let name = value()?;
                let known = Defect::ALL.iter().find(|defect| defect.name() == name);
                options.defect = Some(*known.ok_or(format!("no defect is called {name}"))?);
            }
            "--catalogue" => options.catalogue = true,
            _ => return Err(format!("unexpected argument {word}")),
        }
    }
    Ok(options)
}

/// Runs one seed, shows its scenario and its trace, and shrinks it if it fails.
fn one(seed: u64, defect: Option<Defect>) -> bool {
    defect::plant(defect);
    let scenario = Scenario::of(seed);
    let report = run(&scenario, true);
    print!("{scenario}{}", report.text.unwrap_or_default());
    println!(
        "digest {:016x}, {} virtual ms",
        report.digest, report.virtual_ms
    );
    for broken in &report.violations {
        println!("VIOLATION {}: {}", broken.rule, broken.detail);
    }
    if let Some(broken) = report.violations.first() {
        let small = shrink(&scenario, broken.rule);
        println!("\nshrunken scenario for \"{}\":\n{small}", broken.rule);
        print!("{}", run(&small, true).text.unwrap_or_default());
    }
    report.violations.is_empty()
}

/// Runs many seeds on every processor.
fn many(options: &Options) -> bool {
    let began = Instant::now();
    let next = AtomicU64::new(options.first);
    let end = options.first + options.seeds;
    let events = AtomicU64::new(0);
    let requests = AtomicU64::new(0);
    let failed: Mutex<Vec<(u64, &str)>> = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let enough = failed.lock().is_ok_and(|failed| failed.len() >= FAILURES);
                    if seed >= end || enough {
                        return;
                    }
                    let report = run(&Scenario::of(seed), false);
                    events.fetch_add(report.events, Ordering::Relaxed);
                    requests.fetch_add(report.requests as u64, Ordering::Relaxed);
                    if let Some(broken) = report.violations.first() {
                        if let Ok(mut failed) = failed.lock() {
                            let same = failed.iter().filter(|(_, rule)| *rule == broken.rule);
                            if same.count() < SHOWN {
                                println!("seed {seed}: {}: {}", broken.rule, broken.detail);
                            }
                            failed.push((seed, broken.rule));
                        }
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let failed = failed.into_inner().unwrap_or_default();
    let (events, requests) = (events.into_inner(), requests.into_inner());
    println!(
        "{} seeds, {requests} requests, {events} events in {seconds:.1} s; {} failed",
        options.seeds,
        failed.len()
    );
    if let Some((seed, rule)) = failed.iter().min() {
        let small = shrink(&Scenario::of(*seed), rule);
        println!("\nshrunken scenario for \"{rule}\":\n{small}");
        println!("repeat with: cargo xtask sim --seed {seed}");
    }
    failed.is_empty()
}

fn every_defect(options: &Options) -> bool {
    let mut good = true;
    println!("| defect | seeds | rule |\n|---|---|---|");
    for defect in Defect::ALL {
        match catalogue::find(*defect, options.first, options.seeds) {
            Some(found) => println!("| {} | {} | {} |", defect.name(), found.seeds, found.rule),
            None => {
                good = false;
                println!("| {} | not in {} | |", defect.name(), options.seeds);
            }
        }
    }
    good
}
