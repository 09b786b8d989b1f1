//! A table on disk: sorted keys, each with a count and a list of bytes.
//!
//! The lists come first in the file, then the keys in blocks, then an index with the first key of
//! each block, then a footer. The index is held in memory; a look-up reads one block and, unless
//! the list is short enough to stand in the block, the list. Blocks, long lists and the index carry
//! checksums. Trigrams, terms and symbols are all tables.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use memchr::memmem::Finder;

use crate::store::codec::{put, seal, take, take_array, take_bytes, take_u32, unseal};
use crate::store::{StoreError, create};

/// Keys of one block.
const BLOCK_KEYS: usize = 64;
/// Longest list that stands in its block.
const INLINE_BYTES: usize = 24;
/// Longest key.
pub(crate) const KEY_BYTES: usize = 255;
const MAGIC: [u8; 8] = *b"msttbl01";
const FOOTER_BYTES: usize = 8 * 4 + 4 + 8;
const SUM_BYTES: u64 = 4;
/// Bytes between two blocks that are read with them rather than left out, and bytes that are read
/// together at most.
const GAP_BYTES: u64 = 4 * 1024;
const TOGETHER_BYTES: u64 = 64 * 1024;

/// Writes a table; keys must come in ascending order.
#[derive(Debug)]
pub(crate) struct TableWriter {
    path: PathBuf,
    out: BufWriter<File>,
    offset: u64,
    entries: u64,
    block: Vec<u8>,
    in_block: usize,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    /// Where the lists of the block begin.
    lists_at: u64,
    blocks: Vec<u8>,
    index: Vec<u8>,
}

impl TableWriter {
    pub(crate) fn create(path: &Path) -> Result<Self, StoreError> {
        let file = create(path)?;
        Ok(Self {
            path: path.to_owned(),
            out: BufWriter::with_capacity(256 * 1024, file),
            offset: 0,
            entries: 0,
            block: Vec::new(),
            in_block: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
            lists_at: 0,
            blocks: Vec::new(),
            index: Vec::new(),
        })
    }

    pub(crate) fn add(&mut self, key: &[u8], count: u32, list: &[u8]) -> Result<(), StoreError> {
        let key = key.get(..KEY_BYTES).unwrap_or(key);
        if self.in_block == 0 {
            self.first_key = key.to_vec();
            self.last_key.clear();
            self.lists_at = self.offset;
        }
        let shared = self
            .last_key
            .iter()
            .zip(key)
            .take_while(|(a, b)| a == b)
            .count();
        self.block.push(shared as u8);
        self.block.push((key.len() - shared) as u8);
        self.block
            .extend_from_slice(key.get(shared..).unwrap_or_default());
        put(&mut self.block, u64::from(count));
        let inline = list.len() <= INLINE_BYTES;
        put(
            &mut self.block,
            (list.len() as u64) << 1 | u64::from(inline),
        );
        if inline {
            self.block.extend_from_slice(list);
        } else {
            self.write(list)?;
            self.write(&crate::store::codec::checksum(list).to_le_bytes())?;
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.in_block += 1;
        self.entries += 1;
        if self.in_block == BLOCK_KEYS {
            self.end_block();
        }
        Ok(())
    }

    fn end_block(&mut self) {
        if self.in_block == 0 {
            return;
        }
        seal(&mut self.block);
        self.index.push(self.first_key.len() as u8);
        self.index.extend_from_slice(&self.first_key);
        put(&mut self.index, self.blocks.len() as u64);
        put(&mut self.index, self.block.len() as u64);
        put(&mut self.index, self.lists_at);
        self.blocks.append(&mut self.block);
        self.in_block = 0;
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.offset += bytes.len() as u64;
        self.out
            .write_all(bytes)
            .map_err(|error| StoreError::io(&self.path, error))
    }

    /// Ends the table; gives its length in bytes.
    pub(crate) fn finish(mut self) -> Result<u64, StoreError> {
        self.end_block();
        let blocks_at = self.offset;
        let blocks = std::mem::take(&mut self.blocks);
        self.write(&blocks)?;
        let index_at = self.offset;
        let index = std::mem::take(&mut self.index);
        self.write(&index)?;
        let mut footer = Vec::with_capacity(FOOTER_BYTES);
        for number in [blocks_at, index_at, index.len() as u64, self.entries] {
            footer.extend_from_slice(&number.to_le_bytes());
        }
        footer.extend_from_slice(&crate::store::codec::checksum(&index).to_le_bytes());
        footer.extend_from_slice(&MAGIC);
        self.write(&footer)?;
        self.out
            .flush()
            .map_err(|error| StoreError::io(&self.path, error))?;
        Ok(self.offset)
    }
}

/// An open table.
#[derive(Debug)]
pub(crate) struct Table {
    path: PathBuf,
    file: File,
    blocks_at: u64,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "part of the format; tests compare it")
    )]
    entries: u64,
    index: Vec<u8>,
    /// Where each entry of the index begins.
    starts: Vec<u32>,
}

