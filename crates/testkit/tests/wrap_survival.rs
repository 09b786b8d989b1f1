//! A wrapped server may do to itself whatever it likes: its client's session goes on.

mod wrapping;

use std::ffi::OsString;
use std::time::{Duration, Instant};

use mainstay_testkit::fixture::{read_executed, read_told};
use mainstay_testkit::http::{self, Connection};
use mainstay_testkit::peer::{Message, PATIENCE};
use mainstay_testkit::process::{Launch, Running, binary, kill};
use serde_json::{Value, json};

use self::wrapping::{
    SERVER, call, configured, echo, eventually, failure, fixture, only_server, open, stop, text,
};

/// Time for what must not wait for a deadline: half of what a call has.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn however_a_server_dies_its_session_goes_on_and_the_lost_call_is_typed() -> anyhow::Result<()> {
    let running = open("", "")?;
    let client = running.client()?;
    for (number, how) in ["exit", "abort", "segv", "kill"].iter().enumerate() {
        let id = (number * 2 + 1).to_string();
        let lost = client.call(&id, "crash", &json!({"how": how}))?;
        let failure = failure(&lost)?;
        assert_eq!(failure["code"], "INTERNAL", "{how}");
        assert_eq!(failure["fault"], "process", "{how}");
        assert_eq!(failure["retryable"], false, "{how}");
        let message = failure["message"].as_str().unwrap_or_default();
        assert!(message.contains("outcome is unknown"), "{message}");
        echo(client, &(number * 2 + 2).to_string())?;
    }
    stop(running)
}

#[test]
fn a_successor_is_told_what_its_predecessor_was() -> anyhow::Result<()> {
    let fixture = fixture("", "")?;
    let state = fixture.state();
    let running = fixture.spawn()?;
    let client = running.client()?;
    client.open(&json!({"roots": {"listChanged": true}}))?;
    client.request("1", "logging/setLevel", &json!({"level": "debug"}))?;
    let uri = "fixture://static/one";
    for uri in [uri, "fixture://static/two"] {
        client.request("2", "resources/subscribe", &json!({"uri": uri}))?;
    }
    client.request(
        "3",
        "resources/unsubscribe",
        &json!({"uri": "fixture://static/two"}),
    )?;
    let first = only_server(&running)?;
    assert!(kill(first));
    echo(client, "4")?;
    let second = only_server(&running)?;
    assert_ne!(first, second);
    let told: Vec<Value> = read_told(&state)?
        .iter()
        .filter(|told| told.pid == second)
        .map(|told| serde_json::from_str(&told.line).unwrap_or_default())
        .collect();
    let methods: Vec<&str> = told
        .iter()
        .filter_map(|line| line["method"].as_str())
        .collect();
    assert_eq!(
        methods.get(..4),
        Some(
            &[
                "initialize",
                "notifications/initialized",
                "logging/setLevel",
                "resources/subscribe"
            ][..]
        ),
        "{told:?}"
    );
    assert_eq!(
        told[0]["params"]["capabilities"]["roots"]["listChanged"],
        true
    );
    assert_eq!(told[2]["params"]["level"], "debug");
    assert_eq!(told[3]["params"]["uri"], uri);
    assert!(!methods.contains(&"resources/unsubscribe"));
    stop(running)
}

#[test]
fn calls_that_may_run_again_are_answered_whatever_happens() -> anyhow::Result<()> {
    let running = open("", "")?;
    let client = running.client()?;
    let server = only_server(&running)?;
    client.request("\"l\"", "tools/list", &json!({}))?;
    for id in 1..=8 {
        let arguments = json!({"key": format!("k{id}"), "value": "v", "pause_ms": 200});
        client.send(&call(&id.to_string(), "put", &arguments))?;
    }
    std::thread::sleep(Duration::from_millis(50));
    assert!(kill(server));
    for id in 1..=8 {
        let answer = client.answer(&id.to_string())?;
        assert_ne!(answer.at("/result/isError"), true, "{answer:?}");
    }
    stop(running)
}

