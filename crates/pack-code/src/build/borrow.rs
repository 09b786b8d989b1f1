//! Taking over the index of another tree with the same files: another worktree, or a copy.
//!
//! The files of a segment never change, so an index can have those of another one by a link. The
//! build that follows compares the documents with the tree as always: git's index, or reading,
//! tells which of them are the same here.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::build::Place;
use crate::limits;
use crate::store::StoreError;
use crate::store::manifest::Manifest;
use crate::symbols::names::ENDING;
use crate::tree::git;
use crate::view::Generation;

/// The index of another tree, linked into the folder of `place` and not published yet.
pub(super) fn borrow(place: &Place, rules: &str) -> Option<Generation> {
    lenders(place, rules)
        .into_iter()
        .take(limits::LENDERS)
        .find_map(|(folder, manifest)| {
            let lender = Generation::of(&folder, manifest).ok()?;
            if !is_alike(place, &lender) {
                return None;
            }
            link(place, &folder, lender.manifest).ok()
        })
}

/// Indexes of trees that may have the same files, the likeliest first.
fn lenders(place: &Place, rules: &str) -> Vec<(PathBuf, Manifest)> {
    let (head, common) = (git::head(&place.root), common(place));
    let entries = place.folder.parent().and_then(|all| fs::read_dir(all).ok());
    let mut found = Vec::new();
    for entry in entries.into_iter().flatten().filter_map(Result::ok) {
        let folder = entry.path();
        if folder == place.folder {
            continue;
        }
        let Ok(Some(manifest)) = Manifest::read(&folder) else {
            continue;
        };
        let same_repository = common.is_some() && manifest.git_common == common;
        let same_head = head.is_some() && manifest.git_head == head;
        let same_name = Path::new(&manifest.root).file_name() == place.root.file_name();
        let docs: u32 = manifest.segments.iter().map(|entry| entry.symbols_to).sum();
        if manifest.rules == rules && (same_repository || same_head || same_name) {
            let likelihood = (same_head, same_repository, docs);
            found.push((likelihood, folder, manifest));
        }
    }
    found.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
    found
        .into_iter()
        .map(|(_, folder, manifest)| (folder, manifest))
        .collect()
}

/// The directory that the worktrees of a repository share, as the manifest keeps it.
pub(super) fn common(place: &Place) -> Option<String> {
    let common = git::common_dir(&place.root)?;
    Some(common.to_string_lossy().into_owned())
}

/// Whether most of some documents are here with the same size.
fn is_alike(place: &Place, lender: &Generation) -> bool {
    let all: Vec<(usize, u32)> = lender.live_docs().collect();
    let step = (all.len() / limits::LENDER_SAMPLE as usize).max(1);
    let sample: Vec<&(usize, u32)> = all.iter().step_by(step).collect();
    let is_here = |(number, doc): &&(usize, u32)| {
        let Some(segment) = lender.segments.get(*number) else {
            return false;
        };
        fs::symlink_metadata(place.root.join(segment.docs.path(*doc)))
            .is_ok_and(|found| found.is_file() && found.len() == segment.docs.stamp(*doc).size)
    };
    let here = sample.iter().copied().filter(|at| is_here(at)).count();
    here * 100 > sample.len() * limits::LENDER_PERCENT
}

fn link(place: &Place, from: &Path, mut manifest: Manifest) -> Result<Generation, StoreError> {
    manifest.root = place.root.to_string_lossy().into_owned();
    for entry in &mut manifest.segments {
        entry.stamps = None;
        entry.borrowed = true;
    }
    for name in manifest.files() {
        let path = place.folder.join(&name);
        // Left there by a build that was cut off.
        let _ = fs::remove_file(&path);
        match fs::hard_link(from.join(&name), &path) {
            // Sets of trigrams are a help that may be missing.
            Err(error) if error.kind() == io::ErrorKind::NotFound && name.ends_with(ENDING) => {}
            linked => linked.map_err(|error| StoreError::io(&path, error))?,
        }
    }
    Generation::of(&place.folder, manifest)
}
