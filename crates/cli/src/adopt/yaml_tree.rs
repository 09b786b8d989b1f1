//! YAML as a tree of places; reading is the work of the crate `saphyr-parser`.
//!
//! Only values that an edit can move are texts here: quoted or plain, on one line, without a tag, an anchor or an alias.
//! Everything else is [`Kind::Other`], so a server that is written that way is left alone.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span as Place, StrInput};

use super::tree::{Kind, Member, Mistake, Node, Span};

/// Mappings and sequences inside each other.
const DEPTH: usize = 128;
const BOM: &str = "\u{feff}";

/// Reads a whole text: one document.
pub(super) fn parse(text: &str) -> Result<Node, Mistake> {
    let body = text.strip_prefix(BOM).unwrap_or(text);
    let before = text.len() - body.len();
    let mut offsets: Vec<usize> = body.char_indices().map(|(at, _)| before + at).collect();
    offsets.push(text.len());
    let mut reader = Reader {
        parser: Parser::new_from_str(body),
        text,
        offsets,
        depth: 0,
    };
    reader.document()
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    text: &'t str,
    /// The byte of each character, and of the end.
    offsets: Vec<usize>,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn document(&mut self) -> Result<Node, Mistake> {
        let mut root = None;
        loop {
            let (event, place) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
                Event::StreamEnd => break,
                _ if root.is_some() => {
                    let at = self.byte(place.start.index());
                    let what = "a second document begins here".to_owned();
                    return Err(Mistake { at, what });
                }
                event => root = Some(self.node(event, place)?),
            }
        }
        root.ok_or_else(|| Mistake {
            at: self.text.len(),
            what: "the file is empty".to_owned(),
        })
    }

    fn next(&mut self) -> Result<(Event<'t>, Place), Mistake> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(self.mistake(&error)),
            None => Ok((Event::StreamEnd, Place::default())),
        }
    }

    fn mistake(&self, error: &ScanError) -> Mistake {
        Mistake {
            at: self.byte(error.marker().index()),
            what: error.info().to_owned(),
        }
    }

    fn byte(&self, character: usize) -> usize {
        let end = self.text.len();
        self.offsets.get(character).copied().unwrap_or(end)
    }

    fn span(&self, start: Place, end: Place) -> Span {
        self.byte(start.start.index())..self.byte(end.end.index())
    }

    /// The value that begins with an event.
    fn node(&mut self, event: Event<'t>, place: Place) -> Result<Node, Mistake> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let span = self.span(place, place);
                let is_plain = anchor == 0 && tag.is_none();
                Ok(self.scalar(&text, style, is_plain, span))
            }
            Event::SequenceStart(anchor, tag) => {
                let mut items = Vec::new();
                let end = self.nested(place, |reader, event, place| {
                    items.push(reader.node(event, place)?);
                    Ok(())
                })?;
                let is_plain = anchor == 0 && tag.is_none();
                Ok(Node {
                    span: self.span(place, end),
                    kind: if is_plain {
                        Kind::List(items)
                    } else {
                        Kind::Other
                    },
                })
            }
            Event::MappingStart(anchor, tag) => {
                let mut members = Vec::new();
                let end = self.nested(place, |reader, event, place| {
                    let key = reader.node(event, place)?;
                    let (event, place) = reader.next()?;
                    let value = reader.node(event, place)?;
                    let name = match key.kind {
                        Kind::Text(name) => name,
                        // A key such as 1 or ? [a]: its text serves as well, nothing looks for it.
                        _ => reader
                            .text
                            .get(key.span.clone())
                            .unwrap_or_default()
                            .to_owned(),
                    };
                    members.push(Member {
                        name,
                        key: key.span,
                        value,
                    });
                    Ok(())
                })?;
                let is_plain = anchor == 0 && tag.is_none();
                Ok(Node {
                    span: self.span(place, end),
                    kind: if is_plain {
                        Kind::Table(members)
                    } else {
                        Kind::Other
                    },
                })
            }
            _ => Ok(Node {
                span: self.span(place, place),
                kind: Kind::Other,
            }),
        }
    }

    /// Reads up to the end of a collection, and returns the place of that end.
    fn nested(
        &mut self,
        place: Place,
        mut read: impl FnMut(&mut Self, Event<'t>, Place) -> Result<(), Mistake>,
    ) -> Result<Place, Mistake> {
        if self.depth == DEPTH {
            return Err(Mistake {
                at: self.byte(place.start.index()),
                what: format!("more than {DEPTH} mappings and sequences are inside each other"),
            });
        }
        self.depth += 1;
        loop {
            let (event, place) = self.next()?;
            if matches!(
                event,
                Event::SequenceEnd | Event::MappingEnd | Event::StreamEnd
            ) {
                self.depth -= 1;
                return Ok(place);
            }
            read(self, event, place)?;
        }
    }

    /// A text, if it stands on one line in a form that can be moved. The parser's own span of it may reach over what
    /// follows, so its end is found here.
    fn scalar(&self, text: &str, style: ScalarStyle, is_plain: bool, span: Span) -> Node {
        let rest = self.text.get(span.start..).unwrap_or_default();
        let length = match style {
            ScalarStyle::Plain if !has_other_meaning(text) => {
                rest.starts_with(text).then_some(text.len())
            }
            ScalarStyle::SingleQuoted => {
                let raw = format!("'{}'", text.replace('\'', "''"));
                rest.starts_with(&raw).then_some(raw.len())
            }
            ScalarStyle::DoubleQuoted => double_quoted(rest),
            _ => None,
        };
        match length {
            Some(length) if is_plain => Node {
                span: span.start..span.start + length,
                kind: Kind::Text(text.to_owned()),
            },
            _ => Node {
                span,
                kind: Kind::Other,
            },
        }
    }
}

