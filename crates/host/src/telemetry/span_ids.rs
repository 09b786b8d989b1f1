//! Ids of traces and spans: never the same twice, and nothing more.

use std::sync::atomic::{AtomicU64, Ordering};

/// The step of a sequence that meets every number once.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A source of ids.
#[derive(Debug)]
pub(super) struct SpanIds {
    next: AtomicU64,
}

impl SpanIds {
    /// Begins where no other host does.
    pub(super) fn seeded() -> Self {
        let mut bytes = [0; 8];
        // Should there be no randomness, ids of hosts may meet, which only blurs their traces.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        Self {
            next: AtomicU64::new(u64::from_ne_bytes(bytes) ^ u64::from(std::process::id())),
        }
    }

    pub(super) fn span(&self) -> [u8; 8] {
        // A zero would be no id.
        mix(self.next.fetch_add(STEP, Ordering::Relaxed))
            .max(1)
            .to_be_bytes()
    }

    pub(super) fn trace(&self) -> [u8; 16] {
        let mut trace = [0; 16];
        let (first, second) = trace.split_at_mut(8);
        first.copy_from_slice(&self.span());
        second.copy_from_slice(&self.span());
        trace
    }
}

/// Spreads a number over all its bits, so that neighbours look nothing alike.
const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_id_comes_twice() {
        let ids = SpanIds::seeded();
        let seen: BTreeSet<[u8; 8]> = (0..10_000).map(|_| ids.span()).collect();
        assert_eq!(seen.len(), 10_000);
        assert!(!seen.contains(&[0; 8]));
        assert_ne!(ids.trace(), ids.trace());
    }
}
