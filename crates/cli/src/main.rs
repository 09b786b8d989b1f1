//! The binary `mainstay`: arguments, environment, configuration and wiring.
//!
//! Nothing is decided here that is not about the command line: rules live in the crates below.
//! The environment is read once, in [`environment`].

mod adopt;
mod answer;
mod approve;
mod args;
mod audit;
mod builtin;
mod cache;
mod call;
mod client;
mod config_file;
mod config_words;
mod demo;
mod doctor;
mod environment;
mod environment_page;
mod errors_page;
mod exit;
mod hidden;
mod json_comments;
mod listing;
mod local;
mod lock;
mod mistakes;
mod once;
mod operate;
mod own_host;
mod presets;
mod program;
mod progress_bar;
mod remote;
mod remote_server;
mod sandbox;
mod secrets;
mod serve;
mod server_file;
mod servers;
mod setup;
mod share;
mod skill;
mod start;
mod target;
mod tasks;
mod tools;
mod transport;
mod validate;
mod validation_log;
mod values;
mod wrap;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command, LogCommand, Validate};
use crate::exit::{Failure, report};

/// SemVer plus commit, or SemVer alone where there is no repository.
const VERSION: &str = env!("MAINSTAY_VERSION");

/// The command of a worker.
const WORKER: &str = "worker";

fn main() -> ExitCode {
    // A shim hands its signals on to the server that it starts.
    mainstay_system::restore_file_size_limit();
    // A host blocks its signals, and what it starts inherits that. A program that continues in the place of another one
    // keeps them: some may be waiting.
    if !environment::is_second_start() {
        mainstay_system::unblock_operator_signals();
    }
    // The process between a host and its worker; the command line proper does not know it.
    if let Some(code) = mainstay_host::run_shim(std::env::args_os().skip(1)) {
        return code;
    }
    // The process in which a host checks values; the command line proper does not know it either.
    if let Some(code) = mainstay_host::run_checker(std::env::args_os().skip(1)) {
        return code;
    }
    let mut words: Vec<_> = std::env::args_os().collect();
    // Until it is known whether this is a host, which reads them, and must not end by them before.
    mainstay_system::block_operator_signals();
    // A worker has no secrets of the host's.
    if words.get(1).is_none_or(|word| word != WORKER)
        && let Err(failure) = environment::protect()
    {
        return report(&failure);
    }
    mainstay_system::survive_file_size_limit();
    mainstay_system::return_large_buffers();
    // The process in which a running host lets this executable read its state.
    let is_check = words
        .get(1)
        .is_some_and(|word| word == mainstay_host::CHECK);
    if is_check {
        words.remove(1);
    }
    let arguments = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments,
        Err(error) => {
            // clap writes help and version to stdout with code 0, mistakes to stderr with code 2.
            let _ = error.print();
            let words = words.iter().skip(1);
            let words: Vec<String> = words.map(|word| word.to_string_lossy().into()).collect();
            if let Some(hint) = mistakes::hint(&error, &words) {
                exit::eprint_line(&format!("\nmainstay: hint: {hint}"));
            }
            return ExitCode::from(if error.use_stderr() {
                exit::INPUT
            } else {
                exit::SUCCESS
            });
        }
    };
    match run(arguments, is_check) {
        Ok(code) => code,
        Err(failure) => report(&failure),
    }
}

fn run(arguments: Arguments, is_check: bool) -> Result<ExitCode, Failure> {
    let is_host = match &arguments.command {
        Some(Command::Serve(_) | Command::Wrap(_)) => true,
        Some(Command::Share(share)) => share.is_host(),
        Some(_) => false,
        None => arguments.validate.is_none(),
    };
    if !is_host {
        mainstay_system::unblock_operator_signals();
    }
    if is_check && !is_host {
        return Err(Failure::input(anyhow::anyhow!(
            "this is not a host's command line"
        )));
    }
    match arguments.command {
        // A worker gets all it needs from its host.
        Some(Command::Worker(worker)) => builtin::run_worker(&worker.pack),
        Some(Command::Once(once)) => once::run(&once),
        Some(Command::Log(LogCommand::Diff(diff))) => validation_log::diff(&diff),
        Some(Command::Errors(form)) => errors_page::print_page(form),
        Some(Command::Tasks(tasks)) => tasks::run(&tasks.command),
        Some(Command::Approve(approve)) => approve::run(&approve.command),
        Some(Command::Audit(audit)) => audit::run(&audit.command),
        Some(Command::Cache(cache)) => cache::run(&cache.command),
        Some(Command::Skill(skill)) => skill::run(&skill.command),
        Some(Command::Environment(form)) => environment_page::print_page(form),
        Some(Command::Wrap(wrap)) => wrap::run(&wrap, is_check),
        Some(Command::Share(share)) => share::run(&share, is_check),
        Some(Command::Adopt(adopt)) => adopt::run(&adopt),
        Some(Command::Setup(setup)) => setup::run(&setup),
        Some(Command::Doctor(doctor)) => doctor::run(&doctor),
        Some(Command::Demo(demo)) => demo::run(&demo),
        Some(Command::Call(call)) => call::run(&call),
        Some(Command::Tools(tools)) => tools::run(&tools),
        Some(Command::Lock(lock)) => lock::run(&lock.command),
        Some(Command::Status(status)) => operate::status(&status),
        Some(Command::Stop(stop)) => operate::stop(&stop),
        Some(Command::Rollout(rollout)) => operate::rollout(rollout),
        Some(Command::Upgrade(upgrade)) => operate::upgrade(&upgrade),
        Some(Command::Serve(serve)) => serve::run(&serve, is_check),
        Some(Command::Validate(validate)) => validate::run(&validate),
        None => match arguments.validate {
            Some(path) => validate::run(&Validate {
                path,
                schema: None,
                render: arguments.serve.render,
                config: arguments.serve.packs.config,
            }),
            None => serve::run(&arguments.serve, is_check),
        },
    }
}
