//! True if a document is a valid schema of its draft.
//!
//! `jsonschema` asks this of the document it compiles, but not of those it refers to,
//! and then reports their mistakes without a place, or not at all.

use jsonschema::{Draft, ValidationError};
use serde_json::{Value, json};

use crate::CompileError;

/// Checks `root`. Each of `embedded`, sorted by pointer, is a resource in a draft of
/// its own and is checked against that.
pub(crate) fn check(
    root: &Value,
    draft: Draft,
    embedded: &[(&str, Draft)],
) -> Result<(), CompileError> {
    if embedded.is_empty() {
        return against(draft, root, "");
    }
    let mut rest = root.clone();
    // The innermost first, so that each is checked without what is inside it.
    for (pointer, draft) in embedded.iter().rev() {
        let Some(place) = rest.pointer_mut(pointer) else {
            continue;
        };
        let part = std::mem::replace(place, json!({}));
        against(*draft, &part, pointer)?;
    }
    against(draft, &rest, "")
}

fn against(draft: Draft, schema: &Value, place: &str) -> Result<(), CompileError> {
    let validate: fn(&Value) -> Result<(), ValidationError<'_>> = match draft {
        Draft::Draft4 => jsonschema::draft4::meta::validate,
        Draft::Draft6 => jsonschema::draft6::meta::validate,
        Draft::Draft7 => jsonschema::draft7::meta::validate,
        Draft::Draft201909 => jsonschema::draft201909::meta::validate,
        _ => jsonschema::draft202012::meta::validate,
    };
    validate(schema).map_err(|error| match CompileError::invalid(&error) {
        CompileError::Invalid { pointer, message } => CompileError::Invalid {
            pointer: format!("{place}{pointer}"),
            message,
        },
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_resource_is_checked_against_its_own_draft() {
        let schema = json!({
            "items": {"$id": "a", "items": [{"$id": "b", "prefixItems": [{}]}]},
        });
        let (a, b) = ("/items", "/items/items/0");
        let check = |embedded: &[(&str, Draft)]| check(&schema, Draft::Draft202012, embedded);
        assert_eq!(
            check(&[(a, Draft::Draft7), (b, Draft::Draft202012)]),
            Ok(())
        );
        assert!(matches!(
            check(&[(a, Draft::Draft202012)]),
            Err(CompileError::Invalid { pointer, .. }) if pointer == "/items/items"
        ));
        assert!(check(&[]).is_err());
    }
}
