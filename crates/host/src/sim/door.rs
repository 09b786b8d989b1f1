//! HTTP below hyper: where simulated clients enter (`docs/simulation.md`).
//!
//! A [`HttpDoor`] has the sessions, links and streams of a real front. Requests, headers and credentials are
//! missing: hyper's part has tests of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mainstay_contract::dialect::{Relayed, relay};
use mainstay_contract::limits::Limits;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, mpsc};

use super::access::Credential;
use super::body::Reading;
use super::link::Back;
use super::session::Session;
use super::table::{SavedTable, Table};
use crate::engine::{Event, Links};

/// The HTTP front of a simulated host. Its table is replaced when the host is, while no request is on its way in:
/// those that come meanwhile wait.
#[derive(Clone, Debug)]
pub struct HttpDoor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    back: Back,
    table: Arc<RwLock<Table>>,
    limits: Limits,
    /// Cloned for each modern answer that is read.
    answers: Arc<()>,
    /// How often streams were closed because the host was replaced.
    released: AtomicU64,
}

/// A legacy session.
#[derive(Clone, Debug)]
pub struct HttpSession {
    door: HttpDoor,
    id: String,
}

/// A connection that reads one stream. Dropping it breaks the connection.
#[derive(Debug)]
pub struct HttpStream {
    reading: Reading,
    /// As [`Inner::released`] was when it was opened.
    released: u64,
    door: HttpDoor,
    _answer: Option<Arc<()>>,
}

/// One message of a stream.
#[derive(Clone, Debug)]
pub struct HttpEvent {
    /// Where a broken stream is resumed.
    pub id: String,
    pub line: Vec<u8>,
    pub is_last: bool,
}

impl HttpDoor {
    pub(crate) fn new(events: mpsc::Sender<Event>, limits: &Limits) -> Self {
        let door = Self(Arc::new(Inner {
            back: Back::new(events),
            table: Arc::default(),
            limits: limits.clone(),
            answers: Arc::default(),
            released: AtomicU64::default(),
        }));
        crate::sim::set_door(door.clone());
        door
    }

    fn stream(&self, reading: Reading, is_modern: bool) -> HttpStream {
        HttpStream {
            reading,
            released: self.0.released.load(Ordering::Relaxed),
            door: self.clone(),
            _answer: is_modern.then(|| Arc::clone(&self.0.answers)),
        }
    }

    /// Opens a session with its first request. `None` if the host has ended or has no room.
    pub async fn open(&self, line: &str) -> Option<(HttpSession, HttpStream)> {
        crate::sim::open().await;
        let who = Credential::Anonymous;
        let table = self.0.table.read().await;
        let opened = table.open(&self.0.back, &self.0.limits, who, None).await;
        let opened = opened.ok()?;
        let session = HttpSession {
            door: self.clone(),
            id: opened.id.clone(),
        };
        table.add(&opened);
        drop(table);
        let stream = session.ask(line).await?;
        Some((session, stream))
    }

    /// Sends a modern request of a caller. `None` if the host has ended or has no room.
    pub async fn ask(&self, caller: u8, line: &str) -> Option<HttpStream> {
        let Ok(Relayed::Request(request)) = relay(line.as_bytes(), self.0.limits.json_depth) else {
            return None;
        };
        crate::sim::open().await;
        let who = Credential::Token([caller; 32]);
        let table = self.0.table.read().await;
        let shared = table.shared(&self.0.back, &self.0.limits, &who).await;
        let reading = shared.ok()?.ask(line, &request).await;
        Some(self.stream(reading, true))
    }

    /// Deletes a session.
    pub async fn close(&self, session: &HttpSession) {
        let table = self.0.table.read().await;
        if let Some(session) = table.find(&session.id, &Credential::Anonymous) {
            table.remove(&session);
        }
    }

    /// Links to the host that are open.
    pub async fn links(&self) -> usize {
        self.0.table.read().await.links()
    }

    /// Ends the modern answers that are open with an error.
    pub(crate) async fn end_answers(&self) {
        self.0.table.read().await.end_answers();
    }

