//! Envelopes: answers that carry everything a platform needs to know about them.
//!
//! The result envelope ([`ResultEnvelope`]) answers `mcp.discover`, `mcp.tool.invoke` and REST; the
//! invocation envelopes ([`Invocation`], [`InvocationResponse`]) ask for one run of a tool and say
//! how it ended. All of them are projections of the same outcome. A request is read as strictly as
//! its published schema says: what is missing, unknown, of the wrong type or contradictory is
//! refused with its place. [`Ids`] names requests, [`redact`] keeps secrets out of what is written
//! down.
//!
//! Deliberately absent: clocks, randomness and the schemas themselves; those are handed in.

mod date_time;
mod fields;
mod ids;
pub mod log;
mod metadata;
pub mod redact;
mod request;
mod response;
mod result;

pub use self::date_time::is_date_time;
pub use self::fields::{FieldError, FieldErrorKind};
pub use self::ids::{Ids, NAMESPACE};
pub use self::metadata::{Asked, Meta, Route, Transport};
pub use self::request::{Auth, AuthType, Invocation, InvocationError, RefusedInvocation};
pub use self::response::{InvocationResponse, Timings};
pub use self::result::{EnvelopeError, ResultEnvelope};

use std::borrow::Cow;

use crate::error::ErrorKind;
use crate::json::Json;
use crate::outcome::{Forwarded, Outcome, Problem, Success};
use crate::scan;

/// The version of every envelope that we send.
pub const ENVELOPE_VERSION: &str = "1.0.0";

/// Prefix of canonical tool identifiers.
pub const TOOL_ID_PREFIX: &str = "mcp.tool:";

/// True if envelopes can name a tool so: letters, digits, `_`, `.`, `/` and `-`.
pub fn is_tool_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    !name.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte))
}

/// The name of the tool that a canonical identifier means.
pub fn tool_name(tool_id: &str) -> Option<&str> {
    tool_id
        .strip_prefix(TOOL_ID_PREFIX)
        .filter(|name| is_tool_name(name))
}

/// The content of an envelope: data, or a problem.
fn shown(outcome: &Outcome) -> Result<Json, Cow<'_, Problem>> {
    match outcome {
        Ok(Success::Tool(reply)) => Ok(reply.json.clone()),
        Ok(Success::Members(members)) => Ok(members.clone()),
        Ok(Success::Forwarded(Forwarded { line, is_error })) => {
            let part = |key| scan::member(line.as_str(), key).map(Json::from_scanned);
            let said = part("result").or_else(|| part("error"));
            let said = said.unwrap_or_else(Json::empty_object);
            if *is_error {
                let problem = Problem::of(ErrorKind::BackendError).with_details(said);
                Err(Cow::Owned(problem))
            } else {
                Ok(said)
            }
        }
        Err(problem) => Err(Cow::Borrowed(problem)),
    }
}
