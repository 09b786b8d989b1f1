//! `mainstay demo`, `setup` and `doctor`, each with real processes in a home directory of its own.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use mainstay_testkit::process::{TempDir, marked};
use serde_json::{Value, json};

/// For the end of processes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const MARK: &str = "MAINSTAY_TEST_FIRST_STEPS";

/// A home directory, with an installed mainstay.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        for name in ["bin", "tmp", "project", "run"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        fs::set_permissions(folder.join("run"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink(env!("CARGO_BIN_EXE_mainstay"), folder.join("bin/mainstay")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// A program of a server.
    fn program(&self, name: &str, script: &str) {
        let path = self.write(&format!("bin/{name}"), script);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.path("tmp"))
            .env("MAINSTAY_RUNTIME_DIR", self.path("run"))
            .env(MARK, self.folder.path())
            .env("PATH", path)
            .current_dir(self.path("project"))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Waits until no process with our mark runs.
    fn is_quiet(&self) {
        let mark = self.folder.path().to_str().unwrap().to_owned();
        wait_until(|| marked(MARK, &mark).is_empty());
    }
}

fn wait_until(mut is_over: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_over() {
        assert!(Instant::now() < deadline, "it did not come to an end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn said(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    format!("{:?}\n{}\n{error}", output.status.code(), out(output))
}

/// The command line of a server that answers.
fn good_server() -> (String, Vec<String>) {
    let program = env!("CARGO_BIN_EXE_mainstay").to_owned();
    (
        program,
        ["demo", "--server", "/"].map(str::to_owned).to_vec(),
    )
}

#[test]
fn the_demonstration_tells_its_story_without_colours_in_a_pipe() {
    let home = Home::new();
    let output = home.run(&["demo"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let story = out(&output);
    for part in [
        "1. A call\n",
        "server   6 words, after ",
        "sends the call again: read_page only reads",
        "server   page 1: ",
        "its outcome is unknown",
        "counts the letters: 1.",
        "mainstay rollout: librarian: generation 4 serves",
        "mainstay upgrade: upgraded demo",
        "mcp:warning reason=worker_lost pack=librarian",
        "mcp:upgraded from=",
        "served 1 session and replaced 2 lost servers",
    ] {
        assert!(story.contains(part), "{part:?} is missing in {story}");
    }
    assert!(!story.contains('\x1b'), "{story:?}");
    assert!(output.stderr.is_empty(), "{}", said(&output));
    // Its processes have an environment of their own.
    let words = story.split("process ").skip(1);
    for pid in words.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()) {
        if !pid.is_empty() {
            let process = PathBuf::from(format!("/proc/{pid}"));
            wait_until(|| !process.exists());
        }
    }
    let left = fs::read_dir(home.path("tmp")).unwrap().count();
    assert_eq!(left, 0, "the demonstration leaves nothing behind");
}

#[test]
fn setup_adopts_the_files_of_clients_and_undoes_it_to_the_byte() {
    let home = Home::new();
    let (program, arguments) = good_server();
    let server = json!({"command": program, "args": arguments});
    let cursor = format!("{:#}\n", json!({"mcpServers": {"books": server}}));
    let cursor_file = home.write(".cursor/mcp.json", &cursor);
    let goose = format!(
        "extensions:\n  books:\n    type: stdio\n    cmd: {program} # here\n    args:\n      - demo\n      - --server\n      - /\n"
    );
    let goose_file = home.write(".config/goose/config.yaml", &goose);
    let all: Vec<&String> = std::iter::once(&program).chain(&arguments).collect();
    let opencode = format!(
        "{}\n",
        json!({"mcp": {"books": {"type": "local", "command": all}}})
    );
    let opencode_file = home.write(".config/opencode/opencode.json", &opencode);
    let shared = home.write("project/.mcp.json", &cursor);

    let plan = home.run(&["setup", "--dry-run", "--binary", "mainstay"]);
    assert_eq!(plan.status.code(), Some(0), "{}", said(&plan));
    assert!(
        out(&plan).starts_with("3 servers in 3 files can be kept alive"),
        "{}",
        said(&plan)
    );
    assert!(out(&plan).contains(".mcp.json (Claude Code) belongs to this project"));
    assert_eq!(
        fs::read_to_string(&goose_file).unwrap(),
        goose,
        "a plan changes nothing"
    );

    let output = home.run(&["setup", "--yes", "--binary", "mainstay"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(
        out(&output).contains("3 of 3 servers answer"),
        "{}",
        said(&output)
    );
    assert_eq!(
        fs::read_to_string(&shared).unwrap(),
        cursor,
        "a shared file is left alone"
    );
    let adopted: Value = serde_json::from_slice(&fs::read(&cursor_file).unwrap()).unwrap();
    assert_eq!(adopted["mcpServers"]["books"]["command"], "mainstay");
    home.is_quiet();

    let again = home.run(&["setup", "--yes", "--binary", "mainstay"]);
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));
    assert!(out(&again).starts_with("nothing to do"), "{}", said(&again));

    let files = [
        (&cursor_file, &cursor),
        (&goose_file, &goose),
        (&opencode_file, &opencode),
    ];
    for (file, before) in files {
        let backup = PathBuf::from(format!("{}.mainstay-backup", file.display()));
        assert_eq!(
            &fs::read_to_string(backup).unwrap(),
            before,
            "the backup alone restores it"
        );
        let shown = out(&output);
        let undo = format!("mainstay adopt {} --undo", file.display());
        assert!(shown.contains(&undo), "{undo} in {shown}");
        let undone = home.run(&["adopt", file.to_str().unwrap(), "--undo"]);
        assert_eq!(undone.status.code(), Some(0), "{}", said(&undone));
        assert_eq!(&fs::read_to_string(file).unwrap(), before);
    }
}

#[test]
fn setup_does_not_guess_an_answer_in_a_pipe() {
    let home = Home::new();
    let (program, arguments) = good_server();
    let text = json!({"mcpServers": {"a": {"command": program, "args": arguments}}}).to_string();
    let file = home.write(".codeium/windsurf/mcp_config.json", &text);
    let mut child = home
        .command(&["setup", "--binary", "mainstay"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // An answer that comes through a pipe is not a person's.
    let _ = child.stdin.take().unwrap().write_all(b"y\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("add --yes"), "{}", said(&output));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn setup_names_servers_that_do_not_answer_and_files_that_cannot_be_read() {
    let home = Home::new();
    home.program("broken", "#!/bin/sh\necho 'no API key' >&2\nexit 3\n");
    let text = json!({"mcpServers": {"broken": {"command": "broken"}, "odd": {"command": "x", "args": ["${input:k}"]}}});
    home.write(".gemini/settings.json", &text.to_string());
    home.write(".cursor/mcp.json", "{\"mcpServers\": ");
    let output = home.run(&["setup", "--yes", "--binary", "mainstay"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let shown = out(&output);
    for part in [
        "0 of 1 servers answer",
        "no API key",
        "its command has a reference",
        "mcp.json: line 1",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
    let unknown = home.run(&[
        "setup", "--yes", "--binary", "mainstay", "--only", "nothing",
    ]);
    assert_eq!(unknown.status.code(), Some(2), "{}", said(&unknown));
    assert!(
        said(&unknown).contains("they have: broken, odd"),
        "{}",
        said(&unknown)
    );
}

/// The findings of the doctor as JSON.
fn findings(output: &Output) -> Vec<Value> {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", said(output)))
}

fn has(findings: &[Value], state: &str, words: &str) -> bool {
    let fits = |finding: &&Value| {
        finding["state"] == state
            && finding["text"].as_str().unwrap().contains(words)
            && (state == "good" || !finding["fix"].as_str().unwrap().is_empty())
    };
    findings.iter().any(|finding| fits(&finding))
}

#[test]
fn the_doctor_finds_nothing_on_a_machine_without_faults() {
    let home = Home::new();
    let output = home.run(&["doctor", "--json"]);
    let found = findings(&output);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    for area in [
        "environment",
        "tree kill",
        "sandbox",
        "sockets",
        "cache",
        "tasks",
        "hosts",
        "schemas",
        "clients",
    ] {
        assert!(
            found.iter().any(|finding| finding["area"] == area),
            "{area} in {found:?}"
        );
    }
    assert!(!found.iter().any(|finding| finding["state"] == "problem"));
    let text = out(&home.run(&["doctor"]));
    assert!(text.starts_with("nothing is wrong\n"), "{text}");
    home.is_quiet();
}

#[test]
fn the_doctor_names_each_fault_with_its_fix() {
    let home = Home::new();
    home.program("broken", "#!/bin/sh\necho 'no API key' >&2\nexit 3\n");
    // A socket of a host that was killed.
    let stale = home.path("run/999999.sock");
    drop(UnixListener::bind(&stale).unwrap());
    fs::create_dir_all(home.path(".cache/mainstay")).unwrap();
    fs::set_permissions(
        home.path(".cache/mainstay"),
        fs::Permissions::from_mode(0o777),
    )
    .unwrap();
    let gone = json!({"mcpServers": {
        "gone": {"command": "/absent/mainstay", "args": ["wrap", "--", "x"]},
        "broken": {"command": "broken"},
    }});
    home.write(".cursor/mcp.json", &gone.to_string());
    home.write(".codex/config.toml", "mcp_servers = = 1\n");
    let ready = home.write("ready", "4194999 2026-01-01T00:00:00Z\n");
    let config = home.write(
        "project/host.toml",
        "[servers.lost]\ncommand = \"no-such-program\"\n",
    );
    let output = home
        .command(&["doctor", "--json", "--config", config.to_str().unwrap()])
        .env("MAINSTAY_TELEMTRY", "/tmp/x")
        .env("MCP_SOCKET_MODE", "rw")
        .env("MCP_READY_FILE", &ready)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let found = findings(&output);
    for (state, words) in [
        ("problem", "MAINSTAY_TELEMTRY is set"),
        ("problem", "MCP_SOCKET_MODE is \"rw\""),
        ("good", "999999.sock of a host that was killed is removed"),
        ("problem", ".cache/mainstay cannot be used"),
        (
            "problem",
            "gone starts /absent/mainstay, which does not exist",
        ),
        ("problem", "broken does not answer"),
        ("problem", "no API key"),
        ("problem", "config.toml: line 1"),
        ("note", "names process 4194999"),
        ("note", "1 server is not kept alive"),
    ] {
        assert!(has(&found, state, words), "{state} {words} in {found:#?}");
    }
    assert!(!stale.exists());
    let text = out(&home.run(&["doctor", "--no-start"]));
    assert!(text.contains("fix: "), "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");
    home.is_quiet();
}

#[test]
fn the_doctor_reports_the_servers_and_the_keys_of_a_configuration() {
    let home = Home::new();
    home.program("broken", "#!/bin/sh\necho 'no API key' >&2\nexit 3\n");
    let (program, arguments) = good_server();
    let servers = format!(
        "[servers.good]\ncommand = {program:?}\nargs = {arguments:?}\n[servers.broken]\ncommand = \"broken\"\n"
    );
    let config = home.write("project/host.toml", &servers);
    let output = home.run(&["doctor", "--json", "--config", config.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let found = findings(&output);
    assert!(has(&found, "problem", "broken"), "{found:#?}");
    assert!(
        has(&found, "good", "host.toml can be read: 2 servers"),
        "{found:#?}"
    );

    let wrong = home.write("project/wrong.toml", "[limits]\npols = 3\n");
    let output = home.run(&["doctor", "--json", "--config", wrong.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        has(&findings(&output), "problem", "pols"),
        "{}",
        said(&output)
    );

    let absent = home.run(&["doctor", "--config", "/absent.toml"]);
    assert_eq!(absent.status.code(), Some(2), "{}", said(&absent));
}

#[test]
fn the_doctor_names_schemas_that_cannot_be_used() {
    let home = Home::new();
    home.program(
        "odd",
        "#!/bin/sh\nwhile read -r line; do\n  id=$(printf %s \"$line\" | sed -n 's/.*\"id\":\\([0-9]*\\).*/\\1/p')\n  case $line in\n\
         *initialize\\\"*|*\\\"initialize*) r='{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"odd\",\"version\":\"1\"}}';;\n\
         *tools/list*) r='{\"tools\":[{\"name\":\"t\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"strin\"}}}}]}';;\n\
         *) r='{}';;\n  esac\n  [ -n \"$id\" ] && printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\\n' \"$id\" \"$r\"\ndone\n",
    );
    home.write(
        ".cursor/mcp.json",
        &json!({"mcpServers": {"odd": {"command": "odd"}}}).to_string(),
    );
    let output = home.run(&["doctor", "--json"]);
    let found = findings(&output);
    assert!(has(&found, "problem", "inputSchema of t"), "{found:#?}");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}
