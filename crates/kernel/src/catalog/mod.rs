//! The catalog of packs: which tools, resources and prompts exist, and which backend serves each name.
//!
//! Built-in packs are known from the start; another pack is known once its worker announced its catalog.
//! A later generation of a built-in pack must announce the same; that of another pack may replace it by the
//! rules of the lock (`changes`). [`PackCatalog::route`] turns a client's request into work;
//! `verdict` turns the verdict about arguments or a reply into what follows from it.
//!
//! The catalog holds schema texts. It never compiles or checks one: the core asks the shell for that.

mod announce;
mod changes;
mod route;
mod verdict;

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::method::ListKind;
use mainstay_contract::outcome::Problem;
use mainstay_contract::render::{Bounds, RenderMode};
use mainstay_contract::tool::{Catalog, PromptSpec, ResourceTemplate, ToolSpec};
use mainstay_schema::check::Definition;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

pub(crate) use self::announce::{Announced, Occasion, Refused};
pub(crate) use self::route::Route;
pub(crate) use self::verdict::Prepared;
use crate::call::SlotId;
use crate::core::tasks::TaskRules;
use crate::locked::{Locked, Withdrawn};

/// A pack that never announced anything is not waited for after so many failed starts.
const FAILED_STARTS: u32 = 3;

/// Everything that packs and the host itself offer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PackCatalog {
    packs: BTreeMap<SlotId, Entry>,
    tools: BTreeMap<String, Tool>,
    /// Deprecated names and the tools they mean.
    aliases: BTreeMap<String, String>,
    prompts: BTreeMap<String, SlotId>,
    /// The text form of answers when a client does not choose.
    render: RenderMode,
    call_timeout_ms: u64,
    /// The settings for tasks, by tool.
    task_rules: TaskRules,
    /// Size of an answer's text.
    text: Bounds,
    /// The tools that an operator has reviewed; without a lock no tool is withdrawn.
    locked: Option<Arc<Locked>>,
    /// Prompts and templates of packs that are withdrawn.
    withdrawn: BTreeMap<SlotId, BTreeMap<ListKind, BTreeMap<String, Withdrawn>>>,
    /// Counts changes of tools.
    #[serde(default)]
    epoch: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    name: String,
    expected_build: Option<String>,
    /// The build is another one than that of the catalog, which may differ.
    #[serde(default)]
    is_upgraded: bool,
    catalog: Option<Catalog>,
    /// Workers that were lost before one announced anything.
    failed_starts: u32,
    /// Why the last worker was not accepted, while the pack is not known.
    trouble: Option<String>,
    /// Digests of the files that the last accepted worker read at its start.
    roots: Option<Value>,
    /// A worker of this pack was accepted once.
    served: bool,
    /// Tools that changed without a bump, each with the definition that clients last got.
    #[serde(default)]
    unbumped: BTreeMap<String, ToolSpec>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Tool {
    owner: Owner,
    spec: ToolSpec,
    check: Definition,
    definition: Json,
    withdrawn: Option<Withdrawn>,
    /// The number of its last change.
    #[serde(default)]
    epoch: u64,
}

/// The backend that answers a tool's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Owner {
    Host,
    Slot(SlotId),
}

/// Packs that cannot be served together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CatalogError {
    #[error("two packs are called {0}")]
    DuplicatePack(String),
    #[error("pack {pack} offers {what} {name}, which {owner} has already")]
    Taken {
        pack: String,
        what: &'static str,
        name: String,
        owner: String,
    },
}

/// Everything that a host served when it ended.
#[derive(Clone, Debug, Default)]
pub struct Offered {
    /// The host's own tools.
    pub own: Vec<ToolSpec>,
    /// The tools of all packs, sorted by name.
    pub tools: Vec<ToolSpec>,
    pub prompts: Vec<PromptSpec>,
    pub templates: Vec<ResourceTemplate>,
    /// The host's own instructions.
    pub instructions: Option<String>,
    /// Packs that never announced anything, and the last fault of each.
    pub unknown: Vec<(String, Option<Fault>)>,
    /// Time for a call of a tool that sets none itself.
    pub call_timeout_ms: u64,
}

