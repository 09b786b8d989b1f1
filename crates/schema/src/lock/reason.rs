//! Reasons: why a definition was let in without a higher version.

use std::fmt;

use mainstay_contract::render::shorten;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::file::Lock;

/// Longest text of a reason, in characters.
const TEXT: usize = 500;

/// A reason as the lock keeps it, for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reason {
    pub tool: String,
    /// The argument it is about; else it is about the whole tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    pub text: String,
    /// The version that the tool had then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<u32>,
    /// The definition that it let in; none if it let the tool go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

impl Reason {
    /// True if it is about this change.
    pub fn covers(&self, change: &Change) -> bool {
        self.tool == change.tool && (self.argument.is_none() || self.argument == change.argument())
    }
}

/// A reason as typed on the command line: `TOOL[.ARGUMENT]: TEXT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonGiven {
    target: String,
    text: String,
}

/// Why a reason cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReasonError {
    #[error("the reason {0:?} does not say what it is about")]
    NoTarget(String),
    #[error("the reason for {0} has no text")]
    NoText(String),
    #[error("the reason for {0} is longer than {TEXT} characters")]
    TooLong(String),
    #[error("the reason is for {0}, which is not a tool")]
    NoSuchTool(String),
}

impl ReasonGiven {
    /// Reads `TOOL[.ARGUMENT]: TEXT`.
    pub fn parse(text: &str) -> Result<Self, ReasonError> {
        let Some((target, text)) = text.split_once(':') else {
            return Err(ReasonError::NoTarget(shorten(text, 80)));
        };
        let (target, text) = (target.trim(), text.trim());
        if target.is_empty() {
            return Err(ReasonError::NoTarget(shorten(text, 80)));
        }
        if text.is_empty() {
            return Err(ReasonError::NoText(target.to_owned()));
        }
        if text.chars().count() > TEXT {
            return Err(ReasonError::TooLong(target.to_owned()));
        }
        Ok(Self {
            target: target.to_owned(),
            // One line, whatever was pasted.
            text: shorten(text, TEXT),
        })
    }

    /// The reason as it would be recorded with the change from `old` to `new`.
    pub fn resolve(&self, old: &Lock, new: &Lock) -> Result<Reason, ReasonError> {
        // A name may contain dots: the longest tool that fits is meant.
        let fits = |name: &&String| {
            let rest = self.target.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let names = old.tools.keys().chain(new.tools.keys());
        let tool = names
            .filter(fits)
            .max_by_key(|name| name.len())
            .ok_or_else(|| ReasonError::NoSuchTool(self.target.clone()))?;
        let argument = self.target.get(tool.len() + 1..).map(str::to_owned);
        let now = new.tools.get(tool);
        Ok(Reason {
            tool: tool.clone(),
            argument,
            text: self.text.clone(),
            schema_version: now
                .or_else(|| old.tools.get(tool))
                .and_then(super::entry::Entry::schema_version),
            sha256: now.map(|entry| entry.fingerprint().to_string()),
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.argument {
            Some(argument) => write!(f, "{}.{argument}", self.tool),
            None => f.write_str(&self.tool),
        }
    }
}
