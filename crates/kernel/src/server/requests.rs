//! The requests that a client has in flight on a wrapped server.
//!
//! The kernel counts calls; this table keeps the client's own words of each: its id, its line, its progress
//! token, and its cancel. A call whose tool is not known yet is held until the list is here.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_contract::dialect::{Dialect, RelayedRequest};
use mainstay_contract::id::{CallId, Generation, RequestId};
use mainstay_contract::json::Json;
use mainstay_contract::meta::PROGRESS_TOKEN;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::scan;
use mainstay_schema::Fingerprint;
use serde::{Deserialize, Serialize};

use super::listening::is_listen;
use super::tasks::CallTask;
use crate::defect::{Defect, is_planted};
use crate::time::Time;

/// True for one token, also if a number is spelled in two ways, as servers may do.
pub(super) fn is_same_token(known: &str, token: &str) -> bool {
    let value = |token: &str| RequestId::parse(token).ok();
    known == token
        || matches!((value(known), value(token)), (Some(known), Some(token)) if known.same_value(&token))
}

/// Longest progress token that is followed.
const TOKEN_BYTES: usize = 1024;

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Requests {
    open: BTreeMap<CallId, Box<ClientRequest>>,
    /// Calls that wait until the tools are known, each with the time at which it stops waiting.
    held: Vec<(CallId, Time)>,
    /// The client's last request.
    last: Option<CallId>,
}

/// One request in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClientRequest {
    pub(super) id: RequestId,
    pub(super) dialect: Dialect,
    pub(super) method: String,
    pub(super) tool: Option<String>,
    /// The line as the client wrote it.
    pub(super) line: Json,
    pub(super) token: Option<String>,
    /// The progress token that the server knows, if it is not the client's: one of the host, or that of the
    /// request that this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wire_token: Option<String>,
    /// The client's own line that cancels it.
    pub(super) cancel: Option<Json>,
    /// The server whose tools it was admitted for.
    pub(super) admitted: Option<Generation>,
    /// The definition that its arguments were checked against.
    pub(super) checked: Option<Fingerprint>,
    /// The server listed its tool when it was admitted.
    pub(super) listed: bool,
    /// The part of a subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) listening: Option<Box<Listening>>,
    /// Its part in a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) task: Option<Box<CallTask>>,
}

/// A subscription of a modern client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listening {
    /// The client got the acknowledgement, which comes before every notification.
    pub(super) acknowledged: bool,
    /// Lists whose change the client must hear of once it got it.
    pub(super) owed: BTreeSet<ListKind>,
}

impl ClientRequest {
    /// A request as it arrived.
    pub(super) fn new(text: &str, request: &RelayedRequest<'_>, meta: Option<&str>) -> Self {
        let tool = (request.method == "tools/call")
            .then(|| request.param("name").and_then(scan::unquote))
            .flatten();
        Self {
            id: request.id.clone(),
            dialect: request.dialect,
            method: request.method.clone().into_owned(),
            tool: tool.map(std::borrow::Cow::into_owned),
            line: Json::from_scanned(text),
            token: meta
                .and_then(|meta| scan::member(meta, PROGRESS_TOKEN))
                .filter(|token| token.len() <= TOKEN_BYTES)
                .map(str::to_owned),
            wire_token: None,
            cancel: None,
            admitted: None,
            checked: None,
            listed: false,
            listening: is_listen(&request.method, request.dialect).then(Box::default),
            task: None,
        }
    }

    /// The progress token that its server knows.
    pub(super) const fn server_token(&self) -> Option<&String> {
        match &self.wire_token {
            Some(token) => Some(token),
            None => self.token.as_ref(),
        }
    }

    /// Its parameters, as JSON text. A null stands for none.
    pub(super) fn params(&self) -> Option<&str> {
        scan::member(self.line.as_str(), "params").filter(|params| *params != "null")
    }

    /// One of its parameters, as JSON text.
    pub(super) fn param(&self, key: &str) -> Option<&str> {
        scan::member(self.params()?, key)
    }

    /// True for a legacy subscription to a resource.
    pub(super) fn subscribes_to(&self, uri: &str) -> bool {
        self.method == Method::SubscribeResource.name()
            && self.param("uri").and_then(scan::unquote).as_deref() == Some(uri)
    }

    /// A member of its `_meta`, as JSON text.
    pub(super) fn meta(&self, key: &str) -> Option<&str> {
        scan::member(self.param("_meta")?, key)
    }
}

impl Requests {
    /// Adds a request that the kernel admitted.
    pub(super) fn insert(&mut self, call: CallId, request: ClientRequest) {
        self.open.insert(call, Box::new(request));
        self.last = Some(call);
    }

    pub(super) fn get(&self, call: CallId) -> Option<&ClientRequest> {
        self.open.get(&call).map(|request| &**request)
    }

    pub(super) fn get_mut(&mut self, call: CallId) -> Option<&mut ClientRequest> {
        self.open.get_mut(&call).map(|request| &mut **request)
    }

    /// Takes a request out, to work on it beside the rest of the link; [`Requests::put_back`] follows.
    pub(super) fn take(&mut self, call: CallId) -> Option<Box<ClientRequest>> {
        self.open.remove(&call)
    }

    /// Returns a request that was taken out.
    pub(super) fn put_back(&mut self, call: CallId, request: Box<ClientRequest>) {
        self.open.insert(call, request);
    }

    /// Removes a request that has ended.
    pub(super) fn remove(&mut self, call: CallId) -> Option<Box<ClientRequest>> {
        self.held.retain(|(held, _)| *held != call);
        self.open.remove(&call)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (CallId, &ClientRequest)> {
        self.open.iter().map(|(call, request)| (*call, &**request))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &ClientRequest> {
        self.open.values().map(|request| &**request)
    }

    /// The call of which a server reports progress under a token.
    pub(super) fn by_token(&self, token: &str) -> Option<CallId> {
        let find = |is_it: &dyn Fn(&str) -> bool| {
            let mut open = self.open.iter();
            let found = open.find(|(_, request)| {
                let token = request.server_token();
                token.is_some_and(|token| is_it(token))
            });
            found.map(|(call, _)| *call)
        };
        find(&|known| known == token).or_else(|| find(&|known| is_same_token(known, token)))
    }

    /// The client's last request.
    pub(super) const fn last(&self) -> Option<CallId> {
        self.last
    }

    /// Holds a call until the tools are known, or until then.
    pub(super) fn hold(&mut self, call: CallId, until: Time) {
        self.held.push((call, until));
    }

    /// True while a call waits for the list of tools.
    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// When the first held call stops waiting.
    pub(super) fn held_until(&self) -> Option<Time> {
        self.held.iter().map(|(_, until)| *until).min()
    }

    /// Stops holding calls, and returns them in the order in which they came.
    pub(super) fn release(&mut self) -> Vec<CallId> {
        if is_planted(Defect::HeldForever) {
            return Vec::new();
        }
        let held = std::mem::take(&mut self.held);
        held.into_iter().map(|(call, _)| call).collect()
    }
}
