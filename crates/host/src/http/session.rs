//! A legacy session over HTTP: one link to the host, many streams to the client.
//!
//! The session owns the link; HTTP connections come and go. What the host says is sorted onto
//! streams: an answer and the progress of a request onto the request's own, what the server asks
//! or logs onto that of the request most likely meant, everything else onto the stream that
//! belongs to no request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use mainstay_contract::dialect::{Relayed, RelayedRequest, relay};
use mainstay_contract::id::RequestId;
use mainstay_contract::request_table::RequestTable;
use mainstay_contract::scan;
use mainstay_kernel::defect::{Defect, is_planted};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::access::Credential;
use super::body::{Reading, lock};
use super::link::{Ending, Input, Output, lines};
use super::streams::{Keep, ReaderId, StreamId, Streams};

/// The stream for what belongs to no request.
const STANDALONE: StreamId = StreamId(0);

/// Time for a client to resume its streams after an upgrade of the host, if the events that are kept for it fill the
/// session.
const RETURN: Duration = Duration::from_secs(30);

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) credential: Credential,
    pub(super) input: Input,
    /// The number of its link.
    link: u64,
    streams: Arc<Mutex<Streams>>,
    desk: Mutex<Desk>,
    pub(super) ending: Ending,
}

/// Facts about the requests of a session.
#[derive(Debug)]
struct Desk {
    /// Streams of requests in flight.
    requests: RequestTable<StreamId>,
    tokens: BTreeMap<String, StreamId>,
    /// The revision that was agreed on.
    version: Option<String>,
    used: Instant,
}

/// A [`Session`], as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedSession {
    id: String,
    credential: Credential,
    pub(super) link: u64,
    streams: Value,
    requests: RequestTable<StreamId>,
    tokens: BTreeMap<String, StreamId>,
    version: Option<String>,
    idle: Duration,
}

/// Where a message goes.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Stream(StreamId),
    /// The answer of a request.
    Last(StreamId),
    Nowhere,
}

impl Session {
    pub(super) fn new(
        id: String,
        credential: Credential,
        (link, input): (u64, Input),
        budget: usize,
    ) -> Self {
        let mut streams = Streams::new(Keep::ForResuming, budget);
        streams.open_unread();
        Self {
            id,
            credential,
            input,
            link,
            streams: Arc::new(Mutex::new(streams)),
            desk: Mutex::new(Desk {
                requests: RequestTable::default(),
                tokens: BTreeMap::new(),
                version: None,
                used: Instant::now(),
            }),
            ending: Ending::default(),
        }
    }

    /// The session as text, for a process that continues in this one's place. `None` if it is over.
    pub(super) fn save(&self) -> Option<SavedSession> {
        let desk = lock(&self.desk);
        let streams = serde_json::to_value(&*lock(&self.streams)).ok()?;
        (!self.ending.is_over()).then(|| SavedSession {
            id: self.id.clone(),
            credential: self.credential.clone(),
            link: self.link,
            streams,
            requests: desk.requests.clone(),
            tokens: desk.tokens.clone(),
            version: desk.version.clone(),
            idle: desk.used.elapsed(),
        })
    }

    pub(super) fn restore(saved: SavedSession, input: Input) -> Option<Self> {
        let now = Instant::now();
        Some(Self {
            id: saved.id,
            credential: saved.credential,
            input,
            link: saved.link,
            streams: Arc::new(Mutex::new(match is_planted(Defect::StreamsLost) {
                true => Streams::new(Keep::ForResuming, 0),
                false => serde_json::from_value(saved.streams).ok()?,
            })),
            desk: Mutex::new(Desk {
                requests: saved.requests,
                tokens: saved.tokens,
                version: saved.version,
                used: now.checked_sub(saved.idle).unwrap_or(now),
            }),
            ending: Ending::default(),
        })
    }

    /// Keeps new readers of its streams outside, or lets them in.
    pub(super) fn set_closed(&self, is_closed: bool) {
        lock(&self.streams).set_closed(is_closed);
    }

    /// Ends the connections of all its readers, which can resume their streams.
    pub(super) fn release(&self) {
        lock(&self.streams).release();
    }

