//! The project's own tasks: `cargo xtask test`, `ci`, `tidy`, `schemas`, `tools`, `bench`, `sim`,
//! `recording`, `storm`, `crosstalk` and `soak`.
//!
//! Each task is a module with one entry function; this file only reads the
//! arguments, finds the workspace and turns the answer into an exit code:
//! 0 all is well, 1 a step failed or a check found something, 2 the task could
//! not be understood. Deliberately absent: any link to the product's crates,
//! so that the tasks run while those do not compile.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a task speaks to its terminal"
)]

mod args;
mod bench;
mod context;
mod recording;
mod schemas;
mod sim;
mod step;
mod storm;
mod test;
mod tidy;
mod tools;

use std::process::ExitCode;

use args::Task;
use context::Context;

fn main() -> ExitCode {
    let task = match args::parse(std::env::args_os().skip(1)) {
        Ok(task) => task,
        Err(mistake) => {
            eprintln!("xtask: {mistake}\n\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    let context = Context::discover()?;
    match task {
        Task::Help => {
            println!("{}", args::USAGE);
            Ok(())
        }
        Task::Tidy => tidy::run(&context),
        Task::Schemas => schemas::run(&context),
        Task::Test(options) => test::run(&context, &options),
        Task::Tools(options) => tools::install(&context, options.install || context.ci),
        Task::Bench(arguments) => bench::run(&context, &arguments),
        Task::Sim(arguments) => sim::run(&context, &arguments),
        Task::Recording => recording::run(&context),
        Task::Storm { seconds } => storm::run(&context, seconds),
        Task::Crosstalk { messages } => storm::crosstalk(&context, messages),
        Task::Soak { seconds } => storm::soak(&context, seconds),
    }
}
