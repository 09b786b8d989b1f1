//! Files on disk whose changes roll out a pack or a wrapped server (`--watch`).
//!
//! Theory of operation. A thread of its own waits for inotify events in the directories of all watched
//! files. An event is only a reason to look. Once no further event came for [`QUIET`], the thread compares
//! the *mark* of each target, a digest of the identity, size and times of its files, with the mark at its last
//! rollout. If it differs, the thread asks the loop for a rollout, as an operator would, and waits for its end.
//!
//! A build that is not finished does no harm. A file that is missing is waited for. One that does not start
//! is refused by the rollout, and the worker before it continues. The next attempt follows when the mark
//! differs, or when a program closes the file that it had open for writing: until then it could not run.
//!
//! Every directory and every link on the way to a file is watched, too, so that a directory that is removed
//! and made again, or a link that leads elsewhere, is a reason to look. Directories are watched before their
//! files are marked, so no change falls between. Marks travel with an upgrade of the host: a change that
//! lands meanwhile differs from them. Changes that the kernel does not see, such as those made on
//! another machine, are not noticed.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mainstay_contract::control::{ControlReply, ControlRequest};
use mainstay_schema::Fingerprint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
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
/// Links that are followed on the way to a file, as the kernel does.
const LINKS: usize = 40;
/// Searches for directories that were added since the one before.
const SEARCHES: usize = 10;
/// Directories that programs write themselves, beside those whose names begin with a dot.
const IGNORED: [&str; 2] = ["__pycache__", "node_modules"];
/// Bytes of events that are read at once.
const EVENTS: usize = 16 * 1024;

/// Events in a directory on the way to a file.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO);
/// Events in a directory that has watched files.
const CONTENTS: WatchFlags = NAMES
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE);

/// The marks of all targets at their last rollouts, for the program that continues this one.
pub(crate) type Marks = Arc<Mutex<SavedMarks>>;
/// [`Marks`], as they are saved.
pub(crate) type SavedMarks = Vec<(Watched, Fingerprint)>;

