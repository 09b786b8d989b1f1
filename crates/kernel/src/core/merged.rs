//! Several wrapped servers behind one session, beside packs.
//!
//! Theory of operation. Each client, and each caller without a session, has one link to each server. The host
//! answers the handshake and the lists itself: a *gather* has every link read its list, waits for those that
//! come in time, and records which server has which name. A request that names a tool, a prompt or a
//! resource is admitted like one of a pack, then handed to the link of its server with the server's own name
//! in it. From there it is a wrapped call.
//!
//! Names. A server's tools and prompts are `PREFIX__name`, resources and templates keep their URIs. The
//! first server with a name keeps it, in the order of keys where several are read together; packs come before
//! servers. A later one is withdrawn with a warning.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::dialect::{Dialect, Op, Relayed, Request, relay};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, RequestId, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::outcome::Problem;
use mainstay_contract::render;
use mainstay_contract::rpc::{Completion, CompletionTarget};
use mainstay_contract::scan;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::gather::NAME_CHARS;
use super::sessions::Front;
use super::{Core, Lifetime, tasks};
use crate::call::{SlotId, Work};
use crate::server::{Client, House, Link, OUTPUT_PREFIX, ServerConfig, edit, expands_to};
use crate::time::Time;

/// The cursor of the page with the resources of servers, after those of packs.
pub(super) const SERVERS_PAGE: &str = "servers";

/// One client of several servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Member {
    /// Random, for the ids of the host's own requests.
    nonce: u64,
    /// The parameters of its `initialize`.
    opening: Option<Json>,
    /// Its line that ends the handshake.
    initialized: Option<Json>,
    /// The parameters of its last `logging/setLevel`.
    level: Option<Json>,
    /// By the keys of the servers.
    pub(super) links: BTreeMap<String, SlotId>,
    /// The server whose user interface it read last.
    last_app: Option<String>,
    #[serde(default)]
    pub(super) credential: Option<String>,
    /// Lists of shared servers that changed while the client did not read.
    #[serde(default)]
    pub(super) late: BTreeSet<ListKind>,
    /// The only server that it uses, whose names have no prefix.
    #[serde(default)]
    pub(super) only: Option<String>,
    /// Ids of requests that it sends again, since a lost host may have sent them to the server.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) unsettled: BTreeSet<RequestId>,
}

/// The way of a request.
enum Plan {
    /// To packs, or to the host itself.
    Packs,
    /// To the server of this key, which has this name for it.
    Server(String, String),
    /// It must wait for these lists first.
    Gather(Vec<ListKind>),
    /// As above, also for lists that were missed before.
    Await(Vec<ListKind>),
    /// The host answers it, from what it knows of all servers.
    Host,
    Refuse(Problem),
}

impl Core {
    /// A client opened a connection. Its links are opened when it sends its first request.
    pub(super) fn add_member(&mut self, session: SessionId, nonce: u64, only: Option<String>) {
        let member = Member {
            nonce,
            only,
            ..Member::default()
        };
        self.links.members.insert(session, member);
    }

    /// Opens the session of a client that uses one server, with the server's own names. Of the requests with ids in
    /// `unsettled` only those run again whose replay class allows that. `None` if there is no room.
    pub fn open_to(
        &mut self,
        now: Time,
        nonce: u64,
        server: ServerConfig,
        unsettled: BTreeSet<RequestId>,
    ) -> Option<SessionId> {
        self.clock.now = now;
        let key = server.name.clone();
        if !self.kernel.is_serving() {
            return None;
        }
        if !self.knows_server(&key) {
            self.links.set_server(server, false);
        }
        let session = self.open_with(now, nonce, Some(key))?;
        if let Some(member) = self.links.members.get_mut(&session) {
            member.unsettled = unsettled;
        }
        Some(session)
    }

    /// True, once, for a request that a lost host may have sent to its server.
    pub(super) fn is_unsettled(&mut self, session: SessionId, id: &RequestId) -> bool {
        let member = self.links.members.get_mut(&session);
        member.is_some_and(|member| member.unsettled.remove(id))
    }

