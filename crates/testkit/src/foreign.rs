//! Clients and servers of others: which there are, how they are started, and what drives them.
//!
//! `cargo xtask test` installs them under `target/tools`. A [`Drive`] is one client of
//! `tests/clients` that takes the steps of one plan in `tests/servers/plans` against one server; in
//! its killing form the server is killed meanwhile and the client's session must go on.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::process::{
    MARKER, Running, TempDir, binary, leftovers, tool, unique, wait_for, workspace,
};
use crate::wrapped::Way;

/// Starting interpreters and their libraries on a busy machine takes a while.
const PATIENCE: Duration = Duration::from_secs(600);
/// What clients leave to the system to end.
const REAPED_WITHIN: Duration = Duration::from_secs(60);

/// The versions that clients of others speak.
const LEGACY_VERSION: &str = "2025-11-25";
const MODERN_VERSION: &str = "2026-07-28";

/// A client of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// PyPI `mcp`.
    Python,
    /// PyPI `fastmcp`.
    FastMcp,
    /// npm `@modelcontextprotocol/client`.
    TypeScript,
    /// npm `@modelcontextprotocol/inspector`, its command line.
    Inspector,
}

/// A server of others, or ours that plays one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    Everything,
    Filesystem,
    Memory,
    Git,
    Time,
    Fixture,
}

/// How a client finds out what a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With `initialize`.
    Legacy,
    /// By asking for the stateless revision first.
    Auto,
}

/// One client, one server.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    pub client: Client,
    pub server: Server,
    pub mode: Mode,
    pub way: Way,
    /// Whether the server is killed meanwhile.
    pub kills: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Driven {
    /// Everything was as planned; the driver's own report.
    Well(Value),
    /// The driver found a mismatch, and says which.
    Badly(String),
    /// Something is not installed.
    Skipped(String),
}

impl Drive {
    /// Runs the driver to its end, and looks for processes that were left over.
    pub fn run(self) -> anyhow::Result<Driven> {
        let files = TempDir::new()?;
        self.run_with(&files.join("files"), &[])
    }

    /// The same with a folder for the server's files, and with options of `wrap`.
    pub fn run_with(self, files: &Path, options: &[&str]) -> anyhow::Result<Driven> {
        let folder = TempDir::new()?;
        fs::create_dir(files).context("creating a folder")?;
        let Some(server) = self.server.command(files)? else {
            return Ok(skipped(self.server));
        };
        let Some(mut driver) = self.client.command(&folder)? else {
            return Ok(skipped(self.client));
        };
        let marker = unique("drive");
        let plan = format!("tests/servers/plans/{}.json", lower(self.server));
        let mut plan = workspace()?.join(plan);
        let command = match self.way {
            Way::Served => {
                plan = with_tools_of_host(&plan, &folder)?;
                served(&server, &folder)?
            }
            Way::Bridged => {
                let (era, protocol) = match self.mode {
                    Mode::Legacy => ("modern", LEGACY_VERSION),
                    Mode::Auto => ("legacy", MODERN_VERSION),
                };
                plan = with_protocol(&plan, &folder, protocol)?;
                // The fixture speaks the era that the client does not.
                let other = |word: OsString| if word == "both" { era.into() } else { word };
                let server = server.into_iter().map(other);
                Way::Bridged.prefix()?.into_iter().chain(server).collect()
            }
            way => {
                let mut words = way.prefix()?;
                let options = options.iter().map(OsString::from);
                // Before the two dashes that end the host's own words.
                words.splice(
                    words.len().saturating_sub(1)..words.len().saturating_sub(1),
                    options,
                );
                words.into_iter().chain(server).collect()
            }
        };
        driver
            .arg(lower(self.mode))
            .arg(plan)
            .arg("--folder")
            .arg(files)
            .env(MARKER, &marker)
            .env("MAINSTAY_RUNTIME_DIR", folder.join("run"))
            .env("MAINSTAY_CACHE_DIR", folder.join("cache"));
        if self.kills {
            driver.args(["--kill-during", "--victim", self.server.victim()]);
        }
        driver.arg("--").args(command);
        let driven = finish(&mut driver, &folder)?;
        leftovers(MARKER, &marker, REAPED_WITHIN)?;
        Ok(driven)
    }
}

