//! Puts the version with its commit into the binary: SemVer plus commit, or SemVer alone.

use std::process::Command;

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let full = commit.map_or_else(
        || version.to_owned(),
        |commit| format!("{version}+{commit}"),
    );
    println!("cargo::rustc-env=MAINSTAY_VERSION={full}");
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
