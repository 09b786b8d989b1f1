//! The symbol layer of an index: built behind the text, batch by batch, each its own generation.
//!
//! A table of symbols has the name in lower case, a zero byte and the name as its keys, so one
//! look-up serves either case and names sort by what people type. A posting is a document, a kind,
//! a line, how many lines the definition has, and the name of its owner.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::build::{Place, content_hash};
use crate::limits;
use crate::store::StoreError;
use crate::store::codec::{put, take, take_array, take_bytes, take_u32};
use crate::store::lock::WriterLock;
use crate::store::manifest::{Manifest, SegmentEntry};
use crate::store::merge::{Shape, join_tables};
use crate::store::segment::Segment;
use crate::store::table::{Found, KEY_BYTES, Table, TableWriter};
use crate::symbols::{Symbol, extract, names};
use crate::text::defs::Kind;
use crate::tree::file::{Content, Reader, Skip};
use crate::tree::walk::{stand_back, threads};
use crate::view::View;

/// Tables of a segment past which they are joined although documents are missing in them.
const TABLES: usize = 8;

/// The key of a name.
pub(crate) fn key(name: &str) -> Vec<u8> {
    let mut key = name.to_lowercase().into_bytes();
    key.truncate(KEY_BYTES / 2 - 1);
    key.push(0);
    key.extend(name.bytes().take(KEY_BYTES / 2));
    key
}

/// One posting of a symbol table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Posting {
    pub(crate) doc: u32,
    pub(crate) kind: Kind,
    pub(crate) start_line: u64,
    pub(crate) end_line: u64,
    pub(crate) owner: Box<str>,
}

/// The postings of a key.
pub(crate) fn postings(table: &Table, found: &Found) -> Result<Vec<Posting>, StoreError> {
    let mut postings = Vec::new();
    each_posting(&table.list(found)?, |posting| postings.push(posting));
    Ok(postings)
}

/// Calls `each` with the postings of a list.
pub(crate) fn each_posting(list: &[u8], mut each: impl FnMut(Posting)) {
    let mut rest = list;
    let mut doc = 0_u32;
    while let Some(delta) = take_u32(&mut rest) {
        doc = doc.wrapping_add(delta);
        let (Some([kind]), Some(start), Some(lines)) =
            (take_array::<1>(&mut rest), take(&mut rest), take(&mut rest))
        else {
            break;
        };
        let Some(owner) = take_u32(&mut rest).and_then(|n| take_bytes(&mut rest, n as usize))
        else {
            break;
        };
        each(Posting {
            doc,
            kind: Kind::from_number(kind),
            start_line: start,
            end_line: start.saturating_add(lines),
            owner: String::from_utf8_lossy(owner).into(),
        });
    }
}

/// How a batch is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// It ends after this time, with what is done.
    pub(crate) time: Duration,
    /// Somebody waits for it: no thread is kept back.
    pub(crate) awaited: bool,
    /// Documents that were passed by are tried again.
    pub(crate) again: bool,
}

/// What a batch came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// There may be more to do now.
    pub(crate) more: bool,
    /// Files that should have had the text of their documents and did not.
    pub(crate) doubted: Vec<String>,
}

/// Adds one batch of symbols. `hurry` ends it early.
///
/// The symbols of a document are those of the text that its hash stands for. Where the file has
/// another text now, or none, the document is passed by: the overlay stands in for it while the file
/// is different, and when its old text comes back it is tried again.
pub(crate) fn extend(
    place: &Place,
    view: &View,
    effort: Effort,
    hurry: &AtomicBool,
) -> Result<Outcome, StoreError> {
    for (at, segment) in view.generation.segments.iter().enumerate() {
        if segment.symbols_to < segment.docs.len() {
            let docs = (segment.symbols_to..segment.docs.len()).collect();
            let batch = batch(place, view, (at, segment), docs, effort, hurry);
            return publish(place, view, (at, segment), batch);
        }
    }
    let mut doubted = Vec::new();
    for (at, segment) in view.generation.segments.iter().enumerate() {
        let docs: Vec<u32> = segment
            .live_missed()
            .filter(|doc| effort.again && view.is_live(at, *doc))
            .collect();
        if !docs.is_empty() {
            let batch = batch(place, view, (at, segment), docs, effort, hurry);
            if batch.missed.len() < batch.done.len() {
                return publish(place, view, (at, segment), batch);
            }
            doubted.extend(batch.doubted);
        }
    }
    Ok(Outcome {
        more: false,
        doubted,
    })
}

/// The symbols of some documents of one segment.
#[derive(Debug, Default)]
struct Batch {
    table: BTreeMap<Vec<u8>, Vec<Posting>>,
    /// Documents that were dealt with, ascending: the first of those that were given.
    done: Vec<u32>,
    /// Those of them that were passed by.
    missed: Vec<u32>,
    doubted: Vec<String>,
}

