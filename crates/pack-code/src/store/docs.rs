//! The documents of a segment: fixed records and their paths, held in memory as one piece.
//!
//! Documents are sorted by class and path, so their numbers are in the order of hits and a path is
//! found by bisection.
//!
//! The text of a document is cut into parts of about [`PART_BYTES`], each of whole lines. Trigrams
//! are of parts: what a query looks for lies within one line, so two trigrams far from each other in
//! a large file say nothing, and of a large file only the parts in question have to be read.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::store::codec::{seal, take_array, unseal};
use crate::store::{StoreError, create};
use crate::tree::class::classify;
use crate::tree::file::{Skip, Stamp};
use crate::tree::git_index::Blob;
use crate::tree::lang::Lang;

const MAGIC: [u8; 8] = *b"mstdoc03";
const RECORD_BYTES: usize = 92;
const MARK_BYTES: usize = 4;
const HEADER_BYTES: usize = 8 + 4 + 4 + 8;

/// Bytes of a content hash that are kept.
pub(crate) type ContentHash = [u8; 16];

/// Text of one part.
pub(crate) const PART_BYTES: u64 = 8 * 1024;

/// Parts of a file of this size. Only the size decides, so that parts can be numbered before
/// anything is read.
pub(crate) fn parts_of_size(size: u64) -> u32 {
    let parts = size
        .min(crate::limits::FILE_BYTES)
        .div_ceil(PART_BYTES)
        .max(1);
    u32::try_from(parts).unwrap_or(u32::MAX)
}

/// One document as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doc {
    pub(crate) path: String,
    pub(crate) stamp: Stamp,
    pub(crate) hash: ContentHash,
    pub(crate) lang: u8,
    pub(crate) skip: u8,
    /// It may have changed right after it was read, without a trace in its stamp.
    pub(crate) racy: bool,
    pub(crate) tokens: u32,
    pub(crate) lines: u32,
    /// The version that git has of it, where its stamp proves that.
    pub(crate) blob: Blob,
    /// Where its parts begin; the first at 0.
    pub(crate) parts: Vec<u32>,
}

/// `skip` of a file that had gone when it was to be read.
pub(crate) const GONE: u8 = 255;

/// Writes documents, which must be sorted by class and path.
pub(crate) fn write(path: &Path, docs: &[Doc]) -> Result<u64, StoreError> {
    let out = encode(docs);
    create(path)?
        .write_all(&out)
        .map_err(|error| StoreError::io(path, error))?;
    Ok(out.len() as u64)
}

/// Documents as they are written, sealed.
pub(crate) fn encode(docs: &[Doc]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + docs.len() * (RECORD_BYTES + 40));
    let tokens: u64 = docs.iter().map(|doc| u64::from(doc.tokens)).sum();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&(docs.len() as u32).to_le_bytes());
    let parts: usize = docs.iter().map(|doc| doc.parts.len()).sum();
    out.extend_from_slice(&(parts as u32).to_le_bytes());
    out.extend_from_slice(&tokens.to_le_bytes());
    let mut paths = Vec::new();
    let mut marks = Vec::with_capacity(parts * MARK_BYTES);
    for doc in docs {
        out.extend_from_slice(&(paths.len() as u32).to_le_bytes());
        out.extend_from_slice(&(doc.path.len() as u16).to_le_bytes());
        let class = classify(&doc.path).number();
        out.extend_from_slice(&[doc.lang, class, doc.skip, u8::from(doc.racy), 0, 0]);
        out.extend_from_slice(&doc.stamp.size.to_le_bytes());
        out.extend_from_slice(&doc.stamp.modified.to_le_bytes());
        out.extend_from_slice(&doc.stamp.changed.to_le_bytes());
        out.extend_from_slice(&doc.stamp.inode.to_le_bytes());
        out.extend_from_slice(&doc.hash);
        out.extend_from_slice(&doc.tokens.to_le_bytes());
        out.extend_from_slice(&doc.lines.to_le_bytes());
        out.extend_from_slice(&((marks.len() / MARK_BYTES) as u32).to_le_bytes());
        out.extend_from_slice(&doc.blob);
        for mark in &doc.parts {
            marks.extend_from_slice(&mark.to_le_bytes());
        }
        paths.extend_from_slice(doc.path.as_bytes());
    }
    out.append(&mut marks);
    out.append(&mut paths);
    seal(&mut out);
    out
}

