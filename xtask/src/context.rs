//! Where the tasks run: the workspace, the cargo to call, whether this is CI.
//!
//! Read once at start, then handed down.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) root: PathBuf,
    /// `CI=true`: nothing may be skipped, and system packages may be installed.
    pub(crate) ci: bool,
    cargo: OsString,
}

impl Context {
    /// Finds the workspace above the current directory.
    #[expect(
        clippy::disallowed_methods,
        reason = "the tasks' own environment, read once here"
    )]
    pub(crate) fn discover() -> anyhow::Result<Self> {
        let here = env::current_dir().context("the current directory cannot be read")?;
        let root = here
            .ancestors()
            .find(|folder| is_workspace(folder))
            .with_context(|| format!("{} is not inside the workspace", here.display()))?;
        Ok(Self {
            root: root.to_owned(),
            ci: env::var_os("CI").is_some_and(|value| value == "true" || value == "1"),
            cargo: env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        })
    }

    /// A command that starts in the workspace.
    pub(crate) fn command(&self, program: impl Into<OsString>) -> Command {
        let mut command = Command::new(program.into());
        command.current_dir(&self.root);
        command
    }

    /// The cargo that runs this task, so that no second toolchain comes in.
    pub(crate) fn cargo<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = self.command(self.cargo.clone());
        command.args(arguments);
        command
    }

    /// Where tools that tests need are installed, never beyond the workspace.
    pub(crate) fn tools(&self) -> PathBuf {
        self.root.join("target").join("tools")
    }
}

fn is_workspace(folder: &Path) -> bool {
    folder.join("Cargo.lock").is_file() && folder.join("xtask").join("Cargo.toml").is_file()
}
