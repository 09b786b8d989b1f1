//! The fault battery over a wrapped fixture: whatever the server does to itself, each call has its one
//! answer and the same session goes on. Skipped, with a line that says so, while no way of starting
//! a server survives its faults.

#![expect(clippy::print_stdout, reason = "what is skipped is said")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use mainstay_testkit::fixture::{read_executed, read_told};
use mainstay_testkit::oracle::Failure;
use mainstay_testkit::peer::{Client, Message, PATIENCE};
use mainstay_testkit::process::{Running, TempDir, kill};
use mainstay_testkit::wrapped::{Fixture, WAYS, Way};
use serde_json::{Value, json};

/// Time in which an answer too many would come.
const QUIET: Duration = Duration::from_millis(100);

fn ways() -> Vec<Way> {
    let ways = WAYS.iter().copied().filter(|way| way.survives_kills());
    let ways: Vec<Way> = ways.collect();
    if ways.is_empty() {
        println!("SKIPPED: in no way of starting it does a session outlive its server");
    }
    ways
}

/// An open session with a wrapped fixture. What is not asked for may only be a log message.
struct Session {
    host: Running,
    client: Client,
}

impl Session {
    fn open(fixture: Fixture) -> anyhow::Result<Self> {
        let mut host = fixture.spawn()?;
        let client = host.take_client()?;
        client.open(&json!({}))?;
        Ok(Self { host, client })
    }

    /// A call that is answered.
    fn answer(&self, tool: &str, arguments: &Value) -> anyhow::Result<Message> {
        let answer = self.client.call("1", tool, arguments);
        answer.with_context(|| format!("standard error: {:#?}", self.host.stderr()))
    }

    fn text(&self, tool: &str, arguments: &Value) -> anyhow::Result<String> {
        let answer = self.answer(tool, arguments)?;
        ensure!(Failure::read(&answer).is_none(), "{tool}: {answer:?}");
        let text = answer.at("/result/content/0/text");
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    fn failure(&self, tool: &str, arguments: &Value) -> anyhow::Result<Failure> {
        let answer = self.answer(tool, arguments)?;
        Failure::read(&answer).with_context(|| format!("{tool} succeeded: {answer:?}"))
    }

    /// The session is served, and nobody says anything that nobody asked for.
    fn goes_on(&self) -> anyhow::Result<()> {
        ensure!(self.text("echo", &json!({"text": "on"}))? == "on");
        let until = Instant::now() + QUIET;
        while let Some(message) = self.client.next_until(until)? {
            let method = message.method().unwrap_or_default();
            ensure!(method == "notifications/message", "unasked: {message:?}");
        }
        Ok(())
    }

    fn close(mut self) -> anyhow::Result<()> {
        self.goes_on()?;
        self.client.finish()?;
        let status = self.host.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

#[test]
fn call_that_ends_its_server_gets_a_typed_fault_and_the_session_goes_on() -> anyhow::Result<()> {
    for way in ways() {
        for (tool, arguments) in [
            ("crash", json!({"how": "exit"})),
            ("crash", json!({"how": "abort"})),
            ("crash", json!({"how": "segv"})),
            ("crash", json!({"how": "kill"})),
            ("half_frame", json!({})),
            ("exit_clean", json!({"answer": false})),
        ] {
            let session = Session::open(Fixture::new(way)?)?;
            let failure = session.failure(tool, &arguments)?;
            ensure!(
                failure == Failure::OutcomeUnknown,
                "{tool} {arguments}: {failure:?}"
            );
            session.close().with_context(|| tool.to_owned())?;
        }
    }
    Ok(())
}

#[test]
fn answer_that_came_before_the_end_counts() -> anyhow::Result<()> {
    for way in ways() {
        let session = Session::open(Fixture::new(way)?)?;
        ensure!(session.text("exit_clean", &json!({}))? == "good bye");
        session.close()?;
    }
    Ok(())
}

#[test]
fn effect_before_a_crash_is_not_repeated() -> anyhow::Result<()> {
    for way in ways() {
        let fixture = Fixture::new(way)?;
        let effects = fixture.effects();
        let session = Session::open(fixture)?;
        let crash = json!({"how": "kill", "after_effect": "once"});
        let failure = session.failure("crash", &crash)?;
        ensure!(failure == Failure::OutcomeUnknown, "{failure:?}");
        session.goes_on()?;
        let executed = read_executed(&effects)?;
        ensure!(executed.len() == 1, "{executed:?}");
        session.close()?;
    }
    Ok(())
}

#[test]
fn what_is_no_answer_of_its_call_is_not_passed_on() -> anyhow::Result<()> {
    for way in ways() {
        let session = Session::open(Fixture::new(way)?.options("--banner"))?;
        ensure!(session.text("garbage", &json!({}))? == "after the garbage");
        ensure!(session.text("answer_twice", &json!({}))? == "once");
        session.goes_on()?;
        let right = json!({"then_right": true});
        ensure!(session.text("wrong_id", &right)? == "for the right one");
        session.close()?;
    }
    Ok(())
}

#[test]
fn answer_over_the_limit_is_a_failure_of_its_call_alone() -> anyhow::Result<()> {
    for way in ways() {
        let session = Session::open(Fixture::new(way)?)?;
        let answer = session.answer("oversize", &json!({}))?;
        ensure!(answer.text().len() < 1 << 20, "passed on whole");
        ensure!(Failure::read(&answer).is_some(), "{answer:?}");
        session.close()?;
    }
    Ok(())
}

#[test]
fn hanging_call_ends_at_its_deadline_and_the_server_hears_of_it() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    for way in ways() {
        let prefix = way.limited_prefix(folder.path(), "call_timeout_ms = 5000")?;
        let fixture = Fixture::after(prefix)?;
        let state = fixture.state();
        let session = Session::open(fixture)?;
        let start = Instant::now();
        let failure = session.failure("hang", &json!({}))?;
        let after = start.elapsed();
        ensure!(failure == Failure::Timeout, "{failure:?}");
        ensure!(after >= Duration::from_millis(5000), "after {after:?}");
        ensure!(after < Duration::from_secs(60), "after {after:?}");
        session.goes_on()?;
        let told = read_told(&state)?;
        let is_cancel = |line: &str| line.contains("notifications/cancelled");
        ensure!(told.iter().any(|told| is_cancel(&told.line)), "{told:#?}");
        session.close()?;
    }
    Ok(())
}

#[test]
fn cancel_reaches_the_server_and_nobody_is_answered() -> anyhow::Result<()> {
    for way in ways() {
        let fixture = Fixture::new(way)?;
        let state = fixture.state();
        let session = Session::open(fixture)?;
        session.client.send(
            &json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call",
                "params": {"name": "sleep", "arguments": {"ms": 60_000}}})
            .to_string(),
        )?;
        session.client.send(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}"#,
        )?;
        session.goes_on()?;
        let told = read_told(&state)?;
        let asked = told.iter().position(|told| told.line.contains("\"sleep\""));
        let cancel = told
            .iter()
            .position(|told| told.line.contains("notifications/cancelled"));
        // Cancelled so soon, it may never have been handed over.
        ensure!(asked.is_none() || cancel > asked, "{told:#?}");
        session.close()?;
    }
    Ok(())
}

