//! The text of a lock.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use mainstay_contract::method::ListKind;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::entry::{Contract, Entry};
use super::reason::Reason;
use super::surface::Surface;
use super::text::pretty_json;
use crate::Fingerprint;

/// Version of the format that is written.
pub const LOCK_VERSION: u64 = 2;
/// The format before it, which covers only the tools and can still be read.
pub const TOOLS_ONLY_VERSION: u64 = 1;

/// The definitions of a server when the lock was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lock {
    /// By name.
    pub tools: BTreeMap<String, Entry>,
    /// Everything else that a model reads; `None` if the lock does not cover it.
    pub surface: Option<Surface>,
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
    #[error(
        "a lock of version {0}; this program reads versions {TOOLS_ONLY_VERSION} and {LOCK_VERSION}"
    )]
    Version(u64),
    #[error("a lock that cannot be read")]
    Malformed(#[source] serde_json::Error),
    #[error("edited by hand: the sha256 of {0} is not that of its definition")]
    Edited(String),
    #[error("edited by hand: the entry of {tool} has the {member} of something else")]
    Mismatch { tool: String, member: &'static str },
    #[error("edited by hand: the definition of {tool} is not a contract")]
    NoContract {
        tool: String,
        source: serde_json::Error,
    },
}

impl Lock {
    /// Reads a lock: strictly, so that nothing in it goes unseen.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        let value: Value = serde_json::from_str(text).map_err(LockError::NotJson)?;
        // From the text, not from the value: an error then names its line and column.
        let malformed = LockError::Malformed;
        let (tools, surface, reasons) = match value.get("lockVersion").and_then(Value::as_u64) {
            Some(TOOLS_ONLY_VERSION) => {
                let whole: ToolsOnly = serde_json::from_str(text).map_err(malformed)?;
                (whole.tools, None, whole.reasons)
            }
            Some(LOCK_VERSION) => {
                let whole: Whole = serde_json::from_str(text).map_err(malformed)?;
                let instructions = whole
                    .instructions
                    .map(|recorded| (recorded.sha256, recorded.text));
                let lists = [
                    (ListKind::Prompts, whole.prompts),
                    (ListKind::Resources, whole.resources),
                    (ListKind::Templates, whole.resource_templates),
                ];
                let lists = lists.map(|(kind, list)| {
                    let list = list.0.into_iter();
                    let list = list.map(|(name, item)| (name, (item.sha256, item.definition)));
                    (kind, list.collect())
                });
                let surface = Surface::read(instructions, lists)?;
                (whole.tools, Some(surface), whole.reasons)
            }
            Some(other) => return Err(LockError::Version(other)),
            None => return Err(LockError::NotALock),
        };
        let tools = tools.0.into_iter();
        let tools = tools
            .map(|(name, recorded)| Ok((name.clone(), recorded.checked(&name)?)))
            .collect::<Result<_, LockError>>()?;
        Ok(Self {
            tools,
            surface,
            reasons,
        })
    }

    /// The last version of a tool that is not here any more, if a reason was given for its removal.
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
        let version = match &self.surface {
            Some(_) => LOCK_VERSION,
            None => TOOLS_ONLY_VERSION,
        };
        let mut whole = json!({
            "lockVersion": version,
            "tools": tools,
            "reasons": self.reasons,
        });
        if let (Some(surface), Some(members)) = (&self.surface, whole.as_object_mut()) {
            members.extend(surface.members());
        }
        pretty_json(&whole)
    }
}

/// The text of a lock that covers only the tools.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToolsOnly {
    #[serde(rename = "lockVersion")]
    _version: u64,
    tools: Items<Recorded>,
    reasons: Vec<Reason>,
}

/// The text of a lock.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Whole {
    #[serde(rename = "lockVersion")]
    _version: u64,
    tools: Items<Recorded>,
    instructions: Option<RecordedText>,
    prompts: Items<RecordedItem>,
    resources: Items<RecordedItem>,
    resource_templates: Items<RecordedItem>,
    reasons: Vec<Reason>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedText {
    sha256: String,
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedItem {
    sha256: String,
    definition: Value,
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

/// Items by name. A name that stands there twice is refused.
#[derive(Debug)]
struct Items<T>(BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Items<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with one member per name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Items<T>, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    let entry = map.next_value()?;
                    if entries.insert(name.clone(), entry).is_some() {
                        return Err(A::Error::custom(format_args!("`{name}` stands here twice")));
                    }
                }
                Ok(Items(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}
