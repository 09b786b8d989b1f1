//! stub
use serde::{Deserialize, Serialize};
/// Mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RenderMode {
    #[default]
    Porcelain,
    Json,
}
