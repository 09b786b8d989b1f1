//! `mainstay demo`: a client, a host and a server as real processes, and everything that goes wrong between them.
//!
//! [`server`] is the wrapped server, [`scene`] the processes, [`story`] the output. Each chapter checks what it tells: a
//! demonstration that goes otherwise is an internal fault.

mod scene;
mod server;
mod story;

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use mainstay_contract::error::ErrorKind;
use serde_json::{Value, json};

use self::scene::{Answered, Running, Scene, wait_for};
use self::server::{COUNT, GO, LETTERS, READ, READING, REPORT, SEND, WRITING};
use self::story::{Actor, Story};
use crate::args::Demo;
use crate::exit::{self, Failure};

/// Words of the log lines that belong to the story.
const LOGGED: [&str; 3] = ["reason=worker_lost", "mcp:rollout", "mcp:upgrade"];

/// Tells the story.
pub(crate) fn run(demo: &Demo) -> Result<ExitCode, Failure> {
    if let Some(folder) = &demo.server {
        return server::serve(folder);
    }
    let began = Instant::now();
    let mut story = Story::begin();
    let folder = format!("mainstay-demo-{}", std::process::id());
    let mut scene = Scene::open(&std::env::temp_dir().join(folder))?;
    let told = tell(&mut story, &mut scene);
    if told.is_err() {
        for line in scene.log() {
            exit::eprint_line(&line);
        }
    }
    told?;
    scene.close()?;
    story.text(&format!(
        "\nThat took {}. Keep your own servers alive: mainstay setup",
        seconds(began.elapsed())
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn tell(story: &mut Story, scene: &mut Scene) -> Result<(), Failure> {
    use Actor::{Client, Host, Server, Shell};
    let (server, _) = scene.server()?;
    let host = scene.host();
    story.text(&format!(
        "One client, one host (process {host}) and one MCP server (process {server}), started for this demonstration."
    ))?;

    story.chapter("A call")?;
    let text = "to be or not to be";
    story.line(Client, &format!("calls {COUNT} {text:?}"))?;
    let answered = scene.call(COUNT, &json!({ "text": text }))?;
    succeeded(&answered, "6 words")?;
    story.line(Server, &said(&answered))?;

    story.chapter("The server crashes, and the call is run again")?;
    let running = scene.begin(READ, &json!({"page": "1"}))?;
    exists(scene, READING)?;
    story.line(Client, &format!("calls {READ} \"1\""))?;
    let killed = scene.kill_server()?;
    story.line(
        Shell,
        &format!("kill -9 {killed}, while the server works on it"),
    )?;
    let answered = scene.end(running)?;
    let (server, _) = scene.server()?;
    story.line(
        Host,
        &format!("starts process {server} and sends the call again: {READ} only reads"),
    )?;
    succeeded(&answered, "page 1")?;
    story.line(Server, &said(&answered))?;

    story.chapter("The server crashes, and the effect is not repeated")?;
    let running = scene.begin(SEND, &json!({"to": "Winston"}))?;
    wait_for("a letter", || Ok((letters(scene) > 0).then_some(())))?;
    story.line(
        Client,
        &format!("calls {SEND} \"Winston\"; the letter leaves"),
    )?;
    let killed = scene.kill_server()?;
    story.line(
        Shell,
        &format!("kill -9 {killed}, before the server says so"),
    )?;
    let answered = scene.end(running)?;
    let (code, message) = refusal(&answered)?;
    story.line(Host, &format!("answers {code}: {message}"))?;
    let sent = letters(scene);
    check(sent == 1, format!("{sent} letters were sent"))?;
    story.line(
        Shell,
        "counts the letters: 1. Only a person can know if a second one is welcome",
    )?;

    story.chapter("A rollout, while a call is running")?;
    let running = report(scene, "weather")?;
    let before = scene.server()?;
    story.line(
        Client,
        &format!(
            "calls {REPORT} \"weather\"; process {} works on it",
            before.0
        ),
    )?;
    let output = scene.operate("rollout")?;
    story.line(Shell, &format!("mainstay rollout: {output}"))?;
    let after = scene.server()?;
    check(after.1 > before.1, "no new generation serves".to_owned())?;
    let answered = finish(scene, running)?;
    story.line(
        Server,
        &format!("{} (process {})", said(&answered), before.0),
    )?;
    story.line(
        Host,
        &format!("sends every later call to process {}", after.0),
    )?;

    story.chapter("An upgrade of the host, while a call is running")?;
    let running = report(scene, "harvest")?;
    story.line(Client, &format!("calls {REPORT} \"harvest\""))?;
    let output = scene.operate("upgrade")?;
    story.line(Shell, &format!("mainstay upgrade: {output}"))?;
    let answered = finish(scene, running)?;
    story.line(Server, &said(&answered))?;
    check(
        scene.host() == host,
        "the host is another process".to_owned(),
    )?;
    story.line(
        Host,
        "is the same process with another program in it; the session continues",
    )?;

    story.chapter("The log of the host")?;
    let log = scene.log();
    let told = |line: &&String| LOGGED.iter().any(|word| line.contains(word));
    let lines: Vec<&String> = log.iter().filter(told).collect();
    check(lines.len() >= 4, format!("the log says only {log:?}"))?;
    for line in lines {
        // Without the time, which is that of the whole story.
        story.line(Host, line.split_once(' ').map_or(line, |(_, rest)| rest))?;
    }
    let health = scene.status()?.health;
    story.line(
        Host,
        &format!(
            "served {} session and replaced {} lost servers; the client never reconnected",
            health.sessions, health.restart_count
        ),
    )?;
    check(health.restart_count == 2, "not two restarts".to_owned())
}

/// Begins a report, and waits until the server works on it.
fn report(scene: &mut Scene, topic: &str) -> Result<Running, Failure> {
    for file in [WRITING, GO] {
        let _ = fs::remove_file(scene.path(file));
    }
    let running = scene.begin(REPORT, &json!({ "topic": topic }))?;
    exists(scene, WRITING)?;
    Ok(running)
}

/// Lets the report that is being written end.
fn finish(scene: &mut Scene, running: Running) -> Result<Answered, Failure> {
    fs::write(scene.path(GO), "").map_err(Failure::fault)?;
    let answered = scene.end(running)?;
    succeeded(&answered, "the report")?;
    Ok(answered)
}

fn exists(scene: &Scene, file: &str) -> Result<(), Failure> {
    wait_for(file, || Ok(scene.path(file).exists().then_some(())))
}

fn letters(scene: &Scene) -> usize {
    let text = fs::read_to_string(scene.path(LETTERS)).unwrap_or_default();
    text.matches('\n').count()
}

fn said(answered: &Answered) -> String {
    format!("{}, after {}", answered.answer.text, seconds(answered.took))
}

fn seconds(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

fn succeeded(answered: &Answered, words: &str) -> Result<(), Failure> {
    let answer = &answered.answer;
    let good = answer.code == exit::SUCCESS && answer.text.contains(words);
    check(good, format!("the answer is {}", answer.text))
}

/// Code and message of a call whose outcome is not known.
fn refusal(answered: &Answered) -> Result<(String, String), Failure> {
    // The host's payload is the text of a result that is marked as an error.
    let payload: Value = serde_json::from_str(&answered.answer.text).unwrap_or_default();
    let text = |name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
    let expected = ErrorKind::OutcomeUnknown.row().code.as_str();
    match (text("code"), text("message")) {
        (Some(code), Some(message)) if code == expected => Ok((code, message)),
        _ => Err(Failure::fault(anyhow!(
            "the call was answered with {}",
            answered.answer.text
        ))),
    }
}

fn check(holds: bool, otherwise: String) -> Result<(), Failure> {
    match holds {
        true => Ok(()),
        false => Err(Failure::fault(anyhow!(otherwise))),
    }
}
