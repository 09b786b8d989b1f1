//! What a run asks for, always in this order: the catalog, the health, a success of each kind of
//! tool, and one failure for each canonical code.

use mainstay_contract::error::CanonicalError;

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) asks: Asks,
    /// The canonical code that must come back; none for a success.
    pub(super) fails: Option<CanonicalError>,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asks {
    Catalog,
    Health,
    Tool {
        name: &'static str,
        arguments: &'static str,
        /// Whether the token is shown.
        is_known: bool,
    },
}

const fn tool(step: &'static str, name: &'static str, arguments: &'static str) -> Step {
    Step {
        name: step,
        asks: Asks::Tool {
            name,
            arguments,
            is_known: true,
        },
        fails: None,
    }
}

const fn failing(step: Step, code: CanonicalError) -> Step {
    Step {
        fails: Some(code),
        ..step
    }
}

/// All of them.
pub(super) const STEPS: &[Step] = &[
    Step {
        name: "discover",
        asks: Asks::Catalog,
        fails: None,
    },
    Step {
        name: "health",
        asks: Asks::Health,
        fails: None,
    },
    tool("list", "list_schemas", "{}"),
    tool("read", "get_schema", r#"{"name":"note"}"#),
    tool("example", "get_example", r#"{"path":"Note_Example.json"}"#),
    tool(
        "validate",
        "validate_asset",
        r#"{"schema":"note","asset":{"title":"once"}}"#,
    ),
    tool(
        "verdict",
        "validate_asset",
        r#"{"schema":"note","asset":{"title":""}}"#,
    ),
    tool(
        "batch",
        "validate_many",
        r#"{"schema":"note","assets":[{"title":"a"},{}]}"#,
    ),
    tool(
        "diff",
        "diff_assets",
        r#"{"base":{"title":"a"},"new":{"title":"b"}}"#,
    ),
    tool("code", "show_file", r#"{"path":"src/lib.rs"}"#),
    failing(
        tool("invalid-input", "validate_asset", r#"{"schema":1}"#),
        CanonicalError::InvalidInput,
    ),
    failing(
        tool("not-found", "get_schema", r#"{"name":"nowhere"}"#),
        CanonicalError::NotFound,
    ),
    failing(
        Step {
            name: "unauthorized",
            asks: Asks::Tool {
                name: "list_schemas",
                arguments: "{}",
                is_known: false,
            },
            fails: None,
        },
        CanonicalError::Unauthorized,
    ),
    failing(
        tool(
            "invalid-output",
            "get_example",
            r#"{"path":"Note_Long.json"}"#,
        ),
        CanonicalError::InvalidOutput,
    ),
    failing(
        tool(
            "internal-error",
            "populate_backend",
            r#"{"asset":{"$schemaRef":"note.schema.json","title":"once"}}"#,
        ),
        CanonicalError::InternalError,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_canonical_code_has_its_failure() {
        for code in CanonicalError::ALL {
            assert!(STEPS.iter().any(|step| step.fails == Some(*code)), "{code}");
        }
    }
}
