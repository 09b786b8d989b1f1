//! Subscriptions of modern clients (`subscriptions/listen`) and the changes of lists that the host announces on them.
//!
//! The host declares `listChanged` for every list that the server has, because a new process may list something else. So it
//! grants changes of these lists even where the server does not, and keeps a subscription for a server that
//! knows none. A client gets no notification before the acknowledgement.

use mainstay_contract::dialect::{Dialect, encode};
use mainstay_contract::id::{CallId, Generation, RequestId};
use mainstay_contract::json::ObjectWriter;
use mainstay_contract::meta;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::scan;

use super::house::UNKNOWN_METHOD;
use super::replies::error_code;
use super::requests::ClientRequest;
use super::{Client, Cx, Link, edit};

impl Link {
    /// The subscriptions that ask for changes of a list.
    pub(super) fn listeners(&self, kind: ListKind) -> Vec<CallId> {
        let open = self.requests.iter();
        let wants = open.filter(|(_, request)| wants(request, kind));
        wants.map(|(call, _)| call).collect()
    }

    /// Announces a change of a list on a subscription, at the latest after its acknowledgement.
    pub(super) fn announce_on(&mut self, cx: &mut Cx<'_>, call: CallId, kind: ListKind) {
        let Some(request) = self.requests.get_mut(call) else {
            return;
        };
        match &mut request.listening {
            Some(listening) if !listening.acknowledged => {
                listening.owed.insert(kind);
            }
            _ => {
                let params = edit::with_member("{}", "_meta", &subscription(request.id.as_raw()));
                self.tell_client(cx, encode::notification(kind.changed(), Some(&params)));
            }
        }
    }

    /// The client got the acknowledgement of a subscription.
    pub(super) fn begin_listening(&mut self, cx: &mut Cx<'_>, call: CallId) {
        let request = self.requests.get_mut(call);
        let Some(listening) = request.and_then(|request| request.listening.as_mut()) else {
            return;
        };
        listening.acknowledged = true;
        for kind in std::mem::take(&mut listening.owed) {
            self.announce_on(cx, call, kind);
        }
    }

    /// Passes the acknowledgement of a server on, with the lists whose changes the host announces. False if it belongs to
    /// no subscription of the client.
    pub(super) fn acknowledged(&mut self, cx: &mut Cx<'_>, text: &str, params: &str) -> bool {
        let own = scan::member(params, "_meta").unwrap_or("{}");
        let id = scan::member(own, meta::SUBSCRIPTION_ID).and_then(|id| RequestId::parse(id).ok());
        let found = id.and_then(|id| {
            let mut open = self.requests.iter();
            open.find(|(_, request)| request.listening.is_some() && request.id.same_value(&id))
        });
        let Some((call, request)) = found else {
            return false;
        };
        let granted = scan::member(params, "notifications").unwrap_or("{}");
        let mut more = granted.to_owned();
        for kind in self.granted_lists(request) {
            if scan::member(granted, kind.wanted()) != Some("true") {
                more = edit::with_member(&more, kind.wanted(), "true");
            }
        }
        let line = match more == granted {
            true => text.to_owned(),
            false => {
                let params = edit::with_member(params, "notifications", &more);
                edit::with_member(text, "params", &params)
            }
        };
        self.tell_client(cx, line);
        self.begin_listening(cx, call);
        true
    }

    /// A server refused a subscription because it knows none: the host keeps it for the lists that it watches. False
    /// if the client must get the refusal.
    pub(super) fn listens_alone(
        &mut self,
        cx: &mut Cx<'_>,
        generation: Generation,
        call: CallId,
        refusal: &str,
    ) -> bool {
        let is_unknown = error_code(refusal) == Some(UNKNOWN_METHOD);
        let is_live = cx.kernel.sent(generation, call).is_some();
        let Some(request) = self.requests.get(call) else {
            return false;
        };
        let listens = request.listening.is_some() && matches!(self.client, Client::Session(_));
        let lists = self.granted_lists(request);
        if !listens || !is_unknown || !is_live || lists.is_empty() {
            return false;
        }
        let mut granted = ObjectWriter::with_capacity(96);
        for kind in lists {
            granted = granted.raw(kind.wanted(), "true");
        }
        let line = acknowledgement(&request.id, &granted.finish());
        self.tell_client(cx, line);
        self.begin_listening(cx, call);
        true
    }

    /// The lists whose changes a subscription asks for and the host announces.
    fn granted_lists(&self, request: &ClientRequest) -> Vec<ListKind> {
        let kinds = ListKind::ALL.into_iter();
        // Templates are announced with the resources.
        let kinds = kinds.filter(|kind| *kind != ListKind::Templates);
        let granted = kinds.filter(|kind| wants(request, *kind) && self.lists.is_offered(*kind));
        granted.collect()
    }
}

/// The line that acknowledges a subscription.
pub(super) fn acknowledgement(id: &RequestId, granted: &str) -> String {
    let params = ObjectWriter::with_capacity(128)
        .raw("_meta", &subscription(id.as_raw()))
        .raw("notifications", granted)
        .finish();
    encode::notification(Method::Acknowledged, Some(&params))
}

/// The `_meta` of a notification for a subscription.
pub(super) fn subscription(id: &str) -> String {
    edit::with_member("{}", meta::SUBSCRIPTION_ID, id)
}

/// True if a request is a subscription of a modern client.
pub(super) fn is_listen(method: &str, dialect: Dialect) -> bool {
    method == Method::Listen.name() && dialect == Dialect::Modern
}

fn wants(request: &ClientRequest, kind: ListKind) -> bool {
    let is_listening = request.method == Method::Listen.name();
    let wanted = request.param("notifications").filter(|_| is_listening);
    wanted.and_then(|wanted| scan::member(wanted, kind.wanted())) == Some("true")
}
