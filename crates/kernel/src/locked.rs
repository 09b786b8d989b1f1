//! Tools, prompts, resources, templates and instructions that an operator has reviewed. One that differs from
//! its reviewed definition is withdrawn: it is not listed and requests for it are rejected; the others are
//! served. Instructions that differ are left out of the handshake.

use std::collections::BTreeMap;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::method::ListKind;
use mainstay_contract::outcome::Problem;
use mainstay_schema::Fingerprint;
use mainstay_schema::lock::{LISTS, Lock, Surface};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The fingerprints of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locked {
    /// By name, for each list that the lock covers.
    lists: BTreeMap<ListKind, BTreeMap<String, Fingerprint>>,
    /// Of the instructions, if there were any.
    instructions: Option<Fingerprint>,
    tools_only: bool,
}

impl From<&Lock> for Locked {
    fn from(lock: &Lock) -> Self {
        let tools = lock.tools.iter();
        let tools = tools.map(|(name, entry)| (name.clone(), entry.fingerprint()));
        let mut lists = BTreeMap::from([(ListKind::Tools, tools.collect())]);
        if let Some(surface) = &lock.surface {
            for kind in LISTS {
                let items = surface.list(kind);
                let items = items.map(|(name, item)| (name.clone(), Fingerprint::of(item)));
                lists.insert(kind, items.collect());
            }
        }
        let of_text = |surface: &Surface| {
            let text = surface.instructions.as_deref();
            text.map(|text| Fingerprint::of(&Value::from(text)))
        };
        Self {
            lists,
            instructions: lock.surface.as_ref().and_then(of_text),
            tools_only: lock.surface.is_none(),
        }
    }
}

impl Locked {
    /// A lock of these tools alone.
    pub fn of_tools(tools: impl IntoIterator<Item = (String, Fingerprint)>) -> Self {
        Self {
            lists: BTreeMap::from([(ListKind::Tools, tools.into_iter().collect())]),
            instructions: None,
            tools_only: true,
        }
    }

    /// True if the lock says nothing about anything but tools.
    pub const fn covers_tools_only(&self) -> bool {
        self.tools_only
    }

    /// Compares an item of a list with the lock.
    pub(crate) fn compare(
        &self,
        kind: ListKind,
        name: &str,
        now: &Fingerprint,
    ) -> Option<Withdrawn> {
        match self.lists.get(&kind)?.get(name) {
            None => Some(Withdrawn::New),
            Some(seen) if seen == now => None,
            Some(_) => Some(Withdrawn::Changed),
        }
    }

    /// The names of a list, if the lock covers it.
    pub fn names(&self, kind: ListKind) -> Option<&BTreeMap<String, Fingerprint>> {
        self.lists.get(&kind)
    }

    /// True if a client may get these instructions.
    pub(crate) fn permits_instructions(&self, text: &str) -> bool {
        let now = Fingerprint::of(&Value::from(text));
        self.tools_only || self.instructions == Some(now)
    }
}

/// Why something is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Withdrawn {
    /// The lock does not have it.
    New,
    /// The lock has another definition of it.
    Changed,
    /// Its definition has a member twice, about which readers may differ.
    Ambiguous,
    /// Its definition changed and its version did not.
    Unbumped,
}

impl Withdrawn {
    /// The error of a request for it.
    pub(crate) fn problem(self, kind: ListKind, name: &str) -> Problem {
        let (why, hint) = match self {
            Self::New => (
                "it is not in the lock",
                "mainstay lock diff shows it, mainstay lock write accepts it",
            ),
            Self::Changed => (
                "its definition differs from the lock",
                "mainstay lock diff shows how, mainstay lock write accepts it",
            ),
            Self::Ambiguous => (
                "its definition has a member twice",
                "readers may differ about what it says; tell its author",
            ),
            Self::Unbumped => (
                "its definition changed without a higher schemaVersion",
                "raise its schemaVersion, then run mainstay rollout",
            ),
        };
        let said = format!("the {} {name} was withdrawn: {why}", kind.noun());
        Problem::new(ErrorKind::Forbidden, said).with_hint(hint)
    }

    /// The log line about it.
    pub(crate) fn line(self, pack: &str, kind: ListKind, name: &str) -> String {
        let noun = kind.noun();
        let why = match self {
            Self::New => "not_in_lock",
            Self::Changed => "changed",
            Self::Ambiguous => "ambiguous",
            Self::Unbumped => "unbumped",
        };
        format!("mcp:warning reason={noun}_{why} pack={pack} {noun}={name} withdrawn")
    }
}
