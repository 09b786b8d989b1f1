//! The parts of documents of a segment that satisfy a plan.
//!
//! Sets are bitmaps over the parts of the segment: a posting costs one operation without a branch
//! that could be guessed wrong, and a union needs no sorting.

use std::collections::BTreeMap;

use crate::query::plan::Plan;
use crate::query::word::Word;
use crate::store::StoreError;
use crate::store::chunk::IRREGULAR;
use crate::store::codec::{take, take_u32};
use crate::store::segment::Segment;
use crate::store::table::Found;
use crate::symbols::names::known_blocks_with;

/// A list this many times longer than what is left is not read: verifying is cheaper.
const NOT_WORTH: u64 = 512;
/// A list with more than this share of all parts says too little to be read, in percent.
const COMMON_PERCENT: u64 = 66;
/// Parts that are left to verify rather than narrowed by a choice of conditions.
const FEW: u64 = 64;
/// Trigrams of one conjunction that are looked up.
const LOOKED_UP: usize = 40;
/// Postings that can be read in the time of one file that turns out to have no match.
const READ_IN_VAIN: u64 = 12_000;
/// A list that leaves more than this of what there was has not helped, in percent.
const NO_HELP_PERCENT: u64 = 95;
/// How many times its cost a list after such ones has to be worth at most.
const DEAREST: u64 = 16;
/// Steps that are taken before the first file is read.
const AT_ONCE: usize = 2;
/// Parts of which it pays to know how many of them are candidates.
const COUNTABLE: u64 = 256;
/// What it costs to find the blocks of words that may have some letters, and to read one of these,
/// in postings.
const WORD_COST: u64 = 30_000;
const BLOCK_COST: u64 = 3_500;
/// Blocks of words that are read at most: more of them take longer than a search may.
const MOST_BLOCKS: usize = 2_500;
/// Words with the letters that are taken at most.
const WORDS: usize = 2_000;

/// The parts of a segment that may satisfy a plan, ascending. Some may have gone; none that
/// matches is missing.
///
/// Only the shortest lists are read at first. Each of the others is read when files without a match
/// have cost as much as it will, so the whole is never much more than twice as dear as the best
/// that could have been done. Lists often say the same as those before; after such ones more has
/// to be lost before another is read.
#[derive(Debug)]
pub(crate) struct Candidates<'a> {
    segment: &'a Segment,
    lists: Lists,
    /// `None` are all.
    left: Option<Bits>,
    /// What else the plan says, the cheapest last.
    steps: Vec<Plan>,
    /// What reading in vain has cost and no step was paid with, in postings.
    vain: u64,
    /// How many times its cost the next list has to be worth, as those before did not help.
    dear: u64,
    next_part: u32,
    next_doc: u32,
    /// The blocks of words that may have the letters of the plan's word, once they are known.
    blocks: Option<Vec<usize>>,
    /// The lists of the trigrams that begin with a pair.
    pairs: BTreeMap<[u8; 2], Vec<Found>>,
}

/// The lists of the trigrams that a plan is about; those that are nowhere have none.
type Lists = BTreeMap<[u8; 3], Option<Found>>;

impl<'a> Candidates<'a> {
    pub(crate) fn new(segment: &'a Segment, plan: &Plan) -> Result<Self, StoreError> {
        let mut made = Self {
            segment,
            lists: Lists::new(),
            left: None,
            steps: Vec::new(),
            vain: 0,
            dear: 1,
            next_part: 0,
            next_doc: 0,
            blocks: None,
            pairs: BTreeMap::new(),
        };
        match made.possible(plan)?.map(Plan::factored) {
            None => made.left = Some(Bits::none(segment.docs.parts())),
            Some(Plan::Any) => {}
            Some(Plan::All(parts)) => made.steps = parts,
            Some(plan) => made.steps.push(plan),
        }
        let (words, steps): (Vec<Plan>, Vec<Plan>) = std::mem::take(&mut made.steps)
            .into_iter()
            .partition(|step| matches!(step, Plan::Word(_)));
        let mut steps = steps;
        steps.sort_by_key(|step| std::cmp::Reverse(made.key(step)));
        made.steps = steps;
        for _ in 0..AT_ONCE {
            made.narrow()?;
        }
        for word in words {
            made.postpone(word);
        }
        Ok(made)
    }

    /// Puts a step where its cost says.
    fn postpone(&mut self, step: Plan) {
        let key = self.key(&step);
        let at = self.steps.partition_point(|other| self.key(other) > key);
        self.steps.insert(at, step);
    }

