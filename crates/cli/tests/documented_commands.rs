//! Every command in the README, in `docs`, in `examples` and in `skills` is run as written, and must print what its
//! page shows.
//!
//! How a page is written:
//!
//! * A fenced block `console` holds commands, each after `$ `, and their output, both streams together.
//!   The commands of a page run in one shell, from top to bottom. A command that ends in ` &` runs in
//!   the background; its output is what it prints until it is ready (`mcp:ready`).
//! * In an output, a line `...` stands for any number of lines, and `...` inside a line for any text.
//! * `console not run: REASON` holds commands that cannot run in a test.
//! * A fenced block with `file=PATH` is written to that path before the page's commands run.
//! * Any other block must not hold commands; [`PROGRAMS`] is how they are recognised.
//!
//! Where a page runs: in `/srv/you/project`, a scratch folder with a copy of `examples`, of
//! `crates/worker` and of `mainstay.lock.json`, with `mainstay` in `/usr/local/bin` and `ledger` on the
//! path. Ports, `/tmp` and `/srv/you` are mapped to free ones and to the scratch folder.
//!
//! `INSTA_UPDATE=always` writes the outputs that differ into the pages.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use mainstay_testkit::process::{MARKER, TempDir, binary, kill, marked, tool, wait_for};

/// For all commands of a page on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between the outputs.
const MARK: &str = "=== end of output ===";
/// Stands for any text.
const ANY: &str = "...";
/// Ports on the pages; each page gets free ones.
const PORTS: [&str; 2] = ["8080", "8765"];
/// How a line begins that is a command.
const PROGRAMS: [&str; 14] = [
    "mainstay", "cargo", "curl", "git", "npx", "uvx", "python3", "docker", "claude", "codex",
    "export", "echo", "cd", "kill",
];
/// Commands that there are at least: a reader that finds none must fail.
const LEAST: usize = 60;

/// A line of a page.
enum Line {
    /// Outside the blocks of commands.
    Prose(String),
    /// A command and its output, each line with its newline.
    Command {
        command: String,
        output: String,
        is_run: bool,
    },
}

/// One page, read.
struct Page {
    path: PathBuf,
    lines: Vec<Line>,
    /// Files that its commands find, with their paths.
    files: Vec<(String, String)>,
    /// Blocks that break the rules.
    mistakes: Vec<String>,
}

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

