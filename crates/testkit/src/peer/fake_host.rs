//! A host that is only a test: it drives one worker over the private protocol.
//!
//! ```no_run
//! use mainstay_testkit::peer::FakeHost;
//!
//! # fn main() -> anyhow::Result<()> {
//! let mut host = FakeHost::spawn(std::process::Command::new("target/debug/my-pack"))?;
//! let ready = host.start()?;
//! assert_eq!(ready.catalog.pack, "my-pack");
//! let answer = host.tool("greet", &serde_json::json!({"name": "Ada"}))?;
//! println!("{answer:?}");
//! host.drain()
//! # }
//! ```

use std::fmt;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use mainstay_contract::id::{CallId, Generation};
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::render::RenderMode;
use mainstay_contract::rpc::{
    Answer, Call, FromWorker, Op, PROTOCOL, Progress, Ready, Start, ToWorker,
};
use serde_json::Value;

use super::PATIENCE;
use crate::mailbox::{Mailbox, Missed};

/// Messages of the worker that were not asked for.
const INBOX: usize = 4096;

/// Stands where the host would stand.
pub struct FakeHost {
    to_worker: Option<Box<dyn Write + Send>>,
    heard: Arc<Mailbox<anyhow::Result<FromWorker>>>,
    child: Option<Child>,
    next_call: u64,
    patience: Duration,
}

/// What a worker said about one call until its answer.
#[derive(Debug)]
pub struct Heard {
    pub progress: Vec<Progress>,
    pub answer: Answer,
}

/// The first message as the real host sends it, with its default limits.
pub fn start() -> Start {
    let limits = Limits::default();
    Start {
        protocol: PROTOCOL,
        generation: Generation::new(1),
        pool: limits.pool,
        frame_bytes: limits.worker_frame_bytes,
        grace_ms: limits.grace_ms,
        text: limits.text(),
        violations: limits.violations,
        settings: Json::empty_object(),
    }
}

impl FakeHost {
    /// Drives a worker that reads from `to_worker` and writes to `from_worker`.
    pub fn over(
        from_worker: impl Read + Send + 'static,
        to_worker: impl Write + Send + 'static,
    ) -> Self {
        let heard = Arc::new(Mailbox::new(INBOX));
        let to = Arc::clone(&heard);
        thread::spawn(move || hear_all(from_worker, &to));
        Self {
            to_worker: Some(Box::new(to_worker)),
            heard,
            child: None,
            next_call: 1,
            patience: PATIENCE,
        }
    }

