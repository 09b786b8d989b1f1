//! `/v1/diagnostics`: the last inputs, outputs and envelopes that did not fit their schemas.

use hyper::StatusCode;
use mainstay_contract::control::{ControlReply, ControlRequest};
use mainstay_contract::error::ErrorKind;
use mainstay_contract::metrics::HostMetrics;
use mainstay_contract::outcome::Problem;
use serde_json::json;

use super::super::Front;
use super::super::respond::{self, Answer, Tongue};

pub(super) async fn answer(front: &Front) -> Answer {
    let Some(metrics) = counted(front).await else {
        return respond::refuse(&Problem::of(ErrorKind::ShuttingDown), Tongue::Plain);
    };
    let mut mismatches = metrics.schema_mismatches;
    mismatches.extend(front.envelopes.mismatches());
    let body = json!({ "schema_mismatches": mismatches, "envelopes": front.envelopes.checks() });
    respond::json(StatusCode::OK, body.to_string())
}

/// The host's counters.
pub(super) async fn counted(front: &Front) -> Option<HostMetrics> {
    match front.back.control(ControlRequest::Metrics {}).await? {
        ControlReply::Metrics(metrics) => Some(*metrics),
        _ => None,
    }
}
