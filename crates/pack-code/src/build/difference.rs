//! What a build has to do: the tree compared with a generation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use sha2::{Digest as _, Sha256};

use crate::build::{Place, Progress, Request};
use crate::limits;
use crate::store::StoreError;
use crate::store::docs::ContentHash;
use crate::store::side::Stamps;
use crate::tree::file::{Content, Reader, Stamp};
use crate::tree::walk::{Found, Listing, Walk};
use crate::view::Generation;

/// The hash of a content as the index keeps it.
pub(crate) fn content_hash(bytes: &[u8]) -> ContentHash {
    let hash = Sha256::digest(bytes);
    hash.first_chunk().copied().unwrap_or_default()
}

/// The work of a build.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    /// Files to index, sorted by class and path.
    pub(crate) index: Vec<Found>,
    /// Documents that have gone or are replaced, by segment.
    pub(crate) gone: BTreeMap<usize, Vec<u32>>,
    /// Files with another stamp and the same content.
    pub(crate) touched: BTreeMap<usize, Stamps>,
    /// Documents that had gone and are the text of their files again.
    pub(crate) revived: BTreeMap<usize, Stamps>,
    pub(crate) added: u64,
    pub(crate) changed: u64,
    pub(crate) removed: u64,
    /// What the walk found, if the whole tree was walked.
    pub(crate) ignored: Option<u64>,
    pub(crate) unreadable: Option<BTreeSet<String>>,
}

impl Difference {
    pub(crate) fn changes_anything(&self) -> bool {
        let documents = !self.index.is_empty() || !self.gone.is_empty();
        documents || !self.touched.is_empty() || !self.revived.is_empty()
    }

    pub(crate) fn find(
        place: &Place,
        kept: Option<&Generation>,
        request: &Request,
        progress: &Progress,
    ) -> Result<Self, StoreError> {
        let mut difference = Self::default();
        let wanted = |path: &str| {
            request
                .globs
                .as_ref()
                .is_none_or(|globs| globs.is_match(path))
        };
        let listing = match &request.changed {
            Some(paths) if kept.is_some() => stat_paths(place, paths),
            _ => {
                let mut walk = Walk::new(&place.root, place.rules);
                walk.count_ignored = true;
                walk.stop = Some(&progress.stop);
                let listing = walk.run();
                if progress.stop.load(Ordering::Relaxed) {
                    return Err(StoreError::Stopped);
                }
                difference.ignored = Some(listing.ignored);
                difference.unreadable = Some(listing.unreadable.clone());
                listing
            }
        };
        let reader = Reader::new(&place.rooted, place.max_bytes);
        let mut buffer = Vec::new();
        let mut seen = kept.map(Seen::new);
        for found in listing.files {
            let known = kept.and_then(|kept| Some((kept, kept.find(&found.path)?)));
            if let (Some(seen), Some((_, at))) = (&mut seen, known) {
                seen.mark(at);
            }
            if !wanted(&found.path) {
                continue;
            }
            let Some((kept, (number, doc))) = known else {
                difference.added += 1;
                difference.add(kept.filter(|_| !request.full), found, &reader, &mut buffer);
                continue;
            };
            let Some(segment) = kept.segments.get(number) else {
                continue;
            };
            let same_stamp = segment.stamp(doc) == found.stamp;
            if same_stamp && !segment.is_racy(doc) && !request.full {
                continue;
            }
            if !request.full && segment.stamp(doc).size == found.stamp.size {
                let (content, stamp) = reader.read(&found.path, &mut buffer);
                let same = match content {
                    Content::Text => {
                        segment.docs.is_text(doc) && content_hash(&buffer) == segment.docs.hash(doc)
                    }
                    Content::Skipped(skip) => segment.docs.skip(doc) == Some(skip),
                    Content::Gone => false,
                };
                if same && !stamp.is_racy(std::time::SystemTime::now()) {
                    difference
                        .touched
                        .entry(number)
                        .or_default()
                        .insert(doc, stamp);
                    continue;
                }
                if same {
                    // Too young to be sure of; looked at again next time.
                    continue;
                }
            }
            difference.changed += 1;
            difference.gone.entry(number).or_default().push(doc);
            let kept = Some(kept).filter(|_| !request.full);
            difference.add(kept, found, &reader, &mut buffer);
        }
        if let Some(kept) = kept {
            difference.forget_unproven(kept);
        }
        if let (Some(kept), Some(seen)) = (kept, &seen) {
            difference.find_removed(kept, seen, request, wanted);
        }
        difference.index.sort_by_cached_key(|found| {
            (
                crate::tree::class::classify(&found.path).number(),
                found.path.clone(),
            )
        });
        progress
            .files_total
            .store(difference.index.len() as u64, Ordering::Relaxed);
        Ok(difference)
    }

