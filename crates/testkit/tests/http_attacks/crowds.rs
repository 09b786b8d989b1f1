//! Many at once.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Request, Session};
use mainstay_testkit::process::Serve;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::victim::{KINDS, Kind, Victim};

/// This process needs a descriptor for each connection.
fn allow(descriptors: u64) -> anyhow::Result<()> {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= descriptors) {
        return Ok(());
    }
    let limit = Rlimit {
        current: Some(descriptors),
        maximum: now.maximum,
    };
    setrlimit(Resource::Nofile, limit).context("more descriptors")
}

#[test]
fn good_client_is_served_beside_a_thousand_idle_ones() -> anyhow::Result<()> {
    allow(4096)?;
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let idle: Vec<Connection> = (0..1000)
            .map(|_| victim.connect())
            .collect::<anyhow::Result<_>>()?;
        for _ in 0..5 {
            victim.serves()?;
        }
        drop(idle);
        victim.survives()?;
    }
    Ok(())
}

/// Idle connections make way for those that ask.
#[test]
fn good_client_is_served_beside_more_idle_ones_than_there_is_room_for() -> anyhow::Result<()> {
    allow(4096)?;
    for kind in KINDS {
        let victim = Victim::with(kind, "http_connections = 64", None)?;
        let idle: Vec<Connection> = (0..500)
            .map(|_| victim.connect())
            .collect::<anyhow::Result<_>>()?;
        victim.serves()?;
        drop(idle);
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn heads_begun_a_thousand_times_do_not_shut_out_a_good_client() -> anyhow::Result<()> {
    allow(4096)?;
    let victim = Victim::start(Kind::Packs)?;
    let mut begun = Vec::new();
    for _ in 0..1000 {
        let mut connection = victim.connect()?;
        connection.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: ")?;
        begun.push(connection);
    }
    victim.serves()?;
    drop(begun);
    victim.survives()
}

#[test]
fn connection_for_which_there_is_no_room_is_told_when_to_come_back() -> anyhow::Result<()> {
    allow(4096)?;
    for kind in KINDS {
        let victim = Victim::with(kind, "http_connections = 16", None)?;
        let mut streams = Vec::new();
        let mut turned_away = 0;
        let sessions = (0..16)
            .map(|_| victim.session())
            .collect::<anyhow::Result<Vec<_>>>()?;
        // Streams are not idle, so none makes way.
        for session in &sessions {
            let mut connection = victim.connect()?;
            connection.send(&session.get().bytes())?;
            let (head, _) = connection.head()?;
            ensure!(head.status == 200, "{}", head.status);
            streams.push(connection);
        }
        for _ in 0..8 {
            let mut connection = victim.connect()?;
            let request = Request::to(victim.address, "GET", "/healthz");
            let _ = connection.send(&request.bytes());
            if let Ok((head, _)) = connection.head() {
                ensure!([429, 503].contains(&head.status), "{}", head.status);
                ensure!(head.header("retry-after").is_some(), "no time");
                turned_away += 1;
            }
        }
        // A reset may take the words away from one that sends at the same time, not from all.
        ensure!(turned_away > 0, "nobody was told");
        drop(streams);
        let until = Instant::now() + Duration::from_secs(120);
        while victim.serves().is_err() {
            ensure!(Instant::now() < until, "it never recovers");
            std::thread::sleep(Duration::from_millis(100));
        }
        for session in sessions {
            session.ask(&session.delete())?;
        }
        victim.survives()?;
    }
    Ok(())
}

#[test]
fn thousands_of_streams_are_bounded_and_leave_nothing_behind() -> anyhow::Result<()> {
    allow(8192)?;
    for kind in KINDS {
        let victim = Victim::start(kind)?;
        let session = victim.session()?;
        let mut held = Vec::new();
        let mut refused = 0;
        for _ in 0..2000 {
            let Ok(mut connection) = victim.connect() else {
                refused += 1;
                continue;
            };
            if connection.send(&session.get().bytes()).is_err() {
                refused += 1;
                continue;
            }
            held.push(connection);
        }
        let mut open = 0;
        for connection in &mut held {
            match connection.head() {
                Ok((head, _)) if head.status == 200 => open += 1,
                _ => refused += 1,
            }
        }
        ensure!(open <= 1024, "{open} streams at once");
        ensure!(open + refused == 2000, "{open} and {refused}");
        drop(held);
        let until = Instant::now() + Duration::from_secs(120);
        while victim.serves().is_err() {
            ensure!(Instant::now() < until, "it never recovers");
            std::thread::sleep(Duration::from_millis(200));
        }
        victim.survives()?;
    }
    Ok(())
}

/// The host has fewer descriptors than there are connections.
#[test]
fn good_client_is_served_when_descriptors_run_out() -> anyhow::Result<()> {
    allow(4096)?;
    let host = Serve::http()?.ledger()?.descriptors(64).spawn()?;
    let address = host.address()?;
    let idle: Vec<Connection> = (0..200)
        .map(|_| Connection::open(address))
        .collect::<anyhow::Result<_>>()?;
    for _ in 0..3 {
        let session = Session::open(address)?;
        let answer = session.call("1", "get", &serde_json::json!({}))?;
        ensure!(answer.get("result").is_some(), "{answer}");
    }
    let stderr = host.stderr();
    let warned = stderr.iter().filter(|line| line.contains("accept_failed"));
    ensure!(warned.count() <= 1, "{stderr:?}");
    drop(idle);
    host.stop()
}
