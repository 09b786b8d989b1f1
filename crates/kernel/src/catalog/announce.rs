//! The announcement of a worker, and the decision whether it may serve.

use mainstay_contract::json::Json;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::rpc::{PROTOCOL, Ready};
use mainstay_contract::tool::{Catalog, ToolSpec};
use mainstay_schema::Fingerprint;
use mainstay_schema::check::Definition;
use mainstay_schema::lock::{Contract, Entry};
use serde::Serialize;

use super::{CatalogError, FAILED_STARTS, Owner, PackCatalog, Tool};
use crate::call::SlotId;

/// The member of a worker's facts with digests of the files that it read at its start.
const ROOTS: &str = "roots";

/// A worker that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// The files that it read at its start differ from those of its predecessor.
    pub(crate) roots_changed: bool,
    /// Clients may have seen other lists than those of now.
    pub(crate) is_news: bool,
    /// Tools that its predecessor offered and that are gone or different now.
    pub(crate) changed_tools: Vec<String>,
}

impl PackCatalog {
    /// Accepts a worker that is ready, or rejects one of another protocol or build, or with a catalog
    /// that cannot be served, with a sentence for the operator and the pack's author.
    pub(crate) fn announce(&mut self, slot: SlotId, ready: &Ready) -> Result<Announced, String> {
        let was_complete = self.is_complete();
        let was_known = self.is_known(slot);
        let changed_tools = self.accept(slot, ready)?;
        let is_news = match &changed_tools {
            None => was_complete && !was_known,
            Some(_) => true,
        };
        Ok(Announced {
            roots_changed: self.record_roots(slot, ready),
            is_news,
            changed_tools: changed_tools.unwrap_or_default(),
        })
    }

    /// Records the files that a worker read. True if its predecessor read others.
    fn record_roots(&mut self, slot: SlotId, ready: &Ready) -> bool {
        let facts = ready.facts.to_value().unwrap_or_default();
        // A null is the same as no digests, also after a restore.
        let roots = facts.get(ROOTS).filter(|roots| !roots.is_null()).cloned();
        let Some(entry) = self.packs.get_mut(&slot) else {
            return false;
        };
        entry.trouble = None;
        entry.is_upgraded = false;
        let had_served = std::mem::replace(&mut entry.served, true);
        let before = std::mem::replace(&mut entry.roots, roots);
        had_served && before != entry.roots
    }

    /// The tools that are not what they were, if the catalog is another one.
    fn accept(&mut self, slot: SlotId, ready: &Ready) -> Result<Option<Vec<String>>, String> {
        if ready.protocol != PROTOCOL {
            let theirs = ready.protocol;
            return Err(format!("speaks worker protocol {theirs}, not {PROTOCOL}"));
        }
        let Some(entry) = self.packs.get(&slot) else {
            return Err("belongs to no slot".to_owned());
        };
        if let Some(expected) = entry.expected_build.as_ref().filter(|b| **b != ready.build) {
            return Err(format!("is of build {}, not {expected}", ready.build));
        }
        let is_fixed = entry.expected_build.is_some() && !entry.is_upgraded;
        let before = match &entry.catalog {
            Some(catalog) => match catalog.difference(&ready.catalog) {
                None => return Ok(None),
                Some(difference) if is_fixed => {
                    return Err(format!("announced another catalog: {difference}"));
                }
                Some(_) => Some(catalog.clone()),
            },
            None => None,
        };
        ready.catalog.check()?;
        let Some(before) = before else {
            let added = self.add_catalog(slot, ready.catalog.clone());
            return added.map(|()| None).map_err(|error| error.to_string());
        };
        self.remove_catalog(slot, &before);
        if let Err(error) = self.add_catalog(slot, ready.catalog.clone()) {
            // It was served before, so it can be again.
            let _ = self.add_catalog(slot, before);
            return Err(error.to_string());
        }
        Ok(Some(before.changed_tools(&ready.catalog)))
    }

    /// Counts a lost worker: a pack that never announced anything is not waited for for ever.
    pub(crate) fn count_loss(&mut self, slot: SlotId, reason: &str) {
        if let Some(entry) = self.packs.get_mut(&slot) {
            entry.failed_starts = entry.failed_starts.saturating_add(1);
            entry.trouble = Some(reason.to_owned());
        }
    }

