//! A pack: tools, resources, prompts and completions under one name.

use std::collections::BTreeMap;
use std::fmt;

use mainstay_contract::json::Json;
use mainstay_contract::tool::{Catalog, ToolSpec};

use crate::completion::Completions;
use crate::prompt::Prompts;
use crate::resource::Resources;
use crate::settings::Unable;
use crate::tool::Tool;

/// Everything that one worker offers.
#[must_use]
pub struct Pack {
    name: String,
    tools: BTreeMap<String, Offered>,
    twice: Vec<String>,
    resources: Option<Box<dyn Resources>>,
    prompts: Option<Box<dyn Prompts>>,
    completions: Option<Box<dyn Completions>>,
    facts: Json,
}

struct Offered {
    spec: ToolSpec,
    tool: Box<dyn Tool>,
}

impl Pack {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tools: BTreeMap::new(),
            twice: Vec::new(),
            resources: None,
            prompts: None,
            completions: None,
            facts: Json::empty_object(),
        }
    }

    /// Adds a tool.
    pub fn tool(mut self, spec: ToolSpec, tool: impl Tool + 'static) -> Self {
        let name = spec.name.clone();
        let offered = Offered {
            spec,
            tool: Box::new(tool),
        };
        if self.tools.insert(name.clone(), offered).is_some() {
            self.twice.push(name);
        }
        self
    }

    pub fn resources(mut self, resources: impl Resources + 'static) -> Self {
        self.resources = Some(Box::new(resources));
        self
    }

    pub fn prompts(mut self, prompts: impl Prompts + 'static) -> Self {
        self.prompts = Some(Box::new(prompts));
        self
    }

    pub fn completions(mut self, completions: impl Completions + 'static) -> Self {
        self.completions = Some(Box::new(completions));
        self
    }

    /// What operators see of this pack in health, e.g. the fingerprint of its roots: an object.
    pub fn facts(mut self, facts: Json) -> Self {
        self.facts = facts;
        self
    }

    /// What is advertised: the same for the same pack, tools sorted by name.
    pub fn catalog(&self) -> Catalog {
        let resources = self.resources.as_deref();
        Catalog {
            pack: self.name.clone(),
            tools: self
                .tools
                .values()
                .map(|offered| offered.spec.clone())
                .collect(),
            resource_schemes: resources.map(Resources::schemes).unwrap_or_default(),
            resource_templates: resources.map(Resources::templates).unwrap_or_default(),
            prompts: self
                .prompts
                .as_deref()
                .map(Prompts::specs)
                .unwrap_or_default(),
            completions: self.completions.is_some(),
        }
    }

    /// Refuses a pack that contradicts itself.
    pub fn check(&self) -> Result<(), Unable> {
        match self.twice.first() {
            Some(name) => Err(Unable::new(format_args!(
                "pack {} declares tool {name} twice",
                self.name
            ))),
            None => Ok(()),
        }
    }

    pub(crate) fn find_tool(&self, name: &str) -> Option<&dyn Tool> {
        self.tools.get(name).map(|offered| offered.tool.as_ref())
    }

    pub(crate) fn find_resources(&self) -> Option<&dyn Resources> {
        self.resources.as_deref()
    }

    pub(crate) fn find_prompts(&self) -> Option<&dyn Prompts> {
        self.prompts.as_deref()
    }

    pub(crate) fn find_completions(&self) -> Option<&dyn Completions> {
        self.completions.as_deref()
    }

    pub(crate) const fn known_facts(&self) -> &Json {
        &self.facts
    }
}

impl fmt::Debug for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pack")
            .field("name", &self.name)
            .field("tools", &self.tools.keys())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Reply;
    use crate::spec::tool_spec;
    use crate::tool::typed;

    fn echo(name: &str) -> (ToolSpec, impl Tool) {
        let tool = typed(|arguments: serde_json::Value, _context| Ok(Reply::json(&arguments)));
        (tool_spec(name, "Echoes.").read_only(), tool)
    }

    #[test]
    fn the_catalog_is_sorted_whatever_the_order_of_declaration() {
        let (b, a) = (echo("b"), echo("a"));
        let pack = Pack::new("p").tool(b.0, b.1).tool(a.0, a.1);
        let catalog = pack.catalog();
        let names: Vec<_> = catalog
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert!(pack.check().is_ok());
    }

    #[test]
    fn a_tool_declared_twice_is_refused() {
        let (one, two) = (echo("a"), echo("a"));
        let pack = Pack::new("p").tool(one.0, one.1).tool(two.0, two.1);
        assert_eq!(
            pack.check().unwrap_err().detail,
            "pack p declares tool a twice"
        );
    }
}
