//! Everything that a model reads beside the tools: instructions, prompts, resources and templates.
//!
//! None of them has a version: a change demands a review, for any author of the definition.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::method::ListKind;
use serde_json::{Map, Value, json};

use super::change::Change;
use super::file::LockError;
use super::rules::Kind;
use super::text::sorted;
use crate::Fingerprint;
use crate::keywords::join;

/// The lists beside the tools that a lock covers.
pub const LISTS: [ListKind; 3] = [ListKind::Prompts, ListKind::Resources, ListKind::Templates];

/// The subject of a change of the instructions.
const INSTRUCTIONS: &str = "instructions";

/// Definitions by name, each after the digest that the text records.
pub(super) type RecordedItems = BTreeMap<String, (String, Value)>;

/// Everything that a model reads beside the tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surface {
    pub instructions: Option<String>,
    lists: BTreeMap<ListKind, BTreeMap<String, Value>>,
}

impl Surface {
    /// A surface without lists.
    pub fn with_instructions(instructions: Option<String>) -> Self {
        Self {
            instructions,
            ..Self::default()
        }
    }

    /// Adds the definition of a prompt, a resource or a template. One without its name is left out.
    pub fn add(&mut self, kind: ListKind, definition: Value) {
        let name = definition.get(kind.key()).and_then(Value::as_str);
        if let Some(name) = name.map(str::to_owned) {
            self.lists.entry(kind).or_default().insert(name, definition);
        }
    }

    /// Removes a list.
    pub fn clear(&mut self, kind: ListKind) {
        self.lists.remove(&kind);
    }

    /// The definitions of a list, by name.
    pub fn list(&self, kind: ListKind) -> impl Iterator<Item = (&String, &Value)> {
        self.lists.get(&kind).into_iter().flatten()
    }

    /// How many definitions a list has.
    pub fn count(&self, kind: ListKind) -> usize {
        self.lists.get(&kind).map_or(0, BTreeMap::len)
    }

    fn get(&self, kind: ListKind, name: &str) -> Option<&Value> {
        self.lists.get(&kind)?.get(name)
    }

    /// Its members in the text of a lock.
    pub(super) fn members(&self) -> Map<String, Value> {
        let instructions = self.instructions.as_ref().map(|text| {
            let text = Value::from(text.as_str());
            json!({ "sha256": Fingerprint::of(&text).to_string(), "text": text })
        });
        let mut members = Map::new();
        members.insert(INSTRUCTIONS.to_owned(), instructions.unwrap_or_default());
        for kind in LISTS {
            let list: Map<String, Value> = self
                .list(kind)
                .map(|(name, definition)| {
                    let definition = sorted(definition);
                    let sha256 = Fingerprint::of(&definition).to_string();
                    let recorded = json!({ "sha256": sha256, "definition": definition });
                    (name.clone(), recorded)
                })
                .collect();
            members.insert(kind.member().to_owned(), Value::Object(list));
        }
        members
    }

    /// Reads the members that [`Surface::members`] wrote, strictly.
    pub(super) fn read(
        instructions: Option<(String, String)>,
        lists: [(ListKind, RecordedItems); 3],
    ) -> Result<Self, LockError> {
        let edited = |what: &str| LockError::Edited(what.to_owned());
        let mut surface = Self::default();
        if let Some((sha256, text)) = instructions {
            if sha256 != Fingerprint::of(&Value::from(text.as_str())).to_string() {
                return Err(edited("the instructions"));
            }
            surface.instructions = Some(text);
        }
        for (kind, list) in lists {
            for (name, (sha256, definition)) in list {
                if sha256 != Fingerprint::of(&definition).to_string() {
                    return Err(edited(&format!("the {} {name}", kind.noun())));
                }
                if definition.get(kind.key()).and_then(Value::as_str) != Some(&name) {
                    return Err(LockError::Mismatch {
                        tool: name,
                        member: kind.key(),
                    });
                }
                surface.add(kind, definition);
            }
        }
        Ok(surface)
    }

    /// Every difference to a newer surface.
    pub(super) fn changes(&self, new: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        let text = |surface: &Self| surface.instructions.as_deref().map(Value::from);
        if self.instructions != new.instructions {
            let kind = Kind::InstructionsChanged;
            changes.push(Change::new(INSTRUCTIONS, kind, "", text(self), text(new)));
        }
        for kind in LISTS {
            let names: BTreeSet<&String> = [self, new]
                .into_iter()
                .flat_map(|surface| surface.list(kind).map(|(name, _)| name))
                .collect();
            for name in names {
                let subject = format!("{} {name}", kind.noun());
                match (self.get(kind, name), new.get(kind, name)) {
                    (None, _) => {
                        let added = of(
                            kind,
                            [Kind::PromptAdded, Kind::ResourceAdded, Kind::TemplateAdded],
                        );
                        changes.push(Change::new(&subject, added, "", None, None));
                    }
                    (_, None) => {
                        let removed = of(
                            kind,
                            [
                                Kind::PromptRemoved,
                                Kind::ResourceRemoved,
                                Kind::TemplateRemoved,
                            ],
                        );
                        changes.push(Change::new(&subject, removed, "", None, None));
                    }
                    (Some(old), Some(new)) if Fingerprint::of(old) != Fingerprint::of(new) => {
                        changes.extend(members_changed(kind, &subject, old, new));
                    }
                    (Some(_), Some(_)) => {}
                }
            }
        }
        changes
    }
}

/// The differing members of two definitions, or the whole of them.
fn members_changed(kind: ListKind, subject: &str, old: &Value, new: &Value) -> Vec<Change> {
    let changed = of(
        kind,
        [
            Kind::PromptChanged,
            Kind::ResourceChanged,
            Kind::TemplateChanged,
        ],
    );
    let empty = Map::new();
    let (before, after) = (
        old.as_object().unwrap_or(&empty),
        new.as_object().unwrap_or(&empty),
    );
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
    let changes: Vec<Change> = differing
        .map(|name| {
            let (old, new) = (before.get(name), after.get(name));
            Change::new(subject, changed, join("", name), old.cloned(), new.cloned())
        })
        .collect();
    match changes.is_empty() {
        true => vec![Change::new(subject, changed, "", None, None)],
        false => changes,
    }
}

/// The change of a kind of list.
const fn of(kind: ListKind, [prompt, resource, template]: [Kind; 3]) -> Kind {
    match kind {
        ListKind::Resources => resource,
        ListKind::Templates => template,
        ListKind::Prompts | ListKind::Tools => prompt,
    }
}
