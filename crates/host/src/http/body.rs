//! Bodies: requests read within their limits, answers of one piece, and streams of events.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::Problem;
use tokio::time::{Instant, Sleep};

use super::listen::Ends;
use super::streams::{Event, ReaderId, StreamId, Streams};

/// How long a client should wait before it takes a stream up again, in milliseconds.
const RETRY_MS: u64 = 1000;
/// Events that are written at once.
const PIECE: usize = 64 * 1024;

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Body {
    Whole(Option<Bytes>),
    Events(Box<EventBody>, Option<Box<dyn Held>>),
}

/// Something that goes with the end of a stream.
pub(crate) trait Held: Send + std::fmt::Debug {}

impl Body {
    pub(crate) const fn empty() -> Self {
        Self::Whole(None)
    }

    /// Writes a comment to a stream after each such silence.
    pub(super) fn keep_alive(&mut self, silence: Duration) {
        if let Self::Events(events, _) = self {
            events.silence = Some(silence);
            events.quiet.as_mut().reset(Instant::now() + silence);
        }
    }

    /// Ends a stream at that time.
    pub(super) fn end_at(&mut self, at: Instant) {
        if let Self::Events(events, _) = self {
            events.until = Some(Box::pin(tokio::time::sleep_until(at)));
        }
    }

    /// How it ends.
    pub(super) fn ends(&self) -> Ends {
        match self {
            Self::Events(events, _) if events.endless => Ends::Reopened,
            Self::Events(events, _) if events.numbered != Numbered::No => Ends::Resumed,
            _ => Ends::ByAnswer,
        }
    }

