//! JSON as people keep it in configuration files: comments and trailing commas are allowed,
//! everything else is as strict as JSON.
//!
//! Built on the lexer of `contract` and not on `jsonc-parser`, which rejects half of a surrogate
//! pair (clients write it into their files when they shorten texts) and accepts line breaks inside
//! strings. The tests compare both.

use std::borrow::Cow;

use mainstay_contract::scan::{Lexer, unquote};

use super::tree::{Kind, Member, Mistake, Node, Span};

/// Containers inside each other.
const DEPTH: usize = 128;
const BOM: &str = "\u{feff}";

/// Reads a whole text.
pub(super) fn parse(text: &str) -> Result<Node, Mistake> {
    let mut scanner = Scanner::new(text);
    if text.starts_with(BOM) {
        scanner.lexer.skip(BOM.len());
    }
    scanner.trivia()?;
    if scanner.lexer.at_end() {
        return Err(scanner.mistake("the file is empty"));
    }
    let root = scanner.value()?;
    scanner.trivia()?;
    if scanner.lexer.at_end() {
        Ok(root)
    } else {
        Err(scanner.mistake("something follows the end of the document"))
    }
}

/// The next byte that is neither white space nor part of a comment.
pub(super) fn skip_trivia(text: &str, at: usize) -> usize {
    let mut scanner = Scanner::new(text);
    scanner.lexer.skip(at);
    // A comment that does not end is not trivia; its beginning is the answer.
    let _ = scanner.trivia();
    scanner.lexer.position()
}

struct Scanner<'t> {
    lexer: Lexer<'t>,
    depth: usize,
}

impl<'t> Scanner<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            lexer: Lexer::lenient(text, DEPTH),
            depth: 0,
        }
    }

    fn mistake(&self, what: impl Into<String>) -> Mistake {
        mistake(self.lexer.position(), what)
    }

    /// Passes `byte`, if it is next.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.lexer.peek() == Some(byte);
        self.lexer.skip(usize::from(is_next));
        is_next
    }

    /// Goes past white space and comments.
    fn trivia(&mut self) -> Result<(), Mistake> {
        loop {
            self.lexer.space();
            let rest = self.lexer.remaining();
            let length = if rest.starts_with("//") {
                rest.find(['\n', '\r']).unwrap_or(rest.len())
            } else if let Some(inside) = rest.strip_prefix("/*") {
                let end = inside.find("*/");
                end.ok_or_else(|| self.mistake("this comment does not end"))? + 4
            } else {
                return Ok(());
            };
            self.lexer.skip(length);
        }
    }

    fn value(&mut self) -> Result<Node, Mistake> {
        let start = self.lexer.position();
        let kind = match self.lexer.peek() {
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b'"') => Kind::Text(self.string()?.1),
            Some(_) => self.word()?,
            None => return Err(self.mistake("the document ends where a value should be")),
        };
        Ok(Node {
            span: start..self.lexer.position(),
            kind,
        })
    }

    fn nested(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Kind, Mistake>,
    ) -> Result<Kind, Mistake> {
        if self.depth == DEPTH {
            let what = format!("more than {DEPTH} objects and lists are inside each other");
            return Err(self.mistake(what));
        }
        self.depth += 1;
        self.lexer.skip(1);
        let kind = read(self)?;
        self.depth -= 1;
        Ok(kind)
    }

    fn object(&mut self) -> Result<Kind, Mistake> {
        let mut members = Vec::new();
        loop {
            self.trivia()?;
            if self.take(b'}') {
                return Ok(Kind::Table(members));
            }
            if self.lexer.peek() != Some(b'"') {
                return Err(self.mistake("a name in double quotes or } should be here"));
            }
            let (key, name) = self.string()?;
            self.trivia()?;
            if !self.take(b':') {
                return Err(self.mistake("a colon should be here"));
            }
            self.trivia()?;
            let value = self.value()?;
            members.push(Member { name, key, value });
            self.separator(b'}', "a comma or } should be here")?;
        }
    }

    fn array(&mut self) -> Result<Kind, Mistake> {
        let mut items = Vec::new();
        loop {
            self.trivia()?;
            if self.take(b']') {
                return Ok(Kind::List(items));
            }
            items.push(self.value()?);
            self.separator(b']', "a comma or ] should be here")?;
        }
    }

    /// A comma, or the end, which is left where it is.
    fn separator(&mut self, end: u8, wanted: &str) -> Result<(), Mistake> {
        self.trivia()?;
        if self.take(b',') || self.lexer.peek() == Some(end) {
            Ok(())
        } else {
            Err(self.mistake(wanted))
        }
    }

    /// A text: where it is with its quotes, and its content.
    fn string(&mut self) -> Result<(Span, String), Mistake> {
        let start = self.lexer.position();
        if self.lexer.string().is_err() {
            return Err(match self.lexer.peek() {
                None => mistake(start, "this text does not end"),
                Some(b'\\') => self.mistake("this escape is not known"),
                Some(_) => self.mistake("a text may not contain this character"),
            });
        }
        let raw = self.lexer.since(start);
        // Half of a surrogate pair, which some programs write, has no meaning as text; such a text
        // is never a name or a command, so it stands for itself.
        let said = unquote(raw).map_or_else(|| raw.to_owned(), Cow::into_owned);
        Ok((start..self.lexer.position(), said))
    }

    /// A number, or one of the three words.
    fn word(&mut self) -> Result<Kind, Mistake> {
        let start = self.lexer.position();
        let is_value = self.lexer.scalar().is_ok();
        let goes_on = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        if !is_value || self.lexer.peek().is_some_and(goes_on) {
            return Err(mistake(start, "a value should be here"));
        }
        Ok(Kind::Other)
    }
}

