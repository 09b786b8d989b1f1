//! An open segment: its documents, its tables, and what was said about it later.

use std::path::Path;

use crate::store::StoreError;
use crate::store::docs::Docs;
use crate::store::manifest::SegmentEntry;
use crate::store::side::{DocSet, Stamps, open_stamps};
use crate::store::table::Table;
use crate::tree::file::Stamp;
use crate::tree::git_index::GitIndex;

/// One immutable segment as a generation sees it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) docs: Docs,
    pub(crate) trigrams: Table,
    pub(crate) terms: Table,
    /// Tables of symbols, each for a range of documents.
    pub(crate) symbols: Vec<Table>,
    /// Documents below this number have been dealt with by the symbol layer.
    pub(crate) symbols_to: u32,
    /// Those of them that it does not cover: their text was not there to be read.
    pub(crate) missed: DocSet,
    /// Documents that have gone.
    pub(crate) dead: DocSet,
    pub(crate) stamps: Stamps,
}

impl Segment {
    pub(crate) fn open(folder: &Path, entry: &SegmentEntry) -> Result<Self, StoreError> {
        let file = |ending: &str| folder.join(format!("{}.{ending}", entry.name()));
        let docs = Docs::open(&file("docs"))?;
        if docs.len() != entry.docs {
            return Err(StoreError::corrupt(
                file("docs"),
                "not the documents of the manifest",
            ));
        }
        let symbols = entry
            .symbols
            .iter()
            .map(|name| Table::open(&folder.join(name)));
        Ok(Self {
            trigrams: Table::open(&file("tri"))?,
            terms: Table::open(&file("term"))?,
            symbols: symbols.collect::<Result<_, _>>()?,
            symbols_to: entry.symbols_to,
            missed: open_set(folder, entry.missed.as_deref())?,
            dead: open_set(folder, entry.dead.as_deref())?,
            stamps: match &entry.stamps {
                Some(name) => open_stamps(&folder.join(name))?,
                None => Stamps::new(),
            },
            docs,
        })
    }

    /// Takes the stamps of files that git proves to be the versions of the documents.
    pub(crate) fn take_stamps(&mut self, index: &GitIndex) {
        for doc in 0..self.docs.len() {
            let proven = index.stamp_of(self.docs.path(doc), self.docs.blob(doc));
            if let Some(stamp) = proven {
                self.stamps.entry(doc).or_insert(stamp);
            }
        }
    }

    /// Whether the symbols of a document are those of its text.
    pub(crate) fn has_symbols(&self, doc: u32) -> bool {
        doc < self.symbols_to && !self.missed.contains(doc)
    }

    /// Living documents that the symbol layer has passed by.
    pub(crate) fn live_missed(&self) -> impl Iterator<Item = u32> + '_ {
        self.missed.iter().filter(|doc| self.is_live(*doc))
    }

    /// Documents whose symbols are still to be had.
    pub(crate) fn without_symbols(&self) -> u32 {
        self.docs.len().saturating_sub(self.symbols_to) + self.live_missed().count() as u32
    }

    /// Reads every table whole and compares its checksums.
    pub(crate) fn verify(&self) -> Result<(), StoreError> {
        self.trigrams.verify()?;
        self.terms.verify()?;
        self.symbols.iter().try_for_each(Table::verify)
    }

    /// Whether a document counts in this generation.
    pub(crate) fn is_live(&self, doc: u32) -> bool {
        doc < self.docs.len() && !self.dead.contains(doc)
    }

    pub(crate) fn live_docs(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.docs.len()).filter(|doc| self.is_live(*doc))
    }

    /// The living document of a path.
    pub(crate) fn find(&self, path: &str) -> Option<u32> {
        self.docs.find(path).filter(|doc| self.is_live(*doc))
    }

    /// The stamp under which a document's file was last seen with this content.
    pub(crate) fn stamp(&self, doc: u32) -> Stamp {
        self.stamps
            .get(&doc)
            .copied()
            .unwrap_or_else(|| self.docs.stamp(doc))
    }

    /// Whether the stamp alone proves that the content is the same.
    pub(crate) fn is_racy(&self, doc: u32) -> bool {
        self.docs.is_racy(doc) && !self.stamps.contains_key(&doc)
    }
}

fn open_set(folder: &Path, name: Option<&str>) -> Result<DocSet, StoreError> {
    name.map_or_else(
        || Ok(DocSet::default()),
        |name| DocSet::open(&folder.join(name)),
    )
}
