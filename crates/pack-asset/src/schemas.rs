//! The schemas of a root, read once, and what validates by them.

use std::collections::BTreeMap;
use std::path::Path;

use mainstay_schema::{SchemaRegistry, Validator, Violation};
use mainstay_worker::{Json, Unable, render, warn};
use serde_json::Value;

use crate::exact::{Exact, Kind};
use crate::naming;
use crate::roots::{self, Root};

/// What the name of a schema file ends with.
const SUFFIX: &str = ".schema.json";

/// One schema.
#[derive(Debug)]
pub(crate) struct Schema {
    /// The file's name without its ending.
    pub(crate) name: String,
    /// `version` or `x-schema-version` of the document, else empty.
    pub(crate) version: String,
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
    /// What validates by it, or why nothing can.
    validator: Result<Validator, String>,
}

impl Schema {
    /// The document as one line, otherwise byte for byte.
    pub(crate) fn document(&self) -> Json {
        Json::from_scanned(self.text.trim())
    }
}

/// All schemas, sorted by name, version and path.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    list: Vec<Schema>,
    /// Files that are no schema, by name, and why.
    broken: BTreeMap<String, String>,
    fingerprint: String,
}
