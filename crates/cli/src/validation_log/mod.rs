//! `mainstay log diff`: the validation log of a run beside the golden one.

mod diff;
pub(crate) mod folder;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::Value;

use self::diff::Order;
use crate::args::LogDiff;
use crate::exit::{self, Failure, print};

/// Ends with 1 if the logs differ.
pub(crate) fn diff(command: &LogDiff) -> Result<ExitCode, Failure> {
    let (golden, new) = (read(&command.golden)?, read(&command.new)?);
    let order = if command.ignore_order {
        Order::Ignored
    } else {
        Order::Counts
    };
    let found = diff::differences(&golden, &new, order);
    if found.is_empty() {
        print(&format!("no difference in {} records\n", golden.len()))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&diff::page(&found))?;
    Ok(ExitCode::from(exit::NO))
}

fn read(path: &Path) -> Result<Vec<Value>, Failure> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {}", path.display()))
        .map_err(Failure::input)?;
    diff::parse(&text)
        .with_context(|| format!("{} is no validation log", path.display()))
        .map_err(Failure::input)
}
