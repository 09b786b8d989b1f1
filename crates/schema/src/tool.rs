//! The validators of a tool's own schemas.

use std::fmt;

use serde_json::Value;

use crate::{CompileError, SchemaRegistry, Validator};

/// Input and output of a tool.
#[derive(Clone, Debug)]
pub struct ToolValidators {
    /// Of its arguments.
    pub input: Validator,
    /// Of its structured result, if it declares one.
    pub output: Option<Validator>,
}

/// A side of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolPart {
    Input,
    Output,
}

/// A schema of a tool was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tool's {part} schema cannot be used")]
pub struct ToolSchemaError {
    pub part: ToolPart,
    pub source: CompileError,
}

impl ToolValidators {
    /// Compiles a tool's `inputSchema` and `outputSchema`. As MCP asks, the input must
    /// be declared as an object.
    pub fn compile(
        registry: &SchemaRegistry,
        input: &Value,
        output: Option<&Value>,
    ) -> Result<Self, ToolSchemaError> {
        let refused = |part| move |source| ToolSchemaError { part, source };
        if input.get("type").and_then(Value::as_str) != Some("object") {
            return Err(refused(ToolPart::Input)(CompileError::NotAnObject));
        }
        let input = registry.compile(input).map_err(refused(ToolPart::Input))?;
        let output = output
            .map(|output| registry.compile(output))
            .transpose()
            .map_err(refused(ToolPart::Output))?;
        Ok(Self { input, output })
    }
}

impl ToolPart {
    /// The member of a tool's messages that holds it.
    pub(crate) fn member(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

impl fmt::Display for ToolPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.member())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(input: &Value, output: Option<&Value>) -> Result<ToolValidators, ToolSchemaError> {
        ToolValidators::compile(&SchemaRegistry::new(), input, output)
    }

    #[test]
    fn a_tool_checks_both_sides() {
        let input = json!({"type": "object", "properties": {"b": {}, "a": {"type": "string"}}});
        let tool = tool(&input, Some(&json!({"type": "array"}))).unwrap();
        assert!(!tool.input.is_valid(&json!({"a": 1})));
        assert!(tool.output.unwrap().is_valid(&json!([])));
    }

    #[test]
    fn an_input_that_is_not_an_object_is_refused() {
        for input in [json!({}), json!(true), json!({"type": ["object", "null"]})] {
            let error = tool(&input, None).unwrap_err();
            assert_eq!(error.part, ToolPart::Input);
            assert_eq!(error.source, CompileError::NotAnObject);
        }
    }

    #[test]
    fn a_bad_output_schema_says_so() {
        let error = tool(&json!({"type": "object"}), Some(&json!({"type": "text"}))).unwrap_err();
        assert_eq!(error.to_string(), "the tool's output schema cannot be used");
        assert!(matches!(error.source, CompileError::Invalid { .. }));
    }
}
