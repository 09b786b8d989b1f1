//! `cargo xtask bench`: build for release, then hand over to the benchmark program.
//!
//! The measurements live in `mainstay-testkit`, next to the peers they drive;
//! this module only makes sure that they measure an optimised host. Arguments
//! pass unchanged, the first one usually the name of a benchmark.

use std::ffi::OsString;

use crate::context::Context;
use crate::step::{command_step, step};
use crate::tools;

pub(crate) fn run(context: &Context, arguments: &[OsString]) -> anyhow::Result<()> {
    if arguments.iter().any(|argument| argument == "http") {
        step("proxies of others", || tools::install_peers(context))?;
    }
    command_step(
        "build for release",
        context.cargo(["build", "--release", "--locked"]),
    )?;
    let mut program = context.cargo(["run", "--release", "--locked", "--quiet"]);
    program
        .args(["-p", "mainstay-testkit", "--bin", "bench", "--"])
        .args(arguments);
    command_step("bench", program)
}
