//! Listeners to changes of lists: subscriptions of the modern era, sessions of the legacy one.
//!
//! One list for the whole process. A listener that cannot be reached any more is forgotten at the
//! next change.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleServer;
use rmcp::service::{Peer, SubscriptionSink};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    Tools,
    Prompts,
}

#[derive(Clone)]
enum Listener {
    Subscription(SubscriptionSink),
    Session(Peer<RoleServer>),
}

#[derive(Clone, Default)]
pub(crate) struct Listeners(Arc<Mutex<Vec<Listener>>>);

impl Listeners {
    pub(crate) fn subscribed(&self, sink: SubscriptionSink) {
        self.add(Listener::Subscription(sink));
    }

    pub(crate) fn initialized(&self, peer: Peer<RoleServer>) {
        self.add(Listener::Session(peer));
    }

    fn add(&self, listener: Listener) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(listener);
    }

    fn all(&self) -> Vec<Listener> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|listener| match listener {
            Listener::Session(peer) => !peer.is_transport_closed(),
            Listener::Subscription(_) => true,
        });
        all.clone()
    }

    pub(crate) fn forget(&self, ended: &SubscriptionSink) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(
            |listener| !matches!(listener, Listener::Subscription(sink) if sink.id() == ended.id()),
        );
    }

    /// A listener that did not ask for this kind of change, or is gone, is passed over.
    pub(crate) async fn tell(&self, changed: Changed) {
        for listener in self.all() {
            match (listener, changed) {
                (Listener::Subscription(sink), Changed::Tools) => {
                    let _ = sink.notify_tool_list_changed().await;
                }
                (Listener::Subscription(sink), Changed::Prompts) => {
                    let _ = sink.notify_prompt_list_changed().await;
                }
                (Listener::Session(peer), Changed::Tools) => {
                    let _ = peer.notify_tool_list_changed().await;
                }
                (Listener::Session(peer), Changed::Prompts) => {
                    let _ = peer.notify_prompt_list_changed().await;
                }
            }
        }
    }
}
