//! One tool as a lock records it.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::meta;
use mainstay_contract::tool::ToolSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::text::sorted;
use crate::Fingerprint;

/// One tool as a lock records it.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A tool that has a version and keeps the rules about raising it.
    Contract(Box<Contract>),
    /// The definition of a wrapped server's tool, as it came.
    Foreign(Value),
}

/// Everything that a tool of ours promises, without the version of its build.
///
/// Words that come from closed lists elsewhere (codes, replay classes) are text here: a lock must
/// stay readable after such a list has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Contract {
    pub name: String,
    pub description: String,
    /// With the argument that chooses the text form.
    pub input_schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    pub annotations: BTreeMap<String, bool>,
    pub schema_version: u32,
    pub replay: String,
    /// The time that applies, whether the tool or its host sets it.
    pub timeout_ms: u64,
    pub errors: BTreeSet<String>,
    /// Deprecated names of the tool, which no client is shown.
    pub aliases: BTreeSet<String>,
    /// Other spellings of arguments, and what they mean.
    pub argument_aliases: BTreeMap<String, String>,
}

/// A definition in `tools/list` is not that of a tool with a contract.
#[derive(Debug, thiserror::Error)]
pub enum ContractError {
    #[error("tool {tool} has no {member}")]
    Missing { tool: String, member: &'static str },
    #[error("tool {tool} has a contract that cannot be read")]
    Malformed {
        tool: String,
        source: serde_json::Error,
    },
}

impl Contract {
    /// The contract of a tool. `default_timeout_ms` applies where it sets no time itself.
    pub fn of(spec: &ToolSpec, default_timeout_ms: u64) -> Self {
        let annotations = [
            ("readOnlyHint", spec.annotations.read_only_hint),
            ("destructiveHint", spec.annotations.destructive_hint),
            ("idempotentHint", spec.annotations.idempotent_hint),
            ("openWorldHint", spec.annotations.open_world_hint),
        ];
        let mut argument_aliases = BTreeMap::new();
        for (written, meant) in &spec.argument_aliases {
            // Of several meanings the first one counts.
            let meaning = argument_aliases.entry(written.clone());
            meaning.or_insert_with(|| meant.clone());
        }
        Self {
            name: spec.name.clone(),
            description: spec.description.clone(),
            input_schema: spec.full_input_schema(),
            output_schema: spec.output_schema.clone(),
            annotations: annotations
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            schema_version: spec.schema_version,
            replay: spec.replay.as_str().to_owned(),
            timeout_ms: spec.timeout_ms.unwrap_or(default_timeout_ms),
            errors: spec
                .all_errors()
                .iter()
                .map(|code| code.as_str().to_owned())
                .collect(),
            aliases: spec.aliases.iter().cloned().collect(),
            argument_aliases,
        }
    }

    /// The contract that a definition in `tools/list` shows. The other names, of the tool and of
    /// its arguments, are never listed: they are taken to be those of `recorded`.
    pub fn listed(definition: &Value, recorded: Option<&Self>) -> Result<Self, ContractError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Listed {
            name: String,
            description: String,
            input_schema: Value,
            output_schema: Option<Value>,
            annotations: BTreeMap<String, bool>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Meta {
            schema_version: u32,
            replay: String,
            timeout_ms: u64,
            errors: BTreeSet<String>,
        }
        let name = definition.get("name").and_then(Value::as_str);
        let tool = || name.unwrap_or("without a name").to_owned();
        let malformed = |source| ContractError::Malformed {
            tool: tool(),
            source,
        };
        let meta = definition
            .get("_meta")
            .and_then(|meta| meta.get(meta::CONTRACT))
            .ok_or_else(|| ContractError::Missing {
                tool: tool(),
                member: meta::CONTRACT,
            })?;
        let meta = Meta::deserialize(meta).map_err(malformed)?;
        let listed = Listed::deserialize(definition).map_err(malformed)?;
        Ok(Self {
            name: listed.name,
            description: listed.description,
            input_schema: listed.input_schema,
            output_schema: listed.output_schema,
            annotations: listed.annotations,
            schema_version: meta.schema_version,
            replay: meta.replay,
            timeout_ms: meta.timeout_ms,
            errors: meta.errors,
            aliases: recorded.map_or_else(BTreeSet::new, |known| known.aliases.clone()),
            argument_aliases: recorded
                .map_or_else(BTreeMap::new, |known| known.argument_aliases.clone()),
        })
    }
}

impl Entry {
    /// The definition as it stands in the lock, members sorted.
    pub fn definition(&self) -> Value {
        match self {
            // Text keys and finite numbers only: this cannot fail; `null` would be refused by
            // a reader of the lock.
            Self::Contract(contract) => sorted(&serde_json::to_value(contract).unwrap_or_default()),
            Self::Foreign(definition) => sorted(definition),
        }
    }

    /// The identity of the definition.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.definition())
    }

    /// The version that the rules are about; a foreign tool has none.
    pub fn schema_version(&self) -> Option<u32> {
        match self {
            Self::Contract(contract) => Some(contract.schema_version),
            Self::Foreign(_) => None,
        }
    }

    /// The contract, unless the tool is foreign.
    pub fn contract(&self) -> Option<&Contract> {
        match self {
            Self::Contract(contract) => Some(contract),
            Self::Foreign(_) => None,
        }
    }
}

impl From<Contract> for Entry {
    fn from(contract: Contract) -> Self {
        Self::Contract(Box::new(contract))
    }
}
