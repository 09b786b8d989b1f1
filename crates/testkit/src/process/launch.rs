//! Any command, started with pipes and watched like a host.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::serve::MARKER;
use super::temp::unique;
use super::{Running, TempDir, as_nobody};

/// A command to be started: a server of others, bare or behind `mainstay wrap`.
#[derive(Debug)]
pub struct Launch {
    words: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    folder: TempDir,
    marker: String,
}

impl Launch {
    /// A command, with a temporary folder for its files in which it runs.
    pub fn new(words: impl IntoIterator<Item = impl Into<OsString>>) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let runtime = folder.join("run");
        Ok(Self {
            words: words.into_iter().map(Into::into).collect(),
            variables: vec![
                ("MAINSTAY_RUNTIME_DIR".into(), runtime.into()),
                ("MAINSTAY_CACHE_DIR".into(), folder.join("cache").into()),
                ("MAINSTAY_STATE_DIR".into(), folder.join("state").into()),
            ],
            folder,
            marker: unique("run"),
        })
    }

    /// Runs it as an ordinary user.
    pub fn as_nobody(mut self) -> anyhow::Result<Self> {
        let mut words = as_nobody(self.folder.path())?;
        words.append(&mut self.words);
        self.words = words;
        Ok(self)
    }

    /// Adds words at the end.
    #[must_use]
    pub fn words(mut self, words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// The folder for its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The command, without its pipes.
    pub fn command(&self) -> anyhow::Result<Command> {
        let (program, arguments) = self.words.split_first().context("an empty command")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env(MARKER, &self.marker)
            .current_dir(self.folder.path())
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Starts it, with a client on its standard input and output.
    pub fn spawn(self) -> anyhow::Result<Running> {
        let child = self
            .command()?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {:?}", self.words))?;
        Running::new(child, self.marker, None, self.folder)
    }

    /// Starts it without standard input and returns when it is ready to serve HTTP.
    pub fn spawn_http(self) -> anyhow::Result<Running> {
        let running = self.spawn_listening()?;
        running.wait_for_line("mcp:ready mode=http")?;
        Ok(running)
    }

    /// As [`Self::spawn_http`], but returns as soon as it listens.
    pub fn spawn_listening(self) -> anyhow::Result<Running> {
        let child = self
            .command()?
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {:?}", self.words))?;
        let mut running = Running::new(child, self.marker, None, self.folder)?;
        running.listens()?;
        Ok(running)
    }
}
