//! Trees that are out to harm.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use support::{Place, call, paths, search, try_call};

fn literal(query: &str) -> serde_json::Value {
    json!({"query": query, "kind": "literal", "limit": 200})
}

#[test]
fn links_pipes_and_odd_names_neither_hang_nor_lead_out() {
    let place = Place::with(&[("a.txt", "needle\n"), ("sub/b.txt", "needle\n")]);
    let root = place.root();
    fs::write(place.dir.path().join("secret.txt"), "needle secret\n").unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("..", root.join("sub/again")).unwrap();
    symlink("../secret.txt", root.join("secret.txt")).unwrap();
    symlink("a.txt", root.join("inside.txt")).unwrap();
    mknodat(
        CWD,
        root.join("pipe.txt"),
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    fs::write(root.join(OsStr::from_bytes(b"bad\xff.txt")), "needle\n").unwrap();
    fs::write(root.join("new\nline.txt"), "needle\n").unwrap();
    fs::write(root.join("locked.txt"), "needle\n").unwrap();
    fs::set_permissions(root.join("locked.txt"), fs::Permissions::from_mode(0o000)).unwrap();
    let started = Instant::now();
    let pack = place.built();
    let answer = search(&pack, &literal("needle"));
    assert!(started.elapsed() < Duration::from_secs(120));
    let found = paths(&answer);
    for path in ["a.txt", "sub/b.txt", "new\nline.txt"] {
        assert!(found.contains(&path.to_owned()), "{found:?}");
    }
    for path in [
        "secret.txt",
        "inside.txt",
        "pipe.txt",
        "up/tree/a.txt",
        "sub/again/a.txt",
    ] {
        assert!(!found.contains(&path.to_owned()), "{found:?}");
    }
    assert!(
        answer["skipped"]["files"].to_string().contains("bad"),
        "{answer}"
    );
    for path in [
        "up/secret.txt",
        "secret.txt",
        "pipe.txt",
        "loop",
        "../secret.txt",
    ] {
        assert!(
            try_call(&pack, "show_file", &json!({"path": path})).is_err(),
            "{path}"
        );
    }
    assert_eq!(
        call(&pack, "show_file", &json!({"path": "inside.txt"}))["text"],
        "needle"
    );
}

fn pipe(path: &std::path::Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// What `check_status` says about ignore files.
fn about_ignore_files(pack: &mainstay_worker::Pack) -> String {
    let status = call(pack, "check_status", &json!({}));
    let checks = status["checks"].as_array().unwrap();
    let of_ignore = |check: &&serde_json::Value| check["id"] == "tree.ignore";
    let found = checks.iter().find(of_ignore);
    found.map_or_else(String::new, |check| check["message"].to_string())
}

#[test]
fn ignore_files_that_are_no_files_are_passed_over() {
    let (done, ended) = std::sync::mpsc::sync_channel(1);
    // A read of a pipe never ends, so another thread waits for the end.
    std::thread::spawn(move || {
        let place = Place::with(&[
            ("a.txt", "needle\n"),
            ("sub/b.txt", "needle\n"),
            ("good/.gitignore", "out.txt\n"),
            ("good/out.txt", "needle\n"),
            ("good/in.txt", "needle\n"),
        ]);
        let root = place.root();
        fs::create_dir_all(root.join(".git/info")).unwrap();
        pipe(&root.join(".git/info/exclude"));
        pipe(&root.join(".ignore"));
        pipe(&place.dir.path().join(".ignore"));
        pipe(&root.join("sub/.gitignore"));
        symlink("/dev/zero", root.join(".rgignore")).unwrap();
        let sparse = fs::File::create(root.join(".gitignore")).unwrap();
        sparse.set_len(3 << 30).unwrap();
        let pack = place.built();
        let answer = search(&pack, &literal("needle"));
        support::wait_until("the tree is swept", || {
            !about_ignore_files(&pack).is_empty()
        });
        done.send((paths(&answer), about_ignore_files(&pack)))
            .unwrap();
    });
    let (found, said) = ended.recv_timeout(Duration::from_secs(200)).unwrap();
    assert_eq!(found, ["a.txt", "good/in.txt", "sub/b.txt"]);
    for said_of in [
        ".git/info/exclude is not a regular file",
        ".gitignore has over 1048576 bytes",
        ".ignore is not a regular file",
        ".rgignore is a link",
        "sub/.gitignore is not a regular file",
    ] {
        assert!(said.contains(said_of), "{said_of}: {said}");
    }
}

#[test]
fn a_link_from_an_ignore_file_is_followed_within_the_root_only() {
    let place = Place::with(&[
        ("a.txt", "needle\n"),
        ("b.txt", "needle\n"),
        ("sub/a.txt", "needle\n"),
        ("sub/b.txt", "needle\n"),
        ("rules", "b.txt\n"),
    ]);
    fs::write(place.dir.path().join("outside"), "a.txt\n").unwrap();
    symlink("../outside", place.root().join(".ignore")).unwrap();
    symlink("../rules", place.root().join("sub/.ignore")).unwrap();
    let pack = place.built();
    let answer = search(&pack, &literal("needle"));
    assert_eq!(paths(&answer), ["a.txt", "b.txt", "sub/a.txt"], "{answer}");
    support::wait_until("the tree is swept", || {
        about_ignore_files(&pack).contains("leads out of the root")
    });
}

#[test]
fn a_file_that_becomes_a_link_out_is_not_followed() {
    let place = Place::with(&[("a.txt", "needle\n"), ("b.txt", "needle\n")]);
    fs::write(place.dir.path().join("secret.txt"), "needle secret\n").unwrap();
    let pack = place.built();
    fs::remove_file(place.root().join("a.txt")).unwrap();
    symlink("../secret.txt", place.root().join("a.txt")).unwrap();
    let answer = search(&pack, &literal("needle"));
    assert_eq!(paths(&answer), ["b.txt"], "{answer}");
}

#[test]
fn files_that_change_while_they_are_read_do_no_harm() {
    let place = Place::new();
    for number in 0..50 {
        place.write(&format!("f{number}.txt"), "steady needle\n".repeat(2000));
    }
    let stop = AtomicBool::new(false);
    let pack = place.open();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0_usize;
            while !stop.load(Ordering::Relaxed) {
                let path = place.root().join(format!("f{}.txt", round % 50));
                let text = "steady needle\n".repeat(round % 3000);
                if round.is_multiple_of(7) {
                    let _ = fs::remove_file(&path);
                } else {
                    fs::write(&path, text).unwrap();
                }
                round += 1;
            }
        });
        for _ in 0..6 {
            let built = call(&pack, "index_build", &json!({"mode": "full"}));
            assert_eq!(built["state"], "done", "{built}");
            search(&pack, &literal("needle"));
            search(&pack, &json!({"query": "steady needle"}));
        }
        stop.store(true, Ordering::Relaxed);
    });
    for number in 0..50 {
        place.write(&format!("f{number}.txt"), "settled\n");
    }
    support::wait_until("it is fresh", || {
        search(&pack, &literal("settled"))["fresh"] == true
    });
    assert_eq!(search(&pack, &literal("settled"))["total"]["value"], 50);
    assert_eq!(search(&pack, &literal("needle"))["total"]["value"], 0);
}

