//! JSON with the text of its numbers.
//!
//! A tree of floating-point numbers cannot tell `12345678901234567890123` from its neighbour, so
//! whatever compares or passes on documents works on [`Exact`]. It borrows from the text, keeps
//! members sorted, and refuses what two readers may understand differently: a member that is
//! given twice.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use mainstay_schema::Violation;
use mainstay_worker::render::shorten;
use serde_json::{Map, Number, Value};

/// Containers within each other in a document. Less than the 128 of a message, so that an answer
/// that holds a document is a message, too.
pub(crate) const MAX_DEPTH: usize = 100;

/// One value and the text it was written with.
#[derive(Clone, Debug)]
pub(crate) struct Exact<'a> {
    pub(crate) text: &'a str,
    pub(crate) kind: Kind<'a>,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind<'a> {
    /// A number, `true`, `false` or `null`: the text says it all.
    Plain,
    Text(Cow<'a, str>),
    List(Vec<Exact<'a>>),
    Object(BTreeMap<Cow<'a, str>, Exact<'a>>),
}

impl<'a> Exact<'a> {
    /// Reads a document. The violation says what is wrong with it, and where.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Violation> {
        let mut reader = Reader {
            text,
            position: 0,
            path: Vec::new(),
        };
        let document = reader.value()?;
        reader.space();
        if reader.position == text.len() {
            Ok(document)
        } else {
            Err(reader.wrong("is followed by more than one document"))
        }
    }

    /// The same value as a tree for schema checks. A number that no machine number can stand for
    /// is a violation.
    pub(crate) fn to_value(&self) -> Result<Value, Violation> {
        self.value_at(&mut Vec::new())
    }

    /// The value as text in one form: members sorted, no space, numbers as they were written.
    pub(crate) fn compact(&self) -> String {
        let mut text = String::with_capacity(self.text.len());
        self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) {
        match &self.kind {
            Kind::Plain => out.push_str(self.text),
            Kind::Text(text) => push_string(out, text),
            Kind::List(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    element.write(out);
                }
                out.push(']');
            }
            Kind::Object(members) => {
                out.push('{');
                for (index, (name, member)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    push_string(out, name);
                    out.push(':');
                    member.write(out);
                }
                out.push('}');
            }
        }
    }

    fn value_at(&self, path: &mut Vec<String>) -> Result<Value, Violation> {
        Ok(match &self.kind {
            Kind::Plain => match self.text {
                "null" => Value::Null,
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                number => match serde_json::from_str::<Number>(number) {
                    Ok(number) => Value::Number(number),
                    Err(_) => return Err(violation(path, "number is out of range")),
                },
            },
            Kind::Text(text) => Value::String(text.as_ref().to_owned()),
            Kind::List(elements) => {
                let mut list = Vec::with_capacity(elements.len());
                for (index, element) in elements.iter().enumerate() {
                    path.push(index.to_string());
                    list.push(element.value_at(path)?);
                    path.pop();
                }
                Value::Array(list)
            }
            Kind::Object(members) => {
                let mut object = Map::with_capacity(members.len());
                for (name, member) in members {
                    path.push(name.as_ref().to_owned());
                    object.insert(name.as_ref().to_owned(), member.value_at(path)?);
                    path.pop();
                }
                Value::Object(object)
            }
        })
    }
}

/// Equal means: of the same type, with the same content, numbers to the letter. `1` and `1.0` are
/// two values, and so are `1` and `true`; the order of members and the escapes of strings do not
/// count.
impl PartialEq for Exact<'_> {
    fn eq(&self, other: &Self) -> bool {
        if self.text == other.text {
            return true;
        }
        match (&self.kind, &other.kind) {
            (Kind::Text(one), Kind::Text(two)) => one == two,
            (Kind::List(one), Kind::List(two)) => one == two,
            (Kind::Object(one), Kind::Object(two)) => one == two,
            _ => false,
        }
    }
}