/// The documents of an open segment.
#[derive(Debug)]
pub(crate) struct Docs {
    bytes: Vec<u8>,
    count: u32,
    parts: u32,
    tokens: u64,
}

impl Docs {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let bytes = fs::read(path).map_err(|error| StoreError::io(path, error))?;
        Self::parse(path, bytes)
    }

    /// Documents as [`encode`] gives them, out of a file.
    pub(crate) fn parse(path: &Path, mut bytes: Vec<u8>) -> Result<Self, StoreError> {
        let body = unseal(&bytes).ok_or_else(|| StoreError::corrupt(path, "wrong checksum"))?;
        let mut rest = body;
        let magic = take_array::<8>(&mut rest);
        let count = take_array::<4>(&mut rest).map(u32::from_le_bytes);
        let parts = take_array::<4>(&mut rest).map(u32::from_le_bytes);
        let tokens = take_array::<8>(&mut rest).map(u64::from_le_bytes);
        let (Some(MAGIC), Some(count), Some(parts), Some(tokens)) = (magic, count, parts, tokens)
        else {
            return Err(StoreError::corrupt(path, "wrong header"));
        };
        if rest.len() < count as usize * RECORD_BYTES + parts as usize * MARK_BYTES {
            return Err(StoreError::corrupt(path, "cut"));
        }
        let length = body.len();
        bytes.truncate(length);
        Ok(Self {
            bytes,
            count,
            parts,
            tokens,
        })
    }

    pub(crate) const fn len(&self) -> u32 {
        self.count
    }

    /// Terms of all documents together.
    pub(crate) const fn tokens(&self) -> u64 {
        self.tokens
    }

    fn record(&self, doc: u32) -> &[u8] {
        let start = HEADER_BYTES + doc as usize * RECORD_BYTES;
        match doc < self.count {
            true => self
                .bytes
                .get(start..start + RECORD_BYTES)
                .unwrap_or_default(),
            false => &[],
        }
    }

    fn field<const N: usize>(&self, doc: u32, at: usize) -> [u8; N] {
        let bytes = self.record(doc).get(at..at + N).unwrap_or_default();
        bytes.try_into().unwrap_or([0; N])
    }

    pub(crate) fn path(&self, doc: u32) -> &str {
        let start = u32::from_le_bytes(self.field(doc, 0)) as usize;
        let length = usize::from(u16::from_le_bytes(self.field(doc, 4)));
        let paths = self.marks_at() + self.parts as usize * MARK_BYTES;
        let bytes = self
            .bytes
            .get(paths + start..paths + start + length)
            .unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    pub(crate) fn lang(&self, doc: u32) -> Lang {
        Lang::from_number(u8::from_le_bytes(self.field(doc, 6)))
    }

    pub(crate) fn class_number(&self, doc: u32) -> u8 {
        u8::from_le_bytes(self.field(doc, 7))
    }

    pub(crate) fn skip_number(&self, doc: u32) -> u8 {
        u8::from_le_bytes(self.field(doc, 8))
    }

    pub(crate) fn skip(&self, doc: u32) -> Option<Skip> {
        Skip::from_number(self.skip_number(doc))
    }

    /// Whether the document has postings.
    pub(crate) fn is_text(&self, doc: u32) -> bool {
        self.skip_number(doc) == 0
    }

    pub(crate) fn is_racy(&self, doc: u32) -> bool {
        self.field::<1>(doc, 9) == [1]
    }

    pub(crate) fn stamp(&self, doc: u32) -> Stamp {
        Stamp {
            size: u64::from_le_bytes(self.field(doc, 12)),
            modified: i64::from_le_bytes(self.field(doc, 20)),
            changed: i64::from_le_bytes(self.field(doc, 28)),
            inode: u64::from_le_bytes(self.field(doc, 36)),
        }
    }

    pub(crate) fn hash(&self, doc: u32) -> ContentHash {
        self.field(doc, 44)
    }

    pub(crate) fn tokens_of(&self, doc: u32) -> u32 {
        u32::from_le_bytes(self.field(doc, 60))
    }

    pub(crate) fn lines(&self, doc: u32) -> u32 {
        u32::from_le_bytes(self.field(doc, 64))
    }

    pub(crate) fn blob(&self, doc: u32) -> Blob {
        self.field(doc, 72)
    }

    const fn marks_at(&self) -> usize {
        HEADER_BYTES + self.count as usize * RECORD_BYTES
    }

    /// Parts of all documents.
    pub(crate) const fn parts(&self) -> u32 {
        self.parts
    }

    /// The number of a document's first part; past the last document, that of all parts.
    pub(crate) fn first_part(&self, doc: u32) -> u32 {
        match doc < self.count {
            true => u32::from_le_bytes(self.field(doc, 68)),
            false => self.parts,
        }
    }

    /// The document of a part.
    pub(crate) fn doc_of_part(&self, part: u32) -> u32 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.first_part(middle) <= part {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }

    /// Where a part begins in its document.
    pub(crate) fn part_start(&self, part: u32) -> u32 {
        let at = self.marks_at() + part as usize * MARK_BYTES;
        let bytes = self.bytes.get(at..at + MARK_BYTES).unwrap_or_default();
        u32::from_le_bytes(bytes.try_into().unwrap_or_default())
    }

    /// The key of the order of hits.
    pub(crate) fn key(&self, doc: u32) -> (u8, &str) {
        (self.class_number(doc), self.path(doc))
    }

    /// The document of a path.
    pub(crate) fn find(&self, path: &str) -> Option<u32> {
        let key = (classify(path).number(), path);
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key(middle).cmp(&key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(middle),
            }
        }
        None
    }

    /// The first document that is not before a key.
    fn lower_bound(&self, key: (u8, &str)) -> u32 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The documents whose paths begin with `prefix`.
    pub(crate) fn under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = u32> + 'a {
        (0..=u8::MAX)
            .take_while(|class| *class <= crate::tree::class::Class::Generated.number())
            .flat_map(move |class| {
                let first = self.lower_bound((class, prefix));
                (first..self.count).take_while(move |doc| {
                    let (found, path) = self.key(*doc);
                    found == class && path.starts_with(prefix)
                })
            })
    }

    /// A document as it was written.
    pub(crate) fn doc(&self, doc: u32) -> Doc {
        Doc {
            path: self.path(doc).to_owned(),
            stamp: self.stamp(doc),
            hash: self.hash(doc),
            lang: self.lang(doc).number(),
            skip: self.skip_number(doc),
            racy: self.is_racy(doc),
            tokens: self.tokens_of(doc),
            lines: self.lines(doc),
            blob: self.blob(doc),
            parts: (self.first_part(doc)..self.first_part(doc + 1))
                .map(|part| self.part_start(part))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use mainstay_worker::testing::TempDir;

    use super::*;

    #[test]
    fn documents_come_back_and_are_found_by_path() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("d");
        let docs: Vec<Doc> = ["a/b.rs", "a/c.rs", "tests/a.rs"]
            .into_iter()
            .enumerate()
            .map(|(number, path)| Doc {
                path: path.to_owned(),
                stamp: Stamp {
                    size: number as u64,
                    modified: -5,
                    changed: 7,
                    inode: 9,
                },
                hash: [number as u8; 16],
                lang: 1,
                skip: 0,
                racy: number == 1,
                tokens: 10,
                lines: 3,
                blob: [number as u8; 20],
                parts: (0..=number as u32).map(|part| part * 50).collect(),
            })
            .collect();
        write(&path, &docs).unwrap();
        let read = Docs::open(&path).unwrap();
        assert_eq!((read.len(), read.tokens()), (3, 30));
        for (number, doc) in docs.iter().enumerate() {
            assert_eq!(&read.doc(number as u32), doc);
            assert_eq!(read.find(&doc.path), Some(number as u32));
        }
        assert_eq!(read.find("a/bb.rs"), None);
        assert_eq!(read.parts(), 6);
        let owners: Vec<u32> = (0..6).map(|part| read.doc_of_part(part)).collect();
        assert_eq!(owners, [0, 1, 1, 2, 2, 2]);
        assert_eq!(read.part_start(5), 100);
        assert_eq!(read.path(99), "");
    }
}
