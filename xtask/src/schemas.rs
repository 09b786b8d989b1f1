//! `cargo xtask schemas`: what the tools promise, written down anew.
//!
//! The binary itself writes its lock and the published definitions, of its own tools and of the
//! example pack. It refuses while a change lacks a bump or a reason; what it says then names the
//! change. A reason is given to `mainstay lock write` itself.

use crate::context::Context;
use crate::step::command_step;

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    command_step(
        "build",
        context.cargo([
            "build",
            "--locked",
            "-p",
            "mainstay",
            "-p",
            "mainstay-example-ledger",
        ]),
    )?;
    lock_write(context, "tools", &["--schemas", "schemas/tools"])?;
    lock_write(
        context,
        "tools of the example pack",
        &[
            "--pack",
            "ledger=cargo run --locked --quiet -p mainstay-example-ledger -- --file target/ledger.jsonl",
            "--packs-only",
            "--file",
            "examples/ledger/mainstay.lock.json",
            "--schemas",
            "examples/ledger/schemas/tools",
        ],
    )
}

fn lock_write(context: &Context, name: &str, options: &[&str]) -> anyhow::Result<()> {
    let mut command = context.cargo(["run", "--locked", "--quiet", "-p", "mainstay", "--"]);
    command.args(["lock", "write"]).args(options);
    command_step(name, command)
}
