//! Ignore files, read by this crate and matched as ripgrep matches them.
//!
//! The `ignore` crate opens whatever has the name of an ignore file: a pipe blocks it, and
//! `/dev/zero` never ends. Here such a file has to be a regular one of bounded size, and a link in
//! the tree must not lead out of it. Any other one is passed over and named.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder, gitconfig_excludes_path};
use rustix::fs::{Mode, OFlags};

use crate::limits;
use crate::tree::file::Stamp;
use crate::tree::git;

/// Ignore files of a directory, the one that decides first in front.
const NAMES: [&str; 3] = [".rgignore", ".ignore", ".gitignore"];

/// The ignore rules of one walk.
#[derive(Debug)]
pub(crate) struct IgnoreRules {
    root: PathBuf,
    hidden: bool,
    global: Gitignore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    folders: HashMap<PathBuf, Arc<Folder>>,
    /// Bytes of all ignore files that were read.
    bytes: u64,
    passed_over: BTreeSet<String>,
    /// Files of git's own rules that decide, as they were before they were read.
    excludes: Excludes,
}

/// Files of git's own rules, each with its stamp where it is there.
pub(crate) type Excludes = BTreeMap<PathBuf, Option<Stamp>>;

/// The stamp of a file that decides about a tree, where it is there.
pub(crate) fn rules_stamp(path: &Path) -> Option<Stamp> {
    fs::metadata(path).ok().map(|found| Stamp::of(&found))
}

/// The rules of a directory that has some, and of those above it.
#[derive(Debug)]
struct Folder {
    parent: Option<Arc<Self>>,
    custom: Gitignore,
    ignore: Gitignore,
    git: Gitignore,
    exclude: Gitignore,
    has_git: bool,
    /// It or a directory above it is a repository.
    in_git: bool,
}

impl IgnoreRules {
    pub(crate) fn new(root: &Path, hidden: bool) -> Self {
        let mut state = State::default();
        let global = match (gitconfig_excludes_path(), std::env::current_dir()) {
            (Some(path), Ok(base)) => state.matcher(None, &base, &path),
            _ => Gitignore::empty(),
        };
        Self {
            root: root.to_owned(),
            hidden,
            global,
            state: Mutex::new(state),
        }
    }

    /// Whether an entry of the tree counts.
    pub(crate) fn admit(&self, path: &Path, is_dir: bool) -> bool {
        let folder = path.parent().and_then(|parent| self.folder(parent));
        match self.matched(folder.as_deref(), path, is_dir) {
            Match::Ignore(()) => false,
            Match::Whitelist(()) => true,
            Match::None => self.hidden || !is_hidden(path),
        }
    }

    /// Ignore files that were passed over, each with the reason.
    pub(crate) fn passed_over(&self) -> BTreeSet<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.passed_over.clone()
    }

    /// Files of git's own rules that decide about the tree, also of repositories in it.
    pub(crate) fn excludes(&self) -> Excludes {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.excludes.clone()
    }

    fn matched(&self, folder: Option<&Folder>, path: &Path, is_dir: bool) -> Match<()> {
        let in_git = folder.is_some_and(|folder| folder.in_git);
        let [mut custom, mut ignore, mut git, mut exclude] = [const { Match::None }; 4];
        let look = |found: &mut Match<()>, rules: &Gitignore| {
            if found.is_none() {
                *found = rules.matched(path, is_dir).map(|_| ());
            }
        };
        // The rules of git end at the repository.
        let mut git_counts = in_git;
        let mut next = folder;
        while let Some(folder) = next {
            look(&mut custom, &folder.custom);
            look(&mut ignore, &folder.ignore);
            if git_counts {
                look(&mut git, &folder.git);
                look(&mut exclude, &folder.exclude);
            }
            git_counts &= !folder.has_git;
            next = folder.parent.as_deref();
        }
        let mut global = Match::None;
        if in_git {
            look(&mut global, &self.global);
        }
        custom.or(ignore).or(git).or(exclude).or(global)
    }

    /// The rules of a directory: its own, or those of the nearest one above it that has some.
    fn folder(&self, directory: &Path) -> Option<Arc<Folder>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unknown = Vec::new();
        let mut found = None;
        for above in directory.ancestors() {
            if let Some(known) = state.folders.get(above) {
                found = Some(Arc::clone(known));
                break;
            }
            unknown.push(above);
        }
        for directory in unknown.into_iter().rev() {
            let folder = state.read(&self.root, directory, found);
            state
                .folders
                .insert(directory.to_owned(), Arc::clone(&folder));
            found = Some(folder);
        }
        found
    }
}

