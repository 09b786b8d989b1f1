//! The sessions and shared links that there are: found by who asks, bounded, ended when idle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_contract::limits::Limits;
use mainstay_contract::trace::Hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::access::Credential;
use super::body::lock;
use super::link::{self, Back, Ending, Input};
use super::session::{SavedSession, Session};
use super::shared::{SavedShared, Shared};
use crate::engine::Links;

/// A session that was idle for so long makes way for a new one.
const YIELDS_AFTER: Duration = Duration::from_secs(60);
/// Random bytes of a session's id.
const ID_BYTES: usize = 24;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// By the hash of the id, so that the time a search takes says nothing about other ids.
    sessions: Mutex<BTreeMap<[u8; 32], Arc<Session>>>,
    shared: Mutex<BTreeMap<Credential, Arc<Shared>>>,
}

/// A [`Table`], as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedTable {
    sessions: Vec<SavedSession>,
    shared: Vec<SavedShared>,
}

/// There are too many sessions, all in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Table {
    /// A session that only its opener can find, not yet in the table. `share` is the number of sessions
    /// that one credential may have.
    pub(super) async fn open(
        &self,
        back: &Back,
        limits: &Limits,
        credential: Credential,
        share: Option<usize>,
    ) -> Result<Arc<Session>, Full> {
        let mine = |session: &Session| session.credential == credential;
        let has_room = share.is_none_or(|share| self.has_room(share, mine))
            && self.has_room(limits.http_sessions, |_| true);
        if !has_room {
            return Err(Full);
        }
        let Some(id) = fresh_id() else {
            return Err(Full);
        };
        let (link, input, output) = link::open(back, &credential).await;
        let (link, budget) = ((link, input), limits.resume_bytes);
        let session = Arc::new(Session::new(id, credential, link, budget));
        let (sorting, depth) = (Arc::clone(&session), limits.json_depth);
        tokio::spawn(async move { sorting.sort(output, depth).await });
        Ok(session)
    }

    /// All sessions and links, for a process that continues in this one's place.
    pub(super) fn save(&self) -> SavedTable {
        let shared = lock(&self.shared);
        SavedTable {
            sessions: lock(&self.sessions)
                .values()
                .filter_map(|session| session.save())
                .collect(),
            shared: shared
                .iter()
                .filter_map(|(credential, shared)| shared.save(credential))
                .collect(),
        }
    }

    /// Continues the sessions and links whose channels are in `links`.
    pub(super) fn restore(&self, saved: SavedTable, links: &mut Links, limits: &Limits) {
        let depth = limits.json_depth;
        for saved in saved.sessions {
            let link = links.remove(&saved.link);
            let Some((input, output)) = link else {
                continue;
            };
            if let Some(session) = Session::restore(saved, Input(input)) {
                let session = Arc::new(session);
                self.add(&session);
                tokio::spawn(async move { session.sort(output, depth).await });
            }
        }
        for saved in saved.shared {
            let link = links.remove(&saved.link);
            let Some((input, output)) = link else {
                continue;
            };
            let (credential, shared) = Shared::restore(saved, Input(input), limits.resume_bytes);
            let shared = Arc::new(shared);
            lock(&self.shared).insert(credential, Arc::clone(&shared));
            tokio::spawn(async move { shared.sort(output, depth).await });
        }
    }

    /// Ends the modern answers that are open with an error, but not subscriptions.
    pub(super) fn end_answers(&self) {
        lock(&self.shared)
            .values()
            .for_each(|shared| shared.end_answers());
    }

    /// Keeps new readers of sessions outside, or lets them in.
    pub(super) fn set_closed(&self, is_closed: bool) {
        lock(&self.sessions)
            .values()
            .for_each(|session| session.set_closed(is_closed));
    }

    /// Closes streams that have no end of their own, and those that clients can resume.
    pub(super) fn release(&self) {
        lock(&self.sessions)
            .values()
            .for_each(|session| session.release());
        lock(&self.shared)
            .values()
            .for_each(|shared| shared.release());
    }

    /// How many sessions there are.
    pub(super) fn sessions(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Links that are open.
    #[cfg(feature = "simulation")]
    pub(super) fn links(&self) -> usize {
        let is_open = |ending: &Ending| !ending.is_over();
        let sessions = lock(&self.sessions);
        let shared = lock(&self.shared);
        let sessions = sessions.values().filter(|session| is_open(&session.ending));
        let shared = shared.values().filter(|shared| is_open(&shared.ending));
        sessions.count() + shared.count()
    }

    /// From here on the session can be found.
    pub(super) fn add(&self, session: &Arc<Session>) {
        lock(&self.sessions).insert(key(&session.id), Arc::clone(session));
    }

    /// The session of this id, if it belongs to the one who asks.
    pub(super) fn find(&self, id: &str, credential: &Credential) -> Option<Arc<Session>> {
        let sessions = lock(&self.sessions);
        let session = sessions.get(&key(id))?;
        (session.credential == *credential && !session.ending.is_over())
            .then(|| Arc::clone(session))
    }

    /// Ends a session and everything in it.
    pub(super) fn remove(&self, session: &Session) {
        lock(&self.sessions).remove(&key(&session.id));
        session.ending.end();
    }

    /// The link for the modern requests of a credential.
    pub(super) async fn shared(
        &self,
        back: &Back,
        limits: &Limits,
        credential: &Credential,
    ) -> Result<Arc<Shared>, Full> {
        let known = lock(&self.shared).get(credential).cloned();
        if let Some(shared) = known.filter(|shared| !shared.ending.is_over()) {
            return Ok(shared);
        }
        if !self.has_room_for_link(limits.http_sessions) {
            return Err(Full);
        }
        let (link, input, output) = link::open(back, credential).await;
        let fresh = Arc::new(Shared::new((link, input), limits.resume_bytes));
        let mut all = lock(&self.shared);
        // Another request may have been faster.
        if let Some(shared) = all
            .get(credential)
            .filter(|shared| !shared.ending.is_over())
        {
            return Ok(Arc::clone(shared));
        }
        all.insert(credential.clone(), Arc::clone(&fresh));
        drop(all);
        let (sorting, depth) = (Arc::clone(&fresh), limits.json_depth);
        tokio::spawn(async move { sorting.sort(output, depth).await });
        Ok(fresh)
    }

    fn has_room_for_link(&self, most: usize) -> bool {
        let mut shared = lock(&self.shared);
        shared.retain(|_, shared| !shared.ending.is_over());
        if shared.len() < most {
            return true;
        }
        let idle = |shared: &Arc<Shared>| shared.idle();
        let idlest = shared.iter().max_by_key(|(_, shared)| idle(shared));
        let idlest = idlest.filter(|(_, shared)| !idle(shared).is_zero());
        let Some(key) = idlest.map(|(key, _)| key.clone()) else {
            return false;
        };
        if let Some(link) = shared.remove(&key) {
            link.ending.end();
        }
        true
    }

    /// True if fewer than `most` sessions are `counted`, or one of them makes way.
    fn has_room(&self, most: usize, counted: impl Fn(&Session) -> bool) -> bool {
        let mut sessions = lock(&self.sessions);
        sessions.retain(|_, session| !session.ending.is_over());
        let all = || sessions.iter().filter(|(_, session)| counted(session));
        if all().count() < most {
            return true;
        }
        let idlest = all().map(|(key, session)| (session.idle(), *key)).max();
        match idlest {
            Some((idle, key)) if idle >= YIELDS_AFTER => {
                if let Some(session) = sessions.remove(&key) {
                    session.ending.end();
                }
                true
            }
            _ => false,
        }
    }

    /// Ends sessions that were idle for too long.
    pub(super) fn sweep(&self, idle: Duration) {
        let stays = |ending: &Ending, unused: Duration| {
            let stays = !ending.is_over() && unused < idle;
            if !stays {
                ending.end();
            }
            stays
        };
        lock(&self.sessions).retain(|_, session| stays(&session.ending, session.idle()));
        lock(&self.shared).retain(|_, shared| stays(&shared.ending, shared.idle()));
    }
}