    /// What steps are ordered by: a choice says less for what it costs, so all others come first.
    fn key(&self, step: &Plan) -> (bool, u64) {
        let choice = !matches!(step, Plan::Has(_) | Plan::Word(_));
        (choice, self.cost(step))
    }

    /// A plan without the alternatives that need a trigram which is nowhere; `None` if nothing is
    /// left of it.
    fn possible(&mut self, plan: &Plan) -> Result<Option<Plan>, StoreError> {
        Ok(match plan {
            Plan::Any => Some(Plan::Any),
            Plan::Word(word) => Some(Plan::Word(word.clone())),
            Plan::Pair(pair) => {
                let mut lists = Vec::new();
                self.segment.trigrams.scan(pair, |key, found| {
                    let begins = key.starts_with(pair);
                    if begins {
                        lists.push(found.to_found());
                    }
                    begins
                })?;
                let found = !lists.is_empty();
                self.pairs.insert(*pair, lists);
                found.then_some(Plan::Pair(*pair))
            }
            Plan::Has(trigram) => {
                let found = match self.lists.get(trigram) {
                    Some(known) => known.is_some(),
                    None => {
                        let list = self.segment.trigrams.get(trigram)?;
                        let found = list.is_some();
                        self.lists.insert(*trigram, list);
                        found
                    }
                };
                found.then_some(Plan::Has(*trigram))
            }
            Plan::All(parts) => {
                let mut whole = Plan::Any;
                let step = parts.len().div_ceil(LOOKED_UP).max(1);
                for part in parts.iter().step_by(step) {
                    match self.possible(part)? {
                        Some(part) => whole = whole.and(part),
                        None => return Ok(None),
                    }
                }
                Some(whole)
            }
            Plan::One(parts) => {
                let mut whole: Option<Plan> = None;
                for part in parts {
                    if let Some(part) = self.possible(part)? {
                        whole = Some(match whole {
                            Some(whole) => whole.or(part),
                            None => part,
                        });
                    }
                }
                whole
            }
        })
    }

    /// Postings of a plan.
    fn cost(&self, plan: &Plan) -> u64 {
        match plan {
            Plan::Any => 0,
            Plan::Word(_) => match &self.blocks {
                Some(blocks) => blocks.len() as u64 * BLOCK_COST,
                None => WORD_COST,
            },
            Plan::Has(trigram) => self.list(trigram).map_or(0, |list| u64::from(list.count)),
            Plan::Pair(pair) => {
                let lists = self.pairs.get(pair).into_iter().flatten();
                lists.map(|list| u64::from(list.count)).sum()
            }
            Plan::All(parts) | Plan::One(parts) => parts.iter().map(|part| self.cost(part)).sum(),
        }
    }

    fn list(&self, trigram: &[u8; 3]) -> Option<&Found> {
        self.lists.get(trigram)?.as_ref()
    }

    /// The next document that may satisfy the plan, and its parts that may; none if that is not
    /// known.
    pub(crate) fn next(&mut self) -> Option<(u32, Vec<u32>)> {
        let docs = &self.segment.docs;
        let Some(left) = &self.left else {
            let doc = self.next_doc;
            self.next_doc += 1;
            return (doc < docs.len()).then(|| (doc, Vec::new()));
        };
        let first = left.first_from(self.next_part)?;
        let doc = docs.doc_of_part(first);
        let end = docs.first_part(doc + 1);
        let mut parts = vec![first];
        let mut from = first + 1;
        while let Some(part) = left.first_from(from).filter(|part| *part < end) {
            parts.push(part);
            from = part + 1;
        }
        self.next_part = end.max(from);
        Some((doc, parts))
    }

    /// A file of these had no match.
    pub(crate) fn read_in_vain(&mut self) -> Result<(), StoreError> {
        self.vain = self.vain.saturating_add(READ_IN_VAIN);
        while let Some(step) = self.steps.last() {
            let dear = match step {
                Plan::Has(_) => self.dear,
                _ => 1,
            };
            let Some(rest) = self.vain.checked_sub(self.cost(step) * dear) else {
                break;
            };
            self.vain = rest;
            self.narrow()?;
        }
        Ok(())
    }

    /// The answer is full, and how many follow is of interest if they are few.
    pub(crate) fn count_on(&mut self) -> Result<(), StoreError> {
        self.steps.retain(|step| !matches!(step, Plan::Word(_)));
        while !self.steps.is_empty() && self.ahead() <= COUNTABLE {
            self.narrow()?;
        }
        Ok(())
    }