impl State {
    fn read(&mut self, root: &Path, directory: &Path, parent: Option<Arc<Folder>>) -> Arc<Folder> {
        let [custom, ignore, git] =
            NAMES.map(|name| self.matcher(Some(root), directory, &directory.join(name)));
        let has_git = [".git", ".jj"]
            .iter()
            .any(|name| directory.join(name).exists());
        let exclude = match git::exclude_file_of(directory).filter(|_| has_git) {
            Some(path) => {
                let stamp = rules_stamp(&path);
                let rules = self.matcher(Some(root), directory, &path);
                self.excludes.insert(path, stamp);
                rules
            }
            None => Gitignore::empty(),
        };
        let rules = [&custom, &ignore, &git, &exclude];
        if let Some(parent) = &parent
            && !has_git
            && rules.iter().all(|rules| rules.is_empty())
        {
            return Arc::clone(parent);
        }
        let in_git = has_git || parent.as_ref().is_some_and(|parent| parent.in_git);
        Arc::new(Folder {
            parent,
            custom,
            ignore,
            git,
            exclude,
            has_git,
            in_git,
        })
    }

    /// The rules of one file; none where it is passed over.
    fn matcher(&mut self, root: Option<&Path>, base: &Path, path: &Path) -> Gitignore {
        let left = limits::IGNORE_BYTES.saturating_sub(self.bytes);
        let text = match read_within(root, path, limits::IGNORE_FILE_BYTES.min(left)) {
            Ok(Some(text)) => text,
            Ok(None) => return Gitignore::empty(),
            Err(reason) => {
                if self.passed_over.len() < limits::NAMED_SKIPS {
                    let shown = root.and_then(|root| path.strip_prefix(root).ok());
                    let shown = shown.unwrap_or(path).to_string_lossy();
                    self.passed_over.insert(format!("{shown} {reason}"));
                }
                return Gitignore::empty();
            }
        };
        self.bytes += text.len() as u64;
        let mut builder = GitignoreBuilder::new(base);
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
        for line in text.split(|byte| *byte == b'\n') {
            // As in ripgrep, a line that is not UTF-8 ends the file, and one that is no glob counts
            // for nothing.
            let Ok(line) = std::str::from_utf8(line) else {
                break;
            };
            let line = line.strip_suffix('\r').unwrap_or(line);
            let _ = builder.add_line(None, line);
        }
        builder.build().unwrap_or_else(|_| Gitignore::empty())
    }
}

/// Reads a file that decides about the tree. One in the tree may be a link only to another place in
/// the tree.
fn read_within(root: Option<&Path>, path: &Path, most: u64) -> Result<Option<Vec<u8>>, String> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(None);
    };
    let Some(root) = root.filter(|root| metadata.is_symlink() && path.starts_with(root)) else {
        return read_regular(path, most);
    };
    match path.canonicalize() {
        Ok(target) if target.starts_with(root) => read_regular(&target, most),
        Ok(_) => Err("is a link that leads out of the root".to_owned()),
        Err(_) => Ok(None),
    }
}

/// Reads a regular file of at most `most` bytes without ever waiting for it; nothing where there is
/// none, and the reason where it is another kind of file or too large.
pub(crate) fn read_regular(path: &Path, most: u64) -> Result<Option<Vec<u8>>, String> {
    let no_file = || "is not a regular file".to_owned();
    let too_large = || format!("has over {most} bytes");
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    match fs::metadata(path) {
        // Opening a device may do something already.
        Ok(metadata) if !metadata.is_file() => return Err(no_file()),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(unreadable(error));
        }
        Err(_) => return Ok(None),
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(unreadable(error.into())),
    };
    // The name may be another file's by now.
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(no_file());
    }
    if metadata.len() > most {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    match bytes.len() as u64 > most {
        true => Err(too_large()),
        false => Ok(Some(bytes)),
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}
