//! `/v1/tools`: everything on offer, as envelopes describe it.

use hyper::StatusCode;
use mainstay_contract::dialect::Op;
use mainstay_contract::error::ErrorKind;
use mainstay_contract::outcome::{Outcome, Problem, Success};

use super::super::Front;
use super::super::access::Credential;
use super::super::respond::{self, Answer, Tongue};
use super::ask::{self, Order};

pub(super) async fn answer(front: &Front, who: &Credential) -> Answer {
    match fetch(front, who).await {
        Ok(Success::Members(catalog)) => respond::json(StatusCode::OK, catalog.as_str().to_owned()),
        Ok(_) => respond::refuse(&Problem::of(ErrorKind::Internal), Tongue::Plain),
        Err(problem) => respond::refuse(&problem, Tongue::Plain),
    }
}

/// The catalog.
async fn fetch(front: &Front, who: &Credential) -> Outcome {
    let order = Order::own("catalog");
    ask::run(front, who, Op::Catalog {}, order).await.outcome
}