fn key(id: &str) -> [u8; 32] {
    Sha256::digest(id.as_bytes()).into()
}

/// An id that cannot be guessed; none if the system has no randomness to give.
fn fresh_id() -> Option<String> {
    let mut bytes = [0_u8; ID_BYTES];
    #[cfg(feature = "simulation")]
    if crate::sim::is_entered() {
        return Some(format!("{:048x}", crate::entropy::random()));
    }
    let flags = rustix::rand::GetRandomFlags::empty();
    let count = rustix::rand::getrandom(&mut bytes, flags).ok()?;
    (count == ID_BYTES).then(|| Hex(&bytes).to_string())
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn one_credential_does_not_take_the_sessions_of_others() {
        let (events, _incoming) = mpsc::channel(64);
        let (back, table) = (Back::new(events), Table::default());
        let limits = Limits {
            http_sessions: 5,
            ..Limits::default()
        };
        let open = async |who: u8, share| {
            let who = Credential::Subject([who; 32]);
            let opened = table.open(&back, &limits, who, share).await;
            opened.map(|session| table.add(&session))
        };
        let share = Some(3);
        for _ in 0..3 {
            assert_eq!(open(1, share).await, Ok(()));
        }
        assert_eq!(open(1, share).await, Err(Full));
        assert_eq!(open(2, share).await, Ok(()));
        // One credential has no others to crowd out.
        assert_eq!(open(1, None).await, Ok(()));
        assert_eq!(open(2, share).await, Err(Full), "all of them are in use");
    }

    #[test]
    fn ids_are_long_and_never_the_same() {
        let (one, two) = (fresh_id().unwrap(), fresh_id().unwrap());
        assert_eq!(one.len(), 48);
        assert_ne!(one, two);
        assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
