//! The documents of the schemas root, as references find them.
//!
//! A document goes by the URI of its file, and by its `$id` where it has one.

use std::path::Path;

use mainstay_schema::{DocumentsError, Limits, SchemaDocument, SchemaRegistry};
use mainstay_worker::{Json, Unable, uri, warn};
use serde_json::Value;

use crate::exact::Exact;

/// Documents that may be left out one by one for a name that is taken.
const MAX_LEFT_OUT: usize = 32;

/// One document that was read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) path: String,
    pub(crate) uri: String,
    pub(crate) schema: Value,
    /// True if it is served by name, or only referred to.
    pub(crate) is_listed: bool,
}

/// Reads a document, or says why it is none.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let json = Json::parse(text).map_err(|error| error.to_string())?;
    let value = Exact::parse(json.as_str()).and_then(|document| document.to_value());
    match value {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err("it is not a JSON object".to_owned()),
        Err(wrong) => Err(format!("at \"{}\": {}", wrong.path, wrong.message)),
    }
}

/// The URI of a root, with a slash at its end.
pub(crate) fn home(dir: &Path) -> String {
    let dir = std::fs::canonicalize(dir).or_else(|_| std::path::absolute(dir));
    let dir = dir.unwrap_or_default();
    let path = uri::encode_path(&dir.to_string_lossy());
    format!("file://{}/", path.trim_end_matches('/'))
}

/// The URI of a file below it.
pub(crate) fn uri(home: &str, path: &str) -> String {
    format!("{home}{}", uri::encode_path(path))
}

/// The registry of all documents. Two that are served under one name are refused; one that is only
/// referred to gives way.
pub(crate) fn registry(
    mut documents: Vec<Read>,
    max_violations: usize,
) -> Result<SchemaRegistry, Unable> {
    for _ in 0..MAX_LEFT_OUT {
        match build(&documents, max_violations) {
            Err(DocumentsError::DuplicateId {
                id,
                first_uri,
                second_uri,
            }) => {
                let place = |uri: &str| documents.iter().position(|document| document.uri == uri);
                let is_listed = |at: &usize| documents.get(*at).is_some_and(|read| read.is_listed);
                let (first, second) = (place(&first_uri), place(&second_uri));
                let path = |at: Option<usize>| {
                    let document = at.and_then(|at| documents.get(at));
                    document.map_or_else(|| "?".to_owned(), |document| document.path.clone())
                };
                let given_way = [second, first]
                    .into_iter()
                    .flatten()
                    .find(|at| !is_listed(at));
                let Some(at) = given_way else {
                    let (first, second) = (path(first), path(second));
                    return Err(Unable::new(format_args!(
                        "the schema files {first} and {second} have the same $id {id}; remove one"
                    )));
                };
                let left_out = documents.remove(at).path;
                warn(
                    "duplicate_id",
                    &format!("path={left_out} is left out: {id} is taken"),
                );
            }
            other => return other.map_err(Unable::new),
        }
    }
    documents.retain(|document| document.is_listed);
    warn(
        "duplicate_id",
        "no file below the schemas directory is referred to: too many share names",
    );
    build(&documents, max_violations).map_err(Unable::new)
}

fn build(documents: &[Read], max_violations: usize) -> Result<SchemaRegistry, DocumentsError> {
    let documents = documents.iter().map(|read| SchemaDocument {
        uri: read.uri.clone(),
        schema: read.schema.clone(),
    });
    let mut limits = Limits::DEFAULT;
    // Their texts share the room in proportion.
    limits.violation_bytes = limits.violation_bytes / limits.violations * max_violations;
    limits.violations = max_violations;
    SchemaRegistry::with_documents(limits, documents.collect())
}
