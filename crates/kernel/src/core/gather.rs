//! Lists of several servers: collected, merged and named.
//!
//! A *gather* is a request that waits for lists of all servers of its client, or for their handshakes. It ends
//! when every server has answered, failed, or taken too long; then the names are recorded and the request is routed
//! again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mainstay_contract::dialect::{Op, WrappedFacts, negotiate_legacy};
use mainstay_contract::id::{CallId, SessionId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta::SERVER_INFO;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::render;
use mainstay_contract::scan;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Core;
use crate::call::SlotId;
use crate::server::{Link, Listed, SEPARATOR, ServerConfig, edit};
use crate::time::Time;

/// How long a list waits for servers that do not answer, in milliseconds.
const LIST_MS: u64 = 10_000;
/// How long the handshake waits for those of the servers, in milliseconds.
const HANDSHAKE_MS: u64 = 3_000;
/// Longest name of a tool that clients accept.
pub(super) const NAME_CHARS: usize = 64;
/// Names of one kind that are recorded.
const NAMES: usize = 50_000;
/// Resources of one server that are recorded though no list has them. The latest ones count.
const UNLISTED: usize = 1_000;
/// Warnings about names that are remembered, so that each comes once.
const REPORTED: usize = 10_000;

/// Which server has which name, and the requests that wait for lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Merged {
    /// The key of the server, by the name that clients see or by URI.
    pub(super) owners: BTreeMap<ListKind, BTreeMap<String, String>>,
    gathers: BTreeMap<CallId, Gather>,
    reported: BTreeSet<String>,
    /// User interfaces of the tools of each server. They are among `owners`, like resources of a list.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    apps: BTreeMap<String, BTreeSet<String>>,
    /// Resources of each server that its results referred to, the oldest first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    unlisted: BTreeMap<String, VecDeque<String>>,
}

/// A request that waits for lists of servers, or for their handshakes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Gather {
    session: SessionId,
    /// None for a handshake.
    kinds: Vec<ListKind>,
    waiting: BTreeSet<SlotId>,
    until: Time,
}

impl Merged {
    pub(super) fn timeout(&self) -> Option<Time> {
        self.gathers.values().map(|gather| gather.until).min()
    }

    /// Forgets a request that has ended.
    pub(super) fn drop_gather(&mut self, call: CallId) {
        self.gathers.remove(&call);
    }

    /// Forgets the names of a server.
    pub(super) fn forget(&mut self, key: &str) {
        for names in self.owners.values_mut() {
            names.retain(|_, owner| owner != key);
        }
        self.apps.remove(key);
        self.unlisted.remove(key);
    }

    pub(super) fn owner(&self, kind: ListKind, name: &str) -> Option<&str> {
        self.owners.get(&kind)?.get(name).map(String::as_str)
    }

    /// The server of a resource: the one that lists it, else the first one that refers to it.
    pub(super) fn owner_of_resource(&self, uri: &str) -> Option<&str> {
        let mut unlisted = self.unlisted.iter();
        let refers =
            |(_, uris): &(&String, &VecDeque<String>)| uris.iter().any(|known| known == uri);
        let listed = self.owner(ListKind::Resources, uri);
        listed.or_else(|| unlisted.find(refers).map(|(key, _)| key.as_str()))
    }

    /// Records a resource that a server refers to. It never takes a resource from a server that lists it, nor
    /// from one that referred to it before.
    fn note_unlisted(&mut self, uri: &str, key: &str) {
        if self.owner_of_resource(uri).is_some() {
            return;
        }
        let uris = self.unlisted.entry(key.to_owned()).or_default();
        if uris.len() >= UNLISTED {
            uris.pop_front();
        }
        uris.push_back(uri.to_owned());
    }

    /// Records the user interfaces of a server's tools, instead of those before.
    fn set_apps(&mut self, key: &str, apps: BTreeSet<String>) {
        let before = self.apps.insert(key.to_owned(), apps).unwrap_or_default();
        for uri in before {
            let is_kept = self.apps.get(key).is_some_and(|apps| apps.contains(&uri));
            let listed = self.owners.get_mut(&ListKind::Resources);
            let Some(listed) = listed.filter(|_| !is_kept) else {
                continue;
            };
            if listed.get(&uri).is_some_and(|owner| owner == key) {
                listed.remove(&uri);
                self.note_unlisted(&uri, key);
            }
        }
    }

