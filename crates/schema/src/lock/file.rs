//! The text of a lock.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::entry::{Contract, Entry};
use super::reason::Reason;
use super::text::pretty_json;
use crate::Fingerprint;

/// Version of the format; another one is refused.
pub const LOCK_VERSION: u64 = 1;

/// What every tool promised when the lock was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lock {
    /// By name.
    pub tools: BTreeMap<String, Entry>,
    /// In the order in which they were given.
    pub reasons: Vec<Reason>,
}

/// Why a text is not a lock that can be trusted.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("not a lock: it is not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("not a lock: it has no lockVersion")]
    NotALock,
    #[error("a lock of version {0}; this program reads version {LOCK_VERSION}")]
    Version(u64),
    #[error("a lock that cannot be read")]
    Malformed(#[source] serde_json::Error),
    #[error("edited by hand: the sha256 of {0} is not that of its definition")]
    Edited(String),
    #[error("edited by hand: the entry of {tool} has the {member} of something else")]
    Mismatch { tool: String, member: &'static str },
    #[error("edited by hand: the definition of {tool} is no contract")]
    NoContract {
        tool: String,
        source: serde_json::Error,
    },
}

impl Lock {
    /// Reads a lock: strictly, so that nothing in it goes unseen.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct Whole {
            #[serde(rename = "lockVersion")]
            _version: u64,
            tools: Tools,
            reasons: Vec<Reason>,
        }
        let value: Value = serde_json::from_str(text).map_err(LockError::NotJson)?;
        match value.get("lockVersion").and_then(Value::as_u64) {
            Some(LOCK_VERSION) => {}
            Some(other) => return Err(LockError::Version(other)),
            None => return Err(LockError::NotALock),
        }
        // From the text, not from the value: an error then names its line and column.
        let whole: Whole = serde_json::from_str(text).map_err(LockError::Malformed)?;
        let tools = whole
            .tools
            .0
            .into_iter()
            .map(|(name, recorded)| Ok((name.clone(), recorded.checked(&name)?)))
            .collect::<Result<_, LockError>>()?;
        Ok(Self {
            tools,
            reasons: whole.reasons,
        })
    }

    /// The last version of a tool that is not here any more, if somebody said why it is gone.
    pub(crate) fn last_version(&self, tool: &str) -> Option<u32> {
        let reasons = self.reasons.iter().filter(|reason| reason.tool == tool);
        reasons.filter_map(|reason| reason.schema_version).max()
    }

    /// The text of the lock: always the same for the same lock.
    pub fn to_text(&self) -> String {
        let tools: Map<String, Value> = self
            .tools
            .iter()
            .map(|(name, entry)| {
                let mut recorded = json!({
                    "sha256": entry.fingerprint().to_string(),
                    "definition": entry.definition(),
                });
                if let (Some(version), Value::Object(members)) =
                    (entry.schema_version(), &mut recorded)
                {
                    members.insert("schemaVersion".to_owned(), version.into());
                }
                (name.clone(), recorded)
            })
            .collect();
        pretty_json(&json!({
            "lockVersion": LOCK_VERSION,
            "tools": tools,
            "reasons": self.reasons,
        }))
    }
}

/// One entry as it stands in the text.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Recorded {
    sha256: String,
    schema_version: Option<u32>,
    definition: Value,
}

impl Recorded {
    fn checked(self, tool: &str) -> Result<Entry, LockError> {
        let tool = || tool.to_owned();
        let mismatch = |member| LockError::Mismatch {
            tool: tool(),
            member,
        };
        if self.sha256 != Fingerprint::of(&self.definition).to_string() {
            return Err(LockError::Edited(tool()));
        }
        if self.definition.get("name").and_then(Value::as_str) != Some(&tool()) {
            return Err(mismatch("name"));
        }
        let Some(version) = self.schema_version else {
            return Ok(Entry::Foreign(self.definition));
        };
        let contract: Contract =
            serde_json::from_value(self.definition).map_err(|source| LockError::NoContract {
                tool: tool(),
                source,
            })?;
        if contract.schema_version != version {
            return Err(mismatch("schemaVersion"));
        }
        Ok(Entry::Contract(Box::new(contract)))
    }
}

/// The entries. A name that stands there twice is refused.
#[derive(Debug)]
struct Tools(BTreeMap<String, Recorded>);

impl<'de> Deserialize<'de> for Tools {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Tools;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with one member per tool")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tools, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    let entry = map.next_value()?;
                    if entries.insert(name.clone(), entry).is_some() {
                        return Err(A::Error::custom(format_args!(
                            "tool `{name}` stands here twice"
                        )));
                    }
                }
                Ok(Tools(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
