//! The documents that references may lead to.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
};

use jsonschema::uri;
use serde_json::Value;

use crate::{
    CompileError, Fingerprint, Limits, bounds,
    document::{Document, absolute, is_absolute},
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
        Ok(Self {
            identities: documents.iter().map(|_| OnceLock::new()).collect(),
            documents,
            resources,
        })
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
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library")
            .field("documents", &self.documents.len())
            .finish_non_exhaustive()
    }
}

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
