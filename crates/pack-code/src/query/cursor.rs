//! Cursors: where a listing goes on, as opaque text that a client gives back.
//!
//! A cursor names a place in the total order, not a position in memory, so it outlives
//! generations and workers. It carries a fingerprint of the query it belongs to.

use std::fmt::Write as _;

use mainstay_worker::{ErrorKind, Problem};

/// A place after a hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) fingerprint: u32,
    /// What the pages before have counted.
    pub(crate) counted: u64,
    pub(crate) class: u8,
    pub(crate) repo: usize,
    pub(crate) path: String,
    /// The last line that was given out; `u64::MAX` when the file is done.
    pub(crate) line: u64,
}

impl Cursor {
    pub(crate) fn encode(&self) -> String {
        let mut text = format!(
            "c1-{:x}-{:x}-{:x}-{:x}-{:x}-",
            self.fingerprint, self.counted, self.class, self.repo, self.line
        );
        for byte in self.path.bytes() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    pub(crate) fn decode(text: &str, fingerprint: u32) -> Result<Self, Problem> {
        let cursor = Self::parse(text).ok_or_else(|| {
            Problem::new(ErrorKind::InvalidArguments, "the cursor is not one of ours").with_hint(
                "give back the cursor of the last answer as it is, or leave it out to begin again",
            )
        })?;
        if cursor.fingerprint != fingerprint {
            return Err(Problem::new(
                ErrorKind::InvalidArguments,
                "the cursor belongs to another query",
            )
            .with_hint(
                "repeat the query with the same arguments, or leave the cursor out to begin again",
            ));
        }
        Ok(cursor)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        if parts.next()? != "c1" {
            return None;
        }
        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let (fingerprint, counted, class, repo, line) =
            (number()?, number()?, number()?, number()?, number()?);
        let hex = parts.next()?;
        let (pairs, []) = hex.as_bytes().as_chunks::<2>() else {
            return None;
        };
        let bytes: Option<Vec<u8>> = pairs
            .iter()
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        Some(Self {
            fingerprint: u32::try_from(fingerprint).ok()?,
            counted,
            class: u8::try_from(class).ok()?,
            repo: usize::try_from(repo).ok()?,
            path: String::from_utf8(bytes?).ok()?,
            line,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_only_to_its_own_query() {
        let cursor = Cursor {
            fingerprint: 77,
            counted: 12,
            class: 3,
            repo: 1,
            path: "a-b/ü.rs".to_owned(),
            line: u64::MAX,
        };
        let text = cursor.encode();
        assert_eq!(Cursor::decode(&text, 77).unwrap(), cursor);
        assert!(
            Cursor::decode(&text, 78)
                .unwrap_err()
                .message
                .contains("another query")
        );
        for wrong in [
            "",
            "c1",
            "c1-1-2",
            "c1-g-0-0-0-0-",
            "c1-1-1-1-1-1-6",
            "c2-1-1-1-1-1-61",
        ] {
            assert!(Cursor::decode(wrong, 1).is_err(), "{wrong}");
        }
    }
}
