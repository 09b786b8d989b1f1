//! What has changed since the current generation, for one repository in this process.
//!
//! [`Tracker::refresh`] is called at the beginning of every call: it opens a newer generation if
//! there is one, drains the watch, looks at what it names, and gives a [`View`]. A change is only
//! ever decided by looking at the file, so events may be late, double or wrong.

mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::build::Place;
use crate::fresh::watch::{Watch, join};
use crate::limits;
use crate::store::StoreError;
use crate::store::manifest;
use crate::tree::file::{Content, Reader, Stamp};
use crate::tree::git;
use crate::tree::ignore_rules::{Excludes, rules_stamp};
use crate::tree::walk::{Found, Listing, Walk};
use crate::view::{Change, Freshness, Generation, Live, Overlay, View};

/// Changed files that are looked at one by one; past that a build is quicker.
const LOOKED_AT: usize = 4096;
/// A sweep that takes no longer may run within a call.
const QUICK_SWEEP: Duration = Duration::from_millis(60);

#[derive(Debug)]
pub(crate) struct Tracker {
    place: Arc<Place>,
    watch: Option<Watch>,
    watch_problem: Option<String>,
    /// Ignore files outside of the tree that decide about it.
    outer_rules: Vec<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    generation: Option<Arc<Generation>>,
    /// The manifest that was read last.
    manifest: Option<Stamp>,
    /// Why the index cannot be read.
    error: Option<String>,
    /// How long the quickest whole sweep took, if there was one.
    swept: Option<Duration>,
    /// Between the last sweep and the next, and when that is due.
    rest: Duration,
    rested: Option<Instant>,
    behind: bool,
    overlay: Overlay,
    /// Other stamps under which a file has the indexed content.
    touched: BTreeMap<String, Stamp>,
    directories: BTreeSet<String>,
    /// Files that have other names, too: no watch tells of an edit through one of those.
    linked: BTreeSet<String>,
    /// Ignore files that do not count, each with the reason.
    passed_over: BTreeSet<String>,
    /// Ignore files that are not in the tree, as they were at the last sweep.
    outer_rules: Vec<Option<Stamp>>,
    /// Git's own rules of repositories in the tree, as they were when they were read.
    excludes: Excludes,
    /// Files that were looked at, and whether they were there: since this generation was opened,
    /// and while the one before it was at hand.
    looked: BTreeMap<String, bool>,
    looked_before: BTreeMap<String, bool>,
    last_change: Option<Instant>,
    view: Option<Arc<View>>,
}

impl State {
    /// Takes in the rules of repositories that were not known. The stamps of those that are known
    /// stay: files that were decided by them are not all in this listing.
    fn learn_excludes(&mut self, listing: &mut Listing) {
        for (path, stamp) in std::mem::take(&mut listing.excludes) {
            self.excludes.entry(path).or_insert(stamp);
        }
    }
}

/// What the keeper should do about changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Sweep,
    /// It is time to look for what no watch tells.
    SweepAgain,
    /// These have changed and have been at rest.
    Build(Vec<String>),
    /// Too much has changed to list.
    BuildAll,
}

