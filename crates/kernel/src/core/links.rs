//! The links to a wrapped server: one for each client, and one for each caller without a session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mainstay_contract::dialect::{Op, Request};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, SessionId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::outcome::Problem;
use serde::{Deserialize, Serialize};

use super::gather::Merged;
use super::merged::Member;
use super::readiness::Proof;
use super::sessions::Front;
use super::tasks::PEER;
use super::{Core, Lifetime, Pending};
use crate::Conduct;
use crate::call::{SlotId, Work};
use crate::locked::Locked;
use crate::log_limit::LogLimit;
use crate::server::{Client, Cx, Discovered, House, Link, Rules, ServerConfig, ServerMemory};
use crate::time::Time;

/// How long more servers than the limit may run before an idle one is stopped, in milliseconds.
const CROWDED_MS: u64 = 1000;

/// All links of a host, and the servers that they lead to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Links {
    /// By their keys.
    servers: BTreeMap<String, Server>,
    by_slot: BTreeMap<SlotId, Link>,
    /// The links of clients that several servers serve together.
    pub(super) members: BTreeMap<SessionId, Member>,
    /// The links of callers without a session, by the keys of their servers.
    houses: BTreeMap<String, BTreeMap<String, SlotId>>,
    /// The links that several sessions share, by the keys of their servers and by the credential of the sessions.
    #[serde(default)]
    shared: BTreeMap<String, BTreeMap<String, SlotId>>,
    /// The callers of single requests.
    pub(super) callers: BTreeMap<SessionId, Caller>,
    pub(super) merged: Merged,
    opened: u64,
    /// Links whose serving server may have changed.
    touched: BTreeSet<SlotId>,
    /// Links whose next timeout may have changed.
    stale: BTreeSet<SlotId>,
    due: BTreeMap<SlotId, Time>,
    /// When an idle server is stopped because more run than may.
    crowded: Option<Time>,
    /// For the warning that a client finds no place.
    pub(super) refusals: LogLimit,
}

/// A wrapped server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Server {
    pub(super) config: ServerConfig,
    /// The host's knowledge about the server before it starts one.
    memory: ServerMemory,
    /// Does the server answer?
    pub(super) proof: Proof,
    /// Removed from the configuration; its last links are being closed.
    retired: bool,
}

impl Server {
    fn new(mut config: ServerConfig) -> Self {
        Self {
            memory: std::mem::take(&mut config.memory),
            config,
            proof: Proof::default(),
            retired: false,
        }
    }
}

/// The reason why the sessions of a host share a server, or do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// The host has one client.
    OnlyClient,
    /// The operator declared it with `shared = true`.
    Declared,
    /// The operator declared `shared = false`.
    DeclaredExclusive,
    /// A server of the stateless revision keeps no session.
    Modern,
    /// A server with sessions that is not declared shared.
    Undeclared,
}

impl Sharing {
    pub(super) const fn is_shared(self) -> bool {
        matches!(self, Self::Declared | Self::Modern)
    }

    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::OnlyClient => "the host has one client",
            Self::Declared => "declared with shared = true",
            Self::DeclaredExclusive => "declared with shared = false",
            Self::Modern => "the server is stateless",
            Self::Undeclared => "not declared, and not known to be stateless",
        }
    }
}

/// The caller of a single request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Caller {
    pub(super) name: String,
    pub(super) nonce: u64,
}

impl Links {
    pub(super) fn new(servers: impl IntoIterator<Item = ServerConfig>) -> Self {
        let servers = servers.into_iter();
        Self {
            servers: servers
                .map(|server| (server.name.clone(), Server::new(server)))
                .collect(),
            ..Self::default()
        }
    }

    pub(super) fn get(&self, slot: SlotId) -> Option<&Link> {
        self.by_slot.get(&slot)
    }

    pub(super) fn touch(&mut self, slot: SlotId) {
        self.touched.insert(slot);
        self.stale.insert(slot);
    }

