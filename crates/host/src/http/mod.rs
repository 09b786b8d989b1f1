//! HTTP: the same sessions, for clients that come over the network.
//!
//! To the engines an HTTP session is a client like any other: [`link`] gives it two ends made of
//! channels, and nothing behind it knows of HTTP. The rooms:
//!
//! * [`listen`]: connections, bounded in number, size and time; [`stall`]: clients that take
//!   nothing;
//! * [`guard`]: who may ask at all, before anything else; [`access`]: who is who; [`refusals`]: log and counts
//!   of those that may not;
//! * [`mcp`]: Streamable HTTP in both eras; [`headers`]: what its headers must say;
//! * [`session`]: a legacy session, which outlives its connections; [`shared`]: modern requests,
//!   which stand alone; [`table`]: all of them;
//! * [`rest`]: everything that is one request and one answer; [`counts`]: what metrics show of it;
//! * [`streams`]: messages on their way, kept for those who come back; [`body`]: how they leave;
//! * [`respond`]: answers and refusals; [`moving`]: all of it into another program.
//!
//! Deliberately absent: TLS, which is a reverse proxy's work, and HTTP/2.

pub(crate) mod access;
mod body;
mod counts;
// Where simulated clients enter: it needs the insides of this room.
#[cfg(feature = "simulation")]
#[path = "../sim/door.rs"]
pub(crate) mod door;
mod guard;
mod headers;
mod link;
mod listen;
mod mcp;
mod moving;
mod refusals;
mod respond;
mod rest;
mod session;
mod shared;
mod stall;
mod streams;
mod table;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, StatusCode};
use mainstay_contract::control::{ControlReply, ControlRequest, HostStatus};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::health::Lifecycle;
use mainstay_contract::limits::Limits;
use mainstay_contract::outcome::Problem;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use self::access::{Access, Admitted, Issuer, METADATA};
pub(crate) use self::body::Body;
use self::counts::Counts;
use self::guard::Guard;
pub(crate) use self::link::{Back, CHUNKS};
use self::listen::Connections;
pub(crate) use self::listen::{Idle, Listening, bind, start};
pub(crate) use self::moving::{Moved, SavedFront};
use self::refusals::{Denied, Refusals};
use self::respond::{Answer, Tongue, not_allowed, refuse};
use self::rest::Route;
use self::rest::page::{self, PageRoute};
use self::table::Table;
use crate::audit::AuditLog;
use crate::engine::Event;
use crate::envelopes::Envelopes;
use crate::log::Log;
use crate::telemetry::Recorder;

/// Requests in flight at the same time whose sender is not known before their body is read.
const UNKNOWN_IN_FLIGHT: usize = 16;
/// Bytes of such a body.
const UNKNOWN_BODY: usize = 64 * 1024;
/// Time for such a body, in milliseconds.
const UNKNOWN_BODY_MS: u64 = 5_000;

/// Characters of a token with which an address off the loopback is served.
pub(crate) const MIN_TOKEN: usize = 16;

/// How clients reach the host over HTTP.
#[derive(Clone)]
pub struct HttpConfig {
    pub address: SocketAddr,
    /// Host names under which it may be asked, beside those of the loopback.
    pub allow_hosts: Vec<String>,
    /// The credential of clients; this or an issuer is required unless the address is a loopback
    /// one.
    pub token: Option<String>,
    /// The token of a person who may approve calls, beside [`Self::token`].
    pub approver_token: Option<String>,
    pub issuer: Option<Issuer>,
    /// Gets the address, for a caller that wants to know the port.
    pub told: Option<std::sync::mpsc::SyncSender<SocketAddr>>,
}

impl HttpConfig {
    /// True if the only way in is a token that can be guessed.
    pub(crate) fn has_short_token(&self) -> bool {
        let tokens = [&self.token, &self.approver_token];
        let mut tokens = tokens.into_iter().flatten();
        tokens.any(|token| token.len() < MIN_TOKEN)
    }