/// Has PyPI's client try every feature of the table of eras, against the fixture behind a bridge. The fixture speaks
/// the other era, and asks for roots on its own. The report names the features.
pub fn try_eras(mode: Mode) -> anyhow::Result<Driven> {
    let Some(words) = python("python")? else {
        return Ok(skipped(Client::Python));
    };
    let folder = TempDir::new()?;
    let (state, marker) = (folder.join("state.jsonl"), unique("eras"));
    let era = match mode {
        Mode::Legacy => "modern",
        Mode::Auto => "legacy",
    };
    let mut driver = command_of(&words)?;
    driver
        .arg("-B")
        .arg(workspace()?.join("tests/clients/python_eras.py"))
        .args([&lower(mode), "--"])
        .args(Way::Bridged.prefix()?)
        .arg(binary("mcp-fixture")?)
        .args(["--era", era, "--page", "3", "--roots-at-start", "--state"])
        .arg(&state)
        .env(MARKER, &marker)
        .env("MAINSTAY_RUNTIME_DIR", folder.join("run"))
        .env("MAINSTAY_CACHE_DIR", folder.join("cache"));
    let driven = finish(&mut driver, &folder)?;
    leftovers(MARKER, &marker, REAPED_WITHIN)?;
    if let Driven::Well(_) = driven {
        let told = fs::read_to_string(&state).context("reading what the fixture was told")?;
        ensure!(told.contains("notifications/cancelled"), "{told}");
        let refused = told.contains("the client cannot be asked");
        ensure!(refused == (mode == Mode::Auto), "{told}");
    }
    Ok(driven)
}

/// The command of a host that serves a server under its own names, beside another one.
fn served(server: &[OsString], folder: &TempDir) -> anyhow::Result<Vec<OsString>> {
    let words: Vec<_> = server.iter().map(|word| word.to_string_lossy()).collect();
    let (command, args) = words.split_first().context("an empty command")?;
    let entry = json!({"command": command, "args": args, "mainstay": {"prefix": ""}});
    // Whatever becomes of the other one, this one serves.
    let other = json!({"command": "false"});
    let file = folder.join("servers.json");
    let servers = json!({"mcpServers": {"other": other, "served": entry}});
    fs::write(&file, servers.to_string()).context("writing the servers")?;
    let host = [binary("mainstay")?.into_os_string(), "serve".into()].into_iter();
    Ok(host
        .chain(["--config".into(), file.into_os_string()])
        .collect())
}

/// A plan that expects the host's own tools, too.
fn with_tools_of_host(plan: &Path, folder: &TempDir) -> anyhow::Result<PathBuf> {
    let mut value: Value = serde_json::from_str(&fs::read_to_string(plan)?)?;
    let maybe = value.as_object_mut().context("a plan")?;
    let maybe = maybe.entry("maybe").or_insert(json!([]));
    let maybe = maybe.as_array_mut().context("names")?;
    maybe.extend([json!("system_health"), json!("system_telemetry")]);
    let file = folder.join("plan.json");
    fs::write(&file, value.to_string()).context("writing the plan")?;
    Ok(file)
}

/// A plan that expects this protocol version in every mode.
fn with_protocol(plan: &Path, folder: &TempDir, version: &str) -> anyhow::Result<PathBuf> {
    let mut value: Value = serde_json::from_str(&fs::read_to_string(plan)?)?;
    let members = value.as_object_mut().context("the plan is not an object")?;
    let protocol = json!({"legacy": version, "auto": version});
    members.insert("protocol".to_owned(), protocol);
    let file = folder.join("plan.json");
    fs::write(&file, value.to_string()).context("writing the plan")?;
    Ok(file)
}

fn skipped(what: impl std::fmt::Debug) -> Driven {
    Driven::Skipped(format!(
        "{what:?} is not installed (cargo xtask tools installs it)"
    ))
}

