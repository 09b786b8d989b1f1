//! Durations of requests, added up by what they were.

use std::collections::BTreeMap;

use super::Finished;

/// Upper bounds in seconds, as the conventions advise.
pub(super) const BOUNDS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];
/// Kinds of requests that are told apart; methods and tools are known ones, so this is never met.
const SERIES: usize = 4096;

/// Common attributes of requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Series {
    pub(super) method: String,
    pub(super) tool: Option<String>,
    pub(super) error: Option<&'static str>,
    pub(super) transport: &'static str,
    pub(super) protocol: &'static str,
}

impl Series {
    pub(super) fn of(finished: &Finished) -> Self {
        Self {
            method: finished.method.clone(),
            tool: finished.tool.clone(),
            error: finished.error.as_ref().map(|error| error.kind),
            transport: finished.transport,
            protocol: finished.protocol,
        }
    }
}

/// How long they took.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    pub(super) counts: [u64; BOUNDS.len() + 1],
    pub(super) sum: f64,
    pub(super) count: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Durations {
    pub(super) series: BTreeMap<Series, Histogram>,
    /// When the first was added.
    pub(super) since_ns: u64,
    pub(super) until_ns: u64,
}

impl Durations {
    pub(super) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    pub(super) fn add(&mut self, finished: &Finished) {
        let series = Series::of(finished);
        if self.series.len() >= SERIES && !self.series.contains_key(&series) {
            return;
        }
        if self.since_ns == 0 {
            let took = finished.latency_us.saturating_mul(1000);
            self.since_ns = finished.end_ns.saturating_sub(took);
        }
        self.until_ns = self.until_ns.max(finished.end_ns);
        let histogram = self.series.entry(series).or_default();
        #[expect(clippy::cast_precision_loss, reason = "a duration in microseconds")]
        let seconds = finished.latency_us as f64 / 1e6;
        let at = BOUNDS.iter().position(|bound| seconds <= *bound);
        if let Some(count) = histogram.counts.get_mut(at.unwrap_or(BOUNDS.len())) {
            *count += 1;
        }
        histogram.sum += seconds;
        histogram.count += 1;
    }
}