/// The length of a text in double quotes that ends on its line.
fn double_quoted(rest: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '\n' | '\r' => return None,
            '"' if !escaped => return Some(at + 1),
            _ => escaped = c == '\\' && !escaped,
        }
    }
    None
}

/// True for a plain scalar that YAML 1.1 or 1.2 reads as null, a truth value or a number.
fn has_other_meaning(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let words = [
        "", "~", "null", "true", "false", "yes", "no", "on", "off", ".nan",
    ];
    let unsigned = lower.trim_start_matches(['+', '-']);
    let begins_as_number = unsigned.starts_with(|c: char| c.is_ascii_digit());
    let is_number = begins_as_number
        && unsigned
            .chars()
            .all(|c| c.is_ascii_hexdigit() || matches!(c, '.' | '_' | 'x' | 'o' | ':' | '+' | '-'));
    words.contains(&lower.as_str()) || is_number || unsigned == ".inf"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<'t>(text: &'t str, node: &Node) -> &'t str {
        &text[node.span.clone()]
    }

    #[test]
    fn values_are_found_where_they_stand() {
        let yaml =
            "\u{feff}# é\na b: 'x' # c\r\nlist:\n  - -y\n  - \"é\"  \n  - 7\nflow: {k: [v, w]}\n";
        let root = parse(yaml).unwrap();
        let names: Vec<&str> = root.members().iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["a b", "list", "flow"]);
        let value = |name: &str| &root.get(name).unwrap().value;
        assert_eq!(text(yaml, value("a b")), "'x'");
        assert_eq!(value("a b").as_text(), Some("x"));
        let Kind::List(items) = &value("list").kind else {
            panic!("{:?}", value("list"));
        };
        let written: Vec<&str> = items.iter().take(2).map(|item| text(yaml, item)).collect();
        assert_eq!(written, ["-y", "\"é\""]);
        let texts: Vec<_> = items.iter().map(Node::as_text).collect();
        assert_eq!(texts, [Some("-y"), Some("é"), None], "7 is a number");
        assert!(text(yaml, value("flow")).starts_with('{'));
        let inner = &value("flow").get("k").unwrap().value;
        assert_eq!(text(yaml, inner), "[v, w]");
        assert_eq!(&yaml[root.get("list").unwrap().key.clone()], "list");
    }

    #[test]
    fn values_that_cannot_be_moved_are_not_texts() {
        let yaml = "a: &x one\nb: *x\nc: !t two\nd: |\n  three\ne: four\n  five\nf: \"six\n  seven\"\n\
                    g: true\nh: ~\ni: 1.5e3\nj: 0x1f\nk: 12:30\nl: &y {m: n}\n";
        let root = parse(yaml).unwrap();
        for member in root.members() {
            assert_eq!(member.value.kind, Kind::Other, "{}", member.name);
        }
        for plain in ["npx", "-", "a: b", "true story", "1 of 2", "v1", "@scope/x"] {
            let yaml = format!("a: '{plain}'");
            let root = parse(&yaml).unwrap();
            assert_eq!(root.get("a").unwrap().value.as_text(), Some(plain));
        }
    }

    #[test]
    fn mistakes_have_their_place() {
        assert_eq!(parse("").unwrap_err().what, "the file is empty");
        let two = "a: 1\n---\nb: 2\n";
        assert!(parse(two).unwrap_err().what.contains("second document"));
        assert!(parse("a: [1\nb: 2\n").is_err());
        assert!(parse(&"[".repeat(100_000)).is_err());
        let deep = format!("{}{}", "[".repeat(DEPTH + 1), "]".repeat(DEPTH + 1));
        assert!(parse(&deep).is_err());
    }
}
