//! Sessions belong to whoever opened them, and cannot be guessed.

use std::collections::BTreeSet;

use anyhow::ensure;
use mainstay_testkit::http::{Request, initialize};

use crate::victim::{KINDS, Victim, expect};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

fn requests(victim: &Victim) -> [Request; 3] {
    [
        Request::message(victim.address, LIST).header("MCP-Protocol-Version", "2025-11-25"),
        Request::to(victim.address, "GET", "/mcp").header("Accept", "text/event-stream"),
        Request::to(victim.address, "DELETE", "/mcp"),
    ]
}

#[test]
fn guessed_session_is_not_found() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let session = victim.session()?;
        let real = session.id().to_owned();
        let other: String = real.chars().rev().collect();
        let guesses = [
            "1".to_owned(),
            "00000000-0000-0000-0000-000000000000".to_owned(),
            "../../etc/passwd".to_owned(),
            real.to_uppercase() + "0",
            real.get(1..).unwrap_or_default().to_owned(),
            format!("{real}, {real}"),
            other,
            "x".repeat(4096),
        ];
        for guess in guesses.iter().filter(|guess| **guess != real) {
            for request in requests(&victim) {
                let answer = victim.ask(&request.header("Mcp-Session-Id", guess))?;
                expect(&answer, &[404], &format!("guessed {guess:.40}"))?;
                ensure!(answer.head.header("mcp-session-id").is_none(), "an id");
            }
        }
        // The one that was not guessed is as it was.
        ensure!(session.ask(&session.post(LIST))?.status() == 200, "gone");
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn request_without_a_session_is_refused() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        for request in requests(&victim) {
            let answer = victim.ask(&request)?;
            expect(&answer, &[400], &format!("{request:?}"))?;
        }
        let session = victim.session()?;
        let twice = session.post(LIST).header("Mcp-Session-Id", "another");
        expect(&victim.ask(&twice)?, &[400, 404], "two session ids")?;
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn ended_session_is_not_found() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let session = victim.session()?;
        expect(
            &session.ask(&session.delete())?,
            &[200, 202, 204],
            "the end",
        )?;
        for request in [session.post(LIST), session.get(), session.delete()] {
            expect(&victim.ask(&request)?, &[404], "after the end")?;
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn session_is_bound_to_the_credential_that_opened_it() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::with(kind, "", Some("right"))?;
        let session = victim.session()?;
        for request in [session.post(LIST), session.get(), session.delete()] {
            let nobody = request.without("authorization");
            expect(&victim.ask(&nobody)?, &[401], "nobody")?;
            let other = nobody.header("Authorization", "Bearer other");
            expect(&victim.ask(&other)?, &[401, 404], "somebody else")?;
        }
        ensure!(session.ask(&session.post(LIST))?.status() == 200, "gone");
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn session_ids_are_long_and_never_the_same() -> anyhow::Result<()> {
    let victim = Victim::start(KINDS[0])?;
    let mut seen = BTreeSet::new();
    for _ in 0..64 {
        let session = victim.session()?;
        let id = session.id();
        let visible = id.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
        ensure!(visible && id.len() >= 32, "{id:?}");
        ensure!(seen.insert(id.to_owned()), "{id} twice");
        session.ask(&session.delete())?;
    }
    // No two of them begin alike: nothing counts up.
    let starts: BTreeSet<_> = seen.iter().filter_map(|id| id.get(..12)).collect();
    ensure!(starts.len() == seen.len(), "{seen:?}");
    victim.survives()
}

#[test]
fn too_many_sessions_are_turned_away_with_a_time_to_come_back() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::with(kind, "http_sessions = 4", None)?;
        let mut held = Vec::new();
        let mut refused = 0;
        for _ in 0..12 {
            let answer = victim.ask(&initialize(victim.address))?;
            if answer.status() == 200 {
                held.push(
                    answer
                        .head
                        .header("mcp-session-id")
                        .unwrap_or("")
                        .to_owned(),
                );
                continue;
            }
            expect(&answer, &[429, 503], "too many sessions")?;
            ensure!(answer.head.header("retry-after").is_some(), "no time");
            refused += 1;
        }
        ensure!(
            held.len() == 4 && refused == 8,
            "{held:?}, {refused} refused"
        );
        for id in held {
            let request = Request::to(victim.address, "DELETE", "/mcp");
            victim.ask(&request.header("Mcp-Session-Id", &id))?;
        }
        victim.survives()?;
    }
    Ok(())
}
