//! A schema and everything it reaches, over all documents.

use std::{collections::BTreeSet, sync::Arc};

use jsonschema::Draft;
use serde_json::{Map, Value};

use crate::{
    CompileError, Limits,
    dialect::Dialect,
    document::{Document, HOME},
    keywords::{references, subschemas},
    library::{Held, Library, is_bundled, normal},
};

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
    /// It names a dialect, and nobody knows that.
    Dialect,
}

/// What a schema reaches.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    /// Every schema, the root first.
    pub(crate) schemas: BTreeSet<At>,
    /// Documents of the library that hold them.
    pub(crate) documents: Vec<usize>,
    /// Whether some reference leads to a published meta-schema.
    pub(crate) meta_schemas: bool,
    /// References that lead nowhere, with the schemas that hold them.
    pub(crate) lost: Vec<(At, String, Lost)>,
}

impl Reached {
    /// Whether nothing but the schema's own document is needed.
    pub(crate) fn is_closed(&self, world: &World) -> bool {
        let own = world.document();
        self.documents
            .iter()
            .all(|document| *document == world.root)
            && !self.meta_schemas
            && own.is_some_and(|own| !own.dialect("").derived)
    }
}

impl World {
    /// For a schema of its own.
    pub(crate) fn of_schema(library: &Arc<Library>, schema: &Value, limits: &Limits) -> Self {
        let schema = Arc::new(schema.clone());
        let known = |uri: &str| library.root(uri);
        let mut own = Document::new(HOME.to_owned(), schema, &known, limits);
        own.link(|uri| {
            let (document, pointer) = library.find(uri)?;
            let document = library.documents.get(document)?;
            Some(document.base(pointer).to_owned())
        });
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

    /// The URI by which the compiler finds the schema.
    pub(crate) fn address(&self, at: &At) -> String {
        self.number(at.document)
            .map(|document| document.address(&at.pointer))
            .unwrap_or_default()
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
            let Some(schema) = document
                .root
                .pointer(&at.pointer)
                .and_then(Value::as_object)
            else {
                continue;
            };
            self.follow(&at, document, schema, &mut reach, &mut queue);
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
        match lost.find(|(_, _, lost)| *lost == Lost::Dialect) {
            Some((at, dialect, _)) => {
                let dialect = dialect.clone();
                Err(self.placed(at.document, CompileError::UnknownDialect { dialect }))
            }
            None => Ok(()),
        }
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
        if dialect.derived {
            let uri = normal(&dialect.uri).unwrap_or_default();
            match self.resource(&uri) {
                Some(meta_schema) => queue.push(meta_schema),
                None if is_bundled(&uri) => {}
                None => {
                    let lost = (at.clone(), dialect.uri.clone(), Lost::Dialect);
                    reach.lost.push(lost);
                }
            }
        }
        subschemas(schema, &at.pointer, dialect.draft, &mut |pointer, _, _| {
            queue.push(At {
                document: at.document,
                pointer,
            });
        });
    }

    /// The root of the resource with this URI.
    fn resource(&self, uri: &str) -> Option<At> {
        let (document, pointer) = self.find(uri)?;
        Some(At {
            document,
            pointer: pointer.to_owned(),
        })
    }

    fn find(&self, uri: &str) -> Option<(usize, &str)> {
        let own = self.own.as_ref();
        own.and_then(|own| Some((self.root, own.resources.get(uri)?.as_str())))
            .or_else(|| self.library.find(uri))
    }

    /// The library's part of this world for the compiler.
    pub(crate) fn registry(
        &self,
        documents: &[usize],
    ) -> Result<Held<'_>, jsonschema::ReferencingError> {
        self.library.registry(documents)
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
