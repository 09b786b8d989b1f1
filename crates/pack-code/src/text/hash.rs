//! Fingerprints of words, for maps that are only looked up in.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// An odd number without a pattern: multiplying by it loses nothing.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// The same for the second round.
const STIR: u64 = 0xd6e8_feb8_6659_fd93;

/// 64 bits that stand for the bytes of a word.
///
/// Words of up to eight bytes never meet: each is a number of its own, and finishing a number can
/// be undone. Two longer ones meet once in 2^64 pairs. A chunk of a build is at most
/// [`CHUNK_BYTES`](crate::limits::CHUNK_BYTES) of text and one file, 20 MiB, so it has at most 2.1
/// million different longer words, which is one chance in eight million; a usual chunk, with a
/// hundred thousand, has one in billions. What would be lost then is one word of that chunk, so the
/// words themselves are not compared.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    let Some(last) = bytes.last_chunk::<8>() else {
        return finish(short(bytes));
    };
    let last = u64::from_le_bytes(*last);
    if bytes.len() == 8 {
        return finish(last);
    }
    let mut hash = (bytes.len() as u64).wrapping_mul(STIR);
    let (whole, _) = bytes.as_chunks::<8>();
    for chunk in whole {
        hash = fold(hash ^ u64::from_le_bytes(*chunk));
    }
    // The last eight bytes, whether or not some of them were in a chunk already.
    finish(fold(hash ^ last))
}

/// Fewer than eight bytes as a number, with their count in its highest byte. No word of eight bytes
/// is such a number, because no word has a control character.
fn short(bytes: &[u8]) -> u64 {
    let count = (bytes.len() as u64) << 56;
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let number = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes));
        // Where the two halves overlap they agree.
        return count | number(first) | number(last) << (8 * (bytes.len() - 4));
    }
    let byte = |at: usize| bytes.get(at).map_or(0, |byte| u64::from(*byte));
    count | byte(0) | byte(1) << 8 | byte(2) << 16
}

/// Both halves of a product of 128 bits: every bit of the number reaches every bit of the result.
fn fold(number: u64) -> u64 {
    let product = u128::from(number) * u128::from(SPREAD);
    product as u64 ^ (product >> 64) as u64
}

/// Spreads a number over all bits, each to one of its own.
const fn finish(mut number: u64) -> u64 {
    number = (number ^ number >> 32).wrapping_mul(SPREAD);
    number = (number ^ number >> 29).wrapping_mul(STIR);
    number ^ number >> 32
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

    /// Every word of up to `length` characters of an alphabet.
    fn words(alphabet: &[u8], length: usize) -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..length {
            let to = all.len();
            for at in from..to {
                for letter in alphabet {
                    let mut word = all[at].clone();
                    word.push(*letter);
                    all.push(word);
                }
            }
            from = to;
        }
        all
    }

    #[test]
    fn short_words_have_fingerprints_of_their_own() {
        let alphabet = b"abcdefghijklmnopqrstuvwxyz0123456789_";
        let mut all = words(alphabet, 3);
        assert_eq!(all.len(), 1 + 37 + 37 * 37 + 37 * 37 * 37);
        // Four to eight of a few letters, where halves overlap.
        let longer = words(b"abz0", 8).into_iter();
        all.extend(longer.filter(|word| word.len() > 3));
        all.extend([b"a\xc3\xa4".to_vec(), b"\xc3\xa4".to_vec()]);
        let prints: BTreeSet<u64> = all.iter().map(|word| fingerprint(word)).collect();
        assert_eq!(prints.len(), all.len());
    }

    #[test]
    fn long_words_have_different_fingerprints() {
        let numbered = (0..50_000_u32).flat_map(|n| {
            [
                format!("{n}_long_identifier_{n}"),
                format!("identifier{n:08}"),
            ]
        });
        let mut all: BTreeSet<Vec<u8>> = numbered.map(String::into_bytes).collect();
        // Words that differ in one or two places only, and in their length only.
        let base = b"aaaaaaaaaaaaaaaaaaaa";
        for first in 0..base.len() {
            for second in 0..base.len() {
                for letter in *b"bAp_0" {
                    let mut word = base.to_vec();
                    word[first] = letter;
                    word[second] = letter;
                    all.insert(word);
                }
            }
        }
        for length in 9..200 {
            all.insert(vec![b'a'; length]);
        }
        let prints: BTreeSet<u64> = all.iter().map(|word| fingerprint(word)).collect();
        assert_eq!(prints.len(), all.len());
    }

    #[test]
    fn every_bit_of_a_word_reaches_both_ends_of_its_fingerprint() {
        // The map takes its place from the low bits and its tag from the high ones.
        for word in [&b"to"[..], b"length", b"eightlet", b"a_longer_identifier"] {
            for bit in 0..word.len() * 8 {
                let (mut low, mut high) = (0, 0);
                for letter in 0..64 {
                    let mut one = word.to_vec();
                    one[0] ^= letter;
                    let mut two = one.clone();
                    two[bit / 8] ^= 1 << (bit % 8);
                    let changed = fingerprint(&one) ^ fingerprint(&two);
                    low += (changed & 0xfff).count_ones();
                    high += (changed >> 57).count_ones();
                }
                // Half of 64 times 12 and 7 bits, give or take.
                assert!((288..480).contains(&low), "{word:?} {bit} {low}");
                assert!((150..300).contains(&high), "{word:?} {bit} {high}");
            }
        }
    }
}
