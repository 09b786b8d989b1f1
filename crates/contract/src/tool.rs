//! The advertisement of a pack: tool specs, resources, prompts, and the catalog that holds them.
//!
//! A [`ToolSpec`] is the whole contract of a tool: schemas, effect, replay class, timeout and
//! the codes it can give. [`ToolSpec::definition`] is the form clients see; [`Catalog`] is the
//! form a worker announces and the host compares.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::envelope::{TOOL_ID_PREFIX, is_tool_name};
use crate::error::Code;
use crate::meta;
use crate::replay::Replay;

/// The argument with which a client chooses the text form of an answer.
pub const RENDER_ARGUMENT: &str = "render";

/// Schema keyword of a required argument: what a call is told that leaves it out or empty. The
/// error stands at the argument's own pointer and alone, whatever else is wrong.
pub const REQUIRED_MARKER: &str = "x-mainstay-required";

/// MCP's hints about the effect of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Annotations {
    pub read_only_hint: bool,
    pub destructive_hint: bool,
    pub idempotent_hint: bool,
    pub open_world_hint: bool,
}

impl Annotations {
    /// A tool that only reads, from a closed world.
    pub const READ_ONLY: Self = Self {
        read_only_hint: true,
        destructive_hint: false,
        idempotent_hint: true,
        open_world_hint: false,
    };
}

/// Which members a definition in `tools/list` has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefinitionForm {
    /// Those that a model needs to choose and call the tool ([`ToolSpec::brief_definition`]).
    #[default]
    Brief,
    /// The whole contract ([`ToolSpec::definition`]).
    Full,
}

/// One tool and everything it promises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// Schema of the arguments, without [`RENDER_ARGUMENT`], which every tool has.
    pub input_schema: Value,
    pub output_schema: Option<Value>,
    pub annotations: Annotations,
    /// Monotonic; the bump rules are in `docs/contracts.md`.
    pub schema_version: u32,
    pub tooling_version: String,
    pub replay: Replay,
    /// Overrides the host's default timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Codes beyond those that any call can get (bad arguments, overload, timeout, cancel,
    /// internal).
    pub errors: Vec<Code>,
    /// Deprecated names under which the tool is still accepted, never listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Argument aliases: what models write, and what the schema calls it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argument_aliases: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub rejections: Rejections,
    #[serde(default, skip_serializing_if = "is_default")]
    pub pace: Pace,
    /// A call may run as a task, which outlives its client and the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tasks: bool,
}

/// How long calls of a tool take, and so where they wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    #[default]
    Short,
    /// Calls may wait for minutes. They have places of their own, so that short calls never queue
    /// behind them.
    Long,
}

/// Codes that a call of any tool can give.
const COMMON_ERRORS: [Code; 5] = [
    Code::InvalidRequest,
    Code::QueueOverloaded,
    Code::ToolTimeout,
    Code::Cancelled,
    Code::Internal,
];

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The direct dialect's error for arguments that do not fit a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejections {
    /// `ok`, `reason` and `errors`, which is all that the specification of asset tools has.
    #[default]
    Plain,
    /// Also `code`, `message` and `hint`, as in every other failure.
    Coded,
}

impl ToolSpec {
    /// Every code that a call of this tool can give, sorted.
    pub fn all_errors(&self) -> Vec<Code> {
        let mut codes = self.errors.clone();
        codes.extend(COMMON_ERRORS);
        codes.sort_unstable_by_key(|code| code.as_str());
        codes.dedup();
        codes
    }

    /// The argument schema as clients see it and as arguments are checked against.
    pub fn full_input_schema(&self) -> Value {
        let mut schema = self.input_schema.clone();
        if let Some(object) = schema.as_object_mut() {
            let properties = object
                .entry("properties")
                .or_insert_with(|| Value::Object(Map::new()));
            if let Some(properties) = properties.as_object_mut() {
                properties.entry(RENDER_ARGUMENT).or_insert_with(|| {
                    json!({
                        "type": "string",
                        "enum": ["porcelain", "json"],
                        "description": "Text form of the answer: short lines for reading, or the \
                                        structured result as JSON.",
                    })
                });
            }
        }
        schema
    }

