//! Why arguments cannot be normalised.

use super::UriProblem;
use crate::json::push_pointer_part;

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
        /// The mistake in it.
        problem: UriProblem,
    },
}

impl NormaliseError {
    /// RFC 6901 pointer to the argument at fault.
    #[must_use]
    pub fn pointer(&self) -> String {
        match self {
            Self::AliasConflict { alias, .. } => pointer_to(alias),
            Self::FileUri { pointer, .. } => pointer.clone(),
        }
    }

    /// The error of a value, as one of the container that has it under this name or number.
    pub(super) fn within(self, part: &str) -> Self {
        match self {
            Self::FileUri { pointer, problem } => Self::FileUri {
                pointer: pointer_to(part) + &pointer,
                problem,
            },
            conflict @ Self::AliasConflict { .. } => conflict,
        }
    }
}

fn pointer_to(part: &str) -> String {
    let mut pointer = String::new();
    push_pointer_part(&mut pointer, part);
    pointer
}
