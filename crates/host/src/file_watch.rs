//! Files on disk whose changes roll out a pack or a wrapped server (`--watch`).
//!
//! Theory of operation. A thread of its own waits for inotify events in the directories of all watched
//! files. An event is only a reason to look. Once no further event came for [`QUIET`], the thread compares
//! the *mark* of each target, a digest of the identity, size and time of its files, with the mark at its last
//! rollout. If it differs, the thread asks the loop for a rollout, as an operator would, and waits for its end.
//!
//! A build that is not finished does no harm. A file that is missing or may not be executed is waited for.
//! One that does not start is refused by the rollout, and the worker before it continues; the next event of
//! that file leads to another attempt, even if its mark is the same.
//!
//! Directories are watched before their files are marked, so no change falls between. Changes that the
//! kernel does not see, such as those made on another machine, are not noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_contract::control::{ControlReply, ControlRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};

use crate::config::Watched;
use crate::control::{Control, Replier};
use crate::engine::Event;
use crate::log::Log;

/// Time without an event after which files count as written.
const QUIET: Duration = Duration::from_millis(200);
/// Longest time to wait for that: a file that is always written must not postpone a rollout for ever.
const QUIET_AT_MOST: Duration = Duration::from_secs(10);
/// Directories that are watched, of all targets together.
const DIRECTORIES: usize = 8192;
/// Files of one target that are looked at.
const FILES: usize = 100_000;
/// Directories that programs write themselves, beside those whose names begin with a dot.
const IGNORED: [&str; 2] = ["__pycache__", "node_modules"];
/// Bytes of events that are read at once.
const EVENTS: usize = 16 * 1024;

/// Waits for changes of files.
pub(crate) struct FileWatch {
    inotify: Arc<OwnedFd>,
    /// Directories by the kernel's number.
    directories: BTreeMap<i32, PathBuf>,
    targets: Vec<Target>,
    events: mpsc::Sender<Event>,
    log: Log,
    /// That not everything is watched was logged.
    warned: bool,
}

/// Files that belong to one pack or server.
struct Target {
    watched: Watched,
    /// Its paths without links.
    places: Vec<PathBuf>,
    mark: u64,
    /// The last rollout failed.
    failed: bool,
    /// One of its files had an event.
    touched: bool,
}

impl FileWatch {
    /// Marks the files as they are now, and waits for changes on a thread of its own. `inherited` is the inotify
    /// descriptor of the program that this one continues; returns the one in use.
    pub(crate) fn start(
        watched: Vec<Watched>,
        inherited: Option<OwnedFd>,
        events: mpsc::Sender<Event>,
        log: &Log,
    ) -> io::Result<Arc<OwnedFd>> {
        let mut watch = Self::new(watched, inherited, events, log)?;
        let inotify = Arc::clone(&watch.inotify);
        std::thread::Builder::new()
            .name("file-watch".to_owned())
            .spawn(move || while watch.turn().is_some() {})?;
        Ok(inotify)
    }

    fn new(
        watched: Vec<Watched>,
        inherited: Option<OwnedFd>,
        events: mpsc::Sender<Event>,
        log: &Log,
    ) -> io::Result<Self> {
        let targets = watched.into_iter().map(|watched| Target {
            watched,
            places: Vec::new(),
            mark: 0,
            failed: false,
            touched: false,
        });
        let mut watch = Self {
            inotify: Arc::new(match inherited {
                Some(inotify) => inotify,
                None => inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            }),
            directories: BTreeMap::new(),
            targets: targets.collect(),
            events,
            log: log.clone(),
            warned: false,
        };
        watch.watch_directories();
        for target in &mut watch.targets {
            target.mark = mark_of(&target.watched.paths);
        }
        Ok(watch)
    }

    /// Waits for a change and rolls out the targets that it belongs to. `None` once the host has ended.
    fn turn(&mut self) -> Option<()> {
        self.wait(None);
        self.read_events();
        if !self.targets.iter().any(|target| target.touched) {
            return Some(());
        }
        let began = Instant::now();
        while began.elapsed() < QUIET_AT_MOST && self.wait(Some(QUIET)) {
            self.read_events();
        }
        // Directories may have been added.
        self.watch_directories();
        for index in 0..self.targets.len() {
            if let Some(pack) = self.due(index) {
                let done = self.roll_out(pack)?;
                if let Some(target) = self.targets.get_mut(index) {
                    target.failed = !done;
                }
            }
        }
        Some(())
    }

