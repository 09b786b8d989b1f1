//! Data that only the hosts of one fleet can read and make.
//!
//! * [`KeyRing`]: the keys of a fleet key file. The first one seals, all of them open, so keys can be
//!   rotated while every host keeps serving;
//! * [`Purpose`]: what a message is for. A message opens only for the purpose for which it was sealed.
//!
//! Theory of operation. HKDF-SHA256 derives a key of its own for every message, from the fleet key, 24 random
//! bytes and the purpose. AES-256-GCM seals the message under that key, once, so its nonce is constant and
//! no number of messages makes a nonce repeat. The authenticated data is everything that precedes the
//! ciphertext, followed by the caller's context.
//!
//! A sealed message is `1`, the length of the key's id, the id, the random bytes, the ciphertext and its tag.
//!
//! Deliberately absent: files, clocks and expiry, encodings as text, and which data is worth sealing.

mod ring;

pub use self::ring::{
    DIGEST_BYTES, KEY_ID_BYTES, KEYS, KeyRing, KeyRingError, OVERHEAD, OpenError, Purpose,
    SealError, key_id,
};