#[test]
fn a_file_is_found_under_as_many_folders_as_a_path_can_name() {
    let place = Place::with(&[("a.txt", "needle\n")]);
    let root = place.root();
    let most = (4096 - root.as_os_str().len() - "/deep.txt".len() - 1) / 2;
    let deep = [300, most].map(|folders| format!("{}deep.txt", "d/".repeat(folders)));
    for path in &deep {
        place.write(path, "needle at the bottom\n");
    }
    let pack = place.built();
    let found = paths(&search(&pack, &literal("at the bottom")));
    let mut expected = deep.to_vec();
    expected.sort();
    assert_eq!(found, expected);
    place.write(&deep[0], "needle that has moved\n");
    let moved = search(&pack, &literal("has moved"));
    assert_eq!(paths(&moved), [deep[0].clone()], "a change is seen, too");
}

/// Files that a repository may well have.
const MANY: u64 = 100_000;

#[test]
fn deep_nesting_and_many_small_files_are_indexed() {
    let place = Place::new();
    let deep = "d/".repeat(120);
    place.write(&format!("{deep}deep.txt"), "needle at the bottom\n");
    for number in 0..MANY {
        let path = place.root().join(format!("many/{}", number % 300));
        if number < 300 {
            fs::create_dir_all(&path).unwrap();
        }
        fs::write(
            path.join(format!("f{number}.txt")),
            format!("small {number}\n"),
        )
        .unwrap();
    }
    let pack = place.built();
    assert_eq!(
        search(&pack, &literal("at the bottom"))["total"]["value"],
        1
    );
    assert_eq!(search(&pack, &literal("small 99999"))["total"]["value"], 1);
    let status = call(&pack, "index_status", &json!({}));
    assert_eq!(status["files"], MANY + 1);
}

#[test]
fn hostile_queries_end_in_an_answer_or_a_clear_refusal() {
    let place = Place::with(&[("a.txt", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\n")]);
    let pack = place.built();
    let long = "a".repeat(4000);
    let nested = "(".repeat(500);
    let started = Instant::now();
    for query in [
        "(a+)+$",
        "(a|a)*b",
        "a{1000}{1000}",
        "(?i)ſ{50}",
        "\\w{5000}",
        &long,
        &nested,
        "\u{0}",
        "[[:alpha:]",
        "(?P<x>a)(?P<x>b)",
        "\\p{Nope}",
        "a\\nb",
        "(?s).*",
        "^",
        "$",
        "\\b",
    ] {
        for kind in ["regex", "literal", "ranked", "symbol", "path", "auto"] {
            let _ = try_call(&pack, "search", &json!({"query": query, "kind": kind}));
        }
    }
    assert!(
        started.elapsed() < Duration::from_secs(300),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(search(&pack, &literal("aaaa"))["total"]["value"], 1);
}