    /// True if clients must authenticate.
    pub(crate) const fn asks(&self) -> bool {
        self.token.is_some() || self.issuer.is_some()
    }
}

impl std::fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpConfig")
            .field("address", &self.address)
            .field("allow_hosts", &self.allow_hosts)
            .finish_non_exhaustive()
    }
}

/// The backend behind the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    Packs,
    /// An MCP server of another author.
    Wrapped,
}

/// Facts about the host for a front.
#[derive(Debug)]
pub(crate) struct FrontFacts {
    pub(crate) limits: Limits,
    pub(crate) serves: Serves,
    pub(crate) envelopes: Envelopes,
    pub(crate) recorder: Recorder,
    pub(crate) audit: AuditLog,
    pub(crate) log: Log,
}

/// Everything that requests share.
#[derive(Debug)]
pub(crate) struct Front {
    limits: Limits,
    guard: Guard,
    back: Back,
    serves: Serves,
    envelopes: Envelopes,
    recorder: Recorder,
    table: Table,
    counts: Counts,
    refusals: Refusals,
    /// People who are signed in to the page.
    signed_in: page::SignedIn,
    in_flight: AtomicUsize,
    /// Requests in flight whose sender is not known yet.
    unknown: AtomicUsize,
    log: Log,
    /// The connections that are open.
    connections: Connections,
    /// True while the host waits for them: every answer then closes its connection.
    draining: watch::Sender<bool>,
    /// All connections, while the host pauses.
    parked: Mutex<Option<Vec<Idle>>>,
    listener: Weak<TcpListener>,
}

impl Front {
    pub(crate) fn new(
        config: &HttpConfig,
        listener: &Arc<TcpListener>,
        bound: SocketAddr,
        events: mpsc::Sender<Event>,
        facts: FrontFacts,
    ) -> Arc<Self> {
        Arc::new(Self {
            guard: Guard::new(
                &config.allow_hosts,
                Access::new(
                    config.token.as_deref(),
                    config.issuer.as_ref(),
                    &format!("http://{bound}"),
                )
                .with_approver(config.approver_token.as_deref()),
            ),
            limits: facts.limits,
            back: Back::new(events),
            serves: facts.serves,
            envelopes: facts.envelopes,
            recorder: facts.recorder,
            table: Table::default(),
            counts: Counts::default(),
            refusals: Refusals::new(facts.log.clone(), facts.audit),
            signed_in: page::SignedIn::default(),
            in_flight: AtomicUsize::new(0),
            unknown: AtomicUsize::new(0),
            log: facts.log,
            connections: Connections::default(),
            draining: watch::Sender::new(false),
            parked: Mutex::new(None),
            listener: Arc::downgrade(listener),
        })
    }

