//! Where the programs under test are.

#![expect(
    clippy::disallowed_methods,
    reason = "tests are told where things are by their own environment"
)]

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

/// Names a folder with the programs to test instead of the ones just built.
const OVERRIDE: &str = "MAINSTAY_BIN_DIR";

/// A program of the workspace: `mainstay`, `ledger`, `misbehaving-worker`, ...
///
/// Taken from the folder in `MAINSTAY_BIN_DIR`; else from where cargo put this test, and built
/// there if it is not there yet.
pub fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    if let Some(folder) = env::var_os(OVERRIDE) {
        let path = Path::new(&folder).join(&file);
        ensure!(path.is_file(), "{OVERRIDE} has no {}", path.display());
        return path.canonicalize().context("resolving the program's path");
    }
    let folder = build_folder()?;
    let path = folder.join(&file);
    if !path.is_file() {
        build(&folder, &path)?;
    }
    Ok(path)
}

/// `target/debug` or `target/release`: tests run in `deps` below it, programs in it.
fn build_folder() -> anyhow::Result<PathBuf> {
    let exe = env::current_exe().context("finding this program")?;
    let folder = exe.parent().context("this program has no folder")?;
    let folder = match folder.file_name() {
        Some(name) if name == "deps" => folder.parent().unwrap_or(folder),
        _ => folder,
    };
    Ok(folder.to_owned())
}

/// Builds what tests start. Tests run side by side in several processes, hence the lock.
fn build(folder: &Path, wanted: &Path) -> anyhow::Result<()> {
    let lock = folder.join(".testkit-build.lock");
    let lock = File::create(&lock).with_context(|| format!("creating {}", lock.display()))?;
    lock.lock().context("locking the build")?;
    if wanted.is_file() {
        return Ok(());
    }
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet"])
        .args([
            "-p",
            "mainstay",
            "-p",
            "mainstay-example-ledger",
            "-p",
            "mainstay-testkit",
            "-p",
            "mainstay-conformance-server",
        ])
        .current_dir(workspace()?);
    if folder.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    if let Some(target) = folder.parent() {
        cargo.env("CARGO_TARGET_DIR", target);
    }
    let status = cargo.status().context("starting cargo")?;
    ensure!(status.success(), "cargo build: {status}");
    if !wanted.is_file() {
        bail!("cargo built everything but {}", wanted.display());
    }
    Ok(())
}

/// The root of the workspace: above the current directory, where cargo starts tests.
pub fn workspace() -> anyhow::Result<PathBuf> {
    let here = env::current_dir().context("reading the current directory")?;
    here.ancestors()
        .find(|folder| folder.join("Cargo.lock").is_file() && folder.join("xtask").is_dir())
        .map(Path::to_owned)
        .with_context(|| format!("{} is not in the workspace", here.display()))
}

/// A program of others: on `PATH`, or in a folder.
pub fn program(name: &str, folder: &Path) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain([folder.to_owned()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// A file below `target/tools`, where `cargo xtask test` installs foreign clients.
///
/// `None` where it is not installed. In CI nothing may be skipped, so there it is an error.
pub fn tool(path: &str) -> anyhow::Result<Option<PathBuf>> {
    let folder = workspace()?.join("target").join("tools");
    let found = folder.join(path);
    if fs::exists(&found).with_context(|| format!("looking for {}", found.display()))? {
        return Ok(Some(found));
    }
    let in_ci = env::var_os("CI").is_some_and(|value| value == "true" || value == "1");
    ensure!(
        !in_ci,
        "{} is not installed, and in CI nothing is skipped",
        found.display()
    );
    Ok(None)
}
