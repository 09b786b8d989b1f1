//! The files that an exact query has to look at, in the order of hits, and what the index knows of
//! each.

use std::iter::Peekable;
use std::ops::Range;

use crate::query::candidates::{Parts, candidates};
use crate::query::plan::Plan;
use crate::store::StoreError;
use crate::store::segment::Segment;
use crate::tree::file::{Reader, Stamp};
use crate::view::View;

/// Files of one repository in the order of hits.
pub(crate) struct Source<'a> {
    pub(crate) repo: usize,
    pub(crate) name: &'a str,
    pub(crate) reader: Reader<'a>,
    pub(crate) feeds: Vec<Feed<'a>>,
    /// The listing itself is not complete.
    pub(crate) cut: bool,
}

type Feed<'a> = Peekable<Box<dyn Iterator<Item = Candidate<'a>> + 'a>>;

/// A file that may match.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) class: u8,
    pub(crate) path: &'a str,
    pub(crate) indexed: Option<Indexed>,
}

/// What the index says about a candidate.
#[derive(Clone, Debug)]
pub(crate) struct Indexed {
    /// The version that was indexed, where a stamp proves it.
    pub(crate) stamp: Option<Stamp>,
    /// The bytes where matches can be; nothing if that is too much of the file to be told apart.
    pub(crate) ranges: Vec<Range<u64>>,
}

/// The candidates of an indexed repository. Says also whether the pattern has a plan.
pub(crate) fn indexed<'a>(view: &'a View, plan: &Plan) -> Result<Vec<Feed<'a>>, StoreError> {
    let mut feeds: Vec<Feed<'a>> = Vec::new();
    for (number, segment) in view.generation.segments.iter().enumerate() {
        let docs: Box<dyn Iterator<Item = (u32, Vec<u32>)>> = match candidates(segment, plan)? {
            Parts::All => Box::new((0..segment.docs.len()).map(|doc| (doc, Vec::new()))),
            Parts::These(parts) => Box::new(ByDoc {
                segment,
                parts: parts.into_iter().peekable(),
            }),
        };
        let live =
            docs.filter(move |(doc, _)| view.is_live(number, *doc) && segment.docs.is_text(*doc));
        let found: Box<dyn Iterator<Item = Candidate<'a>>> = Box::new(live.map(|(doc, parts)| {
            let (class, path) = segment.docs.key(doc);
            Candidate {
                class,
                path,
                indexed: Some(Indexed {
                    stamp: (!segment.is_racy(doc)).then(|| segment.stamp(doc)),
                    ranges: ranges(segment, doc, &parts),
                }),
            }
        }));
        feeds.push(found.peekable());
    }
    let changed = view
        .changed()
        .into_iter()
        .map(|(class, path, _)| Candidate {
            class,
            path,
            indexed: None,
        });
    let changed: Box<dyn Iterator<Item = Candidate<'a>>> = Box::new(changed);
    feeds.push(changed.peekable());
    Ok(feeds)
}

/// Parts of one document after the other.
struct ByDoc<'a> {
    segment: &'a Segment,
    parts: Peekable<std::vec::IntoIter<u32>>,
}

impl Iterator for ByDoc<'_> {
    type Item = (u32, Vec<u32>);

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.parts.next()?;
        let doc = self.segment.docs.doc_of_part(first);
        let end = self.segment.docs.first_part(doc + 1);
        let mut parts = vec![first];
        while let Some(part) = self.parts.next_if(|part| *part < end) {
            parts.push(part);
        }
        Some((doc, parts))
    }
}

/// Where the parts of a document are, neighbours joined; nothing where reading it whole costs
/// hardly more.
fn ranges(segment: &Segment, doc: u32, parts: &[u32]) -> Vec<Range<u64>> {
    let docs = &segment.docs;
    let end = docs.first_part(doc + 1);
    let all = end - docs.first_part(doc);
    if parts.is_empty() || parts.len() as u32 * 2 > all {
        return Vec::new();
    }
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for part in parts {
        let start = u64::from(docs.part_start(*part));
        let stop = match part + 1 < end {
            true => u64::from(docs.part_start(part + 1)),
            false => segment.stamp(doc).size,
        };
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = stop,
            _ => ranges.push(start..stop),
        }
    }
    ranges
}

/// All files of a listing that was made without an index; sorted by class and path.
pub(crate) fn listed<'a>(files: &'a [(u8, String)]) -> Vec<Feed<'a>> {
    let found = files.iter().map(|(class, path)| Candidate {
        class: *class,
        path: path.as_str(),
        indexed: None,
    });
    let found: Box<dyn Iterator<Item = Candidate<'a>>> = Box::new(found);
    vec![found.peekable()]
}

/// The next file in the order of hits, over all feeds of all sources.
pub(crate) fn next<'a>(sources: &mut [Source<'a>]) -> Option<(usize, Candidate<'a>)> {
    let mut least: Option<((u8, &'a str, usize), usize, usize)> = None;
    for (at, source) in sources.iter_mut().enumerate() {
        let repo = source.repo;
        for (number, feed) in source.feeds.iter_mut().enumerate() {
            if let Some(candidate) = feed.peek() {
                let key = (candidate.class, candidate.path, repo);
                if least.as_ref().is_none_or(|(known, _, _)| key < *known) {
                    least = Some((key, at, number));
                }
            }
        }
    }
    let (_, at, number) = least?;
    let candidate = sources.get_mut(at)?.feeds.get_mut(number)?.next()?;
    Some((at, candidate))
}
