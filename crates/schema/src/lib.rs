//! Validity: compiled JSON Schemas, and violations people can act on.
//!
//! [`SchemaRegistry::compile`] turns a schema document into a [`Validator`]; equal
//! documents share one compiled state, found by [`Fingerprint`]. [`Validator::check`]
//! says what is wrong with a value as a sorted list of [`Violation`]s with our own,
//! stable messages. [`ToolValidators`] holds the pair a tool needs, and
//! [`ToolIOValidators`] checks whole messages to and from one, by the schemas that are
//! published with this crate ([`PUBLISHED_SCHEMAS`]). [`check`] holds the checks around a
//! call, with a bound on their cost. [`lock`] keeps what tools promised
//! and says which changes ask for a higher version.
//!
//! Everything is bounded by [`Limits`]: the size and depth of a schema, the work one
//! value can cause, the number and length of violations. Documents are handed in
//! ([`SchemaRegistry::with_documents`]); this crate reads no file and opens no
//! connection, and a `$ref` that leads to none of them is an error, except to the
//! published meta-schemas, which are built in.

mod bounds;
pub mod check;
mod compile;
mod dialect;
mod document;
mod error;
mod explain;
mod fingerprint;
mod keywords;
mod library;
mod limits;
mod link;
pub mod lock;
mod messages;
mod meta;
mod patterns;
mod published;
mod shorten;
mod suggest;
mod tool;
mod tool_id;
mod tool_io;
mod violation;
mod ways;
mod world;

pub use compile::{SchemaRegistry, Validator, Verdict};
pub use error::CompileError;
pub use fingerprint::{Fingerprint, ParseFingerprintError};
pub use library::{DocumentsError, SchemaDocument};
pub use limits::{Cheap, Limits};
pub use mainstay_contract::canonical::canonical_json;
pub use published::PUBLISHED_SCHEMAS;
pub use tool::{ToolPart, ToolSchemaError, ToolValidators};
pub use tool_id::{ParseToolIdError, ToolId};
pub use tool_io::{ToolIOValidators, ToolIoError};
pub use violation::{Violation, Violations};
