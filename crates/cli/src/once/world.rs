//! The small world that a run looks at: the same bytes on every machine.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use mainstay_host::files;

/// Schemas, examples and code, in a folder that goes with it.
#[derive(Debug)]
pub(super) struct World {
    root: PathBuf,
}

const NOTE_SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$id": "https://mainstay.invalid/once/note.schema.json",
  "version": "1.0.0",
  "type": "object",
  "required": ["title"],
  "additionalProperties": false,
  "properties": {
    "title": { "type": "string", "minLength": 1 },
    "lines": { "type": "array", "items": { "type": "string" } }
  }
}
"#;
const NOTE: &str = "{\n  \"$schemaRef\": \"note.schema.json\",\n  \"title\": \"once\"\n}\n";
const CODE: &str = "/// Runs once.\npub fn once() -> u32 {\n    1\n}\n";
/// More than a worker may answer in this run.
const LONG: usize = 2000;

impl World {
    pub(super) fn make() -> io::Result<Self> {
        // A name that exists is an error: another user could have made the directory.
        let root = files::draft_of(&std::env::temp_dir().join("mainstay-once"));
        std::fs::DirBuilder::new().mode(0o700).create(&root)?;
        let world = Self { root };
        for (path, text) in [
            ("schemas/note.schema.json", NOTE_SCHEMA.to_owned()),
            ("examples/Note_Example.json", NOTE.to_owned()),
            ("examples/Note_Long.json", long()),
            ("code/src/lib.rs", CODE.to_owned()),
        ] {
            let path = world.root.join(path);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&path, text)?;
        }
        Ok(world)
    }

    pub(super) fn path(&self, of: &str) -> PathBuf {
        self.root.join(Path::new(of))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// A valid note that is too long to be answered.
fn long() -> String {
    let line = "\"a line that is neither short nor long, as most lines are\"";
    let lines = vec![line; LONG].join(",");
    format!("{{\"$schemaRef\":\"note.schema.json\",\"title\":\"long\",\"lines\":[{lines}]}}\n")
}
