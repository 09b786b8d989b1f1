//! The host under attack.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use mainstay_testkit::http::{Connection, Request, Response, Session};
use mainstay_testkit::process::{Launch, Running, binary};
use serde_json::json;

/// What stands behind the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `mainstay serve` with the example pack.
    Packs,
    /// `mainstay wrap` with a server of others.
    Wrapped,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::Packs, Kind::Wrapped];

/// What an attack may make the host grow, in KiB.
pub(crate) const GROWTH_KIB: u64 = 48 * 1024;

#[derive(Debug)]
pub(crate) struct Victim {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    running: Running,
    token: Option<String>,
    before: u64,
}

impl Victim {
    /// What the host has logged so far.
    pub(crate) fn stderr(&self) -> Vec<String> {
        self.running.stderr()
    }

    pub(crate) fn start(kind: Kind) -> anyhow::Result<Self> {
        Self::with(kind, "", None)
    }

    /// With these `[limits]`, one `key = value` each, and a token.
    pub(crate) fn with(kind: Kind, limits: &str, token: Option<&str>) -> anyhow::Result<Self> {
        let launch = Launch::new([binary("mainstay")?])?;
        let config = launch.folder().join("config.toml");
        let table = match kind {
            Kind::Packs => "limits",
            Kind::Wrapped => "servers.wrapped.mainstay.limits",
        };
        let lines: Vec<&str> = limits.split(',').map(str::trim).collect();
        fs::write(&config, format!("[{table}]\n{}\n", lines.join("\n"))).context("a file")?;
        let ledger = format!(
            "ledger={} --file {}",
            binary("ledger")?.display(),
            launch.folder().join("ledger.jsonl").display()
        );
        let task = match kind {
            Kind::Packs => "serve",
            Kind::Wrapped => "wrap",
        };
        let launch = launch
            .words([task, "--http", "127.0.0.1:0", "--config"])
            .words([config]);
        let launch = match kind {
            Kind::Packs => launch.words(["--pack", &ledger]),
            Kind::Wrapped => launch.words(["--".into(), binary("mcp-fixture")?]).words([
                "--era",
                "both",
                "--effects",
                "effects.jsonl",
            ]),
        };
        let launch = match token {
            Some(token) => launch.env("MAINSTAY_TOKEN", token),
            None => launch,
        };
        let running = launch.spawn_http()?;
        let mut victim = Self {
            kind,
            address: running.address()?,
            running,
            token: token.map(str::to_owned),
            before: 0,
        };
        victim.serves()?;
        victim.before = victim.running.usage()?.resident;
        Ok(victim)
    }

    pub(crate) fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.address)
    }

    pub(crate) fn ask(&self, request: &Request) -> anyhow::Result<Response> {
        self.connect()?.ask(request)
    }

    pub(crate) fn session(&self) -> anyhow::Result<Session> {
        Session::open_as(self.address, self.token.as_deref())
    }

    /// A good client opens a session, is served, and leaves.
    pub(crate) fn serves(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        let session = self.session()?;
        let answer = match self.kind {
            Kind::Packs => session.call("1", "get", &json!({}))?,
            Kind::Wrapped => session.call("1", "add", &json!({"a": 1, "b": 2}))?,
        };
        ensure!(answer.get("result").is_some(), "{answer}");
        let ended = session.ask(&session.delete())?;
        ensure!((200..300).contains(&ended.status()), "{}", ended.status());
        let took = start.elapsed();
        ensure!(took < Duration::from_secs(60), "it took {took:?}");
        Ok(())
    }

    /// How much more than at the start the host ever held.
    pub(crate) fn grew(&self) -> anyhow::Result<u64> {
        Ok(self.running.usage()?.peak.saturating_sub(self.before))
    }

    /// After the attack: a good client is served, memory is bounded, the host ends well.
    pub(crate) fn survives(self) -> anyhow::Result<()> {
        self.serves()
            .with_context(|| format!("{:?}: {:#?}", self.kind, self.running.stderr()))?;
        let grew = self.grew()?;
        ensure!(grew < GROWTH_KIB, "{:?} grew by {grew} KiB", self.kind);
        self.running.stop()
    }

    /// The same where the good client is not of interest.
    pub(crate) fn stops(self) -> anyhow::Result<()> {
        self.running.stop()
    }
}

/// The status, with what stands behind it for whoever reads a failure.
pub(crate) fn expect(answer: &Response, statuses: &[u16], what: &str) -> anyhow::Result<()> {
    ensure!(
        statuses.contains(&answer.status()),
        "{what}: {} instead of {statuses:?}: {}",
        answer.status(),
        answer.text()
    );
    Ok(())
}
