//! Subscriptions of modern clients: requests that stay open until their clients want no more.
//!
//! The catalog of packs does not change while they are served, so there is nothing to announce: a client
//! that subscribes gets the acknowledgement, and the result when its subscription ends.

use mainstay_contract::dialect::encode;
use mainstay_contract::id::{CallId, RequestId, SessionId};
use mainstay_contract::json::{Json, ObjectWriter};
use mainstay_contract::meta;
use mainstay_contract::method::Method;
use mainstay_contract::outcome::Success;

use super::action::CoreAction;
use super::{Core, PendingStage};
use crate::call::SlotId;

impl Core {
    /// Acknowledges a subscription: of all that can be asked for, nothing is announced.
    pub(super) fn listen(&mut self, call: CallId) {
        let Some((session, id)) = self.kernel.request_of(call) else {
            return;
        };
        let params = ObjectWriter::with_capacity(128)
            .raw("_meta", &subscription(id))
            .raw("notifications", "{}")
            .finish();
        let line = encode::notification(Method::Acknowledged, Some(&params));
        self.out.push_back(CoreAction::Tell { session, line });
        if let Some(pending) = self.requests.get_mut(&call) {
            pending.stage = PendingStage::Listening;
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
