//! `/mcp`: Streamable HTTP in both eras.
//!
//! Each message decides its era, as on every transport: a request whose `_meta` carries a protocol
//! version, or whose header names a modern revision, is modern and stands alone; every other one
//! belongs to a session.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use mainstay_contract::dialect::{
    Dialect, EchoId, LEGACY_VERSIONS, MODERN_VERSION, Relayed, RelayedRequest, encode, relay,
    unsupported_version,
};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::json::ObjectWriter;
use mainstay_contract::meta;
use mainstay_contract::method::Method as McpMethod;
use mainstay_contract::outcome::Problem;
use mainstay_contract::scan;
use mainstay_kernel::server::edit;

use super::access::Credential;
use super::body::{self, EventBody, Numbered};
use super::headers::{self, LAST_EVENT, Mirrored, SESSION, VERSION};
use super::listen::{self, Ends};
use super::respond::{self, Answer, Tongue, not_allowed};
use super::session::Session;
use super::shared::Shared;
use super::{Front, Serves};

/// Time in which an answer of a session comes in one piece; after it, as a stream that can be
/// taken up again.
const PIECE_LEGACY: Duration = Duration::from_millis(500);
/// Longest wait for a piece of a modern answer, whose status depends on its content.
const PIECE_MODERN: Duration = Duration::from_secs(5);
/// Pages of tools that are looked at for mirrored arguments.
const PAGES: usize = 64;

const MCP: Tongue<'static> = Tongue::Mcp(None);

/// Answers a request.
pub(super) async fn answer(front: &Front, parts: Parts, body: Incoming, who: Credential) -> Answer {
    let answered = match parts.method {
        Method::POST => post(front, &parts.headers, body, who).await,
        Method::GET => listen(front, &parts.headers, &who),
        Method::DELETE => end(front, &parts.headers, &who),
        _ => Ok(not_allowed("POST, GET, DELETE", MCP)),
    };
    answered.unwrap_or_else(|refused| refused)
}

/// An answer either way; a refusal is one, too.
type Answered = Result<Answer, Answer>;

fn refused(problem: &Problem) -> Answer {
    respond::refuse(problem, MCP)
}

fn refused_kind(kind: ErrorKind) -> Answer {
    refused(&Problem::of(kind))
}

async fn post(front: &Front, headers: &HeaderMap, body: Incoming, who: Credential) -> Answered {
    if !headers::is_json(headers) {
        return Err(refused_kind(ErrorKind::UnsupportedMedia));
    }
    let accepts = |kind| headers::accepts(headers, kind);
    if !accepts("application/json") || !accepts("text/event-stream") {
        return Err(refused_kind(ErrorKind::NotAcceptable));
    }
    let limits = &front.limits;
    let patience = Duration::from_millis(limits.http_body_ms);
    let body = body::read(body, limits.request_frame_bytes, patience)
        .await
        .map_err(|problem| refused(&problem))?;
    let line = body.trim_ascii();
    let said = relay(line, limits.json_depth).map_err(|wrong| {
        let body = encode::answer(&wrong.id, wrong.form, &Err(wrong.problem));
        respond::json(StatusCode::BAD_REQUEST, body)
    })?;
    let version = headers::value(headers, &VERSION);
    let era = match version {
        None => None,
        Some(MODERN_VERSION) => Some(Dialect::Modern),
        Some(version) if LEGACY_VERSIONS.contains(&version) => Some(Dialect::Legacy),
        // A modern request says itself what is wrong with it.
        Some(_) if is_modern(&said) => Some(Dialect::Modern),
        Some(unknown) => return Err(unsupported(unknown, &said)),
    };
    match &said {
        Relayed::Request(request) if is_modern_request(request) || era == Some(Dialect::Modern) => {
            modern(front, headers, line, request, &who).await
        }
        Relayed::Request(request) => legacy(front, headers, line, request, who).await,
        // Nothing that a modern client could tell without asking.
        _ if era == Some(Dialect::Modern) => Ok(respond::plain(StatusCode::ACCEPTED)),
        Relayed::Notice { .. } | Relayed::Answer { .. } => {
            let session = find(front, headers, &who)?;
            if !session.pass(line, &said).await {
                return Err(gone(front, &session));
            }
            Ok(respond::plain(StatusCode::ACCEPTED))
        }
    }
}

