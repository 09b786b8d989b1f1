//! The host is killed again and again while tasks of all three classes are started over stdio and HTTP: every
//! task ends, no effect takes place twice, and none is forgotten.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::{Running, Transport};
use serde_json::{Value, json};

use crate::world::{World, ask, kill};

/// How often the host is killed.
const KILLS: usize = 4;
/// How long each host lives once it serves.
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

/// Starts tasks until the time is over; what was not acknowledged does not count.
fn start_tasks(host: &Running, round: usize, over_http: bool) -> anyhow::Result<Vec<Started>> {
    let mut started = Vec::new();
    let until = Instant::now() + LIFE;
    if !over_http {
        host.client()?.open(&json!({}))?;
    }
    for number in 0_u64.. {
        if Instant::now() >= until {
            break;
        }
        for tool in ["append", "put", "transfer"] {
            let name = format!("{tool}-{round}-{number}");
            // Some have ended when the host is killed, some run, some wait in the queue.
            let arguments = arguments(tool, &name, (number % 7) * 100);
            let id = if over_http {
                let path = format!("/v1/tool/{tool}");
                let prefer = [("Prefer", "respond-async")];
                let body = json!({ "arguments": arguments });
                let answer = ask(host.address()?, "POST", &path, &prefer, Some(&body))?;
                ensure!(answer.status() == 202, "{}", answer.text());
                answer.json()?["data"]["taskId"].clone()
            } else {
                let params = json!({ "name": tool, "arguments": arguments, "task": {} });
                let id = format!("\"{name}\"");
                let answer = host.client()?.request(&id, "tools/call", &params)?;
                answer.at("/result/task/taskId")
            };
            let id = id.as_str().context("an id")?.to_owned();
            started.push(Started { id, tool, name });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(started)
}

fn storm(transport: Transport) -> anyhow::Result<()> {
    let over_http = transport == Transport::Http;
    let world = World::new()?;
    let mut all = Vec::new();
    for round in 0..KILLS {
        let mut host = world.host(transport)?;
        all.extend(start_tasks(&host, round, over_http)?);
        kill(&mut host)?;
    }
    ensure!(all.len() > KILLS * 10, "only {} tasks", all.len());
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
    for task in &all {
        let count = effects
            .iter()
            .filter(|effect| {
                effect.tool == task.tool && [&effect.subject, &effect.value].contains(&&task.name)
            })
            .count();
        let fits = match task.tool {
            "append" if unknown.contains(&task.name) => count <= 1,
            "append" | "transfer" => count == 1,
            _ => count >= 1,
        };
        ensure!(fits, "{} took place {count} times", task.name);
    }
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