    /// Starts a worker process; its standard error goes to the test's.
    pub fn spawn(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the child has no pipes");
        };
        let mut host = Self::over(output, input);
        host.child = Some(child);
        Ok(host)
    }

    /// Waits at most this long for anything.
    #[must_use]
    pub const fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Says start, with the defaults, and waits for the announcement.
    pub fn start(&mut self) -> anyhow::Result<Ready> {
        self.start_with(start())
    }

    /// Says start and waits for the announcement.
    pub fn start_with(&mut self, start: Start) -> anyhow::Result<Ready> {
        self.send(&ToWorker::Start(start))?;
        match self.hear()? {
            FromWorker::Ready(ready) => Ok(ready),
            FromWorker::Unable { detail } => bail!("the pack cannot start: {detail}"),
            other => bail!("expected the worker to be ready, got {other:?}"),
        }
    }

    /// Runs a tool to its answer.
    pub fn tool(&mut self, name: &str, arguments: &Value) -> anyhow::Result<Answer> {
        self.run(tool_op(name, arguments, RenderMode::Json))
            .map(|heard| heard.answer)
    }

    /// Runs any operation to its answer, with the progress on the way.
    pub fn run(&mut self, op: Op) -> anyhow::Result<Heard> {
        let call = self.begin(op)?;
        self.end(call)
    }

    /// Sends a call and returns at once.
    pub fn begin(&mut self, op: Op) -> anyhow::Result<CallId> {
        let call = CallId::new(self.next_call);
        self.next_call += 1;
        let timeout_ms = Limits::default().call_timeout_ms;
        self.send(&ToWorker::Call(Call {
            call,
            attempt: 1,
            timeout_ms,
            trace: None,
            op,
        }))?;
        Ok(call)
    }

    /// Waits for the next step of progress of a call.
    pub fn progress(&mut self, call: CallId) -> anyhow::Result<Progress> {
        let said = self.take(
            "progress",
            |message| matches!(message, FromWorker::Progress { call: of, .. } if *of == call),
        )?;
        match said {
            FromWorker::Progress { progress, .. } => Ok(progress),
            other => bail!("expected progress, got {other:?}"),
        }
    }

    /// Waits for the answer of a call.
    pub fn end(&mut self, call: CallId) -> anyhow::Result<Heard> {
        let mut progress = Vec::new();
        loop {
            let about = |message: &FromWorker| match message {
                FromWorker::Progress { call: of, .. } | FromWorker::Answer { call: of, .. } => {
                    *of == call
                }
                _ => false,
            };
            match self.take(&format!("the answer of call {call}"), about)? {
                FromWorker::Progress { progress: step, .. } => progress.push(step),
                FromWorker::Answer { answer, .. } => return Ok(Heard { progress, answer }),
                other => bail!("expected an answer, got {other:?}"),
            }
        }
    }

    /// Asks for a call to stop.
    pub fn cancel(&mut self, call: CallId) -> anyhow::Result<()> {
        self.send(&ToWorker::Cancel { call })
    }

    /// Asks whether the worker still listens.
    pub fn ping(&mut self, nonce: u64) -> anyhow::Result<()> {
        self.send(&ToWorker::Ping { nonce })?;
        self.take("a pong", |message| *message == FromWorker::Pong { nonce })
            .map(|_| ())
    }

    /// Asks the worker to finish, and waits until it has: a process must exit with 0.
    pub fn drain(&mut self) -> anyhow::Result<()> {
        self.send(&ToWorker::Drain {})?;
        self.take("the end of the drain", |message| {
            *message == FromWorker::Drained {}
        })?;
        self.to_worker = None;
        match self.wait()? {
            None => Ok(()),
            Some(status) => {
                ensure!(status.success(), "the drained worker ended with {status}");
                Ok(())
            }
        }
    }

    /// Closes the worker's input without a drain.
    pub fn hang_up(&mut self) {
        self.to_worker = None;
    }

    /// Waits for the end of the worker's output and, where it is a process, for its exit.
    pub fn wait(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let until = Instant::now() + self.patience;
        loop {
            match self.heard.take(|_| true, Some(until)) {
                Ok(_) => {}
                Err(Missed::Closed) => break,
                Err(Missed::Late) => bail!("the worker did not end its output"),
            }
        }
        match &mut self.child {
            None => Ok(None),
            Some(child) => crate::process::wait_for(child, self.patience).map(Some),
        }
    }

    /// Sends any message.
    pub fn send(&mut self, message: &ToWorker) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(message).context("a message serialises")?;
        line.push(b'\n');
        self.send_raw(&line)
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let to = self
            .to_worker
            .as_mut()
            .context("the worker's input is closed")?;
        to.write_all(bytes)
            .and_then(|()| to.flush())
            .context("writing to the worker")
    }

    /// The next message, whatever it is.
    pub fn hear(&mut self) -> anyhow::Result<FromWorker> {
        self.take("a message", |_| true)
    }

    fn take(
        &self,
        what: &str,
        mut wanted: impl FnMut(&FromWorker) -> bool,
    ) -> anyhow::Result<FromWorker> {
        let wanted = |item: &anyhow::Result<FromWorker>| item.as_ref().map_or(true, &mut wanted);
        match self
            .heard
            .take(wanted, Some(Instant::now() + self.patience))
        {
            Ok(item) => item,
            Err(Missed::Late) => Err(anyhow!("{what} did not come within {:?}", self.patience)),
            Err(Missed::Closed) => Err(anyhow!("{what} will not come: the worker ended")),
        }
    }
}

/// A call of a tool.
pub(crate) fn tool_op(name: &str, arguments: &Value, render: RenderMode) -> Op {
    Op::Tool {
        name: name.to_owned(),
        arguments: arguments.clone().into(),
        render,
    }
}

impl fmt::Debug for FakeHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeHost")
            .field("child", &self.child)
            .finish_non_exhaustive()
    }
}

impl Drop for FakeHost {
    fn drop(&mut self) {
        self.heard.close();
        if let Some(child) = &mut self.child {
            // Only after a failed test is there anything left to kill.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn hear_all(from_worker: impl Read, heard: &Mailbox<anyhow::Result<FromWorker>>) {
    let mut input = BufReader::new(from_worker);
    let mut line = Vec::new();
    loop {
        line.clear();
        let item = match input.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => serde_json::from_slice(&line).with_context(|| {
                format!("not a worker's message: {}", String::from_utf8_lossy(&line))
            }),
            Err(error) => Err(anyhow!("reading from the worker failed: {error}")),
        };
        let is_over = item.is_err();
        if heard.push(item, None).is_err() || is_over {
            break;
        }
    }
    heard.close();
}
