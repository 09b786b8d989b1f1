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
use mainstay_worker::push_pointer_part;
use mainstay_worker::render::shorten;
use mainstay_worker::scan::Lexer;
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
            lexer: Lexer::new(text, MAX_DEPTH),
            path: Vec::new(),
        };
        reader.lexer.space();
        let document = reader.value()?;
        reader.lexer.space();
        if reader.lexer.at_end() {
            Ok(document)
        } else {
            Err(reader.wrong("is followed by more than one document"))
        }
    }

    /// The value as a tree for schema checks. A number that no machine number can stand for
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
        push_pointer_part(&mut pointer, part.as_ref());
    }
    pointer
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
    lexer: Lexer<'a>,
    path: Vec<Cow<'a, str>>,
}

impl<'a> Reader<'a> {
    /// Reads the value that begins here.
    fn value(&mut self) -> Result<Exact<'a>, Violation> {
        let start = self.lexer.position();
        let kind = match self.lexer.peek() {
            Some(b'{') => self.object()?,
            Some(b'[') => self.list()?,
            Some(b'"') => Kind::Text(self.lexer.text().map_err(|_| self.not_json())?),
            _ => {
                self.lexer.scalar().map_err(|_| self.not_json())?;
                Kind::Plain
            }
        };
        let text = self.lexer.since(start);
        Ok(Exact { text, kind })
    }

    fn check_depth(&self) -> Result<(), Violation> {
        // The path has one part per container that is open.
        if self.path.len() == MAX_DEPTH {
            return Err(self.wrong(&format!("is nested more than {MAX_DEPTH} levels deep")));
        }
        Ok(())
    }

    fn object(&mut self) -> Result<Kind<'a>, Violation> {
        self.check_depth()?;
        let mut members = BTreeMap::new();
        let mut key = self.lexer.first_key();
        while let Some(name) = key.map_err(|_| self.not_json())? {
            self.path.push(name.name().map_err(|_| self.not_json())?);
            let member = self.value()?;
            let name = self.path.pop().unwrap_or_default();
            match members.entry(name) {
                Entry::Vacant(free) => free.insert(member),
                Entry::Occupied(taken) => {
                    let shown = shorten(taken.key(), 60);
                    return Err(self.wrong(&format!("member \"{shown}\" is given twice")));
                }
            };
            key = self.lexer.next_key();
        }
        Ok(Kind::Object(members))
    }

    fn list(&mut self) -> Result<Kind<'a>, Violation> {
        self.check_depth()?;
        let mut elements = Vec::new();
        let mut more = self.lexer.first_item();
        while more.map_err(|_| self.not_json())? {
            self.path.push(Cow::Owned(elements.len().to_string()));
            elements.push(self.value()?);
            self.path.pop();
            more = self.lexer.next_item();
        }
        Ok(Kind::List(elements))
    }

    fn wrong(&self, message: &str) -> Violation {
        violation(&self.path, message)
    }

    /// A strict scan or a parser has accepted the text before; this is reported only if a caller
    /// forgets that.
    fn not_json(&self) -> Violation {
        self.wrong("is not JSON")
    }
}

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
