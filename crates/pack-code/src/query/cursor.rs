//! Cursors: where a listing goes on, as opaque text that a client gives back.
//!
//! A cursor knows the query it belongs to, how that query was read, and a place in the total order
//! of its hits, not a position in memory: so it outlives generations and workers. Where the order
//! itself may change with the tree ([`Cursor::Ranked`]) it knows which hits were given, and is
//! refused when these are no longer the first ones.

use std::cmp::Reverse;
use std::fmt::Write as _;

use mainstay_worker::{ErrorKind, Problem};

use crate::store::codec::checksum;

/// What a query was taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// What it was asked for, or what it looks like.
    #[default]
    Asked,
    /// An exact text, after something else found nothing.
    Literal,
    /// Words, after something else found nothing.
    Ranked,
    /// Its longest word, while there is no index.
    Word,
}

impl Reading {
    const ALL: [Self; 4] = [Self::Asked, Self::Literal, Self::Ranked, Self::Word];

    const fn sign(self) -> &'static str {
        match self {
            Self::Asked => "a",
            Self::Literal => "l",
            Self::Ranked => "r",
            Self::Word => "w",
        }
    }
}

/// The listing that a cursor belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Of the query and of everything else that makes another listing.
    pub(crate) fingerprint: u32,
    pub(crate) reading: Reading,
}

/// Where a listing goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cursor {
    Line(LineCursor),
    Hit(HitCursor),
    Ranked(RankedCursor),
}

/// A place between matching lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineCursor {
    pub(crate) listing: Listing,
    /// What the pages before have counted.
    pub(crate) counted: u64,
    pub(crate) class: u8,
    pub(crate) repo: usize,
    pub(crate) path: String,
    /// The last line that was given out; `u64::MAX` when the file is done.
    pub(crate) line: u64,
}

/// A place between hits whose scores depend on nothing but themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HitCursor {
    pub(crate) listing: Listing,
    /// Hits that the pages before gave.
    pub(crate) counted: u64,
    pub(crate) score: i64,
    pub(crate) repo: usize,
    pub(crate) path: String,
    pub(crate) line: u64,
    pub(crate) name: String,
}

/// A number of hits whose scores depend on the whole tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankedCursor {
    pub(crate) listing: Listing,
    pub(crate) counted: u64,
    /// Which hits these were, in any order; see [`mark`].
    pub(crate) given: u64,
}

/// The order of hits: by score, path, repository, line, name.
pub(crate) type HitKey<'a> = (Reverse<i64>, &'a str, usize, u64, &'a str);

impl HitCursor {
    pub(crate) fn key(&self) -> HitKey<'_> {
        (
            Reverse(self.score),
            &self.path,
            self.repo,
            self.line,
            &self.name,
        )
    }

    /// The place after a hit.
    pub(crate) fn after(listing: Listing, counted: u64, key: HitKey<'_>) -> Self {
        let (Reverse(score), path, repo, line, name) = key;
        Self {
            listing,
            counted,
            score,
            repo,
            path: path.to_owned(),
            line,
            name: name.to_owned(),
        }
    }
}

/// A score as a cursor has it: scores are rounded to the fourth place.
pub(crate) fn whole_score(score: f64) -> i64 {
    (score * 10_000.0).round() as i64
}

