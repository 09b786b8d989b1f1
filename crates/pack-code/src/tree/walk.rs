//! Which files count: ripgrep's own walker with ripgrep's rules, whose files
//! [`super::ignore_rules`] reads.
//!
//! Deliberately absent: following links. As in ripgrep, a symbolic link met on the way is neither
//! entered nor read.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ignore::{WalkBuilder, WalkState};

use crate::limits;
use crate::tree::file::Stamp;
use crate::tree::ignore_rules::{Excludes, IgnoreRules};

/// How far threads stand back that nobody waits for.
#[cfg(target_os = "linux")]
const NICE: i32 = 15;

/// The rules that differ from ripgrep's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) hidden: bool,
    pub(crate) no_ignore: bool,
}

/// One regular file of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) stamp: Stamp,
}

/// What a walk gave.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Sorted by path.
    pub(crate) files: Vec<Found>,
    /// Directories that were entered, the first one included, relative to the root.
    pub(crate) directories: BTreeSet<String>,
    /// Files whose names are not UTF-8 or whose metadata cannot be read, for showing.
    pub(crate) unreadable: BTreeSet<String>,
    /// Files that have other names, too: an edit through one of those is not told by a watch.
    pub(crate) linked: BTreeSet<String>,
    /// Ignore files that do not count, each with the reason.
    pub(crate) passed_over: BTreeSet<String>,
    /// Files of git's own ignore rules that decided, also of repositories in the tree.
    pub(crate) excludes: Excludes,
    /// Entries left out by ignore rules; counted only when asked for.
    pub(crate) ignored: u64,
    /// The walk ended early: by its deadline, its owner or the limit of files.
    pub(crate) cut: bool,
}

impl Listing {
    /// Where a file stands in the list.
    pub(crate) fn place_of(&self, path: &str) -> Option<usize> {
        let order = |found: &Found| found.path.as_str().cmp(path);
        self.files.binary_search_by(order).ok()
    }

    /// Whether a file was found.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.place_of(path).is_some()
    }
}

/// How a walk is to be done.
pub(crate) struct Walk<'a> {
    pub(crate) root: &'a Path,
    /// Relative directory where it starts.
    pub(crate) under: &'a str,
    pub(crate) rules: Rules,
    /// Only the directory's own entries.
    pub(crate) shallow: bool,
    pub(crate) count_ignored: bool,
    pub(crate) deadline: Option<Instant>,
    /// Called for each directory before its entries are listed.
    pub(crate) enter: Option<&'a (dyn Fn(&str) + Sync)>,
    pub(crate) stop: Option<&'a AtomicBool>,
    /// On one thread, behind everything else.
    pub(crate) quiet: bool,
}

impl<'a> Walk<'a> {
    pub(crate) const fn new(root: &'a Path, rules: Rules) -> Self {
        Self {
            root,
            under: "",
            rules,
            shallow: false,
            count_ignored: false,
            deadline: None,
            enter: None,
            stop: None,
            quiet: false,
        }
    }

    /// Walks and lists.
    pub(crate) fn run(&self) -> Listing {
        let start = match self.under {
            "" => self.root.to_owned(),
            under => self.root.join(under),
        };
        let mut builder = WalkBuilder::new(&start);
        builder
            .follow_links(false)
            .standard_filters(false)
            .max_depth(Some(if self.shallow { 1 } else { limits::DEPTH }))
            .threads(match self.shallow || self.quiet {
                true => 1,
                false => threads(),
            });
        let hidden = self.rules.hidden;
        let ignored = match self.rules.no_ignore {
            true => None,
            false => Some(Arc::new(IgnoreRules::new(self.root, hidden))),
        };
        let rules = ignored.clone();
        builder.filter_entry(move |entry| {
            // Where hidden files count, git's own never do.
            if hidden && entry.file_name() == ".git" {
                return false;
            }
            let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
            match &rules {
                Some(rules) => rules.admit(entry.path(), is_dir),
                None => hidden || !entry.file_name().as_encoded_bytes().starts_with(b"."),
            }
        });
        let mut listing = self.list(&builder);
        if let Some(rules) = ignored {
            listing.passed_over = rules.passed_over();
            listing.excludes = rules.excludes();
        }
        listing
    }