#[test]
fn server_that_fails_to_start_at_first_is_started_again() -> anyhow::Result<()> {
    for way in ways() {
        let fixture = Fixture::new(way)?;
        let counter = fixture.path("count");
        let fixture = fixture
            .options("--exit-at-start --times 2 --counter")
            .word(counter);
        Session::open(fixture)?.close()?;
    }
    Ok(())
}

/// A successor is told what its predecessor was told about the session, once.
#[test]
fn successor_is_told_the_state_of_the_session() -> anyhow::Result<()> {
    for way in ways() {
        let fixture = Fixture::new(way)?;
        let state = fixture.state();
        let session = Session::open(fixture)?;
        let level = json!({"level": "error"});
        session.client.request("2", "logging/setLevel", &level)?;
        let uri = json!({"uri": "fixture:///readme"});
        session.client.request("3", "resources/subscribe", &uri)?;
        session.failure("crash", &json!({"how": "kill"}))?;
        session.answer("touch", &uri)?;
        session
            .client
            .notification("notifications/resources/updated")?;
        let told = read_told(&state)?;
        let last = told.last().context("nothing was told")?.pid;
        let of_last = |text: &str| {
            let lines = told.iter().filter(|told| told.pid == last);
            lines.filter(|told| told.line.contains(text)).count()
        };
        for once in [
            "\"initialize\"",
            "notifications/initialized",
            "logging/setLevel",
            "resources/subscribe",
        ] {
            ensure!(
                of_last(once) == 1,
                "{once} was told {} times",
                of_last(once)
            );
        }
        session.close()?;
    }
    Ok(())
}

#[test]
fn nothing_is_left_when_the_wrapper_is_killed() -> anyhow::Result<()> {
    for way in ways() {
        for options in ["", "--stubborn"] {
            let mut session = Session::open(Fixture::new(way)?.options(options))?;
            session.text("fork", &json!({}))?;
            ensure!(kill(session.host.pid()), "it had gone");
            let until = Instant::now() + PATIENCE;
            while !session.host.family().is_empty() {
                if Instant::now() > until {
                    bail!("left over: {:?}", session.host.family());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            session.host.wait()?;
        }
    }
    Ok(())
}
