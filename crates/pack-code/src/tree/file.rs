//! One file: its stamp, its bytes, and why it may be skipped.

use std::fs::{File, Metadata};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::time::SystemTime;

use mainstay_worker::{RootedDir, RootedError};
use memchr::memchr;
use serde::{Deserialize, Serialize};

use crate::limits;

/// Bytes looked at first for a NUL: most binary files show it there.
const HEAD_BYTES: u64 = 8 * 1024;
/// A file changed this shortly before it was read may change again within one tick of its clock.
const RACY_NANOS: i128 = 50_000_000;
/// Times that a file which changes while it is read is read again.
const READ_AGAIN: usize = 3;

/// What the file system says about one version of a file. Two equal stamps are one version,
/// unless the file was racy when it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) size: u64,
    pub(crate) modified: i64,
    pub(crate) changed: i64,
    pub(crate) inode: u64,
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let nanos =
            |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
        Self {
            size: metadata.len(),
            modified: nanos(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanos(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        }
    }

    /// Whether a change right after `now` could leave the stamp as it is.
    pub(crate) fn is_racy(&self, now: SystemTime) -> bool {
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos());
        let now = i128::try_from(now).unwrap_or(i128::MAX);
        now - i128::from(self.changed.max(self.modified)) < RACY_NANOS
    }
}

/// Why a file is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Skip {
    TooLarge,
    Minified,
    Unreadable,
    Binary,
}

impl Skip {
    pub(crate) const ALL: [Self; 4] = [
        Self::TooLarge,
        Self::Minified,
        Self::Unreadable,
        Self::Binary,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::Minified => "minified",
            Self::Unreadable => "unreadable",
            Self::Binary => "binary",
        }
    }

    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::TooLarge => 1,
            Self::Minified => 2,
            Self::Unreadable => 3,
            Self::Binary => 4,
        }
    }

    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::TooLarge),
            2 => Some(Self::Minified),
            3 => Some(Self::Unreadable),
            4 => Some(Self::Binary),
            _ => None,
        }
    }
}

/// What reading gave.
#[derive(Debug)]
pub(crate) enum Content {
    /// The text is in the buffer.
    Text,
    Skipped(Skip),
    /// Not there any more, or no regular file: it does not count at all.
    Gone,
}

