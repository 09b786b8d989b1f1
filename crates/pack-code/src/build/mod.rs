//! Building: from the tree to a new generation.
//!
//! [`build`] compares the tree with the current generation and writes one new segment with what is
//! new or changed; what has gone is marked in the segments that have it. Nothing is touched that a
//! reader may use. [`compact`] joins segments when there are many.

mod borrow;
mod compact;
mod difference;
mod pipeline;
mod saved;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use globset::GlobSet;
use mainstay_worker::RootedDir;

use crate::build::difference::Difference;
use crate::store::job::{Job, State};
use crate::store::lock::WriterLock;
use crate::store::manifest::{Manifest, SegmentEntry};
use crate::store::side::{Stamps, open_stamps, write_stamps};
use crate::store::{FORMAT, StoreError};
use crate::tree::git;
use crate::tree::walk::Rules;
use crate::view::Generation;

pub(crate) use self::compact::compact;
pub(crate) use self::difference::content_hash;

/// The tree and the index of one repository, as far as a build needs them.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) root: std::path::PathBuf,
    pub(crate) rooted: RootedDir,
    pub(crate) folder: std::path::PathBuf,
    pub(crate) rules: Rules,
    pub(crate) max_bytes: u64,
    /// Bytes of all indexes together.
    pub(crate) cache_bytes: u64,
}

impl Place {
    /// The rules as the manifest keeps them: an index built under others is built anew.
    pub(crate) fn rules_text(&self) -> String {
        format!(
            "hidden={} no_ignore={} max_bytes={}",
            self.rules.hidden, self.rules.no_ignore, self.max_bytes
        )
    }
}

/// What is to be built.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// Index every file again.
    pub(crate) full: bool,
    /// Only these; what is indexed elsewhere stays.
    pub(crate) globs: Option<GlobSet>,
    /// The same as they were written, in order.
    pub(crate) patterns: Vec<String>,
    /// Only these paths have changed: no walk is needed.
    pub(crate) changed: Option<Vec<String>>,
}

impl Request {
    /// Whether whoever wants `other` is served by this.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.changed.is_none()
            && (self.full || !other.full)
            && (self.patterns.is_empty() || self.patterns == other.patterns)
    }
}

/// How often a running job is written to its folder, in milliseconds.
const BEAT_MS: u64 = 250;

/// A job in progress, shared with whoever shows it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) job: Mutex<Job>,
    pub(crate) files_total: AtomicU64,
    pub(crate) files_done: AtomicU64,
    pub(crate) bytes_done: AtomicU64,
    pub(crate) stop: AtomicBool,
    /// When the job was last written to its folder.
    written_ms: AtomicU64,
}

impl Progress {
    /// The job as it stands now.
    pub(crate) fn snapshot(&self) -> Job {
        let mut job = self
            .job
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        job.files_total = self
            .files_total
            .load(Ordering::Relaxed)
            .max(job.files_total);
        job.files_done = self.files_done.load(Ordering::Relaxed).max(job.files_done);
        job.bytes_done = self.bytes_done.load(Ordering::Relaxed).max(job.bytes_done);
        job
    }

    /// Keeps the job in its folder, now and then, for other processes to see.
    pub(crate) fn beat(&self, folder: &Path) {
        let now = now_ms();
        let before = self.written_ms.load(Ordering::Relaxed);
        let due = now.saturating_sub(before) >= BEAT_MS;
        let ours = || {
            self.written_ms
                .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
        };
        if due && ours().is_ok() {
            self.snapshot().write(folder);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Job)) -> Job {
        let mut job = self
            .job
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut job);
        job.clone()
    }
}

/// How a build ended.
#[derive(Debug)]
pub(crate) enum Built {
    /// A generation was published, or there was nothing to do.
    Done,
    /// Another process is writing.
    Busy,
}

/// Builds under the writer's lock and keeps the job in the folder.
pub(crate) fn build(
    place: &Place,
    request: &Request,
    progress: &Progress,
) -> Result<Built, StoreError> {
    std::fs::create_dir_all(&place.folder).map_err(|error| StoreError::io(&place.folder, error))?;
    let Some(_lock) = WriterLock::take(&place.folder)? else {
        return Ok(Built::Busy);
    };
    let started = Instant::now();
    let job = progress.change(|job| {
        job.state = State::Running;
        job.started_at = now_ms();
    });
    job.write(&place.folder);
    let mut result = build_locked(place, request, progress);
    if matches!(result, Err(StoreError::Corrupt { .. })) {
        // A damaged index is of no use: everything is indexed again.
        let full = Request {
            full: true,
            ..Request::default()
        };
        result = build_locked(place, &full, progress);
    }
    let ended = |job: &mut Job| {
        job.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    };
    let job = match &result {
        Ok(()) => progress.change(|job| {
            ended(job);
            job.state = State::Done;
        }),
        Err(StoreError::Stopped) => progress.change(|job| {
            ended(job);
            job.state = State::Cancelled;
        }),
        Err(error) => progress.change(|job| {
            ended(job);
            job.state = State::Failed;
            job.error = Some(describe(error));
        }),
    };
    let finished = progress.snapshot();
    Job {
        state: job.state,
        ..finished
    }
    .write(&place.folder);
    result.map(|()| Built::Done)
}

