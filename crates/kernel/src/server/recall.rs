//! Answers from the last known catalog of the server while its first process starts.
//!
//! Theory of operation. The first request of a client names its kind ([`Link::identify`]). If the host has a catalog for that
//! kind and no process of the server exists, the host answers the handshake and the lists from it and starts the
//! server. The client's session is recorded as if a server had opened it, so the new process gets it as every
//! successor does ([`super::memory`]). The remembered tools count as those of a predecessor: the first process
//! lists its tools before it gets a call, calls are reconsidered, and the client hears of a list that
//! differs ([`super::handover`]). Once a process serves, nothing is answered from the catalog any more.
//!
//! Behind a bridge the catalog has the handshake in the client's form and the lists in the server's; the first process
//! is opened in the era that the server spoke in its last run.

use std::collections::BTreeMap;

use mainstay_contract::dialect::Dialect;
use mainstay_contract::id::Generation;
use mainstay_contract::json::Json;
use mainstay_contract::meta;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::scan;
use mainstay_schema::Fingerprint;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::incarnation::Purpose;
use super::lists::{PAGES, Seen};
use super::memory::{Step, request};
use super::requests::ClientRequest;
use super::{Client, Cx, Link, edit};
use crate::core::action::CoreAction;

/// The server of remembered tools: no process has this generation.
const REMEMBERED: Generation = Generation::new(0);
/// Bytes of a list whose pages are put together.
const LIST_BYTES: usize = 1024 * 1024;

/// The use of the remembered catalog by one link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Recall {
    /// The client's credential.
    credential: Option<String>,
    /// The kind of the client, once it is known.
    client: Option<Fingerprint>,
    /// The parameters of a legacy client's `initialize`.
    #[serde(default)]
    pub(super) opening: Option<Json>,
    /// The catalog is in use: no process serves yet.
    pub(super) is_active: bool,
    /// In its last run the server spoke the other era than this client.
    #[serde(default)]
    pub(super) is_bridged: bool,
    /// The pages of lists that were not read to their ends.
    pages: BTreeMap<ListKind, Vec<Json>>,
}

impl Link {
    /// Records the credential of the client.
    pub(crate) fn set_credential(&mut self, credential: &str) {
        self.recall.credential = Some(credential.to_owned());
    }

    /// A kind of clients that get the same catalog.
    fn client_kind(
        &self,
        era: &str,
        version: Option<&str>,
        capabilities: Option<&str>,
    ) -> Fingerprint {
        let parsed = |text: Option<&str>| -> Option<Value> { serde_json::from_str(text?).ok() };
        Fingerprint::of(&json!([
            self.recall.credential,
            era,
            parsed(version),
            parsed(capabilities),
            self.tools.lock(),
            self.rules().bridge,
        ]))
    }

    fn legacy_kind(&self, params: &str) -> Fingerprint {
        let param = |key: &str| scan::member(params, key);
        self.client_kind("legacy", param("protocolVersion"), param("capabilities"))
    }

    /// Finds out the kind of the client from a request, and takes up the catalog of that kind.
    pub(super) fn identify(&mut self, cx: &mut Cx<'_>, request: &ClientRequest) {
        let is_own = matches!(self.client, Client::Session(_));
        let Some(method) = Method::parse(&request.method).filter(|_| is_own) else {
            return;
        };
        let is_part = method == Method::Discover || method.list().is_some();
        let opening = (method == Method::Initialize).then(|| request.params().unwrap_or("{}"));
        let kind = match (opening, request.dialect) {
            (Some(opening), _) => self.legacy_kind(opening),
            (None, Dialect::Modern) if is_part => self.client_kind(
                "modern",
                request.meta(meta::PROTOCOL_VERSION),
                request.meta(meta::CLIENT_CAPABILITIES),
            ),
            _ => return,
        };
        if self.rules().remember && (!self.memory.has_session() || self.recall.client.is_none()) {
            self.recall.client = Some(kind);
            self.recall.opening = opening.map(Json::from_scanned);
            self.take_up(cx);
        }
    }

    /// A link of a client that several servers serve, or of a server that several clients share, knows its kind
    /// from the start.
    pub(crate) fn identify_member(&mut self, cx: &mut Cx<'_>, credential: Option<String>) {
        self.recall.credential = credential;
        let Client::House(house) = &self.client else {
            return;
        };
        let is_member = house.session.is_some();
        let kind = match &house.opening {
            Some(opening) if is_member => self.legacy_kind(opening.as_str()),
            // The host opens the server in its own words.
            None if is_member => self.client_kind("member", None, None),
            None if self.is_shared() => self.client_kind("shared", None, None),
            _ => return,
        };
        if !self.rules().remember {
            return;
        }
        self.recall.client = Some(kind);
        let handshake = cx.memory.recall(&kind, None);
        let handshake = handshake.map(|kept| Json::from_scanned(&kept.result_at(cx.wall_ms())));
        if let (Client::House(house), Some(handshake)) = (&mut self.client, handshake) {
            house.remember_handshake(handshake);
            self.take_up(cx);
        }
    }

    /// Uses the catalog until a process serves.
    fn take_up(&mut self, cx: &mut Cx<'_>) {
        let Some(client) = self.recall.client else {
            return;
        };
        let is_known = cx.memory.knows(&client);
        if self.recall.is_active || !is_known || !self.incarnations.is_empty() {
            return;
        }
        self.recall.is_active = true;
        self.recall.is_bridged = cx.memory.is_bridged(&client);
        let tools = cx.memory.recall(&client, Some(ListKind::Tools));
        let Some(tools) = tools.map(|kept| kept.result_at(cx.wall_ms())) else {
            return;
        };
        self.learn(cx, &tools);
        self.tools_complete(cx, self.tools.epoch());
        self.handover.tools_of = Some(REMEMBERED);
    }