    /// True if a server of this key is served.
    pub fn knows_server(&self, key: &str) -> bool {
        self.links.served().any(|(served, _)| served == key)
    }

    /// The configuration of a server that is served.
    pub fn served_config(&self, key: &str) -> Option<&ServerConfig> {
        let mut served = self.links.served();
        served.find_map(|(served, config)| (served == key).then_some(config))
    }

    /// Forgets servers that neither a client nor a process uses. Returns their keys.
    pub fn forget_unused_servers(&mut self) -> Vec<String> {
        let is_used = |key: &str| {
            let mut members = self.links.members.values();
            let is_chosen = members.any(|member| member.only.as_deref() == Some(key));
            is_chosen || !self.links.slots_of(key).is_empty()
        };
        let unused = self.links.served().map(|(key, _)| key.to_owned());
        let unused: Vec<String> = unused.filter(|key| !is_used(key)).collect();
        for key in &unused {
            self.links.retire(key);
        }
        unused
    }

    /// A client is gone: its servers end.
    pub(super) fn remove_member(&mut self, session: SessionId) {
        let Some(member) = self.links.members.remove(&session) else {
            return;
        };
        for slot in member.links.into_values() {
            if self.links.is_shared(slot) {
                self.with_link(slot, |link, cx| link.leave(cx, session));
            } else {
                self.kernel.close_slot(self.clock.now, slot);
            }
        }
    }

    /// The slots of a client's links.
    pub(super) fn member_slots(&self, session: SessionId) -> Vec<SlotId> {
        self.links.group(session).into_values().collect()
    }

    /// Keeps the words of a client that its servers must get, too.
    pub(super) fn note_opening(&mut self, session: SessionId, op: &Op, line: &Json) {
        if let (Op::Initialize { .. }, Some(member)) = (op, self.links.members.get_mut(&session)) {
            let params = scan::member(line.as_str(), "params").unwrap_or("{}");
            member.opening.get_or_insert(Json::from_scanned(params));
        }
    }

    /// Passes a notification of a client on to its servers.
    pub(super) fn broadcast(&mut self, session: SessionId, line: &[u8]) {
        let Ok(Relayed::Notice { method, params }) = relay(line, self.kernel.limits().json_depth)
        else {
            return;
        };
        let text = std::str::from_utf8(line).unwrap_or_default();
        if method == Method::Initialized.name()
            && let Some(member) = self.links.members.get_mut(&session)
        {
            member.initialized = Some(Json::from_scanned(text));
        }
        let mut slots = self.member_slots(session);
        // A shared server gets no words of a single client.
        slots.retain(|slot| !self.links.is_shared(*slot));
        // Progress of an answer is for the server that asked. Servers choose their tokens alike, so the host
        // drops it where several ask.
        if method == Method::Progress.name() {
            let asks = |slot: &SlotId| self.links.get(*slot).is_some_and(Link::has_questions);
            slots.retain(asks);
            if slots.len() > 1 {
                return;
            }
        }
        for slot in slots {
            self.with_link(slot, |link, cx| {
                link.notification(cx, text, &method, params);
            });
        }
    }

    /// Passes an answer of a client on to the server that asked. False if none did.
    pub(super) fn answer_question(
        &mut self,
        session: SessionId,
        id: &RequestId,
        line: &[u8],
    ) -> bool {
        let text = std::str::from_utf8(line).unwrap_or_default();
        let asked = |slot: &SlotId| {
            let link = self.links.get(*slot);
            link.is_some_and(|link| link.has_question(id))
        };
        let Some(slot) = self.member_slots(session).into_iter().find(asked) else {
            return false;
        };
        self.with_link(slot, |link, cx| link.client_answer(cx, text, id));
        true
    }

