//! A schema and everything it reaches, over all documents.

use std::{collections::BTreeSet, sync::Arc};

use jsonschema::Draft;
use serde_json::{Map, Value};

use crate::{
    CompileError, Limits,
    dialect::Dialect,
    document::{Document, HOME},
    keywords::{references, subschemas},
    library::{Library, normal},
    link::is_bundled,
};

/// Prefix of the names of the published vocabularies.
const VOCABULARIES: [&str; 2] = [
    "https://json-schema.org/draft/2019-09/vocab/",
    "https://json-schema.org/draft/2020-12/vocab/",
];

/// One schema to compile, with the documents its references may lead to.
#[derive(Debug)]
pub(crate) struct World {
    library: Arc<Library>,
    /// The schema, unless it is a document of the library. It is numbered after those.
    own: Option<Document>,
    /// The number of the document to compile.
    root: usize,
}

/// A place in a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct At {
    pub(crate) document: usize,
    pub(crate) pointer: String,
}

/// Why a reference cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// No document goes by that URI.
    Address,
    /// The document has no such place.
    Place,
    /// It names a dialect that is unknown.
    Dialect,
}

/// The documents that a schema reaches.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    /// Every schema, the root first.
    pub(crate) schemas: BTreeSet<At>,
    /// Documents of the library that hold them.
    pub(crate) documents: Vec<usize>,
    /// True if some reference leads to a published meta-schema.
    pub(crate) meta_schemas: bool,
    /// References that lead nowhere, with the schemas that hold them.
    pub(crate) lost: Vec<(At, String, Lost)>,
}

impl World {
    /// For a schema of its own.
    pub(crate) fn of_schema(library: &Arc<Library>, schema: &Value, limits: &Limits) -> Self {
        let schema = Arc::new(schema.clone());
        let known = |uri: &str| library.root(uri);
        let own = Document::new(HOME.to_owned(), schema, &known, limits);
        Self {
            root: library.documents.len(),
            library: Arc::clone(library),
            own: Some(own),
        }
    }

    /// For a document of the library.
    pub(crate) fn of_document(library: &Arc<Library>, root: usize) -> Self {
        Self {
            library: Arc::clone(library),
            own: None,
            root,
        }
    }

    pub(crate) fn root(&self) -> At {
        At {
            document: self.root,
            pointer: String::new(),
        }
    }

    /// The document to compile.
    pub(crate) fn document(&self) -> Option<&Document> {
        self.number(self.root)
    }

    pub(crate) fn number(&self, document: usize) -> Option<&Document> {
        match self.library.documents.get(document) {
            None => self.own.as_ref(),
            known => known,
        }
    }

    pub(crate) fn schema(&self, at: &At) -> Option<&Value> {
        self.number(at.document)?.root.pointer(&at.pointer)
    }

    pub(crate) fn draft(&self, at: &At) -> Draft {
        self.dialect(at)
            .map_or_else(Draft::default, |dialect| dialect.draft)
    }

    pub(crate) fn dialect(&self, at: &At) -> Option<&Arc<Dialect>> {
        Some(self.number(at.document)?.dialect(&at.pointer))
    }

    /// Where `reference`, which stands at `from`, leads.
    pub(crate) fn resolve(&self, from: &At, reference: &str) -> Result<At, Lost> {
        let document = self.number(from.document).ok_or(Lost::Address)?;
        let target = document.target(&from.pointer, reference);
        let (uri, fragment) = target.ok_or(Lost::Address)?;
        let (number, resource) = match &uri {
            None => (from.document, document.resource_of(&from.pointer)),
            Some(uri) => self.find(uri).ok_or(Lost::Address)?,
        };
        let document = self.number(number).ok_or(Lost::Address)?;
        let pointer = document.find(resource, &fragment).ok_or(Lost::Place)?;
        Ok(At {
            document: number,
            pointer,
        })
    }

    /// Where a dynamic reference always leads, if that can be told: to an anchor in
    /// the resource where every way begins, or to the only one of its name.
    pub(crate) fn resolve_dynamic(&self, reach: &Reached, from: &At, text: &str) -> Option<At> {
        let first = self.resolve(from, text).ok()?;
        let (_, name) = text.rsplit_once('#')?;
        let anchors = self.dynamic_anchors(reach, name);
        if !anchors.contains(&first) {
            return Some(first);
        }
        let outermost = self.document()?.dynamic_anchor("", name);
        match (outermost, anchors.as_slice()) {
            (Some(pointer), _) => Some(At {
                pointer: pointer.to_owned(),
                ..self.root()
            }),
            (None, [only]) => Some(only.clone()),
            _ => None,
        }
    }

    /// The dynamic anchors named `name` that a schema of this world could lead to.
    pub(crate) fn dynamic_anchors(&self, reach: &Reached, name: &str) -> Vec<At> {
        let own = self.own.as_ref().map(|_| self.root);
        let documents = reach.documents.iter().copied().chain(own);
        documents
            .filter_map(|document| Some((document, self.number(document)?)))
            .flat_map(|(document, found)| {
                found.dynamic_anchors(name).map(move |pointer| At {
                    document,
                    pointer: pointer.to_owned(),
                })
            })
            .collect()
    }

