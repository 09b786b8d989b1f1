//! One line to a remote server: its POST, the response, and what can go wrong in between.
//!
//! * A line that did not reach the server, or that the server rejected before it ran, is *unsent*: it is sent
//!   again here, within [`PATIENCE`], or handed back as unsent.
//! * A call that was sent and whose answer did not come is *lost*: the core decides by its replay contract. A
//!   stream whose events have ids is resumed first.
//! * A session that the server no longer knows is ended: the core opens another one, and restores it.

use std::time::Duration;

use hyper::header::{HeaderMap, LOCATION, RETRY_AFTER};
use hyper::{StatusCode, Uri};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::Fault;
use mainstay_contract::scan;
use tokio::time::Instant;

use super::body::{next_piece, read_whole};
use super::connect::{ConnectError, Reply, SendError};
use super::message::{self, Message, OutgoingRequest};
use super::queue::{QueuedLine, Ticket};
use super::refusal::{self, Challenge};
use super::sse::SseParser;
use super::sse_transport::{self, EventStream};
use super::wire::{Mode, Wire};
use crate::drivers::What;
use crate::drivers::task::Listener;
use crate::remote::RemoteTransport;

/// How long a server may be unreachable before its calls wait for a new session.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pauses between attempts to connect: the first, and the longest.
const CONNECT_AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// How often a session may be unknown to a server before it counts as ended: of several replicas, one may know it.
const UNKNOWN: u32 = 4;
/// Pause before the request is sent to another replica.
const NEXT_REPLICA: Duration = Duration::from_millis(30);
/// How long the host waits for other credentials after a 401, and how often it looks.
const NEW_TOKEN: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(250));
/// How long a request is sent again to a server that answers 429.
const TOO_MANY: Duration = Duration::from_secs(30);
/// How often a request of the host itself is sent again after its answer was lost.
const OWN_TRIES: u32 = 4;
/// Pauses after an answer was lost: the first, and the longest.
const AFTER_LOSS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Longest pause that a server can ask for.
const RETRY_AFTER_MOST: Duration = Duration::from_secs(10);
/// Pauses before a broken stream is resumed: the shortest, the usual and the longest.
pub(super) const RESUME: (Duration, Duration, Duration) = (
    Duration::from_millis(50),
    Duration::from_secs(1),
    Duration::from_secs(30),
);
/// Attempts to resume a stream that bring no event.
const RESUMES: u32 = 5;
/// Time for a notification to be taken, and for the body of a rejection.
const SHORT: Duration = Duration::from_secs(10);
/// Largest body of a rejection that is read.
const REJECTION_BYTES: usize = 64 * 1024;
/// Redirects of one request that are followed.
const REDIRECTS: u32 = 3;
/// Longest words of a server in a message.
const WORDS: usize = 200;
/// The code that the SDKs give to a request of an unknown session.
const UNKNOWN_SESSION: &str = "-32001";

/// The driver's next step after an exchange.
#[derive(Debug)]
pub(super) enum After {
    Nothing,
    /// The session is open: listen for messages that answer nothing.
    Listen,
    /// The server speaks the older transport; its messages come here.
    Events(Box<EventStream>),
}

/// The next step after one attempt.
enum Step {
    Over(After),
    Again(Duration),
    /// The driver ends; the line stays as it is.
    Stop,
}

/// Facts gathered over the attempts of one exchange.
#[derive(Debug, Default)]
struct Tries {
    /// Use no kept connection: it leads to the same replica.
    fresh: bool,
    unreachable_since: Option<Instant>,
    rejected_since: Option<Instant>,
    unauthorized_since: Option<Instant>,
    connects: u32,
    unknown: u32,
    lost: u32,
    redirects: u32,
}

/// One line and its ticket.
pub(super) struct Exchange {
    pub(super) ticket: Ticket,
    pub(super) line: QueuedLine,
    pub(super) message: Message,
}

impl<E: Listener> Wire<E> {
    /// Sends a line and passes on what comes back.
    pub(super) async fn exchange(&self, exchange: Exchange) -> After {
        let mut tries = Tries::default();
        loop {
            match self.attempt(&exchange, &mut tries).await {
                Step::Over(after) => {
                    self.state.queue.finish(exchange.ticket);
                    return after;
                }
                Step::Again(pause) => tokio::time::sleep(pause).await,
                Step::Stop => return After::Nothing,
            }
        }
    }