    pub(super) fn touch_all(&mut self) {
        self.touched.extend(self.by_slot.keys());
        self.stale.extend(self.by_slot.keys());
    }

    /// Removes the link of a closed slot.
    pub(super) fn remove(&mut self, slot: SlotId) {
        self.by_slot.remove(&slot);
        self.due.remove(&slot);
        self.forget_slot(slot);
        let by_slot = &self.by_slot;
        let is_used = |key: &str| by_slot.values().any(|link| link.server() == key);
        self.servers
            .retain(|key, server| !server.retired || is_used(key));
    }

    /// Sends nothing more to a link.
    fn forget_slot(&mut self, slot: SlotId) {
        for links in self.houses.values_mut() {
            links.retain(|_, house| *house != slot);
        }
        self.houses.retain(|_, links| !links.is_empty());
        for links in self.shared.values_mut() {
            links.retain(|_, link| *link != slot);
        }
        self.shared.retain(|_, links| !links.is_empty());
        for member in self.members.values_mut() {
            member.links.retain(|_, link| *link != slot);
        }
    }

    /// The server that is wrapped alone, if the host does that.
    pub(super) fn wrapped(&self) -> Option<&Server> {
        let mut servers = self.servers.values();
        servers.find(|server| server.config.prefix.is_none())
    }

    pub(super) fn wrapped_mut(&mut self) -> Option<&mut Server> {
        let mut servers = self.servers.values_mut();
        servers.find(|server| server.config.prefix.is_none())
    }

    /// The name of the server that is wrapped alone.
    pub(super) fn server_name(&self) -> Option<&str> {
        self.wrapped().map(|server| server.config.name.as_str())
    }

    /// The servers that are served together, by their keys.
    pub(super) fn served(&self) -> impl Iterator<Item = (&str, &ServerConfig)> {
        let servers = self.servers.iter();
        let served = servers.filter(|(_, server)| server.config.prefix.is_some());
        served
            .filter(|(_, server)| !server.retired)
            .map(|(key, server)| (key.as_str(), &server.config))
    }

    /// The servers of a client, by their keys.
    pub(super) fn served_to(
        &self,
        session: SessionId,
    ) -> impl Iterator<Item = (&str, &ServerConfig)> {
        let only = self.only_of(session);
        let is_its = move |key: &str| only.is_none_or(|only| only == key);
        self.served().filter(move |(key, _)| is_its(key))
    }

    /// The only server that a client uses, if it chose one.
    pub(super) fn only_of(&self, session: SessionId) -> Option<&str> {
        self.members.get(&session)?.only.as_deref()
    }

    /// True if servers are served together, and beside packs.
    pub(super) fn serves_many(&self) -> bool {
        self.served().next().is_some()
    }

    /// Every server that the host knows.
    pub(super) fn configs(&self) -> impl Iterator<Item = &ServerConfig> {
        let servers = self.servers.values();
        servers
            .filter(|server| !server.retired)
            .map(|server| &server.config)
    }

    /// Adds a server, or replaces its configuration. With another command it is another server, of which only
    /// the memory in its configuration is known.
    pub(super) fn set_server(&mut self, config: ServerConfig, has_new_command: bool) {
        match self.servers.get_mut(&config.name) {
            Some(server) if has_new_command => {
                server.retired = false;
                server.config = config;
                server.memory = std::mem::take(&mut server.config.memory);
            }
            Some(server) => {
                server.retired = false;
                server.config = config;
                server.config.memory = ServerMemory::default();
            }
            None => {
                let server = Server::new(config);
                self.servers.insert(server.config.name.clone(), server);
            }
        }
    }

    /// Removes a server. Returns the slots to close.
    pub(super) fn retire(&mut self, key: &str) -> Vec<SlotId> {
        let slots = self.slots_of(key);
        if let Some(server) = self.servers.get_mut(key) {
            server.retired = true;
        }
        if slots.is_empty() {
            self.servers.remove(key);
        }
        for slot in &slots {
            self.forget_slot(*slot);
        }
        self.merged.forget(key);
        slots
    }

