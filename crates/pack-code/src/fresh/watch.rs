//! A watch on the directories of a tree, by inotify.
//!
//! The kernel queues an event before the system call that caused it returns, so whoever drains the
//! queue at the beginning of a call knows of every change before it. Directories are added one by
//! one, each before its entries are listed, so nothing falls between the listing and the watch.

#[cfg(target_os = "linux")]
pub(crate) use self::linux::Watch;
#[cfg(not(target_os = "linux"))]
pub(crate) use self::none::Watch;

/// What a drain of the queue found.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Files whose content or metadata changed: directory and name.
    pub(crate) written: Vec<(String, String)>,
    /// Directories in which names came or went.
    pub(crate) changed: Vec<String>,
    /// Directories that came or went themselves: what is known of their inside is of another one.
    pub(crate) moved: Vec<String>,
    /// Events were lost: everything has to be compared.
    pub(crate) lost: bool,
}

/// A name in a directory, relative to the root.
pub(crate) fn join(directory: &str, name: &str) -> String {
    match directory {
        "" => name.to_owned(),
        directory => format!("{directory}/{name}"),
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::{Mutex, PoisonError};

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
    use rustix::io::Errno;

    use super::{Events, join};
    use crate::limits;

    /// Names whose coming, going or changing changes which files count.
    fn is_rule(name: &str) -> bool {
        matches!(name, ".gitignore" | ".ignore" | ".rgignore" | ".git")
    }

    /// What a file system is called whose files also change where this kernel does not see it: on
    /// another machine, outside a virtual one, in a program, or by themselves. By its number in
    /// `statfs`. An overlay is not among them: whoever changes what lies under it has no promises
    /// from the kernel.
    const fn unseen(number: u32) -> Option<&'static str> {
        Some(match number {
            0x6969 => "NFS",
            0x517b | 0xfe53_4d42 | 0xff53_4d42 => "SMB",
            0x6573_5546 => "FUSE",
            0x0102_1997 => "9P",
            0x5346_414f | 0x6b41_4653 => "AFS",
            0x00c3_6400 => "Ceph",
            0x7375_7245 => "Coda",
            0x564c => "NCP",
            0x0bd0_0bd0 => "Lustre",
            0x4750_4653 => "GPFS",
            0x0116_1970 => "GFS2",
            0x7461_636f => "OCFS2",
            0x786f_4256 | 0xbacb_acbc | 0x00c0_ffee => "a shared folder",
            0x9fa0 | 0x6265_6572 => "the kernel's own",
            _ => return None,
        })
    }

    /// An inotify descriptor and what its numbers stand for.
    #[derive(Debug)]
    pub(crate) struct Watch {
        fd: OwnedFd,
        state: Mutex<State>,
    }

    #[derive(Debug, Default)]
    struct State {
        /// Directories by the kernel's number. Only looked up in.
        directories: HashMap<i32, String>,
        /// A directory could not be watched.
        incomplete: Option<String>,
    }

    impl Watch {
        pub(crate) fn new() -> Result<Self, String> {
            inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
                .map(|fd| Self {
                    fd,
                    state: Mutex::default(),
                })
                .map_err(|errno| format!("inotify is not available: {errno}"))
        }

        /// Watches a directory, which may be watched already. `MASK_ADD` keeps the events of such a
        /// directory coming: without it the kernel clears the mask before it sets the new one and
        /// drops what happens in between.
        pub(crate) fn add(&self, root: &Path, directory: &str) {
            let flags = WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR
                | WatchFlags::DONT_FOLLOW
                | WatchFlags::EXCL_UNLINK
                | WatchFlags::MASK_ADD;
            let path = root.join(directory);
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.directories.len() >= limits::WATCHED_DIRECTORIES {
                state.incomplete = Some("more directories than are watched".to_owned());
                return;
            }
            // The root itself may have been reached through a link.
            let flags = if directory.is_empty() {
                flags - WatchFlags::DONT_FOLLOW
            } else {
                flags
            };
            // One that is gone shows below.
            let system = rustix::fs::statfs(&path).ok();
            if let Some(name) = system.and_then(|system| unseen(system.f_type as u32)) {
                let shown = if directory.is_empty() { "." } else { directory };
                state.incomplete = Some(format!(
                    "{shown:?} is on a file system whose changes are not all told ({name})"
                ));
            }
            match inotify::add_watch(&self.fd, &path, flags) {
                Ok(number) => {
                    state.directories.insert(number, directory.to_owned());
                }
                // Gone meanwhile; its parent says so, too.
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => {
                    state.incomplete = Some(format!("{directory:?} cannot be watched: {errno}"));
                }
            }
        }

        /// Why some changes may go unnoticed.
        pub(crate) fn incomplete(&self) -> Option<String> {
            self.state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .incomplete
                .clone()
        }

        pub(crate) fn directories(&self) -> usize {
            self.state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .directories
                .len()
        }

        /// Takes everything off the queue.
        pub(crate) fn drain(&self) -> Events {
            let mut events = Events::default();
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
            let mut reader = Reader::new(&self.fd, &mut buffer);
            loop {
                let event = match reader.next() {
                    Ok(event) => event,
                    Err(Errno::INTR) => continue,
                    // Nothing more, or nothing that can be read: then the sweep will see.
                    Err(Errno::AGAIN) => return events,
                    Err(_) => {
                        events.lost = true;
                        return events;
                    }
                };
                let flags = event.events();
                if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                    events.lost = true;
                    continue;
                }
                if flags.contains(ReadFlags::IGNORED) {
                    state.directories.remove(&event.wd());
                    continue;
                }
                let Some(directory) = state.directories.get(&event.wd()) else {
                    continue;
                };
                if flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
                    // The parent has an event of its own; the root has no parent here.
                    if directory.is_empty() {
                        events.lost = true;
                    }
                    continue;
                }
                let name = event.file_name().and_then(|name| name.to_str().ok());
                if name.is_some_and(is_rule) {
                    // Other files count from now on.
                    events.lost = true;
                    continue;
                }
                let is_directory = flags.contains(ReadFlags::ISDIR);
                let moved = ReadFlags::CREATE
                    | ReadFlags::DELETE
                    | ReadFlags::MOVED_FROM
                    | ReadFlags::MOVED_TO;
                match name {
                    Some(name) if !is_directory && !flags.intersects(moved) => {
                        events.written.push((directory.clone(), name.to_owned()));
                    }
                    _ if is_directory && !flags.intersects(moved) => {}
                    _ => {
                        if let (Some(name), true) = (name, is_directory) {
                            events.moved.push(join(directory, name));
                        }
                        events.changed.push(directory.clone());
                    }
                }
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use mainstay_worker::testing::TempDir;

        use super::*;

        #[test]
        fn a_directory_that_is_added_again_keeps_its_events_meanwhile() {
            let dir = TempDir::new().unwrap();
            let file = dir.path().join("a");
            std::fs::write(&file, "text").unwrap();
            let watch = Watch::new().unwrap();
            // Events that are not asked for again stay only if the mask is never cleared.
            inotify::add_watch(&watch.fd, dir.path(), WatchFlags::ACCESS).unwrap();
            watch.add(dir.path(), "");
            std::fs::read(&file).unwrap();
            assert!(!watch.drain().written.is_empty());
        }

        #[test]
        fn a_file_system_that_does_not_tell_all_makes_a_watch_incomplete() {
            let dir = TempDir::new().unwrap();
            let watch = Watch::new().unwrap();
            watch.add(dir.path(), "");
            assert_eq!((watch.incomplete(), watch.directories()), (None, 1));
            watch.add(Path::new("/"), "proc/self");
            let said = watch.incomplete().unwrap();
            assert!(said.contains("\"proc/self\""), "{said}");
            for (number, name) in [(0x6969, "NFS"), (0xff53_4d42, "SMB"), (0x6573_5546, "FUSE")] {
                assert_eq!(unseen(number), Some(name));
            }
            // ext4, btrfs, tmpfs, xfs, overlay.
            for number in [0xef53, 0x9123_683e, 0x0102_1994, 0x5846_5342, 0x794c_7630] {
                assert_eq!(unseen(number), None);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use std::path::Path;

    use super::Events;

    /// There is no watch on this platform.
    #[derive(Debug)]
    pub(crate) enum Watch {}

    impl Watch {
        pub(crate) fn new() -> Result<Self, String> {
            Err("there is no directory watch on this platform".to_owned())
        }

        pub(crate) fn add(&self, _: &Path, _: &str) {
            match *self {}
        }

        pub(crate) fn incomplete(&self) -> Option<String> {
            match *self {}
        }

        pub(crate) fn directories(&self) -> usize {
            match *self {}
        }

        pub(crate) fn drain(&self) -> Events {
            match *self {}
        }
    }
}
