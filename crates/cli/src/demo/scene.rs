//! The processes of the demonstration: a host that wraps the demo server, and its only client.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use mainstay_contract::control::{ControlReply, ControlRequest, HostStatus};
use mainstay_host::files;
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::answer::ToolAnswer;
use crate::client::Client;
use crate::environment::variable;
use crate::exit::Failure;
use crate::operate;

/// Name of the server.
const SERVER: &str = "librarian";
/// For each wait. A demonstration takes a second or two; a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(5);
/// The search path where none is set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A host and its client, with a folder of their own.
pub(super) struct Scene {
    folder: PathBuf,
    program: PathBuf,
    host: Child,
    client: Option<Client>,
}

/// A call that is running.
pub(super) struct Running {
    began: Instant,
    ended: Receiver<(Client, Result<ToolAnswer, Failure>, Duration)>,
}

/// An answer, and the time that the client waited for it.
pub(super) struct Answered {
    pub(super) answer: ToolAnswer,
    pub(super) took: Duration,
}

impl Scene {
    /// Starts the host and opens a session.
    pub(super) fn open(folder: &Path) -> Result<Self, Failure> {
        let program = std::env::current_exe().context("cannot find the running program");
        let program = program.map_err(Failure::fault)?;
        files::create_private(folder)
            .with_context(|| format!("cannot make {}", folder.display()))
            .map_err(Failure::input)?;
        let begun = || {
            let (ours, theirs) = UnixStream::pair()?;
            // The host calls a server by the name of its program.
            symlink(&program, folder.join(SERVER))?;
            let host = command(&program, folder)
                .args(["wrap", "--name", "demo", "--"])
                .arg(folder.join(SERVER))
                .args(["demo", "--server"])
                .arg(folder)
                .stdin(OwnedFd::from(theirs.try_clone()?))
                .stdout(OwnedFd::from(theirs))
                .stderr(File::create(folder.join("log"))?)
                .spawn()?;
            Ok::<_, std::io::Error>((ours, host))
        };
        let begun = begun().context("cannot start a host");
        let (stream, host) = begun.map_err(Failure::fault)?;
        let mut scene = Self {
            folder: folder.to_owned(),
            program,
            host,
            client: None,
        };
        scene.client = Some(Client::open(stream)?);
        Ok(scene)
    }

    /// The process of the host.
    pub(super) fn host(&self) -> u32 {
        self.host.id()
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Calls a tool and waits for the answer.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Result<Answered, Failure> {
        let running = self.begin(tool, arguments)?;
        self.end(running)
    }

    /// Sends a call.
    pub(super) fn begin(&mut self, tool: &str, arguments: &Value) -> Result<Running, Failure> {
        let client = self.client.take();
        let mut client = client.ok_or_else(|| Failure::fault(anyhow!("a call is running")))?;
        let (tool, arguments) = (tool.to_owned(), arguments.clone().into());
        let (end, ended) = mpsc::sync_channel(1);
        let began = Instant::now();
        std::thread::spawn(move || {
            let answer = client.call(&tool, &arguments).map_err(Failure::from);
            let _ = end.send((client, answer, began.elapsed()));
        });
        Ok(Running { began, ended })
    }

    /// Waits for the answer of a call.
    pub(super) fn end(&mut self, running: Running) -> Result<Answered, Failure> {
        let Running { began, ended } = running;
        let left = PATIENCE.saturating_sub(began.elapsed());
        let ended = ended.recv_timeout(left).map_err(|_| late("an answer"))?;
        let (client, answer, took) = ended;
        self.client = Some(client);
        let answer = answer?;
        Ok(Answered { answer, took })
    }

    /// The host's report about itself.
    pub(super) fn status(&self) -> Result<HostStatus, Failure> {
        let socket = self.folder.join(format!("{}.sock", self.host()));
        match operate::ask_at(&socket, &ControlRequest::Status {})? {
            ControlReply::Status(status) => Ok(*status),
            other => Err(operate::unexpected(&other)),
        }
    }

    /// The process and the generation of the server that serves.
    pub(super) fn server(&self) -> Result<(u32, u64), Failure> {
        wait_for("a server that is ready", || {
            let status = self.status()?;
            let worker = status.health.workers.first();
            Ok(worker.and_then(|worker| Some((worker.pid?, worker.generation.get()))))
        })
    }

    /// Kills the server without warning, and returns its process.
    pub(super) fn kill_server(&self) -> Result<u32, Failure> {
        let (pid, _) = self.server()?;
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or_else(|| Failure::fault(anyhow!("{pid} is not a process")))?;
        rustix::process::kill_process(number, Signal::KILL)
            .with_context(|| format!("cannot kill process {pid}"))
            .map_err(Failure::fault)?;
        Ok(pid)
    }

    /// Runs a command of an operator for this host, and returns its output.
    pub(super) fn operate(&self, verb: &str) -> Result<String, Failure> {
        let output = command(&self.program, &self.folder)
            .args([verb, "--pid", &self.host().to_string()])
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run mainstay {verb}"))
            .map_err(Failure::fault)?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            let said = anyhow!("mainstay {verb} failed: {said} {}", error.trim());
            return Err(Failure::fault(said));
        }
        Ok(said)
    }

    /// The lines that the host logged.
    pub(super) fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Ends the session; the host ends with its only client.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        self.client = None;
        wait_for("the end of the host", || {
            let ended = self.host.try_wait().map_err(Failure::fault)?;
            Ok(ended.map(|_| ()))
        })
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // After an ordinary end the process is reaped, and these do nothing.
        let _ = self.host.kill();
        let _ = self.host.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// This program, where nothing of the user's own settings and hosts can be seen.
fn command(program: &Path, folder: &Path) -> Command {
    let path = variable("PATH").unwrap_or_else(|| DEFAULT_PATH.to_owned());
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", path)
        .env("MAINSTAY_RUNTIME_DIR", folder)
        .env("MAINSTAY_CACHE_DIR", folder.join("cache"))
        .env("MAINSTAY_STATE_DIR", folder.join("state"))
        .env("MCP_READY_FILE", folder.join("ready"));
    command
}

/// Asks until there is an answer.
pub(super) fn wait_for<T>(
    what: &str,
    mut ask: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            return Err(late(what));
        }
        std::thread::sleep(STEP);
    }
}

fn late(what: &str) -> Failure {
    let seconds = PATIENCE.as_secs();
    Failure::fault(anyhow!(
        "the demonstration waited {seconds} s in vain for {what}"
    ))
}
