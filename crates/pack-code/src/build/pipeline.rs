//! From a list of files to a segment: chunks on several threads, then two merges side by side.
//!
//! Memory is bounded by a chunk per thread: finished chunks go to disk, where the next build finds
//! them if this one is cut off.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use crate::build::difference::content_hash;
use crate::build::saved::{self, Slice};
use crate::build::{Place, Progress};
use crate::limits;
use crate::store::StoreError;
use crate::store::chunk::{ChunkIndexer, Input};
use crate::store::docs::{self, Doc, GONE, parts_of_size};
use crate::store::manifest::SegmentEntry;
use crate::store::merge::{Run, join_runs};
use crate::store::side::DocSet;
use crate::symbols::names;
use crate::tree::file::{Content, Reader};
use crate::tree::git_index::GitIndex;
use crate::tree::lang::Lang;
use crate::tree::walk::{Found, threads};

/// What one chunk gave.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) docs: Vec<Doc>,
    pub(super) trigrams: Run,
    pub(super) terms: Run,
    pub(super) text_bytes: u64,
}

/// Writes the segment of `files`, which are sorted by class and path.
pub(super) fn write_segment(
    place: &Place,
    id: u64,
    files: &[Found],
    progress: &Progress,
) -> Result<SegmentEntry, StoreError> {
    let rules = place.rules_text();
    let first_parts = first_parts(files);
    let done = saved::load(&place.folder, &rules, files, &first_parts);
    for (_, chunk) in &done {
        let (files, bytes) = (chunk.docs.len() as u64, chunk.text_bytes);
        progress.files_done.fetch_add(files, Ordering::Relaxed);
        progress.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }
    let chunks = cut(files, &first_parts, &done);
    let index = match files.len() >= limits::GIT_FILES {
        true => GitIndex::read(&place.root),
        false => GitIndex::default(),
    };
    let next = AtomicUsize::new(0);
    // What is done at once needs no trace.
    let small = chunks.len() + done.len() <= 2;
    let results: Mutex<Vec<(u32, Chunk)>> = Mutex::new(done);
    let failure: Mutex<Option<StoreError>> = Mutex::new(None);
    let work = || {
        let mut indexer = ChunkIndexer::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = chunks.get(number) else {
                return;
            };
            let result =
                index_chunk(place, &mut indexer, &index, chunk, progress).and_then(|done| {
                    match small {
                        true => Ok(done),
                        false => saved::save(&place.folder, &rules, chunk, done),
                    }
                });
            match result {
                Ok(done) => lock(&results).push((chunk.first, done)),
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
    results.sort_by_key(|(first, _)| *first);
    finish(place, id, results, progress)
}

fn finish(
    place: &Place,
    id: u64,
    results: Vec<(u32, Chunk)>,
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
        let other = scope.spawn(|| {
            join_runs(terms, &term_path, &progress.stop)?;
            names::write(&term_path)
        });
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
    Ok(entry)
}

/// Cuts what no finished chunk has into chunks. The first ones are small: a worker that ends soon
/// has then finished some of them all the same.
fn cut<'a>(files: &'a [Found], first_parts: &[u32], done: &[(u32, Chunk)]) -> Vec<Slice<'a>> {
    let mut gaps = Vec::new();
    let mut from = 0;
    for (first, chunk) in done {
        gaps.push((from, *first as usize));
        from = *first as usize + chunk.docs.len();
    }
    gaps.push((from, files.len()));
    let mut chunks = Vec::new();
    for (mut first, end) in gaps {
        while first < end {
            let most = match chunks.len() < limits::SMALL_CHUNKS {
                true => limits::SMALL_CHUNK_BYTES,
                false => limits::CHUNK_BYTES,
            };
            let rest = files.get(first..end).unwrap_or_default();
            let mut bytes = 0;
            let length = rest
                .iter()
                .take(limits::CHUNK_FILES)
                .take_while(|found| {
                    let before = bytes;
                    bytes += found.stamp.size.min(limits::FILE_BYTES);
                    before < most
                })
                .count()
                .max(1);
            chunks.push(Slice {
                first: first as u32,
                first_part: first_parts.get(first).copied().unwrap_or(0),
                files: rest.get(..length).unwrap_or_default(),
            });
            first += length;
        }
    }
    chunks
}

/// The number of each file's first part.
fn first_parts(files: &[Found]) -> Vec<u32> {
    let mut next = 0;
    let number = |found: &Found| {
        let first = next;
        next += parts_of_size(found.stamp.size);
        first
    };
    files.iter().map(number).collect()
}

