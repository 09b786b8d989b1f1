//! `cargo xtask storm`: the storms of `mainstay-testkit`, for as long as one likes.
//!
//! The test suite runs short ones; these are the same tests with more time, and their figures are shown.

use crate::context::Context;
use crate::step::command_step;

pub(crate) fn run(context: &Context, seconds: u64) -> anyhow::Result<()> {
    command_step(
        "build",
        context.cargo(["build", "--workspace", "--bins", "--locked"]),
    )?;
    let mut storm = context.cargo(["test", "--locked", "-p", "mainstay-testkit"]);
    storm
        .args(["--test", "storm", "--test", "wrapped_storm"])
        .args(["--", "--nocapture"])
        .env("MAINSTAY_STORM_SECONDS", seconds.to_string());
    command_step("storm", storm)
}