fn is_modern(said: &Relayed<'_>) -> bool {
    matches!(said, Relayed::Request(request) if is_modern_request(request))
}

fn is_modern_request(request: &RelayedRequest<'_>) -> bool {
    request.dialect == Dialect::Modern
}

fn unsupported(requested: &str, said: &Relayed<'_>) -> Answer {
    let problem = unsupported_version(requested);
    match said {
        Relayed::Request(request) => {
            let id = EchoId::Known(request.id.clone());
            respond::refuse(&problem, Tongue::Mcp(Some(&id)))
        }
        _ => refused(&problem),
    }
}

/// A request that stands alone.
async fn modern(
    front: &Front,
    headers: &HeaderMap,
    line: &[u8],
    request: &RelayedRequest<'_>,
    who: &Credential,
) -> Answered {
    let id = EchoId::Known(request.id.clone());
    let refuse = |problem: &Problem| respond::refuse(problem, Tongue::Mcp(Some(&id)));
    headers::check_modern(headers, request).map_err(|problem| refuse(&problem))?;
    let shared = front
        .table
        .shared(&front.back, &front.limits, who)
        .await
        .map_err(|_| refuse(&Problem::of(ErrorKind::Overloaded)))?;
    if request.method == "tools/call" {
        let mirrored = mirrored(front, &shared, request).await;
        mirrored
            .check(headers, request)
            .map_err(|problem| refuse(&problem))?;
    }
    // What was scanned is text.
    let text = std::str::from_utf8(line).unwrap_or_default();
    let mut reading = shared.ask(text, request).await;
    match reading.next_within(PIECE_MODERN).await {
        Ok(Some(event)) if event.is_last => {
            Ok(respond::json(modern_status(&event.line), event.line))
        }
        Ok(None) => Err(refuse(&Problem::of(ErrorKind::WorkerUnavailable))),
        Ok(first @ Some(_)) => Ok(events(reading, first, request)),
        Err(()) => Ok(events(reading, None, request)),
    }
}

/// The answer to a modern request as a stream.
fn events(
    reading: body::Reading,
    first: Option<super::streams::Event>,
    request: &RelayedRequest<'_>,
) -> Answer {
    let events = EventBody::new(reading, Numbered::No, first);
    respond::events(match request.method == McpMethod::Listen.name() {
        true => events.endless(),
        false => events,
    })
}

