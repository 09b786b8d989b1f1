//! The state of one session on a remote server, and the requests that every exchange makes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::id::Generation;
use mainstay_kernel::action::Manner;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc, watch};

use super::connect::{Client, Reply, SendError};
use super::credentials::Credentials;
use super::message::{self, Message, OutgoingRequest};
use super::queue::{Interrupted, LineQueue, QueuedLine};
use crate::drivers::task::{LastWords, Listener};
use crate::drivers::{What, WorkerEvent};
use crate::http::Body;
use crate::remote::{Remote, TokenSource};

/// Longest session id.
const SESSION_BYTES: usize = 1024;
/// The name of this program in requests; some gateways reject a client without one.
const PROGRAM: &str = concat!("mainstay/", env!("CARGO_PKG_VERSION"));
/// Time for the head of the answer to a GET.
const GET: Duration = Duration::from_secs(30);

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// The transport that a server turned out to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    #[default]
    Unknown,
    Streamable,
    /// Answers come with the events of one stream.
    Events,
}

/// Facts about the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionFacts {
    pub(super) started: bool,
    mode: Mode,
    id: Option<String>,
    version: Option<String>,
    /// Where lines are posted, if not to the URL itself.
    path: Option<String>,
    /// The server no longer knows it.
    ended: bool,
    pub(super) listening: bool,
    /// The last event of the stream for messages that answer nothing.
    pub(super) last_event: Option<String>,
}

/// One session on one remote server, shared between the handle and the tasks.
#[derive(Debug)]
pub(super) struct RemoteState {
    pub(super) remote: Arc<Remote>,
    /// The URL without its query.
    pub(super) shown: String,
    pub(super) client: Client,
    pub(super) credentials: Credentials,
    pub(super) queue: LineQueue,
    /// False while the client of the host does not read.
    pub(super) readable: watch::Sender<bool>,
    pub(super) words: LastWords,
    facts: Mutex<SessionFacts>,
    failures: AtomicU32,
    fault: Mutex<Option<Fault>>,
    failed: Notify,
    /// Exchanges that a pause of the host interrupted.
    pub(super) interrupted: Mutex<Vec<Interrupted>>,
}

/// A session, as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedRemote {
    pub(super) remote: Arc<Remote>,
    facts: SessionFacts,
    waiting: Vec<QueuedLine>,
    closed: bool,
    interrupted: Vec<Interrupted>,
    pub(super) ordered: VecDeque<Manner>,
    words: Vec<String>,
}

impl RemoteState {
    pub(super) fn new(remote: &Arc<Remote>, mark: usize, words: LastWords) -> Result<Self, String> {
        let queue = LineQueue::with_mark(mark);
        Self::with(remote, queue, words, SessionFacts::default(), Vec::new())
    }

    fn with(
        remote: &Arc<Remote>,
        queue: LineQueue,
        words: LastWords,
        facts: SessionFacts,
        interrupted: Vec<Interrupted>,
    ) -> Result<Self, String> {
        Ok(Self {
            shown: remote.shown(),
            client: Client::new(remote)?,
            remote: Arc::clone(remote),
            credentials: Credentials::default(),
            queue,
            readable: watch::Sender::new(true),
            words,
            facts: Mutex::new(facts),
            failures: AtomicU32::new(0),
            fault: Mutex::default(),
            failed: Notify::new(),
            interrupted: Mutex::new(interrupted),
        })
    }

    pub(super) fn save(&self, ordered: VecDeque<Manner>) -> SavedRemote {
        let (waiting, closed) = self.queue.save();
        SavedRemote {
            remote: Arc::clone(&self.remote),
            facts: self.facts().clone(),
            waiting,
            closed,
            interrupted: lock(&self.interrupted).clone(),
            ordered,
            words: self.words.lines(),
        }
    }