    /// Sorts what the host says, until it says no more.
    pub(super) async fn sort(&self, mut output: Output, depth: usize) {
        let sorting = async {
            while let Some(chunk) = output.recv().await {
                for line in lines(&chunk) {
                    self.deliver(line, depth);
                }
                self.wait_for_room().await;
            }
        };
        self.ending.until(sorting).await;
        lock(&self.streams).end_all();
    }

    /// A slow reader is waited for, one that could come back and does not is not.
    async fn wait_for_room(&self) {
        let room = || std::future::poll_fn(|context| lock(&self.streams).poll_room(context));
        while tokio::time::timeout(RETURN, room()).await.is_err() {
            if !lock(&self.streams).take_closed() {
                lock(&self.streams).give_up();
                return room().await;
            }
        }
    }

    fn deliver(&self, line: &[u8], depth: usize) {
        let Ok(said) = relay(line, depth) else { return };
        let place = lock(&self.desk).place(&said);
        let (stream, is_last) = match place {
            Place::Stream(stream) => (stream, false),
            Place::Last(stream) => (stream, true),
            Place::Nowhere => return,
        };
        lock(&self.streams).push(stream, Bytes::copy_from_slice(line), is_last);
    }

    /// Passes a notification or an answer of the client on. False if the session is over.
    pub(super) async fn pass(&self, line: &[u8], said: &Relayed<'_>) -> bool {
        self.touch();
        if !self.input.say(line).await {
            return false;
        }
        if let Relayed::Notice { method, params } = said
            && method == "notifications/cancelled"
        {
            self.cancelled(*params);
        }
        true
    }

    /// A stream for a request; `None` if its id is in flight.
    pub(super) fn open(self: &Arc<Self>, request: &RelayedRequest<'_>) -> Option<Reading> {
        let mut desk = lock(&self.desk);
        if desk.requests.contains(&request.id) {
            return None;
        }
        desk.used = Instant::now();
        let opened = lock(&self.streams).open();
        let _ = desk.requests.open(request.id.clone(), opened.0);
        if let Some(token) = request.meta("progressToken") {
            desk.tokens.insert(token.to_owned(), opened.0);
        }
        drop(desk);
        Some(self.reading(opened))
    }

    fn reading(self: &Arc<Self>, reader: (StreamId, ReaderId)) -> Reading {
        let session = Arc::clone(self);
        Reading::new(&self.streams, reader, move |_| {
            lock(&session.desk).used = Instant::now();
        })
    }

    /// Ends the stream of a request that the client has cancelled: it is never answered.
    fn cancelled(&self, params: Option<&str>) {
        let target = params.and_then(|params| scan::member(params, "requestId"));
        let target = target.and_then(|target| RequestId::parse(target).ok());
        let stream = target.and_then(|target| lock(&self.desk).cancelled(&target));
        if let Some(stream) = stream {
            lock(&self.streams).end(stream);
        }
    }

    /// Forgets a stream whose answer was given in one piece: there is nothing to come back for.
    pub(super) fn close(&self, stream: StreamId) {
        lock(&self.streams).remove(stream);
    }

    /// The stream for what belongs to no request; `None` if it is being read.
    pub(super) fn listen(self: &Arc<Self>) -> Option<Reading> {
        let mut streams = lock(&self.streams);
        if streams.is_read(STANDALONE) {
            return None;
        }
        let reader = streams.attach(STANDALONE, None)?;
        drop(streams);
        lock(&self.desk).used = Instant::now();
        Some(self.reading((STANDALONE, reader)))
    }

    /// Takes a stream up behind the last event that the client has.
    pub(super) fn resume(self: &Arc<Self>, last: &str) -> Option<Reading> {
        let (stream, number) = last.split_once('-')?;
        let stream = StreamId(stream.parse().ok()?);
        let reader = lock(&self.streams).attach(stream, Some(number.parse().ok()?))?;
        lock(&self.desk).used = Instant::now();
        Some(self.reading((stream, reader)))
    }

    /// Takes note of the revision that the answer to `initialize` names.
    pub(super) fn agreed(&self, answer: &[u8]) {
        let version = std::str::from_utf8(answer)
            .ok()
            .and_then(|answer| scan::member(answer, "result"))
            .and_then(|result| scan::member(result, "protocolVersion"))
            .and_then(scan::unquote);
        lock(&self.desk).version = version.map(std::borrow::Cow::into_owned);
    }

    /// True if the client accepts events without data.
    pub(super) fn can_prime(&self) -> bool {
        let desk = lock(&self.desk);
        desk.version
            .as_deref()
            .is_some_and(|version| version >= "2025-11-25")
    }

