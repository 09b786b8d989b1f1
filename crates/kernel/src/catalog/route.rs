//! From a decoded request to work, and the listings that the host answers itself.

use mainstay_contract::dialect::{Op, ServerFacts, TaskFacts};
use mainstay_contract::envelope::ENVELOPE_VERSION;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::method::ListKind;
use mainstay_contract::normalise::{Resolution, resolve_method};
use mainstay_contract::outcome::Problem;
use mainstay_contract::replay::Replay;
use mainstay_contract::rpc::{self, Completion, CompletionTarget};
use mainstay_contract::tool::{DefinitionForm, Pace, TASK_SUPPORT};
use mainstay_schema::check::Definition;
use serde_json::json;

use super::{PackCatalog, Tool};
use crate::approvals::policy::Hints;
use crate::call::{Late, SlotId, Task, Work};
use crate::core::tasks::OnTimeout;
use crate::server::edit;
use crate::tool_list::ToolItem;

/// Longest cursor that is worth reading: ours are short numbers.
const CURSOR_MAX: usize = 8;

/// A request on its way to the kernel.
#[derive(Debug)]
pub(crate) struct Routed {
    /// The tool's canonical name.
    pub(crate) tool: Option<String>,
    pub(crate) route: Route,
    /// The deprecated name that was used.
    pub(crate) deprecated: Option<String>,
}

/// The next step of a request.
#[derive(Debug)]
pub(crate) enum Route {
    Work(Work),
    /// The arguments are checked first; [`PackCatalog::prepared`] continues.
    Check {
        definition: Definition,
        timeout_ms: u64,
        slot: Option<SlotId>,
        /// The tool's last change.
        epoch: u64,
    },
}

impl Routed {
    fn to(work: Work) -> Self {
        Self {
            tool: None,
            route: Route::Work(work),
            deprecated: None,
        }
    }
}

impl PackCatalog {
    /// True if a request can be routed now: every pack is known, or at least the one that it names.
    pub(crate) fn can_route(&self, op: &Op) -> bool {
        self.is_complete()
            || match op {
                Op::Ping {} | Op::Listen { .. } | Op::List { .. } => true,
                Op::CallTool { name, .. } => {
                    self.tools.contains_key(name) || self.aliases.contains_key(name)
                }
                Op::ReadResource { uri } => self.resource_owner(uri).is_some(),
                Op::GetPrompt { name, .. } => self.prompts.contains_key(name),
                Op::Complete(completion) => self.completion_owner(completion).is_ok(),
                Op::Subscribe { .. } | Op::Unsubscribe { .. } | Op::SetLogLevel { .. } => true,
                Op::Initialize { .. }
                | Op::Discover {}
                | Op::Catalog {}
                | Op::ListTools { .. }
                | Op::ListResources { .. }
                | Op::ListResourceTemplates {}
                | Op::ListPrompts {}
                | Op::Task(_)
                | Op::Approvals(_) => false,
            }
    }

    /// Decides who answers a request.
    pub(crate) fn route(&self, op: &Op) -> Routed {
        let routed = self.find_route(op);
        routed.unwrap_or_else(|problem| Routed::to(Work::Refused(problem)))
    }

    fn find_route(&self, op: &Op) -> Result<Routed, Problem> {
        if !self.declares(op) {
            let said = format!("the method {} is not offered", op.method());
            return Err(Problem::new(ErrorKind::UnknownMethod, said));
        }
        let (slot, op) = match op {
            Op::CallTool { name, .. } => return self.route_tool(name),
            Op::ListResources { cursor } => match self.resource_page(cursor.as_deref())? {
                Some(slot) => (slot, rpc::Op::ListResources {}),
                None => return Ok(Routed::to(Work::Host)),
            },
            Op::ReadResource { uri } => {
                let slot = self.resource_owner(uri).ok_or_else(|| {
                    let shown = mainstay_contract::render::shorten(uri, 120);
                    let message = format!("nothing serves the resource {shown}");
                    self.absent(Problem::new(ErrorKind::ResourceNotFound, message))
                })?;
                (slot, rpc::Op::ReadResource { uri: uri.clone() })
            }
            Op::GetPrompt { name, arguments } => {
                let slot = self.check_prompt(name, arguments)?;
                let (name, arguments) = (name.clone(), arguments.clone());
                (slot, rpc::Op::Prompt { name, arguments })
            }
            Op::Complete(completion) => {
                let slot = self.completion_owner(completion)?;
                (slot, rpc::Op::Complete(completion.clone()))
            }
            Op::Initialize { .. }
            | Op::Discover {}
            | Op::Catalog {}
            | Op::Ping {}
            | Op::Listen { .. }
            | Op::List { .. }
            | Op::Subscribe { .. }
            | Op::Unsubscribe { .. }
            | Op::SetLogLevel { .. }
            | Op::ListTools { .. }
            | Op::ListResourceTemplates {}
            | Op::ListPrompts {}
            | Op::Task(_)
            | Op::Approvals(_) => return Ok(Routed::to(Work::Host)),
        };
        Ok(self.read(slot, op))
    }