    /// The definition in `tools/list`, in one of its forms, with the timeout that applies.
    pub fn definition_in(&self, form: DefinitionForm, default_timeout_ms: u64) -> Value {
        match form {
            DefinitionForm::Brief => self.brief_definition(default_timeout_ms),
            DefinitionForm::Full => self.definition(default_timeout_ms),
        }
    }

    /// The definition without members that a model does not need: the schema of the result, the
    /// version of the build, codes that any call can give, and the hint about repetition for a tool that only reads.
    pub fn brief_definition(&self, default_timeout_ms: u64) -> Value {
        let mut definition = self.definition(default_timeout_ms);
        let Some(members) = definition.as_object_mut() else {
            return definition;
        };
        members.shift_remove("outputSchema");
        members.shift_remove("toolingVersion");
        if self.annotations.read_only_hint {
            let open_world = self.annotations.open_world_hint;
            let hints = json!({ "readOnlyHint": true, "destructiveHint": false, "openWorldHint": open_world });
            members.insert("annotations".into(), hints);
        }
        let is_ours = self.input_schema.pointer("/properties/render").is_none();
        let arguments = members
            .get_mut("inputSchema")
            .and_then(|schema| schema.get_mut("properties")?.as_object_mut());
        for (name, argument) in arguments.into_iter().flatten() {
            if let Some(argument) = argument.as_object_mut() {
                argument.shift_remove(REQUIRED_MARKER);
                if is_ours && name == RENDER_ARGUMENT {
                    argument.shift_remove("description");
                }
            }
        }
        let contract = json!({
            "schemaVersion": self.schema_version,
            "replay": self.replay,
            "timeoutMs": self.timeout_ms.unwrap_or(default_timeout_ms),
            "errors": self.errors,
        });
        members.insert("_meta".into(), json!({ meta::CONTRACT: contract }));
        definition
    }

    /// The whole definition, with the timeout that applies. [`TASK_SUPPORT`] is not in it: only one revision has that
    /// member.
    pub fn definition(&self, default_timeout_ms: u64) -> Value {
        let contract = json!({
            "schemaVersion": self.schema_version,
            "toolingVersion": self.tooling_version,
            "replay": self.replay,
            "timeoutMs": self.timeout_ms.unwrap_or(default_timeout_ms),
            "errors": self.all_errors(),
        });
        let mut definition = json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": self.full_input_schema(),
            "outputSchema": self.output_schema,
            "annotations": self.annotations,
            "schemaVersion": self.schema_version,
            "toolingVersion": self.tooling_version,
            "_meta": { meta::CONTRACT: contract },
        });
        if let (Some(members), None) = (definition.as_object_mut(), &self.output_schema) {
            members.shift_remove("outputSchema");
        }
        definition
    }

    /// The entry in the catalog of envelopes: the same, with the contract's members beside the
    /// others, and the identifier by which envelopes name the tool.
    pub fn catalog_entry(&self, default_timeout_ms: u64) -> Value {
        let mut entry = Map::new();
        if is_tool_name(&self.name) {
            let id = format!("{TOOL_ID_PREFIX}{}", self.name);
            entry.insert("toolId".into(), json!(id));
        }
        let mut definition = self.definition(default_timeout_ms);
        if let Some(members) = definition.as_object_mut() {
            members.remove("_meta");
            entry.extend(std::mem::take(members));
        }
        if self.tasks {
            let (member, optional) = TASK_SUPPORT;
            entry.insert(
                member.into(),
                serde_json::from_str(optional).unwrap_or_default(),
            );
        }
        entry.insert("replay".into(), json!(self.replay));
        let timeout_ms = self.timeout_ms.unwrap_or(default_timeout_ms);
        entry.insert("timeoutMs".into(), json!(timeout_ms));
        entry.insert("errors".into(), json!(self.all_errors()));
        Value::Object(entry)
    }
}

/// One resource in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceSpec {
    pub uri: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

/// A family of resources, by URI template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceTemplate {
    pub uri_template: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

