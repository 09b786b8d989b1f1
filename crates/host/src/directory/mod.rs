//! What exists and who serves it: tools, resources and prompts of all packs, and our own tools.
//!
//! Built-in packs are known from the start; a pack that somebody else wrote is known once its
//! worker announced its catalog. Whatever a later generation announces must be the same.
//! [`Directory::route`] turns a client's request into work; `check` holds the checks before
//! dispatch and after an answer.

mod announce;
mod check;
mod route;
mod skim;

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_contract::json::Json;
use mainstay_contract::limits::Limits;
use mainstay_contract::render::RenderMode;
use mainstay_contract::tool::{Catalog, ToolSpec};
use mainstay_kernel::call::SlotId;
use mainstay_schema::{SchemaRegistry, ToolValidators};
use serde_json::Value;
use thiserror::Error;

pub(crate) use self::announce::Read;
pub(crate) use self::check::not_checked;
use self::skim::Free;
use crate::config::{Expected, Pack};
use crate::locked::{Locked, Withdrawn};
use crate::serve::Served;

/// Starts that may fail before a pack that never announced anything is not waited for any more.
const FAILED_STARTS: u32 = 3;

/// Everything that can be asked for.
#[derive(Debug)]
pub(crate) struct Directory {
    registry: SchemaRegistry,
    packs: Vec<Entry>,
    tools: BTreeMap<String, Tool>,
    /// Deprecated names and the tools they mean.
    aliases: BTreeMap<String, String>,
    prompts: BTreeMap<String, SlotId>,
    render: RenderMode,
    limits: Limits,
    /// The tools that somebody has looked at; without it none is withdrawn.
    locked: Option<Arc<Locked>>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    expected_build: Option<String>,
    catalog: Option<Catalog>,
    /// Workers that were lost before one announced anything.
    failed_starts: u32,
    /// What the last worker that may serve says it has read at its start.
    roots: Option<Value>,
    /// Whether any worker was fit to serve.
    served: bool,
}

#[derive(Debug)]
struct Tool {
    owner: Owner,
    spec: ToolSpec,
    full_schema: Value,
    /// Arguments of any JSON.
    free: Free,
    validators: ToolValidators,
    definition: Json,
    withdrawn: Option<Withdrawn>,
}

/// Who answers a tool's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Host,
    Slot(SlotId),
}

/// Why packs cannot be served together.
#[derive(Debug, Error)]
pub enum DirectoryError {
    #[error("two packs are called {0}")]
    DuplicatePack(String),
    #[error("pack {pack} offers {what} {name}, which {owner} has already")]
    Taken {
        pack: String,
        what: &'static str,
        name: String,
        owner: String,
    },
    #[error("pack {pack}: tool {tool}: {reason}")]
    BadTool {
        pack: String,
        tool: String,
        reason: String,
    },
}

impl Directory {
    /// A directory of the host's own tools and of every pack that is known already.
    pub(crate) fn new(
        packs: &[Pack],
        own: Vec<ToolSpec>,
        render: RenderMode,
        limits: &Limits,
        locked: Option<Arc<Locked>>,
    ) -> Result<Self, DirectoryError> {
        let mut directory = Self {
            registry: SchemaRegistry::new(),
            packs: Vec::new(),
            tools: BTreeMap::new(),
            aliases: BTreeMap::new(),
            prompts: BTreeMap::new(),
            render,
            limits: limits.clone(),
            locked,
        };
        for spec in own {
            directory.add_tool("the host", Owner::Host, spec)?;
        }
        for (index, pack) in packs.iter().enumerate() {
            if directory.packs.iter().any(|known| known.name == pack.name) {
                return Err(DirectoryError::DuplicatePack(pack.name.clone()));
            }
            directory.packs.push(Entry {
                name: pack.name.clone(),
                expected_build: pack
                    .expected
                    .as_ref()
                    .map(|expected| expected.build.clone()),
                catalog: None,
                failed_starts: 0,
                roots: None,
                served: false,
            });
            if let Some(Expected { catalog, .. }) = &pack.expected {
                directory.add_catalog(SlotId(index), catalog.clone())?;
            }
        }
        Ok(directory)
    }

    /// Whether every pack is known, or has shown that it cannot be.
    pub(crate) fn is_complete(&self) -> bool {
        self.packs
            .iter()
            .all(|pack| pack.catalog.is_some() || pack.failed_starts >= FAILED_STARTS)
    }

    /// Whether it is known what a pack offers.
    pub(crate) fn is_known(&self, slot: SlotId) -> bool {
        self.packs
            .get(slot.0)
            .is_some_and(|pack| pack.catalog.is_some())
    }

    /// The name of a slot's pack.
    pub(crate) fn pack_name(&self, slot: SlotId) -> &str {
        self.packs.get(slot.0).map_or("", |pack| &pack.name)
    }

    /// Whether a pack ever had a worker that was fit to serve.
    pub(crate) fn has_served(&self, slot: SlotId) -> bool {
        self.packs.get(slot.0).is_some_and(|pack| pack.served)
    }

    /// The tools of a pack that are withdrawn.
    pub(crate) fn withdrawn(&self, slot: SlotId) -> impl Iterator<Item = (&str, Withdrawn)> {
        let tools = self.tools.values();
        tools
            .filter(move |tool| tool.owner == Owner::Slot(slot))
            .filter_map(|tool| Some((tool.spec.name.as_str(), tool.withdrawn?)))
    }

    /// The tools on offer.
    fn offered(&self) -> impl Iterator<Item = &Tool> {
        let tools = self.tools.values();
        tools.filter(|tool| tool.withdrawn.is_none())
    }

    /// Whether a tool is called so.
    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// Everything on offer, and the packs of which nothing is known.
    pub(crate) fn served(&self) -> Served {
        let of = |host: bool| -> Vec<ToolSpec> {
            let tools = self.tools.values();
            let owned = tools.filter(|tool| (tool.owner == Owner::Host) == host);
            owned.map(|tool| tool.spec.clone()).collect()
        };
        let unknown = self.packs.iter().filter(|pack| pack.catalog.is_none());
        Served {
            own: of(true),
            tools: of(false),
            unknown: unknown.map(|pack| (pack.name.clone(), None)).collect(),
            call_timeout_ms: self.limits.call_timeout_ms,
        }
    }

    fn catalogs(&self) -> impl Iterator<Item = (SlotId, &Catalog)> {
        self.packs
            .iter()
            .enumerate()
            .filter_map(|(index, pack)| Some((SlotId(index), pack.catalog.as_ref()?)))
    }
}
