//! Tasks over MCP, and the command line that sees them.

use anyhow::{Context as _, ensure};
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::Transport;
use serde_json::{Value, json};

use crate::world::{World, kill, until};

/// Calls a tool as a task in the legacy way, and gives the task's id.
fn start_task(client: &Client, id: &str, tool: &str, arguments: &Value) -> anyhow::Result<String> {
    let params = json!({ "name": tool, "arguments": arguments, "task": {} });
    let answer = client.request(id, "tools/call", &params)?;
    let task = answer.at("/result/task/taskId");
    Ok(task
        .as_str()
        .with_context(|| format!("{answer:?}"))?
        .to_owned())
}

#[test]
fn a_task_over_stdio_outlives_its_client_and_ends_with_a_result() -> anyhow::Result<()> {
    let world = World::new()?;
    let mut host = world.host(Transport::Stdio)?;
    let client = host.take_client()?;
    let opened = client.open(&json!({}))?;
    ensure!(
        opened.at("/result/capabilities/tasks/requests/tools/call") == json!({}),
        "{opened:?}"
    );
    ensure!(opened.at("/result/capabilities/tasks/list") == json!({}));
    let listed = client.request("\"list\"", "tools/list", &json!({}))?;
    let tools = listed.at("/result/tools");
    let append = tools.as_array().context("tools")?;
    let append = append.iter().find(|tool| tool["name"] == "append");
    ensure!(append.context("append")?["execution"] == json!({ "taskSupport": "optional" }));
    let id = start_task(
        &client,
        "1",
        "append",
        &json!({ "text": "a", "pause_ms": 500 }),
    )?;
    ensure!(id.len() == 32);
    let got = client.request("2", "tasks/get", &json!({ "taskId": id }))?;
    ensure!(got.at("/result/status") == json!("working"), "{got:?}");
    drop(client);
    ensure!(
        host.wait()?.success(),
        "the host ends by itself, with its task"
    );
    let task = world.show(&id)?;
    ensure!(task["status"] == "completed", "{task:#}");
    ensure!(
        task["result"] == json!({ "ok": true, "text": "a" }),
        "{task:#}"
    );
    let mut next = world.host(Transport::Stdio)?;
    let client = next.take_client()?;
    client.open(&json!({}))?;
    let result = client.request("1", "tasks/result", &json!({ "taskId": id }))?;
    ensure!(
        result.at("/result/structuredContent/text") == json!("a"),
        "another host has it, too: {result:?}"
    );
    ensure!(result.at("/result/_meta/io.modelcontextprotocol~1related-task/taskId") == json!(id));
    let uri = format!("mainstay://task/{id}");
    let read = client.request("2", "resources/read", &json!({ "uri": uri }))?;
    ensure!(read.at("/result/contents/0/uri") == json!(uri), "{read:?}");
    let unknown = "0".repeat(32);
    let unknown = client.request("3", "tasks/get", &json!({ "taskId": unknown }))?;
    ensure!(unknown.at("/error/code") == json!(-32602), "{unknown:?}");
    Ok(())
}

#[test]
fn tasks_of_a_killed_host_follow_their_replay_contracts() -> anyhow::Result<()> {
    let world = World::new()?;
    let mut host = world.host(Transport::Stdio)?;
    let client = host.take_client()?;
    client.open(&json!({}))?;
    let slow = |mut arguments: Value| {
        arguments["pause_after_ms"] = json!(600_000);
        arguments
    };
    let transfer = |id: &str| json!({ "id": id, "from": "a", "to": "b", "amount": 1 });
    // Their effects take place, and their answers never come.
    let append = start_task(&client, "1", "append", &slow(json!({ "text": "once" })))?;
    let put = start_task(
        &client,
        "2",
        "put",
        &slow(json!({ "key": "k", "value": "v" })),
    )?;
    let applied = start_task(&client, "3", "transfer", &slow(transfer("t1")))?;
    until("three effects", || Ok(world.effects()?.len() == 3))?;
    // This one is sent, and its effect never comes.
    let mut late = transfer("t2");
    late["pause_ms"] = json!(600_000);
    let not_applied = start_task(&client, "4", "transfer", &late)?;
    kill(&mut host)?;
    let listed = world.tasks(&["list"])?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    ensure!(listed.contains("4 tasks"), "{listed}");
    until("its workers are gone", || {
        let listed = world.tasks(&["list"])?;
        Ok(String::from_utf8_lossy(&listed.stdout)
            .matches("waiting")
            .count()
            == 4)
    })?;
    let next = world.host(Transport::Socket)?;
    let unknown = world.ended(&append)?;
    ensure!(unknown["status"] == "failed", "{unknown:#}");
    ensure!(
        unknown["statusMessage"]
            .as_str()
            .is_some_and(|said| said.contains("outcome is unknown")),
        "{unknown:#}"
    );
    ensure!(
        world.ended(&applied)?["status"] == "completed",
        "its probe finds it"
    );
    // The others run again, with the pauses of their arguments.
    until("they run again", || {
        let effects = world.effects()?;
        Ok(effects.iter().filter(|effect| effect.tool == "put").count() == 2)
    })?;
    for id in [&put, &not_applied] {
        let cancelled = world.tasks(&["cancel", id])?;
        ensure!(cancelled.status.success(), "{cancelled:?}");
        ensure!(world.show(id)?["status"] == "cancelled");
    }
    let effects = world.effects()?;
    let appends = effects.iter().filter(|effect| effect.tool == "append");
    ensure!(appends.count() == 1, "{effects:?}");
    let transfers = effects.iter().filter(|effect| effect.tool == "transfer");
    ensure!(transfers.count() == 1, "{effects:?}");
    next.stop()?;
    let pruned = world.tasks(&["prune"])?;
    ensure!(pruned.stdout == b"4 tasks removed\n", "{pruned:?}");
    ensure!(world.tasks(&["show", &append])?.status.code() == Some(1));
    Ok(())
}

#[test]
fn hosts_without_tasks_leave_the_disk_alone() -> anyhow::Result<()> {
    let world = World::new()?;
    let host = world.host(Transport::Stdio)?;
    let client = host.client()?;
    client.open(&json!({}))?;
    client.call("1", "append", &json!({ "text": "a" }))?;
    ensure!(!world.state().join("tasks.db").exists());
    let shown = world.tasks(&["list"])?;
    ensure!(shown.stdout.starts_with(b"0 tasks"), "{shown:?}");
    Ok(())
}

#[test]
fn a_ledger_that_cannot_be_written_is_a_clear_error_and_nothing_runs() -> anyhow::Result<()> {
    let world = World::new()?;
    std::fs::create_dir(world.state())?;
    std::fs::write(
        world.state().join("tasks.db"),
        "not a database, but long enough".repeat(40),
    )?;
    let host = world.host(Transport::Stdio)?;
    let client = host.client()?;
    client.open(&json!({}))?;
    let params = json!({ "name": "append", "arguments": { "text": "a" }, "task": {} });
    let answer = client.request("1", "tools/call", &params)?;
    let text = answer.at("/result/content/0/text");
    let text = text.as_str().with_context(|| format!("{answer:?}"))?;
    ensure!(text.contains("is not a task ledger"), "{text}");
    ensure!(world.effects()?.is_empty());
    client.call("2", "append", &json!({ "text": "b" }))?;
    ensure!(world.effects()?.len() == 1, "other calls are served");
    Ok(())
}
