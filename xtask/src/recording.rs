//! `cargo xtask recording`: the picture of the README, from a real run of a release build.

use anyhow::ensure;

use crate::context::Context;
use crate::step::{command_step, step};
use crate::tools;

const SCRIPT: &str = "tests/recording/killed_server.py";
const PICTURE: &str = "docs/images/killed-server.svg";
/// The server that is killed, below the installed tools.
const SERVER: &str = "node-servers/node_modules/.bin/mcp-server-everything";

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    step("clients and servers of others", || {
        tools::install(context, false)
    })?;
    command_step(
        "build for release",
        context.cargo(["build", "--release", "--locked", "--package", "mainstay"]),
    )?;
    let server = context.tools().join(SERVER);
    ensure!(server.exists(), "{} is not installed", server.display());
    let mut script = context.command("python3");
    script
        .arg(SCRIPT)
        .arg(context.root.join("target/release/mainstay"))
        .arg(server)
        .arg(PICTURE);
    command_step("recording", script)
}