/// The name in a plan or on a command line.
fn lower(name: impl std::fmt::Debug) -> String {
    format!("{name:?}").to_lowercase()
}

/// Its output goes to files: pipes that nobody reads would fill up.
pub(crate) fn finish(driver: &mut Command, folder: &TempDir) -> anyhow::Result<Driven> {
    let [out, err] = ["out", "err"].map(|name| folder.join(name));
    let create = |path: &Path| fs::File::create(path).context("creating a file for output");
    let mut child = driver
        .stdin(Stdio::null())
        .stdout(create(&out)?)
        .stderr(create(&err)?)
        .spawn()
        .with_context(|| format!("starting {}", driver.get_program().display()))?;
    let status = wait_for(&mut child, PATIENCE);
    if status.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let read =
        |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let said = read(&err).context("reading the driver's errors")?;
    let status = status.with_context(|| said.clone())?;
    if !status.success() {
        return Ok(Driven::Badly(said));
    }
    let report = read(&out).context("reading the driver's report")?;
    let report = serde_json::from_str(report.trim())
        .with_context(|| format!("the driver's report is no JSON: {report}"))?;
    Ok(Driven::Well(report))
}

impl Client {
    /// The driver, up to its arguments; nothing if it is not installed.
    fn command(self, folder: &TempDir) -> anyhow::Result<Option<Command>> {
        let drivers = workspace()?.join("tests/clients");
        let name = format!("{}_plan", lower(self));
        match self {
            Self::Python | Self::FastMcp => {
                let Some(words) = python("python")? else {
                    return Ok(None);
                };
                let mut command = command_of(&words)?;
                // Nothing is written into the source tree.
                command
                    .arg("-B")
                    .arg(drivers.join(name).with_extension("py"));
                Ok(Some(command))
            }
            Self::TypeScript | Self::Inspector => {
                let Some(modules) = tool("node/node_modules")? else {
                    return Ok(None);
                };
                // Modules are looked for beside the program that wants them.
                let beside = folder.join("driver");
                fs::create_dir(&beside).context("creating a folder")?;
                symlink(modules.canonicalize()?, beside.join("node_modules"))?;
                for file in ["plan.mjs", &format!("{name}.mjs")] {
                    fs::copy(drivers.join(file), beside.join(file))
                        .with_context(|| format!("copying {file}"))?;
                }
                let mut command = Command::new("node");
                command.arg(beside.join(name).with_extension("mjs"));
                Ok(Some(command))
            }
        }
    }
}

