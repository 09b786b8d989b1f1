//! A configuration file as values with their places in the text, whatever it is written in.
//!
//! Nothing is ever written from a tree: a change is an edit of the text at a place that the tree
//! names, so everything else keeps its bytes. Members stand in the order of the text, and a name
//! may stand twice.

use std::fmt;
use std::ops::Range;

use super::{jsonc, toml_tree, yaml_tree};

/// A place in the text, in bytes.
pub(super) type Span = Range<usize>;

/// What a file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// JSON, with comments and trailing commas where somebody wrote them.
    Json,
    Toml,
    Yaml,
}

/// A file that was read whole.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) text: String,
    pub(super) syntax: Syntax,
    pub(super) root: Node,
}

/// A value and where it stands.
#[derive(Debug, PartialEq)]
pub(super) struct Node {
    pub(super) span: Span,
    pub(super) kind: Kind,
}

/// What a value is, as far as anybody here asks.
#[derive(Debug, PartialEq)]
pub(super) enum Kind {
    Text(String),
    List(Vec<Node>),
    Table(Vec<Member>),
    Other,
}

/// One member of a table.
#[derive(Debug, PartialEq)]
pub(super) struct Member {
    pub(super) name: String,
    /// Where the name stands, quotes included.
    pub(super) key: Span,
    pub(super) value: Node,
}

/// Why a text cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// The byte at which it shows.
    pub(super) at: usize,
    pub(super) what: String,
}

impl Document {
    /// Reads a text.
    pub(super) fn parse(text: &str, syntax: Syntax) -> Result<Self, Mistake> {
        let root = match syntax {
            Syntax::Json => jsonc::parse(text)?,
            Syntax::Toml => toml_tree::parse(text)?,
            Syntax::Yaml => yaml_tree::parse(text)?,
        };
        Ok(Self {
            text: text.to_owned(),
            syntax,
            root,
        })
    }

    /// The text at a place.
    pub(super) fn slice(&self, span: Span) -> &str {
        self.text.get(span).unwrap_or_default()
    }
}

impl Node {
    /// The members, where it is a table.
    pub(super) fn members(&self) -> &[Member] {
        match &self.kind {
            Kind::Table(members) => members,
            _ => &[],
        }
    }

    /// All members of this name.
    pub(super) fn all<'n>(&'n self, name: &'n str) -> impl Iterator<Item = &'n Member> {
        self.members()
            .iter()
            .filter(move |member| member.name == name)
    }

    /// The member of this name; the last one, if there are several, as most programs read it.
    pub(super) fn get(&self, name: &str) -> Option<&Member> {
        let mut members = self.members().iter();
        members.rfind(|member| member.name == name)
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) const fn is_table(&self) -> bool {
        matches!(self.kind, Kind::Table(_))
    }
}

/// A place as people count: lines and columns from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    line: usize,
    column: usize,
}

impl Position {
    /// The place of a byte of a text. What cannot be read as text counts as one column each.
    pub(super) fn of(bytes: &[u8], at: usize) -> Self {
        let before = bytes.get(..at).unwrap_or(bytes);
        let line_start = before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |newline| newline + 1);
        let on_line = before.get(line_start..).unwrap_or_default();
        Self {
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            column: String::from_utf8_lossy(on_line).chars().count() + 1,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_counted_in_lines_and_characters() {
        let text = "é\r\näb\n";
        let shown = |at| Position::of(text.as_bytes(), at).to_string();
        assert_eq!(shown(0), "line 1, column 1");
        assert_eq!(shown(2), "line 1, column 2");
        assert_eq!(shown(4), "line 2, column 1");
        assert_eq!(shown(6), "line 2, column 2");
        assert_eq!(shown(100), "line 3, column 1");
    }
}