    /// Stops waiting for a pack that never announced anything.
    pub(crate) fn give_up(&mut self, slot: SlotId, reason: &str) {
        if let Some(entry) = self.packs.get_mut(&slot) {
            entry.failed_starts = FAILED_STARTS;
            entry.trouble = Some(reason.to_owned());
        }
    }

    /// The notifications about the lists to which a pack contributes.
    pub(crate) fn lists_of(&self, slot: SlotId) -> Vec<Method> {
        let catalog = self.packs.get(&slot).and_then(|pack| pack.catalog.as_ref());
        let has = |kind: fn(&Catalog) -> bool| catalog.is_some_and(kind);
        let mut lists = vec![Method::ToolsChanged];
        if has(|catalog| !catalog.prompts.is_empty()) {
            lists.push(Method::PromptsChanged);
        }
        if has(|catalog| !catalog.resource_schemes.is_empty()) {
            lists.push(Method::ResourcesChanged);
        }
        lists
    }

    fn remove_catalog(&mut self, slot: SlotId, catalog: &Catalog) {
        for tool in &catalog.tools {
            self.remove_tool(&tool.name);
        }
        self.prompts.retain(|_, owner| *owner != slot);
        if let Some(entry) = self.packs.get_mut(&slot) {
            entry.catalog = None;
        }
    }

    /// Adds everything a pack offers, or nothing.
    pub(super) fn add_catalog(
        &mut self,
        slot: SlotId,
        catalog: Catalog,
    ) -> Result<(), CatalogError> {
        let pack = self.pack_name(slot).to_owned();
        let taken = |what, name: &str, owner: String| CatalogError::Taken {
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
            self.review(slot, ListKind::Prompts, &prompt.name, prompt);
        }
        for template in &catalog.resource_templates {
            self.review(slot, ListKind::Templates, &template.uri_template, template);
        }
        if let Some(entry) = self.packs.get_mut(&slot) {
            entry.catalog = Some(catalog);
        }
        Ok(())
    }

    pub(super) fn add_tool(
        &mut self,
        pack: &str,
        owner: Owner,
        spec: ToolSpec,
    ) -> Result<(), CatalogError> {
        for name in std::iter::once(&spec.name).chain(&spec.aliases) {
            if let Some(other) = self.tools.get(name) {
                let owner = match other.owner {
                    Owner::Host => "the host".to_owned(),
                    Owner::Slot(slot) => format!("pack {}", self.pack_name(slot)),
                };
                return Err(CatalogError::Taken {
                    pack: pack.to_owned(),
                    what: "the tool",
                    name: name.clone(),
                    owner,
                });
            }
        }
        let definition: Json = spec.definition(self.call_timeout_ms).into();
        for alias in &spec.aliases {
            self.aliases.insert(alias.clone(), spec.name.clone());
        }
        let withdrawn = match (&self.locked, owner) {
            (Some(locked), Owner::Slot(_)) => {
                let contract = Contract::of(&spec, self.call_timeout_ms);
                let now = Entry::from(contract).fingerprint();
                locked.compare(ListKind::Tools, &spec.name, &now)
            }
            // The host's own tools cannot change behind its back.
            (None, _) | (_, Owner::Host) => None,
        };
        let tool = Tool {
            withdrawn,
            owner,
            check: Definition::of_pack(&spec),
            definition,
            spec,
        };
        self.tools.insert(tool.spec.name.clone(), tool);
        Ok(())
    }

    /// Compares a prompt or a template of a pack with the lock.
    fn review(&mut self, slot: SlotId, kind: ListKind, name: &str, item: &impl Serialize) {
        let definition = serde_json::to_value(item).unwrap_or_default();
        let locked = self.locked.as_ref();
        let now = Fingerprint::of(&definition);
        if let Some(withdrawn) = locked.and_then(|locked| locked.compare(kind, name, &now)) {
            let of_slot = self.withdrawn.entry(slot).or_default();
            of_slot
                .entry(kind)
                .or_default()
                .insert(name.to_owned(), withdrawn);
        }
    }

    fn remove_tool(&mut self, name: &str) {
        self.tools.remove(name);
        self.aliases.retain(|_, canonical| canonical != name);
    }
}
