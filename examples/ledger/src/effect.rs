//! Effects: what the file holds, one line each.

use serde::{Deserialize, Serialize};

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Effect {
    Append { text: String },
    Put { key: String, value: String },
    Transfer(Transfer),
}

/// A movement between two accounts, under an id that the client chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) id: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) amount: u32,
}