    /// Goes on with an exchange that a pause of the host interrupted.
    pub(super) async fn continue_exchange(
        &self,
        exchange: Exchange,
        last_event: Option<String>,
    ) -> After {
        let mut tries = Tries::default();
        let step = match (exchange.message.request(), last_event) {
            (Some(request), Some(last)) => {
                let mut parser = SseParser::new(self.frame_bytes);
                parser.last_id = Some(last);
                self.resume(&exchange, request, parser, &mut tries).await
            }
            _ => {
                let why = "the host was upgraded while it waited for the answer".to_owned();
                self.lose(&exchange, &mut tries, why, None).await
            }
        };
        match step {
            Step::Over(after) => {
                self.state.queue.finish(exchange.ticket);
                after
            }
            Step::Again(pause) => {
                tokio::time::sleep(pause).await;
                Box::pin(self.exchange(exchange)).await
            }
            Step::Stop => After::Nothing,
        }
    }

    async fn attempt(&self, exchange: &Exchange, tries: &mut Tries) -> Step {
        let Exchange {
            ticket,
            line,
            message,
        } = exchange;
        let (state, ticket) = (&self.state, *ticket);
        if state.is_ended() {
            return self.hand_back(exchange).await;
        }
        let credentials = state.credentials.headers(&state.remote).await;
        let (credentials, edition) = match credentials {
            Ok(credentials) => credentials,
            Err(why) => return self.give_up(ErrorKind::WorkerSetup, &why),
        };
        let request = || self.post(line, message, &credentials);
        let sending = state.client.send(
            tries.fresh,
            request,
            || state.queue.mark_sent(ticket),
            || state.queue.mark_unsent(ticket),
        );
        let reply = match message.request() {
            // The deadline of a request is the core's.
            Some(_) => sending.await,
            None => match tokio::time::timeout(SHORT, sending).await {
                Ok(reply) => reply,
                Err(_) => Err(SendError::Broken("the server does not take it".to_owned())),
            },
        };
        match reply {
            Ok(reply) if reply.response.status().is_success() => {
                state.note_success();
                self.accepted(exchange, tries, reply).await
            }
            Ok(reply) => self.rejected(exchange, tries, reply, edition).await,
            Err(SendError::Connect(error)) => self.unreachable(tries, error),
            Err(SendError::Broken(why)) => {
                let why = format!("the connection to {} broke: {why}", state.shown);
                self.lose(exchange, tries, why, None).await
            }
            Err(SendError::Sealed) => Step::Stop,
        }
    }

    /// There is no connection, so nothing was sent.
    fn unreachable(&self, tries: &mut Tries, error: ConnectError) -> Step {
        let why = match error {
            ConnectError::Setup(why) => return self.give_up(ErrorKind::WorkerSetup, &why),
            ConnectError::Unreachable(why) => why,
        };
        let since = *tries.unreachable_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= PATIENCE {
            return self.give_up(ErrorKind::WorkerUnavailable, &why);
        }
        let (first, longest) = CONNECT_AGAIN;
        let pause = first.saturating_mul(1 << tries.connects.min(8));
        tries.connects += 1;
        Step::Again(pause.min(longest))
    }

