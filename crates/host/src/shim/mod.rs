//! The shim: the small process between the host and a worker, which holds the worker's tree
//! together and kills it.
//!
//! It is the program `mainstay shim RUNG SANDBOX CALLED PROGRAM ARGUMENTS...`, run by the host only. Its
//! standard input is the lifeline (`crate::process::lifeline`), its standard error the worker's; the
//! worker's other pipes come over the lifeline and pass through untouched. The tree is held by the
//! strongest rung there is:
//!
//! * **PID namespace** ([`namespace`]), where the host may make one: the shim starts a second stage
//!   of itself as the first process of a namespace, and waits. When the second stage ends, by
//!   whatever cause, the kernel kills everything in the namespace and lets nothing be forked;
//! * **subreaper**, everywhere else: what loses its parent becomes the shim's child, and `/proc` is
//!   swept for descendants until there is none.
//!
//! Both end when `wait` says that there is no child left, which for a subreaper and for the first
//! process of a namespace means: nothing of the tree is left ([`keeper`]).
//!
//! A sandboxed worker is started in two more steps ([`sandbox`]): the shim enters the namespaces of its policy, and a
//! last stage restricts itself before it executes the worker. Stages are copies of their process where it has one thread:
//! that costs a fraction of executing the host's program again.
//!
//! Deliberately absent without a sandbox. User namespaces: they would give the other rung to everybody, but files of
//! other owners look as if they had no owner in there, and programs such as ssh and sudo then
//! refuse to work. Control groups: entering one costs tens of milliseconds (the kernel waits for a
//! grace period), more than the whole start of a worker may take.

mod keeper;
mod namespace;
mod sandbox;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::AsFd;
use std::process::ExitCode;

use rustix::process::DumpableBehavior;

pub(crate) use self::sandbox::UNCONFINED;
use crate::config::{Command, TreeKill};
use crate::process::{Report, Rung};

/// Name of shims in a listing of processes.
pub(crate) const NAME: &str = "mainstay-shim";
/// The word on the command line.
const WORD: &str = "shim";
/// Instead of a rung: this is the second stage.
const INIT: &str = "init";

/// In the fault of a worker that its shim did not start.
pub(crate) const NOT_STARTED: &str = "cannot be started as";
/// The exit code of a shim that failed.
const FAILED: u8 = 1;

/// The worker that a shim starts.
struct Worker {
    /// Its sandbox as JSON; empty without one.
    sandbox: OsString,
    called: OsString,
    program: OsString,
    arguments: Vec<OsString>,
}

impl Worker {
    fn parse(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        Some(Self {
            sandbox: words.next()?,
            called: words.next()?,
            program: words.next()?,
            arguments: words.collect(),
        })
    }

    fn words(&self) -> impl Iterator<Item = &OsStr> {
        let front = [
            self.sandbox.as_os_str(),
            self.called.as_os_str(),
            self.program.as_os_str(),
        ];
        let arguments = self.arguments.iter().map(OsString::as_os_str);
        front.into_iter().chain(arguments)
    }
}

/// The command line of a shim.
pub(crate) fn arguments(tree_kill: TreeKill, command: &Command) -> Vec<OsString> {
    let called = command.called.clone().unwrap_or_default();
    let sandbox = command.sandbox.as_deref().map(sandbox::written);
    let front = [
        OsString::from(WORD),
        OsString::from(tree_kill.as_str()),
        sandbox.unwrap_or_default(),
        OsString::from(called),
        OsString::from(&command.program),
    ];
    front.into_iter().chain(command.arguments.clone()).collect()
}

/// Runs a shim, if that is what the command line asks for. It is asked before anything else is
/// parsed: a shim stands before every start of a worker.
pub fn run_shim(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if words.next()? != WORD {
        return None;
    }
    let rung = words.next();
    let worker = Worker::parse(words);
    let parsed = rung.as_deref().and_then(OsStr::to_str).zip(worker);
    let Some((rung, worker)) = parsed else {
        let usage = "mainstay: error: a shim is started by the host itself";
        let _ = writeln!(std::io::stderr(), "{usage}");
        return Some(ExitCode::from(2));
    };
    // The process was started through a descriptor and would be called by its number.
    let _ = rustix::thread::set_name(c"mainstay-shim");
    // A worker of the same user must not be able to trace the process that reaps it.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let code = match rung {
        INIT => namespace::second_stage(&worker),
        _ if !worker.sandbox.is_empty() => sandbox::first_stage(&worker),
        "subreaper" => keep_as_subreaper(&worker),
        wanted => match namespace::first_stage(&worker) {
            Ok(()) => 0,
            Err(error) if wanted == TreeKill::Namespace.as_str() => {
                refuse(&format!("PID namespaces do not work here: {error}"))
            }
            Err(_) => keep_as_subreaper(&worker),
        },
    };
    Some(ExitCode::from(code))
}

fn keep_as_subreaper(worker: &Worker) -> u8 {
    match rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        Ok(()) => keeper::keep(Rung::Subreaper, worker, keeper::number_of),
        Err(error) => refuse(&format!("the shim cannot become a subreaper: {error}")),
    }
}

/// Nothing was started. Returns the exit code.
fn refuse(why: &str) -> u8 {
    let lifeline = std::io::stdin();
    Report::NotStarted(why.to_owned()).send(lifeline.as_fd());
    Report::Gone.send(lifeline.as_fd());
    FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_shim_makes_a_shim() {
        for words in [&["serve"][..], &["--pack", "shim"], &[]] {
            assert!(run_shim(words.iter().map(OsString::from)).is_none());
        }
    }

    #[test]
    fn a_worker_is_read_as_it_was_written() {
        let command = Command {
            program: "prog".into(),
            called: None,
            arguments: vec!["--flag".into(), "".into(), "shim".into()],
            without_env: Vec::new(),
            env: Vec::new(),
            secrets: Vec::new(),
            cwd: None,
            sandbox: None,
        };
        let words = arguments(TreeKill::Auto, &command);
        assert_eq!(words.first().unwrap(), WORD);
        let worker = Worker::parse(words.iter().skip(2).cloned()).unwrap();
        assert_eq!(worker.called, "");
        assert_eq!(worker.program, "prog");
        assert_eq!(worker.arguments, command.arguments);
        assert!(
            worker
                .words()
                .eq(words.iter().skip(2).map(OsString::as_os_str))
        );
    }
}
