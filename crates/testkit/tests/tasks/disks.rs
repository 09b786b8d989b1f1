//! Hosts whose disk is full or read-only: a clear error for tasks, nothing lost, and all other calls are served.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{Transport, is_root};
use serde_json::{Value, json};

use crate::world::{World, until};

/// A small file system in memory at the place of a state directory.
struct Disk(PathBuf);

impl Disk {
    /// `None`, with a line that says so, where it cannot be mounted.
    fn mount(world: &World) -> anyhow::Result<Option<Self>> {
        let path = world.state();
        std::fs::create_dir(&path)?;
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs"])
            .arg(&path)
            .output();
        match output {
            Ok(output) if output.status.success() => Ok(Some(Self(path))),
            _ => {
                println!("SKIPPED: no tmpfs can be mounted (root: {})", is_root());
                Ok(None)
            }
        }
    }

    fn remount(&self, option: &str) -> anyhow::Result<()> {
        let status = Command::new("mount")
            .args(["-o", &format!("remount,{option}")])
            .arg(&self.0)
            .status()?;
        ensure!(status.success(), "remount {option}");
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Asks for a task: its id, or the text of the error.
fn ask_task(
    client: &Client,
    id: &str,
    arguments: &Value,
) -> anyhow::Result<Result<String, String>> {
    let params = json!({ "name": "append", "arguments": arguments, "task": {} });
    let answer = client.request(id, "tools/call", &params)?;
    let task = answer.at("/result/task/taskId");
    if let Some(id) = task.as_str() {
        return Ok(Ok(id.to_owned()));
    }
    let text = answer.at("/result/content/0/text");
    let text = text.as_str().with_context(|| format!("{answer:?}"))?;
    Ok(Err(text.to_owned()))
}

#[test]
fn a_full_disk_refuses_tasks_and_keeps_those_it_has() -> anyhow::Result<()> {
    let world = World::new()?;
    let Some(disk) = Disk::mount(&world)? else {
        return Ok(());
    };
    let mut host = world.host(Transport::Stdio)?;
    let client = host.take_client()?;
    client.open(&json!({}))?;
    let mut ids = Vec::new();
    let said = loop {
        let number = ids.len();
        ensure!(number < 1000, "the disk is never full");
        // Long arguments fill the disk; a pause keeps the outcomes away until it is full.
        let text = format!("{number}-{}", "x".repeat(40_000));
        let arguments = json!({ "text": text, "pause_ms": 3_000 });
        match ask_task(&client, &format!("\"{number}\""), &arguments)? {
            Ok(id) => ids.push(id),
            Err(said) => break said,
        }
    };
    ensure!(!ids.is_empty());
    ensure!(said.contains("full"), "{said}");
    let plain = client.call("\"plain\"", "append", &json!({ "text": "plain" }))?;
    ensure!(
        plain.at("/result/structuredContent/text") == json!("plain"),
        "other calls are served: {plain:?}"
    );
    // Outcomes that found no room are recorded once there is some.
    disk.remount("size=64m")?;
    for id in &ids {
        let task = world.ended(id)?;
        ensure!(task["status"] == "completed", "{id}");
    }
    ensure!(world.effects()?.len() == ids.len() + 1, "each ran once");
    ensure!(ask_task(&client, "\"again\"", &json!({ "text": "again" }))?.is_ok());
    drop(client);
    host.wait()?;
    Ok(())
}

#[test]
fn a_read_only_disk_refuses_tasks_and_serves_everything_else() -> anyhow::Result<()> {
    let world = World::new()?;
    let Some(disk) = Disk::mount(&world)? else {
        return Ok(());
    };
    let mut host = world.host(Transport::Stdio)?;
    let client = host.take_client()?;
    client.open(&json!({}))?;
    let id = ask_task(&client, "1", &json!({ "text": "a" }))?;
    let id = id.map_err(anyhow::Error::msg)?;
    ensure!(world.ended(&id)?["status"] == "completed");
    drop(client);
    host.wait()?;
    until("no process uses the disk", || {
        Ok(disk.remount("ro").is_ok())
    })?;
    // The host that starts now cannot even take its lease.
    let mut host = world.host(Transport::Stdio)?;
    let client = host.take_client()?;
    client.open(&json!({}))?;
    let refused = ask_task(&client, "1", &json!({ "text": "b" }))?;
    let said = refused.err().context("a task on a read-only disk")?;
    ensure!(
        said.contains("Read-only file system") && said.contains("MAINSTAY_STATE_DIR"),
        "{said}"
    );
    client.call("2", "append", &json!({ "text": "c" }))?;
    ensure!(world.effects()?.len() == 2, "{:?}", world.effects()?);
    disk.remount("rw")?;
    let mut attempt = 2;
    until("the host accepts tasks again", || {
        attempt += 1;
        let task = ask_task(&client, &attempt.to_string(), &json!({ "text": "d" }))?;
        Ok(task.is_ok())
    })?;
    drop(client);
    host.wait()?;
    ensure!(world.effects()?.len() == 3, "{:?}", world.effects()?);
    ensure!(
        world.show(&id)?["status"] == "completed",
        "it is still there"
    );
    Ok(())
}
