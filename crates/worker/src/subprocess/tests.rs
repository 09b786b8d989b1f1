//! Real processes that fork, flood, hang and refuse to die.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::Problem;

use super::*;
use crate::cancel::CancelToken;
use crate::context::Context;
use crate::testing::{TempDir, context, context_with_grace};

const SOON: Duration = Duration::from_secs(60);

fn sh(script: &str) -> Subprocess {
    Subprocess::new("/bin/sh").args(["-c", script])
}

fn free() -> Context {
    context(CancelToken::new())
}

/// Runs `script` with `$0` as its directory, and cancels once the file `started` is there.
fn cancelled(script: &str, grace: Duration, dir: &Path) -> (Result<Output, Problem>, Duration) {
    let cancel = CancelToken::new();
    let context = context_with_grace(cancel.clone(), grace);
    let started = dir.join("started");
    let canceller = std::thread::spawn(move || {
        let deadline = Instant::now() + SOON;
        while !started.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        cancel.cancel();
        Instant::now()
    });
    let script = Subprocess::new("/bin/sh")
        .args(["-c", script])
        .current_dir(dir);
    let outcome = script.run(&context);
    let ended = Instant::now();
    (
        outcome,
        ended.saturating_duration_since(canceller.join().unwrap()),
    )
}

fn pid_in(path: &Path) -> u32 {
    fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

/// Gone, or a zombie that only waits for its new parent.
fn is_dead(pid: u32) -> bool {
    let deadline = Instant::now() + SOON;
    loop {
        let dead = match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat
                .rsplit(')')
                .next()
                .unwrap()
                .trim()
                .starts_with(['Z', 'X']),
            Err(_) => true,
        };
        if dead || Instant::now() >= deadline {
            return dead;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn output_status_and_input_arrive() {
    let output = sh("cat; echo oops >&2; exit 3")
        .stdin("hello")
        .run(&free())
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout.text(), "hello");
    assert_eq!(output.stderr.text(), "oops\n");
    assert!(!output.stdout.truncated);
}

#[test]
fn large_input_and_output_do_not_deadlock() {
    let input = vec![b'x'; 700_000];
    let output = sh("cat").stdin(input.clone()).run(&free()).unwrap();
    assert_eq!(output.stdout.bytes.len(), input.len());
    // A child that does not read its input does no harm either.
    let output = sh("exec 0<&-; echo done")
        .stdin(input)
        .run(&free())
        .unwrap();
    assert_eq!(output.stdout.text(), "done\n");
}

#[test]
fn a_flood_is_cut_and_the_child_is_not_blocked_by_it() {
    let flood = "head -c 3000000 /dev/zero; echo end >&2";
    let output = sh(flood).capture_bytes(1000).run(&free()).unwrap();
    assert_eq!(output.stdout.bytes.len(), 1000);
    assert!(output.stdout.truncated);
    assert_eq!(output.stderr.text(), "end\n");
    assert!(output.status.success());
}

#[test]
fn environment_and_directory_are_as_told() {
    let dir = TempDir::new().unwrap();
    let script = sh("echo $GREETING $HOME; pwd")
        .env_clear()
        .env("GREETING", "hi");
    let output = script.current_dir(dir.path()).run(&free()).unwrap();
    let here = fs::canonicalize(dir.path()).unwrap();
    assert_eq!(output.stdout.text(), format!("hi\n{}\n", here.display()));
}

#[test]
fn a_cancel_kills_the_whole_tree() {
    let dir = TempDir::new().unwrap();
    let script = "echo $$ > parent; sleep 1000 & echo $! > child; echo before; : > started; sleep 1000; echo after";
    let (outcome, took) = cancelled(script, 10 * SOON, dir.path());
    let problem = outcome.unwrap_err();
    assert_eq!(problem.kind, ErrorKind::Cancelled);
    assert_eq!(problem.stdout.as_deref(), Some("before\n"));
    assert!(took < SOON, "{took:?}");
    assert!(is_dead(pid_in(&dir.path().join("parent"))));
    assert!(is_dead(pid_in(&dir.path().join("child"))));
}

#[test]
fn a_tree_that_ignores_term_is_killed_after_the_grace() {
    let dir = TempDir::new().unwrap();
    let grace = Duration::from_millis(300);
    let script = "trap '' TERM; echo $$ > parent; (while :; do sleep 1; done) & echo $! > child; : > started; while :; do sleep 1; done";
    let (outcome, took) = cancelled(script, grace, dir.path());
    assert_eq!(outcome.unwrap_err().kind, ErrorKind::Cancelled);
    assert!(took >= grace && took < SOON, "{took:?}");
    assert!(is_dead(pid_in(&dir.path().join("parent"))));
    assert!(is_dead(pid_in(&dir.path().join("child"))));
}

#[test]
fn a_tree_may_clean_up_within_the_grace() {
    let dir = TempDir::new().unwrap();
    let script =
        "trap 'sleep 0.1; : > cleaned; exit 0' TERM; : > started; while :; do sleep 0.05; done";
    let (outcome, _) = cancelled(script, SOON, dir.path());
    assert_eq!(outcome.unwrap_err().kind, ErrorKind::Cancelled);
    assert!(dir.path().join("cleaned").exists());
}

#[test]
fn a_timeout_stops_the_program_and_says_after_how_long() {
    let start = Instant::now();
    let script = sh("echo early; sleep 1000").timeout(Duration::from_secs(4));
    let problem = script.run(&free()).unwrap_err();
    assert_eq!(
        (problem.kind, problem.timeout_ms),
        (ErrorKind::Timeout, Some(4000))
    );
    assert_eq!(problem.stdout.as_deref(), Some("early\n"));
    assert!(start.elapsed() < SOON);
}

#[test]
fn what_a_program_leaves_behind_is_killed_when_it_ends() {
    let dir = TempDir::new().unwrap();
    let start = Instant::now();
    let script = sh("sleep 1000 & echo $! > child; echo done").current_dir(dir.path());
    let output = script.run(&free()).unwrap();
    assert_eq!(output.stdout.text(), "done\n");
    assert!(start.elapsed() < SOON);
    assert!(is_dead(pid_in(&dir.path().join("child"))));
}

#[test]
fn a_program_that_is_not_there_is_a_missing_capability() {
    let problem = Subprocess::new("no-such-program-anywhere")
        .run(&free())
        .unwrap_err();
    assert_eq!(problem.kind, ErrorKind::CapabilityMissing);
    assert!(
        problem
            .hint
            .unwrap()
            .contains("install no-such-program-anywhere")
    );
}

#[test]
fn when_the_host_has_gone_every_tree_dies_and_none_starts() {
    let dir = TempDir::new().unwrap();
    let context = free();
    let trees = std::sync::Arc::clone(&context.surroundings.trees);
    let started = dir.path().join("started");
    let killer = std::thread::spawn(move || {
        let deadline = Instant::now() + SOON;
        while !started.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        trees.kill_all();
    });
    let script = "sleep 1000 & echo $! > child; : > started; sleep 1000";
    let output = sh(script).current_dir(dir.path()).run(&context).unwrap();
    assert!(!output.status.success());
    killer.join().unwrap();
    assert!(is_dead(pid_in(&dir.path().join("child"))));
    assert_eq!(
        sh("true").run(&context).unwrap_err().kind,
        ErrorKind::CapabilityMissing
    );
}