/// The marks as they are now.
pub(crate) fn saved(marks: &Marks) -> SavedMarks {
    marks.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Waits for changes of files.
pub(crate) struct FileWatch {
    inotify: Arc<OwnedFd>,
    /// Directories by the kernel's number.
    directories: BTreeMap<i32, PathBuf>,
    /// The directories of the last search.
    found: BTreeMap<PathBuf, WatchFlags>,
    targets: Vec<Target>,
    marks: Marks,
    events: mpsc::Sender<Event>,
    log: Log,
    /// That not everything is watched was logged.
    warned: bool,
}

/// Files that belong to one pack or server.
struct Target {
    watched: Watched,
    /// The directories and links on the way to its files, and where they end.
    ways: Vec<Way>,
    mark: Fingerprint,
    /// The last rollout failed.
    failed: bool,
    /// One of its files had an event.
    touched: bool,
    /// A watched file was closed after writing.
    closed: bool,
}

impl FileWatch {
    /// Waits for changes on a thread of its own: since `saved`, the marks of the program that this one continues,
    /// or since now. `inherited` is the inotify descriptor of that program. Returns the descriptor and the marks in use.
    pub(crate) fn start(
        watched: Vec<Watched>,
        saved: &[(Watched, Fingerprint)],
        inherited: Option<OwnedFd>,
        events: mpsc::Sender<Event>,
        log: &Log,
    ) -> io::Result<(Arc<OwnedFd>, Marks)> {
        let mut watch = Self::new(watched, saved, inherited, events, log)?;
        let in_use = (Arc::clone(&watch.inotify), Arc::clone(&watch.marks));
        std::thread::Builder::new()
            .name("file-watch".to_owned())
            .spawn(move || while watch.turn().is_some() {})?;
        Ok(in_use)
    }

    fn new(
        watched: Vec<Watched>,
        saved: &[(Watched, Fingerprint)],
        inherited: Option<OwnedFd>,
        events: mpsc::Sender<Event>,
        log: &Log,
    ) -> io::Result<Self> {
        let targets = watched.into_iter().map(|watched| Target {
            watched,
            ways: Vec::new(),
            mark: Fingerprint([0; 32]),
            failed: false,
            touched: false,
            closed: false,
        });
        let mut watch = Self {
            inotify: Arc::new(match inherited {
                Some(inotify) => inotify,
                None => inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            }),
            directories: BTreeMap::new(),
            found: BTreeMap::new(),
            targets: targets.collect(),
            marks: Marks::default(),
            events,
            log: log.clone(),
            warned: false,
        };
        watch.watch_directories();
        for target in &mut watch.targets {
            let before = saved.iter().find(|(watched, _)| *watched == target.watched);
            target.touched = before.is_some();
            target.mark = match before {
                Some((_, mark)) => *mark,
                None => mark_of(&target.watched.paths),
            };
        }
        watch.publish_marks();
        Ok(watch)
    }

    /// Waits for a change and rolls out the targets that it belongs to. `None` once the host has ended.
    fn turn(&mut self) -> Option<()> {
        if !self.targets.iter().any(|target| target.touched) {
            self.wait(None);
            if !self.read_events() {
                return Some(());
            }
        }
        let began = Instant::now();
        let mut last = began;
        loop {
            let until = (last + QUIET).min(began + QUIET_AT_MOST);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if self.wait(Some(left)) && self.read_events() {
                last = Instant::now();
            }
        }
        // Directories may have been added.
        self.watch_directories();
        for index in 0..self.targets.len() {
            if let Some(pack) = self.due(index) {
                let done = self.roll_out(pack)?;
                if let Some(target) = self.targets.get_mut(index) {
                    target.failed = !done;
                }
                // Not before: a host that is upgraded meanwhile may lose the request.
                self.publish_marks();
            }
        }
        Some(())
    }

    fn publish_marks(&self) {
        let marks = self.targets.iter();
        let marks = marks.map(|target| (target.watched.clone(), target.mark));
        *self.marks.lock().unwrap_or_else(PoisonError::into_inner) = marks.collect();
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

    /// Notes which targets the waiting events belong to. False if they belong to none.
    fn read_events(&mut self) -> bool {
        let Self {
            inotify,
            directories,
            targets,
            ..
        } = self;
        let mut any = false;
        let mut buffer = [MaybeUninit::uninit(); EVENTS];
        let mut reader = Reader::new(&*inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => return any,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                for target in targets.iter_mut() {
                    target.touched = true;
                }
                any = true;
                continue;
            }
            let Some(directory) = directories.get(&event.wd()) else {
                continue;
            };
            let name = event.file_name().and_then(|name| name.to_str().ok());
            let path = directory.join(name.unwrap_or_default());
            for target in targets.iter_mut() {
                let touches = target.ways.iter().any(|way| way.touches(&path));
                let is_end = |way: &Way| way.end.as_ref() == Some(&path);
                target.touched |= touches;
                target.closed |= event.events().contains(ReadFlags::CLOSE_WRITE)
                    && target.ways.iter().any(is_end);
                any |= touches;
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
        let closed = std::mem::take(&mut target.closed);
        if mark == target.mark && !(target.failed && closed) {
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
        let control = Control {
            request,
            is_same_user: false,
            reply,
        };
        self.events.blocking_send(control.into()).ok()?;
        match answer.blocking_recv().ok()? {
            ControlReply::RolledOut(done) => Some(done.iter().all(|pack| pack.result.is_ok())),
            _ => Some(false),
        }
    }

    /// Watches every directory of the targets, and searches again until none was added meanwhile.
    fn watch_directories(&mut self) {
        let mut complete = true;
        for _ in 0..SEARCHES {
            let mut wanted = BTreeMap::new();
            for target in &mut self.targets {
                let paths = target.watched.paths.iter();
                target.ways = paths.map(|path| Way::to(path)).collect();
                for way in &target.ways {
                    complete &= way.directories(&mut wanted);
                }
            }
            complete &= self.add_watches(&wanted);
            if std::mem::replace(&mut self.found, wanted.clone()) == wanted {
                break;
            }
        }
        if !complete && !std::mem::replace(&mut self.warned, true) {
            self.log.line(&format!(
                "mcp:warning reason=watch_incomplete not every directory can be watched; at most {DIRECTORIES} are"
            ));
        }
    }

    /// False if a directory with watched files cannot be watched.
    fn add_watches(&mut self, wanted: &BTreeMap<PathBuf, WatchFlags>) -> bool {
        let mut complete = true;
        for (directory, flags) in wanted {
            // A known directory keeps its number. Without MASK_ADD the kernel would clear its mask for a moment
            // and drop what happens then.
            let flags = *flags | WatchFlags::MASK_ADD | WatchFlags::ONLYDIR;
            match inotify::add_watch(&self.inotify, directory, flags) {
                Ok(number) => {
                    self.directories.insert(number, directory.clone());
                }
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                // A directory above may be closed to this user, and then it seldom changes.
                Err(_) => complete &= !flags.contains(CONTENTS),
            }
        }
        complete
    }
}

/// The way to a file or directory.
#[derive(Debug, Default, PartialEq, Eq)]
struct Way {
    /// Every directory and link, up to the first that is missing, or the file.
    steps: Vec<PathBuf>,
    /// Where it ends, without links; `None` while something is missing.
    end: Option<PathBuf>,
}

impl Way {
    fn to(path: &Path) -> Self {
        let mut way = Self::default();
        let Ok(path) = std::path::absolute(path) else {
            return way;
        };
        let mut at = PathBuf::from("/");
        let mut links = 0;
        let mut rest: VecDeque<OsString> = names(&path).collect();
        while let Some(name) = rest.pop_front() {
            let step = match Path::new(&name).components().next() {
                Some(Component::Normal(name)) => at.join(name),
                Some(Component::ParentDir) => {
                    at.pop();
                    continue;
                }
                Some(Component::RootDir) => {
                    at = PathBuf::from("/");
                    continue;
                }
                _ => continue,
            };
            way.steps.push(step.clone());
            match step.read_link() {
                Ok(_) if links == LINKS => return way,
                Ok(target) => {
                    links += 1;
                    let mut all: VecDeque<OsString> = names(&target).collect();
                    all.append(&mut rest);
                    rest = all;
                }
                Err(_) if step.symlink_metadata().is_ok() => at = step,
                Err(_) => return way,
            }
        }
        way.end = Some(at);
        way
    }

    /// True if an event at this path is a reason to look.
    fn touches(&self, path: &Path) -> bool {
        self.steps.iter().any(|step| step == path)
            || self.end.as_ref().is_some_and(|end| path.starts_with(end))
    }

    /// Adds the directories to watch, each with the events that count. False if there are too many.
    fn directories(&self, wanted: &mut BTreeMap<PathBuf, WatchFlags>) -> bool {
        let mut add = |directory: &Path, flags| {
            let has_room = wanted.len() < DIRECTORIES || wanted.contains_key(directory);
            if has_room {
                let known = wanted
                    .entry(directory.to_owned())
                    .or_insert(WatchFlags::empty());
                *known |= flags;
            }
            has_room
        };
        let mut complete = true;
        for parent in self.steps.iter().filter_map(|step| step.parent()) {
            complete &= add(parent, NAMES);
        }
        // The file itself, or its place while it is missing.
        let last = self.steps.last().and_then(|step| step.parent());
        complete &= last.is_none_or(|parent| add(parent, CONTENTS));
        if let Some(end) = &self.end {
            walk(end, &mut |found, facts| {
                complete &= !facts.is_dir() || add(found, CONTENTS);
                complete
            });
        }
        complete
    }
}

fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().map(|part| part.as_os_str().to_owned())
}

/// True if everything that is watched is there.
fn is_complete(watched: &Watched) -> bool {
    watched.paths.iter().all(|path| path.exists())
}

/// A digest of all files below the paths: which they are, their sizes and times.
fn mark_of(paths: &[PathBuf]) -> Fingerprint {
    let mut digest = Sha256::new();
    let mut files = 0;
    for path in paths {
        walk(path, &mut |found, facts| {
            if !facts.is_dir() {
                digest.update(found.as_os_str().as_bytes());
                digest.update([0]);
                for number in [facts.dev(), facts.ino(), facts.size(), facts.mode().into()] {
                    digest.update(number.to_le_bytes());
                }
                let changed = [facts.mtime(), facts.mtime_nsec()];
                for number in changed
                    .into_iter()
                    .chain([facts.ctime(), facts.ctime_nsec()])
                {
                    digest.update(number.to_le_bytes());
                }
                files += 1;
            }
            files < FILES
        });
    }
    Fingerprint(digest.finalize().into())
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
    fn a_way_has_every_directory_and_link_up_to_its_end() {
        let folder = TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("1/bin")).unwrap();
        std::fs::write(root.join("1/bin/mine"), "").unwrap();
        std::os::unix::fs::symlink("./1/../1", root.join("current")).unwrap();
        let steps = |way: &Way| -> Vec<PathBuf> {
            let own = way.steps.iter().filter_map(|step| {
                let own = step.strip_prefix(&root).ok()?;
                Some(own.to_owned()).filter(|own| !own.as_os_str().is_empty())
            });
            own.collect()
        };
        let way = Way::to(&root.join("current/bin/mine"));
        let expected = ["current", "1", "1", "1/bin", "1/bin/mine"];
        assert_eq!(steps(&way), expected.map(PathBuf::from));
        assert_eq!(way.end, Some(root.join("1/bin/mine")));
        assert!(way.touches(&root.join("current")));
        assert!(!way.touches(&root.join("1/bin/other")));
        let mut wanted = BTreeMap::new();
        assert!(way.directories(&mut wanted));
        assert_eq!(wanted.get(&root), Some(&NAMES));
        assert_eq!(wanted.get(&root.join("1/bin")), Some(&CONTENTS));

        let gone = Way::to(&root.join("gone/bin/mine"));
        assert_eq!(steps(&gone), [PathBuf::from("gone")]);
        assert_eq!(gone.end, None);
        let mut wanted = BTreeMap::new();
        assert!(gone.directories(&mut wanted));
        assert_eq!(wanted.get(&root), Some(&CONTENTS), "where it will be");
        std::os::unix::fs::symlink("circle", root.join("circle")).unwrap();
        assert_eq!(Way::to(&root.join("circle")).end, None);
    }

    #[test]
    fn directories_are_bounded() {
        let folder = TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join("more")).unwrap();
        let way = Way::to(&folder.path().join("more"));
        let mut wanted: BTreeMap<PathBuf, WatchFlags> = (0..DIRECTORIES)
            .map(|n| (n.to_string().into(), NAMES))
            .collect();
        assert!(!way.directories(&mut wanted));
        assert_eq!(wanted.len(), DIRECTORIES);
        let way = Way::to(folder.path());
        let mut wanted = BTreeMap::new();
        assert!(way.directories(&mut wanted));
        let more = folder.path().canonicalize().unwrap().join("more");
        assert_eq!(wanted.get(&more), Some(&CONTENTS), "{wanted:?}");
    }
}
