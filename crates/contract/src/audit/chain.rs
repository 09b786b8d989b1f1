//! The chain of hashes.

use std::fmt;

use serde_json::Value;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::{AuditLine, AuditRecord};
use crate::canonical::canonical_json;

/// Bytes of a hash.
const HASH: usize = 32;
/// Bytes of a block of SHA-256, for HMAC.
const BLOCK: usize = 64;
/// The beginning and the end of the member with the hash, which a line ends with.
const BEFORE: &str = ",\"hash\":\"";
const AFTER: &str = "\"}";
/// Shortest key, in bytes.
const KEY_BYTES: usize = 16;

/// The secret of a keyed chain.
#[derive(Clone)]
pub struct Key([u8; BLOCK]);

/// The key is too short to be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the key has fewer than {KEY_BYTES} bytes; make one with openssl rand -hex 32")]
pub struct KeyError;

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// The key of a file: everything in it but white space at its ends.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyError> {
        let bytes = bytes.trim_ascii();
        if bytes.len() < KEY_BYTES {
            return Err(KeyError);
        }
        let mut key = [0; BLOCK];
        if bytes.len() > BLOCK {
            let digest: [u8; HASH] = Sha256::digest(bytes).into();
            key.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        } else {
            key.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        }
        Ok(Self(key))
    }

    /// HMAC-SHA256 (RFC 2104) of parts that follow each other.
    pub fn sign(&self, parts: &[&[u8]]) -> [u8; HASH] {
        let mut inner = Sha256::new_with_prefix(self.0.map(|byte| byte ^ 0x36));
        for part in parts {
            inner.update(part);
        }
        let mut outer = Sha256::new_with_prefix(self.0.map(|byte| byte ^ 0x5c));
        outer.update(inner.finalize());
        outer.finalize().into()
    }
}

/// The end of a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The number of the last line; 0 before the first.
    pub seq: u64,
    pub hash: [u8; HASH],
}

impl Head {
    /// The hash in hexadecimal digits.
    pub fn hex(&self) -> String {
        hex(&self.hash)
    }

    /// The head with this number and hash. `None` if the text is not a hash.
    pub fn parse(seq: u64, text: &str) -> Option<Self> {
        let hash = unhex(text)?;
        Some(Self { seq, hash })
    }

    /// Adds a record. Returns its line, without a line end, and the new head. `is_first` adds the hash of the line before,
    /// which is in another file.
    pub fn extend(
        &self,
        record: AuditRecord,
        at: String,
        is_first: bool,
        key: Option<&Key>,
    ) -> (String, Self) {
        let seq = self.seq + 1;
        let line = AuditLine {
            seq,
            at,
            record,
            prev: is_first.then(|| self.hex()),
        };
        // Numbers and texts: a record always has a form.
        let value = serde_json::to_value(&line).unwrap_or_default();
        let body = canonical_json(&value);
        let next = self.after(&body, key);
        let kept = body.strip_suffix('}').unwrap_or(&body);
        let text = format!("{kept}{BEFORE}{}{AFTER}", next.hex());
        (text, next)
    }

    fn after(&self, body: &str, key: Option<&Key>) -> Self {
        let parts: [&[u8]; 2] = [&self.hash, body.as_bytes()];
        let hash = match key {
            Some(key) => key.sign(&parts),
            None => Sha256::new()
                .chain_update(self.hash)
                .chain_update(body)
                .finalize()
                .into(),
        };
        Self {
            seq: self.seq + 1,
            hash,
        }
    }
}

/// A line that does not continue its chain.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChainError {
    #[error("it is not a line of an audit file")]
    Form,
    #[error("its hash does not fit: it, or a line before it, was changed, removed, added or moved")]
    Hash,
    #[error("its number is {found}, and {expected} comes next")]
    Number { found: u64, expected: u64 },
    #[error("it continues another file than the one before it")]
    Start,
}

/// Checks lines one after the other.
#[derive(Debug)]
pub struct Verifier {
    head: Option<Head>,
    /// The next line is the first of a file.
    begins: bool,
    key: Option<Key>,
}

impl Verifier {
    /// A verifier for a chain that begins anywhere.
    pub const fn new(key: Option<Key>) -> Self {
        Self {
            head: None,
            begins: true,
            key,
        }
    }

    /// The lines of another file follow.
    pub const fn begin_file(&mut self) {
        self.begins = true;
    }

    /// The end of the lines so far.
    pub const fn head(&self) -> Option<Head> {
        self.head
    }

    /// Checks the next line, without its line end.
    pub fn check(&mut self, line: &str) -> Result<AuditLine, ChainError> {
        let (kept, hash) = split(line).ok_or(ChainError::Form)?;
        let body = format!("{kept}}}");
        let read: AuditLine = serde_json::from_str(&body).map_err(|_| ChainError::Form)?;
        let begins = std::mem::replace(&mut self.begins, false);
        if begins != read.prev.is_some() {
            return Err(ChainError::Start);
        }
        let before = match (self.head, &read.prev) {
            (Some(head), Some(prev)) if head.hex() != *prev => return Err(ChainError::Start),
            (Some(head), _) => head,
            (None, Some(prev)) => {
                let seq = read.seq.checked_sub(1).ok_or(ChainError::Form)?;
                let head = Head::parse(seq, prev).ok_or(ChainError::Form)?;
                if seq == 0 && head != Head::default() {
                    return Err(ChainError::Start);
                }
                head
            }
            (None, None) => return Err(ChainError::Start),
        };
        let expected = before.seq + 1;
        let next = before.after(&body, self.key.as_ref());
        if next.hash != hash {
            return Err(match read.seq == expected {
                true => ChainError::Hash,
                false => ChainError::Number {
                    found: read.seq,
                    expected,
                },
            });
        }
        if read.seq != expected {
            let found = read.seq;
            return Err(ChainError::Number { found, expected });
        }
        self.head = Some(next);
        Ok(read)
    }
}

