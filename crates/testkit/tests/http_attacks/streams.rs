//! Streams that are not read, and streams that are closed.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Event, Events, modern};
use serde_json::{Value, json};

use crate::victim::{GROWTH_KIB, KINDS, Kind, Victim};

/// A call that takes a minute and says how far it is.
fn slow(kind: Kind) -> Value {
    match kind {
        Kind::Packs => json!({"name": "wait", "arguments": {"ms": 600_000, "steps": 1000}}),
        Kind::Wrapped => json!({"name": "sleep", "arguments": {"ms": 600_000, "steps": 1000}}),
    }
}

/// The first message of a stream.
fn first_message(connection: &mut Connection) -> anyhow::Result<Value> {
    let (head, mut framing) = connection.head()?;
    ensure!(head.is_stream(), "{head:?}");
    let mut events = Events::default();
    while let Some(piece) = connection.piece(&mut framing)? {
        for event in events.push(&piece) {
            if !event.data.is_empty() {
                return serde_json::from_str(&event.data).context("an event");
            }
        }
    }
    anyhow::bail!("the stream ended")
}

/// The first event with data, as it stands in the stream.
fn first_event(connection: &mut Connection) -> anyhow::Result<Option<Event>> {
    let (head, mut framing) = connection.head()?;
    if head.status != 200 {
        return Ok(None);
    }
    let mut events = Events::default();
    while let Ok(Some(piece)) = connection.piece(&mut framing) {
        for event in events.push(&piece) {
            if !event.data.is_empty() {
                return Ok(Some(event));
            }
        }
    }
    Ok(None)
}

/// What was missed is told again to whoever it was meant for, and to nobody else.
#[test]
fn events_of_a_session_are_not_told_to_another() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let (owner, thief) = (victim.session()?, victim.session()?);
        let mut params = slow(kind);
        if let Some(members) = params.as_object_mut() {
            members.insert("_meta".to_owned(), json!({"progressToken": "mine"}));
        }
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let mut connection = victim.connect()?;
        connection.send(&owner.post(&call.to_string()).bytes())?;
        let event = first_event(&mut connection)?.context("no progress")?;
        let id = event.id.context("an event without id")?;
        drop(connection);
        let patience = Duration::from_secs(2);
        let mut stolen = victim.connect()?.with_patience(patience);
        stolen.send(&thief.get().header("Last-Event-ID", &id).bytes())?;
        let seen = first_event(&mut stolen)?;
        ensure!(seen.is_none(), "{kind:?}: a thief saw {seen:?}");
        for guess in ["0", "-1", "x", "9999999999999999999999", ""] {
            let mut connection = victim.connect()?.with_patience(Duration::from_millis(300));
            connection.send(&thief.get().header("Last-Event-ID", guess).bytes())?;
            let seen = first_event(&mut connection)?;
            ensure!(seen.is_none(), "{kind:?}: {guess:?} gave {seen:?}");
        }
        let mut resumed = victim.connect()?;
        resumed.send(&owner.get().header("Last-Event-ID", &id).bytes())?;
        let event = first_event(&mut resumed)?.context("nothing was told again")?;
        ensure!(event.data.contains("mine"), "{event:?}");
        for session in [owner, thief] {
            session.ask(&session.delete())?;
        }
        victim.survives()?;
    }
    Ok(())
}

/// MCP allows no answer to a call that was cancelled; over HTTP its stream just ends.
#[test]
fn cancelled_call_ends_its_stream_and_frees_its_id() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let session = victim.session()?;
        for has_progress in [true, false] {
            let mut params = slow(kind);
            if let (true, Some(members)) = (has_progress, params.as_object_mut()) {
                members.insert("_meta".to_owned(), json!({"progressToken": 1}));
            }
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let mut connection = victim.connect()?;
            connection.send(&session.post(&call.to_string()).bytes())?;
            std::thread::sleep(Duration::from_millis(500));
            let cancel = json!({
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": 1},
            });
            let accepted = session.ask(&session.post(&cancel.to_string()))?;
            ensure!(accepted.status() == 202, "{}", accepted.status());
            let ended = connection
                .response()
                .with_context(|| format!("{kind:?}, progress {has_progress}: no end"))?;
            ensure!(!ended.text().contains("\"result\""), "{}", ended.text());
            let again = session.request("1", "ping", &json!({}))?;
            ensure!(again.get("result").is_some(), "{again}");
        }
        session.ask(&session.delete())?;
        victim.survives()?;
    }
    Ok(())
}

/// Four of them fill a pack's worker: only if they are really gone is the next one served.
#[test]
fn modern_call_is_cancelled_by_closing_its_stream() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let mut open = Vec::new();
        for id in 0..4 {
            let mut params = slow(kind);
            if let Some(members) = params.as_object_mut() {
                members.insert("_meta".to_owned(), json!({"progressToken": id}));
            }
            let request = modern(victim.address, &id.to_string(), "tools/call", &params);
            let mut connection = victim.connect()?;
            connection.send(&request.bytes())?;
            let message = first_message(&mut connection)?;
            ensure!(
                message.get("method") == Some(&json!("notifications/progress")),
                "{message}"
            );
            open.push(connection);
        }
        drop(open);
        let start = Instant::now();
        let quick = match kind {
            Kind::Packs => json!({"name": "get", "arguments": {}}),
            Kind::Wrapped => json!({"name": "add", "arguments": {"a": 1, "b": 2}}),
        };
        let answer = victim.ask(&modern(victim.address, "9", "tools/call", &quick))?;
        ensure!(answer.status() == 200, "{}", answer.text());
        let took = start.elapsed();
        ensure!(took < Duration::from_secs(60), "served after {took:?}");
        victim.survives()?;
    }
    Ok(())
}

/// Answers of 8 MiB that nobody takes.
#[test]
fn client_that_never_reads_costs_bounded_memory_and_is_given_up() -> anyhow::Result<()> {
    let victim = Victim::with(Kind::Wrapped, "http_body_ms = 2000", None)?;
    let session = victim.session()?;
    let mut deaf = Vec::new();
    for id in 0..24 {
        let params = json!({"name": "big", "arguments": {"bytes": 8 * 1024 * 1024}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let mut connection = victim.connect()?;
        connection.send(&session.post(&call.to_string()).bytes())?;
        deaf.push(connection);
    }
    std::thread::sleep(Duration::from_secs(4));
    victim.serves()?;
    let grew = victim.grew()?;
    // 24 answers would be 192 MiB.
    ensure!(grew < 5 * GROWTH_KIB / 2, "it grew by {grew} KiB");
    drop(deaf);
    session.ask(&session.delete())?;
    victim.serves()?;
    victim.stops()
}

#[test]
fn stream_that_is_never_read_is_given_up_and_its_session_goes_on() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::with(kind, "http_body_ms = 1000", None)?;
        let session = victim.session()?;
        let mut deaf = Vec::new();
        for id in 0..4 {
            let mut params = slow(kind);
            if let Some(members) = params.as_object_mut() {
                members.insert("_meta".to_owned(), json!({"progressToken": id}));
            }
            let call =
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            let mut connection = victim.connect()?;
            connection.send(&session.post(&call.to_string()).bytes())?;
            deaf.push(connection);
        }
        let mut listening = victim.connect()?;
        listening.send(&session.get().bytes())?;
        std::thread::sleep(Duration::from_secs(2));
        let ping = session.request("\"ping\"", "ping", &json!({}))?;
        ensure!(ping.get("result").is_some(), "{ping}");
        drop((deaf, listening));
        session.ask(&session.delete())?;
        victim.survives()?;
    }
    Ok(())
}
