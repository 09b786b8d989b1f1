//! git's index of a tree: which version of each file git has, and the stamp that proves it.
//!
//! Two worktrees whose files have the same blob have the same text, so an index of one serves the
//! other without reading a file. Only entries that need no second look count: regular files that
//! git compares, written well before the index itself.

use std::fs;
use std::path::Path;

use crate::store::codec::{take_array, take_bytes};
use crate::tree::file::Stamp;
use crate::tree::git;
use crate::tree::ignore_rules::read_regular;

/// Largest index that is read.
const MAX_BYTES: u64 = 512 * 1024 * 1024;
/// A file that changed this shortly before the index was written may have changed once more
/// without another stamp.
const RACY_NANOS: i64 = 10_000_000;
const ASSUME_VALID: u16 = 1 << 15;
const EXTENDED: u16 = 1 << 14;
const STAGE: u16 = 3 << 12;
const REGULAR: u32 = 0o100_000;

/// The name of a version of a file; zeros where it is not known.
pub(crate) type Blob = [u8; 20];

/// No version.
pub(crate) const UNKNOWN: Blob = [0; 20];

/// What git knows of the files below a root, sorted by path.
#[derive(Debug, Default)]
pub(crate) struct GitIndex {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    path: String,
    blob: Blob,
    stamp: Stamp,
}

impl GitIndex {
    /// Reads the index of the worktree that `root` is in; empty where there is none to rely on.
    pub(crate) fn read(root: &Path) -> Self {
        Self::of(root).unwrap_or_default()
    }

    fn of(root: &Path) -> Option<Self> {
        let (top, git) = git::worktree(root)?;
        let path = git.join("index");
        let metadata = fs::metadata(&path).ok()?;
        if !metadata.is_file() || metadata.len() > MAX_BYTES {
            return None;
        }
        let prefix = match root.strip_prefix(&top).ok()?.to_str()? {
            "" => String::new(),
            below => format!("{below}/"),
        };
        let bytes = read_regular(&path, MAX_BYTES).ok()??;
        let written = Stamp::of(&metadata).modified;
        parse(&bytes, &prefix, written.saturating_sub(RACY_NANOS))
    }

    fn find(&self, path: &str) -> Option<&Entry> {
        let at = self
            .entries
            .binary_search_by(|entry| entry.path.as_str().cmp(path));
        self.entries.get(at.ok()?)
    }

    /// The version of a file that has this stamp.
    pub(crate) fn blob_of(&self, path: &str, stamp: Stamp) -> Blob {
        match self.find(path) {
            Some(entry) if entry.stamp == stamp => entry.blob,
            _ => UNKNOWN,
        }
    }

    /// The stamp under which a file is this version.
    pub(crate) fn stamp_of(&self, path: &str, blob: Blob) -> Option<Stamp> {
        let entry = self.find(path)?;
        (blob != UNKNOWN && entry.blob == blob).then_some(entry.stamp)
    }
}

/// Reads the entries below `prefix` whose files changed before `until`.
fn parse(bytes: &[u8], prefix: &str, until: i64) -> Option<GitIndex> {
    let mut rest = bytes;
    let number = |rest: &mut &[u8]| take_array(rest).map(u32::from_be_bytes);
    if take_array::<4>(&mut rest)? != *b"DIRC" {
        return None;
    }
    let version = number(&mut rest)?;
    let count = number(&mut rest)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut entries = Vec::new();
    let mut name: Vec<u8> = Vec::new();
    for _ in 0..count {
        let before = rest.len();
        let mut fields = [0; 10];
        for field in &mut fields {
            *field = number(&mut rest)?;
        }
        let [
            changed,
            changed_nanos,
            modified,
            modified_nanos,
            _,
            inode,
            mode,
            _,
            _,
            size,
        ] = fields;
        let blob: Blob = take_array(&mut rest)?;
        let flags = u16::from_be_bytes(take_array(&mut rest)?);
        let more = match flags & EXTENDED != 0 && version > 2 {
            true => u16::from_be_bytes(take_array(&mut rest)?),
            false => 0,
        };
        if version == 4 {
            let dropped = offset(&mut rest)?;
            name.truncate(name.len().checked_sub(dropped)?);
        } else {
            name.clear();
        }
        let end = memchr::memchr(0, rest)?;
        name.extend_from_slice(take_bytes(&mut rest, end)?);
        take_bytes(&mut rest, 1)?;
        if version < 4 {
            // Entries are filled up to a multiple of eight with at least one zero.
            let length = before - rest.len();
            take_bytes(&mut rest, length.next_multiple_of(8) - length)?;
        }
        let nanos =
            |seconds: u32, nanos: u32| i64::from(seconds) * 1_000_000_000 + i64::from(nanos);
        let stamp = Stamp {
            size: u64::from(size),
            modified: nanos(modified, modified_nanos),
            changed: nanos(changed, changed_nanos),
            inode: u64::from(inode),
        };
        let path = std::str::from_utf8(&name).ok();
        let compared =
            flags & (ASSUME_VALID | STAGE) == 0 && more == 0 && mode & 0o170_000 == REGULAR;
        if let Some(path) = path.and_then(|path| path.strip_prefix(prefix))
            && compared
            && stamp.modified.max(stamp.changed) < until
        {
            entries.push(Entry {
                path: path.to_owned(),
                blob,
                stamp,
            });
        }
    }
    // The entries of a split index are only those that differ from another file.
    (!rest.starts_with(b"link")).then_some(GitIndex { entries })
}