    /// The server took the line.
    async fn accepted(&self, exchange: &Exchange, tries: &mut Tries, reply: Reply) -> Step {
        let state = &self.state;
        let headers = reply.response.headers().clone();
        let Some(request) = exchange.message.request() else {
            let (body, connection) = reply.into_parts();
            let drained = tokio::time::timeout(SHORT, read_whole(body, REJECTION_BYTES)).await;
            if let Ok(Ok(_)) = drained {
                state.client.keep(connection);
            }
            let listens = exchange.message == Message::Initialized && state.begin_listening();
            return Step::Over(if listens {
                After::Listen
            } else {
                After::Nothing
            });
        };
        if request.is_initialize() {
            state.open_session(&headers);
        }
        if state.mode() == Mode::Events {
            // The answer comes with the events.
            return Step::Over(After::Nothing);
        }
        state.set_mode(Mode::Streamable);
        let kind = content_type(&headers);
        let (body, connection) = reply.into_parts();
        match kind.as_str() {
            "application/json" => match read_whole(body, self.frame_bytes).await {
                Ok(whole) if whole.oversize => {
                    let (head, _) = request.oversize_head(whole.bytes);
                    self.tell(What::Oversize(head)).await;
                    Step::Over(After::Nothing)
                }
                Ok(whole) => {
                    state.client.keep(connection);
                    let mut is_answered = false;
                    for line in message::messages(&whole.bytes) {
                        is_answered |= self.deliver(line, Some(request)).await;
                    }
                    if is_answered {
                        return Step::Over(After::Nothing);
                    }
                    let why = format!("{} answered without an answer", state.shown);
                    self.lose(exchange, tries, why, None).await
                }
                Err(why) => {
                    let why = format!("the answer of {} broke off: {why}", state.shown);
                    self.lose(exchange, tries, why, None).await
                }
            },
            "text/event-stream" => {
                let parser = SseParser::new(self.frame_bytes);
                self.follow(exchange, request, body, parser, tries).await
            }
            other => {
                let why = format!(
                    "{} answered with {other:?} instead of a message",
                    state.shown
                );
                self.lose(exchange, tries, why, None).await
            }
        }
    }

    /// Reads the stream of a request until its answer, and resumes a stream that breaks.
    async fn follow(
        &self,
        exchange: &Exchange,
        request: &OutgoingRequest,
        mut body: hyper::body::Incoming,
        mut parser: SseParser,
        tries: &mut Tries,
    ) -> Step {
        let (is_answered, why) = self
            .read_events(exchange, request, &mut body, &mut parser)
            .await;
        if is_answered {
            return Step::Over(After::Nothing);
        }
        drop(body);
        if parser.last_id.is_none() {
            let why = format!(
                "the stream of {} ended before the answer: {why}",
                self.state.shown
            );
            return self.lose(exchange, tries, why, None).await;
        }
        self.resume(exchange, request, parser, tries).await
    }

    /// Passes on the events of a stream. True if the answer was among them; else the reason of the end.
    async fn read_events(
        &self,
        exchange: &Exchange,
        request: &OutgoingRequest,
        body: &mut hyper::body::Incoming,
        parser: &mut SseParser,
    ) -> (bool, String) {
        loop {
            let piece = match next_piece(body).await {
                Some(Ok(piece)) => piece,
                Some(Err(why)) => return (false, why),
                None => return (false, "it was closed".to_owned()),
            };
            let mut bytes: &[u8] = &piece;
            let mut is_answered = false;
            while let Some(event) = parser.next(&mut bytes) {
                if !matches!(event.kind.as_str(), "" | "message") {
                    continue;
                }
                if event.oversize {
                    let (head, is_answer) = request.oversize_head(event.data);
                    is_answered |= is_answer;
                    self.tell(What::Oversize(head)).await;
                    continue;
                }
                for line in message::messages(&event.data) {
                    is_answered |= self.deliver(line, Some(request)).await;
                }
            }
            if is_answered {
                return (true, String::new());
            }
            let last = parser.last_id.as_ref();
            self.state.queue.reached(exchange.ticket, last);
        }
    }

    async fn resume(
        &self,
        exchange: &Exchange,
        request: &OutgoingRequest,
        mut parser: SseParser,
        tries: &mut Tries,
    ) -> Step {
        let mut attempts = 0;
        loop {
            if attempts >= RESUMES {
                let why = format!(
                    "the stream of {} broke and cannot be resumed",
                    self.state.shown
                );
                return self.lose(exchange, tries, why, None).await;
            }
            attempts += 1;
            tokio::time::sleep(resume_pause(parser.retry_ms)).await;
            let last = parser.last_id.clone();
            let Ok(reply) = self.get(last.as_deref()).await else {
                continue;
            };
            let status = reply.response.status();
            let is_stream = content_type(reply.response.headers()) == "text/event-stream";
            if status.is_client_error() || (status.is_success() && !is_stream) {
                let shown = &self.state.shown;
                let why = format!(
                    "the stream of {shown} broke, and it answers HTTP {status} to resume it"
                );
                return self.lose(exchange, tries, why, None).await;
            }
            if !status.is_success() {
                continue;
            }
            let mut next = SseParser::new(self.frame_bytes);
            (next.last_id, next.retry_ms) = (last.clone(), parser.retry_ms);
            let (mut body, _) = reply.into_parts();
            let (is_answered, _) = self
                .read_events(exchange, request, &mut body, &mut next)
                .await;
            if is_answered {
                return Step::Over(After::Nothing);
            }
            if next.last_id != last {
                attempts = 0;
            }
            parser = next;
        }
    }