fn index_chunk(
    place: &Place,
    indexer: &mut ChunkIndexer,
    index: &GitIndex,
    chunk: &Slice<'_>,
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
            blob: index.blob_of(&found.path, stamp),
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
        trigrams: Run::Memory(runs.trigrams),
        terms: Run::Memory(runs.terms),
        text_bytes,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use mainstay_worker::RootedDir;
    use mainstay_worker::testing::TempDir;

    use super::*;
    use crate::query::candidates::Candidates;
    use crate::query::pattern::{Case, Pattern};
    use crate::query::plan::Plan;
    use crate::store::segment::Segment;
    use crate::tree::walk::{Rules, Walk};

    fn place(dir: &TempDir) -> Place {
        let (root, folder) = (dir.path().join("tree"), dir.path().join("index"));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        let rules = Rules {
            hidden: false,
            no_ignore: false,
        };
        Place {
            rooted: RootedDir::open(&root).unwrap(),
            root,
            folder,
            rules,
            max_bytes: limits::FILE_BYTES,
            cache_bytes: limits::CACHE_BYTES,
        }
    }

    fn list(place: &Place) -> Vec<Found> {
        let mut files = Walk::new(&place.root, place.rules).run().files;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    #[test]
    fn words_and_cases_leave_the_documents_that_have_them() {
        let dir = TempDir::new().unwrap();
        let place = place(&dir);
        let write = |name: &str, text: &str| {
            std::fs::write(place.root.join(name), format!("{text}\n")).unwrap();
        };
        // All trigrams of the names, and not the names.
        let parts = "restart_s at_set _server maxitems MAXITEMS detail_iled lead_led";
        for number in 0..200 {
            write(&format!("other{number:03}.txt"), parts);
        }
        write("one.txt", "xstart_serverx");
        write("camel.txt", "restartServer");
        write("long.txt", &format!("{}start_server", "very_".repeat(20)));
        write("sharp.txt", "\u{17f}tart_\u{17f}erver");
        write("mixed.txt", "maxItems");
        write("stem.txt", "Detailed");
        let entry = write_segment(&place, 1, &list(&place), &Progress::default()).unwrap();
        let segment = Segment::open(&place.folder, &entry).unwrap();
        let docs = |text: &str, case| {
            let plan = Plan::of(&Pattern::literal(text, case).unwrap().hir);
            let docs = Candidates::new(&segment, &plan).unwrap().docs().unwrap();
            let paths = docs.unwrap().into_iter().map(|doc| segment.docs.path(doc));
            paths.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            docs("start_server", Case::Sensitive),
            ["long.txt", "one.txt"]
        );
        assert_eq!(
            docs("start_server", Case::Insensitive),
            ["long.txt", "one.txt", "sharp.txt"]
        );
        assert_eq!(docs("detailed", Case::Insensitive), ["stem.txt"]);
        assert_eq!(docs("maxItems", Case::Smart), ["mixed.txt"]);
        assert_eq!(docs("maxitems", Case::Smart).len(), 201);
    }

    #[test]
    fn a_finished_chunk_is_not_made_again_unless_its_files_changed() {
        let dir = TempDir::new().unwrap();
        let place = place(&dir);
        let root = place.root.clone();
        for number in 0..9 {
            let line = format!("line of file {number}\n");
            std::fs::write(root.join(format!("f{number}.txt")), line.repeat(80_000)).unwrap();
        }
        // Files that have just been written are marked as such.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let files = list(&place);
        let parts = first_parts(&files);
        let rules = place.rules_text();
        let chunks = cut(&files, &parts, &[]);
        assert!(chunks.len() >= 3, "{}", chunks.len());
        let second = &chunks[1];
        let progress = Progress::default();
        let mut indexer = ChunkIndexer::default();
        let index = GitIndex::default();
        let made = index_chunk(&place, &mut indexer, &index, second, &progress).unwrap();
        saved::save(&place.folder, &rules, second, made).unwrap();
        let done = saved::load(&place.folder, &rules, &files, &parts);
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].0, second.first);
        let left = cut(&files, &parts, &done);
        let files_left: usize = left.iter().map(|slice| slice.files.len()).sum();
        assert_eq!(files_left + second.files.len(), files.len());
        assert!(left.iter().all(|slice| slice.first != second.first));

        // Taken up or not, the segment is the same.
        let read = |id: u64, ending: &str| {
            std::fs::read(place.folder.join(format!("seg-{id}.{ending}"))).unwrap()
        };
        write_segment(&place, 1, &files, &progress).unwrap();
        for entry in std::fs::read_dir(&place.folder).unwrap() {
            let path = entry.unwrap().path();
            if path
                .file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("tmp-")
            {
                std::fs::remove_file(path).unwrap();
            }
        }
        write_segment(&place, 2, &files, &progress).unwrap();
        for ending in ["docs", "tri", "term"] {
            assert!(read(1, ending) == read(2, ending), "{ending}");
        }

        let all = saved::load(&place.folder, &rules, &files, &parts);
        assert_eq!(all.len(), chunks.len());
        std::fs::write(root.join("f8.txt"), "changed").unwrap();
        let files = list(&place);
        let kept = saved::load(&place.folder, &rules, &files, &first_parts(&files));
        assert_eq!(kept.len(), chunks.len() - 1);
        assert!(saved::load(&place.folder, "other rules", &files, &parts).is_empty());
    }
}