    /// Records the owner of a name, if it has none. Returns the owner, or `None` if there is no room for the name.
    fn claim(&mut self, kind: ListKind, name: &str, key: &str) -> Option<&str> {
        let names = self.owners.entry(kind).or_default();
        if names.len() >= NAMES && !names.contains_key(name) {
            return None;
        }
        let owner = names.entry(name.to_owned());
        Some(owner.or_insert_with(|| key.to_owned()))
    }
}

impl Core {
    /// Has every server read these lists for a request, which waits for those that come in time. It waits for lists that
    /// were missed before only if it `insists`: lists are shown without them, but a resource has no other way.
    pub(super) fn gather(
        &mut self,
        call: CallId,
        session: SessionId,
        kinds: Vec<ListKind>,
        insists: bool,
    ) {
        let served = self.links.served_to(session);
        // A server that is started on demand is not started for a handshake.
        let is_needed = |config: &ServerConfig| !kinds.is_empty() || !config.rules.lazy;
        let served = served.filter(|(_, config)| is_needed(config));
        let keys: Vec<String> = served.map(|(key, _)| key.to_owned()).collect();
        let mut waiting = BTreeSet::new();
        for key in keys {
            let Some(slot) = self.link_to(session, &key) else {
                continue;
            };
            for kind in &kinds {
                self.with_link(slot, |link, cx| link.want_list(cx, *kind, insists));
            }
            waiting.insert(slot);
        }
        let patience_ms = match kinds.as_slice() {
            [] => HANDSHAKE_MS,
            _ => LIST_MS,
        };
        let until = self.clock.now.plus_ms(patience_ms);
        let mut gather = Gather {
            session,
            kinds,
            waiting,
            until,
        };
        gather
            .waiting
            .retain(|slot| self.is_awaited(*slot, &gather.kinds));
        let is_over = gather.waiting.is_empty();
        self.links.merged.gathers.insert(call, gather);
        if is_over {
            self.finish_gather(call);
        }
    }

    fn is_awaited(&self, slot: SlotId, kinds: &[ListKind]) -> bool {
        let is_closed = self.kernel.is_closed(self.clock.now, slot);
        self.links.get(slot).is_some_and(|link| match kinds {
            [] => !link.is_open() && !is_closed && !link.is_hopeless(),
            kinds => kinds.iter().any(|kind| link.wants(*kind)),
        })
    }

    /// A link was worked on: requests that wait for it may go on, and its client may hear of changes.
    pub(super) fn settle_member(&mut self, slot: SlotId) {
        let waiting: Vec<CallId> = self
            .links
            .merged
            .gathers
            .iter()
            .filter(|(_, gather)| gather.waiting.contains(&slot))
            .filter(|(_, gather)| !self.is_awaited(slot, &gather.kinds))
            .map(|(call, _)| *call)
            .collect();
        for call in waiting {
            let gather = self.links.merged.gathers.get_mut(&call);
            let is_over = gather.is_some_and(|gather| {
                gather.waiting.remove(&slot);
                gather.waiting.is_empty()
            });
            if is_over {
                self.finish_gather(call);
            }
        }
        let news = self.with_link_quietly(slot, |link| {
            let (key, session) = (link.server().to_owned(), link.session());
            (key, session, link.take_linked(), link.take_changed())
        });
        let Some((key, session, linked, changed)) = news else {
            return;
        };
        for uri in linked {
            self.links.merged.note_unlisted(&uri, &key);
        }
        match session {
            Some(session) => self.announce_to(session, changed),
            None => self.announce_shared(slot, &changed),
        }
    }

