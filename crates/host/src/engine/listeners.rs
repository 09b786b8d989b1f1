//! Subscriptions: requests that stay open until their clients want no more.
//!
//! What packs offer does not change while they are served, so there is nothing to announce: a
//! client that listens is told so, and is told when it is over.

use mainstay_contract::id::{CallId, RequestId, SessionId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::outcome::Success;

use super::Engine;
use super::clients::Conversation;

/// `_meta` key of the request that opened a subscription.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// One who listens.
#[derive(Debug)]
pub(super) struct Listener {
    session: SessionId,
    id: RequestId,
}

impl Listener {
    fn meta(&self) -> String {
        let meta = ObjectWriter::with_capacity(64).raw(SUBSCRIPTION, self.id.as_raw());
        meta.finish()
    }
}

impl Engine {
    /// Says what will be told: nothing, of all that can be asked for.
    pub(super) fn listen(&mut self, call: CallId) {
        let Some((session, id)) = self.kernel.request_of(call) else {
            return;
        };
        let listener = Listener {
            session,
            id: id.clone(),
        };
        let params = ObjectWriter::with_capacity(128)
            .raw("_meta", &listener.meta())
            .raw("notifications", "{}")
            .finish();
        let line = ObjectWriter::with_capacity(256)
            .string("jsonrpc", "2.0")
            .string("method", "notifications/subscriptions/acknowledged")
            .raw("params", &params)
            .finish();
        if let Some(Conversation::Lines { outbox, .. }) = self.conversations.get(&session) {
            outbox.push(&line);
        }
        self.listeners.insert(call, listener);
    }

    /// Ends the subscriptions of a client that asks no more, or all of them.
    pub(super) fn end_listeners(&mut self, of: Option<SessionId>) {
        let over: Vec<CallId> = self
            .listeners
            .iter()
            .filter(|(_, listener)| of.is_none_or(|session| listener.session == session))
            .map(|(call, _)| *call)
            .collect();
        for call in over {
            if let Some(listener) = self.listeners.remove(&call) {
                let meta = ObjectWriter::with_capacity(96).raw("_meta", &listener.meta());
                let members = Json::from_scanned(&meta.finish());
                let outcome = Ok(Success::Members(members));
                self.kernel.handle_served(self.clock.now(), call, outcome);
            }
        }
    }

    /// The host is to stop.
    pub(super) fn stop(&mut self) {
        self.end_listeners(None);
        self.kernel.handle_stop(self.clock.now());
    }
}
