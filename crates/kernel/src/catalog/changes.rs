//! Changes between two catalogs of a pack, judged by the rules of the lock.
//!
//! A change that needs a higher `schemaVersion` or a reason and has neither is *missing* something. A
//! rollout rejects such a catalog, and the worker before it continues. Where no worker serves, the catalog
//! is accepted and only the tools in question are withdrawn: a pack is never without workers for this.
//! A change that the operator's lock records was judged when the lock was written.

use std::collections::BTreeMap;

use mainstay_contract::method::ListKind;
use mainstay_contract::tool::{Catalog, ToolSpec};
use mainstay_schema::lock::{
    Contract, Entry, Judged, Kind, Lock, Reason, ReasonGiven, Surface, judge,
};
use serde_json::json;

use super::PackCatalog;
use super::announce::Refused;
use crate::call::SlotId;

/// Lines about changes that are reported; the rest is counted.
const LINES: usize = 100;

/// Every difference between two catalogs of a pack.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) lines: Vec<String>,
    /// The lines of changes that lack a bump or a reason.
    pub(super) missing: Vec<String>,
    /// The tools of such changes, each with the definition that clients last got.
    pub(super) unbumped: BTreeMap<String, ToolSpec>,
}

impl Judgement {
    /// The error of a worker with such a catalog.
    pub(super) fn refusal(self) -> Refused {
        let count = self.missing.len();
        let lack = if count == 1 {
            "change that lacks"
        } else {
            "changes that lack"
        };
        Refused {
            reason: format!("announced {count} {lack} a bump or a reason"),
            changes: bounded(self.missing),
        }
    }
}

impl PackCatalog {
    /// Judges the change of a pack from one catalog to another.
    pub(super) fn judge(
        &self,
        slot: SlotId,
        before: &Catalog,
        after: &Catalog,
        reasons: &[String],
    ) -> Judgement {
        let entry = self.packs.get(&slot);
        // Its tools changed with the host, which the operator upgraded.
        let is_built_in = entry.is_some_and(|entry| entry.expected_build.is_some());
        let held = entry.map(|entry| &entry.unbumped);
        let promised = |tool: &ToolSpec| -> ToolSpec {
            let held = held.and_then(|held| held.get(&tool.name));
            held.unwrap_or(tool).clone()
        };
        let promised: BTreeMap<String, ToolSpec> =
            before.tools.iter().map(promised).map(by_name).collect();
        let old = self.lock_of(promised.values(), before);
        let new = self.lock_of(after.tools.iter(), after);
        let reasons: Vec<Reason> = reasons
            .iter()
            .filter_map(|text| ReasonGiven::parse(text).ok()?.resolve(&old, &new).ok())
            .collect();
        let mut judged = judge(&old, &new, &reasons);
        for change in &mut judged.changes {
            if is_built_in || self.is_reviewed(change, &new) {
                change.advice = None;
            }
        }
        let missing = judged.changes.iter();
        let missing: Vec<&Judged> = missing.filter(|change| change.advice.is_some()).collect();
        let mut unbumped = BTreeMap::new();
        for judged in &missing {
            let change = &judged.change;
            // The old name of a tool that was renamed.
            let former = match change.kind {
                Kind::ToolRenamed => change.before.as_ref().and_then(|name| name.as_str()),
                _ => None,
            };
            let spec = promised.get(former.unwrap_or(&change.tool));
            if let Some(spec) = spec.filter(|_| new.tools.contains_key(&change.tool)) {
                unbumped.insert(change.tool.clone(), spec.clone());
            }
        }
        Judgement {
            lines: bounded(judged.changes.iter().map(ToString::to_string).collect()),
            missing: missing.iter().map(ToString::to_string).collect(),
            unbumped,
        }
    }

    /// True if the operator's lock has the tool as it is now, or has it no longer.
    fn is_reviewed(&self, judged: &Judged, new: &Lock) -> bool {
        let tool = &judged.change.tool;
        let locked = self.locked.as_ref();
        let locked = locked.and_then(|locked| locked.names(ListKind::Tools));
        locked.is_some_and(|locked| {
            locked.get(tool).copied() == new.tools.get(tool).map(Entry::fingerprint)
        })
    }

    fn lock_of<'a>(&self, tools: impl Iterator<Item = &'a ToolSpec>, rest: &Catalog) -> Lock {
        let contract = |spec: &ToolSpec| {
            let contract = Contract::of(spec, self.call_timeout_ms);
            (spec.name.clone(), Entry::from(contract))
        };
        let mut surface = Surface::with_instructions(None);
        for prompt in &rest.prompts {
            surface.add(ListKind::Prompts, json!(prompt));
        }
        for template in &rest.resource_templates {
            surface.add(ListKind::Templates, json!(template));
        }
        Lock {
            tools: tools.map(contract).collect(),
            surface: Some(surface),
            reasons: Vec::new(),
        }
    }
}

fn by_name(tool: ToolSpec) -> (String, ToolSpec) {
    (tool.name.clone(), tool)
}

fn bounded(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(LINES);
    if more > 0 {
        lines.truncate(LINES);
        lines.push(format!("and {more} more changes"));
    }
    lines
}

/// The lists that differ between two catalogs.
pub(super) fn changed_lists(before: &Catalog, after: &Catalog) -> Vec<ListKind> {
    let resources = |catalog: &Catalog| {
        let templates = catalog.resource_templates.clone();
        (catalog.resource_schemes.clone(), templates)
    };
    let differs = [
        (ListKind::Tools, before.tools != after.tools),
        (ListKind::Prompts, before.prompts != after.prompts),
        (ListKind::Resources, resources(before) != resources(after)),
    ];
    let differs = differs.into_iter().filter(|(_, differs)| *differs);
    differs.map(|(kind, _)| kind).collect()
}
