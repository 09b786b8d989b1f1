//! `mainstay skill install`, and the claims of the skill against the code.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mainstay_contract::limits::Limits;
use mainstay_contract::replay::Replay;
use mainstay_testkit::process::TempDir;

const PAGES: [&str; 4] = [
    "SKILL.md",
    "references/fresh-server.md",
    "references/retrofit.md",
    "references/checklist.md",
];

/// A home directory.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn install(&self, arguments: &[&str]) -> Output {
        self.install_in(self.0.path(), arguments)
    }

    fn install_in(&self, folder: &Path, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_mainstay"))
            .args(["skill", "install"])
            .args(arguments)
            .env("HOME", self.0.path())
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

fn source() -> PathBuf {
    repository().join("skills/mcp-bootstrap")
}

fn page(name: &str) -> String {
    fs::read_to_string(source().join(name)).unwrap()
}

#[test]
fn the_installed_files_are_those_of_the_repository() {
    let home = Home::new();
    let installed = home.install(&["skills"]);
    assert_eq!(code(&installed), 0, "{}", stderr(&installed));
    for name in PAGES {
        let copy = home.path("skills/mcp-bootstrap").join(name);
        assert_eq!(fs::read_to_string(copy).unwrap(), page(name), "{name}");
    }
    let again = home.install(&["skills"]);
    assert_eq!(code(&again), 0);
    assert!(String::from_utf8_lossy(&again.stdout).contains("up to date"));
}

#[test]
fn without_a_folder_it_goes_to_the_clients_of_this_user() {
    let home = Home::new();
    let nowhere = home.install(&[]);
    assert_eq!(code(&nowhere), 2);
    assert!(stderr(&nowhere).contains("mainstay skill install DIR"));
    for client in [".claude", ".codex"] {
        fs::create_dir(home.path(client)).unwrap();
    }
    assert_eq!(code(&home.install(&[])), 0);
    for folder in [".claude/skills", ".agents/skills"] {
        let skill = home.path(folder).join("mcp-bootstrap/SKILL.md");
        assert_eq!(fs::read_to_string(skill).unwrap(), page("SKILL.md"));
    }
}

#[test]
fn an_edited_skill_is_replaced_only_on_request_and_an_old_one_at_once() {
    let home = Home::new();
    assert_eq!(code(&home.install(&["skills"])), 0);
    let folder = home.path("skills/mcp-bootstrap");
    let file = folder.join("SKILL.md");
    fs::write(&file, "mine\n").unwrap();
    let refused = home.install(&["skills"]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("an edited SKILL.md"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine\n");
    assert_eq!(code(&home.install(&["skills", "--force"])), 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), page("SKILL.md"));

    // An earlier version: a record that fits its files, one of which this version does not have.
    let record = folder.join(".mainstay.json");
    let text = fs::read_to_string(&record).unwrap();
    let old = folder.join("references/old.md");
    fs::rename(folder.join("references/retrofit.md"), &old).unwrap();
    fs::write(&record, text.replace("retrofit.md", "old.md")).unwrap();
    assert_eq!(code(&home.install(&["skills"])), 0);
    assert!(!old.exists());
    assert!(folder.join("references/retrofit.md").exists());
}

#[test]
fn a_folder_that_mainstay_did_not_write_stays() {
    let home = Home::new();
    let file = home.path("skills/mcp-bootstrap/SKILL.md");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "another skill\n").unwrap();
    let refused = home.install(&["skills"]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("files that mainstay did not write"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "another skill\n");
}

#[test]
fn a_link_leads_to_the_checkout_around_the_current_directory() {
    let home = Home::new();
    let folder = home.path("skills");
    let folder = folder.to_str().unwrap();
    let outside = home.install(&[folder, "--link"]);
    assert_eq!(code(&outside), 2);
    assert!(stderr(&outside).contains("is not in a checkout"));
    let inside = repository().join("crates/cli");
    for _ in 0..2 {
        let linked = home.install_in(&inside, &[folder, "--link"]);
        assert_eq!(code(&linked), 0, "{}", stderr(&linked));
    }
    let link = home.path("skills/mcp-bootstrap");
    assert_eq!(fs::read_link(&link).unwrap(), source());
    // The files of the checkout are never overwritten through the link.
    assert_eq!(code(&home.install(&[folder])), 2);
}

#[test]
fn a_skill_is_described_as_clients_read_it() {
    let text = page("SKILL.md");
    let front = text.strip_prefix("---\n").unwrap();
    let (front, body) = front.split_once("\n---\n").unwrap();
    let fields: Vec<(&str, &str)> = front
        .lines()
        .map(|line| line.split_once(": ").unwrap())
        .collect();
    assert_eq!(fields[0], ("name", "mcp-bootstrap"));
    assert_eq!(fields[1].0, "description");
    // Limits of the Agent Skills format; a colon followed by a space would end a plain YAML value.
    assert!(fields[1].1.len() <= 1024 && !fields[1].1.contains(": "));
    assert!(body.lines().count() < 500);
    for name in &PAGES[1..] {
        assert!(body.contains(&format!("({name})")), "{name} is linked");
    }
}

/// The rows of a table whose first cell is a word in backticks.
fn rows(text: &str) -> Vec<(String, String)> {
    let row = |line: &str| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        Some((name.to_owned(), rest.to_owned()))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn the_claims_about_replay_and_limits_hold() {
    let text = page("SKILL.md");
    let rows = rows(&text);
    let named: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    let all = [
        Replay::Convergent,
        Replay::ProbeRequired,
        Replay::NeverReplay,
    ];
    assert_eq!(named, all.map(|replay| replay.as_str()));
    let limits = Limits::default();
    let sent_again = format!("sends the call again, at most {} times", limits.replays);
    assert!(rows[0].1.contains(&sent_again));
    let checklist = page("references/checklist.md");
    let grace = format!("the grace period of {} s", limits.grace_ms / 1000);
    let limit = format!(
        "{} s unless the tool declares",
        limits.call_timeout_ms / 1000
    );
    assert!(checklist.contains(&grace) && checklist.contains(&limit));
    // "It is the default of a pack's tool."
    let default = mainstay_worker::tool_spec("tool", "Does something.");
    assert!(format!("{default:?}").contains("replay: NeverReplay"));
}
