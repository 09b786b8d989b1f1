//! Hosts that share a state directory and the ledger pack's file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Request, Response};
use mainstay_testkit::oracle::{Effect, read_effects};
use mainstay_testkit::process::{Running, Serve, TempDir, Transport, binary};
use rustix::process::Signal;
use serde_json::Value;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What outlives the hosts of a test.
#[derive(Debug)]
pub(crate) struct World {
    folder: TempDir,
}

impl World {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Self::with("", "")
    }

    /// With more settings for each tool, and more sections.
    pub(crate) fn with(of_tools: &str, sections: &str) -> anyhow::Result<Self> {
        let world = Self {
            folder: TempDir::new()?,
        };
        let ledger = binary("ledger")?;
        let tools = ["append", "put", "transfer", "wait"];
        let tools: String = tools
            .iter()
            .map(|tool| format!("[packs.ledger.tools.{tool}]\ntasks = true\n{of_tools}\n"))
            .collect();
        let config = format!(
            "[packs.ledger]\ncommand = [{:?}, \"--file\", {:?}]\n{tools}{sections}",
            ledger.display().to_string(),
            world.effects_file().display().to_string(),
        );
        std::fs::write(world.config(), config)?;
        Ok(world)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("mainstay.toml")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn effects_file(&self) -> PathBuf {
        self.folder.path().join("effects.jsonl")
    }

    /// Every effect that ever took place.
    pub(crate) fn effects(&self) -> anyhow::Result<Vec<Effect>> {
        match self.effects_file().exists() {
            true => read_effects(&self.effects_file()),
            false => Ok(Vec::new()),
        }
    }

    /// A host of this world, not yet started.
    pub(crate) fn serve(&self, transport: Transport) -> anyhow::Result<Serve> {
        Ok(Serve::new(transport)?
            .env("MAINSTAY_STATE_DIR", self.state())
            .argument("--pack")
            .argument("ledger")
            .argument("--config")
            .argument(self.config()))
    }

    pub(crate) fn host(&self, transport: Transport) -> anyhow::Result<Running> {
        self.serve(transport)?.spawn()
    }

    /// `mainstay tasks ...`
    pub(crate) fn tasks(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        Command::new(binary("mainstay")?)
            .arg("tasks")
            .args(arguments)
            .env("MAINSTAY_STATE_DIR", self.state())
            .output()
            .context("running mainstay tasks")
    }

    /// A task as the command line shows it.
    pub(crate) fn show(&self, id: &str) -> anyhow::Result<Value> {
        let output = self.tasks(&["show", id])?;
        ensure!(output.status.success(), "{output:?}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Waits until a task has ended.
    pub(crate) fn ended(&self, id: &str) -> anyhow::Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let task = self.show(id)?;
            if task["status"] != "working" {
                return Ok(task);
            }
            ensure!(Instant::now() < deadline, "it never ends: {task:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Kills a host, and nothing else: its shims kill their workers.
pub(crate) fn kill(host: &mut Running) -> anyhow::Result<()> {
    host.signal(Signal::KILL)?;
    host.wait()?;
    Ok(())
}

/// Waits until something holds.
pub(crate) fn until(
    what: &str,
    mut holds: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        ensure!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// One request over HTTP.
pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> anyhow::Result<Response> {
    let mut request = Request::to(address, method, path);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if let Some(body) = body {
        request = request
            .header("Content-Type", "application/json")
            .body(body.to_string());
    }
    Connection::open(address)?.ask(&request)
}
