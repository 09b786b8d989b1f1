//! `cargo xtask storm`, `crosstalk` and `soak`: the storms, the sessions of shared servers and the soak of `mainstay-testkit`, for as long as one likes.
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

/// Sessions over shared servers, in which no message may reach the wrong one. Optimised, with every assertion.
pub(crate) fn crosstalk(context: &Context, messages: u64) -> anyhow::Result<()> {
    let mut build = context.cargo(["build", "--profile", "sim", "--workspace", "--locked"]);
    build.args(["--bin", "mainstay", "--bin", "mcp-fixture"]);
    command_step("build", build)?;
    let mut test = context.cargo(["test", "--profile", "sim", "--workspace", "--locked"]);
    test.args(["--test", "many_servers", "--", "--nocapture"])
        .arg("no_message_of_a_shared_server_reaches_another_session")
        .env("MAINSTAY_CROSSTALK_MESSAGES", messages.to_string());
    command_step("messages of shared servers", test)
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
