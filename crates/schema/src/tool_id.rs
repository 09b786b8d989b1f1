//! The canonical identifier of a tool.

use std::{fmt, str::FromStr};

use mainstay_contract::envelope::{TOOL_ID_PREFIX as PREFIX, tool_name};

use crate::shorten;

/// `mcp.tool:` and the name of a tool: letters, digits, `_`, `.`, `/` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolId(String);

/// The text is not the canonical identifier of a tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is not the identifier of a tool; write \"mcp.tool:NAME\", with letters, digits and _ . / - \
     in the name",
    shorten::quoted(.text)
)]
pub struct ParseToolIdError {
    /// The given text.
    pub text: String,
}

impl ToolId {
    /// The identifier of the tool with this name.
    pub fn from_name(name: &str) -> Result<Self, ParseToolIdError> {
        format!("{PREFIX}{name}").parse()
    }

    /// The name of the tool.
    pub fn name(&self) -> &str {
        self.0.strip_prefix(PREFIX).unwrap_or_default()
    }

    /// The whole identifier.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ToolId {
    type Err = ParseToolIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if tool_name(text).is_some() {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseToolIdError {
                text: text.to_owned(),
            })
        }
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_identifiers_are_read_and_others_are_refused() {
        let id: ToolId = "mcp.tool:asset/list_v1.2-x".parse().unwrap();
        assert_eq!(id.name(), "asset/list_v1.2-x");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in [
            "",
            "mcp.tool:",
            "list_schemas",
            "mcp.tool:a b",
            "mcp.tool:é",
            "mcp.tool:a\n",
            " mcp.tool:a",
            "MCP.TOOL:a",
            "mcp.tool:mcp.tool:a",
        ] {
            let error = text.parse::<ToolId>().unwrap_err();
            assert_eq!(error.text, text);
            assert!(error.to_string().contains("write \"mcp.tool:NAME\""));
        }
        assert!(ToolId::from_name("").is_err());
    }
}