    /// The server answered with an error status.
    async fn rejected(
        &self,
        exchange: &Exchange,
        tries: &mut Tries,
        reply: Reply,
        edition: u64,
    ) -> Step {
        let state = &self.state;
        let status = reply.response.status();
        let headers = reply.response.headers().clone();
        let (body, _) = reply.into_parts();
        let body = tokio::time::timeout(SHORT, read_whole(body, REJECTION_BYTES)).await;
        let body = body.ok().and_then(Result::ok);
        let body = body.map(|whole| whole.bytes).unwrap_or_default();
        let request = exchange.message.request();
        if status == StatusCode::UNAUTHORIZED {
            state.queue.mark_unsent(exchange.ticket);
            return self.unauthorized(tries, &headers, edition).await;
        }
        let is_modern = request.is_some_and(|request| request.modern.is_some());
        let is_lost =
            state.session_id().is_some() && !is_modern && is_unknown_session(status, &body);
        // An answer to this request counts with any status, unless it is about the session.
        if let Some(request) = request
            && !(is_lost && is_about_session(&body))
        {
            let messages = message::messages(&body);
            if messages
                .iter()
                .any(|line| message::answers(line, &request.id))
            {
                for line in messages {
                    self.deliver(line, Some(request)).await;
                }
                return Step::Over(After::Nothing);
            }
        }
        if is_lost {
            state.queue.mark_unsent(exchange.ticket);
            tries.unknown += 1;
            tries.fresh = true;
            if tries.unknown < UNKNOWN {
                return Step::Again(NEXT_REPLICA.saturating_mul(tries.unknown));
            }
            let why = format!(
                "{} no longer knows the session (HTTP {status})",
                state.shown
            );
            self.end_session(why).await;
            return self.hand_back(exchange).await;
        }
        let retry_after = retry_after(&headers);
        if status == StatusCode::TOO_MANY_REQUESTS {
            state.queue.mark_unsent(exchange.ticket);
            let since = *tries.rejected_since.get_or_insert_with(Instant::now);
            if since.elapsed() < TOO_MANY {
                return Step::Again(retry_after.unwrap_or(RESUME.1));
            }
        } else if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
            let why = format!("{} answered HTTP {status}", state.shown);
            return self.lose(exchange, tries, why, retry_after).await;
        }
        state.queue.mark_unsent(exchange.ticket);
        if let Some(location) = headers.get(LOCATION).filter(|_| status.is_redirection()) {
            return self
                .redirected(
                    exchange,
                    tries,
                    status,
                    location.to_str().unwrap_or_default(),
                )
                .await;
        }
        let is_opening = request.is_some_and(OutgoingRequest::is_initialize);
        if is_opening && state.may_try_events() && status.is_client_error() {
            return self.try_events(exchange, status, &headers, &body).await;
        }
        self.refuse(exchange, status, &headers, &body).await
    }

    /// The server wants other credentials.
    async fn unauthorized(&self, tries: &mut Tries, headers: &HeaderMap, edition: u64) -> Step {
        let state = &self.state;
        let since = *tries.unauthorized_since.get_or_insert_with(Instant::now);
        match state.credentials.refresh(&state.remote, edition).await {
            Ok(true) if since.elapsed() < NEW_TOKEN.0 => return Step::Again(Duration::ZERO),
            // A token in a file may be replaced a moment after it expired.
            Ok(false) if state.may_change_token() && since.elapsed() < NEW_TOKEN.0 => {
                return Step::Again(NEW_TOKEN.1);
            }
            Ok(_) => {}
            Err(why) => return self.give_up(ErrorKind::WorkerSetup, &why),
        }
        let challenge = Challenge::read(headers);
        let status = StatusCode::UNAUTHORIZED;
        let why = refusal::explain(&state.remote, &state.client, status, &challenge).await;
        self.give_up(ErrorKind::WorkerSetup, &why)
    }

    /// Follows a redirect within the origin. Credentials never go to another one.
    async fn redirected(
        &self,
        exchange: &Exchange,
        tries: &mut Tries,
        status: StatusCode,
        location: &str,
    ) -> Step {
        let state = &self.state;
        let target = sse_transport::resolve(state.client.uri(), location);
        let keeps_method = matches!(status.as_u16(), 307 | 308);
        tries.redirects += 1;
        if let Some(target) = target
            .as_ref()
            .filter(|target| state.client.is_same_origin(target))
            && keeps_method
            && tries.redirects <= REDIRECTS
        {
            state.set_path(target);
            return Step::Again(Duration::ZERO);
        }
        let to = target.map(|target| origin_of(&target)).unwrap_or_default();
        let why = format!(
            "{} redirects to {to} (HTTP {status}); credentials are not sent to another place: configure that URL instead",
            state.shown
        );
        self.answer_error(exchange, -32603, &why).await;
        Step::Over(After::Nothing)
    }

    /// A server that does not take a POST may speak the transport of 2024-11-05.
    async fn try_events(
        &self,
        exchange: &Exchange,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Step {
        match self.open_events().await {
            Ok(stream) => {
                // The stream is read while the line is sent again: the answer comes with it.
                let sent = Box::pin(self.exchange_once(exchange)).await;
                match sent {
                    Step::Over(_) => Step::Over(After::Events(Box::new(stream))),
                    step => step,
                }
            }
            Err(_) => self.refuse(exchange, status, headers, body).await,
        }
    }

    async fn exchange_once(&self, exchange: &Exchange) -> Step {
        let mut tries = Tries::default();
        loop {
            match self.attempt(exchange, &mut tries).await {
                Step::Again(pause) => tokio::time::sleep(pause).await,
                step => return step,
            }
        }
    }

    /// The server rejected the line, and will again: its sender gets the reason.
    async fn refuse(
        &self,
        exchange: &Exchange,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Step {
        let state = &self.state;
        let mut why = match status {
            StatusCode::FORBIDDEN => {
                let challenge = Challenge::read(headers);
                refusal::explain(&state.remote, &state.client, status, &challenge).await
            }
            _ => format!("{} answered HTTP {status}", state.shown),
        };
        if let Some(words) = words_of(body) {
            why = format!("{why}: {words}");
        }
        let unknown = matches!(status.as_u16(), 400 | 404 | 405 | 406 | 415 | 422 | 501);
        let request = exchange.message.request();
        let is_discover = request.is_some_and(|request| request.method == "server/discover");
        let code = if unknown && is_discover {
            -32601
        } else {
            -32603
        };
        self.answer_error(exchange, code, &why).await;
        Step::Over(After::Nothing)
    }

    async fn answer_error(&self, exchange: &Exchange, code: i64, why: &str) {
        self.state.note(why);
        if let Some(request) = exchange.message.request() {
            let line = request.error_line(code, why);
            self.tell(What::Line(line.into_bytes())).await;
        }
    }

    /// The session is over: a call goes back unsent, and waits for the next session.
    async fn hand_back(&self, exchange: &Exchange) -> Step {
        self.state.queue.mark_unsent(exchange.ticket);
        if let Some(call) = exchange.line.call {
            let fault = self.fault(ErrorKind::WorkerUnavailable, "the session ended");
            let sent = false;
            self.tell(What::CallLost { call, sent, fault }).await;
        }
        Step::Over(After::Nothing)
    }

    /// The answer will not come. A call is judged by the core; a request of the host is sent again.
    async fn lose(
        &self,
        exchange: &Exchange,
        tries: &mut Tries,
        why: String,
        retry_after: Option<Duration>,
    ) -> Step {
        self.state.note(&why);
        let (first, longest) = AFTER_LOSS;
        let losses = self.state.note_failure();
        let pause = first.saturating_mul(1 << losses.min(8)).min(longest);
        let pause = pause.max(retry_after.unwrap_or_default());
        if let Some(call) = exchange.line.call {
            // A server in trouble is not asked again at once.
            tokio::time::sleep(pause).await;
            let fault: Fault = self.fault(ErrorKind::WorkerUnavailable, &why);
            let sent = true;
            self.tell(What::CallLost { call, sent, fault }).await;
            return Step::Over(After::Nothing);
        }
        tries.lost += 1;
        tries.fresh = true;
        match exchange.message.request() {
            _ if tries.lost <= OWN_TRIES => Step::Again(pause),
            Some(_) => self.give_up(ErrorKind::WorkerUnavailable, &why),
            None => Step::Over(After::Nothing),
        }
    }

    fn give_up(&self, kind: ErrorKind, why: &str) -> Step {
        self.state.note(why);
        self.state.fail(self.fault(kind, why));
        Step::Stop
    }
}

/// The pause before a stream is resumed, as the server wants it, within bounds.
pub(super) fn resume_pause(retry_ms: Option<u64>) -> Duration {
    let (least, usual, most) = RESUME;
    retry_ms
        .map_or(usual, Duration::from_millis)
        .clamp(least, most)
}

/// True if a rejection says that the session is unknown. Servers in front of an SDK often answer 400.
fn is_unknown_session(status: StatusCode, body: &[u8]) -> bool {
    let names_session = || {
        let text = String::from_utf8_lossy(body).to_ascii_lowercase();
        text.contains("session")
    };
    status == StatusCode::NOT_FOUND || (status == StatusCode::BAD_REQUEST && names_session())
}

/// True for a JSON-RPC error that says that the session is unknown. Some servers give it the id of the request.
fn is_about_session(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    let Some(error) = scan::member(text.trim(), "error") else {
        return false;
    };
    let message = scan::member(error, "message").unwrap_or_default();
    let is_coded = scan::member(error, "code") == Some(UNKNOWN_SESSION);
    is_coded || message.to_ascii_lowercase().contains("session")
}

/// The words of a rejection: the message of a JSON-RPC error, or the beginning of a short text.
fn words_of(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let error = scan::member(text.trim(), "error").and_then(|error| {
        let message = scan::member(error, "message")?;
        scan::unquote(message).map(std::borrow::Cow::into_owned)
    });
    let plain = || {
        let text = text.trim();
        (!text.is_empty() && !text.starts_with(['<', '{', '['])).then(|| text.to_owned())
    };
    let words = error.or_else(plain)?;
    Some(mainstay_contract::render::shorten(&words, WORDS))
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(hyper::header::CONTENT_TYPE);
    let value = value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let kind = value.split(';').next().unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

/// Seconds that a server wants the host to wait, within bounds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let seconds: u64 = value.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MOST))
}

/// Scheme, host and port of a URL.
fn origin_of(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let authority = authority.rsplit('@').next().unwrap_or_default();
    format!("{}://{authority}", uri.scheme_str().unwrap_or("https"))
}

impl RemoteTransport {
    /// True if the older transport may be tried.
    pub(super) const fn allows_events(self) -> bool {
        matches!(self, Self::Auto)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_of_the_session_is_recognised() {
        let not_found = StatusCode::NOT_FOUND;
        assert!(is_unknown_session(not_found, b""));
        let bad = StatusCode::BAD_REQUEST;
        let said = br#"{"error":{"message":"Bad Request: No valid Session ID provided"}}"#;
        assert!(is_unknown_session(bad, said));
        assert!(!is_unknown_session(bad, b"bad arguments"));
        assert!(!is_unknown_session(StatusCode::FORBIDDEN, said));
        assert_eq!(
            words_of(said).as_deref(),
            Some("Bad Request: No valid Session ID provided")
        );
        assert_eq!(words_of(b"<html>"), None);
    }

    #[test]
    fn a_server_cannot_ask_for_a_pause_out_of_bounds() {
        assert_eq!(resume_pause(None), RESUME.1);
        assert_eq!(resume_pause(Some(0)), RESUME.0);
        assert_eq!(resume_pause(Some(250)), Duration::from_millis(250));
        assert_eq!(resume_pause(Some(u64::MAX)), RESUME.2);
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(&headers), None);
        headers.insert(RETRY_AFTER, "86400".parse().unwrap());
        assert_eq!(retry_after(&headers), Some(RETRY_AFTER_MOST));
    }
}
