//! Heads that are too large or come too slowly.

use std::time::{Duration, Instant};

use anyhow::ensure;
use mainstay_testkit::http::Request;

use crate::victim::{KINDS, Victim, expect};

#[test]
fn too_many_headers_are_refused() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        for count in [200, 5_000] {
            let mut request = Request::to(victim.address, "GET", "/mcp");
            for number in 0..count {
                request = request.header(&format!("x-{number}"), "y");
            }
            let mut connection = victim.connect()?;
            let sent = connection.send(&request.bytes());
            match (sent, connection.response()) {
                (_, Ok(answer)) => expect(&answer, &[431], &format!("{count} headers"))?,
                // Cut off while it was still sending.
                (_, Err(error)) => ensure!(count > 1_000, "{count} headers: {error:#}"),
            }
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn too_long_a_head_is_refused() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let long = "x".repeat(64 * 1024);
        let header = Request::to(victim.address, "GET", "/mcp").header("X-Long", &long);
        let target = Request::to(victim.address, "GET", &format!("/{long}"));
        for (request, statuses) in [(header, &[431][..]), (target, &[414, 431])] {
            let mut connection = victim.connect()?;
            let _ = connection.send(&request.bytes());
            expect(&connection.response()?, statuses, "a long head")?;
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn endless_head_is_cut_off() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        for start in ["", "GET ", "GET /mcp HTTP/1.1\r\nX: "] {
            let mut connection = victim.connect()?;
            connection.send(start.as_bytes())?;
            let piece = [b'x'; 65536];
            let mut sent = 0;
            while sent < 64 * 1024 * 1024 && connection.send(&piece).is_ok() {
                sent += piece.len();
            }
            ensure!(sent < 64 * 1024 * 1024, "{start:?}: all of it was taken");
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn slow_head_is_given_up() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::with(kind, "http_header_ms = 1000", None)?;
        let mut connection = victim.connect()?;
        let start = Instant::now();
        let head = Request::to(victim.address, "GET", "/mcp").bytes();
        let mut given_up = false;
        for byte in head.iter().cycle().take(1200) {
            // Never an empty line, so the head never ends.
            let byte = if *byte == b'\r' { b'x' } else { *byte };
            if connection.send(&[byte]).is_err() {
                given_up = true;
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        ensure!(
            given_up,
            "{kind:?}: waited for a head for {:?}",
            start.elapsed()
        );
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn connection_that_says_nothing_is_given_up() -> anyhow::Result<()> {
    let victim = Victim::with(KINDS[0], "http_header_ms = 500", None)?;
    let mut silent = victim.connect()?;
    let mut after_one = victim.connect()?;
    after_one.ask(&Request::to(victim.address, "GET", "/nowhere"))?;
    silent.closed()?;
    after_one.closed()?;
    victim.survives()
}
