//! What metrics show of a host: sums that only ever grow, so that parts of a host can be added up.

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

impl HostMetrics {
    /// Most methods that are told apart.
    const METHODS: usize = 512;

    /// Two parts of one host as a whole, with so many mismatches at most.
    #[must_use]
    pub fn plus(mut self, other: Self, diagnostics: usize) -> Self {
        self.restart_count += other.restart_count;
        for method in other.methods {
            let known = |known: &&mut MethodMetrics| {
                known.method == method.method && known.tool == method.tool
            };
            if let Some(known) = self.methods.iter_mut().find(known) {
                known.add(&method);
            } else if self.methods.len() < Self::METHODS {
                self.methods.push(method);
            }
        }
        self.schema_mismatches.extend(other.schema_mismatches);
        let excess = self.schema_mismatches.len().saturating_sub(diagnostics);
        self.schema_mismatches.drain(..excess);
        self
    }
}

impl MethodMetrics {
    fn add(&mut self, other: &Self) {
        self.counts = self.counts.plus(other.counts);
        self.latency_sum_us = self.latency_sum_us.saturating_add(other.latency_sum_us);
        let length = self.latencies.len().max(other.latencies.len());
        self.latencies.resize(length, 0);
        for (count, more) in self.latencies.iter_mut().zip(&other.latencies) {
            *count += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(tool: &str, latencies: &[u64]) -> MethodMetrics {
        MethodMetrics {
            method: "tools/call".to_owned(),
            tool: Some(tool.to_owned()),
            counts: Counts {
                request_count: 1,
                ..Counts::default()
            },
            latency_sum_us: 5,
            latencies: latencies.to_vec(),
        }
    }

    #[test]
    fn parts_add_up_by_method_and_tool() {
        let part = |tool, latencies: &[u64]| HostMetrics {
            methods: vec![method(tool, latencies)],
            restart_count: 1,
            schema_mismatches: Vec::new(),
        };
        let whole = part("a", &[1, 0])
            .plus(part("a", &[0, 2]), 9)
            .plus(part("b", &[1]), 9);
        assert_eq!(whole.restart_count, 3);
        assert_eq!(whole.methods.len(), 2);
        assert_eq!(whole.methods[0].counts.request_count, 2);
        assert_eq!(whole.methods[0].latencies, [1, 2]);
        assert_eq!(whole.methods[0].latency_sum_us, 10);
    }
}
