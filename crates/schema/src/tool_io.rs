//! Input and output of a tool as whole messages.
//!
//! The shared structure, [`PUBLISHED_SCHEMAS`](crate::PUBLISHED_SCHEMAS), and the tool's
//! own schemas are separate validators, so that tools share whatever is equal.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;

use crate::{
    CompileError, Limits, ParseToolIdError, SchemaRegistry, ToolId, ToolPart, ToolSchemaError,
    ToolValidators, Validator, Violation,
    published::{ENVELOPE, REQUEST, RESPONSE, TOOL_INPUT, TOOL_OUTPUT},
    shorten, violation,
};

/// Checks the messages of one tool.
#[derive(Clone, Debug)]
pub struct ToolIOValidators {
    id: ToolId,
    limits: Limits,
    shared_input: Validator,
    shared_output: Validator,
    tool: ToolValidators,
}

/// A tool could not be registered or found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolIoError {
    /// The identifier is not one.
    #[error(transparent)]
    NotCanonical(#[from] ParseToolIdError),
    /// No tool of that name was registered.
    #[error("no tool {} is registered", shorten::quoted(.id.as_str()))]
    Unknown { id: ToolId },
    /// A tool definition is not one.
    #[error("tool definition {position} cannot be used: {reason}")]
    BadDefinition {
        /// Its position in the list.
        position: usize,
        reason: String,
    },
    /// A schema of the tool cannot be used.
    #[error("a schema of the tool {} cannot be used", shorten::quoted(.id.as_str()))]
    BadSchema { id: ToolId, source: ToolSchemaError },
    /// Our own schema cannot be used.
    #[error("the schema of tool messages cannot be used")]
    Published(#[source] CompileError),
    /// Too many tools.
    #[error("more than {limit} tools")]
    TooMany { limit: usize },
}

/// The registered tools, by identifier.
#[derive(Debug, Default)]
pub(crate) struct Tools(Mutex<BTreeMap<ToolId, ToolValidators>>);

impl Tools {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ToolId, ToolValidators>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SchemaRegistry {
    /// The validator of the result envelope.
    pub fn load_envelope(&self) -> Result<Validator, CompileError> {
        self.compile(&ENVELOPE)
    }

    /// The validator of the request envelope.
    pub fn load_request(&self) -> Result<Validator, CompileError> {
        self.compile(&REQUEST)
    }

    /// The validator of the response envelope.
    pub fn load_response(&self) -> Result<Validator, CompileError> {
        self.compile(&RESPONSE)
    }

    /// Registers a tool, or registers it anew, with its `inputSchema` and
    /// `outputSchema`.
    pub fn add_tool(
        &self,
        name: &str,
        input: &Value,
        output: Option<&Value>,
    ) -> Result<(), ToolIoError> {
        let id = ToolId::from_name(name)?;
        let tool = ToolValidators::compile(self, input, output);
        let tool = tool.map_err(|source| ToolIoError::BadSchema {
            id: id.clone(),
            source,
        })?;
        let mut tools = self.tools.lock();
        let limit = self.limits.tools;
        if tools.len() >= limit && !tools.contains_key(&id) {
            return Err(ToolIoError::TooMany { limit });
        }
        tools.insert(id, tool);
        Ok(())
    }

    /// Registers tools by their MCP definitions, objects with `name`, `inputSchema` and
    /// perhaps `outputSchema`, as in the files of `schemas/tools/`.
    pub fn add_tool_definitions(&self, definitions: &[Value]) -> Result<(), ToolIoError> {
        let mut positions = BTreeMap::new();
        for (position, definition) in definitions.iter().enumerate() {
            let bad = |reason: String| ToolIoError::BadDefinition { position, reason };
            let missing = |member: &str| bad(format!("it has no \"{member}\""));
            let name = definition.get("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| missing("name"))?;
            let input = definition.get("inputSchema");
            let input = input.ok_or_else(|| missing("inputSchema"))?;
            if let Some(first) = positions.insert(name, position) {
                return Err(bad(format!("it has the name of definition {first}")));
            }
            self.add_tool(name, input, definition.get("outputSchema"))?;
        }
        Ok(())
    }

    /// The validators of a registered tool's messages, by its canonical identifier.
    pub fn load_tool_io(&self, tool_id: &str) -> Result<ToolIOValidators, ToolIoError> {
        let id: ToolId = tool_id.parse()?;
        let Some(tool) = self.tools.lock().get(&id).cloned() else {
            return Err(ToolIoError::Unknown { id });
        };
        let shared = |schema: &Value| self.compile(schema).map_err(ToolIoError::Published);
        Ok(ToolIOValidators {
            id,
            limits: self.limits,
            shared_input: shared(&TOOL_INPUT)?,
            shared_output: shared(&TOOL_OUTPUT)?,
            tool,
        })
    }
}

impl ToolIOValidators {
    /// The tool's identifier.
    pub fn id(&self) -> &ToolId {
        &self.id
    }

    /// The validators of the tool's own schemas.
    pub fn tool(&self) -> &ToolValidators {
        &self.tool
    }

    /// The violations of `{tool, input, version?, metadata?}`: of its structure, and
    /// with the input by the tool's schema.
    pub fn check_input(&self, message: &Value) -> Vec<Violation> {
        let shared = self.shared_input.check(message);
        self.check(message, shared, ToolPart::Input, Some(&self.tool.input))
    }

    /// The violations of `{tool, output, version?, metadata?}`: of its structure,
    /// which asks for no input, and with the output by the tool's schema.
    pub fn check_output(&self, message: &Value) -> Vec<Violation> {
        let shared = self.shared_output.check(message);
        self.check(message, shared, ToolPart::Output, self.tool.output.as_ref())
    }

    fn check(
        &self,
        message: &Value,
        shared: Vec<Violation>,
        part: ToolPart,
        validator: Option<&Validator>,
    ) -> Vec<Violation> {
        let place = format!("/{part}");
        let sound = |path: &str| shared.iter().all(|violation| violation.path != path);
        let mut found = Vec::new();
        if let Some(other) = message.get("tool")
            && other != self.id.as_str()
            && sound("/tool")
        {
            found.push(Violation {
                path: "/tool".to_owned(),
                message: format!("must be {}", shorten::quoted(self.id.as_str())),
            });
        }
        if let (Some(value), Some(validator)) = (message.get(part.member()), validator)
            && sound(&place)
        {
            found.extend(validator.check(value).into_iter().map(|mut violation| {
                violation.path.insert_str(0, &place);
                violation
            }));
        }
        found.extend(shared);
        violation::settle(found, &self.limits).into_list()
    }
}
