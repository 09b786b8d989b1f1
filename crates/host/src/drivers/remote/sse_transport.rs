//! Streams that the host opens: the one for messages that answer nothing, and the one that carries every answer in
//! the transport of 2024-11-05.

use std::time::Duration;

use hyper::body::Incoming;
use hyper::{StatusCode, Uri};
use mainstay_contract::error::ErrorKind;

use super::body::next_piece;
use super::connect::{ConnectError, SendError};
use super::exchange::{After, RESUME, resume_pause};
use super::message;
use super::refusal::{self, Challenge};
use super::sse::{SseEvent, SseParser};
use super::wire::{Mode, Wire};
use crate::drivers::What;
use crate::drivers::task::Listener;

/// Time for a server of the older transport to name the place for lines.
const ENDPOINT: Duration = Duration::from_secs(15);
/// How often a session may be unknown before it counts as ended.
const UNKNOWN: u32 = 4;
/// Times that credentials are read again for one stream.
const REFRESHES: u32 = 2;

/// The stream of a server of the older transport, after its first event.
#[derive(Debug)]
pub(super) struct EventStream {
    body: Incoming,
    parser: SseParser,
    rest: Vec<SseEvent>,
}

/// Why there is no stream of events.
#[derive(Debug)]
pub(super) struct NoStream {
    kind: ErrorKind,
    why: String,
}

impl NoStream {
    /// It may work later.
    fn now(why: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::WorkerUnavailable,
            why: why.into(),
        }
    }

    /// It fails until the configuration changes.
    fn setup(why: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::WorkerSetup,
            why: why.into(),
        }
    }
}