impl Server {
    /// Words that only this server's command line has.
    pub const fn victim(self) -> &'static str {
        match self {
            Self::Everything => "server-everything/dist",
            Self::Filesystem => "server-filesystem/dist",
            Self::Memory => "server-memory/dist",
            Self::Git => "mcp_server_git",
            Self::Time => "mcp_server_time",
            Self::Fixture => "mcp-fixture",
        }
    }

    /// All of them that somebody else wrote.
    pub const FOREIGN: [Self; 5] = [
        Self::Everything,
        Self::Filesystem,
        Self::Memory,
        Self::Git,
        Self::Time,
    ];

    /// The program that runs it: wrappers and shims have its words in their command lines, too.
    const fn program(self) -> &'static str {
        match self {
            Self::Everything | Self::Filesystem | Self::Memory => "node",
            Self::Git | Self::Time => "python",
            Self::Fixture => "mcp-fixture",
        }
    }

    /// Its processes among those of a host.
    pub fn processes(self, host: &Running) -> Vec<u32> {
        let runs_it = |pid: &u32| {
            let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            let program = program.file_name().unwrap_or_default().to_string_lossy();
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            program.starts_with(self.program())
                && String::from_utf8_lossy(&words).contains(self.victim())
        };
        host.family().into_iter().filter(runs_it).collect()
    }

    /// A call that it answers at once, given the folder of its files.
    pub fn quick_call(self, files: &Path) -> (&'static str, Value) {
        match self {
            Self::Everything => ("echo", json!({"message": "on"})),
            Self::Filesystem => ("list_allowed_directories", json!({})),
            Self::Memory => ("read_graph", json!({})),
            Self::Git => ("git_status", json!({"repo_path": files})),
            Self::Time => ("get_current_time", json!({"timezone": "UTC"})),
            Self::Fixture => ("echo", json!({"text": "on"})),
        }
    }

    /// Its command, with what it needs in a folder of its own; nothing if it is not installed.
    pub fn command(self, files: &Path) -> anyhow::Result<Option<Vec<OsString>>> {
        self.prepare(files)?;
        let node = |arguments: &[&Path]| -> anyhow::Result<_> {
            let package = lower(self);
            let program = format!(
                "node-servers/node_modules/@modelcontextprotocol/server-{package}/dist/index.js"
            );
            let Some(program) = tool(&program)? else {
                return Ok(None);
            };
            let words = ["node".into(), program.into_os_string()].into_iter();
            let arguments = arguments.iter().map(|path| OsString::from(*path));
            Ok(Some(words.chain(arguments).collect()))
        };
        let module = |name: &str, arguments: &[&str]| -> anyhow::Result<_> {
            let Some(mut words) = python("python-servers")? else {
                return Ok(None);
            };
            words.extend(["-m", name].map(OsString::from));
            words.extend(arguments.iter().map(OsString::from));
            Ok(Some(words))
        };
        match self {
            Self::Everything => node(&[Path::new("stdio")]),
            Self::Filesystem => node(&[files]),
            Self::Memory => {
                let words: Option<Vec<OsString>> = node(&[])?;
                let file = files.join("memory.jsonl");
                let variable = format!("MEMORY_FILE_PATH={}", file.display());
                let before = [OsString::from("env"), variable.into()];
                Ok(words.map(|words| before.into_iter().chain(words).collect()))
            }
            Self::Git => module(
                "mcp_server_git",
                &["--repository", &files.display().to_string()],
            ),
            Self::Time => module("mcp_server_time", &["--local-timezone", "UTC"]),
            Self::Fixture => {
                let options = ["--era", "both", "--effects"].map(OsString::from);
                let mut words = vec![binary("mcp-fixture")?.into_os_string()];
                words.extend(options);
                words.push(files.join("effects.jsonl").into());
                Ok(Some(words))
            }
        }
    }

    fn prepare(self, files: &Path) -> anyhow::Result<()> {
        let write = |name: &str, text: &str| {
            fs::write(files.join(name), text).with_context(|| format!("writing {name}"))
        };
        match self {
            Self::Filesystem => write("log.txt", "END\n"),
            Self::Git => {
                write("file.txt", "one\n")?;
                let script = "git init --quiet --initial-branch=main . && git add file.txt && \
                    git -c user.name=t -c user.email=t@example.com commit --quiet --message first";
                let made = Command::new("sh")
                    .args(["-c", script])
                    .current_dir(files)
                    .status()
                    .context("starting git")?;
                ensure!(made.success(), "no repository was made: {made}");
                write("file.txt", "one\nchanged\n")
            }
            _ => Ok(()),
        }
    }
}

/// Python with the modules of this set; nothing if they are not installed.
pub(crate) fn python(set: &str) -> anyhow::Result<Option<Vec<OsString>>> {
    // Without virtual environments the modules lie in a folder that must be named.
    let site = workspace()?.join(format!("target/tools/{set}-site"));
    if site.is_dir() {
        let variable = format!("PYTHONPATH={}", site.display());
        let words = ["env".into(), variable, "python3".into()];
        return Ok(Some(words.map(OsString::from).to_vec()));
    }
    let program: Option<PathBuf> = tool(&format!("{set}/bin/python"))?;
    Ok(program.map(|program| vec![program.into_os_string()]))
}

pub(crate) fn command_of(words: &[OsString]) -> anyhow::Result<Command> {
    let (program, arguments) = words.split_first().context("an empty command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}
