//! JSON text that is known to be valid, kept and passed on byte for byte.
//!
//! [`Json`] is what crosses the host: arguments and results are never rebuilt from a tree, so
//! numbers, key order, escapes and unknown fields survive. Cloning is cheap because a call's
//! arguments are kept for a possible replay.

use std::fmt;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// One valid JSON value without line breaks, as text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Json(Arc<str>);

impl Json {
    /// The text of a value that serialises.
    ///
    /// The types that we serialise have string keys and finite numbers; should one not
    /// serialise, the value is `null`, which every schema check downstream refuses.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Self {
        Self(
            serde_json::to_string(value)
                .unwrap_or_else(|_| "null".to_owned())
                .into(),
        )
    }

    /// Takes over text that a strict scan has already accepted; checked again only in debug
    /// builds. Line breaks between tokens are removed, since one value is one line.
    pub fn from_scanned(text: &str) -> Self {
        debug_assert!(
            serde_json::from_str::<&RawValue>(text).is_ok(),
            "scanned text is JSON"
        );
        if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_some() {
            // Inside a string a line break can only be an escape, so these stand between tokens.
            Self(text.replace(['\n', '\r'], " ").into())
        } else {
            Self(text.into())
        }
    }

    /// Parses text from somewhere that was not scanned.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<&RawValue>(text).map(|raw| Self::from_scanned(raw.get()))
    }

    /// `{}`.
    pub fn empty_object() -> Self {
        Self("{}".into())
    }

    /// `null`.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if both are clones of one text.
    pub fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The value as a tree, for schema checks.
    pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// Length of the text in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never true: valid JSON is not empty. Here because `len` is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        Self(value.to_string().into())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer).map_err(D::Error::custom)?;
        Ok(Self::from_scanned(raw.get()))
    }
}

/// Builds one JSON object out of raw members, without a tree.
#[derive(Debug)]
pub struct ObjectWriter {
    text: String,
}

impl ObjectWriter {
    /// An object that will take about `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut text = String::with_capacity(capacity);
        text.push('{');
        Self { text }
    }

    /// Adds a member whose value is raw JSON. `key` is one of ours and needs no escapes.
    #[must_use]
    pub fn raw(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        self.text.push_str(value);
        self
    }

    /// Adds a member whose value is a string.
    #[must_use]
    pub fn string(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        push_string(&mut self.text, value);
        self
    }

    /// Adds a member whose value is serialised.
    #[must_use]
    pub fn value<T: Serialize + ?Sized>(self, key: &str, value: &T) -> Self {
        let json = Json::from_serialize(value);
        self.raw(key, json.as_str())
    }

    /// Adds a member whose value is raw JSON, if there is one.
    #[must_use]
    pub fn optional_raw(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.raw(key, value),
            None => self,
        }
    }

    /// Adds a member whose value is a string, if there is one.
    #[must_use]
    pub fn optional_string(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.string(key, value),
            None => self,
        }
    }

    /// Adds a member whose value is serialised, if there is one.
    #[must_use]
    pub fn optional_value<T: Serialize>(self, key: &str, value: Option<T>) -> Self {
        match value {
            Some(value) => self.value(key, &value),
            None => self,
        }
    }

    /// Adds the members of an object that is already text.
    #[must_use]
    pub fn members_of(mut self, object: &str) -> Self {
        let inner = object.trim();
        let inner = inner
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        if let Some(members) = inner.map(str::trim).filter(|members| !members.is_empty()) {
            if self.text.len() > 1 {
                self.text.push(',');
            }
            self.text.push_str(members);
        }
        self
    }

    /// The finished text.
    pub fn finish(mut self) -> String {
        self.text.push('}');
        self.text
    }

    fn key(&mut self, key: &str) {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        push_string(&mut self.text, key);
        self.text.push(':');
    }
}

/// Appends one member name or index to a JSON pointer (RFC 6901).
pub fn push_pointer_part(pointer: &mut String, part: &str) {
    pointer.push('/');
    for character in part.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

/// Appends `value` as a JSON string.
pub fn push_string(out: &mut String, value: &str) {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    out.push('"');
    let mut rest = value;
    let must_escape = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    while let Some(at) = rest.bytes().position(must_escape) {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        let mut chars = tail.chars();
        match chars.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(control) => {
                let code = control as usize;
                out.push_str("\\u00");
                out.extend(HEX.get(code >> 4 & 0xf));
                out.extend(HEX.get(code & 0xf));
            }
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_kept_byte_for_byte() {
        let text = r#"{"b":1.0,"a":12345678901234567890123,"b":"\u0041"}"#;
        assert_eq!(Json::parse(text).unwrap().as_str(), text);
    }

    #[test]
    fn line_breaks_between_tokens_become_spaces() {
        let json = Json::parse("{\n\"a\":\r\n1}").unwrap();
        assert_eq!(json.as_str(), "{ \"a\":  1}");
    }

    #[test]
    fn objects_are_joined_without_a_tree() {
        let joined = ObjectWriter::with_capacity(16)
            .raw("id", "1.0")
            .members_of("{ }")
            .members_of(r#" {"x":[1,2]} "#)
            .string("y", "q\"\\\n\u{1}")
            .finish();
        assert_eq!(joined, r#"{"id":1.0,"x":[1,2],"y":"q\"\\\n\u0001"}"#);
    }

    proptest! {
        #[test]
        fn strings_round_trip(text in any::<String>()) {
            let mut out = String::new();
            push_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}
