//! Without the token nothing is said but the state.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::ensure;
use mainstay_testkit::http::{Request, initialize};
use serde_json::json;

use crate::place::ROUTES;
use crate::victim::{KINDS, Kind, Victim, expect};

const TOKEN: &str = "correct-horse-battery-staple";

fn challenges(answer: &mainstay_testkit::http::Response) -> bool {
    answer
        .head
        .header("www-authenticate")
        .is_some_and(|challenge| challenge.starts_with("Bearer"))
}

#[test]
fn wrong_token_is_refused_with_a_challenge_on_every_route() -> anyhow::Result<()> {
    let credentials = [
        None,
        Some("Bearer wrong".to_owned()),
        Some("Bearer ".to_owned()),
        Some("Bearer".to_owned()),
        Some(String::new()),
        Some(format!("Basic {TOKEN}")),
        Some(format!("Bearer {TOKEN}x")),
        Some(format!("Bearer {}", TOKEN.trim_end_matches('e'))),
        Some(format!("Bearer {}", TOKEN.to_uppercase())),
        Some(format!("Bearer {TOKEN} {TOKEN}")),
        Some(TOKEN.to_owned()),
    ];
    for kind in KINDS {
        let victim = Victim::with(kind, "", Some(TOKEN))?;
        // The page's sign-in, and the state for whoever watches, are for everybody.
        let guarded = ROUTES
            .iter()
            .filter(|(_, route)| !["/", "/healthz", "/readyz"].contains(route));
        for (method, route) in guarded {
            for credential in &credentials {
                let mut request = Request::to(victim.address, method, route);
                if *method == "POST" {
                    // The one place where credentials may stand in the body is read first.
                    request = request
                        .header("Content-Type", "application/json")
                        .body("{}");
                }
                if let Some(credential) = credential {
                    request = request.header("Authorization", credential);
                }
                let what = format!("{method} {route} with {credential:?}");
                let answer = victim.ask(&request)?;
                expect(&answer, &[401], &what)?;
                ensure!(challenges(&answer), "{what}: no challenge");
                ensure!(!answer.text().contains(TOKEN), "{what}: the token");
            }
        }
        for route in ["/healthz", "/readyz"] {
            let answer = victim.ask(&Request::to(victim.address, "GET", route))?;
            expect(&answer, &[200, 503], route)?;
            let state = answer.json()?;
            let members = state.as_object().map_or(0, serde_json::Map::len);
            ensure!(members == 1 && state.get("state").is_some(), "{state}");
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn token_in_the_address_is_never_accepted() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::with(kind, "", Some(TOKEN))?;
        for name in ["token", "access_token", "Access_Token", "api_key"] {
            let target = format!("/mcp?{name}={TOKEN}");
            let alone = Request::to(victim.address, "GET", &target);
            expect(&victim.ask(&alone)?, &[400, 401], &target)?;
            // Even beside the right header: what stands in an address ends up in logs.
            let beside = alone.header("Authorization", &format!("Bearer {TOKEN}"));
            expect(&victim.ask(&beside)?, &[400, 401], &target)?;
        }
        victim.survives()?;
    }
    Ok(())
}

/// An envelope may carry the token; it counts like the header, and the two may not differ.
#[test]
fn wrong_token_in_an_envelope_is_refused_even_beside_the_right_header() -> anyhow::Result<()> {
    let victim = Victim::with(Kind::Packs, "", Some(TOKEN))?;
    let good = format!("Bearer {TOKEN}");
    let invoke = |token: &str, header: Option<&str>| {
        let envelope = json!({
            "id": "1",
            "version": "1.0.0",
            "timestamp": "2026-01-01T00:00:00Z",
            "tool": "get",
            "payload": {},
            "auth": {"type": "bearer", "token": token},
        });
        let request = Request::to(victim.address, "POST", "/v1/invoke")
            .header("Content-Type", "application/json")
            .body(envelope.to_string());
        victim.ask(&match header {
            Some(header) => request.header("Authorization", header),
            None => request,
        })
    };
    expect(&invoke(TOKEN, None)?, &[200], "the right one")?;
    expect(&invoke(TOKEN, Some(&good))?, &[200], "the right one twice")?;
    expect(&invoke("wrong", None)?, &[401], "a wrong one")?;
    expect(&invoke("wrong", Some(&good))?, &[401], "two that differ")?;
    expect(
        &invoke(TOKEN, Some("Bearer wrong"))?,
        &[401],
        "two that differ",
    )?;
    victim.survives()
}

#[test]
fn token_twice_is_refused_and_its_scheme_has_any_case() -> anyhow::Result<()> {
    for kind in KINDS {
        let victim = Victim::with(kind, "", Some(TOKEN))?;
        let good = format!("Bearer {TOKEN}");
        let twice = initialize(victim.address)
            .header("Authorization", &good)
            .header("Authorization", "Bearer wrong");
        expect(&victim.ask(&twice)?, &[400, 401], "two tokens")?;
        let lower = initialize(victim.address).header("Authorization", &format!("bearer {TOKEN}"));
        expect(&victim.ask(&lower)?, &[200], "lower case")?;
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn every_refusal_is_counted_by_its_reason_and_logged_without_the_token() -> anyhow::Result<()> {
    let victim = Victim::with(Kind::Packs, "", Some(TOKEN))?;
    let guess = "Bearer a-wrong-guess";
    for _ in 0..40 {
        let wrong = initialize(victim.address).header("Authorization", guess);
        expect(&victim.ask(&wrong)?, &[401], "a wrong token")?;
    }
    expect(
        &victim.ask(&initialize(victim.address))?,
        &[401],
        "no token",
    )?;
    let watched = Request::to(victim.address, "GET", "/healthz").header("Authorization", guess);
    expect(&victim.ask(&watched)?, &[200], "the state is for everybody")?;
    let metrics = Request::to(victim.address, "GET", "/metrics")
        .header("Authorization", &format!("Bearer {TOKEN}"));
    let metrics = victim.ask(&metrics)?.text();
    for sample in [
        "mainstay_http_access_refused_total{reason=\"wrong_token\"} 41",
        "mainstay_http_access_refused_total{reason=\"no_token\"} 1",
    ] {
        ensure!(metrics.contains(sample), "{sample} in {metrics}");
    }
    let lines = victim.stderr();
    let refused = |line: &&String| line.contains("reason=access_refused");
    let logged = lines.iter().filter(refused).count();
    ensure!((1..=30).contains(&logged), "{logged} lines");
    let first = lines.iter().find(refused).map_or("", String::as_str);
    ensure!(
        first.contains("why=wrong_token route=/mcp peer=127.0.0.1"),
        "{first}"
    );
    ensure!(!lines.iter().any(|line| line.contains("a-wrong-guess")));
    // The next period admits lines again, and the first one counts those that were left out.
    let until = Instant::now() + Duration::from_secs(120);
    let counts = |line: &String| line.contains("suppressed=");
    while !victim.stderr().iter().any(counts) {
        ensure!(Instant::now() < until, "no line counts the others");
        victim.ask(&initialize(victim.address))?;
        sleep(Duration::from_millis(500));
    }
    victim.survives()
}

/// The only bodies that are read before their sender is known.
#[test]
fn slow_bodies_without_a_token_do_not_shut_out_its_holder() -> anyhow::Result<()> {
    let victim = Victim::with(Kind::Packs, "http_in_flight = 8", Some(TOKEN))?;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut connection = victim.connect()?;
        connection.send(
            b"POST /v1/invoke HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
              Content-Length: 60000\r\n\r\n{",
        )?;
        slow.push(connection);
    }
    victim.serves()?;
    drop(slow);
    victim.survives()
}

#[test]
fn large_body_without_a_token_is_not_read() -> anyhow::Result<()> {
    let victim = Victim::with(Kind::Packs, "", Some(TOKEN))?;
    let invoke = |bytes: usize| {
        let request = Request::to(victim.address, "POST", "/v1/invoke");
        let envelope = json!({"id": "1", "tool": "get", "payload": {"x": "y".repeat(bytes)},
            "auth": {"type": "bearer", "token": TOKEN}});
        request
            .header("Content-Type", "application/json")
            .body(envelope.to_string())
    };
    let large = invoke(200_000);
    let answer = victim.ask(&large)?;
    expect(&answer, &[413], "a large body")?;
    ensure!(answer.text().contains("Authorization"), "{}", answer.text());
    let known = large.header("Authorization", &format!("Bearer {TOKEN}"));
    let answer = victim.ask(&known)?;
    ensure!(answer.status() != 413, "{}", answer.text());
    victim.survives()
}
