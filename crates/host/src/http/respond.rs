//! Answers: what every one of them carries, and how a refusal looks.

use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use mainstay_contract::dialect::{Dialect, EchoId, encode};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::{Outcome, Problem};

use super::body::{Body, EventBody};

/// An answer.
pub(crate) type Answer = Response<Body>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
/// Asks proxies not to hold events back.
const ACCEL: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Seconds after which a client that was turned away may try again, where nothing more exact is known.
const RETRY_SECONDS: u64 = 1;

/// An answer with a status and nothing else.
pub(super) fn plain(status: StatusCode) -> Answer {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    answer
}

/// An answer in JSON.
pub(super) fn json(status: StatusCode, body: impl Into<Body>) -> Answer {
    let mut answer = plain(status);
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    *answer.body_mut() = body.into();
    answer
}

/// An answer that goes on.
pub(super) fn events(body: EventBody) -> Answer {
    let mut answer = plain(StatusCode::OK);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, EVENTS);
    headers.insert(ACCEL, HeaderValue::from_static("no"));
    *answer.body_mut() = Body::Events(Box::new(body), None);
    answer
}

/// How a refusal is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tongue<'a> {
    /// A JSON-RPC error, under the id of the request where it is known.
    Mcp(Option<&'a EchoId>),
    /// The error payload.
    Plain,
}

/// Refuses a request.
pub(super) fn refuse(problem: &Problem, tongue: Tongue<'_>) -> Answer {
    let body = match tongue {
        Tongue::Mcp(id) => {
            let id = id.unwrap_or(&EchoId::Absent);
            encode::answer(id, Dialect::Legacy.plain(), &Err(problem.clone()))
        }
        Tongue::Plain => problem.payload(),
    };
    of_kind(Some(problem.kind), problem.retry_after_ms, body)
}

/// The time after which a request that ended like this may succeed.
pub(super) fn retry_after_ms(outcome: &Outcome) -> Option<u64> {
    outcome.as_ref().err()?.retry_after_ms
}

/// An answer in JSON with the status of what went wrong, if anything did.
pub(super) fn of_kind(
    kind: Option<ErrorKind>,
    retry_after_ms: Option<u64>,
    body: impl Into<Body>,
) -> Answer {
    let Some(row) = kind.map(ErrorKind::row) else {
        return json(StatusCode::OK, body);
    };
    let status = StatusCode::from_u16(row.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = json(status, body);
    if row.retryable && matches!(row.http, 429 | 503) {
        let seconds = retry_after_ms.map_or(RETRY_SECONDS, |ms| ms.div_ceil(1000).max(1));
        answer
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

/// An answer of another type.
pub(super) fn typed(kind: &'static str, body: impl Into<Body>) -> Answer {
    let mut answer = json(StatusCode::OK, body);
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Refuses a method that a route does not have.
pub(super) fn not_allowed(allowed: &'static str, tongue: Tongue<'_>) -> Answer {
    let problem = Problem::of(ErrorKind::MethodNotAllowed);
    with_allowed(allowed, refuse(&problem, tongue))
}

/// Names the methods that a route has.
pub(super) fn with_allowed(allowed: &'static str, mut answer: Answer) -> Answer {
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}