    /// Everything that the schema reaches. A document that is reached counts whole.
    pub(crate) fn reach(&self) -> Reached {
        let mut reach = Reached::default();
        let mut documents = BTreeSet::new();
        let mut queue = vec![self.root()];
        while let Some(at) = queue.pop() {
            let Some(document) = self.number(at.document) else {
                continue;
            };
            if documents.insert(at.document) {
                queue.push(At {
                    document: at.document,
                    pointer: String::new(),
                });
            }
            if document.excess.is_some() || reach.schemas.contains(&at) {
                continue;
            }
            let Some(schema) = document.root.pointer(&at.pointer) else {
                continue;
            };
            if let Value::Object(schema) = schema {
                self.follow(&at, document, schema, &mut reach, &mut queue);
            }
            reach.schemas.insert(at);
        }
        documents.remove(&self.library.documents.len());
        reach.documents = documents.into_iter().collect();
        reach
            .lost
            .sort_by(|left, right| self.order(&left.0).cmp(&self.order(&right.0)));
        reach
    }

    /// Fails when a document that is reached is out of bounds or not valid.
    pub(crate) fn check(&self, reach: &Reached) -> Result<(), CompileError> {
        let root = self.own.as_ref().map(|_| self.root);
        for number in root.into_iter().chain(reach.documents.iter().copied()) {
            let Some(document) = self.number(number) else {
                continue;
            };
            let checked = document.check();
            checked.map_err(|error| self.placed(number, error))?;
        }
        let mut lost = reach.lost.iter();
        // One that leads to no place in its document may never be asked for.
        match lost.find(|(_, _, lost)| *lost != Lost::Place) {
            Some(lost) => Err(self.lost(lost)),
            None => Ok(()),
        }
    }

    /// The error for a reference that leads nowhere.
    pub(crate) fn lost(&self, (at, text, lost): &(At, String, Lost)) -> CompileError {
        let (pointer, reference) = (at.pointer.clone(), text.clone());
        let error = match lost {
            Lost::Address => CompileError::RemoteReference { pointer, reference },
            Lost::Place => CompileError::BrokenReference { pointer, reference },
            Lost::Dialect => CompileError::UnknownDialect { dialect: reference },
        };
        self.placed(at.document, error)
    }

    /// Sorts places: those of the schema itself first.
    fn order<'a>(&self, at: &'a At) -> (bool, &'a At) {
        (at.document != self.root, at)
    }

    fn follow(
        &self,
        at: &At,
        document: &Document,
        schema: &Map<String, Value>,
        reach: &mut Reached,
        queue: &mut Vec<At>,
    ) {
        let dialect = document.dialect(&at.pointer);
        for (_, text) in references(schema, dialect.draft) {
            let lost = match self.resolve(at, text) {
                Ok(target) => {
                    queue.push(target);
                    continue;
                }
                Err(lost) => lost,
            };
            let uri = document.target(&at.pointer, text).and_then(|(uri, _)| uri);
            let uri = uri.unwrap_or_default();
            if lost == Lost::Address && is_bundled(&uri) {
                reach.meta_schemas = true;
                continue;
            }
            queue.extend(self.resource(&uri));
            reach.lost.push((at.clone(), text.to_owned(), lost));
        }
        if dialect.derived
            && let Some(unknown) = self.unknown_part(dialect)
        {
            reach.lost.push((at.clone(), unknown, Lost::Dialect));
        }
        subschemas(schema, &at.pointer, dialect.draft, &mut |pointer, _, _| {
            queue.push(At {
                document: at.document,
                pointer,
            });
        });
    }

    /// The URI of what is not known of a derived dialect, if something is not: its
    /// meta-schema, or a vocabulary without which its schemas must not be read.
    fn unknown_part(&self, dialect: &Dialect) -> Option<String> {
        let uri = normal(&dialect.uri).unwrap_or_default();
        let Some(meta_schema) = self.root_by_uri(&uri) else {
            return (!is_bundled(&uri)).then(|| dialect.uri.clone());
        };
        let vocabularies = meta_schema.get("$vocabulary").and_then(Value::as_object);
        vocabularies
            .into_iter()
            .flatten()
            .filter(|(_, required)| required.as_bool() == Some(true))
            .map(|(vocabulary, _)| vocabulary)
            .find(|vocabulary| {
                !VOCABULARIES
                    .iter()
                    .any(|known| vocabulary.starts_with(known))
            })
            .cloned()
    }

    /// The root of the resource with this URI.
    fn resource(&self, uri: &str) -> Option<At> {
        let (document, pointer) = self.find(uri)?;
        Some(At {
            document,
            pointer: pointer.to_owned(),
        })
    }

    /// The whole document with this URI.
    pub(crate) fn root_by_uri(&self, uri: &str) -> Option<&Value> {
        let (document, pointer) = self.find(uri)?;
        let document = self.number(document)?;
        pointer.is_empty().then_some(&*document.root)
    }

    fn find(&self, uri: &str) -> Option<(usize, &str)> {
        let own = self.own.as_ref();
        own.and_then(|own| Some((self.root, own.resources.get(uri)?.as_str())))
            .or_else(|| self.library.find(uri))
    }

    /// `error`, found in `document`, as one about the schema to compile.
    pub(crate) fn placed(&self, document: usize, error: CompileError) -> CompileError {
        match self.number(document) {
            Some(other) if document != self.root => CompileError::InDocument {
                uri: other.uri.clone(),
                reason: Box::new(error),
            },
            _ => error,
        }
    }
}