impl Tracker {
    pub(crate) fn new(place: Arc<Place>, watching: bool) -> Self {
        let (watch, watch_problem) = match watching {
            false => (None, Some("watching is turned off".to_owned())),
            true => match Watch::new() {
                Ok(watch) => (Some(watch), None),
                Err(problem) => (None, Some(problem)),
            },
        };
        let outer_rules = match place.rules.no_ignore {
            true => Vec::new(),
            false => outer_rules(&place.root),
        };
        Self {
            place,
            watch,
            watch_problem,
            outer_rules,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why there is no watch, or not of everything.
    pub(crate) fn watch_problem(&self) -> Option<String> {
        self.watch_problem
            .clone()
            .or_else(|| self.watch.as_ref().and_then(Watch::incomplete))
    }

    pub(crate) fn watched(&self) -> usize {
        self.watch.as_ref().map_or(0, Watch::directories)
    }

    pub(crate) fn error(&self) -> Option<String> {
        self.lock().error.clone()
    }

    pub(crate) fn is_swept(&self) -> bool {
        self.lock().swept.is_some()
    }

    /// Ignore files that do not count, each with the reason, as the last sweep found them.
    pub(crate) fn passed_over(&self) -> BTreeSet<String> {
        self.lock().passed_over.clone()
    }

    /// How long a change can go unnoticed of which no watch tells.
    pub(crate) fn sweep_rest(&self) -> Duration {
        self.lock().rest.max(limits::SWEEP_REST)
    }

    /// How long it is until the next sweep.
    pub(crate) fn until_sweep(&self) -> Duration {
        let rested = self.lock().rested;
        rested.map_or(Duration::ZERO, |time| {
            time.saturating_duration_since(Instant::now())
        })
    }

    /// The present view, if there is an index.
    pub(crate) fn refresh(&self) -> Option<Arc<View>> {
        let mut state = self.lock();
        self.reload(&mut state);
        state.generation.as_ref()?;
        self.compare_outer_rules(&mut state);
        if state.swept.is_some() {
            self.follow(&mut state);
            self.look_at_linked(&mut state);
        }
        self.view(&mut state)
    }

    /// Ignore files that are not in the tree decide about it, too: when one of them has changed the
    /// tree is compared again.
    fn compare_outer_rules(&self, state: &mut State) {
        let rules = self.outer_stamps();
        let changed = |(path, stamp): (&PathBuf, &Option<Stamp>)| rules_stamp(path) != *stamp;
        let mut differ = state
            .excludes
            .iter()
            .take(limits::EXCLUDE_FILES)
            .any(changed);
        if rules != state.outer_rules {
            differ |= !state.outer_rules.is_empty();
            state.outer_rules = rules;
        }
        if differ {
            state.swept = None;
            state.view = None;
        }
    }

    fn outer_stamps(&self) -> Vec<Option<Stamp>> {
        self.outer_rules
            .iter()
            .map(|path| rules_stamp(path))
            .collect()
    }

    /// Looks at the files of which no watch tells everything, as far as these are few.
    fn look_at_linked(&self, state: &mut State) {
        if state.linked.len() > limits::LINKED_FILES {
            return;
        }
        for path in std::mem::take(&mut state.linked) {
            self.look_at_path(state, &path);
            state.linked.insert(path);
        }
    }

    /// The index is known to be damaged; it is not used until a build has replaced it.
    pub(crate) fn give_up(&self, error: &StoreError) {
        let mut state = self.lock();
        state.error = Some(crate::build::describe(error));
        state.generation = None;
        state.view = None;
    }

    fn view(&self, state: &mut State) -> Option<Arc<View>> {
        let generation = state.generation.clone()?;
        let freshness = match (state.swept, state.behind) {
            (None, _) => Freshness::Unswept,
            (_, true) => Freshness::Behind,
            _ if self.watch_problem().is_some() => Freshness::Unwatched,
            _ if state.linked.len() > limits::LINKED_FILES => Freshness::Linked,
            _ if state.excludes.len() > limits::EXCLUDE_FILES => Freshness::Excluded,
            _ => Freshness::Fresh,
        };
        // Without a watch a sweep within this call has just been made, where it is quick enough.
        let freshness = match (freshness, state.swept) {
            (Freshness::Unwatched, Some(took)) if took <= QUICK_SWEEP => Freshness::Fresh,
            (freshness, _) => freshness,
        };
        if let Some(view) = &state.view
            && view.freshness == freshness
        {
            return Some(Arc::clone(view));
        }
        let overlay = Arc::new(state.overlay.clone());
        let view = Arc::new(View::new(generation, overlay, freshness));
        state.view = Some(Arc::clone(&view));
        Some(view)
    }

    /// Opens the generation of the disk if it is not the one at hand.
    fn reload(&self, state: &mut State) {
        let path = self.place.folder.join(manifest::FILE);
        let stamp = fs::symlink_metadata(&path)
            .ok()
            .map(|metadata| Stamp::of(&metadata));
        if stamp == state.manifest
            && (state.generation.is_some() || state.error.is_some() || stamp.is_none())
        {
            return;
        }
        state.manifest = stamp;
        state.view = None;
        let rules = self.place.rules_text();
        match Generation::open(&self.place.folder, state.generation.as_deref()) {
            Ok(generation) => {
                state.error = None;
                state.generation = generation
                    .filter(|found| found.manifest.rules == rules)
                    .map(Arc::new);
            }
            Err(error) => {
                state.error = Some(crate::build::describe(&error));
                state.generation = None;
            }
        }
        let Some(generation) = state.generation.clone() else {
            return;
        };
        // What the new generation has taken in is no difference any more.
        state.touched.clear();
        state
            .overlay
            .retain(|path, change| match (generation.find(path), change) {
                (None, Change::Removed) => false,
                (Some((number, doc)), Change::Present(live)) => {
                    let segment = generation.segments.get(number);
                    !segment.is_some_and(|segment| segment.stamp(doc) == live.stamp)
                }
                _ => true,
            });
        if state.behind {
            // The list of changes is not complete: compare again.
            state.behind = false;
            state.swept = None;
            state.overlay.clear();
        }
        self.look_again(state);
    }

    /// What was decided by the generation before may be otherwise by this one, which was built
    /// meanwhile and may have seen those files in between.
    fn look_again(&self, state: &mut State) {
        let looked = std::mem::take(&mut state.looked);
        let mut all = std::mem::replace(&mut state.looked_before, looked.clone());
        all.extend(looked);
        if state.swept.is_none() {
            return;
        }
        if all.len() > LOOKED_AT {
            state.swept = None;
            state.view = None;
            return;
        }
        for (path, was_there) in all {
            let is_file = |metadata: fs::Metadata| metadata.is_file();
            // One that was taken away and is there again has an event of its own, or does not count.
            if was_there || !fs::symlink_metadata(self.place.root.join(&path)).is_ok_and(is_file) {
                self.look_at_path(state, &path);
            }
        }
        state.looked.clear();
    }

    /// Looks at what the watch names.
    fn follow(&self, state: &mut State) {
        let quick = state.swept.is_some_and(|took| took <= QUICK_SWEEP);
        let events = self.watch.as_ref().map(Watch::drain);
        if quick && self.watch_problem().is_some() {
            // What the watch told, if there is one, is found by this, too.
            self.sweep_into(state);
            return;
        }
        let Some(events) = events else { return };
        if events.lost {
            state.swept = None;
            state.view = None;
            return;
        }
        if events.written.is_empty() && events.changed.is_empty() {
            return;
        }
        state.last_change = Some(Instant::now());
        for directory in &events.moved {
            forget(state, directory);
        }
        let mut directories: BTreeSet<String> = events.changed.into_iter().collect();
        let written: BTreeSet<String> = events
            .written
            .into_iter()
            .map(|(directory, name)| join(&directory, &name))
            .collect();
        if directories.len() > limits::DIRTY_DIRECTORIES || written.len() > LOOKED_AT {
            state.swept = None;
            state.view = None;
            return;
        }
        for path in written {
            let known = state.overlay.contains_key(&path)
                || state
                    .generation
                    .as_ref()
                    .is_some_and(|generation| generation.find(&path).is_some());
            if known {
                self.look_at_path(state, &path);
            } else {
                directories.insert(
                    path.rsplit_once('/')
                        .map_or("", |(parent, _)| parent)
                        .to_owned(),
                );
            }
        }
        for directory in directories {
            self.rescan(state, &directory);
        }
    }

    /// Looks at files of which somebody says that they are not what they are thought to be.
    pub(crate) fn doubt(&self, paths: &[String]) {
        let mut state = self.lock();
        self.reload(&mut state);
        for path in paths.iter().take(LOOKED_AT) {
            self.look_at_path(&mut state, path);
        }
    }

    fn look_at_path(&self, state: &mut State, path: &str) {
        match fs::symlink_metadata(self.place.root.join(path)) {
            Ok(metadata) if metadata.is_file() => self.look_at(state, path, Stamp::of(&metadata)),
            _ => Self::removed(state, path),
        }
    }

    fn removed(state: &mut State, path: &str) {
        let indexed = state
            .generation
            .as_ref()
            .is_some_and(|generation| generation.find(path).is_some());
        state.view = None;
        state.looked.insert(path.to_owned(), false);
        if indexed {
            state.overlay.insert(path.to_owned(), Change::Removed);
        } else {
            state.overlay.remove(path);
        }
    }

    /// Decides whether a file differs from the index.
    fn look_at(&self, state: &mut State, path: &str, stamp: Stamp) {
        let Some(generation) = state.generation.clone() else {
            return;
        };
        state.looked.insert(path.to_owned(), true);
        let known = generation.find(path);
        let segment = known.and_then(|(number, doc)| Some((generation.segments.get(number)?, doc)));
        if let Some((segment, doc)) = segment
            && (segment.stamp(doc) == stamp && !segment.is_racy(doc)
                || state.touched.get(path) == Some(&stamp))
        {
            if state.overlay.remove(path).is_some() {
                state.view = None;
            }
            return;
        }
        if let Some(Change::Present(live)) = state.overlay.get(path)
            && live.stamp == stamp
            && !stamp.is_racy(std::time::SystemTime::now())
        {
            return;
        }
        let mut buffer = Vec::new();
        let reader = Reader::new(&self.place.rooted, self.place.max_bytes);
        let (content, stamp) = reader.read(path, &mut buffer);
        let skip = match content {
            Content::Text => None,
            Content::Skipped(skip) => Some(skip),
            Content::Gone => {
                Self::removed(state, path);
                return;
            }
        };
        let same = segment.is_some_and(|(segment, doc)| match skip {
            None => {
                segment.docs.is_text(doc)
                    && segment.docs.hash(doc) == crate::build::content_hash(&buffer)
            }
            Some(skip) => segment.docs.skip(doc) == Some(skip),
        });
        state.view = None;
        if same {
            state.overlay.remove(path);
            if !stamp.is_racy(std::time::SystemTime::now()) {
                state.touched.insert(path.to_owned(), stamp);
            }
        } else {
            state.overlay.insert(
                path.to_owned(),
                Change::Present(Arc::new(Live::new(stamp, skip))),
            );
        }
    }

    /// Lists one directory again.
    fn rescan(&self, state: &mut State, directory: &str) {
        let mut walk = Walk::new(&self.place.root, self.place.rules);
        walk.under = directory;
        walk.shallow = true;
        let exists = self.place.root.join(directory).is_dir();
        let mut listing = if exists {
            walk.run()
        } else {
            Listing::default()
        };
        state.learn_excludes(&mut listing);
        let mut children = std::mem::take(&mut listing.directories);
        children.remove(directory);
        let known = known_under(state, directory);
        for (path, nested) in &known {
            let gone = match nested {
                Some(child) if !children.contains(child) => {
                    forget(state, child);
                    true
                }
                Some(_) => false,
                None => !listing.has(path),
            };
            if gone {
                Self::removed(state, path);
            }
        }
        for found in listing.files {
            self.look_at(state, &found.path, found.stamp);
        }
        for child in children {
            if !state.directories.contains(&child) {
                self.enter(state, &child);
            }
        }
        if !exists {
            forget(state, directory);
        }
    }

    /// Takes in a directory that was not known.
    fn enter(&self, state: &mut State, directory: &str) {
        let add = |directory: &str| self.add_watch(directory);
        let mut walk = Walk::new(&self.place.root, self.place.rules);
        walk.under = directory;
        walk.enter = Some(&add);
        let mut listing = walk.run();
        state.directories.append(&mut listing.directories);
        state.learn_excludes(&mut listing);
        if listing.files.len() > LOOKED_AT {
            state.behind = true;
            state.view = None;
            return;
        }
        // Its name may have been another directory's.
        for (path, _) in known_under(state, directory) {
            if !listing.has(&path) {
                Self::removed(state, &path);
            }
        }
        for Found { path, stamp } in listing.files {
            self.look_at(state, &path, stamp);
        }
    }

    fn add_watch(&self, directory: &str) {
        if let Some(watch) = &self.watch {
            watch.add(&self.place.root, directory);
        }
    }

    /// What there is to do behind the calls.
    pub(crate) fn due(&self) -> Due {
        let mut state = self.lock();
        self.reload(&mut state);
        if state.generation.is_none() {
            return match state.error {
                // A damaged index is built anew.
                Some(_) => Due::BuildAll,
                None => Due::Nothing,
            };
        }
        if state.swept.is_none() {
            return Due::Sweep;
        }
        if self.watch_problem().is_none() {
            self.follow(&mut state);
        }
        if state.swept.is_none() {
            return Due::Sweep;
        }
        if state.behind {
            return Due::BuildAll;
        }
        let bytes: u64 = state
            .overlay
            .values()
            .map(|change| match change {
                Change::Present(live) => live.stamp.size,
                Change::Removed => 0,
            })
            .sum();
        let large = state.overlay.len() > limits::OVERLAY_FILES || bytes > limits::OVERLAY_BYTES;
        let rested = state
            .last_change
            .is_none_or(|change| change.elapsed() >= limits::SETTLE);
        if !state.overlay.is_empty() && (large || rested) {
            return Due::Build(state.overlay.keys().cloned().collect());
        }
        match state.rested {
            Some(time) if Instant::now() < time => Due::Nothing,
            _ => Due::SweepAgain,
        }
    }
}

/// Ignore files that are not in a tree and decide about it: those of the folders above it, and the
/// one that git keeps to itself.
fn outer_rules(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = git::exclude_file(root).into_iter().collect();
    for folder in root.ancestors().skip(1) {
        found.extend([".gitignore", ".ignore", ".rgignore"].map(|name| folder.join(name)));
    }
    found
}

/// What is known of a directory is of another one.
fn forget(state: &mut State, directory: &str) {
    state.directories.remove(directory);
    let prefix = format!("{directory}/");
    let nested: Vec<String> = state
        .directories
        .range(prefix.clone()..)
        .take_while(|known| known.starts_with(&prefix))
        .cloned()
        .collect();
    for known in nested {
        state.directories.remove(&known);
    }
}

/// Files below a directory that are in the index or changed, each with the child directory it is
/// nested in, if it is.
fn known_under(state: &State, directory: &str) -> Vec<(String, Option<String>)> {
    let prefix = if directory.is_empty() {
        String::new()
    } else {
        format!("{directory}/")
    };
    let nested = |path: &str| {
        let rest = path.get(prefix.len()..)?;
        let (child, _) = rest.split_once('/')?;
        Some(format!("{prefix}{child}"))
    };
    let mut known = Vec::new();
    if let Some(generation) = &state.generation {
        for segment in &generation.segments {
            for doc in segment.docs.under(&prefix) {
                if segment.is_live(doc) {
                    let path = segment.docs.path(doc);
                    known.push((path.to_owned(), nested(path)));
                }
            }
        }
    }
    for path in state
        .overlay
        .range(prefix.clone()..)
        .map(|(path, _)| path)
        .take_while(|path| path.starts_with(&prefix))
    {
        known.push((path.clone(), nested(path)));
    }
    known
}
