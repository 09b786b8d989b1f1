//! Everything that is one request and one answer: the catalog, tools by name, invocation envelopes,
//! diagnostics, schemas, the description of all of this, and metrics.
//!
//! * [`ask`]: one typed request and its end;
//! * [`tool`] and [`invoke`]: a run of a tool in either of the two envelopes;
//! * [`approvals`]: answers of people to calls that wait for them;
//! * [`tasks`]: runs that outlive their caller;
//! * [`catalog`], [`diagnostics`], [`schemas`], [`metrics`]: what is read;
//! * [`openapi`]: what a program must know to use them;
//! * [`page`]: all of it for a person with a browser.
//!
//! What is refused here before a tool is asked has the form that the route's answers have, and comes
//! from the same error row.

mod approvals;
mod ask;
mod catalog;
mod diagnostics;
mod invoke;
mod metrics;
mod openapi;
pub(super) mod page;
mod schemas;
mod tasks;
mod tool;

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::Problem;

use super::access::Credential;
use super::respond::{self, Answer, Tongue, with_allowed};
use super::{Front, UNKNOWN_BODY, UNKNOWN_BODY_MS, body, headers};

/// Route of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Tools,
    /// A tool, as it stands in the path.
    Tool(&'a str),
    Invoke,
    Diagnostics,
    /// A file, or `tools/` and a file.
    Schema(&'a str),
    OpenApi,
    Metrics,
    /// A task, as it stands in the path.
    Task(&'a str),
    Approvals,
    /// A call that waits for an approval, as it stands in the path.
    Approval(&'a str),
}

impl<'a> Route<'a> {
    pub(super) fn of(path: &'a str) -> Option<Self> {
        let below = |prefix| path.strip_prefix(prefix).filter(|rest| !rest.is_empty());
        Some(match path {
            "/v1/tools" => Self::Tools,
            "/v1/invoke" => Self::Invoke,
            "/v1/diagnostics" => Self::Diagnostics,
            "/openapi.json" => Self::OpenApi,
            "/metrics" => Self::Metrics,
            "/v1/approvals" => Self::Approvals,
            _ if below("/v1/approvals/").is_some() => {
                Self::Approval(below("/v1/approvals/").unwrap_or_default())
            }
            _ => match (below("/v1/tool/"), below("/schemas/"), below("/v1/tasks/")) {
                (Some(tool), _, _) => Self::Tool(tool),
                (_, _, Some(id)) => Self::Task(id),
                (_, Some(file), _) => Self::Schema(file.strip_prefix("v1/").unwrap_or(file)),
                _ => return None,
            },
        })
    }

    const fn allows(self) -> &'static str {
        match self {
            Self::Tool(_) | Self::Invoke | Self::Approval(_) => "POST",
            Self::Task(_) => "GET, HEAD, DELETE",
            _ => "GET, HEAD",
        }
    }
}

/// Answers a request from an address. `who` is `None` only for `/v1/invoke`, which may authenticate in its
/// body.
pub(super) async fn answer(
    front: &Front,
    route: Route<'_>,
    parts: &Parts,
    body: Incoming,
    (who, peer): (Option<Credential>, IpAddr),
) -> Answer {
    let is_allowed = match route {
        Route::Tool(_) | Route::Invoke | Route::Approval(_) => parts.method == Method::POST,
        Route::Task(_) => [Method::GET, Method::HEAD, Method::DELETE].contains(&parts.method),
        _ => parts.method == Method::GET || parts.method == Method::HEAD,
    };
    if !is_allowed {
        let problem = Problem::of(ErrorKind::MethodNotAllowed);
        return with_allowed(route.allows(), refuse(front, route, &problem));
    }
    let who = match (route, who) {
        (Route::Invoke, who) => {
            return invoke::answer(front, &parts.headers, body, (who, peer)).await;
        }
        (_, Some(who)) => who,
        (_, None) => return refuse(front, route, &Problem::of(ErrorKind::Unauthorized)),
    };
    match route {
        Route::Tool(tool) => tool::answer(front, tool, &parts.headers, body, &who).await,
        Route::Task(id) => tasks::answer(front, id, &parts.method, &who).await,
        Route::Approvals => approvals::list(front, &parts.headers, &who).await,
        Route::Approval(id) => approvals::answer(front, id, &parts.headers, body, &who).await,
        Route::Tools => catalog::answer(front, &who).await,
        Route::Schema(file) => schemas::answer(front, file, &who).await,
        Route::Diagnostics => diagnostics::answer(front).await,
        Route::Metrics => metrics::answer(front).await,
        Route::OpenApi | Route::Invoke => respond::json(hyper::StatusCode::OK, openapi::text()),
    }
}

/// Refuses a request in the form that the route's answers have.
pub(super) fn refuse(front: &Front, route: Route<'_>, problem: &Problem) -> Answer {
    match route {
        Route::Tool(tool) => tool::refuse(front, tool, problem),
        Route::Invoke => invoke::refuse(front, problem),
        _ => respond::refuse(problem, Tongue::Plain),
    }
}

/// The sender of a body that is about to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Known,
    /// It may name itself in the body.
    Unknown,
}

/// Reads the JSON that a request brings.
async fn read(
    front: &Front,
    headers: &HeaderMap,
    body: Incoming,
    sender: Sender,
) -> Result<Bytes, Problem> {
    if !headers::is_json(headers) {
        return Err(Problem::of(ErrorKind::UnsupportedMedia));
    }
    let limits = &front.limits;
    let (bytes, millis) = match sender {
        Sender::Known => (limits.request_frame_bytes, limits.http_body_ms),
        Sender::Unknown => (
            limits.request_frame_bytes.min(UNKNOWN_BODY),
            limits.http_body_ms.min(UNKNOWN_BODY_MS),
        ),
    };
    let read = body::read(body, bytes, Duration::from_millis(millis)).await;
    read.map_err(|problem| match sender {
        Sender::Known => problem,
        Sender::Unknown => problem.with_hint(
            "send the token as Authorization: Bearer TOKEN; without it only a small body is read",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_mean_routes_and_nothing_else_does() {
        assert_eq!(Route::of("/v1/tools"), Some(Route::Tools));
        assert_eq!(Route::of("/v1/tool/a%20b"), Some(Route::Tool("a%20b")));
        let file = Some(Route::Schema("envelope.schema.json"));
        assert_eq!(Route::of("/schemas/v1/envelope.schema.json"), file);
        assert_eq!(Route::of("/schemas/envelope.schema.json"), file);
        for nothing in [
            "/",
            "/v1/tool/",
            "/v1/tools/",
            "/schemas/",
            "/v2/tools",
            "/v1",
        ] {
            assert_eq!(Route::of(nothing), None, "{nothing}");
        }
    }
}
