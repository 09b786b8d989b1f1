//! Servers of others, bare and behind `mainstay wrap`: the same tests for both.
//!
//! [`WAYS`] is the one place that says in which ways such servers are started; every test of them
//! goes through it. [`Fixture`] is the server of [`crate::fixture`] started in one of them.
//! What must hold for a wrapped server only, such as a session that outlives a kill, asks
//! [`Way::survives_kills`].

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use crate::process::{Launch, Running, binary, unique};

/// How a server of others is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As its client would start it.
    Bare,
    /// By `mainstay wrap -- COMMAND`.
    Wrapped,
    /// By `mainstay wrap --bridge -- COMMAND`.
    Bridged,
    /// By `mainstay serve --config FILE`, which names it beside another server. It has no prefix of words.
    Served,
}

/// The ways in which tests start such servers.
pub const WAYS: &[Way] = &[Way::Bare, Way::Wrapped];

/// The file of effects in the folder of a [`Fixture`].
const EFFECTS: &str = "effects.jsonl";
/// The file of received lines in the folder of a [`Fixture`].
const STATE: &str = "state.jsonl";

/// Limits for tests in which servers are killed all the time.
pub const PATIENT: &str = "restarts = 1000000, restart_period_ms = 1000, backoff_min_ms = 0, \
    backoff_max_ms = 0, replays = 100";

impl Way {
    /// The words before a server's command.
    pub fn prefix(self) -> anyhow::Result<Vec<OsString>> {
        Ok(match self {
            Self::Bare => Vec::new(),
            Self::Wrapped => vec![binary("mainstay")?.into(), "wrap".into(), "--".into()],
            Self::Bridged => vec![
                binary("mainstay")?.into(),
                "wrap".into(),
                "--bridge".into(),
                "--".into(),
            ],
            Self::Served => bail!("a server of a file has no words before its command"),
        })
    }

    /// The same with these `[limits]`, one `key = value` each, in a configuration in `folder`.
    pub fn limited_prefix(self, folder: &Path, limits: &str) -> anyhow::Result<Vec<OsString>> {
        with_limits(self.prefix()?, folder, limits)
    }

    /// The same with a budget of restarts that no test uses up and without pauses between them, so
    /// that only the calls' own promises are tested.
    pub fn patient_prefix(self, folder: &Path) -> anyhow::Result<Vec<OsString>> {
        self.limited_prefix(folder, PATIENT)
    }

    /// Whether a session outlives its server.
    pub const fn survives_kills(self) -> bool {
        matches!(self, Self::Wrapped | Self::Bridged | Self::Served)
    }
}

/// A prefix that ends in `--`, with `--config FILE` before that; an empty one stays empty.
pub fn with_limits(
    mut prefix: Vec<OsString>,
    folder: &Path,
    limits: &str,
) -> anyhow::Result<Vec<OsString>> {
    let Some(dashes) = prefix.pop() else {
        return Ok(prefix);
    };
    ensure!(dashes == "--", "a prefix ends in --, not in {dashes:?}");
    let file = folder.join(format!("{}.toml", unique("limits")));
    let lines: Vec<&str> = limits.split(',').map(str::trim).collect();
    fs::write(
        &file,
        format!("[servers.wrapped.mainstay.limits]\n{}\n", lines.join("\n")),
    )
    .with_context(|| format!("writing {}", file.display()))?;
    prefix.extend(["--config".into(), file.into(), dashes]);
    Ok(prefix)
}

/// The fixture to be started, with files for its effects and for what it is told.
#[derive(Debug)]
pub struct Fixture {
    launch: Launch,
    folder: PathBuf,
}

impl Fixture {
    /// The fixture in this way.
    pub fn new(way: Way) -> anyhow::Result<Self> {
        Self::after(way.prefix()?)
    }

    /// The fixture behind a prefix of one's own: `mainstay wrap` with options, up to its `--`.
    pub fn after(prefix: impl IntoIterator<Item = impl Into<OsString>>) -> anyhow::Result<Self> {
        let fixture = Self::silent(prefix)?;
        let (effects, state) = (fixture.effects(), fixture.state());
        let fixture = fixture.options("--effects").word(effects);
        Ok(fixture.options("--state").word(state))
    }

    /// As [`Self::after`], but nothing is noted.
    pub fn silent(prefix: impl IntoIterator<Item = impl Into<OsString>>) -> anyhow::Result<Self> {
        let launch = Launch::new(prefix)?.words([binary("mcp-fixture")?]);
        let folder = launch.folder().to_owned();
        Ok(Self { launch, folder })
    }

    /// Adds options of the fixture, separated by spaces.
    #[must_use]
    pub fn options(mut self, options: &str) -> Self {
        self.launch = self.launch.words(options.split_whitespace());
        self
    }

    /// Adds one word, such as a path.
    #[must_use]
    pub fn word(mut self, word: impl Into<OsString>) -> Self {
        self.launch = self.launch.words([word]);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.launch = self.launch.env(name, value);
        self
    }

    /// Where the effects are noted.
    pub fn effects(&self) -> PathBuf {
        self.folder.join(EFFECTS)
    }

    /// Where the received lines are noted.
    pub fn state(&self) -> PathBuf {
        self.folder.join(STATE)
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The command, for whoever starts it.
    pub const fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Starts it.
    pub fn spawn(self) -> anyhow::Result<Running> {
        self.launch.spawn()
    }
}
