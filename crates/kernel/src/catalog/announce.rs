//! The announcement of a worker, and the decision whether it may serve.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mainstay_contract::json::Json;
use mainstay_contract::method::ListKind;
use mainstay_contract::rpc::{PROTOCOL, Ready};
use mainstay_contract::tool::{Catalog, ToolSpec};
use mainstay_schema::Fingerprint;
use mainstay_schema::check::Definition;
use mainstay_schema::lock::{Contract, Entry};
use serde::Serialize;

use super::changes::changed_lists;
use super::{CatalogError, FAILED_STARTS, Owner, PackCatalog, Tool};
use crate::call::SlotId;
use crate::locked::{Locked, Withdrawn};

/// The member of a worker's facts with digests of the files that it read at its start.
const ROOTS: &str = "roots";

/// The situation in which a worker announces its catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// No worker serves, so rejecting this one would leave the pack without any.
    Start,
    /// A worker serves, and continues if this one is rejected.
    Rollout,
    /// It will wait beside the worker that serves, and must offer the same.
    Standby,
}

/// A worker that was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Announced {
    /// The files that it read at its start differ from those of its predecessor.
    pub(crate) roots_changed: bool,
    /// Lists that differ from those that clients may have seen.
    pub(crate) lists: Vec<ListKind>,
    /// Differences to the catalog before, one line each.
    pub(crate) changes: Vec<String>,
}

/// A worker that was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// A sentence for the operator and the pack's author, without its subject.
    pub(crate) reason: String,
    /// The changes for which it was rejected, one line each.
    pub(crate) changes: Vec<String>,
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        let changes = Vec::new();
        Self { reason, changes }
    }
}

