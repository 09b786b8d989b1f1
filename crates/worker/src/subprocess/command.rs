//! A program to run, and its result.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::Problem;

use super::supervise::Supervised;
use crate::context::Context;

/// Bytes kept of each output stream unless told otherwise.
const CAPTURE_BYTES: usize = 1024 * 1024;

/// A program to run within a call.
#[derive(Debug)]
#[must_use]
pub struct Subprocess {
    program: OsString,
    command: Command,
    stdin: Vec<u8>,
    timeout: Option<Duration>,
    capture_bytes: usize,
}

impl Subprocess {
    /// A program by name or path, with the worker's environment, directory and empty input.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            command: Command::new(program),
            stdin: Vec::new(),
            timeout: None,
            capture_bytes: CAPTURE_BYTES,
        }
    }

    pub fn args<I>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item: AsRef<OsStr>>,
    {
        self.command.args(args);
        self
    }

    pub fn current_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    pub fn env_clear(mut self) -> Self {
        self.command.env_clear();
        self
    }

    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// The program's standard input.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Stops the program after this time; never later than at the deadline of the call.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Bytes kept of each output stream; the rest is read and dropped.
    pub const fn capture_bytes(mut self, bytes: usize) -> Self {
        self.capture_bytes = bytes;
        self
    }

    /// Runs the program to its end. A program that fails is still an [`Output`]; a problem is one
    /// that could not be started, was cancelled or took too long.
    pub fn run(mut self, context: &Context) -> Result<Output, Problem> {
        context.check()?;
        self.command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let child = context
            .surroundings
            .trees
            .spawn(&mut self.command)
            .map_err(|error| {
                let program = self.program.to_string_lossy();
                Problem::new(
                    ErrorKind::CapabilityMissing,
                    format!("cannot start {program}: {error}"),
                )
                .with_hint(format!("install {program}, or check its path"))
            })?;
        let remaining = context.remaining();
        let timeout = self
            .timeout
            .map_or(remaining, |timeout| timeout.min(remaining));
        Supervised::new(child, self.stdin, self.capture_bytes, timeout, context).run()
    }
}

/// Result of a program.
#[derive(Clone, Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: Captured,
    pub stderr: Captured,
}

/// One output stream, up to a bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    pub bytes: Vec<u8>,
    /// More came than is kept.
    pub truncated: bool,
}

impl Captured {
    /// The bytes as text, with a mark for each that is none.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The last `max` bytes as text.
    pub(super) fn tail(&self, max: usize) -> String {
        let from = self.bytes.len().saturating_sub(max);
        String::from_utf8_lossy(self.bytes.get(from..).unwrap_or_default()).into_owned()
    }
}
