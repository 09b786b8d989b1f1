//! The fake host and the misbehaving workers against each other: each breaks its rule and no
//! other.

use std::process::Command;
use std::time::{Duration, Instant};

use mainstay_contract::render::RenderMode;
use mainstay_contract::rpc::{Answer, FromWorker, Op, PROTOCOL, ToWorker};
use mainstay_testkit::misbehave::catalog;
use mainstay_testkit::peer::{FakeHost, PATIENCE, start};
use mainstay_testkit::process::{MARKER, binary, leftovers, marked};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

fn worker(mode: &str) -> anyhow::Result<FakeHost> {
    let mut command = Command::new(binary("misbehaving-worker")?);
    command.arg(mode);
    FakeHost::spawn(command)
}

fn started(mode: &str) -> anyhow::Result<FakeHost> {
    let mut host = worker(mode)?;
    let ready = host.start()?;
    assert_eq!((ready.protocol, ready.catalog), (PROTOCOL, catalog(1)));
    Ok(host)
}

fn once() -> Op {
    Op::Tool {
        name: "once".to_owned(),
        arguments: json!({"n": 1}).into(),
        render: RenderMode::Json,
    }
}

#[test]
fn honest_worker_answers_calls_and_pings_and_drains() -> anyhow::Result<()> {
    let mut host = started("honest")?;
    let Answer::Tool(reply) = host.tool("once", &json!({"n": 1}))? else {
        panic!("no reply of a tool");
    };
    assert_eq!(reply.json.as_str(), r#"{"n":1}"#);
    host.ping(7)?;
    host.drain()
}

#[test]
fn hanging_worker_answers_pings_but_no_call() -> anyhow::Result<()> {
    let mut host = started("hang")?.with_patience(Duration::from_millis(50));
    let call = host.begin(once())?;
    assert!(host.end(call).is_err());
    let mut host = host.with_patience(PATIENCE);
    host.ping(1)?;
    host.drain()
}

#[test]
fn worker_that_ignores_term_stays_after_a_drain() -> anyhow::Result<()> {
    let mut host = started("ignore-term")?.with_patience(Duration::from_millis(50));
    host.send(&ToWorker::Drain {})?;
    assert!(host.wait().is_err());
    Ok(())
}

#[test]
fn dying_workers_end_without_an_answer() -> anyhow::Result<()> {
    for mode in ["die-on-call", "half-frame", "die-once"] {
        let mut host = started(mode)?;
        let call = host.begin(once())?;
        assert!(host.end(call).is_err(), "{mode}");
        let status = host.wait()?.expect("it is a process");
        assert_eq!(status.code(), Some(9), "{mode}");
    }
    Ok(())
}

#[test]
fn workers_that_do_not_start_say_so_each_in_their_way() -> anyhow::Result<()> {
    let error = worker("unable")?.start().unwrap_err().to_string();
    assert!(error.contains("told to be unable"), "{error}");
    let mut host = worker("exit-at-start")?;
    assert!(host.start().is_err());
    assert_eq!(host.wait()?.and_then(|status| status.code()), Some(3));
    assert_ne!(worker("wrong-protocol")?.start()?.protocol, PROTOCOL);
    let mut silent = worker("never-ready")?.with_patience(Duration::from_millis(50));
    assert!(silent.start().is_err());
    Ok(())
}

#[test]
fn second_generation_of_another_build_has_another_catalog() -> anyhow::Result<()> {
    let mut host = worker("wrong-build")?;
    let mut start = start();
    start.generation = start.generation.next();
    assert_eq!(host.start_with(start)?.catalog, catalog(2));
    Ok(())
}

#[test]
fn workers_that_answer_too_much_also_answer() -> anyhow::Result<()> {
    let mut host = started("duplicate-answer")?;
    let call = host.begin(once())?;
    host.end(call)?;
    host.end(call)?;
    host.drain()?;

    let mut host = started("answer-unknown-call")?;
    let call = host.begin(once())?;
    assert!(matches!(host.hear()?, FromWorker::Answer { call: of, .. } if of != call));
    host.end(call)?;
    host.drain()?;

    let mut host = started("flood")?;
    let call = host.begin(once())?;
    let heard = host.end(call)?;
    assert_eq!(heard.progress.len(), 50_000);
    host.drain()
}

#[test]
fn babbling_worker_writes_what_is_no_message() -> anyhow::Result<()> {
    let mut host = started("babble")?;
    host.begin(once())?;
    assert!(
        host.hear()
            .unwrap_err()
            .to_string()
            .contains("not a worker's message")
    );
    Ok(())
}

#[test]
fn worker_without_pongs_still_answers_calls() -> anyhow::Result<()> {
    let mut host = started("no-pong")?.with_patience(Duration::from_millis(50));
    assert!(host.ping(1).is_err());
    let mut host = host.with_patience(PATIENCE);
    host.tool("again", &json!({}))?;
    host.drain()
}

fn said(left: &anyhow::Result<()>) -> String {
    left.as_ref()
        .err()
        .map(ToString::to_string)
        .unwrap_or_default()
}

#[test]
fn daemon_that_left_its_group_is_found_by_its_marker() -> anyhow::Result<()> {
    let marker = format!("daemon-{}", std::process::id());
    let mut command = Command::new(binary("misbehaving-worker")?);
    command.arg("fork-daemon").env(MARKER, &marker);
    let mut host = FakeHost::spawn(command)?;
    host.start()?;
    host.tool("again", &json!({}))?;
    host.drain()?;
    // The daemon is on its way while its parent answers and leaves already.
    let deadline = Instant::now() + PATIENCE;
    let mut left = leftovers(MARKER, &marker, Duration::ZERO);
    while !said(&left).contains("sleep 1000") && Instant::now() < deadline {
        std::thread::yield_now();
        left = leftovers(MARKER, &marker, Duration::ZERO);
    }
    for pid in marked(MARKER, &marker) {
        let pid = Pid::from_raw(i32::try_from(pid)?).expect("a process has a number");
        kill_process(pid, Signal::KILL)?;
    }
    assert!(said(&left).contains("sleep 1000"), "{}", said(&left));
    leftovers(MARKER, &marker, PATIENCE)
}

#[test]
fn wrong_mode_is_refused_with_the_list_of_modes() -> anyhow::Result<()> {
    let output = Command::new(binary("misbehaving-worker")?)
        .arg("nice")
        .output()?;
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr)?.contains("fork-daemon"));
    Ok(())
}
