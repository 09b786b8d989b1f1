//! One strict, linear look at a line before anything else believes it.
//!
//! [`scan`] checks a whole line: UTF-8, the grammar of RFC 8259, nesting, duplicate top-level
//! keys. It gives an [`Envelope`], the JSON texts of the members that JSON-RPC knows, as parts of
//! the line; what passes may be forwarded as bytes. [`members`], [`member`] and [`unquote`] look
//! further into such texts. [`head_id`] reads what it can from the beginning of a line that was
//! too long, [`legible_id`] the id of a line that is not a message.
//!
//! A line that is JSON but breaks a rule is still read to its end: the answer owes the client its
//! id, which may come last, and bad JSON anywhere outweighs everything else. That needs no
//! recursion and little memory: an eighth of the line for nesting past 128 levels (see
//! `nesting`), and a set of the top-level keys JSON-RPC does not know, which well-behaved
//! clients never send; at their shortest and most numerous it takes some ten bytes for each byte
//! of the line, until the scan returns.
//!
//! Deliberately absent: values (no tree is built), the meaning of the members (`"jsonrpc": 3` is
//! well-formed here), duplicate keys further in, and the range of numbers (`1e400` is grammar).

mod head;
mod legible;
mod lexer;
mod members;
mod nesting;

use std::borrow::Cow;
use std::collections::HashSet; // tidy: order-free

pub use self::head::{HeadFacts, head_id};
pub use self::legible::legible_id;
pub use self::lexer::{Key, Lexer, Malformed};
pub use self::members::{Members, member, members, unquote};
use crate::id;

/// The depth accepted unless configured otherwise: so many containers within each other, the
/// message itself included.
pub const DEFAULT_MAX_DEPTH: usize = 128;

/// The top-level members of a message, as the JSON texts they were written with.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Envelope<'a> {
    pub jsonrpc: Option<&'a str>,
    pub id: Option<&'a str>,
    pub method: Option<&'a str>,
    pub params: Option<&'a str>,
    pub result: Option<&'a str>,
    pub error: Option<&'a str>,
    /// A further member is named like `id`, `method` or `params`, except for the case of its letters.
    pub lookalike: bool,
    /// The whole line.
    pub text: &'a str,
}

/// The reason why a line is not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind} at byte {offset}")]
pub struct ScanError<'a> {
    pub kind: ScanErrorKind,
    /// The JSON text of the top-level `id`, if it may be a [`crate::id::RequestId`] and there are
    /// not two different ones. Never there with bad JSON, where nothing read can be relied on.
    pub id: Option<&'a str>,
    /// Where in the line.
    pub offset: usize,
}

/// The rule that a line breaks. Of several, the first in the line; but bad JSON goes before all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScanErrorKind {
    /// Not UTF-8, or not JSON. JSON-RPC: -32700, id null.
    #[error("bad JSON")]
    BadJson,
    /// JSON, but no object; batches are not supported. JSON-RPC: -32600.
    #[error("not an object")]
    NotAnObject,
    /// A top-level key twice, in any spelling. JSON-RPC: -32600.
    #[error("duplicate key")]
    DuplicateKey,
    /// More top-level members than any message has. JSON-RPC: -32600.
    #[error("too many members")]
    TooManyMembers,
    /// More containers within each other than allowed. JSON-RPC: -32600.
    #[error("nested too deep")]
    TooDeep,
}

/// Checks a line and finds its top-level members. At most `max_depth` containers may stand within
/// each other, the top-level object being the first.
pub fn scan(line: &[u8], max_depth: usize) -> Result<Envelope<'_>, ScanError<'_>> {
    scan_with(line, |text| Lexer::new(text, max_depth))
}

/// Scans a line that the host only forwards: escapes of unpaired surrogates, which are grammar but
/// no text, are left for its receiver to judge.
pub fn scan_passing(line: &[u8], max_depth: usize) -> Result<Envelope<'_>, ScanError<'_>> {
    scan_with(line, |text| Lexer::lenient(text, max_depth))
}