impl<E: Listener> Wire<E> {
    /// Reads messages that answer nothing, for as long as the session lasts.
    pub(super) async fn listen(&self) -> After {
        let (mut pause, mut unknown) = (RESUME.0, 0);
        let mut parser = SseParser::new(self.frame_bytes);
        parser.last_id = self.state.facts().last_event.clone();
        loop {
            let reply = match self.get(parser.last_id.as_deref()).await {
                Ok(reply) => reply,
                Err(SendError::Sealed) => return After::Nothing,
                Err(SendError::Connect(_) | SendError::Broken(_)) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RESUME.2);
                    continue;
                }
            };
            match reply.response.status() {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND if self.state.session_id().is_some() => {
                    unknown += 1;
                    if unknown >= UNKNOWN {
                        let why = format!("{} no longer knows the session", self.state.shown);
                        self.end_session(why).await;
                        return After::Nothing;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RESUME.2);
                    continue;
                }
                // The token expired between two calls. The stream is opened as soon as there is another one.
                StatusCode::UNAUTHORIZED if self.state.may_change_token() => {
                    self.renew_credentials().await;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RESUME.2);
                    continue;
                }
                status if status.is_server_error() => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RESUME.2);
                    continue;
                }
                // The server offers no such stream.
                _ => return After::Nothing,
            }
            (pause, unknown) = (RESUME.0, 0);
            let (mut body, _) = reply.into_parts();
            let mut next = SseParser::new(self.frame_bytes);
            (next.last_id, next.retry_ms) = (parser.last_id.take(), parser.retry_ms);
            while let Some(Ok(piece)) = next_piece(&mut body).await {
                let mut bytes: &[u8] = &piece;
                while let Some(event) = next.next(&mut bytes) {
                    self.pass_on(event).await;
                }
                self.state.facts().last_event.clone_from(&next.last_id);
            }
            parser = next;
            tokio::time::sleep(resume_pause(parser.retry_ms)).await;
        }
    }

    /// Reads the credentials again. A request that fails for the lack of others reports why.
    async fn renew_credentials(&self) {
        let state = &self.state;
        if let Ok((_, edition)) = state.credentials.headers(&state.remote).await {
            let _ = state.credentials.refresh(&state.remote, edition).await;
        }
    }

    async fn pass_on(&self, event: SseEvent) {
        if !matches!(event.kind.as_str(), "" | "message") {
            return;
        }
        if event.oversize {
            return self.tell(What::Oversize(event.data)).await;
        }
        for line in message::messages(&event.data) {
            self.deliver(line, None).await;
        }
    }

    /// Opens the stream of the older transport. An error says why it is none.
    pub(super) async fn open_events(&self) -> Result<EventStream, NoStream> {
        let opening = tokio::time::timeout(ENDPOINT, self.open_stream());
        let late = || {
            let seconds = ENDPOINT.as_secs();
            let shown = &self.state.shown;
            NoStream::now(format!(
                "{shown} did not name its endpoint within {seconds} s"
            ))
        };
        opening.await.unwrap_or_else(|_| Err(late()))
    }

    async fn open_stream(&self) -> Result<EventStream, NoStream> {
        let state = &self.state;
        let mut refreshes = 0;
        let reply = loop {
            let credentials = state.credentials.headers(&state.remote).await;
            let (_, edition) = credentials.map_err(NoStream::setup)?;
            let reply = match self.get(None).await {
                Ok(reply) => reply,
                Err(SendError::Connect(ConnectError::Setup(why))) => {
                    return Err(NoStream::setup(why));
                }
                Err(
                    SendError::Connect(ConnectError::Unreachable(why)) | SendError::Broken(why),
                ) => return Err(NoStream::now(why)),
                Err(SendError::Sealed) => return Err(NoStream::now("the host stops")),
            };
            let status = reply.response.status();
            if status != StatusCode::UNAUTHORIZED {
                break reply;
            }
            refreshes += 1;
            let refreshed = state.credentials.refresh(&state.remote, edition).await;
            let changed = refreshed.map_err(NoStream::setup)?;
            if !changed || refreshes > REFRESHES {
                let challenge = Challenge::read(reply.response.headers());
                let why = refusal::explain(&state.remote, &state.client, status, &challenge).await;
                return Err(NoStream::setup(why));
            }
        };
        let status = reply.response.status();
        let kind = reply.response.headers().get(hyper::header::CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if status != StatusCode::OK || !is_stream {
            let why = format!("{} answered HTTP {status} to GET", state.shown);
            return Err(NoStream::now(why));
        }
        let (mut body, _) = reply.into_parts();
        let mut parser = SseParser::new(self.frame_bytes);
        loop {
            let piece = match next_piece(&mut body).await {
                Some(Ok(piece)) => piece,
                Some(Err(why)) => return Err(NoStream::now(why)),
                None => return Err(NoStream::now("the stream ended at once")),
            };
            let mut bytes: &[u8] = &piece;
            let mut events = Vec::new();
            while let Some(event) = parser.next(&mut bytes) {
                events.push(event);
            }
            if events.is_empty() {
                continue;
            }
            let first = events.remove(0);
            let place = String::from_utf8_lossy(&first.data).into_owned();
            if first.kind != "endpoint" {
                let why = format!("{} sent another event first", state.shown);
                return Err(NoStream::now(why));
            }
            let target = resolve(state.client.uri(), place.trim());
            let target = target.filter(|target| state.client.is_same_origin(target));
            let Some(target) = target else {
                let why = format!("{} names an endpoint of another origin", state.shown);
                return Err(NoStream::setup(why));
            };
            state.set_path(&target);
            state.set_mode(Mode::Events);
            return Ok(EventStream {
                body,
                parser,
                rest: events,
            });
        }
    }

    /// Opens a server that is configured for the older transport.
    pub(super) async fn begin_events(&self) -> After {
        match self.open_events().await {
            Ok(stream) => After::Events(Box::new(stream)),
            Err(NoStream { kind, why }) => {
                self.state.note(&why);
                self.state.fail(self.fault(kind, &why));
                After::Nothing
            }
        }
    }

    /// Passes on everything that a server of the older transport sends. Its session ends with the stream.
    pub(super) async fn read_all(&self, stream: EventStream) -> After {
        let EventStream {
            mut body,
            mut parser,
            rest,
        } = stream;
        for event in rest {
            self.pass_on(event).await;
        }
        let why = loop {
            let piece = match next_piece(&mut body).await {
                Some(Ok(piece)) => piece,
                Some(Err(why)) => break why,
                None => break "it was closed".to_owned(),
            };
            let mut bytes: &[u8] = &piece;
            while let Some(event) = parser.next(&mut bytes) {
                self.pass_on(event).await;
            }
        };
        let why = format!("the stream of {} ended: {why}", self.state.shown);
        self.state.note(&why);
        self.state
            .fail(self.fault(ErrorKind::WorkerUnavailable, &why));
        After::Nothing
    }
}

/// A reference of the server, seen from its URL.
pub(super) fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    if reference.contains("://") {
        return reference.parse().ok();
    }
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    if reference.starts_with("//") {
        return format!("{scheme}:{reference}").parse().ok();
    }
    let directory = base
        .path()
        .rsplit_once('/')
        .map_or("", |(directory, _)| directory);
    let path = match reference.chars().next() {
        Some('/') => reference.to_owned(),
        Some('?') => format!("{}{reference}", base.path()),
        _ => format!("{directory}/{reference}"),
    };
    format!("{scheme}://{authority}{path}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_seen_from_the_url() {
        let base: Uri = "https://h:1/a/sse?x=1".parse().unwrap();
        for (reference, whole) in [
            ("/messages?id=1", "https://h:1/messages?id=1"),
            ("messages/?id=1", "https://h:1/a/messages/?id=1"),
            ("?id=1", "https://h:1/a/sse?id=1"),
            ("https://other/x", "https://other/x"),
            ("//other/x", "https://other/x"),
        ] {
            assert_eq!(resolve(&base, reference).unwrap().to_string(), whole);
        }
    }
}
