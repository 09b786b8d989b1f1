//! What metrics show of a host.

use serde::{Deserialize, Serialize};

use crate::telemetry::{Counts, SchemaMismatch};

/// What metrics show of a host: sums that only ever grow, and the last mismatches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMetrics {
    pub methods: Vec<MethodMetrics>,
    /// Workers that were replaced.
    pub restart_count: u64,
    /// The last ones, oldest first.
    pub schema_mismatches: Vec<SchemaMismatch>,
}

/// One method, or one tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodMetrics {
    pub method: String,
    pub tool: Option<String>,
    pub counts: Counts,
    /// All latencies together.
    pub latency_sum_us: u64,
    /// How many requests took at most each of [`LATENCY_BOUNDS_US`] and more than the one before;
    /// the last is for all that took longer.
    pub latencies: Vec<u64>,
}

/// Upper bounds of the latencies that metrics tell apart: those of the MCP conventions, with finer
/// ones below them.
pub const LATENCY_BOUNDS_US: [u64; 20] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
];
