//! Data that the suite asks for by name: tools, prompts, resources and templates.

use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use serde::Deserialize;

/// One red pixel as PNG.
pub(crate) const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// No sample of sound as WAV.
pub(crate) const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// The tool that comes and goes with `test_trigger_tool_change`.
pub(crate) const CHANGING_TOOL: &str = "test_changing_tool";
/// The prompt that comes and goes with `test_trigger_prompt_change`.
pub(crate) const CHANGING_PROMPT: &str = "test_changing_prompt";

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Catalog {
    pub(crate) tools: Vec<Tool>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) resource_templates: Vec<ResourceTemplate>,
}

impl Catalog {
    #[expect(clippy::expect_used, reason = "the text is compiled in")]
    pub(crate) fn read() -> Self {
        serde_json::from_str(include_str!("catalog.json")).expect("catalog.json is a catalog")
    }
}
