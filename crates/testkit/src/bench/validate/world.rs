//! The documents of one measurement: the schemas of a root, and assets, sound and damaged.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

/// Leaves of an asset that are damaged.
const DAMAGED: usize = 6;

/// What the name of a schema ends with.
const SUFFIX: &str = ".schema.json";

/// A root and the assets that are validated by one of its schemas.
pub(super) struct World {
    pub(super) name: &'static str,
    /// The folder of its schemas.
    pub(super) schemas: PathBuf,
    pub(super) documents: Vec<Document>,
    /// The schema of all assets, by its name as a tool and by its address.
    pub(super) schema: String,
    pub(super) uri: String,
    pub(super) cases: Vec<Case>,
}

pub(super) struct Document {
    /// Its `$id`.
    pub(super) uri: String,
    pub(super) schema: Value,
    /// Whether the root lists it; the others are only referred to.
    pub(super) is_listed: bool,
}

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) is_valid: bool,
    pub(super) assets: Vec<Value>,
}

impl World {
    /// Reads the folders `jsonschema` and `examples` below `root`.
    pub(super) fn read(
        name: &'static str,
        root: &Path,
        schema: &str,
        examples: &[&str],
    ) -> anyhow::Result<Self> {
        let schemas = root.join("jsonschema").canonicalize()?;
        let mut documents = Vec::new();
        read_below(&schemas, true, &mut documents)?;
        documents.sort_by(|a: &Document, b: &Document| a.uri.cmp(&b.uri));
        let ending = format!("/{schema}{SUFFIX}");
        let main = documents
            .iter()
            .find(|document| document.uri.ends_with(&ending))
            .with_context(|| format!("no schema {schema}"))?;
        let uri = main.uri.clone();
        let mut sound = Vec::new();
        for example in examples {
            let mut asset = parse(&root.join("examples").join(example))?;
            // As the tool does it before it validates.
            if let Some(members) = asset.as_object_mut() {
                members.shift_remove("$schemaRef");
            }
            sound.push(asset);
        }
        let damaged = sound.iter().map(damaged).collect();
        let case = |name, is_valid, assets| Case {
            name,
            is_valid,
            assets,
        };
        Ok(Self {
            name,
            schemas,
            documents,
            schema: schema.to_owned(),
            uri,
            cases: vec![case("valid", true, sound), case("damaged", false, damaged)],
        })
    }
}

fn read_below(folder: &Path, is_root: bool, documents: &mut Vec<Document>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            read_below(&path, false, documents)?;
            continue;
        }
        let schema = parse(&path)?;
        let uri = schema.get("$id").and_then(Value::as_str);
        let uri = uri.with_context(|| format!("{} has no $id", path.display()))?;
        documents.push(Document {
            uri: uri.to_owned(),
            is_listed: is_root && path.to_string_lossy().ends_with(SUFFIX),
            schema,
        });
    }
    Ok(())
}

fn parse(path: &Path) -> anyhow::Result<Value> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let value = serde_json::from_slice(&bytes);
    value.with_context(|| format!("{} is no JSON", path.display()))
}

/// The same asset with a few of its leaves, evenly spread, replaced by an object.
fn damaged(asset: &Value) -> Value {
    let mut leaves = Vec::new();
    collect(asset, String::new(), &mut leaves);
    let mut damaged = asset.clone();
    for number in 0..DAMAGED.min(leaves.len()) {
        let at = (number * 2 + 1) * leaves.len() / (DAMAGED * 2);
        let leaf = leaves.get(at).and_then(|path| damaged.pointer_mut(path));
        if let Some(leaf) = leaf {
            *leaf = json!({"damaged": true});
        }
    }
    damaged
}

/// The pointers of everything that is no container.
fn collect(value: &Value, path: String, leaves: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect(member, format!("{path}/{name}"), leaves);
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                collect(element, format!("{path}/{index}"), leaves);
            }
        }
        _ => leaves.push(path),
    }
}

/// A call of `validate_asset` for each asset of a case, as lines.
pub(super) fn calls(world: &World, case: &Case) -> anyhow::Result<Vec<Vec<u8>>> {
    ensure!(!case.assets.is_empty(), "a case without assets");
    let line = |asset: &Value| {
        let arguments = json!({"asset": asset, "schema": world.schema});
        let params = json!({"name": "validate_asset", "arguments": arguments});
        let call = json!({"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": params});
        format!("{call}\n").into_bytes()
    };
    Ok(case.assets.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_hits_six_leaves_and_leaves_the_rest() {
        let asset =
            json!({"a/b": [1, 2, {"c": "x"}], "d": {"e": true, "f": null, "g": 1.5}, "h": 0});
        let mut leaves = Vec::new();
        collect(&asset, String::new(), &mut leaves);
        assert_eq!(leaves[..3], ["/a~1b/0", "/a~1b/1", "/a~1b/2/c"]);
        assert_eq!(leaves.len(), 7);
        let after = damaged(&asset);
        let hit = |path: &&String| after.pointer(path) == Some(&json!({"damaged": true}));
        assert_eq!(leaves.iter().filter(hit).count(), DAMAGED);
    }
}