/// The status that the modern revision wants for an answer.
fn modern_status(line: &Bytes) -> StatusCode {
    let text = std::str::from_utf8(line).unwrap_or_default();
    let code = scan::member(text, "error").and_then(|error| scan::member(error, "code"));
    match code {
        Some("-32601") => StatusCode::NOT_FOUND,
        Some("-32700" | "-32600" | "-32020" | "-32021" | "-32022") => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// The arguments that tools want mirrored into headers, asked for once.
async fn mirrored(
    front: &Front,
    shared: &Arc<Shared>,
    request: &RelayedRequest<'_>,
) -> Arc<Mirrored> {
    if let Some(known) = shared.mirrored() {
        return known;
    }
    let mut mirrored = Mirrored::default();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let meta = request.param("_meta").map(of_the_host);
        let params = ObjectWriter::with_capacity(256)
            .optional_raw("cursor", cursor.as_deref())
            .optional_raw("_meta", meta.as_deref());
        let line = ObjectWriter::with_capacity(320)
            .string("jsonrpc", "2.0")
            .string("id", "headers")
            .string("method", "tools/list")
            .raw("params", &params.finish())
            .finish();
        let Ok(Relayed::Request(list)) = relay(line.as_bytes(), front.limits.json_depth) else {
            break;
        };
        let mut reading = shared.ask(&line, &list).await;
        let patience = Duration::from_millis(front.limits.start_timeout_ms);
        let Ok(Some(event)) = reading.next_within(patience).await else {
            break;
        };
        let text = std::str::from_utf8(&event.line).unwrap_or_default();
        let Some(result) = scan::member(text, "result") else {
            break;
        };
        mirrored.learn(result);
        cursor = scan::member(result, "nextCursor")
            .filter(|cursor| cursor.starts_with('"'))
            .map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    let mirrored = Arc::new(mirrored);
    shared.set_mirrored(Arc::clone(&mirrored));
    mirrored
}

/// A client's `_meta` for a request that it did not make: without its progress and its trace.
fn of_the_host(client: &str) -> String {
    let own = [
        meta::PROGRESS_TOKEN,
        meta::TRACEPARENT,
        meta::TRACESTATE,
        meta::BAGGAGE,
    ];
    edit::filtered(client, |name| !own.contains(&name))
}

/// A request of a session, or the one that opens it.
async fn legacy(
    front: &Front,
    headers: &HeaderMap,
    line: &[u8],
    request: &RelayedRequest<'_>,
    who: Credential,
) -> Answered {
    if request.method == "initialize" && !headers.contains_key(SESSION) {
        return open(front, line, request, who).await;
    }
    let session = find(front, headers, &who)?;
    let id = EchoId::Known(request.id.clone());
    let method = request.method.as_ref();
    if front.serves == Serves::Packs
        && !method.contains('/')
        && !matches!(method, "initialize" | "ping")
    {
        // Tools have names of their own only where there is no session: on stdio and the socket.
        let problem = Problem::new(
            ErrorKind::UnknownMethod,
            format!("the method {method:.64} is not offered"),
        );
        let body = encode::answer(&id, Dialect::Legacy.plain(), &Err(problem));
        return Ok(respond::json(StatusCode::OK, body));
    }
    let Some(mut reading) = session.open(request) else {
        let problem = Problem::of(ErrorKind::DuplicateId);
        return Err(respond::refuse(&problem, Tongue::Mcp(Some(&id))));
    };
    listen::note_end(Ends::Resumed);
    if !session.input.say(line).await {
        return Err(gone(front, &session));
    }
    if headers::prefers_events(headers) && session.can_prime() {
        return Ok(streamed(&session, reading, None));
    }
    match reading.next_within(PIECE_LEGACY).await {
        Ok(Some(event)) if event.is_last => {
            session.close(reading.stream);
            Ok(respond::json(StatusCode::OK, event.line))
        }
        Ok(None) if session.ending.is_over() => Err(gone(front, &session)),
        // Without an event it was cancelled: its stream ends without an answer.
        Ok(first) => Ok(streamed(&session, reading, first)),
        Err(()) => Ok(streamed(&session, reading, None)),
    }
}

fn streamed(
    session: &Session,
    reading: body::Reading,
    first: Option<super::streams::Event>,
) -> Answer {
    respond::events(EventBody::new(reading, numbered(session), first))
}

fn numbered(session: &Session) -> Numbered {
    match session.can_prime() {
        true => Numbered::Primed,
        false => Numbered::Yes,
    }
}

/// Opens a session.
async fn open(
    front: &Front,
    line: &[u8],
    request: &RelayedRequest<'_>,
    who: Credential,
) -> Answered {
    let id = EchoId::Known(request.id.clone());
    let refuse = |kind| respond::refuse(&Problem::of(kind), Tongue::Mcp(Some(&id)));
    let several = front.guard.access.has_several();
    let share = several.then_some(front.limits.http_credential_sessions);
    let opened = front
        .table
        .open(&front.back, &front.limits, who, share)
        .await;
    let session = opened.map_err(|_| refuse(ErrorKind::Overloaded))?;
    let mut opening = Opening(Some(&session));
    let unavailable = || refuse(ErrorKind::WorkerUnavailable);
    let mut reading = session.open(request).ok_or_else(unavailable)?;
    if !session.input.say(line).await {
        return Err(unavailable());
    }
    // A server that is slow to start is waited for; the host answers in its place if it must.
    let patience = Duration::from_millis(front.limits.start_timeout_ms.saturating_mul(2));
    let mut answer = match reading.next_within(patience).await {
        Ok(Some(event)) if event.is_last => {
            session.close(reading.stream);
            let text = std::str::from_utf8(&event.line).unwrap_or_default();
            if scan::member(text, "result").is_none() {
                return Ok(respond::json(StatusCode::OK, event.line));
            }
            session.agreed(&event.line);
            respond::json(StatusCode::OK, event.line)
        }
        Ok(first @ Some(_)) => streamed(&session, reading, first),
        Ok(None) | Err(()) => return Err(unavailable()),
    };
    opening.0 = None;
    if let Ok(value) = HeaderValue::from_str(&session.id) {
        answer.headers_mut().insert(SESSION, value);
    }
    front.table.add(&session);
    Ok(answer)
}

/// Ends a session that does not open, with its server: the server refused it, or the client
/// disconnected while the server was starting.
struct Opening<'s>(Option<&'s Session>);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.ending.end();
        }
    }
}

