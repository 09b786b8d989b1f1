//! The symbol layer of an index: built behind the text, batch by batch, each its own generation.
//!
//! A table of symbols has the name in lower case, a zero byte and the name as its keys, so one
//! look-up serves either case and names sort by what people type. A posting is a document, a kind,
//! a line, and how many lines the definition has.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::build::Place;
use crate::limits;
use crate::store::StoreError;
use crate::store::codec::{put, take, take_array, take_u32};
use crate::store::lock::WriterLock;
use crate::store::manifest::Manifest;
use crate::store::merge::{Shape, join_tables};
use crate::store::segment::Segment;
use crate::store::table::{Found, KEY_BYTES, Table, TableWriter};
use crate::symbols::{Symbol, extract};
use crate::text::defs::Kind;
use crate::tree::file::{Content, Reader};
use crate::tree::walk::threads;
use crate::view::Generation;

/// How far the threads of this layer stand back.
#[cfg(target_os = "linux")]
const NICE: i32 = 15;

/// The key of a name.
pub(crate) fn key(name: &str) -> Vec<u8> {
    let mut key = name.to_lowercase().into_bytes();
    key.truncate(KEY_BYTES / 2 - 1);
    key.push(0);
    key.extend(name.bytes().take(KEY_BYTES / 2));
    key
}

/// One posting of a symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posting {
    pub(crate) doc: u32,
    pub(crate) kind: Kind,
    pub(crate) start_line: u64,
    pub(crate) end_line: u64,
}

/// The postings of a key.
pub(crate) fn postings(table: &Table, found: &Found) -> Result<Vec<Posting>, StoreError> {
    let list = table.list(found)?;
    let mut rest = list.as_slice();
    let mut doc = 0_u32;
    let mut postings = Vec::new();
    while let Some(delta) = take_u32(&mut rest) {
        doc = doc.wrapping_add(delta);
        let (Some([kind]), Some(start), Some(lines)) =
            (take_array::<1>(&mut rest), take(&mut rest), take(&mut rest))
        else {
            break;
        };
        postings.push(Posting {
            doc,
            kind: Kind::from_number(kind),
            start_line: start,
            end_line: start.saturating_add(lines),
        });
    }
    Ok(postings)
}

/// Adds one batch of symbols; says whether there may be more to do. `hurry` ends it early.
pub(crate) fn extend(
    place: &Place,
    generation: &Generation,
    hurry: &AtomicBool,
) -> Result<bool, StoreError> {
    for segment in &generation.segments {
        if segment.symbols_to < segment.docs.len() {
            let (to, table) = batch(place, segment, hurry);
            publish(place, segment.id, segment.symbols_to, to, &table)?;
            return Ok(true);
        }
    }
    Ok(false)
}

type Batch = BTreeMap<Vec<u8>, Vec<Posting>>;

