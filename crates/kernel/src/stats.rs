//! Counts and latencies of everything that ended: the data behind `system_telemetry`.

use std::collections::{BTreeMap, VecDeque};

use mainstay_contract::error::ErrorKind;
use mainstay_contract::fault::{Fault, FaultClass};
use mainstay_contract::id::Generation;
use mainstay_contract::metrics::{HostMetrics, LATENCY_BOUNDS_US, MethodMetrics, RefusalMetrics};
use mainstay_contract::telemetry::{
    Counts, MethodError, MethodStats, SchemaMismatch, Telemetry, millis,
};
use serde::{Deserialize, Serialize};

use crate::action::End;
use crate::call::SlotId;
use crate::log_limit::LogLimit;
use crate::time::Time;

/// Most method labels that are kept apart; the rest are counted together.
const METHODS: usize = 512;
/// Most losses that wait to be reported.
const LOSSES: usize = 64;
/// Buckets of a latency histogram: four to each doubling, from 1 us to about 18 hours.
const BUCKETS: usize = 144;

/// Everything that is counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    totals: Counts,
    methods: BTreeMap<String, Method>,
    last_fault: Option<Fault>,
    last_restart_fault: Option<Fault>,
    mismatches: VecDeque<SchemaMismatch>,
    mismatch_log: LogLimit,
    /// For the driver to report.
    losses: VecDeque<Loss>,
}

/// A worker that was lost, or is to be replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    pub slot: SlotId,
    pub generation: Generation,
    /// It had answered a request with a result.
    pub answered: bool,
    pub fault: Fault,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Method {
    counts: Counts,
    last_us: u64,
    max_us: u64,
    sum_us: u64,
    histogram: Vec<u64>,
    /// For metrics, by [`LATENCY_BOUNDS_US`].
    #[serde(default)]
    latencies: Vec<u64>,
    /// The method of a tool's calls, whose label is the tool's name.
    #[serde(default)]
    called_by: Option<String>,
    last_error: Option<MethodError>,
}

impl Stats {
    /// A request ended.
    pub fn ended(&mut self, end: &End) {
        let error = end.outcome.as_ref().err();
        let mut counts = Counts {
            request_count: 1,
            retry_count: u64::from(end.attempt.saturating_sub(1)),
            ..Counts::default()
        };
        match error {
            None if end.said_no() => counts.response_error_count = 1,
            None => counts.success_count = 1,
            Some(problem) => {
                counts.response_error_count = 1;
                counts.transport_fault_count = u64::from(is_loss(problem.kind));
            }
        }
        add(&mut self.totals, counts);
        let method = self.method(end.tool.as_deref().unwrap_or(&end.method));
        add(&mut method.counts, counts);
        method.latency(end.latency_us);
        if end.tool.is_some() && method.called_by.is_none() {
            method.called_by = Some(end.method.clone());
        }
        if let Some(problem) = error {
            method.last_error = Some(MethodError {
                code: problem.kind.row().code,
                message: problem.kind.row().message.to_owned(),
            });
        }
    }

    /// Our machinery broke.
    pub fn fault(&mut self, fault: &Fault) {
        self.last_fault = Some(fault.clone());
    }

    /// A fault of the worker that served led to its replacement.
    pub fn restart(&mut self, slot: SlotId, generation: Generation, answered: bool, fault: &Fault) {
        self.last_restart_fault = Some(fault.clone());
        self.lost(slot, generation, answered, fault);
    }

    /// A worker was lost.
    pub fn lost(&mut self, slot: SlotId, generation: Generation, answered: bool, fault: &Fault) {
        self.fault(fault);
        if self.losses.len() >= LOSSES {
            self.losses.pop_front();
        }
        self.losses.push_back(Loss {
            slot,
            generation,
            answered,
            fault: fault.clone(),
        });
    }

    /// The next loss that was not asked for yet.
    pub fn poll_loss(&mut self) -> Option<Loss> {
        self.losses.pop_front()
    }

    /// A tool's input or output did not fit its schema; so many of them are kept. `Some` if it should be
    /// logged, with the number of those that were not.
    pub fn mismatch(&mut self, now: Time, mismatch: SchemaMismatch, keep: usize) -> Option<u64> {
        while self.mismatches.len() >= keep.max(1) {
            self.mismatches.pop_front();
        }
        self.mismatches.push_back(mismatch);
        self.mismatch_log.admit(now)
    }

    /// The last fault of all.
    pub const fn last_fault(&self) -> Option<&Fault> {
        self.last_fault.as_ref()
    }