/// `GET`: what belongs to no request, or the rest of a stream that broke.
fn listen(front: &Front, headers: &HeaderMap, who: &Credential) -> Answered {
    if headers::value(headers, &VERSION) == Some(MODERN_VERSION) {
        return Err(not_allowed("POST", MCP));
    }
    if !headers::accepts(headers, "text/event-stream") {
        return Err(refused_kind(ErrorKind::NotAcceptable));
    }
    let session = find(front, headers, who)?;
    let Some(last) = headers::value(headers, &LAST_EVENT) else {
        let reading = session
            .listen()
            .ok_or_else(|| refused_kind(ErrorKind::StreamInUse))?;
        let events = EventBody::new(reading, numbered(&session), None);
        return Ok(respond::events(events.endless()));
    };
    let reading = session.resume(last).ok_or_else(|| {
        let said = "there is nothing to resume behind this event";
        let problem = Problem::new(ErrorKind::InvalidMessage, said)
            .with_hint("ask again; what was not kept cannot be had any more");
        refused(&problem)
    })?;
    let events = EventBody::new(reading, Numbered::Yes, None);
    Ok(respond::events(events))
}

/// `DELETE`: ends a session and cancels what is in it.
fn end(front: &Front, headers: &HeaderMap, who: &Credential) -> Answered {
    if headers::value(headers, &VERSION) == Some(MODERN_VERSION) {
        return Err(not_allowed("POST", MCP));
    }
    let session = find(front, headers, who)?;
    front.table.remove(&session);
    Ok(respond::plain(StatusCode::NO_CONTENT))
}

/// The session that the headers name.
fn find(front: &Front, headers: &HeaderMap, who: &Credential) -> Result<Arc<Session>, Answer> {
    if !headers.contains_key(SESSION) {
        let said = "the header Mcp-Session-Id is missing";
        let problem = Problem::new(ErrorKind::InvalidMessage, said)
            .with_hint("open a session with initialize and send its id with every request");
        return Err(refused(&problem));
    }
    headers::value(headers, &SESSION)
        .and_then(|id| front.table.find(id, who))
        .ok_or_else(|| refused_kind(ErrorKind::UnknownSession))
}

fn gone(front: &Front, session: &Session) -> Answer {
    front.table.remove(session);
    refused_kind(ErrorKind::UnknownSession)
}
