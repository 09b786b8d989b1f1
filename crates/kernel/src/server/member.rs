//! A link to one of several servers that serve a client together.
//!
//! The host opens the session of such a link itself, with the parameters of the client's own `initialize`.
//! It reads the server's lists whenever the client asks for them, and keeps them on the [`Shelf`]; the core
//! merges the shelves of all servers. A list that does not come in time is *missed*: the client gets the
//! others, and hears of a change once the server can be asked again.
//!
//! The link knows the server's own names. Only the core maps them to those that clients see.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mainstay_contract::dialect::RelayedRequest;
use mainstay_contract::id::{Generation, RequestId, SessionId};
use mainstay_contract::json::Json;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::render;
use mainstay_contract::scan;
use serde::{Deserialize, Serialize};

use super::lists::Seen;
use super::requests::ClientRequest;
pub(crate) use super::reviewed::expands_to;
use super::{Client, Cx, Link, ServerConfig, edit, house};
use crate::log_limit::{LogLimit, suppressed};
use crate::time::Time;

/// Bytes of one list that are kept.
const LIST_BYTES: usize = 4 * 1024 * 1024;
/// A server that never opened its session is not waited for after so many failed starts.
const FAILED_STARTS: u32 = 2;
/// Notifications of one server that its client gets within a period, and their bytes.
const NOTIFICATIONS: usize = 200;
const NOTIFICATION_BYTES: usize = 256 * 1024;
/// The period, in milliseconds.
const PERIOD_MS: u64 = 1000;
/// Resources that results refer to and the core has not recorded yet.
const LINKED: usize = 1000;

/// The lists of one server for one client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shelf {
    /// The text before each name of the server.
    prefix: String,
    /// Lists as the server last listed them, without withdrawn items.
    lists: BTreeMap<ListKind, Vec<Listed>>,
    /// The items of lists that are being read.
    reading: BTreeMap<ListKind, Vec<Listed>>,
    /// Lists that a request of the client waits for.
    wanted: BTreeSet<ListKind>,
    /// Lists that did not come in time.
    missed: BTreeSet<ListKind>,
    /// Lists whose names the core has not recorded yet.
    #[serde(default)]
    unrecorded: BTreeSet<ListKind>,
    /// Lists whose change the client has not heard of.
    pub(super) changed: BTreeSet<ListKind>,
    /// Resources that results refer to.
    linked: VecDeque<String>,
    /// Servers that were lost before one opened the session.
    failed_starts: u32,
    #[serde(default)]
    notifications: NotificationLimit,
    /// For the warning about dropped notifications.
    #[serde(default)]
    drops: LogLimit,
}

/// The notifications that a client got within the present period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct NotificationLimit {
    until: Time,
    count: usize,
    bytes: usize,
}

impl NotificationLimit {
    fn admit(&mut self, now: Time, bytes: usize) -> bool {
        if now >= self.until {
            *self = Self {
                until: now.plus_ms(PERIOD_MS),
                ..Self::default()
            };
        }
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        // A single long one passes.
        self.count <= NOTIFICATIONS && (self.bytes <= NOTIFICATION_BYTES || self.count == 1)
    }
}

/// An item of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// The server's own name of it, or its URI.
    pub(crate) name: String,
    /// The item as the server wrote it.
    pub(crate) item: Json,
    /// The resource with the user interface of a tool.
    pub(crate) app: Option<String>,
}

impl Listed {
    /// `None` if the item has no name.
    fn read(kind: ListKind, item: &str) -> Option<Self> {
        let name = scan::unquote(scan::member(item, kind.key())?)?.into_owned();
        let app = match kind {
            ListKind::Tools => app_of(item),
            _ => None,
        };
        let item = Json::from_scanned(item);
        Some(Self { name, item, app })
    }

    /// The item under the name that clients see.
    pub(crate) fn shown(&self, kind: ListKind, name: &str) -> String {
        if self.name == name {
            return self.item.to_string();
        }
        let quoted = serde_json::Value::from(name).to_string();
        edit::with_member(self.item.as_str(), kind.key(), &quoted)
    }

    /// The tool under the name that clients see, as envelopes describe it.
    pub(crate) fn entry(&self, name: &str) -> String {
        house::entry(&self.shown(ListKind::Tools, name))
    }
}

/// The resource with the user interface of a tool (`io.modelcontextprotocol/ui`).
fn app_of(tool: &str) -> Option<String> {
    let meta = scan::member(tool, "_meta")?;
    let nested = scan::member(meta, "ui").and_then(|ui| scan::member(ui, "resourceUri"));
    let uri = nested.or_else(|| scan::member(meta, "ui/resourceUri"))?;
    Some(scan::unquote(uri)?.into_owned())
}