    /// Waits for an event. False if none came in time.
    fn wait(&self, within: Option<Duration>) -> bool {
        let within = within.and_then(|within| Timespec::try_from(within).ok());
        let mut fds = [PollFd::new(&self.inotify, PollFlags::IN)];
        match poll(&mut fds, within.as_ref()) {
            Ok(ready) => ready > 0,
            Err(_) => false,
        }
    }

    /// Notes which targets the waiting events belong to.
    fn read_events(&mut self) {
        let Self {
            inotify,
            directories,
            targets,
            ..
        } = self;
        let mut buffer = [MaybeUninit::uninit(); EVENTS];
        let mut reader = Reader::new(&*inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                for target in targets.iter_mut() {
                    target.touched = true;
                }
                continue;
            }
            let Some(directory) = directories.get(&event.wd()) else {
                continue;
            };
            let name = event.file_name().and_then(|name| name.to_str().ok());
            let path = directory.join(name.unwrap_or_default());
            for target in targets.iter_mut() {
                target.touched |= target.places.iter().any(|place| path.starts_with(place));
            }
            if event.events().contains(ReadFlags::IGNORED) {
                directories.remove(&event.wd());
            }
        }
    }

    /// The name of a target that must be rolled out now: `Some(None)` for the wrapped server.
    fn due(&mut self, index: usize) -> Option<Option<String>> {
        let target = self.targets.get_mut(index)?;
        if !std::mem::take(&mut target.touched) || !is_complete(&target.watched) {
            return None;
        }
        let mark = mark_of(&target.watched.paths);
        if mark == target.mark && !target.failed {
            return None;
        }
        target.mark = mark;
        let pack = target.watched.pack.clone();
        let named = pack.as_ref();
        let named = named.map_or_else(String::new, |pack| format!(" pack={pack}"));
        self.log.line(&format!("mcp:watch changed{named}"));
        Some(pack)
    }

    /// Asks the loop for a rollout and waits for its end. False if it failed.
    fn roll_out(&self, pack: Option<String>) -> Option<bool> {
        let (reply, answer) = oneshot::channel();
        let reasons = Vec::new();
        let request = ControlRequest::Rollout { pack, reasons };
        let reply = Replier::Task(reply);
        let control = Control { request, reply };
        self.events.blocking_send(control.into()).ok()?;
        match answer.blocking_recv().ok()? {
            ControlReply::RolledOut(done) => Some(done.iter().all(|pack| pack.result.is_ok())),
            _ => Some(false),
        }
    }

    /// Watches every directory of the targets.
    fn watch_directories(&mut self) {
        let mut wanted = BTreeSet::new();
        let mut complete = true;
        for target in &mut self.targets {
            let paths = target.watched.paths.iter();
            target.places = paths.flat_map(|path| places_of(path)).collect();
            for place in &target.places {
                complete &= directories_of(place, &mut wanted);
            }
        }
        // A known directory keeps its number. Without MASK_ADD the kernel would clear its mask for a moment
        // and drop what happens then.
        for directory in wanted {
            let flags = WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::MASK_ADD
                | WatchFlags::ONLYDIR;
            match inotify::add_watch(&self.inotify, &directory, flags) {
                Ok(number) => {
                    self.directories.insert(number, directory);
                }
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(_) => complete = false,
            }
        }
        if !complete && !std::mem::replace(&mut self.warned, true) {
            self.log.line(&format!(
                "mcp:warning reason=watch_incomplete not every directory can be watched; at most {DIRECTORIES} are"
            ));
        }
    }
}

/// The places whose events concern a path: where it is, and where it leads to.
fn places_of(path: &Path) -> Vec<PathBuf> {
    let folder = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    };
    let own = folder
        .canonicalize()
        .ok()
        .zip(path.file_name())
        .map(|(folder, name)| folder.join(name));
    own.into_iter().chain(path.canonicalize().ok()).collect()
}

