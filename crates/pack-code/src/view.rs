//! What a call sees of a repository: a generation of the index, and over it the files that have
//! changed since.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::store::StoreError;
use crate::store::chunk::{TermFields, terms_of};
use crate::store::manifest::Manifest;
use crate::store::segment::Segment;
use crate::store::side::DocSet;
use crate::symbols::layer::{Posting, key, postings};
use crate::text::defs::Kind;
use crate::tree::class::classify;
use crate::tree::file::{Content, Reader, Skip, Stamp};
use crate::tree::git_index::GitIndex;
use crate::tree::lang::Lang;

/// A generation with its segments open.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) manifest: Manifest,
    pub(crate) segments: Vec<Arc<Segment>>,
}

impl Generation {
    /// Opens the current generation; segments that `before` has open are used again.
    pub(crate) fn open(folder: &Path, before: Option<&Self>) -> Result<Option<Self>, StoreError> {
        let mut last = None;
        // A writer may remove files between our reading of the manifest and of the segments; then
        // there is a new manifest.
        for _ in 0..5 {
            let Some(manifest) = Manifest::read(folder)? else {
                return Ok(None);
            };
            match Self::open_segments(folder, &manifest, before) {
                Ok(segments) => return Ok(Some(Self { manifest, segments })),
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(None), |error| Err(error.of_named_file()))
    }

    /// Opens a generation that is not published yet.
    pub(crate) fn of(folder: &Path, manifest: Manifest) -> Result<Self, StoreError> {
        let segments = Self::open_segments(folder, &manifest, None)?;
        Ok(Self { manifest, segments })
    }

    fn open_segments(
        folder: &Path,
        manifest: &Manifest,
        before: Option<&Self>,
    ) -> Result<Vec<Arc<Segment>>, StoreError> {
        let mut segments = Vec::new();
        let mut index = None;
        for entry in &manifest.segments {
            let same = before.and_then(|before| {
                let at = before
                    .manifest
                    .segments
                    .iter()
                    .position(|known| known == entry)?;
                before.segments.get(at).cloned()
            });
            segments.push(match same {
                Some(segment) => segment,
                None => {
                    let mut segment = Segment::open(folder, entry)?;
                    if entry.borrowed {
                        let read = || GitIndex::read(Path::new(&manifest.root));
                        segment.take_stamps(index.get_or_insert_with(read));
                    }
                    Arc::new(segment)
                }
            });
        }
        Ok(segments)
    }

    /// Where a path stands: the newest living document of it.
    pub(crate) fn find(&self, path: &str) -> Option<(usize, u32)> {
        let mut segments = self.segments.iter().enumerate().rev();
        segments.find_map(|(number, segment)| Some((number, segment.find(path)?)))
    }

    pub(crate) fn live_docs(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let segments = self.segments.iter().enumerate();
        segments.flat_map(|(number, segment)| segment.live_docs().map(move |doc| (number, doc)))
    }

    /// How many documents the symbol layer covers, and of how many.
    pub(crate) fn symbol_docs(&self) -> (u64, u64) {
        let (mut all, mut left) = (0, 0);
        for segment in &self.segments {
            all += u64::from(segment.docs.len());
            left += u64::from(segment.without_symbols());
        }
        (all - left.min(all), all)
    }
}

/// How a file differs from the generation.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Removed,
    Present(Arc<Live>),
}

/// A file that is new or changed. It is read again whenever it is needed, so nothing of it grows
/// old; only its terms are kept.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) stamp: Stamp,
    pub(crate) skip: Option<Skip>,
    terms: OnceLock<(TermFields, u32)>,
}

impl Live {
    pub(crate) const fn new(stamp: Stamp, skip: Option<Skip>) -> Self {
        Self {
            stamp,
            skip,
            terms: OnceLock::new(),
        }
    }

    /// The terms of the file and their number.
    pub(crate) fn terms(&self, path: &str, reader: &Reader<'_>) -> &(TermFields, u32) {
        self.terms.get_or_init(|| {
            let mut buffer = Vec::new();
            match reader.read(path, &mut buffer).0 {
                Content::Text => terms_of(path, Lang::of_path(path), &buffer),
                _ => Default::default(),
            }
        })
    }
}

/// The files that have changed, by path.
pub(crate) type Overlay = BTreeMap<String, Change>;

/// Whether a view is known to be the tree as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    /// The tree has not been compared with the index yet.
    Unswept,
    /// More has changed than is held in memory; a build takes it in.
    Behind,
    /// Nothing watches the tree, and this call had no time to sweep it.
    Unwatched,
    /// Too many files have names outside of the tree, through which they can be edited unseen.
    Linked,
    /// The tree has too many repositories for their own rules to be looked at in each call.
    Excluded,
}

