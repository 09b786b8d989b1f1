//! JSON as people keep it in configuration files: comments and trailing commas are allowed,
//! everything else is as strict as JSON.
//!
//! A scanner of our own instead of a library: all that is needed are the places of values, and no
//! library that edits such files leaves every other byte as it was. It is compared with one in the
//! tests.

use serde_json::value::RawValue;

use super::tree::{Kind, Member, Mistake, Node, Span};

/// Containers inside each other.
const DEPTH: usize = 128;
const BOM: &str = "\u{feff}";

/// Reads a whole text.
pub(super) fn parse(text: &str) -> Result<Node, Mistake> {
    let mut scanner = Scanner {
        text,
        at: if text.starts_with(BOM) { BOM.len() } else { 0 },
        depth: 0,
    };
    scanner.trivia()?;
    if scanner.peek().is_none() {
        return Err(scanner.mistake("the file is empty"));
    }
    let root = scanner.value()?;
    scanner.trivia()?;
    match scanner.peek() {
        None => Ok(root),
        Some(_) => Err(scanner.mistake("something follows the end of the document")),
    }
}

/// The next byte that is neither white space nor part of a comment.
pub(super) fn skip_trivia(text: &str, at: usize) -> usize {
    let mut scanner = Scanner { text, at, depth: 0 };
    // A comment that does not end is no trivia; its beginning is the answer.
    let _ = scanner.trivia();
    scanner.at
}

struct Scanner<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn mistake(&self, what: impl Into<String>) -> Mistake {
        Mistake {
            at: self.at,
            what: what.into(),
        }
    }

    /// Goes past white space and comments.
    fn trivia(&mut self) -> Result<(), Mistake> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(b'/') if self.rest().starts_with("//") => {
                    self.at += self.rest().find(['\n', '\r']).unwrap_or(self.rest().len());
                }
                Some(b'/') if self.rest().starts_with("/*") => {
                    // The slash of the opening may not close it.
                    let inside = self.rest().get(2..).unwrap_or_default();
                    match inside.find("*/") {
                        Some(end) => self.at += end + 4,
                        None => return Err(self.mistake("this comment does not end")),
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    fn value(&mut self) -> Result<Node, Mistake> {
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b'"') => Kind::Text(self.string()?.1),
            Some(_) => self.word()?,
            None => return Err(self.mistake("the document ends where a value should be")),
        };
        Ok(Node {
            span: start..self.at,
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
        self.at += 1;
        let kind = read(self)?;
        self.depth -= 1;
        Ok(kind)
    }

    fn object(&mut self) -> Result<Kind, Mistake> {
        let mut members = Vec::new();
        loop {
            self.trivia()?;
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Kind::Table(members));
                }
                Some(b'"') => {}
                _ => return Err(self.mistake("a name in double quotes or } should be here")),
            }
            let (key, name) = self.string()?;
            self.trivia()?;
            if self.peek() != Some(b':') {
                return Err(self.mistake("a colon should be here"));
            }
            self.at += 1;
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
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(Kind::List(items));
            }
            items.push(self.value()?);
            self.separator(b']', "a comma or ] should be here")?;
        }
    }

    /// A comma, or the end, which is left where it is.
    fn separator(&mut self, end: u8, wanted: &str) -> Result<(), Mistake> {
        self.trivia()?;
        match self.peek() {
            Some(b',') => self.at += 1,
            Some(byte) if byte == end => {}
            _ => return Err(self.mistake(wanted)),
        }
        Ok(())
    }

    /// A text: where it stands with its quotes, and what it says.
    fn string(&mut self) -> Result<(Span, String), Mistake> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(byte) if byte >= b' ' => self.at += 1,
                Some(_) => return Err(self.mistake("a text may not contain this character")),
                None => {
                    self.at = start;
                    return Err(self.mistake("this text does not end"));
                }
            }
        }
        self.at += 1;
        let span = start..self.at;
        let raw = self.text.get(span.clone()).unwrap_or_default();
        // Halves of characters, which some programs write, have no meaning as text; such a text
        // is nobody's name or command, so it may stand for itself.
        let said = serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned());
        Ok((span, said))
    }

    fn escape(&mut self) -> Result<(), Mistake> {
        let rest = self.rest().as_bytes();
        let length = match rest.get(1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u')
                if rest
                    .get(2..6)
                    .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) =>
            {
                6
            }
            _ => return Err(self.mistake("this escape is not known")),
        };
        self.at += length;
        Ok(())
    }

    /// A number, or one of the three words.
    fn word(&mut self) -> Result<Kind, Mistake> {
        let ends = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        let length = self.rest().find(ends).unwrap_or(self.rest().len());
        let word = self.rest().get(..length).unwrap_or_default();
        if word.is_empty() || serde_json::from_str::<&RawValue>(word).is_err() {
            return Err(self.mistake("a value should be here"));
        }
        self.at += length;
        Ok(Kind::Other)
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