    fn list(&self, builder: &WalkBuilder) -> Listing {
        if self.shallow {
            let mut listing = Listing::default();
            for entry in builder.build() {
                self.take(entry, &mut listing);
            }
            listing.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
            return listing;
        }
        match self.quiet {
            false => self.parallel(builder),
            true => std::thread::scope(|scope| {
                let walking = scope.spawn(|| {
                    stand_back();
                    self.parallel(builder)
                });
                walking.join().unwrap_or_else(|panic| resume_unwind(panic))
            }),
        }
    }

    fn parallel(&self, builder: &WalkBuilder) -> Listing {
        let whole = Mutex::new(Listing::default());
        let files = AtomicU64::new(0);
        let cut = AtomicBool::new(false);
        builder.build_parallel().run(|| {
            let mut part = Part {
                whole: &whole,
                listing: Listing::default(),
            };
            let (files, cut) = (&files, &cut);
            Box::new(move |entry| {
                let late = self
                    .deadline
                    .is_some_and(|deadline| Instant::now() >= deadline);
                let stopped = self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
                let many = files.fetch_add(1, Ordering::Relaxed) > limits::FILES as u64;
                if late || stopped || many {
                    cut.store(true, Ordering::Relaxed);
                    return WalkState::Quit;
                }
                self.take(entry, &mut part.listing);
                WalkState::Continue
            })
        });
        let mut listing = whole
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        listing.cut = cut.into_inner();
        listing.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        listing
    }

    fn take(&self, entry: Result<ignore::DirEntry, ignore::Error>, listing: &mut Listing) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                if let Some(path) = path_of(&error) {
                    listing.unreadable.insert(self.shown(path));
                }
                return;
            }
        };
        let Some(kind) = entry.file_type() else {
            return;
        };
        if kind.is_dir() {
            if self.shallow && entry.depth() > 0 {
                if let Some(path) = self.relative(entry.path()) {
                    listing.directories.insert(path);
                }
                return;
            }
            if let Some(path) = self.relative(entry.path()) {
                if let Some(enter) = self.enter {
                    enter(&path);
                }
                listing.directories.insert(path);
            }
            if self.count_ignored {
                listing.ignored = listing.ignored.wrapping_add(entries_of(entry.path()));
            }
        } else if kind.is_file() {
            match (self.relative(entry.path()), entry.metadata()) {
                (Some(path), Ok(metadata)) => {
                    if metadata.nlink() > 1 {
                        listing.linked.insert(path.clone());
                    }
                    listing.files.push(Found {
                        path,
                        stamp: Stamp::of(&metadata),
                    });
                }
                // Gone since its directory was listed.
                (Some(_), Err(error))
                    if error
                        .io_error()
                        .is_some_and(|e| e.kind() == std::io::ErrorKind::NotFound) => {}
                _ => {
                    listing.unreadable.insert(self.shown(entry.path()));
                }
            }
        }
        if self.count_ignored && entry.depth() > 0 {
            // Every entry that is yielded is one that was not ignored.
            listing.ignored = listing.ignored.wrapping_sub(1);
        }
    }

    fn relative(&self, path: &Path) -> Option<String> {
        Some(path.strip_prefix(self.root).ok()?.to_str()?.to_owned())
    }

    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(self.root)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned()
    }
}

/// A thread's part of a listing, joined to the whole when the thread ends.
struct Part<'a> {
    whole: &'a Mutex<Listing>,
    listing: Listing,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let mut whole = self
            .whole
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        whole.files.append(&mut self.listing.files);
        whole.directories.append(&mut self.listing.directories);
        whole.unreadable.append(&mut self.listing.unreadable);
        whole.linked.append(&mut self.listing.linked);
        // Parts may be below zero: the entries of a directory are yielded to any thread.
        whole.ignored = whole.ignored.wrapping_add(self.listing.ignored);
    }
}

fn entries_of(directory: &Path) -> u64 {
    std::fs::read_dir(directory).map_or(0, |entries| entries.count() as u64)
}

fn path_of(error: &ignore::Error) -> Option<&PathBuf> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
            path_of(err)
        }
        _ => None,
    }
}

/// Lets everything else go before this thread and those that it starts.
pub(crate) fn stand_back() {
    // On Linux this is about the thread alone; where it is refused nothing is lost.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// Threads for walking and building: what the machine has, within the limit.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism()
        .map_or(1, usize::from)
        .clamp(1, limits::BUILD_THREADS)
}
