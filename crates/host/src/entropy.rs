//! The one place where the engines take numbers that differ from host to host.
//!
//! A simulated host takes them from its seed instead, so that a run can be repeated.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Seed of the jitter of restarts. The lowest 8 bits are zero.
pub(crate) fn seed() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(simulated) = crate::sim::entropy() {
        return simulated << 8;
    }
    u64::from(std::process::id()) << 8
}

/// A number that clients and servers cannot guess.
pub(crate) fn nonce() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(simulated) = crate::sim::entropy() {
        return simulated;
    }
    RandomState::new().build_hasher().finish()
}
