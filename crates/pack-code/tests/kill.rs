//! Workers killed with -9 in the middle of builds, again and again.
//!
//! The test runs itself: with `AS_WORKER` as its first argument it is the worker that builds.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test, though without the harness by which clippy knows one"
)]

mod support;

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use mainstay_pack_code::{CodeSettings, RootSetting, pack};
use serde_json::json;

use support::{Dice, Place, call, search, wait_until};

const AS_WORKER: &str = "--as-worker";
const FILES: usize = 600;
const ROUNDS: usize = 12;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, root, cache] = arguments.as_slice()
        && first == AS_WORKER
    {
        let settings = CodeSettings {
            roots: vec![RootSetting::at(root)],
            cache_dir: Some(cache.into()),
            ..CodeSettings::default()
        };
        let pack = pack(&settings, "0.0.0").unwrap();
        loop {
            call(&pack, "index_build", &json!({"mode": "full"}));
        }
    }
    let name = "a_killed_build_leaves_the_index_usable_and_the_next_one_repairs_it";
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    // What test runners ask of a harness: the list, and single tests by name.
    if has("--list") {
        if !has("--ignored") {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let named: Vec<&String> = arguments
        .iter()
        .filter(|word| !word.starts_with("--"))
        .collect();
    if named.is_empty() || named.iter().any(|part| name.contains(*part)) {
        killed();
        println!("test {name} ... ok");
    }
    println!("\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
    ExitCode::SUCCESS
}

fn killed() {
    let place = Place::new();
    for number in 0..FILES {
        let text = format!("fn common_{number}() {{}}\n").repeat(40);
        place.write(&format!("d{}/f{number}.rs", number % 10), text);
    }
    let mut dice = Dice(0x6b69_6c6c_5eed);
    let mut usable_before = false;
    for round in 0..ROUNDS {
        let mut worker = Command::new(std::env::current_exe().unwrap())
            .arg(AS_WORKER)
            .arg(place.root())
            .arg(place.cache())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(20 + dice.below(400) as u64));
        // The tree changes under the build, too.
        let edited = format!("d{}/f{round}.rs", round % 10);
        place.write(&edited, format!("fn edited_{round}() {{}}\n"));
        worker.kill().unwrap();
        worker.wait().unwrap();
        let pack = place.open();
        let status = call(&pack, "index_status", &json!({}));
        let usable = status["generation"].as_u64().unwrap() > 0;
        assert!(usable || !usable_before, "a generation was lost: {status}");
        // Nobody asks for a build: it becomes fresh on its own, or is not there yet.
        wait_until("it is fresh", || {
            let answer = search(
                &pack,
                &json!({"query": format!("edited_{round}"), "kind": "literal"}),
            );
            assert_ne!(answer["total"]["value"].as_u64(), Some(2), "{answer}");
            answer["fresh"] == true && answer["total"]["value"] == 1 && answer["generation"] != 0
        });
        let answer = search(
            &pack,
            &json!({"query": "common_599", "kind": "literal", "limit": 1}),
        );
        assert!(answer["total"]["value"].as_u64().unwrap() >= 1, "{answer}");
        usable_before = true;
    }
    let pack = place.built();
    let answer = search(
        &pack,
        &json!({"query": r"fn common_\d+", "kind": "regex", "path": ["d9"], "limit": 1}),
    );
    assert!(answer["total"]["value"].as_u64().unwrap() >= 1);
}
