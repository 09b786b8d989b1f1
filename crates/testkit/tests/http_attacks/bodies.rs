//! Bodies that are too large or come too slowly.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Request};

use crate::victim::{KINDS, Kind, Victim, expect};

const MIB: usize = 1024 * 1024;
const LARGE: usize = 100 * MIB;

/// What a message over HTTP may have.
const fn limit(kind: Kind) -> usize {
    match kind {
        Kind::Packs => MIB,
        Kind::Wrapped => 16 * MIB,
    }
}

/// A ping of exactly so many bytes.
fn ping(bytes: usize) -> String {
    let head = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":""#;
    let tail = r#""}}"#;
    format!(
        "{head}{}{tail}",
        "x".repeat(bytes - head.len() - tail.len())
    )
}

#[test]
fn body_of_the_largest_size_is_served_and_one_byte_more_is_not() -> anyhow::Result<()> {
    let victim = Victim::start(Kind::Packs)?;
    let session = victim.session()?;
    let good = session.ask(&session.post(&ping(limit(Kind::Packs))))?;
    expect(&good, &[200], "exactly the limit")?;
    let bad = session.ask(&session.post(&ping(limit(Kind::Packs) + 1)))?;
    expect(&bad, &[413], "one byte more")?;
    victim.survives()
}

#[test]
fn announced_large_body_is_refused_before_it_is_sent() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        for length in [limit(kind) + 1, LARGE, usize::MAX / 2] {
            let request = Request::message(victim.address, "")
                .unmeasured()
                .header("Content-Length", &length.to_string());
            expect(&victim.ask(&request)?, &[413], &format!("{length} bytes"))?;
        }
        let request = Request::message(victim.address, "")
            .unmeasured()
            .header("Content-Length", "99999999999999999999999999");
        expect(&victim.ask(&request)?, &[400, 413], "more than a number")?;
        victim.survives()?;
    }
    Ok(())
}

/// Sends until it is answered or cut off. Gives how much was taken.
fn pour(connection: &mut Connection, piece: &[u8], most: usize) -> usize {
    let mut sent = 0;
    while sent < most && connection.send(piece).is_ok() {
        sent += piece.len();
    }
    sent
}

#[test]
fn endless_body_is_cut_off() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let request = Request::message(victim.address, "")
            .unmeasured()
            .header("Transfer-Encoding", "chunked");
        let piece = [b"10000\r\n".as_slice(), &[b'x'; 65536], b"\r\n"].concat();
        let mut connection = victim.connect()?;
        connection.send(&request.bytes())?;
        let sent = pour(&mut connection, &piece, LARGE);
        ensure!(sent < LARGE, "all of it was taken");
        // The answer may be lost with the connection, but it is no other.
        if let Ok(answer) = connection.response() {
            expect(&answer, &[413], "an endless body")?;
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn chunked_body_just_over_the_limit_is_answered() -> anyhow::Result<()> {
    let victim = Victim::start(Kind::Packs)?;
    let body = ping(limit(Kind::Packs) + 1);
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let request = Request::message(victim.address, &chunks)
        .unmeasured()
        .header("Transfer-Encoding", "chunked");
    expect(&victim.ask(&request)?, &[413], "one byte more")?;
    victim.survives()
}

/// A client that writes its whole body before it reads gets the refusal all the same.
#[test]
fn refusal_of_a_large_body_reaches_a_client_that_sends_all_of_it() -> anyhow::Result<()> {
    let victim = Victim::start(Kind::Packs)?;
    let length = limit(Kind::Packs) + 8 * MIB;
    let body = vec![b'x'; length];
    for round in 0..10 {
        let announced = Request::message(victim.address, "")
            .unmeasured()
            .header("Content-Length", &length.to_string());
        let mut connection = victim.connect()?;
        connection.send(&announced.bytes())?;
        connection
            .send(&body)
            .with_context(|| format!("round {round}: the body is not taken"))?;
        expect(&connection.response()?, &[413], "all of it was sent")?;
    }
    victim.survives()
}

#[test]
fn many_tiny_chunks_cost_no_more_than_their_bytes() -> anyhow::Result<()> {
    let victim = Victim::start(Kind::Packs)?;
    let session = victim.session()?;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let spaces = "1;x=yyyyyyyyyyyyyyyy\r\n \r\n".repeat(20_000);
    let chunks = format!("{spaces}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let request = session
        .post(&chunks)
        .unmeasured()
        .header("Transfer-Encoding", "chunked");
    let mut connection = victim.connect()?;
    // Served or refused, as long as the host is none the worse.
    if connection.send(&request.bytes()).is_ok()
        && let Ok(answer) = connection.response()
    {
        expect(&answer, &[200, 400, 413], "tiny chunks")?;
    }
    victim.survives()
}

#[test]
fn slow_body_is_given_up() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::with(kind, "http_body_ms = 1000", None)?;
        slow_body(&victim, "/mcp", "/error/data/code")?;
        slow_body(&victim, "/v1/tool/echo", "/error/details/code")?;
        slow_body(&victim, "/v1/invoke", "/errors/0/code")?;
        victim.survives()?;
    }
    Ok(())
}

/// Sends a body byte by byte; the answer says at `pointer` what its row says.
fn slow_body(victim: &Victim, path: &str, pointer: &str) -> anyhow::Result<()> {
    let request = Request::to(victim.address, "POST", path)
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
        .unmeasured()
        .header("Content-Length", "1000");
    let mut connection = victim.connect()?;
    connection.send(&request.bytes())?;
    let start = Instant::now();
    let mut writer = connection.stream()?;
    let dripping = thread::spawn(move || {
        use std::io::Write as _;
        let end = Instant::now() + Duration::from_secs(120);
        while Instant::now() < end && writer.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    });
    match connection.response() {
        Ok(answer) => {
            expect(&answer, &[408], path)?;
            let body = answer.json()?;
            let code = body.pointer(pointer).and_then(serde_json::Value::as_str);
            ensure!(code == Some("INVALID_REQUEST"), "{path}: {body}");
        }
        Err(error) => ensure!(format!("{error:#}").contains("closed"), "{error:#}"),
    }
    let took = start.elapsed();
    ensure!(took < Duration::from_secs(60), "given up after {took:?}");
    drop(connection);
    ensure!(dripping.join().is_ok(), "the writer panicked");
    Ok(())
}