impl PackCatalog {
    /// Accepts a worker that is ready, or rejects one of another protocol or build, or with a catalog
    /// that cannot be served. `reasons` are those that an operator gave for changes.
    pub(crate) fn announce(
        &mut self,
        slot: SlotId,
        ready: &Ready,
        occasion: Occasion,
        reasons: &[String],
    ) -> Result<Announced, Refused> {
        let mut announced = self.accept(slot, ready, occasion, reasons)?;
        announced.roots_changed = self.record_roots(slot, ready);
        let has_resources = !ready.catalog.resource_schemes.is_empty();
        let is_known = announced.lists.contains(&ListKind::Resources);
        if announced.roots_changed && has_resources && !is_known {
            announced.lists.push(ListKind::Resources);
        }
        Ok(announced)
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

    fn accept(
        &mut self,
        slot: SlotId,
        ready: &Ready,
        occasion: Occasion,
        reasons: &[String],
    ) -> Result<Announced, Refused> {
        if ready.protocol != PROTOCOL {
            let theirs = ready.protocol;
            return Err(format!("speaks worker protocol {theirs}, not {PROTOCOL}").into());
        }
        let was_complete = self.is_complete();
        let Some(entry) = self.packs.get(&slot) else {
            return Err("belongs to no slot".to_owned().into());
        };
        if let Some(expected) = entry.expected_build.as_ref().filter(|b| **b != ready.build) {
            return Err(format!("is of build {}, not {expected}", ready.build).into());
        }
        let is_built_in = entry.expected_build.is_some();
        let must_equal = is_built_in && !entry.is_upgraded || occasion == Occasion::Standby;
        let before = entry.catalog.clone();
        let difference = before
            .as_ref()
            .map(|before| before.difference(&ready.catalog));
        match difference {
            Some(None) => return Ok(Announced::default()),
            Some(Some(difference)) if must_equal => {
                return Err(format!("announced another catalog: {difference}").into());
            }
            _ => {}
        }
        let unfit = |reason: String| format!("announced a catalog that cannot be served: {reason}");
        ready.catalog.check().map_err(unfit)?;
        let Some(before) = before else {
            let added = self.add_catalog(slot, ready.catalog.clone());
            added.map_err(|error| unfit(error.to_string()))?;
            // Clients may have got lists without this pack.
            let lists = match was_complete {
                true => changed_lists(&Catalog::default(), &ready.catalog),
                false => Vec::new(),
            };
            return Ok(Announced {
                lists,
                ..Announced::default()
            });
        };
        let judged = self.judge(slot, &before, &ready.catalog, reasons);
        if occasion == Occasion::Rollout && !judged.missing.is_empty() {
            return Err(judged.refusal());
        }
        self.replace_catalog(slot, before.clone(), &ready.catalog, judged.unbumped)?;
        Ok(Announced {
            lists: changed_lists(&before, &ready.catalog),
            changes: judged.lines,
            ..Announced::default()
        })
    }

    /// Replaces everything that a pack offers. Tools that stay the same keep their epoch.
    fn replace_catalog(
        &mut self,
        slot: SlotId,
        before: Catalog,
        after: &Catalog,
        unbumped: BTreeMap<String, ToolSpec>,
    ) -> Result<(), String> {
        let tools = before.tools.iter();
        let kept: Vec<Tool> = tools
            .filter_map(|tool| self.tools.get(&tool.name).cloned())
            .collect();
        let unbumped_before = self.swap_unbumped(slot, unbumped);
        self.remove_catalog(slot, &before);
        self.epoch += 1;
        let added = self.add_catalog(slot, after.clone());
        if added.is_err() {
            // It was served before, so it can be again.
            self.swap_unbumped(slot, unbumped_before);
            let _ = self.add_catalog(slot, before);
        }
        for old in kept {
            if let Some(now) = self.tools.get_mut(&old.spec.name)
                && (&now.spec, now.withdrawn) == (&old.spec, old.withdrawn)
            {
                now.epoch = old.epoch;
            }
        }
        added.map_err(|error| error.to_string())
    }

    /// Holds every pack to another lock. Returns the lists of each pack that differ from then on.
    pub(crate) fn apply_lock(&mut self, locked: Arc<Locked>) -> Vec<(SlotId, Vec<ListKind>)> {
        if self.locked.as_ref() == Some(&locked) {
            return Vec::new();
        }
        self.locked = Some(locked);
        let slots: Vec<SlotId> = self.packs.keys().copied().collect();
        let mut changed = Vec::new();
        for slot in slots {
            let Some(entry) = self.packs.get(&slot) else {
                continue;
            };
            let (Some(catalog), mut unbumped) = (entry.catalog.clone(), entry.unbumped.clone())
            else {
                continue;
            };
            // A tool that the lock has as it is now was reviewed.
            unbumped.retain(|name, _| {
                let tool = self.tools.get(name);
                tool.is_none_or(|tool| self.withdrawal_of(&tool.spec).is_some())
            });
            let before = self.withdrawn_items(slot);
            if self
                .replace_catalog(slot, catalog.clone(), &catalog, unbumped)
                .is_err()
            {
                continue;
            }
            let after = self.withdrawn_items(slot);
            let kinds = before.symmetric_difference(&after).map(|(kind, _)| *kind);
            let lists: BTreeSet<ListKind> = kinds
                .map(|kind| match kind {
                    ListKind::Templates => ListKind::Resources,
                    kind => kind,
                })
                .collect();
            if !lists.is_empty() {
                changed.push((slot, lists.into_iter().collect()));
            }
        }
        changed
    }

    fn withdrawn_items(&self, slot: SlotId) -> BTreeSet<(ListKind, String)> {
        let items = self.withdrawn(slot);
        items
            .map(|(kind, name, _)| (kind, name.to_owned()))
            .collect()
    }

    /// Compares a tool of a pack with the lock.
    fn withdrawal_of(&self, spec: &ToolSpec) -> Option<Withdrawn> {
        let locked = self.locked.as_ref()?;
        let contract = Contract::of(spec, self.call_timeout_ms);
        let now = Entry::from(contract).fingerprint();
        locked.compare(ListKind::Tools, &spec.name, &now)
    }

    fn swap_unbumped(
        &mut self,
        slot: SlotId,
        unbumped: BTreeMap<String, ToolSpec>,
    ) -> BTreeMap<String, ToolSpec> {
        match self.packs.get_mut(&slot) {
            Some(entry) => std::mem::replace(&mut entry.unbumped, unbumped),
            None => unbumped,
        }
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

    fn remove_catalog(&mut self, slot: SlotId, catalog: &Catalog) {
        for tool in &catalog.tools {
            self.remove_tool(&tool.name);
        }
        self.prompts.retain(|_, owner| *owner != slot);
        self.withdrawn.remove(&slot);
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
            for name in entry.unbumped.keys() {
                if let Some(tool) = self.tools.get_mut(name) {
                    tool.withdrawn.get_or_insert(Withdrawn::Unbumped);
                }
            }
        }
        Ok(())
    }

    pub(super) fn add_tool(
        &mut self,
        pack: &str,
        owner: Owner,
        mut spec: ToolSpec,
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
        for alias in &spec.aliases {
            self.aliases.insert(alias.clone(), spec.name.clone());
        }
        let withdrawn = match owner {
            Owner::Slot(_) => self.withdrawal_of(&spec),
            // The host's own tools cannot change behind its back.
            Owner::Host => None,
        };
        // The operator decides about tasks; the lock holds the pack to its own word.
        if let Some(tasks) = self.task_rules.get(&spec.name).and_then(|rule| rule.tasks) {
            spec.tasks = tasks;
        }
        let definition: Json = spec.definition(self.call_timeout_ms).into();
        let tool = Tool {
            withdrawn,
            owner,
            check: Definition::of_pack(&spec),
            definition,
            spec,
            epoch: self.epoch,
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