    /// Answers a request that came on a connection from `peer` to `local`.
    async fn answer(&self, request: Request<Incoming>, connected: Connected) -> Answer {
        let place = counts::Place::of(request.uri().path());
        let mut answer = self.routed(request, connected, place).await;
        self.counts.answered(place, answer.status());
        if answer.status() == StatusCode::UNAUTHORIZED
            && let Ok(challenge) = HeaderValue::try_from(self.guard.access.challenge())
        {
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        answer
    }

    async fn routed(
        &self,
        request: Request<Incoming>,
        Connected { local, peer }: Connected,
        place: counts::Place,
    ) -> Answer {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let route = Route::of(path);
        let refused = |problem: &Problem| match (path, route) {
            ("/mcp", _) => refuse(problem, Tongue::Mcp(None)),
            (_, Some(route)) => rest::refuse(self, route, problem),
            (_, None) => refuse(problem, Tongue::Plain),
        };
        let denied = |denied: &Denied| self.refusals.record(denied.why, place.name(), peer.ip());
        if let Err(reason) = self.guard.check_place(&parts, local) {
            denied(&reason);
            return refused(&reason.problem);
        }
        if let Some(of) = path.strip_prefix(METADATA) {
            return self.metadata(&parts.method, of);
        }
        if let Some(route) = PageRoute::of(path) {
            return match Place::take(&self.in_flight, self.limits.http_in_flight) {
                Some(_place) => {
                    let why = |reason: &Denied| denied(reason);
                    page::answer(self, route, &parts, body, local.port(), why).await
                }
                None => refused(&Problem::of(ErrorKind::Overloaded)),
            };
        }
        let who = self.guard.check_token(&parts.headers, parts.uri.query());
        if matches!(path, "/healthz" | "/readyz") {
            if parts.method != Method::GET && parts.method != Method::HEAD {
                return not_allowed("GET, HEAD", Tongue::Plain);
            }
            // Without a token the state is served; a wrong one is refused, which only the log shows.
            if let Err(reason) = &who
                && !self.guard.is_silent(&parts)
            {
                denied(reason);
            }
            return self.health(path == "/readyz", who.is_ok()).await;
        }
        let who = match who {
            Ok(who) => Some(who),
            // A request envelope may say itself who sends it.
            Err(_) if route == Some(Route::Invoke) && self.guard.is_silent(&parts) => None,
            Err(reason) => {
                denied(&reason);
                return refused(&reason.problem);
            }
        };
        // Senders that are not known have few places of their own: they cannot take those of the others.
        let (counter, most) = match who {
            Some(_) => (&self.in_flight, self.limits.http_in_flight),
            None => (&self.unknown, UNKNOWN_IN_FLIGHT),
        };
        let Some(_place) = Place::take(counter, most) else {
            return refused(&Problem::of(ErrorKind::Overloaded));
        };
        let (who, expires) = match who {
            Some(Admitted { who, expires }) => (Some(who), expires),
            None => (None, None),
        };
        let mut answer = match (path, route, who) {
            ("/mcp", _, Some(who)) => mcp::answer(self, parts, body, who).await,
            (_, Some(route), who) => {
                rest::answer(self, route, &parts, body, (who, peer.ip())).await
            }
            _ => refused(&Problem::of(ErrorKind::UnknownRoute)),
        };
        let silence = Duration::from_millis(self.limits.http_keep_alive_ms);
        answer.body_mut().keep_alive(silence);
        if let Some(expires) = expires {
            answer.body_mut().end_at(expires);
        }
        answer
    }

    /// Where tokens for this server come from.
    fn metadata(&self, method: &Method, of: &str) -> Answer {
        match self.guard.access.metadata(of) {
            Some(_) if method != Method::GET && method != Method::HEAD => {
                not_allowed("GET, HEAD", Tongue::Plain)
            }
            Some(metadata) => respond::json(StatusCode::OK, metadata),
            None => refuse(&Problem::of(ErrorKind::UnknownRoute), Tongue::Plain),
        }
    }

    /// The health snapshot; its state alone for those who have not said who they are.
    async fn health(&self, wants_ready: bool, knows: bool) -> Answer {
        let Some(status) = self.status().await else {
            let body = json!({ "state": "failed" }).to_string();
            return respond::json(StatusCode::SERVICE_UNAVAILABLE, body);
        };
        let state = status.health.state;
        let good = match wants_ready {
            true => status.health.ready,
            false => state != Lifecycle::Failed,
        };
        let code = if good {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        let body = if knows {
            serde_json::to_string(&status.health)
        } else {
            serde_json::to_string(&json!({ "state": state }))
        };
        respond::json(code, body.unwrap_or_default())
    }

    /// The host's report about itself.
    async fn status(&self) -> Option<Box<HostStatus>> {
        match self.back.control(ControlRequest::Status {}).await? {
            ControlReply::Status(status) => Some(status),
            _ => None,
        }
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
struct Connected {
    local: SocketAddr,
    peer: SocketAddr,
}

/// One of the places for requests in flight.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(counter: &'a AtomicUsize, most: usize) -> Option<Self> {
        if counter.fetch_add(1, Ordering::Relaxed) < most {
            Some(Self(counter))
        } else {
            counter.fetch_sub(1, Ordering::Relaxed);
            None
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