    /// Announces changed lists to the clients that share a server. A client that does not read hears of them when it
    /// reads again.
    fn announce_shared(&mut self, slot: SlotId, changed: &BTreeSet<ListKind>) {
        for session in self.links.clients_of(slot) {
            let Some(member) = self.links.members.get_mut(&session) else {
                continue;
            };
            member.late.extend(changed);
            if !self.kernel.is_behind(session) {
                let late = std::mem::take(&mut member.late);
                self.announce_to(session, late);
            }
        }
    }

    /// Requests do not wait for slow servers any longer.
    pub(super) fn gathers_due(&mut self) {
        let now = self.clock.now;
        let gathers = self.links.merged.gathers.iter();
        let due = gathers.filter(|(_, gather)| gather.until <= now);
        let due: Vec<(CallId, Gather)> = due.map(|(call, due)| (*call, due.clone())).collect();
        for (call, gather) in due {
            for slot in gather.waiting {
                for kind in &gather.kinds {
                    self.with_link(slot, |link, _| link.miss(*kind));
                }
            }
            self.finish_gather(call);
        }
    }

    fn finish_gather(&mut self, call: CallId) {
        let Some(gather) = self.links.merged.gathers.remove(&call) else {
            return;
        };
        for kind in gather.kinds {
            self.record_names(gather.session, kind);
        }
        if let Some(pending) = self.requests.get_mut(&call) {
            pending.gathered = true;
            self.route(call);
        }
    }

    /// Records the names of lists that came for a client which did not wait for them any more.
    pub(super) fn record_late_names(&mut self, session: SessionId) {
        let slots: Vec<SlotId> = match self.links.members.get(&session) {
            Some(member) if member.only.is_some() => return,
            Some(member) => member.links.values().copied().collect(),
            None => self.links.group(session).into_values().collect(),
        };
        let links = slots.into_iter().filter_map(|slot| self.links.get(slot));
        let late: BTreeSet<ListKind> = links.flat_map(Link::unrecorded).collect();
        for kind in late {
            self.record_names(session, kind);
        }
    }

    /// Records the names of a list of all servers of a client. A name that another server or a pack has is
    /// withdrawn.
    fn record_names(&mut self, session: SessionId, kind: ListKind) {
        if self.links.only_of(session).is_some() {
            return;
        }
        let group = self.links.group(session);
        for (key, slot) in &group {
            let config = self.links.served().find(|(served, _)| served == key);
            let Some(prefix) = config.map(|(_, config)| config.name_prefix()) else {
                continue;
            };
            let Some(link) = self.links.get(*slot) else {
                continue;
            };
            let is_whole = link.has_list(kind);
            let items = link.items_of(kind).iter();
            let items: Vec<(String, Option<String>)> = items
                .map(|listed| (listed.name.clone(), listed.app.clone()))
                .collect();
            let mut warnings = Vec::new();
            let (mut names, mut apps) = (BTreeSet::new(), BTreeSet::new());
            for (own, app) in items {
                let shown = shown_name(kind, &prefix, &own);
                let merged = &mut self.links.merged;
                if is_too_long(kind, &prefix, &shown) {
                    let most = NAME_CHARS.saturating_sub(own.chars().count() + SEPARATOR.len());
                    warnings.push((shown, format!(
                        "name_too_long over {NAME_CHARS} characters: give the server a prefix of at most {most}"
                    )));
                    continue;
                }
                let owner = match self.catalog.has_item(kind, &shown) {
                    true => Some("a pack"),
                    false => merged.claim(kind, &shown, key),
                };
                match owner {
                    Some(owner) if owner == key => _ = names.insert(shown),
                    Some(owner) => warnings.push((shown, format!("name_taken by={owner}"))),
                    None => warnings
                        .push((shown, format!("too_many_names over {NAMES} of all servers"))),
                }
                if let Some(app) = app
                    && merged.claim(ListKind::Resources, &app, key) == Some(key)
                {
                    apps.insert(app);
                }
            }
            if is_whole {
                let merged = &mut self.links.merged;
                match kind {
                    ListKind::Tools => merged.set_apps(key, apps),
                    ListKind::Resources => {
                        let apps = merged.apps.get(key).into_iter().flatten();
                        names.extend(apps.cloned());
                    }
                    ListKind::Prompts | ListKind::Templates => {}
                }
                let owned = merged.owners.entry(kind).or_default();
                owned.retain(|name, owner| owner != key || names.contains(name));
            }
            self.with_link_quietly(*slot, |link| link.note_recorded(kind));
            for (name, why) in warnings {
                self.warn_of_name(kind, key, &name, &why);
            }
        }
    }

