//! The libraries of others, in processes of their own interpreters.
//!
//! A script in `tests/bench` gets the path of a job:
//! `{documents: [{uri, schema, listed}], cases: [{schema, assets}], compile, warm_up, measure}`, the
//! last three each `{passes, seconds}`. It answers on standard output with
//! `{compile: [ns], cases: [{errors, samples: [ns]}]}`: for the whole root, and per asset.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::world::World;
use super::{COMPILE, CaseTurn, MEASURE, Samples, Turn, WARM_UP};
use crate::foreign::{Driven, command_of, finish, python};
use crate::process::{TempDir, tool, workspace};

/// A library to compare with.
#[derive(Clone, Copy)]
pub(super) enum Other {
    /// PyPI `jsonschema`.
    Python,
    /// npm `ajv`.
    Ajv,
}

#[derive(Deserialize)]
struct Answer {
    compile: Vec<u64>,
    cases: Vec<CaseAnswer>,
}

#[derive(Deserialize)]
struct CaseAnswer {
    errors: usize,
    samples: Vec<u64>,
}

impl Other {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Python => "jsonschema",
            Self::Ajv => "ajv",
        }
    }

    pub(super) fn is_there(self) -> anyhow::Result<bool> {
        Ok(match self {
            Self::Python => python("python")?.is_some(),
            Self::Ajv => tool("node/node_modules/ajv")?.is_some(),
        })
    }

    pub(super) fn turn(self, world: &World) -> anyhow::Result<Turn> {
        let folder = TempDir::new()?;
        let job = folder.join("job.json");
        fs::write(&job, described(world).to_string()).context("writing the job")?;
        let scripts = workspace()?.join("tests/bench");
        let mut command = match self {
            Self::Python => {
                let words = python("python")?.context("Python is not installed")?;
                let mut command = command_of(&words)?;
                // Nothing is written into the source tree.
                command.arg("-B").arg(scripts.join("validate.py")).arg(&job);
                command
            }
            Self::Ajv => {
                let modules = tool("node/node_modules")?.context("ajv is not installed")?;
                let mut command = Command::new("node");
                command
                    .arg(scripts.join("validate.mjs"))
                    .arg(&job)
                    .arg(modules);
                command
            }
        };
        let answer: Answer = match finish(&mut command, &folder)? {
            Driven::Well(answer) => serde_json::from_value(answer).context("another answer")?,
            Driven::Badly(why) | Driven::Skipped(why) => bail!("{why}"),
        };
        let cases = answer.cases.into_iter().map(|case| CaseTurn {
            errors: case.errors,
            samples: samples(&case.samples),
        });
        Ok(Turn {
            compile: samples(&answer.compile),
            cases: cases.collect(),
        })
    }
}

fn described(world: &World) -> Value {
    let documents: Vec<Value> = world
        .documents
        .iter()
        .map(|document| {
            json!({"uri": document.uri, "schema": document.schema, "listed": document.is_listed})
        })
        .collect();
    let cases: Vec<Value> = world
        .cases
        .iter()
        .map(|case| json!({"schema": world.uri, "assets": case.assets}))
        .collect();
    json!({"documents": documents, "cases": cases, "compile": COMPILE.json(),
        "warm_up": WARM_UP.json(), "measure": MEASURE.json()})
}

fn samples(nanos: &[u64]) -> Samples {
    let mut samples = Samples::default();
    for nanos in nanos {
        samples.add(Duration::from_nanos(*nanos));
    }
    samples
}
