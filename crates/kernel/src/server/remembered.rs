//! The last known catalog of a server: its handshake and its lists, as one kind of client got them.
//!
//! A [`ServerMemory`] belongs to a server, not to a session. The shell reads it when the host starts and writes it when
//! [`CoreAction::Remember`](crate::core::action::CoreAction::Remember) says that it changed. A catalog is bound to the
//! client's era, protocol version, capabilities and credential and to the lock; the shell binds the whole memory to
//! the server's command, its directory, its environment and the build of the host. Items are kept as the
//! server wrote them: rules and lock apply when they are given to a client.

use std::collections::BTreeMap;

use mainstay_contract::json::Json;
use mainstay_contract::method::ListKind;
use mainstay_contract::scan;
use mainstay_schema::Fingerprint;
use serde::{Deserialize, Serialize};

use super::{Discovered, edit};

/// Kinds of clients whose catalogs are kept for one server.
const CLIENTS: usize = 4;
/// Bytes of one catalog.
const CATALOG_BYTES: usize = 1024 * 1024;

/// Facts about a server that the host has before it starts one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMemory {
    /// The answer to `server/discover`, for every client.
    #[serde(default)]
    pub discovered: Option<Discovered>,
    /// The catalog of each kind of client, the one that changed last at the end.
    #[serde(default)]
    catalogs: Vec<RememberedCatalog>,
}

/// The catalog that one kind of client got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RememberedCatalog {
    client: Fingerprint,
    /// The result of `initialize` or `server/discover`, in the client's form.
    handshake: Option<RememberedResult>,
    /// The server speaks the other era than its client.
    #[serde(default)]
    bridged: bool,
    lists: BTreeMap<ListKind, RememberedResult>,
}

/// A result of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RememberedResult {
    result: Json,
    /// When its `ttlMs` ends, in milliseconds of wall-clock time; legacy results have none.
    expires_ms: Option<u64>,
}

impl RememberedResult {
    fn new(result: &str, now_ms: u64) -> Self {
        let ttl_ms = scan::member(result, "ttlMs").and_then(|ttl| ttl.parse().ok());
        Self {
            result: Json::from_scanned(result),
            expires_ms: ttl_ms.map(|ttl_ms: u64| now_ms.saturating_add(ttl_ms)),
        }
    }

    /// The result with the rest of its `ttlMs`.
    pub(super) fn result_at(&self, now_ms: u64) -> String {
        match self.expires_ms {
            None => self.result.to_string(),
            Some(expires_ms) => {
                let left_ms = expires_ms.saturating_sub(now_ms);
                edit::with_member(self.result.as_str(), "ttlMs", &left_ms.to_string())
            }
        }
    }
}

impl RememberedCatalog {
    const fn new(client: Fingerprint) -> Self {
        Self {
            client,
            handshake: None,
            bridged: false,
            lists: BTreeMap::new(),
        }
    }

    fn part(&self, part: Option<ListKind>) -> Option<&RememberedResult> {
        match part {
            None => self.handshake.as_ref(),
            Some(kind) => self.lists.get(&kind),
        }
    }

    fn set(&mut self, part: Option<ListKind>, value: Option<RememberedResult>) {
        match (part, value) {
            (None, value) => self.handshake = value,
            (Some(kind), Some(value)) => {
                self.lists.insert(kind, value);
            }
            (Some(kind), None) => {
                self.lists.remove(&kind);
            }
        }
    }

    fn bytes(&self) -> usize {
        let lists = self.lists.values().chain(&self.handshake);
        lists.map(|kept| kept.result.len()).sum()
    }
}

impl ServerMemory {
    /// True if a catalog of any client is known.
    pub(crate) const fn has_catalogs(&self) -> bool {
        !self.catalogs.is_empty()
    }

    /// True if a catalog of this client is known.
    pub(super) fn knows(&self, client: &Fingerprint) -> bool {
        self.catalogs
            .iter()
            .any(|catalog| catalog.client == *client)
    }

    /// True if the server of this client speaks the other era.
    pub(super) fn is_bridged(&self, client: &Fingerprint) -> bool {
        let mut catalogs = self.catalogs.iter();
        catalogs.any(|catalog| catalog.client == *client && catalog.bridged)
    }

