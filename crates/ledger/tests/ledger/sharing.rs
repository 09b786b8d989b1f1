//! Several processes with one file, some of which are killed.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::thread;

use crate::scratch::{ALICE, Host, Scratch, id, new_task};

/// The directory in which a child records tasks until it is killed.
const CHILD: &str = "MAINSTAY_TEST_LEDGER_CHILD";
/// Tasks between the numbers of two children.
const STRIDE: u128 = 1_000_000;
const CHILDREN: u8 = 3;
/// Acknowledgements after which a child is killed.
const LIVES: usize = 40;

/// Runs this test binary again, as a host that records tasks and prints each number once it is durable.
fn child(directory: &Path, number: u8) -> Child {
    let program = std::env::current_exe().unwrap();
    Command::new(program)
        .args(["--exact", "sharing::records_until_killed", "--nocapture"])
        .env(CHILD, format!("{number}:{}", directory.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn records_until_killed() {
    let Ok(what) = std::env::var(CHILD) else {
        return;
    };
    let (number, directory) = what.split_once(':').unwrap();
    let number: u8 = number.parse().unwrap();
    let mut host = Host::start(Path::new(directory), number);
    for step in 1..STRIDE {
        let task = u128::from(number) * STRIDE + step;
        host.record(new_task(task));
        println!("\nrecorded {task}");
    }
}

#[test]
fn hosts_that_share_a_file_and_are_killed_lose_nothing_that_was_acknowledged() {
    let scratch = Scratch::new();
    let mut children: Vec<Child> = (1..=CHILDREN)
        .map(|number| child(scratch.path(), number))
        .collect();
    let mut acknowledged = Vec::new();
    for child in &mut children {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let numbers = lines.map_while(Result::ok).filter_map(|line| {
            let number = line.strip_prefix("recorded ")?;
            number.parse::<u128>().ok()
        });
        for (count, number) in (1..).zip(numbers) {
            acknowledged.push(number);
            if count == LIVES {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
    }
    assert!(acknowledged.len() >= LIVES * usize::from(CHILDREN));
    let mut heir = Host::start(scratch.path(), 100);
    for number in &acknowledged {
        assert!(heir.read(&ALICE, id(*number)).is_some(), "{number} is lost");
    }
    let mut claimed = Vec::new();
    loop {
        let more = heir.claim("pack:ledger@0");
        if more.is_empty() {
            break;
        }
        claimed.extend(more.into_iter().map(|task| task.id));
    }
    for number in acknowledged {
        assert!(claimed.contains(&id(number)), "{number} is not claimed");
    }
}

#[test]
fn hosts_that_make_the_file_at_once_all_open_it() {
    for _ in 0..20 {
        let scratch = Scratch::new();
        let start = Barrier::new(8);
        thread::scope(|scope| {
            for number in 1..=8 {
                let (start, scratch) = (&start, &scratch);
                scope.spawn(move || {
                    start.wait();
                    Host::start(scratch.path(), number);
                });
            }
        });
    }
}
