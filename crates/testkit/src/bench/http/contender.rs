//! Who takes part, and how each is started.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::http::{Connection, Request, modern};
use crate::peer::PATIENCE;
use crate::process::{TempDir, binary, tool, wait_for};

/// Between two attempts to reach a contender that is starting.
const AGAIN: Duration = Duration::from_micros(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// `mainstay wrap --http`, a legacy session.
    Legacy,
    /// The same, single requests.
    Modern,
    /// crates.io `mcp-proxy`.
    RustProxy,
    /// npm `mcp-proxy`.
    NodeProxy,
}

impl Who {
    pub(super) const ALL: [Self; 4] =
        [Self::Legacy, Self::Modern, Self::RustProxy, Self::NodeProxy];

    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Legacy => "mainstay",
            Self::Modern => "mainstay-modern",
            Self::RustProxy => "rust-proxy",
            Self::NodeProxy => "node-proxy",
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Legacy => "mainstay",
            Self::Modern => "mainstay (modern)",
            Self::RustProxy => "mcp-proxy (crate)",
            Self::NodeProxy => "mcp-proxy (npm)",
        }
    }

    pub(super) const fn is_ours(self) -> bool {
        matches!(self, Self::Legacy | Self::Modern)
    }

    /// Whether it takes an interpreter long to start.
    pub(super) const fn is_slow(self) -> bool {
        matches!(self, Self::NodeProxy)
    }

    /// Where it takes messages.
    const fn target(self) -> &'static str {
        match self {
            Self::RustProxy => "/",
            _ => "/mcp",
        }
    }

    /// What it calls the tool.
    const fn tool(self) -> &'static str {
        match self {
            Self::RustProxy => "bench/echo",
            _ => "echo",
        }
    }

    /// The command, listening at this port; `None` if it is not installed.
    fn command(self, folder: &Path, port: u16) -> anyhow::Result<Option<Command>> {
        let fixture = binary("mcp-fixture")?;
        let mut command = match self {
            Self::Legacy | Self::Modern => {
                let mut command = Command::new(binary("mainstay")?);
                command
                    .args(["wrap", "--http", &format!("127.0.0.1:{port}")])
                    .arg("--telemetry")
                    .arg(folder.join("telemetry.jsonl"))
                    .arg("--")
                    .arg(fixture);
                if self == Self::Modern {
                    command.args(["--era", "both"]);
                }
                command
            }
            Self::RustProxy => {
                let Some(program) = tool("cargo/bin/mcp-proxy")? else {
                    return Ok(None);
                };
                let config = folder.join("proxy.toml");
                let listen = format!("[proxy.listen]\nhost = \"127.0.0.1\"\nport = {port}\n");
                let backend = format!(
                    "[[backends]]\nname = \"bench\"\ntransport = \"stdio\"\ncommand = {:?}\n",
                    fixture.display().to_string()
                );
                let text = format!("[proxy]\nname = \"bench\"\n{listen}{backend}");
                fs::write(&config, text).context("a configuration")?;
                let mut command = Command::new(program);
                command.arg("--config").arg(config);
                command
            }
            Self::NodeProxy => {
                let script = tool("node-bench/node_modules/mcp-proxy/dist/bin/mcp-proxy.mjs")?;
                let Some(script) = script else {
                    return Ok(None);
                };
                let mut command = Command::new("node");
                command
                    .arg(script)
                    .args(["--host", "127.0.0.1", "--port", &port.to_string()])
                    .args(["--server", "stream", "--"])
                    .arg(fixture);
                command
            }
        };
        command
            .current_dir(folder)
            .env("MAINSTAY_RUNTIME_DIR", folder.join("run"))
            .env("MAINSTAY_CACHE_DIR", folder.join("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Some(command))
    }
}

/// One that runs, with a session where there is one.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) who: Who,
    pub(super) address: SocketAddr,
    session: Option<String>,
    child: Child,
    _folder: TempDir,
}

impl Contender {
    /// Starts it and calls the tool once.
    pub(super) fn start(who: Who) -> anyhow::Result<Option<Self>> {
        let folder = TempDir::new()?;
        let address = free()?;
        let Some(mut command) = who.command(folder.path(), address.port())? else {
            return Ok(None);
        };
        let child = command
            .spawn()
            .with_context(|| format!("starting {}", who.name()))?;
        let mut contender = Self {
            who,
            address,
            session: None,
            child,
            _folder: folder,
        };
        contender
            .open()
            .with_context(|| format!("opening {}", who.name()))?;
        Ok(Some(contender))
    }

    fn open(&mut self) -> anyhow::Result<()> {
        let mut connection = self.reach()?;
        if self.who != Who::Modern {
            let params = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "bench", "version": "1"},
            });
            let opening =
                json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
            let answer = connection.ask(&self.post(&opening))?;
            ensure!(answer.status() == 200, "initialize: {}", answer.text());
            let id = answer.head.header("mcp-session-id");
            self.session = id.map(str::to_owned);
            let opened = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            let answer = Connection::open(self.address)?.ask(&self.post(&opened))?;
            ensure!(
                (200..300).contains(&answer.status()),
                "initialized: {}",
                answer.text()
            );
        }
        let mut connection = Connection::open(self.address)?;
        connection.send(&self.call(0))?;
        let answer = connection.response()?;
        let text = answer.text();
        ensure!(
            answer.status() == 200 && text.contains("xxxx") && !text.contains("\"isError\":true"),
            "the tool failed: {} {text}",
            answer.status()
        );
        Ok(())
    }

    /// A connection, as soon as it listens.
    fn reach(&mut self) -> anyhow::Result<Connection> {
        let until = Instant::now() + PATIENCE;
        loop {
            match Connection::open(self.address) {
                Ok(connection) => return Ok(connection),
                Err(_) if Instant::now() < until => {
                    if let Some(status) = self.child.try_wait().context("looking")? {
                        bail!("it ended with {status}");
                    }
                    thread::sleep(AGAIN);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn post(&self, message: &Value) -> Request {
        let request = Request::to(self.address, "POST", self.who.target())
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .body(message.to_string());
        match &self.session {
            Some(id) => request
                .header("Mcp-Session-Id", id)
                .header("MCP-Protocol-Version", "2025-11-25"),
            None => request,
        }
    }

    /// A call as bytes, its message about 200 long.
    pub(super) fn call(&self, id: usize) -> Vec<u8> {
        let params = json!({"name": self.who.tool(), "arguments": {"text": "x".repeat(100)}});
        match self.who {
            Who::Modern => modern(self.address, &id.to_string(), "tools/call", &params).bytes(),
            _ => self
                .post(
                    &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}),
                )
                .bytes(),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it. Ours must end well; how others end is theirs.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process id")?, Signal::TERM).context("ending it")?;
        let ended = wait_for(&mut self.child, PATIENCE);
        if self.who.is_ours() {
            let status = ended?;
            ensure!(status.success(), "{} ended with {status}", self.who.name());
        }
        Ok(())
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// An address of the loopback that was free a moment ago: others cannot be told to take any.
fn free() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
    listener.local_addr().context("a free port")
}
