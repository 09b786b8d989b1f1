//! Why arguments cannot be normalised.

use super::UriProblem;
use super::pointer::Pointer;

/// Arguments whose meaning is not certain. `Display` is the message; the place is
/// [`NormaliseError::pointer`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NormaliseError {
    /// Both names of one argument were given, with different values.
    #[error("`{alias}` is another name of `{canonical}`, and the two differ")]
    AliasConflict {
        /// The name that was given beside the canonical one.
        alias: String,
        /// The name in the schema.
        canonical: String,
    },
    /// A `file://` URI that names no local path.
    #[error("not a usable file URI: {problem}")]
    FileUri {
        /// RFC 6901 pointer to the argument.
        pointer: String,
        /// What is wrong with it.
        problem: UriProblem,
    },
}

impl NormaliseError {
    /// RFC 6901 pointer to the argument at fault.
    #[must_use]
    pub fn pointer(&self) -> String {
        match self {
            Self::AliasConflict { alias, .. } => Pointer::to_field(alias),
            Self::FileUri { pointer, .. } => pointer.clone(),
        }
    }
}
