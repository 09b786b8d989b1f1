//! One difference between two locks.

use std::fmt;

use mainstay_contract::canonical::canonical_json;
use mainstay_contract::render::shorten;
use serde::Serialize;
use serde_json::Value;

use super::rules::{Demand, Kind};

/// Characters of a value in the line about a change.
const VALUE: usize = 60;

/// Where the schema of the arguments stands in a definition.
pub(crate) const INPUT: &str = "/inputSchema";
/// Where the schema of the result stands.
pub(crate) const OUTPUT: &str = "/outputSchema";

/// One difference between two locks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The tool, by its present name, or by its last one if it is gone; `instructions`, or the kind and
    /// the name of anything else.
    pub tool: String,
    /// Where in the definition.
    pub pointer: String,
    pub kind: Kind,
    /// That of the kind, unless the tool is foreign.
    pub demand: Demand,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

impl Change {
    /// A change of a tool with a version.
    pub(crate) fn new(
        tool: &str,
        kind: Kind,
        pointer: impl Into<String>,
        before: Option<Value>,
        after: Option<Value>,
    ) -> Self {
        Self {
            tool: tool.to_owned(),
            pointer: pointer.into(),
            kind,
            demand: kind.demand(),
            before,
            after,
        }
    }

    /// The argument that the change is about, if it is about one.
    pub fn argument(&self) -> Option<String> {
        let rest = self.pointer.strip_prefix(INPUT)?;
        let rest = rest.strip_prefix("/properties/")?;
        let name = rest.split('/').next()?;
        Some(name.replace("~1", "/").replace("~0", "~"))
    }

    /// The sort key of changes.
    pub(crate) fn key(&self) -> (String, String, Kind, String) {
        let text = |value: &Option<Value>| value.as_ref().map(canonical_json);
        let values = [&self.before, &self.after].map(|value| text(value).unwrap_or_default());
        (
            self.tool.clone(),
            self.pointer.clone(),
            self.kind,
            values.concat(),
        )
    }
}

/// The change in a line, without the name of its tool.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if !self.pointer.is_empty() {
            write!(f, " at {}", self.pointer)?;
        }
        let text = |value: &Value| shorten(&value.to_string(), VALUE);
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, ": {} -> {}", text(before), text(after)),
            (Some(before), None) => write!(f, ": was {}", text(before)),
            (None, Some(after)) => write!(f, ": {}", text(after)),
            (None, None) => Ok(()),
        }
    }
}
