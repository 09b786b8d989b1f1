//! A wrapping host under churn: clients come and go, calls fail in every way, servers die; memory
//! and descriptors stay flat.
//!
//! `MAINSTAY_SOAK_SECONDS` says for how long; `cargo xtask soak` sets it, otherwise 4.

#![expect(
    clippy::disallowed_methods,
    reason = "a test that is told by its environment how long to run"
)]

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::peer::Client;
use mainstay_testkit::process::{Launch, binary, descriptors, usage};
use serde_json::json;

/// Clients at a time.
const CLIENTS: usize = 4;
/// Resident memory may be so much more in the last quarter than in the second, in KiB.
const GROWTH: u64 = 4 * 1024;
/// Between two looks at the host.
const LOOK: Duration = Duration::from_millis(100);

fn seconds() -> u64 {
    let told = std::env::var("MAINSTAY_SOAK_SECONDS").ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// One client's visit: some calls of every kind, then it leaves, in order or not.
fn visit(socket: &Path, number: u64) -> anyhow::Result<u64> {
    let stream = UnixStream::connect(socket)?;
    let client = Client::new(stream.try_clone()?, stream.try_clone()?);
    client.open(&json!({}))?;
    client.request("\"l\"", "tools/list", &json!({}))?;
    let mut calls = 2;
    for step in 0..20_u64 {
        let id = step.to_string();
        let answer = match (number + step) % 7 {
            0 => client.call(&id, "big", &json!({"bytes": 100_000}))?,
            1 => client.call(&id, "typed", &json!({"n": "wrong"}))?,
            2 => client.call(&id, "no_such_tool", &json!({}))?,
            3 => {
                let sleep = json!({"name": "sleep", "arguments": {"ms": 60_000}});
                client.send(&format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{sleep}}}"#
                ))?;
                client.send(&format!(
                    r#"{{"jsonrpc":"2.0","method":"$/cancelRequest","params":{{"id":{id}}}}}"#
                ))?;
                client.answer(&id)?
            }
            4 if step > 15 => client.call(&id, "crash", &json!({"how": "kill"}))?,
            5 => client.request(&id, "resources/list", &json!({}))?,
            _ => client.call(&id, "echo", &json!({"text": "x".repeat(200)}))?,
        };
        ensure!(answer.id() == Some(id.as_str()), "{answer:?}");
        calls += 1;
    }
    if number.is_multiple_of(3) {
        // It just goes away, with a call in the air.
        client.send(r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"sleep","arguments":{"ms":60000}}}"#)?;
    }
    stream.shutdown(Shutdown::Both)?;
    Ok(calls)
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[test]
fn memory_and_descriptors_stay_flat_under_churn() -> anyhow::Result<()> {
    let time = Duration::from_secs(seconds());
    let launch = Launch::new([binary("mainstay")?.into_os_string(), "wrap".into()])?;
    let socket = launch.folder().join("mcp.sock");
    let launch = launch
        .words(["--restarts", "1000000/60", "--socket"])
        .words([socket.clone()])
        .words(["--"])
        .words([binary("mcp-fixture")?]);
    let running = launch.spawn()?;
    running.wait_for_line("mcp:ready mode=socket")?;
    let before = descriptors(running.pid())?;
    let (over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut memory: Vec<u64> = Vec::new();
    let mut most_descriptors = 0;
    thread::scope(|scope| -> anyhow::Result<()> {
        let visitors: Vec<_> = (0..CLIENTS as u64)
            .map(|client| {
                let (over, calls, socket) = (&over, &calls, &socket);
                scope.spawn(move || -> anyhow::Result<()> {
                    let mut number = client;
                    while !over.load(Ordering::Relaxed) {
                        let made =
                            visit(socket, number).with_context(|| format!("visit {number}"))?;
                        calls.fetch_add(made, Ordering::Relaxed);
                        number += CLIENTS as u64;
                    }
                    Ok(())
                })
            })
            .collect();
        let until = Instant::now() + time;
        while Instant::now() < until {
            thread::sleep(LOOK);
            memory.push(usage(running.pid())?.resident);
            most_descriptors = most_descriptors.max(descriptors(running.pid())?);
        }
        over.store(true, Ordering::Relaxed);
        for visitor in visitors {
            visitor
                .join()
                .map_err(|_| anyhow::anyhow!("a visitor panicked"))??;
        }
        Ok(())
    })?;
    running.wait_for_workers("mcp-fixture", 0)?;
    // The last connections are still being closed.
    let patience = Instant::now() + Duration::from_secs(10);
    let mut after = descriptors(running.pid())?;
    while after > before && Instant::now() < patience {
        thread::sleep(LOOK);
        after = descriptors(running.pid())?;
    }
    let quarter = memory.len() / 4;
    let second = median(memory.iter().skip(quarter).take(quarter).copied().collect());
    let last = median(memory.iter().skip(3 * quarter).copied().collect());
    println!(
        "{} calls in {time:?}; memory {second} KiB, then {last} KiB; descriptors {before}, at most \
         {most_descriptors}, then {after}",
        calls.load(Ordering::Relaxed)
    );
    ensure!(
        last <= second + GROWTH,
        "memory grew from {second} to {last} KiB"
    );
    ensure!(after <= before, "{after} descriptors instead of {before}");
    running.terminate()?;
    Ok(())
}
