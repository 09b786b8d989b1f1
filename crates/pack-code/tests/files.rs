//! Showing files, damaged indexes, and the cache.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod support;

use std::fs;

use mainstay_pack_code::{CodeSettings, cache, pack};
use mainstay_worker::ErrorKind;
use serde_json::{Value, json};

use support::{FILES, Place, call, refused, search, small_place as place, wait_until};

// covers: show_file.path, show_file.start_line, show_file.end_line, show_file.max_bytes
#[test]
fn a_file_is_shown_whole_or_in_part() {
    let (place, pack) = place();
    let show = |arguments: Value| call(&pack, "show_file", &arguments);
    let whole = show(json!({"path": "src/router.rs"}));
    assert_eq!(
        whole["text"].as_str().unwrap().trim_end(),
        FILES[0].1.trim_end()
    );
    assert_eq!(
        (whole["total_lines"].as_u64(), whole["truncated"].as_bool()),
        (Some(11), Some(false))
    );
    let part = show(json!({"path": "./src/router.rs", "start_line": 3, "end_line": 5}));
    assert_eq!(
        part["text"],
        "pub struct Router {\n    routes: Vec<Route>,\n}"
    );
    assert_eq!(
        (part["start_line"].as_u64(), part["end_line"].as_u64()),
        (Some(3), Some(5))
    );
    let cut = show(json!({"path": "src/router.rs", "max_bytes": 40}));
    assert_eq!(
        (cut["truncated"].as_bool(), cut["end_line"].as_u64()),
        (Some(true), Some(2))
    );
    assert!(cut["text"].as_str().unwrap().len() <= 40);
    place.write("blank.txt", "# Mainstay\n\nA host\n");
    for max_bytes in 1..20 {
        let cut = show(json!({"path": "blank.txt", "max_bytes": max_bytes}));
        let bytes = cut["text"].as_str().unwrap().len();
        assert!(bytes <= max_bytes, "{bytes} of {max_bytes}");
    }
    place.write("utf16.txt", [0xff, 0xfe, b'h', 0, b'i', 0]);
    assert_eq!(show(json!({"path": "utf16.txt"}))["encoding"], "utf-16le");
    place.write("latin1.txt", b"caf\xe9");
    assert_eq!(
        show(json!({"path": "latin1.txt"}))["encoding"],
        "unknown-8bit"
    );
    place.write("binary", b"a\0b");
    for (arguments, kind) in [
        (json!({"path": "../secret"}), ErrorKind::InvalidArguments),
        (json!({"path": "/etc/passwd"}), ErrorKind::InvalidArguments),
        (json!({"path": "absent.rs"}), ErrorKind::NotFound),
        (json!({"path": "src"}), ErrorKind::NotFound),
        (json!({"path": "binary"}), ErrorKind::InvalidArguments),
        (
            json!({"path": "src/router.rs", "start_line": 99}),
            ErrorKind::InvalidArguments,
        ),
        (
            json!({"path": "src/router.rs", "start_line": 5, "end_line": 2}),
            ErrorKind::InvalidArguments,
        ),
    ] {
        let (found, said) = refused(&pack, "show_file", &arguments);
        assert_eq!(found, kind, "{arguments}: {said}");
    }
}