/// One prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PromptSpec {
    pub name: String,
    pub description: String,
    pub arguments: Vec<PromptArgument>,
}

/// One argument of a prompt; prompt arguments are always strings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptArgument {
    pub name: String,
    pub description: String,
    pub required: bool,
}

/// Everything a pack advertises. What a worker announces must equal what the host was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Catalog {
    pub pack: String,
    /// Sorted by name.
    pub tools: Vec<ToolSpec>,
    /// URI schemes (before `:`) whose resources this pack serves.
    pub resource_schemes: Vec<String>,
    pub resource_templates: Vec<ResourceTemplate>,
    pub prompts: Vec<PromptSpec>,
    /// True if resource templates or prompts can complete their arguments.
    pub completions: bool,
}

/// The member of a tool that may run as a task, and its value as JSON text, in lists of revision 2025-11-25.
pub const TASK_SUPPORT: (&str, &str) = ("execution", r#"{"taskSupport":"optional"}"#);

/// Longest name of a tool, as MCP recommends.
const NAME_MAX: usize = 128;

impl ToolSpec {
    /// The first promise that the tool cannot keep, in a sentence for its author.
    fn contradiction(&self) -> Option<String> {
        let is_name = |name: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
            (1..=NAME_MAX).contains(&name.len()) && name.chars().all(fits)
        };
        if let Some(name) = std::iter::once(&self.name)
            .chain(&self.aliases)
            .find(|name| !is_name(name))
        {
            let shown = crate::render::shorten(&format!("{name:?}"), 80);
            return Some(format!(
                "the tool name {shown} must have 1 to {NAME_MAX} letters, digits or the signs _ - . /"
            ));
        }
        let hints = self.annotations;
        let said = if hints.read_only_hint && self.replay != Replay::Convergent {
            let class = self.replay.as_str();
            format!("declares readOnlyHint and {class}; a tool that only reads is convergent")
        } else if hints.read_only_hint && hints.destructive_hint {
            "declares readOnlyHint and destructiveHint; remove one of them".to_owned()
        } else if self.input_schema.get("type") != Some(&json!("object")) {
            "has an input schema without \"type\": \"object\"".to_owned()
        } else {
            return None;
        };
        Some(format!("the tool {} {said}", self.name))
    }
}

impl Catalog {
    /// Checks the promises of every tool.
    ///
    /// # Errors
    ///
    /// The first promise that cannot be kept, in a sentence for the pack's author.
    pub fn check(&self) -> Result<(), String> {
        match self.tools.iter().find_map(ToolSpec::contradiction) {
            Some(contradiction) => Err(contradiction),
            None => Ok(()),
        }
    }