    pub(super) fn restore(
        saved: SavedRemote,
        mark: usize,
        words: LastWords,
    ) -> Result<Self, String> {
        let queue = LineQueue::restore(mark, saved.waiting, saved.closed);
        saved.words.into_iter().for_each(|line| words.push(line));
        Self::with(&saved.remote, queue, words, saved.facts, saved.interrupted)
    }

    pub(super) fn facts(&self) -> MutexGuard<'_, SessionFacts> {
        lock(&self.facts)
    }

    pub(super) fn mode(&self) -> Mode {
        self.facts().mode
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        self.facts().mode = mode;
    }

    pub(super) fn session_id(&self) -> Option<String> {
        self.facts().id.clone()
    }

    pub(super) fn is_ended(&self) -> bool {
        self.facts().ended
    }

    /// Takes the session id of the answer to `initialize`.
    pub(super) fn open_session(&self, headers: &HeaderMap) {
        let id = headers.get(SESSION).and_then(|id| id.to_str().ok());
        let id = id.filter(|id| !id.is_empty() && id.len() <= SESSION_BYTES);
        self.facts().id = id.map(str::to_owned);
    }

    /// True once, for a session that may have a stream of its own.
    pub(super) fn begin_listening(&self) -> bool {
        let mut facts = self.facts();
        facts.mode == Mode::Streamable && !std::mem::replace(&mut facts.listening, true)
    }

    /// Lines go to this path of the origin from now on.
    pub(super) fn set_path(&self, uri: &Uri) {
        self.facts().path = uri.path_and_query().map(ToString::to_string);
    }

    pub(super) fn may_try_events(&self) -> bool {
        self.remote.transport.allows_events() && self.mode() == Mode::Unknown
    }

    /// True if the token may be another one soon.
    pub(super) fn may_change_token(&self) -> bool {
        let token = self.remote.token.as_ref();
        let changes = token.is_some_and(|token| !matches!(token, TokenSource::Variable { .. }));
        changes || self.remote.header_file.is_some()
    }

    pub(super) fn note_success(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Losses in a row before this one.
    pub(super) fn note_failure(&self) -> u32 {
        self.failures.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps a line for people who look at a fault.
    pub(super) fn note(&self, why: &str) {
        self.words.push(why.to_owned());
    }

    /// Ends the driver; the first reason counts.
    pub(super) fn fail(&self, fault: Fault) {
        lock(&self.fault).get_or_insert(fault);
        self.failed.notify_one();
    }

    /// Waits for the reason to end.
    pub(super) async fn failure(&self) -> Fault {
        loop {
            if let Some(fault) = lock(&self.fault).clone() {
                return fault;
            }
            self.failed.notified().await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Plain data: a panic elsewhere leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state with the way back to the engine.
pub(super) struct Wire<E> {
    pub(super) state: Arc<RemoteState>,
    pub(super) generation: Generation,
    pub(super) events: mpsc::Sender<E>,
    /// Longest message of the server.
    pub(super) frame_bytes: usize,
}

impl<E: Listener> Wire<E> {
    pub(super) async fn tell(&self, what: What) {
        let generation = self.generation;
        // Without an engine there is nothing to report to.
        let _ = self
            .events
            .send(WorkerEvent { generation, what }.into())
            .await;
    }

    pub(super) fn fault(&self, kind: ErrorKind, why: &str) -> Fault {
        Fault::new(kind, why).of(self.generation)
    }

    /// Passes a message of the server on, while its reader takes them. True if it is the answer to `request`.
    pub(super) async fn deliver(&self, line: Vec<u8>, request: Option<&OutgoingRequest>) -> bool {
        let mut readable = self.state.readable.subscribe();
        let _ = readable.wait_for(|readable| *readable).await;
        let is_answer = request.is_some_and(|request| message::answers(&line, &request.id));
        if let Some(request) = request.filter(|_| is_answer)
            && let Some(version) = request.agreed_version(&String::from_utf8_lossy(&line))
        {
            self.state.facts().version = Some(version);
        }
        self.tell(What::Line(line)).await;
        is_answer
    }

    /// The server no longer knows the session; the core opens another one.
    pub(super) async fn end_session(&self, why: String) {
        let was_ended = std::mem::replace(&mut self.state.facts().ended, true);
        if !was_ended {
            self.state.note(&why);
            let fault = self.fault(ErrorKind::WorkerUnavailable, &why);
            self.tell(What::Unfit(fault)).await;
        }
    }

    /// The POST of a line.
    pub(super) fn post(
        &self,
        line: &QueuedLine,
        message: &Message,
        credentials: &HeaderMap,
    ) -> Request<Body> {
        let body = Body::from(Bytes::copy_from_slice(line.text.as_bytes()));
        let mut request = self.request(Method::POST, body, credentials);
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let both = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, both);
        // A new session, also if the answer to an earlier attempt was lost.
        if message
            .request()
            .is_some_and(OutgoingRequest::is_initialize)
        {
            headers.remove(SESSION);
            headers.remove(VERSION);
        }
        if let Some(asked) = message.request()
            && let Some(version) = &asked.modern
        {
            headers.remove(SESSION);
            insert(headers, VERSION, version);
            insert(headers, METHOD, &message::header_text(&asked.method));
            if let Some(name) = &asked.name {
                insert(headers, NAME, &message::header_text(name));
            }
            for (name, value) in &line.headers {
                // A name that no header can have cannot be sent.
                if let Ok(name) = name.parse() {
                    insert(headers, name, &message::header_text(value));
                }
            }
        }
        request
    }

    /// Opens a stream of events, after the last one that was read.
    pub(super) async fn get(&self, last_event: Option<&str>) -> Result<Reply, SendError> {
        let state = &self.state;
        let credentials = state.credentials.headers(&state.remote).await;
        let (credentials, _) = credentials.map_err(SendError::Broken)?;
        let request = || {
            let mut request = self.request(Method::GET, Body::empty(), &credentials);
            let headers = request.headers_mut();
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            if let Some(last) = last_event {
                insert(headers, LAST_EVENT, last);
            }
            request
        };
        let sending = state.client.send(true, request, || true, || ());
        let sent = tokio::time::timeout(GET, sending).await;
        sent.unwrap_or_else(|_| Err(SendError::Broken("no answer to GET".to_owned())))
    }

    /// Tells the server that the session is over.
    pub(super) async fn delete(&self) {
        let state = &self.state;
        if state.session_id().is_none() || state.is_ended() || state.mode() != Mode::Streamable {
            return;
        }
        let Ok((credentials, _)) = state.credentials.headers(&state.remote).await else {
            return;
        };
        let request = || self.request(Method::DELETE, Body::empty(), &credentials);
        let _ = state.client.send(false, request, || true, || ()).await;
    }

    fn request(&self, method: Method, body: Body, credentials: &HeaderMap) -> Request<Body> {
        let state = &self.state;
        let facts = state.facts();
        let mut request = Request::new(body);
        // A stream of events is opened at the URL itself.
        let path = facts
            .path
            .as_ref()
            .filter(|_| method != Method::GET || facts.mode != Mode::Events);
        let path = path.and_then(|path| path.parse().ok());
        let own = state.client.uri().path_and_query().cloned();
        *request.method_mut() = method;
        *request.uri_mut() = path.unwrap_or_else(|| own.map(Uri::from).unwrap_or_default());
        let headers = request.headers_mut();
        headers.clone_from(credentials);
        insert(headers, HOST, state.client.authority());
        if !headers.contains_key(USER_AGENT) {
            insert(headers, USER_AGENT, PROGRAM);
        }
        if let Some(id) = &facts.id {
            insert(headers, SESSION, id);
        }
        if let Some(version) = &facts.version {
            insert(headers, VERSION, version);
        }
        request
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
