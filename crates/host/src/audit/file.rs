//! The file of a chain: opened and locked, continued, appended to, rotated.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mainstay_contract::audit::{AuditEvent, AuditRecord, Head, Key, stated_head};
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags};

use super::{AuditConfig, AuditError, Files, anchor};
use crate::clock::iso_now;

/// Longest line that is read back. A record has a bounded number of bounded texts.
const LINE: u64 = 64 * 1024;
/// Chains whose files may lie beside each other.
const OLDER: u64 = 100;

/// An open audit file.
#[derive(Debug)]
pub(super) struct AuditFile {
    config: AuditConfig,
    files: Files,
    /// Bytes of whole lines, and the head after them.
    written: (u64, Head),
    /// Bytes that are on the disk, and the head after them.
    durable: (u64, Head),
    /// The next line is the first of its file.
    begins: bool,
    /// Bytes after the last whole line must be removed first.
    torn: bool,
}

impl AuditFile {
    /// Opens or creates the file, locks it, and reads its head.
    pub(super) fn open(config: AuditConfig) -> Result<Self, AuditError> {
        let path = config.file.clone();
        let failed = |source| AuditError::Io {
            path: path.display().to_string(),
            source,
        };
        // The lock has a file of its own: a rotation replaces the other one.
        let lock = private(&beside(&path, "lock")).map_err(failed)?;
        let take = |file: &File| {
            rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
                match error {
                    rustix::io::Errno::WOULDBLOCK => AuditError::Locked {
                        path: path.display().to_string(),
                    },
                    error => failed(error.into()),
                }
            })
        };
        take(&lock)?;
        let next = beside(&path, "next");
        if next.exists() && !path.exists() {
            // A rotation was cut off between its two renames.
            std::fs::rename(&next, &path).map_err(failed)?;
        }
        let file = private(&path).map_err(failed)?;
        // The file may have another path, and its lock may have been removed.
        take(&file)?;
        let anchor = match &config.anchor {
            None => None,
            Some(anchor) => {
                let opened = private(anchor).map_err(|source| AuditError::Io {
                    path: anchor.display().to_string(),
                    source,
                })?;
                Some(Arc::new(opened))
            }
        };
        let files = Files {
            file: Arc::new(file),
            anchor,
            lock: Arc::new(lock),
        };
        let (mut opened, torn) = Self::read(config, files).map_err(failed)??;
        opened.check_anchor()?;
        if torn > 0 {
            let repaired = AuditRecord {
                detail: Some(format!(
                    "{torn} bytes of a line that was written in part were removed"
                )),
                ..AuditRecord::new(AuditEvent::Repaired)
            };
            opened.append_durably(repaired)?;
        }
        Ok(opened)
    }

    /// Continues files that another program opened.
    pub(super) fn resume(config: AuditConfig, files: Files) -> Result<Self, AuditError> {
        let path = config.file.display().to_string();
        let (resumed, _) =
            Self::read(config, files).map_err(|source| AuditError::Io { path, source })??;
        Ok(resumed)
    }

    /// The end of the chain in a file, and the bytes after its last whole line.
    fn read(config: AuditConfig, files: Files) -> io::Result<Result<(Self, u64), AuditError>> {
        let length = files.file.metadata()?.len();
        let tail = length.min(LINE * 2);
        let mut bytes = vec![0; usize::try_from(tail).unwrap_or(0)];
        files.file.read_exact_at(&mut bytes, length - tail)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        let kept = whole.map_or(0, |at| at + 1);
        let torn = (bytes.len() - kept) as u64;
        let lines = bytes.get(..kept.saturating_sub(1)).unwrap_or_default();
        let last = lines
            .rsplit(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let head = match last {
            [] => Some(Head::default()),
            last => std::str::from_utf8(last).ok().and_then(stated_head),
        };
        let is_lost = whole.is_none() && length > tail;
        let Some(head) = head.filter(|_| !is_lost) else {
            return Ok(Err(AuditError::Broken {
                path: config.file.display().to_string(),
                why: "its last line is not one of an audit file; move the file away to begin a new chain"
                    .to_owned(),
            }));
        };
        let length = length - torn;
        let opened = Self {
            config,
            files,
            written: (length, head),
            durable: (length, head),
            begins: length == 0,
            torn: torn > 0,
        };
        Ok(Ok((opened, torn)))
    }

    /// Lines that the anchor knows must be there.
    fn check_anchor(&self) -> Result<(), AuditError> {
        let Some(file) = &self.files.anchor else {
            return Ok(());
        };
        let shown = || {
            self.config
                .anchor
                .clone()
                .unwrap_or_default()
                .display()
                .to_string()
        };
        let known = anchor::read_from(file).map_err(|source| AuditError::Io {
            path: shown(),
            source,
        })?;
        let (_, head) = self.written;
        let Some(known) = known else {
            return Ok(());
        };
        let why = if known.seq > head.seq {
            format!(
                "its last line has number {}, and the anchor {} knows line {}: lines were removed",
                head.seq,
                shown(),
                known.seq
            )
        } else if known.seq == head.seq && known != head {
            format!("its last line differs from the anchor {}", shown())
        } else {
            return Ok(());
        };
        Err(AuditError::Broken {
            path: self.config.file.display().to_string(),
            why: format!(
                "{why}; run mainstay audit verify, then move both files away to begin a new chain"
            ),
        })
    }

    /// True if the chain has no line yet.
    pub(super) const fn is_new(&self) -> bool {
        self.written.1.seq == 0
    }

    pub(super) const fn key(&self) -> Option<&Key> {
        self.config.key.as_ref()
    }

    pub(super) const fn files(&self) -> &Files {
        &self.files
    }

    /// Appends a record and waits for the disk.
    pub(super) fn append_durably(&mut self, record: AuditRecord) -> Result<(), AuditError> {
        let appended = self.append(record).and_then(|()| self.sync());
        appended.map_err(|source| AuditError::Io {
            path: self.config.file.display().to_string(),
            source,
        })
    }

    /// Appends a record, which the disk need not have yet. After an error nothing was appended.
    pub(super) fn append(&mut self, record: AuditRecord) -> io::Result<()> {
        if self.torn {
            self.cut(self.written.0)?;
            self.torn = false;
        }
        if self.written.0 >= self.config.most_bytes && !self.begins {
            self.rotate()?;
        }
        let (length, head) = self.written;
        if self.files.file.metadata()?.len() < length {
            return Err(io::Error::other(format!(
                "another program cut {}; run mainstay audit verify, then move it away and restart the host",
                self.config.file.display()
            )));
        }
        let (mut line, next) =
            head.extend(record, iso_now(), self.begins, self.config.key.as_ref());
        line.push('\n');
        if let Err(error) = self.files.file.write_all_at(line.as_bytes(), length) {
            self.torn = self.cut(length).is_err();
            return Err(error);
        }
        self.written = (length + line.len() as u64, next);
        self.begins = false;
        Ok(())
    }

    /// Waits until the disk has everything. After an error everything since the last time is removed again.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.durable == self.written {
            return Ok(());
        }
        let synced = self
            .check_places()
            .and_then(|()| self.files.file.sync_data())
            .and_then(|()| match &self.files.anchor {
                Some(anchor) => anchor::write(anchor, &self.written.1),
                None => Ok(()),
            });
        match synced {
            Ok(()) => self.durable = self.written,
            Err(_) => {
                self.written = self.durable;
                self.begins = self.durable.0 == 0;
                self.torn = self.cut(self.durable.0).is_err();
            }
        }
        synced
    }

    /// Removes what is behind a length. A file that another program made shorter stays as it is: zeros in the gap would hide
    /// what happened.
    fn cut(&self, length: u64) -> io::Result<()> {
        match self.files.file.metadata()?.len() > length {
            true => self.files.file.set_len(length),
            false => Ok(()),
        }
    }

    /// Fails if another program removed or replaced a file: the lines would go where they are not found.
    fn check_places(&self) -> io::Result<()> {
        let file = self.files.file.metadata()?;
        let anchor = self.config.anchor.as_ref().zip(self.files.anchor.as_ref());
        let anchor = anchor.map(|(path, file)| Ok::<_, io::Error>((path, file.metadata()?)));
        let anchor = anchor.transpose()?;
        for (path, own) in [(&self.config.file, &file)]
            .into_iter()
            .chain(anchor.as_ref().map(|(path, own)| (*path, own)))
        {
            let there = std::fs::symlink_metadata(path);
            if !there.is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())) {
                return Err(io::Error::other(format!(
                    "another program removed or replaced {}; put it back, or restart the host",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// Renames the file after the number of its last line, and begins another one.
    fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        let (path, (_, head)) = (&self.config.file, self.written);
        let next = beside(path, "next");
        let _ = std::fs::remove_file(&next);
        let file = private(&next)?;
        file.sync_all()?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        set_aside(path, head.seq)?;
        std::fs::rename(&next, path)?;
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            File::open(folder)?.sync_all()?;
        }
        self.files.file = Arc::new(file);
        self.written = (0, head);
        self.durable = (0, head);
        self.begins = true;
        Ok(())
    }
}

/// Renames a file after the number of its last line. A file of an older chain may have that name: it is never replaced.
fn set_aside(path: &Path, seq: u64) -> io::Result<()> {
    let further = (2..OLDER).map(|chain| format!("{seq}-{chain}"));
    for end in std::iter::once(seq.to_string()).chain(further) {
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(CWD, path, CWD, beside(path, &end), flags) {
            Err(rustix::io::Errno::EXIST) => {}
            renamed => return Ok(renamed?),
        }
    }
    let said = format!("there are {OLDER} files {}.{seq}", path.display());
    Err(io::Error::other(said))
}

/// The path with more at its end.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(end);
    name.into()
}