    /// Holds something as long as the stream goes on; what is in one piece has been answered.
    pub(super) fn hold(&mut self, what: impl Held + 'static) {
        if let Self::Events(_, held) = self {
            *held = Some(Box::new(what));
        }
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Whole(Some(Bytes::from(text)))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(events, _) => events
                .poll_piece(context)
                .map(|piece| piece.map(|piece| Ok(Frame::data(piece)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(None) => SizeHint::with_exact(0),
            Self::Whole(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Self::Events(..) => SizeHint::default(),
        }
    }
}

/// Callback at the end of a reader; its argument is true if the stream had ended before.
type Farewell = Box<dyn FnOnce(bool) + Send>;

/// A reader of one stream.
pub(super) struct Reading {
    pub(super) streams: Arc<Mutex<Streams>>,
    pub(super) stream: StreamId,
    pub(super) reader: ReaderId,
    ended: bool,
    farewell: Option<Farewell>,
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading")
            .field("stream", &self.stream)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Reading {
    pub(super) fn new(
        streams: &Arc<Mutex<Streams>>,
        (stream, reader): (StreamId, ReaderId),
        farewell: impl FnOnce(bool) + Send + 'static,
    ) -> Self {
        Self {
            streams: Arc::clone(streams),
            stream,
            reader,
            ended: false,
            farewell: Some(Box::new(farewell)),
        }
    }

    pub(super) fn poll_next(&mut self, context: &Context<'_>) -> Poll<Option<Event>> {
        let next = lock(&self.streams).poll_next(self.stream, self.reader, context);
        if let Poll::Ready(event) = &next {
            self.ended |= event.as_ref().is_none_or(|event| event.is_last);
        }
        next
    }

    /// The first event, if it comes in time.
    pub(super) async fn next_within(&mut self, patience: Duration) -> Result<Option<Event>, ()> {
        let next = std::future::poll_fn(|context| self.poll_next(context));
        tokio::time::timeout(patience, next).await.map_err(|_| ())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        lock(&self.streams).detach(self.stream, self.reader);
        if let Some(farewell) = self.farewell.take() {
            farewell(self.ended);
        }
    }
}

/// A lock that is never held across a panic that matters.
pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbering of events, with which a client can come back for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbered {
    Yes,
    /// The client is also given a number at the beginning, with an event without data.
    Primed,
    No,
}

/// A stream of server-sent events.
#[derive(Debug)]
pub(crate) struct EventBody {
    reading: Reading,
    numbered: Numbered,
    /// Written before anything else.
    head: BytesMut,
    quiet: Pin<Box<Sleep>>,
    /// Longest silence, where the stream has one.
    silence: Option<Duration>,
    /// Runs until the token expires with which the stream was opened.
    until: Option<Pin<Box<Sleep>>>,
    /// No answer ends it.
    endless: bool,
}

impl EventBody {
    /// The events of a stream, beginning with one that was read already.
    pub(super) fn new(reading: Reading, numbered: Numbered, first: Option<Event>) -> Self {
        let mut head = BytesMut::new();
        match numbered {
            Numbered::Primed => {
                let first = format!("id: {}-0\nretry: {RETRY_MS}\ndata: \n\n", reading.stream.0);
                head.put_slice(first.as_bytes());
            }
            // Something has to be written for the head of the answer to leave.
            Numbered::Yes | Numbered::No => head.put_slice(b":\n\n"),
        }
        let mut body = Self {
            reading,
            numbered,
            head,
            quiet: Box::pin(tokio::time::sleep(Duration::ZERO)),
            silence: None,
            until: None,
            endless: false,
        };
        if let Some(first) = first {
            body.write(&first);
        }
        body
    }

    /// As above, for a stream that no answer ends.
    pub(super) fn endless(mut self) -> Self {
        self.endless = true;
        self
    }

    fn write(&mut self, event: &Event) {
        if self.numbered != Numbered::No {
            let id = format!("id: {}-{}\n", self.reading.stream.0, event.number);
            self.head.put_slice(id.as_bytes());
        }
        self.head.reserve(event.line.len() + 24);
        self.head.put_slice(b"event: message\ndata: ");
        self.head.put_slice(&event.line);
        self.head.put_slice(b"\n\n");
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let until = self.until.as_mut();
        if until.is_some_and(|until| until.as_mut().poll(context).is_ready()) {
            return Poll::Ready(None);
        }
        let mut over = self.reading.ended;
        while !over && self.head.len() < PIECE {
            match self.reading.poll_next(context) {
                Poll::Ready(Some(event)) => {
                    over = event.is_last;
                    self.write(&event);
                }
                Poll::Ready(None) => over = true,
                Poll::Pending => break,
            }
        }
        if !self.head.is_empty() {
            if let Some(silence) = self.silence {
                self.quiet.as_mut().reset(Instant::now() + silence);
            }
            return Poll::Ready(Some(self.head.split().freeze()));
        }
        if over {
            return Poll::Ready(None);
        }
        if let Some(silence) = self.silence
            && self.quiet.as_mut().poll(context).is_ready()
        {
            self.quiet.as_mut().reset(Instant::now() + silence);
            // Polled once, so that the new alarm is heard.
            let _ = self.quiet.as_mut().poll(context);
            return Poll::Ready(Some(Bytes::from_static(b":\n\n")));
        }
        Poll::Pending
    }
}

/// Reads the body of a request: bounded in size before it is held, and in time.
pub(super) async fn read(
    mut body: Incoming,
    limit: usize,
    patience: Duration,
) -> Result<Bytes, Problem> {
    let too_large = || Problem::too_large(limit);
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let whole = async {
        let mut pieces: Vec<Bytes> = Vec::new();
        let mut length = 0;
        loop {
            let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            let Some(frame) = frame.await else { break };
            let frame = frame.map_err(|_| {
                Problem::new(
                    ErrorKind::InvalidMessage,
                    "the body of the request broke off",
                )
            })?;
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            length += piece.len();
            if length > limit {
                return Err(too_large());
            }
            pieces.push(piece);
        }
        Ok(match pieces.as_mut_slice() {
            [] => Bytes::new(),
            [only] => std::mem::take(only),
            pieces => {
                let mut whole = Vec::new();
                if whole.try_reserve_exact(length).is_err() {
                    return Err(Problem::of(ErrorKind::Overloaded));
                }
                pieces
                    .iter()
                    .for_each(|piece| whole.extend_from_slice(piece));
                Bytes::from(whole)
            }
        })
    };
    match tokio::time::timeout(patience, whole).await {
        Ok(read) => read,
        Err(_) => Err(Problem::of(ErrorKind::RequestTimeout)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::streams::Keep;
    use super::*;

    #[tokio::test]
    async fn a_stream_ends_when_its_token_expires() {
        let streams = Arc::new(Mutex::new(Streams::new(Keep::ForResuming, 1024)));
        let opened = lock(&streams).open();
        let reading = Reading::new(&streams, opened, |_| ());
        let events = EventBody::new(reading, Numbered::No, None);
        let mut body = Body::Events(Box::new(events), None);
        body.end_at(Instant::now() + Duration::from_millis(20));
        let mut next = async || {
            let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            frame.await.is_some()
        };
        assert!(next().await, "it begins");
        // Nothing is ever said on it, so only its time can end it.
        assert!(!next().await);
    }

    #[tokio::test]
    async fn a_silent_stream_carries_comments_at_the_configured_pace() {
        let streams = Arc::new(Mutex::new(Streams::new(Keep::ForResuming, 1024)));
        let opened = lock(&streams).open();
        let reading = Reading::new(&streams, opened, |_| ());
        let events = EventBody::new(reading, Numbered::No, None);
        let mut body = Body::Events(Box::new(events), None);
        body.keep_alive(Duration::from_millis(5));
        for _ in 0..3 {
            let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            let frame = frame.await.and_then(Result::ok);
            let comment = frame.and_then(|frame| frame.into_data().ok());
            assert_eq!(comment.as_deref(), Some(&b":\n\n"[..]));
        }
    }
}
