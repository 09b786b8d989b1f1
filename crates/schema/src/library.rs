//! The documents that references may lead to.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock, OnceLock},
};

use jsonschema::{Registry, uri};
use serde_json::{Value, json};

use crate::{
    CompileError, Fingerprint, Limits, bounds,
    document::{Document, absolute, is_absolute},
    keywords::references,
    shorten,
};

/// A document of a root: where it was loaded from, and what it says.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemaDocument {
    /// An absolute URI, such as `file:///roots/colour.schema.json`.
    pub uri: String,
    /// The document.
    pub schema: Value,
}

/// A set of documents was refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentsError {
    /// Two documents, or schemas within them, go by one name.
    #[error(
        "{} is the name of two schemas, in {} and in {}; give one of them another \"$id\"",
        shorten::quoted(.id), shorten::quoted(.first_uri), shorten::quoted(.second_uri)
    )]
    DuplicateId {
        id: String,
        first_uri: String,
        second_uri: String,
    },
    /// A document's URI is not absolute, or none at all.
    #[error("{} is not an absolute URI; name documents as in \"file:///roots/a.json\"", shorten::quoted(.uri))]
    InvalidUri { uri: String },
    /// There are too many documents.
    #[error("more than {limit} schema documents; serve fewer, or split the roots")]
    TooMany { limit: usize },
    /// The documents hold too many values together.
    #[error("the schema documents hold more than {limit} values together; serve fewer")]
    TooLarge { limit: usize },
}

/// The identity of a document: what it says, and where it was loaded from if that
/// makes a difference.
pub(crate) type Identity = (Fingerprint, Option<String>);

/// Documents and the names they go by. They never change.
#[derive(Default)]
pub(crate) struct Library {
    pub(crate) documents: Vec<Document>,
    /// The document and the pointer of every resource, by each URI it has.
    resources: HashMap<String, (usize, String)>,
    identities: Vec<OnceLock<Identity>>,
    /// Whether every reference of a document leads to a sound document.
    sound: Vec<bool>,
    /// All sound documents, ready for the compiler.
    registry: OnceLock<Option<Registry<'static>>>,
}

impl Library {
    pub(crate) fn new(
        documents: Vec<SchemaDocument>,
        limits: &Limits,
    ) -> Result<Self, DocumentsError> {
        if documents.len() > limits.documents {
            let limit = limits.documents;
            return Err(DocumentsError::TooMany { limit });
        }
        let mut left = limits.document_values;
        let mut named = Vec::with_capacity(documents.len());
        for SchemaDocument { uri, schema } in documents {
            let Some(uri) = normal(&uri) else {
                return Err(DocumentsError::InvalidUri { uri });
            };
            // One that is too deep to be counted will never be looked into either.
            if bounds::check_size(&schema, limits) != Err(CompileError::too_deep(limits)) {
                let limit = limits.document_values;
                let rest = left.checked_sub(bounds::values(&schema));
                left = rest.ok_or(DocumentsError::TooLarge { limit })?;
            }
            named.push((uri, Arc::new(schema)));
        }
        let mut roots: HashMap<String, &Value> = HashMap::new();
        for (uri, schema) in &named {
            roots.insert(uri.clone(), schema);
            if let Some(id) = schema.get("$id").and_then(Value::as_str) {
                let id = absolute(uri, id.trim_end_matches('#'));
                roots.extend(id.map(|id| (id, &**schema)));
            }
        }
        let root = |uri: &str| roots.get(uri).copied();
        let documents: Vec<_> = named
            .iter()
            .map(|(uri, schema)| Document::new(uri.clone(), Arc::clone(schema), &root, limits))
            .collect();
        let resources = merged(&documents)?;
        let mut library = Self {
            identities: documents.iter().map(|_| OnceLock::new()).collect(),
            sound: Vec::new(),
            documents,
            resources,
            registry: OnceLock::new(),
        };
        library.link();
        library.sound = library.soundness();
        Ok(library)
    }

    /// The document and the pointer of the resource with this URI.
    pub(crate) fn find(&self, uri: &str) -> Option<(usize, &str)> {
        let (document, pointer) = self.resources.get(uri)?;
        Some((*document, pointer))
    }

    /// The document that goes by `name`, in any spelling of it.
    pub(crate) fn document(&self, name: &str) -> Option<usize> {
        let found = self.find(name).or_else(|| self.find(&normal(name)?));
        found.and_then(|(document, pointer)| pointer.is_empty().then_some(document))
    }

    /// Why a document can never be used, if it cannot.
    pub(crate) fn excess(&self, document: usize) -> Option<&CompileError> {
        self.documents.get(document)?.excess.as_ref()
    }

    pub(crate) fn identity(&self, document: usize) -> Option<&Identity> {
        let identity = self.identities.get(document)?;
        let document = self.documents.get(document)?;
        Some(identity.get_or_init(|| {
            let place = document.depends_on_uri().then(|| document.uri.clone());
            (Fingerprint::of(&document.root), place)
        }))
    }

    /// The whole document that goes by this URI.
    pub(crate) fn root(&self, uri: &str) -> Option<&Value> {
        let (document, pointer) = self.find(uri)?;
        let document = self.documents.get(document)?;
        pointer.is_empty().then_some(&*document.root)
    }

