//! `cargo xtask test`: everything that must hold before a change lands.
//!
//! The steps run in order and the first failure ends the task. With `CI=true`
//! (or as `cargo xtask ci`) the static checks come first, the cheapest one
//! before all others. The large test run is the last step, so that its closing
//! lines end the output.

use crate::args::TestOptions;
use crate::context::Context;
use crate::step::{command_step, skip, step, succeeds};
use crate::{sim, tidy, tools};

pub(crate) fn run(context: &Context, options: &TestOptions) -> anyhow::Result<()> {
    if options.checks || context.ci {
        checks(context)?;
    }
    command_step(
        "build",
        context.cargo(["build", "--workspace", "--all-targets", "--locked"]),
    )?;
    step("clients and servers of others", || {
        tools::install(context, options.install || context.ci)
    })?;
    command_step(
        "documentation tests",
        context.cargo(["test", "--doc", "--workspace", "--locked"]),
    )?;
    sim::check(context)?;
    if succeeds(context.cargo(["nextest", "--version"])) {
        let profile = if context.ci { "ci" } else { "default" };
        command_step("tests", {
            let mut command = context.cargo(["nextest", "run", "--workspace", "--locked"]);
            command.args(["--profile", profile]);
            command
        })
    } else {
        // Documentation tests have had their own step, hence the three targets.
        command_step(
            "tests (cargo-nextest is not installed)",
            context.cargo([
                "test",
                "--workspace",
                "--locked",
                "--lib",
                "--bins",
                "--tests",
            ]),
        )
    }
}

fn checks(context: &Context) -> anyhow::Result<()> {
    step("tidy", || tidy::run(context))?;
    command_step("format", context.cargo(["fmt", "--all", "--check"]))?;
    command_step("clippy", {
        let mut command = context.cargo(["clippy", "--workspace", "--all-targets", "--locked"]);
        command.args(["--", "-D", "warnings"]);
        command
    })?;
    if succeeds(context.cargo(["deny", "--version"])) {
        // Advisories are left out: they would be downloaded.
        command_step("dependencies", {
            let mut command = context.cargo(["deny", "--locked", "check"]);
            command.args(["--hide-inclusion-graph", "bans", "licenses", "sources"]);
            command
        })?;
    } else {
        skip("dependencies", "cargo-deny is not installed");
    }
    Ok(())
}
