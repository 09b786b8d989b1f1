//! `cargo xtask storm` and `cargo xtask soak`: the storms and the soak of `mainstay-testkit`, for as long as one likes.
//!
//! The test suite runs short ones; these are the same tests with more time, and their figures are shown.

use crate::context::Context;
use crate::step::command_step;

pub(crate) fn run(context: &Context, seconds: u64) -> anyhow::Result<()> {
    command_step(
        "build",
        context.cargo(["build", "--workspace", "--bins", "--locked"]),
    )?;
    let storms: [(&str, &[&str]); 3] = [
        (
            "storm of workers",
            &["--test", "storm", "--test", "wrapped_storm", "--"],
        ),
        (
            "storm of hosts with tasks",
            &["--test", "tasks", "--", "storm::"],
        ),
        (
            "rollouts and upgrades",
            &["--test", "upgrade", "--", "load::"],
        ),
    ];
    for (name, tests) in storms {
        let mut storm = context.cargo(["test", "--locked", "-p", "mainstay-testkit"]);
        storm
            .args(tests)
            .arg("--nocapture")
            .env("MAINSTAY_STORM_SECONDS", seconds.to_string())
            .env("MAINSTAY_UPGRADE_SECONDS", seconds.to_string());
        command_step(name, storm)?;
    }
    Ok(())
}

/// Clients and servers come and go; built for release, since its figures are those of users.
pub(crate) fn soak(context: &Context, seconds: u64) -> anyhow::Result<()> {
    let release = ["build", "--release", "--workspace", "--bins", "--locked"];
    command_step("build", context.cargo(release))?;
    let mut soak = context.cargo(["test", "--release", "--locked", "-p", "mainstay-testkit"]);
    soak.args(["--test", "soak", "--", "--nocapture"])
        .env("MAINSTAY_SOAK_SECONDS", seconds.to_string());
    command_step("soak", soak)
}
