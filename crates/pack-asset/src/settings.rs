//! Settings of the asset pack.

use std::path::PathBuf;

use mainstay_worker::Unable;
use serde::{Deserialize, Serialize};

/// Most assets that a batch may be configured for; an answer must fit a worker's frame.
const MAX_BATCH: usize = 10_000;

/// The settings, as the host hands them over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AssetSettings {
    /// Directory of `*.schema.json` files (`SYN_SCHEMAS_DIR`). Without one, listings are empty.
    pub schemas_dir: Option<PathBuf>,
    /// Directory of `*.json` examples (`SYN_EXAMPLES_DIR`). Without one, listings are empty.
    pub examples_dir: Option<PathBuf>,
    /// Most assets in one `validate_many` (`MCP_MAX_BATCH`).
    pub max_batch: usize,
    /// Where assets are sent (`SYN_BACKEND_URL`). Without it `populate_backend` is disabled.
    pub backend_url: Option<String>,
    /// Path below it that takes new assets (`SYN_BACKEND_ASSETS_PATH`).
    pub backend_assets_path: String,
    /// PEM file of the authorities whose certificates an https backend may have. Without one, those
    /// of the system, else a built-in list.
    pub backend_ca_file: Option<PathBuf>,
    /// True if a client may ask for an asset to be sent unchecked (`MAINSTAY_ALLOW_UNVALIDATED`).
    pub allow_unvalidated: bool,
    /// Violations that a verdict lists: the host's `limits.violations`, not a setting of the pack.
    #[serde(skip)]
    pub max_violations: usize,
}

/// Violations that a verdict lists unless told otherwise.
const MAX_VIOLATIONS: usize = 100;

impl Default for AssetSettings {
    fn default() -> Self {
        Self {
            schemas_dir: None,
            examples_dir: None,
            max_batch: 100,
            backend_url: None,
            backend_assets_path: "/synesthetic-assets/".to_owned(),
            backend_ca_file: None,
            allow_unvalidated: false,
            max_violations: MAX_VIOLATIONS,
        }
    }
}

impl AssetSettings {
    /// Refuses a batch limit that cannot be kept.
    pub(crate) fn check(&self) -> Result<(), Unable> {
        if (1..=MAX_BATCH).contains(&self.max_batch) {
            return Ok(());
        }
        Err(Unable::new(format_args!(
            "max_batch is {}; set MCP_MAX_BATCH to a number from 1 to {MAX_BATCH}",
            self.max_batch
        )))
    }
}
