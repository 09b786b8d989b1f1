//! Public data that is not part of the project, and the files of these tests.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use mainstay_schema::SchemaDocument;
use serde_json::Value;

/// A folder of the public data, or `None` with a line that says so.
#[expect(
    clippy::disallowed_methods,
    reason = "tests are told where things are by their own environment"
)]
pub(crate) fn public(folder: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = env::var_os("MAINSTAY_TEST_DATA")
        .map_or_else(|| workspace.join("../shared/data"), PathBuf::from);
    let found = root.join(folder);
    if found.is_dir() {
        return Some(found);
    }
    eprintln!("skipped: no test data at {}", found.display());
    None
}

/// A folder beside this one.
pub(crate) fn own(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder)
}

/// Every JSON file under `folder`, by its path in there, sorted.
pub(crate) fn files(folder: &Path) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                let text = fs::read_to_string(&path).unwrap();
                let value = serde_json::from_str(&text).unwrap();
                let name = path.strip_prefix(folder).unwrap();
                found.push((name.to_str().unwrap().replace('\\', "/"), value));
            }
        }
    }
    found.sort_by(|left, right| left.0.cmp(&right.0));
    found
}

/// The documents of a root, as if it were at `base`.
pub(crate) fn documents(folder: &Path, base: &str) -> Vec<SchemaDocument> {
    files(folder)
        .into_iter()
        .map(|(name, schema)| SchemaDocument {
            uri: format!("{base}{name}"),
            schema,
        })
        .collect()
}