// covers: show_file.symbol, show_file.outline, show_file.expect_sha
#[test]
fn a_definition_an_outline_and_a_checked_version_are_shown() {
    let (_place, pack) = place();
    let show = |arguments: Value| call(&pack, "show_file", &arguments);
    let symbol = show(json!({"path": "src/router.rs", "symbol": "add_route"}));
    assert_eq!(
        (symbol["start_line"].as_u64(), symbol["end_line"].as_u64()),
        (Some(8), Some(10))
    );
    let said = refused(
        &pack,
        "show_file",
        &json!({"path": "src/router.rs", "symbol": "nothing"}),
    );
    assert!(said.1.contains("it defines: Router"), "{said:?}");
    let outline = show(json!({"path": "src/router.rs", "outline": true}));
    let names: Vec<&str> = outline["outline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Router", "add_route"]);
    assert!(outline.get("text").is_none());
    let sha = outline["sha"].as_str().unwrap().to_owned();
    assert_eq!(sha.len(), 64);
    show(json!({"path": "src/router.rs", "expect_sha": sha.to_uppercase()}));
    let (kind, said) = refused(
        &pack,
        "show_file",
        &json!({"path": "src/router.rs", "expect_sha": "0".repeat(64)}),
    );
    assert_eq!(kind, ErrorKind::InvalidArguments);
    assert!(said.contains(&sha), "{said}");
    let both = refused(
        &pack,
        "show_file",
        &json!({"path": "src/router.rs", "symbol": "x", "start_line": 1}),
    );
    assert!(both.1.contains("exclude"), "{both:?}");
}

#[test]
fn a_damaged_index_is_noticed_answered_around_and_repaired() {
    let (place, pack) = place();
    assert_eq!(
        search(&pack, &json!({"query": "add_route", "kind": "literal"}))["total"]["value"],
        3
    );
    drop(pack);
    let folder = fs::read_dir(place.cache().join("code"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    for ending in ["tri", "term", "docs"] {
        let file = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|found| found == ending))
            .unwrap();
        let mut bytes = fs::read(&file).unwrap();
        let length = bytes.len();
        for byte in &mut bytes[..length / 2] {
            *byte ^= 0x55;
        }
        fs::write(&file, &bytes).unwrap();
        let pack = place.open();
        let answer = search(&pack, &json!({"query": "add_route", "kind": "literal"}));
        assert_eq!(answer["total"]["value"], 3, "{ending}: {answer}");
        wait_until("it is repaired", || {
            call(&pack, "index_build", &json!({}));
            let answer = search(&pack, &json!({"query": "router maps", "kind": "ranked"}));
            answer["fresh"] == true && !answer["hits"].as_array().unwrap().is_empty()
        });
        assert_eq!(
            search(&pack, &json!({"query": "add_route", "kind": "literal"}))["scanned"],
            false
        );
    }
    fs::write(folder.join("manifest"), "nonsense").unwrap();
    let pack = place.open();
    assert_eq!(
        search(&pack, &json!({"query": "add_route", "kind": "literal"}))["total"]["value"],
        3
    );
}

#[test]
fn the_cache_lists_its_indexes_and_forgets_them() {
    let (place, pack) = place();
    drop(pack);
    let indexes = cache::list(&place.cache()).unwrap();
    assert_eq!(indexes.len(), 1);
    assert_eq!(
        indexes[0].root,
        place.root().canonicalize().unwrap().to_string_lossy()
    );
    assert!(indexes[0].bytes > 0 && indexes[0].generation > 0);
    wait_until("the keeper has let go", || {
        cache::clear(&indexes[0]).unwrap()
    });
    assert!(cache::list(&place.cache()).unwrap().is_empty());
    assert!(
        cache::list(&place.cache().join("absent"))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn indexes_past_the_size_of_the_cache_go_oldest_first() {
    let one = Place::with(FILES);
    drop(one.built());
    let two = Place::with(FILES);
    let settings = CodeSettings {
        cache_dir: Some(one.cache()),
        cache_bytes: Some(1),
        ..two.settings()
    };
    let pack = pack(&settings, "0.0.0").unwrap();
    // The keeper of the first pack may still hold its lock for a moment.
    wait_until("only the newer one is left", || {
        call(&pack, "index_build", &json!({"mode": "full"}));
        cache::list(&one.cache()).unwrap().len() == 1
    });
    let left = cache::list(&one.cache()).unwrap();
    assert_eq!(
        left[0].root,
        two.root().canonicalize().unwrap().to_string_lossy()
    );
    assert_eq!(
        search(&pack, &json!({"query": "add_route", "kind": "literal"}))["total"]["value"],
        3
    );
}