/// The symbols of the next documents.
fn batch(place: &Place, segment: &Segment, hurry: &AtomicBool) -> (u32, Batch) {
    let first = segment.symbols_to;
    let mut bytes = 0;
    let last = (first..segment.docs.len())
        .take_while(|doc| {
            let before = bytes;
            bytes += segment
                .docs
                .stamp(*doc)
                .size
                .min(limits::PARSE_BYTES as u64);
            before < limits::SYMBOL_BATCH_BYTES
        })
        .last()
        .map_or(first, |doc| doc + 1);
    let next = AtomicU32::new(first);
    let count = AtomicUsize::new(0);
    let is_full = || count.load(Ordering::Relaxed) >= limits::SYMBOL_BATCH_SYMBOLS;
    let results: Mutex<Batch> = Mutex::default();
    let done: Mutex<Vec<u32>> = Mutex::default();
    let work = || {
        let reader = Reader::new(&place.rooted, place.max_bytes);
        let mut buffer = Vec::new();
        let mut found: Vec<(u32, Vec<Symbol>)> = Vec::new();
        let mut numbers = Vec::new();
        while !hurry.load(Ordering::Relaxed) && !is_full() {
            let doc = next.fetch_add(1, Ordering::Relaxed);
            if doc >= last {
                break;
            }
            if segment.is_live(doc) && segment.docs.is_text(doc) && segment.docs.lang(doc).is_code()
            {
                let path = segment.docs.path(doc);
                // A file that has changed meanwhile is covered by the overlay, not by this.
                if matches!(reader.read(path, &mut buffer).0, Content::Text) {
                    let symbols = extract(path, &buffer);
                    count.fetch_add(symbols.len(), Ordering::Relaxed);
                    found.push((doc, symbols));
                }
            }
            numbers.push(doc);
        }
        let mut all = results
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for (doc, symbols) in found {
            for symbol in symbols {
                all.entry(key(&symbol.name)).or_default().push(Posting {
                    doc,
                    kind: symbol.kind,
                    start_line: symbol.start_line,
                    end_line: symbol.end_line,
                });
            }
        }
        done.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .append(&mut numbers);
    };
    std::thread::scope(|scope| {
        // Half of the threads, and those behind everything else: the rest is for the calls.
        for _ in 0..threads().div_ceil(2) {
            scope.spawn(|| {
                // On Linux this is about the thread alone; where it is refused nothing is lost.
                #[cfg(target_os = "linux")]
                let _ = rustix::process::setpriority_process(None, NICE);
                work();
            });
        }
    });
    // Every number below the first that is missing has been dealt with.
    let mut done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_unstable();
    let to = done
        .into_iter()
        .zip(first..)
        .take_while(|(doc, expected)| doc == expected)
        .count();
    let to = first + to as u32;
    let mut table = results
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    for postings in table.values_mut() {
        postings.retain(|posting| posting.doc < to);
        postings.sort_by_key(|posting| (posting.doc, posting.start_line));
    }
    table.retain(|_, postings| !postings.is_empty());
    (to, table)
}

/// Writes the table and makes it part of the index, if the index still is what it was.
fn publish(place: &Place, id: u64, from: u32, to: u32, batch: &Batch) -> Result<(), StoreError> {
    if to == from {
        return Ok(());
    }
    let Some(_lock) = WriterLock::take(&place.folder)? else {
        // Somebody is building; the batch is done again afterwards.
        return Err(StoreError::Stopped);
    };
    let Some(mut manifest) = Manifest::read(&place.folder)? else {
        return Ok(());
    };
    let generation = manifest.generation + 1;
    let Some(entry) = manifest
        .segments
        .iter_mut()
        .find(|entry| entry.id == id && entry.symbols_to == from)
    else {
        return Ok(());
    };
    let name = format!("{}-{from}-{to}.sym", entry.name());
    write(&place.folder.join(&name), batch)?;
    entry.symbols.push(name);
    entry.symbols_to = to;
    if entry.symbols_to >= entry.docs && entry.symbols.len() > 1 {
        let name = format!("{}-all.sym", entry.name());
        let identity: Vec<Option<u32>> = (0..entry.docs).map(Some).collect();
        let mut tables = Vec::new();
        for part in &entry.symbols {
            tables.push((Table::open(&place.folder.join(part))?, identity.as_slice()));
        }
        join_tables(
            tables,
            Shape::Symbol,
            &place.folder.join(&name),
            &AtomicBool::new(false),
        )?;
        entry.symbols = vec![name];
    }
    manifest.generation = generation;
    manifest.publish(&place.folder)?;
    manifest.remove_strangers(&place.folder);
    Ok(())
}

fn write(path: &std::path::Path, batch: &Batch) -> Result<u64, StoreError> {
    let mut writer = TableWriter::create(path)?;
    let mut list = Vec::new();
    for (key, postings) in batch {
        list.clear();
        let mut last = 0;
        for posting in postings {
            put(&mut list, u64::from(posting.doc - last));
            list.push(posting.kind.number());
            put(&mut list, posting.start_line);
            put(
                &mut list,
                posting.end_line.saturating_sub(posting.start_line),
            );
            last = posting.doc;
        }
        writer.add(key, postings.len() as u32, &list)?;
    }
    writer.finish()
}