/// `/a/b~1c` of its parts.
pub(crate) fn pointer<S: AsRef<str>>(parts: &[S]) -> String {
    let mut pointer = String::new();
    for part in parts {
        push_part(&mut pointer, part.as_ref());
    }
    pointer
}

/// Appends one part to a pointer.
pub(crate) fn push_part(pointer: &mut String, part: &str) {
    pointer.push('/');
    for character in part.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

fn push_string(out: &mut String, text: &str) {
    // Writing text as JSON cannot fail.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

fn violation<S: AsRef<str>>(path: &[S], message: impl Into<String>) -> Violation {
    Violation {
        path: pointer(path),
        message: message.into(),
    }
}

struct Reader<'a> {
    text: &'a str,
    position: usize,
    path: Vec<Cow<'a, str>>,
}

impl<'a> Reader<'a> {
    fn value(&mut self) -> Result<Exact<'a>, Violation> {
        self.space();
        let start = self.position;
        let kind = match self.peek() {
            Some(b'{') => self.deeper(Self::object)?,
            Some(b'[') => self.deeper(Self::list)?,
            Some(b'"') => Kind::Text(self.string()?),
            _ => self.plain()?,
        };
        let text = self.text.get(start..self.position).unwrap_or_default();
        Ok(Exact { text, kind })
    }

    fn deeper(
        &mut self,
        read: fn(&mut Self) -> Result<Kind<'a>, Violation>,
    ) -> Result<Kind<'a>, Violation> {
        // The path has one part per container that is open.
        if self.path.len() == MAX_DEPTH {
            return Err(self.wrong(&format!("is nested more than {MAX_DEPTH} levels deep")));
        }
        self.position += 1;
        read(self)
    }

    fn object(&mut self) -> Result<Kind<'a>, Violation> {
        let mut members = BTreeMap::new();
        self.space();
        if self.take(b'}') {
            return Ok(Kind::Object(members));
        }
        loop {
            self.space();
            let name = self.string()?;
            self.space();
            if !self.take(b':') {
                return Err(self.wrong(NOT_JSON));
            }
            self.path.push(name);
            let member = self.value()?;
            let name = self.path.pop().unwrap_or_default();
            match members.entry(name) {
                Entry::Vacant(free) => free.insert(member),
                Entry::Occupied(taken) => {
                    let shown = shorten(taken.key(), 60);
                    return Err(self.wrong(&format!("member \"{shown}\" is given twice")));
                }
            };
            self.space();
            if self.take(b'}') {
                return Ok(Kind::Object(members));
            }
            if !self.take(b',') {
                return Err(self.wrong(NOT_JSON));
            }
        }
    }

    fn list(&mut self) -> Result<Kind<'a>, Violation> {
        let mut elements = Vec::new();
        self.space();
        if self.take(b']') {
            return Ok(Kind::List(elements));
        }
        loop {
            self.path.push(Cow::Owned(elements.len().to_string()));
            elements.push(self.value()?);
            self.path.pop();
            self.space();
            if self.take(b']') {
                return Ok(Kind::List(elements));
            }
            if !self.take(b',') {
                return Err(self.wrong(NOT_JSON));
            }
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Violation> {
        let start = self.position;
        if !self.take(b'"') {
            return Err(self.wrong(NOT_JSON));
        }
        let mut escaped = false;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.position += 2;
                }
                Some(_) => self.position += 1,
                None => return Err(self.wrong(NOT_JSON)),
            }
        }
        self.position += 1;
        let quoted = self.text.get(start..self.position).unwrap_or_default();
        if escaped {
            let text = serde_json::from_str(quoted).map_err(|_| self.wrong(NOT_JSON))?;
            return Ok(Cow::Owned(text));
        }
        let inner = quoted
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        inner.map(Cow::Borrowed).ok_or_else(|| self.wrong(NOT_JSON))
    }

    fn plain(&mut self) -> Result<Kind<'a>, Violation> {
        let start = self.position;
        while let Some(b'0'..=b'9' | b'a'..=b'z' | b'+' | b'-' | b'.' | b'E') = self.peek() {
            self.position += 1;
        }
        match self.text.get(start..self.position) {
            Some(text) if !text.is_empty() => Ok(Kind::Plain),
            _ => Err(self.wrong(NOT_JSON)),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.position += usize::from(is_next);
        is_next
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.position += 1;
        }
    }

    fn wrong(&self, message: &str) -> Violation {
        violation(&self.path, message)
    }
}

