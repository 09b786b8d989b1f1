//! The tools of packs and of several servers as one list, and calls of tool search.

use std::collections::BTreeMap;

use mainstay_contract::dialect::{Dialect, Op};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, SessionId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta;
use mainstay_contract::method::ListKind;
use mainstay_contract::outcome::{Outcome, Problem};
use mainstay_contract::tool::DefinitionForm;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::sessions::Front;
use super::{Core, PendingStage};
use crate::call::Work;
use crate::server::edit;
use crate::tool_list::{self, CALL, Recent, SEARCH, ToolItem, ToolListRules};

/// The settings of `tools/list`, and the tools that each session used last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToolLists {
    pub(super) rules: ToolListRules,
    recent: BTreeMap<SessionId, Recent>,
}

impl ToolLists {
    pub(super) fn new(rules: ToolListRules) -> Self {
        Self {
            rules,
            recent: BTreeMap::new(),
        }
    }

    /// A session is over.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.recent.remove(&session);
    }
}

impl Core {
    /// The tools that a session may see, packs first.
    fn tools_of(
        &self,
        session: SessionId,
        form: DefinitionForm,
        marks_tasks: bool,
    ) -> Vec<ToolItem> {
        let mut items = self.catalog.tool_items(form, marks_tasks);
        let of_servers = self.merged_items(session, ListKind::Tools).into_iter();
        items.extend(of_servers.map(|(name, listed)| ToolItem {
            definition: listed.shown(ListKind::Tools, &name),
            name,
        }));
        items
    }

    /// The result of `tools/list`. The full list has every tool with its whole contract.
    pub(super) fn tool_listing(&self, session: SessionId, full: bool, marks_tasks: bool) -> Json {
        let rules = &self.tool_lists.rules;
        let form = match full {
            true => DefinitionForm::Full,
            false => rules.definitions,
        };
        let items = self.tools_of(session, form, marks_tasks);
        let packs = self.catalog.pack_names();
        let sources: Vec<&str> = packs
            .chain(self.links.served().map(|(key, _)| key))
            .collect();
        let (unused, recent) = (Recent::default(), self.tool_lists.recent.get(&session));
        let reduced = rules.reduced(&items, recent.unwrap_or(&unused), &sources);
        let listed = match reduced.filter(|_| !full) {
            Some(reduced) => edit::array(reduced.iter().map(String::as_str)),
            None => edit::array(items.iter().map(|item| item.definition.as_str())),
        };
        let mut listing = ObjectWriter::with_capacity(listed.len() + 16).raw("tools", &listed);
        if full {
            let missing = self.missing_servers(session);
            if !missing.is_empty() {
                listing = listing.value("_meta", &json!({ meta::MISSING: missing }));
            }
        }
        Json::from_scanned(&listing.finish())
    }

    /// Replaces a call through `call_tool` by one of the tool that it names, and remembers the tool as used. True
    /// if the call was replaced.
    pub(super) fn resolve_named_call(&mut self, session: SessionId, op: &mut Op) -> bool {
        let is_search = self.is_search(CALL);
        let Op::CallTool { name, arguments } = op else {
            return false;
        };
        let mut is_replaced = false;
        if name == CALL
            && is_search
            && let Ok((tool, inner)) = tool_list::named_call(arguments.as_str())
        {
            let (tool, inner) = (tool.into_owned(), Json::from_scanned(inner));
            (*name, *arguments) = (tool, inner);
            is_replaced = true;
        }
        let ToolLists { rules, recent } = &mut self.tool_lists;
        let is_client = matches!(self.sessions.get(&session), Some(Front::Packs { .. }));
        if rules.search_above.is_some() && is_client {
            recent.entry(session).or_default().note(name, rules);
        }
        is_replaced
    }

    /// True if tool search answers calls of this name: no pack and no server has such a tool.
    fn is_search(&self, name: &str) -> bool {
        let is_taken =
            self.catalog.has_name(name) || self.links.merged.owner(ListKind::Tools, name).is_some();
        self.tool_lists.rules.is_own(name) && !is_taken
    }

    /// Routes a call of tool search. False if the request is another one.
    pub(super) fn route_search(&mut self, call: CallId) -> bool {
        let Some((session, _)) = self.kernel.request_of(call) else {
            return false;
        };
        let Some(pending) = self.requests.get(&call) else {
            return false;
        };
        let Op::CallTool { name, arguments } = &pending.op else {
            return false;
        };
        if !self.is_search(name) {
            return false;
        }
        let gathers = self.links.serves_many() && pending.dialect != Dialect::Direct;
        if name == CALL {
            let problem = tool_list::named_call(arguments.as_str()).err();
            let problem = problem.unwrap_or_else(|| Problem::of(ErrorKind::Internal));
            let work = Work::Refused(problem);
            self.kernel.handle_routed(self.clock.now, call, None, work);
        } else if gathers && !pending.gathered {
            self.gather(call, session, vec![ListKind::Tools], false);
        } else if !self.catalog.is_complete() {
            if let Some(pending) = self.requests.get_mut(&call) {
                pending.stage = PendingStage::Unrouted;
            }
        } else {
            let tool = Some(SEARCH.to_owned());
            self.kernel
                .handle_routed(self.clock.now, call, tool, Work::Host);
        }
        true
    }

    /// The answer of `search_tools`.
    pub(super) fn search_tools(&self, session: SessionId, arguments: &Json) -> Outcome {
        let form = self.tool_lists.rules.definitions;
        tool_list::search(&self.tools_of(session, form, false), arguments)
    }
}
