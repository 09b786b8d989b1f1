//! Changes of lists, and the subscriptions of modern clients to them: requests that stay open until their
//! clients want no more.
//!
//! A client of a session gets the notification once it has opened its session. A modern client that
//! subscribes gets an acknowledgement, the notifications that it asked for, and the result when its
//! subscription ends.

use std::collections::BTreeSet;

use mainstay_contract::dialect::{Op, encode};
use mainstay_contract::id::{CallId, RequestId, SessionId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta;
use mainstay_contract::method::{ListKind, Method};
use mainstay_contract::outcome::Success;

use super::action::{CoreAction, LogLevel};
use super::{Core, PendingStage};
use crate::call::SlotId;

impl Core {
    /// Acknowledges a subscription with the lists whose changes it announces.
    pub(super) fn listen(&mut self, call: CallId) {
        let Some((session, id)) = self.kernel.request_of(call) else {
            return;
        };
        let mut granted = ObjectWriter::with_capacity(96);
        if let Some(Op::Listen { lists }) = self.requests.get(&call).map(|pending| &pending.op) {
            let wraps = self.links.serves_many();
            let announces = |kind: &&ListKind| wraps || self.catalog.announces(**kind);
            for kind in lists.iter().filter(announces) {
                granted = granted.raw(kind.wanted(), "true");
            }
        }
        let params = ObjectWriter::with_capacity(128)
            .raw("_meta", &subscription(id))
            .raw("notifications", &granted.finish())
            .finish();
        let line = encode::notification(Method::Acknowledged, Some(&params));
        self.out.push_back(CoreAction::Tell { session, line });
        if let Some(pending) = self.requests.get_mut(&call) {
            pending.stage = PendingStage::Listening;
        }
    }

    /// Announces changed lists of a pack to clients that may have seen other ones.
    pub(super) fn announce_lists(&mut self, pack: &str, lists: &[ListKind]) {
        if lists.is_empty() {
            return;
        }
        self.log_at(LogLevel::Info, format!("lists changed pack={pack}"));
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.announce_to(session, lists.iter().copied().collect());
        }
    }

    /// Announces changed lists to one client, in the ways that it asked for.
    pub(super) fn announce_to(&mut self, session: SessionId, mut lists: BTreeSet<ListKind>) {
        // Templates are announced with the resources.
        if lists.remove(&ListKind::Templates) {
            lists.insert(ListKind::Resources);
        }
        if lists.is_empty() {
            return;
        }
        // The last answer of a session may end it in the same event.
        if self.is_opened(session) && self.kernel.has_session(session) {
            for kind in &lists {
                let line = notification(*kind, None);
                self.out.push_back(CoreAction::Tell { session, line });
            }
        }
        let requests = self.requests.iter();
        let listening = requests.filter(|(_, pending)| pending.stage == PendingStage::Listening);
        for (call, pending) in listening {
            let (Op::Listen { lists: wanted }, Some((listener, id))) =
                (&pending.op, self.kernel.request_of(*call))
            else {
                continue;
            };
            let wanted = lists.iter().filter(|kind| wanted.contains(kind));
            for kind in wanted.filter(|_| listener == session) {
                let line = notification(*kind, Some(id));
                self.out.push_back(CoreAction::Tell { session, line });
            }
        }
    }

    /// Ends the subscriptions of a client that asks no more, or all of them.
    pub(super) fn end_listeners(&mut self, of: Option<SessionId>) {
        let requests = self.requests.iter();
        let listening = requests.filter(|(_, pending)| pending.stage == PendingStage::Listening);
        let over: Vec<(CallId, Json)> = listening
            .filter_map(|(call, _)| {
                let (session, id) = self.kernel.request_of(*call)?;
                let is_meant = of.is_none_or(|of| of == session);
                is_meant.then(|| {
                    let result = ObjectWriter::with_capacity(96).raw("_meta", &subscription(id));
                    (*call, Json::from_scanned(&result.finish()))
                })
            })
            .collect();
        for (call, members) in over {
            let outcome = Ok(Success::Members(members));
            self.kernel.handle_served(self.clock.now, call, outcome);
        }
    }

    /// The host must stop: what never ends by itself ends now.
    pub(super) fn stop(&mut self) {
        self.end_listeners(None);
        let slots: Vec<SlotId> = self.kernel.slot_ids().collect();
        for slot in slots {
            self.with_link(slot, |link, cx| link.cancel_endless(cx));
        }
        self.kernel.handle_stop(self.clock.now);
    }
}

fn subscription(id: &RequestId) -> String {
    let meta = ObjectWriter::with_capacity(64).raw(meta::SUBSCRIPTION_ID, id.as_raw());
    meta.finish()
}

/// The notification that a list changed, perhaps for one subscription.
fn notification(kind: ListKind, id: Option<&RequestId>) -> String {
    let line = ObjectWriter::with_capacity(160)
        .string("jsonrpc", "2.0")
        .string("method", kind.changed().name());
    match id {
        None => line.finish(),
        Some(id) => {
            let params = ObjectWriter::with_capacity(80).raw("_meta", &subscription(id));
            line.raw("params", &params.finish()).finish()
        }
    }
}
