//! What the asset pack is configured with.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The settings, as the host hands them over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AssetSettings {
    /// Directory of `*.schema.json` files (`SYN_SCHEMAS_DIR`). Without one, listings are empty.
    pub schemas_dir: Option<PathBuf>,
}
