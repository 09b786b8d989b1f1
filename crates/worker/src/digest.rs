//! Fingerprints: SHA-256 over parts that cannot run into each other.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Collects parts and gives their fingerprint.
#[derive(Clone, Debug, Default)]
pub struct Digest(Sha256);

impl Digest {
    /// Adds one part. Its length goes in first, so `("ab", "c")` and `("a", "bc")` differ.
    #[must_use]
    pub fn part(mut self, bytes: &[u8]) -> Self {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// The fingerprint in 64 lower-case hexadecimal digits.
    pub fn hex(self) -> String {
        let mut hex = String::with_capacity(64);
        for byte in self.0.finalize() {
            let _ = write!(hex, "{byte:02x}");
        }
        hex
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let one = Digest::default().part(b"ab").part(b"c").hex();
        let two = Digest::default().part(b"a").part(b"bc").hex();
        assert_eq!(one.len(), 64);
        assert_ne!(one, two);
        assert_eq!(one, Digest::default().part(b"ab").part(b"c").hex());
    }
}
