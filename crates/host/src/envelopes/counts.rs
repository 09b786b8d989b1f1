//! How many envelopes kept their schema, and how long it took to look.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mainstay_contract::telemetry::EnvelopeChecks;

/// Upper bounds of the latency buckets in microseconds; one more holds the rest.
const BOUNDS_US: [u64; 11] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000];

#[derive(Debug, Default)]
pub(super) struct Counts {
    success: AtomicU64,
    failure: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
}

/// A histogram: counts of each bucket alone, the last of which has no bound.
#[derive(Debug)]
pub(crate) struct Latencies {
    pub(crate) bounds_us: &'static [u64],
    pub(crate) counts: Vec<u64>,
    pub(crate) sum_ns: u64,
}

impl Counts {
    /// One envelope was looked at.
    pub(super) fn add(&self, valid: bool, took: Duration) {
        let counter = if valid { &self.success } else { &self.failure };
        counter.fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
        let at = BOUNDS_US.partition_point(|bound| bound * 1000 < ns);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every number, in a fixed order.
    fn all(&self) -> impl Iterator<Item = &AtomicU64> {
        let single = [&self.success, &self.failure, &self.sum_ns, &self.max_ns];
        single.into_iter().chain(&self.buckets)
    }

    pub(super) fn save(&self) -> Vec<u64> {
        self.all()
            .map(|count| count.load(Ordering::Relaxed))
            .collect()
    }

    pub(super) fn restore(&self, saved: &[u64]) {
        for (count, saved) in self.all().zip(saved) {
            count.store(*saved, Ordering::Relaxed);
        }
    }

    /// The counts as telemetry shows them.
    pub(super) fn checks(&self, mode: &'static str) -> EnvelopeChecks {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (success, failure) = (of(&self.success), of(&self.failure));
        EnvelopeChecks {
            mode: mode.to_owned(),
            success_count: success,
            failure_count: failure,
            avg_latency_ms: ms(of(&self.sum_ns) / (success + failure).max(1)),
            max_latency_ms: ms(of(&self.max_ns)),
            p50: ms(self.quantile_ns(50)),
            p99: ms(self.quantile_ns(99)),
        }
    }

    pub(super) fn latencies(&self) -> Latencies {
        let buckets = self.buckets.iter();
        Latencies {
            bounds_us: &BOUNDS_US,
            counts: buckets
                .map(|bucket| bucket.load(Ordering::Relaxed))
                .collect(),
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
        }
    }

    /// The upper bound of the bucket in which the quantile lies, or the largest seen.
    fn quantile_ns(&self, percent: u64) -> u64 {
        let buckets = self.buckets.each_ref();
        let counts = buckets.map(|bucket| bucket.load(Ordering::Relaxed));
        let rank = (counts.iter().sum::<u64>() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let largest = self.max_ns.load(Ordering::Relaxed);
        for (bound, count) in BOUNDS_US.iter().zip(counts) {
            seen += count;
            if seen >= rank {
                return largest.min(bound * 1000);
            }
        }
        largest
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 ns")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_quantiles_follow_from_what_was_added() {
        let counts = Counts::default();
        for _ in 0..98 {
            counts.add(true, Duration::from_micros(4));
        }
        counts.add(false, Duration::from_micros(80));
        counts.add(true, Duration::from_millis(20));
        let checks = counts.checks("shadow");
        assert_eq!((checks.success_count, checks.failure_count), (99, 1));
        assert_eq!((checks.p50, checks.p99), (0.005, 0.1));
        assert_eq!(checks.max_latency_ms, 20.0);
        assert!((checks.avg_latency_ms - 0.20472).abs() < 1e-9);
    }

    #[test]
    fn a_bucket_holds_its_own_bound_and_the_last_one_the_rest() {
        let counts = Counts::default();
        for bound in BOUNDS_US {
            counts.add(true, Duration::from_micros(bound));
        }
        counts.add(true, Duration::from_secs(1));
        let filled = counts.buckets.iter();
        assert!(
            filled
                .map(|bucket| bucket.load(Ordering::Relaxed))
                .all(|count| count == 1)
        );
    }
}
