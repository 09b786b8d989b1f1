//! The schemas of a root, read once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use mainstay_worker::{Digest, Json, RootedDir, Unable, warn};
use serde_json::Value;

/// What the name of a schema file ends with.
const SUFFIX: &str = ".schema.json";

/// Largest schema file; larger ones could not be answered within a worker's frame.
const MAX_SCHEMA_BYTES: u64 = 4 * 1024 * 1024;

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
    pub(crate) text: Arc<str>,
    /// The document as one line, otherwise byte for byte.
    pub(crate) document: Json,
}

/// All schemas, sorted by name, version and path.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    list: Vec<Schema>,
}

impl Schemas {
    /// Reads every schema under `dir`. A file that is no JSON object is left out with a warning.
    pub(crate) fn load(dir: &Path) -> Result<Self, Unable> {
        let unable = |what: &str| {
            Unable::new(format_args!(
                "the schemas directory {} {what}; set SYN_SCHEMAS_DIR to a directory of \
                 *{SUFFIX} files, or unset it",
                dir.display()
            ))
        };
        let root = RootedDir::open(dir)
            .map_err(|error| unable(&format!("cannot be opened as a directory ({error})")))?
            .with_max_file_bytes(MAX_SCHEMA_BYTES);
        let entries = root
            .list("", false)
            .map_err(|error| unable(&format!("cannot be listed ({error})")))?;
        let mut list = Vec::new();
        for path in entries.into_iter().map(|entry| entry.path) {
            let Some(name) = path.strip_suffix(SUFFIX) else {
                continue;
            };
            match read(&root, name, &path) {
                Ok(schema) => list.push(schema),
                Err(why) => warn("broken_schema", &format!("path={path} {why}")),
            }
        }
        list.sort_by(|a, b| (&a.name, &a.version, &a.path).cmp(&(&b.name, &b.version, &b.path)));
        refuse_twins(&list)?;
        Ok(Self { list })
    }

    pub(crate) fn list(&self) -> &[Schema] {
        &self.list
    }

    /// A schema by its name, or by the path under which it is listed.
    pub(crate) fn find(&self, name_or_path: &str) -> Option<&Schema> {
        let named = self.list.iter().find(|schema| schema.name == name_or_path);
        named.or_else(|| self.list.iter().find(|schema| schema.path == name_or_path))
    }

    /// Names and bytes of all schemas in one fingerprint.
    pub(crate) fn fingerprint(&self) -> String {
        let digest = self.list.iter().fold(Digest::default(), |digest, schema| {
            digest
                .part(schema.path.as_bytes())
                .part(schema.text.as_bytes())
        });
        digest.hex()
    }
}

fn read(root: &RootedDir, name: &str, path: &str) -> Result<Schema, String> {
    let bytes = root.read(path).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    // Parsed for its version and to be sure of it; what is served is the text.
    let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if !value.is_object() {
        return Err("it is not a JSON object".to_owned());
    }
    let member = |key: &str| value.get(key).and_then(Value::as_str);
    let version = member("version")
        .or_else(|| member("x-schema-version"))
        .unwrap_or_default();
    Ok(Schema {
        name: name.to_owned(),
        version: version.to_owned(),
        path: path.to_owned(),
        document: Json::parse(&text).map_err(|error| error.to_string())?,
        text: text.into(),
    })
}

/// Two documents under one `$id` would make every reference to it ambiguous.
fn refuse_twins(list: &[Schema]) -> Result<(), Unable> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for schema in list {
        let document = schema.document.to_value().unwrap_or_default();
        let Some(id) = document.get("$id").and_then(Value::as_str) else {
            continue;
        };
        if let Some(first) = seen.insert(id.to_owned(), &schema.path) {
            let second = &schema.path;
            return Err(Unable::new(format_args!(
                "the schema files {first} and {second} have the same $id {id}; remove one"
            )));
        }
    }
    Ok(())
}
