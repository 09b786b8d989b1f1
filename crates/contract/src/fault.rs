//! Faults: our machinery broke, in a typed form that drives restarts, health and telemetry.
//!
//! A fault is not what a client reads; the client reads a [`crate::outcome::Problem`], which is
//! made from a fault where a call was hit by one. The class says what kind of thing broke, the
//! kind says which row of the error table a call that suffers from it gets.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;
use crate::id::Generation;

words! {
    /// Operational category of what broke (`libmcp.md`).
    pub enum FaultClass {
        /// A connection or pipe failed.
        Transport = "transport",
        /// A process died, or could not be started or killed.
        Process = "process",
        /// A peer spoke in a form we cannot use.
        Protocol = "protocol",
        /// Something did not happen in time.
        Timeout = "timeout",
        /// The tool, or what stands behind it, answered with a failure.
        Downstream = "downstream",
        /// A limit was reached.
        Resource = "resource",
        /// The attempts of a call are used up.
        Replay = "replay",
        /// A replacement of a worker or of the host was in the way.
        Rollout = "rollout",
        /// Mainstay itself is wrong.
        Invariant = "invariant",
    }
}

/// One fault, with what is needed to act on it and to report it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub class: FaultClass,
    /// The row of the error table; its public code is [`Fault::code`].
    pub kind: ErrorKind,
    /// The worker incarnation it happened to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generation: Option<Generation>,
    /// One sentence for the operator, in our words.
    pub detail: String,
    /// The worker's own words. Events of telemetry leave them out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub said: Option<String>,
    /// The next step for the operator or the client.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
    /// The last words of the process that it happened to, bounded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stderr: Option<String>,
}

impl Fault {
    /// A fault of the class and with the hint that the table gives for `kind`.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        let row = kind.row();
        Self {
            class: row.class,
            kind,
            generation: None,
            detail: detail.into(),
            said: None,
            hint: row.hint.map(str::to_owned),
            stderr: None,
        }
    }

    /// A worker that is there but does not react. The host ends it.
    pub fn unresponsive(detail: impl Into<String>) -> Self {
        let mut fault = Self::new(ErrorKind::WorkerUnavailable, detail);
        fault.hint = Some("the host kills it and starts another".to_owned());
        fault.with_class(FaultClass::Timeout)
    }

    /// Changes the fault class that the error table gives.
    #[must_use]
    pub const fn with_class(mut self, class: FaultClass) -> Self {
        self.class = class;
        self
    }

    /// Adds the last words of the process.
    #[must_use]
    pub fn with_stderr(mut self, words: &str) -> Self {
        self.stderr = Some(crate::failure::tail(words)).filter(|words| !words.is_empty());
        self
    }

    /// Adds the generation of the worker.
    #[must_use]
    pub fn of(mut self, generation: Generation) -> Self {
        self.generation = Some(generation);
        self
    }

    /// Adds the worker's own words.
    #[must_use]
    pub fn saying(mut self, words: Option<impl Into<String>>) -> Self {
        self.said = words.map(Into::into);
        self
    }

    /// The detail, and the worker's own words where there are any: its reason if it gave one, else only
    /// the last line that it wrote.
    pub fn cause(&self) -> Cow<'_, str> {
        match (&self.said, self.kind) {
            (None, _) => Cow::Borrowed(&self.detail),
            (Some(reason), ErrorKind::WorkerSetup) => {
                Cow::Owned(format!("{}: {reason}", self.detail))
            }
            (Some(line), _) => Cow::Owned(format!("{}; its last line: {line}", self.detail)),
        }
    }

    /// The public code of the fault's row.
    pub const fn code(&self) -> crate::error::Code {
        self.kind.row().code
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} fault", self.class)?;
        if let Some(generation) = self.generation {
            write!(f, " in generation {generation}")?;
        }
        write!(f, ": {}", self.cause())
    }
}