    /// A registry of the compiler with at least these documents.
    pub(crate) fn registry(
        &self,
        documents: &[usize],
    ) -> Result<Held<'_>, jsonschema::ReferencingError> {
        let sound = |document: &usize| self.sound.get(*document) == Some(&true);
        if documents.iter().all(sound) {
            let shared = self.registry.get_or_init(|| {
                let all = (0..self.documents.len()).filter(sound);
                self.prepare(all).ok()
            });
            if let Some(shared) = shared {
                return Ok(Held::Shared(shared));
            }
        }
        self.prepare(documents.iter().copied())
            .map(|own| Held::Own(Box::new(own)))
    }

    fn prepare(
        &self,
        documents: impl Iterator<Item = usize>,
    ) -> Result<Registry<'static>, jsonschema::ReferencingError> {
        let documents = documents
            .filter_map(|document| self.documents.get(document))
            .map(|document| (document.home(), Arc::clone(&document.linked)));
        match META_SCHEMAS.as_ref() {
            Some(base) => base.extend(documents)?.prepare(),
            None => Registry::new().extend(documents)?.prepare(),
        }
    }

    fn link(&mut self) {
        let mut documents = std::mem::take(&mut self.documents);
        // Each needs only the names of the others.
        let names: HashMap<String, String> = self
            .resources
            .iter()
            .filter_map(|(uri, (document, pointer))| {
                let base = documents.get(*document)?.base(pointer);
                (base != uri).then(|| (uri.clone(), base.to_owned()))
            })
            .collect();
        for document in &mut documents {
            document.link(|uri| names.get(uri).cloned());
        }
        self.documents = documents;
    }

    fn soundness(&self) -> Vec<bool> {
        let mut sound = Vec::with_capacity(self.documents.len());
        let mut referrers: Vec<Vec<usize>> = vec![Vec::new(); self.documents.len()];
        for (number, document) in self.documents.iter().enumerate() {
            let mut complete = document.excess.is_none() && document.twin.is_none();
            for (pointer, schema) in document.schemas() {
                let dialect = document.dialect(&pointer);
                let meta_schema = dialect.derived.then(|| normal(&dialect.uri));
                let targets = references(schema, dialect.draft).map(|(_, text)| {
                    let target = document.target(&pointer, text);
                    target.map(|(uri, _)| uri)
                });
                for target in targets.chain(meta_schema.map(Some)) {
                    match target.map(|uri| uri.map(|uri| self.find(&uri).ok_or(uri))) {
                        Some(None) => {}
                        Some(Some(Ok((other, _)))) => {
                            if let Some(referrers) = referrers.get_mut(other) {
                                referrers.push(number);
                            }
                        }
                        Some(Some(Err(uri))) => complete &= is_bundled(&uri),
                        None => complete = false,
                    }
                }
            }
            sound.push(complete);
        }
        let mut queue: Vec<usize> = (0..sound.len())
            .filter(|number| sound.get(*number) == Some(&false))
            .collect();
        while let Some(number) = queue.pop() {
            for referrer in referrers
                .get_mut(number)
                .map(std::mem::take)
                .unwrap_or_default()
            {
                if let Some(still) = sound.get_mut(referrer).filter(|still| **still) {
                    *still = false;
                    queue.push(referrer);
                }
            }
        }
        sound
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library")
            .field("documents", &self.documents.len())
            .finish_non_exhaustive()
    }
}

/// A registry of the compiler, shared or made for one schema.
pub(crate) enum Held<'a> {
    Shared(&'a Registry<'static>),
    Own(Box<Registry<'static>>),
}

impl Held<'_> {
    pub(crate) fn get(&self) -> &Registry<'static> {
        match self {
            Self::Shared(registry) => registry,
            Self::Own(registry) => registry,
        }
    }
}

/// Whether the document with this URI is a published meta-schema.
pub(crate) fn is_bundled(uri: &str) -> bool {
    META_SCHEMAS
        .as_ref()
        .is_some_and(|registry| registry.contains_resource(uri))
}

/// All published meta-schemas. `jsonschema` brings them, but registers only those of
/// the document's own draft, unless some document is written in one of their parts.
pub(crate) static META_SCHEMAS: LazyLock<Option<Registry<'static>>> = LazyLock::new(|| {
    let opener = json!({"$schema": "https://json-schema.org/draft/2020-12/meta/core"});
    let registry = Registry::new().add("mainstay:///meta-schemas", opener);
    registry.ok()?.prepare().ok()
});

/// An absolute URI without a fragment, in its normal form.
pub(crate) fn normal(text: &str) -> Option<String> {
    let text = text.trim_end_matches('#');
    if !is_absolute(text) || text.contains('#') {
        return None;
    }
    uri::from_str(text).ok().map(|uri| uri.as_str().to_owned())
}

fn merged(documents: &[Document]) -> Result<HashMap<String, (usize, String)>, DocumentsError> {
    let mut resources: HashMap<String, (usize, String)> = HashMap::new();
    for (number, document) in documents.iter().enumerate() {
        for (uri, pointer) in &document.resources {
            let place = (number, pointer.clone());
            if let Some((first, _)) = resources.insert(uri.clone(), place) {
                let first = documents.get(first);
                return Err(DocumentsError::DuplicateId {
                    id: uri.clone(),
                    first_uri: first.map(|first| first.uri.clone()).unwrap_or_default(),
                    second_uri: document.uri.clone(),
                });
            }
        }
    }
    Ok(resources)
}
