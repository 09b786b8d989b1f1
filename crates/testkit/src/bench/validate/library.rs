//! Our own library, called directly.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use mainstay_schema::{Limits, SchemaDocument, SchemaRegistry, Validator};
use serde_json::Value;

use super::world::{Case, World};
use super::{COMPILE, CaseTurn, MEASURE, Samples, Turn, Until, WARM_UP};

pub(super) fn turn(world: &World) -> anyhow::Result<Turn> {
    let mut failed = Ok(());
    let mut compile = Samples::default();
    let until = Instant::now() + Duration::from_secs_f64(COMPILE.seconds);
    for done in 0..COMPILE.passes {
        if done >= 3 && Instant::now() >= until {
            break;
        }
        let documents = documents(world);
        let start = Instant::now();
        let compiled = compiled(world, documents);
        compile.add(start.elapsed());
        if let Err(error) = black_box(compiled) {
            failed = Err(error);
        }
    }
    failed?;
    let validator = validator(world)?;
    let cases = world.cases.iter().map(|case| {
        let mut errors = 0;
        timed(case, WARM_UP, || errors = check(&validator, case));
        let samples = timed(case, MEASURE, || errors = check(&validator, case));
        CaseTurn { errors, samples }
    });
    let cases = cases.collect();
    Ok(Turn { compile, cases })
}

/// What validates the assets of this world.
pub(super) fn validator(world: &World) -> anyhow::Result<Validator> {
    let registry = SchemaRegistry::with_documents(Limits::default(), documents(world))?;
    registry.compile_document(&world.uri).context("compiling")
}

/// Time of parsing and checking each asset once, per asset: what the tool does between its input
/// and its answer, with nothing around it.
pub(super) fn bare(validator: &Validator, case: &Case) -> anyhow::Result<Samples> {
    let texts: Vec<String> = case.assets.iter().map(Value::to_string).collect();
    let mut failed = Ok(());
    let mut work = || {
        for text in &texts {
            match serde_json::from_str::<Value>(black_box(text)) {
                Ok(asset) => drop(black_box(validator.check(&asset))),
                Err(error) => failed = Err(error),
            }
        }
    };
    timed(case, WARM_UP, &mut work);
    let samples = timed(case, MEASURE, &mut work);
    failed.context("an asset is no JSON")?;
    Ok(samples)
}

fn documents(world: &World) -> Vec<SchemaDocument> {
    let documents = world.documents.iter().map(|document| SchemaDocument {
        uri: document.uri.clone(),
        schema: document.schema.clone(),
    });
    documents.collect()
}

fn compiled(world: &World, documents: Vec<SchemaDocument>) -> anyhow::Result<Vec<Validator>> {
    let registry = SchemaRegistry::with_documents(Limits::default(), documents)?;
    let listed = world.documents.iter().filter(|document| document.is_listed);
    let validators = listed.map(|document| registry.compile_document(&document.uri));
    Ok(validators.collect::<Result<_, _>>()?)
}

fn check(validator: &Validator, case: &Case) -> usize {
    let found = case
        .assets
        .iter()
        .map(|asset| validator.check(black_box(asset)).len());
    found.sum()
}

fn timed(case: &Case, until: Until, mut work: impl FnMut()) -> Samples {
    let assets = u32::try_from(case.assets.len()).unwrap_or(u32::MAX).max(1);
    let mut samples = Samples::default();
    let end = Instant::now() + Duration::from_secs_f64(until.seconds);
    while samples.len() < 3 || (samples.len() < until.passes && Instant::now() < end) {
        let start = Instant::now();
        work();
        samples.add(start.elapsed() / assets);
    }
    samples
}