    /// True if the handshake declares the capability that a request needs.
    fn declares(&self, op: &Op) -> bool {
        match op {
            Op::ListResources { .. } | Op::ListResourceTemplates {} | Op::ReadResource { .. } => {
                self.has_resources()
            }
            Op::ListPrompts {} | Op::GetPrompt { .. } => !self.prompts.is_empty(),
            Op::Complete(_) => self.has_completions(),
            Op::List { .. }
            | Op::Subscribe { .. }
            | Op::Unsubscribe { .. }
            | Op::SetLogLevel { .. }
            | Op::Approvals(_) => false,
            Op::Task(_) => self.has_tasks(),
            Op::Initialize { .. }
            | Op::Discover {}
            | Op::Catalog {}
            | Op::Ping {}
            | Op::Listen { .. }
            | Op::ListTools { .. }
            | Op::CallTool { .. } => true,
        }
    }

    pub(crate) fn has_resources(&self) -> bool {
        let mut catalogs = self.catalogs();
        catalogs.any(|(_, catalog)| !catalog.resource_schemes.is_empty())
    }

    /// True if a tool may run as a task.
    pub(crate) fn has_tasks(&self) -> bool {
        self.offered().any(|tool| tool.spec.tasks)
    }

    /// True if this tool may run as a task.
    pub(crate) fn is_task(&self, tool: &str) -> bool {
        self.tools.get(tool).is_some_and(|tool| tool.spec.tasks)
    }

    /// True if calls of this tool run on as tasks when their deadline passes.
    pub(crate) fn detaches(&self, tool: &str) -> bool {
        let rule = self.task_rules.get(tool);
        rule.is_some_and(|rule| rule.on_timeout == OnTimeout::Detach)
    }

    /// The annotations of a tool.
    pub(crate) fn hints_of(&self, tool: &str) -> Hints {
        let tool = self.tools.get(tool);
        tool.map_or_else(Hints::default, |tool| Hints::from(tool.spec.annotations))
    }

    /// The identity of the backend that runs a tool, for tasks that outlive this host.
    pub(crate) fn backend_of(&self, tool: &str) -> Option<String> {
        let tool = self.tools.get(tool)?;
        let pack = self.pack_name(tool.slot()?);
        let version = tool.spec.tooling_version.as_str();
        let major = version.split(['.', '+', '-']).next().unwrap_or_default();
        Some(format!("pack:{pack}@{major}"))
    }

    /// The identities of all backends.
    pub(crate) fn backends(&self) -> Vec<String> {
        let tools = self.tools.keys();
        let mut backends: Vec<String> = tools.filter_map(|tool| self.backend_of(tool)).collect();
        backends.sort();
        backends.dedup();
        backends
    }

    fn has_completions(&self) -> bool {
        self.catalogs().any(|(_, catalog)| catalog.completions)
    }

    fn route_tool(&self, name: &str) -> Result<Routed, Problem> {
        let (tool, deprecated) = self.resolve(name)?;
        let canonical = tool.spec.name.clone();
        let route = match tool.withdrawn {
            Some(withdrawn) => {
                let problem = withdrawn.problem(ListKind::Tools, &canonical);
                Route::Work(Work::Refused(problem))
            }
            None => Route::Check {
                definition: tool.check.clone(),
                timeout_ms: self.timeout_of(tool),
                slot: tool.slot(),
                epoch: tool.epoch,
            },
        };
        Ok(Routed {
            tool: Some(canonical),
            route,
            deprecated,
        })
    }

    /// The number of the last change of a tool.
    pub(crate) fn epoch_of(&self, tool: &str) -> Option<u64> {
        self.tools.get(tool).map(|tool| tool.epoch)
    }