/// Reads files of one root into buffers that are used again.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    root: &'a RootedDir,
    max_bytes: u64,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(root: &'a RootedDir, max_bytes: u64) -> Self {
        Self { root, max_bytes }
    }

    /// The same with another limit.
    pub(crate) const fn up_to(&self, max_bytes: u64) -> Self {
        Self {
            root: self.root,
            max_bytes,
        }
    }

    /// Reads `path` into `buffer`, which holds exactly its bytes after [`Content::Text`]. The
    /// stamp is that of the version that was read.
    pub(crate) fn read(&self, path: &str, buffer: &mut Vec<u8>) -> (Content, Stamp) {
        self.read_known(path, None, buffer)
    }

    /// Like [`Self::read`]; a version whose stamp is `text` is known to be text.
    pub(crate) fn read_known(
        &self,
        path: &str,
        text: Option<Stamp>,
        buffer: &mut Vec<u8>,
    ) -> (Content, Stamp) {
        let mut stamp = Stamp::default();
        for _ in 0..READ_AGAIN {
            buffer.clear();
            let mut file = match self.root.open_file(path) {
                Ok(file) => file,
                Err(RootedError::NotFound | RootedError::NotAFile | RootedError::Escapes) => {
                    return (Content::Gone, stamp);
                }
                Err(_) => return (Content::Skipped(Skip::Unreadable), stamp),
            };
            if let Some(text) = text {
                let content = fill_known(&file, text.size, buffer);
                if stamp_of(&file) == Some(text) {
                    return (content, text);
                }
                buffer.clear();
                if file.seek(SeekFrom::Start(0)).is_err() {
                    return (Content::Skipped(Skip::Unreadable), stamp);
                }
            }
            let Some(before) = stamp_of(&file) else {
                return (Content::Skipped(Skip::Unreadable), stamp);
            };
            stamp = before;
            let content = self.fill(&file, stamp.size, buffer);
            // A file that changes under us is read again; at the end any version will do, for
            // its next change is noticed like every other.
            match stamp_of(&file) {
                Some(after) if after == stamp => return (content, stamp),
                Some(_) => {}
                None => return (Content::Skipped(Skip::Unreadable), stamp),
            }
        }
        let content = match buffer.is_empty() && stamp.size > 0 {
            true => Content::Skipped(Skip::Unreadable),
            false => classify(buffer),
        };
        (content, stamp)
    }

    /// The file itself, if there is one.
    pub(crate) fn open(&self, path: &str) -> Option<File> {
        self.root.open_file(path).ok()
    }

    /// The time of a file as it is now; nothing where it cannot be opened.
    pub(crate) fn modified(&self, path: &str) -> Option<i64> {
        let metadata = self.root.open_file(path).ok()?.metadata().ok()?;
        Some(Stamp::of(&metadata).modified)
    }

    /// Reads some ranges of a file, one after the other into `buffer`, if the file is the version
    /// that has this stamp.
    pub(crate) fn read_ranges(
        &self,
        path: &str,
        stamp: Stamp,
        ranges: &[Range<u64>],
        buffer: &mut Vec<u8>,
    ) -> Option<()> {
        buffer.clear();
        let file = self.root.open_file(path).ok()?;
        for range in ranges {
            let from = buffer.len();
            let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
            buffer.resize(from + length, 0);
            file.read_exact_at(buffer.get_mut(from..)?, range.start)
                .ok()?;
        }
        // Whatever was written before the last byte was read shows in the stamp.
        (stamp_of(&file)? == stamp).then_some(())
    }

    fn fill(&self, mut file: &File, size: u64, buffer: &mut Vec<u8>) -> Content {
        if size > self.max_bytes {
            return Content::Skipped(Skip::TooLarge);
        }
        let unreadable = Content::Skipped(Skip::Unreadable);
        if file
            .take(HEAD_BYTES.min(size.max(1)))
            .read_to_end(buffer)
            .is_err()
        {
            return unreadable;
        }
        if memchr(0, buffer).is_some() {
            return Content::Skipped(Skip::Binary);
        }
        buffer.reserve(
            usize::try_from(size)
                .unwrap_or(0)
                .saturating_sub(buffer.len())
                + 1,
        );
        let rest = self
            .max_bytes
            .saturating_add(1)
            .saturating_sub(buffer.len() as u64);
        if (&mut file).take(rest).read_to_end(buffer).is_err() {
            return unreadable;
        }
        if buffer.len() as u64 > self.max_bytes {
            return Content::Skipped(Skip::TooLarge);
        }
        classify(buffer)
    }
}

pub(crate) fn stamp_of(file: &File) -> Option<Stamp> {
    file.metadata().ok().map(|metadata| Stamp::of(&metadata))
}

/// Reads a file that is known to be text.
fn fill_known(mut file: &File, size: u64, buffer: &mut Vec<u8>) -> Content {
    buffer.reserve(usize::try_from(size).unwrap_or(0) + 1);
    match (&mut file).take(size).read_to_end(buffer) {
        Ok(_) => Content::Text,
        Err(_) => Content::Skipped(Skip::Unreadable),
    }
}

/// Text, binary or minified.
pub(crate) fn classify(bytes: &[u8]) -> Content {
    if memchr(0, bytes).is_some() {
        return Content::Skipped(Skip::Binary);
    }
    // Files of a few lines only are not worth a verdict.
    if bytes.len() > limits::AVERAGE_LINE_BYTES {
        let lines =
            memchr::memchr_iter(b'\n', bytes).count() + usize::from(bytes.last() != Some(&b'\n'));
        if bytes.len() / lines.max(1) > limits::AVERAGE_LINE_BYTES {
            return Content::Skipped(Skip::Minified);
        }
    }
    Content::Text
}
