//! Removing trivial friction from the arguments of our own tools, where the meaning is certain.
//!
//! [`normalise`] renames aliases of arguments, reads integer-like strings as numbers, and turns
//! `file://` URIs and untidy paths into plain ones, guided by the tool's input schema.
//! [`resolve_method`] does the same for tool names.
//!
//! The rule throughout: what the schema accepts as it stands is not changed. `"00713"` stays a
//! string everywhere, and `"12"` becomes a number only where no string could be valid. The three
//! declared exceptions are a name listed as an alias, a string marked as a path, and a whole number
//! written as a fraction (`5.0`) where only integers are valid, which keeps its value.
//!
//! Deliberately absent: validation (it follows, and reports what is still wrong), defaults,
//! guessing of booleans, nulls or lists, and wrapped servers, whose arguments pass unchanged.

mod alias;
mod error;
mod method;
mod number;
mod path;
mod schema;
mod walk;

use serde_json::Value;

pub use crate::uri::UriProblem;
pub use alias::usual_aliases;
pub use error::NormaliseError;
pub use method::{METHOD_MAX_BYTES, Resolution, method_token, resolve_method};
pub use walk::DEPTH_MAX;

use schema::{Kinds, Schemas};

/// The value of `format` that marks a string as a path.
pub const PATH_FORMAT: &str = "path";

/// The schema keyword that marks a string as a path when it is `true`.
pub const PATH_MARKER: &str = "x-mainstay-path";

/// Normalises `arguments` in place. `aliases` are pairs of another name and the schema's name, for the
/// arguments themselves, not for nested objects. True if anything was changed.
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
    aliases: &[(&str, &str)],
) -> Result<bool, NormaliseError> {
    let schemas = Schemas::new(schema);
    let tops = schemas.conjuncts(&[schema], Kinds::OBJECT);
    let declared = |name: &str| tops.iter().any(|top| schema::declares(top, name));
    let renamed = alias::apply(aliases, arguments, declared)?;
    let rewritten = walk::apply(arguments, &schemas)?;
    Ok(renamed || rewritten)
}

#[cfg(test)]
mod tests;
