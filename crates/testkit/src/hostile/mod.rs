//! Frames nobody should send, each with the answer that it deserves.
//!
//! [`hostile`] gives a seeded sequence of [`Hostile`] frames in which every kind comes equally
//! often; the same seed gives the same frames. What the answer must be is decided here, from the
//! design's table of decisions, and not by asking the product's own code. [`LONG_LINES`] lines of
//! [`LONG_LINE`] bytes come from [`long_lines`], piece by piece, so that nobody has to hold them.

#![expect(
    clippy::indexing_slicing,
    reason = "indices are drawn from the length of what they index"
)]

mod bytes;
mod expect;
mod long;
mod rng;
mod shapes;
mod unusual;

pub use expect::{Expectation, Id, Lane};
pub use long::{LONG_LINE, LONG_LINES, LongLine, long_lines};
pub use rng::Rng;

/// Makes one frame of a kind; the number is the frame's own and serves as its id.
type Make = fn(&mut Rng, u64) -> (Vec<u8>, Expectation);

/// Every kind of frame, by name.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    tables().map(|(name, _)| *name)
}

/// One frame, without its newline.
#[derive(Clone, Debug)]
pub struct Hostile {
    pub kind: &'static str,
    pub bytes: Vec<u8>,
    pub expectation: Expectation,
}

/// `count` frames, every kind in turn. None holds a newline.
pub fn hostile(seed: u64, count: u64) -> impl Iterator<Item = Hostile> {
    let mut rng = Rng::new(seed);
    let table: Vec<_> = tables().collect();
    let in_turn = (0..count).zip((0..table.len()).cycle());
    in_turn.filter_map(move |(number, turn)| {
        let (kind, make) = table.get(turn)?;
        let (bytes, expectation) = make(&mut rng, number);
        Some(Hostile {
            kind,
            bytes,
            expectation,
        })
    })
}

fn tables() -> impl Iterator<Item = &'static (&'static str, Make)> {
    bytes::KINDS
        .iter()
        .chain(shapes::KINDS)
        .chain(unusual::KINDS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn hundred_thousand_frames_have_a_thousand_of_each_kind() {
        let mut counts = BTreeMap::new();
        for frame in hostile(1, 100_000) {
            *counts.entry(frame.kind).or_insert(0) += 1;
            assert!(!frame.bytes.contains(&b'\n'), "{frame:?}");
            assert!(frame.bytes.len() <= 1 << 20, "{} is oversize", frame.kind);
        }
        assert_eq!(counts.len(), kinds().count(), "two kinds have one name");
        assert!(counts.values().all(|count| *count >= 1000), "{counts:?}");
    }

    #[test]
    fn same_seed_gives_the_same_frames() {
        let all = |seed| -> Vec<_> { hostile(seed, 500).map(|frame| frame.bytes).collect() };
        assert_eq!(all(7), all(7));
        assert_ne!(all(7), all(8));
    }

    #[test]
    fn frames_that_deserve_a_parse_error_are_no_json_and_all_others_are() {
        for frame in hostile(3, 5_000) {
            let is_json = std::str::from_utf8(&frame.bytes).is_ok_and(is_json);
            let must_not_be = matches!(frame.expectation, Expectation::Error { code: -32700, .. });
            let is_blank = frame.bytes.iter().all(u8::is_ascii_whitespace);
            assert!(is_json != must_not_be || is_blank, "{frame:?}");
        }
    }

    /// Raw values are passed over without a look at surrogates; trees are limited in depth and in
    /// the size of numbers, which is no matter of JSON.
    fn is_json(text: &str) -> bool {
        let limits = |error: serde_json::Error| {
            let said = error.to_string();
            said.contains("recursion") || said.contains("out of range")
        };
        serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
            && serde_json::from_str::<serde_json::Value>(text).map_or_else(limits, |_| true)
    }
}
