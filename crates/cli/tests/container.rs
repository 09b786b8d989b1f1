//! The image, as far as it can be checked without an engine: what its file says, and whether the
//! program does its part for a user other than root.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mainstay_testkit::process::TempDir;

/// The user of the image.
const UID: &str = "65532";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The instructions of the last stage, continuation lines joined.
fn final_stage() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(repository().join("Dockerfile")).unwrap();
    let joined = text.replace("\\\n", " ");
    let instructions = joined
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let (name, rest) = line.trim().split_once(' ').unwrap();
            let rest: Vec<&str> = rest.split_whitespace().collect();
            (name.to_owned(), rest.join(" "))
        });
    let mut stage = Vec::new();
    for instruction in instructions {
        if instruction.0 == "FROM" {
            stage.clear();
        }
        stage.push(instruction);
    }
    stage
}

fn only(stage: &[(String, String)], name: &str) -> String {
    let mut found = stage.iter().filter(|(instruction, _)| instruction == name);
    let (_, value) = found.next().unwrap_or_else(|| panic!("{name} is missing"));
    assert!(found.next().is_none(), "{name} stands twice");
    value.clone()
}

/// The command of the health check, as the image runs it.
fn health_check(stage: &[(String, String)]) -> Vec<String> {
    let check = only(stage, "HEALTHCHECK");
    let (_, command) = check.split_once("CMD ").unwrap();
    serde_json::from_str(command).unwrap()
}

#[test]
fn the_final_image_runs_as_a_user_other_than_root() {
    let stage = final_stage();
    assert_eq!(only(&stage, "USER"), format!("{UID}:{UID}"));
    let place = |name: &str| {
        stage
            .iter()
            .position(|(instruction, _)| instruction == name)
    };
    assert!(
        place("USER") < place("ENTRYPOINT"),
        "the program starts after root was dropped"
    );
    let after = stage.iter().skip(place("USER").unwrap() + 1);
    for (instruction, value) in after {
        assert!(
            !["RUN", "COPY", "ADD", "USER"].contains(&instruction.as_str()),
            "{instruction} {value} after USER"
        );
    }
    assert_eq!(only(&stage, "ENTRYPOINT"), r#"["/usr/local/bin/mainstay"]"#);
    assert!(
        only(&stage, "COPY").ends_with(" /usr/local/bin/mainstay"),
        "what is copied is what is run"
    );
}

#[test]
fn the_ready_file_is_under_tmp_and_the_health_check_reads_it() {
    let stage = final_stage();
    let ready = "/tmp/mcp.ready";
    assert!(only(&stage, "ENV").contains(&format!("MCP_READY_FILE={ready}")));
    assert!(health_check(&stage).last().unwrap().contains(ready));
}

#[test]
fn the_image_is_built_with_the_toolchain_of_the_manifest() {
    let manifest = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .unwrap();
    let text = std::fs::read_to_string(repository().join("Dockerfile")).unwrap();
    let expected = format!("FROM rust:{}-", version.trim_matches('"'));
    assert!(text.contains(&expected), "{expected}");
}

#[test]
fn what_the_build_copies_is_not_ignored() {
    let ignored = std::fs::read_to_string(repository().join(".dockerignore")).unwrap();
    for needed in [
        "Cargo.toml",
        "Cargo.lock",
        "crates",
        "examples",
        "xtask",
        "schemas",
        "docs",
    ] {
        assert!(
            ignored.lines().any(|line| line == format!("!{needed}")),
            "{needed}"
        );
    }
}

/// Runs the host as the image does: as its user, with the ready file in a folder like `/tmp`, and
/// asks the image's own health check about it.
#[test]
fn a_user_other_than_root_gets_a_ready_file_and_a_good_health_check() {
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    let ready = folder.path().join("mcp.ready");
    // The build's own folder may be closed to others.
    let binary = folder.path().join("mainstay");
    std::fs::copy(env!("CARGO_BIN_EXE_mainstay"), &binary).unwrap();
    std::fs::set_permissions(&binary, PermissionsExt::from_mode(0o755)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let mut command = if is_root {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", UID, "--regid", UID, "--clear-groups", "--"])
            .arg(&binary);
        command
    } else {
        println!("not root: the host runs as the user of this test");
        Command::new(&binary)
    };
    let mut host = command
        .current_dir(folder.path())
        .env("MCP_READY_FILE", &ready)
        .env("MCP_ENDPOINT", "socket")
        .env("MCP_SOCKET_PATH", folder.path().join("mcp.sock"))
        .env("MAINSTAY_RUNTIME_DIR", folder.path().join("run"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let patience = Instant::now() + Duration::from_secs(120);
    while !ready.exists() {
        assert!(Instant::now() < patience, "no ready file");
        std::thread::sleep(Duration::from_millis(10));
    }
    if is_root {
        let owner = std::fs::metadata(&ready).unwrap().uid();
        assert_eq!(owner.to_string(), UID);
    }
    let check = health_check(&final_stage());
    let healthy = || {
        let (program, arguments) = check.split_first().unwrap();
        let arguments = arguments
            .iter()
            .map(|argument| argument.replace("/tmp/mcp.ready", ready.to_str().unwrap()));
        Command::new(program)
            .args(arguments)
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    };
    assert!(healthy());
    let pid = rustix::process::Pid::from_child(&host);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(host.wait().unwrap().success());
    assert!(!healthy(), "a host that has ended is not healthy");
}
