//! The picture of the README shows what a run of its script shows today.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use mainstay_testkit::judge;
use mainstay_testkit::process::{TempDir, program, tool};

/// The lines of a picture, with every number as `N`.
fn lines(picture: &Path) -> Vec<String> {
    let text = fs::read_to_string(picture).unwrap();
    let texts = text.split("xml:space=\"preserve\">").skip(1);
    let shown = texts.map(|rest| rest.split("</text>").next().unwrap());
    shown
        .map(|text| {
            let mut digits = text.replace(|c: char| c.is_ascii_digit(), "N");
            while digits.contains("NN") {
                digits = digits.replace("NN", "N");
            }
            digits
        })
        .collect()
}

#[test]
fn the_picture_of_the_readme_shows_a_real_run() {
    let server = tool("node-servers/node_modules/.bin/mcp-server-everything").unwrap();
    let (Some(server), Some(python)) = (server, program("python3", Path::new("/usr/bin"))) else {
        println!("skipped: the server or Python is not installed; cargo xtask tools installs them");
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = TempDir::new().unwrap();
    let picture = folder.join("picture.svg");
    judge::finished(
        Command::new(python)
            .arg(root.join("tests/recording/killed_server.py"))
            .arg(env!("CARGO_BIN_EXE_mainstay"))
            .arg(server)
            .arg(&picture),
    )
    .unwrap();
    let shown = lines(&picture);
    assert!(shown.len() > 10, "{shown:?}");
    assert_eq!(shown, lines(&root.join("docs/images/killed-server.svg")));
}
