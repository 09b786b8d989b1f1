//! The parts of documents of a segment that satisfy a plan.
//!
//! Sets are bitmaps over the parts of the segment: a posting costs one operation without a branch
//! that could be guessed wrong, and a union needs no sorting.

use crate::query::plan::Plan;
use crate::store::StoreError;
use crate::store::codec::take;
use crate::store::segment::Segment;
use crate::store::table::Found;

/// A list this many times longer than what is left is not read: verifying is cheaper.
const NOT_WORTH: u64 = 512;
/// A list with more than this share of all parts says too little to be read, in percent.
const COMMON_PERCENT: u64 = 66;
/// Parts that are left to verify rather than narrowed by a choice of conditions.
const FEW: u64 = 64;
/// Trigrams of one conjunction that are looked up.
const LOOKED_UP: usize = 40;

/// Parts, ascending, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    All,
    These(Vec<u32>),
}

/// The candidates of a plan. Some may have gone; none that matches is missing.
pub(crate) fn candidates(segment: &Segment, plan: &Plan) -> Result<Parts, StoreError> {
    let found = satisfying(segment, plan)?;
    Ok(found.map_or(Parts::All, |found| Parts::These(found.members())))
}

/// The parts that satisfy a plan; `None` are all.
fn satisfying(segment: &Segment, plan: &Plan) -> Result<Option<Bits>, StoreError> {
    match plan {
        Plan::Any => Ok(None),
        Plan::Has(_) => conjunction(segment, std::slice::from_ref(plan)),
        Plan::All(parts) => conjunction(segment, parts),
        Plan::One(parts) => {
            let mut union = Bits::none(segment.docs.parts());
            for part in parts {
                match part {
                    Plan::Has(trigram) => {
                        if let Some(found) = segment.trigrams.get(trigram)? {
                            union.add(&segment.trigrams.list(&found)?);
                        }
                    }
                    _ => match satisfying(segment, part)? {
                        None => return Ok(None),
                        Some(found) => union.unite(&found),
                    },
                }
            }
            Ok(Some(union))
        }
    }
}

fn conjunction(segment: &Segment, parts: &[Plan]) -> Result<Option<Bits>, StoreError> {
    let all = segment.docs.parts();
    let trigrams: Vec<&[u8; 3]> = parts
        .iter()
        .filter_map(|part| match part {
            Plan::Has(trigram) => Some(trigram),
            _ => None,
        })
        .collect();
    let step = trigrams.len().div_ceil(LOOKED_UP).max(1);
    let mut lists: Vec<Found> = Vec::new();
    for trigram in trigrams.into_iter().step_by(step) {
        match segment.trigrams.get(trigram)? {
            Some(found) => lists.push(found),
            None => return Ok(Some(Bits::none(all))),
        }
    }
    lists.sort_by_key(|found| found.count);
    let mut left: Option<Bits> = None;
    for found in &lists {
        let count = u64::from(found.count);
        match &mut left {
            Some(bits) => {
                let few = bits.len();
                if few == 0
                    || count > few.saturating_mul(NOT_WORTH)
                    || count * 100 > u64::from(all) * COMMON_PERCENT
                {
                    break;
                }
                bits.keep(&segment.trigrams.list(found)?);
            }
            None => {
                let mut bits = Bits::none(all);
                bits.add(&segment.trigrams.list(found)?);
                left = Some(bits);
            }
        }
    }
    for part in parts.iter().filter(|part| !matches!(part, Plan::Has(_))) {
        if left.as_ref().is_some_and(|bits| bits.len() <= FEW) {
            break;
        }
        left = match (left, satisfying(segment, part)?) {
            (Some(mut bits), Some(more)) => {
                bits.intersect(&more);
                Some(bits)
            }
            (None, found) => found,
            (left, None) => left,
        };
    }
    Ok(left)
}

/// A set of parts.
#[derive(Clone, Debug)]
struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// The empty set over so many parts. There is room for every delta of a sound list; what a
    /// damaged one has beyond is dropped.
    fn none(parts: u32) -> Self {
        Self {
            words: vec![0; parts as usize / 64 + 1],
        }
    }

    fn len(&self) -> u64 {
        let ones = self.words.iter().map(|word| u64::from(word.count_ones()));
        ones.sum()
    }

    /// Adds the numbers of a list.
    fn add(&mut self, list: &[u8]) {
        each(list, |number| {
            if let Some(word) = self.words.get_mut(number as usize / 64) {
                *word |= 1 << (number % 64);
            }
        });
    }

    /// Keeps only the numbers of a list.
    fn keep(&mut self, list: &[u8]) {
        let mut kept = vec![0_u64; self.words.len()];
        each(list, |number| {
            let at = number as usize / 64;
            if let (Some(word), Some(known)) = (kept.get_mut(at), self.words.get(at)) {
                *word |= known & 1 << (number % 64);
            }
        });
        self.words = kept;
    }

    fn unite(&mut self, other: &Self) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    fn intersect(&mut self, other: &Self) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word &= more;
        }
    }

    /// The members, ascending.
    fn members(&self) -> Vec<u32> {
        let mut found = Vec::with_capacity(usize::try_from(self.len()).unwrap_or(0));
        for (word, first) in self.words.iter().zip((0_u32..).step_by(64)) {
            let mut left = *word;
            while left != 0 {
                found.push(first + left.trailing_zeros());
                left &= left - 1;
            }
        }
        found
    }
}

/// Calls `each` with the numbers of a list of deltas.
fn each(list: &[u8], mut each: impl FnMut(u32)) {
    let mut number = 0_u32;
    let mut rest = list;
    while let Some((byte, more)) = rest.split_first() {
        // Most deltas are of one byte.
        if *byte < 0x80 {
            number = number.wrapping_add(u32::from(*byte));
            rest = more;
        } else {
            let Some(delta) = take(&mut rest) else { return };
            number = number.wrapping_add(delta as u32);
        }
        each(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::codec::put;

    fn list(numbers: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut last = 0;
        for number in numbers {
            put(&mut bytes, u64::from(number - last));
            last = *number;
        }
        bytes
    }

    #[test]
    fn sets_are_what_their_lists_say() {
        let mut bits = Bits::none(1000);
        bits.add(&list(&[0, 1, 63, 64, 500, 999]));
        assert_eq!(bits.members(), [0, 1, 63, 64, 500, 999]);
        assert_eq!(bits.len(), 6);
        bits.keep(&list(&[1, 2, 64, 999, 5000]));
        assert_eq!(bits.members(), [1, 64, 999]);
        let mut more = Bits::none(1000);
        more.add(&list(&[7, 64]));
        bits.unite(&more);
        assert_eq!(bits.members(), [1, 7, 64, 999]);
        bits.intersect(&more);
        assert_eq!(bits.members(), [7, 64]);
    }
}
