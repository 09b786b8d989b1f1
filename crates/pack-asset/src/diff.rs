//! The difference between two documents: a JSON Patch (RFC 6902) of `add`, `remove` and
//! `replace`.
//!
//! Only objects are looked into; everything else, arrays included, is replaced whole. So no path
//! is a prefix of another and none counts elements: the operations are independent of each other,
//! and sorting them by path cannot make the patch wrong.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mainstay_worker::{ObjectWriter, push_pointer_part};

use crate::exact::{Exact, Kind};

/// Bytes that a patch may have, values included; it must fit a worker's frame.
pub(crate) const MAX_PATCH_BYTES: usize = 8 * 1024 * 1024;

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change<'d, 'a> {
    pub(crate) path: String,
    pub(crate) op: Op,
    /// The new value; none for a removal.
    pub(crate) value: Option<&'d Exact<'a>>,
}

/// In the order in which they stand where their paths are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    Remove,
    Add,
    Replace,
}

impl Op {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::Add => "add",
            Self::Replace => "replace",
        }
    }
}

/// The patch would have more than [`MAX_PATCH_BYTES`]: a few long member names above many changes
/// are repeated in every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// The operations that make `new` of `base`, sorted by path.
pub(crate) fn diff<'d, 'a>(
    base: &Exact<'_>,
    new: &'d Exact<'a>,
) -> Result<Vec<Change<'d, 'a>>, TooLarge> {
    let mut walk = Walk {
        path: String::new(),
        changes: Vec::new(),
        bytes: 0,
    };
    walk.compare(base, new)?;
    walk.changes
        .sort_by(|one, two| (&one.path, one.op).cmp(&(&two.path, two.op)));
    Ok(walk.changes)
}

impl Change<'_, '_> {
    /// The new value, written in one way, however the document was.
    pub(crate) fn value_text(&self) -> Option<String> {
        self.value.map(Exact::compact)
    }

    /// The operation as JSON, with its value as [`Self::value_text`] gives it.
    pub(crate) fn operation(&self, value: Option<&str>) -> String {
        let capacity = self.path.len() + value.map_or(0, str::len) + 64;
        let object = ObjectWriter::with_capacity(capacity)
            .string("op", self.op.as_str())
            .string("path", &self.path);
        match value {
            Some(value) => object.raw("value", value).finish(),
            None => object.finish(),
        }
    }
}

struct Walk<'d, 'a> {
    path: String,
    changes: Vec<Change<'d, 'a>>,
    bytes: usize,
}

impl<'d, 'a> Walk<'d, 'a> {
    /// Goes no deeper than the documents, which are bounded.
    fn compare(&mut self, base: &Exact<'_>, new: &'d Exact<'a>) -> Result<(), TooLarge> {
        match (&base.kind, &new.kind) {
            (Kind::Object(base), Kind::Object(new)) => self.members(base, new),
            _ if base == new => Ok(()),
            _ => self.add(Op::Replace, Some(new)),
        }
    }

    fn members(
        &mut self,
        base: &BTreeMap<Cow<'_, str>, Exact<'_>>,
        new: &'d BTreeMap<Cow<'a, str>, Exact<'a>>,
    ) -> Result<(), TooLarge> {
        for (name, before) in base {
            let name = name.as_ref();
            match new.get(name) {
                Some(after) => self.at(name, |walk| walk.compare(before, after))?,
                None => self.at(name, |walk| walk.add(Op::Remove, None))?,
            }
        }
        for (name, after) in new {
            let name = name.as_ref();
            if !base.contains_key(name) {
                self.at(name, |walk| walk.add(Op::Add, Some(after)))?;
            }
        }
        Ok(())
    }

    fn at(
        &mut self,
        name: &str,
        visit: impl FnOnce(&mut Self) -> Result<(), TooLarge>,
    ) -> Result<(), TooLarge> {
        let parent = self.path.len();
        push_pointer_part(&mut self.path, name);
        visit(self)?;
        self.path.truncate(parent);
        Ok(())
    }

    fn add(&mut self, op: Op, value: Option<&'d Exact<'a>>) -> Result<(), TooLarge> {
        // Before the path is copied, since it is what may be large.
        self.bytes = self
            .bytes
            .saturating_add(self.path.len() + value.map_or(0, |value| value.text.len()));
        if self.bytes > MAX_PATCH_BYTES {
            return Err(TooLarge);
        }
        self.changes.push(Change {
            path: self.path.clone(),
            op,
            value,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(base: &str, new: &str) -> String {
        let (base, new) = (Exact::parse(base).unwrap(), Exact::parse(new).unwrap());
        let changes = diff(&base, &new).unwrap();
        let operations = changes
            .iter()
            .map(|change| change.operation(change.value_text().as_deref()));
        operations.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn members_are_added_removed_and_replaced() {
        let found = patch(
            r#"{"a":1,"b":{"c":[1,2],"d":null},"e":0}"#,
            r#"{"b":{"c":[2,1],"d":null,"x":null},"e":0,"n":{"deep":{}}}"#,
        );
        let expected = r#"{"op":"remove","path":"/a"}
{"op":"replace","path":"/b/c","value":[2,1]}
{"op":"add","path":"/b/x","value":null}
{"op":"add","path":"/n","value":{"deep":{}}}"#;
        assert_eq!(found, expected);
    }

    #[test]
    fn the_whole_document_is_replaced_where_it_is_not_an_object_on_both_sides() {
        assert_eq!(
            patch("[1]", "{}"),
            r#"{"op":"replace","path":"","value":{}}"#
        );
        assert_eq!(
            patch("1", "1.0"),
            r#"{"op":"replace","path":"","value":1.0}"#
        );
        assert_eq!(patch("[1]", "[ 1 ]"), "");
    }

    #[test]
    fn paths_are_sorted_as_they_are_written() {
        // Among the names '/' comes before 'a'; its escape comes after.
        let found = patch("{}", r#"{"/":1,"a":2,"":3,"~":4}"#);
        let paths: Vec<&str> = found
            .lines()
            .map(|line| line.split('"').nth(7).unwrap())
            .collect();
        assert_eq!(paths, ["/", "/a", "/~0", "/~1"]);
    }

    #[test]
    fn numbers_travel_as_they_are_written() {
        let found = patch(
            r#"{"a":12345678901234567890123}"#,
            r#"{"a":12345678901234567890124,"b":1.500e+2}"#,
        );
        assert!(
            found.contains(r#""value":12345678901234567890124}"#),
            "{found}"
        );
        assert!(found.contains(r#""value":1.500e+2}"#), "{found}");
    }

    #[test]
    fn a_patch_over_its_limit_is_refused_before_it_is_made() {
        let name = "n".repeat(400_000);
        let members = |value: u8| -> String {
            let members: Vec<String> = (0..100).map(|n| format!("\"{n}\":{value}")).collect();
            format!("{{\"{name}\":{{{}}}}}", members.join(","))
        };
        let (base, new) = (members(1), members(2));
        let (base, new) = (Exact::parse(&base).unwrap(), Exact::parse(&new).unwrap());
        assert_eq!(diff(&base, &new), Err(TooLarge));
    }
}
