//! From a list of files to a segment: chunks on several threads, then two merges side by side.
//!
//! Memory is bounded by a chunk per thread and by what runs may hold before they go to disk.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

use crate::build::difference::content_hash;
use crate::build::{Place, Progress};
use crate::limits;
use crate::store::StoreError;
use crate::store::chunk::{ChunkIndexer, Input};
use crate::store::docs::{self, Doc, GONE, parts_of_size};
use crate::store::manifest::{SegmentEntry, TEMPORARY};
use crate::store::merge::{Run, join_runs};
use crate::store::side::DocSet;
use crate::tree::file::{Content, Reader};
use crate::tree::lang::Lang;
use crate::tree::walk::{Found, threads};

/// Bytes of runs that stay in memory.
const RUN_BYTES: u64 = 48 * 1024 * 1024;

/// What one chunk gave.
struct Chunk {
    docs: Vec<Doc>,
    trigrams: Run,
    terms: Run,
    text_bytes: u64,
}

/// Writes the segment of `files`, which are sorted by class and path.
pub(super) fn write_segment(
    place: &Place,
    id: u64,
    files: &[Found],
    progress: &Progress,
) -> Result<SegmentEntry, StoreError> {
    let chunks = cut(files);
    let next = AtomicUsize::new(0);
    let in_memory = AtomicU64::new(0);
    let results: Mutex<Vec<(usize, Chunk)>> = Mutex::new(Vec::new());
    let failure: Mutex<Option<StoreError>> = Mutex::new(None);
    let work = || {
        let mut indexer = ChunkIndexer::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = chunks.get(number) else {
                return;
            };
            match index_chunk(place, &mut indexer, number, chunk, &in_memory, progress) {
                Ok(chunk) => lock(&results).push((number, chunk)),
                Err(error) => {
                    lock(&failure).get_or_insert(error);
                    // The others find nothing more to do.
                    next.store(chunks.len(), Ordering::Relaxed);
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads().min(chunks.len()) {
            scope.spawn(work);
        }
        work();
    });
    if let Some(error) = failure
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
    {
        return Err(error);
    }
    let mut results = results
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(number, _)| *number);
    finish(place, id, results, progress)
}

fn finish(
    place: &Place,
    id: u64,
    results: Vec<(usize, Chunk)>,
    progress: &Progress,
) -> Result<SegmentEntry, StoreError> {
    let mut entry = SegmentEntry {
        id,
        ..SegmentEntry::default()
    };
    let (mut all, mut trigrams, mut terms) = (Vec::new(), Vec::new(), Vec::new());
    for (_, chunk) in results {
        all.extend(chunk.docs);
        trigrams.push(chunk.trigrams);
        terms.push(chunk.terms);
        entry.text_bytes += chunk.text_bytes;
    }
    let name = entry.name();
    let file = |ending: &str| place.folder.join(format!("{name}.{ending}"));
    let (tri_path, term_path) = (file("tri"), file("term"));
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(|| join_runs(terms, &term_path, &progress.stop));
        let one = join_runs(trigrams, &tri_path, &progress.stop);
        (one, other.join())
    });
    one?;
    two.unwrap_or(Err(StoreError::Stopped))?;
    docs::write(&file("docs"), &all)?;
    entry.docs = all.len() as u32;
    let mut dead = DocSet::default();
    for (number, doc) in all.iter().enumerate() {
        if doc.skip == GONE {
            dead.insert(number as u32);
        }
    }
    if !dead.is_empty() {
        let name = format!("{name}-0.dead");
        dead.write(&place.folder.join(&name))?;
        entry.dead = Some(name);
    }
    if let Ok(entries) = fs::read_dir(&place.folder) {
        for run in entries.filter_map(Result::ok) {
            if run.file_name().to_string_lossy().starts_with("tmp-run-") {
                let _ = fs::remove_file(run.path());
            }
        }
    }
    Ok(entry)
}

