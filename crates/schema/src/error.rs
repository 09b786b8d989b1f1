//! Why a schema cannot be used.

use jsonschema::{ReferencingError, ValidationError, error::ValidationErrorKind};

use crate::{document::Document, explain::first_finding, shorten};

/// A schema was refused. Pointers lead into the schema document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// It is not a valid schema of its draft.
    #[error("invalid schema at {}: {message}", place(.pointer))]
    Invalid { pointer: String, message: String },
    /// A reference leaves the document. It is not fetched.
    #[error("reference {} at {} is not available", shorten::quoted(.reference), place(.pointer))]
    RemoteReference { pointer: String, reference: String },
    /// A reference leads nowhere.
    #[error("reference {} at {} leads nowhere", shorten::quoted(.reference), place(.pointer))]
    BrokenReference { pointer: String, reference: String },
    /// `$schema` names a draft or vocabulary that is not known here.
    #[error("unknown schema dialect {}", shorten::quoted(.dialect))]
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
    /// The schema of a tool's input does not say `"type": "object"`.
    #[error("a tool's input schema must have the type \"object\"")]
    NotAnObject,
    /// The schema compiler gave up in a way it should not.
    #[error("schema could not be compiled")]
    Internal,
}

impl CompileError {
    pub(crate) fn new(document: &Document<'_>, error: &ValidationError<'_>) -> Self {
        match error.kind() {
            ValidationErrorKind::Referencing(reason) => Self::reference(document, reason),
            _ => {
                let (pointer, message) = first_finding(error);
                Self::Invalid { pointer, message }
            }
        }
    }

    fn reference(document: &Document<'_>, reason: &ReferencingError) -> Self {
        // The error names the target as resolved; what helps is the place and the text.
        let find = |target: &str| {
            let address = |text: &str| text.split('#').next().unwrap_or_default().to_owned();
            document
                .references()
                .into_iter()
                .filter(|found| document.resolve(&found.pointer, found.text).is_none())
                .find(|found| {
                    found.text.ends_with(target)
                        || (!address(found.text).is_empty()
                            && target.ends_with(&address(found.text)))
                })
                .map_or_else(
                    || (String::new(), target.to_owned()),
                    |found| (found.pointer, found.text.to_owned()),
                )
        };
        match reason {
            ReferencingError::Unretrievable { uri, .. } => {
                let (pointer, reference) = find(uri);
                Self::RemoteReference { pointer, reference }
            }
            ReferencingError::PointerToNowhere { pointer: target }
            | ReferencingError::InvalidPercentEncoding {
                pointer: target, ..
            }
            | ReferencingError::InvalidArrayIndex {
                pointer: target, ..
            }
            | ReferencingError::NoSuchAnchor { anchor: target }
            | ReferencingError::InvalidAnchor { anchor: target } => {
                let (pointer, reference) = find(target);
                Self::BrokenReference { pointer, reference }
            }
            ReferencingError::UnknownSpecification { specification }
            | ReferencingError::CircularMetaschema { uri: specification } => Self::UnknownDialect {
                dialect: specification.clone(),
            },
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
