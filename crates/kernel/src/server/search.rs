//! Tool search on a server that is wrapped alone.
//!
//! Where it is on, the host reads the whole list before it answers the client's `tools/list`: a list that is
//! long enough is answered by the host, a shorter one by the server as always.

use mainstay_contract::dialect::{Relayed, RelayedRequest, relay};
use mainstay_contract::id::CallId;
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::outcome::{Outcome, Success};
use mainstay_contract::scan;

use super::lists::Seen;
use super::requests::ClientRequest;
use super::{Client, Cx, Link, edit};
use crate::call::Work;
use crate::system_tools;
use crate::tool_list::{self, CALL, SEARCH, ToolItem};

/// How long a list waits for the server's own, in milliseconds.
const LIST_MS: u64 = 10_000;

impl Link {
    /// Handles a call through `call_tool` as one of the tool that it names. False if the line is another request.
    pub(super) fn named_call(
        &mut self,
        cx: &mut Cx<'_>,
        text: &str,
        request: &RelayedRequest<'_>,
    ) -> bool {
        let is_call = request.method == Method::CallTool.name() && !request.ambiguous;
        if !is_call || !self.searches(cx) {
            return false;
        }
        let name = request.param("name").and_then(scan::unquote);
        let is_named = name.as_deref() == Some(CALL) && self.tools.get(CALL).is_none();
        let line = tool_list::rewritten_line(text).filter(|_| is_named);
        if let Some(name) = name.filter(|_| line.is_none()) {
            self.recent.note(&name, cx.tool_list);
        }
        let Some(line) = line else {
            return false;
        };
        let relayed = relay(line.as_bytes(), cx.kernel.limits().json_depth);
        if let Ok(Relayed::Request(request)) = relayed {
            if let Some(name) = request.param("name").and_then(scan::unquote) {
                self.recent.note(&name, cx.tool_list);
            }
            self.request(cx, &line, &request);
            return true;
        }
        false
    }

    /// True if tool search is on for this client.
    fn searches(&self, cx: &Cx<'_>) -> bool {
        cx.tool_list.search_above.is_some() && matches!(self.client, Client::Session(_))
    }

    /// True for a `tools/list` that tool search may answer.
    pub(super) fn is_searched_listing(&self, cx: &Cx<'_>, request: &ClientRequest) -> bool {
        // Every request passes here, and only a list is worth a look at its parameters.
        request.method == Method::ListTools.name()
            && self.searches(cx)
            && request.param("cursor").is_none()
            && request.meta(meta::DEFINITIONS) != Some("\"full\"")
    }

    /// True for a call of `search_tools` or `call_tool`, unless the server has such a tool.
    fn is_search(&self, cx: &Cx<'_>, request: &ClientRequest) -> bool {
        let tool = request.tool.as_deref();
        let is_own = tool.is_some_and(|tool| cx.tool_list.is_own(tool));
        is_own && self.searches(cx) && tool.is_none_or(|tool| self.tools.get(tool).is_none())
    }

    /// Routes a request of tool search, which waits until the tools are known. False for other requests.
    pub(super) fn decide_search(&mut self, cx: &mut Cx<'_>, call: CallId) -> bool {
        let Some(request) = self.requests.get(call) else {
            return false;
        };
        let is_listing = self.is_searched_listing(cx, request);
        if !is_listing && !self.is_search(cx, request) {
            return false;
        }
        if is_listing {
            self.tools.forget();
        } else if self.tools.is_complete() {
            return self.admit_search(cx, call);
        }
        let until = cx
            .now
            .plus_ms(LIST_MS + cx.kernel.limits().start_timeout_ms);
        self.requests.hold(call, until);
        self.want_tools(cx);
        true
    }

    /// Decides about a request of tool search once the tools are known, or cannot be. False if it goes to the
    /// server.
    pub(super) fn admit_search(&mut self, cx: &mut Cx<'_>, call: CallId) -> bool {
        let Some(request) = self.requests.get(call) else {
            return false;
        };
        if self.is_searched_listing(cx, request) {
            let is_reduced = self.tools.is_complete() && self.reduced_list(cx, request).is_some();
            match is_reduced {
                true => cx.kernel.handle_routed(cx.now, call, None, Work::Host),
                false => self.finish_routing(cx, call, None),
            }
            return true;
        }
        if !self.is_search(cx, request) {
            return false;
        }
        let arguments = request.param("arguments").unwrap_or("{}");
        let is_search = request.tool.as_deref() == Some(SEARCH);
        let problem = tool_list::named_call(arguments)
            .err()
            .filter(|_| !is_search);
        let work = problem.map_or(Work::Host, Work::Refused);
        let tool = Some(SEARCH.to_owned()).filter(|_| is_search);
        cx.kernel.handle_routed(cx.now, call, tool, work);
        true
    }

    /// The tools that the client may see.
    fn tool_items(&self, cx: &Cx<'_>) -> Vec<ToolItem> {
        let item = |definition: String| {
            let name = scan::member(&definition, "name").and_then(scan::unquote);
            let name = name.map(std::borrow::Cow::into_owned).unwrap_or_default();
            ToolItem { name, definition }
        };
        let visible = self.tools.visible().map(Json::to_string);
        visible.chain(self.own_definitions(cx)).map(item).collect()
    }

    /// The definitions of the host's own tools, if they are offered beside those of the server.
    pub(super) fn own_definitions(&self, cx: &Cx<'_>) -> Vec<String> {
        if !self.rules().system_tools {
            return Vec::new();
        }
        let timeout_ms = cx.kernel.limits().call_timeout_ms;
        let form = match self.client {
            Client::Session(_) => cx.tool_list.definitions,
            Client::House(_) => mainstay_contract::tool::DefinitionForm::Full,
        };
        let specs = system_tools::specs(cx.version).into_iter();
        specs
            .map(|spec| spec.definition_in(form, timeout_ms).to_string())
            .collect()
    }

    /// The list in place of the server's own, if the client gets another one.
    fn reduced_list(&self, cx: &Cx<'_>, request: &ClientRequest) -> Option<String> {
        let items = self.tool_items(cx);
        let listed = cx.tool_list.reduced(&items, &self.recent, &[&self.name])?;
        let listed = edit::array(listed.iter().map(String::as_str));
        let page = ObjectWriter::with_capacity(listed.len() + 16).raw("tools", &listed);
        let page = page.finish();
        let marked = self.with_task_support(Some(request.dialect), &page);
        Some(marked.unwrap_or(page))
    }

    /// The answer to a request of tool search. `None` for other requests.
    pub(super) fn search_answer(&mut self, cx: &Cx<'_>, call: CallId) -> Option<Outcome> {
        let request = self.requests.get(call)?;
        if self.is_searched_listing(cx, request) {
            let list = self.reduced_list(cx, request)?;
            // The host announces changes of the whole list.
            let all = edit::array(self.tools.all().map(Json::as_str));
            let page = ObjectWriter::with_capacity(all.len() + 16).raw("tools", &all);
            let mut seen = Seen::default();
            if seen.page(ListKind::Tools, None, &page.finish()) {
                self.lists.last_seen.insert(ListKind::Tools, seen);
            }
            return Some(Ok(Success::Members(Json::from_scanned(&list))));
        }
        if !self.is_search(cx, request) {
            return None;
        }
        let arguments = Json::from_scanned(request.param("arguments").unwrap_or("{}"));
        Some(tool_list::search(&self.tool_items(cx), &arguments))
    }
}