    /// The slots of a server's links.
    pub(super) fn slots_of(&self, key: &str) -> Vec<SlotId> {
        let links = self.by_slot.iter();
        let of_server = links.filter(|(_, link)| link.server() == key);
        of_server.map(|(slot, _)| *slot).collect()
    }

    /// The links of a client or a caller, by the keys of their servers.
    pub(super) fn group(&self, session: SessionId) -> BTreeMap<String, SlotId> {
        let Some(caller) = self.callers.get(&session) else {
            let member = self.members.get(&session);
            return member.map_or_else(BTreeMap::new, |member| member.links.clone());
        };
        let mut links = self.houses.get(&caller.name).cloned().unwrap_or_default();
        let credential = sharing_credential(&caller.name);
        let shared = self.shared.iter();
        links
            .extend(shared.filter_map(|(key, links)| Some((key.clone(), *links.get(credential)?))));
        links
    }

    /// The clients that a link serves.
    pub(super) fn clients_of(&self, slot: SlotId) -> Vec<SessionId> {
        let members = self.members.iter();
        let served = members.filter(|(_, member)| member.links.values().any(|link| *link == slot));
        served.map(|(session, _)| *session).collect()
    }

    pub(super) fn is_shared(&self, slot: SlotId) -> bool {
        self.get(slot).is_some_and(Link::is_shared)
    }

    /// The way in which new sessions use a server.
    pub(super) fn sharing(&self, key: &str, lifetime: Lifetime) -> Sharing {
        let Some(server) = self.servers.get(key) else {
            return Sharing::Undeclared;
        };
        let mut links = self.by_slot.values().filter(|link| link.server() == key);
        let remembered = matches!(server.memory.discovered, Some(Discovered::Modern { .. }));
        match server.config.shared {
            _ if lifetime == Lifetime::Client => Sharing::OnlyClient,
            Some(true) => Sharing::Declared,
            Some(false) => Sharing::DeclaredExclusive,
            None if remembered || links.any(Link::is_modern) => Sharing::Modern,
            None => Sharing::Undeclared,
        }
    }
}

/// The part of a caller's name that separates processes of shared servers: tokens, subjects and other Unix users. Callers
/// without a credential are one.
fn sharing_credential(caller: &str) -> &str {
    let has_credential = ["token:", "subject:", PEER]
        .iter()
        .any(|kind| caller.starts_with(kind));
    if has_credential { caller } else { "" }
}

