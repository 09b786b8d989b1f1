//! Parts of documents, put together anew.

use std::{collections::BTreeMap, sync::Arc};

use mainstay_contract::uri::encode_pointer;
use serde_json::{Map, Value, json};

use super::{LOST, is_bundled, uri};
use crate::{
    dialect::Dialect,
    document::Start,
    keywords::references,
    world::{At, Lost, Reached, World},
};

/// The member of a resource that holds all schemas of a dialect.
const UNITS: &str = "units";

/// The parts of all documents: one for each change of the dialect or, if that counts,
/// of the resource.
#[derive(Debug)]
pub(crate) struct Units {
    /// True if every resource stays one.
    apart: bool,
    count: usize,
    /// Where each part is now, by the document and the pointer where it was.
    places: BTreeMap<usize, BTreeMap<String, Place>>,
    pub(crate) resources: Vec<Resource>,
}

/// The parts of one document, by pointer.
type Parts = BTreeMap<String, Value>;

#[derive(Debug)]
struct Place {
    resource: usize,
    pointer: String,
}

#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) dialect: Arc<Dialect>,
    pub(crate) schema: Value,
}

impl Units {
    pub(crate) fn new(world: &World, reach: &Reached) -> Option<Self> {
        let mut units = Self {
            apart: ways_matter(world, reach),
            count: 0,
            places: BTreeMap::new(),
            resources: Vec::new(),
        };
        for at in &reach.schemas {
            units.find_place(at, world)?;
        }
        let parts = units.parts(world, reach);
        units.move_in(parts);
        Some(units)
    }

    /// The resource that the schema at `at` is in.
    pub(crate) fn resource(&self, at: &At) -> Option<usize> {
        let (_, place) = self.enclosing(at.document, &at.pointer)?;
        Some(place.resource)
    }

    /// The URI of the schema at `at`.
    pub(crate) fn address(&self, at: &At) -> String {
        let Some((unit, place)) = self.enclosing(at.document, &at.pointer) else {
            return LOST.to_owned();
        };
        let rest = at.pointer.strip_prefix(unit).unwrap_or_default();
        let pointer = encode_pointer(&format!("{}{rest}", place.pointer));
        format!("{}#{pointer}", uri(place.resource))
    }

    /// Where the schema was that is at `pointer` of a resource now, if only one can be.
    pub(crate) fn origin(&self, pointer: &str) -> Option<At> {
        if self.apart {
            return None;
        }
        let origin = |unit: &str, place: &Place| {
            let rest = pointer.strip_prefix(&place.pointer)?;
            let inside = rest.is_empty() || rest.starts_with('/');
            inside.then(|| format!("{unit}{rest}"))
        };
        self.places.iter().find_map(|(document, places)| {
            let mut origins = places
                .iter()
                .filter_map(|(unit, place)| origin(unit, place));
            Some(At {
                document: *document,
                pointer: origins.next()?,
            })
        })
    }