impl PackCatalog {
    /// A catalog of the host's own tools.
    pub(crate) fn new(
        own: Vec<ToolSpec>,
        render: RenderMode,
        limits: &Limits,
        locked: Option<Arc<Locked>>,
        task_rules: TaskRules,
    ) -> Result<Self, CatalogError> {
        let mut catalog = Self {
            packs: BTreeMap::new(),
            tools: BTreeMap::new(),
            aliases: BTreeMap::new(),
            prompts: BTreeMap::new(),
            render,
            call_timeout_ms: limits.call_timeout_ms,
            task_rules,
            text: limits.text(),
            locked,
            withdrawn: BTreeMap::new(),
            epoch: 0,
        };
        for spec in own {
            catalog.add_tool("the host", Owner::Host, spec)?;
        }
        Ok(catalog)
    }

    /// Adds a pack; `expected` is known of built-in packs before their worker runs.
    pub(crate) fn add_pack(
        &mut self,
        slot: SlotId,
        name: &str,
        expected: Option<(Catalog, String)>,
    ) -> Result<(), CatalogError> {
        if self.packs.values().any(|known| known.name == name) {
            return Err(CatalogError::DuplicatePack(name.to_owned()));
        }
        let (catalog, build) = expected.unzip();
        self.packs.insert(
            slot,
            Entry {
                name: name.to_owned(),
                expected_build: build,
                is_upgraded: false,
                catalog: None,
                failed_starts: 0,
                trouble: None,
                roots: None,
                served: false,
                unbumped: BTreeMap::new(),
            },
        );
        catalog.map_or(Ok(()), |catalog| self.add_catalog(slot, catalog))
    }

    /// Expects other builds of built-in packs from now on. Returns a built-in pack that is not among them.
    pub(crate) fn expect_builds(&mut self, builds: &[(String, String)]) -> Option<String> {
        for pack in self.packs.values_mut() {
            let Some(expected) = &mut pack.expected_build else {
                continue;
            };
            let Some((_, build)) = builds.iter().find(|(name, _)| *name == pack.name) else {
                return Some(pack.name.clone());
            };
            pack.is_upgraded |= expected != build;
            expected.clone_from(build);
        }
        None
    }

    /// True if every pack is known, or has shown that it cannot start.
    pub(crate) fn is_complete(&self) -> bool {
        self.packs
            .values()
            .all(|pack| pack.catalog.is_some() || pack.failed_starts >= FAILED_STARTS)
    }