/// True if everything that is watched is there.
fn is_complete(watched: &Watched) -> bool {
    watched.paths.iter().all(|path| path.exists())
}

/// Adds the directories whose events concern a place. False if there are too many.
fn directories_of(place: &Path, wanted: &mut BTreeSet<PathBuf>) -> bool {
    wanted.extend(place.parent().map(Path::to_owned));
    let mut complete = true;
    walk(place, &mut |found, facts| {
        if facts.is_dir() {
            complete &= wanted.len() < DIRECTORIES;
            if complete {
                wanted.insert(found.to_owned());
            }
        }
        complete
    });
    complete
}

/// A digest of all files below the paths: which they are, their sizes and times.
fn mark_of(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut files = 0;
    for path in paths {
        walk(path, &mut |found, facts| {
            if !facts.is_dir() {
                found.hash(&mut hasher);
                (facts.dev(), facts.ino(), facts.size(), facts.mode()).hash(&mut hasher);
                (facts.mtime(), facts.mtime_nsec()).hash(&mut hasher);
                files += 1;
            }
            files < FILES
        });
    }
    hasher.finish()
}

/// Visits a file, or a directory and everything below it, in the order of names, as long as `visit`
/// returns true. Links to directories are not followed.
fn walk(path: &Path, visit: &mut impl FnMut(&Path, &Metadata) -> bool) {
    let mut open = vec![path.to_owned()];
    while let Some(path) = open.pop() {
        let Ok(facts) = path.metadata() else {
            continue;
        };
        if !visit(&path, &facts) {
            return;
        }
        if !facts.is_dir() {
            continue;
        }
        let Ok(entries) = path.read_dir() else {
            continue;
        };
        let mut below: Vec<PathBuf> = entries
            .flatten()
            .filter(|entry| !is_ignored(&entry.file_name().to_string_lossy()))
            .map(|entry| entry.path())
            .filter(|path| !(path.is_symlink() && path.is_dir()))
            .collect();
        below.sort_unstable_by(|a, b| b.cmp(a));
        open.append(&mut below);
    }
}

fn is_ignored(name: &str) -> bool {
    name.starts_with('.') || IGNORED.contains(&name)
}

#[cfg(test)]
mod tests {
    use mainstay_testkit::process::TempDir;

    use super::*;

    #[test]
    fn a_mark_changes_with_every_file_that_counts_and_with_no_other() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("below")).unwrap();
        std::fs::create_dir(at("__pycache__")).unwrap();
        std::fs::write(at("below/a"), "1").unwrap();
        let mark = || mark_of(&[folder.path().to_owned()]);
        let first = mark();
        std::fs::write(at("__pycache__/a.pyc"), "1").unwrap();
        std::fs::write(at(".hidden"), "1").unwrap();
        assert_eq!(mark(), first);
        std::fs::write(at("below/b"), "").unwrap();
        let second = mark();
        assert_ne!(second, first);
        std::fs::rename(at("below/b"), at("below/c")).unwrap();
        assert_ne!(mark(), second);
        std::fs::remove_file(at("below/c")).unwrap();
        assert_eq!(mark(), first);
    }

    #[test]
    fn a_path_is_where_it_is_and_where_it_leads_to() {
        let folder = TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        let places = places_of(&root.join("link"));
        assert_eq!(places, [root.join("link"), root.join("real")]);
        let gone = places_of(&root.join("link/gone"));
        assert_eq!(gone, [root.join("real/gone")]);
    }

    #[test]
    fn directories_are_bounded() {
        let folder = TempDir::new().unwrap();
        let mut wanted: BTreeSet<PathBuf> =
            (0..DIRECTORIES).map(|n| n.to_string().into()).collect();
        std::fs::create_dir(folder.path().join("more")).unwrap();
        assert!(!directories_of(&folder.path().join("more"), &mut wanted));
        let mut wanted = BTreeSet::new();
        assert!(directories_of(folder.path(), &mut wanted));
        assert!(wanted.contains(&folder.path().join("more")), "{wanted:?}");
    }
}
