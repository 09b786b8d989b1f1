//! Everything that the page shows and that changes: one answer per look.

use hyper::StatusCode;
use mainstay_contract::control::{ControlReply, ControlRequest};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::metrics::LATENCY_BOUNDS_US;
use mainstay_contract::outcome::Problem;
use serde_json::{Value, json};

use super::super::super::Front;
use super::super::super::respond::{self, Answer, Tongue};
use super::super::diagnostics;
use super::sign_in::Session;

pub(super) async fn answer(front: &Front, session: &Session) -> Answer {
    let Some(status) = front.status().await else {
        return respond::refuse(&Problem::of(ErrorKind::ShuttingDown), Tongue::Plain);
    };
    let metrics = diagnostics::counted(front).await.unwrap_or_default();
    let calls = match front.back.control(ControlRequest::Calls {}).await {
        Some(ControlReply::Calls(calls)) => calls,
        _ => Vec::new(),
    };
    let approvals = match session.may_approve {
        true => front.back.control(ControlRequest::Approvals {}).await,
        false => None,
    };
    let approvals = match approvals {
        Some(ControlReply::Approvals(all)) => serde_json::to_value(all).unwrap_or_default(),
        _ => Value::Null,
    };
    let body = json!({
        "status": status,
        "metrics": metrics,
        "latency_bounds_us": LATENCY_BOUNDS_US,
        "calls": calls,
        "approvals": approvals,
    });
    respond::json(StatusCode::OK, body.to_string())
}
