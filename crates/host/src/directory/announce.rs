//! What a worker announces, and whether it may serve.

use mainstay_contract::json::Json;
use mainstay_contract::rpc::{PROTOCOL, Ready};
use mainstay_contract::tool::{Catalog, ToolSpec};
use mainstay_kernel::call::SlotId;
use mainstay_schema::ToolValidators;

use super::{Directory, DirectoryError, FAILED_STARTS, Owner, Tool};

impl Directory {
    /// A worker says that it is ready. Refuses one of another protocol, build or catalog, in a
    /// sentence for the operator.
    pub(crate) fn announce(&mut self, slot: SlotId, ready: &Ready) -> Result<(), String> {
        if ready.protocol != PROTOCOL {
            let theirs = ready.protocol;
            return Err(format!("speaks worker protocol {theirs}, not {PROTOCOL}"));
        }
        let Some(entry) = self.packs.get(slot.0) else {
            return Err("belongs to no slot".to_owned());
        };
        if let Some(expected) = entry.expected_build.as_ref().filter(|b| **b != ready.build) {
            return Err(format!("is of build {}, not {expected}", ready.build));
        }
        if let Some(catalog) = &entry.catalog {
            return match catalog.difference(&ready.catalog) {
                None => Ok(()),
                Some(difference) => Err(format!("announced another catalog: {difference}")),
            };
        }
        self.add_catalog(slot, ready.catalog.clone())
            .map_err(|error| error.to_string())
    }

    /// A pack's worker was lost. A pack that never announced anything is waited for only so often.
    pub(crate) fn lost(&mut self, slot: SlotId) {
        if let Some(entry) = self.packs.get_mut(slot.0) {
            entry.failed_starts = entry.failed_starts.saturating_add(1);
        }
    }

    /// A pack that never announced anything is not waited for any more.
    pub(crate) fn give_up(&mut self, slot: SlotId) {
        if let Some(entry) = self.packs.get_mut(slot.0) {
            entry.failed_starts = FAILED_STARTS;
        }
    }

    /// Adds everything a pack offers, or nothing.
    pub(super) fn add_catalog(
        &mut self,
        slot: SlotId,
        catalog: Catalog,
    ) -> Result<(), DirectoryError> {
        let pack = self.pack_name(slot).to_owned();
        let taken = |what, name: &str, owner: String| DirectoryError::Taken {
            pack: pack.clone(),
            what,
            name: name.to_owned(),
            owner,
        };
        for prompt in &catalog.prompts {
            if let Some(owner) = self.prompts.get(&prompt.name) {
                let owner = format!("pack {}", self.pack_name(*owner));
                return Err(taken("prompt", &prompt.name, owner));
            }
        }
        for scheme in &catalog.resource_schemes {
            let owner = self
                .catalogs()
                .find(|(_, other)| other.resource_schemes.contains(scheme));
            if let Some((owner, _)) = owner {
                let owner = format!("pack {}", self.pack_name(owner));
                return Err(taken("resources of the scheme", scheme, owner));
            }
        }
        let added: Vec<String> = catalog.tools.iter().map(|tool| tool.name.clone()).collect();
        for (index, spec) in catalog.tools.iter().enumerate() {
            if let Err(error) = self.add_tool(&pack, Owner::Slot(slot), spec.clone()) {
                for name in added.iter().take(index) {
                    self.remove_tool(name);
                }
                return Err(error);
            }
        }
        for prompt in &catalog.prompts {
            self.prompts.insert(prompt.name.clone(), slot);
        }
        if let Some(entry) = self.packs.get_mut(slot.0) {
            entry.catalog = Some(catalog);
        }
        Ok(())
    }

    pub(super) fn add_tool(
        &mut self,
        pack: &str,
        owner: Owner,
        spec: ToolSpec,
    ) -> Result<(), DirectoryError> {
        for name in std::iter::once(&spec.name).chain(&spec.aliases) {
            if let Some(other) = self.tools.get(name) {
                let owner = match other.owner {
                    Owner::Host => "the host".to_owned(),
                    Owner::Slot(slot) => format!("pack {}", self.pack_name(slot)),
                };
                return Err(DirectoryError::Taken {
                    pack: pack.to_owned(),
                    what: "the tool",
                    name: name.clone(),
                    owner,
                });
            }
        }
        let full_schema = spec.full_input_schema();
        let validators =
            ToolValidators::compile(&self.registry, &full_schema, spec.output_schema.as_ref())
                .map_err(|error| DirectoryError::BadTool {
                    pack: pack.to_owned(),
                    tool: spec.name.clone(),
                    reason: error.to_string(),
                })?;
        let definition: Json = spec.definition(self.limits.call_timeout_ms).into();
        for alias in &spec.aliases {
            self.aliases.insert(alias.clone(), spec.name.clone());
        }
        let tool = Tool {
            owner,
            full_schema,
            validators,
            definition,
            spec,
        };
        self.tools.insert(tool.spec.name.clone(), tool);
        Ok(())
    }

    fn remove_tool(&mut self, name: &str) {
        self.tools.remove(name);
        self.aliases.retain(|_, canonical| canonical != name);
    }
}
