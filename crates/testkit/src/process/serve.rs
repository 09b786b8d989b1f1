//! How to start a host.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::temp::unique;
use super::{Running, TempDir, binary, marked, wait_for};
use crate::peer::PATIENCE;

/// The variable by which everything that a host starts is recognised.
pub const MARKER: &str = "TESTKIT_RUN";

/// The example pack's file in the host's folder.
const LEDGER: &str = "ledger.jsonl";

/// How clients reach the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One client, over the host's standard input and output.
    Stdio,
    /// Many clients, over a Unix socket in the test's folder.
    Socket,
    /// Many clients, over HTTP on a free port of the loopback address.
    Http,
}

/// A host to be started: `mainstay serve` with packs, options and variables.
#[derive(Debug)]
pub struct Serve {
    transport: Transport,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    socket: Option<PathBuf>,
    umask: Option<u32>,
    file_blocks: Option<u32>,
    descriptors: Option<u32>,
    folder: TempDir,
    marker: String,
}

impl Serve {
    /// A host without packs. Its ready file, its runtime folder and its socket lie in a
    /// temporary folder of its own.
    pub fn new(transport: Transport) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let mut serve = Self {
            transport,
            arguments: Vec::new(),
            variables: Vec::new(),
            socket: None,
            umask: None,
            file_blocks: None,
            descriptors: None,
            marker: unique("run"),
            folder,
        };
        let ready = serve.folder.join("ready");
        let runtime = serve.folder.join("run");
        serve.variable("MCP_READY_FILE", ready);
        serve.variable("MAINSTAY_RUNTIME_DIR", runtime);
        let state = serve.folder.join("state");
        serve.variable("MAINSTAY_STATE_DIR", state);
        Ok(serve)
    }

    /// A host on standard input and output.
    pub fn stdio() -> anyhow::Result<Self> {
        Self::new(Transport::Stdio)
    }

    /// A host on a socket.
    pub fn socket() -> anyhow::Result<Self> {
        Self::new(Transport::Socket)
    }

    /// A host on HTTP.
    pub fn http() -> anyhow::Result<Self> {
        Self::new(Transport::Http)
    }

    /// Adds a pack as `--pack` takes it: a built-in name or `NAME=COMMAND`.
    #[must_use]
    pub fn pack(self, pack: impl Into<OsString>) -> Self {
        self.argument("--pack").argument(pack)
    }

    /// Adds a program of the workspace as a pack.
    pub fn program(self, name: &str, program: &str, arguments: &str) -> anyhow::Result<Self> {
        let path = binary(program)?;
        let command = format!("{name}={} {arguments}", path.display());
        Ok(self.pack(command.trim_end().to_owned()))
    }

    /// Adds the example pack, with its file `ledger.jsonl` in the host's folder.
    pub fn ledger(self) -> anyhow::Result<Self> {
        let file = self.ledger_file();
        self.program("ledger", "ledger", &format!("--file {}", file.display()))
    }

    /// Where the example pack keeps its effects.
    pub fn ledger_file(&self) -> PathBuf {
        self.folder.join(LEDGER)
    }

    /// Adds the example pack behind a relay that kills it (see [`crate::crash`]).
    pub fn crashing_ledger(self, point: &str) -> anyhow::Result<Self> {
        let (ledger, file) = (binary("ledger")?, self.ledger_file());
        let arguments = format!("{point} -- {} --file {}", ledger.display(), file.display());
        self.program("ledger", "crash-relay", &arguments)
    }

    /// Adds a configuration file with these `[limits]`, one `key = value` each.
    pub fn limits(self, limits: &str) -> anyhow::Result<Self> {
        let file = self.folder.join("limits.toml");
        let lines = limits
            .split(',')
            .map(str::trim)
            .collect::<Vec<_>>()
            .join("\n");
        std::fs::write(&file, format!("[limits]\n{lines}\n"))
            .with_context(|| format!("writing {}", file.display()))?;
        Ok(self.argument("--config").argument(file))
    }

    /// Adds a worker that misbehaves.
    pub fn misbehaving(self, mode: &str) -> anyhow::Result<Self> {
        self.program("bad", "misbehaving-worker", mode)
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variable(name, value);
        self
    }

    /// Listens at another path than the one in the host's folder.
    #[must_use]
    pub fn at(mut self, socket: impl Into<PathBuf>) -> Self {
        self.socket = Some(socket.into());
        self
    }

    /// Runs the host with this mask for the modes of its files.
    #[must_use]
    pub const fn umask(mut self, mask: u32) -> Self {
        self.umask = Some(mask);
        self
    }

    /// Lets no file of the host or its workers grow past so many blocks, as if the disk were full.
    #[must_use]
    pub const fn file_blocks(mut self, blocks: u32) -> Self {
        self.file_blocks = Some(blocks);
        self
    }

    /// Lets the host and its workers have so many descriptors each.
    #[must_use]
    pub const fn descriptors(mut self, most: u32) -> Self {
        self.descriptors = Some(most);
        self
    }

    /// The folder for the host's files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the ready file will be, unless `MCP_READY_FILE` was set again.
    pub fn ready_file(&self) -> PathBuf {
        self.folder.join("ready")
    }

    /// Everything alive that was started with [`Self::command`], the host included.
    pub fn family(&self) -> Vec<u32> {
        marked(MARKER, &self.marker)
    }

    /// The command, without its pipes.
    pub fn command(&self) -> anyhow::Result<Command> {
        let program = binary("mainstay")?;
        let mut before = String::new();
        if let Some(mask) = self.umask {
            let _ = write!(before, "umask {mask:03o}; ");
        }
        if let Some(blocks) = self.file_blocks {
            // Without the signal that would end the process, a write past the limit just fails.
            let _ = write!(before, "ulimit -f {blocks}; ");
        }
        if let Some(most) = self.descriptors {
            let _ = write!(before, "ulimit -n {most}; ");
        }
        let mut command = if before.is_empty() {
            Command::new(program)
        } else {
            let mut shell = Command::new("sh");
            let script = format!("{before}exec \"$0\" \"$@\"");
            shell.arg("-c").arg(script).arg(program);
            shell
        };
        command.arg("serve").args(&self.arguments);
        match self.transport {
            Transport::Stdio => {}
            Transport::Socket => {
                command.arg("--socket").arg(self.socket_path());
            }
            Transport::Http => {
                command.args(["--http", "127.0.0.1:0"]);
            }
        }
        command
            .env(MARKER, &self.marker)
            .env("MAINSTAY_RUNTIME_DIR", self.folder.path().join("run"))
            .current_dir(self.folder.path());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Starts the host. On a socket and on HTTP it returns when the host listens.
    pub fn spawn(self) -> anyhow::Result<Running> {
        let mut command = self.command()?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        match self.transport {
            Transport::Stdio => command.stdin(Stdio::piped()),
            Transport::Socket | Transport::Http => command.stdin(Stdio::null()),
        };
        let child = command.spawn().context("starting mainstay")?;
        let socket = match self.transport {
            Transport::Stdio | Transport::Http => None,
            Transport::Socket => Some(self.socket_path()),
        };
        let mut running = Running::new(child, self.marker, socket, self.folder)?;
        if self.transport == Transport::Http {
            running.listens()?;
            running.wait_for_line("mcp:ready mode=http")?;
        }
        Ok(running)
    }

    /// Starts a host that must not start, and gives its exit code and standard error.
    pub fn refused(&self) -> anyhow::Result<(Option<i32>, String)> {
        let mut child = self
            .command()?
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting mainstay")?;
        let mut errors = child.stderr.take().context("no standard error")?;
        let status = match wait_for(&mut child, PATIENCE) {
            Ok(status) => status,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error.context("the host started although it must not"));
            }
        };
        let mut text = String::new();
        errors
            .read_to_string(&mut text)
            .context("reading standard error")?;
        Ok((status.code(), text))
    }

    fn socket_path(&self) -> PathBuf {
        self.socket
            .clone()
            .unwrap_or_else(|| self.folder.join("sock"))
    }

    fn variable(&mut self, name: &str, value: impl Into<OsString>) {
        self.variables.push((name.into(), value.into()));
    }
}
