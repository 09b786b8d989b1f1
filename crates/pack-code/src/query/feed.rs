//! The files that an exact query has to look at, in the order of hits, and what the index knows of
//! each.

use std::ops::Range;

use crate::query::candidates::Candidates;
use crate::query::plan::Plan;
use crate::query::ranked::Failed;
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

/// Files of one repository that come from one place.
pub(crate) struct Feed<'a> {
    files: Files<'a>,
    /// The next one, where it is known.
    peeked: Option<Candidate<'a>>,
}

enum Files<'a> {
    Segment {
        view: &'a View,
        number: usize,
        segment: &'a Segment,
        candidates: Candidates<'a>,
    },
    Named(Box<dyn Iterator<Item = Candidate<'a>> + 'a>),
}

/// Which feed of which source a file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct From {
    pub(crate) source: usize,
    feed: usize,
}

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

impl<'a> Feed<'a> {
    const fn new(files: Files<'a>) -> Self {
        let peeked = None;
        Self { files, peeked }
    }

    fn peek(&mut self) -> Option<&Candidate<'a>> {
        if self.peeked.is_none() {
            self.peeked = self.files.next();
        }
        self.peeked.as_ref()
    }
}

impl<'a> Files<'a> {
    fn next(&mut self) -> Option<Candidate<'a>> {
        let (view, number, segment, candidates) = match self {
            Self::Named(files) => return files.next(),
            Self::Segment {
                view,
                number,
                segment,
                candidates,
            } => (*view, *number, *segment, candidates),
        };
        loop {
            let (doc, parts) = candidates.next()?;
            if view.is_live(number, doc) && segment.docs.is_text(doc) {
                let (class, path) = segment.docs.key(doc);
                return Some(Candidate {
                    class,
                    path,
                    indexed: Some(Indexed {
                        stamp: (!segment.is_racy(doc)).then(|| segment.stamp(doc)),
                        ranges: ranges(segment, doc, &parts),
                    }),
                });
            }
        }
    }
}

/// The candidates of an indexed repository.
pub(crate) fn indexed<'a>(view: &'a View, plan: &Plan) -> Result<Vec<Feed<'a>>, StoreError> {
    let mut feeds: Vec<Feed<'a>> = Vec::new();
    for (number, segment) in view.generation.segments.iter().enumerate() {
        feeds.push(Feed::new(Files::Segment {
            view,
            number,
            segment,
            candidates: Candidates::new(segment, plan)?,
        }));
    }
    let changed = view
        .changed()
        .into_iter()
        .map(|(class, path, _)| Candidate {
            class,
            path,
            indexed: None,
        });
    feeds.push(Feed::new(Files::Named(Box::new(changed))));
    Ok(feeds)
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
    vec![Feed::new(Files::Named(Box::new(found)))]
}

/// The next file in the order of hits, over all feeds of all sources.
pub(crate) fn next<'a>(sources: &mut [Source<'a>]) -> Option<(From, Candidate<'a>)> {
    let mut least: Option<((u8, &'a str, usize), From)> = None;
    for (at, source) in sources.iter_mut().enumerate() {
        let repo = source.repo;
        for (number, feed) in source.feeds.iter_mut().enumerate() {
            if let Some(candidate) = feed.peek() {
                let key = (candidate.class, candidate.path, repo);
                if least.as_ref().is_none_or(|(known, _)| key < *known) {
                    let from = From {
                        source: at,
                        feed: number,
                    };
                    least = Some((key, from));
                }
            }
        }
    }
    let (_, from) = least?;
    let feed = sources.get_mut(from.source)?.feeds.get_mut(from.feed)?;
    Some((from, feed.peeked.take()?))
}

/// A file had no match: its feed looks closer if that pays now.
pub(crate) fn read_in_vain(sources: &mut [Source<'_>], from: From) -> Result<(), Failed> {
    let source = sources.get_mut(from.source);
    match source.and_then(|source| source.feeds.get_mut(from.feed)) {
        Some(Feed {
            files: Files::Segment { candidates, .. },
            ..
        }) => candidates
            .read_in_vain()
            .map_err(|error| Failed::Store(from.source, error)),
        _ => Ok(()),
    }
}

/// The answer is full; what follows is only counted.
pub(crate) fn count_on(sources: &mut [Source<'_>]) -> Result<(), Failed> {
    for (at, source) in sources.iter_mut().enumerate() {
        for feed in &mut source.feeds {
            if let Files::Segment { candidates, .. } = &mut feed.files {
                candidates
                    .count_on()
                    .map_err(|error| Failed::Store(at, error))?;
            }
        }
    }
    Ok(())
}
