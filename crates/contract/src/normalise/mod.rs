//! Removing trivial friction from the arguments of our own tools, where the meaning is certain.
//!
//! [`normalise`] renames field [`Aliases`], reads integer-like strings as numbers, and turns
//! `file://` URIs and untidy paths into plain ones, guided by the tool's input schema. It reports
//! what it did as [`Changes`]. [`resolve_method`] does the same for tool names.
//!
//! The rule throughout: what the schema accepts as it stands is not changed. `"00713"` stays a
//! string everywhere, and `"12"` becomes a number only where no string could be valid. The three
//! declared exceptions are a name listed as an alias, a string marked as a path, and a whole number
//! written as a fraction (`5.0`) where only integers are valid, which keeps its value.
//!
//! Deliberately absent: validation (it follows, and reports what is still wrong), defaults,
//! guessing of booleans, nulls or lists, and wrapped servers, whose arguments pass unchanged.

mod alias;
mod changes;
mod error;
mod method;
mod number;
mod path;
mod pointer;
mod schema;
mod walk;

use serde_json::Value;

pub use crate::uri::UriProblem;
pub use alias::{Aliases, usual_aliases};
pub use changes::{CHANGES_MAX_LISTED, Change, Changes, What};
pub use error::NormaliseError;
pub use method::{METHOD_MAX_BYTES, MethodAlias, Resolution, method_token, resolve_method};
pub use walk::DEPTH_MAX;

use schema::{Kinds, Schemas};

/// The value of `format` that marks a string as a path.
pub const PATH_FORMAT: &str = "path";

/// The schema keyword that marks a string as a path when it is `true`.
pub const PATH_MARKER: &str = "x-mainstay-path";

/// What a tool declares beside its schema.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules<'a> {
    /// Other names of the tool's arguments.
    pub aliases: Aliases<'a>,
}

/// Normalises `arguments` in place.
///
/// Doing it twice is the same as doing it once. Whatever is not an object, or lies deeper than
/// [`DEPTH_MAX`], is left alone.
///
/// # Errors
///
/// An alias that contradicts its canonical name, or a `file://` URI that names no local path. The
/// arguments may then be partly normalised and are good only for the error message.
pub fn normalise(
    arguments: &mut Value,
    schema: &Value,
    rules: &Rules<'_>,
) -> Result<Changes, NormaliseError> {
    let mut changes = Changes::default();
    let schemas = Schemas::new(schema);
    let tops = schemas.conjuncts(&[schema], Kinds::OBJECT);
    let declared = |name: &str| tops.iter().any(|top| schema::declares(top, name));
    rules.aliases.apply(arguments, declared, &mut changes)?;
    walk::apply(arguments, &schemas, &mut changes)?;
    Ok(changes)
}

#[cfg(test)]
mod tests;