/// Opens a file that only this user may read, and that is not a link; creates it if there is none.
fn private(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_contract::audit::Verifier;

    fn config(folder: &Path, most_bytes: u64) -> AuditConfig {
        AuditConfig {
            file: folder.join("audit"),
            anchor: Some(folder.join("anchor")),
            key: None,
            most_bytes,
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("mainstay-audit-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn record() -> AuditRecord {
        AuditRecord::new(AuditEvent::Ended)
    }

    /// The number of lines, all of which continue the chain.
    fn verified(paths: &[PathBuf]) -> u64 {
        let mut verifier = Verifier::new(None);
        for path in paths {
            verifier.begin_file();
            for line in std::fs::read_to_string(path).unwrap().lines() {
                verifier.check(line).unwrap();
            }
        }
        verifier.head().unwrap().seq
    }

    #[test]
    fn a_chain_goes_on_where_it_ended_and_a_torn_line_is_removed() {
        let folder = folder("torn");
        let mut file = AuditFile::open(config(&folder, 1 << 20)).unwrap();
        assert!(file.is_new());
        file.append_durably(record()).unwrap();
        assert!(matches!(
            AuditFile::open(config(&folder, 1)),
            Err(AuditError::Locked { .. })
        ));
        drop(file);
        let path = folder.join("audit");
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"at\":\"20");
        std::fs::write(&path, &text).unwrap();
        let mut file = AuditFile::open(config(&folder, 1 << 20)).unwrap();
        file.append_durably(record()).unwrap();
        assert_eq!(verified(std::slice::from_ref(&path)), 3);
        assert!(
            std::fs::read_to_string(&path)
                .unwrap()
                .contains("9 bytes of a line")
        );
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn a_file_that_another_program_removed_replaced_or_cut_takes_no_record() {
        let folder = folder("moved");
        let (path, anchor) = (folder.join("audit"), folder.join("anchor"));
        let mut file = AuditFile::open(config(&folder, 1 << 20)).unwrap();
        file.append_durably(record()).unwrap();
        let mut refused = |said: &str| {
            let error = file.append_durably(record()).unwrap_err();
            let AuditError::Io { source, .. } = error else {
                panic!("{error}");
            };
            assert!(source.to_string().contains(said), "{source}");
        };
        for moved in [&path, &anchor] {
            let aside = folder.join("aside");
            std::fs::rename(moved, &aside).unwrap();
            refused("removed or replaced");
            std::fs::write(moved, "").unwrap();
            refused("removed or replaced");
            std::fs::rename(&aside, moved).unwrap();
        }
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        refused("cut");
        assert!(std::fs::read(&path).unwrap().is_empty(), "no gap of zeros");
        std::fs::write(&path, whole).unwrap();
        // What was there before is there again, and the chain goes on.
        file.append_durably(record()).unwrap();
        assert_eq!(verified(std::slice::from_ref(&path)), 2);
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn two_hosts_never_write_one_file() {
        let folder = folder("two");
        let first = AuditFile::open(config(&folder, 1 << 20)).unwrap();
        // Under another name, or with the lock removed.
        let other = folder.join("other");
        std::fs::hard_link(folder.join("audit"), &other).unwrap();
        let named = AuditConfig {
            file: other,
            anchor: None,
            ..config(&folder, 1 << 20)
        };
        assert!(matches!(
            AuditFile::open(named),
            Err(AuditError::Locked { .. })
        ));
        std::fs::remove_file(folder.join("audit.lock")).unwrap();
        assert!(matches!(
            AuditFile::open(config(&folder, 1 << 20)),
            Err(AuditError::Locked { .. })
        ));
        drop(first);
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn a_rotation_replaces_no_file_of_an_older_chain() {
        let folder = folder("older");
        std::fs::write(folder.join("audit.1"), "of an older chain").unwrap();
        let mut file = AuditFile::open(config(&folder, 1)).unwrap();
        for _ in 0..2 {
            file.append_durably(record()).unwrap();
        }
        let kept = std::fs::read_to_string(folder.join("audit.1")).unwrap();
        assert_eq!(kept, "of an older chain");
        assert_eq!(
            verified(&[folder.join("audit.1-2"), folder.join("audit")]),
            2
        );
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn a_tail_that_was_cut_off_is_found_by_the_anchor() {
        let folder = folder("cut");
        let mut file = AuditFile::open(config(&folder, 1 << 20)).unwrap();
        for _ in 0..3 {
            file.append_durably(record()).unwrap();
        }
        drop(file);
        let path = folder.join("audit");
        let text = std::fs::read_to_string(&path).unwrap();
        let cut = text.lines().take(2).map(|line| format!("{line}\n"));
        std::fs::write(&path, cut.collect::<String>()).unwrap();
        let error = AuditFile::open(config(&folder, 1 << 20)).unwrap_err();
        assert!(error.to_string().contains("lines were removed"), "{error}");
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn a_rotated_file_is_continued_by_the_next() {
        let folder = folder("rotated");
        let mut file = AuditFile::open(config(&folder, 400)).unwrap();
        for _ in 0..6 {
            file.append_durably(record()).unwrap();
        }
        drop(file);
        let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.retain(|path| {
            path.to_string_lossy().contains("/audit") && !path.to_string_lossy().ends_with("lock")
        });
        files.sort_by_key(|path| {
            path.extension()
                .map_or(u64::MAX, |end| end.to_string_lossy().parse().unwrap())
        });
        assert!(files.len() > 1, "{files:?}");
        assert_eq!(verified(&files), 6);
        let anchored = anchor::read(&folder.join("anchor")).unwrap().unwrap();
        assert_eq!(anchored.seq, 6);
        let again = AuditFile::open(config(&folder, 400)).unwrap();
        assert_eq!(again.written.1, anchored);
        let _ = std::fs::remove_dir_all(&folder);
    }
}
