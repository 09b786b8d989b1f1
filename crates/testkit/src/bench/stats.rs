//! Samples of a duration and what is read from them.

use std::time::Duration;

/// Durations in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    nanos: Vec<u64>,
}

impl Samples {
    /// Adds one.
    pub fn add(&mut self, sample: Duration) {
        self.nanos
            .push(u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all of another.
    pub fn extend(&mut self, other: &Self) {
        self.nanos.extend_from_slice(&other.nanos);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.nanos.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nanos.is_empty()
    }

    /// The value below which `share` of all samples lie, in microseconds.
    pub fn percentile(&self, share: f64) -> f64 {
        let mut sorted = self.nanos.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        let at = (last as f64 * share).round() as usize;
        sorted.get(at).map_or(0.0, |nanos| *nanos as f64 / 1000.0)
    }

    /// The median, in microseconds.
    pub fn p50(&self) -> f64 {
        self.percentile(0.5)
    }

    /// The 99th percentile, in microseconds.
    pub fn p99(&self) -> f64 {
        self.percentile(0.99)
    }
}

/// The median with an interval of 95 %: from the order of the values alone, by the binomial distribution.
pub(super) fn interval(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let half = 0.98 * count.sqrt();
    let at = |place: f64| {
        let last = values.len().saturating_sub(1);
        let index = (place.max(0.0) as usize).min(last);
        values.get(index).copied().unwrap_or(f64::NAN)
    };
    let low = (count / 2.0 - half).floor() - 1.0;
    (
        at(low),
        at((count / 2.0).floor()),
        at((count / 2.0 + half).ceil()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let mut samples = Samples::default();
        assert!(samples.p50().abs() < f64::EPSILON);
        for micros in (1..=100).rev() {
            samples.add(Duration::from_micros(micros));
        }
        assert!((samples.p50() - 51.0).abs() < 1.5);
        assert!((samples.p99() - 99.0).abs() < 1.5);
        assert!((samples.percentile(1.0) - 100.0).abs() < 0.01);
    }

    #[test]
    fn the_interval_contains_the_median_and_leaves_out_the_extremes() {
        let values = (0..61).rev().map(f64::from).collect();
        let (low, middle, high) = interval(values);
        assert!((middle - 30.0).abs() < 0.1);
        assert!(
            (low - 21.0).abs() < 1.1 && (high - 39.0).abs() < 1.1,
            "{low} {high}"
        );
    }
}
