//! Every way out, tried.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, mknodat};

use super::open::{OpenError, open_stepwise};
use super::*;
use crate::testing::TempDir;

/// A root with a file, a directory and every kind of trap.
fn tree() -> (TempDir, RootedDir) {
    let temp = TempDir::new().unwrap();
    let root = temp.path().join("root");
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::write(temp.path().join("secret"), "secret").unwrap();
    fs::write(root.join("b.txt"), "b").unwrap();
    fs::write(root.join("sub/a.txt"), "aa").unwrap();
    fs::write(root.join("sub/deep/c.txt"), "ccc").unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink("out", root.join("chain")).unwrap();
    symlink(temp.path().join("secret"), root.join("absolute")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("sub/a.txt", root.join("inside")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let fifo = root.join("fifo");
    mknodat(
        CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    let dir = RootedDir::open(&root).unwrap();
    (temp, dir)
}

#[test]
fn a_file_is_read_and_a_link_inside_is_followed() {
    let (_temp, dir) = tree();
    assert_eq!(dir.read("sub/a.txt").unwrap(), b"aa");
    assert_eq!(dir.read("./sub/./a.txt").unwrap(), b"aa");
    assert_eq!(dir.read("inside").unwrap(), b"aa");
}

#[test]
fn no_path_leads_out() {
    let (temp, dir) = tree();
    let absolute = temp.path().join("root/b.txt");
    for path in [
        "../secret",
        "sub/../b.txt",
        "sub/../../secret",
        "..",
        "/etc/passwd",
        absolute.to_str().unwrap(),
        "out",
        "chain",
        "absolute",
        "up/secret",
        "up/root/b.txt",
        "loop",
        "b.txt\0",
        "\0",
    ] {
        let error = dir.read(path).unwrap_err();
        assert!(matches!(error, RootedError::Escapes), "{path:?}: {error:?}");
    }
    assert!(matches!(dir.list("..", false), Err(RootedError::Escapes)));
    assert!(matches!(dir.list("/", true), Err(RootedError::Escapes)));
    assert!(matches!(dir.list("up", true), Err(RootedError::Escapes)));
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let (_temp, dir) = tree();
    let start = Instant::now();
    for path in ["fifo", "sub", ".", ""] {
        assert!(
            matches!(dir.read(path), Err(RootedError::NotAFile)),
            "{path:?}"
        );
    }
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_is_missing_is_not_found() {
    let (_temp, dir) = tree();
    let long = "x".repeat(5000);
    for path in ["none", "sub/none", "b.txt/none", &long] {
        assert!(
            matches!(dir.read(path), Err(RootedError::NotFound)),
            "{path:?}"
        );
    }
}

#[test]
fn a_file_of_exactly_the_limit_is_read_and_one_more_byte_is_not() {
    let (_temp, dir) = tree();
    let dir = dir.with_max_file_bytes(2);
    assert_eq!(dir.read("sub/a.txt").unwrap(), b"aa");
    assert!(matches!(
        dir.read("sub/deep/c.txt"),
        Err(RootedError::TooLarge { limit: 2 })
    ));
}

#[test]
fn a_listing_is_sorted_and_holds_only_files_inside() {
    let (_temp, dir) = tree();
    let paths = |relative: &str, recursive| -> Vec<String> {
        dir.list(relative, recursive)
            .unwrap()
            .into_iter()
            .map(|entry| entry.path)
            .collect()
    };
    assert_eq!(paths("", false), ["b.txt", "inside"]);
    assert_eq!(
        paths(".", true),
        ["b.txt", "inside", "sub/a.txt", "sub/deep/c.txt"]
    );
    assert_eq!(paths("sub", true), ["sub/a.txt", "sub/deep/c.txt"]);
    assert_eq!(paths("sub/", false), ["sub/a.txt"]);
    let sizes: Vec<u64> = dir
        .list("sub", true)
        .unwrap()
        .iter()
        .map(|entry| entry.bytes)
        .collect();
    assert_eq!(sizes, [2, 3]);
}

#[test]
fn a_survey_counts_the_directories_that_lie_too_deep() {
    let (temp, dir) = tree();
    let deep = vec!["d"; 33].join("/");
    fs::create_dir_all(temp.path().join("root").join(&deep)).unwrap();
    fs::write(temp.path().join("root").join(&deep).join("lost"), "").unwrap();
    let survey = dir.survey("", true).unwrap();
    assert_eq!((survey.files.len(), survey.too_deep), (4, 1));
    assert_eq!(dir.survey("", false).unwrap().too_deep, 0);
}

#[test]
fn the_way_without_openat2_follows_no_link_at_all() {
    let (_temp, dir) = tree();
    let open = |path: &str| {
        open_stepwise(
            &dir.fd,
            Path::new(path),
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        )
    };
    assert!(open("sub/deep/c.txt").is_ok());
    for path in ["out", "chain", "inside", "absolute", "up/secret", "loop"] {
        let error: OpenError = open(path).unwrap_err();
        let error = error.at(path.into());
        // A link in the middle is not a directory, one at the end is a loop of length one.
        assert!(
            matches!(error, RootedError::Escapes | RootedError::NotFound),
            "{path}: {error:?}"
        );
    }
}

#[test]
fn a_root_must_be_a_directory() {
    let (temp, _dir) = tree();
    assert!(RootedDir::open(temp.path().join("secret")).is_err());
    assert!(RootedDir::open(temp.path().join("none")).is_err());
}
