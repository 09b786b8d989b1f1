//! How soon a wrapped server's client knows: lost calls after a kill with eight in flight, the same
//! session back, a deadline, and how soon a cancel is with the server.
//!
//! Every round is a fresh host, so that each recovery is a first one: pauses between restarts grow
//! with their number. Times are from the kill on, so the time to notice it is in them.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::{Options, Report, Samples};
use crate::fixture::{monotonic, read_told};
use crate::oracle::Failure;
use crate::peer::{Client, PATIENCE};
use crate::process::{Running, TempDir, kill};
use crate::wrapped::{Fixture, with_limits};

/// Calls in flight when the server is killed.
const IN_FLIGHT: u64 = 8;
/// Work of a call that is repeated.
const WORK_MS: u64 = 100;
/// The id of the call after the kill.
const NEXT: u64 = 100;
/// The deadline that is measured.
const DEADLINE: Duration = Duration::from_millis(500);
/// The fixture's program.
const SERVER: &str = "mcp-fixture";

pub(super) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let [mut lost, mut back, mut repeated, mut late]: [Samples; 4] = Default::default();
    let [mut bare_cancel, mut cancel]: [Samples; 2] = Default::default();
    for _ in 0..options.rounds {
        lose(&options.prefix, &mut lost, &mut back).context("lost calls")?;
        repeat(&options.prefix, &mut repeated).context("repeated calls")?;
        late.add(deadline(&options.prefix).context("the deadline")?);
        bare_cancel.add(cancelled(&[]).context("a cancel, bare")?);
        cancel.add(cancelled(&options.prefix).context("a cancel")?);
    }
    for (key, what, samples) in [
        ("lost", "kill to the fault of a lost call", &lost),
        ("back", "kill to the answer of the next call", &back),
        (
            "repeated",
            "kill to the answer of a repeated call of 100 ms",
            &repeated,
        ),
        ("deadline", "answer after the deadline", &late),
        ("cancel.bare", "cancel to the bare server", &bare_cancel),
        ("cancel", "cancel to the wrapped server", &cancel),
    ] {
        for (part, value) in [
            ("p50", samples.p50()),
            ("p99", samples.p99()),
            ("max", samples.percentile(1.0)),
        ] {
            let (key, what) = (format!("faults.{key}.{part}"), format!("{what}, {part}"));
            report.add(&key, &what, value / 1e3, "ms");
        }
    }
    super::foreign::run(options, report).context("servers of others")
}

/// A session with a wrapped fixture.
struct Session {
    host: Running,
    client: Client,
    state: std::path::PathBuf,
}

impl Session {
    fn open(prefix: &[OsString]) -> anyhow::Result<Self> {
        let fixture = Fixture::after(prefix.iter().cloned())?;
        let state = fixture.state();
        let mut host = fixture.spawn()?;
        let client = host.take_client()?;
        client.open(&json!({}))?;
        client.call("\"warm\"", "echo", &json!({"text": "warm"}))?;
        Ok(Self {
            host,
            client,
            state,
        })
    }

    /// Sends calls and waits until the server has them all.
    fn send(&self, count: u64, tool: &str, arguments: &Value) -> anyhow::Result<()> {
        for id in 0..count {
            let mut arguments = arguments.clone();
            if let Some(members) = arguments.as_object_mut() {
                members.insert("key".to_owned(), format!("k{id}").into());
            }
            let params = json!({"name": tool, "arguments": arguments});
            let call =
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            self.client.send(&call.to_string())?;
        }
        let has = |told: &str| told.contains(&format!("\"{tool}\""));
        let wanted = usize::try_from(count)?;
        wait_until(|| told(&self.state, has) == wanted)
    }

    fn kill(&self) -> anyhow::Result<Instant> {
        let victims = self.host.workers(SERVER);
        let [victim] = victims.as_slice() else {
            bail!("{} servers instead of one", victims.len());
        };
        ensure!(kill(*victim), "the server had gone");
        Ok(Instant::now())
    }

    fn close(mut self) -> anyhow::Result<()> {
        self.client.finish()?;
        let status = self.host.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

/// Eight calls that must not be repeated, and one after the kill.
fn lose(prefix: &[OsString], lost: &mut Samples, back: &mut Samples) -> anyhow::Result<()> {
    let session = Session::open(prefix)?;
    session.send(IN_FLIGHT, "append", &json!({"pause_ms": 60_000}))?;
    let start = session.kill()?;
    let call = json!({"jsonrpc": "2.0", "id": NEXT, "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": "next"}}});
    session.client.send(&call.to_string())?;
    for _ in 0..=IN_FLIGHT {
        let answer = answer(&session.client)?;
        let after = start.elapsed();
        match (answer.at("/id").as_u64(), Failure::read(&answer)) {
            (Some(NEXT), None) => back.add(after),
            (Some(0..IN_FLIGHT), Some(Failure::OutcomeUnknown)) => lost.add(after),
            _ => bail!("a wrong answer: {answer:?}"),
        }
    }
    session.close()
}

/// Eight calls that may be repeated.
fn repeat(prefix: &[OsString], repeated: &mut Samples) -> anyhow::Result<()> {
    let session = Session::open(prefix)?;
    session.send(IN_FLIGHT, "sleep", &json!({ "ms": WORK_MS }))?;
    let start = session.kill()?;
    for _ in 0..IN_FLIGHT {
        let answer = answer(&session.client)?;
        ensure!(
            Failure::read(&answer).is_none(),
            "a wrong answer: {answer:?}"
        );
        repeated.add(start.elapsed());
    }
    session.close()
}

/// How long after its deadline a call that hangs is answered.
fn deadline(prefix: &[OsString]) -> anyhow::Result<Duration> {
    let folder = TempDir::new()?;
    let limits = format!("call_timeout_ms = {}", DEADLINE.as_millis());
    let session = Session::open(&with_limits(prefix.to_vec(), folder.path(), &limits)?)?;
    let start = Instant::now();
    session.client.send(
        &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "hang", "arguments": {}}})
        .to_string(),
    )?;
    let answer = answer(&session.client)?;
    let after = start.elapsed();
    ensure!(
        Failure::read(&answer) == Some(Failure::Timeout),
        "a wrong answer: {answer:?}"
    );
    session.close()?;
    after
        .checked_sub(DEADLINE)
        .with_context(|| format!("answered before its deadline, after {after:?}"))
}

/// How long a cancel takes to the server.
fn cancelled(prefix: &[OsString]) -> anyhow::Result<Duration> {
    let session = Session::open(prefix)?;
    session.send(1, "sleep", &json!({"ms": 60_000}))?;
    let start = monotonic();
    session
        .client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}"#)?;
    let is_cancel = |line: &str| line.contains("notifications/cancelled");
    wait_until(|| told(&session.state, is_cancel) == 1)?;
    let heard = read_told(&session.state)?;
    let heard = heard.iter().find(|told| is_cancel(&told.line));
    let at = heard.context("the cancel was not noted")?.at;
    session.close()?;
    Ok(Duration::from_nanos(at.saturating_sub(start)))
}

/// The next answer; what else is said in between is left alone.
fn answer(client: &Client) -> anyhow::Result<crate::peer::Message> {
    client.take("an answer", |message| message.id().is_some())
}

fn told(state: &Path, wanted: impl Fn(&str) -> bool) -> usize {
    let told = read_told(state).unwrap_or_default();
    told.iter().filter(|told| wanted(&told.line)).count()
}

fn wait_until(mut done: impl FnMut() -> bool) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !done() {
        ensure!(Instant::now() < until, "it did not happen in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