/// What is read here has been accepted by a strict scan or a parser before; this is said only if
/// that is ever forgotten.
const NOT_JSON: &str = "is not JSON";

#[cfg(test)]
mod tests {
    use super::*;

    fn same(one: &str, two: &str) -> bool {
        Exact::parse(one).unwrap() == Exact::parse(two).unwrap()
    }

    #[test]
    fn equality_is_strict_about_types_and_numbers_and_nothing_else() {
        for (one, two) in [
            ("{\"a\":1,\"b\":[2]}", " { \"b\" : [ 2 ] , \"a\" : 1 } "),
            ("\"\\u0041/\"", "\"A\\/\""),
            ("12345678901234567890123", "12345678901234567890123"),
            ("[]", "[ ]"),
            ("{}", "{\n}"),
        ] {
            assert!(same(one, two), "{one} {two}");
        }
        for (one, two) in [
            ("1", "1.0"),
            ("1", "true"),
            ("0", "false"),
            ("0", "-0"),
            ("100", "1e2"),
            ("null", "\"null\""),
            ("12345678901234567890123", "12345678901234567890124"),
            ("[1,2]", "[2,1]"),
            ("[]", "{}"),
            ("\"\"", "null"),
            ("{\"a\":null}", "{}"),
        ] {
            assert!(!same(one, two), "{one} {two}");
        }
    }

    #[test]
    fn a_member_given_twice_is_refused_with_its_place() {
        let wrong = Exact::parse(r#"{"a":[0,{"b/c":{"d":1,"\u0064":2}}]}"#).unwrap_err();
        assert_eq!(wrong.path, "/a/1/b~1c");
        assert_eq!(wrong.message, "member \"d\" is given twice");
    }

    #[test]
    fn depth_of_exactly_the_limit_is_read() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Exact::parse(&nested(MAX_DEPTH)).is_ok());
        let wrong = Exact::parse(&nested(MAX_DEPTH + 1)).unwrap_err();
        assert_eq!(wrong.path, "/0".repeat(MAX_DEPTH));
        assert!(wrong.message.contains("100 levels"), "{wrong:?}");
        assert!(Exact::parse(&"[".repeat(1_000_000)).is_err());
    }

    #[test]
    fn what_is_no_json_is_an_error_not_a_panic() {
        for text in [
            "",
            " ",
            "{",
            "}",
            "[1",
            "[1,]",
            "{\"a\"}",
            "{\"a\":}",
            "\"",
            "\"\\",
            "\"\\\"",
            "1 2",
            "{1:2}",
            "é",
            "[é]",
            "\"\\ud800\"",
            "\"\\é\"",
        ] {
            assert!(Exact::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_compact_form_is_the_same_for_equal_documents() {
        let text = "{ \"b\" : [ 1.0 , \"\\u0041\\/\" ] , \"a\" : { } }";
        assert_eq!(
            Exact::parse(text).unwrap().compact(),
            r#"{"a":{},"b":[1.0,"A/"]}"#
        );
    }

    #[test]
    fn a_tree_has_the_same_content() {
        let text = r#"{"b":[1,-2.5,true,null,"\u0041"],"a":{}}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(Exact::parse(text).unwrap().to_value().unwrap(), value);
        let wrong = Exact::parse(r#"{"a":[1e400]}"#).unwrap().to_value();
        assert_eq!(wrong.unwrap_err().path, "/a/0");
    }
}
