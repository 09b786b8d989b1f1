//! Identities: what a client calls its request, and what the host calls its own things.
//!
//! [`RequestId`] is a client's JSON-RPC id. It keeps the bytes it was written with, because the answer must
//! echo them: `1`, `1.0` and `"1"` are three ids that may be in flight together. Peers spell one number in
//! several ways, so answers and cancels are matched by value ([`crate::request_table`]).
//! [`CallId`], [`SessionId`] and [`Generation`] are the host's own numbers and never leave it as ids of the
//! protocol.
//!
//! Deliberately absent: allocation of the numbers (the kernel counts) and `null` as an id: a
//! message with it is not a request.

mod value;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use self::value::IdValue;
use crate::json::push_string;
use crate::scan::{Lexer, unquote};

/// A client's JSON-RPC id as its exact JSON text: a string with its quotes and escapes, or a
/// number.
///
/// Equality, order and hash are those of the text; [`RequestId::same_value`] compares by value. The text
/// holds no line break and no surrounding space, so it can be written into an answer as it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct RequestId(Box<str>);

/// The reason why a JSON text cannot be a request id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidId {
    #[error("an id must be a string or a number")]
    WrongType,
    #[error("the id is not well-formed JSON")]
    Malformed,
    #[error("the id is longer than {} bytes", RequestId::MAX_LEN)]
    TooLong,
}

impl RequestId {
    /// The longest id accepted, in bytes of its JSON text with quotes. Ids are kept for as long
    /// as a call lives, so they are bounded apart from the frame.
    pub const MAX_LEN: usize = 1024;

    /// Takes the JSON text of an id, without surrounding space.
    pub fn parse(raw: &str) -> Result<Self, InvalidId> {
        check(raw)?;
        Ok(Self(raw.into()))
    }

    /// The id that is this text as a JSON string; too long a text becomes a short one.
    pub fn from_text(text: &str) -> Self {
        let mut raw = String::with_capacity(text.len() + 2);
        push_string(&mut raw, text);
        if raw.len() > Self::MAX_LEN {
            return Self("\"too long\"".into());
        }
        Self(raw.into())
    }

    /// The JSON text as the client wrote it.
    pub fn as_raw(&self) -> &str {
        &self.0
    }

    /// The form in which a cancel may name this id when its type was lost on the way: the content
    /// of a string, the text of a number.
    pub fn lookup_form(&self) -> Cow<'_, str> {
        unquote(&self.0).unwrap_or(Cow::Borrowed(&self.0))
    }

    /// True if both ids stand for one value: `1`, `1.0` and `1e0` do, `1` and `"1"` do not.
    pub fn same_value(&self, other: &Self) -> bool {
        self.0 == other.0 || IdValue::of(&self.0) == IdValue::of(&other.0)
    }
}

/// True if `raw` may be a [`RequestId`], without making one.
pub(crate) fn check(raw: &str) -> Result<(), InvalidId> {
    if raw.len() > RequestId::MAX_LEN {
        return Err(InvalidId::TooLong);
    }
    let mut lexer = Lexer::new(raw, 0);
    let parsed = match lexer.peek() {
        Some(b'"') => lexer.string().is_ok(),
        Some(b'-' | b'0'..=b'9') => lexer.number().is_ok(),
        _ => return Err(InvalidId::WrongType),
    };
    if parsed && lexer.at_end() {
        Ok(())
    } else {
        Err(InvalidId::Malformed)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As a plain string of the JSON text: a restored id echoes the spelling of its client.
impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl TryFrom<String> for RequestId {
    type Error = InvalidId;

    fn try_from(raw: String) -> Result<Self, InvalidId> {
        check(&raw)?;
        Ok(Self(raw.into_boxed_str()))
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// One accepted call, for the life of the host.
    CallId
}

number! {
    /// One client's session, for the life of the host.
    SessionId
}

number! {
    /// One run of a worker; a successor has the next one.
    Generation
}

impl Generation {
    /// The successor's generation.
    #[must_use]
    pub const fn next(self) -> Self {
        // One generation a nanosecond would need centuries to get there.
        Self(self.0.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_kept_byte_for_byte() {
        for raw in [
            "1",
            "-0",
            "1.0",
            "1e400",
            "123456789012345678901234567890",
            r#""\u0061""#,
        ] {
            let id = RequestId::parse(raw).unwrap();
            assert_eq!(id.as_raw(), raw);
            assert_eq!(id.to_string(), raw);
        }
    }

    #[test]
    fn string_and_number_are_different_ids_with_one_lookup_form() {
        let number = RequestId::parse("1").unwrap();
        let string = RequestId::parse(r#""1""#).unwrap();
        assert_ne!(number, string);
        assert_eq!(number.lookup_form(), string.lookup_form());
        assert_eq!(
            RequestId::parse(r#""\u00e9\n""#).unwrap().lookup_form(),
            "é\n"
        );
    }

    #[test]
    fn only_whole_strings_and_numbers_are_ids() {
        for raw in [
            "",
            "null",
            "true",
            "[]",
            "{}",
            " 1",
            "nul",
            "\u{feff}1",
            "+1",
            ".5",
        ] {
            assert_eq!(RequestId::parse(raw), Err(InvalidId::WrongType), "{raw}");
        }
        for raw in [
            "1 ",
            "01",
            "1,",
            "-",
            "1.",
            "1e",
            "\"",
            "\"\n\"",
            r#""\ud800""#,
            r#""a"b"#,
        ] {
            assert_eq!(RequestId::parse(raw), Err(InvalidId::Malformed), "{raw}");
        }
    }

    #[test]
    fn id_of_exactly_the_bound_is_accepted() {
        let fits = "1".repeat(RequestId::MAX_LEN);
        assert_eq!(RequestId::parse(&fits).unwrap().as_raw(), fits);
        assert_eq!(
            RequestId::parse(&format!("{fits}1")),
            Err(InvalidId::TooLong)
        );
    }

    #[test]
    fn id_survives_a_snapshot_and_a_bad_one_does_not_come_back() {
        for raw in ["1.0", r#""a\"b""#] {
            let id = RequestId::parse(raw).unwrap();
            let stored = serde_json::to_string(&id).unwrap();
            assert_eq!(stored, serde_json::to_string(raw).unwrap());
            let restored: RequestId = serde_json::from_str(&stored).unwrap();
            assert_eq!(restored.as_raw(), id.as_raw());
        }
        assert!(serde_json::from_str::<RequestId>(r#""null""#).is_err());
        assert!(serde_json::from_str::<RequestId>("1").is_err());
    }

    #[test]
    fn numbers_are_plain_numbers_in_snapshots() {
        let generation = Generation::new(6).next();
        assert_eq!(generation.get(), 7);
        assert_eq!(serde_json::to_string(&generation).unwrap(), "7");
        assert_eq!(serde_json::from_str::<CallId>("7").unwrap(), CallId::new(7));
        assert_eq!(SessionId::new(3).to_string(), "3");
    }
}
