//! The numbers behind a host's metrics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::telemetry::{Counts, SchemaMismatch};

/// The numbers behind a host's metrics: sums that only grow, and the last mismatches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMetrics {
    pub methods: Vec<MethodMetrics>,
    /// Workers that were replaced.
    pub restart_count: u64,
    /// The last ones, oldest first.
    pub schema_mismatches: Vec<SchemaMismatch>,
    /// Each pack and each wrapped server, by its name.
    #[serde(default)]
    pub packs: BTreeMap<String, PackMetrics>,
    /// Calls that were not run for the sake of quotas.
    #[serde(default)]
    pub refused: RefusalMetrics,
}

/// Calls that were refused, by the measure that was exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalMetrics {
    pub calls: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub tool_ms: u64,
    /// An identical call had failed too often.
    pub repeated_failures: u64,
}

/// One pack, or one wrapped server with all its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackMetrics {
    /// Processes that were lost after a fault, since the start of the host.
    pub lost: u64,
    /// Processes that serve calls now.
    pub ready: usize,
    pub queue_depth: usize,
    pub in_flight: usize,
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
