//! The one place where the loop takes numbers that differ from host to host.
//!
//! A simulated host takes them from its seed instead, so that a run can be repeated.

/// Seed of the jitter of restarts.
pub(crate) fn seed() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(simulated) = crate::sim::entropy() {
        return simulated << 8;
    }
    u64::from(std::process::id()) << 8
}

/// An id that no peer can guess.
pub(crate) fn random_id() -> [u8; 16] {
    let halves = [random().to_ne_bytes(), random().to_ne_bytes()];
    let mut id = [0; 16];
    for (place, byte) in id.iter_mut().zip(halves.as_flattened()) {
        *place = *byte;
    }
    id
}

/// A random number that no peer can guess.
pub(crate) fn random() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(simulated) = crate::sim::entropy() {
        return simulated;
    }
    let mut bytes = [0; 8];
    // Without randomness ids are only unlikely to meet, which a peer would have to try for.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}