/// The pages, in order.
fn pages() -> Vec<PathBuf> {
    let root = repository();
    let mut pages = vec![root.join("README.md")];
    let mut folders = vec![
        root.join("docs"),
        root.join("examples"),
        root.join("skills"),
    ];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// True for a line that looks like a command but is outside of a `console` block.
fn is_command(line: &str) -> bool {
    let line = line.trim_start().trim_start_matches("$ ");
    let is_variable = |word: &&str| {
        let name = word.split('=').next().unwrap();
        word.contains('=') && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    let word = line.split_whitespace().find(|word| !is_variable(word));
    let is_program = word.is_some_and(|word| PROGRAMS.contains(&word));
    is_program && line.split_whitespace().count() > 1
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap();
        let mut page = Self {
            path,
            lines: Vec::new(),
            files: Vec::new(),
            mistakes: Vec::new(),
        };
        // The words behind the fence of the block that is open.
        let mut open: Option<String> = None;
        for (at, line) in text.lines().enumerate() {
            let number = at + 1;
            let fence = line.strip_prefix("```");
            match (&open, fence) {
                (None, Some(info)) => {
                    page.begin(info, number);
                    open = Some(info.to_owned());
                }
                (Some(_), Some(_)) => open = None,
                (Some(info), None) if info.starts_with("console") => {
                    page.console(line, info == "console", number);
                    continue;
                }
                (Some(info), None) => {
                    if info.contains("file=") {
                        let (_, content) = page.files.last_mut().unwrap();
                        writeln!(content, "{line}").unwrap();
                    } else if is_command(line) {
                        page.mistake(number, "a command outside a console block");
                    }
                }
                (None, None) if line.starts_with("    ") && is_command(line) => {
                    page.mistake(number, "a command in an indented block");
                }
                (None, None) => {}
            }
            page.lines.push(Line::Prose(line.to_owned()));
        }
        assert_eq!(
            page.written(),
            text,
            "{} is read in full",
            page.path.display()
        );
        page
    }

    fn mistake(&mut self, number: usize, what: &str) {
        let path = self.path.strip_prefix(repository()).unwrap().display();
        self.mistakes.push(format!("{path}:{number}: {what}"));
    }

    /// A block begins.
    fn begin(&mut self, info: &str, number: usize) {
        let file = info
            .split_whitespace()
            .find_map(|word| word.strip_prefix("file="));
        if let Some(path) = file {
            self.files.push((path.to_owned(), String::new()));
        }
        let reason = info.strip_prefix("console not run:");
        if info.starts_with("console")
            && info != "console"
            && reason.is_none_or(|why| why.trim().is_empty())
        {
            self.mistake(number, "write console, or console not run: and the reason");
        }
        if ["sh", "bash", "shell"].contains(&info) {
            self.mistake(number, "write console instead");
        }
    }

    /// A line of a console block.
    fn console(&mut self, line: &str, is_run: bool, number: usize) {
        if let Some(command) = line.strip_prefix("$ ") {
            return self.lines.push(Line::Command {
                command: command.to_owned(),
                output: String::new(),
                is_run,
            });
        }
        match self.lines.last_mut() {
            Some(Line::Command { command, .. }) if command.ends_with('\\') => {
                command.push('\n');
                command.push_str(line);
            }
            Some(Line::Command { output, .. }) => writeln!(output, "{line}").unwrap(),
            _ => self.mistake(number, "an output without a command"),
        }
    }

    fn written(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            match line {
                Line::Prose(line) => writeln!(text, "{line}").unwrap(),
                Line::Command {
                    command, output, ..
                } => {
                    write!(text, "$ {command}\n{output}").unwrap();
                }
            }
        }
        text
    }

    /// The commands of the page; those that are run, or the others.
    fn commands(&self, wanted: bool) -> Vec<&str> {
        let commands = self.lines.iter().filter_map(|line| match line {
            Line::Command {
                command, is_run, ..
            } if *is_run == wanted => Some(command.as_str()),
            _ => None,
        });
        commands.collect()
    }
}

/// Where the commands of one page run, and how its names appear on the page.
struct Scratch {
    folder: TempDir,
    /// Names here, and as the page shows them.
    names: Vec<(String, String)>,
}

impl Scratch {
    fn new(page: &Page) -> Self {
        let folder = TempDir::new().unwrap();
        let here = folder.path().canonicalize().unwrap();
        let path = |name: &str| here.join(name).display().to_string();
        let listeners = PORTS.map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port().to_string());
        // The scratch folder itself may be in /tmp, so that comes first.
        let mut names = vec![
            (path("tmp"), "/tmp".to_owned()),
            (path("bin"), "/usr/local/bin".to_owned()),
            (path("home"), "/srv/you".to_owned()),
        ];
        names.extend(ports.into_iter().zip(PORTS.map(str::to_owned)));
        let scratch = Self { folder, names };
        for name in ["bin", "tmp", "home/project"] {
            fs::create_dir_all(here.join(name)).unwrap();
        }
        scratch.install(&here.join("bin"));
        let (root, project) = (repository(), here.join("home/project"));
        for name in ["examples", "crates/worker", "mainstay.lock.json"] {
            copy(&root.join(name), &project.join(name));
        }
        for (name, content) in &page.files {
            let file = match name.strip_prefix("~/") {
                Some(name) => here.join("home").join(name),
                None => project.join(name),
            };
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        scratch
    }

