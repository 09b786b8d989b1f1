//! What the code pack is started with.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of the code pack, filled by the command line.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodeSettings {
    /// The repositories of the workspace.
    pub roots: Vec<RootSetting>,
    /// Where indexes are kept; one folder for each root.
    pub cache_dir: Option<PathBuf>,
    /// Also index hidden files and directories (never `.git`).
    pub hidden: bool,
    /// Do not respect ignore files.
    pub no_ignore: bool,
    /// Files over this many bytes are skipped; 4 MiB when unset.
    pub max_file_bytes: Option<u64>,
    /// Do not watch directories: every call that needs to know sweeps the tree instead.
    pub no_watch: bool,
    /// Do not build the symbol layer.
    pub no_symbols: bool,
    /// Compare words instead of vectors in ranked search.
    pub no_vectors: bool,
    /// Bytes of all indexes together, past which those unused longest are removed.
    pub cache_bytes: Option<u64>,
}

/// One repository.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootSetting {
    pub path: PathBuf,
    /// Name under which calls address it; the last part of its path when unset.
    #[serde(default)]
    pub alias: Option<String>,
}

impl RootSetting {
    /// A root without a name of its own.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            alias: None,
        }
    }
}