    /// It has been used.
    pub(super) fn touch(&self) {
        lock(&self.desk).used = Instant::now();
    }

    /// Time since its last use.
    pub(super) fn idle(&self) -> Duration {
        let desk = lock(&self.desk);
        if desk.requests.is_empty() && !lock(&self.streams).any_read() {
            desk.used.elapsed()
        } else {
            Duration::ZERO
        }
    }
}

impl Desk {
    /// Forgets a request that its client cancelled.
    fn cancelled(&mut self, target: &RequestId) -> Option<StreamId> {
        let stream = self.requests.close_meant(target)?;
        self.tokens.retain(|_, of| *of != stream);
        Some(stream)
    }

    fn place(&mut self, said: &Relayed<'_>) -> Place {
        let latest = self.requests.values().max().copied();
        match said {
            Relayed::Answer { id, .. } => match self.requests.close(id) {
                Some(stream) => {
                    let stream = match latest {
                        Some(latest) if is_planted(Defect::WrongStream) => latest,
                        _ => stream,
                    };
                    self.tokens.retain(|_, of| *of != stream);
                    self.used = Instant::now();
                    Place::Last(stream)
                }
                None => Place::Nowhere,
            },
            Relayed::Notice { method, params } => match method.as_ref() {
                "notifications/progress" => {
                    let token = params.and_then(|params| scan::member(params, "progressToken"));
                    let stream = token.and_then(|token| self.tokens.get(token));
                    Place::Stream(stream.copied().unwrap_or(STANDALONE))
                }
                "notifications/message" | "notifications/cancelled" => {
                    Place::Stream(latest.unwrap_or(STANDALONE))
                }
                _ => Place::Stream(STANDALONE),
            },
            Relayed::Request(_) => Place::Stream(latest.unwrap_or(STANDALONE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(raw: &str) -> RequestId {
        RequestId::parse(raw).unwrap()
    }

    fn desk() -> Desk {
        let mut requests = RequestTable::default();
        requests.open(id("1"), StreamId(1)).unwrap();
        requests.open(id("\"b\""), StreamId(2)).unwrap();
        Desk {
            requests,
            tokens: BTreeMap::from([("7".to_owned(), StreamId(1))]),
            version: None,
            used: Instant::now(),
        }
    }

    fn place(desk: &mut Desk, line: &str) -> Place {
        desk.place(&relay(line.as_bytes(), 32).unwrap())
    }

    #[test]
    fn an_answer_goes_to_its_request_and_ends_it() {
        let mut desk = desk();
        let line = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert_eq!(place(&mut desk, line), Place::Last(StreamId(1)));
        assert_eq!(place(&mut desk, line), Place::Nowhere);
        assert!(desk.tokens.is_empty());
        let other = r#"{"jsonrpc":"2.0","id":"1","result":{}}"#;
        assert_eq!(place(&mut desk, other), Place::Nowhere);
    }

    #[test]
    fn a_cancelled_request_gives_up_its_id_and_its_token() {
        let mut all = desk();
        assert_eq!(all.cancelled(&id("7")), None);
        assert_eq!(
            all.cancelled(&id("\"1\"")),
            Some(StreamId(1)),
            "the other spelling"
        );
        assert_eq!(all.cancelled(&id("1")), None);
        assert!(all.tokens.is_empty());
        assert_eq!(all.cancelled(&id("\"b\"")), Some(StreamId(2)));
        let mut both = desk();
        both.requests.open(id("\"1\""), StreamId(3)).unwrap();
        assert_eq!(both.cancelled(&id("1")), Some(StreamId(1)), "exactly first");
    }

    #[test]
    fn progress_goes_by_its_token_and_questions_to_the_latest_request() {
        let mut desk = desk();
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
        assert_eq!(place(&mut desk, progress), Place::Stream(StreamId(1)));
        let question = r#"{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage"}"#;
        assert_eq!(place(&mut desk, question), Place::Stream(StreamId(2)));
        let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
        assert_eq!(place(&mut desk, log), Place::Stream(StreamId(2)));
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert_eq!(place(&mut desk, changed), Place::Stream(STANDALONE));
        desk.requests.clear();
        assert_eq!(place(&mut desk, question), Place::Stream(STANDALONE));
    }
}
