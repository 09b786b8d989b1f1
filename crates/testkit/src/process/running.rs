//! A host that runs.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::observe::pause;
use super::serve::MARKER;
use super::{TempDir, Usage, leftovers, marked, marked_running, usage};
use crate::peer::{Client, Message, PATIENCE};

/// How long the kernel may take to make a killed process disappear.
const REAPED_WITHIN: Duration = Duration::from_secs(60);

/// A started host.
#[derive(Debug)]
pub struct Running {
    child: Child,
    client: Option<Client>,
    stderr: Arc<Lines>,
    marker: String,
    socket: Option<PathBuf>,
    address: Option<SocketAddr>,
    folder: TempDir,
}

/// The lines of the host's standard error so far.
#[derive(Debug, Default)]
struct Lines {
    state: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

impl Running {
    pub(super) fn new(
        mut child: Child,
        marker: String,
        socket: Option<PathBuf>,
        folder: TempDir,
    ) -> anyhow::Result<Self> {
        let stderr = Arc::new(Lines::default());
        let (input, output) = (child.stdin.take(), child.stdout.take());
        if let Some(errors) = child.stderr.take() {
            let lines = Arc::clone(&stderr);
            thread::spawn(move || lines.collect(errors));
        }
        let client = match (input, output) {
            (Some(input), Some(output)) => Some(Client::new(output, input)),
            _ => None,
        };
        let running = Self {
            child,
            client,
            stderr,
            marker,
            socket,
            address: None,
            folder,
        };
        if running.socket.is_some() {
            running.wait_for_line("mcp:ready")?;
        }
        Ok(running)
    }

    /// Waits until the host listens on HTTP, and notes where.
    pub(super) fn listens(&mut self) -> anyhow::Result<()> {
        let line = self.wait_for_line("mcp:listening mode=http")?;
        let address = line
            .split_whitespace()
            .find_map(|word| word.strip_prefix("address="))
            .with_context(|| format!("no address in {line:?}"))?;
        self.address = Some(address.parse().context("the host's address")?);
        Ok(())
    }

    /// Where the host listens on HTTP.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        self.address.context("this host is not on HTTP")
    }

    /// The host's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The folder for the host's files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The client on standard input and output.
    pub fn client(&self) -> anyhow::Result<&Client> {
        self.client.as_ref().context("this host is not on stdio")
    }

    /// A client of its own: the one on stdio, or a new connection to the socket.
    pub fn take_client(&mut self) -> anyhow::Result<Client> {
        match &self.socket {
            None => self.client.take().context("the client on stdio is taken"),
            Some(_) => self.connect(),
        }
    }

    /// A new connection to the socket.
    pub fn connect(&self) -> anyhow::Result<Client> {
        let path = self
            .socket
            .as_ref()
            .context("this host is not on a socket")?;
        let stream = UnixStream::connect(path)
            .with_context(|| format!("connecting to {}", path.display()))?;
        let input = stream.try_clone().context("cloning the connection")?;
        Ok(Client::new(input, HalfClosing(stream)))
    }

    /// Memory of the host.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        usage(self.pid())
    }

    /// Everything that the host has started and that is alive, itself included.
    pub fn family(&self) -> Vec<u32> {
        marked(MARKER, &self.marker)
    }

    /// The living processes of the host that run this program: the workers of a pack.
    pub fn workers(&self, program: &str) -> Vec<u32> {
        marked_running(MARKER, &self.marker, program)
    }

    /// Waits until as many processes of the host run this program.
    pub fn wait_for_workers(&self, program: &str, count: usize) -> anyhow::Result<Vec<u32>> {
        let until = Instant::now() + PATIENCE;
        loop {
            let pids = self.workers(program);
            if pids.len() == count {
                return Ok(pids);
            }
            if Instant::now() >= until {
                bail!(
                    "{} workers instead of {count} after {PATIENCE:?}",
                    pids.len()
                );
            }
            pause();
        }
    }

    /// Standard error so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lock().0.clone()
    }

    /// Waits for a line on standard error that contains `text`.
    pub fn wait_for_line(&self, text: &str) -> anyhow::Result<String> {
        self.stderr.find(text, PATIENCE).with_context(|| {
            format!(
                "no line with {text:?} on standard error: {:#?}",
                self.stderr()
            )
        })
    }

    /// Sends TERM to the host.
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends any signal to the host.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let pid = pid.context("the process id is out of range")?;
        kill_process(pid, signal).context("signalling the host")
    }

    /// Waits for the exit of the host and checks that nothing is left of it.
    pub fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let status = wait_for(&mut self.child, PATIENCE)
            .with_context(|| format!("standard error: {:#?}", self.stderr()))?;
        leftovers(MARKER, &self.marker, REAPED_WITHIN)?;
        Ok(status)
    }

    /// Asks the host to end, by end of input or by TERM, and checks that it ended well: exit
    /// code 0, no process left, nothing said that nobody asked for.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let rest = self.shut_down()?;
        ensure!(rest.is_empty(), "unexpected at the end: {rest:#?}");
        Ok(())
    }

    /// As [`Self::stop`], but gives what the host still said on standard output, and its standard
    /// error.
    pub fn finish(mut self) -> anyhow::Result<(Vec<Message>, Vec<String>)> {
        let rest = self.shut_down()?;
        Ok((rest, self.stderr()))
    }

    fn shut_down(&mut self) -> anyhow::Result<Vec<Message>> {
        let rest = match (&self.socket, self.client.take()) {
            (None, Some(client)) => client.finish()?,
            (Some(_), _) => {
                self.terminate()?;
                Vec::new()
            }
            (None, None) if self.address.is_some() => {
                self.terminate()?;
                Vec::new()
            }
            // The test has taken the client and must have closed it.
            (None, None) => Vec::new(),
        };
        let status = self.wait()?;
        if status.code() != Some(0) {
            bail!(
                "the host ended with {status}; standard error: {:#?}",
                self.stderr()
            );
        }
        Ok(rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // Nothing after a test that succeeded.
        for pid in marked(MARKER, &self.marker) {
            kill(pid);
        }
    }
}

impl Lines {
    fn lock(&self) -> std::sync::MutexGuard<'_, (Vec<String>, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn collect(&self, errors: impl Read) {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            self.lock().0.push(line);
            self.changed.notify_all();
        }
        self.lock().1 = true;
        self.changed.notify_all();
    }

    fn find(&self, text: &str, patience: Duration) -> Option<String> {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if let Some(line) = state.0.iter().find(|line| line.contains(text)) {
                return Some(line.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.1 || left.is_zero() {
                return None;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Sends KILL to a process. False if it is gone already.
pub fn kill(pid: u32) -> bool {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
}

/// Waits for a child's exit, bounded.
pub fn wait_for(child: &mut Child, patience: Duration) -> anyhow::Result<ExitStatus> {
    let until = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().context("waiting for a child")? {
            return Ok(status);
        }
        if Instant::now() >= until {
            bail!("process {} did not end within {patience:?}", child.id());
        }
        pause();
    }
}

/// A socket whose writing side is shut down when its writer goes: the other side reads end of
/// input and can still answer.
struct HalfClosing(UnixStream);

impl std::io::Write for HalfClosing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for HalfClosing {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}
