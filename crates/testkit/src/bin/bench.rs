//! `bench [roundtrip] [load] [start] [flood] [hostile] [recovery] [wrap] [sandbox] [faults] [http] [servers]
//! [validate] [--quick] [--json] [--bare-worker] [--prefix WORDS]`, `bench code TREE CACHE [TREE...]`, or
//! `bench pairs OLD NEW PARTS...`: see `testkit::bench`.
//!
//! Run through `cargo xtask bench`, which builds everything for release first.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it reports to its terminal"
)]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use mainstay_testkit::bench::{Options, Part, code, pairs, play_role, run};
use mainstay_testkit::wrapped::Way;

/// A run that takes longer hangs: everything in it is bounded by this.
const LONGEST_RUN: Duration = Duration::from_secs(600);
/// The same for the code pack, whose trees are large.
const LONGEST_CODE_RUN: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, role] = arguments.as_slice()
        && flag == "--role"
    {
        return play_role(role);
    }
    if let Some((first, rest)) = arguments.split_first()
        && first == "code"
    {
        give_up_after(LONGEST_CODE_RUN);
        let rest: Vec<_> = rest.iter().map(Into::into).collect();
        return code::run(&rest, &mut |text| print!("{text}"));
    }
    if let Some((first, rest)) = arguments.split_first()
        && first == "pairs"
    {
        return pairs::run(rest, &mut |text| print!("{text}"));
    }
    let (options, json) = parse(&arguments)?;
    give_up_after(LONGEST_RUN);
    let report = run(&options)?;
    if json {
        println!("{:#}", report.json());
    } else {
        print!("{}", report.table());
    }
    Ok(())
}

fn give_up_after(time: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(time);
        eprintln!("bench: gave up after {time:?}");
        std::process::exit(3);
    });
}

fn parse(arguments: &[String]) -> anyhow::Result<(Options, bool)> {
    let mut options = Options {
        parts: Vec::new(),
        rounds: 21,
        trips: 1_000,
        load: Duration::from_millis(150),
        pack: ("bench-pack".to_owned(), String::new(), "echo".to_owned()),
        prefix: Vec::new(),
    };
    let mut json = false;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "roundtrip" => options.parts.push(Part::RoundTrip),
            "load" => options.parts.push(Part::Load),
            "start" => options.parts.push(Part::Start),
            "flood" => options.parts.push(Part::Flood),
            "hostile" => options.parts.push(Part::Hostile),
            "recovery" => options.parts.push(Part::Recovery),
            "validate" => options.parts.push(Part::Validate),
            "wrap" => options.parts.push(Part::Wrap),
            "faults" => options.parts.push(Part::Faults),
            "sandbox" => options.parts.push(Part::Sandbox),
            "http" => options.parts.push(Part::Http),
            "servers" => options.parts.push(Part::Servers),
            // Something else than `mainstay wrap --` before the server's command.
            "--prefix" => {
                let words = rest.next().context("--prefix needs its words")?;
                options.prefix = words.split_whitespace().map(Into::into).collect();
            }
            "--json" => json = true,
            "--quick" => {
                options.rounds = 5;
                options.trips = 500;
                options.load = Duration::from_millis(100);
            }
            // The barest worker there is, to see what the library of packs costs.
            "--bare-worker" => {
                let bare = ["misbehaving-worker", "honest", "again"].map(str::to_owned);
                options.pack = bare.into();
            }
            _ => bail!(
                "no option {argument}; usage: bench [roundtrip] [load] [start] [flood] [hostile] [recovery] \
                 [wrap] [sandbox] [faults] [http] [servers] [validate] [--quick] [--json] [--bare-worker] \
                 [--prefix WORDS]"
            ),
        }
    }
    if options.parts.is_empty() {
        options.parts = vec![
            Part::RoundTrip,
            Part::Load,
            Part::Start,
            Part::Flood,
            Part::Recovery,
            Part::Validate,
        ];
    }
    if options.prefix.is_empty() && options.parts.iter().any(|part| part.wraps()) {
        options.prefix = Way::Wrapped.prefix()?;
    }
    Ok((options, json))
}