    /// The link of a client or a caller to a server, opened if there is none.
    pub(super) fn link_to(&mut self, session: SessionId, key: &str) -> Option<SlotId> {
        let is_shared = self.links.sharing(key, self.identity.lifetime).is_shared();
        if let Some(caller) = self.links.callers.get(&session).cloned() {
            let nonce = caller.nonce ^ mix(key);
            if is_shared {
                return self.shared_link(key, &caller.name, nonce);
            }
            return self.house_of(&caller.name, key, nonce);
        }
        let member = self.links.members.get(&session)?;
        if let Some(slot) = member.links.get(key) {
            return Some(*slot);
        }
        let (nonce, opening) = (member.nonce ^ mix(key), member.opening.clone());
        let (initialized, level) = (member.initialized.clone(), member.level.clone());
        let credential = member.credential.clone();
        let slot = if is_shared {
            let caller = credential.as_deref().unwrap_or_default();
            self.shared_link(key, caller, nonce)?
        } else {
            let many = self.identity.lifetime != Lifetime::Client;
            let client = Client::House(House::of_member(session, opening));
            self.add_link(key, client, many, nonce)?
        };
        if let Some(member) = self.links.members.get_mut(&session) {
            member.links.insert(key.to_owned(), slot);
        }
        self.with_link(slot, |link, cx| {
            if !is_shared {
                link.identify_member(cx, credential);
            }
            link.join(cx.now, session);
            if let Some(line) = initialized.as_ref().filter(|_| !is_shared) {
                link.notification(cx, line.as_str(), Method::Initialized.name(), None);
            }
            if let Some(level) = &level {
                link.set_level(cx, session, level.as_str());
            }
        });
        Some(slot)
    }

    /// Routes a request that servers may have to do with. False if it is for packs alone.
    pub(super) fn route_merged(&mut self, call: CallId) -> bool {
        let Some((session, _)) = self.kernel.request_of(call) else {
            return false;
        };
        let Some(pending) = self.requests.get(&call) else {
            return false;
        };
        if pending.dialect == Dialect::Direct {
            return false;
        }
        let (op, gathered) = (pending.op.clone(), pending.gathered);
        let is_typed = pending.line.is_none();
        self.record_late_names(session);
        match self.plan(session, &op, gathered, is_typed) {
            Plan::Packs => return false,
            Plan::Server(key, own) => self.hand_over(call, session, &key, &own),
            Plan::Gather(kinds) => self.gather(call, session, kinds, false),
            Plan::Await(kinds) => self.gather(call, session, kinds, true),
            Plan::Host if !self.catalog.can_route(&op) => return false,
            Plan::Host => {
                if let Op::SetLogLevel { .. } = op {
                    self.set_level(session, call);
                }
                let now = self.clock.now;
                self.kernel.handle_routed(now, call, None, Work::Host);
            }
            Plan::Refuse(problem) => {
                let (now, work) = (self.clock.now, Work::Refused(problem));
                self.kernel.handle_routed(now, call, None, work);
            }
        }
        true
    }

    fn plan(&self, session: SessionId, op: &Op, gathered: bool, is_typed: bool) -> Plan {
        let list = |kind: ListKind| match gathered {
            true => Plan::Host,
            false => Plan::Gather(vec![kind]),
        };
        let missing = |name: &str| {
            let said = format!("{name} is missing");
            Plan::Refuse(Problem::new(ErrorKind::InvalidParams, said))
        };
        match op {
            Op::Initialize { .. } if !gathered => Plan::Gather(Vec::new()),
            Op::Discover {} if !is_typed && self.bridges_all() => match gathered {
                true => Plan::Packs,
                false => Plan::Gather(Vec::new()),
            },
            // Not every server speaks the modern era; the client then opens a session.
            Op::Discover {} if !is_typed => {
                let said = "the method server/discover is not offered";
                Plan::Refuse(Problem::new(ErrorKind::UnknownMethod, said))
            }
            Op::ListTools { .. } | Op::Catalog {} => list(ListKind::Tools),
            Op::ListPrompts {} => list(ListKind::Prompts),
            Op::ListResourceTemplates {} => list(ListKind::Templates),
            Op::ListResources { cursor } => match cursor.as_deref() {
                None if self.catalog.has_resources() => Plan::Packs,
                None | Some(SERVERS_PAGE) => list(ListKind::Resources),
                Some(_) => Plan::Packs,
            },
            Op::List { kind, .. } => list(*kind),
            Op::CallTool { name, .. } => {
                let in_packs = self.catalog.has_name(name);
                self.plan_name(session, ListKind::Tools, name, in_packs, gathered)
            }
            Op::GetPrompt { name, .. }
            | Op::Complete(Completion {
                of: CompletionTarget::Prompt(name),
                ..
            }) => {
                let in_packs = self.catalog.has_prompt(name);
                self.plan_name(session, ListKind::Prompts, name, in_packs, gathered)
            }
            Op::Subscribe { uri } | Op::Unsubscribe { uri } if uri.is_empty() => missing("uri"),
            Op::SetLogLevel { level } if level.is_empty() => missing("level"),
            Op::ReadResource { uri }
            | Op::Subscribe { uri }
            | Op::Unsubscribe { uri }
            | Op::Complete(Completion {
                of: CompletionTarget::Resource(uri),
                ..
            }) => self.plan_uri(session, uri, gathered),
            Op::SetLogLevel { .. } => Plan::Host,
            Op::Initialize { .. }
            | Op::Discover {}
            | Op::Ping {}
            | Op::Task(_)
            | Op::Approvals(_)
            | Op::Listen { .. } => Plan::Packs,
        }
    }

