//! Validation beside Python's jsonschema and ajv, and end to end.
//!
//! On the documents of one [`World`] three things are timed in one run: finding all errors of assets
//! by compiled schemas (`library`, and `others` for theirs), compiling a whole root, and the tool
//! `validate_asset` through a real host over pipes (`stdio`). The contestants take turns, so that a
//! busy moment hits all of them.
//!
//! A time is per asset. Where a case has several, one sample is a pass over all of them, divided by
//! their number. Assets and schemas are parsed before the clock starts, except where parsing is
//! part of what is measured.

mod library;
mod others;
mod stdio;
mod world;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use self::others::Other;
use self::world::World;
use super::measure::Rounds;
use super::{Options, Report, Samples};
use crate::process::workspace;

/// Rounds in which all contestants take a turn.
const ROUNDS: usize = 5;

/// When a measurement ends: at whichever comes first, but not before three runs.
#[derive(Clone, Copy)]
struct Until {
    passes: usize,
    seconds: f64,
}

const WARM_UP: Until = Until {
    passes: 20_000,
    seconds: 0.3,
};
const MEASURE: Until = Until {
    passes: 5_000,
    seconds: 0.6,
};
const COMPILE: Until = Until {
    passes: 50,
    seconds: 0.3,
};

impl Until {
    fn json(self) -> Value {
        json!({"passes": self.passes, "seconds": self.seconds})
    }
}

/// What one contestant measured in one round.
struct Turn {
    compile: Samples,
    cases: Vec<CaseTurn>,
}

struct CaseTurn {
    /// Of all assets of the case.
    errors: usize,
    samples: Samples,
}

pub(super) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let assets = workspace()?.join("examples/assets");
    let own = World::read("own", &assets, "show", &["Show_Example.json"])?;
    measure(&own, options, report).context("own")?;
    let Some(public) = public_data()? else {
        report.skip("validate.public", "there is no ../shared/data/synesthetic");
        return Ok(());
    };
    let names: Vec<String> = (1..=9)
        .map(|number| format!("SynestheticAsset_Example{number}.json"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let public = World::read("public", &public, "synesthetic-asset", &names)?;
    measure(&public, options, report).context("public")
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests and benchmarks are told where things are by their own environment"
)]
fn public_data() -> anyhow::Result<Option<PathBuf>> {
    let given = std::env::var_os("MAINSTAY_TEST_DATA").map(PathBuf::from);
    let data = match given {
        Some(data) => data,
        None => workspace()?.join("../shared/data"),
    };
    let found = data.join("synesthetic");
    Ok(found.is_dir().then_some(found))
}

fn measure(world: &World, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let rounds = options.rounds.min(ROUNDS);
    let mut ours = Contest::new("mainstay", world);
    let mut theirs = Vec::new();
    for other in [Other::Python, Other::Ajv] {
        if other.is_there()? {
            theirs.push((other, Contest::new(other.name(), world)));
        } else {
            let key = format!("validate.{}.{}", world.name, other.name());
            report.skip(&key, "it is not installed (cargo xtask tools installs it)");
        }
    }
    for _ in 0..rounds {
        ours.add(&library::turn(world)?)?;
        for (other, contest) in &mut theirs {
            contest.add(&other.turn(world).with_context(|| other.name())?)?;
        }
    }
    ours.tell(world, report);
    for (_, contest) in &theirs {
        contest.tell(world, report);
        contest.compare(&ours, world, report);
    }
    stdio::measure(world, rounds, options.trips, report).context("stdio")
}

/// One contestant over all rounds.
struct Contest {
    name: &'static str,
    compile: Rounds,
    cases: Vec<Rounds>,
    /// Whether the assets of each case must be valid, and the errors that were found.
    errors: Vec<(bool, usize)>,
}

impl Contest {
    fn new(name: &'static str, world: &World) -> Self {
        let errors = world.cases.iter().map(|case| (case.is_valid, 0)).collect();
        Self {
            name,
            compile: Rounds::default(),
            cases: world.cases.iter().map(|_| Rounds::default()).collect(),
            errors,
        }
    }

    fn add(&mut self, turn: &Turn) -> anyhow::Result<()> {
        ensure!(turn.cases.len() == self.cases.len(), "a case is missing");
        self.compile.add(&turn.compile);
        let cases = self.cases.iter_mut().zip(&mut self.errors).zip(&turn.cases);
        for ((rounds, (is_valid, errors)), case) in cases {
            // Who is fast and wrong does not count.
            let name = self.name;
            ensure!(
                (case.errors == 0) == *is_valid,
                "{name} found {} errors",
                case.errors
            );
            rounds.add(&case.samples);
            *errors = case.errors;
        }
        Ok(())
    }

    fn tell(&self, world: &World, report: &mut Report) {
        let (name, of) = (self.name, world.name);
        for (case, (rounds, (_, errors))) in
            world.cases.iter().zip(self.cases.iter().zip(&self.errors))
        {
            let key = format!("validate.{of}.{}.{name}", case.name);
            let what = format!("{of}, {}, {name}", case.name);
            report.add(
                &format!("{key}.p50"),
                &format!("{what}, p50"),
                rounds.p50(0.5),
                "us",
            );
            report.add(
                &format!("{key}.p99"),
                &format!("{what}, p99"),
                rounds.p99(),
                "us",
            );
            if !case.is_valid {
                let each = *errors as f64 / case.assets.len() as f64;
                report.add(
                    &format!("{key}.errors"),
                    &format!("{what}, errors"),
                    each,
                    "",
                );
            }
        }
        let (key, what) = (
            format!("validate.{of}.compile.{name}"),
            format!("{of}, compiling the root, {name}, p50"),
        );
        report.add(&key, &what, self.compile.p50(0.5) / 1e3, "ms");
    }

    fn compare(&self, ours: &Self, world: &World, report: &mut Report) {
        let (name, of) = (self.name, world.name);
        let mut add = |what: &str, theirs: &Rounds, ours: &Rounds| {
            let ratio = theirs.p50(0.5) / ours.p50(0.5);
            let key = format!("validate.{of}.{what}.{name}.ratio");
            let said = format!("{of}, {what}, {name}, times ours");
            report.add(&key, &said, ratio, "x");
        };
        for ((case, theirs), ours) in world.cases.iter().zip(&self.cases).zip(&ours.cases) {
            add(case.name, theirs, ours);
        }
        add("compile", &self.compile, &ours.compile);
    }
}
