//! Upgrades in place with tasks in flight: the same process continues them, and each takes effect once.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use anyhow::{Context as _, ensure};
use mainstay_testkit::peer::{Client, request_line};
use mainstay_testkit::process::{Running, Transport, binary, is_root};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
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

/// The child of a host from which a worker descends.
fn shim_of(host: &Running, worker: u32) -> anyhow::Result<Pid> {
    let mut pid = worker;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        let parent: u32 = line.context("no parent")?.trim().parse()?;
        if parent == host.pid() {
            let pid = i32::try_from(pid)?;
            return Pid::from_raw(pid).context("no shim");
        }
        pid = parent;
    }
}

/// The file that waits in the place for a lease which a shim holds as its standard output.
fn held_file(shim: Pid) -> anyhow::Result<Option<u64>> {
    let shim = pidfd_open(shim, PidfdFlags::empty())?;
    let slot = pidfd_getfd(&shim, 1, PidfdGetfdFlags::empty())?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let mut slices = [IoSliceMut::new(&mut byte)];
    if recvmsg(&slot, &mut slices, &mut control, flags).is_err() {
        return Ok(None);
    }
    let mut messages = control.drain();
    let Some(RecvAncillaryMessage::ScmRights(mut files)) = messages.next() else {
        return Ok(None);
    };
    let file = files.next().context("no file")?;
    Ok(Some(rustix::fs::fstat(&file)?.st_ino))
}

#[test]
fn a_host_that_was_upgraded_before_it_had_a_lease_keeps_its_workers_under_it() -> anyhow::Result<()>
{
    if !is_root() {
        println!("skipped: only root can look into a shim");
        return Ok(());
    }
    for repaired in ["before the upgrade", "after the upgrade"] {
        let world = World::new()?;
        // Not a directory, so the host has no lease.
        std::fs::write(world.state(), "a file")?;
        let mut host = world.host(Transport::Stdio)?;
        let client = host.take_client()?;
        client.open(&json!({}))?;
        client.call("\"plain\"", "append", &json!({ "text": "plain" }))?;
        host.wait_for_line("reason=tasks_not_recorded")?;
        let worker = *host.workers("ledger").first().context("no worker")?;
        let shim = shim_of(&host, worker)?;
        ensure!(held_file(shim)?.is_none(), "{repaired}: it has no lease");
        if repaired == "before the upgrade" {
            std::fs::remove_file(world.state())?;
        }
        upgrade(&host)?;
        if repaired == "after the upgrade" {
            std::fs::remove_file(world.state())?;
        }
        let params = json!({ "name": "append", "arguments": { "text": "task" }, "task": {} });
        let mut number = 0;
        until("the host has a lease", || {
            number += 1;
            let answer = client.request(&number.to_string(), "tools/call", &params)?;
            Ok(answer.at("/result/task/taskId").is_string())
        })?;
        let held = held_file(shim)?;
        let held = held.with_context(|| format!("{repaired}: the shim holds nothing"))?;
        let mut leases = Vec::new();
        for entry in std::fs::read_dir(world.state().join("hosts"))? {
            leases.push(entry?.metadata()?.ino());
        }
        ensure!(leases.contains(&held), "{repaired}: {held} {leases:?}");
        drop(client);
        host.wait()?;
    }
    Ok(())
}
