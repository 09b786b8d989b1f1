//! Why a schema cannot be used.

use jsonschema::{ReferencingError, ValidationError, error::ValidationErrorKind};

use crate::{
    Limits,
    explain::first_finding,
    link::Linked,
    shorten,
    world::{Lost, Reached, World},
};

/// A schema was refused. Pointers lead into the schema document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// It is not a valid schema of its draft.
    #[error("invalid schema at {}: {message}", place(.pointer))]
    Invalid { pointer: String, message: String },
    /// A reference leads to no document that is known. Nothing is fetched.
    #[error(
        "reference {} at {} is not available; nothing is fetched, so put its target into a schema \
         root, or correct it",
        shorten::quoted(.reference), place(.pointer)
    )]
    RemoteReference { pointer: String, reference: String },
    /// The document a reference names has no such place or anchor.
    #[error("reference {} at {} leads nowhere", shorten::quoted(.reference), place(.pointer))]
    BrokenReference { pointer: String, reference: String },
    /// `$schema` names a draft or vocabulary that is not known here.
    #[error(
        "unknown schema dialect {}; name a published draft, or put its meta-schema into a schema root",
        shorten::quoted(.dialect)
    )]
    UnknownDialect { dialect: String },
    /// It is nested too deeply.
    #[error("schema is nested more than {limit} levels deep")]
    TooDeep { limit: usize },
    /// It holds too many values.
    #[error("schema holds more than {limit} values")]
    TooLarge { limit: usize },
    /// Its references and alternatives multiply beyond what a check may cost.
    #[error("schema at {} asks for too much work", place(.pointer))]
    TooMuchWork { pointer: String },
    /// Another document that the schema refers to cannot be used.
    #[error("in {}: {reason}", shorten::quoted(.uri))]
    InDocument {
        uri: String,
        reason: Box<CompileError>,
    },
    /// No document goes by that URI or `$id`.
    #[error("no schema document is called {}", shorten::quoted(.uri))]
    UnknownDocument { uri: String },
    /// Two schemas within the document have the same `$id`.
    #[error("{} is the \"$id\" of two schemas, the second at {}", shorten::quoted(.id), place(.pointer))]
    DuplicateId { id: String, pointer: String },
    /// The schema of a tool's input does not say `"type": "object"`.
    #[error("a tool's input schema must have the type \"object\"")]
    NotAnObject,
    /// The schema compiler gave up in a way it should not.
    #[error("schema could not be compiled")]
    Internal,
}

impl CompileError {
    pub(crate) fn too_deep(limits: &Limits) -> Self {
        Self::TooDeep {
            limit: limits.schema_depth,
        }
    }

    pub(crate) fn new(
        world: &World,
        reach: &Reached,
        linked: &Linked,
        error: &ValidationError<'_>,
    ) -> Self {
        if let ValidationErrorKind::Referencing(reason) = error.kind() {
            return Self::reference(world, reach, reason);
        }
        let (pointer, message) = first_finding(error);
        match linked.origin(&pointer) {
            Some(at) => {
                let pointer = at.pointer;
                world.placed(at.document, Self::Invalid { pointer, message })
            }
            None => Self::Invalid { pointer, message },
        }
    }

    pub(crate) fn invalid(error: &ValidationError<'_>) -> Self {
        let (pointer, message) = first_finding(error);
        Self::Invalid { pointer, message }
    }

    fn reference(world: &World, reach: &Reached, reason: &ReferencingError) -> Self {
        // The error names the target as resolved; what helps is the place and the text.
        let find = |kind: Lost, target: &str| {
            let found = reach.lost.iter().find(|(_, _, lost)| *lost == kind);
            let unknown = || (world.root(), target.to_owned(), kind);
            world.lost(&found.cloned().unwrap_or_else(unknown))
        };
        match reason {
            ReferencingError::Unretrievable { uri, .. } => find(Lost::Address, uri),
            ReferencingError::PointerToNowhere { pointer: target }
            | ReferencingError::InvalidPercentEncoding {
                pointer: target, ..
            }
            | ReferencingError::InvalidArrayIndex {
                pointer: target, ..
            }
            | ReferencingError::NoSuchAnchor { anchor: target }
            | ReferencingError::InvalidAnchor { anchor: target } => find(Lost::Place, target),
            ReferencingError::UnknownSpecification { specification }
            | ReferencingError::CircularMetaschema { uri: specification } => {
                find(Lost::Dialect, specification)
            }
            ReferencingError::InvalidUri(_) => Self::Invalid {
                pointer: String::new(),
                message: "holds an invalid URI".to_owned(),
            },
        }
    }
}

fn place(pointer: &str) -> String {
    if pointer.is_empty() {
        "its root".to_owned()
    } else {
        shorten::quoted(pointer)
    }
}
