//! Prompts: texts that a pack writes for a model, with arguments.

use std::collections::BTreeMap;

use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::Problem;
use mainstay_contract::tool::PromptSpec;
use serde_json::json;

use crate::context::Context;

/// The prompts of a pack.
pub trait Prompts: Send + Sync {
    /// The advertised prompts.
    fn specs(&self) -> Vec<PromptSpec>;

    /// Writes one. The arguments are checked against the spec before.
    fn prompt(
        &self,
        name: &str,
        arguments: &PromptArguments,
        context: &Context,
    ) -> Result<PromptReply, Problem>;
}

/// The arguments of a prompt: always strings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptArguments(BTreeMap<String, String>);

impl PromptArguments {
    /// The value of an argument, if it was given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Reads `arguments` as `spec` declares them: all that are required, none that is unknown.
    pub(crate) fn read(spec: &PromptSpec, arguments: &Json) -> Result<Self, Problem> {
        let wrong = |message: String| Problem::new(ErrorKind::InvalidParams, message);
        let given: BTreeMap<String, String> = serde_json::from_str(arguments.as_str())
            .map_err(|_| wrong("the arguments of a prompt are an object of strings".into()))?;
        if let Some(name) = given
            .keys()
            .find(|name| !spec.arguments.iter().any(|a| a.name == **name))
        {
            return Err(wrong(format!(
                "prompt {} has no argument {name}",
                spec.name
            )));
        }
        let missing = spec
            .arguments
            .iter()
            .find(|a| a.required && !given.contains_key(&a.name));
        match missing {
            Some(argument) => Err(wrong(format!(
                "prompt {} needs its argument {}",
                spec.name, argument.name
            ))),
            None => Ok(Self(given)),
        }
    }
}

/// A finished prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct PromptReply {
    description: String,
    messages: Vec<(&'static str, String)>,
}

impl PromptReply {
    pub fn new(description: impl Into<String>) -> Self {
        Self {
            description: description.into(),
            messages: Vec::new(),
        }
    }

    /// Adds what the user says.
    pub fn user(mut self, text: impl Into<String>) -> Self {
        self.messages.push(("user", text.into()));
        self
    }

    /// Adds what the assistant says.
    pub fn assistant(mut self, text: impl Into<String>) -> Self {
        self.messages.push(("assistant", text.into()));
        self
    }

    /// The members of MCP's result.
    pub(crate) fn members(&self) -> Json {
        let messages: Vec<_> = self
            .messages
            .iter()
            .map(|(role, text)| json!({"role": role, "content": {"type": "text", "text": text}}))
            .collect();
        Json::from(json!({"description": self.description, "messages": messages}))
    }
}