fn scan_with<'a>(
    line: &'a [u8],
    lexer: impl FnOnce(&'a str) -> Lexer<'a>,
) -> Result<Envelope<'a>, ScanError<'a>> {
    let bad_json = |offset| ScanError {
        kind: ScanErrorKind::BadJson,
        id: None,
        offset,
    };
    let text = std::str::from_utf8(line).map_err(|error| bad_json(error.valid_up_to()))?;
    let mut lexer = lexer(text);
    let mut message = Message::new(text);
    let is_json = message.read(&mut lexer).is_ok();
    lexer.space();
    if !is_json || !lexer.at_end() {
        return Err(bad_json(lexer.position()));
    }
    let deep = lexer
        .too_deep()
        .map(|offset| (ScanErrorKind::TooDeep, offset));
    let broken = message
        .broken
        .into_iter()
        .chain(deep)
        .min_by_key(|(_, offset)| *offset);
    match broken {
        None => Ok(message.envelope),
        Some((kind, offset)) => Err(ScanError {
            kind,
            id: message.id.usable(),
            offset,
        }),
    }
}

/// Most top-level members that JSON-RPC does not know: each costs time and memory until the line is read.
pub const MAX_OTHER_MEMBERS: usize = 100_000;

/// A message being read.
struct Message<'a> {
    envelope: Envelope<'a>,
    id: SeenId<'a>,
    /// Keys that JSON-RPC does not know. Its hashes are seeded, so a sender cannot aim for collisions.
    others: HashSet<Cow<'a, str>>, // tidy: order-free
    broken: Option<(ScanErrorKind, usize)>,
}

impl<'a> Message<'a> {
    fn new(text: &'a str) -> Self {
        let envelope = Envelope {
            text,
            ..Envelope::default()
        };
        Self {
            envelope,
            id: SeenId::Never,
            others: HashSet::new(), // tidy: order-free
            broken: None,
        }
    }

    fn read(&mut self, lexer: &mut Lexer<'a>) -> Result<(), Malformed> {
        lexer.space();
        if lexer.peek() != Some(b'{') {
            self.broken = Some((ScanErrorKind::NotAnObject, lexer.position()));
            return lexer.value();
        }
        let mut key = lexer.first_key()?;
        while let Some(name) = key {
            let start = lexer.position();
            lexer.value()?;
            let value = lexer.since(start);
            if self.add(name.name()?, value) {
                self.broken
                    .get_or_insert((ScanErrorKind::DuplicateKey, name.offset()));
            } else if self.others.len() > MAX_OTHER_MEMBERS {
                self.broken
                    .get_or_insert((ScanErrorKind::TooManyMembers, name.offset()));
            }
            key = lexer.next_key()?;
        }
        Ok(())
    }

    /// Takes a member and says whether there was one of that name.
    fn add(&mut self, name: Cow<'a, str>, value: &'a str) -> bool {
        let slot = match name.as_ref() {
            "jsonrpc" => &mut self.envelope.jsonrpc,
            "id" => {
                self.id.see(value);
                &mut self.envelope.id
            }
            "method" => &mut self.envelope.method,
            "params" => &mut self.envelope.params,
            "result" => &mut self.envelope.result,
            "error" => &mut self.envelope.error,
            _ => {
                let mut known = ["id", "method", "params"].into_iter();
                self.envelope.lookalike |= known.any(|known| name.eq_ignore_ascii_case(known));
                // One duplicate is enough: no need to remember more keys.
                return self.broken.is_none() && !self.others.insert(name);
            }
        };
        slot.replace(value).is_some()
    }
}

/// The ids that a line gives itself.
enum SeenId<'a> {
    Never,
    Once(&'a str),
    /// Different ones: whom an answer would reach is anybody's guess, so there is none.
    Several,
}

impl<'a> SeenId<'a> {
    fn see(&mut self, raw: &'a str) {
        match self {
            Self::Never => *self = Self::Once(raw),
            Self::Once(earlier) if *earlier == raw => {}
            Self::Once(_) | Self::Several => *self = Self::Several,
        }
    }

    /// The id that an answer may echo.
    fn usable(&self) -> Option<&'a str> {
        match self {
            Self::Once(raw) if id::check(raw).is_ok() => Some(raw),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: impl AsRef<[u8]>) -> Result<(), ScanErrorKind> {
        scan(line.as_ref(), DEFAULT_MAX_DEPTH)
            .map(|_| ())
            .map_err(|error| error.kind)
    }