    fn warn_of_name(&mut self, kind: ListKind, key: &str, name: &str, why: &str) {
        let (noun, shown) = (
            kind.noun(),
            render::visible(&render::shorten(name, 120)).into_owned(),
        );
        let reported = &mut self.links.merged.reported;
        if reported.len() < REPORTED && reported.insert(format!("{noun} {key} {name}")) {
            self.log(format!(
                "mcp:warning reason={why} pack={key} {noun}={shown} withdrawn"
            ));
        }
    }

    /// The items of a list of all servers of a client that it may see, with their names.
    pub(super) fn merged_items(
        &self,
        session: SessionId,
        kind: ListKind,
    ) -> Vec<(String, &Listed)> {
        let group = self.links.group(session);
        let is_only = self.links.only_of(session).is_some();
        let mut items = Vec::new();
        for (key, slot) in group {
            let config = self.links.served().find(|(served, _)| **served == key);
            let prefix = config.map(|(_, config)| config.name_prefix());
            let (Some(prefix), Some(link)) = (prefix, self.links.get(slot)) else {
                continue;
            };
            for listed in link.items_of(kind) {
                let shown = shown_name(kind, &prefix, &listed.name);
                let owner = self.links.merged.owner(kind, &shown);
                let is_owned = owner == Some(key.as_str()) && !self.catalog.has_item(kind, &shown);
                if is_only || is_owned {
                    items.push((shown, listed));
                }
            }
        }
        items
    }

    /// The servers of a client without a list of tools, each with the reason.
    pub(super) fn missing_servers(&self, session: SessionId) -> BTreeMap<String, String> {
        let group = self.links.group(session);
        let reason = |key: &str| {
            let Some(slot) = group.get(key) else {
                return Some("the host has no room for its process".to_owned());
            };
            let link = self.links.get(*slot)?;
            let seconds = LIST_MS / 1000;
            match self.kernel.last_fault(*slot) {
                _ if !link.has_missed(ListKind::Tools) => None,
                _ if link.is_open() => Some(format!("it gave no list of tools within {seconds} s")),
                Some(fault) => Some(fault.cause().into_owned()),
                None => Some(format!("it did not start within {seconds} s")),
            }
        };
        let served = self.links.served_to(session);
        let missing = served.filter_map(|(key, _)| Some((key.to_owned(), reason(key)?)));
        missing.collect()
    }

    /// The result of a list of packs and servers together.
    pub(super) fn merged_listing(&self, session: SessionId, op: &Op) -> Option<Json> {
        let kind = match op {
            Op::Catalog {} => ListKind::Tools,
            Op::List { kind, .. } => *kind,
            op => op.mcp_method().and_then(Method::list)?,
        };
        let of_packs = match (op, kind) {
            _ if self.links.only_of(session).is_some() => {
                Json::from_scanned(&format!("{{\"{}\":[]}}", kind.member()))
            }
            (Op::Catalog {}, _) => {
                let identity = &self.identity;
                self.catalog.catalog(&identity.name, &identity.version)
            }
            (_, ListKind::Tools) => return Some(self.tool_listing(session, true, false)),
            (_, ListKind::Prompts) => self.catalog.listing(&Op::ListPrompts {})?,
            (_, ListKind::Templates) => self.catalog.listing(&Op::ListResourceTemplates {})?,
            (_, ListKind::Resources) => Json::from_scanned("{\"resources\":[]}"),
        };
        let own = scan::member(of_packs.as_str(), kind.member()).unwrap_or("[]");
        let mut items: Vec<String> = edit::items(own).into_iter().map(str::to_owned).collect();
        for (shown, listed) in self.merged_items(session, kind) {
            items.push(match op {
                Op::Catalog {} => listed.entry(&shown),
                _ => listed.shown(kind, &shown),
            });
        }
        let items = edit::array(items.iter().map(String::as_str));
        let listing = edit::with_member(of_packs.as_str(), kind.member(), &items);
        Some(Json::from_scanned(&listing))
    }

