//! What is said about a segment later: which documents have gone, and stamps of files that were
//! touched without being changed. Small files, written anew with each generation that needs it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::store::codec::{seal, take_array, unseal};
use crate::store::{StoreError, create};
use crate::tree::file::Stamp;

/// A set of documents of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocSet {
    words: Vec<u64>,
    count: u32,
}

impl DocSet {
    pub(crate) fn contains(&self, doc: u32) -> bool {
        let word = self.words.get(doc as usize / 64).copied().unwrap_or(0);
        word >> (doc % 64) & 1 == 1
    }

    pub(crate) fn insert(&mut self, doc: u32) {
        let at = doc as usize / 64;
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        if let Some(word) = self.words.get_mut(at) {
            let bit = 1 << (doc % 64);
            self.count += u32::from(*word & bit == 0);
            *word |= bit;
        }
    }

    pub(crate) fn remove(&mut self, doc: u32) {
        if let Some(word) = self.words.get_mut(doc as usize / 64) {
            let bit = 1 << (doc % 64);
            self.count -= u32::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words = (0_u32..).zip(&self.words).filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| {
            (0_u32..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| at * 64 + bit)
        })
    }

    pub(crate) const fn len(&self) -> u32 {
        self.count
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn write(&self, path: &Path) -> Result<u64, StoreError> {
        let bytes = self
            .words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        write_sealed(path, bytes)
    }

    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let body = read_sealed(path)?;
        let (words, _) = body.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let count = words.iter().map(|word| word.count_ones()).sum();
        Ok(Self { words, count })
    }
}

/// Stamps that replace those of the documents.
pub(crate) type Stamps = BTreeMap<u32, Stamp>;

pub(crate) fn write_stamps(path: &Path, stamps: &Stamps) -> Result<u64, StoreError> {
    let mut bytes = Vec::with_capacity(stamps.len() * 36);
    for (doc, stamp) in stamps {
        bytes.extend_from_slice(&doc.to_le_bytes());
        bytes.extend_from_slice(&stamp.size.to_le_bytes());
        bytes.extend_from_slice(&stamp.modified.to_le_bytes());
        bytes.extend_from_slice(&stamp.changed.to_le_bytes());
        bytes.extend_from_slice(&stamp.inode.to_le_bytes());
    }
    write_sealed(path, bytes)
}

pub(crate) fn open_stamps(path: &Path) -> Result<Stamps, StoreError> {
    let body = read_sealed(path)?;
    let mut rest = body.as_slice();
    let mut stamps = Stamps::new();
    while let Some(doc) = take_array::<4>(&mut rest) {
        let mut number = || take_array::<8>(&mut rest).unwrap_or_default();
        let stamp = Stamp {
            size: u64::from_le_bytes(number()),
            modified: i64::from_le_bytes(number()),
            changed: i64::from_le_bytes(number()),
            inode: u64::from_le_bytes(number()),
        };
        stamps.insert(u32::from_le_bytes(doc), stamp);
    }
    Ok(stamps)
}

fn write_sealed(path: &Path, mut bytes: Vec<u8>) -> Result<u64, StoreError> {
    seal(&mut bytes);
    create(path)?
        .write_all(&bytes)
        .map_err(|error| StoreError::io(path, error))?;
    Ok(bytes.len() as u64)
}

fn read_sealed(path: &Path) -> Result<Vec<u8>, StoreError> {
    let mut bytes = fs::read(path).map_err(|error| StoreError::io(path, error))?;
    let length = unseal(&bytes)
        .ok_or_else(|| StoreError::corrupt(path, "wrong checksum"))?
        .len();
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use mainstay_worker::testing::TempDir;

    use super::*;

    #[test]
    fn sets_and_stamps_come_back() {
        let dir = TempDir::new().unwrap();
        let mut set = DocSet::default();
        for doc in [0, 5, 64, 1000, 5] {
            set.insert(doc);
        }
        assert_eq!(set.len(), 4);
        set.write(&dir.path().join("s")).unwrap();
        let read = DocSet::open(&dir.path().join("s")).unwrap();
        assert_eq!(read, set);
        assert!(read.contains(64) && !read.contains(63) && !read.contains(99_999));
        assert_eq!(set.iter().collect::<Vec<u32>>(), [0, 5, 64, 1000]);
        for doc in [5, 6, 99_999, 5] {
            set.remove(doc);
        }
        assert_eq!(set.len(), 3);
        assert_eq!(set.iter().collect::<Vec<u32>>(), [0, 64, 1000]);
        let stamps = Stamps::from([(
            3,
            Stamp {
                size: 1,
                modified: -2,
                changed: 3,
                inode: 4,
            },
        )]);
        write_stamps(&dir.path().join("t"), &stamps).unwrap();
        assert_eq!(open_stamps(&dir.path().join("t")).unwrap(), stamps);
    }
}