/// An error with its cause, for people.
pub(crate) fn describe(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn build_locked(place: &Place, request: &Request, progress: &Progress) -> Result<(), StoreError> {
    let rules = place.rules_text();
    let before = match Generation::open(&place.folder, None) {
        Ok(before) => before.filter(|before| before.manifest.rules == rules),
        Err(_) if request.full => None,
        Err(error) => return Err(error),
    };
    let whole = !request.full && request.globs.is_none() && request.changed.is_none();
    let borrowed = match before {
        None if whole => borrow::borrow(place, &rules),
        _ => None,
    };
    let kept = before
        .as_ref()
        .filter(|_| !request.full || request.globs.is_some())
        .or(borrowed.as_ref());
    if let (Some(kept), None, None) = (kept, &request.changed, &borrowed) {
        // A build that somebody asked for also repairs: what is kept is read and checked.
        for segment in &kept.segments {
            segment.verify()?;
        }
    }
    let difference = Difference::find(place, kept, request, progress)?;
    let mut manifest = before
        .as_ref()
        .or(borrowed.as_ref())
        .map_or_else(Manifest::default, |before| before.manifest.clone());
    if kept.is_none() {
        manifest.segments.clear();
    }
    manifest.format = FORMAT;
    manifest.rules = rules;
    manifest.root = place.root.to_string_lossy().into_owned();
    manifest.git_head = git::head(&place.root);
    manifest.git_common = borrow::common(place);
    if let Some(ignored) = difference.ignored {
        manifest.ignored = ignored;
    }
    if let Some(unreadable) = &difference.unreadable {
        manifest.unreadable.clone_from(unreadable);
    }
    progress.change(|job| {
        job.added = difference.added;
        job.changed = difference.changed;
        job.removed = difference.removed;
    });
    let changed = difference.changes_anything() || before.is_none();
    if changed {
        manifest.generation += 1;
        say_later(place, kept, &difference, &mut manifest)?;
        if !difference.index.is_empty() {
            let id = manifest.next_segment;
            manifest.next_segment += 1;
            let mut written = pipeline::write_segment(place, id, &difference.index, progress)?;
            written.id = id;
            manifest.segments.push(written);
        }
        manifest.segments.retain(|entry| entry.docs > 0);
    }
    manifest.built_at = now_ms();
    manifest.publish(&place.folder)?;
    manifest.remove_strangers(&place.folder);
    let generation = manifest.generation;
    let skipped = skip_counts(place, &manifest);
    progress.change(|job| {
        job.generation = generation;
        job.skipped = skipped;
    });
    Ok(())
}

/// Writes what the new generation says about the segments it keeps.
fn say_later(
    place: &Place,
    kept: Option<&Generation>,
    difference: &Difference,
    manifest: &mut Manifest,
) -> Result<(), StoreError> {
    let Some(kept) = kept else { return Ok(()) };
    let generation = manifest.generation;
    let all: u64 = kept
        .segments
        .iter()
        .map(|segment| u64::from(segment.docs.len()))
        .sum();
    for (number, (entry, segment)) in manifest.segments.iter_mut().zip(&kept.segments).enumerate() {
        let gone = difference.gone.get(&number);
        let revived = difference.revived.get(&number);
        if gone.is_some() || revived.is_some() {
            let mut dead = segment.dead.clone();
            gone.into_iter().flatten().for_each(|doc| dead.insert(*doc));
            let docs = revived.into_iter().flatten();
            docs.for_each(|(doc, _)| dead.remove(*doc));
            let large = u64::from(dead.len()) * 100 > all * compact::DEAD_PERCENT;
            if dead.len() >= segment.docs.len() && large {
                // Nothing is left of it, and it is too much to be kept for its old texts.
                *entry = SegmentEntry::default();
                continue;
            }
            let name = format!("{}-{generation}.dead", entry.name());
            dead.write(&place.folder.join(&name))?;
            entry.dead = Some(name);
        }
        let touched = difference.touched.get(&number);
        if touched.is_some() || revived.is_some() {
            let mut stamps = match &entry.stamps {
                Some(name) => open_stamps(&place.folder.join(name))?,
                None => Stamps::new(),
            };
            let seen = touched.into_iter().chain(revived).flatten();
            stamps.extend(seen.map(|(doc, stamp)| (*doc, *stamp)));
            let name = format!("{}-{generation}.stamps", entry.name());
            write_stamps(&place.folder.join(&name), &stamps)?;
            entry.stamps = Some(name);
        }
    }
    Ok(())
}

/// Skipped files by reason, ignored ones included.
fn skip_counts(place: &Place, manifest: &Manifest) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    if let Ok(Some(generation)) = Generation::open(&place.folder, None) {
        counts = skipped(&generation);
    }
    counts.insert("ignored".to_owned(), manifest.ignored);
    counts
}

/// Skipped files of a generation by reason.
pub(crate) fn skipped(generation: &Generation) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = crate::tree::file::Skip::ALL
        .iter()
        .map(|skip| (skip.name().to_owned(), 0))
        .collect();
    for (number, doc) in generation.live_docs() {
        let skip = generation
            .segments
            .get(number)
            .and_then(|segment| segment.docs.skip(doc));
        if let Some(skip) = skip {
            *counts.entry(skip.name().to_owned()).or_default() += 1;
        }
    }
    let unnamed = generation.manifest.unreadable.len() as u64;
    *counts.entry("unreadable".to_owned()).or_default() += unnamed;
    counts.insert("ignored".to_owned(), generation.manifest.ignored);
    counts
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Removes an index from the disk.
pub(crate) fn remove(folder: &Path) -> std::io::Result<()> {
    std::fs::remove_dir_all(folder)
}
