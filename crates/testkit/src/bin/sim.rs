//! `cargo xtask sim`: runs seeds of the simulation, or one seed with its trace.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for terminals"
)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mainstay_kernel::defect::{self, Defect};
use mainstay_testkit::sim::catalogue;
use mainstay_testkit::sim::{Scenario, run, shrink, sweep};

const USAGE: &str = "\
usage: sim [--seeds N] [--first S]       run N seeds (2000) from S (0) on
       sim --seed S [--defect NAME]      run one seed and print its trace
       sim --catalogue [--seeds N] [--defect NAME]
                                         look for each deliberate defect in at most N seeds";

/// Failures of one rule that are shown.
const SHOWN: u32 = 3;

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

/// Runs many seeds, and shrinks the first one that fails.
fn many(options: &Options) -> bool {
    let began = Instant::now();
    let found = sweep(options.first, options.seeds);
    let seconds = began.elapsed().as_secs_f64();
    let mut shown = BTreeMap::new();
    for (seed, broken) in &found.failed {
        let times = shown.entry(broken.rule).or_insert(0);
        *times += 1;
        if *times <= SHOWN {
            println!("seed {seed}: {}: {}", broken.rule, broken.detail);
        }
    }
    println!(
        "{} seeds, {} requests, {} events, {} upgrades and {} refused, {:.0} h of virtual time in {seconds:.1} s; {} failed",
        found.seeds,
        found.requests,
        found.events,
        found.upgraded,
        found.not_upgraded,
        Duration::from_millis(found.virtual_ms).as_secs_f64() / 3600.0,
        found.failed.len()
    );
    let (took, seed) = found.slowest;
    println!("slowest: seed {seed} in {:.2} s", took.as_secs_f64());
    if let Some((seed, broken)) = found.failed.first() {
        let small = shrink(&Scenario::of(*seed), broken.rule);
        println!("\nshrunken scenario for \"{}\":\n{small}", broken.rule);
        println!("repeat with: cargo xtask sim --seed {seed}");
    }
    found.failed.is_empty()
}

/// Looks for every defect in the catalogue.
fn every_defect(options: &Options) -> bool {
    let mut good = true;
    println!("| defect | seeds | rule |\n|---|---|---|");
    let wanted = |defect: &&Defect| options.defect.is_none_or(|wanted| wanted == **defect);
    for defect in Defect::ALL.iter().filter(wanted) {
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
