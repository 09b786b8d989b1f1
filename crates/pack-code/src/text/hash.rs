//! A fast hash for maps that are only looked up in. Not for data that an attacker may choose to
//! collide at length: every such map here is bounded by a chunk or a query.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Multiply and rotate, eight bytes at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fast(u64);

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

impl Fast {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(SEED);
    }
}

impl Hasher for Fast {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.add(chunk.try_into().map_or(0, u64::from_le_bytes));
        }
        let mut tail = [0; 8];
        for (to, from) in tail.iter_mut().zip(chunks.remainder()) {
            *to = *from;
        }
        self.add(u64::from_le_bytes(tail) ^ (bytes.len() as u64) << 56);
    }

    fn write_u8(&mut self, number: u8) {
        self.add(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.add(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        // The high bits are the mixed ones, the map takes both ends.
        self.0 ^ self.0 >> 32
    }
}

/// A hash of 64 bits that is good enough to stand for the bytes themselves where a mistake in
/// many billions only blurs a score.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64 ^ SEED;
    let mut add = |word: u64| {
        hash = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 32;
    };
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        add(chunk.try_into().map_or(0, u64::from_le_bytes));
    }
    let mut tail = 0_u64;
    for byte in chunks.remainder() {
        tail = tail << 8 | u64::from(*byte);
    }
    add(tail);
    add(SEED);
    hash
}

/// For keys that are fingerprints already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Same(u64);

impl Hasher for Same {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = fingerprint(bytes);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) type FingerprintMap<V> = HashMap<u64, V, BuildHasherDefault<Same>>;

pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<Fast>>;
