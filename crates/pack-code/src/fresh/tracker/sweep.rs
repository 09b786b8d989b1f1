//! Comparing the whole tree with the generation.
//!
//! A sweep holds no lock while it walks. Before the first one is over nobody takes events off the
//! watch, so what it found is true or an event follows. A later one runs beside calls that do, so
//! it only says where to look, and what is there then decides.

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use super::{LOOKED_AT, State, Tracker};
use crate::limits;
use crate::store::side::DocSet;
use crate::tree::walk::{Listing, Walk};
use crate::view::{Change, Generation};

/// What a walk says against a generation.
struct Difference {
    /// Files of the walk that are new or have another stamp, by their place in the listing.
    suspicious: Vec<usize>,
    /// Files of the generation that the walk did not find.
    gone: Vec<String>,
}

impl Difference {
    fn of(generation: &Generation, listing: &Listing) -> Self {
        let mut suspicious = Vec::new();
        let mut there = vec![DocSet::default(); generation.segments.len()];
        for (at, found) in listing.files.iter().enumerate() {
            let known = generation.find(&found.path);
            let same = known.is_some_and(|(number, doc)| {
                if let Some(set) = there.get_mut(number) {
                    set.insert(doc);
                }
                generation.segments.get(number).is_some_and(|segment| {
                    segment.stamp(doc) == found.stamp && !segment.is_racy(doc)
                })
            });
            if !same {
                suspicious.push(at);
            }
        }
        let mut gone = Vec::new();
        for (number, doc) in generation.live_docs() {
            if !there.get(number).is_some_and(|set| set.contains(doc))
                && let Some(segment) = generation.segments.get(number)
            {
                gone.push(segment.docs.path(doc).to_owned());
            }
        }
        Self { suspicious, gone }
    }

    fn is_large(&self) -> bool {
        self.suspicious.len() + self.gone.len() > LOOKED_AT
    }
}

impl State {
    /// Puts the next sweep off by as long as the last one, which began then, is worth.
    fn rest_of(&mut self, started: Instant) {
        let rest = started.elapsed() * limits::SWEEP_REST_FACTOR;
        self.rest = rest.max(limits::SWEEP_REST);
        self.rested = Some(Instant::now() + self.rest);
    }
}

impl Tracker {
    /// Compares the whole tree. The walk itself holds no lock, so calls go on meanwhile.
    pub(crate) fn sweep(&self) {
        if self.is_swept() {
            self.sweep_again(false);
            if self.is_swept() {
                return;
            }
        }
        let started = Instant::now();
        let rules = self.outer_stamps();
        let listing = self.list(false);
        let mut state = self.lock();
        self.reload(&mut state);
        // Rules that changed during the walk differ from these in the next call.
        state.outer_rules = rules;
        self.compare(&mut state, listing, started);
    }

    pub(super) fn sweep_into(&self, state: &mut State) {
        let started = Instant::now();
        let listing = self.list(false);
        self.compare(state, listing, started);
    }

    fn list(&self, quiet: bool) -> Listing {
        let add = |directory: &str| self.add_watch(directory);
        let mut walk = Walk::new(&self.place.root, self.place.rules);
        walk.enter = Some(&add);
        walk.quiet = quiet;
        walk.run()
    }

    /// Takes a listing for the truth.
    fn compare(&self, state: &mut State, listing: Listing, started: Instant) {
        let Some(generation) = state.generation.clone() else {
            return;
        };
        let before = state.overlay.len();
        let found = Difference::of(&generation, &listing);
        let mut looks: BTreeSet<usize> = found.suspicious.iter().copied().collect();
        // Changed files that are not in the tree any more are no changes; the others are looked at.
        state.overlay.retain(|path, change| {
            let at = listing.place_of(path);
            looks.extend(at);
            at.is_some() && matches!(change, Change::Present(_))
        });
        if found.is_large() {
            state.behind = true;
        } else {
            for path in found.gone {
                Self::removed(state, &path);
            }
            for at in looks {
                if let Some(found) = listing.files.get(at) {
                    self.look_at(state, &found.path, found.stamp);
                }
            }
        }
        if state.overlay.len() != before {
            state.last_change = Some(started);
        }
        state.directories = listing.directories;
        state.passed_over = listing.passed_over;
        state.linked = listing.linked;
        state.excludes = listing.excludes;
        state.swept = Some(started.elapsed());
        state.rest_of(started);
        state.view = None;
    }

    /// Compares the tree once more, while calls look at it, too. What cannot be decided by looking
    /// at single files makes the next sweep one that can. A quiet one takes its time.
    pub(crate) fn sweep_again(&self, quiet: bool) {
        let started = Instant::now();
        let (generation, changed) = {
            let mut state = self.lock();
            self.reload(&mut state);
            let changed: BTreeSet<String> = state.overlay.keys().cloned().collect();
            (state.generation.clone(), changed)
        };
        let Some(generation) = generation else { return };
        let listing = self.list(quiet);
        let found = Difference::of(&generation, &listing);
        let mut state = self.lock();
        self.reload(&mut state);
        state.rest_of(started);
        let Some(before) = state.swept.filter(|_| state.generation.is_some()) else {
            return;
        };
        // The first sweep may have been slow because the disk was.
        state.swept = Some(before.min(started.elapsed()));
        let mut unclear = found.is_large();
        let before = state.overlay.len();
        if !unclear {
            let exists = |path: &str| {
                let metadata = fs::symlink_metadata(self.place.root.join(path));
                metadata.is_ok_and(|metadata| metadata.is_file())
            };
            for path in found.gone {
                match state.overlay.get(&path) {
                    Some(Change::Removed) => {}
                    // It has come back, or other rules hold.
                    _ if exists(&path) => unclear = true,
                    _ => Self::removed(&mut state, &path),
                }
            }
            let listed = |at: &usize| listing.files.get(*at).map(|found| found.path.clone());
            let mut looks: BTreeSet<String> = found.suspicious.iter().filter_map(listed).collect();
            for (path, change) in &state.overlay {
                match (listing.has(path), change) {
                    (true, _) => {
                        looks.insert(path.clone());
                    }
                    (false, Change::Present(_)) if changed.contains(path) => {
                        unclear |= exists(path);
                        looks.insert(path.clone());
                    }
                    // Newer than the walk, or gone as the walk says.
                    (false, _) => {}
                }
            }
            for path in looks {
                self.look_at_path(&mut state, &path);
            }
        }
        if state.overlay.len() != before {
            state.last_change = Some(Instant::now());
        }
        state.directories = listing.directories;
        state.passed_over = listing.passed_over;
        state.excludes = listing.excludes;
        if unclear {
            state.swept = None;
            state.view = None;
        }
    }
}
