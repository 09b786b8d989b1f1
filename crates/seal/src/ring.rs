//! The ring of keys: read from text, seals and opens messages.

use std::collections::BTreeSet;
use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use thiserror::Error;

/// Most keys of one ring: the one that seals and those before it.
pub const KEYS: usize = 8;
/// Longest id of a key.
pub const KEY_ID_BYTES: usize = 16;
/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Random bytes of a message, from which its key is derived.
const SALT_BYTES: usize = 24;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 16;
/// Bytes of an authentication tag.
const TAG_BYTES: usize = 16;
/// The version of the format, which is the first byte of a message.
const FORMAT: u8 = 1;
/// Most bytes that sealing adds to a message.
pub const OVERHEAD: usize = 2 + KEY_ID_BYTES + SALT_BYTES + TAG_BYTES;

/// The use of a message. Two purposes never share a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose(&'static str);

impl Purpose {
    /// `name` must differ from the names of all other purposes of the fleet, for ever.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }
}

/// Why a text is not a ring of keys.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyRingError {
    #[error("it holds no key")]
    Empty,
    #[error("it holds more than {KEYS} keys")]
    TooMany,
    #[error("line {line} is not an id and a key")]
    Words { line: usize },
    #[error(
        "line {line}: an id has 1 to {KEY_ID_BYTES} lower-case letters, digits, dots or dashes"
    )]
    Id { line: usize },
    #[error("line {line}: a key has 64 hexadecimal digits")]
    Key { line: usize },
    #[error("line {line} repeats an id")]
    SameId { line: usize },
    #[error("line {line} repeats a key under another id")]
    SameKey { line: usize },
}

/// A message cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SealError {
    #[error("the system has no random bytes")]
    Random,
    #[error("the message is too long")]
    Long,
}

/// A message cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    #[error("it is not a sealed message")]
    Malformed,
    #[error("it is sealed under a key that is not in the ring")]
    UnknownKey,
    #[error("it was changed, or sealed with another key, purpose or context")]
    Refused,
}

/// The keys of a fleet.
#[derive(Clone)]
pub struct KeyRing {
    /// Sealing takes the first one.
    keys: Vec<Key>,
}

#[derive(Clone)]
struct Key {
    id: String,
    secret: [u8; KEY_BYTES],
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.keys.iter().map(|key| &key.id);
        f.debug_tuple("KeyRing")
            .field(&ids.collect::<Vec<_>>())
            .finish()
    }
}

