//! A client's file on disk: read whole, backed up, and replaced in one step.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use mainstay_host::files;

use crate::exit::Failure;

/// Largest file that is read.
pub(super) const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// What a backup's name ends with.
const BACKUP: &str = "mainstay-backup";
/// Backups of one file that may be there.
const BACKUPS: usize = 1000;

/// A file as it was read.
#[derive(Debug)]
pub(super) struct ClientFile {
    /// Where it really is: what a link points to is changed, the link stays.
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
    facts: Metadata,
}

impl ClientFile {
    /// Reads a file.
    pub(super) fn open(named: &Path) -> Result<Self, Failure> {
        let shown = named.display();
        let path = named
            .canonicalize()
            .with_context(|| format!("cannot read {shown}"))
            .map_err(Failure::input)?;
        let (bytes, facts) = read(&path).map_err(Failure::input)?;
        Ok(Self { path, bytes, facts })
    }

    /// Whether it may be replaced by so many bytes; said before anything is done.
    pub(super) fn check_writable(&self, size: usize) -> Result<(), Failure> {
        let shown = self.path.display();
        // What is written must be readable again, or it could not be undone.
        if size as u64 > MAX_BYTES {
            return Err(Failure::input(anyhow!(
                "{shown} would have {size} bytes; a configuration may have {MAX_BYTES}"
            )));
        }
        if self.facts.mode() & 0o222 == 0 {
            let said = anyhow!("{shown} may not be written");
            let hint = "its owner or a program that manages it made it read-only; change it there, or chmod u+w";
            return Err(Failure::input(said).hint(hint));
        }
        Ok(())
    }

    /// Names that the same file has elsewhere, which a replacement leaves as they are.
    pub(super) fn other_names(&self) -> u64 {
        self.facts.nlink().saturating_sub(1)
    }

    /// The backups there are, newest first.
    pub(super) fn backups(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found: Vec<(PathBuf, Vec<u8>)> = (0..BACKUPS)
            .map(|number| self.backup_path(number))
            .filter_map(|path| {
                let bytes = read(&path).ok()?.0;
                Some((path, bytes))
            })
            .collect();
        found.reverse();
        found
    }

    /// Keeps the file's content beside it, unless a backup has it already.
    pub(super) fn back_up(&self) -> Result<PathBuf, Failure> {
        for number in 0..BACKUPS {
            let path = self.backup_path(number);
            match self.create(&path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if read(&path).is_ok_and(|(bytes, _)| bytes == self.bytes) {
                        return Ok(path);
                    }
                }
                Err(error) => return Err(cannot_write(error, &path)),
            }
        }
        let shown = self.path.display();
        Err(
            Failure::input(anyhow!("{shown} has {BACKUPS} backups already"))
                .hint("remove those that nobody needs"),
        )
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        let file = new_file(path)?;
        let written = self.fill(&file, &self.bytes);
        if written.is_err() {
            let _ = std::fs::remove_file(path);
        }
        written
    }

    /// Puts another content in the file's place, if it is still the file that was read.
    pub(super) fn replace(&self, content: &[u8]) -> Result<(), Failure> {
        let temporary = files::draft_of(&self.path);
        let file = new_file(&temporary).map_err(|error| cannot_write(error, &temporary))?;
        let replaced = self
            .fill(&file, content)
            .map_err(|error| cannot_write(error, &temporary))
            .and_then(|()| self.check_unchanged())
            .and_then(|()| {
                std::fs::rename(&temporary, &self.path)
                    .map_err(|error| cannot_write(error, &self.path))
            });
        if replaced.is_err() {
            let _ = std::fs::remove_file(&temporary);
            return replaced;
        }
        // The name is safe once its folder is.
        if let Some(folder) = self.path.parent() {
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
        }
        Ok(())
    }

    fn check_unchanged(&self) -> Result<(), Failure> {
        let (bytes, _) = read(&self.path).map_err(Failure::input)?;
        if bytes == self.bytes {
            return Ok(());
        }
        let shown = self.path.display();
        Err(
            Failure::input(anyhow!("{shown} was changed by somebody else just now"))
                .hint("nothing was written; close the client that keeps it, and try again"),
        )
    }

    /// Fills a new file, with the permissions and the owner of the old one.
    fn fill(&self, mut file: &File, content: &[u8]) -> io::Result<()> {
        file.write_all(content)?;
        let facts = file.metadata()?;
        if (facts.uid(), facts.gid()) != (self.facts.uid(), self.facts.gid()) {
            fchown(file, Some(self.facts.uid()), Some(self.facts.gid()))?;
        }
        let mode = self.facts.mode() & 0o7777;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.sync_all()
    }

    fn backup_path(&self, number: usize) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{BACKUP}"));
        if number > 0 {
            path.push(format!(".{number}"));
        }
        PathBuf::from(path)
    }
}

/// A file that was not there, for its owner alone until it is whole.
fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn read(path: &Path) -> anyhow::Result<(Vec<u8>, Metadata)> {
    let shown = path.display();
    let cannot_read = || format!("cannot read {shown}");
    let facts = std::fs::metadata(path).with_context(cannot_read)?;
    if !facts.is_file() {
        return Err(anyhow!("{shown} is not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .with_context(cannot_read)?;
    if bytes.len() as u64 > MAX_BYTES {
        let size = facts.len();
        return Err(anyhow!(
            "{shown} has {size} bytes; a configuration may have {MAX_BYTES}"
        ));
    }
    Ok((bytes, facts))
}

fn cannot_write(error: io::Error, path: &Path) -> Failure {
    let said = format!("cannot write {}", path.display());
    Failure::input(anyhow::Error::new(error).context(said))
}

#[cfg(test)]
mod tests {
    use mainstay_testkit::process::TempDir;

    use super::*;

    /// A file in a folder of its own.
    fn file(content: &str) -> (TempDir, ClientFile) {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.join("a.json"), content).unwrap();
        let file = ClientFile::open(&folder.join("a.json")).unwrap();
        (folder, file)
    }

    fn names(folder: &TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn said(result: Result<(), Failure>) -> String {
        format!("{:#}", result.unwrap_err().error)
    }

    #[test]
    fn a_file_that_vanished_is_not_brought_back() {
        let (folder, file) = file("old");
        std::fs::remove_file(&file.path).unwrap();
        assert!(said(file.replace(b"new")).starts_with("cannot read"));
        assert!(names(&folder).is_empty());
    }

    #[test]
    fn a_file_that_somebody_else_changed_is_theirs() {
        let (folder, file) = file("old");
        std::fs::write(&file.path, "theirs").unwrap();
        assert!(said(file.replace(b"new")).contains("was changed by somebody else"));
        assert_eq!(std::fs::read(&file.path).unwrap(), b"theirs");
        assert_eq!(names(&folder), ["a.json"]);
    }

    #[test]
    fn a_place_that_is_gone_is_an_error() {
        let (folder, file) = file("old");
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(said(file.replace(b"new")).starts_with("cannot write"));
        assert!(said(file.back_up().map(|_| ())).starts_with("cannot write"));
    }

    #[test]
    fn gaps_between_backups_do_not_hide_the_others() {
        let (folder, file) = file("old");
        std::fs::write(folder.join("a.json.mainstay-backup.3"), "third").unwrap();
        std::fs::write(folder.join("a.json.mainstay-backup.1"), "first").unwrap();
        let found: Vec<Vec<u8>> = file.backups().into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(found, [b"third".to_vec(), b"first".to_vec()]);
    }
}