    /// The payload.
    pub fn telemetry(&self) -> Telemetry {
        Telemetry {
            totals: self.totals,
            methods: self
                .methods
                .iter()
                .map(|(name, method)| method.stats(name))
                .collect(),
            last_fault: self.last_fault.clone(),
            last_restart_fault: self.last_restart_fault.clone(),
            schema_mismatches: self.mismatches.iter().cloned().collect(),
            envelopes: None,
        }
    }

    /// The numbers for metrics.
    pub fn metrics(&self, restart_count: u64) -> HostMetrics {
        let methods = self.methods.iter();
        HostMetrics {
            methods: methods.map(|(name, method)| method.metrics(name)).collect(),
            restart_count,
            schema_mismatches: self.mismatches.iter().cloned().collect(),
            packs: BTreeMap::new(),
            refused: RefusalMetrics::default(),
        }
    }

    fn method(&mut self, label: &str) -> &mut Method {
        let known = self.methods.contains_key(label);
        let label = if known || self.methods.len() < METHODS {
            label
        } else {
            "other"
        };
        self.methods.entry(label.to_owned()).or_default()
    }
}

impl Method {
    fn latency(&mut self, us: u64) {
        self.last_us = us;
        self.max_us = self.max_us.max(us);
        self.sum_us = self.sum_us.saturating_add(us);
        self.histogram.resize(BUCKETS, 0);
        if let Some(count) = self.histogram.get_mut(bucket(us)) {
            *count += 1;
        }
        self.latencies.resize(LATENCY_BOUNDS_US.len() + 1, 0);
        let at = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        if let Some(count) = self.latencies.get_mut(at) {
            *count += 1;
        }
    }

    fn metrics(&self, label: &str) -> MethodMetrics {
        let (method, tool) = match &self.called_by {
            Some(method) => (method.clone(), Some(label.to_owned())),
            None => (label.to_owned(), None),
        };
        MethodMetrics {
            method,
            tool,
            counts: self.counts,
            latency_sum_us: self.sum_us,
            latencies: self.latencies.clone(),
        }
    }

    fn stats(&self, name: &str) -> MethodStats {
        let ended = self.counts.request_count.max(1);
        MethodStats {
            method: name.to_owned(),
            counts: self.counts,
            last_latency_ms: millis(self.last_us),
            max_latency_ms: millis(self.max_us),
            avg_latency_ms: millis(self.sum_us / ended),
            p50: millis(self.quantile(50).min(self.max_us)),
            p99: millis(self.quantile(99).min(self.max_us)),
            last_error: self.last_error.clone(),
        }
    }

    /// The upper bound of the bucket in which the quantile lies.
    fn quantile(&self, percent: u64) -> u64 {
        let total: u64 = self.histogram.iter().sum();
        let rank = (total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (index, count) in self.histogram.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_bound(index);
            }
        }
        self.max_us
    }
}

/// True if a request failed because a worker or its client was lost.
const fn is_loss(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ClientGone)
        || matches!(kind.row().class, FaultClass::Process | FaultClass::Replay)
}

/// Four buckets to each power of two.
fn bucket(us: u64) -> usize {
    let us = us.max(1);
    let power = us.ilog2();
    let quarter = if power >= 2 { us >> (power - 2) & 3 } else { 0 };
    (power as usize * 4 + quarter as usize).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> u64 {
    let (power, quarter) = (bucket / 4, bucket % 4);
    let base = 1_u64 << power.min(62);
    // Below four microseconds a power of two has no quarters.
    if power < 2 {
        base * 2
    } else {
        base + (base / 4) * (quarter as u64 + 1)
    }
}

fn add(sum: &mut Counts, counts: Counts) {
    sum.request_count += counts.request_count;
    sum.success_count += counts.success_count;
    sum.response_error_count += counts.response_error_count;
    sum.transport_fault_count += counts.transport_fault_count;
    sum.retry_count += counts.retry_count;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_within_a_quarter_of_the_truth() {
        let mut method = Method::default();
        for us in 1..=1000 {
            method.latency(us);
        }
        let median = method.quantile(50);
        assert!((500..=640).contains(&median), "{median}");
        let high = method.quantile(99);
        assert!((990..=1280).contains(&high), "{high}");
    }

    #[test]
    fn every_latency_lies_below_the_bound_of_its_bucket() {
        for us in [1, 2, 3, 4, 5, 7, 8, 100, 1023, 1024, 999_999, 3_600_000_000] {
            assert!(us <= upper_bound(bucket(us)), "{us}");
        }
    }
}