    /// True if every server may serve clients of the other era.
    fn bridges_all(&self) -> bool {
        self.links.served().all(|(_, config)| config.rules.bridge)
    }

    fn plan_name(
        &self,
        session: SessionId,
        kind: ListKind,
        name: &str,
        in_packs: bool,
        gathered: bool,
    ) -> Plan {
        if let Some(only) = self.links.only_of(session) {
            return Plan::Server(only.to_owned(), name.to_owned());
        }
        if in_packs {
            return Plan::Packs;
        }
        if let Some(key) = self.links.merged.owner(kind, name)
            && let Some((_, config)) = self.links.served().find(|(served, _)| *served == key)
            && let Some(own) = name.strip_prefix(&config.name_prefix())
        {
            return Plan::Server(key.to_owned(), own.to_owned());
        }
        let is_too_long = kind == ListKind::Tools && name.chars().count() > NAME_CHARS;
        let prefixed = self.links.served().filter_map(|(key, config)| {
            let prefix = config.name_prefix();
            let own = name.strip_prefix(&prefix).filter(|_| !prefix.is_empty())?;
            Some((prefix.len(), key, own))
        });
        if let Some((_, key, own)) = prefixed.max().filter(|_| !is_too_long) {
            return Plan::Server(key.to_owned(), own.to_owned());
        }
        if !gathered && self.lacks_list(session, &[kind]) {
            return Plan::Gather(vec![kind]);
        }
        if kind == ListKind::Tools
            && let Some(key) = self.app_with_tool(session, name)
        {
            return Plan::Server(key, name.to_owned());
        }
        match kind {
            ListKind::Tools => Plan::Packs,
            _ => {
                let shown = render::shorten(name, 64);
                let said = format!("there is no prompt {shown}");
                Plan::Refuse(Problem::new(ErrorKind::InvalidParams, said))
            }
        }
    }

    /// The server with a user interface that calls this tool. Such an interface knows its server's own names
    /// only.
    fn app_with_tool(&self, session: SessionId, name: &str) -> Option<String> {
        let group = self.links.group(session);
        let has_tool = |slot: &SlotId| {
            let tools = self
                .links
                .get(*slot)
                .map(|link| link.items_of(ListKind::Tools));
            tools.is_some_and(|tools| {
                tools.iter().any(|tool| tool.app.is_some())
                    && tools.iter().any(|tool| tool.name == name)
            })
        };
        let able = group.iter().filter(|(_, slot)| has_tool(slot));
        let able: Vec<&String> = able.map(|(key, _)| key).collect();
        let member = self.links.members.get(&session);
        let last = member.and_then(|member| member.last_app.as_ref());
        match (able.as_slice(), last) {
            ([only], _) => Some((*only).clone()),
            (several, Some(last)) if several.contains(&last) => Some(last.clone()),
            _ => None,
        }
    }

