//! A pack: tools, resources, prompts and completions under one name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Mutex;

use mainstay_contract::error::Code;
use mainstay_contract::json::Json;
use mainstay_contract::outcome::Problem;
use mainstay_contract::replay::Replay;
use mainstay_contract::tool::{Catalog, Pace, ToolSpec};

use crate::completion::Completions;
use crate::inside::Roots;
use crate::prompt::Prompts;
use crate::resource::Resources;
use crate::settings::Unable;
use crate::sync::lock;
use crate::tool::Tool;
use crate::warning::warn;

/// Everything that one worker offers.
#[must_use]
pub struct Pack {
    name: String,
    tools: BTreeMap<String, Offered>,
    twice: Vec<String>,
    resources: Option<Box<dyn Resources>>,
    prompts: Option<Box<dyn Prompts>>,
    completions: Option<Box<dyn Completions>>,
    roots: Roots,
    facts: Json,
}

struct Offered {
    spec: ToolSpec,
    tool: Box<dyn Tool>,
    /// The code about which the author was warned.
    warned: Mutex<Option<Code>>,
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
            roots: Roots::default(),
            facts: Json::empty_object(),
        }
    }

    /// Adds a tool.
    pub fn tool(mut self, spec: ToolSpec, tool: impl Tool + 'static) -> Self {
        let name = spec.name.clone();
        let offered = Offered {
            spec,
            tool: Box::new(tool),
            warned: Mutex::default(),
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

    /// A directory whose files the tools name by relative paths. Arguments whose schema has the
    /// format `path` may then be absolute paths inside it: the tool gets `prefix` and the rest.
    pub fn root(mut self, dir: impl AsRef<Path>, prefix: &str) -> Self {
        self.roots.add(dir.as_ref(), prefix);
        self
    }

    /// Facts for operators in health, such as the fingerprint of its roots: an object.
    pub fn facts(mut self, facts: Json) -> Self {
        self.facts = facts;
        self
    }

    /// The advertised catalog: equal for equal packs, tools sorted by name.
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

    /// Refuses a pack that contradicts itself, in a sentence for its author.
    pub fn check(&self) -> Result<(), Unable> {
        let unable = |said: String| Unable::new(format_args!("pack {}: {said}", self.name));
        if let Some(name) = self.twice.first() {
            return Err(unable(format!("the tool {name} is declared twice")));
        }
        self.catalog().check().map_err(unable)?;
        let lacks_probe = |offered: &&Offered| {
            offered.spec.replay == Replay::ProbeRequired && !offered.tool.has_probe()
        };
        match self.tools.values().find(lacks_probe) {
            Some(offered) => Err(unable(format!(
                "the tool {} is probe_required and has no probe; add one with .probe(...)",
                offered.spec.name
            ))),
            None => Ok(()),
        }
    }

    /// Warns the author of a tool that failed with a code which its contract does not declare.
    pub(crate) fn check_failure(&self, tool: &str, problem: &Problem) {
        let code = problem.kind.row().code;
        let offered = self.tools.get(tool);
        let undeclared = offered.filter(|offered| !offered.spec.all_errors().contains(&code));
        if let Some(offered) = undeclared
            && lock(&offered.warned).replace(code) != Some(code)
        {
            warn(
                "undeclared_error",
                &format!(
                    "the tool {tool} failed with {code}, which .errors(...) of its contract does not list"
                ),
            );
        }
    }

    pub(crate) fn find_tool(&self, name: &str) -> Option<&dyn Tool> {
        self.tools.get(name).map(|offered| offered.tool.as_ref())
    }

    /// Arguments as the tool expects them: paths inside a root are relative to it.
    pub(crate) fn prepare<'a>(&self, tool: &str, arguments: &'a Json) -> Cow<'a, Json> {
        match self.tools.get(tool) {
            Some(offered) => self.roots.relative(&offered.spec.input_schema, arguments),
            None => Cow::Borrowed(arguments),
        }
    }

    pub(crate) fn pace_of(&self, tool: &str) -> Pace {
        let offered = self.tools.get(tool);
        offered.map_or(Pace::Short, |offered| offered.spec.pace)
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
            "pack p: the tool a is declared twice"
        );
    }

    #[test]
    fn a_probe_that_is_declared_must_be_there() {
        let spec = || {
            let effects = crate::Annotations::default();
            tool_spec("a", "Adds.").effects(Replay::ProbeRequired, effects)
        };
        let add = || typed(|arguments: serde_json::Value, _context| Ok(Reply::json(&arguments)));
        let unable = Pack::new("p").tool(spec(), add()).check().unwrap_err();
        let said = "pack p: the tool a is probe_required and has no probe";
        assert!(unable.detail.starts_with(said), "{unable}");
        let probe = add().probe(|_, _| Ok(crate::Probe::NotApplied));
        assert!(Pack::new("p").tool(spec(), probe).check().is_ok());
    }
}
