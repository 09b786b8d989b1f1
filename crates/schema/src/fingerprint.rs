//! The identity of a JSON document: SHA-256 of its canonical text.

use std::{fmt, str::FromStr};

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 of a document's [canonical JSON](canonical_json).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// The text is not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is 64 hexadecimal digits")]
pub struct ParseFingerprintError;

impl Fingerprint {
    /// The fingerprint of `value`.
    pub fn of(value: &Value) -> Self {
        Self(Sha256::digest(canonical_json(value).as_bytes()).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = ParseFingerprintError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != 64 {
            return Err(ParseFingerprintError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let [high, low] = pair else {
                return Err(ParseFingerprintError);
            };
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Ok(Self(bytes))
    }
}

/// `value` as JSON without spaces, the members of each object sorted by the bytes of
/// their names. Numbers keep the form `serde_json` gives them: `1` and `1.0` differ.
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            // Sorted here: the order of `serde_json::Map` depends on a crate feature.
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (position, (name, member)) in members.into_iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_canonical(member, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

fn digit(byte: u8) -> Result<u8, ParseFingerprintError> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(ParseFingerprintError),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn canonical_json_sorts_members_and_has_no_spaces() {
        let value: Value =
            serde_json::from_str(r#"{ "b": [1, 2.5, "é\n"], "a": { "z": null, "y": true } }"#)
                .unwrap();
        assert_eq!(
            canonical_json(&value),
            r#"{"a":{"y":true,"z":null},"b":[1,2.5,"é\n"]}"#
        );
    }

    #[test]
    fn fingerprint_is_the_sha256_of_canonical_json() {
        assert_eq!(
            Fingerprint::of(&json!({})).to_string(),
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
        assert_eq!(
            Fingerprint::of(&json!({"a": 1, "b": 2})),
            Fingerprint::of(&json!({"b": 2, "a": 1}))
        );
        assert_ne!(Fingerprint::of(&json!(1)), Fingerprint::of(&json!("1")));
    }

    #[test]
    fn fingerprint_survives_its_text() {
        let fingerprint = Fingerprint::of(&json!("x"));
        let text = fingerprint.to_string();
        assert_eq!(text.parse(), Ok(fingerprint));
        assert_eq!(text.to_uppercase().parse(), Ok(fingerprint));
        assert!("".parse::<Fingerprint>().is_err());
        assert!("é".repeat(32).parse::<Fingerprint>().is_err());
        assert!("g".repeat(64).parse::<Fingerprint>().is_err());
    }
}
