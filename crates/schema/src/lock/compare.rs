//! Every difference between two locks, by tool and place.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::tool::RENDER_ARGUMENT;
use serde_json::{Map, Value, json};

use super::change::{Change, INPUT, OUTPUT};
use super::entry::{Contract, Entry};
use super::file::Lock;
use super::rules::{Demand, Kind};
use super::walk::{Side, compare_schemas};
use crate::keywords::join;

/// Every difference between two locks, sorted by tool, place and kind.
///
/// A tool that is gone while a new one has its name among the aliases was renamed.
pub fn compare(old: &Lock, new: &Lock) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut gone: BTreeSet<&String> = old.tools.keys().collect();
    gone.retain(|name| !new.tools.contains_key(*name));
    for (name, entry) in &new.tools {
        if let Some(before) = old.tools.get(name) {
            changes.extend(compare_entries(name, before, entry));
            continue;
        }
        let aliases = entry.contract().map(|contract| &contract.aliases);
        let former = aliases.and_then(|names| names.iter().find(|alias| gone.contains(alias)));
        match former.and_then(|former| old.tools.get_key_value(former)) {
            Some((former, before)) => {
                gone.remove(former);
                changes.extend(renamed(name, former, before, entry));
            }
            None => changes.push(added(old, name, entry)),
        }
    }
    for name in gone {
        if let Some(entry) = old.tools.get(name) {
            let change = Change::new(name, Kind::ToolRemoved, "", shown(entry), None);
            changes.push(of_entry(change, entry));
        }
    }
    // A lock that covers only the tools says nothing about the rest.
    if let (Some(old), Some(new)) = (&old.surface, &new.surface) {
        changes.extend(old.changes(new));
    }
    changes.sort_by_cached_key(Change::key);
    changes
}

/// Every difference between two entries of the same tool.
pub fn compare_entries(tool: &str, old: &Entry, new: &Entry) -> Vec<Change> {
    let mut found = Found {
        tool,
        changes: Vec::new(),
    };
    match (old, new) {
        (Entry::Contract(old), Entry::Contract(new)) => found.contracts(old, new),
        (Entry::Foreign(old), Entry::Foreign(new)) => found.definitions(old, new),
        _ => found.add(Kind::KindOfEntryChanged, "", None, None),
    }
    // Whatever else there is, a different definition is a change.
    if found.changes.is_empty() && old.fingerprint() != new.fingerprint() {
        found.add(Kind::OtherChange, "", None, None);
    }
    let changes = found.changes.into_iter();
    let mut changes: Vec<Change> = changes.map(|change| of_entry(change, new)).collect();
    changes.sort_by_cached_key(Change::key);
    changes
}

/// A foreign tool has no version to raise: whatever changes wants a look.
fn of_entry(mut change: Change, entry: &Entry) -> Change {
    if matches!(entry, Entry::Foreign(_)) {
        change.demand = Demand::Review;
    }
    change
}

/// The summary of a tool that comes or goes.
fn shown(entry: &Entry) -> Option<Value> {
    let version = entry.schema_version()?;
    Some(json!({ "schemaVersion": version }))
}

/// A name that the old lock does not have.
fn added(old: &Lock, name: &str, entry: &Entry) -> Change {
    // The version of a tool that was removed goes on where it ended.
    let last = entry.contract().and_then(|_| old.last_version(name));
    let change = match last {
        Some(last) => {
            let before = Some(json!({ "schemaVersion": last }));
            Change::new(name, Kind::ToolReturned, "", before, shown(entry))
        }
        None => Change::new(name, Kind::ToolAdded, "", None, shown(entry)),
    };
    of_entry(change, entry)
}

/// A tool under a new name that still answers to its old one.
fn renamed(name: &str, former: &str, old: &Entry, new: &Entry) -> Vec<Change> {
    let rename = Change::new(
        name,
        Kind::ToolRenamed,
        "/name",
        Some(former.into()),
        Some(name.into()),
    );
    let mut changes = compare_entries(name, old, new);
    // The alias for the old name is part of the renaming.
    let kept = Value::from(former);
    changes
        .retain(|change| change.kind != Kind::AliasAdded || change.after.as_ref() != Some(&kept));
    changes.push(rename);
    changes
}

struct Found<'a> {
    tool: &'a str,
    changes: Vec<Change>,
}