    fn plan_uri(&self, session: SessionId, uri: &str, gathered: bool) -> Plan {
        if let Some(only) = self.links.only_of(session) {
            return Plan::Server(only.to_owned(), uri.to_owned());
        }
        if self.catalog.serves_uri(uri) || tasks::id_of(uri).is_some() {
            return Plan::Packs;
        }
        let to = |key: &str| Plan::Server(key.to_owned(), uri.to_owned());
        let merged = &self.links.merged;
        let output = uri.strip_prefix(OUTPUT_PREFIX);
        if let Some((key, _)) = output.and_then(|output| output.split_once('/'))
            && self.links.served().any(|(served, _)| served == key)
        {
            return to(key);
        }
        if let Some(key) = merged.owner_of_resource(uri) {
            return to(key);
        }
        let templates = merged.owners.get(&ListKind::Templates);
        let mut templates = templates.into_iter().flatten();
        let fits = |template: &str| template == uri || expands_to(template, uri);
        if let Some((_, key)) = templates.find(|(template, _)| fits(template)) {
            return to(key);
        }
        let kinds = [ListKind::Tools, ListKind::Resources, ListKind::Templates];
        let missing = self.servers_without_lists(session);
        // A list that was missed before may come now.
        if !gathered && (!missing.is_empty() || self.lacks_list(session, &kinds)) {
            return Plan::Await(kinds.to_vec());
        }
        match (self.only_server_for(session, uri), missing.as_slice()) {
            (Some(key), _) => to(&key),
            // It may have the resource: the request waits for it like a call.
            (None, [(key, _)]) => to(key),
            (None, [(_, slot), ..]) => Plan::Refuse(match slot {
                Some(slot) if self.is_hopeless(*slot) => {
                    self.kernel.unavailable(self.clock.now, *slot)
                }
                Some(_) => Problem::of(ErrorKind::WorkerNotReady),
                None => Problem::of(ErrorKind::Overloaded),
            }),
            (None, []) => {
                let shown = render::shorten(uri, 120);
                let said = format!("no server lists the resource {shown}");
                let problem = Problem::new(ErrorKind::ResourceNotFound, said);
                Plan::Refuse(problem.with_hint("list the resources and templates"))
            }
        }
    }

    /// The only server that may have a resource that no list names: the only one with resources of its scheme,
    /// or with resources at all.
    fn only_server_for(&self, session: SessionId, uri: &str) -> Option<String> {
        let (scheme, _) = uri.split_once(':')?;
        let mut alike = BTreeSet::new();
        for kind in [ListKind::Resources, ListKind::Templates] {
            let names = self.links.merged.owners.get(&kind).into_iter().flatten();
            let names = names.filter(|(name, _)| {
                let known = name.split_once(':');
                known.is_some_and(|(known, _)| known == scheme)
            });
            alike.extend(names.map(|(_, key)| key));
        }
        if let (Some(only), 1) = (alike.first(), alike.len()) {
            return Some((*only).clone());
        }
        // A server that may still come may have it; one that cannot be started is left out.
        let missing = self.servers_without_lists(session);
        let is_out = |slot: Option<SlotId>| slot.is_some_and(|slot| self.is_hopeless(slot));
        if !missing.iter().all(|(_, slot)| is_out(*slot)) {
            return None;
        }
        let group = self.links.group(session);
        let mut able = group.iter().filter(|(_, slot)| {
            let link = self.links.get(**slot);
            link.is_some_and(|link| link.declares("resources"))
        });
        let first = able.next().map(|(key, _)| key.clone());
        first.filter(|_| able.next().is_none())
    }

    /// True if the server of a link cannot be started now.
    fn is_hopeless(&self, slot: SlotId) -> bool {
        let link = self.links.get(slot);
        self.kernel.is_closed(self.clock.now, slot) || link.is_some_and(Link::is_hopeless)
    }

