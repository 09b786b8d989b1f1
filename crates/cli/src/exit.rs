//! Exit codes, and how a failure is told on standard error.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use mainstay_contract::render::visible;

/// Everything went well.
pub(crate) const SUCCESS: u8 = 0;
/// The answer is no: a validation failed, a check differs, a thing was not found.
pub(crate) const NO: u8 = 1;
/// Input, configuration or I/O error.
pub(crate) const INPUT: u8 = 2;
/// Internal fault.
pub(crate) const FAULT: u8 = 3;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) error: anyhow::Error,
    pub(crate) hint: Option<String>,
    /// The host's own error payload, where it is a host that refused.
    pub(crate) payload: Option<String>,
}

impl Failure {
    /// The user, the configuration or the machine must change.
    pub(crate) fn input(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: INPUT,
            error: error.into(),
            hint: None,
            payload: None,
        }
    }

    /// Something of ours is wrong.
    pub(crate) fn fault(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: FAULT,
            error: error.into(),
            hint: None,
            payload: None,
        }
    }

    /// Adds the error payload of the host that refused.
    pub(crate) fn said(mut self, payload: String) -> Self {
        self.payload = Some(payload);
        self
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Writes a failure with its causes, and gives its exit code.
pub(crate) fn report(failure: &Failure) -> ExitCode {
    let mut stderr = io::stderr().lock();
    let error = harmless(&format!("{:#}", failure.error));
    let _ = writeln!(stderr, "mainstay: error: {error}");
    let hint = failure.hint.as_deref();
    if let Some(hint) = hint.or_else(|| hint_of_system(&failure.error)) {
        let _ = writeln!(stderr, "mainstay: hint: {}", harmless(hint));
    }
    ExitCode::from(failure.code)
}

/// The hint for an error of the system, where the command knows nothing better.
fn hint_of_system(error: &anyhow::Error) -> Option<&'static str> {
    let mut causes = error.chain();
    let kind = causes.find_map(|cause| Some(cause.downcast_ref::<io::Error>()?.kind()))?;
    Some(match kind {
        io::ErrorKind::NotFound => {
            "check the path: a relative one begins in the current directory, and a quoted ~ is not the home directory"
        }
        io::ErrorKind::PermissionDenied => "give this user access to it, or name another path",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space there, or name a path on another disk"
        }
        io::ErrorKind::ReadOnlyFilesystem => "name a path on a disk that may be written",
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there; check the address, and that the host runs"
        }
        _ => return None,
    })
}

/// Text of others for a terminal: every line without escape sequences.
fn harmless(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(visible).collect();
    lines.join("\n")
}

/// Warns once, however often the same thing is found: a configuration is read several times.
pub(crate) fn warn_once(warning: String) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if !warned.contains(&warning) {
        eprint_line(&format!("mainstay: warning: {warning}"));
        warned.insert(warning);
    }
}

/// Says something to whoever watches standard error.
pub(crate) fn eprint_line(text: &str) {
    // Nobody is left to be told that it is gone.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes to standard output. A reader that has gone is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::input(error)),
        _ => Ok(()),
    }
}
