//! The telemetry payload and the event line: counts and times, never contents.

use serde::{Deserialize, Serialize};

use crate::error::Code;
use crate::fault::{Fault, FaultClass};
use crate::id::{Generation, SessionId};

/// Counts of the whole host or of one method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub request_count: u64,
    pub success_count: u64,
    pub response_error_count: u64,
    pub transport_fault_count: u64,
    pub retry_count: u64,
}

/// Aggregates of one method or tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MethodStats {
    pub method: String,
    #[serde(flatten)]
    pub counts: Counts,
    pub last_latency_ms: f64,
    pub max_latency_ms: f64,
    pub avg_latency_ms: f64,
    pub p50: f64,
    pub p99: f64,
    pub last_error: Option<MethodError>,
}

/// The last error of a method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodError {
    pub code: Code,
    pub message: String,
}

/// The answer of `system_telemetry`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    pub totals: Counts,
    /// Sorted by method.
    pub methods: Vec<MethodStats>,
    pub last_fault: Option<Fault>,
    pub last_restart_fault: Option<Fault>,
    pub schema_mismatches: Vec<SchemaMismatch>,
}

/// A tool input or output that did not fit its schema, in brief.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaMismatch {
    pub tool: String,
    pub side: Side,
    pub path: String,
    pub message: String,
}

/// Which side of a tool a mismatch was found on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Input,
    Output,
}

/// One line of the event log: a request that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub event: String,
    pub ts: String,
    pub session: SessionId,
    /// The client's id, as it stood.
    pub request_id: Option<String>,
    pub method: String,
    pub tool: Option<String>,
    pub generation: Option<Generation>,
    pub attempt: u32,
    pub replayed: bool,
    pub latency_ms: f64,
    pub outcome: EventOutcome,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<Code>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<FaultClass>,
    pub input_bytes: usize,
    pub output_bytes: usize,
}

/// How the request of an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventOutcome {
    Ok,
    Error,
    Cancelled,
}