    /// The remembered result of the handshake, or of a list, if the host may give it now.
    pub(super) fn recalled(&self, cx: &Cx<'_>, part: Option<ListKind>) -> Option<String> {
        let is_starting = self.serving(cx).is_none() && !cx.kernel.is_closed(cx.now, self.slot);
        if !self.recall.is_active || !is_starting {
            return None;
        }
        let kept = cx.memory.recall(self.recall.client.as_ref()?, part)?;
        Some(kept.result_at(cx.wall_ms()))
    }

    /// The remembered answer to a request, if the host may give it now.
    pub(super) fn recalled_answer(&self, cx: &Cx<'_>, request: &ClientRequest) -> Option<String> {
        let is_modern = request.dialect == Dialect::Modern;
        match Method::parse(&request.method)? {
            Method::Initialize if !self.memory.has_session() => self.recalled(cx, None),
            Method::Discover if is_modern => self.recalled(cx, None),
            method => {
                let kind = method.list()?;
                let is_whole = request
                    .param("cursor")
                    .is_none_or(|cursor| cursor == "null");
                self.recalled(cx, Some(kind)).filter(|_| is_whole)
            }
        }
    }

    /// The script that finds out if the first process of a modern server answers. Its requests need no
    /// session, so without it the process would get them before it can read.
    pub(super) fn recalled_script(&mut self) -> Vec<Step> {
        let Some(meta) = self.memory.own_meta().filter(|_| self.recall.is_active) else {
            return Vec::new();
        };
        let params = edit::with_member("{}", "_meta", meta.as_str());
        let id = self.own_id();
        let line = request(&id, Method::Discover.name(), &params);
        let purpose = Purpose::Restore;
        vec![Step::Ask { id, line, purpose }]
    }

    /// A server opened the session, or described itself.
    pub(super) fn record_handshake(&mut self, cx: &mut Cx<'_>, result: &str) {
        let translated = self.translated_handshake(result);
        let (bridged, result) = match &translated {
            Some(translated) => (true, translated.as_str()),
            None => (false, result),
        };
        let was_active = self.recall.is_active;
        let version = |text: &str| scan::member(text, "protocolVersion").map(str::to_owned);
        let given = self.recalled(cx, None).as_deref().and_then(version);
        if was_active && given.is_some() && given != version(result) {
            let name = &self.name;
            cx.log(format!(
                "mcp:warning reason=version_changed pack={name} the server speaks another protocol version than in \
                 its last run; restart the client"
            ));
        }
        let now_ms = cx.wall_ms();
        if let Some(client) = self.remembered_client()
            && cx.memory.keep_handshake(client, result, bridged, now_ms)
        {
            self.remember(cx);
        }
    }

    /// The kind of the client, if the host keeps its catalog.
    fn remembered_client(&self) -> Option<Fingerprint> {
        self.recall.client.filter(|_| self.rules().remember)
    }

    /// Has the shell store what is known of the server.
    pub(super) fn remember(&self, cx: &mut Cx<'_>) {
        let (server, memory) = (self.server.clone(), Box::new(cx.memory.clone()));
        cx.out.push_back(CoreAction::Remember { server, memory });
    }

    /// Records a page of a list: all pages together are the list that later clients get at once.
    pub(super) fn record_page(
        &mut self,
        cx: &mut Cx<'_>,
        kind: ListKind,
        is_first: bool,
        result: &str,
    ) {
        if self.recall.client.is_none() {
            return;
        }
        let pages = self.recall.pages.entry(kind).or_default();
        if is_first {
            pages.clear();
        } else if pages.is_empty() {
            return;
        }
        pages.push(Json::from_scanned(result));
        let bytes: usize = pages.iter().map(Json::len).sum();
        let goes_on = scan::member(result, "nextCursor").is_some_and(|cursor| cursor != "null");
        if goes_on && bytes <= LIST_BYTES && pages.len() < PAGES {
            return;
        }
        let pages = self.recall.pages.remove(&kind).unwrap_or_default();
        if !goes_on {
            let (list, now_ms) = (whole_list(kind, &pages), cx.wall_ms());
            if let Some(client) = self.remembered_client()
                && cx.memory.keep(client, Some(kind), &list, now_ms)
            {
                self.remember(cx);
            }
        }
    }

    /// A list of the catalog, for a client of several servers. False if the host must ask the server.
    pub(super) fn recall_list(&mut self, cx: &mut Cx<'_>, kind: ListKind) -> bool {
        let Some(result) = self.recalled(cx, Some(kind)) else {
            return false;
        };
        let mut seen = Seen::default();
        seen.page(kind, None, &result);
        if kind != ListKind::Tools {
            self.shelve_page(cx, kind, &result);
        }
        self.list_read(kind, &seen);
        self.lists.last_seen.insert(kind, seen);
        cx.kernel.warm(cx.now, self.slot);
        true
    }

    /// The lock changed: the catalog of this client was filtered by the old one.
    pub(super) fn forget_kind(&mut self) {
        self.recall.client = None;
    }
}

/// The result of a list on one page.
fn whole_list(kind: ListKind, pages: &[Json]) -> String {
    let items = pages.iter().flat_map(|page| {
        let items = scan::member(page.as_str(), kind.member());
        edit::items(items.unwrap_or("[]"))
    });
    let items = edit::array(items);
    let first = pages.first().map_or("{}", Json::as_str);
    let first = edit::filtered(first, |name| name != "nextCursor");
    edit::with_member(&first, kind.member(), &items)
}
