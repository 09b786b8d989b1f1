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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// One of the attempts that the query allows, by its number.
    Attempt(u8),
    /// Its longest word, while there is no index.
    Word,
}

impl Default for Reading {
    fn default() -> Self {
        Self::Attempt(0)
    }
}

impl Reading {
    fn sign(self) -> String {
        match self {
            Self::Attempt(number) => number.to_string(),
            Self::Word => "w".to_owned(),
        }
    }

    fn of_sign(sign: &str) -> Option<Self> {
        match sign {
            "w" => Some(Self::Word),
            number => number.parse().ok().map(Self::Attempt),
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
    Commit(CommitCursor),
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

/// A number of files whose scores depend on the whole tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankedCursor {
    pub(crate) listing: Listing,
    pub(crate) counted: u64,
    /// How many passages of the next file were given as well.
    pub(crate) passages: u64,
    /// Which files these were, in any order; see [`mark`].
    pub(crate) given: u64,
}

/// A place between commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommitCursor {
    pub(crate) listing: Listing,
    /// Commits that the pages before gave.
    pub(crate) counted: u64,
    pub(crate) repo: usize,
    pub(crate) commit: String,
}

/// What the text of each sort of cursor begins with.
const LINE: &str = "l3";
const HIT: &str = "h3";
const RANKED: &str = "r4";
const COMMIT: &str = "c1";

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
        encode(LINE, self.listing, &numbers, &[&self.path])
    }

    /// Moves the cursor of a hit with several matching lines back to one of them, after which the
    /// hit has `left` more.
    pub(crate) fn moved_back(text: &str, line: u64, left: u64) -> Option<String> {
        match Cursor::parse(text)? {
            Cursor::Line(cursor) => {
                let cursor = Self {
                    line,
                    counted: cursor.counted.saturating_sub(left),
                    ..cursor
                };
                Some(cursor.encode())
            }
            _ => None,
        }
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
        encode(HIT, self.listing, &numbers, &[&self.name, &self.path])
    }
}

impl RankedCursor {
    pub(crate) fn encode(&self) -> String {
        let numbers = [self.counted, self.passages, self.given];
        encode(RANKED, self.listing, &numbers, &[])
    }
}

impl CommitCursor {
    pub(crate) fn encode(&self) -> String {
        let numbers = [self.counted, self.repo as u64];
        encode(COMMIT, self.listing, &numbers, &[&self.commit])
    }
}

/// A cursor as text: signs and numbers between dashes, and the texts as they are behind them, the
/// last one without its length.
fn encode(sort: &str, listing: Listing, numbers: &[u64], texts: &[&str]) -> String {
    let mut out = format!(
        "{sort}-{:x}-{}",
        listing.fingerprint,
        listing.reading.sign()
    );
    for number in numbers {
        let _ = write!(out, "-{number:x}");
    }
    let last = texts.len().saturating_sub(1);
    for (at, text) in texts.iter().enumerate() {
        match at == last {
            true => out.push('-'),
            false => {
                let _ = write!(out, "-{:x}-", text.len());
            }
        }
        out.push_str(text);
    }
    out
}

/// The parts of a cursor's text.
struct Parts<'a>(Option<&'a str>);

impl<'a> Parts<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0?;
        let (part, rest) = match rest.split_once('-') {
            Some((part, rest)) => (part, Some(rest)),
            None => (rest, None),
        };
        self.0 = rest;
        Some(part)
    }

    fn number(&mut self) -> Option<u64> {
        u64::from_str_radix(self.next()?, 16).ok()
    }

    /// A text behind its length.
    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0?.split_at_checked(length)?;
        self.0 = Some(rest.strip_prefix('-')?);
        Some(text.to_owned())
    }

    /// The text at the end.
    fn rest(&mut self) -> Option<String> {
        self.0.take().map(str::to_owned)
    }
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
            Self::Commit(cursor) => cursor.listing,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = Parts(Some(text));
        let sort = parts.next()?;
        let fingerprint = u32::from_str_radix(parts.next()?, 16).ok()?;
        let reading = Reading::of_sign(parts.next()?)?;
        let listing = Listing {
            fingerprint,
            reading,
        };
        let cursor = match sort {
            LINE => Self::Line(LineCursor {
                listing,
                counted: parts.number()?,
                class: u8::try_from(parts.number()?).ok()?,
                repo: usize::try_from(parts.number()?).ok()?,
                line: parts.number()?,
                path: parts.rest()?,
            }),
            HIT => Self::Hit(HitCursor {
                listing,
                counted: parts.number()?,
                score: parts.number()?.cast_signed(),
                repo: usize::try_from(parts.number()?).ok()?,
                line: parts.number()?,
                name: parts.text()?,
                path: parts.rest()?,
            }),
            RANKED => Self::Ranked(RankedCursor {
                listing,
                counted: parts.number()?,
                passages: parts.number()?,
                given: parts.number()?,
            }),
            COMMIT => Self::Commit(CommitCursor {
                listing,
                counted: parts.number()?,
                repo: usize::try_from(parts.number()?).ok()?,
                commit: parts.rest()?,
            }),
            _ => return None,
        };
        parts.0.is_none().then_some(cursor)
    }
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

    fn cursors() -> [Cursor; 4] {
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
                passages: 2,
                given: u64::MAX - 5,
            }),
            Cursor::Commit(CommitCursor {
                listing,
                counted: 12,
                repo: 1,
                commit: "0a1b2c3".to_owned(),
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
                Cursor::Commit(cursor) => cursor.encode(),
            };
            assert_eq!(Cursor::decode(&text, 77).unwrap(), cursor);
            let other = Cursor::decode(&text, 78).unwrap_err();
            assert!(other.message.contains("another query"));
            assert!(Cursor::decode(&format!("x{text}"), 77).is_err());
            assert!(Cursor::decode(&text.replace("-w-", "-x-"), 77).is_err());
        }
        for wrong in [
            "",
            "l3",
            "l3-1-0-2",
            "l3-g-0-0-0-0-",
            "h3-1-0-1-1-1-1-6-abc",
            "r4-1-0-1-1-1-1",
            "r3-1-0-1-1",
            "c2l-1-a-1-1-1-1-61",
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