    /// All documents at once, narrowed as far as the plan goes; `None` are all.
    pub(crate) fn docs(mut self) -> Result<Option<Vec<u32>>, StoreError> {
        while !self.steps.is_empty() {
            self.narrow()?;
        }
        let known = self.left.is_some();
        let docs = known.then(|| std::iter::from_fn(|| self.next()).map(|(doc, _)| doc));
        Ok(docs.map(Iterator::collect))
    }

    /// Parts that are still to come.
    fn ahead(&self) -> u64 {
        match &self.left {
            Some(left) => left.len_from(self.next_part),
            None => u64::from(self.segment.docs.parts()),
        }
    }

    /// Takes the next step, if it is worth it.
    fn narrow(&mut self) -> Result<(), StoreError> {
        let Some(step) = self.steps.pop() else {
            return Ok(());
        };
        let few = self.ahead();
        if few == 0 {
            self.steps.clear();
        } else if let (Plan::Word(word), None) = (&step, &self.blocks) {
            let pieces = word.long_pieces().flat_map(|piece| piece.windows(3));
            self.blocks = known_blocks_with(&self.segment.terms, pieces, 0);
            if self.blocks.is_some() {
                self.postpone(step);
            }
        } else if self.is_worth(&step, self.left.is_some().then_some(few)) {
            self.left = self.within(&step, self.left.as_ref())?;
            self.dear = match self.ahead() * 100 > few * NO_HELP_PERCENT {
                true => (self.dear * 2).min(DEAREST),
                false => 1,
            };
        }
        Ok(())
    }

    /// Whether a step can be expected to narrow the parts that are left.
    fn is_worth(&self, step: &Plan, left: Option<u64>) -> bool {
        if let Plan::Pair(_) = step {
            // With more than one in each part most parts have one.
            return self.cost(step) <= u64::from(self.segment.docs.parts());
        }
        let Some(few) = left else { return true };
        match step {
            Plan::Has(_) => {
                let (count, all) = (self.cost(step), u64::from(self.segment.docs.parts()));
                count <= few.saturating_mul(NOT_WORTH) && count * 100 <= all * COMMON_PERCENT
            }
            Plan::Word(_) => {
                let blocks = self.blocks.as_ref().map_or(0, Vec::len);
                blocks <= MOST_BLOCKS && self.cost(step) <= few.saturating_mul(READ_IN_VAIN)
            }
            _ => few > FEW,
        }
    }

    /// Those of some parts, or of all, that satisfy a plan; `None` are all.
    fn within(&self, plan: &Plan, left: Option<&Bits>) -> Result<Option<Bits>, StoreError> {
        let mut found = Bits::none(self.segment.docs.parts());
        match plan {
            Plan::Any => return Ok(left.cloned()),
            Plan::Has(_) => self.add(plan, left, &mut found)?,
            Plan::Pair(pair) => {
                for list in self.pairs.get(pair).into_iter().flatten() {
                    found.add(&self.segment.trigrams.list(list)?);
                }
                if let Some(left) = left {
                    found.intersect(left);
                }
            }
            Plan::Word(word) => match self.docs_with(word)? {
                Some(docs) => {
                    for doc in docs {
                        let docs = &self.segment.docs;
                        for part in docs.first_part(doc)..docs.first_part(doc + 1) {
                            if left.is_none_or(|left| left.contains(part)) {
                                found.insert(part);
                            }
                        }
                    }
                }
                None => return Ok(left.cloned()),
            },
            Plan::One(parts) => {
                for part in parts {
                    if let Plan::Has(_) = part {
                        self.add(part, left, &mut found)?;
                    } else if let Some(more) = self.within(part, left)? {
                        found.unite(&more);
                    } else {
                        return Ok(None);
                    }
                }
            }
            Plan::All(parts) => {
                let mut parts: Vec<&Plan> = parts.iter().collect();
                parts.sort_by_key(|part| (!matches!(part, Plan::Has(_)), self.cost(part)));
                let mut kept = left.cloned();
                for part in parts {
                    if self.is_worth(part, kept.as_ref().map(|kept| kept.len_from(0))) {
                        kept = self.within(part, kept.as_ref())?;
                    }
                }
                return Ok(kept);
            }
        }
        Ok(Some(found))
    }

