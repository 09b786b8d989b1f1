//! The parts of documents of a segment that satisfy a plan.

use crate::query::plan::Plan;
use crate::store::StoreError;
use crate::store::codec::take_u32;
use crate::store::segment::Segment;
use crate::store::table::Found;

/// A list this many times longer than what is left is not read: verifying is cheaper.
const NOT_WORTH: usize = 512;
/// Parts that are left to verify rather than narrowed by a choice of conditions.
const FEW: usize = 64;
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
    match plan {
        Plan::Any => Ok(Parts::All),
        Plan::Has(_) => conjunction(segment, std::slice::from_ref(plan)),
        Plan::All(parts) => conjunction(segment, parts),
        Plan::One(parts) => {
            let mut union = vec![0_u64; segment.docs.parts() as usize / 64 + 1];
            for part in parts {
                match candidates(segment, part)? {
                    Parts::All => return Ok(Parts::All),
                    Parts::These(found) => {
                        for part in found {
                            if let Some(word) = union.get_mut(part as usize / 64) {
                                *word |= 1 << (part % 64);
                            }
                        }
                    }
                }
            }
            Ok(Parts::These(members(&union)))
        }
    }
}

fn conjunction(segment: &Segment, parts: &[Plan]) -> Result<Parts, StoreError> {
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
            None => return Ok(Parts::These(Vec::new())),
        }
    }
    lists.sort_by_key(|found| found.count);
    let mut left: Option<Vec<u32>> = None;
    for found in &lists {
        let docs = match &left {
            Some(docs) if docs.is_empty() => break,
            Some(docs) if found.count as usize > docs.len().saturating_mul(NOT_WORTH) => break,
            Some(docs) => intersect(docs, &segment.trigrams.list(found)?),
            None => decode(&segment.trigrams.list(found)?, found.count),
        };
        left = Some(docs);
    }
    for part in parts.iter().filter(|part| !matches!(part, Plan::Has(_))) {
        if left.as_ref().is_some_and(|found| found.len() <= FEW) {
            break;
        }
        left = match (left, candidates(segment, part)?) {
            (Some(found), Parts::These(more)) => Some(common(&found, &more)),
            (None, Parts::These(found)) => Some(found),
            (left, Parts::All) => left,
        };
    }
    Ok(left.map_or(Parts::All, Parts::These))
}

/// The set bits, ascending.
fn members(words: &[u64]) -> Vec<u32> {
    let count: u32 = words.iter().map(|word| word.count_ones()).sum();
    let mut found = Vec::with_capacity(count as usize);
    for (word, first) in words.iter().zip((0..).step_by(64)) {
        let mut left = *word;
        while left != 0 {
            found.push(first + left.trailing_zeros());
            left &= left - 1;
        }
    }
    found
}

fn common(one: &[u32], two: &[u32]) -> Vec<u32> {
    let mut rest = two.iter().copied().peekable();
    let mut both = Vec::new();
    for part in one {
        while rest.next_if(|other| other < part).is_some() {}
        if rest.peek() == Some(part) {
            both.push(*part);
        }
    }
    both
}

fn decode(list: &[u8], count: u32) -> Vec<u32> {
    let mut docs = Vec::with_capacity(count as usize);
    let mut rest = list;
    let mut doc = 0_u32;
    while let Some(delta) = take_u32(&mut rest) {
        doc = doc.wrapping_add(delta);
        docs.push(doc);
    }
    docs
}

fn intersect(docs: &[u32], list: &[u8]) -> Vec<u32> {
    let mut both = Vec::with_capacity(docs.len());
    let mut wanted = docs.iter().copied();
    let Some(mut next) = wanted.next() else {
        return both;
    };
    let mut rest = list;
    let mut doc = 0_u32;
    while let Some(delta) = take_u32(&mut rest) {
        doc = doc.wrapping_add(delta);
        while next < doc {
            match wanted.next() {
                Some(more) => next = more,
                None => return both,
            }
        }
        if next == doc {
            both.push(doc);
        }
    }
    both
}
