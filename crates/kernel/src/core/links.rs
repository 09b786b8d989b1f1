//! The links to a wrapped server: one for each client, and one for each caller without a session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mainstay_contract::dialect::{Op, Request};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::id::{CallId, SessionId};
use mainstay_contract::outcome::Problem;
use serde::{Deserialize, Serialize};

use super::readiness::Proof;
use super::sessions::Front;
use super::{Core, Pending};
use crate::Conduct;
use crate::call::{SlotId, Work};
use crate::log_limit::LogLimit;
use crate::server::{Client, Cx, Discovered, House, Link, Rules, ServerConfig};
use crate::time::Time;

/// How long more servers than the limit may run before an idle one is stopped, in milliseconds.
const CROWDED_MS: u64 = 1000;

/// All links of a host, and the server that they lead to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Links {
    server: Option<ServerConfig>,
    discovered: Option<Discovered>,
    /// Does the server answer?
    pub(super) proof: Proof,
    by_slot: BTreeMap<SlotId, Link>,
    /// The links of callers without a session.
    houses: BTreeMap<String, SlotId>,
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

impl Links {
    pub(super) fn new(server: Option<ServerConfig>) -> Self {
        let discovered = server.as_ref().and_then(|server| server.discovered.clone());
        Self {
            server,
            discovered,
            proof: Proof::default(),
            by_slot: BTreeMap::new(),
            houses: BTreeMap::new(),
            opened: 0,
            touched: BTreeSet::new(),
            stale: BTreeSet::new(),
            due: BTreeMap::new(),
            crowded: None,
            refusals: LogLimit::default(),
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
        self.houses.retain(|_, house| *house != slot);
    }

    /// The server, if the host wraps one.
    pub(super) const fn server(&self) -> Option<&ServerConfig> {
        self.server.as_ref()
    }

    /// The name of the server, if the host wraps one.
    pub(super) fn server_name(&self) -> Option<&str> {
        self.server.as_ref().map(|server| server.name.as_str())
    }
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
            out,
            ..
        } = self;
        links.touch(slot);
        let server = links.server.as_ref()?;
        let link = links.by_slot.get_mut(&slot)?;
        let mut cx = Cx {
            now: clock.now,
            kernel,
            out,
            checks,
            discovered: &mut links.discovered,
            proof: &mut links.proof,
            epoch_ms: clock.epoch_ms,
            version: &server.version,
            spans: &mut clock.spans,
        };
        Some(work(link, &mut cx))
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

    /// True if another server may be started; an idle one is stopped if that makes room.
    pub(super) fn has_room_for_server(&mut self) -> bool {
        if self.links.server.is_none() {
            return true;
        }
        let most = self.kernel.limits().wrapped_workers;
        self.kernel.running_workers() < most || self.stop_idlest()
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
        let is_crowded = self.links.server.is_some() && self.kernel.running_workers() > most;
        let until = self.clock.now.plus_ms(CROWDED_MS);
        self.links.crowded = is_crowded.then_some(until);
    }

    /// Opens the link of a client. `None` if the host serves packs.
    pub(super) fn open_link(&mut self, session: SessionId, nonce: u64) -> Option<SlotId> {
        let many = self.identity.lifetime == super::Lifetime::Service;
        self.add_link(Client::Session(session), many, nonce)
    }

    pub(super) fn add_link(&mut self, client: Client, many: bool, nonce: u64) -> Option<SlotId> {
        let config = self.links.server.clone()?;
        let name = if many {
            self.links.opened += 1;
            format!("{}#{}", config.name, self.links.opened)
        } else {
            config.name.clone()
        };
        let session = match &client {
            Client::Session(session) => Some(*session),
            Client::House(_) => None,
        };
        let slot = self.kernel.add_slot(&name, Conduct::Lenient, session);
        let now = self.clock.now;
        let link = Link::open(now, &config, slot, name, client, nonce);
        self.links.by_slot.insert(slot, link);
        self.links.touch(slot);
        if !config.rules.lazy {
            self.kernel.warm(now, slot);
        }
        Some(slot)
    }

    /// The link of a caller without a session, opened if there is none. `Ok(None)` if the host serves packs;
    /// an error if there is no room.
    pub(super) fn house_of(&mut self, caller: &str, nonce: u64) -> Result<Option<SlotId>, ()> {
        if self.links.server.is_none() {
            return Ok(None);
        }
        if let Some(slot) = self.links.houses.get(caller) {
            return Ok(Some(*slot));
        }
        let most = self.kernel.limits().http_sessions;
        if self.links.houses.len() >= most && !self.close_idle_house() {
            return Err(());
        }
        if !self.has_room_for_server() {
            return Err(());
        }
        let client = Client::House(House::of(caller.to_owned()));
        let slot = self.add_link(client, true, nonce);
        if let Some(slot) = slot {
            self.links.houses.insert(caller.to_owned(), slot);
        }
        Ok(slot)
    }

    /// Closes the house that has been idle for longest. False if all are busy.
    fn close_idle_house(&mut self) -> bool {
        let kernel = &self.kernel;
        let houses = self.links.houses.values();
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
        self.links.houses.retain(|_, house| *house != slot);
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
        true
    }

    /// The next time at which a link has something to do.
    pub(super) fn links_timeout(&mut self) -> Option<Time> {
        let idle_ms = self.kernel.limits().http_session_idle_ms;
        while let Some(slot) = self.links.stale.pop_first() {
            let next = self.links.get(slot).and_then(|link| {
                let own = link.next_timeout(&self.kernel);
                let idle = link.house().map(|_| link.last_work().plus_ms(idle_ms));
                [own, idle].into_iter().flatten().min()
            });
            match next {
                Some(next) => self.links.due.insert(slot, next),
                None => self.links.due.remove(&slot),
            };
        }
        let crowded = self.links.crowded;
        self.links.due.values().copied().chain(crowded).min()
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
                link.house().is_some() && is_old && link.is_idle(kernel)
            });
            if is_over {
                self.close_house(slot);
            }
        }
    }

    pub(super) fn apply_rules(&mut self, rules: &Arc<Rules>) {
        if let Some(server) = &mut self.links.server {
            server.rules = Arc::clone(rules);
        }
        let slots: Vec<SlotId> = self.links.by_slot.keys().copied().collect();
        for slot in slots {
            self.with_link(slot, |link, cx| link.apply_rules(cx, rules));
        }
    }
}