impl Shelf {
    pub(super) fn of(config: &ServerConfig) -> Self {
        Self {
            prefix: config.name_prefix(),
            ..Self::default()
        }
    }

    /// Records that the client must hear of a change of a list.
    pub(super) fn change(&mut self, kind: ListKind) {
        self.changed.insert(kind);
    }

    fn store(&mut self, kind: ListKind, items: Vec<Listed>) {
        self.lists.insert(kind, items);
        self.unrecorded.insert(kind);
        self.reading.remove(&kind);
        self.wanted.remove(&kind);
        if self.missed.remove(&kind) {
            self.changed.insert(kind);
        }
    }
}

impl Link {
    /// A tool's name as clients see it.
    pub(super) fn shown_name(&self, own: &str) -> String {
        match &self.shelf {
            Some(shelf) => format!("{}{own}", shelf.prefix),
            None => own.to_owned(),
        }
    }

    /// Applies another prefix. Returns true if the names changed.
    pub(crate) fn set_prefix(&mut self, prefix: &str) -> bool {
        let Some(shelf) = self.shelf.as_mut().filter(|shelf| shelf.prefix != prefix) else {
            return false;
        };
        prefix.clone_into(&mut shelf.prefix);
        shelf.changed.extend([ListKind::Tools, ListKind::Prompts]);
        true
    }

    /// True if the host answers the server's questions in the client's place: its client cannot be asked.
    pub(super) const fn answers_questions(&self) -> bool {
        match &self.client {
            Client::Session(_) => self.is_unattended(),
            Client::House(house) => house.session.is_none() || house.opening.is_none(),
        }
    }

    /// True if the client takes no notifications but those of its requests: it has not opened a session.
    pub(super) const fn is_mute(&self) -> bool {
        self.shelf.is_some() && self.answers_questions()
    }

    /// Handles a notification of a server whose lists are merged. False if the client must get it.
    pub(super) fn takes_notification(&mut self, method: &str) -> bool {
        let is_mute = self.is_mute();
        let Some(shelf) = &mut self.shelf else {
            return false;
        };
        let kinds = ListKind::ALL.into_iter();
        let mut kinds = kinds
            .filter(|kind| kind.changed().name() == method)
            .peekable();
        let is_change = kinds.peek().is_some();
        shelf.changed.extend(kinds);
        is_mute || is_change
    }

    /// Decides about a notification for the client. A server beside others may send so many within a period; the
    /// host drops the rest.
    pub(super) fn admits_notification(
        &mut self,
        cx: &mut Cx<'_>,
        method: &str,
        text: &str,
    ) -> bool {
        let Some(shelf) = &mut self.shelf else {
            return true;
        };
        // The withdrawal of a question: there are only so many questions.
        if method == Method::Cancelled.name() || shelf.notifications.admit(cx.now, text.len()) {
            return true;
        }
        if let Some(more) = shelf.drops.admit(cx.now) {
            let (pack, more) = (&self.name, suppressed(more));
            cx.log(format!(
                "mcp:warning reason=notifications_dropped pack={pack} more than {NOTIFICATIONS} or \
                 {NOTIFICATION_BYTES} bytes in {PERIOD_MS} ms{more}"
            ));
        }
        false
    }

    /// True while a question of the server is open.
    pub(crate) fn has_questions(&self) -> bool {
        self.questions.any()
    }

    /// True if a question of the server is open under this id.
    pub(crate) fn has_question(&self, id: &RequestId) -> bool {
        self.questions.has(id)
    }

    /// A request of the client that the core routed to this server.
    pub(crate) fn routed_request(
        &mut self,
        now: Time,
        text: &str,
        request: &RelayedRequest<'_>,
    ) -> ClientRequest {
        self.touch(now);
        self.read_request(text, request)
    }

    /// The client of a session sets its log level.
    pub(crate) fn set_level(&mut self, cx: &mut Cx<'_>, session: SessionId, params: &str) {
        if self.is_shared() {
            return self.set_shared_level(cx, session, params);
        }
        let method = Method::SetLogLevel.name();
        self.memory.record_answer(method, Some(params), "{}");
        self.update_standbys(cx, None, method, Some(params));
    }

