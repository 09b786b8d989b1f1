//! Clients that do not take their answers, and clients that go away.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::process::{Running, Serve};
use serde_json::{Value, json};

/// Large requests with answers as large, more than fit anywhere.
const CALLS: usize = 150;
const TEXT: usize = 700 * 1024;
/// What the host may hold for one client that takes nothing: its limits, twice (a request is
/// kept for a replay, its answer waits), and what the pool has in hand.
const HELD_KIB: u64 = 96 * 1024;

fn connect(host: &Running) -> anyhow::Result<UnixStream> {
    let path = host.folder().join("mainstay.sock");
    let stream = UnixStream::connect(&path).with_context(|| path.display().to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

fn echo(id: usize) -> String {
    let text = "x".repeat(TEXT);
    let params = json!({"name": "echo", "arguments": {"text": text}});
    format!(
        "{}\n",
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    )
}

#[test]
fn a_client_that_takes_no_answers_costs_bounded_memory_and_loses_none() -> anyhow::Result<()> {
    let host = Serve::socket()?.program("bench", "bench-pack", "")?;
    let path = host.folder().join("mainstay.sock");
    let host = host.at(&path).spawn()?;
    let stream = connect(&host)?;
    let mut writes = stream.try_clone()?;
    let before = host.usage()?.resident;
    let writer = std::thread::spawn(move || -> std::io::Result<()> {
        for id in 0..CALLS {
            writes.write_all(echo(id).as_bytes())?;
        }
        Ok(())
    });
    // Until nothing moves any more: the host has taken what it may, and no answer was read.
    let mut last = 0;
    let give_up = Instant::now() + Duration::from_secs(30);
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = host.usage()?.resident;
        ensure!(now < before + HELD_KIB, "{before} KiB grew to {now} KiB");
        if now == last || Instant::now() > give_up {
            break;
        }
        last = now;
    }
    ensure!(
        !writer.is_finished(),
        "the host read everything without being read itself"
    );
    // Somebody else is served meanwhile.
    let other = host.connect()?;
    other.request("1", "ping", &json!({}))?;
    other.finish()?;
    let mut seen = [false; CALLS];
    let mut lines = BufReader::new(&stream);
    for _ in 0..CALLS {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line)?;
        let id = answer["id"]
            .as_u64()
            .and_then(|id| usize::try_from(id).ok())
            .context("an id")?;
        let length = answer["result"]["structuredContent"]["text"]
            .as_str()
            .map(str::len);
        ensure!(
            length == Some(TEXT),
            "{id}: {}",
            line.chars().take(300).collect::<String>()
        );
        ensure!(!std::mem::replace(&mut seen[id], true), "{id} twice");
    }
    writer
        .join()
        .map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    drop(lines);
    drop(stream);
    host.stop()
}

#[test]
fn a_client_that_goes_away_ends_its_calls_and_its_host() -> anyhow::Result<()> {
    let serve = Serve::stdio()?.ledger()?;
    let mut command = serve.command()?;
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let mut stdin = child.stdin.take().context("stdin")?;
    let mut stdout = BufReader::new(child.stdout.take().context("stdout")?);
    let call = |id: u32, tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments});
        format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        )
    };
    stdin.write_all(call(1, "get", json!({})).as_bytes())?;
    let mut line = String::new();
    stdout.read_line(&mut line)?;
    stdin.write_all(call(2, "wait", json!({"ms": 100_000})).as_bytes())?;
    let gone = Instant::now();
    drop((stdin, stdout));
    let status = mainstay_testkit::process::wait_for(&mut child, Duration::from_secs(120))?;
    ensure!(status.success(), "{status}");
    ensure!(
        gone.elapsed() < Duration::from_secs(60),
        "{:?}",
        gone.elapsed()
    );
    ensure!(
        serve.family().is_empty(),
        "left behind: {:?}",
        serve.family()
    );
    Ok(())
}

#[test]
fn a_client_that_only_ends_its_input_still_gets_its_answers() -> anyhow::Result<()> {
    let serve = Serve::socket()?.ledger()?;
    let path = serve.folder().join("mainstay.sock");
    let host = serve.at(&path).spawn()?;
    let mut stream = connect(&host)?;
    let params = json!({"name": "wait", "arguments": {"ms": 300}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    stream.write_all(format!("{call}\n").as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer)?;
    ensure!(
        answer.contains("\"id\":1") && answer.contains("structuredContent"),
        "{answer}"
    );
    host.stop()
}