/// The head that a line itself states, which proves nothing.
pub fn stated_head(line: &str) -> Option<Head> {
    let (kept, hash) = split(line)?;
    let read: AuditLine = serde_json::from_str(&format!("{kept}}}")).ok()?;
    let seq = read.seq;
    Some(Head { seq, hash })
}

/// A line without its hash and its last brace, and the hash.
fn split(line: &str) -> Option<(&str, [u8; HASH])> {
    let line = line.strip_suffix(AFTER)?;
    let at = line.len().checked_sub(HASH * 2)?;
    let (kept, hash) = (line.get(..at)?, line.get(at..)?);
    Some((kept.strip_suffix(BEFORE)?, unhex(hash)?))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Only the digits that [`hex`] writes: of two spellings of a hash one was not written by a host.
fn unhex(text: &str) -> Option<[u8; HASH]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != HASH * 2 {
        return None;
    }
    let mut bytes = [0; HASH];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

impl AuditLine {
    /// The value of a line for people and programs, with its hash left out.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::AuditEvent;
    use super::*;

    fn lines(count: u64, key: Option<&Key>) -> Vec<String> {
        let mut head = Head::default();
        (1..=count)
            .map(|seq| {
                let mut record = AuditRecord::new(AuditEvent::Ended);
                record.call = Some(seq % 3);
                record.tool = Some("täöl \"x\"".to_owned());
                let at = "2026-01-01T00:00:00.000Z".to_owned();
                let (line, next) = head.extend(record, at, seq == 1, key);
                head = next;
                line
            })
            .collect()
    }

    /// The number of lines before the first one that is refused; all if none is.
    fn accepted(lines: &[String], key: Option<&Key>) -> usize {
        let mut verifier = Verifier::new(key.cloned());
        let refused = lines.iter().position(|line| verifier.check(line).is_err());
        refused.unwrap_or(lines.len())
    }

    fn keys() -> [Option<Key>; 2] {
        [None, Some(Key::new(b"0123456789abcdef").unwrap())]
    }

    #[test]
    fn hmac_is_that_of_rfc_4231() {
        let key = Key::new(&[0xaa; 131]).unwrap();
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        let expected = "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54";
        assert_eq!(hex(&key.sign(&[text])), expected);
        assert_eq!(hex(&key.sign(&[&text[..9], &text[9..]])), expected);
        assert_eq!(Key::new(b" 0123456789abcde\n").unwrap_err(), KeyError);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for key in keys() {
            let whole = lines(3, key.as_ref());
            assert_eq!(accepted(&whole, key.as_ref()), 3);
            for (number, line) in whole.iter().enumerate() {
                for at in 0..line.len() * 8 {
                    let mut bytes = line.clone().into_bytes();
                    bytes[at / 8] ^= 1 << (at % 8);
                    // The reader of a file refuses bytes that are not UTF-8, and a line break makes two lines.
                    let Ok(changed) = String::from_utf8(bytes) else {
                        continue;
                    };
                    let mut flipped = whole.clone();
                    flipped[number] = changed;
                    assert_eq!(
                        accepted(&flipped, key.as_ref()),
                        number,
                        "line {number} bit {at}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_chain_that_is_made_anew_needs_the_key() {
        let [_, key] = keys();
        let rewritten = lines(5, None);
        assert_eq!(accepted(&rewritten, key.as_ref()), 0);
        let other = Key::new(b"another key of 16").unwrap();
        assert_eq!(accepted(&lines(5, Some(&other)), key.as_ref()), 0);
        assert_eq!(accepted(&lines(5, key.as_ref()), None), 0);
    }

    #[test]
    fn files_of_one_chain_follow_each_other() {
        let mut verifier = Verifier::new(None);
        let first = lines(2, None);
        for line in &first {
            verifier.check(line).unwrap();
        }
        let record = || AuditRecord::new(AuditEvent::Continued);
        let (line, _) = verifier
            .head()
            .unwrap()
            .extend(record(), String::new(), true, None);
        assert_eq!(
            verifier.check(&line),
            Err(ChainError::Start),
            "in the same file"
        );
        verifier.begin_file();
        assert_eq!(verifier.check(&line).unwrap().seq, 3);
        let mut alone = Verifier::new(None);
        assert_eq!(alone.check(&line).unwrap().seq, 3, "a later file alone");
        let (forged, _) = Head {
            seq: 0,
            hash: [1; 32],
        }
        .extend(record(), String::new(), true, None);
        assert_eq!(Verifier::new(None).check(&forged), Err(ChainError::Start));
    }

    proptest! {
        #[test]
        fn a_removed_repeated_or_moved_line_is_found(
            count in 2..12_usize,
            from in 0..12_usize,
            to in 0..12_usize,
            how in 0..3_u8,
            keyed in any::<bool>(),
        ) {
            let key = keys()[usize::from(keyed)].clone();
            let whole = lines(count as u64, key.as_ref());
            let (from, to) = (from % count, to % count);
            let mut changed = whole.clone();
            match how {
                // The last line can be cut off: the anchor finds that.
                0 if from + 1 < count => { changed.remove(from); }
                1 => changed.insert(to, whole[from].clone()),
                2 if from != to => changed.swap(from, to),
                _ => return Ok(()),
            }
            prop_assert!(accepted(&changed, key.as_ref()) < changed.len());
        }

        #[test]
        fn no_text_makes_the_verifier_panic(text in ".{0,200}") {
            let _ = Verifier::new(None).check(&text);
            let _ = stated_head(&text);
        }
    }
}
