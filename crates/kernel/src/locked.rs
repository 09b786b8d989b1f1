//! Tools that an operator has reviewed. A tool that differs from its reviewed definition is withdrawn:
//! it is not listed and its calls are rejected; the other tools are served.

use std::collections::BTreeMap;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::Problem;
use mainstay_schema::Fingerprint;
use serde::{Deserialize, Serialize};

/// The fingerprints of a lock, by the tools' names.
pub type Locked = BTreeMap<String, Fingerprint>;

/// Why a tool is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Withdrawn {
    /// The lock does not have it.
    New,
    /// The lock has another definition of it.
    Changed,
}

impl Withdrawn {
    /// Compares a tool with a lock.
    pub(crate) fn of(locked: &Locked, name: &str, now: &Fingerprint) -> Option<Self> {
        match locked.get(name) {
            None => Some(Self::New),
            Some(seen) if seen == now => None,
            Some(_) => Some(Self::Changed),
        }
    }

    /// The error of a call of a withdrawn tool.
    pub(crate) fn problem(self, name: &str) -> Problem {
        let (why, hint) = match self {
            Self::New => (
                "it is not in the lock",
                "mainstay lock diff shows it, mainstay lock write accepts it",
            ),
            Self::Changed => (
                "its definition differs from the lock",
                "mainstay lock diff shows how, mainstay lock write accepts it",
            ),
        };
        let said = format!("the tool {name} was withdrawn: {why}");
        Problem::new(ErrorKind::Forbidden, said).with_hint(hint)
    }

    /// The word in log lines.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::New => "tool_not_in_lock",
            Self::Changed => "tool_changed",
        }
    }
}