    /// Clients have to wait outside from now on, or no longer.
    pub(crate) async fn set_closed(&self, is_closed: bool) {
        self.0.table.read().await.set_closed(is_closed);
    }

    /// Closes the streams that clients resume, and keeps requests out. `None` while one is on its way in, or a modern
    /// answer on its way out.
    pub(crate) fn keep_closed(&self) -> Option<ClosedDoor> {
        if Arc::strong_count(&self.0.answers) > 1 {
            return None;
        }
        let table = Arc::clone(&self.0.table).try_write_owned().ok()?;
        self.0.released.fetch_add(1, Ordering::Relaxed);
        table.release();
        let door = self.clone();
        Some(ClosedDoor { table, door })
    }
}

/// An HTTP front that keeps requests out while its host is replaced.
#[derive(Debug)]
pub(crate) struct ClosedDoor {
    table: OwnedRwLockWriteGuard<Table>,
    door: HttpDoor,
}

impl ClosedDoor {
    /// The saved sessions continue on the links of a host that continues this one.
    pub(crate) fn replace(mut self, mut links: Links) -> serde_json::Result<()> {
        let saved = serde_json::to_string(&self.table.save())?;
        let saved: SavedTable = serde_json::from_str(&saved)?;
        *self.table = Table::default();
        self.table.restore(saved, &mut links, &self.door.0.limits);
        Ok(())
    }
}

impl HttpSession {
    async fn find(&self) -> Option<(Arc<Session>, OwnedRwLockReadGuard<Table>)> {
        crate::sim::open().await;
        let table = Arc::clone(&self.door.0.table).read_owned().await;
        let session = table.find(&self.id, &Credential::Anonymous)?;
        Some((session, table))
    }

    /// Sends a request. `None` if its id is in flight or the session is over.
    pub async fn ask(&self, line: &str) -> Option<HttpStream> {
        let Ok(Relayed::Request(request)) = relay(line.as_bytes(), self.door.0.limits.json_depth)
        else {
            return None;
        };
        let (session, _table) = self.find().await?;
        let reading = session.open(&request)?;
        let is_open = session.input.say(line.as_bytes()).await;
        is_open.then(|| self.door.stream(reading, false))
    }

    /// Sends a notification. False if the session is over.
    pub async fn notify(&self, line: &str) -> bool {
        let Some((session, _table)) = self.find().await else {
            return false;
        };
        match relay(line.as_bytes(), self.door.0.limits.json_depth) {
            Ok(said) => session.pass(line.as_bytes(), &said).await,
            Err(_) => false,
        }
    }

    /// Resumes a stream behind an event.
    pub async fn resume(&self, event: &str) -> Option<HttpStream> {
        let (session, _table) = self.find().await?;
        let reading = session.resume(event)?;
        Some(self.door.stream(reading, false))
    }

    /// Forgets a stream whose answer was given in one piece.
    pub fn forget(&self, stream: &HttpStream) -> impl Future<Output = ()> + use<'_> {
        let stream = stream.reading.stream;
        async move {
            if let Some((session, _table)) = self.find().await {
                session.close(stream);
            }
        }
    }

    /// True once the host has closed it.
    pub async fn is_over(&self) -> bool {
        self.find().await.is_none()
    }
}

impl HttpStream {
    /// The next message; `None` at the end.
    pub async fn next(&mut self) -> Option<HttpEvent> {
        let reading = &mut self.reading;
        let event = std::future::poll_fn(|context| reading.poll_next(context)).await?;
        Some(HttpEvent {
            id: format!("{}-{}", self.reading.stream.0, event.number),
            line: event.line.to_vec(),
            is_last: event.is_last,
        })
    }

    /// True if its end says only that the host was replaced.
    pub fn was_released(&self) -> bool {
        self.door.0.released.load(Ordering::Relaxed) > self.released
    }

    /// Where it is resumed before its first message.
    pub fn beginning(&self) -> String {
        format!("{}-0", self.reading.stream.0)
    }
}