    /// The packs that are not known, each with the reason.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        let unknown = self.packs.values().filter(|pack| pack.catalog.is_none());
        unknown.map(|pack| {
            let reason = pack.trouble.as_deref().unwrap_or("it is starting");
            (pack.name.as_str(), reason)
        })
    }

    /// The slots of the packs that are not known.
    pub(crate) fn missing_slots(&self) -> Vec<SlotId> {
        let unknown = self.packs.iter().filter(|(_, pack)| pack.catalog.is_none());
        unknown.map(|(slot, _)| *slot).collect()
    }

    /// The error for a name that nothing offers: a pack that is not known may have it.
    fn absent(&self, problem: Problem) -> Problem {
        let Some((pack, reason)) = self.missing().next() else {
            return problem;
        };
        let message = format!(
            "{}; the pack {pack}, which may have it, cannot start: {reason}",
            problem.message
        );
        Problem::new(ErrorKind::WorkerUnavailable, message)
    }

    /// True if clients learn of changes of a list. Those of built-in packs change, too: by a lock that is read again, and
    /// by an upgrade in place.
    pub(crate) fn announces(&self, kind: ListKind) -> bool {
        match kind {
            ListKind::Tools | ListKind::Prompts => true,
            ListKind::Resources | ListKind::Templates => self.has_resources(),
        }
    }

    /// True if a pack has announced its catalog.
    pub(crate) fn is_known(&self, slot: SlotId) -> bool {
        self.packs
            .get(&slot)
            .is_some_and(|pack| pack.catalog.is_some())
    }

    /// The name of a slot's pack.
    pub(crate) fn pack_name(&self, slot: SlotId) -> &str {
        self.packs.get(&slot).map_or("", |pack| &pack.name)
    }

    /// True if a worker of the pack was ever accepted.
    pub(crate) fn has_served(&self, slot: SlotId) -> bool {
        self.packs.get(&slot).is_some_and(|pack| pack.served)
    }

    /// The tools, prompts and templates of a pack that are withdrawn.
    pub(crate) fn withdrawn(
        &self,
        slot: SlotId,
    ) -> impl Iterator<Item = (ListKind, &str, Withdrawn)> {
        let tools = self.tools.values();
        let tools = tools
            .filter(move |tool| tool.owner == Owner::Slot(slot))
            .filter_map(|tool| Some((ListKind::Tools, tool.spec.name.as_str(), tool.withdrawn?)));
        let others = self.withdrawn.get(&slot).into_iter().flatten();
        tools.chain(others.flat_map(|(kind, items)| {
            let items = items.iter();
            items.map(|(name, withdrawn)| (*kind, name.as_str(), *withdrawn))
        }))
    }

    /// Why a prompt or a template is withdrawn, if it is.
    fn withdrawal(&self, kind: ListKind, name: &str) -> Option<Withdrawn> {
        let mut slots = self.withdrawn.values();
        slots.find_map(|lists| lists.get(&kind)?.get(name).copied())
    }

    /// True if a prompt or a template is listed.
    fn shows(&self, kind: ListKind, name: &str) -> bool {
        self.withdrawal(kind, name).is_none()
    }

    /// The lock of the packs.
    pub(crate) const fn locked(&self) -> Option<&Arc<Locked>> {
        self.locked.as_ref()
    }

    /// The tools on offer.
    fn offered(&self) -> impl Iterator<Item = &Tool> {
        let tools = self.tools.values();
        tools.filter(|tool| tool.withdrawn.is_none())
    }

    /// True if a tool has this name, or had it.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.has_tool(name) || self.aliases.contains_key(name)
    }

    /// True if a prompt has this name.
    pub(crate) fn has_prompt(&self, name: &str) -> bool {
        self.prompts.contains_key(name)
    }

    /// True if a pack has an item of a list.
    pub(crate) fn has_item(&self, kind: ListKind, name: &str) -> bool {
        match kind {
            ListKind::Tools => self.has_name(name),
            ListKind::Prompts => self.has_prompt(name),
            ListKind::Resources => self.serves_uri(name),
            ListKind::Templates => self.catalogs().any(|(_, catalog)| {
                let mut templates = catalog.resource_templates.iter();
                templates.any(|template| template.uri_template == name)
            }),
        }
    }

    /// True if a tool has this name.
    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// Everything on offer, and the packs of which nothing is known.
    pub(crate) fn summary(&self, fault_of: impl Fn(&str) -> Option<Fault>) -> Offered {
        let of = |host: bool| -> Vec<ToolSpec> {
            let tools = self.tools.values();
            let owned = tools.filter(|tool| (tool.owner == Owner::Host) == host);
            owned.map(|tool| tool.spec.clone()).collect()
        };
        let catalogs = || self.catalogs().map(|(_, catalog)| catalog);
        let unknown = self.missing().map(|(pack, _)| pack);
        Offered {
            own: of(true),
            tools: of(false),
            prompts: catalogs().flat_map(|all| all.prompts.clone()).collect(),
            templates: catalogs()
                .flat_map(|all| all.resource_templates.clone())
                .collect(),
            instructions: None,
            unknown: unknown
                .map(|pack| (pack.to_owned(), fault_of(pack)))
                .collect(),
            call_timeout_ms: self.call_timeout_ms,
        }
    }

    fn catalogs(&self) -> impl Iterator<Item = (SlotId, &Catalog)> {
        self.packs
            .iter()
            .filter_map(|(slot, pack)| Some((*slot, pack.catalog.as_ref()?)))
    }
}
