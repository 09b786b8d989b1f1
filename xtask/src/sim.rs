//! `cargo xtask sim`: simulated hosts, from a seed (`docs/simulation.md`).
//!
//! The simulation lives in `mainstay-testkit` behind a feature, so that no other build of the
//! workspace gets a host whose seams are open. Here it is built with optimisation and assertions;
//! arguments pass unchanged. [`check`] is its part in `cargo xtask test`.

use std::ffi::OsString;

use crate::context::Context;
use crate::step::command_step;

pub(crate) fn run(context: &Context, arguments: &[OsString]) -> anyhow::Result<()> {
    let mut program = context.cargo(["run", "--profile", "sim", "--locked", "--quiet"]);
    program
        .args(["-p", "mainstay-testkit", "--features", "simulation"])
        .args(["--bin", "sim", "--"])
        .args(arguments);
    command_step("simulation", program)
}

/// A few thousand seeds and every deliberate defect, without optimisation: building with it would
/// take longer than it saves.
pub(crate) fn check(context: &Context) -> anyhow::Result<()> {
    let mut tests = context.cargo(["test", "--locked", "--quiet", "-p", "mainstay-testkit"]);
    tests.args(["--features", "simulation", "--test", "simulation"]);
    command_step("simulation", tests)
}