    /// The result of `initialize` for a client with one server, in that server's words. `None` while the server has not
    /// answered its own.
    pub(super) fn only_handshake(&mut self, session: SessionId, version: &str) -> Option<Json> {
        let key = self.links.only_of(session)?.to_owned();
        let slot = *self.links.group(session).get(&key)?;
        let said = self.with_link(slot, |link, _| {
            ["capabilities", "instructions", "serverInfo", "_meta"]
                .map(|key| link.introduction(key))
        })?;
        let [capabilities, instructions, info, meta] = said;
        let mut capabilities: Map<String, Value> = serde_json::from_str(&capabilities?).ok()?;
        // Tasks belong to the session that the host opened.
        capabilities.remove("tasks");
        for kind in ListKind::ALL {
            if let Some(Value::Object(declared)) = capabilities.get_mut(kind.capability()) {
                declared.insert("listChanged".to_owned(), Value::Bool(true));
            }
        }
        let modern = meta.as_deref();
        let modern = modern.and_then(|meta| scan::member(meta, SERVER_INFO));
        let info = info.or_else(|| modern.map(str::to_owned));
        let own = || {
            let (name, version) = (&self.identity.name, &self.identity.version);
            json!({ "name": name, "version": version }).to_string()
        };
        let handshake = ObjectWriter::with_capacity(512)
            .string("protocolVersion", negotiate_legacy(version))
            .value("capabilities", &capabilities)
            .raw("serverInfo", &info.unwrap_or_else(own))
            .optional_raw("instructions", instructions.as_deref());
        Some(Json::from_scanned(&handshake.finish()))
    }

    /// The introduction of all servers of a client: their instructions, each under its key, and extensions.
    pub(super) fn introduction(&mut self, session: SessionId) -> (Option<String>, WrappedFacts) {
        let group = self.links.group(session);
        let is_only = self.links.only_of(session).is_some();
        let mut parts: Vec<String> = self.identity.instructions.clone().into_iter().collect();
        let mut facts = WrappedFacts::default();
        for (key, slot) in group {
            let config = self.links.served().find(|(served, _)| **served == key);
            let prefix = config.map(|(_, config)| config.name_prefix());
            let introduced = self.with_link(slot, |link, _| {
                (
                    link.introduction("instructions"),
                    link.introduction("capabilities"),
                )
            });
            let (instructions, capabilities) = introduced.unwrap_or_default();
            if let Some(text) = instructions.as_deref().and_then(scan::unquote) {
                let of = match prefix.as_deref() {
                    _ if is_only => {
                        parts.push(text.into_owned());
                        continue;
                    }
                    None | Some("") => key.clone(),
                    Some(prefix) => format!("{key} (names begin with {prefix})"),
                };
                parts.push(format!("Server {of}:\n{text}"));
            }
            let extensions = capabilities.as_deref();
            let extensions = extensions.and_then(|declared| scan::member(declared, "extensions"));
            if let Some(Ok(Value::Object(extensions))) = extensions.map(serde_json::from_str) {
                facts.extensions.extend(extensions);
            }
        }
        let instructions = (!parts.is_empty()).then(|| parts.join("\n\n"));
        (instructions, facts)
    }
}

/// The name of an item as clients see it.
fn shown_name(kind: ListKind, prefix: &str, own: &str) -> String {
    match kind {
        ListKind::Tools | ListKind::Prompts => format!("{prefix}{own}"),
        ListKind::Resources | ListKind::Templates => own.to_owned(),
    }
}

fn is_too_long(kind: ListKind, prefix: &str, shown: &str) -> bool {
    kind == ListKind::Tools && !prefix.is_empty() && shown.chars().count() > NAME_CHARS
}
