//! Joining runs into tables, and tables of several segments into one.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering as Memory};

use crate::store::StoreError;
use crate::store::codec::{put, take, take_u32};
use crate::store::table::{Entry, Stream, Table, TableWriter};

/// A run that waits to be joined.
#[derive(Debug)]
pub(crate) enum Run {
    Memory(Vec<u8>),
    /// A part of a file.
    File {
        path: PathBuf,
        offset: u64,
        length: u64,
    },
}

impl Run {
    fn open(self) -> Result<Box<dyn BufRead>, StoreError> {
        match self {
            Self::Memory(bytes) => Ok(Box::new(Cursor::new(bytes))),
            Self::File {
                path,
                offset,
                length,
            } => {
                let fail = |error| StoreError::io(&path, error);
                let mut file = File::open(&path).map_err(fail)?;
                file.seek(SeekFrom::Start(offset)).map_err(fail)?;
                Ok(Box::new(BufReader::with_capacity(
                    128 * 1024,
                    file.take(length),
                )))
            }
        }
    }
}

/// The head of one run.
struct Head {
    key: Vec<u8>,
    number: usize,
    count: u64,
    last: u64,
    list: Vec<u8>,
}

impl Head {
    fn order(&self) -> (&[u8], usize) {
        (&self.key, self.number)
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// Joins the runs of consecutive chunks, which must be in the order of their documents.
pub(crate) fn join_runs(
    runs: Vec<Run>,
    table: &Path,
    stop: &AtomicBool,
) -> Result<u64, StoreError> {
    let mut writer = TableWriter::create(table)?;
    let mut readers = runs
        .into_iter()
        .map(Run::open)
        .collect::<Result<Vec<_>, _>>()?;
    let mut heap = BinaryHeap::new();
    let broken = |error| StoreError::io(table, error);
    for (number, reader) in readers.iter_mut().enumerate() {
        let mut head = Head {
            key: Vec::new(),
            number,
            count: 0,
            last: 0,
            list: Vec::new(),
        };
        if fill(reader.as_mut(), &mut head).map_err(broken)? {
            heap.push(Reverse(head));
        }
    }
    let (mut key, mut list) = (Vec::new(), Vec::new());
    let (mut count, mut last) = (0_u64, 0_u64);
    let mut entries = 0_u32;
    while let Some(mut top) = heap.peek_mut() {
        let head = &mut top.0;
        if head.key != key {
            if count > 0 {
                writer.add(&key, count as u32, &list)?;
            }
            key.clone_from(&head.key);
            list.clear();
            (count, last) = (0, 0);
            entries = entries.wrapping_add(1);
            if entries & 0xfff == 0 && stop.load(Memory::Relaxed) {
                return Err(StoreError::Stopped);
            }
        }
        // Only the first number of a list depends on what stands before it.
        let mut rest = head.list.as_slice();
        let first = take(&mut rest).unwrap_or(0);
        put(&mut list, first - last);
        list.extend_from_slice(rest);
        count += head.count;
        last = head.last;
        let more = match readers.get_mut(head.number) {
            Some(reader) => fill(reader.as_mut(), head).map_err(broken)?,
            None => false,
        };
        if !more {
            std::collections::binary_heap::PeekMut::pop(top);
        }
    }
    if count > 0 {
        writer.add(&key, count as u32, &list)?;
    }
    writer.finish()
}

/// Reads the next entry of a run; false at its end.
fn fill(reader: &mut dyn BufRead, head: &mut Head) -> io::Result<bool> {
    let mut length = [0];
    match reader.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    }
    head.key.resize(usize::from(length[0]), 0);
    reader.read_exact(&mut head.key)?;
    head.count = number(reader)?;
    head.last = number(reader)?;
    let bytes = number(reader)?;
    head.list.resize(bytes as usize, 0);
    reader.read_exact(&mut head.list)?;
    Ok(true)
}

fn number(reader: &mut dyn BufRead) -> io::Result<u64> {
    let mut bytes = [0; 10];
    for at in 0..bytes.len() {
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        if let Some(place) = bytes.get_mut(at) {
            *place = byte[0];
        }
        if byte[0] < 0x80 {
            return Ok(take(&mut bytes.as_slice()).unwrap_or(0));
        }
    }
    Err(io::Error::from(io::ErrorKind::InvalidData))
}

/// How the postings of a table look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A delta.
    Plain,
    /// A delta and a byte.
    WithByte,
    /// A delta, a byte, two numbers, and a text after its length.
    Symbol,
}

/// Joins tables of several segments. `map` gives the new number of each segment's documents;
/// those without one are dropped.
pub(crate) fn join_tables(
    tables: Vec<(Table, &[Option<u32>])>,
    shape: Shape,
    out: &Path,
    stop: &AtomicBool,
) -> Result<u64, StoreError> {
    let mut writer = TableWriter::create(out)?;
    let mut sources = Vec::new();
    for (table, map) in tables {
        let mut stream = table.stream();
        let head = stream.next()?;
        sources.push((stream, map, head));
    }
    let mut postings: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut list = Vec::new();
    let mut entries = 0_u32;
    loop {
        let least = sources
            .iter()
            .filter_map(|source| source.2.as_ref())
            .map(|head| &head.0)
            .min();
        let Some(key) = least.cloned() else { break };
        entries = entries.wrapping_add(1);
        if entries & 0xfff == 0 && stop.load(Memory::Relaxed) {
            return Err(StoreError::Stopped);
        }
        postings.clear();
        for (stream, map, head) in &mut sources {
            if head.as_ref().is_some_and(|head| head.0 == key) {
                let (_, count, bytes) = advance(stream, head)?;
                decode(&bytes, count, shape, map, &mut postings)
                    .ok_or_else(|| StoreError::corrupt(out, "a list is cut"))?;
            }
        }
        if postings.is_empty() {
            continue;
        }
        postings.sort_by_key(|posting| posting.0);
        list.clear();
        let mut last = 0;
        for (doc, payload) in &postings {
            put(&mut list, u64::from(doc - last));
            list.extend_from_slice(payload);
            last = *doc;
        }
        writer.add(&key, postings.len() as u32, &list)?;
    }
    writer.finish()
}

fn advance(stream: &mut Stream, head: &mut Option<Entry>) -> Result<Entry, StoreError> {
    let next = stream.next()?;
    Ok(std::mem::replace(head, next).unwrap_or_default())
}

fn decode(
    bytes: &[u8],
    count: u32,
    shape: Shape,
    map: &[Option<u32>],
    postings: &mut Vec<(u32, Vec<u8>)>,
) -> Option<()> {
    let mut rest = bytes;
    let mut doc = 0;
    for _ in 0..count {
        doc += take_u32(&mut rest)?;
        let before = rest;
        match shape {
            Shape::Plain => {}
            Shape::WithByte => rest = rest.get(1..)?,
            Shape::Symbol => {
                rest = rest.get(1..)?;
                take(&mut rest)?;
                take(&mut rest)?;
                let owner = take_u32(&mut rest)?;
                rest = rest.get(owner as usize..)?;
            }
        }
        let payload = before.get(..before.len() - rest.len())?;
        if let Some(Some(new)) = map.get(doc as usize) {
            postings.push((*new, payload.to_vec()));
        }
    }
    Some(())
}