/// A number that stands for a file; the sum of several stands for all of them.
pub(crate) fn mark(repo: usize, path: &str) -> u64 {
    let sum = u64::from(checksum(path.as_bytes())) << 32 | repo as u64;
    let mixed = (sum ^ sum >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

impl LineCursor {
    pub(crate) fn encode(&self) -> String {
        let numbers = [
            self.counted,
            u64::from(self.class),
            self.repo as u64,
            self.line,
        ];
        encode("l", self.listing, &numbers, &[&self.path])
    }
}

impl HitCursor {
    pub(crate) fn encode(&self) -> String {
        let numbers = [
            self.counted,
            self.score.cast_unsigned(),
            self.repo as u64,
            self.line,
        ];
        encode("h", self.listing, &numbers, &[&self.path, &self.name])
    }
}

impl RankedCursor {
    pub(crate) fn encode(&self) -> String {
        encode("r", self.listing, &[self.counted, self.given], &[])
    }
}

fn encode(sort: &str, listing: Listing, numbers: &[u64], texts: &[&str]) -> String {
    let mut out = format!(
        "c2{sort}-{:x}-{}",
        listing.fingerprint,
        listing.reading.sign()
    );
    for number in numbers {
        let _ = write!(out, "-{number:x}");
    }
    for text in texts {
        out.push('-');
        for byte in text.bytes() {
            let _ = write!(out, "{byte:02x}");
        }
    }
    out
}

impl Cursor {
    pub(crate) fn decode(text: &str, fingerprint: u32) -> Result<Self, Problem> {
        let cursor = Self::parse(text).ok_or_else(not_ours)?;
        if cursor.listing().fingerprint != fingerprint {
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

    pub(crate) const fn listing(&self) -> Listing {
        match self {
            Self::Line(cursor) => cursor.listing,
            Self::Hit(cursor) => cursor.listing,
            Self::Ranked(cursor) => cursor.listing,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let sort = parts.next()?;
        let fingerprint = u32::from_str_radix(parts.next()?, 16).ok()?;
        let sign = parts.next()?;
        let reading = Reading::ALL
            .into_iter()
            .find(|reading| reading.sign() == sign)?;
        let listing = Listing {
            fingerprint,
            reading,
        };
        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let cursor = match sort {
            "c2l" => Self::Line(LineCursor {
                listing,
                counted: number()?,
                class: u8::try_from(number()?).ok()?,
                repo: usize::try_from(number()?).ok()?,
                line: number()?,
                path: unhex(parts.next()?)?,
            }),
            "c2h" => Self::Hit(HitCursor {
                listing,
                counted: number()?,
                score: number()?.cast_signed(),
                repo: usize::try_from(number()?).ok()?,
                line: number()?,
                path: unhex(parts.next()?)?,
                name: unhex(parts.next()?)?,
            }),
            "c2r" => Self::Ranked(RankedCursor {
                listing,
                counted: number()?,
                given: number()?,
            }),
            _ => return None,
        };
        parts.next().is_none().then_some(cursor)
    }
}

fn unhex(hex: &str) -> Option<String> {
    let (pairs, []) = hex.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let bytes: Option<Vec<u8>> = pairs
        .iter()
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    String::from_utf8(bytes?).ok()
}

/// A text that no answer has had as its cursor.
pub(crate) fn not_ours() -> Problem {
    Problem::new(ErrorKind::InvalidArguments, "the cursor is not one of ours").with_hint(
        "give back the cursor of the last answer as it is, or leave it out to begin again",
    )
}

/// The order has changed since the cursor was given.
pub(crate) fn outdated() -> Problem {
    Problem::new(
        ErrorKind::InvalidArguments,
        "the tree has changed since the cursor was given, and with it the order of the hits before it",
    )
    .with_hint("leave the cursor out to begin again; kind literal, regex, symbol and path go on after changes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursors() -> [Cursor; 3] {
        let listing = Listing {
            fingerprint: 77,
            reading: Reading::Word,
        };
        [
            Cursor::Line(LineCursor {
                listing,
                counted: 12,
                class: 3,
                repo: 1,
                path: "a-b/ü.rs".to_owned(),
                line: u64::MAX,
            }),
            Cursor::Hit(HitCursor {
                listing,
                counted: 12,
                score: -450,
                repo: 1,
                path: "a-b/ü.rs".to_owned(),
                line: 7,
                name: String::new(),
            }),
            Cursor::Ranked(RankedCursor {
                listing,
                counted: 12,
                given: u64::MAX - 5,
            }),
        ]
    }

    #[test]
    fn a_cursor_comes_back_only_to_its_own_query() {
        for cursor in cursors() {
            let text = match &cursor {
                Cursor::Line(cursor) => cursor.encode(),
                Cursor::Hit(cursor) => cursor.encode(),
                Cursor::Ranked(cursor) => cursor.encode(),
            };
            assert_eq!(Cursor::decode(&text, 77).unwrap(), cursor);
            let other = Cursor::decode(&text, 78).unwrap_err();
            assert!(other.message.contains("another query"));
            assert!(Cursor::decode(&format!("{text}-0"), 77).is_err());
            assert!(Cursor::decode(&text.replace("-w-", "-x-"), 77).is_err());
        }
        for wrong in [
            "",
            "c2l",
            "c2l-1-a-2",
            "c2l-g-a-0-0-0-",
            "c2l-1-a-1-1-1-1-6",
            "c1-1-1-1-1-1-61",
        ] {
            assert!(Cursor::decode(wrong, 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn marks_tell_files_and_repositories_apart() {
        assert_ne!(mark(0, "a"), mark(1, "a"));
        assert_ne!(mark(0, "a"), mark(0, "b"));
        let sum = |files: &[&str]| {
            files
                .iter()
                .fold(0_u64, |sum, path| sum.wrapping_add(mark(0, path)))
        };
        assert_eq!(sum(&["a", "b"]), sum(&["b", "a"]));
        assert_ne!(sum(&["a", "b"]), sum(&["a", "c"]));
    }
}