    /// The servers of a client whose resources are not known: no list of them has come yet.
    fn servers_without_lists(&self, session: SessionId) -> Vec<(String, Option<SlotId>)> {
        let group = self.links.group(session);
        let without = self.links.served_to(session).filter_map(|(key, _)| {
            let slot = group.get(key).copied();
            let link = slot.and_then(|slot| self.links.get(slot));
            let is_without = link.is_none_or(|link| {
                let kinds = [ListKind::Resources, ListKind::Templates];
                kinds.iter().any(|kind| !link.knows_list(*kind))
            });
            is_without.then(|| (key.to_owned(), slot))
        });
        without.collect()
    }

    /// True if a list of a server has not been read for this client.
    fn lacks_list(&self, session: SessionId, kinds: &[ListKind]) -> bool {
        let group = self.links.group(session);
        self.links.served_to(session).any(|(key, _)| {
            let slot = group.get(key);
            let link = slot.and_then(|slot| self.links.get(*slot));
            link.is_none_or(|link| kinds.iter().any(|kind| !link.has_list(*kind)))
        })
    }

    /// Hands a request to the link of its server, with the server's own name in it.
    fn hand_over(&mut self, call: CallId, session: SessionId, key: &str, own: &str) {
        let now = self.clock.now;
        let handed = match self.link_to(session, key) {
            Some(slot) => self.take_up(call, slot, own).map(|()| slot),
            None => Err(Problem::of(ErrorKind::Overloaded)),
        };
        match handed {
            Ok(slot) => self.route_link(slot, call),
            Err(problem) => {
                let work = Work::Refused(problem);
                self.kernel.handle_routed(now, call, None, work);
            }
        }
        let is_app = own.starts_with("ui://");
        if let Some(member) = self.links.members.get_mut(&session).filter(|_| is_app) {
            member.last_app = Some(key.to_owned());
        }
    }

    fn take_up(&mut self, call: CallId, slot: SlotId, own: &str) -> Result<(), Problem> {
        let unknown = || Problem::of(ErrorKind::UnknownMethod);
        let pending = self.requests.get(&call).ok_or_else(unknown)?;
        let asked = match &pending.line {
            Some(line) => {
                let text = with_own_name(line.as_str(), &pending.op, own);
                let depth = self.kernel.limits().json_depth;
                let Ok(Relayed::Request(request)) = relay(text.as_bytes(), depth) else {
                    return Err(Problem::of(ErrorKind::InvalidMessage));
                };
                if request.ambiguous {
                    let said = "the message has a member twice, in one spelling or another";
                    return Err(Problem::new(ErrorKind::InvalidMessage, said));
                }
                self.with_link(slot, |link, cx| {
                    link.routed_request(cx.now, &text, &request)
                })
            }
            None => {
                let request = Request {
                    id: RequestId::from_text("house"),
                    dialect: pending.dialect,
                    op: match pending.op.clone() {
                        Op::CallTool { arguments, .. } => Op::CallTool {
                            name: own.to_owned(),
                            arguments,
                        },
                        other => other,
                    },
                    progress_token: pending.progress_token.clone(),
                    trace: pending.trace,
                    task: pending.task.clone(),
                };
                let asked =
                    self.with_link(slot, |link, cx| link.house_request(cx.now, &request, None));
                asked.flatten()
            }
        };
        let asked = asked.ok_or_else(unknown)?;
        self.with_link(slot, |link, _| link.insert_house_request(call, asked));
        if let Some(pending) = self.requests.get_mut(&call) {
            pending.house = Some(slot);
        }
        Ok(())
    }

    fn set_level(&mut self, session: SessionId, call: CallId) {
        let pending = self.requests.get(&call);
        let line = pending.and_then(|pending| pending.line.as_ref());
        let params = line.and_then(|line| scan::member(line.as_str(), "params"));
        let params = Json::from_scanned(params.unwrap_or("{}"));
        if let Some(member) = self.links.members.get_mut(&session) {
            member.level = Some(params.clone());
        }
        for slot in self.member_slots(session) {
            self.with_link(slot, |link, cx| {
                link.set_level(cx, session, params.as_str());
            });
        }
    }