    /// Documents that have a word with these letters, and those of which that is not known; `None`
    /// where there are too many such words.
    fn docs_with(&self, word: &Word) -> Result<Option<Vec<u32>>, StoreError> {
        let Some(blocks) = &self.blocks else {
            return Ok(None);
        };
        let table = &self.segment.terms;
        let mut having = Vec::new();
        having.extend(table.get(IRREGULAR)?);
        let mut finder = word.finder();
        table.scan_blocks(blocks, |key, found| {
            if finder.admits(key, found.shared()) {
                having.push(found.to_found());
            }
            true
        })?;
        if having.len() > WORDS {
            return Ok(None);
        }
        let mut docs = Vec::new();
        for found in having {
            let list = table.list(&found)?;
            let mut rest = list.as_slice();
            let mut doc = 0_u32;
            while let Some(delta) = take_u32(&mut rest) {
                doc = doc.wrapping_add(delta);
                let Some((_, more)) = rest.split_first() else {
                    break;
                };
                rest = more;
                docs.push(doc);
            }
        }
        docs.retain(|doc| *doc < self.segment.docs.len());
        Ok(Some(docs))
    }

    /// Adds the parts of a trigram, of some parts or of all.
    fn add(&self, has: &Plan, left: Option<&Bits>, to: &mut Bits) -> Result<(), StoreError> {
        if let Plan::Has(trigram) = has
            && let Some(found) = self.list(trigram)
        {
            let list = self.segment.trigrams.list(found)?;
            match left {
                Some(left) => to.add_of(&list, left),
                None => to.add(&list),
            }
        }
        Ok(())
    }
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

    /// How many there are from this number on.
    fn len_from(&self, from: u32) -> u64 {
        let words = self.words.get(from as usize / 64..).unwrap_or_default();
        let before = words.first().map_or(0, |word| word & !(!0 << (from % 64)));
        let ones: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        ones - u64::from(before.count_ones())
    }

    /// The first that is not below a number.
    fn first_from(&self, from: u32) -> Option<u32> {
        let at = from as usize / 64;
        let (first, rest) = self.words.get(at..)?.split_first()?;
        let first = first & !0 << (from % 64);
        let (at, word) = match first {
            0 => (at + 1..).zip(rest).find(|(_, word)| **word != 0)?,
            _ => (at, &first),
        };
        Some(at as u32 * 64 + word.trailing_zeros())
    }

    /// Adds the numbers of a list.
    fn add(&mut self, list: &[u8]) {
        each(list, |number| {
            if let Some(word) = self.words.get_mut(number as usize / 64) {
                *word |= 1 << (number % 64);
            }
        });
    }

    /// Adds the numbers of a list that are in another set.
    fn add_of(&mut self, list: &[u8], of: &Self) {
        each(list, |number| {
            let at = number as usize / 64;
            if let (Some(word), Some(known)) = (self.words.get_mut(at), of.words.get(at)) {
                *word |= known & 1 << (number % 64);
            }
        });
    }

    fn contains(&self, number: u32) -> bool {
        let word = self.words.get(number as usize / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn insert(&mut self, number: u32) {
        if let Some(word) = self.words.get_mut(number as usize / 64) {
            *word |= 1 << (number % 64);
        }
    }

    fn intersect(&mut self, other: &Self) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word &= more;
        }
    }

    fn unite(&mut self, other: &Self) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
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

    fn members(bits: &Bits) -> Vec<u32> {
        let next = |last: &u32| bits.first_from(last + 1);
        std::iter::successors(bits.first_from(0), next).collect()
    }

    #[test]
    fn sets_are_what_their_lists_say() {
        let mut bits = Bits::none(1000);
        bits.add(&list(&[0, 1, 63, 64, 500, 999]));
        assert_eq!(members(&bits), [0, 1, 63, 64, 500, 999]);
        assert_eq!((bits.len_from(0), bits.len_from(64)), (6, 3));
        assert_eq!((bits.len_from(65), bits.len_from(5000)), (2, 0));
        assert_eq!(
            (bits.first_from(65), bits.first_from(1000)),
            (Some(500), None)
        );
        let mut few = Bits::none(1000);
        few.add_of(&list(&[1, 2, 64, 999, 5000]), &bits);
        assert_eq!(members(&few), [1, 64, 999]);
        let mut more = Bits::none(1000);
        more.add(&list(&[7, 64]));
        few.unite(&more);
        assert_eq!(members(&few), [1, 7, 64, 999]);
    }
}
