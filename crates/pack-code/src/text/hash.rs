//! Fingerprints of words, for maps that are only looked up in.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

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
    add(tail(chunks.remainder()));
    add(SEED);
    hash
}

/// Fewer than eight bytes as a number; those of the same length never meet.
fn tail(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let number = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes));
        return number(first) | number(last) << 32;
    }
    let byte = |at: usize| bytes.get(at).map_or(0, |byte| u64::from(*byte));
    let last = bytes.len().saturating_sub(1);
    byte(0) | byte(bytes.len() / 2) << 8 | byte(last) << 16
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn different_words_have_different_fingerprints() {
        let words = (0..50_000).flat_map(|n| [format!("w{n}"), format!("{n}_long_identifier_{n}")]);
        let prints: BTreeSet<u64> = words.map(|word| fingerprint(word.as_bytes())).collect();
        assert_eq!(prints.len(), 100_000);
        assert_ne!(fingerprint(b"a"), fingerprint(b"a\0"));
    }
}