    /// The first difference to `other`, in a sentence, or `None` when they are equal.
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self == other {
            return None;
        }
        let names = |catalog: &Self| -> Vec<String> {
            catalog.tools.iter().map(|tool| tool.name.clone()).collect()
        };
        let (ours, theirs) = (names(self), names(other));
        if let Some(missing) = ours.iter().find(|name| !theirs.contains(name)) {
            return Some(format!("tool {missing} is missing"));
        }
        if let Some(extra) = theirs.iter().find(|name| !ours.contains(name)) {
            return Some(format!("tool {extra} is not expected"));
        }
        let differs = self.tools.iter().zip(&other.tools).find(|(a, b)| a != b);
        Some(match differs {
            Some((tool, _)) => format!("the definition of tool {} differs", tool.name),
            None => "resources, prompts or completions differ".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ToolSpec {
        ToolSpec {
            name: name.into(),
            description: "reads".into(),
            input_schema: json!({"type": "object", "properties": {"name": {"type": "string"}},
                "required": ["name"], "additionalProperties": false}),
            output_schema: Some(json!({"type": "object"})),
            annotations: Annotations::READ_ONLY,
            schema_version: 2,
            tooling_version: "1.2.3+abc".into(),
            replay: Replay::Convergent,
            timeout_ms: None,
            errors: vec![Code::NotFound],
            aliases: vec!["old".into()],
            argument_aliases: Vec::new(),
            rejections: Rejections::Plain,
            pace: Pace::Short,
            tasks: false,
        }
    }

    #[test]
    fn a_definition_mirrors_its_contract_in_meta() {
        let definition = tool("get").definition(120_000);
        let contract = &definition["_meta"][meta::CONTRACT];
        assert_eq!(contract["schemaVersion"], 2);
        assert_eq!(contract["replay"], "convergent");
        assert_eq!(contract["timeoutMs"], 120_000);
        assert_eq!(
            contract["errors"],
            json!([
                "CANCELLED",
                "INTERNAL",
                "INVALID_REQUEST",
                "NOT_FOUND",
                "QUEUE_OVERLOADED",
                "TOOL_TIMEOUT"
            ])
        );
        assert_eq!(definition["schemaVersion"], 2);
        assert!(definition["inputSchema"]["properties"]["render"].is_object());
        assert!(
            definition.get("aliases").is_none(),
            "aliases are never listed"
        );
    }

    #[test]
    fn a_brief_definition_has_only_the_members_that_a_model_needs() {
        let brief = tool("get").definition_in(DefinitionForm::Brief, 120_000);
        assert_eq!(
            brief,
            json!({"name": "get", "description": "reads",
                "inputSchema": {"type": "object", "properties": {"name": {"type": "string"},
                    "render": {"type": "string", "enum": ["porcelain", "json"]}},
                    "required": ["name"], "additionalProperties": false},
                "annotations": {"readOnlyHint": true, "destructiveHint": false, "openWorldHint": false},
                "schemaVersion": 2,
                "_meta": {meta::CONTRACT: {"schemaVersion": 2, "replay": "convergent",
                    "timeoutMs": 120_000, "errors": ["NOT_FOUND"]}}})
        );
        let mut writes = tool("put");
        writes.annotations = Annotations::default();
        let brief = writes.brief_definition(1);
        let hints = brief["annotations"].as_object().unwrap();
        assert_eq!(hints.len(), 4, "a tool with effects keeps every hint");
        let full = writes.definition_in(DefinitionForm::Full, 1);
        assert_eq!(full, writes.definition(1));
    }

    #[test]
    fn promises_that_cannot_be_kept_are_named_for_the_author() {
        type Change = fn(&mut ToolSpec);
        let changes: [(Change, &str); 6] = [
            (|tool| tool.name.clear(), "the tool name \"\" must have"),
            (|tool| tool.name = "a\u{1b}b".into(), "must have 1 to 128"),
            (
                |tool| tool.aliases = vec!["a b".into()],
                "the tool name \"a b\"",
            ),
            (
                |tool| tool.replay = Replay::NeverReplay,
                "the tool get declares readOnlyHint and never_replay",
            ),
            (
                |tool| tool.annotations.destructive_hint = true,
                "readOnlyHint and destructiveHint",
            ),
            (|tool| tool.input_schema = json!({}), "input schema without"),
        ];
        for (change, said) in changes {
            let mut tool = tool("get");
            change(&mut tool);
            let catalog = Catalog {
                tools: vec![tool],
                ..Catalog::default()
            };
            let error = catalog.check().unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        let longest = "n".repeat(NAME_MAX);
        let catalog = |name: &str| Catalog {
            tools: vec![tool(name)],
            ..Catalog::default()
        };
        assert_eq!(catalog(&longest).check(), Ok(()));
        assert!(catalog(&format!("{longest}n")).check().is_err());
    }

    #[test]
    fn a_catalog_says_where_it_differs() {
        let expected = Catalog {
            tools: vec![tool("a"), tool("b")],
            ..Catalog::default()
        };
        assert_eq!(expected.difference(&expected.clone()), None);
        let missing = Catalog {
            tools: vec![tool("a")],
            ..Catalog::default()
        };
        assert_eq!(expected.difference(&missing).unwrap(), "tool b is missing");
        assert_eq!(
            missing.difference(&expected).unwrap(),
            "tool b is not expected"
        );
        let mut changed = expected.clone();
        changed.tools[1].replay = Replay::NeverReplay;
        assert_eq!(
            expected.difference(&changed).unwrap(),
            "the definition of tool b differs"
        );
    }
}