impl KeyRing {
    /// Reads a ring: one key on each line, `ID KEY`. Empty lines and lines that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Self, KeyRingError> {
        let mut keys: Vec<Key> = Vec::new();
        let (mut ids, mut secrets) = (BTreeSet::new(), BTreeSet::new());
        for (line, content) in text.lines().enumerate() {
            let (line, content) = (line + 1, content.trim());
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let mut words = content.split_ascii_whitespace();
            let (Some(id), Some(secret), None) = (words.next(), words.next(), words.next()) else {
                return Err(KeyRingError::Words { line });
            };
            if !is_id(id) {
                return Err(KeyRingError::Id { line });
            }
            let secret = decode(secret).ok_or(KeyRingError::Key { line })?;
            if !ids.insert(id) {
                return Err(KeyRingError::SameId { line });
            }
            if !secrets.insert(secret) {
                return Err(KeyRingError::SameKey { line });
            }
            if keys.len() == KEYS {
                return Err(KeyRingError::TooMany);
            }
            let id = id.to_owned();
            keys.push(Key { id, secret });
        }
        if keys.is_empty() {
            return Err(KeyRingError::Empty);
        }
        Ok(Self { keys })
    }

    /// The id of the key that seals.
    pub fn sealing_id(&self) -> &str {
        self.keys.first().map_or("", |key| &key.id)
    }

    /// Seals a message. It opens only with the same context, which is not part of it.
    pub fn seal(
        &self,
        purpose: Purpose,
        context: &[u8],
        message: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        // `parse` makes no empty ring.
        let key = self.keys.first().ok_or(SealError::Random)?;
        let mut salt = [0; SALT_BYTES];
        let filled = SystemRandom::new().fill(&mut salt);
        filled.map_err(|_| SealError::Random)?;
        let mut sealed = Vec::with_capacity(OVERHEAD + message.len());
        // Checked when the key was read.
        let id_length = u8::try_from(key.id.len()).unwrap_or(u8::MAX);
        sealed.extend([FORMAT, id_length]);
        sealed.extend(key.id.as_bytes());
        sealed.extend(salt);
        let aad = [&sealed, context].concat();
        let mut text = message.to_vec();
        let tag = key
            .derived(purpose, &salt)
            .and_then(|key| {
                let aad = Aad::from(aad);
                key.seal_in_place_separate_tag(nonce(), aad, &mut text).ok()
            })
            .ok_or(SealError::Long)?;
        sealed.extend(text);
        sealed.extend(tag.as_ref());
        Ok(sealed)
    }

    /// A digest of a text that nothing but this ring can compute or guess, the same on every host of the fleet.
    ///
    /// The key whose id sorts first makes it, wherever it stands: neither a new key with a later id nor another order
    /// changes a digest, and the removal of that key changes all.
    pub fn digest(&self, purpose: Purpose, parts: &[&[u8]]) -> [u8; DIGEST_BYTES] {
        let secret = self.keys.iter().min_by_key(|key| &key.id);
        let secret: &[u8] = secret.map_or(&[], |key| &key.secret);
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let key = hmac::sign(&key, purpose.0.as_bytes());
        let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_ref());
        let mut signing = hmac::Context::with_key(&key);
        for part in parts {
            // Lengths keep two lists of parts apart whose bytes are the same.
            signing.update(&(part.len() as u64).to_be_bytes());
            signing.update(part);
        }
        let signed = signing.sign();
        let mut digest = [0; DIGEST_BYTES];
        for (place, byte) in digest.iter_mut().zip(signed.as_ref()) {
            *place = *byte;
        }
        digest
    }

    /// Opens a message that was sealed for this purpose and with this context.
    pub fn open(
        &self,
        purpose: Purpose,
        context: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, OpenError> {
        let parts = Parts::of(sealed).ok_or(OpenError::Malformed)?;
        let known = self.keys.iter().find(|key| key.id.as_bytes() == parts.id);
        let key = known.ok_or(OpenError::UnknownKey)?;
        let mut text = parts.ciphertext.to_vec();
        let aad = Aad::from([parts.head, context].concat());
        let opened = key.derived(purpose, parts.salt).and_then(|key| {
            let opened = key.open_in_place(nonce(), aad, &mut text).ok()?;
            Some(opened.len())
        });
        text.truncate(opened.ok_or(OpenError::Refused)?);
        Ok(text)
    }
}

/// The id of the key under which a message is sealed, if it is one. Nothing of it has been authenticated.
pub fn key_id(sealed: &[u8]) -> Option<&str> {
    std::str::from_utf8(Parts::of(sealed)?.id).ok()
}

impl Key {
    /// The key of one message.
    fn derived(&self, purpose: Purpose, salt: &[u8]) -> Option<LessSafeKey> {
        let secret = Salt::new(HKDF_SHA256, salt).extract(&self.secret);
        let info = [purpose.0.as_bytes()];
        let derived = secret.expand(&info, &AES_256_GCM).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(derived)))
    }
}

/// A message, in its parts.
struct Parts<'a> {
    /// Everything before the ciphertext.
    head: &'a [u8],
    id: &'a [u8],
    salt: &'a [u8],
    /// With its tag.
    ciphertext: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(sealed: &'a [u8]) -> Option<Self> {
        let [FORMAT, id_length, rest @ ..] = sealed else {
            return None;
        };
        let (id, rest) = rest.split_at_checked(usize::from(*id_length))?;
        let (salt, ciphertext) = rest.split_at_checked(SALT_BYTES)?;
        if ciphertext.len() < TAG_BYTES {
            return None;
        }
        let head = sealed.get(..sealed.len() - ciphertext.len())?;
        Some(Self {
            head,
            id,
            salt,
            ciphertext,
        })
    }
}

/// Every message has a key of its own, so one nonce is enough.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

fn is_id(text: &str) -> bool {
    let is_good =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    (1..=KEY_ID_BYTES).contains(&text.len()) && text.bytes().all(is_good)
}

fn decode(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut secret = [0; KEY_BYTES];
    if text.len() != 2 * KEY_BYTES {
        return None;
    }
    let (pairs, _) = text.as_bytes().as_chunks::<2>();
    for (byte, pair) in secret.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let [high, low] = *pair;
        *byte = u8::try_from(digit(high)? * 16 + digit(low)?).ok()?;
    }
    Some(secret)
}