    pub(super) fn timeout_of(&self, tool: &Tool) -> u64 {
        tool.spec.timeout_ms.unwrap_or(self.call_timeout_ms)
    }

    /// Everything that is read from a worker may be read again.
    fn read(&self, slot: SlotId, op: rpc::Op) -> Routed {
        let timeout_ms = self.call_timeout_ms;
        let task = Task {
            slot,
            op,
            replay: Replay::Convergent,
            timeout_ms,
            late: Late::Ask,
            pace: Pace::Short,
        };
        Routed::to(Work::Worker(task))
    }

    /// The tool that a name means, and the name if it is a deprecated one.
    fn resolve(&self, name: &str) -> Result<(&Tool, Option<String>), Problem> {
        if let Some(tool) = self.tools.get(name) {
            return Ok((tool, None));
        }
        let names: Vec<&str> = self.tools.keys().map(String::as_str).collect();
        let aliases = self.aliases.iter();
        let aliases: Vec<_> = aliases.map(|(name, tool)| (&**name, &**tool)).collect();
        let resolution = resolve_method(name, &names, &aliases);
        let (tool, alias) = match resolution {
            Resolution::Named(tool) => (self.tools.get(tool), None),
            Resolution::Alias(tool) => (self.tools.get(tool), Some(name.to_owned())),
            Resolution::Unknown { .. } => (None, None),
        };
        let unknown = || self.absent(unknown_tool(name));
        tool.map(|tool| (tool, alias))
            .ok_or_else(|| match resolution {
                Resolution::Unknown {
                    nearest: Some(nearest),
                } => unknown().with_hint(format!("did you mean {nearest}?")),
                _ => unknown(),
            })
    }

    /// Listings of several packs are one page each; a cursor is the number of the pack.
    fn resource_page(&self, cursor: Option<&str>) -> Result<Option<SlotId>, Problem> {
        let first = match cursor {
            None => 0,
            Some(cursor) => cursor
                .parse::<usize>()
                .ok()
                .filter(|_| cursor.len() <= CURSOR_MAX)
                .filter(|index| self.serves_resources(SlotId(*index)))
                .ok_or_else(|| {
                    Problem::new(
                        ErrorKind::InvalidParams,
                        "cursor is not one that was given out",
                    )
                })?,
        };
        Ok(self.next_resources(first))
    }

    fn serves_resources(&self, slot: SlotId) -> bool {
        self.catalogs()
            .any(|(at, catalog)| at == slot && !catalog.resource_schemes.is_empty())
    }

    fn next_resources(&self, from: usize) -> Option<SlotId> {
        self.catalogs()
            .find(|(slot, catalog)| slot.0 >= from && !catalog.resource_schemes.is_empty())
            .map(|(slot, _)| slot)
    }

    /// The result of `resources/list`: one pack's resources, and where the next pack's are.
    /// `last` is the cursor of the page after those of packs.
    pub(crate) fn resource_listing(
        &self,
        slot: SlotId,
        resources: &Json,
        last: Option<&str>,
    ) -> Json {
        let page =
            ObjectWriter::with_capacity(resources.len() + 64).raw("resources", resources.as_str());
        let page = match self.next_resources(slot.0 + 1) {
            Some(next) => page.string("nextCursor", &next.0.to_string()),
            None => page.optional_string("nextCursor", last),
        };
        Json::from_scanned(&page.finish())
    }

    /// True if a pack serves a resource.
    pub(crate) fn serves_uri(&self, uri: &str) -> bool {
        self.resource_owner(uri).is_some()
    }

    fn resource_owner(&self, uri: &str) -> Option<SlotId> {
        let (scheme, _) = uri.split_once(':')?;
        self.catalogs()
            .find(|(_, catalog)| catalog.resource_schemes.iter().any(|own| own == scheme))
            .map(|(slot, _)| slot)
    }

