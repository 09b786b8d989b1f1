//! The tools as they are now.

use std::collections::BTreeMap;

use anyhow::anyhow;
use mainstay_contract::method::ListKind;
use mainstay_host::Served;
use mainstay_schema::lock::{Contract, Entry, Lock, Surface, published};
use serde_json::{Value, json};

use crate::args::Locked;
use crate::exit::Failure;
use crate::target::Connection;

/// The tools as they are now.
#[derive(Debug)]
pub(crate) struct Present {
    /// Without reasons: those are in the file.
    pub(crate) lock: Lock,
    /// The definitions that clients get, without the version of the build.
    pub(crate) published: BTreeMap<String, Value>,
    /// Whether the other names of tools and arguments had to be taken from the lock.
    pub(crate) is_partial: bool,
}

impl Present {
    /// Asks the target. What a running host does not list is taken to be as recorded.
    pub(crate) fn of(locked: &Locked, recorded: &Lock) -> Result<Self, Failure> {
        let mut connection = match &locked.server {
            Some(server) => Connection::to_server(server)?,
            None => Connection::open(&locked.target, None)?,
        };
        let listed = connection.tools();
        let is_foreign = !locked.target.command.is_empty() || locked.server.is_some();
        let surface = match connection.is_ours() && !is_foreign {
            // Its offer has it.
            true => Ok(None),
            false => connection.surface(),
        };
        // A host that could not start says more than the connection that it closed.
        let served = connection.close()?;
        let (listed, mut surface) = (listed?.tools, surface?);
        match served {
            Some(served) => Self::served(served, locked.packs_only),
            None if is_foreign => Ok(Self::foreign(listed, surface)),
            None => {
                if let (true, Some(surface)) = (locked.packs_only, &mut surface) {
                    surface.instructions = None;
                }
                Self::listed(&listed, surface, recorded)
            }
        }
    }

    /// Somebody else's tools, as they came.
    fn foreign(definitions: Vec<Value>, surface: Option<Surface>) -> Self {
        let named = |definition: Value| {
            let name = definition.get("name")?.as_str()?.to_owned();
            Some((name, definition))
        };
        let published: BTreeMap<String, Value> =
            definitions.into_iter().filter_map(named).collect();
        let entries = published.iter();
        Self {
            lock: Lock {
                tools: entries
                    .map(|(name, definition)| (name.clone(), Entry::Foreign(definition.clone())))
                    .collect(),
                surface,
                reasons: Vec::new(),
            },
            published,
            is_partial: false,
        }
    }

    fn served(served: Served, packs_only: bool) -> Result<Self, Failure> {
        if let Some((pack, fault)) = served.unknown.first() {
            let said = match fault {
                Some(fault) => anyhow!("pack {pack} did not say what it offers: {fault}"),
                None => anyhow!("pack {pack} did not say what it offers"),
            };
            return Err(Failure::input(said)
                .hint("mend or leave out the pack; without it its tools would count as removed"));
        }
        let timeout = served.call_timeout_ms;
        let own = if packs_only { Vec::new() } else { served.own };
        let specs = || own.iter().chain(&served.tools);
        // The resources of a pack are the operator's own files; its templates describe them.
        let instructions = served.instructions.filter(|_| !packs_only);
        let mut surface = Surface::with_instructions(instructions);
        for prompt in &served.prompts {
            surface.add(ListKind::Prompts, json!(prompt));
        }
        for template in &served.templates {
            surface.add(ListKind::Templates, json!(template));
        }
        Ok(Self {
            lock: Lock {
                tools: specs()
                    .map(|spec| (spec.name.clone(), Contract::of(spec, timeout).into()))
                    .collect(),
                surface: Some(surface),
                reasons: Vec::new(),
            },
            published: specs()
                .map(|spec| (spec.name.clone(), published(&spec.definition(timeout))))
                .collect(),
            is_partial: false,
        })
    }

    fn listed(
        definitions: &[Value],
        mut surface: Option<Surface>,
        recorded: &Lock,
    ) -> Result<Self, Failure> {
        if let Some(surface) = &mut surface {
            surface.clear(ListKind::Resources);
        }
        let mut present = Self {
            lock: Lock {
                surface,
                ..Lock::default()
            },
            published: BTreeMap::new(),
            is_partial: true,
        };
        for definition in definitions {
            let name = definition.get("name").and_then(Value::as_str);
            let known = name.and_then(|name| recorded.tools.get(name));
            let contract = Contract::listed(definition, known.and_then(Entry::contract))
                .map_err(Failure::input)?;
            let name = contract.name.clone();
            present
                .published
                .insert(name.clone(), published(definition));
            present.lock.tools.insert(name, contract.into());
        }
        Ok(present)
    }
}