/// A number as version 4 writes it: seven bits a byte, each further byte adding one.
fn offset(rest: &mut &[u8]) -> Option<usize> {
    let [mut byte] = take_array::<1>(rest)?;
    let mut value = usize::from(byte & 127);
    while byte & 128 != 0 {
        [byte] = take_array::<1>(rest)?;
        value = value.checked_add(1)?.checked_mul(128)?;
        value = value.checked_add(usize::from(byte & 127))?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use mainstay_worker::testing::TempDir;

    use super::*;

    fn git(root: &Path, arguments: &[&str]) -> bool {
        let output = std::process::Command::new("git")
            .args(arguments)
            .current_dir(root)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output();
        output.is_ok_and(|output| output.status.success())
    }

    #[test]
    fn stamps_and_blobs_of_every_version_of_the_format_are_those_of_the_files() {
        let dir = TempDir::new().unwrap();
        let root = dir.path();
        if !git(root, &["init", "-q"]) {
            println!("skipped: git is not installed");
            return;
        }
        fs::create_dir_all(root.join("src/deep")).unwrap();
        let names = ["a.txt", "src/b.txt", "src/deep/c.txt", "src/deep/cd.txt"];
        for (number, name) in names.iter().enumerate() {
            fs::write(root.join(name), "text\n".repeat(number % 2 + 1)).unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        for version in ["2", "4"] {
            let set = ["update-index", "--add", "--index-version", version];
            assert!(git(root, &[&set[..], &names[..]].concat()));
            let stamp = |name: &str| Stamp::of(&fs::metadata(root.join(name)).unwrap());
            let index = GitIndex::read(root);
            let blob = |name: &str| index.blob_of(name, stamp(name));
            for name in names {
                assert_ne!(blob(name), UNKNOWN, "{version} {name}");
                assert_eq!(index.stamp_of(name, blob(name)), Some(stamp(name)));
            }
            assert_eq!(blob("a.txt"), blob("src/deep/c.txt"));
            assert_ne!(blob("a.txt"), blob("src/b.txt"));
            let below = GitIndex::read(&root.join("src"));
            assert_eq!(
                below.blob_of("deep/c.txt", stamp("src/deep/c.txt")),
                blob("a.txt")
            );
            let other = Stamp {
                size: 7,
                ..stamp("a.txt")
            };
            assert_eq!(index.blob_of("a.txt", other), UNKNOWN);
        }
        // A cut or foreign file is not an index.
        let bytes = fs::read(root.join(".git/index")).unwrap();
        for length in 0..bytes.len() - 20 {
            if let Some(read) = parse(&bytes[..length], "", i64::MAX) {
                assert_eq!(read.entries.len(), names.len(), "{length}");
            }
        }
        assert!(parse(b"DIRC\0\0\0\x09\0\0\0\0", "", i64::MAX).is_none());
    }

    #[test]
    fn files_as_young_as_the_index_are_not_relied_on() {
        let dir = TempDir::new().unwrap();
        let root = dir.path();
        if !git(root, &["init", "-q"]) {
            println!("skipped: git is not installed");
            return;
        }
        fs::write(root.join("a"), "text").unwrap();
        assert!(git(root, &["add", "a"]));
        let written = fs::metadata(root.join(".git/index")).unwrap();
        fs::File::options()
            .write(true)
            .open(root.join("a"))
            .unwrap()
            .set_modified(written.modified().unwrap())
            .unwrap();
        assert!(git(root, &["add", "a"]));
        fs::File::options()
            .write(true)
            .open(root.join(".git/index"))
            .unwrap()
            .set_modified(written.modified().unwrap())
            .unwrap();
        assert!(GitIndex::read(root).entries.is_empty());
    }
}