    /// An operator changed the servers. Those in `restart` have another command.
    pub(super) fn apply_servers(&mut self, servers: Vec<ServerConfig>, restart: &[String]) {
        if !self.kernel.is_serving() {
            return;
        }
        let before: BTreeMap<String, ServerConfig> = self
            .links
            .served()
            .map(|(key, config)| (key.to_owned(), config.clone()))
            .collect();
        let is_kept = |key: &str| servers.iter().any(|server| server.name == key);
        for key in before.keys().filter(|key| !is_kept(key)) {
            self.log(format!("mcp:config removed server={key}"));
            let sessions = self.sessions_of(key);
            for slot in self.links.retire(key) {
                self.kernel.close_slot(self.clock.now, slot);
            }
            for session in sessions {
                self.announce_to(session, ListKind::ALL.into());
            }
        }
        for server in servers {
            let key = server.name.clone();
            let old = before.get(&key);
            if old == Some(&server) && !restart.contains(&key) {
                continue;
            }
            // Sessions move to links of their own, or to one that they share.
            if old.is_some_and(|old| old.shared != server.shared) {
                for slot in self.links.retire(&key) {
                    self.kernel.close_slot(self.clock.now, slot);
                }
                self.links.set_server(server, restart.contains(&key));
                self.log(format!("mcp:config changed server={key}"));
                self.open_everywhere(&key);
                continue;
            }
            let is_new = old.is_none();
            let what = if is_new { "added" } else { "changed" };
            self.log(format!("mcp:config {what} server={key}"));
            self.links
                .set_server(server.clone(), restart.contains(&key));
            if is_new {
                self.open_everywhere(&key);
            } else {
                self.change_server(&server, restart.contains(&key));
            }
        }
        self.recheck_approvals();
    }

    /// Opens the links of the clients that are served already to a new server.
    fn open_everywhere(&mut self, key: &str) {
        let members = self.links.members.iter();
        let members = members.filter(|(_, member)| member.only.is_none());
        let opened =
            members.filter(|(_, member)| member.opening.is_some() || !member.links.is_empty());
        let sessions: Vec<SessionId> = opened.map(|(session, _)| *session).collect();
        for session in sessions {
            if let Some(slot) = self.link_to(session, key) {
                self.with_link(slot, |link, _| link.announce_when_ready());
            }
        }
    }

    fn change_server(&mut self, server: &ServerConfig, restarts: bool) {
        let now = self.clock.now;
        self.links.merged.forget(&server.name);
        for slot in self.links.slots_of(&server.name) {
            if let Some(limits) = &server.limits {
                self.kernel.limit_slot(slot, limits);
            }
            self.with_link(slot, |link, cx| {
                link.set_prefix(&server.name_prefix());
                link.apply_rules(cx, &server.rules);
                link.apply_lock(cx, server.locked.as_ref());
            });
            if restarts {
                self.kernel.handle_rollout(now, slot);
            }
        }
    }

    /// The sessions of clients with a link to a server.
    fn sessions_of(&self, key: &str) -> Vec<SessionId> {
        let members = self.links.members.iter();
        let served = members.filter(|(_, member)| member.links.contains_key(key));
        served.map(|(session, _)| *session).collect()
    }

    /// True if the session takes notifications about lists.
    pub(super) fn is_opened(&self, session: SessionId) -> bool {
        matches!(
            self.sessions.get(&session),
            Some(Front::Packs { opened: true, .. })
        )
    }
}

/// A request's line with the server's own name in the place of the one that clients see.
fn with_own_name(line: &str, op: &Op, own: &str) -> String {
    let params = scan::member(line, "params").unwrap_or("{}");
    let quoted = Value::from(own).to_string();
    let params = match op {
        Op::CallTool { name, .. } | Op::GetPrompt { name, .. } if name != own => {
            edit::with_member(params, "name", &quoted)
        }
        Op::Complete(Completion {
            of: CompletionTarget::Prompt(name),
            ..
        }) if name != own => edit::with_inner(params, "ref", "name", &quoted),
        _ => return line.to_owned(),
    };
    edit::with_member(line, "params", &params)
}

/// A number of its own for each server, so that no two links make the same ids.
fn mix(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
