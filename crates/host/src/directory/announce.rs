//! What a worker announces, and whether it may serve.

use mainstay_contract::json::Json;
use mainstay_contract::rpc::{PROTOCOL, Ready};
use mainstay_contract::tool::{Catalog, ToolSpec};
use mainstay_kernel::call::SlotId;
use mainstay_schema::ToolValidators;
use mainstay_schema::lock::{Contract, Entry};

use super::{Directory, DirectoryError, FAILED_STARTS, Free, Owner, Tool};
use crate::locked::Withdrawn;

/// The member of a worker's facts that says what it read at its start.
const ROOTS: &str = "roots";

/// What a worker read at its start, compared with the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    AsBefore,
    /// Its files have changed since.
    Otherwise,
}

impl Directory {
    /// A worker says that it is ready. Refuses one of another protocol, build or catalog, in a
    /// sentence for the operator.
    pub(crate) fn announce(&mut self, slot: SlotId, ready: &Ready) -> Result<Read, String> {
        self.accept(slot, ready)?;
        let facts = ready.facts.to_value().unwrap_or_default();
        let roots = facts.get(ROOTS).cloned().unwrap_or_default();
        let Some(entry) = self.packs.get_mut(slot.0) else {
            return Ok(Read::AsBefore);
        };
        entry.served = true;
        let before = entry.roots.replace(roots);
        Ok(match before {
            Some(before) if Some(&before) != entry.roots.as_ref() => Read::Otherwise,
            _ => Read::AsBefore,
        })
    }

    fn accept(&mut self, slot: SlotId, ready: &Ready) -> Result<(), String> {
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
        let withdrawn = match (&self.locked, owner) {
            (Some(locked), Owner::Slot(_)) => {
                let contract = Contract::of(&spec, self.limits.call_timeout_ms);
                Withdrawn::of(locked, &spec.name, &Entry::from(contract).fingerprint())
            }
            // What the host says about itself nobody else can change.
            (None, _) | (_, Owner::Host) => None,
        };
        let tool = Tool {
            withdrawn,
            owner,
            free: Free::of(&spec, &full_schema),
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

#[cfg(test)]
mod tests {
    use mainstay_contract::limits::Limits;
    use mainstay_contract::render::RenderMode;

    use super::*;
    use crate::config::{Command, Expected, Pack};
    use crate::system_tools;

    const SLOT: SlotId = SlotId(0);

    fn pack(expected: Option<Expected>) -> Pack {
        Pack {
            name: "p".to_owned(),
            command: Command {
                program: "p".into(),
                called: None,
                arguments: Vec::new(),
                without_env: Vec::new(),
                env: Vec::new(),
                cwd: None,
            },
            settings: Json::empty_object(),
            expected,
            follows_roots: None,
        }
    }

    fn catalog(tool: &str) -> Catalog {
        let mut spec = system_tools::specs("1.0.0").remove(0);
        tool.clone_into(&mut spec.name);
        Catalog {
            pack: "p".to_owned(),
            tools: vec![spec],
            ..Catalog::default()
        }
    }

    fn ready(protocol: u32, build: &str, catalog: Catalog) -> Ready {
        Ready {
            protocol,
            build: build.to_owned(),
            catalog,
            facts: Json::empty_object(),
        }
    }

    fn directory(expected: Option<Expected>) -> Directory {
        let own = system_tools::specs("1.0.0");
        Directory::new(
            &[pack(expected)],
            own,
            RenderMode::Json,
            &Limits::default(),
            None,
        )
        .unwrap()
    }

    #[test]
    fn a_built_in_worker_of_another_build_protocol_or_catalog_is_refused() {
        let expected = Expected {
            catalog: catalog("a"),
            build: "1+x".to_owned(),
        };
        let mut directory = directory(Some(expected));
        assert!(directory.is_complete(), "known before any worker runs");
        let mut told = |ready| directory.announce(SLOT, &ready);
        assert_eq!(
            told(ready(PROTOCOL, "1+x", catalog("a"))),
            Ok(Read::AsBefore)
        );
        let build = told(ready(PROTOCOL, "1+y", catalog("a"))).unwrap_err();
        assert_eq!(build, "is of build 1+y, not 1+x");
        let other = told(ready(PROTOCOL, "1+x", catalog("b"))).unwrap_err();
        assert_eq!(other, "announced another catalog: tool a is missing");
        let protocol = told(ready(PROTOCOL + 1, "1+x", catalog("a"))).unwrap_err();
        assert!(protocol.starts_with("speaks worker protocol"), "{protocol}");
    }

    #[test]
    fn a_foreign_pack_is_known_by_its_first_catalog_and_keeps_it() {
        let mut directory = directory(None);
        assert!(!directory.is_complete());
        assert_eq!(
            directory.announce(SLOT, &ready(PROTOCOL, "any", catalog("a"))),
            Ok(Read::AsBefore)
        );
        assert!(directory.is_complete());
        assert!(
            directory
                .announce(SLOT, &ready(PROTOCOL, "newer", catalog("b")))
                .is_err()
        );
    }

    #[test]
    fn other_files_than_the_worker_before_had_are_noticed() {
        let mut directory = directory(None);
        let mut told = |roots: &str| {
            let mut ready = ready(PROTOCOL, "any", catalog("a"));
            ready.facts = Json::parse(&format!(r#"{{"roots": {roots}, "pid": 1}}"#)).unwrap();
            directory.announce(SLOT, &ready).unwrap()
        };
        assert_eq!(told(r#"{"schemas": "aa"}"#), Read::AsBefore, "the first");
        assert_eq!(told(r#"{"schemas": "aa"}"#), Read::AsBefore);
        assert_eq!(told(r#"{"schemas": "bb"}"#), Read::Otherwise);
        assert_eq!(told(r#"{"schemas": "bb"}"#), Read::AsBefore);
    }

    #[test]
    fn a_tool_of_the_hosts_own_name_is_refused_whole() {
        let mut directory = directory(None);
        let refused = directory.announce(SLOT, &ready(PROTOCOL, "x", catalog("system_health")));
        assert!(refused.unwrap_err().contains("which the host has already"));
        assert!(!directory.is_complete());
    }

    #[test]
    fn a_pack_that_never_starts_is_waited_for_only_so_often() {
        let mut directory = directory(None);
        for _ in 0..FAILED_STARTS {
            assert!(!directory.is_complete());
            directory.lost(SLOT);
        }
        assert!(directory.is_complete());
    }
}