    /// Keeps the handshake of a client in the client's form. `bridged` says that the server gave it in the form of
    /// the other era. Returns true if the memory must be written.
    pub(super) fn keep_handshake(
        &mut self,
        client: Fingerprint,
        result: &str,
        bridged: bool,
        now_ms: u64,
    ) -> bool {
        let is_new = self.keep(client, None, result, now_ms);
        let mut catalogs = self.catalogs.iter_mut();
        let catalog = catalogs.find(|catalog| catalog.client == client);
        let was_bridged = catalog.map(|catalog| std::mem::replace(&mut catalog.bridged, bridged));
        is_new || was_bridged.is_some_and(|was_bridged| was_bridged != bridged)
    }

    /// The handshake of a client, or one of its lists.
    pub(super) fn recall(
        &self,
        client: &Fingerprint,
        part: Option<ListKind>,
    ) -> Option<&RememberedResult> {
        let mut catalogs = self.catalogs.iter();
        let catalog = catalogs.find(|catalog| catalog.client == *client)?;
        catalog.part(part)
    }

    /// Keeps the handshake of a client, or one of its lists. Returns true if the memory must be written.
    pub(super) fn keep(
        &mut self,
        client: Fingerprint,
        part: Option<ListKind>,
        result: &str,
        now_ms: u64,
    ) -> bool {
        let kept = RememberedResult::new(result, now_ms);
        let place = self
            .catalogs
            .iter()
            .position(|catalog| catalog.client == client);
        let mut catalog = match place {
            Some(place) => self.catalogs.remove(place),
            None => RememberedCatalog::new(client),
        };
        let before = catalog.part(part).cloned();
        let is_new = before.as_ref().is_none_or(|before| {
            let is_over = before
                .expires_ms
                .is_some_and(|expires_ms| expires_ms <= now_ms);
            before.result != kept.result || is_over
        });
        catalog.set(part, Some(kept));
        // A catalog that is too large stays as small as it was.
        let fits = catalog.bytes() <= CATALOG_BYTES;
        if !fits {
            catalog.set(part, None);
        }
        self.catalogs.push(catalog);
        let excess = self.catalogs.len().saturating_sub(CLIENTS);
        self.catalogs.drain(..excess);
        is_new && (fits || before.is_some())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn client(number: usize) -> Fingerprint {
        Fingerprint::of(&json!(number))
    }

    #[test]
    fn the_catalogs_that_changed_last_are_kept() {
        let mut memory = ServerMemory::default();
        for number in 0..=CLIENTS {
            assert!(memory.keep(client(number), None, "{}", 0));
        }
        assert_eq!(memory.recall(&client(0), None), None);
        assert!(memory.recall(&client(1), None).is_some());
        assert!(!memory.keep(client(1), None, "{}", 0), "it has not changed");
        assert!(memory.keep(client(9), None, "{}", 0));
        assert!(memory.recall(&client(1), None).is_some(), "it was used");
        assert_eq!(memory.recall(&client(2), None), None);
    }

    #[test]
    fn a_list_that_is_too_large_is_not_kept_and_does_not_stay_as_it_was() {
        let tools = Some(ListKind::Tools);
        let sized = |bytes: usize| format!("{{\"x\":\"{}\"}}", "x".repeat(bytes - 8));
        let mut memory = ServerMemory::default();
        assert!(memory.keep(client(1), tools, &sized(CATALOG_BYTES), 0));
        assert!(memory.recall(&client(1), tools).is_some());
        assert!(memory.keep(client(1), tools, &sized(CATALOG_BYTES + 1), 0));
        assert_eq!(memory.recall(&client(1), tools), None);
    }

    #[test]
    fn a_time_to_live_counts_down_to_zero() {
        let mut memory = ServerMemory::default();
        let result = r#"{"tools":[],"ttlMs":500}"#;
        assert!(memory.keep(client(1), Some(ListKind::Tools), result, 1000));
        let at = |memory: &ServerMemory, now_ms| {
            let kept = memory.recall(&client(1), Some(ListKind::Tools)).unwrap();
            kept.result_at(now_ms)
        };
        assert_eq!(at(&memory, 1100), r#"{"tools":[],"ttlMs":400}"#);
        assert_eq!(at(&memory, 9000), r#"{"tools":[],"ttlMs":0}"#);
        let again = |memory: &mut ServerMemory, now_ms| {
            memory.keep(client(1), Some(ListKind::Tools), result, now_ms)
        };
        assert!(!again(&mut memory, 1200), "the file is good enough");
        assert!(again(&mut memory, 2000), "it would have expired there");
        assert!(memory.keep(client(1), None, "{}", 0));
        let legacy = memory.recall(&client(1), None).unwrap();
        assert_eq!(legacy.result_at(u64::MAX), "{}");
    }
}