    /// True once the server has answered the handshake.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(&self.client, Client::House(house) if house.handshake().is_some())
    }

    /// A member of the server's handshake that a client may get, as JSON text.
    pub(crate) fn introduction(&mut self, key: &str) -> Option<String> {
        let Client::House(house) = &self.client else {
            return None;
        };
        let handshake = house.handshake()?.clone();
        let reviewed = self.reviewed.handshake(handshake.as_str());
        let text = reviewed.map_or_else(|| handshake.to_string(), |(text, _)| text);
        scan::member(&text, key).map(str::to_owned)
    }

    /// True if the server declared a capability.
    pub(crate) fn declares(&self, capability: &str) -> bool {
        let Client::House(house) = &self.client else {
            return false;
        };
        let handshake = house.handshake().map_or("{}", Json::as_str);
        let declared = scan::member(handshake, "capabilities")
            .and_then(|capabilities| scan::member(capabilities, capability));
        declared.is_some_and(|declared| declared != "null")
    }

    /// Reads a list anew for a request of the client, which waits while [`Link::wants`] is true. It does not
    /// wait for a list that was missed the last time, unless it `insists`: the client hears when it comes.
    pub(crate) fn want_list(&mut self, cx: &mut Cx<'_>, kind: ListKind, insists: bool) {
        if self.recall_list(cx, kind) {
            return self.touch(cx.now);
        }
        let is_hopeless = self.is_hopeless() || cx.kernel.is_closed(cx.now, self.slot);
        let Some(shelf) = &mut self.shelf else {
            return;
        };
        if is_hopeless {
            shelf.missed.insert(kind);
        } else if insists || !shelf.missed.contains(&kind) {
            shelf.wanted.insert(kind);
        }
        self.touch(cx.now);
        match self.serving(cx) {
            Some(serving) => self.read_list(cx, serving, kind),
            None => cx.kernel.warm(cx.now, self.slot),
        }
    }

    fn read_list(&mut self, cx: &mut Cx<'_>, generation: Generation, kind: ListKind) {
        let server = self.incarnations.get(&generation);
        if server.is_none_or(|server| server.lists(kind)) {
            return;
        }
        // Some servers do not declare their tools.
        if kind != ListKind::Tools && !self.declares(kind.capability()) {
            if let Some(shelf) = &mut self.shelf {
                shelf.store(kind, Vec::new());
            }
            return;
        }
        if kind == ListKind::Tools {
            self.tools.forget();
        }
        if let Some(shelf) = &mut self.shelf {
            shelf.reading.remove(&kind);
        }
        let epoch = self.tools.epoch();
        self.fetch(cx, generation, kind, Seen::default(), epoch);
    }

    /// A server takes over: lists that are waited for are read, and lists that were missed can be.
    pub(super) fn read_wanted(&mut self, cx: &mut Cx<'_>, generation: Generation) {
        let Some(shelf) = &mut self.shelf else {
            return;
        };
        shelf.changed.append(&mut shelf.missed);
        for kind in shelf.wanted.clone() {
            self.read_list(cx, generation, kind);
        }
    }

    /// True while the client waits for a list of this server.
    pub(crate) fn wants(&self, kind: ListKind) -> bool {
        self.shelf
            .as_ref()
            .is_some_and(|shelf| shelf.wanted.contains(&kind))
    }

    /// True if a list was read, or could not be.
    pub(crate) fn has_list(&self, kind: ListKind) -> bool {
        self.shelf.as_ref().is_some_and(|shelf| {
            let known = shelf.lists.contains_key(&kind) || shelf.missed.contains(&kind);
            known && !shelf.wanted.contains(&kind)
        })
    }

    /// True if a list has come, now or earlier.
    pub(crate) fn knows_list(&self, kind: ListKind) -> bool {
        let shelf = self.shelf.as_ref();
        shelf.is_some_and(|shelf| shelf.lists.contains_key(&kind))
    }

    /// True if a list did not come, and no earlier one is known.
    pub(crate) fn has_missed(&self, kind: ListKind) -> bool {
        let shelf = self.shelf.as_ref();
        shelf.is_some_and(|shelf| shelf.missed.contains(&kind) && !shelf.lists.contains_key(&kind))
    }

    /// A request of the client does not wait for a list any longer.
    pub(crate) fn miss(&mut self, kind: ListKind) {
        if let Some(shelf) = &mut self.shelf
            && shelf.wanted.remove(&kind)
        {
            shelf.missed.insert(kind);
        }
    }

    /// A server was lost. The lists of one that cannot be started are not waited for.
    pub(super) fn count_loss(&mut self, is_closed: bool) {
        let is_open = self.is_open();
        if let Some(shelf) = &mut self.shelf {
            shelf.failed_starts += u32::from(!is_open);
            if is_closed || shelf.failed_starts >= FAILED_STARTS {
                shelf.missed.append(&mut shelf.wanted);
            }
        }
    }

    /// True if no server has opened the session, and several failed to.
    pub(crate) fn is_hopeless(&self) -> bool {
        let shelf = self.shelf.as_ref();
        let failed = shelf.is_some_and(|shelf| shelf.failed_starts >= FAILED_STARTS);
        failed && !self.is_open()
    }

    /// A list cannot be read: the one that was known before counts.
    pub(super) fn list_failed(&mut self, kind: ListKind) {
        if let Some(shelf) = &mut self.shelf {
            shelf.reading.remove(&kind);
        }
        self.miss(kind);
    }

    /// The server refused a list: it has none.
    pub(super) fn list_refused(&mut self, kind: ListKind) {
        if let Some(shelf) = &mut self.shelf {
            shelf.store(kind, Vec::new());
        }
    }

    /// A page of a list other than that of tools arrived.
    pub(super) fn shelve_page(&mut self, cx: &mut Cx<'_>, kind: ListKind, result: &str) {
        let Some(shelf) = &mut self.shelf else {
            return;
        };
        let items = shelf.reading.entry(kind).or_default();
        let (visible, withdrawn) = self.reviewed.page(kind, items.is_empty(), result);
        for (name, why) in withdrawn {
            let line = why.line(&self.name, kind, &render::visible(&name));
            cx.log(line);
        }
        let page = visible.as_deref().unwrap_or(result);
        let page = edit::items(scan::member(page, kind.member()).unwrap_or("[]"));
        let mut bytes: usize = items.iter().map(|listed| listed.item.len()).sum();
        let mut left_out = 0;
        for listed in page.iter().filter_map(|item| Listed::read(kind, item)) {
            bytes += listed.item.len();
            if bytes > LIST_BYTES {
                left_out += 1;
            } else {
                items.push(listed);
            }
        }
        if left_out > 0 {
            let (name, noun) = (&self.name, kind.noun());
            cx.log(format!(
                "mcp:warning reason=list_too_long pack={name} {noun}s={left_out} not listed"
            ));
        }
    }

    /// The whole of a list was read.
    pub(super) fn list_read(&mut self, kind: ListKind, seen: &Seen) {
        let Some(shelf) = &mut self.shelf else {
            return;
        };
        let items = match kind {
            ListKind::Tools => {
                let tools = self.tools.visible();
                let items = tools.filter_map(|tool| Listed::read(kind, tool.as_str()));
                items.collect()
            }
            _ => shelf.reading.remove(&kind).unwrap_or_default(),
        };
        let is_wanted = shelf.wanted.contains(&kind);
        shelf.store(kind, items);
        if is_wanted {
            self.lists.last_seen.insert(kind, seen.clone());
        }
    }

    /// Lists whose names the core has not recorded yet.
    pub(crate) fn unrecorded(&self) -> impl Iterator<Item = ListKind> + '_ {
        let shelf = self.shelf.iter();
        shelf.flat_map(|shelf| shelf.unrecorded.iter().copied())
    }

    /// The core has recorded the names of a list.
    pub(crate) fn note_recorded(&mut self, kind: ListKind) {
        if let Some(shelf) = &mut self.shelf {
            shelf.unrecorded.remove(&kind);
        }
    }

    /// The items of a list.
    pub(crate) fn items_of(&self, kind: ListKind) -> &[Listed] {
        let list = self.shelf.as_ref().and_then(|shelf| shelf.lists.get(&kind));
        list.map_or(&[], Vec::as_slice)
    }

    /// Lists whose change the client has not heard of.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<ListKind> {
        let shelf = self.shelf.as_mut();
        shelf.map_or_else(BTreeSet::new, |shelf| std::mem::take(&mut shelf.changed))
    }

    /// Announces all lists of a server as soon as it can be asked for them.
    pub(crate) fn announce_when_ready(&mut self) {
        if let Some(shelf) = &mut self.shelf {
            shelf.missed.extend(ListKind::ALL);
        }
    }

    /// Keeps the resources that a result refers to: the client may read them though no list has them.
    pub(super) fn note_resource_links(&mut self, result: &str) {
        let Some(shelf) = &mut self.shelf else {
            return;
        };
        if !result.contains("resource_link") {
            return;
        }
        let content = scan::member(result, "content").unwrap_or("[]");
        for block in edit::items(content) {
            let is_link = scan::member(block, "type") == Some("\"resource_link\"");
            let uri = scan::member(block, "uri").filter(|_| is_link);
            if let Some(uri) = uri.and_then(scan::unquote)
                && shelf.linked.len() < LINKED
            {
                shelf.linked.push_back(uri.into_owned());
            }
        }
    }

    /// The resources that results referred to since the last time.
    pub(crate) fn take_linked(&mut self) -> VecDeque<String> {
        let shelf = self.shelf.as_mut();
        shelf.map_or_else(VecDeque::new, |shelf| std::mem::take(&mut shelf.linked))
    }
}