    fn check_prompt(&self, name: &str, arguments: &Json) -> Result<SlotId, Problem> {
        let bad = |message: String| Problem::new(ErrorKind::InvalidParams, message);
        let slot = self
            .prompts
            .get(name)
            .ok_or_else(|| self.absent(bad(format!("there is no prompt {name:.64}"))))?;
        if let Some(withdrawn) = self.withdrawal(ListKind::Prompts, name) {
            return Err(withdrawn.problem(ListKind::Prompts, name));
        }
        let spec = self
            .catalogs()
            .find(|(at, _)| at == slot)
            .and_then(|(_, catalog)| catalog.prompts.iter().find(|prompt| prompt.name == name));
        let given = arguments.to_value().unwrap_or_default();
        let Some((spec, given)) = spec.zip(given.as_object()) else {
            return Err(bad("the prompt's arguments cannot be read".to_owned()));
        };
        for (key, value) in given {
            if !spec.arguments.iter().any(|argument| argument.name == *key) {
                return Err(bad(format!("the prompt has no argument {key:.64}")));
            }
            if !value.is_string() {
                return Err(bad(format!(
                    "the prompt's argument {key:.64} must be a string"
                )));
            }
        }
        let missing = spec
            .arguments
            .iter()
            .find(|argument| argument.required && !given.contains_key(&argument.name));
        match missing {
            Some(argument) => Err(bad(format!(
                "the prompt needs the argument {}",
                argument.name
            ))),
            None => Ok(*slot),
        }
    }

    fn completion_owner(&self, completion: &Completion) -> Result<SlotId, Problem> {
        let owner = match &completion.of {
            CompletionTarget::Prompt(name) => self.prompts.get(name).copied(),
            CompletionTarget::Resource(uri) => self.resource_owner(uri),
        };
        owner.ok_or_else(|| {
            Problem::new(
                ErrorKind::InvalidParams,
                "ref names nothing that can be completed",
            )
        })
    }

    /// The facts for both handshakes.
    pub(crate) fn facts(
        &self,
        name: &str,
        version: &str,
        about: Option<&str>,
        is_known: bool,
    ) -> ServerFacts {
        ServerFacts {
            tasks: self.has_tasks().then_some(TaskFacts { list: is_known }),
            name: name.to_owned(),
            version: version.to_owned(),
            instructions: about.map(str::to_owned),
            resources: self.has_resources(),
            prompts: !self.prompts.is_empty(),
            completions: self.has_completions(),
            servers: None,
        }
    }

    /// Everything on offer, as envelopes describe it.
    pub(crate) fn catalog(&self, name: &str, version: &str) -> Json {
        let timeout_ms = self.call_timeout_ms;
        let tools = self.offered();
        let tools: Vec<_> = tools
            .map(|tool| tool.spec.catalog_entry(timeout_ms))
            .collect();
        let server = json!({ "name": name, "version": version });
        json!({ "server": server, "version": ENVELOPE_VERSION, "tools": tools }).into()
    }

    /// The tools that clients may see. With `marks_tasks` those that may run as tasks are marked.
    pub(crate) fn tool_items(&self, form: DefinitionForm, marks_tasks: bool) -> Vec<ToolItem> {
        let item = |tool: &Tool| {
            let definition = match form {
                DefinitionForm::Full => tool.definition.to_string(),
                DefinitionForm::Brief => {
                    tool.spec.brief_definition(self.call_timeout_ms).to_string()
                }
            };
            let (member, optional) = TASK_SUPPORT;
            ToolItem {
                name: tool.spec.name.clone(),
                definition: match marks_tasks && tool.spec.tasks {
                    true => edit::with_member(&definition, member, optional),
                    false => definition,
                },
            }
        };
        self.offered().map(item).collect()
    }

    /// The names of the packs.
    pub(crate) fn pack_names(&self) -> impl Iterator<Item = &str> {
        self.packs.values().map(|pack| pack.name.as_str())
    }

    /// Members of a listing of resources, templates or prompts.
    pub(crate) fn listing(&self, op: &Op) -> Option<Json> {
        match op {
            Op::ListResources { .. } => Some(json!({ "resources": [] }).into()),
            Op::ListResourceTemplates {} => {
                let templates: Vec<_> = self
                    .catalogs()
                    .flat_map(|(_, catalog)| &catalog.resource_templates)
                    .filter(|template| self.shows(ListKind::Templates, &template.uri_template))
                    .collect();
                Some(json!({ "resourceTemplates": templates }).into())
            }
            Op::ListPrompts {} => {
                let prompts: Vec<_> = self
                    .catalogs()
                    .flat_map(|(_, catalog)| &catalog.prompts)
                    .filter(|prompt| self.shows(ListKind::Prompts, &prompt.name))
                    .collect();
                Some(json!({ "prompts": prompts }).into())
            }
            _ => None,
        }
    }
}

fn unknown_tool(name: &str) -> Problem {
    let shown = mainstay_contract::render::shorten(name, 64);
    Problem::new(ErrorKind::UnknownTool, format!("there is no tool {shown}"))
}