#[test]
fn calls_that_must_not_run_again_fail_at_once_and_ran_at_most_once() -> anyhow::Result<()> {
    let fixture = fixture("", "")?;
    let effects = fixture.effects();
    let running = fixture.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    client.request("\"l\"", "tools/list", &json!({}))?;
    let server = only_server(&running)?;
    for id in 1..=8 {
        let arguments = json!({"key": format!("k{id}"), "text": "t", "pause_after_ms": 600_000});
        client.send(&call(&id.to_string(), "append", &arguments))?;
    }
    eventually("every effect took place", || {
        read_executed(&effects).is_ok_and(|executed| executed.len() == 8)
    })?;
    assert!(kill(server));
    for id in 1..=8 {
        let failure = failure(&client.answer(&id.to_string())?)?;
        assert_eq!(failure["fault"], "process");
        let hint = failure["hint"].as_str().unwrap_or_default();
        assert!(hint.contains("check whether the effect happened"), "{hint}");
    }
    echo(client, "9")?;
    let mut keys: Vec<String> = read_executed(&effects)?
        .into_iter()
        .map(|one| one.key)
        .collect();
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all, "an effect took place twice");
    stop(running)
}

#[test]
fn a_hanging_tool_ends_at_its_deadline_and_its_server_keeps_its_state() -> anyhow::Result<()> {
    let rules = json!({"tools": {"hang": {"timeout_ms": 300}}});
    let running = configured(&rules, "")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let server = only_server(&running)?;
    let began = Instant::now();
    let failure = failure(&client.call("1", "hang", &json!({}))?)?;
    let took = began.elapsed();
    assert_eq!(failure["code"], "TOOL_TIMEOUT");
    assert_eq!(failure["timeoutMs"], 300);
    assert!(took < SOON, "{took:?}");
    echo(client, "2")?;
    // Past the grace: it answers pings, so it goes on.
    std::thread::sleep(Duration::from_millis(2300));
    echo(client, "3")?;
    assert_eq!(only_server(&running)?, server);
    stop(running)
}

#[test]
fn a_tool_may_be_told_to_take_its_server_with_it() -> anyhow::Result<()> {
    let rules = json!({"tools": {"hang": {"timeout_ms": 200, "on_timeout": "kill"}},
        "limits": {"grace_ms": 100}});
    let running = configured(&rules, "")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let server = only_server(&running)?;
    client.call("1", "hang", &json!({}))?;
    running.wait_for_line("worker_lost")?;
    echo(client, "2")?;
    assert_ne!(only_server(&running)?, server);
    stop(running)
}

#[test]
fn a_frozen_server_is_replaced() -> anyhow::Result<()> {
    let rules = json!({"tools": {"freeze": {"timeout_ms": 300}},
        "limits": {"grace_ms": 100, "ping_timeout_ms": 200}});
    let running = configured(&rules, "")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let frozen = failure(&client.call("1", "freeze", &json!({}))?)?;
    assert_eq!(frozen["code"], "TOOL_TIMEOUT");
    running.wait_for_line("does not answer pings")?;
    echo(client, "2")?;
    stop(running)
}

#[test]
fn junk_half_frames_wrong_ids_and_second_answers_harm_nobody() -> anyhow::Result<()> {
    let running = open("", "--banner")?;
    let client = running.client()?;
    client.call("1", "garbage", &json!({}))?;
    running.wait_for_line("reason=junk_on_stdout")?;
    echo(client, "2")?;
    client.call("3", "answer_twice", &json!({}))?;
    client.send(&call("4", "wrong_id", &json!({"then_right": true})))?;
    assert_eq!(text(&client.answer("4")?), "for the right one");
    let lost = failure(&client.call("5", "half_frame", &json!({}))?)?;
    assert_eq!(lost["fault"], "process");
    echo(client, "6")?;
    let (rest, _) = running.finish()?;
    let strangers: Vec<_> = rest.iter().filter(|line| line.id().is_some()).collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    Ok(())
}

