//! Upgrades in place with tasks in flight: the same process continues them, and each takes effect once.

use std::process::Command;

use anyhow::{Context as _, ensure};
use mainstay_testkit::peer::{Client, request_line};
use mainstay_testkit::process::{Running, Transport, binary};
use serde_json::json;

use crate::world::{World, kill, until};
use crate::wrapped::with_tasks;

/// Executes a copy of the program in the place of a host.
fn upgrade(host: &Running) -> anyhow::Result<()> {
    let (copy, fresh) = (host.folder().join("mainstay"), host.folder().join("new"));
    std::fs::copy(binary("mainstay")?, &fresh)?;
    std::fs::rename(&fresh, &copy)?;
    let output = Command::new(binary("mainstay")?)
        .args(["upgrade", "--pid", &host.pid().to_string()])
        .arg(copy)
        .env("MAINSTAY_RUNTIME_DIR", host.folder().join("run"))
        .output()
        .context("running mainstay upgrade")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = format!("(pid {}) from ", host.pid());
    ensure!(
        output.status.success() && said.contains(&expected),
        "{output:?}: {:#?}",
        host.stderr()
    );
    Ok(())
}

/// Starts tasks, upgrades the host twice while they run, and kills it: all end, and each takes effect once.
fn upgraded(
    world: &World,
    mut host: Running,
    client: Client,
    next: impl FnOnce() -> anyhow::Result<(Running, Client)>,
) -> anyhow::Result<()> {
    client.open(&json!({}))?;
    let start = |number: usize, pause_ms: u64| -> anyhow::Result<String> {
        let text = format!("t{number}");
        let arguments = json!({ "text": text, "pause_ms": pause_ms });
        let params = json!({ "name": "append", "arguments": arguments, "task": {} });
        let answer = client.request(&format!("\"{text}\""), "tools/call", &params)?;
        let id = answer.at("/result/task/taskId");
        Ok(id
            .as_str()
            .with_context(|| format!("{answer:?}"))?
            .to_owned())
    };
    let ids: Vec<String> = (0..6)
        .map(|number| start(number, 3_000))
        .collect::<Result<_, _>>()?;
    // A client that waits for the outcome.
    let result = json!({ "taskId": ids.first() });
    client.send(&request_line("\"result\"", "tasks/result", &result))?;
    upgrade(&host)?;
    let listed = world.tasks(&["list"])?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    ensure!(!listed.contains("waiting"), "their host lives: {listed}");
    let answer = client.answer("\"result\"")?;
    ensure!(
        answer.at("/result/structuredContent/text") == json!("t0"),
        "{answer:?}"
    );
    for id in &ids {
        ensure!(world.ended(id)?["status"] == "completed");
    }
    ensure!(world.effects()?.len() == 6, "{:?}", world.effects()?);
    // The new program records under the lease that it was given.
    let late = start(6, 600_000)?;
    upgrade(&host)?;
    let got = client.request("\"get\"", "tasks/get", &json!({ "taskId": late }))?;
    ensure!(got.at("/result/status") == json!("working"), "{got:?}");
    kill(&mut host)?;
    drop(client);
    until("its workers are gone", || {
        let listed = world.tasks(&["list"])?;
        Ok(String::from_utf8_lossy(&listed.stdout).contains("waiting"))
    })?;
    let (_host, client) = next()?;
    client.open(&json!({}))?;
    let unknown = world.ended(&late)?;
    ensure!(unknown["status"] == "failed", "{unknown:#}");
    ensure!(world.effects()?.len() == 6, "{:?}", world.effects()?);
    Ok(())
}

#[test]
fn tasks_of_packs_continue_through_an_upgrade_and_take_effect_once() -> anyhow::Result<()> {
    let world = World::new()?;
    let start = || -> anyhow::Result<(Running, Client)> {
        let mut host = world.host(Transport::Stdio)?;
        let client = host.take_client()?;
        Ok((host, client))
    };
    let (host, client) = start()?;
    upgraded(&world, host, client, start)
}

#[test]
fn tasks_of_a_wrapped_server_continue_through_an_upgrade_and_take_effect_once() -> anyhow::Result<()>
{
    let world = World::new()?;
    let wrapping = with_tasks(&world);
    let (host, client) = wrapping.stdio()?;
    upgraded(&world, host, client, || wrapping.stdio())
}