impl Found<'_> {
    fn add(&mut self, kind: Kind, at: &str, before: Option<Value>, after: Option<Value>) {
        self.changes
            .push(Change::new(self.tool, kind, at, before, after));
    }

    fn contracts(&mut self, old: &Contract, new: &Contract) {
        let versions = (old.schema_version, new.schema_version);
        let (kind, (before, after)) = if versions.1 > versions.0 {
            (Kind::SchemaVersionRaised, versions)
        } else {
            (Kind::SchemaVersionDecreased, versions)
        };
        if before != after {
            self.value(kind, "/schemaVersion", before, after);
        }
        if old.description != new.description {
            self.value(
                Kind::ToolDescriptionChanged,
                "/description",
                old.description.as_str(),
                new.description.as_str(),
            );
        }
        if old.replay != new.replay {
            self.value(
                Kind::ReplayChanged,
                "/replay",
                old.replay.as_str(),
                new.replay.as_str(),
            );
        }
        if old.timeout_ms != new.timeout_ms {
            self.value(
                Kind::TimeoutChanged,
                "/timeoutMs",
                old.timeout_ms,
                new.timeout_ms,
            );
        }
        self.set(
            "/errors",
            [Kind::ErrorCodeAdded, Kind::ErrorCodeRemoved],
            &old.errors,
            &new.errors,
        );
        self.set(
            "/aliases",
            [Kind::AliasAdded, Kind::AliasRemoved],
            &old.aliases,
            &new.aliases,
        );
        self.map(
            "/annotations",
            [Kind::AnnotationChanged; 3],
            &old.annotations,
            &new.annotations,
        );
        self.map(
            "/argumentAliases",
            [
                Kind::ArgumentAliasAdded,
                Kind::ArgumentAliasRemoved,
                Kind::ArgumentAliasChanged,
            ],
            &old.argument_aliases,
            &new.argument_aliases,
        );
        self.schemas(
            Some(&old.input_schema),
            Some(&new.input_schema),
            INPUT,
            Side::Arguments,
        );
        self.schemas(
            old.output_schema.as_ref(),
            new.output_schema.as_ref(),
            OUTPUT,
            Side::Result,
        );
        self.refine(old);
    }

    /// Changes of the contract around the schemas.
    fn refine(&mut self, old: &Contract) {
        let render = format!("{INPUT}/properties/{RENDER_ARGUMENT}");
        for change in &mut self.changes {
            let below = change.pointer.strip_prefix(&render);
            let of_render = below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            let kind = if of_render && change.demand == Demand::Bump {
                Kind::RenderChanged
            } else if change.kind == Kind::OptionalArgumentAdded
                && change
                    .argument()
                    .is_some_and(|name| old.argument_aliases.contains_key(&name))
            {
                // Until now the name was another spelling of something else.
                Kind::ArgumentAliasChanged
            } else {
                continue;
            };
            change.kind = kind;
            change.demand = kind.demand();
        }
    }

    /// Definitions that came from elsewhere: schemas are walked, the rest is compared as it is.
    fn definitions(&mut self, old: &Value, new: &Value) {
        let empty = Map::new();
        let before = old.as_object().unwrap_or(&empty);
        let after = new.as_object().unwrap_or(&empty);
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            let (old, new) = (before.get(name), after.get(name));
            if old == new {
                continue;
            }
            match name.as_str() {
                "inputSchema" => self.schemas(old, new, INPUT, Side::Arguments),
                "outputSchema" => self.schemas(old, new, OUTPUT, Side::Result),
                _ => {
                    let kind = match name.as_str() {
                        "description" => Kind::ToolDescriptionChanged,
                        "annotations" => Kind::AnnotationChanged,
                        _ => Kind::OtherChange,
                    };
                    self.add(kind, &join("", name), old.cloned(), new.cloned());
                }
            }
        }
    }

    fn schemas(&mut self, old: Option<&Value>, new: Option<&Value>, at: &str, side: Side) {
        match (old, new) {
            (Some(old), Some(new)) => {
                compare_schemas(side, at, old, new, &mut |kind, place, before, after| {
                    self.add(kind, &place, before.cloned(), after.cloned());
                });
            }
            (None, None) => {}
            (old, new) => {
                let kind = match (side, old.is_none()) {
                    (Side::Arguments, _) => Kind::SchemaRearranged,
                    (Side::Result, true) => Kind::OutputSchemaAdded,
                    (Side::Result, false) => Kind::OutputSchemaRemoved,
                };
                self.add(kind, at, old.cloned(), new.cloned());
            }
        }
    }

    fn value<T: Into<Value>>(&mut self, kind: Kind, at: &str, before: T, after: T) {
        self.add(kind, at, Some(before.into()), Some(after.into()));
    }

    fn set(
        &mut self,
        at: &str,
        [added, removed]: [Kind; 2],
        old: &BTreeSet<String>,
        new: &BTreeSet<String>,
    ) {
        for name in old.difference(new) {
            self.add(removed, at, Some(name.as_str().into()), None);
        }
        for name in new.difference(old) {
            self.add(added, at, None, Some(name.as_str().into()));
        }
    }

    fn map<T: Clone + PartialEq + Into<Value>>(
        &mut self,
        at: &str,
        [added, removed, changed]: [Kind; 3],
        old: &BTreeMap<String, T>,
        new: &BTreeMap<String, T>,
    ) {
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names {
            let kind = match (old.get(name), new.get(name)) {
                (before, after) if before == after => continue,
                (None, _) => added,
                (_, None) => removed,
                _ => changed,
            };
            let value = |map: &BTreeMap<String, T>| map.get(name).cloned().map(Into::into);
            self.add(kind, &join(at, name), value(old), value(new));
        }
    }
}