    fn nested(depth: usize) -> String {
        format!(
            r#"{{"params":{}{},"id":5}}"#,
            "[".repeat(depth - 1),
            "]".repeat(depth - 1)
        )
    }

    #[test]
    fn a_message_with_members_without_end_is_refused_and_not_remembered() {
        let line = |members: usize| {
            let others: Vec<String> = (0..members).map(|n| format!("\"x{n}\":0")).collect();
            format!("{{\"id\":7,{}}}", others.join(","))
        };
        assert!(scan(line(MAX_OTHER_MEMBERS).as_bytes(), 8).is_ok());
        let text = line(MAX_OTHER_MEMBERS + 2);
        let error = scan(text.as_bytes(), 8).unwrap_err();
        assert_eq!(error.kind, ScanErrorKind::TooManyMembers);
        assert_eq!(error.id, Some("7"));
    }

    #[test]
    fn members_are_found_with_their_exact_text() {
        let line = r#" {"jsonrpc" : "2.0", "\u0069d":1.50 , "method":"a\u0062", "extra":[{}],
            "params":{ "id": 7 }, "result":null, "error":false} "#;
        let envelope = scan(line.as_bytes(), DEFAULT_MAX_DEPTH).unwrap();
        let expected = Envelope {
            jsonrpc: Some("\"2.0\""),
            id: Some("1.50"),
            method: Some(r#""a\u0062""#),
            params: Some(r#"{ "id": 7 }"#),
            result: Some("null"),
            error: Some("false"),
            lookalike: false,
            text: line,
        };
        assert_eq!(envelope, expected);
    }

    #[test]
    fn bad_json_is_refused_without_an_id() {
        for line in [
            &b""[..],
            b" ",
            b"{",
            b"}",
            b"{\"id\":1",
            b"{\"id\":1,}",
            b"{\"id\":1}x",
            b"{\"id\":1}{}",
            b"{\"id\":1,,\"a\":1}",
            b"{\"id\" 1}",
            b"{id:1}",
            b"{'id':1}",
            b"{\"id\":01}",
            b"{\"id\":-}",
            b"{\"id\":1.}",
            b"{\"id\":.1}",
            b"{\"id\":1e}",
            b"{\"id\":+1}",
            b"{\"id\":0x1}",
            b"{\"id\":NaN}",
            b"{\"id\":1,\"a\":[1,]}",
            b"{\"id\":1,\"a\":[}",
            b"{\"id\":1,\"a\":[}]",
            b"{\"id\":1,\"a\":{]}",
            b"{\"id\":1,\"a\":\"\x01\"}",
            b"{\"id\":1,\"a\":\"\0\"}",
            b"{\"id\":1}\0",
            b"\xef\xbb\xbf{\"id\":1}",
            b"{\"id\":1,\"a\":\"\xff\"}",
            b"{\"id\":1,\"a\":\"\xed\xa0\x80\"}",
            br#"{"id":1,"a":"\x"}"#,
            br#"{"id":1,"a":"\u12g4"}"#,
            br#"{"id":1,"a":"\u12"}"#,
            br#"{"id":1,"a":"\ud800"}"#,
            br#"{"id":1,"a":"\ud800x"}"#,
            br#"{"id":1,"a":"\ud800\n"}"#,
            br#"{"id":1,"a":"\ud800\ud800"}"#,
            br#"{"id":1,"a":"\udc00"}"#,
            br#"{"id":1,"\ud800":1}"#,
            b"[{\"id\":1}",
            b"tru",
            b"{\"id\":1,\"a\":truefalse}",
        ] {
            let error = scan(line, DEFAULT_MAX_DEPTH).unwrap_err();
            let shown = String::from_utf8_lossy(line);
            assert_eq!(
                (error.kind, error.id),
                (ScanErrorKind::BadJson, None),
                "{shown}"
            );
            assert!(error.offset <= line.len());
        }
    }

    #[test]
    fn unusual_but_correct_json_is_accepted() {
        for line in [
            r#"{}"#,
            "\t{ \r}\n",
            r#"{"":"","a":"\u0000\ud83d\ude00\uD83D\uDE00\"\\\/\b\f\n\r\t"}"#,
            r#"{"a":[-0,0.0,1E+5,1e-5,1e400,-1.5e10,100000000000000000000000]}"#,
            "{\"a\":\"\u{7f}\u{feff}\u{10ffff}\"}",
            r#"{"a":{"b":1,"b":2}}"#,
        ] {
            assert_eq!(kind(line), Ok(()), "{line}");
        }
    }

    #[test]
    fn other_json_is_not_an_object() {
        for line in ["[]", r#"[{"id":1}]"#, "1", "null", "\"{}\"", "[[[]]]"] {
            let error = scan(line.as_bytes(), 2).unwrap_err();
            assert_eq!(
                (error.kind, error.id),
                (ScanErrorKind::NotAnObject, None),
                "{line}"
            );
        }
    }

    #[test]
    fn depth_of_exactly_the_limit_is_accepted() {
        assert_eq!(kind(nested(128)), Ok(()));
        assert_eq!(kind(nested(129)), Err(ScanErrorKind::TooDeep));
        assert_eq!(scan(b"{}", 1).map(|envelope| envelope.text), Ok("{}"));
        assert!(scan(b"{\"a\":{}}", 1).is_err());
        assert!(scan(b"{}", 0).is_err());
    }

    #[test]
    fn too_deep_still_finds_the_id_after_it() {
        for depth in [129, 1000, 1_000_000] {
            let line = nested(depth);
            let error = scan(line.as_bytes(), DEFAULT_MAX_DEPTH).unwrap_err();
            let expected = ScanError {
                kind: ScanErrorKind::TooDeep,
                id: Some("5"),
                offset: 10 + 127,
            };
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn bad_json_outweighs_depth_and_duplicates() {
        let deep = "[".repeat(500_000);
        assert_eq!(kind(&deep), Err(ScanErrorKind::BadJson));
        assert_eq!(
            kind(nested(1000).replace("]]]", "]}]")),
            Err(ScanErrorKind::BadJson)
        );
        assert_eq!(kind(r#"{"id":1,"id":1"#), Err(ScanErrorKind::BadJson));
    }

    #[test]
    fn duplicate_top_level_keys_are_refused_in_any_spelling() {
        for line in [
            r#"{"a":1,"id":9,"a":1}"#,
            r#"{"a":1,"\u0061":1,"id":9}"#,
            r#"{"\u0061":1,"\u0061":1,"id":9}"#,
            r#"{"params":{},"id":9,"p\u0061rams":{}}"#,
            r#"{"":1,"":1,"id":9}"#,
            r#"{"id":9,"id":9}"#,
        ] {
            let error = scan(line.as_bytes(), DEFAULT_MAX_DEPTH).unwrap_err();
            assert_eq!(
                (error.kind, error.id),
                (ScanErrorKind::DuplicateKey, Some("9")),
                "{line}"
            );
        }
    }

    #[test]
    fn contradictory_or_unusable_ids_are_not_reported() {
        let long = "1".repeat(2000);
        for ids in [
            r#""id":1,"id":2"#,
            r#""id":1,"id":2,"id":1"#,
            r#""id":null"#,
            r#""id":[1]"#,
        ]
        .into_iter()
        .map(str::to_owned)
        .chain([format!(r#""id":{long}"#)])
        {
            let line = format!(r#"{{"a":1,{ids},"a":1}}"#);
            let error = scan(line.as_bytes(), DEFAULT_MAX_DEPTH).unwrap_err();
            assert_eq!(
                (error.kind, error.id),
                (ScanErrorKind::DuplicateKey, None),
                "{ids}"
            );
        }
    }

    #[test]
    fn hundred_thousand_keys_are_checked_to_the_last() {
        let mut line = String::from("{");
        for key in 0..100_000 {
            line.push_str(&format!("\"{key}\":0,"));
        }
        assert_eq!(kind(format!("{line}\"id\":1}}")), Ok(()));
        assert_eq!(
            kind(format!("{line}\"0\":1}}")),
            Err(ScanErrorKind::DuplicateKey)
        );
    }

    #[test]
    fn error_says_what_and_where() {
        assert_eq!(
            scan(b"{\"a\":x}", 1).unwrap_err().to_string(),
            "bad JSON at byte 5"
        );
    }
}
