//! Approvals over REST: `/v1/approvals` and `/v1/approvals/{id}`, for credentials with the scope `approve`.

use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use mainstay_contract::dialect::{ApprovalOp, Op};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::{Problem, Success};
use serde::Deserialize;

use super::super::Front;
use super::super::access::Credential;
use super::super::respond::{self, Answer, Tongue};
use super::ask::{self, Order};
use super::{Sender, read};

/// The answer of a person.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    verdict: Verdict,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Grant,
    Deny,
}

/// Lists the calls that wait.
pub(super) async fn list(front: &Front, headers: &HeaderMap, who: &Credential) -> Answer {
    run(front, headers, who, ApprovalOp::List {}).await
}

/// Answers one of them.
pub(super) async fn answer(
    front: &Front,
    id: &str,
    headers: &HeaderMap,
    body: Incoming,
    who: &Credential,
) -> Answer {
    let body = match read(front, headers, body, Sender::Known).await {
        Ok(body) => body,
        Err(problem) => return respond::refuse(&problem, Tongue::Plain),
    };
    let Ok(Body { verdict }) = serde_json::from_slice(&body) else {
        let said = "the body must be {\"verdict\":\"grant\"} or {\"verdict\":\"deny\"}";
        let problem = Problem::new(ErrorKind::InvalidParams, said);
        return respond::refuse(&problem, Tongue::Plain);
    };
    let grant = matches!(verdict, Verdict::Grant);
    let id = id.to_owned();
    run(front, headers, who, ApprovalOp::Answer { id, grant }).await
}

async fn run(front: &Front, headers: &HeaderMap, who: &Credential, op: ApprovalOp) -> Answer {
    if !front.guard.access.may_approve(headers) {
        let said = "this credential may not approve calls";
        let problem = Problem::new(ErrorKind::Forbidden, said).with_hint(
            "use the token of approver_token_file, or an access token with the scope approve",
        );
        return respond::refuse(&problem, Tongue::Plain);
    }
    let ended = ask::run(front, who, Op::Approvals(op), Order::own("approval")).await;
    match ended.outcome {
        Ok(Success::Members(members)) => {
            let text = front.log.redactor().text(members.as_str()).into_owned();
            respond::json(StatusCode::OK, text)
        }
        Ok(_) => respond::refuse(&Problem::of(ErrorKind::Internal), Tongue::Plain),
        Err(problem) => respond::refuse(&problem, Tongue::Plain),
    }
}
