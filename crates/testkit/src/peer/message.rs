//! One line that a peer received, kept as it was written.
//!
//! The members are found with the JSON library and not with the product's own scan: a test must
//! not trust what it tests.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context as _;
use serde_json::Value;
use serde_json::value::RawValue;

/// A message and its top-level members as the texts they were written with.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    text: String,
    members: BTreeMap<String, String>,
}

impl Message {
    /// Takes a line, which must be one JSON object.
    pub fn parse(line: &[u8]) -> anyhow::Result<Self> {
        let text = std::str::from_utf8(line).context("the line is not UTF-8")?;
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(text)
            .with_context(|| format!("the line is no JSON object: {}", shortened(text)))?;
        let members = members
            .into_iter()
            .map(|(key, value)| (key, value.get().to_owned()))
            .collect();
        Ok(Self {
            text: text.to_owned(),
            members,
        })
    }

    /// The line.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The JSON text of a top-level member.
    pub fn member(&self, key: &str) -> Option<&str> {
        self.members.get(key).map(String::as_str)
    }

    /// The JSON text of the id: `null` when it says so, nothing when there is none.
    pub fn id(&self) -> Option<&str> {
        self.member("id")
    }

    /// The method of a request or notification.
    pub fn method(&self) -> Option<String> {
        serde_json::from_str(self.member("method")?).ok()
    }

    /// The whole message as a tree. A member that the library cannot hold, such as the id
    /// `1e400`, is its text.
    pub fn value(&self) -> Value {
        let tree = |raw: &String| serde_json::from_str(raw).unwrap_or_else(|_| raw.clone().into());
        let members = self
            .members
            .iter()
            .map(|(key, raw)| (key.clone(), tree(raw)));
        Value::Object(members.collect())
    }

    /// The value at a pointer, `null` where there is none.
    pub fn at(&self, pointer: &str) -> Value {
        self.value().pointer(pointer).cloned().unwrap_or_default()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(shortened(&self.text))
    }
}

/// The beginning of a text that may be too long for a failure message.
pub(crate) fn shortened(text: &str) -> &str {
    match text.char_indices().nth(600) {
        Some((cut, _)) => text.get(..cut).unwrap_or_default(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_what_was_written_and_null_is_not_absent() {
        let id = |line: &str| {
            Message::parse(line.as_bytes())
                .unwrap()
                .id()
                .map(str::to_owned)
        };
        assert_eq!(id(r#"{"id": 1.0}"#).as_deref(), Some("1.0"));
        assert_eq!(id(r#"{"id":"\u0031"}"#).as_deref(), Some(r#""\u0031""#));
        assert_eq!(id(r#"{"id":null}"#).as_deref(), Some("null"));
        assert_eq!(id("{}"), None);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for line in [&b"[]"[..], b"1", b"{} {}", b"\xff", b""] {
            assert!(Message::parse(line).is_err());
        }
    }
}
