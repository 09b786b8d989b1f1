//! The documents of a segment that satisfy a plan.

use crate::query::plan::Plan;
use crate::store::StoreError;
use crate::store::codec::take_u32;
use crate::store::segment::Segment;
use crate::store::table::Found;

/// A list this many times longer than what is left is not read: verifying is cheaper.
const NOT_WORTH: usize = 64;
/// Trigrams of one conjunction that are looked up.
const LOOKED_UP: usize = 40;

/// Documents, ascending, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Docs {
    All,
    These(Vec<u32>),
}

/// The candidates of a plan. Some may have gone; none that matches is missing.
pub(crate) fn candidates(segment: &Segment, plan: &Plan) -> Result<Docs, StoreError> {
    match plan {
        Plan::Any => Ok(Docs::All),
        Plan::Has(_) => conjunction(segment, std::slice::from_ref(plan)),
        Plan::All(parts) => conjunction(segment, parts),
        Plan::One(parts) => {
            let mut union = Vec::new();
            for part in parts {
                match candidates(segment, part)? {
                    Docs::All => return Ok(Docs::All),
                    Docs::These(docs) => union.extend(docs),
                }
            }
            union.sort_unstable();
            union.dedup();
            Ok(Docs::These(union))
        }
    }
}

fn conjunction(segment: &Segment, parts: &[Plan]) -> Result<Docs, StoreError> {
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
            None => return Ok(Docs::These(Vec::new())),
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
        if left.as_ref().is_some_and(|docs| docs.len() <= NOT_WORTH) {
            break;
        }
        left = match (left, candidates(segment, part)?) {
            (Some(docs), Docs::These(more)) => Some(
                docs.into_iter()
                    .filter(|doc| more.binary_search(doc).is_ok())
                    .collect(),
            ),
            (None, Docs::These(docs)) => Some(docs),
            (left, Docs::All) => left,
        };
    }
    Ok(left.map_or(Docs::All, Docs::These))
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