/// A chunk of the list, with the numbers of its first document and part.
struct Slice<'a> {
    first: u32,
    first_part: u32,
    files: &'a [Found],
}

/// Cuts the list into chunks.
fn cut(files: &[Found]) -> Vec<Slice<'_>> {
    let mut chunks = Vec::new();
    let mut rest = files;
    let (mut first, mut first_part) = (0, 0);
    while !rest.is_empty() {
        let mut bytes = 0;
        let length = rest
            .iter()
            .take(limits::CHUNK_FILES)
            .take_while(|found| {
                let before = bytes;
                bytes += found.stamp.size.min(limits::FILE_BYTES);
                before < limits::CHUNK_BYTES
            })
            .count()
            .max(1);
        let (chunk, after) = rest.split_at(length);
        chunks.push(Slice {
            first,
            first_part,
            files: chunk,
        });
        first += length as u32;
        first_part += chunk
            .iter()
            .map(|found| parts_of_size(found.stamp.size))
            .sum::<u32>();
        rest = after;
    }
    chunks
}

fn index_chunk(
    place: &Place,
    indexer: &mut ChunkIndexer,
    number: usize,
    chunk: &Slice<'_>,
    in_memory: &AtomicU64,
    progress: &Progress,
) -> Result<Chunk, StoreError> {
    let reader = Reader::new(&place.rooted, place.max_bytes);
    let mut buffer = Vec::new();
    let mut docs = Vec::with_capacity(chunk.files.len());
    let mut text_bytes = 0;
    let mut first_part = chunk.first_part;
    for (doc, found) in (chunk.first..).zip(chunk.files) {
        if progress.stop.load(Ordering::Relaxed) {
            return Err(StoreError::Stopped);
        }
        let lang = Lang::of_path(&found.path);
        let (content, stamp) = reader.read(&found.path, &mut buffer);
        let parts = parts_of_size(found.stamp.size);
        let mut record = Doc {
            path: found.path.clone(),
            parts: vec![0; parts as usize],
            stamp,
            lang: lang.number(),
            racy: stamp.is_racy(SystemTime::now()),
            ..Doc::default()
        };
        match content {
            Content::Text => {
                let input = Input {
                    doc,
                    first_part,
                    parts,
                    path: &found.path,
                    lang,
                    text: &buffer,
                };
                let facts = indexer.add(&input, &mut record.parts);
                record.hash = content_hash(&buffer);
                record.tokens = facts.tokens;
                record.lines = facts.lines;
                text_bytes += buffer.len() as u64;
                progress
                    .bytes_done
                    .fetch_add(buffer.len() as u64, Ordering::Relaxed);
            }
            Content::Skipped(skip) => record.skip = skip.number(),
            Content::Gone => record.skip = GONE,
        }
        docs.push(record);
        first_part += parts;
        progress.files_done.fetch_add(1, Ordering::Relaxed);
        progress.beat(&place.folder);
    }
    let runs = indexer.finish();
    Ok(Chunk {
        docs,
        trigrams: keep(
            &place.folder,
            &format!("{number}-tri"),
            runs.trigrams,
            in_memory,
        )?,
        terms: keep(
            &place.folder,
            &format!("{number}-term"),
            runs.terms,
            in_memory,
        )?,
        text_bytes,
    })
}

/// Keeps a run in memory while there is room, else on disk.
fn keep(
    folder: &Path,
    name: &str,
    bytes: Vec<u8>,
    in_memory: &AtomicU64,
) -> Result<Run, StoreError> {
    let length = bytes.len() as u64;
    if in_memory.fetch_add(length, Ordering::Relaxed) + length <= RUN_BYTES {
        return Ok(Run::Memory(bytes));
    }
    in_memory.fetch_sub(length, Ordering::Relaxed);
    let path = folder.join(format!("{TEMPORARY}run-{name}"));
    fs::write(&path, &bytes).map_err(|error| StoreError::io(&path, error))?;
    Ok(Run::File(path))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