impl Freshness {
    pub(crate) const fn is_fresh(self) -> bool {
        matches!(self, Self::Fresh)
    }

    /// Why a view is not known to be fresh.
    pub(crate) const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Fresh => None,
            Self::Unswept => Some("the tree is still being compared with the index"),
            Self::Behind => Some("many files have changed and a build is taking them in"),
            Self::Unwatched => {
                Some("there is no directory watch; files may have changed since the last sweep")
            }
            Self::Linked => Some(
                "many files have names outside of the tree; edits through those may be unseen since the last sweep",
            ),
            Self::Excluded => Some(
                "the tree has many repositories; changes of their info/exclude may be unseen since the last sweep",
            ),
        }
    }
}

/// What one call works on.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) generation: Arc<Generation>,
    pub(crate) overlay: Arc<Overlay>,
    /// Documents that the overlay replaces, by segment.
    masked: Vec<DocSet>,
    pub(crate) freshness: Freshness,
    skipped: OnceLock<Vec<(Skip, String)>>,
}

impl View {
    pub(crate) fn new(
        generation: Arc<Generation>,
        overlay: Arc<Overlay>,
        freshness: Freshness,
    ) -> Self {
        let mut masked = vec![DocSet::default(); generation.segments.len()];
        for path in overlay.keys() {
            for (segment, set) in generation.segments.iter().zip(&mut masked) {
                if let Some(doc) = segment.find(path) {
                    set.insert(doc);
                }
            }
        }
        Self {
            generation,
            overlay,
            masked,
            freshness,
            skipped: OnceLock::new(),
        }
    }

    /// Whether a document counts.
    pub(crate) fn is_live(&self, segment: usize, doc: u32) -> bool {
        let live = self
            .generation
            .segments
            .get(segment)
            .is_some_and(|found| found.is_live(doc));
        live && !self
            .masked
            .get(segment)
            .is_some_and(|set| set.contains(doc))
    }

    /// The kind and the owner of the definition that begins at a line, as the symbol layer has them.
    pub(crate) fn symbol_at(&self, path: &str, name: &str, line: u64) -> Option<(Kind, Box<str>)> {
        let (number, doc) = self.generation.find(path)?;
        let segment = self.generation.segments.get(number)?;
        if !self.is_live(number, doc) || !segment.has_symbols(doc) {
            return None;
        }
        segment.symbols.iter().find_map(|table| {
            let found = table.get(&key(name)).ok()??;
            let mut postings = postings(table, &found).ok()?.into_iter();
            let same = |posting: &Posting| posting.doc == doc && posting.start_line == line;
            postings.find(same).map(|found| (found.kind, found.owner))
        })
    }

    /// Changed files that are there, in the order of hits.
    pub(crate) fn changed(&self) -> Vec<(u8, &str, &Arc<Live>)> {
        let mut found: Vec<_> = self
            .overlay
            .iter()
            .filter_map(|(path, change)| match change {
                Change::Present(live) => Some((classify(path).number(), path.as_str(), live)),
                Change::Removed => None,
            })
            .collect();
        found.sort_unstable_by_key(|(class, path, _)| (*class, *path));
        found
    }

    /// Files and bytes of text that count.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let (mut files, mut bytes) = (0, 0);
        for (number, segment) in self.generation.segments.iter().enumerate() {
            for doc in segment.live_docs() {
                if segment.docs.is_text(doc) && self.is_live(number, doc) {
                    files += 1;
                    bytes += segment.docs.stamp(doc).size;
                }
            }
        }
        for (_, _, live) in self.changed() {
            if live.skip.is_none() {
                files += 1;
                bytes += live.stamp.size;
            }
        }
        (files, bytes)
    }

    /// Skipped files with their reasons, sorted by reason and path.
    pub(crate) fn skipped(&self) -> &[(Skip, String)] {
        self.skipped.get_or_init(|| self.find_skipped())
    }

    fn find_skipped(&self) -> Vec<(Skip, String)> {
        let mut found = Vec::new();
        for (number, segment) in self.generation.segments.iter().enumerate() {
            for doc in segment.live_docs() {
                if let Some(skip) = segment.docs.skip(doc)
                    && self.is_live(number, doc)
                {
                    found.push((skip, segment.docs.path(doc).to_owned()));
                }
            }
        }
        for (_, path, live) in self.changed() {
            if let Some(skip) = live.skip {
                found.push((skip, path.to_owned()));
            }
        }
        let unreadable = &self.generation.manifest.unreadable;
        found.extend(
            unreadable
                .iter()
                .map(|path| (Skip::Unreadable, path.clone())),
        );
        found.sort_unstable();
        found
    }
}
