//! The host is killed again and again while tasks of all three classes are started over stdio and HTTP: every
//! task ends, no effect takes place twice, and none is forgotten.
//!
//! `MAINSTAY_STORM_SECONDS` says for how long the host is killed every two seconds; otherwise it is killed four times.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::{Running, Transport};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::{World, ask};

/// How often the host is killed.
fn kills() -> usize {
    let told = std::env::var("MAINSTAY_STORM_SECONDS").ok();
    let seconds: Option<u64> = told.and_then(|told| told.parse().ok());
    let kills = seconds.map(|seconds| seconds / LIFE.as_secs());
    kills
        .and_then(|kills| usize::try_from(kills).ok())
        .unwrap_or(4)
}

/// How long each host lives once it has started.
const LIFE: Duration = Duration::from_secs(2);

/// A task that was acknowledged.
struct Started {
    id: String,
    tool: &'static str,
    name: String,
}

fn arguments(tool: &str, name: &str, pause_ms: u64) -> Value {
    match tool {
        "append" => json!({ "text": name, "pause_ms": pause_ms }),
        "put" => json!({ "key": "k", "value": name, "pause_ms": pause_ms }),
        _ => json!({ "id": name, "from": "a", "to": "b", "amount": 1, "pause_ms": pause_ms }),
    }
}

/// Asks for one task, and gives its id; none if the host has no room for another task now.
fn start_task(
    host: &Running,
    over_http: bool,
    tool: &str,
    name: &str,
    arguments: &Value,
) -> anyhow::Result<Option<String>> {
    let id = if over_http {
        let path = format!("/v1/tool/{tool}");
        let prefer = [("Prefer", "respond-async")];
        let body = json!({ "arguments": arguments });
        let answer = ask(host.address()?, "POST", &path, &prefer, Some(&body))?;
        if answer.status() == 429 {
            return Ok(None);
        }
        ensure!(answer.status() == 202, "{}", answer.text());
        answer.json()?["data"]["taskId"].clone()
    } else {
        let params = json!({ "name": tool, "arguments": arguments, "task": {} });
        let id = format!("\"{name}\"");
        let answer = host.client()?.request(&id, "tools/call", &params)?;
        if answer.value().to_string().contains("QUEUE_OVERLOADED") {
            return Ok(None);
        }
        ensure!(answer.at("/result/task") != Value::Null, "{answer:?}");
        answer.at("/result/task/taskId")
    };
    Ok(Some(id.as_str().context("an id")?.to_owned()))
}

/// Starts tasks until the host is killed. The last one may have been recorded, but was not acknowledged.
fn start_tasks(
    host: &Running,
    round: usize,
    over_http: bool,
    is_killed: &AtomicBool,
) -> anyhow::Result<(Vec<Started>, String)> {
    let mut started = Vec::new();
    if !over_http {
        host.client()?.open(&json!({}))?;
    }
    for number in 0_u64.. {
        for tool in ["append", "put", "transfer"] {
            let name = format!("{tool}-{round}-{number}");
            // Some have ended when the host is killed, some run, some wait in the queue.
            let arguments = arguments(tool, &name, (number % 7) * 100);
            match start_task(host, over_http, tool, &name, &arguments) {
                Ok(Some(id)) => started.push(Started { id, tool, name }),
                Ok(None) => {}
                Err(_) if is_killed.load(Ordering::SeqCst) => return Ok((started, name)),
                Err(error) => return Err(error),
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("the host was never killed")
}

fn storm(transport: Transport) -> anyhow::Result<()> {
    let over_http = transport == Transport::Http;
    let world = World::new()?;
    let (mut all, mut unacknowledged) = (Vec::new(), Vec::new());
    let kills = kills();
    for round in 0..kills {
        let mut host = world.host(transport)?;
        let is_killed = AtomicBool::new(false);
        let (started, last) = std::thread::scope(|scope| {
            let starter = scope.spawn(|| start_tasks(&host, round, over_http, &is_killed));
            std::thread::sleep(LIFE);
            is_killed.store(true, Ordering::SeqCst);
            host.signal(Signal::KILL)?;
            starter.join().unwrap()
        })?;
        host.wait()?;
        all.extend(started);
        unacknowledged.push(last);
    }
    ensure!(all.len() > kills * 10, "only {} tasks", all.len());
    let last = world.host(transport)?;
    let mut unknown = Vec::new();
    for task in &all {
        let ended = if over_http {
            let path = format!("/v1/tasks/{}", task.id);
            let mut read = Value::Null;
            crate::world::until("a task ends", || {
                read = ask(last.address()?, "GET", &path, &[], None)?.json()?;
                Ok(read["status"] != "working")
            })?;
            read
        } else {
            world.ended(&task.id)?
        };
        let status = ended["status"].as_str().unwrap_or_default();
        match (task.tool, status) {
            (_, "completed") => {}
            ("append", "failed") => unknown.push(task.name.clone()),
            _ => anyhow::bail!("{}: {ended:#}", task.name),
        }
    }
    let effects = world.effects()?;
    let count_of = |name: &str| {
        let names = effects
            .iter()
            .map(|effect| [&effect.subject, &effect.value]);
        names
            .filter(|names| names.iter().any(|one| *one == name))
            .count()
    };
    for name in &unacknowledged {
        let count = count_of(name);
        let fits = count <= 1 || name.starts_with("put");
        ensure!(fits, "{name}, never acknowledged, took place {count} times");
    }
    for task in &all {
        let count = count_of(&task.name);
        let fits = match task.tool {
            "append" if unknown.contains(&task.name) => count <= 1,
            "append" | "transfer" => count == 1,
            _ => count >= 1,
        };
        ensure!(fits, "{} took place {count} times", task.name);
    }
    println!(
        "{transport:?}: {kills} kills, {} tasks, {} of unknown outcome, {} effects",
        all.len(),
        unknown.len(),
        effects.len()
    );
    Ok(())
}

#[test]
fn tasks_over_stdio_survive_a_storm_of_kills() -> anyhow::Result<()> {
    storm(Transport::Stdio)
}

#[test]
fn tasks_over_http_survive_a_storm_of_kills() -> anyhow::Result<()> {
    storm(Transport::Http)
}