/// What a table knows about one key.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// How many postings the list has.
    pub(crate) count: u32,
    list: List,
}

#[derive(Clone, Debug)]
enum List {
    Inline(Vec<u8>),
    At { offset: u64, length: u64 },
}

/// What a table knows about a key of the block that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanned<'a> {
    shared: usize,
    count: u32,
    list: ScannedList<'a>,
}

#[derive(Clone, Copy, Debug)]
enum ScannedList<'a> {
    Inline(&'a [u8]),
    At { offset: u64, length: u64 },
}

impl Scanned<'_> {
    /// How many bytes the key has in common with the one before it in its block.
    pub(crate) const fn shared(self) -> usize {
        self.shared
    }

    /// The same, to be kept.
    pub(crate) fn to_found(self) -> Found {
        Found {
            count: self.count,
            list: match self.list {
                ScannedList::Inline(bytes) => List::Inline(bytes.to_vec()),
                ScannedList::At { offset, length } => List::At { offset, length },
            },
        }
    }
}

struct IndexEntry<'a> {
    first_key: &'a [u8],
    offset: u64,
    length: u64,
    lists_at: u64,
}

impl Table {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let fail = |error| StoreError::io(path, error);
        let file = File::open(path).map_err(fail)?;
        let length = file.metadata().map_err(fail)?.len();
        let broken = |what| StoreError::corrupt(path, what);
        let footer_at = length
            .checked_sub(FOOTER_BYTES as u64)
            .ok_or_else(|| broken("too short"))?;
        let mut footer = [0; FOOTER_BYTES];
        file.read_exact_at(&mut footer, footer_at).map_err(fail)?;
        let mut rest = footer.as_slice();
        let mut number = || {
            take_array::<8>(&mut rest)
                .map(u64::from_le_bytes)
                .unwrap_or(0)
        };
        let (blocks_at, index_at, index_length, entries) = (number(), number(), number(), number());
        let sum = take_array::<4>(&mut rest).map(u32::from_le_bytes);
        if rest != MAGIC
            || index_at.checked_add(index_length) != Some(footer_at)
            || blocks_at > index_at
        {
            return Err(broken("its footer is wrong"));
        }
        let mut index = vec![0; usize::try_from(index_length).map_err(|_| broken("too long"))?];
        file.read_exact_at(&mut index, index_at).map_err(fail)?;
        if Some(crate::store::codec::checksum(&index)) != sum {
            return Err(broken("its index has the wrong checksum"));
        }
        let mut starts = Vec::with_capacity(usize::try_from(entries).unwrap_or(0) / BLOCK_KEYS + 1);
        let mut rest = index.as_slice();
        while !rest.is_empty() {
            starts.push((index.len() - rest.len()) as u32);
            index_entry(&mut rest).ok_or_else(|| broken("its index is cut"))?;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            blocks_at,
            entries,
            index,
            starts,
        })
    }

    #[cfg(test)]
    const fn entries(&self) -> u64 {
        self.entries
    }

    fn broken(&self, what: &'static str) -> StoreError {
        StoreError::corrupt(&self.path, what)
    }

    fn entry(&self, number: usize) -> Result<IndexEntry<'_>, StoreError> {
        let start = self
            .starts
            .get(number)
            .ok_or_else(|| self.broken("no such block"))?;
        let mut rest = self.index.get(*start as usize..).unwrap_or_default();
        index_entry(&mut rest).ok_or_else(|| self.broken("its index is cut"))
    }

    /// The block that would hold `key`.
    fn block_for(&self, key: &[u8]) -> Option<usize> {
        let after = self.starts.partition_point(|start| {
            let mut rest = self.index.get(*start as usize..).unwrap_or_default();
            index_entry(&mut rest).is_some_and(|entry| entry.first_key <= key)
        });
        after.checked_sub(1)
    }

    /// The bytes of neighbouring blocks, from the first to the last of `entries`.
    fn read_blocks(
        &self,
        first: &IndexEntry<'_>,
        last: &IndexEntry<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let end = last.offset.saturating_add(last.length);
        let length = end.saturating_sub(first.offset);
        bytes.resize(usize::try_from(length).unwrap_or(0), 0);
        self.file
            .read_exact_at(bytes, self.blocks_at + first.offset)
            .map_err(|error| StoreError::io(&self.path, error))
    }

    /// Looks a key up.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Found>, StoreError> {
        let Some(number) = self.block_for(key) else {
            return Ok(None);
        };
        let mut found = None;
        self.scan_block(number, |candidate, scanned| {
            if candidate == key {
                found = Some(scanned.to_found());
            }
            candidate < key
        })?;
        Ok(found)
    }

    /// Walks the entries of one block until `each` says false.
    pub(crate) fn scan_block(
        &self,
        number: usize,
        each: impl FnMut(&[u8], Scanned<'_>) -> bool,
    ) -> Result<(), StoreError> {
        self.scan_blocks(&[number], each)
    }

    /// Walks the entries of some blocks, which ascend, until `each` says false.
    pub(crate) fn scan_blocks(
        &self,
        numbers: &[usize],
        mut each: impl FnMut(&[u8], Scanned<'_>) -> bool,
    ) -> Result<(), StoreError> {
        let mut key = Vec::new();
        self.each_block(numbers, |block, lists_at| {
            self.walk(block, lists_at, &mut key, &mut each)
        })
    }

    /// Walks those entries of some blocks, which ascend, whose keys have some bytes inside, until
    /// `each` says false. Most blocks have none, so they are looked for in all keys of a block at
    /// once.
    pub(crate) fn scan_blocks_having(
        &self,
        numbers: &[usize],
        part: &Finder<'_>,
        mut each: impl FnMut(&[u8], Scanned<'_>) -> bool,
    ) -> Result<(), StoreError> {
        let mut keys = Vec::new();
        self.each_block(numbers, |block, lists_at| {
            keys.clear();
            let mut entries = Entries::new(block, lists_at);
            let (mut starts, mut start) = ([0; BLOCK_KEYS], 0);
            let mut count = 0;
            while let Some(entry) = entries.next() {
                let (shared, added, _) = entry.ok_or_else(|| self.broken("a block is cut"))?;
                let before = start..(start + shared).min(keys.len());
                start = keys.len();
                keys.extend_from_within(before);
                keys.extend_from_slice(added);
                if let Some(place) = starts.get_mut(count) {
                    *place = start;
                }
                count += 1;
            }
            let starts = starts.get(..count).unwrap_or_default();
            let mut hits = part.find_iter(&keys).peekable();
            if hits.peek().is_none() {
                return Ok(true);
            }
            let mut having = [false; BLOCK_KEYS];
            for hit in hits {
                let at = starts.partition_point(|start| *start <= hit);
                if let Some(has) = at.checked_sub(1).and_then(|at| having.get_mut(at)) {
                    *has = true;
                }
            }
            let mut entries = Entries::new(block, lists_at);
            for (at, has) in having.into_iter().enumerate().take(count) {
                let Some(Some((_, _, scanned))) = entries.next() else {
                    break;
                };
                let end = starts.get(at + 1).copied().unwrap_or(keys.len());
                let key = starts.get(at).and_then(|start| keys.get(*start..end));
                if has && !key.is_none_or(|key| each(key, scanned)) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Gives the bytes of some blocks, which ascend, and where their lists begin to `each` until it
    /// says false. Blocks that are near each other are read together.
    fn each_block(
        &self,
        numbers: &[usize],
        mut each: impl FnMut(&[u8], u64) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        let mut rest = numbers;
        while let Some(number) = rest.first() {
            let first = self.entry(*number)?;
            let (mut last, mut count) = (self.entry(*number)?, 1);
            for number in rest.iter().skip(1) {
                let next = self.entry(*number)?;
                let gap = next
                    .offset
                    .saturating_sub(last.offset.saturating_add(last.length));
                let whole = next
                    .offset
                    .saturating_add(next.length)
                    .saturating_sub(first.offset);
                if gap > GAP_BYTES || whole > TOGETHER_BYTES {
                    break;
                }
                (last, count) = (next, count + 1);
            }
            self.read_blocks(&first, &last, &mut bytes)?;
            let (together, after) = rest.split_at(count);
            rest = after;
            for number in together {
                let entry = self.entry(*number)?;
                let at = entry.offset.saturating_sub(first.offset) as usize;
                let sealed = bytes.get(at..at.saturating_add(entry.length as usize));
                let block = sealed
                    .and_then(unseal)
                    .ok_or_else(|| self.broken("a block has the wrong checksum"))?;
                if !each(block, entry.lists_at)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Walks the entries of a block that was read; gives the last word of `each`.
    fn walk(
        &self,
        block: &[u8],
        lists_at: u64,
        key: &mut Vec<u8>,
        each: &mut impl FnMut(&[u8], Scanned<'_>) -> bool,
    ) -> Result<bool, StoreError> {
        let mut entries = Entries::new(block, lists_at);
        key.clear();
        while let Some(entry) = entries.next() {
            let (shared, added, scanned) = entry.ok_or_else(|| self.broken("a block is cut"))?;
            key.truncate(shared);
            key.extend_from_slice(added);
            if !each(key, scanned) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The list of a key of the block that is being read.
    pub(crate) fn scanned_list<'a>(&self, found: Scanned<'a>) -> Result<Cow<'a, [u8]>, StoreError> {
        match found.list {
            ScannedList::Inline(bytes) => Ok(Cow::Borrowed(bytes)),
            ScannedList::At { .. } => self.list(&found.to_found()).map(Cow::Owned),
        }
    }

    /// Reads the list of a key.
    pub(crate) fn list(&self, found: &Found) -> Result<Vec<u8>, StoreError> {
        match &found.list {
            List::Inline(bytes) => Ok(bytes.clone()),
            List::At { offset, length } => {
                let mut bytes = vec![0; (*length + SUM_BYTES) as usize];
                self.file
                    .read_exact_at(&mut bytes, *offset)
                    .map_err(|error| StoreError::io(&self.path, error))?;
                let body =
                    unseal(&bytes).ok_or_else(|| self.broken("a list has the wrong checksum"))?;
                let length = body.len();
                bytes.truncate(length);
                Ok(bytes)
            }
        }
    }

    /// Walks the entries from the first key that is not below `from`, until `each` says false.
    pub(crate) fn scan(
        &self,
        from: &[u8],
        mut each: impl FnMut(&[u8], Scanned<'_>) -> bool,
    ) -> Result<(), StoreError> {
        let first = self.first_block(from);
        let mut go_on = true;
        for number in first..self.starts.len() {
            self.scan_block(number, |key, scanned| {
                if key >= from {
                    go_on = each(key, scanned);
                }
                go_on
            })?;
            if !go_on {
                break;
            }
        }
        Ok(())
    }

    /// The block that has the first key that is not below `from`, if any has.
    pub(crate) fn first_block(&self, from: &[u8]) -> usize {
        self.block_for(from).unwrap_or(0)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How many blocks of keys there are.
    pub(crate) const fn blocks(&self) -> usize {
        self.starts.len()
    }

    /// Reads a table from front to back, lists included.
    pub(crate) fn stream(self) -> Stream {
        Stream {
            table: self,
            next_block: 0,
            entries: Vec::new().into_iter(),
        }
    }

    /// Reads everything and compares every checksum.
    pub(crate) fn verify(&self) -> Result<(), StoreError> {
        for number in 0..self.starts.len() {
            let mut found = Vec::new();
            self.scan_block(number, |_, scanned| {
                found.push(scanned.to_found());
                true
            })?;
            for found in found {
                self.list(&found)?;
            }
        }
        Ok(())
    }
}

/// A key with its count and list.
pub(crate) type Entry = (Vec<u8>, u32, Vec<u8>);

/// See [`Table::stream`].
#[derive(Debug)]
pub(crate) struct Stream {
    table: Table,
    next_block: usize,
    entries: std::vec::IntoIter<(Vec<u8>, Found)>,
}

impl Stream {
    /// The next key with its count and list.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, StoreError> {
        loop {
            if let Some((key, found)) = self.entries.next() {
                let list = self.table.list(&found)?;
                return Ok(Some((key, found.count, list)));
            }
            if self.next_block >= self.table.starts.len() {
                return Ok(None);
            }
            let mut entries = Vec::with_capacity(BLOCK_KEYS);
            self.table.scan_block(self.next_block, |key, scanned| {
                entries.push((key.to_vec(), scanned.to_found()));
                true
            })?;
            self.next_block += 1;
            self.entries = entries.into_iter();
        }
    }
}

/// The entries of a block, one after the other.
struct Entries<'a> {
    rest: &'a [u8],
    /// Where the next list that does not stand in the block begins.
    offset: u64,
}

impl<'a> Entries<'a> {
    const fn new(block: &'a [u8], lists_at: u64) -> Self {
        Self {
            rest: block,
            offset: lists_at,
        }
    }

    /// How much of the key before an entry has at its beginning, what follows that, and the rest;
    /// nothing inside if the block is cut.
    #[expect(clippy::option_option, reason = "the end, or an entry that is cut")]
    fn next(&mut self) -> Option<Option<(usize, &'a [u8], Scanned<'a>)>> {
        (!self.rest.is_empty()).then(|| self.entry())
    }

    fn entry(&mut self) -> Option<(usize, &'a [u8], Scanned<'a>)> {
        let [shared, added] = take_array::<2>(&mut self.rest)?;
        let shared = usize::from(shared);
        let added = take_bytes(&mut self.rest, usize::from(added))?;
        let count = take_u32(&mut self.rest)?;
        let coded = take(&mut self.rest)?;
        let length = coded >> 1;
        let list = if coded & 1 == 1 {
            ScannedList::Inline(take_bytes(&mut self.rest, length as usize)?)
        } else {
            let list = ScannedList::At {
                offset: self.offset,
                length,
            };
            self.offset = self.offset.saturating_add(length).saturating_add(SUM_BYTES);
            list
        };
        let scanned = Scanned {
            shared,
            count,
            list,
        };
        Some((shared, added, scanned))
    }
}

fn index_entry<'a>(rest: &mut &'a [u8]) -> Option<IndexEntry<'a>> {
    let [length] = take_array::<1>(rest)?;
    Some(IndexEntry {
        first_key: take_bytes(rest, usize::from(length))?,
        offset: take(rest)?,
        length: take(rest)?,
        lists_at: take(rest)?,
    })
}

/// The size of a file, for adding up what an index takes: its share of one that indexes have in
/// common.
pub(crate) fn file_bytes(path: &Path) -> io::Result<u64> {
    std::fs::metadata(path).map(|metadata| metadata.len() / metadata.nlink().max(1))
}

#[cfg(test)]
mod tests {
    use mainstay_worker::testing::TempDir;

    use super::*;

    fn written(dir: &TempDir, keys: usize) -> PathBuf {
        let path = dir.path().join("t");
        let mut writer = TableWriter::create(&path).unwrap();
        for number in 0..keys {
            let list = vec![number as u8; number % 100];
            writer
                .add(format!("key{number:06}").as_bytes(), number as u32, &list)
                .unwrap();
        }
        assert_eq!(writer.finish().unwrap(), file_bytes(&path).unwrap());
        path
    }

    #[test]
    fn every_key_is_found_with_its_list_and_no_other() {
        let dir = TempDir::new().unwrap();
        let table = Table::open(&written(&dir, 1000)).unwrap();
        assert_eq!(table.entries(), 1000);
        for number in 0..1000_usize {
            let found = table
                .get(format!("key{number:06}").as_bytes())
                .unwrap()
                .unwrap();
            assert_eq!(found.count as usize, number);
            assert_eq!(
                table.list(&found).unwrap(),
                vec![number as u8; number % 100]
            );
        }
        for absent in ["", "key", "key0000005", "zzz", "a"] {
            assert!(table.get(absent.as_bytes()).unwrap().is_none());
        }
        table.verify().unwrap();
    }

    #[test]
    fn a_scan_begins_where_it_is_told() {
        let dir = TempDir::new().unwrap();
        let table = Table::open(&written(&dir, 300)).unwrap();
        let mut seen = Vec::new();
        table
            .scan(b"key000250", |key, _| {
                seen.push(String::from_utf8(key.to_vec()).unwrap());
                seen.len() < 3
            })
            .unwrap();
        assert_eq!(seen, ["key000250", "key000251", "key000252"]);
        let mut stream = table.stream();
        let mut count = 0;
        while stream.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 300);
    }

    #[test]
    fn the_keys_that_have_some_bytes_inside_are_found_and_no_others() {
        let dir = TempDir::new().unwrap();
        let table = Table::open(&written(&dir, 1000)).unwrap();
        let all: Vec<usize> = (0..table.blocks()).collect();
        for part in ["y0000", "99", "key000", "0", "63k", "key000999", "x"] {
            let mut wanted = Vec::new();
            let each = |key: &[u8], found: Scanned<'_>| {
                wanted.push((
                    key.to_vec(),
                    table.scanned_list(found).unwrap().into_owned(),
                ));
                true
            };
            table.scan_blocks(&all, each).unwrap();
            wanted.retain(|(key, _)| std::str::from_utf8(key).unwrap().contains(part));
            let mut found = Vec::new();
            let each = |key: &[u8], scanned: Scanned<'_>| {
                found.push((
                    key.to_vec(),
                    table.scanned_list(scanned).unwrap().into_owned(),
                ));
                true
            };
            let finder = Finder::new(part);
            table.scan_blocks_having(&all, &finder, each).unwrap();
            // What begins in one key and ends in the next is in neither.
            found.retain(|(key, _)| finder.find(key).is_some());
            assert_eq!(found, wanted, "{part}");
        }
    }

    #[test]
    fn damage_is_noticed_wherever_it_is() {
        let dir = TempDir::new().unwrap();
        let path = written(&dir, 500);
        let good = std::fs::read(&path).unwrap();
        for at in (0..good.len()).step_by(97) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            std::fs::write(&path, &bad).unwrap();
            let seen = Table::open(&path).and_then(|table| table.verify());
            assert!(seen.is_err(), "a flipped bit at {at} was not noticed");
        }
        std::fs::write(&path, &good[..good.len() / 2]).unwrap();
        assert!(Table::open(&path).is_err());
    }
}
