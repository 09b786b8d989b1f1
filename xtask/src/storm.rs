//! `cargo xtask storm`: the storm of `mainstay-testkit`, for as long as one likes.
//!
//! The test suite runs a short one; this is the same test with more time, and its figures are shown.

use crate::context::Context;
use crate::step::command_step;

pub(crate) fn run(context: &Context, seconds: u64) -> anyhow::Result<()> {
    command_step(
        "build",
        context.cargo(["build", "--workspace", "--bins", "--locked"]),
    )?;
    let mut storm = context.cargo(["test", "--locked", "-p", "mainstay-testkit"]);
    storm
        .args(["--test", "storm", "--", "--nocapture"])
        .env("MAINSTAY_STORM_SECONDS", seconds.to_string());
    command_step("storm", storm)
}