fn mistake(at: usize, what: impl Into<String>) -> Mistake {
    Mistake {
        at,
        what: what.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> (usize, String) {
        let mistake = parse(text).unwrap_err();
        (mistake.at, mistake.what)
    }

    #[test]
    fn values_are_found_where_they_stand() {
        let text =
            "\u{feff}// first\n{ \"a\" /* x */ : [\"é\", 1e400, null,], \"a\": {} , }\r\n/**/";
        let root = parse(text).unwrap();
        let members = root.members();
        assert_eq!(members.len(), 2, "a name may stand twice");
        assert_eq!(text.get(members[0].key.clone()), Some("\"a\""));
        assert_eq!(
            text.get(members[0].value.span.clone()),
            Some("[\"é\", 1e400, null,]")
        );
        let Kind::List(items) = &members[0].value.kind else {
            panic!("{root:?}")
        };
        assert_eq!(items[0].as_text(), Some("é"));
        assert!(root.get("a").unwrap().value.is_table(), "the last counts");
    }

    #[test]
    fn half_a_character_stands_for_itself() {
        let root = parse(r#"{"history": "\ud83d", "x\u0041": "y"}"#).unwrap();
        assert_eq!(
            root.get("history").unwrap().value.as_text(),
            Some(r#""\ud83d""#)
        );
        assert!(root.get("xA").is_some());
    }

    #[test]
    fn mistakes_have_their_place() {
        assert_eq!(said(" \n").1, "the file is empty");
        assert_eq!(said("{} x").0, 3);
        assert_eq!(said("{\"a\" 1}"), (5, "a colon should be here".into()));
        assert_eq!(
            said("{\"a\": 1 \"b\": 2}"),
            (8, "a comma or } should be here".into())
        );
        assert_eq!(
            said("{'a': 1}"),
            (1, "a name in double quotes or } should be here".into())
        );
        assert_eq!(said("[1,,2]"), (3, "a value should be here".into()));
        assert_eq!(said("[01]"), (1, "a value should be here".into()));
        assert_eq!(said("[NaN]").0, 1);
        assert_eq!(said("{\"a\": \"x"), (6, "this text does not end".into()));
        assert_eq!(said("[\"\\x\"]"), (2, "this escape is not known".into()));
        assert_eq!(said("[\"a\nb\"]").0, 3);
        assert_eq!(said("[ /*/ ]"), (2, "this comment does not end".into()));
        assert_eq!(
            said("["),
            (1, "the document ends where a value should be".into())
        );
        let deep = "[".repeat(DEPTH + 1);
        assert_eq!(said(&deep).0, DEPTH);
        let fits = format!("{}{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
        assert!(parse(&fits).is_ok());
    }
}
