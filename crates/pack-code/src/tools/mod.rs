//! The six tools.

pub(crate) mod answer;
pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod map;
pub(crate) mod search;
pub(crate) mod search_reply;
pub(crate) mod search_spec;
pub(crate) mod show;
pub(crate) mod status;

use mainstay_worker::{ErrorKind, Problem};
use serde_json::{Value, json};

/// An object with these members, of which `required` must be there.
#[expect(
    clippy::needless_pass_by_value,
    reason = "every caller makes it on the spot"
)]
pub(crate) fn object(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    })
}

pub(crate) fn text() -> Value {
    json!({"type": "string"})
}

pub(crate) fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

/// The `repo` argument of a tool that works on one.
pub(crate) fn repo_argument() -> Value {
    json!({
        "type": "string", "minLength": 1,
        "description": "Alias; needed only if there are several.",
    })
}

pub(crate) fn internal(error: &crate::store::StoreError) -> Problem {
    Problem::new(
        ErrorKind::Internal,
        format!(
            "the index cannot be read: {}",
            crate::build::describe(error)
        ),
    )
    .with_hint(
        "it is built anew in the background; repeat the call, or run index_build with mode full",
    )
}