impl Core {
    /// Works on a link with the rest of the core at hand.
    pub(super) fn with_link<T>(
        &mut self,
        slot: SlotId,
        work: impl FnOnce(&mut Link, &mut Cx<'_>) -> T,
    ) -> Option<T> {
        let Self {
            kernel,
            clock,
            links,
            checks,
            tool_lists,
            gates,
            out,
            ..
        } = self;
        links.touch(slot);
        let link = links.by_slot.get_mut(&slot)?;
        let server = links.servers.get_mut(link.server())?;
        let mut cx = Cx {
            now: clock.now,
            kernel,
            out,
            checks,
            memory: &mut server.memory,
            proof: &mut server.proof,
            epoch_ms: clock.epoch_ms,
            version: &server.config.version,
            spans: &mut clock.spans,
            tool_list: &tool_lists.rules,
            gates,
        };
        Some(work(link, &mut cx))
    }

    /// Works on a link alone, which cannot change when it has something to do.
    pub(super) fn with_link_quietly<T>(
        &mut self,
        slot: SlotId,
        work: impl FnOnce(&mut Link) -> T,
    ) -> Option<T> {
        self.links.by_slot.get_mut(&slot).map(work)
    }

    /// The link that a request belongs to.
    pub(super) fn link_of(&self, call: CallId) -> Option<SlotId> {
        if let Some(pending) = self.requests.get(&call) {
            return pending.house;
        }
        let (session, _) = self.kernel.request_of(call)?;
        match self.sessions.get(&session) {
            Some(Front::Link(slot) | Front::House(slot)) => Some(*slot),
            _ => None,
        }
    }

    /// True if the servers of another client may be started, or only one of them; idle ones are stopped if that makes
    /// room.
    pub(super) fn has_room_for_servers(&mut self, only: Option<&str>) -> bool {
        // A shared server that runs is not started again.
        let links = &self.links;
        let runs = |server: &&ServerConfig| links.shared.contains_key(&server.name);
        let is_its = |server: &&ServerConfig| only.is_none_or(|only| server.name == only);
        let needed = links.configs().filter(is_its);
        let needed = needed.filter(|server| !runs(server)).count();
        let most = self.kernel.limits().wrapped_workers;
        let running = self.kernel.running_workers();
        let excess = (running + needed).saturating_sub(most);
        (0..excess.min(needed)).all(|_| self.stop_idlest())
    }

    /// Stops the server that has been idle for longest, if there is one.
    pub(super) fn make_room(&mut self) {
        let _ = self.stop_idlest();
    }

    /// Stops the server that has been idle for longest. False if all are busy.
    fn stop_idlest(&mut self) -> bool {
        let kernel = &self.kernel;
        let links = self.links.by_slot.iter();
        let idle = links.filter_map(|(slot, link)| Some((link.idle_since(kernel)?, *slot)));
        let Some((_, slot)) = idle.min() else {
            return false;
        };
        self.with_link(slot, |link, cx| link.rest(cx, "others need the place"));
        true
    }

    /// A server that had been stopped is started again, perhaps one too many.
    pub(super) fn watch_crowd(&mut self) {
        let most = self.kernel.limits().wrapped_workers;
        let wraps = !self.links.servers.is_empty();
        let is_crowded = wraps && self.kernel.running_workers() > most;
        let until = self.clock.now.plus_ms(CROWDED_MS);
        self.links.crowded = is_crowded.then_some(until);
    }

    /// Opens the link of a client. `None` if the host serves packs.
    pub(super) fn open_link(&mut self, session: SessionId, nonce: u64) -> Option<SlotId> {
        let many = self.identity.lifetime != Lifetime::Client;
        let server = self.links.server_name()?.to_owned();
        self.add_link(&server, Client::Session(session), many, nonce)
    }

    /// Opens a link to a server.
    pub(super) fn add_link(
        &mut self,
        server: &str,
        client: Client,
        many: bool,
        nonce: u64,
    ) -> Option<SlotId> {
        let server = self.links.servers.get(server)?;
        let config = server.config.clone();
        // The first request decides if the client is served from memory; a server that runs by then gets
        // the client's own words.
        let waits = matches!(client, Client::Session(_))
            && (server.memory.has_catalogs() || config.rules.bridge);
        let name = if many {
            self.links.opened += 1;
            format!("{}#{}", config.name, self.links.opened)
        } else {
            config.name.clone()
        };
        let session = match &client {
            Client::Session(session) => Some(*session),
            Client::House(house) => house.session,
        };
        let slot = self.kernel.add_slot(&name, Conduct::Lenient, session);
        if let Some(limits) = &config.limits {
            self.kernel.limit_slot(slot, limits);
        }
        let now = self.clock.now;
        let link = Link::open(now, &config, slot, name, client, nonce);
        self.links.by_slot.insert(slot, link);
        self.links.touch(slot);
        if !config.rules.lazy && !waits {
            self.kernel.warm(now, slot);
        }
        Some(slot)
    }

    /// The link of a caller without a session to a server, opened if there is none. `None` without
    /// room.
    pub(super) fn house_of(&mut self, caller: &str, server: &str, nonce: u64) -> Option<SlotId> {
        let houses = self.links.houses.get(caller);
        if let Some(slot) = houses.and_then(|links| links.get(server)) {
            return Some(*slot);
        }
        let most = self.kernel.limits().http_sessions;
        let is_full = self.links.houses.len() >= most && !self.links.houses.contains_key(caller);
        if is_full && !self.close_idle_house() {
            return None;
        }
        let most = self.kernel.limits().wrapped_workers;
        if self.kernel.running_workers() >= most && !self.stop_idlest() {
            return None;
        }
        let client = Client::House(House::of(caller.to_owned()));
        let slot = self.add_link(server, client, true, nonce)?;
        let links = self.links.houses.entry(caller.to_owned()).or_default();
        links.insert(server.to_owned(), slot);
        Some(slot)
    }

    /// The link of all sessions of `caller` to a shared server, opened if there is none. Callers with different
    /// credentials never share a process. `None` if there is no room.
    pub(super) fn shared_link(&mut self, server: &str, caller: &str, nonce: u64) -> Option<SlotId> {
        let credential = sharing_credential(caller);
        let links = self.links.shared.get(server);
        if let Some(slot) = links.and_then(|links| links.get(credential)) {
            return Some(*slot);
        }
        let most = self.kernel.limits().wrapped_workers;
        if self.kernel.running_workers() >= most && !self.stop_idlest() {
            return None;
        }
        let client = Client::House(House::of(String::new()));
        let slot = self.add_link(server, client, !credential.is_empty(), nonce)?;
        self.kernel.share_slot(slot);
        let known = (!credential.is_empty()).then(|| credential.to_owned());
        self.with_link(slot, |link, cx| {
            link.share();
            link.identify_member(cx, known);
        });
        let links = self.links.shared.entry(server.to_owned()).or_default();
        links.insert(credential.to_owned(), slot);
        Some(slot)
    }

    /// The reason why sessions share a server of a slot, or do not, with the number of its sessions.
    pub(super) fn sharing_facts(&self, slot: SlotId) -> Option<Json> {
        let link = self.links.get(slot)?;
        let of_many = self.links.served().any(|(key, _)| key == link.server());
        if !of_many {
            return None;
        }
        let sharing = self.links.sharing(link.server(), self.identity.lifetime);
        let facts = ObjectWriter::with_capacity(128)
            .value("shared", &link.is_shared())
            .string("why", sharing.reason())
            .value("sessions", &link.session_count());
        Some(Json::from_scanned(&facts.finish()))
    }

    /// Closes the house that has been idle for longest. False if all are busy.
    fn close_idle_house(&mut self) -> bool {
        let kernel = &self.kernel;
        let houses = self.links.houses.values().flat_map(BTreeMap::values);
        let idle = houses.filter_map(|slot| {
            let link = self.links.by_slot.get(slot)?;
            let is_idle = link.is_idle(kernel);
            is_idle.then(|| (link.last_work(), *slot))
        });
        let Some((_, slot)) = idle.min() else {
            return false;
        };
        self.close_house(slot);
        true
    }

    fn close_house(&mut self, slot: SlotId) {
        self.links.forget_slot(slot);
        self.kernel.close_slot(self.clock.now, slot);
    }

    /// A caller without a session asks a wrapped server.
    pub(super) fn ask_house(
        &mut self,
        slot: SlotId,
        session: SessionId,
        request: Request,
        bytes: usize,
    ) {
        let mut new = self.new_request(&request, bytes);
        let run = self.task_run(session);
        let asked = self.with_link(slot, |link, cx| link.house_request(cx.now, &request, run));
        let asked = asked.flatten();
        if asked.is_none() {
            new.work = Work::Refused(Problem::of(ErrorKind::UnknownMethod));
        }
        let call = self.kernel.handle_request(self.clock.now, session, new);
        if let (Some(call), Some(asked)) = (call, asked) {
            self.with_link(slot, |link, _| link.insert_house_request(call, asked));
            let mut pending = Pending::new(request.dialect, request.op, None);
            pending.house = Some(slot);
            self.requests.insert(call, Box::new(pending));
        }
    }

    /// Routes a request to a wrapped server, or to one of the host's own tools beside it.
    pub(super) fn route_link(&mut self, slot: SlotId, call: CallId) {
        let own = self.links.get(slot).and_then(|link| link.own_tool(call));
        let Some((dialect, name, arguments)) = own else {
            self.with_link(slot, |link, cx| link.decide(cx, call));
            return;
        };
        let op = Op::CallTool { name, arguments };
        let routed = self.catalog.route(&op);
        let pending = self.requests.entry(call);
        let pending = pending.or_insert_with(|| Box::new(Pending::new(dialect, op, None)));
        pending.dialect = dialect;
        self.follow_route(call, routed.tool, routed.route);
    }

    /// Lets one link that was touched notice which server serves it. False if there is none left.
    pub(super) fn settle_link(&mut self) -> bool {
        let Some(slot) = self.links.touched.pop_first() else {
            return false;
        };
        self.with_link(slot, |link, cx| link.settle(cx));
        self.links.touched.remove(&slot);
        self.end_trial(slot);
        self.settle_member(slot);
        true
    }

    /// The next time at which a link has something to do.
    pub(super) fn links_timeout(&mut self) -> Option<Time> {
        let idle_ms = self.kernel.limits().http_session_idle_ms;
        while let Some(slot) = self.links.stale.pop_first() {
            let next = self.links.get(slot).and_then(|link| {
                let own = link.next_timeout(&self.kernel);
                let idle = link.is_house() && link.session_count() == 0;
                let idle = idle.then(|| link.last_work().plus_ms(idle_ms));
                [own, idle].into_iter().flatten().min()
            });
            match next {
                Some(next) => self.links.due.insert(slot, next),
                None => self.links.due.remove(&slot),
            };
        }
        let others = [self.links.crowded, self.links.merged.timeout()];
        let others = others.into_iter().flatten();
        self.links.due.values().copied().chain(others).min()
    }

    /// Works on the links whose time has come.
    pub(super) fn links_due(&mut self) {
        let now = self.clock.now;
        if self.links.crowded.is_some_and(|at| at <= now) {
            self.make_room();
            self.watch_crowd();
        }
        let idle_ms = self.kernel.limits().http_session_idle_ms;
        let due: Vec<SlotId> = self
            .links
            .due
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(slot, _)| *slot)
            .collect();
        for slot in due {
            self.with_link(slot, |link, cx| link.handle_timeout(cx));
            let kernel = &self.kernel;
            let is_over = self.links.get(slot).is_some_and(|link| {
                let is_old = now.ms_since(link.last_work()) >= idle_ms;
                let is_unused = link.is_house() && link.session_count() == 0;
                is_unused && is_old && link.is_idle(kernel)
            });
            if is_over {
                self.close_house(slot);
            }
        }
        self.gathers_due();
    }

    pub(super) fn apply_rules(&mut self, rules: &Arc<Rules>) {
        if let Some(server) = self.links.wrapped_mut() {
            server.config.rules = Arc::clone(rules);
        }
        let slots: Vec<SlotId> = self.links.by_slot.keys().copied().collect();
        for slot in slots {
            self.with_link(slot, |link, cx| link.apply_rules(cx, rules));
        }
        self.recheck_approvals();
    }

    pub(super) fn apply_server_lock(&mut self, locked: &Arc<Locked>) {
        if let Some(server) = self.links.wrapped_mut() {
            server.config.locked = Some(Arc::clone(locked));
        }
        let slots: Vec<SlotId> = self.links.by_slot.keys().copied().collect();
        for slot in slots {
            self.with_link(slot, |link, cx| link.apply_lock(cx, Some(locked)));
        }
    }
}