/// The symbols of the first of `docs`, which ascend.
fn batch(
    place: &Place,
    view: &View,
    (at, segment): (usize, &Segment),
    mut docs: Vec<u32>,
    effort: Effort,
    hurry: &AtomicBool,
) -> Batch {
    let mut bytes = 0;
    let most = docs.iter().take_while(|doc| {
        let before = bytes;
        let size = segment.docs.stamp(**doc).size;
        bytes += size.min(limits::PARSE_BYTES as u64);
        before < limits::SYMBOL_BATCH_BYTES
    });
    docs.truncate(most.count());
    let next = AtomicUsize::new(0);
    let count = AtomicUsize::new(0);
    let is_full = || count.load(Ordering::Relaxed) >= limits::SYMBOL_BATCH_SYMBOLS;
    let deadline = Instant::now() + effort.time;
    let whole: Mutex<Batch> = Mutex::default();
    let work = || {
        let reader = Reader::new(&place.rooted, place.max_bytes);
        let large = Reader::new(&place.rooted, limits::DEFINITION_FILE_BYTES);
        let mut buffer = Vec::new();
        let mut part = Batch::default();
        // Whoever takes a number deals with it, so that those that were taken have no gap.
        while !hurry.load(Ordering::Relaxed) && !is_full() {
            let Some(doc) = docs.get(next.fetch_add(1, Ordering::Relaxed)).copied() else {
                break;
            };
            let is_large = segment.docs.skip(doc) == Some(Skip::TooLarge);
            let of_code =
                (segment.docs.is_text(doc) || is_large) && segment.docs.lang(doc).is_code();
            if of_code && !segment.is_live(doc) {
                // Its text may come back.
                part.missed.push(doc);
            } else if of_code {
                let path = segment.docs.path(doc);
                let same = view.is_live(at, doc)
                    && match is_large {
                        // Too large to be searched, but not for its definitions.
                        true => {
                            let (content, stamp) = large.read(path, &mut buffer);
                            matches!(content, Content::Text) && stamp == segment.stamp(doc)
                        }
                        false => {
                            matches!(reader.read(path, &mut buffer).0, Content::Text)
                                && content_hash(&buffer) == segment.docs.hash(doc)
                        }
                    };
                if same || is_large {
                    let symbols = match same {
                        true => extract(path, &buffer),
                        // Larger still, binary, or not what it was: it has none.
                        false => Vec::new(),
                    };
                    count.fetch_add(symbols.len(), Ordering::Relaxed);
                    part.take(doc, symbols);
                } else {
                    part.missed.push(doc);
                    if view.is_live(at, doc) {
                        part.doubted.push(path.to_owned());
                    }
                }
            }
            part.done.push(doc);
            if Instant::now() >= deadline {
                break;
            }
        }
        whole
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .join(part);
    };
    // Half of the threads, and those behind everything else: the rest is for the calls. Where a
    // call waits for the symbols, all of them at once.
    let threads = match effort.awaited {
        true => threads(),
        false => threads().div_ceil(2),
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                if !effort.awaited {
                    stand_back();
                }
                work();
            });
        }
    });
    let mut whole = whole
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    whole.done.sort_unstable();
    for postings in whole.table.values_mut() {
        postings.sort_by_key(|posting| (posting.doc, posting.start_line));
    }
    whole
}

impl Batch {
    fn take(&mut self, doc: u32, symbols: Vec<Symbol>) {
        for symbol in symbols {
            let postings = self.table.entry(key(&symbol.name)).or_default();
            postings.push(Posting {
                doc,
                kind: symbol.kind,
                start_line: symbol.start_line,
                end_line: symbol.end_line,
                owner: symbol.owner.into(),
            });
        }
    }

    fn join(&mut self, mut part: Self) {
        for (key, mut postings) in part.table {
            self.table.entry(key).or_default().append(&mut postings);
        }
        self.done.append(&mut part.done);
        self.missed.append(&mut part.missed);
        self.doubted.append(&mut part.doubted);
    }
}

/// Writes the table and makes it part of the index, if the index still is what it was.
fn publish(
    place: &Place,
    view: &View,
    (at, segment): (usize, &Segment),
    batch: Batch,
) -> Result<Outcome, StoreError> {
    let outcome = Outcome {
        more: true,
        doubted: batch.doubted,
    };
    let (Some(last), Some(known)) = (batch.done.last(), view.generation.manifest.segments.get(at))
    else {
        return Ok(outcome);
    };
    let Some(_lock) = WriterLock::take(&place.folder)? else {
        // Somebody is building; the batch is done again afterwards.
        return Err(StoreError::Stopped);
    };
    let Some(mut manifest) = Manifest::read(&place.folder)? else {
        return Ok(outcome);
    };
    let generation = manifest.generation + 1;
    let state = |entry: &SegmentEntry| (entry.id, entry.symbols_to, entry.missed.clone());
    let entries = manifest.segments.iter_mut();
    let Some(entry) = entries
        .into_iter()
        .find(|entry| state(entry) == state(known))
    else {
        return Ok(outcome);
    };
    if !batch.table.is_empty() {
        let name = format!("{}-{generation}.sym", entry.name());
        let path = place.folder.join(&name);
        write(&path, &batch.table)?;
        names::write(&path)?;
        entry.symbols.push(name);
    }
    entry.symbols_to = entry.symbols_to.max(last + 1);
    let mut missed = segment.missed.clone();
    batch.done.iter().for_each(|doc| missed.remove(*doc));
    batch.missed.iter().for_each(|doc| missed.insert(*doc));
    entry.missed = None;
    if !missed.is_empty() {
        let name = format!("{}-{generation}.missed", entry.name());
        missed.write(&place.folder.join(&name))?;
        entry.missed = Some(name);
    }
    let last_of_all = entry.symbols_to >= entry.docs;
    if last_of_all && entry.symbols.len() > if missed.is_empty() { 1 } else { TABLES } {
        let name = format!("{}-{generation}-all.sym", entry.name());
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
        names::write(&place.folder.join(&name))?;
        entry.symbols = vec![name];
    }
    manifest.generation = generation;
    manifest.publish(&place.folder)?;
    manifest.remove_strangers(&place.folder);
    Ok(outcome)
}

fn write(
    path: &std::path::Path,
    batch: &BTreeMap<Vec<u8>, Vec<Posting>>,
) -> Result<u64, StoreError> {
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
            put(&mut list, posting.owner.len() as u64);
            list.extend_from_slice(posting.owner.as_bytes());
            last = posting.doc;
        }
        writer.add(key, postings.len() as u32, &list)?;
    }
    writer.finish()
}