    /// The part that the schema at `pointer` belongs to, by its own pointer.
    fn enclosing<'p>(&self, document: usize, pointer: &'p str) -> Option<(&'p str, &Place)> {
        let places = self.places.get(&document)?;
        let mut unit = pointer;
        loop {
            if let Some(place) = places.get(unit) {
                return Some((unit, place));
            }
            unit = unit.rsplit_once('/')?.0;
        }
    }

    /// Gives the part that starts at `at` a place, if one starts there.
    fn find_place(&mut self, at: &At, world: &World) -> Option<()> {
        let least = if self.apart {
            Start::Resource
        } else {
            Start::Dialect
        };
        if world.number(at.document)?.starts(&at.pointer) < least {
            return Some(());
        }
        let dialect = world.dialect(at)?;
        let mut resources = self.resources.iter();
        let shared = resources.position(|resource| !self.apart && resource.dialect == *dialect);
        let place = Place {
            resource: shared.unwrap_or(self.resources.len()),
            pointer: if self.apart {
                String::new()
            } else {
                format!("/{UNITS}/{}", self.count)
            },
        };
        self.count += 1;
        if shared.is_none() {
            self.resources.push(Resource {
                dialect: Arc::clone(dialect),
                schema: json!({UNITS: {}}),
            });
        }
        let places = self.places.entry(at.document).or_default();
        places.insert(at.pointer.clone(), place);
        Some(())
    }

    /// A copy of each part, with references to where things will be.
    fn parts(&self, world: &World, reach: &Reached) -> BTreeMap<usize, Parts> {
        let copy = |document: usize, pointer: &str| {
            let root = &world.number(document)?.root;
            Some((pointer.to_owned(), root.pointer(pointer)?.clone()))
        };
        let mut parts: BTreeMap<usize, Parts> = self
            .places
            .iter()
            .map(|(document, places)| {
                let copies = places.keys().filter_map(|unit| copy(*document, unit));
                (*document, copies.collect())
            })
            .collect();
        for at in &reach.schemas {
            if let Some(Value::Object(schema)) = self.within(&mut parts, at, &at.pointer) {
                self.relink(schema, at, world, reach);
            }
        }
        // Where a part was, there is a reference to it now. The innermost go first.
        for (document, places) in &self.places {
            for unit in places.keys().rev() {
                let at = At {
                    document: *document,
                    pointer: unit.clone(),
                };
                let Some((around, _)) = unit.rsplit_once('/') else {
                    continue;
                };
                if let Some(place) = self.within(&mut parts, &at, around) {
                    *place = json!({"$ref": self.address(&at)});
                }
            }
        }
        parts
    }

    /// The value at `at` in the part that the pointer `inside` belongs to.
    fn within<'p>(
        &self,
        parts: &'p mut BTreeMap<usize, Parts>,
        at: &At,
        inside: &str,
    ) -> Option<&'p mut Value> {
        let (unit, _) = self.enclosing(at.document, inside)?;
        let rest = at.pointer.strip_prefix(unit)?;
        let part = parts.get_mut(&at.document)?.get_mut(unit)?;
        part.pointer_mut(rest)
    }

    /// Takes the names out of `schema`, which was at `at`, and points its references to
    /// where their targets will be.
    fn relink(&self, schema: &mut Map<String, Value>, at: &At, world: &World, reach: &Reached) {
        let draft = world.draft(at);
        let targets: Vec<_> = references(schema, draft)
            .filter_map(|(keyword, text)| {
                let target = self.target(keyword, text, at, world, reach)?;
                Some((keyword, target))
            })
            .collect();
        for (keyword, target) in targets {
            schema.insert(keyword.to_owned(), target.into());
        }
        let mut names = vec![draft.id_keyword(), "$schema", "$anchor"];
        if !self.apart {
            names.push("$dynamicAnchor");
        }
        for name in names {
            schema.shift_remove(name);
        }
    }

    /// The new text of a reference at `at`; `None` if it does not change.
    fn target(
        &self,
        keyword: &str,
        text: &str,
        at: &At,
        world: &World,
        reach: &Reached,
    ) -> Option<String> {
        let target = match keyword {
            "$recursiveRef" => return None,
            "$dynamicRef" => match world.resolve_dynamic(reach, at, text) {
                Some(target) => Ok(target),
                None => {
                    // It goes on to start from the anchor that it names.
                    let first = self.address(&world.resolve(at, text).ok()?);
                    let (base, _) = first.split_once('#')?;
                    let (_, name) = text.rsplit_once('#')?;
                    return Some(format!("{base}#{name}"));
                }
            },
            _ => world.resolve(at, text),
        };
        match target {
            Ok(target) => Some(self.address(&target)),
            Err(Lost::Address) => {
                let document = world.number(at.document)?;
                let (named, _) = document.target(&at.pointer, text)?;
                let bundled = named.is_some_and(|named| is_bundled(&named));
                (!bundled).then(|| LOST.to_owned())
            }
            // Nothing is there either.
            Err(_) => Some(format!("{}#/{LOST}", uri(0))),
        }
    }

    fn move_in(&mut self, parts: BTreeMap<usize, Parts>) {
        let parts = parts.into_iter().flat_map(|(document, parts)| {
            let parts = parts.into_iter();
            parts.map(move |(pointer, part)| (document, pointer, part))
        });
        for (document, pointer, part) in parts {
            let places = self.places.get(&document);
            let Some(place) = places.and_then(|places| places.get(&pointer)) else {
                continue;
            };
            let Some(resource) = self.resources.get_mut(place.resource) else {
                continue;
            };
            match place.pointer.rsplit_once('/') {
                None => resource.schema = part,
                Some((_, name)) => {
                    if let Some(Value::Object(units)) = resource.schema.get_mut(UNITS) {
                        units.insert(name.to_owned(), part);
                    }
                }
            }
            if let Value::Object(schema) = &mut resource.schema {
                let dialect = resource.dialect.uri.as_str();
                schema.insert("$schema".to_owned(), dialect.into());
            }
        }
    }
}

/// True if some reference leads to different places, depending on the way to it.
fn ways_matter(world: &World, reach: &Reached) -> bool {
    reach.schemas.iter().any(|at| {
        let Some(Value::Object(schema)) = world.schema(at) else {
            return false;
        };
        references(schema, world.draft(at)).any(|(keyword, text)| match keyword {
            "$dynamicRef" => {
                world.resolve(at, text).is_ok() && world.resolve_dynamic(reach, at, text).is_none()
            }
            "$recursiveRef" => true,
            _ => false,
        })
    })
}