    /// Puts the programs of the pages into a folder.
    fn install(&self, bin: &Path) {
        symlink(env!("CARGO_BIN_EXE_mainstay"), bin.join("mainstay")).unwrap();
        symlink(binary("ledger").unwrap(), bin.join("ledger")).unwrap();
        if let Some(python) = python() {
            symlink(python, bin.join("python3")).unwrap();
        }
        let everything = "node-servers/node_modules/.bin/mcp-server-everything";
        let npx = match tool(everything).unwrap() {
            // As the real one after its download: quiet, and with the server's own words.
            Some(server) => format!("exec {} 2>/dev/null", server.display()),
            None => "exit 1".to_owned(),
        };
        for (name, line) in [
            ("npx", npx.as_str()),
            ("uvx", "exit 1"),
            ("clock-server", "exit 1"),
        ] {
            let file = bin.join(name);
            fs::write(&file, format!("#!/bin/sh\n{line}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// A text of the page as it must be here.
    fn mapped(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (here, shown) in &self.names {
            text = text.replace(shown.as_str(), here);
        }
        text
    }

    /// A text from here as the page shows it.
    fn shown(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (here, shown) in &self.names {
            text = text.replace(here.as_str(), shown);
        }
        text
    }

    /// The output of each command.
    fn outputs(&self, commands: &[&str]) -> Vec<String> {
        let here = self.folder.path().canonicalize().unwrap();
        let mut script = String::from(AWAIT);
        for (number, command) in commands.iter().enumerate() {
            let command = self.mapped(command);
            match command.strip_suffix(" &") {
                Some(command) => {
                    let log = here.join(format!("background-{number}"));
                    let log = log.display();
                    writeln!(
                        script,
                        ": >{log}; {command} >{log} 2>&1 &\nawait_ready {log} $!"
                    )
                    .unwrap();
                }
                None => writeln!(script, "{command}").unwrap(),
            }
            writeln!(script, "echo '{MARK}'").unwrap();
        }
        // A file: a pipe would have to be read meanwhile.
        let printed = here.join("printed");
        let out = File::create(&printed).unwrap();
        let bin = here.join("bin");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
        let marker = here.display().to_string();
        let mut shell = Command::new("sh")
            .args(["-c", &script])
            .env_clear()
            .env("PATH", path)
            .env("HOME", here.join("home"))
            .env("TMPDIR", here.join("tmp"))
            // Commands of operators find no other host of this user.
            .env("MAINSTAY_RUNTIME_DIR", here.join("tmp/run"))
            .env("MCP_READY_FILE", here.join("tmp/mcp.ready"))
            .env("COLUMNS", "100")
            .env(MARKER, &marker)
            .current_dir(here.join("home/project"))
            .stdin(Stdio::null())
            .stderr(out.try_clone().unwrap())
            .stdout(out)
            .spawn()
            .unwrap();
        let ended = wait_for(&mut shell, PATIENCE);
        for pid in marked(MARKER, &marker) {
            kill(pid);
        }
        let _ = shell.wait();
        let printed = fs::read_to_string(&printed).unwrap();
        assert!(ended.is_ok(), "{ended:?}: {printed}");
        let printed = self.shown(&printed);
        let end = format!("{MARK}\n");
        let mut outputs: Vec<String> = printed.split(&end).map(str::to_owned).collect();
        assert_eq!(outputs.pop().as_deref(), Some(""), "{printed}");
        for output in &mut outputs {
            // The last line of a page is a whole one.
            if !output.is_empty() && !output.ends_with('\n') {
                output.push('\n');
            }
        }
        assert_eq!(outputs.len(), commands.len(), "{printed}");
        outputs
    }
}

/// Waits until a background command is ready or has ended, and prints what it has printed.
const AWAIT: &str = "await_ready() {
  until grep -q mcp:ready \"$1\" || ! kill -0 \"$2\" 2>/dev/null; do sleep 0.05; done
  cat \"$1\"
}
";

fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
        return;
    }
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

/// Compares an output with the one on the page, where `...` matches any text.
fn fits(shown: &str, output: &str) -> bool {
    let shown: Vec<&str> = shown.lines().collect();
    let output: Vec<&str> = output.lines().collect();
    fits_from(&shown, &output, |shown, line| {
        let parts: Vec<&str> = shown.split(ANY).collect();
        fits_line(&parts, line)
    })
}

/// Lines, where [`ANY`] alone is any number of them.
fn fits_from(shown: &[&str], output: &[&str], same: fn(&str, &str) -> bool) -> bool {
    match (shown.split_first(), output.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if *first == ANY => {
            (0..=output.len()).any(|skipped| fits_from(rest, &output[skipped..], same))
        }
        (Some((first, shown)), Some((line, output))) => {
            same(first, line) && fits_from(shown, output, same)
        }
        _ => false,
    }
}

/// One line, by the texts around each [`ANY`].
fn fits_line(parts: &[&str], line: &str) -> bool {
    let [first, middle @ .., last] = parts else {
        return parts.first().is_none_or(|only| *only == line);
    };
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    for part in middle {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The interpreter itself: what `PATH` has may depend on the home directory.
fn python() -> Option<PathBuf> {
    let show = "import sys; print(sys.executable)";
    let probe = Command::new("python3").args(["-c", show]).output().ok()?;
    let path = String::from_utf8(probe.stdout).ok()?;
    probe
        .status
        .success()
        .then(|| PathBuf::from(path.trim_end()))
}

#[expect(
    clippy::disallowed_methods,
    reason = "how snapshots are updated is told by the environment"
)]
fn is_update() -> bool {
    std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always")
}

/// Runs the commands of a page. Returns how many, and adds a report for each that differs.
fn check(page: &mut Page, differences: &mut Vec<String>) -> usize {
    let commands = page.commands(true);
    if commands.is_empty() {
        return 0;
    }
    let scratch = Scratch::new(page);
    let outputs = scratch.outputs(&commands);
    let count = outputs.len();
    let mut outputs = outputs.into_iter();
    for line in &mut page.lines {
        if let Line::Command {
            command,
            output,
            is_run: true,
        } = line
        {
            let now = outputs.next().unwrap();
            if !fits(output, &now) {
                let shown = page.path.display();
                differences.push(format!(
                    "{shown}\n$ {command}\n--- the page shows\n{output}--- it prints\n{now}"
                ));
                *output = now;
            }
        }
    }
    count
}

#[test]
fn every_documented_command_prints_what_its_page_shows() {
    if python().is_none() || tool("node-servers/node_modules").unwrap().is_none() {
        println!("SKIPPED: commands of pages need python3 and the servers of cargo xtask tools");
        return;
    }
    let (mut mistakes, mut differences) = (Vec::new(), Vec::new());
    let (mut run, mut not_run) = (0, 0);
    for path in pages() {
        let mut page = Page::read(path);
        mistakes.append(&mut page.mistakes);
        let before = differences.len();
        run += check(&mut page, &mut differences);
        not_run += page.commands(false).len();
        if is_update() && differences.len() > before {
            fs::write(&page.path, page.written()).unwrap();
        }
    }
    println!("{run} documented commands run, {not_run} marked with a reason not to run");
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(
        differences.is_empty() || is_update(),
        "{}",
        differences.join("\n\n")
    );
    assert!(run >= LEAST, "{run} commands");
}

#[test]
fn dots_on_a_page_stand_for_any_text_and_for_nothing_else() {
    assert!(fits("a\nb\n", "a\nb\n"));
    assert!(!fits("a\nb\n", "a\nc\n"));
    assert!(!fits("a\n", "a\nb\n"));
    assert!(fits("a\n...\nz\n", "a\nb\nc\nz\n"));
    assert!(fits("a\n...\nz\n", "a\nz\n"));
    assert!(!fits("a\n...\nz\n", "a\nb\n"));
    assert!(fits("pid ..., up ... s\n", "pid 47, up 3 s\n"));
    assert!(!fits("pid ..., up ... s\n", "pid 47, up 3 min\n"));
    assert!(!fits("x...\n", "y1\n"));
    assert!(fits("", ""));
}

#[test]
fn a_command_outside_a_console_block_is_found() {
    assert!(is_command("    mainstay serve --http 127.0.0.1:8080"));
    assert!(is_command("$ cargo xtask test"));
    assert!(is_command("A=1 B_C=x mainstay call x"));
    assert!(!is_command("    mainstay.lock.json: 1 change"));
    assert!(!is_command("    { \"command\": \"mainstay\" }"));
}