    /// A file that is new or has another text: an old document of it is revived if that is its text
    /// again, and otherwise it is indexed.
    fn add(
        &mut self,
        kept: Option<&Generation>,
        found: Found,
        reader: &Reader<'_>,
        buffer: &mut Vec<u8>,
    ) {
        let mut read = None;
        for (number, segment) in kept
            .iter()
            .flat_map(|kept| kept.segments.iter().enumerate())
        {
            let Some(doc) = segment.docs.find(&found.path) else {
                continue;
            };
            if !segment.dead.contains(doc)
                || !segment.docs.is_text(doc)
                || segment.docs.stamp(doc).size != found.stamp.size
            {
                continue;
            }
            let (hash, stamp) = read.get_or_insert_with(|| {
                let (content, stamp) = reader.read(&found.path, buffer);
                let hash = matches!(content, Content::Text).then(|| content_hash(buffer));
                (hash, stamp)
            });
            if *hash == Some(segment.docs.hash(doc)) {
                let stamp = match stamp.is_racy(std::time::SystemTime::now()) {
                    // Too young to be sure of: a stamp that no file has, so that it is read again.
                    true => Stamp { inode: 0, ..*stamp },
                    false => *stamp,
                };
                self.revived.entry(number).or_default().insert(doc, stamp);
                return;
            }
        }
        self.index.push(found);
    }

    /// A few files of borrowed segments are read at each start instead of having their stamps
    /// kept, which would be much for each of many worktrees.
    fn forget_unproven(&mut self, kept: &Generation) {
        let is_borrowed = |number: &usize| {
            let entry = kept.manifest.segments.get(*number);
            entry.is_some_and(|entry| entry.borrowed)
        };
        let borrowed = self
            .touched
            .iter()
            .filter(|(number, _)| is_borrowed(number));
        if borrowed.map(|(_, stamps)| stamps.len()).sum::<usize>() <= limits::UNPROVEN_FILES {
            self.touched.retain(|number, _| !is_borrowed(number));
        }
    }

    fn find_removed(
        &mut self,
        kept: &Generation,
        seen: &Seen,
        request: &Request,
        wanted: impl Fn(&str) -> bool,
    ) {
        let mut remove = |number: usize, doc: u32| {
            self.removed += 1;
            self.gone.entry(number).or_default().push(doc);
        };
        if let Some(paths) = &request.changed {
            for path in paths {
                if let Some((number, doc)) = kept.find(path)
                    && !seen.has((number, doc))
                {
                    remove(number, doc);
                }
            }
            return;
        }
        for (number, doc) in kept.live_docs() {
            let path = kept
                .segments
                .get(number)
                .map_or("", |segment| segment.docs.path(doc));
            if !seen.has((number, doc)) && wanted(path) {
                remove(number, doc);
            }
        }
    }
}

/// Documents whose files are there.
struct Seen(Vec<crate::store::side::DocSet>);

impl Seen {
    fn new(kept: &Generation) -> Self {
        Self(vec![
            crate::store::side::DocSet::default();
            kept.segments.len()
        ])
    }

    fn mark(&mut self, (number, doc): (usize, u32)) {
        if let Some(set) = self.0.get_mut(number) {
            set.insert(doc);
        }
    }

    fn has(&self, (number, doc): (usize, u32)) -> bool {
        self.0.get(number).is_some_and(|set| set.contains(doc))
    }
}

/// The files of a list that are there.
fn stat_paths(place: &Place, paths: &[String]) -> Listing {
    let mut listing = Listing::default();
    for path in paths {
        if let Ok(metadata) = std::fs::symlink_metadata(place.root.join(path))
            && metadata.is_file()
        {
            listing.files.push(Found {
                path: path.clone(),
                stamp: Stamp::of(&metadata),
            });
        }
    }
    listing
}
