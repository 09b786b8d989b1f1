//! The operator's page: `/` and everything below `/page/`.
//!
//! The page itself is three files without data, which every browser gets. Data and changes need a session of
//! [`sign_in`]: its cookie names the credential, so the same rules hold as for a token in a header. Every change must also
//! carry the session's secret in a header, which a page of another site can neither read nor send.
//!
//! Nothing here is markup made of data: the script inserts texts, and the content policy forbids everything but the
//! files of this server.

mod data;
mod sign_in;

use hyper::body::Incoming;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use mainstay_contract::control::{ControlReply, ControlRequest};
use mainstay_contract::dialect::{ApprovalOp, Op};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::{Problem, Success};
use serde_json::json;

use self::sign_in::Session;
pub(in crate::http) use self::sign_in::SignedIn;
use super::super::Front;
use super::super::refusals::Denied;
use super::super::respond::{self, Answer, Tongue, not_allowed};
use super::ask::{self, Order};
use super::{catalog, tool};

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const ICON: &str = include_str!("icon.svg");
/// Only files and answers of this server; nothing may frame the page.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);

/// A path of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum PageRoute<'a> {
    Html,
    Style,
    Script,
    Icon,
    /// The session, and signing in and out.
    Session,
    Data,
    Tools,
    /// A tool, as it stands in the path.
    Tool(&'a str),
    Cancel(&'a str),
    Grant(&'a str),
    Deny(&'a str),
}

impl<'a> PageRoute<'a> {
    pub(in crate::http) fn of(path: &'a str) -> Option<Self> {
        let below = |prefix| path.strip_prefix(prefix).filter(|rest| !rest.is_empty());
        Some(match path {
            "/" => Self::Html,
            "/page/page.css" => Self::Style,
            "/page/page.js" => Self::Script,
            "/page/icon.svg" => Self::Icon,
            "/page/session" => Self::Session,
            "/page/data" => Self::Data,
            "/page/tools" => Self::Tools,
            _ => below("/page/tool/")
                .map(Self::Tool)
                .or_else(|| below("/page/cancel/").map(Self::Cancel))
                .or_else(|| below("/page/grant/").map(Self::Grant))
                .or_else(|| below("/page/deny/").map(Self::Deny))?,
        })
    }

    /// True for a path that changes something.
    const fn is_change(self) -> bool {
        matches!(
            self,
            Self::Tool(_) | Self::Cancel(_) | Self::Grant(_) | Self::Deny(_)
        )
    }

    const fn allows(self) -> &'static str {
        match self {
            Self::Session => "GET, HEAD, POST, DELETE",
            _ if self.is_change() => "POST",
            _ => "GET, HEAD",
        }
    }
}

/// Answers a request for the page. `denied` hears of refused credentials.
pub(in crate::http) async fn answer(
    front: &Front,
    route: PageRoute<'_>,
    parts: &Parts,
    body: Incoming,
    port: u16,
    denied: impl Fn(&Denied),
) -> Answer {
    let method = parts.method.as_str();
    if !route.allows().split(", ").any(|allowed| allowed == method) {
        return not_allowed(route.allows(), Tongue::Plain);
    }
    let refuse = |denial: &Denied| {
        denied(denial);
        respond::refuse(&denial.problem, Tongue::Plain)
    };
    match route {
        PageRoute::Html => return file("text/html; charset=utf-8", HTML),
        PageRoute::Style => return file("text/css; charset=utf-8", STYLE),
        PageRoute::Script => return file("text/javascript; charset=utf-8", SCRIPT),
        PageRoute::Icon => return file("image/svg+xml", ICON),
        PageRoute::Session if parts.method == Method::POST => {
            return match sign_in::begin(front, parts, body, port).await {
                Ok(answer) => answer,
                Err(denial) => refuse(&denial),
            };
        }
        _ => {}
    }
    let session = match front.signed_in.find(&parts.headers, port) {
        Ok(session) => session,
        Err(denial) => {
            // A browser that opens the page has no session yet; that is not an attack to report.
            return match route {
                PageRoute::Session => respond::refuse(&denial.problem, Tongue::Plain),
                _ => refuse(&denial),
            };
        }
    };
    let changes = route.is_change() || parts.method == Method::DELETE;
    if changes && let Err(denial) = session.check_change(&parts.headers) {
        return refuse(&denial);
    }
    match route {
        PageRoute::Session if parts.method == Method::DELETE => front.signed_in.end(&session, port),
        PageRoute::Data => data::answer(front, &session).await,
        PageRoute::Tools => catalog::answer(front, &session.who).await,
        PageRoute::Tool(name) => {
            tool::answer(front, name, &parts.headers, body, &session.who).await
        }
        PageRoute::Cancel(call) => cancel(front, call, &session).await,
        PageRoute::Grant(id) => approve(front, id, true, &session).await,
        PageRoute::Deny(id) => approve(front, id, false, &session).await,
        _ => session.describe(),
    }
}

/// A file of the page.
fn file(kind: &'static str, text: &'static str) -> Answer {
    let mut answer = respond::typed(kind, text.to_owned());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    for (name, value) in [
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    answer
}

fn done() -> Answer {
    respond::json(StatusCode::OK, json!({ "ok": true }).to_string())
}

fn forbidden(said: &'static str, hint: &'static str) -> Answer {
    let problem = Problem::new(ErrorKind::Forbidden, said).with_hint(hint);
    respond::refuse(&problem, Tongue::Plain)
}

/// Ends a call of any client.
async fn cancel(front: &Front, call: &str, session: &Session) -> Answer {
    if !session.may_cancel {
        return forbidden(
            "this credential may not cancel calls of others",
            "sign in with an access token that has the scope approve",
        );
    }
    let Ok(call) = call.parse() else {
        let problem = Problem::new(ErrorKind::InvalidParams, "the call is not a number");
        return respond::refuse(&problem, Tongue::Plain);
    };
    match front
        .back
        .control(ControlRequest::CancelCall { call })
        .await
    {
        Some(ControlReply::Answered {}) => done(),
        Some(ControlReply::Refused { reason }) => {
            respond::refuse(&Problem::new(ErrorKind::NotFound, reason), Tongue::Plain)
        }
        _ => respond::refuse(&Problem::of(ErrorKind::ShuttingDown), Tongue::Plain),
    }
}

/// Answers a call that waits for a person.
async fn approve(front: &Front, id: &str, grant: bool, session: &Session) -> Answer {
    if !session.may_approve {
        return forbidden(
            "this credential may not approve calls",
            "sign in with the token of approver_token_file, or an access token with the scope approve",
        );
    }
    let id = id.to_owned();
    let op = Op::Approvals(ApprovalOp::Answer { id, grant });
    let ended = ask::run(front, &session.who, op, Order::own("approval")).await;
    match ended.outcome {
        Ok(Success::Members(_)) => done(),
        Ok(_) => respond::refuse(&Problem::of(ErrorKind::Internal), Tongue::Plain),
        Err(problem) => respond::refuse(&problem, Tongue::Plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_the_page_are_its_routes_and_changes_are_posted() {
        assert_eq!(PageRoute::of("/"), Some(PageRoute::Html));
        let tool = PageRoute::of("/page/tool/a%20b").unwrap();
        assert_eq!(tool, PageRoute::Tool("a%20b"));
        for change in [
            "/page/tool/a",
            "/page/cancel/1",
            "/page/grant/x",
            "/page/deny/x",
        ] {
            assert_eq!(PageRoute::of(change).unwrap().allows(), "POST", "{change}");
        }
        for nothing in [
            "/page",
            "/page/",
            "/page/tool/",
            "/page/other",
            "/v1/tools",
            "",
        ] {
            assert_eq!(PageRoute::of(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn the_page_asks_no_other_server() {
        for file in [HTML, STYLE, SCRIPT] {
            assert!(!file.contains("https://") && !file.contains("//cdn"));
            let links = file.matches("http://").count();
            let names = file.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(links, names, "only the name of a namespace");
        }
        for markup in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(!SCRIPT.contains(markup), "{markup} makes markup of text");
        }
    }
}