#[test]
fn an_answer_over_the_limit_is_a_typed_failure() -> anyhow::Result<()> {
    let running = open("", "")?;
    let client = running.client()?;
    let failure = failure(&client.call("1", "oversize", &json!({}))?)?;
    assert_eq!(failure["fault"], "resource");
    echo(client, "2")?;
    stop(running)
}

#[test]
fn a_server_that_fails_to_start_at_first_is_started_again() -> anyhow::Result<()> {
    let fixture = fixture("", "")?;
    let counter = fixture.path("starts");
    let fixture = fixture
        .options("--exit-at-start --times 3 --counter")
        .word(counter);
    let running = fixture.spawn()?;
    let opened = running.client()?.open(&json!({}))?;
    assert!(opened.at("/result/serverInfo").is_object(), "{opened:?}");
    echo(running.client()?, "1")?;
    stop(running)
}

#[test]
fn a_server_that_never_starts_is_told_with_its_last_words_and_left_alone() -> anyhow::Result<()> {
    let rules = json!({"limits": {"restarts": 2, "rest_ms": 10 * SOON.as_millis() as u64}});
    let running = configured(&rules, "--exit-at-start")?.spawn()?;
    let client = running.client()?;
    let refused = client.request(
        "1",
        "initialize",
        &json!({"protocolVersion": "2025-11-25",
        "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
    )?;
    let message = refused.at("/error/message");
    let message = message.as_str().unwrap_or_default();
    assert!(message.contains("exited with code 3"), "{refused:?}");
    // The budget is spent: the next one fails at once.
    let began = Instant::now();
    let again = client.request("2", "tools/list", &json!({}))?;
    assert!(again.at("/error/message").is_string(), "{again:?}");
    assert!(began.elapsed() < SOON, "it does not wait for the rest");
    stop(running)
}

#[test]
fn a_server_that_never_answers_the_handshake_is_replaced() -> anyhow::Result<()> {
    let rules = json!({"limits": {"start_timeout_ms": 5000, "grace_ms": 100}});
    let fixture = configured(&rules, "--never-ready --times 1")?;
    let counter = fixture.path("starts");
    let running = fixture.word("--counter").word(counter).spawn()?;
    let client = running.client()?;
    let late = client.open(&json!({}))?;
    assert!(late.at("/error/message").is_string(), "{late:?}");
    running.wait_for_line("worker_lost")?;
    let opened = client.request(
        "2",
        "initialize",
        &json!({"protocolVersion": "2025-11-25",
        "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
    )?;
    assert!(opened.at("/result/serverInfo").is_object(), "{opened:?}");
    stop(running)
}

#[test]
fn a_client_that_disconnects_ends_the_server_that_never_starts() -> anyhow::Result<()> {
    let wrap = [binary("mainstay")?.into(), OsString::from("wrap")];
    let server = [binary(SERVER)?.into(), OsString::from("--never-ready")];
    let launch = Launch::new(wrap)?.words(["--lazy", "--http", "127.0.0.1:0", "--"]);
    let host = launch.words(server).spawn_http()?;
    let mut connection = Connection::open(host.address()?)?;
    connection.send(&http::initialize(host.address()?).bytes())?;
    host.wait_for_workers(SERVER, 1)?;
    drop(connection);
    host.wait_for_workers(SERVER, 0)?;
    host.stop()
}

#[test]
fn a_server_that_takes_too_much_memory_is_replaced_between_calls() -> anyhow::Result<()> {
    let running = open("--max-memory 80M", "")?;
    let client = running.client()?;
    let server = only_server(&running)?;
    client.call("1", "hog", &json!({"mb": 120}))?;
    running.wait_for_line("reason=too_much_memory")?;
    let until = Instant::now() + PATIENCE;
    for id in 2.. {
        echo(client, &id.to_string())?;
        if running.workers(SERVER).iter().all(|pid| *pid != server) {
            break;
        }
        anyhow::ensure!(Instant::now() < until, "it was not replaced");
        std::thread::sleep(Duration::from_millis(50));
    }
    stop(running)
}

#[test]
fn an_idle_server_is_stopped_and_started_when_it_is_needed() -> anyhow::Result<()> {
    let running = fixture("--lazy --idle-stop 1", "")?.spawn()?;
    let client = running.client()?;
    std::thread::sleep(Duration::from_millis(200));
    assert!(
        running.workers(SERVER).is_empty(),
        "nothing was asked of it"
    );
    client.open(&json!({}))?;
    echo(client, "1")?;
    running.wait_for_workers(SERVER, 0)?;
    echo(client, "2")?;
    assert_eq!(running.workers(SERVER).len(), 1);
    stop(running)
}

#[test]
fn a_standby_knows_the_session_and_takes_over_at_once() -> anyhow::Result<()> {
    let running = open("--standby", "")?;
    let client = running.client()?;
    client.request("1", "logging/setLevel", &json!({"level": "debug"}))?;
    let servers = running.wait_for_workers(SERVER, 2)?;
    let serving = client.call("2", "echo", &json!({"text": "x"}))?;
    assert_eq!(text(&serving), "x");
    assert!(servers.iter().min().is_some_and(|first| kill(*first)));
    echo(client, "3")?;
    // The level that was set before is that of the successor, too.
    client.call("4", "log", &json!({"level": "debug", "text": "fine print"}))?;
    client.take("the log line", |message| {
        message.text().contains("fine print") && message.id().is_none()
    })?;
    stop(running)
}

#[test]
fn nothing_is_left_of_a_server_or_of_a_killed_host() -> anyhow::Result<()> {
    let running = open("", "")?;
    let client = running.client()?;
    client.call("1", "fork", &json!({}))?;
    client.call("2", "crash", &json!({"how": "kill"}))?;
    echo(client, "3")?;
    client.call("4", "fork", &json!({}))?;
    let family = running.family();
    assert!(kill(running.pid()), "the host is killed with -9");
    let until = Instant::now() + PATIENCE;
    loop {
        let left: Vec<u32> = running.family();
        if left.is_empty() {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < until, "left of {family:?}: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_restart_is_said_once_in_the_log_and_once_in_a_result() -> anyhow::Result<()> {
    let running = open("", "")?;
    let client = running.client()?;
    client.call("1", "crash", &json!({"how": "kill"}))?;
    let next = client.call("2", "echo", &json!({"text": "x"}))?;
    assert!(
        next.at("/result/_meta/io.mainstay~1restart").is_object(),
        "{next:?}"
    );
    let said = client.notification("notifications/message")?;
    assert_eq!(said.at("/params/logger"), "mainstay");
    let after = client.call("3", "echo", &json!({"text": "x"}))?;
    assert!(after.at("/result/_meta").is_null(), "{after:?}");
    stop(running)?;
    let quiet = configured(&json!({"restart_note": false}), "")?.spawn()?;
    let client = quiet.client()?;
    client.open(&json!({}))?;
    client.call("1", "crash", &json!({"how": "kill"}))?;
    let next = client.call("2", "echo", &json!({"text": "x"}))?;
    assert!(next.at("/result/_meta").is_null(), "{next:?}");
    stop(quiet)
}

/// A server that says on standard error what it lacks, and answers nothing.
fn waiting(options: &str) -> anyhow::Result<Running> {
    let script = "echo please log in >&2; exec sleep 1000";
    Launch::new([binary("mainstay")?.into_os_string(), "wrap".into()])?
        .words(options.split_whitespace())
        .words(["--", "sh", "-c", script])
        .spawn()
}

#[test]
fn a_server_that_is_never_ready_is_told_in_its_own_words_and_so_are_later_requests()
-> anyhow::Result<()> {
    let running = waiting("--start-timeout 1 --restarts 2/60")?;
    let client = running.client()?;
    let refused = client.open(&json!({}))?;
    let said = |answer: &Message, path: &str| {
        let text = answer.at(path);
        text.as_str().unwrap_or_default().to_owned()
    };
    assert!(
        said(&refused, "/error/message").contains("did not become ready"),
        "{refused:?}"
    );
    assert_eq!(said(&refused, "/error/data/stderr"), "please log in");
    let hint = said(&refused, "/error/data/hint");
    assert!(hint.contains("--start-timeout"), "{refused:?}");
    let meta = json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}}});
    let both = [json!({}), meta].into_iter().cycle();
    for (id, params) in ["2", "3", "4", "5"].into_iter().zip(both) {
        let late = client.request(id, "tools/list", &params)?;
        let message = said(&late, "/error/message");
        assert!(message.contains("did not become ready"), "{late:?}");
        assert_eq!(said(&late, "/error/data/stderr"), "please log in");
    }
    stop(running)
}

#[test]
fn a_server_that_exits_at_start_is_told_before_clients_lose_their_patience() -> anyhow::Result<()> {
    let fixture = fixture("", "--exit-at-start")?;
    let counter = fixture.path("starts");
    let running = fixture.word("--counter").word(&counter).spawn()?;
    let refused = running.client()?.open(&json!({}))?;
    let message = refused.at("/error/message");
    let message = message.as_str().unwrap_or_default();
    assert!(message.contains("exited with code 3"), "{refused:?}");
    // Far fewer than the budget of ten.
    let starts = std::fs::read(counter)?.len();
    assert!(starts <= 5, "{starts} starts");
    stop(running)
}

#[test]
fn a_call_that_hangs_is_told_what_its_server_said_last() -> anyhow::Result<()> {
    let running = open("--timeout 4", "")?;
    let client = running.client()?;
    client.call("1", "stderr", &json!({"lines": 2}))?;
    let failed = failure(&client.call("2", "hang", &json!({}))?)?;
    assert_eq!(failed["code"], "TOOL_TIMEOUT");
    assert!(failed["stderr"].is_string(), "{failed}");
    stop(running)
}

/// Limits with which a silent server is looked at every fifth of a second.
fn watched() -> Value {
    json!({"limits": {"ping_interval_ms": 200, "ping_timeout_ms": 20_000, "grace_ms": 100}})
}

#[test]
fn calls_of_a_stopped_server_follow_their_contracts_long_before_their_deadlines()
-> anyhow::Result<()> {
    let running = configured(&watched(), "")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    echo(client, "1")?;
    let server = only_server(&running)?;
    let began = Instant::now();
    let stopped = std::process::Command::new("kill")
        .args(["-STOP", &server.to_string()])
        .status()?;
    assert!(stopped.success());
    client.send(&call("2", "echo", &json!({"text": "again"})))?;
    client.send(&call("3", "append", &json!({"key": "k", "text": "once"})))?;
    let unknown = failure(&client.answer("3")?)?;
    let message = unknown["message"].as_str().unwrap_or_default();
    assert!(message.contains("outcome is unknown"), "{unknown}");
    assert!(message.contains("stopped"), "{unknown}");
    assert_eq!(text(&client.answer("2")?), "again", "it may run again");
    let took = began.elapsed();
    assert!(took < SOON, "{took:?}");
    assert_ne!(only_server(&running)?, server, "and it is gone");
    stop(running)
}

#[test]
fn a_server_that_is_silent_while_it_works_keeps_its_calls() -> anyhow::Result<()> {
    let running = configured(&watched(), "")?.spawn()?;
    let client = running.client()?;
    client.open(&json!({}))?;
    let server = only_server(&running)?;
    let answer = client.call("1", "sleep", &json!({"ms": 1500}))?;
    assert!(answer.at("/result/content").is_array(), "{answer:?}");
    assert_eq!(only_server(&running)?, server);
    stop(running)
}
