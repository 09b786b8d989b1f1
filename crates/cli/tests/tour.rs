//! The tour of `examples/assets`: every command of its page is run as written, in one shell, and
//! must say what the page says. `INSTA_UPDATE=always` writes the answers into the page anew.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use mainstay_testkit::process::{TempDir, wait_for};

/// The port of the backend on the page; here it is one that is free.
const PORT: &str = "8765";
/// Two dozen hosts start and end.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between the answers.
const MARK: &str = "=== end of answer ===";

/// A line of the page.
enum Line {
    /// Outside the blocks, and their fences.
    Prose(String),
    /// A command and what it says, each line with its newline.
    Command { command: String, answer: String },
}

fn page() -> PathBuf {
    repository().join("examples/assets/README.md")
}

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

/// The page by lines; what follows a command in its block is its answer.
fn parsed(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut is_console = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if is_console {
            if let Some(command) = line.strip_prefix("$ ") {
                lines.push(Line::Command {
                    command: command.to_owned(),
                    answer: String::new(),
                });
            } else if let Some(Line::Command { answer, .. }) = lines.last_mut() {
                writeln!(answer, "{line}").unwrap();
            } else {
                panic!("an answer without a command: {line}");
            }
            continue;
        }
        lines.push(Line::Prose(line.to_owned()));
    }
    lines
}

fn written(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        match line {
            Line::Prose(line) => writeln!(text, "{line}").unwrap(),
            Line::Command { command, answer } => write!(text, "$ {command}\n{answer}").unwrap(),
        }
    }
    text
}

/// What each command says on both of its streams, in the order of the page.
fn answers(commands: &[&str], port: u16) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_mainstay")).parent().unwrap();
    let mut script = String::from("PATH=\"$1:$PATH\"\n");
    for command in commands {
        let command = command.replace(PORT, &port.to_string());
        writeln!(script, "{command}\necho '{MARK}'").unwrap();
    }
    // A file: a pipe would have to be read meanwhile.
    let said = folder.path().join("said");
    let out = File::create(&said).unwrap();
    let mut shell = Command::new("sh");
    for name in [
        "MCP_ENDPOINT",
        "SYN_BACKEND_URL",
        "SYN_BACKEND_ASSETS_PATH",
        "MAINSTAY_TELEMETRY",
    ] {
        shell.env_remove(name);
    }
    let mut shell = shell
        .args(["-c", &script, "sh"])
        .arg(bin)
        .current_dir(repository())
        .env("MAINSTAY_RUNTIME_DIR", folder.path().join("run"))
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .stderr(out.try_clone().unwrap())
        .stdout(out)
        .spawn()
        .unwrap();
    let ended = wait_for(&mut shell, PATIENCE);
    if ended.is_err() {
        let _ = shell.kill();
        let _ = shell.wait();
    }
    let said = fs::read_to_string(&said).unwrap();
    assert!(ended.is_ok(), "{ended:?}: {said}");
    let end = format!("{MARK}\n");
    let mut answers: Vec<String> = said
        .split(&end)
        .map(|answer| answer.replace(&port.to_string(), PORT))
        .collect();
    assert_eq!(answers.pop().as_deref(), Some(""), "{said}");
    assert_eq!(answers.len(), commands.len(), "{said}");
    answers
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn has_python() -> bool {
    let probe = Command::new("python3").arg("--version").output();
    probe.is_ok_and(|output| output.status.success())
}

#[expect(
    clippy::disallowed_methods,
    reason = "how snapshots are updated is told by the environment"
)]
fn is_update() -> bool {
    std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always")
}

#[test]
fn the_tour_says_what_its_commands_say() {
    let text = fs::read_to_string(page()).unwrap();
    let mut lines = parsed(&text);
    assert_eq!(written(&lines), text, "the page is read in full");
    let has_python = has_python();
    let is_run = |command: &str| has_python || !command.starts_with("python3 ");
    let commands: Vec<String> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Command { command, .. } if is_run(command) => Some(command.clone()),
            Line::Command { command, .. } => {
                eprintln!("skipped: there is no python3 for {command}");
                None
            }
            Line::Prose(_) => None,
        })
        .collect();
    assert!(commands.len() >= 12, "{commands:?}");
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let mut said = answers(&commands, free_port()).into_iter();
    for line in &mut lines {
        if let Line::Command { command, answer } = line
            && is_run(command)
        {
            *answer = said.next().unwrap();
        }
    }
    let now = written(&lines);
    if is_update() {
        fs::write(page(), &now).unwrap();
    } else {
        assert!(now == text, "the page should say:\n{now}");
    }
}
